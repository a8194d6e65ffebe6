//! Jobs of the worker through the warden's socket: from a source to a version and back to nothing.

use crate::client::{Api, State, environment, exec, plan};
use hangar_runtime::ids::{DependencyKey, EnvironmentId, SessionId, Slug, VersionNumber};
use hangar_runtime::plan::{Environment, Plan, Profile};
use hangar_runtime::wire::warden::{
    Answer, Exec, ExitStatus, Job, JobEnd, JobId, Program, RefusalCode, Request,
};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn version(number: u32) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

fn slug() -> Slug {
    Slug::parse("project").unwrap()
}

/// Makes a source as the API would.
fn make_source(state: &State, id: &EnvironmentId) {
    let path = state.path(&format!("api/sources/{id}"));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("main.py"), "print('main')\n").unwrap();
    std::fs::write(path.join("run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    std::fs::set_permissions(path.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    let api = state.range.api();
    for entry in
        [state.path("api/sources"), path.clone(), path.join("main.py"), path.join("run.sh")]
    {
        std::os::unix::fs::chown(entry, Some(api), Some(api)).unwrap();
    }
}

/// Builds a version in a session: a copy of the source and one file more.
fn build(api: &mut Api, id: &EnvironmentId, number: u32) -> SessionId {
    let build = Plan {
        profile: Profile::Build,
        environment: Environment::Staging { id: id.clone(), slug: slug(), dependencies: None },
        ..plan(100 + number)
    };
    let session = build.session.clone();
    api.launch(&build);
    let copy = Exec {
        program: Program::CopyTree {
            from: b"/run/hangar/source".to_vec(),
            to: b"/env/project".to_vec(),
            skip: vec![b".git".to_vec()],
        },
        ..exec(&session, 1, &["unused"])
    };
    api.start(copy);
    assert_eq!(api.command_end(1).status, ExitStatus::Code(0));
    let (end, _, stderr) =
        api.run(&session, 2, "mkdir -p /env/project/.venv && echo built > /env/project/.venv/x");
    assert_eq!(end.status, ExitStatus::Code(0), "{stderr}");
    session
}

#[test]
fn a_version_is_built_frozen_used_and_removed() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = environment(1);
    make_source(&state, &id);
    let session = build(&mut api, &id, 1);

    let freeze =
        Job::Freeze { environment: id.clone(), version: version(1), session: session.clone() };
    let request =
        Request::StartJob { job: JobId(1), work: freeze.clone(), options: b"{}".to_vec() };
    assert_eq!(api.call(request, &[]).unwrap_err().code, RefusalCode::Busy, "the build runs");
    let key = DependencyKey::parse(&"a".repeat(64)).unwrap();
    let dependencies = Job::FreezeDependencies {
        environment: id.clone(),
        key: key.clone(),
        session: session.clone(),
    };
    let end = api.job(2, dependencies, r#"{"entries": [".venv"]}"#, &[]);
    assert!(matches!(end, JobEnd::Done(_)), "{end:?}");
    let frozen = state.path(&format!("versions/{id}/dependencies-{key}/tree/.venv/x"));
    assert_eq!(std::fs::read_to_string(&frozen).unwrap(), "built\n");
    assert!(api.run(&session, 3, "echo more").1.contains("more"), "the build goes on");

    api.done(Request::Stop { session: session.clone() });
    let end = api.job(3, freeze, &format!(r#"{{"references": ["dependencies-{key}/tree"]}}"#), &[]);
    assert!(matches!(end, JobEnd::Done(_)), "{end:?}");
    let file = std::fs::metadata(state.path(&format!("versions/{id}/1/tree/main.py"))).unwrap();
    assert_eq!((file.uid(), file.mode() & 0o022), (state.range.store(), 0));
    let linked = std::fs::metadata(state.path(&format!("versions/{id}/1/tree/.venv/x"))).unwrap();
    assert_eq!(linked.ino(), std::fs::metadata(&frozen).unwrap().ino(), "linked, not copied");

    // Without its record the version is not there yet; with it, it never changes.
    let strict = Plan {
        environment: Environment::Version { id: id.clone(), version: version(1), slug: slug() },
        ..plan(1)
    };
    let launch = Request::Launch(Box::new(strict.clone()));
    assert_eq!(api.call(launch, &[]).unwrap_err().code, RefusalCode::NotFound);
    let write = |record: &[u8]| Request::WriteRecord {
        environment: id.clone(),
        version: version(1),
        record: record.to_vec(),
    };
    api.done(write(b"record"));
    assert_eq!(api.call(write(b"again"), &[]).unwrap_err().code, RefusalCode::Exists);
    let read = Request::ReadRecord { environment: id.clone(), version: version(1) };
    assert!(matches!(api.call(read, &[]), Ok((Answer::Record(r), _)) if r == b"record"));

    api.launch(&strict);
    let (_, stdout, _) = api.run(
        &strict.session,
        1,
        "python3 /env/project/main.py; /env/project/run.sh; echo x > /env/project/main.py",
    );
    assert_eq!(stdout, "main\nran\n");
    let verify = Job::Verify { environment: id.clone(), version: version(1) };
    let JobEnd::Done(outcome) = api.job(4, verify, "{}", &[]) else { panic!("not verified") };
    let outcome: serde_json::Value = serde_json::from_slice(&outcome).unwrap();
    assert_eq!(outcome["mismatch_count"], 0);

    let remove = Job::RemoveVersion { environment: id.clone(), version: version(1) };
    let request =
        Request::StartJob { job: JobId(5), work: remove.clone(), options: b"{}".to_vec() };
    assert_eq!(api.call(request, &[]).unwrap_err().code, RefusalCode::Busy, "a session reads it");
    api.done(Request::Stop { session: strict.session.clone() });
    assert!(matches!(api.job(6, remove, "{}", &[]), JobEnd::Done(_)));
    assert!(!state.path(&format!("versions/{id}/1")).exists());
    let remove = Job::RemoveDependencies { environment: id.clone(), key: key.clone() };
    assert!(matches!(api.job(10, remove.clone(), "{}", &[]), JobEnd::Done(_)));
    assert!(!state.path(&format!("versions/{id}/dependencies-{key}")).exists());
    let request = Request::StartJob { job: JobId(11), work: remove, options: b"{}".to_vec() };
    assert_eq!(api.call(request, &[]).unwrap_err().code, RefusalCode::NotFound);
    let remove = Job::RemoveEnvironment { environment: id.clone() };
    let end = api.job(7, remove, "{}", &[]);
    assert!(matches!(end, JobEnd::Done(_)), "{end:?}");
    assert_eq!(std::fs::read_dir(state.path("versions")).unwrap().count(), 0);
    for (job, session) in [(8, session), (9, strict.session)] {
        let end = api.job(job, Job::RemoveSession { session }, "{}", &[]);
        assert!(matches!(end, JobEnd::Done(_)), "{end:?}");
    }
    assert_eq!(std::fs::read_dir(state.path("sessions")).unwrap().count(), 0);
    state.expect_no_groups();
}

#[test]
fn an_upload_is_unpacked_for_the_api() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = environment(1);
    let target = state.path(&format!("api/sources/{id}.import"));
    std::fs::create_dir_all(&target).unwrap();
    let uid = state.range.api();
    std::os::unix::fs::chown(&target, Some(uid), Some(uid)).unwrap();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(dir.path().join("project")).unwrap();
    std::fs::write(dir.path().join("project/a"), "text").unwrap();
    let tar = dir.path().join("upload.tar");
    let made = std::process::Command::new("tar")
        .args(["-C"])
        .arg(dir.path())
        .arg("-cf")
        .arg(&tar)
        .arg("project")
        .status()
        .unwrap();
    assert!(made.success());
    let upload = std::fs::File::open(&tar).unwrap().into();
    let end = api.job(1, Job::Import { environment: id.clone() }, "{}", &[&upload]);
    assert!(matches!(end, JobEnd::Done(_)), "{end:?}");
    let file = std::fs::metadata(target.join("a")).unwrap();
    assert_eq!((file.uid(), file.len()), (uid, 4));
    let bytes = std::fs::File::open("/dev/null").unwrap().into();
    let end = api.job(2, Job::Import { environment: id.clone() }, "{}", &[&bytes]);
    assert!(matches!(end, JobEnd::Refused(_)), "{end:?}");
    let end = api.job(3, Job::Import { environment: id.clone() }, "no options", &[&bytes]);
    assert!(matches!(end, JobEnd::Refused(_)), "{end:?}");
    let missing = Request::StartJob {
        job: JobId(4),
        work: Job::Import { environment: environment(2) },
        options: b"{}".to_vec(),
    };
    assert_eq!(api.call(missing, &[&bytes]).unwrap_err().code, RefusalCode::NotFound);
    state.expect_no_groups();
}

#[test]
fn a_job_that_is_cancelled_leaves_nothing() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = environment(1);
    make_source(&state, &id);
    let session = build(&mut api, &id, 1);
    let fill = "cd /env/project; for i in $(seq 2000); do echo $i > f$i; done";
    assert_eq!(api.run(&session, 3, fill).0.status, ExitStatus::Code(0));
    api.done(Request::Stop { session: session.clone() });
    let work = Job::Freeze { environment: id.clone(), version: version(1), session };
    api.done(Request::StartJob { job: JobId(1), work, options: b"{}".to_vec() });
    api.done(Request::CancelJob { job: JobId(1) });
    let end = loop {
        if let hangar_runtime::wire::warden::Event::JobEnded { end, .. } = api.event() {
            break end;
        }
    };
    assert_eq!(end, JobEnd::Cancelled);
    crate::client::eventually("the half-frozen tree is gone", || {
        std::fs::read_dir(state.path(&format!("versions/{id}"))).unwrap().count() == 0
    });
    state.expect_no_groups();
}

#[test]
fn the_api_cannot_lead_the_warden_elsewhere() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(elsewhere.path().join("secret"), "secret").unwrap();
    std::fs::create_dir_all(state.path("api/sources")).unwrap();
    let id = environment(1);
    for name in [format!("{id}"), format!("{id}.import")] {
        std::os::unix::fs::symlink(elsewhere.path(), state.path("api/sources").join(name)).unwrap();
    }
    let build = Plan {
        profile: Profile::Build,
        environment: Environment::Staging { id: id.clone(), slug: slug(), dependencies: None },
        ..plan(1)
    };
    let refused = api.call(Request::Launch(Box::new(build)), &[]).unwrap_err();
    assert!(refused.message.contains("NO_SYMLINKS"), "{refused}");
    let upload = std::fs::File::open("/dev/null").unwrap().into();
    let import = Request::StartJob {
        job: JobId(1),
        work: Job::Import { environment: id },
        options: b"{}".to_vec(),
    };
    let refused = api.call(import, &[&upload]).unwrap_err();
    assert!(refused.message.contains("NO_SYMLINKS"), "{refused}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}
