//! The connection to the API: who may connect, what waits to be sent.

use super::state::StateDir;
use crate::error::{AtStep, SetupError};
use crate::wire::warden::{Answer, Event, JobId, Message, Refusal, RefusalCode, RequestId};
use crate::wire::{self, WireError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, Uid, chmodat, chownat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const STEP: &str = "listen";
const SOCKET: &str = "warden.sock";
/// Events that wait for an API; beyond it those that can be found out otherwise are dropped.
const EVENTS_MAX: usize = 4096;
/// Replies that wait; beyond it the API is not read any more.
const REPLIES_MAX: usize = 256;

/// The socket that the API connects to.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    api: u32,
}

impl Listener {
    /// Listens at `DIR/run/warden.sock`, which belongs to the API's uid.
    ///
    /// The directory is locked, so a socket that is there is a dead warden's.
    pub(super) fn new(state: &StateDir) -> Result<Self, SetupError> {
        let api = state.range().api();
        super::state::remove_file(state.run(), SOCKET)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .at(STEP, || "socket(UNIX, SEQPACKET)")?;
        // By descriptor: the state directory's own path can be longer than an address.
        let path = format!("/proc/self/fd/{}/{SOCKET}", super::raw(state.run()));
        let address = SocketAddrUnix::new(path.as_str()).at(STEP, || "sockaddr_un(run)")?;
        bind(&socket, &address).at(STEP, || "bind(run/warden.sock)")?;
        chmodat(state.run(), SOCKET, Mode::from_raw_mode(0o600), rustix::fs::AtFlags::empty())
            .at(STEP, || "fchmodat(run/warden.sock, 600)")?;
        let ids = (Some(Uid::from_raw(api)), Some(Gid::from_raw(api)));
        chownat(state.run(), SOCKET, ids.0, ids.1, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .at(STEP, || format!("fchownat(run/warden.sock, {api})"))?;
        listen(&socket, 8).at(STEP, || "listen(run/warden.sock)")?;
        Ok(Self { socket, api })
    }

    /// Takes a caller, if it is root or the API.
    pub(super) fn accept(&self) -> Option<OwnedFd> {
        let socket =
            accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()?;
        let peer = sockopt::socket_peercred(&socket).ok()?;
        let uid = peer.uid.as_raw();
        if uid == 0 || uid == self.api {
            return Some(socket);
        }
        log!("a caller with uid {uid} was turned away");
        None
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What waits to be sent to the API, in order. Events outlive a connection, replies do not.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<(Message, Vec<OwnedFd>)>,
    replies: usize,
}

impl Outbox {
    pub(super) fn event(&mut self, event: Event) {
        if self.queue.len() - self.replies >= EVENTS_MAX {
            self.make_room();
        }
        self.queue.push_back((Message::Event(event), Vec::new()));
    }

    /// Only the last word of a job on its progress waits.
    pub(super) fn progress(&mut self, job: JobId, progress: Vec<u8>) {
        let waiting = self.queue.iter_mut().find_map(|(message, _)| match message {
            Message::Event(Event::JobProgress { job: other, progress }) if *other == job => {
                Some(progress)
            }
            _ => None,
        });
        match waiting {
            Some(waiting) => *waiting = progress,
            None => self.event(Event::JobProgress { job, progress }),
        }
    }

    pub(super) fn reply(&mut self, id: RequestId, result: Result<(Answer, Vec<OwnedFd>), Refusal>) {
        let (result, fds) = match result {
            Ok((answer, fds)) => (Ok(answer), fds),
            Err(refusal) => (Err(refusal), Vec::new()),
        };
        self.replies += 1;
        self.queue.push_back((Message::Reply { id, result }, fds));
    }

    /// Whether the API should read replies before it sends more.
    pub(super) fn is_full(&self) -> bool {
        self.replies >= REPLIES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets what only the connection that ended could have used.
    pub(super) fn connection_ended(&mut self) {
        self.queue.retain(|(message, _)| {
            !matches!(
                message,
                Message::Reply { .. }
                    | Message::Event(Event::JobProgress { .. } | Event::JobEnded { .. })
            )
        });
        self.replies = 0;
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self, socket: &OwnedFd) -> Result<(), WireError> {
        while let Some((message, fds)) = self.queue.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match wire::send(socket, message, &fds) {
                Ok(()) => {}
                Err(WireError::WouldBlock) => return Ok(()),
                Err(WireError::TooLong(length)) => self.replace_front(length),
                Err(error) => return Err(error),
            }
            if let Some((Message::Reply { .. }, _)) = self.queue.pop_front() {
                self.replies -= 1;
            }
        }
        Ok(())
    }

    /// The caller learns at least that its answer does not fit.
    fn replace_front(&mut self, length: usize) {
        if let Some((Message::Reply { id, .. }, _)) = self.queue.pop_front() {
            let message = format!("the answer of {length} bytes fits no message");
            let result = Err(Refusal::new(RefusalCode::Failed, message));
            self.queue.push_front((Message::Reply { id, result }, Vec::new()));
        } else {
            log!("an event of {length} bytes fits no message");
        }
    }

    /// Drops what tells least; ends of commands are also told by `Sessions` and the records.
    fn make_room(&mut self) {
        let minor = self.queue.iter().position(|(message, _)| {
            matches!(
                message,
                Message::Event(Event::JobProgress { .. } | Event::EgressRefused { .. })
            )
        });
        let oldest =
            || self.queue.iter().position(|(message, _)| matches!(message, Message::Event(_)));
        if let Some(index) = minor.or_else(oldest) {
            self.queue.remove(index);
        }
    }
}

/// Whether the other side of a socket has closed it, whatever it left to be read.
pub(super) fn is_dead(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    // A hang-up is told without being asked for. EINTR says nothing about the socket.
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_caller_is_dead_although_it_left_calls() {
        let (near, far) = wire::pair().unwrap();
        assert!(!is_dead(&near));
        wire::send(&far, &1u8, &[]).unwrap();
        assert!(!is_dead(&near));
        drop(far);
        assert!(is_dead(&near));
    }
}
