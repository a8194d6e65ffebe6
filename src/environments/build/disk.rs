//! How much disk a build takes: watched every few seconds, not enforced.
//!
//! There is no quota below a build: its limit on the size of one file is the kernel's, and what
//! its tree takes as a whole is measured by a program of its own session. A build can be beyond a
//! limit until the next look, and one that ends the program is only held by the floor of free
//! space, which is looked at from outside.

use super::stop::Stop;
use crate::app::App;
use crate::config;
use crate::sessions::output::{Batch, Command};
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::plan::{HOME_DIR, WORKSPACE_DIR};
use hangar_runtime::wire::warden::{Exec, OutputLimit, Program};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the free space is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Builds that end sooner are not measured.
const GRACE: Duration = Duration::from_secs(2);
/// The command that measures; a build never counts as far.
const MEASURE: CommandId = CommandId(u32::MAX);

/// Prints the bytes of the build again and again.
const SCRIPT: &str =
    "while :; do du -sxc --block-size=1 \"$@\" 2> /dev/null | tail -1; sleep 2; done";

/// Watches a build until it is dropped, and ends it when it takes too much.
pub(super) async fn watch(app: Arc<App>, session: SessionId, mount: String, stop: Stop) {
    let config = &app.config.build;
    let floor = async {
        loop {
            if let Some(reason) = too_little_free(&app.files.root, config) {
                stop.now(&reason);
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let measured = async {
        tokio::time::sleep(GRACE).await;
        match begin(&app, &session, &mount).await {
            Some(command) => measure(&command, config.disk_bytes_max, &stop).await,
            None => tracing::debug!("a build is not measured: it has ended or is at its limits"),
        }
    };
    tokio::join!(floor, measured);
}

/// Why no build can go on, when the disk is nearly full.
pub(super) fn too_little_free(directory: &Path, config: &config::Build) -> Option<String> {
    let space = rustix::fs::statvfs(directory).ok()?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < config.disk_free_bytes_min {
        let least = config.disk_free_bytes_min;
        return Some(format!(
            "the server has {free} bytes of disk left, and {least} are kept free"
        ));
    }
    // Some file systems have no fixed number of inodes.
    if space.f_files > 0 && space.f_favail < config.disk_free_inodes_min {
        return Some(format!("the server has only {} inodes left", space.f_favail));
    }
    None
}

async fn begin(app: &App, session: &SessionId, mount: &str) -> Option<Arc<Command>> {
    let words = ["nice", "bash", "-c", SCRIPT, "du", mount, HOME_DIR, WORKSPACE_DIR];
    let exec = Exec {
        session: session.clone(),
        command: MEASURE,
        program: Program::Arguments(words.map(|word| word.as_bytes().to_vec()).to_vec()),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: b"/".to_vec(),
        timeout_ms: None,
        output: OutputLimit::default(),
    };
    app.isolations.exec(exec, None).await.ok()
}

async fn measure(command: &Arc<Command>, bytes_max: u64, stop: &Stop) {
    let Some(mut follower) = command.follow() else { return };
    let mut text = String::new();
    while let Ok(Batch::Frames(frames)) = follower.next().await {
        frames.iter().for_each(|frame| text.push_str(&String::from_utf8_lossy(&frame.bytes)));
        while let Some((line, rest)) = text.split_once('\n') {
            let taken = line.split_whitespace().next().and_then(|bytes| bytes.parse::<u64>().ok());
            if taken.is_some_and(|taken| taken > bytes_max) {
                stop.now(&format!("the build took more than {bytes_max} bytes of disk"));
                return;
            }
            text = rest.to_owned();
        }
    }
}
