//! Which versions are kept: the newest few, the active one, and what sessions read.

use super::build::log;
use crate::app::App;
use hangar_runtime::ids::{EnvironmentId, VersionNumber};
use std::io::ErrorKind;

/// Takes versions beyond what is kept away from their environments. Their directories are garbage
/// then, and removed with the rest of it.
pub async fn apply(app: &App) {
    let keep_last = app.config.versions.keep_last.map(std::num::NonZeroU32::get);
    match app.store.remove_beyond(keep_last).await {
        Ok(removed) => {
            for (id, number) in removed {
                tracing::info!("version {number} of {id} is beyond what is kept");
                remove_log(app, &id, number);
            }
        }
        Err(error) => tracing::error!("old versions were not removed: {error}"),
    }
    match app.store.give_up_unused_dependencies().await {
        Ok(0) => {}
        Ok(count) => tracing::info!("{count} trees of kept packages are in no version any more"),
        Err(error) => tracing::error!("kept packages were not given up: {error}"),
    }
}

/// Removes the log of a version that is no version any more.
pub fn remove_log(app: &App, id: &EnvironmentId, number: VersionNumber) {
    let path = log::path(&app.files.logs(), id, number);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!("the log of version {number} of {id} was not removed: {error}");
        }
        _ => {}
    }
}
