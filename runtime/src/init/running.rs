//! A command that runs: its process, its pipes, its record.

use super::command::{CommandSetup, become_command};
use crate::ids::CommandId;
use crate::plan::Limits;
use crate::record::{RecordWriter, Stream};
use crate::steps::Step;
use crate::wire::init::{Instruction, Start};
use crate::wire::warden::ExitStatus;
use hangar_runtime_sys::{Clone, Forked, clone3};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How much is read from one pipe before others get their turn.
const TURN_BYTES_MAX: usize = 512 << 10;

/// What every command of the session has in common.
#[derive(Debug)]
pub(super) struct Common<'a> {
    pub(super) steps: &'a [Step],
    pub(super) limits: Limits,
    pub(super) filters: Vec<Vec<Instruction>>,
}

/// A command between its start and its end.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) command: CommandId,
    pub(super) pid: i32,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Holds an error number when the program could not be executed.
    not_executed: OwnedFd,
    record: RecordWriter<OwnedFd>,
    grown: OwnedFd,
}

impl Running {
    /// Starts a command in its cgroup.
    pub(super) fn start(
        common: &Common<'_>,
        start: &Start,
        fds: Vec<OwnedFd>,
    ) -> Result<Self, Errno> {
        let mut fds = fds.into_iter();
        let (Some(record), Some(grown), Some(cgroup)) = (fds.next(), fds.next(), fds.next()) else {
            return Err(Errno::BADMSG);
        };
        let stdin = match fds.next() {
            Some(fd) if start.stdin => fd,
            None if !start.stdin => {
                rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?
            }
            _ => return Err(Errno::BADMSG),
        };
        let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (not_executed, status_end) = pipe_with(PipeFlags::CLOEXEC)?;
        for end in [&stdout, &stderr, &not_executed] {
            rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK)?;
        }
        let clone = Clone { namespaces: 0, cgroup: Some(cgroup.as_fd()) };
        match clone3(&clone)? {
            Forked::Child => become_command(
                common.steps,
                &CommandSetup {
                    start,
                    limits: &common.limits,
                    filters: &common.filters,
                    streams: [stdin.as_fd(), stdout_end.as_fd(), stderr_end.as_fd()],
                },
                &status_end,
            ),
            Forked::Parent { pid, .. } => Ok(Self {
                command: start.command,
                pid,
                stdout: Some(stdout),
                stderr: Some(stderr),
                not_executed,
                record: RecordWriter::new(record, start.output),
                grown,
            }),
        }
    }

    /// The pipes that can still bring output.
    pub(super) fn pipes(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr)]
            .into_iter()
            .filter_map(|(stream, pipe)| Some((stream, pipe.as_ref()?.as_fd())))
    }

    /// Takes what one pipe holds into the record.
    pub(super) fn take(&mut self, stream: Stream, buffer: &mut [u8]) {
        let pipe = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let mut taken = 0;
        while let (Some(fd), true) = (&*pipe, taken < TURN_BYTES_MAX) {
            match rustix::io::read(fd, &mut *buffer) {
                Ok(0) => *pipe = None,
                Ok(read) => {
                    taken += read;
                    self.record.append(stream, &buffer[..read]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // A pipe of ours that fails has nothing more to give.
                Err(_) => *pipe = None,
            }
        }
        if taken > 0 {
            self.announce();
        }
    }

    /// Completes the record once the first process has ended.
    ///
    /// Output that is in the pipes now is taken; a process that the command left behind is killed
    /// by the warden and says no more.
    pub(super) fn end(&mut self, status: ExitStatus, buffer: &mut [u8]) -> ExitStatus {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.take_rest(stream, buffer);
        }
        let mut errno = [0; 4];
        let status = match rustix::io::read(&self.not_executed, &mut errno) {
            Ok(4) => ExitStatus::NotExecuted(i32::from_ne_bytes(errno)),
            _ => status,
        };
        self.record.end(status);
        self.announce();
        status
    }

    fn take_rest(&mut self, stream: Stream, buffer: &mut [u8]) {
        // A pipe holds at most a megabyte; a process that writes on meanwhile gets no more.
        let pipe = match stream {
            Stream::Stdout => self.stdout.take(),
            Stream::Stderr => self.stderr.take(),
        };
        let Some(pipe) = pipe else { return };
        let mut left = 1 << 20;
        while left > 0 {
            match rustix::io::read(&pipe, &mut *buffer) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(read) => {
                    left -= read.min(left);
                    self.record.append(stream, &buffer[..read]);
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }

    fn announce(&self) {
        // The counter saturates only when nobody reads; then there is nobody to wake.
        let _ = rustix::io::write(&self.grown, &1u64.to_ne_bytes());
    }
}
