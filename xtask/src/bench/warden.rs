//! A warden of its own, spoken to as the API does.

use crate::failure::{Failure, Step};
use hangar_runtime::ids::SessionId;
use hangar_runtime::wire;
use hangar_runtime::wire::warden::{
    Answer, BUILD_ID, Call, Event, Job, JobEnd, JobId, Message, Request, RequestId,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running warden and the connection to it; ended when dropped.
pub struct Warden {
    process: Child,
    socket: OwnedFd,
    state_dir: PathBuf,
    calls: u64,
    /// Events that came while an answer was waited for.
    events: Vec<Event>,
}

impl Warden {
    /// Starts a warden on a state directory and greets it.
    ///
    /// # Errors
    /// When it does not start, or is of another build.
    pub fn start(state_dir: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(state_dir).step(|| format!("making {}", state_dir.display()))?;
        let binary = crate::tree::binary("hangar-warden")?;
        let process = Command::new(&binary)
            .arg("--state-dir")
            .arg(state_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .step(|| format!("starting {}", binary.display()))?;
        let socket = connected(&state_dir.join("run/warden.sock"))?;
        let mut this =
            Self { process, socket, state_dir: state_dir.to_owned(), calls: 0, events: Vec::new() };
        this.call(Request::Hello { build: BUILD_ID.to_owned() })?;
        Ok(this)
    }

    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The warden's process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a request and waits for its answer; descriptors that come along are closed.
    ///
    /// # Errors
    /// When the warden refuses or is gone.
    pub fn call(&mut self, request: Request) -> Result<Answer, Failure> {
        self.call_with(request, &[])
    }

    fn call_with(&mut self, request: Request, fds: &[BorrowedFd<'_>]) -> Result<Answer, Failure> {
        self.calls += 1;
        let id = RequestId(self.calls);
        let call = Call { id, request };
        let told = || format!("{:?}", call.request);
        wire::send(&self.socket, &call, fds).step(told)?;
        loop {
            let (message, _descriptors) = wire::receive::<Message>(&self.socket).step(told)?;
            match message {
                Message::Reply { id: replied, result } if replied == id => {
                    return result.step(told);
                }
                Message::Reply { .. } => {}
                Message::Event(event) => self.events.push(event),
            }
        }
    }

    /// Waits for an event.
    ///
    /// # Errors
    /// When the warden is gone.
    pub fn wait<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> Result<T, Failure> {
        if let Some(found) = self.events.iter().position(|event| wanted(event).is_some()) {
            let event = self.events.remove(found);
            return Ok(wanted(&event).expect("it was wanted before"));
        }
        loop {
            let (message, _descriptors) = wire::receive::<Message>(&self.socket)
                .step(|| "waiting for an event of the warden".to_owned())?;
            if let Message::Event(event) = message {
                match wanted(&event) {
                    Some(found) => return Ok(found),
                    None => self.events.push(event),
                }
            }
        }
    }

    /// Runs a job of the worker to its end.
    ///
    /// # Errors
    /// When the job does not succeed.
    pub fn run_job(&mut self, work: Job, options: &str) -> Result<(), Failure> {
        self.run(work, options, &[])
    }

    /// The same for a job on an uploaded file.
    ///
    /// # Errors
    /// As for [`Self::run_job`].
    pub fn run_job_on(&mut self, work: Job, options: &str, upload: &File) -> Result<(), Failure> {
        self.run(work, options, &[upload.as_fd()])
    }

    fn run(&mut self, work: Job, options: &str, fds: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        let job = JobId(self.calls + 1);
        let told = format!("{work:?}");
        let options = options.as_bytes().to_vec();
        self.call_with(Request::StartJob { job, work, options }, fds)?;
        let end = self.wait(|event| match event {
            Event::JobEnded { job: ended, end } if *ended == job => Some(end.clone()),
            _ => None,
        })?;
        match end {
            JobEnd::Done(_) => Ok(()),
            JobEnd::Refused(why) => {
                Err(Failure::new(format!("{told} was refused: {}", String::from_utf8_lossy(&why))))
            }
            other => Err(Failure::new(format!("{told} ended with {other:?}"))),
        }
    }

    /// Stops a session and waits until nothing of its isolation is left.
    ///
    /// # Errors
    /// When the warden refuses or is gone.
    pub fn stop(&mut self, session: &SessionId) -> Result<(), Failure> {
        self.call(Request::Stop { session: session.clone() })?;
        self.wait(|event| match event {
            Event::SessionEnded { session: ended, .. } if ended == session => Some(()),
            _ => None,
        })
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        let asked = self.call(Request::Shutdown);
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        if matches!(self.process.try_wait(), Ok(None)) {
            eprintln!("the warden did not end when asked ({asked:?}); killing it");
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Connects once the warden listens.
fn connected(path: &Path) -> Result<OwnedFd, Failure> {
    let told = || format!("connecting to {}", path.display());
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .step(told)?;
    let address = SocketAddrUnix::new(path).step(told)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match connect(&socket, &address) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            done => {
                done.step(told)?;
                return Ok(socket);
            }
        }
    }
}
