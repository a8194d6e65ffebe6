//! Files that are sent with a task land in its working directory.

use hangar_tests::checked::Checked;
use hangar_tests::task::{member, next, run, script, text};
use serde_json::{Value, json};

fn with_files(script: &str, files: &[Value]) -> Value {
    let text = json!({ "type": "input_text", "text": script });
    let content: Vec<_> = [text].into_iter().chain(files.iter().cloned()).collect();
    json!({ "input": [{ "role": "user", "content": content }] })
}

fn upload(server: &Checked, name: &str, bytes: &str) -> String {
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{bytes}\r\n--b--\r\n"
    );
    let kind = [("Content-Type", "multipart/form-data; boundary=b")];
    let answer = server.call_with("POST", "/v1/files", &kind, form.as_bytes());
    member(&answer.json(), "/id").to_owned()
}

#[test]
fn files_of_every_kind_land_in_the_working_directory() {
    let server = Checked::start();
    let sent = upload(&server, "sent ahead.txt", "ahead\n");
    let inline =
        |name: &str, url: &str| json!({ "type": "input_file", "filename": name, "file_data": url });
    let files = [
        inline("a.txt", "data:text/plain;base64,aGVsbG8K"),
        inline("-n", "data:,dash%0A"),
        inline("../../etc/b.bin", "data:application/octet-stream;base64,AAEC/w=="),
        json!({ "type": "input_image", "image_url": "data:image/png;base64,iVBORw==" }),
        json!({ "type": "input_file", "file_id": sent }),
        json!({ "type": "input_file", "file_id": sent, "filename": "renamed" }),
    ];
    let read = "ls -1; cat a.txt ./-n 'sent ahead.txt' renamed; od -An -tx1 b.bin; stat -c %U a.txt; \
                echo more >> a.txt; echo new > new";
    let told = run(&server, &with_files(read, &files));
    assert_eq!(
        text(&told),
        "-n\na.txt\nb.bin\nimage.png\nrenamed\nsent ahead.txt\n\
         hello\ndash\nahead\nahead\n 00 01 02 ff\nagent\n"
    );
    // They are no work of the turn, unless it changed them.
    let cited = told["output"][2]["content"][0]["annotations"].as_array().unwrap();
    let mut cited: Vec<_> = cited.iter().map(|file| member(file, "/path")).collect();
    cited.sort_unstable();
    assert_eq!(cited, ["a.txt", "new"]);
    let id = member(&told, "/id");
    let items = server.get(&format!("/v1/responses/{id}/input_items"));
    assert_eq!(items["data"][0]["content"][5]["file_id"], json!(sent));
    // The next turn finds them, and can send one again.
    let mut again = with_files("cat a.txt renamed", &[inline("a.txt", "data:,again%0A")]);
    again["previous_response_id"] = told["id"].clone();
    assert_eq!(text(&run(&server, &again)), "again\nahead\n");
}

#[test]
fn a_file_that_cannot_be_placed_fails_the_task_and_keeps_the_session() {
    let server = Checked::start();
    let first = script(&server, "mkdir taken");
    let file = json!({ "type": "input_file", "filename": "taken", "file_data": "data:,x" });
    let mut request = with_files("echo never", &[file]);
    request["previous_response_id"] = first["id"].clone();
    let told = run(&server, &request);
    assert_eq!(
        (&told["status"], &told["error"]["code"]),
        (&json!("failed"), &json!("harness_error"))
    );
    assert_eq!(told["output"], json!([]));
    assert_eq!(text(&next(&server, &told, "ls")), "taken\n");
}

#[test]
fn a_long_script_runs_too() {
    let server = Checked::start();
    let long = format!("{}\necho end; cat\n", "# nothing\n".repeat(20_000));
    let told = script(&server, &long);
    assert_eq!((text(&told), &told["metadata"]["exit_code"]), ("end\n", &json!(0)));
    assert_eq!(told["output"][2]["content"][0]["annotations"], json!([]));
}
