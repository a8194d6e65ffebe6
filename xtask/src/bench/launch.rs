//! The cold launch: from nothing to a command that ran under every barrier.

use super::freeze::{environment, frozen_version, slug};
use super::sample::{Pace, median_ms, side_by_side, timed};
use super::warden::Warden;
use super::{Row, bwrap, tree};
use crate::failure::{Failure, Step};
use crate::program::run;
use crate::test_fs::TestFs;
use hangar_runtime::ids::{CommandId, SessionId, VersionNumber};
use hangar_runtime::plan::{Environment, Limits, Network, Plan, Profile, WORKSPACE_DIR};
use hangar_runtime::wire::warden::{Event, Exec, ExitStatus, Job, OutputLimit, Program, Request};
use std::time::Duration;

/// Launches sessions of the strict profile in turn with bubblewrap.
///
/// # Errors
/// When the warden refuses, or a program fails.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let project = tree::installed(fs.path())?;
    let mut warden = Warden::start(&fs.path().join("launch"))?;
    let version = frozen_version(&mut warden, &project)?;
    let mounts = bwrap::Mounts {
        environment: project,
        workdir: fs.path().join("bwrap/workdir"),
        home: fs.path().join("bwrap/home"),
    };
    for path in [&mounts.workdir, &mounts.home] {
        std::fs::create_dir_all(path).step(|| format!("making {}", path.display()))?;
    }
    let mut count = 1u32;
    let mut rows = Vec::new();
    for pace in [Pace::BackToBack, Pace::AfterQuiet] {
        let (mut whole, mut again) = (Vec::new(), Vec::new());
        let (own, peer) = side_by_side(
            pace,
            &mut || {
                count += 1;
                let session = session(count);
                let (ended, gone) = one_launch(&mut warden, version, &session, CommandId(1))?;
                whole.push(gone);
                // A stored session has ids of its own: no child was parked for it.
                again.push(one_launch(&mut warden, version, &session, CommandId(2))?.0);
                warden.run_job(Job::RemoveSession { session }, "{}")?;
                Ok(ended)
            },
            &mut || timed(|| run(&mut bwrap::command(&mounts, &["/bin/true"]))),
        )?;
        let told = pace.told();
        let name = format!("cold launch, /bin/true ended, {told}");
        rows.push(Row::beside(name, own, "ms", (bwrap::NAME, peer)));
        let name = format!("cold launch, session gone, {told}");
        rows.push(Row::beside(name, median_ms(whole), "ms", (bwrap::NAME, peer)));
        let name = format!("launch of a stored session, /bin/true ended, {told}");
        rows.push(Row::beside(name, median_ms(again), "ms", (bwrap::NAME, peer)));
    }
    Ok(rows)
}

/// How long it takes from the plan until the command ended, and until the session is gone.
fn one_launch(
    warden: &mut Warden,
    version: VersionNumber,
    session: &SessionId,
    command: CommandId,
) -> Result<(Duration, Duration), Failure> {
    let launch = Request::Launch(Box::new(plan(session, version)));
    let exec = Request::Exec(Box::new(exec(session, command)));
    let mut ended = Duration::ZERO;
    let gone = timed(|| {
        ended = timed(|| {
            warden.call(launch)?;
            warden.call(exec)?;
            warden
                .wait(|event| match event {
                    Event::CommandEnded { session: of, end, .. } if of == session => {
                        Some(end.status)
                    }
                    _ => None,
                })
                .and_then(|status| match status {
                    ExitStatus::Code(0) => Ok(()),
                    other => Err(Failure::new(format!("/bin/true ended with {other:?}"))),
                })
        })?;
        warden.stop(session)
    })?;
    Ok((ended, gone))
}

fn session(count: u32) -> SessionId {
    SessionId::parse(&format!("hsess{count:032x}")).expect("32 digits")
}

fn plan(session: &SessionId, version: VersionNumber) -> Plan {
    Plan {
        session: session.clone(),
        profile: Profile::Strict,
        environment: Environment::Version { id: environment(), version, slug: slug() },
        network: Network::Loopback,
        limits: Limits::default(),
    }
}

fn exec(session: &SessionId, command: CommandId) -> Exec {
    Exec {
        session: session.clone(),
        command,
        program: Program::Arguments(vec![b"/bin/true".to_vec()]),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: WORKSPACE_DIR.as_bytes().to_vec(),
        timeout_ms: None,
        output: OutputLimit::default(),
    }
}
