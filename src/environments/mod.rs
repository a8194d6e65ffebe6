//! Environments: their source, what their manifests declare, their builds and versions.

pub mod build;
pub mod git;
pub mod hints;
pub mod import;
pub mod installers;
pub mod locks;
pub mod manifests;
pub mod node;
pub mod others;
pub mod python;
pub mod requirements;
pub mod retention;
pub mod reuse;
pub mod runtimes;
pub mod sbom;
pub mod slug;
pub mod source;
pub mod source_path;
pub mod spec;
pub mod tags;
pub mod toolchain;

use crate::app::{App, blocking};
use crate::failure::{Code, Failure, Tried};
use crate::store::{EnvironmentRow, VersionRow, VersionStatus};
use hangar_runtime::ids::EnvironmentId;

/// Directories a build never copies from a source: what it installs itself, caches, and the
/// bookkeeping of version control.
pub const LEFT_OUT: &[&str] = &[
    ".venv",
    "venv",
    "node_modules",
    ".cargo-vendor",
    ".go-modules",
    ".gems",
    "__pycache__",
    ".git",
    ".hg",
    ".svn",
    ".pnpm-store",
    ".cache",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
];

/// The environment with this id in the caller's scope.
///
/// # Errors
/// [`Code::EnvironmentNotFound`] when there is none.
pub async fn find(app: &App, scope: &str, id: &EnvironmentId) -> Result<EnvironmentRow, Failure> {
    let row = app.store.environment(scope, id).await.tried("reading the environment")?;
    row.ok_or_else(|| Failure::new(Code::EnvironmentNotFound, "there is no such environment"))
}

/// Why a version cannot be used: it is not there, is still built, or its build failed. Who waits
/// for it learns that waiting is in vain.
#[must_use]
pub fn not_ready(version: Option<&VersionRow>) -> Failure {
    let Some(version) = version else {
        return Failure::new(Code::EnvironmentNotReady, "there is no such version");
    };
    let number = version.number;
    let message = match version.status {
        VersionStatus::Building => format!("version {number} is still being built"),
        VersionStatus::Failed => {
            format!("there is no version {number}: its build failed: {}", version.error)
        }
        VersionStatus::Ready => format!("version {number} cannot be used"),
    };
    Failure::new(Code::EnvironmentNotReady, message).with_detail(serde_json::json!({
        "version": number, "status": version.status.as_str(), "error": version.error,
    }))
}

/// Removes the API's own files of an environment: source and logs.
///
/// # Errors
/// Says what could not be removed.
pub async fn remove_files(app: &App, id: &EnvironmentId) -> Result<(), String> {
    let sources = app.files.sources();
    let directories = [
        sources.join(id.as_str()),
        sources.join(format!("{id}.import")),
        app.files.logs().join(id.as_str()),
    ];
    blocking(move || {
        for directory in directories {
            match std::fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("removing {}: {error}", directory.display()));
                }
                _ => {}
            }
        }
        Ok(())
    })
    .await
}
