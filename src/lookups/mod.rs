//! What registries say about a package before any build, asked by the toolchain's own pip, npm
//! and apt in a session of its own. No registry is named here: each manager asks where it would
//! install from.

pub mod answers;
mod session;

use crate::app::App;
use crate::environments::build::debian;
use crate::environments::spec::{Manager, Spec};
use crate::failure::Failure;
use crate::sessions::presets::{self, Purpose, Setting};
use crate::store::Parts;
use answers::Answer;
use hangar_runtime::plan::Network;
use session::Asked;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long a manager may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long apt may take: it has to read all lists of its sources first.
const APT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an answer is good.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// How many answers are remembered; with one more all are forgotten.
const REMEMBERED_MAX: usize = 1000;
/// How many lookups run at once; others wait.
const PARALLEL_MAX: usize = 2;

const PIP: &str = include_str!("scripts/pip.py");
const APT: &str = concat!(
    include_str!("../environments/build/scripts/apt_sources.py"),
    include_str!("scripts/apt.py")
);

type Answers = HashMap<(Manager, Spec), (Instant, Answer)>;

/// The lookups of a server.
#[derive(Debug)]
pub struct Lookups {
    known: Mutex<Answers>,
    places: Semaphore,
}

impl Default for Lookups {
    fn default() -> Self {
        Self { known: Mutex::default(), places: Semaphore::new(PARALLEL_MAX) }
    }
}

impl Lookups {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, key: &(Manager, Spec)) -> Option<Answer> {
        let known = self.lock();
        let (at, answer) = known.get(key)?;
        (at.elapsed() < GOOD_FOR).then(|| answer.clone())
    }

    fn remember(&self, key: (Manager, Spec), answer: &Answer) {
        // That a registry could not be asked says nothing about the next time.
        if answer.exists.is_none() {
            return;
        }
        let mut known = self.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(key, (Instant::now(), answer.clone()));
    }
}

/// What the manager's registry said about a package a short while ago, to anybody who asked.
#[must_use]
pub fn known(app: &App, manager: Manager, spec: &Spec) -> Option<Answer> {
    app.lookups.remembered(&(manager, spec.clone()))
}

/// What the manager's registry says about a package.
///
/// # Errors
/// When no session can be started. A registry that does not answer is no error but an answer.
pub async fn ask(app: &App, manager: Manager, spec: &Spec) -> Result<Answer, Failure> {
    let key = (manager, spec.clone());
    let _place = app.lookups.places.acquire().await.expect("the places are never closed");
    if let Some(answer) = app.lookups.remembered(&key) {
        return Ok(answer);
    }
    let answer = match manager {
        Manager::Pip => ask_pip(app, spec).await?,
        Manager::Npm => ask_npm(app, spec).await?,
        Manager::Apt => ask_apt(app, spec).await?,
    };
    app.lookups.remember(key, &answer);
    Ok(answer)
}

async fn ask_pip(app: &App, spec: &Spec) -> Result<Answer, Failure> {
    // Verbose, or it would not say why it found nothing.
    let pip = ["python3", "-I", "-c", PIP, "-vv", "--no-cache-dir", "--retries=1"];
    let said = run(app, &[&pip[..], &["index", "versions", &spec.name]].concat()).await?;
    Ok(answers::of_pip(spec, &text(&said.stdout), &text(&said.stderr)))
}

async fn ask_npm(app: &App, spec: &Spec) -> Result<Answer, Failure> {
    let options = ["npm", "view", "--json", "--fetch-retries=1"];
    let said = run(app, &[&options[..], &[&spec.name, "dist-tags", "versions"]].concat()).await?;
    Ok(answers::of_npm(spec, &text(&said.stdout)))
}

async fn ask_apt(app: &App, spec: &Spec) -> Result<Answer, Failure> {
    let apt = ["python3", "-I", "-c", APT, &spec.name];
    let sources = debian::sources(app).await?;
    let said = run_with(app, &apt, Some(sources), APT_TIMEOUT).await?;
    Ok(answers::of_apt(spec, &text(&said.stdout)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn run(app: &App, program: &[&str]) -> Result<session::Said, Failure> {
    run_with(app, program, None, TIMEOUT).await
}

async fn run_with(
    app: &App,
    program: &[&str],
    input: Option<OwnedFd>,
    timeout: Duration,
) -> Result<session::Said, Failure> {
    let config = &app.config.build;
    let ca_bundle = config.ca_bundle.as_deref();
    let (parts, network) = (Parts::default(), Network::Egress);
    let setting = Setting { slug: None, parts, network, ca_bundle };
    let mut variables = presets::variables(setting, Purpose::Installer);
    for (name, value) in
        [("PIP_INDEX_URL", &config.pip_index_url), ("npm_config_registry", &config.npm_registry)]
    {
        if let Some(value) = value {
            variables.insert(name.to_owned(), value.clone());
        }
    }
    let asked = Asked {
        program: program.iter().map(|&word| word.to_owned()).collect(),
        environment: presets::as_environment(&variables),
        input,
        timeout,
    };
    session::run(app, asked).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_are_remembered() {
        let lookups = Lookups::default();
        let key = (Manager::Pip, Spec { name: "six".to_owned(), version: String::new() });
        lookups.remember(key.clone(), &Answer::unknown("no network"));
        assert_eq!(lookups.remembered(&key), None);
        lookups.remember(key.clone(), &Answer::none());
        assert_eq!(lookups.remembered(&key), Some(Answer::none()));
        assert_eq!(lookups.remembered(&(Manager::Npm, key.1)), None);
    }
}
