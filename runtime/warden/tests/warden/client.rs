//! A warden on a state directory of its own, and a caller as the API is one.

use hangar_runtime::ids::{
    BLOCK_SIZE, CommandId, DEFAULT_RANGE_BASE, EnvironmentId, Range, SessionId,
};
use hangar_runtime::plan::{Environment, Limits, Network, Plan, Profile};
use hangar_runtime::record::{Next, RecordReader, Stream};
use hangar_runtime::wire::warden::{
    Answer, BUILD_ID, Call, CommandEnd, Event, Exec, Job, JobEnd, JobId, Message, OutputLimit,
    Program, Refusal, Request, RequestId,
};
use hangar_runtime::wire::{self, WireError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static STARTED: AtomicU32 = AtomicU32::new(0);

/// A state directory, and the range of uids in it.
pub struct State {
    pub dir: tempfile::TempDir,
    pub range: Range,
}

impl State {
    pub fn new() -> Self {
        // Far from each other: tests run at once, in one process or each in its own.
        let number = (std::process::id() * 3 + STARTED.fetch_add(1, Ordering::Relaxed)) % 250 + 1;
        let range = Range { base: DEFAULT_RANGE_BASE + number * 16 * BLOCK_SIZE };
        let dir = tempfile::Builder::new().prefix("hangar-warden-").tempdir_in("/var/tmp").unwrap();
        Self { dir, range }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("state").join(name)
    }

    pub fn start(&self) -> Warden {
        self.start_with(&[])
    }

    pub fn start_with(&self, options: &[&str]) -> Warden {
        let (ready, ready_end) = rustix::pipe::pipe().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_hangar-warden"))
            .arg("--state-dir")
            .arg(self.dir.path().join("state"))
            .args(["--range-base", &self.range.base.to_string()])
            .args(["--ready-fd", &ready_end.as_raw_fd().to_string()])
            .args(options)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        drop(ready_end);
        let mut byte = [0];
        assert_eq!(rustix::io::read(&ready, &mut byte).unwrap(), 1, "the warden did not start");
        Warden { child, socket: self.path("run/warden.sock") }
    }

    /// The groups of sessions and workers that are there; that of the child that waits for the
    /// next session is none.
    pub fn groups(&self) -> Vec<PathBuf> {
        let all = self.all_groups();
        let waiting: Vec<_> = all
            .iter()
            .filter(|group| {
                let procs = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
                group.to_string_lossy().contains("/hsess-parked-") && procs.lines().any(is_parked)
            })
            .filter_map(|group| group.file_name())
            .collect();
        all.iter()
            .filter(|g| !g.file_name().is_some_and(|n| waiting.contains(&n)))
            .cloned()
            .collect()
    }

    /// Checks that no session and no worker has a group; one that is being parked takes a moment.
    pub fn expect_no_groups(&self) {
        for _ in 0..600 {
            if self.groups().is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("groups are left: {:?}", self.groups());
    }

    /// The groups of this state directory that are there, in all hierarchies.
    pub fn all_groups(&self) -> Vec<PathBuf> {
        use std::os::unix::fs::MetadataExt;
        let stat = std::fs::metadata(self.path("")).unwrap();
        let name = format!("{:x}-{:x}", stat.dev(), stat.ino());
        let mut found = Vec::new();
        find_groups(Path::new("/sys/fs/cgroup"), &name, &mut found);
        found
    }
}

fn find_groups(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())) {
        if entry.file_name() == name {
            found.extend(
                std::fs::read_dir(entry.path()).into_iter().flatten().flatten().filter_map(
                    |group| group.file_type().is_ok_and(|kind| kind.is_dir()).then(|| group.path()),
                ),
            );
        } else {
            find_groups(&entry.path(), name, found);
        }
    }
}

/// A running warden. It is ended when it is dropped, so that nothing of a test stays.
pub struct Warden {
    pub child: Child,
    socket: PathBuf,
}

impl Drop for Warden {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

impl Warden {
    pub fn connect_raw(&self) -> OwnedFd {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(&*self.socket).unwrap()).unwrap();
        socket
    }

    pub fn connect(&self) -> Api {
        let mut api = Api { socket: self.connect_raw(), next: 0, events: VecDeque::new() };
        match api.call(Request::Hello { build: BUILD_ID.into() }, &[]) {
            Ok((Answer::Hello { build }, _)) => assert_eq!(build, BUILD_ID),
            other => panic!("no greeting: {other:?}"),
        }
        api
    }
}

/// A connection of the API.
pub struct Api {
    pub socket: OwnedFd,
    next: u64,
    pub events: VecDeque<Event>,
}

impl Api {
    pub fn call(
        &mut self,
        request: Request,
        fds: &[&OwnedFd],
    ) -> Result<(Answer, Vec<OwnedFd>), Refusal> {
        self.next += 1;
        let id = RequestId(self.next);
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        wire::send(&self.socket, &Call { id, request }, &fds).unwrap();
        loop {
            match wire::receive::<Message>(&self.socket).unwrap() {
                (Message::Reply { id: other, result }, fds) => {
                    assert_eq!(other, id);
                    return result.map(|answer| (answer, fds));
                }
                (Message::Event(event), _) => self.events.push_back(event),
            }
        }
    }

    /// A call that has to be answered by `Done`.
    pub fn done(&mut self, request: Request) {
        match self.call(request, &[]) {
            Ok((Answer::Done, _)) => {}
            other => panic!("not done: {other:?}"),
        }
    }

    pub fn event(&mut self) -> Event {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        match wire::receive::<Message>(&self.socket).unwrap() {
            (Message::Event(event), _) => event,
            (Message::Reply { .. }, _) => panic!("a reply to nothing"),
        }
    }

    /// Whether the warden closed the connection.
    pub fn is_closed(&self) -> bool {
        matches!(wire::receive::<Message>(&self.socket), Err(WireError::Closed))
    }

    pub fn launch(&mut self, plan: &Plan) {
        match self.call(Request::Launch(Box::new(plan.clone())), &[]) {
            Ok((Answer::Launched(_), _)) => {}
            other => panic!("not launched: {other:?}"),
        }
    }

    pub fn start(&mut self, exec: Exec) -> Output {
        let command = exec.command;
        match self.call(Request::Exec(Box::new(exec)), &[]) {
            Ok((Answer::Started, fds)) => Output::new(command, fds),
            other => panic!("not started: {other:?}"),
        }
    }

    /// Runs a shell command to its end: its end, standard output and standard error.
    pub fn run(
        &mut self,
        session: &SessionId,
        number: u32,
        script: &str,
    ) -> (CommandEnd, String, String) {
        let output = self.start(shell(session, number, script));
        let end = self.command_end(number);
        let (stdout, stderr) = output.read_all();
        (end, stdout, stderr)
    }

    /// Waits for the end of a command; other events stay.
    pub fn command_end(&mut self, number: u32) -> CommandEnd {
        let mut others = VecDeque::new();
        let end = loop {
            match self.event() {
                Event::CommandEnded { command, end, .. } if command.0 == number => break end,
                other => others.push_back(other),
            }
        };
        others.append(&mut self.events);
        self.events = others;
        end
    }

    pub fn job(&mut self, number: u64, work: Job, options: &str, upload: &[&OwnedFd]) -> JobEnd {
        let options = options.as_bytes().to_vec();
        let request = Request::StartJob { job: JobId(number), work, options };
        match self.call(request, upload) {
            Ok((Answer::Done, _)) => {}
            other => panic!("no job: {other:?}"),
        }
        loop {
            if let Event::JobEnded { job, end } = self.event() {
                assert_eq!(job, JobId(number));
                return end;
            }
        }
    }
}

/// The descriptors of a command.
pub struct Output {
    pub command: CommandId,
    pub record: OwnedFd,
    pub grown: OwnedFd,
}

impl Output {
    pub fn new(command: CommandId, fds: Vec<OwnedFd>) -> Self {
        let [record, grown] = <[OwnedFd; 2]>::try_from(fds).unwrap();
        Self { command, record, grown }
    }

    /// Follows the record to its end.
    pub fn read_all(self) -> (String, String) {
        let mut reader = RecordReader::new(self.record);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match reader.next().unwrap() {
                Next::Frame(frame) if frame.stream == Stream::Stdout => stdout.extend(frame.bytes),
                Next::Frame(frame) => stderr.extend(frame.bytes),
                Next::Pending => {
                    let mut fds =
                        [rustix::event::PollFd::new(&self.grown, rustix::event::PollFlags::IN)];
                    rustix::event::poll(&mut fds, None).unwrap();
                    rustix::io::read(&self.grown, &mut [0; 8]).unwrap();
                }
                Next::End { lost, write_error, .. } => {
                    assert_eq!((lost, write_error), (0, None));
                    break;
                }
            }
        }
        (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }
}

pub fn session(number: u32) -> SessionId {
    SessionId::parse(&format!("hsess{number:032x}")).unwrap()
}

pub fn environment(number: u32) -> EnvironmentId {
    EnvironmentId::parse(&format!("henv_{number:032x}")).unwrap()
}

pub fn plan(number: u32) -> Plan {
    Plan {
        session: session(number),
        profile: Profile::Strict,
        environment: Environment::None,
        network: Network::None,
        limits: Limits { pids_max: 64, memory_bytes_max: 256 << 20, ..Limits::default() },
    }
}

pub fn exec(session: &SessionId, number: u32, arguments: &[&str]) -> Exec {
    Exec {
        session: session.clone(),
        command: CommandId(number),
        program: Program::Arguments(arguments.iter().map(|a| a.as_bytes().to_vec()).collect()),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec(), b"HOME=/home/agent".to_vec()],
        directory: b"/workspace".to_vec(),
        timeout_ms: None,
        output: OutputLimit { head_bytes_max: 64 << 20, tail_bytes_max: 0 },
    }
}

pub fn shell(session: &SessionId, number: u32, script: &str) -> Exec {
    exec(session, number, &["/bin/sh", "-c", script])
}

/// Waits until a condition holds that nothing announces.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("it never came true that {what}");
}

/// Processes of the host whose real uid lies in the range, but not in block 0.
pub fn processes_of(range: Range) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let inside = range.base + BLOCK_SIZE..range.base + 16 * BLOCK_SIZE;
        let is_mine = uid_of(&status).is_some_and(|uid| inside.contains(&uid));
        if is_mine && !waits_for_a_plan(&status) {
            found.push(status.lines().next().unwrap_or("").to_owned());
        }
    }
    found
}

/// Whether a process waits for the next session.
fn is_parked(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    waits_for_a_plan(&status)
}

/// The first process of its pid namespace, which no filter holds yet.
fn waits_for_a_plan(status: &str) -> bool {
    let has = |field: &str, end: &str| {
        status.lines().any(|line| line.starts_with(field) && line.ends_with(end))
    };
    has("NSpid:", "\t1") && has("Seccomp:", "\t0")
}

/// The real uid in a `/proc/<pid>/status`.
fn uid_of(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:\t")?.split('\t').next()?.parse().ok())
}
