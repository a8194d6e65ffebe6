//! The egress proxy: a process of its own uid that dials for the sessions.

use super::api::Outbox;
use crate::error::{AtStep, SetupError};
use crate::ids::SessionId;
use crate::wire::egress::{CONTROL_FD, Order, Report};
use crate::wire::warden::Event;
use crate::wire::{self, WireError};
use caps::CapSet;
use hangar_runtime_sys as sys;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const STEP: &str = "start-egress";
/// How long after its death the proxy is started again.
const RESTART_AFTER: Duration = Duration::from_millis(200);

/// The proxy and the listeners it serves.
#[derive(Debug)]
pub(super) struct Egress {
    /// The `hangar` program; nothing where there is none.
    program: Option<OwnedFd>,
    uid: u32,
    listeners: BTreeMap<SessionId, OwnedFd>,
    proxy: Option<Proxy>,
    restart_at: Option<Instant>,
}

#[derive(Debug)]
struct Proxy {
    pidfd: OwnedFd,
    socket: OwnedFd,
}

impl Egress {
    /// A proxy that is started with its first listener.
    pub(super) fn new(program: Option<OwnedFd>, uid: u32) -> Self {
        Self { program, uid, listeners: BTreeMap::new(), proxy: None, restart_at: None }
    }

    /// Whether sessions can have [`crate::plan::Network::Egress`].
    pub(super) fn is_available(&self) -> bool {
        self.program.is_some()
    }

    /// Serves a session, now and after every restart of the proxy.
    pub(super) fn serve(&mut self, session: &SessionId, listener: OwnedFd) {
        self.listeners.insert(session.clone(), listener);
        if self.proxy.is_some() {
            self.send(session);
        } else if self.restart_at.is_none() {
            self.start();
        }
    }

    /// Stops serving a session.
    pub(super) fn forget(&mut self, session: &SessionId) {
        if self.listeners.remove(session).is_some()
            && let Some(proxy) = &self.proxy
        {
            let order = Order::Forget { session: session.clone() };
            let sent = wire::send(&proxy.socket, &order, &[]);
            self.check(sent);
        }
    }

    /// Ends the proxy.
    pub(super) fn stop(&mut self) {
        self.listeners.clear();
        self.restart_at = None;
        if let Some(proxy) = self.proxy.take() {
            proxy.kill();
            super::reap(&proxy.pidfd);
        }
    }

    /// What to wait for: reports, and the end of the proxy.
    pub(super) fn descriptors(&self) -> Option<[BorrowedFd<'_>; 2]> {
        self.proxy.as_ref().map(|proxy| [proxy.socket.as_fd(), proxy.pidfd.as_fd()])
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.restart_at
    }

    /// Reads one report.
    pub(super) fn read(&mut self, outbox: &mut Outbox) {
        let Some(proxy) = &self.proxy else { return };
        match wire::receive::<Report>(&proxy.socket) {
            Ok((Report::Ready, _)) | Err(WireError::WouldBlock) => {}
            Ok((Report::Refused { session, mut target, mut reason }, _)) => {
                if self.listeners.contains_key(&session) {
                    truncate(&mut target, crate::wire::egress::TARGET_BYTES_MAX);
                    truncate(&mut reason, 1000);
                    outbox.event(Event::EgressRefused { session, target, reason });
                }
            }
            // Its end shows at the pidfd.
            Err(WireError::Closed) => proxy.kill(),
            Err(error) => self.check(Err(error)),
        }
    }

    /// The proxy ended; it is started again soon.
    pub(super) fn exited(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            let status = super::reap(&proxy.pidfd);
            log!("the egress proxy ended with {status:?}");
        }
        if !self.listeners.is_empty() {
            self.restart_at = Some(Instant::now() + RESTART_AFTER);
        }
    }

    /// Starts the proxy again when it is time.
    pub(super) fn housekeeping(&mut self) {
        if self.restart_at.is_some_and(|at| at <= Instant::now()) {
            self.start();
        }
    }

    fn start(&mut self) {
        self.restart_at = None;
        let Some(program) = &self.program else { return };
        match spawn(program, self.uid) {
            Ok(proxy) => self.proxy = Some(proxy),
            Err(error) => {
                log!("the egress proxy was not started: {error}");
                self.restart_at = Some(Instant::now() + RESTART_AFTER * 25);
                return;
            }
        }
        for session in self.listeners.keys().cloned().collect::<Vec<_>>() {
            self.send(&session);
        }
    }

    fn send(&mut self, session: &SessionId) {
        let (Some(proxy), Some(listener)) = (&self.proxy, self.listeners.get(session)) else {
            return;
        };
        let order = Order::Serve { session: session.clone() };
        let sent = wire::send(&proxy.socket, &order, &[listener.as_fd()]);
        self.check(sent);
    }

    /// A proxy that takes no orders is started anew.
    fn check(&self, sent: Result<(), WireError>) {
        if let (Err(error), Some(proxy)) = (sent, &self.proxy) {
            log!("the egress proxy is killed: {error}");
            proxy.kill();
        }
    }
}

impl Proxy {
    fn kill(&self) {
        // It can be dead already; then its pidfd tells.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

fn spawn(program: &OwnedFd, uid: u32) -> Result<Proxy, SetupError> {
    let (near, far) =
        wire::pair().map_err(|error| SetupError::other(STEP, "socketpair(SEQPACKET)", error))?;
    rustix::io::ioctl_fionbio(&near, true).at(STEP, || "ioctl(socket, FIONBIO)")?;
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .at(STEP, || "open(/dev/null)")?;
    match sys::clone3(&sys::Clone::default()).at(STEP, || "clone3()")? {
        sys::Forked::Parent { pidfd, .. } => Ok(Proxy { pidfd, socket: near }),
        sys::Forked::Child => {
            let Err(error) = become_proxy(program, uid, &far, &null);
            log!("the egress proxy was not started: {error}");
            sys::exit_now(125)
        }
    }
}

fn become_proxy(
    program: &OwnedFd,
    uid: u32,
    socket: &OwnedFd,
    null: &OwnedFd,
) -> Result<std::convert::Infallible, SetupError> {
    let capabilities =
        |error: caps::errors::CapsError| SetupError::other(STEP, "drop capabilities", error);
    caps::clear(None, CapSet::Ambient).map_err(capabilities)?;
    caps::clear(None, CapSet::Inheritable).map_err(capabilities)?;
    caps::clear(None, CapSet::Bounding).map_err(capabilities)?;
    // Leaving uid 0 clears the permitted and the effective set.
    sys::become_ids(uid, uid).at(STEP, || format!("setresuid({uid})"))?;
    let left = caps::read(None, CapSet::Permitted).map_err(capabilities)?;
    if !left.is_empty() {
        return Err(SetupError::mismatch(STEP, "permitted set", "{}", format!("{left:?}")));
    }
    rustix::thread::set_no_new_privs(true).at(STEP, || "prctl(NO_NEW_PRIVS)")?;
    // After the change of ids, which clears it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .at(STEP, || "prctl(PDEATHSIG, KILL)")?;
    let copy = |fd: &OwnedFd| fcntl_dupfd_cloexec(fd, 16).at(STEP, || "fcntl(DUPFD)");
    let (program, socket, null) = (copy(program)?, copy(socket)?, copy(null)?);
    let place = |fd: &OwnedFd, number| {
        sys::duplicate_to(fd.as_fd(), number).at(STEP, || format!("dup2(fd, {number})"))
    };
    place(&null, 0)?;
    place(&null, 1)?;
    place(&socket, CONTROL_FD)?;
    sys::reset_signals().at(STEP, || "sigaction(SIG_DFL)")?;
    sys::close_from(CONTROL_FD.unsigned_abs() + 1).at(STEP, || "close_range(CLOEXEC)")?;
    let number = std::ffi::CString::new(CONTROL_FD.to_string())
        .map_err(|error| SetupError::other(STEP, "execveat(hangar)", error))?;
    let arguments =
        [c"hangar".to_owned(), c"egress".to_owned(), c"--control-fd".to_owned(), number];
    Err(sys::execveat(program.as_fd(), &arguments, &[])).at(STEP, || "execveat(hangar)")
}

fn truncate(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
}
