//! The commands of a session as the warden keeps them: deadline, cause of the end, clean-up.

use crate::cgroup::{Counters, SessionCgroup};
use crate::error::SetupError;
use crate::ids::CommandId;
use crate::wire::warden::{CommandEnd, ENDED_MAX, EndCause, ExitStatus};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A command that has not ended, or whose processes are not all gone.
#[derive(Debug)]
pub(super) struct Command {
    /// Written by init whenever the record grew.
    pub(super) grown: OwnedFd,
    pub(super) deadline: Option<Instant>,
    /// What the session's limits had counted when the command started.
    pub(super) before: Counters,
    /// Why the warden ended it, if it did.
    pub(super) killed: Option<EndCause>,
    /// How its first process ended, once it has.
    pub(super) status: Option<ExitStatus>,
}

/// The commands of one isolation.
#[derive(Debug, Default)]
pub(super) struct Commands {
    running: BTreeMap<CommandId, Command>,
    ended: VecDeque<(CommandId, CommandEnd)>,
}

impl Commands {
    pub(super) fn insert(&mut self, id: CommandId, command: Command) {
        self.running.insert(id, command);
    }

    pub(super) fn get_mut(&mut self, id: CommandId) -> Option<&mut Command> {
        self.running.get_mut(&id)
    }

    pub(super) fn get(&self, id: CommandId) -> Option<&Command> {
        self.running.get(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn running(&self) -> Vec<CommandId> {
        self.running.keys().copied().collect()
    }

    /// The last ends, the oldest first.
    pub(super) fn ended(&self, max: usize) -> Vec<(CommandId, CommandEnd)> {
        self.ended.iter().skip(self.ended.len().saturating_sub(max)).copied().collect()
    }

    /// Whether a command's first process has ended and others are still to be killed.
    pub(super) fn has_closing(&self) -> bool {
        self.running.values().any(|command| command.status.is_some())
    }

    /// The next moment at which a command is to be killed.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.running
            .values()
            .filter(|command| command.status.is_none() && command.killed.is_none())
            .filter_map(|command| command.deadline)
            .min()
    }

    /// Kills the commands whose time is over.
    pub(super) fn kill_overdue(&mut self, group: &SessionCgroup) -> Result<(), SetupError> {
        let now = Instant::now();
        for (id, command) in &mut self.running {
            let overdue = command.deadline.is_some_and(|deadline| deadline <= now);
            if overdue && command.status.is_none() && command.killed.is_none() {
                command.killed = Some(EndCause::Timeout);
                group.kill_leaf(*id)?;
            }
        }
        Ok(())
    }

    /// Takes the commands out of which no process is left.
    pub(super) fn take_ended(
        &mut self,
        group: &SessionCgroup,
    ) -> Result<Vec<(CommandId, CommandEnd)>, SetupError> {
        let mut ended = Vec::new();
        for (id, status) in
            self.running.iter().filter_map(|(id, command)| Some((*id, command.status?)))
        {
            if group.leaf_is_empty(id)? && group.try_remove_leaf(id)? {
                ended.push((id, status));
            }
        }
        let now = if ended.is_empty() { Counters::default() } else { group.counters()? };
        let alone = self.running.len() == 1;
        Ok(ended
            .into_iter()
            .filter_map(|(id, status)| {
                let command = self.running.remove(&id)?;
                Some((id, self.note_end(id, end_of(&command, status, now, alone))))
            })
            .collect())
    }

    /// Takes all commands out: the session has ended, and with it every process.
    pub(super) fn take_all(&mut self) -> Vec<(CommandId, CommandEnd)> {
        std::mem::take(&mut self.running)
            .into_iter()
            .map(|(id, command)| {
                let end = CommandEnd {
                    status: command.status.unwrap_or(ExitStatus::Signal(libc::SIGKILL)),
                    cause: match (command.killed, command.status) {
                        (Some(cause), _) => cause,
                        (None, Some(_)) => EndCause::Own,
                        (None, None) => EndCause::SessionEnded,
                    },
                    pids_limit_hit: false,
                };
                (id, self.note_end(id, end))
            })
            .collect()
    }

    fn note_end(&mut self, id: CommandId, end: CommandEnd) -> CommandEnd {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, end));
        end
    }
}

/// Why a command ended. Memory is counted for the session as a whole: a command that ran beside
/// others is blamed only when it died as one does that the kernel killed.
fn end_of(command: &Command, status: ExitStatus, now: Counters, alone: bool) -> CommandEnd {
    let oom = now.oom_kills > command.before.oom_kills
        && match status {
            ExitStatus::Signal(libc::SIGKILL) | ExitStatus::Code(137) => true,
            ExitStatus::Code(0) | ExitStatus::NotExecuted(_) => false,
            ExitStatus::Code(_) | ExitStatus::Signal(_) => alone,
        };
    let cause = match command.killed {
        Some(cause) => cause,
        None if oom => EndCause::OutOfMemory,
        None => EndCause::Own,
    };
    let pids_limit_hit = now.pids_limit_hits > command.before.pids_limit_hits;
    CommandEnd { status, cause, pids_limit_hit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(killed: Option<EndCause>) -> Command {
        let grown = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let before = Counters { oom_kills: 3, pids_limit_hits: 1 };
        Command { grown, deadline: None, before, killed, status: None }
    }

    #[test]
    fn causes_are_told_apart() {
        let same = Counters { oom_kills: 3, pids_limit_hits: 1 };
        let oom = Counters { oom_kills: 4, ..same };
        let kill = ExitStatus::Signal(9);
        let cause = |killed, status, now, alone| end_of(&command(killed), status, now, alone).cause;
        assert_eq!(cause(None, kill, same, true), EndCause::Own);
        assert_eq!(cause(None, kill, oom, false), EndCause::OutOfMemory);
        assert_eq!(cause(None, ExitStatus::Code(137), oom, false), EndCause::OutOfMemory);
        assert_eq!(cause(None, ExitStatus::Code(1), oom, true), EndCause::OutOfMemory);
        assert_eq!(cause(None, ExitStatus::Code(1), oom, false), EndCause::Own, "another one's");
        assert_eq!(cause(None, ExitStatus::Code(0), oom, true), EndCause::Own);
        let timeout = Some(EndCause::Timeout);
        assert_eq!(cause(timeout, kill, oom, true), EndCause::Timeout);
        let hits = Counters { pids_limit_hits: 2, ..same };
        assert!(end_of(&command(None), kill, hits, true).pids_limit_hit);
        assert!(!end_of(&command(None), kill, oom, true).pids_limit_hit);
    }

    #[test]
    fn a_session_that_ends_ends_its_commands() {
        let mut commands = Commands::default();
        commands.insert(CommandId(1), command(None));
        commands.insert(CommandId(2), command(Some(EndCause::Cancelled)));
        let mut done = command(None);
        done.status = Some(ExitStatus::Code(4));
        commands.insert(CommandId(3), done);
        let causes: Vec<_> = commands.take_all().iter().map(|(_, end)| end.cause).collect();
        assert_eq!(causes, [EndCause::SessionEnded, EndCause::Cancelled, EndCause::Own]);
        assert_eq!(commands.ended(9).len(), 3);
        assert_eq!(commands.ended(1)[0].0, CommandId(3), "the last one");
        assert!(commands.is_empty());
    }
}
