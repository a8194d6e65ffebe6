//! One session: its commands, what its init reports, its end.

use super::api::Outbox;
use super::commands::{Command, Commands};
use super::session_dir::SessionDir;
use crate::cgroup::SessionCgroup;
use crate::error::{AtStep, SetupError};
use crate::ids::{CommandId, SessionId};
use crate::plan::{Environment, Network};
use crate::proof::ProofRecord;
use crate::wire::init::{Order, Report, Start};
use crate::wire::warden::{Event, Exec, ExitStatus, Refusal, RefusalCode, RequestId, SessionEnd};
use crate::wire::{self, WireError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// From when on a session that does not end is looked at less often, and complained about.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(5);

/// A session from its launch until nothing of it is left.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) environment: Environment,
    pub(super) dir: SessionDir,
    pub(super) group: SessionCgroup,
    pub(super) pidfd: OwnedFd,
    pub(super) control: OwnedFd,
    pub(super) proof: ProofRecord,
    pub(super) commands: Commands,
    pub(super) ending: Option<Ending>,
}

#[derive(Debug)]
pub(super) struct Ending {
    pub(super) reason: SessionEnd,
    pub(super) since: Instant,
    pub(super) complained: bool,
    /// init is reaped.
    pub(super) reaped: bool,
    pub(super) waiters: Vec<RequestId>,
}

impl Session {
    pub(super) fn is_ready(&self, network: Network, has_listener: bool) -> Result<(), SetupError> {
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

    pub(super) fn exec(
        &mut self,
        exec: Exec,
        stdin: Option<OwnedFd>,
    ) -> Result<Vec<OwnedFd>, Refusal> {
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

    pub(super) fn signal(&mut self, id: CommandId, signal: i32) -> Result<(), Refusal> {
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
    pub(super) fn read_report(&mut self) -> Result<(), WireError> {
        let out_of_order = || WireError::Decode(postcard::Error::SerdeDeCustom);
        match wire::receive::<Report>(&self.control) {
            Ok((Report::Ended { command, status }, _)) => {
                let running = self.commands.get_mut(command).ok_or_else(out_of_order)?;
                if running.status.replace(status).is_some() {
                    return Err(out_of_order());
                }
                if let Err(error) = self.group.kill_leaf(command) {
                    log!("{error}");
                }
                Ok(())
            }
            Ok((Report::Ready(_) | Report::Failed { .. }, _)) => Err(out_of_order()),
            Err(WireError::WouldBlock) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn end(&mut self, reason: SessionEnd) {
        if self.ending.is_some() {
            return;
        }
        if let Err(error) = self.group.kill_all() {
            log!("{error}");
            // Without PID 1 no process of its namespace survives.
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        }
        let since = Instant::now();
        self.ending =
            Some(Ending { reason, since, complained: false, reaped: false, waiters: Vec::new() });
    }

    pub(super) fn finish_commands(&mut self, id: &SessionId, outbox: &mut Outbox) {
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
                log!("session {id}: {error}");
                self.end(SessionEnd::InitDied);
            }
        }
    }

    /// Whether init is reaped and the groups are removed.
    pub(super) fn is_gone(&mut self, id: &SessionId) -> bool {
        let Some(ending) = self.ending.as_mut().filter(|ending| ending.reaped) else {
            return false;
        };
        match self.group.try_remove() {
            Ok(true) => return true,
            Ok(false) if ending.complained || ending.since.elapsed() < SLOW_AFTER => {}
            Ok(false) => {
                ending.complained = true;
                log!("session {id} does not end: its cgroup is in use");
            }
            Err(error) => {
                log!("session {id}: {error}");
                return true;
            }
        }
        false
    }

    /// Tells the ends of all that is left and completes the records that init could not.
    pub(super) fn finish(&mut self, id: &SessionId, outbox: &mut Outbox) -> Vec<RequestId> {
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
            log!("command {command}: {error}");
        }
        // Its followers read the end now; a counter that is full has woken them already.
        let _ = rustix::io::write(grown, &1u64.to_ne_bytes());
    }
}
