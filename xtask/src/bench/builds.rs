//! Builds beside the same installation on the host, and builds after an edit.

use super::Row;
use super::api::Api;
use super::sample::{median_ms, timed};
use crate::failure::{Failure, Step};
use crate::program::run;
use crate::test_fs::TestFs;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const ROUNDS: usize = 3;
const EDITS: usize = 7;

const REQUIREMENTS: &str = "numpy==2.2.4\npandas==2.2.3\n";
const PACKAGE: &str = r#"{"name": "bench", "version": "1.0.0",
    "dependencies": {"express": "4.21.2", "webpack": "5.98.0", "webpack-cli": "6.0.1"}}"#;

/// Measures first builds by pip and npm in turn with the host, and builds after an edit.
///
/// # Errors
/// When a build fails or a program does.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let state = fs.path().join("builds");
    std::fs::create_dir_all(&state).step(|| "making a state directory".to_owned())?;
    let api = Api::start(&state)?;
    let host = fs.path().join("host");
    let pip =
        "python3 -m venv .venv && .venv/bin/pip install -q --no-cache-dir -r requirements.txt";
    let npm = "npm install --silent --no-audit --no-fund";
    let mut rows = first(&api, &host, "pip", ("requirements.txt", REQUIREMENTS), pip)?;
    rows.extend(first(&api, &host, "npm", ("package.json", PACKAGE), npm)?);
    rows.push(after_an_edit(&api)?);
    Ok(rows)
}

/// A first installation in a new environment, in turn with the same one on the host: the
/// installer alone, and the whole build, which ends with everything digested and on disk.
fn first(
    api: &Api,
    host: &Path,
    manager: &str,
    manifest: (&str, &str),
    script: &str,
) -> Result<Vec<Row>, Failure> {
    let (mut step, mut own) = (Vec::new(), Vec::new());
    let (mut peer, mut synced) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let id = environment(api, &format!("{manager} {round}"), manifest)?;
        let (took, record) = build(api, &id)?;
        own.push(took);
        step.push(installing(&record)?);
        let told = || format!("installing by {manager} on the host");
        std::fs::create_dir_all(host.join("home")).step(told)?;
        std::fs::write(host.join(manifest.0), manifest.1).step(told)?;
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(host).env("HOME", host.join("home"));
        let plain = timed(|| run(&mut command))?;
        peer.push(plain);
        synced.push(plain + timed(|| run(Command::new("sync").arg("-f").arg(host)))?);
        std::fs::remove_dir_all(host).step(told)?;
    }
    let (step, own) = (median_ms(step), median_ms(own));
    let (peer, synced) = (median_ms(peer), median_ms(synced));
    let on_host = "the same on the host";
    let row = |what: &str, own, peer| Row::beside(format!("{what} by {manager}"), own, "ms", peer);
    Ok(vec![
        row("first install", step, (on_host, peer)),
        row("first build", own, (on_host, peer)),
        row("first build", own, ("the same on the host; sync -f", synced)),
    ])
}

/// How long the steps of the installer took, as the log of the build tells.
fn installing(record: &Value) -> Result<Duration, Failure> {
    let log = record["log"].as_str().unwrap_or_default();
    let seconds = log.lines().filter_map(|line| line.strip_prefix("[hangar: the step took "));
    let seconds = seconds.filter_map(|rest| rest.strip_suffix(" s]")?.parse::<f64>().ok());
    let seconds: Vec<f64> = seconds.collect();
    match seconds.is_empty() {
        true => Err(Failure::new(format!("the log tells no time of a step: {log}"))),
        false => Ok(Duration::from_secs_f64(seconds.iter().sum())),
    }
}

/// Builds a project of many packages again and again, with one file changed each time.
fn after_an_edit(api: &Api) -> Result<Row, Failure> {
    let id = environment(api, "edited", ("package.json", PACKAGE))?;
    let (_, first) = build(api, &id)?;
    let packages = first["packages"].as_array().map_or(0, Vec::len);
    let mut samples = Vec::new();
    for round in 0..EDITS {
        put(api, &id, "index.js", &format!("console.log({round});\n"))?;
        samples.push(build(api, &id)?.0);
    }
    let name = format!("build after an edit, {packages} packages");
    Ok(Row::alone(name, median_ms(samples), "ms"))
}

fn environment(api: &Api, name: &str, (path, text): (&str, &str)) -> Result<String, Failure> {
    let made = api.ask("POST", "/v1/environments", Some(&json!({ "name": name }).to_string()))?;
    let id = made["id"].as_str().unwrap_or_default().to_owned();
    put(api, &id, path, text)?;
    Ok(id)
}

fn put(api: &Api, id: &str, path: &str, text: &str) -> Result<(), Failure> {
    api.ask("PUT", &format!("/v1/environments/{id}/files/{path}"), Some(text)).map(drop)
}

/// The time from the request to the end, and the record.
fn build(api: &Api, id: &str) -> Result<(Duration, Value), Failure> {
    let mut record = Value::Null;
    let took = timed(|| {
        let path = format!("/v1/environments/{id}/build");
        let started = api.ask("POST", &path, Some("{}"))?;
        let number = started["version"].as_u64().unwrap_or_default();
        loop {
            record = api.ask("GET", &format!("/v1/environments/{id}/builds/{number}"), None)?;
            match record["status"].as_str() {
                Some("ready") => return Ok(()),
                Some("building") => std::thread::sleep(Duration::from_millis(5)),
                _ => return Err(Failure::new(format!("the build failed: {}", record["error"]))),
            }
        }
    })?;
    Ok((took, record))
}
