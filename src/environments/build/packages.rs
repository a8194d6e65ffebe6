//! What is installed in a version, as the installers themselves report it.

use super::log::BuildLog;
use super::run::{Build, BuildError};
use crate::environments::installers::Installer;
use crate::store::{PackageRow, Parts};
use serde::Deserialize;

const FINISH: &str = include_str!("scripts/finish.py");
const PACKAGES: &str = include_str!("scripts/packages.py");

/// What one of the scripts tells.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    packages: Vec<PackageRow>,
    /// Whose list could not be had, and why.
    failed: Vec<String>,
}

impl Build {
    /// Compiles the project's modules and tells what is installed. A list that cannot be had is
    /// empty, and the log says so.
    pub(super) async fn packages(
        &mut self,
        installers: &[Installer],
        parts: Parts,
        log: &BuildLog,
    ) -> Result<Vec<PackageRow>, BuildError> {
        let mut all = Vec::new();
        let mount = self.mount();
        if parts.venv {
            let python = format!("{mount}/.venv/bin/python");
            // pip and uv compile what they install.
            let more = if installers.contains(&Installer::Poetry) { "all" } else { "own" };
            let program = [&python, "-I", "-c", FINISH, &mount, more];
            all.extend(self.report(&program, parts, log).await?);
        }
        let others: Vec<_> = installers.iter().filter_map(|by| reported_by(*by)).collect();
        if !others.is_empty() {
            let program = [&["python3", "-I", "-c", PACKAGES, &mount], &others[..]].concat();
            all.extend(self.report(&program, parts, log).await?);
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    async fn report(
        &mut self,
        program: &[&str],
        parts: Parts,
        log: &BuildLog,
    ) -> Result<Vec<PackageRow>, BuildError> {
        let output = self.data(program, parts).await?;
        let report: Report = serde_json::from_slice(&output).unwrap_or_else(|error| Report {
            failed: vec![format!("the installed packages: {error}")],
            ..Report::default()
        });
        for failed in &report.failed {
            log.note(&format!("[hangar: not listed: {failed}]")).await?;
        }
        Ok(report.packages)
    }
}

/// How `packages.py` calls an installer; those of Python are asked in their own environment.
fn reported_by(installer: Installer) -> Option<&'static str> {
    match installer {
        Installer::Pip | Installer::Uv | Installer::Poetry => None,
        Installer::YarnBerry => Some("berry"),
        other => Some(other.name()),
    }
}
