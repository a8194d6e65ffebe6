//! The egress proxy: the dialling side of what sessions may reach.
//!
//! A session with a network has no route and no name service, only a proxy at 127.0.0.1:3128 of
//! its own network namespace. The listener is made in there by the session's init and handed
//! here through the warden; accepting needs no access to the namespace. This process runs under
//! a uid of its own, without capabilities, and holds no file, database or token of hangar: what
//! a hostile client or server can take over here is a dialler of public addresses.
//!
//! Reading order: [`confinement`], [`target`] (what is asked for), [`policy`] (what is allowed), [`dial`]
//! (resolved once, judged, dialled), [`connection`] (HTTP), [`session`] (limits), this file.

mod activity;
pub mod confinement;
mod connection;
mod dial;
pub mod policy;
mod report;
mod session;
pub mod target;
#[cfg(test)]
mod tests;

use hangar_runtime::ids::SessionId;
use hangar_runtime::wire::egress::{Order, Report};
use hangar_runtime::wire::{WireError, receive};
use policy::{NamedList, Policy};
use report::Reports;
use session::{Limits, Session};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

/// Why the proxy ended.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The control socket was not inherited or cannot be used.
    #[error("descriptor {0} is not a control socket")]
    Control(RawFd, #[source] io::Error),
    /// The process is not confined as it should be.
    #[error("the proxy is not confined")]
    Confinement(#[from] confinement::ConfinementError),
    /// A system call failed while starting.
    #[error("{0} failed")]
    Start(&'static str, #[source] io::Error),
    /// An order did not arrive whole.
    #[error("the control socket failed")]
    Order(#[from] WireError),
    /// An order came without its descriptor, or with more than it should.
    #[error("an order came with {0} descriptors")]
    Descriptors(usize),
}

/// Serves the sessions the warden names until the warden closes the control socket.
///
/// # Errors
/// When the control socket is not usable, or an order on it makes no sense; every listener and
/// connection is closed then, and the warden starts another proxy.
pub fn run(control_fd: RawFd) -> Result<(), EgressError> {
    confinement::check_start()?;
    let control = inherited(control_fd).map_err(|e| EgressError::Control(control_fd, e))?;
    raise_open_files().map_err(|e| EgressError::Start("setrlimit(NOFILE)", e))?;
    // Before the first thread: Landlock holds for this one and those it starts.
    confinement::forbid_core_files()?;
    confinement::enforce_landlock()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUP_THREADS_MAX)
        .build()
        .map_err(|e| EgressError::Start("starting the runtime", e))?;
    let ended = runtime.block_on(take_orders(control, NamedList, Limits::default()));
    // A look-up that hangs in the resolver must not hold the process.
    runtime.shutdown_background();
    ended
}

/// Threads that wait in the resolver, over all sessions.
const LOOKUP_THREADS_MAX: usize = 64;

/// A descriptor of our own for one that was inherited by number.
///
/// `pidfd_getfd` on this process checks that the number is open, which taking it over unseen
/// would not.
fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this_process, number, PidfdGetfdFlags::empty())?)
}

/// Every connection takes two descriptors; the default soft limit of 1024 is for `select`.
fn raise_open_files() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// The sessions that are served; dropping it ends them all.
struct Served<P> {
    policy: Arc<P>,
    limits: Limits,
    reports: Reports,
    sessions: HashMap<SessionId, AbortHandle>,
}

async fn take_orders<P: Policy>(
    control: OwnedFd,
    policy: P,
    limits: Limits,
) -> Result<(), EgressError> {
    let control = report::socket(control).map_err(|e| EgressError::Start("epoll_ctl(ADD)", e))?;
    let control = Arc::new(control);
    let reports = Reports::to(Arc::clone(&control));
    reports.send(Report::Ready);
    let mut served = Served { policy: Arc::new(policy), limits, reports, sessions: HashMap::new() };
    loop {
        control.readable().await.map_err(|e| EgressError::Start("epoll_wait", e))?;
        match next_order(&control) {
            Ok((order, fds)) => served.carry_out(order, fds)?,
            Err(WireError::WouldBlock) => {}
            Err(WireError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn next_order(control: &UnixStream) -> Result<(Order, Vec<OwnedFd>), WireError> {
    report::without_waiting(control, Interest::READABLE, || receive::<Order>(control.as_fd()))
}

impl<P: Policy> Served<P> {
    fn carry_out(&mut self, order: Order, mut fds: Vec<OwnedFd>) -> Result<(), EgressError> {
        match (order, fds.len()) {
            (Order::Serve { session }, 1) => self.serve(session, fds.remove(0)),
            (Order::Forget { session }, 0) => {
                self.forget(&session);
                Ok(())
            }
            (_, count) => Err(EgressError::Descriptors(count)),
        }
    }

    fn serve(&mut self, id: SessionId, listener: OwnedFd) -> Result<(), EgressError> {
        self.forget(&id);
        let listener = session::listener(listener)
            .map_err(|e| EgressError::Start("taking over a session's listener", e))?;
        let session =
            Session::new(id.clone(), Arc::clone(&self.policy), self.limits, self.reports.clone());
        let task = tokio::spawn(session::serve(listener, Arc::new(session)));
        self.sessions.insert(id, task.abort_handle());
        Ok(())
    }

    /// Ends a session's task, and with it its listener and all its connections.
    fn forget(&mut self, id: &SessionId) {
        if let Some(task) = self.sessions.remove(id) {
            task.abort();
        }
    }
}

impl<P> Drop for Served<P> {
    fn drop(&mut self) {
        self.sessions.values().for_each(AbortHandle::abort);
    }
}
