//! How much disk a build takes: watched every few seconds, not enforced.
//!
//! There is no quota below a build: its limit on the size of one file is the kernel's, and what
//! its tree takes as a whole is measured by a program of its own session. A build can be beyond a
//! limit until the next look, and one that ends the program is only held by the floor of free
//! space, which is looked at from outside.

use super::stop::Stop;
use crate::app::App;
use crate::config;
use crate::sessions::output::Batch;
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::plan::{HOME_DIR, WORKSPACE_DIR};
use hangar_runtime::record::Stream;
use hangar_runtime::wire::warden::{Exec, OutputLimit, Program};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the free space is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often a build is measured; one that ends sooner is not. A large tree, which takes long to
/// measure, is measured less often.
const MEASURE: Duration = Duration::from_secs(2);
const REST: u32 = 8;

/// Whoever holds this keeps the build from being measured: no command of ours runs then.
pub(super) type Pause = Arc<tokio::sync::Mutex<()>>;

/// Watches a build until it is dropped, and ends it when it takes too much.
pub(super) async fn watch(
    app: Arc<App>,
    session: SessionId,
    mount: String,
    stop: Stop,
    pause: Pause,
) {
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
        let mut rest = MEASURE;
        // A build never counts its own commands as far.
        for number in (u32::MAX / 2..u32::MAX).rev() {
            tokio::time::sleep(rest).await;
            let held = pause.lock().await;
            let began = Instant::now();
            let taken = measure(&app, &session, &mount, CommandId(number)).await;
            drop(held);
            if taken.is_some_and(|taken| taken > config.disk_bytes_max) {
                let most = config.disk_bytes_max;
                stop.now(&format!("the build took more than {most} bytes of disk"));
                return;
            }
            rest = MEASURE.max(began.elapsed() * REST);
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

/// The bytes a build has on disk; `None` when that cannot be told now.
async fn measure(app: &App, session: &SessionId, mount: &str, id: CommandId) -> Option<u64> {
    let words = ["nice", "du", "-sxc", "--block-size=1", mount, HOME_DIR, WORKSPACE_DIR];
    let exec = Exec {
        session: session.clone(),
        command: id,
        program: Program::Arguments(words.map(|word| word.as_bytes().to_vec()).to_vec()),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: b"/".to_vec(),
        timeout_ms: Some(60_000),
        output: OutputLimit::default(),
    };
    let command = app.isolations.exec(exec, None).await.ok()?;
    let mut follower = command.follow()?;
    let mut text = Vec::new();
    while let Batch::Frames(frames) = follower.next().await.ok()? {
        let told = frames.into_iter().filter(|frame| frame.stream == Stream::Stdout);
        text.extend(told.flat_map(|frame| frame.bytes));
    }
    // The last line has the sum. Files that went away meanwhile are complained about elsewhere.
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().last()?.split_whitespace().next()?.parse().ok()
}
