//! Freezing a tree beside `cp -a` of the same tree.

use super::sample::{median_ms, timed};
use super::warden::Warden;
use super::{Row, tree};
use crate::failure::{Failure, Step};
use crate::program::run;
use crate::test_fs::TestFs;
use hangar_runtime::ids::{EnvironmentId, Range, SessionId, Slug, VersionNumber};
use hangar_runtime::plan::{Environment, Limits, Network, Plan, Profile};
use hangar_runtime::wire::warden::{Job, Request};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

const ROUNDS: u32 = 5;

/// The environment whose versions the benchmarks make.
pub fn environment() -> EnvironmentId {
    EnvironmentId::parse(&format!("henv_{:032x}", 1)).expect("32 digits")
}

/// The slug of that environment.
pub fn slug() -> Slug {
    Slug::parse("bench").expect("a plain word")
}

/// Freezes the real tree several times, in turn with `cp -a`.
///
/// # Errors
/// When the warden refuses, or a program fails.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let project = tree::installed(fs.path())?;
    let mut warden = Warden::start(&fs.path().join("freeze"))?;
    let session = staged(&mut warden, &project)?;
    let copy = fs.path().join("copy");
    let (mut frozen, mut copied, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        frozen.push(timed(|| freeze(&mut warden, &session, round))?);
        let version = number(round);
        warden.run_job(Job::RemoveVersion { environment: environment(), version }, "{}")?;
        run(Command::new("sync").arg("-f").arg(fs.path()))?;
        let plain = timed(|| run(Command::new("cp").arg("-a").arg(&project).arg(&copy)))?;
        let sync = timed(|| run(Command::new("sync").arg("-f").arg(&copy)))?;
        copied.push(plain);
        synced.push(plain + sync);
        run(Command::new("rm").arg("-r").arg(&copy))?;
        run(Command::new("sync").arg("-f").arg(fs.path()))?;
    }
    let frozen = median_ms(frozen);
    Ok(vec![
        Row::beside("freeze a numpy/pandas project", frozen, "ms", ("cp -a", median_ms(copied))),
        Row::beside(
            "freeze a numpy/pandas project, durable",
            frozen,
            "ms",
            ("cp -a; sync -f", median_ms(synced)),
        ),
    ])
}

/// A version of the environment that sessions can read; the tree is the real one.
///
/// # Errors
/// When the warden refuses, or a program fails.
pub fn frozen_version(warden: &mut Warden, project: &Path) -> Result<VersionNumber, Failure> {
    let session = staged(warden, project)?;
    freeze(warden, &session, 1)?;
    warden.run_job(Job::RemoveSession { session }, "{}")?;
    let version = number(1);
    let record = b"{}".to_vec();
    warden.call(Request::WriteRecord { environment: environment(), version, record })?;
    Ok(version)
}

fn number(round: u32) -> VersionNumber {
    VersionNumber::new(round).expect("rounds count from 1")
}

fn freeze(warden: &mut Warden, session: &SessionId, version: u32) -> Result<(), Failure> {
    let version = number(version);
    let work = Job::Freeze { environment: environment(), version, session: session.clone() };
    warden.run_job(work, "{}")
}

/// A build session that ended, with the project as its staging tree.
fn staged(warden: &mut Warden, project: &Path) -> Result<SessionId, Failure> {
    let source = warden.state_dir().join(format!("api/sources/{}", environment()));
    std::fs::create_dir_all(&source).step(|| format!("making {}", source.display()))?;
    let api = Range::default().api();
    for path in [source.parent().expect("it has one"), &source] {
        chown(path, Some(api), Some(api)).step(|| format!("giving {} away", path.display()))?;
    }
    let session = SessionId::parse(&format!("hsess{:032x}", 1)).expect("32 digits");
    warden.call(Request::Launch(Box::new(Plan {
        session: session.clone(),
        profile: Profile::Build,
        environment: Environment::Staging { id: environment(), slug: slug(), dependencies: None },
        network: Network::None,
        limits: Limits::default(),
    })))?;
    warden.stop(&session)?;
    let staging = warden.state_dir().join(format!("sessions/{session}/tree"));
    let mut copy = Command::new("cp");
    run(copy.args(["-a", "--no-preserve=ownership"]).arg(project.join(".")).arg(&staging))?;
    let owner =
        format!("--reference={}", staging.parent().expect("it has one").join("workdir").display());
    run(Command::new("chown").args(["-R", "-h"]).arg(owner).arg(&staging))?;
    Ok(session)
}
