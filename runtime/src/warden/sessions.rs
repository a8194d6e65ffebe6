//! Sessions that run: launch, commands, end.

use super::api::Outbox;
use super::commands::Commands;
use super::egress::Egress;
use super::parking::{Means, Place};
use super::session::{SLOW_AFTER, Session};
use super::session_dir::SessionDir;
use super::state::StateDir;
use super::trees;
use crate::cgroup::SessionCgroup;
use crate::error::AtStep;
use crate::ids::{CommandId, DependencyKey, EnvironmentId, SessionId, VersionNumber};
use crate::launch::Request;
use crate::plan::{Environment, Plan};
use crate::proof::ProofRecord;
use crate::wire::WireError;
use crate::wire::warden::{Exec, Refusal, RefusalCode, RequestId, RunningSession, SessionEnd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often what is ending is looked at again.
const RETRY: Duration = Duration::from_millis(1);
/// How many ends of commands are listed for all sessions together.
const LISTED_ENDS_MAX: usize = 8192;

/// The sessions that run, and groups of launches that failed until they are removed.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    running: BTreeMap<SessionId, Session>,
    failed_launches: Vec<SessionCgroup>,
}

impl Sessions {
    /// Launches a session whose directories exist, in the place that has its block or in a new
    /// one.
    pub(super) fn launch(
        &mut self,
        means: &Means<'_>,
        egress: &mut Egress,
        plan: &Plan,
        dir: SessionDir,
        place: Option<Place>,
    ) -> Result<ProofRecord, Refusal> {
        let trees = match trees::open(means.state, plan, &dir) {
            Ok(trees) => trees,
            Err(refusal) => {
                if let Some(place) = place {
                    self.abandon(place);
                }
                return Err(refusal);
            }
        };
        let block = dir.block();
        let mut place = match place {
            Some(place) => place,
            None => means.prepare(plan.session.as_str(), block)?,
        };
        if let Err(error) = place.group.admit(&(&plan.limits).into(), block.base) {
            self.abandon(place);
            return Err(error.into());
        }
        let Place { child, group } = place;
        let request = Request { plan, trees, prepared: child, steps: means.steps };
        let launched = match means.launcher.launch(request) {
            Ok(launched) => launched,
            Err(error) => {
                self.failed_launches.push(group);
                return Err(error.into());
            }
        };
        let session = Session {
            environment: plan.environment.clone(),
            dir,
            group,
            pidfd: launched.pidfd,
            control: launched.control,
            proof: launched.proof.clone(),
            commands: Commands::default(),
            ending: None,
        };
        let id = plan.session.clone();
        let ready = session.is_ready(plan.network, launched.listener.is_some());
        let session = self.running.entry(id.clone()).or_insert(session);
        if let Err(error) = ready {
            session.end(SessionEnd::Stopped);
            return Err(error.into());
        }
        if let Some(listener) = launched.listener {
            egress.serve(&id, listener);
        }
        Ok(launched.proof)
    }

    /// Whether a session runs, or has not ended yet.
    pub(super) fn is_running(&self, id: &SessionId) -> bool {
        self.running.contains_key(id)
    }

    /// Whether a command runs in the session.
    pub(super) fn has_commands(&self, id: &SessionId) -> bool {
        self.running.get(id).is_some_and(|session| !session.commands.is_empty())
    }

    /// Whether a session uses this environment, or this version of it.
    pub(super) fn uses(&self, id: &EnvironmentId, version: Option<VersionNumber>) -> bool {
        self.running.values().any(|session| match &session.environment {
            Environment::None => false,
            Environment::Staging { id: used, .. } => used == id && version.is_none(),
            Environment::Version { id: used, version: number, .. } => {
                used == id && version.is_none_or(|version| version == *number)
            }
        })
    }

    /// Whether a build takes what is kept under this key.
    pub(super) fn uses_dependencies(&self, id: &EnvironmentId, key: &DependencyKey) -> bool {
        self.running.values().any(|session| {
            matches!(&session.environment,
                Environment::Staging { id: used, dependencies: Some(kept), .. }
                    if used == id && kept == key)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.failed_launches.is_empty()
    }

    /// Starts a command; its record and eventfd are the answer's descriptors.
    pub(super) fn exec(
        &mut self,
        exec: Exec,
        stdin: Option<OwnedFd>,
    ) -> Result<Vec<OwnedFd>, Refusal> {
        self.live(&exec.session)?.exec(exec, stdin)
    }

    /// The descriptors of a command again.
    pub(super) fn attach(
        &self,
        state: &StateDir,
        id: &SessionId,
        command: CommandId,
    ) -> Result<Vec<OwnedFd>, Refusal> {
        if let Some(session) = self.running.get(id)
            && let Some(running) = session.commands.get(command)
        {
            let record = session.dir.open_record(command, OFlags::RDONLY)?;
            let grown = running.grown.try_clone().at("attach", || "dup(eventfd)")?;
            return Ok(vec![record, grown]);
        }
        let dir = SessionDir::open(state, id).map_err(Refusal::not_found)?;
        let record = dir.open_record(command, OFlags::RDONLY).map_err(Refusal::not_found)?;
        // Readable at once: nothing will be written any more.
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let grown = eventfd(1, flags).at("attach", || "eventfd(1)")?;
        Ok(vec![record, grown])
    }

    /// Signals a command.
    pub(super) fn signal(
        &mut self,
        id: &SessionId,
        command: CommandId,
        signal: i32,
    ) -> Result<(), Refusal> {
        if !(1..=31).contains(&signal) {
            return Err(Refusal::new(RefusalCode::Invalid, "the signal is not in 1 to 31"));
        }
        self.live(id)?.signal(command, signal)
    }

    /// Begins to end a session; `waiter` is answered when nothing of it is left.
    pub(super) fn stop(&mut self, id: &SessionId, waiter: RequestId) -> bool {
        let Some(session) = self.running.get_mut(id) else { return false };
        session.end(SessionEnd::Stopped);
        if let Some(ending) = &mut session.ending {
            ending.waiters.push(waiter);
        }
        true
    }

    /// Takes the group of a child that is not launched any more.
    pub(super) fn abandon(&mut self, place: Place) {
        drop(place.child);
        self.failed_launches.push(place.group);
    }

    /// Begins to end every session.
    pub(super) fn stop_all(&mut self, reason: SessionEnd) {
        for session in self.running.values_mut() {
            session.end(reason);
        }
    }

    /// The sessions that are not ending, with so many ends of commands as one message holds.
    pub(super) fn list(&self) -> Vec<RunningSession> {
        let ends_max = LISTED_ENDS_MAX / self.running.len().max(1);
        self.running
            .iter()
            .filter(|(_, session)| session.ending.is_none())
            .map(|(id, session)| RunningSession {
                session: id.clone(),
                commands: session.commands.running(),
                ended: session.commands.ended(ends_max),
            })
            .collect()
    }

    pub(super) fn proof(&self, id: &SessionId) -> Option<ProofRecord> {
        self.running.get(id).map(|session| session.proof.clone())
    }

    /// What to wait for: init's socket while the session lives, then init's end.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (&SessionId, BorrowedFd<'_>)> {
        self.running.iter().filter_map(|(id, session)| match &session.ending {
            None => Some((id, session.control.as_fd())),
            Some(ending) if !ending.reaped => Some((id, session.pidfd.as_fd())),
            Some(_) => None,
        })
    }

    /// When something is due without a descriptor telling so.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let retry = |since: Instant| {
            let now = Instant::now();
            now + if now - since > SLOW_AFTER { RETRY * 100 } else { RETRY }
        };
        let soon = || Some(Instant::now() + RETRY);
        let failed = self.failed_launches.first().and_then(|_| soon());
        self.running
            .values()
            .filter_map(|session| match &session.ending {
                Some(ending) if ending.reaped => Some(retry(ending.since)),
                Some(_) => None,
                None if session.commands.has_closing() => soon(),
                None => session.commands.next_deadline(),
            })
            .chain(failed)
            .min()
    }

    /// Reads one report of an init, or notes that it is dead.
    pub(super) fn ready(&mut self, id: &SessionId) {
        let Some(session) = self.running.get_mut(id) else { return };
        match &mut session.ending {
            None => {
                if let Err(reason) = session.read_report() {
                    if !matches!(reason, WireError::Closed) {
                        log!("init of session {id}: {reason}");
                    }
                    session.end(SessionEnd::InitDied);
                }
            }
            Some(ending) => {
                super::reap(&session.pidfd);
                ending.reaped = true;
            }
        }
    }

    /// Kills what is overdue, and finishes commands and sessions of which no process is left.
    pub(super) fn housekeeping(
        &mut self,
        outbox: &mut Outbox,
        egress: &mut Egress,
    ) -> Vec<RequestId> {
        self.failed_launches.retain(|group| {
            let removed = group.kill_all().and_then(|()| group.try_remove());
            matches!(removed, Ok(false))
        });
        let mut gone = Vec::new();
        for (id, session) in &mut self.running {
            session.finish_commands(id, outbox);
            if session.is_gone(id) {
                gone.push(id.clone());
            }
        }
        let mut waiters = Vec::new();
        for id in gone {
            if let Some(mut session) = self.running.remove(&id) {
                egress.forget(&id);
                waiters.extend(session.finish(&id, outbox));
            }
        }
        waiters
    }

    /// A session that runs and is not ending.
    fn live(&mut self, id: &SessionId) -> Result<&mut Session, Refusal> {
        match self.running.get_mut(id) {
            Some(session) if session.ending.is_none() => Ok(session),
            _ => Err(Refusal::new(RefusalCode::NotFound, "the session does not run")),
        }
    }
}
