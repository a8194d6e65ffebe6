use super::*;
use hangar_runtime::ids::{DependencyKey, EnvironmentId, SessionId, Slug, VersionNumber};
use hangar_runtime::wire::warden::{CommandEnd, EndCause, ExitStatus};

fn environment(digit: char) -> EnvironmentId {
    EnvironmentId::parse(&format!("henv_{}", digit.to_string().repeat(32))).unwrap()
}

fn session(digit: char) -> SessionId {
    SessionId::parse(&format!("hsess{}", digit.to_string().repeat(32))).unwrap()
}

fn new_environment(digit: char, scope: &str, slug: &str) -> NewEnvironment {
    NewEnvironment {
        id: environment(digit),
        scope: scope.to_owned(),
        name: slug.to_owned(),
        slug: Slug::parse(slug).unwrap(),
        description: String::new(),
        entry: String::new(),
        declared: Declared::default(),
        python: None,
        now_ms: 1,
    }
}

fn finished() -> FinishedVersion {
    FinishedVersion {
        finished_s: 9,
        source_digest: "s".into(),
        toolchain: "t".into(),
        inputs: "i".into(),
        root_digest: "r".into(),
        packages: vec![PackageRow {
            manager: "pip".into(),
            name: "numpy".into(),
            version: "2".into(),
        }],
        parts: Parts { venv: true, ..Parts::default() },
        dependencies: None,
        files: 3,
        bytes: 4,
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("db.sqlite")).unwrap();
    (dir, store)
}

#[tokio::test]
async fn a_slug_belongs_to_one_environment_of_a_scope() {
    let (_dir, store) = store();
    assert!(store.create_environment(new_environment('1', "default", "a")).await.unwrap());
    assert!(!store.create_environment(new_environment('2', "default", "a")).await.unwrap());
    assert!(store.create_environment(new_environment('3', "other", "a")).await.unwrap());
    assert!(store.environment("other", &environment('1')).await.unwrap().is_none());
    assert!(store.delete_environment(&environment('1')).await.unwrap());
    assert!(store.create_environment(new_environment('2', "default", "a")).await.unwrap());
}

#[tokio::test]
async fn builds_run_one_at_a_time_and_use_up_their_numbers() {
    let (_dir, store) = store();
    let id = environment('1');
    store.create_environment(new_environment('1', "default", "a")).await.unwrap();
    let one = store.begin_build(&id, &session('1'), 5).await.unwrap().unwrap();
    assert_eq!(one, VersionNumber::new(1).unwrap());
    assert!(store.begin_build(&id, &session('2'), 5).await.unwrap().is_none());
    assert!(!store.delete_environment(&id).await.unwrap(), "a build runs");
    store.fail_build(&id, one, "it failed", 6).await.unwrap();
    assert!(!store.activate(&id, one, 7).await.unwrap(), "it never finished");
    let two = store.begin_build(&id, &session('2'), 8).await.unwrap().unwrap();
    assert_eq!(two, VersionNumber::new(2).unwrap());
    store.finish_build(&id, two, finished()).await.unwrap();
    let row = store.environment("default", &id).await.unwrap().unwrap();
    assert_eq!((row.active, row.latest), (Some(two), 2));
    let version = store.version(&id, two).await.unwrap().unwrap();
    assert_eq!(version.status, VersionStatus::Ready);
    assert_eq!(version.packages[0].name, "numpy");
    assert!(store.unfinished_builds().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_build_that_ended_cannot_be_failed_afterwards() {
    let (_dir, store) = store();
    let id = environment('1');
    store.create_environment(new_environment('1', "default", "a")).await.unwrap();
    let one = store.begin_build(&id, &session('1'), 5).await.unwrap().unwrap();
    store.finish_build(&id, one, finished()).await.unwrap();
    store.fail_build(&id, one, "too late", 6).await.unwrap();
    assert_eq!(store.version(&id, one).await.unwrap().unwrap().status, VersionStatus::Ready);
}

#[tokio::test]
async fn commands_are_counted_and_end_once() {
    let (_dir, store) = store();
    let id = session('1');
    let row = SessionRow {
        id: id.clone(),
        scope: "default".into(),
        environment: None,
        parts: Parts::default(),
        network: "none".into(),
        limits: Default::default(),
        commands: 0,
        harness: None,
        title: String::new(),
        last_status: None,
        created_ms: 1,
        updated_ms: 1,
    };
    assert!(store.create_session(row).await.unwrap());
    let one = store.begin_command(&id, vec!["true".into()], 2).await.unwrap();
    let two = store.begin_command(&id, vec!["false".into()], 2).await.unwrap();
    assert_eq!((one.0, two.0), (1, 2));
    let end = |code| CommandEnd {
        status: ExitStatus::Code(code),
        cause: EndCause::Own,
        pids_limit_hit: false,
    };
    store.end_command(&id, one, end(0), 3).await.unwrap();
    store.end_command(&id, one, end(1), 4).await.unwrap();
    let row = store.command(&id, one).await.unwrap().unwrap();
    assert_eq!((row.ending, row.ended_ms), (Some(end(0)), Some(3)));
    let open = store.unfinished_commands().await.unwrap();
    assert_eq!(open.iter().map(|row| row.number).collect::<Vec<_>>(), [two]);
    store.delete_session(&id).await.unwrap();
    assert!(store.command(&id, one).await.unwrap().is_none());
    assert_eq!(store.garbage().await.unwrap(), [("session".to_owned(), id.to_string())]);
}

#[test]
fn a_database_of_a_newer_format_or_another_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let newer = dir.path().join("newer");
    drop(Store::open(&newer).unwrap());
    let raw = rusqlite::Connection::open(&newer).unwrap();
    raw.pragma_update(None, "user_version", FORMAT + 1).unwrap();
    assert!(matches!(Store::open(&newer), Err(StoreError::Newer { .. })));
    let foreign = dir.path().join("foreign");
    let raw = rusqlite::Connection::open(&foreign).unwrap();
    raw.pragma_update(None, "application_id", 7).unwrap();
    assert!(matches!(Store::open(&foreign), Err(StoreError::Foreign)));
}

async fn built(store: &Store, id: &EnvironmentId, builds: u32) {
    for _ in 0..builds {
        let number = store.begin_build(id, &session('1'), 1).await.unwrap().unwrap();
        store.finish_build(id, number, finished()).await.unwrap();
    }
}

async fn failed(store: &Store, id: &EnvironmentId) {
    let number = store.begin_build(id, &session('1'), 1).await.unwrap().unwrap();
    store.fail_build(id, number, "x", 2).await.unwrap();
}

async fn numbers(store: &Store, id: &EnvironmentId) -> Vec<u32> {
    store.versions(id).await.unwrap().iter().map(|row| row.number.0.get()).collect()
}

fn reader(id: &EnvironmentId, number: u32) -> SessionRow {
    SessionRow {
        id: session('5'),
        scope: "default".to_owned(),
        environment: Some((id.clone(), version(number), Slug::parse("a").unwrap())),
        parts: Parts::default(),
        network: "none".to_owned(),
        limits: crate::config::LimitsConfig::default(),
        commands: 0,
        harness: None,
        title: String::new(),
        last_status: None,
        created_ms: 1,
        updated_ms: 1,
    }
}

fn version(number: u32) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

#[tokio::test]
async fn what_is_used_is_kept_beyond_the_newest() {
    let (_dir, store) = store();
    let id = environment('1');
    store.create_environment(new_environment('1', "default", "a")).await.unwrap();
    built(&store, &id, 2).await;
    failed(&store, &id).await;
    built(&store, &id, 3).await;
    failed(&store, &id).await;
    assert!(store.create_session(reader(&id, 2)).await.unwrap());
    store.activate(&id, version(1), 3).await.unwrap();
    assert!(store.remove_beyond(None).await.unwrap().is_empty(), "nothing says so");
    let removed = store.remove_beyond(Some(2)).await.unwrap();
    assert_eq!(removed.len(), 2, "{removed:?}");
    assert_eq!(numbers(&store, &id).await, [7, 6, 5, 2, 1]);
    let garbage = store.garbage().await.unwrap();
    assert!(garbage.contains(&("version".to_owned(), format!("{id}/4"))), "{garbage:?}");
    // An environment can say otherwise, and what was used is let go once it is not.
    store.set_keep_last(&id, Some(1), 4).await.unwrap();
    store.delete_session(&session('5')).await.unwrap();
    store.activate(&id, version(6), 3).await.unwrap();
    store.remove_beyond(Some(9)).await.unwrap();
    assert_eq!(numbers(&store, &id).await, [7, 6]);
}

#[tokio::test]
async fn a_version_in_use_is_not_removed_and_a_removed_one_not_used() {
    let (_dir, store) = store();
    let id = environment('1');
    store.create_environment(new_environment('1', "default", "a")).await.unwrap();
    built(&store, &id, 3).await;
    assert_eq!(store.remove_version(&id, version(3)).await.unwrap(), Removal::Active);
    assert_eq!(store.remove_version(&id, version(9)).await.unwrap(), Removal::NotFound);
    assert!(store.create_session(reader(&id, 1)).await.unwrap());
    assert_eq!(store.remove_version(&id, version(1)).await.unwrap(), Removal::Read(1));
    store.delete_session(&session('5')).await.unwrap();
    assert_eq!(store.remove_version(&id, version(1)).await.unwrap(), Removal::Removed);
    assert!(!store.create_session(reader(&id, 1)).await.unwrap());
    assert!(!store.activate(&id, version(1), 1).await.unwrap());
    let building = store.begin_build(&id, &session('1'), 1).await.unwrap().unwrap();
    assert_eq!(building, version(4), "numbers are never used again");
    assert_eq!(store.remove_version(&id, building).await.unwrap(), Removal::Building);
}

#[tokio::test]
async fn a_harness_keeps_the_reference_to_an_environment_that_is_gone() {
    let (_dir, store) = store();
    store.create_environment(new_environment('1', "default", "a")).await.unwrap();
    let id = environment('1');
    let named = |scope: &str, environment: &str| HarnessRow {
        id: format!("chrn_{scope}"),
        scope: scope.to_owned(),
        base: "shell".to_owned(),
        config: HarnessConfig {
            name: "x".to_owned(),
            environment: Some(environment.to_owned()),
            ..HarnessConfig::default()
        },
        created_ms: 1,
    };
    let create = async |row| store.create_harness(row, Vec::new()).await.unwrap();
    assert_eq!(create(named("other", id.as_str())).await, Stored::NoEnvironment, "another scope");
    assert_eq!(create(named("default", "henv_0")).await, Stored::NoEnvironment);
    let mut row = named("default", id.as_str());
    assert_eq!(create(row.clone()).await, Stored::Whole);
    assert_eq!(store.harnesses("default", Some(id.as_str())).await.unwrap().len(), 1);
    store.delete_environment(&id).await.unwrap();
    row.config.name = "renamed".to_owned();
    let update = async |row, named| store.update_harness(row, named, Vec::new()).await.unwrap();
    assert_eq!(update(row.clone(), Reference::Left).await, Stored::Whole);
    assert_eq!(update(row, Reference::Written).await, Stored::NoEnvironment);
    let kept = store.harness("default", "chrn_default").await.unwrap().unwrap();
    assert_eq!(kept.config.environment.as_deref(), Some(id.as_str()));
    assert!(store.harness("other", "chrn_default").await.unwrap().is_none());
    assert!(!store.delete_harness("other", "chrn_default").await.unwrap());
    assert!(store.delete_harness("default", "chrn_default").await.unwrap());
}

#[tokio::test]
async fn skills_of_the_older_format_keep_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db.sqlite");
    let mut db = Connection::open(&path).unwrap();
    schema::prepare_up_to(&mut db, schema::BEFORE_SKILLS).unwrap();
    let config = r#"{"name": "x", "skills": [
        {"name": "b", "files": [{"path": "SKILL.md", "content": "1"}, {"path": "x", "content_b64": "AA=="}]},
        {"name": "a", "enabled": false}, {"name": "c", "enabled": true, "content": "2"}]}"#;
    for (id, config) in [("chrn_1", config), ("chrn_2", r#"{"name": "y"}"#)] {
        let sql = "INSERT INTO harnesses VALUES (?1, 's', 'shell', ?2, NULL, 1)";
        db.execute(sql, [id, config]).unwrap();
    }
    drop(db);
    let store = Store::open(&path).unwrap();
    let rows = store.harnesses("s", None).await.unwrap();
    assert!(rows[1].config.skills.is_empty());
    let skills = &rows[0].config.skills;
    let names: Vec<_> = skills.iter().map(|skill| (skill.name.as_str(), skill.enabled)).collect();
    assert_eq!(names, [("b", true), ("a", false), ("c", true)]);
    assert_eq!(skills[1].blob, None);
    let files = async |at: usize| {
        let blob = skills[at].blob.clone().unwrap();
        let files = store.skill_files("chrn_1", &blob).await.unwrap().unwrap();
        files.iter().map(|file| (file.path.clone(), file.bytes().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(files(0).await, [("SKILL.md".into(), b"1".to_vec()), ("x".into(), b"\0".to_vec())]);
    assert_eq!(files(2).await, [("SKILL.md".into(), b"2".to_vec())]);
}

fn key(digit: char) -> DependencyKey {
    DependencyKey::parse(&digit.to_string().repeat(64)).unwrap()
}

/// Builds a version that has what is kept under this key.
async fn build_with(store: &Store, id: &EnvironmentId, kept: char, started_s: i64) {
    let number = store.begin_build(id, &session(kept), started_s).await.unwrap().unwrap();
    store.keep_dependencies(id, &key(kept), "boot", started_s).await.unwrap();
    let done = FinishedVersion { dependencies: Some(key(kept)), ..finished() };
    store.finish_build(id, number, done).await.unwrap();
}

#[tokio::test]
async fn packages_are_kept_while_a_version_has_them_or_a_later_build_may() {
    let (_dir, store) = store();
    let id = environment('1');
    store.create_environment(new_environment('1', "default", "a")).await.unwrap();
    build_with(&store, &id, 'a', 10).await;
    build_with(&store, &id, 'b', 20).await;
    let failed = store.begin_build(&id, &session('c'), 30).await.unwrap().unwrap();
    store.keep_dependencies(&id, &key('c'), "boot", 31).await.unwrap();
    let first = VersionNumber::new(1).unwrap();
    assert_eq!(store.remove_version(&id, first).await.unwrap(), Removal::Removed);
    assert_eq!(store.give_up_unused_dependencies().await.unwrap(), 0, "a build runs");
    store.fail_build(&id, failed, "it failed", 32).await.unwrap();
    assert_eq!(store.give_up_unused_dependencies().await.unwrap(), 1);
    let garbage = store.garbage().await.unwrap();
    assert!(garbage.contains(&("dependencies".to_owned(), format!("{id}/{}", key('a')))));
    for (kept, expected) in [('a', false), ('b', true), ('c', true)] {
        assert_eq!(store.has_dependencies(&id, &key(kept)).await.unwrap(), expected, "{kept}");
    }
    build_with(&store, &id, 'd', 40).await;
    assert_eq!(store.give_up_unused_dependencies().await.unwrap(), 1, "of the failed build");
    assert!(!store.has_dependencies(&id, &key('c')).await.unwrap());
}

#[tokio::test]
async fn packages_outlive_a_new_boot_once_a_version_has_them() {
    let (_dir, store) = store();
    let id = environment('1');
    store.create_environment(new_environment('1', "default", "a")).await.unwrap();
    build_with(&store, &id, 'a', 10).await;
    store.keep_dependencies(&id, &key('b'), "boot", 20).await.unwrap();
    store.give_up_unsynced_dependencies("boot").await.unwrap();
    assert!(store.has_dependencies(&id, &key('b')).await.unwrap(), "the host still runs");
    store.give_up_unsynced_dependencies("another boot").await.unwrap();
    assert!(store.has_dependencies(&id, &key('a')).await.unwrap());
    assert!(!store.has_dependencies(&id, &key('b')).await.unwrap());
    let noted = ("dependencies".to_owned(), format!("{id}/{}", key('b')));
    assert_eq!(store.garbage().await.unwrap(), [noted]);
}
