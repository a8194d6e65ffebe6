//! What a build runs for Node.

use super::{For, Stage, Step, step};
use crate::environments::installers::Installer;
use crate::environments::node::Node;

pub(super) fn packages(wanted: &Node, of: For<'_>, steps: &mut Vec<Step>) {
    if wanted.manifest {
        steps.push(install(wanted, of));
    }
    if !wanted.declared.is_empty() {
        let declared: Vec<_> = wanted.declared.iter().map(String::as_str).collect();
        let add = match wanted.installer {
            // The others have no way to leave the manifest of the version as it is.
            Installer::Pnpm => &["pnpm", "add", "--ignore-workspace-root-check"][..],
            Installer::Yarn => &["yarn", "add", "--ignore-workspace-root-check"],
            Installer::YarnBerry => &["yarn", "add"],
            _ => &["npm", "install", "--no-save"],
        };
        steps.push(settled(wanted, of, &[add, &declared[..]].concat()));
    }
}

/// Installs what the manifest and its lock say, to the letter where there is a lock.
fn install(wanted: &Node, of: For<'_>) -> Step {
    let program = match wanted.installer {
        Installer::Pnpm => &["pnpm", "install", "--frozen-lockfile"][..],
        Installer::Yarn => &["yarn", "install", "--frozen-lockfile"],
        Installer::YarnBerry => &["yarn", "install", "--immutable"],
        _ if wanted.locked => &["npm", "ci"],
        _ => &["npm", "install"],
    };
    settled(wanted, of, program)
}

/// A step with the settings of its manager.
fn settled(wanted: &Node, of: For<'_>, program: &[&str]) -> Step {
    let title = program.join(" ");
    let mut arguments = program.to_vec();
    let own = wanted.yarn.as_ref().map(|path| format!("{}/{path}", of.mount));
    match (&own, wanted.installer) {
        (Some(own), _) => drop(arguments.splice(..1, ["node", own])),
        (None, Installer::YarnBerry) => arguments[0] = of.yarn_berry,
        _ => {}
    }
    let mut step = step(Stage::NodePackages, &title, &arguments);
    let mut set = |name: &'static str, value: &str| step.variables.push((name, value.to_owned()));
    match wanted.installer {
        Installer::Pnpm => {
            // Whatever a store has in common with a version would change with it.
            set("npm_config_package_import_method", "copy");
            set("npm_config_confirm_modules_purge", "false");
            set("npm_config_store_dir", "/home/agent/.local/share/pnpm/store");
        }
        Installer::Yarn => set("YARN_NON_INTERACTIVE", "1"),
        Installer::YarnBerry => {
            // Programs that are not unpacked are run from this cache, so it belongs to the version.
            set("YARN_ENABLE_GLOBAL_CACHE", "false");
            set("YARN_CACHE_FOLDER", &format!("{}/.yarn/cache", of.mount));
            set("YARN_ENABLE_TELEMETRY", "0");
            set("YARN_ENABLE_PROGRESS_BARS", "false");
            if let Some(registry) = &of.settings.npm_registry {
                set("YARN_NPM_REGISTRY_SERVER", registry);
            }
        }
        _ => {}
    }
    if matches!(wanted.installer, Installer::Yarn) {
        step.arguments.push("--non-interactive".to_owned());
        step.arguments.push("--no-progress".to_owned());
    }
    step
}
