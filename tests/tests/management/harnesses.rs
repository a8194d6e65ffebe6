//! Harnesses as they are written, read, changed and deleted.

use hangar_tests::checked::{Checked, refusal};
use serde_json::{Value, json};

fn path(harness: &Value) -> String {
    format!("/v1/harnesses/{}", harness["id"].as_str().unwrap())
}

fn refused(server: &Checked, body: &Value) -> (u16, String) {
    refusal(&server.call("POST", "/v1/harnesses", body.to_string().as_bytes()))
}

/// A folder with a text, a nested one and bytes that are no text.
fn folder() -> Value {
    json!({ "name": "vault-manual", "enabled": true, "files": [
        { "path": "SKILL.md", "content": "---\nname: vault-manual\n---\r\n\u{fc}\n" },
        { "path": "references/codes.md", "content": "" },
        { "path": "assets/blob.bin", "content_b64": "AAECAwQF/+8=" },
    ]})
}

#[test]
fn every_scope_has_a_harness_from_the_begin() {
    let mut server = Checked::start();
    let listed = server.get("/v1/harnesses");
    let first = listed["harnesses"][0].clone();
    assert_eq!((&first["name"], &first["base"]), (&json!("shell"), &json!("shell")));
    assert_eq!(server.get(&path(&first)), first);
    let kept = refusal(&server.call("DELETE", &path(&first), b""));
    assert_eq!(kept, (403, "insufficient_scope".to_owned()));
    let changed = server.send("PUT", &path(&first), &json!({ "timeout_seconds": 60 }));
    server.crash_and_restart();
    assert_eq!(server.get("/v1/harnesses")["harnesses"], json!([changed]));
    // Its id is the same wherever it is the same scope, and the harness another one in another.
    let other = Checked::start();
    assert_eq!(other.get("/v1/harnesses")["harnesses"][0]["id"], first["id"]);
}

#[test]
fn a_harness_is_made_changed_and_deleted() {
    let server = Checked::start();
    let made = server.send("POST", "/v1/harnesses", &json!({
        "name": "Research agent", "base": "shell", "default_model": "none", "system_prompt": "Be\nbrief",
        "disabled_tools": ["WebSearch"], "max_step": 7, "timeout_seconds": 60,
    }));
    for (field, value) in [
        ("baseLabel", json!("Shell")),
        ("defaultModel", json!("none")),
        ("systemPrompt", json!("Be\nbrief")),
        ("disabledTools", json!(["WebSearch"])),
        ("maxStep", json!(7)),
        ("timeoutSeconds", json!(60)),
        ("plugins", json!([])),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    // What does not change is kept, whatever is written.
    let changed = server.send(
        "PUT",
        &path(&made),
        &json!({
            "name": "Renamed", "base": "shell", "id": "chrn_0", "createdAt": 1, "created_at": 1
        }),
    );
    for field in ["id", "base", "createdAt", "maxStep", "disabledTools"] {
        assert_eq!(changed[field], made[field], "{field}");
    }
    let body = json!({ "base": "codex" }).to_string();
    let other = server.call("PUT", &path(&made), body.as_bytes());
    assert_eq!(refusal(&other), (400, "invalid_input".to_owned()));
    assert_eq!(server.get(&path(&made)), changed);
    assert_eq!(server.call("DELETE", &path(&made), b"").status, 200);
    for method in ["GET", "PUT", "DELETE"] {
        let gone = refusal(&server.call(method, &path(&made), b"{}"));
        assert_eq!(gone, (404, "harness_not_found".to_owned()), "{method}");
    }
}

#[test]
fn what_cannot_run_or_be_kept_is_refused() {
    let server = Checked::start();
    for base in ["codex", "claude-code", "pi", "Shell", ""] {
        let answer = server.call(
            "POST",
            "/v1/harnesses",
            json!({ "name": "x", "base": base }).to_string().as_bytes(),
        );
        assert_eq!(refusal(&answer), (422, "unsupported_base".to_owned()), "{base}");
        assert_eq!(answer.json()["error"]["detail"]["supported"], json!(["shell"]));
    }
    for (field, value) in [
        ("name", json!("")),
        ("name", json!(7)),
        ("max_step", json!(0)),
        ("max_step", json!(-1)),
        ("timeout_seconds", json!(0)),
        ("disabled_tools", json!([""])),
        ("plugins", json!([{ "files": [] }])),
        ("mcp_servers", json!([{ "name": "m", "url": "stdio:///bin/sh" }])),
        ("mcp_servers", json!([{ "name": "m", "url": "https://a:b@x" }])),
        ("skills", json!([{ "name": "s", "files": [{ "path": "x.md", "content": "" }] }])),
        (
            "skills",
            json!([{ "name": "s", "files": [
            { "path": "SKILL.md", "content": "" }, { "path": "../x", "content": "" }] }]),
        ),
        ("skills", json!([{ "name": "..", "content": "x" }])),
    ] {
        let mut body = json!({ "name": "x", "base": "shell" });
        body[field] = value;
        assert_eq!(refused(&server, &body), (400, "invalid_input".to_owned()), "{body}");
    }
    // A refused change changes nothing.
    let made = server.send("POST", "/v1/harnesses", &json!({ "name": "x", "base": "shell" }));
    let bad = json!({ "name": "y", "skills": [{ "name": "s" }] }).to_string();
    assert_eq!(server.call("PUT", &path(&made), bad.as_bytes()).status, 400);
    assert_eq!(server.get(&path(&made)), made);
}

#[test]
fn a_skill_is_kept_byte_for_byte_through_every_edit() {
    let mut server = Checked::start();
    let asked = json!({ "name": "x", "base": "shell", "skills": [folder()] });
    let made = server.send("POST", "/v1/harnesses", &asked);
    let files = format!("{}/skills/vault-manual/files", path(&made));
    let wanted = folder()["files"].clone();
    assert_eq!(server.get(&files)["files"], wanted);
    // What was read is sent back, in the fields of the object or of requests.
    let back = server.send("PUT", &path(&made), &server.get(&path(&made)));
    assert_eq!(back, made);
    server.send("PUT", &path(&made), &json!({ "name": "y", "skills": back["skills"] }));
    server.send("PUT", &path(&made), &json!({ "name": "z" }));
    let toggled = json!({ "skills": [{ "name": "vault-manual", "enabled": false }] });
    assert_eq!(server.send("PUT", &path(&made), &toggled)["skills"][0]["enabled"], false);
    server.crash_and_restart();
    assert_eq!(server.get(&files)["files"], wanted);
    // A skill that is written away is gone, and so is its handle.
    let handle = server.get(&path(&made))["skills"].clone();
    server.send("PUT", &path(&made), &json!({ "skills": [] }));
    assert_eq!(refusal(&server.call("GET", &files, b"")), (404, "file_not_found".to_owned()));
    let stale = json!({ "skills": handle }).to_string();
    assert_eq!(server.call("PUT", &path(&made), stale.as_bytes()).status, 400);
    let large = json!({ "name": "x", "base": "shell",
                        "skills": [{ "name": "s", "content": "x".repeat((8 << 20) + 1) }] });
    assert_eq!(refused(&server, &large), (413, "file_too_large".to_owned()));
}

#[test]
fn a_task_finds_the_whole_folder_of_every_enabled_skill() {
    let server = Checked::start();
    let mut off = folder();
    (off["name"], off["enabled"]) = (json!("off"), json!(false));
    let tool = json!({ "name": "tool", "files": [
        { "path": "SKILL.md", "content": "x" },
        { "path": "bin/hello", "content": "#!/bin/sh\necho hello\n" },
    ]});
    let asked = json!({ "name": "x", "base": "shell", "skills": [folder(), off, tool] });
    let made = server.send("POST", "/v1/harnesses", &asked);
    let run = |input: &str, previous: &Value| {
        let answer = server.send("POST", "/v1/responses", &json!({
            "input": input, "metadata": { "harness_id": made["id"] }, "previous_response_id": previous,
        }));
        let text =
            answer["output"].as_array().unwrap().iter().find(|item| item["type"] == "message");
        (answer["id"].clone(), text.unwrap()["content"][0]["text"].as_str().unwrap().to_owned())
    };
    let look = "cd ~/.hangar/skills; find . -type f | sort; base64 vault-manual/assets/blob.bin; \
                tool/bin/hello; ls -A /workspace";
    let (first, told) = run(look, &Value::Null);
    assert_eq!(
        told,
        "./tool/SKILL.md\n./tool/bin/hello\n./vault-manual/SKILL.md\n\
         ./vault-manual/assets/blob.bin\n./vault-manual/references/codes.md\nAAECAwQF/+8=\nhello\n"
    );
    // The next turn has the skills as they are then.
    let skills =
        json!({ "skills": [{ "name": "vault-manual", "enabled": false }, { "name": "tool" }] });
    server.send("PUT", &path(&made), &skills);
    let (_, told) = run("ls ~/.hangar/skills", &first);
    assert_eq!(told, "tool\n");
}

#[test]
fn credentials_of_servers_are_kept_and_never_told() {
    let server = Checked::start();
    let made = server.send(
        "POST",
        "/v1/harnesses",
        &json!({ "name": "x", "base": "shell",
        "mcp_servers": [
            { "name": "my vault", "url": "https://mcp.example.invalid/mcp", "transport": "sse",
              "enabled": false, "auth": "topsecret", "headers": { "X-Key": "topsecret" } },
            { "name": "plain", "url": "http://mcp.example.invalid" },
        ] }),
    );
    let told = &made["mcpServers"];
    assert_eq!(
        told[0],
        json!({ "name": "my-vault", "url": "https://mcp.example.invalid/mcp",
        "transport": "sse", "enabled": false, "auth": "********",
        "headers": { "X-Key": "********" } })
    );
    assert_eq!(
        told[1],
        json!({ "name": "plain", "url": "http://mcp.example.invalid",
        "transport": "http", "enabled": true })
    );
    for shown in [server.get(&path(&made)), server.get("/v1/harnesses")] {
        assert!(!shown.to_string().contains("topsecret"));
    }
    let back = server.send("PUT", &path(&made), &made);
    assert_eq!(back, made);
    // The credential stays with its address.
    let mut moved = made.clone();
    moved["mcpServers"][0]["url"] = json!("https://elsewhere.example.invalid/mcp");
    let refused = server.call("PUT", &path(&made), moved.to_string().as_bytes());
    assert_eq!(refusal(&refused), (400, "invalid_input".to_owned()));
    assert!(!server.daemon().log().contains("topsecret"));
}

#[test]
fn models_are_told_as_they_are() {
    let server = Checked::start();
    assert_eq!(server.get("/v1/models"), json!({ "backends": {} }));
    let harness = server.get("/v1/harnesses")["harnesses"][0].clone();
    assert_eq!(
        server.get(&format!("{}/models", path(&harness))),
        json!({ "harness_id": harness["id"], "backend": "shell", "models": [] })
    );
}

#[test]
fn there_are_no_plugins() {
    let server = Checked::start();
    assert_eq!(server.get("/v1/uhp")["capabilities"]["plugins"], false);
    let harness = server.get("/v1/harnesses")["harnesses"][0].clone();
    let files = server.call("GET", &format!("{}/plugins/x/files", path(&harness)), b"");
    assert_eq!(refusal(&files), (404, "plugin_not_found".to_owned()));
    let export = server.call("GET", &format!("{}/plugin", path(&harness)), b"");
    assert_eq!(export.status, 404);
    for below in ["models", "skills/x/files", "plugins/x/files"] {
        let none = server.call("GET", &format!("/v1/harnesses/chrn_0/{below}"), b"");
        assert_eq!(refusal(&none), (404, "harness_not_found".to_owned()), "{below}");
    }
}
