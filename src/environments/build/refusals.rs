//! What of a source cannot be built here, told before anything runs.

use super::run::{Build, BuildError};
use crate::environments::installers::Installer;
use crate::environments::manifests::Manifests;
use crate::environments::others::is_debian_package;
use crate::environments::toolchain;

impl Build {
    /// Refuses what cannot be carried out, before anything runs.
    pub(super) fn check(&self, manifests: &Manifests) -> Result<(), BuildError> {
        if let Some(minor) = &self.environment.python {
            let program = format!("python{minor}");
            if manifests.python.is_some() && !toolchain::has(&program) {
                return Err(BuildError::new(format!(
                    "the environment asks for Python {minor}, which the toolchain of this server \
                     does not have"
                )));
            }
        }
        manifests.installers().try_for_each(|installer| self.check_tools(installer, manifests))
    }

    fn check_tools(&self, installer: Installer, manifests: &Manifests) -> Result<(), BuildError> {
        let asked_by = installer.asked_by();
        let own_yarn = manifests.node.as_ref().is_some_and(|node| node.yarn.is_some());
        let berry = toolchain::yarn_berry();
        let programs = match installer {
            Installer::YarnBerry if own_yarn => &["node"],
            Installer::YarnBerry => &[berry],
            other => other.programs(),
        };
        if let Some(missing) = programs.iter().find(|program| !toolchain::has(program)) {
            return Err(BuildError::new(format!(
                "{asked_by} needs {missing}, which the toolchain of this server does not have"
            )));
        }
        let found = match installer {
            Installer::Yarn => toolchain::major("yarn"),
            Installer::YarnBerry if !own_yarn => toolchain::major(berry),
            _ => return self.check_names(installer),
        };
        match (installer, found) {
            (Installer::Yarn, Some(major)) if major > 1 => Err(BuildError::new(format!(
                "{asked_by} was written by Yarn 1, and the toolchain of this server has Yarn {major}"
            ))),
            (Installer::YarnBerry, Some(1)) => Err(BuildError::new(format!(
                "{asked_by} was written by Yarn 2 or newer, the toolchain of this server has \
                 Yarn 1, and the project names no yarnPath"
            ))),
            _ => Ok(()),
        }
    }

    fn check_names(&self, installer: Installer) -> Result<(), BuildError> {
        let declared = &self.environment.declared.apt;
        let odd = declared.iter().find(|name| !is_debian_package(name));
        match odd.filter(|_| installer == Installer::Apt) {
            Some(name) => Err(BuildError::new(format!("{name:?} does not name a Debian package"))),
            None => Ok(()),
        }
    }
}
