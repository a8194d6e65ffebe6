//! The connection to the warden: calls, their answers, and what the warden tells unasked.
//!
//! One task reads the socket. An answer goes to the call that waits for it, the end of a job to
//! whoever started it, a refusal of the egress proxy to those who listen, everything else in
//! order to one [`Notice`] channel. When the warden goes away every waiting call fails, and the
//! task tries to reach a new one.

use hangar_runtime::ids::SessionId;
use hangar_runtime::wire::warden::{
    Answer, BUILD_ID, Call, Event, Job, JobEnd, JobId, Message, Refusal, Request, RequestId,
};
use hangar_runtime::wire::{self, WireError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{broadcast, mpsc, oneshot};

/// How long a call may take. Jobs and commands are longer, but their calls answer at once.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a lost warden is looked for.
const RECONNECT_EVERY: Duration = Duration::from_millis(300);

/// Why a call was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WardenError {
    /// There is no warden, or it went away before it answered.
    #[error("the warden is not there")]
    Gone,
    /// The session does not run; nothing was asked of the warden.
    #[error("the session does not run")]
    NotRunning,
    /// It is of another build and would refuse everything.
    #[error("{0}")]
    OtherBuild(OtherBuild),
    /// It did not answer in time.
    #[error("the warden did not answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout,
    /// It refused.
    #[error("the warden refused: {0}")]
    Refused(Refusal),
    /// The message could not be sent.
    #[error("the call could not be sent: {0}")]
    NotSent(String),
    /// The answer is not one to this call.
    #[error("the warden answered something else than it was asked")]
    Confused,
}

/// A warden that does not speak this program's protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherBuild {
    /// Its build, where its answer was understood.
    pub build: Option<String>,
    /// Its process.
    pub pid: i32,
}

impl std::fmt::Display for OtherBuild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let build = self.build.as_deref().unwrap_or("unknown");
        write!(f, "the warden, process {}, is of build {build}, this is {BUILD_ID}", self.pid)
    }
}

/// What the warden tells without being asked.
#[derive(Debug)]
pub enum Notice {
    /// A warden is there; what ran before may be gone.
    Connected,
    /// The warden is gone and with it every session.
    Gone,
    /// Something happened.
    Event(Event),
}

/// A target the egress proxy did not dial.
#[derive(Debug, Clone)]
pub struct EgressRefusal {
    /// The session that asked.
    pub session: SessionId,
    /// `host:port` as it was asked for.
    pub target: String,
    /// One sentence.
    pub reason: String,
}

type Reply = Result<(Answer, Vec<OwnedFd>), WardenError>;

/// The way to the warden. Clones share it.
#[derive(Debug, Clone)]
pub struct WardenClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    socket_path: PathBuf,
    socket: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
    next: AtomicU64,
    /// The warden was told to end.
    ending: AtomicBool,
    pending: Mutex<HashMap<RequestId, oneshot::Sender<Reply>>>,
    jobs: Mutex<HashMap<JobId, oneshot::Sender<JobEnd>>>,
    notices: mpsc::UnboundedSender<Notice>,
    refusals: broadcast::Sender<EgressRefusal>,
}

/// Connects to a warden's socket and checks that it is of this build. It blocks.
///
/// # Errors
/// [`WardenError::Gone`] when nobody listens there, [`WardenError::OtherBuild`] when it is not of
/// this build.
pub fn connect_blocking(path: &Path) -> Result<OwnedFd, WardenError> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|errno| WardenError::NotSent(format!("socket: {errno}")))?;
    let address =
        SocketAddrUnix::new(path).map_err(|errno| WardenError::NotSent(format!("{errno}")))?;
    connect(&socket, &address).map_err(|_| WardenError::Gone)?;
    let timeout = Some(Duration::from_secs(10));
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, timeout)
        .map_err(|errno| WardenError::NotSent(format!("SO_RCVTIMEO: {errno}")))?;
    let hello = Request::Hello { build: BUILD_ID.to_owned() };
    wire::send(&socket, &Call { id: RequestId(0), request: hello }, &[])
        .map_err(|error| WardenError::NotSent(error.to_string()))?;
    let peer = rustix::net::sockopt::socket_peercred(&socket)
        .map_err(|errno| WardenError::NotSent(format!("SO_PEERCRED: {errno}")))?;
    let pid = peer.pid.as_raw_nonzero().get();
    let other = |build| Err(WardenError::OtherBuild(OtherBuild { build, pid }));
    loop {
        match wire::receive::<Message>(&socket) {
            Ok((Message::Reply { id: RequestId(0), result: Ok(Answer::Hello { build }) }, _)) => {
                return if build == BUILD_ID { Ok(socket) } else { other(Some(build)) };
            }
            Ok((Message::Reply { result: Err(refusal), .. }, _)) => {
                return Err(WardenError::Refused(refusal));
            }
            Ok((Message::Reply { .. }, _)) => return Err(WardenError::Confused),
            Ok((Message::Event(_), _)) => {}
            Err(WireError::WouldBlock) => return Err(WardenError::Timeout),
            Err(WireError::Decode(_)) => return other(None),
            Err(_) => return Err(WardenError::Gone),
        }
    }
}

impl WardenClient {
    /// Serves a connection that said Hello, and looks for a new warden whenever one is lost.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(
        first: Option<OwnedFd>,
        socket_path: PathBuf,
    ) -> (Self, mpsc::UnboundedReceiver<Notice>) {
        let (notices, receiver) = mpsc::unbounded_channel();
        // Ids of this process must not meet those of jobs an earlier one left running.
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).expect("the kernel gives random bytes");
        let inner = Arc::new(Inner {
            socket_path,
            socket: Mutex::new(None),
            next: AtomicU64::new(u64::from_le_bytes(seed) >> 1 | 1),
            ending: AtomicBool::new(false),
            pending: Mutex::new(HashMap::new()),
            jobs: Mutex::new(HashMap::new()),
            notices,
            refusals: broadcast::channel(256).0,
        });
        tokio::spawn(serve_connections(Arc::clone(&inner), first));
        (Self { inner }, receiver)
    }

    /// Asks the warden and waits for the answer.
    ///
    /// # Errors
    /// When the warden is not there, refuses, or does not answer in time.
    pub async fn call(
        &self,
        request: Request,
        descriptors: &[OwnedFd],
    ) -> Result<(Answer, Vec<OwnedFd>), WardenError> {
        let id = RequestId(self.inner.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        lock(&self.inner.pending).insert(id, sender);
        let outcome = tokio::time::timeout(CALL_TIMEOUT, async {
            self.send(&Call { id, request }, descriptors).await?;
            answer.await.map_err(|_| WardenError::Gone)?
        })
        .await
        .unwrap_or(Err(WardenError::Timeout));
        lock(&self.inner.pending).remove(&id);
        outcome
    }

    /// Asks for something that has nothing to tell.
    ///
    /// # Errors
    /// As [`WardenClient::call`].
    pub async fn order(&self, request: Request) -> Result<(), WardenError> {
        if matches!(request, Request::Shutdown) {
            self.inner.ending.store(true, Ordering::Relaxed);
        }
        match self.call(request, &[]).await?.0 {
            Answer::Done => Ok(()),
            _ => Err(WardenError::Confused),
        }
    }

    /// Runs a job of the worker to its end. Dropping the future cancels the job.
    ///
    /// # Errors
    /// When the job could not be started; its own end is the value.
    pub async fn job(
        &self,
        work: Job,
        options: Vec<u8>,
        descriptors: &[OwnedFd],
    ) -> Result<JobEnd, WardenError> {
        let job = JobId(self.inner.next.fetch_add(1, Ordering::Relaxed));
        let (sender, end) = oneshot::channel();
        lock(&self.inner.jobs).insert(job, sender);
        let mut guard = CancelJob { client: self, job, armed: true };
        match self.call(Request::StartJob { job, work, options }, descriptors).await {
            Ok((Answer::Done | Answer::Started, _)) => {}
            Ok(_) => return Err(WardenError::Confused),
            Err(error) => {
                guard.armed = matches!(error, WardenError::Timeout);
                return Err(error);
            }
        }
        let end = end.await.map_err(|_| WardenError::Gone);
        guard.armed = false;
        end
    }

    /// What the egress proxy refuses from now on. Who is slow misses the oldest.
    #[must_use]
    pub fn refusals(&self) -> broadcast::Receiver<EgressRefusal> {
        self.inner.refusals.subscribe()
    }

    /// A warden is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        lock(&self.inner.socket).is_some()
    }

    async fn send(&self, call: &Call, descriptors: &[OwnedFd]) -> Result<(), WardenError> {
        let socket = lock(&self.inner.socket).clone().ok_or(WardenError::Gone)?;
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        loop {
            let mut ready = socket.writable().await.map_err(|_| WardenError::Gone)?;
            match wire::send(socket.get_ref(), call, &borrowed) {
                Ok(()) => return Ok(()),
                Err(WireError::WouldBlock) => ready.clear_ready(),
                Err(WireError::Closed) => return Err(WardenError::Gone),
                Err(error) => return Err(WardenError::NotSent(error.to_string())),
            }
        }
    }
}

/// Cancels a job nobody waits for any more.
struct CancelJob<'a> {
    client: &'a WardenClient,
    job: JobId,
    armed: bool,
}

impl Drop for CancelJob<'_> {
    fn drop(&mut self) {
        lock(&self.client.inner.jobs).remove(&self.job);
        if self.armed {
            let (client, job) = (self.client.clone(), self.job);
            tokio::spawn(async move { client.order(Request::CancelJob { job }).await });
        }
    }
}

async fn serve_connections(inner: Arc<Inner>, mut socket: Option<OwnedFd>) {
    loop {
        let Some(connected) = socket.take() else {
            tokio::time::sleep(RECONNECT_EVERY).await;
            if inner.notices.is_closed() {
                return;
            }
            let path = inner.socket_path.clone();
            socket = tokio::task::spawn_blocking(move || connect_blocking(&path).ok())
                .await
                .unwrap_or(None);
            continue;
        };
        if let Err(error) = serve_connection(&inner, connected).await
            && !inner.ending.load(Ordering::Relaxed)
        {
            tracing::warn!("the connection to the warden ended: {error}");
        }
        *lock(&inner.socket) = None;
        for (_, call) in lock(&inner.pending).drain() {
            let _ = call.send(Err(WardenError::Gone));
        }
        // A job whose sender is dropped ends as gone.
        lock(&inner.jobs).clear();
        if inner.notices.send(Notice::Gone).is_err() {
            return;
        }
    }
}

/// Reads messages until the connection ends, which it always does with an error.
async fn serve_connection(inner: &Inner, socket: OwnedFd) -> Result<(), String> {
    rustix::io::ioctl_fionbio(&socket, true).map_err(|errno| format!("FIONBIO: {errno}"))?;
    #[expect(deprecated, reason = "the other form is unsafe; this one is sound for an OwnedFd")]
    let registered = AsyncFd::new(socket);
    let socket = Arc::new(registered.map_err(|error| error.to_string())?);
    *lock(&inner.socket) = Some(Arc::clone(&socket));
    let _ = inner.notices.send(Notice::Connected);
    loop {
        let mut ready = socket.readable().await.map_err(|error| error.to_string())?;
        match wire::receive::<Message>(socket.get_ref()) {
            Ok((message, descriptors)) => deliver(inner, message, descriptors),
            Err(WireError::WouldBlock) => ready.clear_ready(),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Gives a message to whoever waits for it. A receiver that went away is no error.
fn deliver(inner: &Inner, message: Message, descriptors: Vec<OwnedFd>) {
    match message {
        Message::Reply { id, result } => {
            if let Some(call) = lock(&inner.pending).remove(&id) {
                let _ = call
                    .send(result.map(|answer| (answer, descriptors)).map_err(WardenError::Refused));
            }
        }
        Message::Event(Event::JobEnded { job, end }) => {
            if let Some(waiting) = lock(&inner.jobs).remove(&job) {
                let _ = waiting.send(end);
            }
        }
        Message::Event(Event::JobProgress { .. }) => {}
        Message::Event(Event::EgressRefused { session, target, reason }) => {
            crate::observe::metrics::egress_refused();
            let _ = inner.refusals.send(EgressRefusal { session, target, reason });
        }
        Message::Event(event) => {
            let _ = inner.notices.send(Notice::Event(event));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "warden_client_tests.rs"]
mod tests;
