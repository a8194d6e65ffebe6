//! What a build runs for Debian packages, crates, Go modules and gems.

use super::{For, Input, Recipe, Stage, Step, step};
use crate::environments::installers::Installer;
use crate::environments::others::{Other, directory};

const APT: &str =
    concat!(include_str!("../scripts/apt_sources.py"), include_str!("../scripts/apt.py"));
const CARGO_SETTINGS: &str = include_str!("../scripts/cargo_settings.py");

pub(super) fn packages(wanted: &Other, of: For<'_>, kept: bool, recipe: &mut Recipe) {
    let into = format!("{}/{}", of.mount, directory(wanted.installer));
    let steps = if kept { &mut recipe.kept } else { &mut recipe.always };
    match wanted.installer {
        Installer::Apt => {
            recipe.parts.apt = true;
            steps.push(debian(&wanted.declared, &into));
        }
        Installer::Cargo => {
            steps.push(vendor(wanted.locked, of, &into));
            let title = "point cargo to the vendored crates";
            let arguments = ["python3", "-I", "-c", CARGO_SETTINGS, of.mount, &into];
            recipe.always.push(step(Stage::CargoPackages, title, &arguments));
        }
        // Go builds from there, and would download for nothing.
        Installer::Go if wanted.vendored => {
            let arguments = ["go", "list", "-mod=vendor", "./..."];
            steps.push(step(Stage::GoModules, &arguments.join(" "), &arguments));
        }
        Installer::Go => {
            recipe.parts.go_modules = true;
            let mut step = step(Stage::GoModules, "go mod download", &["go", "mod", "download"]);
            // Else it makes directories that its own owner cannot remove.
            step.variables.push(("GOFLAGS", "-modcacherw".to_owned()));
            steps.push(step);
        }
        _ => {
            recipe.parts.gems = true;
            steps.push(step(Stage::RubyGems, "bundle install", &["bundle", "install"]));
        }
    }
}

fn debian(names: &[String], into: &str) -> Step {
    let title = format!("apt-get download {}", names.join(" "));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let arguments = [&["python3", "-I", "-c", APT, into], &names[..]].concat();
    let mut step = step(Stage::SystemPackages, &title, &arguments);
    step.input = Input::DebianSources;
    step
}

/// Vendors all crates. What cargo says about how to use them is kept beside them, because a
/// directory of vendored crates alone does not tell which registries they stand for.
fn vendor(locked: bool, of: For<'_>, into: &str) -> Step {
    let locked = if locked { " --locked" } else { "" };
    let title = format!("cargo vendor{locked}");
    let script = format!(
        "set -e; mkdir -p \"$0\"; cargo vendor{locked} --versioned-dirs \"$@\" \"$0\" > \
         \"$HOME/cargo-vendor.toml\"; mkdir -p \"$0\"; mv \"$HOME/cargo-vendor.toml\" \
         \"$0/settings.toml\""
    );
    let mirror = of.settings.cargo_registry.as_ref().map(|registry| {
        [
            "--config=source.crates-io.replace-with='hangar-mirror'".to_owned(),
            format!("--config=source.hangar-mirror.registry='{registry}'"),
            "--respect-source-config".to_owned(),
        ]
    });
    let mut arguments = vec!["bash", "-c", &script, into];
    arguments.extend(mirror.iter().flatten().map(String::as_str));
    step(Stage::CargoPackages, &title, &arguments)
}
