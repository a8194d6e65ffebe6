//! Sessions and commands through the warden's socket.

use crate::client::{Api, Output, State, eventually, exec, plan, processes_of, session, shell};
use hangar_runtime::ids::CommandId;
use hangar_runtime::plan::{Environment, Limits, Network, Plan};
use hangar_runtime::wire::warden::{
    Answer, CommandEnd, EndCause, Event, ExitStatus, Job, JobEnd, RefusalCode, Request, SessionEnd,
};
use std::os::unix::fs::MetadataExt;

fn code(api: &mut Api, request: Request) -> RefusalCode {
    match api.call(request, &[]) {
        Err(refusal) => refusal.code,
        Ok((answer, _)) => panic!("carried out: {answer:?}"),
    }
}

#[test]
fn a_session_runs_a_command_and_leaves_nothing() {
    let state = State::new();
    let mut warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    let output = api.start(exec(&id, 1, &["/bin/echo", "hi"]));
    let end = api.command_end(1);
    let own =
        CommandEnd { status: ExitStatus::Code(0), cause: EndCause::Own, pids_limit_hit: false };
    assert_eq!(end, own);
    assert_eq!(output.read_all(), ("hi\n".to_owned(), String::new()));

    let (_, stdout, _) = api.run(&id, 2, "id -u; pwd; echo kept > file; cat /proc/self/cgroup");
    assert!(stdout.starts_with("1000\n/workspace\n"), "{stdout}");
    assert!(!stdout.contains("hangar"), "the host's cgroups show: {stdout}");
    let block = state.range.base + 65_536;
    let file = std::fs::metadata(state.path(&format!("sessions/{id}/workdir/file"))).unwrap();
    assert_eq!(file.uid(), block + 1000);
    assert!(!state.groups().is_empty());

    api.done(Request::Stop { session: id.clone() });
    let Event::SessionEnded { reason, .. } = api.event() else { panic!("another event") };
    assert_eq!(reason, SessionEnd::Stopped);
    state.expect_no_groups();
    assert_eq!(processes_of(state.range), Vec::<String>::new());
    let (answer, _) = api.call(Request::Sessions, &[]).unwrap();
    assert!(matches!(answer, Answer::Sessions(list) if list.is_empty()));

    // The directories stay and are used again, with the same block.
    api.launch(&plan(1));
    assert_eq!(api.run(&id, 3, "cat file").1, "kept\n");
    api.done(Request::Stop { session: id.clone() });
    let end = api.job(1, Job::RemoveSession { session: id.clone() }, "{}", &[]);
    assert!(matches!(end, JobEnd::Done(_)), "{end:?}");
    assert_eq!(std::fs::read_dir(state.path("sessions")).unwrap().count(), 0);

    api.done(Request::Shutdown);
    assert!(warden.child.wait().unwrap().success());
    assert_eq!(state.all_groups(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn sessions_start_from_a_parked_child_and_without_one() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let parked = || {
        state.all_groups().iter().any(|group| group.to_string_lossy().contains("/hsess-parked-"))
    };
    eventually("a child is parked", parked);
    let named = |name: &str| state.groups().iter().any(|group| group.ends_with(name));
    let id = session(1);
    // A stored session has ids of its own already, so the parked child is not for it.
    for (command, group) in [(1, "hsess-parked-1"), (2, id.as_str())] {
        api.launch(&plan(1));
        let (end, stdout, _) = api.run(&id, command, "ulimit -n; id -u");
        assert_eq!((end.status, stdout.as_str()), (ExitStatus::Code(0), "16384\n1000\n"));
        assert!(named(group), "{group} of {:?}", state.groups());
        api.done(Request::Stop { session: id.clone() });
        state.expect_no_groups();
    }
}

#[test]
fn causes_of_an_end_are_told_apart() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    let limits = Limits { pids_max: 24, memory_bytes_max: 64 << 20, ..plan(1).limits };
    api.launch(&Plan { limits, ..plan(1) });

    let mut overdue = shell(&id, 1, "sleep 100 & sleep 100");
    overdue.timeout_ms = Some(150);
    api.start(overdue);
    assert_eq!(api.command_end(1).cause, EndCause::Timeout);

    api.start(shell(&id, 2, "trap '' TERM; sleep 100 & while :; do sleep 1; done"));
    api.done(Request::Signal { session: id.clone(), command: CommandId(2), signal: 9 });
    let end = api.command_end(2);
    assert_eq!((end.cause, end.status), (EndCause::Cancelled, ExitStatus::Signal(9)));

    let (end, ..) = api.run(&id, 3, "python3 -c 'b = bytearray(300 << 20)'");
    assert_eq!(end.cause, EndCause::OutOfMemory, "{end:?}");

    let forks = "for i in $(seq 40); do sleep 1 & done";
    let (end, stdout, stderr) = api.run(&id, 4, forks);
    assert!(end.pids_limit_hit, "{end:?} {stdout} {stderr}");
    assert_eq!(end.cause, EndCause::Own);

    let (end, ..) = api.run(&id, 5, "exit 3");
    let own =
        CommandEnd { status: ExitStatus::Code(3), cause: EndCause::Own, pids_limit_hit: false };
    assert_eq!(end, own);
    api.start(exec(&id, 6, &["/no/such/program"]));
    assert_eq!(api.command_end(6).status, ExitStatus::NotExecuted(2));

    api.start(shell(&id, 7, "echo begun; sleep 100"));
    api.done(Request::Stop { session: id.clone() });
    let end = api.command_end(7);
    assert_eq!((end.cause, end.status), (EndCause::SessionEnded, ExitStatus::Signal(9)));
    assert_eq!(processes_of(state.range), Vec::<String>::new());
}

#[test]
fn processes_that_a_command_leaves_are_killed() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    let script = "setsid sleep 1000 >/dev/null 2>&1 & python3 -c '
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp(\"sleep\", [\"sleep\", \"1000\"])
'";
    let (end, ..) = api.run(&id, 1, script);
    assert_eq!(end.status, ExitStatus::Code(0));
    let left = processes_of(state.range);
    assert_eq!(left.len(), 1, "init alone is left: {left:?}");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    let launch = |plan: Plan| Request::Launch(Box::new(plan));
    let run = |number| Request::Exec(Box::new(shell(&id, number, "true")));
    assert_eq!(code(&mut api, run(1)), RefusalCode::NotFound);
    let tiny = Limits { pids_max: 1, ..plan(1).limits };
    assert_eq!(code(&mut api, launch(Plan { limits: tiny, ..plan(1) })), RefusalCode::Invalid);
    let egress = Plan { network: Network::Egress, ..plan(1) };
    if !std::path::Path::new(env!("CARGO_BIN_EXE_hangar-warden")).with_file_name("hangar").exists()
    {
        assert_eq!(code(&mut api, launch(egress)), RefusalCode::Unsupported);
    }
    let version = Environment::Version {
        id: crate::client::environment(1),
        version: hangar_runtime::ids::VersionNumber::new(1).unwrap(),
        slug: hangar_runtime::ids::Slug::parse("a").unwrap(),
    };
    let missing = Plan { environment: version, ..plan(2) };
    assert_eq!(code(&mut api, launch(missing)), RefusalCode::NotFound);

    api.launch(&plan(1));
    assert_eq!(code(&mut api, launch(plan(1))), RefusalCode::Exists);
    api.run(&id, 1, "true");
    assert_eq!(code(&mut api, run(1)), RefusalCode::Exists, "a number is used once");
    let mut relative = shell(&id, 2, "true");
    relative.directory = b"workspace".to_vec();
    assert_eq!(code(&mut api, Request::Exec(Box::new(relative))), RefusalCode::Invalid);
    let signal = |command, signal| Request::Signal { session: id.clone(), command, signal };
    assert_eq!(code(&mut api, signal(CommandId(1), 15)), RefusalCode::NotFound);
    assert_eq!(code(&mut api, signal(CommandId(1), 99)), RefusalCode::Invalid);
    let remove = Request::StartJob {
        job: hangar_runtime::wire::warden::JobId(1),
        work: Job::RemoveSession { session: id.clone() },
        options: b"{}".to_vec(),
    };
    assert_eq!(code(&mut api, remove), RefusalCode::Busy, "the session runs");
    assert_eq!(code(&mut api, Request::Stop { session: session(9) }), RefusalCode::NotFound);
    assert_eq!(api.run(&id, 2, "echo fine").1, "fine\n");
}

#[test]
fn many_commands_run_at_once_and_standard_input_is_passed() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    let outputs: Vec<Output> = (1..=20)
        .map(|number| api.start(shell(&id, number, &format!("sleep 0.2; echo {number}"))))
        .collect();
    for output in outputs {
        let number = output.command.0;
        assert_eq!(output.read_all().0, format!("{number}\n"));
        assert_eq!(api.command_end(number).status, ExitStatus::Code(0));
    }
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&write, b"from outside").unwrap();
    drop(write);
    let request = Request::Exec(Box::new(exec(&id, 30, &["/bin/cat"])));
    let Ok((Answer::Started, fds)) = api.call(request, &[&read]) else { panic!("not started") };
    assert_eq!(Output::new(CommandId(30), fds).read_all().0, "from outside");
}

#[test]
fn the_api_sees_the_working_directory_as_its_own_and_cannot_write_it() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    api.run(&id, 1, "echo text > file; chmod 600 file");
    let Ok((Answer::View, fds)) = api.call(Request::ViewWorkspace { session: id.clone() }, &[])
    else {
        panic!("no view")
    };
    use rustix::fs::{Mode, OFlags, openat};
    let file = openat(&fds[0], "file", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_uid, state.range.api());
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let written = openat(&fds[0], "new", flags, Mode::from_raw_mode(0o600)).unwrap_err();
    assert_eq!(written, rustix::io::Errno::ROFS);
    api.done(Request::Stop { session: id.clone() });
    assert!(api.call(Request::ViewWorkspace { session: id }, &[]).is_ok(), "also when stopped");
}

#[test]
fn a_new_api_gets_what_happened_and_its_commands_back() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    api.start(shell(&id, 1, "sleep 0.3; echo one; exit 7"));
    api.start(shell(&id, 2, "while [ ! -e go ]; do sleep 0.05; done; echo two"));
    drop(api);

    let log = state.path(&format!("sessions/{id}/commands/1"));
    eventually("the record has its end", || std::fs::read(&log).is_ok_and(|b| b.len() > 4096));
    let mut api = warden.connect();
    assert_eq!(api.command_end(1).status, ExitStatus::Code(7));
    let Ok((Answer::Sessions(list), _)) = api.call(Request::Sessions, &[]) else { panic!() };
    assert_eq!(list[0].commands, [CommandId(2)]);
    assert_eq!(list[0].ended[0].0, CommandId(1));
    let attach = |api: &mut Api, number| {
        let request = Request::Attach { session: id.clone(), command: CommandId(number) };
        let Ok((Answer::Started, fds)) = api.call(request, &[]) else { panic!("not attached") };
        Output::new(CommandId(number), fds)
    };
    assert_eq!(attach(&mut api, 1).read_all().0, "one\n");
    let two = attach(&mut api, 2);
    api.run(&id, 3, "touch go");
    assert_eq!(two.read_all().0, "two\n");
    assert_eq!(api.command_end(2).status, ExitStatus::Code(0));
}

#[test]
fn callers_that_are_no_api_of_this_build_get_nothing() {
    let state = State::new();
    let warden = state.start();
    {
        let raw = warden.connect_raw();
        rustix::net::send(&raw, &[0xff; 100], rustix::net::SendFlags::empty()).unwrap();
        let answer = hangar_runtime::wire::receive::<hangar_runtime::wire::warden::Message>(&raw);
        assert!(answer.is_err(), "what does not decode ends the connection");
    }
    let mut api = warden.connect();
    let Ok((Answer::Hello { .. }, _)) = api.call(Request::Hello { build: "other".into() }, &[])
    else {
        panic!("no greeting")
    };
    assert_eq!(code(&mut api, Request::Sessions), RefusalCode::OtherBuild);
    let second = warden.connect_raw();
    let answer = hangar_runtime::wire::receive::<hangar_runtime::wire::warden::Message>(&second);
    assert!(answer.is_err(), "one caller at a time");
    drop(api);
    let mut api = warden.connect();
    api.launch(&plan(1));
}
