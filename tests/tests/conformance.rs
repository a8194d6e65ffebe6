//! The protocol's checks of environments, EN-01 to EN-08, written anew; every answer is compared
//! with a schema.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::task::{member, run, text};
use serde_json::{Value, json};

const NOBODY: &str = "henv_00000000000000000000000000000000";

fn content_studio(server: &Checked) -> String {
    server.environment(
        "Conformance probe",
        &[
            ("run.py", "import sys\nprint(sys.prefix)\n"),
            ("requirements.txt", ""),
            ("data/hello.txt", "hello from the environment\n"),
        ],
    )
}

fn harness(server: &Checked, environment: &str) -> Value {
    let asked = json!({ "name": "reader", "base": "shell", "environment": environment });
    server.send("POST", "/v1/harnesses", &asked)
}

#[test]
fn en_01_an_environment_is_created_with_a_mount_that_stays() {
    let server = Checked::start();
    let asked = json!({
        "name": "Content Studio", "description": "d", "entry": "python3 run.py",
        "packages": { "pip": ["numpy==2.3.1"], "npm": ["sharp@0.33.5"], "apt": ["ffmpeg"] },
        "runtime": { "python": "3.11" },
    });
    let made = server.send("POST", "/v1/environments", &asked);
    assert_eq!((&made["status"], &made["version"]), (&json!("empty"), &Value::Null));
    assert_eq!(
        (&made["slug"], &made["mount"]),
        (&json!("content-studio"), &json!("/env/content-studio"))
    );
    let numpy = json!({ "spec": "numpy==2.3.1", "name": "numpy", "version": "2.3.1" });
    assert_eq!(made["declared"]["pip"], json!([numpy]));
    assert_eq!(made["runtime"]["python"], "3.11");
    let path = format!("/v1/environments/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get(&path), made);
    // What is not written stays, the slug in any case.
    let renamed =
        json!({ "name": "Other", "packages": { "npm": [] }, "runtime": { "python": "" } });
    let changed = server.send("PUT", &path, &renamed);
    assert_eq!((&changed["slug"], &changed["entry"]), (&made["slug"], &made["entry"]));
    assert_eq!(changed["declared"]["pip"], made["declared"]["pip"]);
    assert_eq!(
        (&changed["declared"]["npm"], &changed["runtime"]["python"]),
        (&json!([]), &json!(""))
    );
    assert_eq!(server.get("/v1/environments")["environments"], json!([changed]));
    for (body, expected) in [
        (r#"{"name": "content studio"}"#, (409, "environment_exists")),
        (r#"{"name": "!"}"#, (422, "environment_invalid")),
        (r#"{}"#, (422, "environment_invalid")),
        (r#"{"name": "x", "packages": {"pip": ["--pre"]}}"#, (422, "environment_invalid")),
        (r#"{"name": 1}"#, (400, "invalid_input")),
    ] {
        let refused = refusal(&server.call("POST", "/v1/environments", body.as_bytes()));
        assert_eq!((refused.0, refused.1.as_str()), expected, "{body}");
    }
}

#[test]
fn en_02_files_come_back_byte_for_byte_and_escapes_are_refused() {
    let server = Checked::start();
    let id = server.environment("files", &[]);
    let base = format!("/v1/environments/{id}/files");
    let bytes = b"nested\0bytes\n";
    assert_eq!(server.put_file(&id, "probe/nested/blob.bin", bytes)["bytes"], bytes.len());
    let read = server.call("GET", &format!("{base}/probe/nested/blob.bin"), b"");
    assert_eq!((read.status, read.body.as_slice()), (200, &bytes[..]));
    assert_eq!(read.field("content-type"), Some("application/octet-stream"));
    let made = json!({ "path": "assets/brand" });
    server.send("POST", &format!("/v1/environments/{id}/directories"), &made);
    let tree = server.get(&base);
    let paths: Vec<_> = tree["entries"].as_array().unwrap().iter().map(|e| &e["path"]).collect();
    assert_eq!(paths, ["assets", "assets/brand", "probe", "probe/nested", "probe/nested/blob.bin"]);
    assert_eq!((&tree["count"], &tree["bytes"]), (&json!(1), &json!(bytes.len())));
    let escape = refusal(&server.call("PUT", &format!("{base}/..%2Fescape.txt"), b"no"));
    assert_eq!(escape, (422, "environment_invalid".to_owned()));
    assert_eq!(server.call("DELETE", &format!("{base}/probe"), b"").status, 200);
    assert_eq!(server.get(&base)["count"], 0);
    let gone = refusal(&server.call("DELETE", &format!("{base}/probe"), b""));
    assert_eq!(gone, (404, "file_not_found".to_owned()));
}

#[test]
fn en_03_and_04_builds_become_versions_and_rollback_is_a_pointer() {
    let server = Checked::start();
    let id = content_studio(&server);
    let path = format!("/v1/environments/{id}");
    let first = server.build(&id);
    assert_eq!((&first["status"], &first["version"]), (&json!("ready"), &json!(1)), "{first}");
    let now = server.get(&path);
    assert_eq!((&now["status"], &now["version"]), (&json!("ready"), &json!(1)));
    let versions = server.get(&format!("{path}/versions"));
    assert_eq!(
        (&versions["active"], versions["versions"].as_array().unwrap().len()),
        (&json!(1), 1)
    );

    server.put_file(&id, "data/hello.txt", "changed\n");
    assert_eq!(server.get(&path)["version"], 1, "an edit changes nothing");
    let session = server.daemon().session(&json!({ "environment": id }));
    assert_eq!(
        session.bash("cat $PROJECT_ROOT/data/hello.txt").out(),
        "hello from the environment\n"
    );
    let second = server.build(&id);
    assert_eq!((&second["status"], &second["version"]), (&json!("ready"), &json!(2)));
    assert_eq!(server.get(&path)["version"], 2);
    assert_eq!(
        session.bash("cat $PROJECT_ROOT/data/hello.txt").out(),
        "hello from the environment\n",
        "a session keeps its version"
    );
    session.delete();
    let back = server.send("POST", &format!("{path}/versions/1/activate"), &json!({}));
    assert_eq!((&back["version"], &back["latestVersion"]), (&json!(1), &json!(2)));
    for version in ["99", "0", "x"] {
        let answer = server.call("POST", &format!("{path}/versions/{version}/activate"), b"{}");
        assert_eq!(refusal(&answer), (409, "environment_not_ready".to_owned()));
    }
}

#[test]
fn en_05_and_06_a_harness_names_an_environment_and_is_listed_there() {
    let server = Checked::start();
    let id = server.environment("read", &[]);
    let made = harness(&server, &id);
    let path = format!("/v1/harnesses/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get(&path)["environment"], json!(id));
    let listed = server.get(&format!("/v1/environments/{id}/harnesses"));
    assert_eq!(
        listed["harnesses"],
        json!([{ "id": made["id"], "name": "reader", "base": "shell" }])
    );
    for (body, expected) in [
        (
            json!({ "name": "x", "base": "shell", "environment": NOBODY }),
            (404, "environment_not_found"),
        ),
        (json!({ "name": "x", "base": "none" }), (422, "unsupported_base")),
        (json!({ "name": "", "base": "shell" }), (400, "invalid_input")),
    ] {
        let refused = refusal(&server.call("POST", "/v1/harnesses", body.to_string().as_bytes()));
        assert_eq!((refused.0, refused.1.as_str()), expected, "{body}");
    }
    let refused =
        server.call("PUT", &path, json!({ "environment": NOBODY }).to_string().as_bytes());
    assert_eq!(refusal(&refused), (404, "environment_not_found".to_owned()));
    // A task on an environment that has nothing built is refused before it starts, whether the harness
    // names it or the task, there or where it once stood.
    for request in [
        json!({ "input": "echo x", "metadata": { "harness_id": made["id"] } }),
        json!({ "input": "echo x", "metadata": { "environment": id } }),
        json!({ "input": "echo x", "environment": id }),
    ] {
        let refused =
            refusal(&server.call("POST", "/v1/responses", request.to_string().as_bytes()));
        assert_eq!(refused, (409, "environment_not_ready".to_owned()), "{request}");
        let mut nobody = request;
        nobody["metadata"]["environment"] = json!(NOBODY);
        nobody.as_object_mut().unwrap().remove("environment");
        let refused = refusal(&server.call("POST", "/v1/responses", nobody.to_string().as_bytes()));
        assert_eq!(refused, (404, "environment_not_found".to_owned()), "{nobody}");
    }
    assert_eq!(server.get("/v1/sessions")["sessions"], json!([]), "nothing was started");
    // What was read can be sent back, and an edit of something else loses nothing.
    let skill = json!([{ "name": "s", "files": [{ "path": "SKILL.md", "content": "x" }] }]);
    let with_skill = server.send("PUT", &path, &json!({ "skills": skill, "max_step": 7 }));
    assert_eq!(server.send("PUT", &path, &with_skill), with_skill);
    let renamed = server.send("PUT", &path, &json!({ "name": "renamed" }));
    assert_eq!((&renamed["skills"], &renamed["maxStep"]), (&with_skill["skills"], &json!(7)));
    assert_eq!(server.get(&format!("{path}/skills/s/files"))["files"], skill[0]["files"]);
    assert_eq!(server.send("PUT", &path, &json!({ "maxStep": null }))["maxStep"], Value::Null);
    // The environment goes; the reference stays, until it is written away.
    assert_eq!(server.call("DELETE", &format!("/v1/environments/{id}"), b"").status, 200);
    assert_eq!(server.get(&path)["environment"], json!(id));
    assert_eq!(server.send("PUT", &path, &json!({ "environment": null }))["environment"], "");
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    let gone = refusal(&server.call("GET", &path, b""));
    assert_eq!(gone, (404, "harness_not_found".to_owned()));
    let left = server.get("/v1/harnesses");
    assert!(
        left["harnesses"].as_array().unwrap().iter().all(|harness| harness["id"] != made["id"])
    );
}

#[test]
fn en_07_a_session_reads_the_environment_and_cannot_write_it() {
    let server = Checked::start();
    let id = content_studio(&server);
    server.put_file(&id, "requirements.txt", "");
    assert_eq!(server.build(&id)["status"], "ready");
    let session = server.daemon().session(&json!({ "environment": id }));
    let ran = session.bash(
        "cat /env/conformance-probe/data/hello.txt; touch /env/conformance-probe/write-probe; \
         echo WRITE_RC=$?; ls /env",
    );
    assert_eq!(ran.out(), "hello from the environment\nWRITE_RC=1\nconformance-probe\n");
    let shown = server.get(&format!("/v1/sessions/{}", session.id));
    assert_eq!((&shown["environment"], &shown["environment_version"]), (&json!(id), &json!(1)));
    session.delete();
}

#[test]
fn en_07_a_task_reads_the_environment_of_its_harness_and_cannot_write_it() {
    let server = Checked::start();
    let id = content_studio(&server);
    assert_eq!(server.build(&id)["status"], "ready");
    let made = harness(&server, &id);
    let mount = server.get(&format!("/v1/environments/{id}"))["mount"].as_str().unwrap().to_owned();
    let asked = format!(
        "Run this shell command and reply with its output only: cat {mount}/data/hello.txt; \
         touch {mount}/write-probe; echo WRITE_RC=$?; ls /env"
    );
    let request = json!({ "input": asked, "metadata": { "harness_id": made["id"] } });
    let response = run(&server, &request);
    assert_eq!(response["status"], "completed", "{response}");
    let said = text(&response);
    assert!(said.starts_with("hello from the environment\n"), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert!(said.ends_with("WRITE_RC=1\nconformance-probe\n"), "{said}");
    assert_eq!(response["metadata"]["environment"], json!(id));
    assert_eq!(response["metadata"]["environment_version"], 1);
    let session =
        server.get(&format!("/v1/sessions/{}", member(&response, "/metadata/session_id")));
    assert_eq!(session["environment"], json!(id));
    let tree = server.get(&format!("/v1/environments/{id}/files"));
    assert!(!tree.to_string().contains("write-probe"), "{tree}");
}

#[test]
fn en_08_environments_are_cleaned_up() {
    let server = Checked::start();
    let id =
        server.environment("busy", &[("setup.sh", "while [ ! -e go ]; do sleep 0.05; done\n")]);
    let path = format!("/v1/environments/{id}");
    let started = server.send("POST", &format!("{path}/build"), &json!({}));
    assert_eq!((&started["version"], &started["status"]), (&json!(1), &json!("building")));
    assert_eq!(server.get(&path)["status"], "building");
    let second = refusal(&server.call("POST", &format!("{path}/build"), b""));
    assert_eq!(second, (409, "environment_busy".to_owned()));
    let busy = refusal(&server.call("DELETE", &path, b""));
    assert_eq!(busy, (409, "environment_busy".to_owned()));
    // Its deletion goes through once the build is over, however it ends.
    let build = server.get(&format!("{path}/builds/1"));
    assert_eq!(
        (&build["status"], build["stage"].as_str().unwrap().is_empty()),
        (&json!("building"), false)
    );
    let mut server = server;
    server.crash_and_restart();
    assert_eq!(server.get(&path)["status"], "failed");
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    let gone = refusal(&server.call("GET", &path, b""));
    assert_eq!(gone, (404, "environment_not_found".to_owned()));
    // The mount path is free again.
    assert_ne!(server.environment("busy", &[]), id);
}

#[test]
fn discovery_tells_what_is_there() {
    let server = Checked::start();
    let told = server.get("/v1/uhp");
    let routes = ["runtimes", "packages/check?manager=gem&spec=x"];
    for route in routes {
        assert_ne!(server.call("GET", &format!("/v1/environments/{route}"), b"").status, 404);
    }
    assert_eq!(told["capabilities"]["plugins"], false);
    let answer = server.call_with("GET", "/v1/uhp", &[("UHP-Version", "2020-01-01")], b"");
    assert_eq!(refusal(&answer), (400, "unsupported_protocol_version".to_owned()));
    assert_eq!(answer.json()["error"]["detail"]["supported"], told["versions"]);
    let spoken = server.call_with("GET", "/v1/uhp", &[("UHP-Version", "2026-09-28")], b"");
    assert_eq!(spoken.status, 200);
}
