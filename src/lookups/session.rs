//! One command in a session of its own, which is gone afterwards.

use crate::app::{App, random_hex};
use crate::failure::{Failure, Tried};
use crate::sessions::output::Batch;
use crate::sessions::service::failure;
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::plan::{Environment, HOME_DIR, Limits, Network, Plan, Profile};
use hangar_runtime::record::Stream;
use hangar_runtime::wire::warden::{Exec, OutputLimit, Program};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How much of the output is read.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// What is run.
#[derive(Debug)]
pub(super) struct Asked {
    /// The program and its arguments.
    pub(super) program: Vec<String>,
    /// Its variables.
    pub(super) environment: Vec<Vec<u8>>,
    /// What it reads from standard input.
    pub(super) input: Option<OwnedFd>,
    /// How long it may take.
    pub(super) timeout: Duration,
}

/// What it wrote.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// Runs a command in a new session that reaches the network through the proxy, and nothing else.
///
/// # Errors
/// When the session cannot be started. How the command ends is not told: what it says counts.
pub(super) async fn run(app: &App, asked: Asked) -> Result<Said, Failure> {
    let session = SessionId::parse(&format!("hsess{}", random_hex())).expect("32 digits");
    let live = app.live_sessions.begin(&session);
    app.store.add_garbage("session", session.as_str()).await.tried("asking for the package")?;
    let said = run_in(app, &session, asked).await;
    drop(live);
    crate::sessions::sweep::remove_garbage(app).await;
    said
}

async fn run_in(app: &App, session: &SessionId, asked: Asked) -> Result<Said, Failure> {
    let what = "asking for the package";
    let plan = Plan {
        session: session.clone(),
        profile: Profile::Strict,
        environment: Environment::None,
        network: Network::Egress,
        limits: app.config.session.limits.over(Limits::default()),
    };
    app.isolations.launch(plan).await.map_err(|error| failure(what, &error))?;
    let exec = Exec {
        session: session.clone(),
        command: CommandId(1),
        program: Program::Arguments(asked.program.into_iter().map(String::into_bytes).collect()),
        environment: asked.environment,
        directory: HOME_DIR.as_bytes().to_vec(),
        timeout_ms: Some(u64::try_from(asked.timeout.as_millis()).unwrap_or(u64::MAX)),
        output: OutputLimit { head_bytes_max: OUTPUT_BYTES_MAX, tail_bytes_max: 64 << 10 },
    };
    let command = app.isolations.exec(exec, asked.input).await;
    let command = command.map_err(|error| failure(what, &error))?;
    let mut follower =
        command.follow().ok_or_else(|| Failure::internal(what, "there is no record"))?;
    let mut said = Said::default();
    loop {
        match follower.next().await.tried(what)? {
            Batch::Frames(frames) => {
                for frame in frames {
                    match frame.stream {
                        Stream::Stdout => said.stdout.extend(frame.bytes),
                        Stream::Stderr => said.stderr.extend(frame.bytes),
                    }
                }
            }
            Batch::End { .. } => return Ok(said),
        }
    }
}
