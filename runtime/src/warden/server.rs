//! The loop: waits for whatever can happen, does it, and tidies up behind it.

use super::api::{Listener, Outbox, is_dead};
use super::blocks::Blocks;
use super::egress::Egress;
use super::jobs::{Context, Jobs, Wait};
use super::parking::{Means, Parking, Place};
use super::sessions::Sessions;
use super::state::StateDir;
use super::worker::Program;
use super::{WardenConfig, session_dir, tidy};
use crate::cgroup::Cgroups;
use crate::error::{AtStep, SetupError};
use crate::ids::SessionId;
use crate::launch::Launcher;
use crate::steps::Step;
use crate::wire::warden::{Answer, Call, RequestId, SessionEnd};
use crate::wire::{self, WireError};
use hangar_runtime_sys::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long an ending warden waits for what does not end.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(20);
/// How long the last answers can wait for a caller that does not read.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(1);

/// A running warden.
pub(super) struct Server {
    pub(super) state: StateDir,
    pub(super) cgroups: Cgroups,
    pub(super) launcher: Launcher,
    pub(super) blocks: Blocks,
    pub(super) jobs: Jobs,
    pub(super) sessions: Sessions,
    pub(super) egress: Egress,
    pub(super) parking: Parking,
    pub(super) outbox: Outbox,
    pub(super) init_image: OwnedFd,
    pub(super) init_arguments: Vec<String>,
    pub(super) steps: &'static [Step],
    pub(super) shutdown: Option<Shutdown>,
    listener: Listener,
    signals: SignalFd,
    api: Option<OwnedFd>,
    /// The caller is of this build; others get no events.
    pub(super) greeted: bool,
    orphan_since: Option<Instant>,
    orphan_timeout: Duration,
}

/// What a launch works with.
pub(super) struct Launching<'a> {
    pub(super) means: Means<'a>,
    pub(super) sessions: &'a mut Sessions,
    pub(super) egress: &'a mut Egress,
    pub(super) parking: &'a mut Parking,
    pub(super) blocks: &'a mut Blocks,
}

/// The warden ends.
#[derive(Debug)]
pub(super) struct Shutdown {
    since: Instant,
    pub(super) waiters: Vec<RequestId>,
}

/// What can be ready.
#[derive(Debug)]
enum Source {
    Signals,
    Listener,
    Api,
    Session(SessionId),
    Job(u64, Wait),
    EgressReport,
    EgressExit,
}

impl Server {
    pub(super) fn new(config: WardenConfig) -> Result<Self, SetupError> {
        let signals = SignalFd::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])
            .at("start-warden", || "signalfd(TERM, INT, HUP)")?;
        // Modes are given where they matter; the toolchain is for everybody to read.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        raise_open_files()?;
        // Before anything is opened that is mounted later: descriptors keep their namespace.
        let launcher = Launcher::new()?;
        let path = &config.state_dir;
        let root =
            openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .at("open-state-directory", || format!("open({})", path.display()))?;
        let state = StateDir::open(root, config.range)?;
        let cgroups = Cgroups::detect(&state.id()?)?;
        tidy::groups(&cgroups)?;
        tidy::unfinished_sessions(&state)?;
        state.refresh_toolchain()?;
        let blocks = Blocks::new(config.range, session_dir::blocks_in_use(&state)?);
        let mut server = Self {
            listener: Listener::new(&state)?,
            jobs: Jobs::new(Program::new(config.worker_image)?),
            egress: Egress::new(config.hangar, config.range.egress()),
            sessions: Sessions::default(),
            parking: Parking::new(),
            outbox: Outbox::default(),
            init_image: config.init_image,
            init_arguments: config.init_arguments,
            steps: config.steps,
            shutdown: None,
            api: None,
            greeted: false,
            orphan_since: Some(Instant::now()),
            orphan_timeout: config.orphan_timeout,
            state,
            cgroups,
            launcher,
            blocks,
            signals,
        };
        server.remove_left_overs()?;
        if let Some(ready) = config.ready {
            // Whoever started the warden can be gone; the orphan timeout takes care of that.
            let _ = rustix::io::write(&ready, b"R");
        }
        Ok(server)
    }

    /// Begins to remove what an earlier warden did not finish.
    fn remove_left_overs(&mut self) -> Result<(), SetupError> {
        let left = tidy::left_overs(&self.state)?;
        let (jobs, mut context) = self.jobs_and_context();
        for doomed in left.sessions {
            jobs.remove_doomed_session(&mut context, doomed);
        }
        for (environment, name) in left.trees {
            jobs.remove_doomed_tree(&mut context, environment, name);
        }
        Ok(())
    }

    pub(super) fn jobs_and_context(&mut self) -> (&mut Jobs, Context<'_>) {
        let context = Context {
            state: &self.state,
            cgroups: &self.cgroups,
            blocks: &mut self.blocks,
            outbox: &mut self.outbox,
        };
        (&mut self.jobs, context)
    }

    pub(super) fn launching(&mut self) -> Launching<'_> {
        Launching {
            means: Means {
                state: &self.state,
                cgroups: &self.cgroups,
                launcher: &self.launcher,
                init_image: self.init_image.as_fd(),
                init_arguments: &self.init_arguments,
                steps: self.steps,
            },
            sessions: &mut self.sessions,
            egress: &mut self.egress,
            parking: &mut self.parking,
            blocks: &mut self.blocks,
        }
    }

    pub(super) fn run(mut self) -> Result<(), SetupError> {
        loop {
            for source in self.wait()? {
                self.serve(source);
            }
            self.housekeeping();
            if self.is_over() {
                self.say_farewell();
                self.egress.stop();
                self.cgroups.remove_parents();
                return Ok(());
            }
        }
    }

    fn wait(&self) -> Result<Vec<Source>, SetupError> {
        let mut sources = vec![Source::Signals, Source::Listener];
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        if let Some(api) = &self.api {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !self.outbox.is_full());
            flags.set(PollFlags::OUT, self.greeted && !self.outbox.is_empty());
            sources.push(Source::Api);
            fds.push(PollFd::from_borrowed_fd(api.as_fd(), flags));
        }
        for (id, fd) in self.sessions.descriptors() {
            sources.push(Source::Session(id.clone()));
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for (key, fd, wait) in self.jobs.descriptors() {
            sources.push(Source::Job(key, wait));
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for (fd, source) in
            self.egress.descriptors().into_iter().flat_map(|[report, exit]| {
                [(report, Source::EgressReport), (exit, Source::EgressExit)]
            })
        {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        let timeout = self.timeout();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno).at("wait", || "poll()"),
        }
        let ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
        Ok(sources.into_iter().zip(ready).filter_map(|(s, ready)| ready.then_some(s)).collect())
    }

    /// Until the next thing that no descriptor tells; nothing when there is none.
    fn timeout(&self) -> Option<Timespec> {
        let orphaned = self.orphan_since.filter(|_| self.shutdown.is_none());
        let deadline = [
            self.sessions.next_deadline(),
            self.egress.next_deadline(),
            self.jobs.next_deadline(),
            self.parking.next_deadline().filter(|_| self.shutdown.is_none()),
            orphaned.and_then(|since| since.checked_add(self.orphan_timeout)),
            self.jobs.has_ending().then(|| Instant::now() + Duration::from_millis(1)),
            self.shutdown.as_ref().map(|shutdown| shutdown.since + SHUTDOWN_PATIENCE),
        ]
        .into_iter()
        .flatten()
        .min()?;
        // Rounded up, so that what is due is due when the wait is over.
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_micros(100);
        Timespec::try_from(left).ok()
    }

    fn serve(&mut self, source: Source) {
        match source {
            Source::Signals => self.read_signals(),
            Source::Listener => self.accept(),
            Source::Api => self.read_api(),
            Source::Session(id) => self.sessions.ready(&id),
            Source::Job(key, Wait::Socket) => self.jobs.read(key, &mut self.outbox),
            Source::Job(key, Wait::Exit) => self.jobs.exited(key, &mut self.outbox),
            Source::EgressReport => self.egress.read(&mut self.outbox),
            Source::EgressExit => self.egress.exited(),
        }
    }

    fn read_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.take() {
            // A terminal that goes away is no reason to end sessions.
            if signal != libc::SIGHUP {
                self.begin_shutdown(None);
            }
        }
    }

    /// Ends every session and then the warden; `waiter` is answered last.
    pub(super) fn begin_shutdown(&mut self, waiter: Option<RequestId>) {
        if self.shutdown.is_none() {
            self.sessions.stop_all(SessionEnd::Shutdown);
            if let Some(place) = self.parking.take() {
                self.discard(place);
            }
            self.jobs.shut_down();
        }
        let begun = || Shutdown { since: Instant::now(), waiters: Vec::new() };
        self.shutdown.get_or_insert_with(begun).waiters.extend(waiter);
    }

    /// Ends a child that no session is launched in, and frees its block.
    pub(super) fn discard(&mut self, place: Place) {
        let block = place.child.block();
        self.sessions.abandon(place);
        self.blocks.give_back(block);
    }

    fn accept(&mut self) {
        let Some(caller) = self.listener.accept() else { return };
        if self.api.as_ref().is_some_and(|api| !is_dead(api)) {
            log!("a second caller was turned away");
            return;
        }
        self.lose_api();
        self.orphan_since = None;
        self.api = Some(caller);
    }

    /// The connection ended, and with it what only it could use.
    fn lose_api(&mut self) {
        if self.api.take().is_some() {
            self.orphan_since = Some(Instant::now());
        }
        self.greeted = false;
        self.jobs.cancel_all();
        self.outbox.connection_ended();
    }

    fn read_api(&mut self) {
        let Some(api) = &self.api else { return };
        if self.outbox.is_full() {
            if is_dead(api) {
                self.lose_api();
            }
            return;
        }
        match wire::receive::<Call>(api) {
            Ok((call, fds)) => {
                let quiet = Parking::quiet_after(&call.request);
                self.answer(call, fds);
                self.parking.postpone(quiet);
            }
            Err(WireError::WouldBlock) => {}
            Err(error) => {
                if !matches!(error, WireError::Closed) {
                    log!("the API's connection is closed: {error}");
                }
                self.lose_api();
            }
        }
    }

    /// Sends past the events that wait, for the first answer of a connection.
    pub(super) fn send_first(&mut self, message: &wire::warden::Message) {
        if let Some(api) = &self.api
            && wire::send(api, message, &[]).is_err()
        {
            self.lose_api();
        }
    }

    fn housekeeping(&mut self) {
        for waiter in self.sessions.housekeeping(&mut self.outbox, &mut self.egress) {
            self.outbox.reply(waiter, Ok((Answer::Done, Vec::new())));
        }
        let (jobs, mut context) = self.jobs_and_context();
        jobs.finish_ended(&mut context);
        jobs.retry(&mut context);
        self.egress.housekeeping();
        let orphaned =
            self.orphan_since.is_some_and(|since| since.elapsed() >= self.orphan_timeout);
        if orphaned && self.shutdown.is_none() {
            log!("no API has been there for {:?}", self.orphan_timeout);
            self.begin_shutdown(None);
        }
        self.flush();
        if self.shutdown.is_none() {
            let Launching { means, parking, blocks, .. } = self.launching();
            parking.housekeeping(&means, blocks);
        }
    }

    fn flush(&mut self) {
        let Some(api) = self.api.as_ref().filter(|_| self.greeted) else { return };
        if let Err(error) = self.outbox.flush(api) {
            if !matches!(error, WireError::Closed) {
                log!("the API's connection is closed: {error}");
            }
            self.lose_api();
        }
    }

    fn is_over(&self) -> bool {
        self.shutdown.as_ref().is_some_and(|shutdown| {
            (self.sessions.is_empty() && self.jobs.is_empty())
                || shutdown.since.elapsed() >= SHUTDOWN_PATIENCE
        })
    }

    fn say_farewell(&mut self) {
        for waiter in self.shutdown.take().map(|s| s.waiters).unwrap_or_default() {
            self.outbox.reply(waiter, Ok((Answer::Done, Vec::new())));
        }
        let deadline = Instant::now() + FAREWELL_PATIENCE;
        while !self.outbox.is_empty() && self.greeted && Instant::now() < deadline {
            self.flush();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Each session costs the warden some descriptors; the limit is only raised to what is allowed.
fn raise_open_files() -> Result<(), SetupError> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .at("start-warden", || format!("setrlimit(NOFILE, {maximum:?})"))
}
