//! Sessions that run: launch, commands, end.

use super::api::Outbox;
use super::commands::{Command, Commands};
use super::egress::Egress;
use super::session_dir::SessionDir;
use super::state::StateDir;
use super::trees;
use crate::cgroup::{Cgroups, SessionCgroup};
use crate::error::{AtStep, SetupError};
use crate::ids::{CommandId, EnvironmentId, SessionId, VersionNumber};
use crate::launch::{Launcher, Placement, Request};
use crate::plan::{Environment, Network, Plan};
use crate::proof::ProofRecord;
use crate::steps::Step;
use crate::wire::init::{Order, Report, Start};
use crate::wire::warden::{
    Event, Exec, ExitStatus, Refusal, RefusalCode, RequestId, RunningSession, SessionEnd,
};
use crate::wire::{self, WireError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often what is ending is looked at again.
const RETRY: Duration = Duration::from_millis(1);
/// From when on a session that does not end is looked at less often, and complained about.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// What a launch needs beside the plan.
pub(super) struct LaunchContext<'a> {
    pub(super) state: &'a StateDir,
    pub(super) cgroups: &'a Cgroups,
    pub(super) launcher: &'a mut Launcher,
    pub(super) egress: &'a mut Egress,
    pub(super) init_image: BorrowedFd<'a>,
    pub(super) init_arguments: &'a [String],
    pub(super) steps: &'a [Step],
}

/// A session from its launch until nothing of it is left.
#[derive(Debug)]
struct Session {
    environment: Environment,
    dir: SessionDir,
    group: SessionCgroup,
    pidfd: OwnedFd,
    control: OwnedFd,
    proof: ProofRecord,
    commands: Commands,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    reason: SessionEnd,
    since: Instant,
    complained: bool,
    /// init is reaped.
    reaped: bool,
    waiters: Vec<RequestId>,
}

/// The sessions that run, and groups of launches that failed until they are removed.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    running: BTreeMap<SessionId, Session>,
    failed_launches: Vec<SessionCgroup>,
}

impl Sessions {
    /// Launches a session whose directories exist.
    pub(super) fn launch(
        &mut self,
        context: LaunchContext<'_>,
        plan: &Plan,
        dir: SessionDir,
    ) -> Result<ProofRecord, Refusal> {
        let trees = trees::open(context.state, plan, &dir)?;
        let block = dir.block();
        let group = context.cgroups.create_session(&plan.session, &plan.limits, block.base)?;
        let placement = Placement {
            directory: group.directory(),
            v1_procs: group.v1_procs(),
            paths: group.paths(),
        };
        let request = Request {
            plan,
            range: context.state.range(),
            block,
            trees,
            placement,
            parked: None,
            init_image: context.init_image,
            init_arguments: context.init_arguments,
            steps: context.steps,
        };
        let launched = match context.launcher.launch(request) {
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
            context.egress.serve(&id, listener);
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

    /// Begins to end every session.
    pub(super) fn stop_all(&mut self, reason: SessionEnd) {
        for session in self.running.values_mut() {
            session.end(reason);
        }
    }

    /// The sessions that are not ending.
    pub(super) fn list(&self) -> Vec<RunningSession> {
        self.running
            .iter()
            .filter(|(_, session)| session.ending.is_none())
            .map(|(id, session)| RunningSession {
                session: id.clone(),
                commands: session.commands.running(),
                ended: session.commands.ended(),
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
                        eprintln!("hangar-warden: init of session {id}: {reason}");
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

impl Session {
    fn is_ready(&self, network: Network, has_listener: bool) -> Result<(), SetupError> {
        let step = "start-init";
        if has_listener != (network == Network::Egress) {
            return Err(SetupError::mismatch(
                step,
                "the listener of the egress proxy",
                network == Network::Egress,
                has_listener,
            ));
        }
        rustix::io::ioctl_fionbio(&self.control, true).at(step, || "ioctl(control, FIONBIO)")
    }

    fn exec(&mut self, exec: Exec, stdin: Option<OwnedFd>) -> Result<Vec<OwnedFd>, Refusal> {
        let id = exec.command;
        if exec.directory.first() != Some(&b'/') {
            return Err(Refusal::new(RefusalCode::Invalid, "the directory is not absolute"));
        }
        let record = self.dir.create_record(id)?;
        let started = self.start(exec, stdin, &record);
        if started.is_err() {
            // The first error tells; a leaf or record that stays only keeps its number used.
            let _ = self.group.kill_leaf(id);
            let _ = self.group.try_remove_leaf(id);
            let _ = self.dir.remove_record(id);
        }
        started
    }

    fn start(
        &mut self,
        exec: Exec,
        stdin: Option<OwnedFd>,
        record: &OwnedFd,
    ) -> Result<Vec<OwnedFd>, Refusal> {
        let step = "start-command";
        let id = exec.command;
        let readable = self.dir.open_record(id, OFlags::RDONLY)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let grown = eventfd(0, flags).at(step, || "eventfd(0)")?;
        let leaf = self.group.command_leaf(id)?;
        let before = self.group.counters()?;
        let deadline = exec
            .timeout_ms
            .and_then(|timeout| Instant::now().checked_add(Duration::from_millis(timeout)));
        let order = Order::Start(Box::new(Start {
            command: id,
            program: exec.program,
            environment: exec.environment,
            directory: exec.directory,
            output: exec.output,
            stdin: stdin.is_some(),
        }));
        let mut fds = vec![record.as_fd(), grown.as_fd(), leaf.as_fd()];
        fds.extend(stdin.as_ref().map(AsFd::as_fd));
        self.send(&order, &fds)?;
        let handed = grown.try_clone().at(step, || "dup(eventfd)")?;
        let command = Command { grown, deadline, before, killed: None, status: None };
        self.commands.insert(id, command);
        Ok(vec![readable, handed])
    }

    fn signal(&mut self, id: CommandId, signal: i32) -> Result<(), Refusal> {
        use crate::wire::warden::EndCause::Cancelled;
        let order = Order::Signal { command: id, signal };
        let not_found = || Refusal::new(RefusalCode::NotFound, "the command does not run");
        let command = self.commands.get_mut(id).ok_or_else(not_found)?;
        if command.status.is_some() {
            return Err(not_found());
        }
        if [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]
            .contains(&signal)
        {
            command.killed.get_or_insert(Cancelled);
        }
        if signal == libc::SIGKILL {
            return Ok(self.group.kill_leaf(id)?);
        }
        self.send(&order, &[])
    }

    fn send(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<(), Refusal> {
        wire::send(&self.control, order, fds).map_err(|error| {
            let code = match error {
                WireError::WouldBlock => RefusalCode::Busy,
                WireError::TooLong(_) => RefusalCode::Invalid,
                _ => RefusalCode::Failed,
            };
            Refusal::new(code, format!("init takes no order: {error}"))
        })
    }

    /// One report of init. An init that says what makes no sense is as good as dead.
    fn read_report(&mut self) -> Result<(), WireError> {
        let out_of_order = || WireError::Decode(postcard::Error::SerdeDeCustom);
        match wire::receive::<Report>(&self.control) {
            Ok((Report::Ended { command, status }, _)) => {
                let running = self.commands.get_mut(command).ok_or_else(out_of_order)?;
                if running.status.replace(status).is_some() {
                    return Err(out_of_order());
                }
                if let Err(error) = self.group.kill_leaf(command) {
                    eprintln!("hangar-warden: {error}");
                }
                Ok(())
            }
            Ok((Report::Ready(_) | Report::Failed { .. }, _)) => Err(out_of_order()),
            Err(WireError::WouldBlock) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn end(&mut self, reason: SessionEnd) {
        if self.ending.is_some() {
            return;
        }
        if let Err(error) = self.group.kill_all() {
            eprintln!("hangar-warden: {error}");
            // Without PID 1 no process of its namespace survives.
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        }
        let since = Instant::now();
        self.ending =
            Some(Ending { reason, since, complained: false, reaped: false, waiters: Vec::new() });
    }

    fn finish_commands(&mut self, id: &SessionId, outbox: &mut Outbox) {
        if self.ending.is_some() {
            return;
        }
        let ended = self
            .commands
            .kill_overdue(&self.group)
            .and_then(|()| self.commands.take_ended(&self.group));
        match ended {
            Ok(ended) => {
                for (command, end) in ended {
                    outbox.event(Event::CommandEnded { session: id.clone(), command, end });
                }
            }
            Err(error) => {
                eprintln!("hangar-warden: session {id}: {error}");
                self.end(SessionEnd::InitDied);
            }
        }
    }

    /// Whether init is reaped and the groups are removed.
    fn is_gone(&mut self, id: &SessionId) -> bool {
        let Some(ending) = self.ending.as_mut().filter(|ending| ending.reaped) else {
            return false;
        };
        match self.group.try_remove() {
            Ok(true) => return true,
            Ok(false) if ending.complained || ending.since.elapsed() < SLOW_AFTER => {}
            Ok(false) => {
                ending.complained = true;
                eprintln!("hangar-warden: session {id} does not end: its cgroup is in use");
            }
            Err(error) => {
                eprintln!("hangar-warden: session {id}: {error}");
                return true;
            }
        }
        false
    }

    /// Tells the ends of all that is left and completes the records that init could not.
    fn finish(&mut self, id: &SessionId, outbox: &mut Outbox) -> Vec<RequestId> {
        // What init told last: commands that ended by themselves just before. Anything but a
        // report ends the reading, so this is bounded by what a socket holds.
        while !self.commands.is_empty() && super::has_message(&self.control) {
            if self.read_report().is_err() {
                break;
            }
        }
        for command in self.commands.running() {
            if let Some(running) = self.commands.get(command)
                && running.status.is_none()
            {
                self.complete_record(command, &running.grown);
            }
        }
        for (command, end) in self.commands.take_all() {
            outbox.event(Event::CommandEnded { session: id.clone(), command, end });
        }
        let Some(ending) = self.ending.take() else { return Vec::new() };
        outbox.event(Event::SessionEnded { session: id.clone(), reason: ending.reason });
        ending.waiters
    }

    fn complete_record(&self, command: CommandId, grown: &OwnedFd) {
        let completed = self.dir.open_record(command, OFlags::RDWR).and_then(|file| {
            crate::record::complete(file, ExitStatus::Signal(libc::SIGKILL))
                .map_err(|error| SetupError::other("complete-record", "the record", error))
        });
        if let Err(error) = completed {
            eprintln!("hangar-warden: command {command}: {error}");
        }
        // Its followers read the end now; a counter that is full has woken them already.
        let _ = rustix::io::write(grown, &1u64.to_ne_bytes());
    }
}
