//! `cargo xtask bench`: how fast and how large hangar is, beside its peers on the same machine.
//!
//! Every value is a median. Where hangar is compared, both sides take turns within one run, on one
//! file system with a journal, so that what else the machine does meets both.

mod api;
mod builds;
mod bwrap;
mod first_output;
mod freeze;
mod http;
mod import;
mod launch;
mod listing;
mod memory;
mod sample;
mod tree;
mod warden;

use crate::failure::{Failure, Step};
use crate::program::run;
use crate::setup::{For, set_up};
use crate::test_fs::TestFs;
use std::process::ExitCode;

/// How results are shown.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print the results as JSON and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Only the group whose name contains this: launch, freeze, import, output, memory, listing,
    /// builds
    #[arg(long)]
    only: Option<String>,
}

/// One result, as `--json` prints it.
#[derive(Debug, serde::Serialize)]
pub struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    peer: Option<&'static str>,
    peer_value: Option<f64>,
    /// `value` by `peer_value`.
    ratio: Option<f64>,
}

impl Row {
    fn alone(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, peer: None, peer_value: None, ratio: None }
    }

    fn beside(
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        (peer, peer_value): (&'static str, f64),
    ) -> Self {
        let (peer, peer_value, ratio) = (Some(peer), Some(peer_value), Some(value / peer_value));
        Self { name: name.into(), value, unit, peer, peer_value, ratio }
    }
}

/// A group of results that share their preparation.
type Group = fn(&TestFs) -> Result<Vec<Row>, Failure>;

const GROUPS: &[(&str, Group)] = &[
    ("freeze", freeze::rows),
    ("import", import::rows),
    ("launch", launch::rows),
    ("output", first_output::rows),
    ("memory", memory::rows),
    ("listing", listing::rows),
    ("builds", builds::rows),
];

/// Builds hangar and measures.
///
/// # Errors
/// When set-up or build fails, or something that is measured does not work.
pub fn bench(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if !crate::tree::is_root() {
        return Err(Failure::new("hangar makes namespaces and mounts: run the benchmarks as root"));
    }
    set_up(For::Bench)?;
    run(crate::tree::cargo().args(["build", "--release", "--quiet"]))?;
    let fs = TestFs::mount("bench-fs")?;
    let mut rows = Vec::new();
    for (name, group) in GROUPS {
        if arguments.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            eprintln!("measuring: {name}");
            rows.extend(group(&fs)?);
        }
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&rows).step(|| "writing the rows".to_owned())?;
        println!("{text}");
    } else {
        print_table(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(rows: &[Row]) {
    for row in rows {
        let own = format!("{:<52} {:>9.2} {:<10}", row.name, row.value, row.unit);
        match (row.peer, row.peer_value, row.ratio) {
            (Some(peer), Some(value), Some(ratio)) => {
                println!("{own} {peer} {value:.2}  ratio {ratio:.2}");
            }
            _ => println!("{}", own.trim_end()),
        }
    }
}
