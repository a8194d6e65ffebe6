//! Carrying a spec out.

use hangar_peel::spec::{Command, CommandOutcome, Outcome, Spec};
use hangar_runtime::cgroup::{Cgroups, SessionCgroup};
use hangar_runtime::error::SetupError;
use hangar_runtime::ids::{Block, CommandId, EnvironmentId, Range, SessionId, Slug, VersionNumber};
use hangar_runtime::launch::{
    Launched, Launcher, Preparation, Request, SharedTrees, Trees, toolchain,
};
use hangar_runtime::plan::{Environment, Limits, Network, Plan, Profile};
use hangar_runtime::record::{Next, RecordReader, Stream};
use hangar_runtime::steps::LAUNCH;
use hangar_runtime::wire;
use hangar_runtime::wire::init::{Order, Report, Start};
use hangar_runtime::wire::warden::{ExitStatus, OutputLimit, Program};
use rustix::fs::{Gid, MemfdFlags, Mode, OFlags, Uid, chown, fchmod, memfd_create, open};
use std::fs::File;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The block of the first session where none is named; those of real wardens start at 1.
const FIRST_BLOCK: u16 = 3000;

struct Live {
    launched: Option<Launched>,
    cgroup: SessionCgroup,
    block: Block,
    commands: u32,
}

struct Bench<'a> {
    spec: &'a Spec,
    launcher: Launcher,
    cgroups: Cgroups,
    image: OwnedFd,
    etc: PathBuf,
    live: Vec<Live>,
}

/// Launches the sessions, runs the commands, takes everything down and looks for left-overs.
pub fn run(spec: &Spec) -> Result<Outcome, SetupError> {
    let mut launcher = Launcher::new()?;
    if let Some(abi) = spec.landlock_abi {
        launcher.pretend_landlock_abi(abi);
    }
    let _inherited = spec.inherited.as_ref().map(|path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        open(path, flags, Mode::empty()).expect("a directory of the host")
    });
    let name = format!("peel-{}", std::process::id());
    let cgroups = Cgroups::detect(&name)?;
    let etc = spec.directory.join("etc");
    std::fs::create_dir_all(&etc).expect("the directory is writable");
    toolchain::write_etc(directory(&etc).as_fd())?;
    let mut bench = Bench { spec, launcher, cgroups, image: own_image(), etc, live: Vec::new() };
    let outcome = bench.carry_out();
    let left = bench.take_down();
    outcome.map(|outcome| Outcome { left, ..outcome })
}

/// This program as the image of init, sealed as the warden seals its own.
fn own_image() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let image = memfd_create("hangar-peel", flags).expect("memfd");
    let bytes = std::fs::read("/proc/self/exe").expect("own program");
    std::io::Write::write_all(&mut File::from(image.try_clone().expect("dup")), &bytes)
        .expect("memory");
    fchmod(&image, Mode::from(0o755)).expect("own file");
    image
}

fn directory(path: &Path) -> OwnedFd {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .unwrap_or_else(|errno| panic!("open({}): {errno}", path.display()))
}

impl Bench<'_> {
    fn carry_out(&mut self) -> Result<Outcome, SetupError> {
        let mut outcome = Outcome::default();
        for index in 0..self.spec.sessions.len() {
            self.launch(index)?;
            let live = &self.live[index];
            let launched = live.launched.as_ref().expect("just launched");
            outcome.proofs.push(launched.proof.clone());
            outcome.inits.push(launched.pid);
            outcome.blocks.push(live.block.base);
        }
        let mut records = Vec::new();
        for command in &self.spec.commands {
            records.push(self.execute(command)?);
        }
        for (command, (end, record)) in self.spec.commands.iter().zip(&mut records) {
            if command.awaited {
                *end = wait_for_record(record);
            }
        }
        outcome.commands = records
            .into_iter()
            .map(|(end, record)| {
                let (stdout, stderr) = read_record(&record);
                CommandOutcome { end, stdout, stderr }
            })
            .collect();
        Ok(outcome)
    }

    fn launch(&mut self, index: usize) -> Result<(), SetupError> {
        let wanted = &self.spec.sessions[index];
        let range = Range::default();
        let first = self.spec.first_block.unwrap_or(FIRST_BLOCK);
        let number = first + u16::try_from(index).expect("few sessions");
        let block = range.block(NonZeroU16::new(number).expect("not 0"));
        let session = SessionId::parse(&format!("hsess{index:032x}")).expect("an id");
        let limits = Limits {
            pids_max: wanted.pids_max.unwrap_or(256),
            memory_bytes_max: wanted.memory_bytes_max.unwrap_or(512 << 20),
            ..Limits::default()
        };
        let plan = Plan {
            session,
            profile: if wanted.staging { Profile::Build } else { Profile::Strict },
            environment: environment(wanted.environment.is_some(), wanted.staging),
            network: match wanted.network.as_deref() {
                Some("none") => Network::None,
                Some("egress") => Network::Egress,
                None | Some("loopback") => Network::Loopback,
                Some(other) => panic!("no network is named {other}"),
            },
            limits,
        };
        let home = self.spec.directory.join(format!("session-{index}"));
        let own = |name: &str| {
            let path = home.join(name);
            std::fs::create_dir_all(&path).expect("the directory is writable");
            let (uid, gid) = (Uid::from_raw(block.agent()), Gid::from_raw(block.agent()));
            chown(&path, Some(uid), Some(gid)).expect("root");
            directory(&path)
        };
        let packs = self.spec.directory.join("packs");
        std::fs::create_dir_all(&packs).expect("the directory is writable");
        let trees = Trees {
            workspace: own("workdir"),
            home: own("home"),
            environment: wanted.environment.as_deref().map(directory),
            source: wanted.staging.then(|| own("source")),
            dependencies: None,
        };
        let cgroup = self.cgroups.create_session(&plan.session, &plan.limits, block.base)?;
        self.live.push(Live { launched: None, cgroup, block, commands: 0 });
        let cgroup = &self.live[index].cgroup;
        let steps: Vec<_> = LAUNCH
            .iter()
            .filter(|step| !self.spec.without.iter().any(|name| name == step.name))
            .copied()
            .collect();
        let lie = self.spec.lie.iter().map(|field| format!("lie={field}"));
        let init_arguments: Vec<String> = self.spec.without.iter().cloned().chain(lie).collect();
        let (etc, packs) = (directory(&self.etc), directory(&packs));
        let prepared = self.launcher.prepare(Preparation {
            range,
            block,
            placement: cgroup.placement(),
            trees: SharedTrees { toolchain_etc: etc.as_fd(), packs: packs.as_fd() },
            init_image: self.image.as_fd(),
            init_arguments: &init_arguments,
            steps: &steps,
        })?;
        let request = Request { plan: &plan, trees, prepared, steps: &steps };
        let launched = self.launcher.launch(request)?;
        self.live[index].launched = Some(launched);
        Ok(())
    }

    fn execute(&mut self, command: &Command) -> Result<(String, PathBuf), SetupError> {
        let live = &mut self.live[command.session];
        live.commands += 1;
        let id = CommandId(live.commands);
        let path = self.spec.directory.join(format!("record-{}-{}", command.session, id.0));
        let record = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("the directory is writable");
        let grown = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("fds");
        let leaf = live.cgroup.command_leaf(id)?;
        let bytes = |text: &str| text.as_bytes().to_vec();
        let start = Start {
            command: id,
            program: Program::Arguments(command.arguments.iter().map(|a| bytes(a)).collect()),
            environment: vec![
                bytes("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin"),
                bytes("HOME=/home/agent"),
                bytes("LANG=C.UTF-8"),
                bytes("PROBE_ENV=/env/probe"),
            ],
            directory: bytes(command.directory.as_deref().unwrap_or("/workspace")),
            output: OutputLimit { head_bytes_max: 8 << 20, tail_bytes_max: 0 },
            stdin: false,
        };
        let control = &live.launched.as_ref().expect("launched").control;
        let fds = [record.as_fd(), grown.as_fd(), leaf.as_fd()];
        wire::send(control, &Order::Start(Box::new(start)), &fds)
            .map_err(|error| SetupError::other("exec", "sendmsg(init)", error))?;
        let goes_on = command.background || command.awaited;
        let end = if goes_on { wait_for_line(&path) } else { wait_for_end(control, id) };
        Ok((end, path))
    }

    /// Ends every session; what is left afterwards is a finding.
    fn take_down(self) -> Vec<String> {
        let mut left = Vec::new();
        for (index, live) in self.live.into_iter().enumerate() {
            drop(live.launched);
            let deadline = Instant::now() + Duration::from_secs(5);
            loop {
                let gone = live.cgroup.kill_all().and_then(|()| live.cgroup.try_remove());
                match gone {
                    Ok(true) => break,
                    Ok(false) if Instant::now() < deadline => {
                        // Children of this process stay in their groups until they are reaped.
                        let _ = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    Ok(false) => {
                        left.push(format!("the cgroup of session {index} is not empty"));
                        break;
                    }
                    Err(error) => {
                        left.push(error.to_string());
                        break;
                    }
                }
            }
        }
        self.cgroups.remove_parents();
        left
    }
}

fn environment(present: bool, staging: bool) -> Environment {
    let id = EnvironmentId::parse(&format!("henv_{:032x}", 1)).expect("an id");
    let slug = Slug::parse("probe").expect("a slug");
    match (present, staging) {
        (false, _) => Environment::None,
        (true, false) => {
            Environment::Version { id, version: VersionNumber::new(1).expect("not 0"), slug }
        }
        (true, true) => Environment::Staging { id, slug, dependencies: None },
    }
}

fn wait_for_end(control: &OwnedFd, command: CommandId) -> String {
    loop {
        match wire::receive::<Report>(control) {
            Ok((Report::Ended { command: ended, status }, _)) if ended == command => {
                return in_words(status);
            }
            // The end of a command in the background.
            Ok(_) => {}
            Err(error) => return format!("init is gone: {error}"),
        }
    }
}

fn in_words(status: ExitStatus) -> String {
    match status {
        ExitStatus::Code(code) => format!("code {code}"),
        ExitStatus::Signal(signal) => format!("signal {signal}"),
        ExitStatus::NotExecuted(errno) => format!("not-executed {errno}"),
    }
}

/// Waits for the end of a command whose record says when it has ended.
fn wait_for_record(path: &Path) -> String {
    let mut reader = RecordReader::new(File::open(path).expect("the record is there"));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match reader.next().expect("the record is whole") {
            Next::End { status, .. } => return in_words(status),
            Next::Pending if Instant::now() > deadline => return "it did not end in 60 s".into(),
            Next::Pending => std::thread::sleep(Duration::from_millis(5)),
            Next::Frame(_) => {}
        }
    }
}

/// Waits until a command in the background has printed something.
fn wait_for_line(path: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (stdout, stderr) = read_record(path);
        if stdout.contains('\n') {
            return "killed".into();
        }
        if Instant::now() > deadline {
            return format!("it printed no line in 20 s; on standard error: {stderr}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read_record(path: &Path) -> (String, String) {
    let mut reader = RecordReader::new(File::open(path).expect("the record is there"));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Next::Frame(frame) = reader.next().expect("the record is whole") {
        match frame.stream {
            Stream::Stdout => stdout.extend(frame.bytes),
            Stream::Stderr => stderr.extend(frame.bytes),
        }
    }
    (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
}
