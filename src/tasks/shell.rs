//! The shell base: the text is a script of bash, run in the working directory.
//!
//! A client that talks to agents may put a request in front of a command: `Run this shell command
//! and reply with its output only: CMD`. Such a request is taken off.

use super::harness::Work;
use serde_json::json;

/// The longest script that is handed over as an argument.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;
/// Where a longer one is put.
const SCRIPT_PATH: &str = "/tmp/.task-script";
/// The fewest words of a request to an agent.
const WORDS_MIN: usize = 3;

/// Both streams go the same way, so that what was written first is told first.
const BASH: &str = "exec /bin/bash \"$@\" 2>&1";

/// What is run for a text.
pub(super) fn work(text: &str) -> Work {
    let script = script_of(text);
    let bash = |rest: &[&str]| {
        ["/bin/sh", "-c", BASH, "sh"].iter().chain(rest).map(|s| (*s).to_owned()).collect()
    };
    let (program, file) = if script.len() <= ARGUMENT_BYTES_MAX {
        (bash(&["-c", script]), None)
    } else {
        let file = (SCRIPT_PATH.to_owned(), script.as_bytes().to_vec());
        (bash(&[SCRIPT_PATH]), Some(file))
    };
    Work { program, script: file, tool: "shell", arguments: json!({ "command": script }) }
}

/// The script in a text: all of it, or what follows a request.
fn script_of(text: &str) -> &str {
    let trimmed = text.trim();
    let (first, rest) = trimmed.split_once('\n').unwrap_or((trimmed, ""));
    // The whole first line is the request, and the command follows.
    if let Some(request) = first.trim_end().strip_suffix(':')
        && is_request(request)
        && !rest.trim().is_empty()
    {
        return rest.trim();
    }
    match first.split_once(": ") {
        Some((request, command)) if rest.is_empty() && is_request(request) => command.trim(),
        _ => text,
    }
}

/// Whether words are addressed to somebody: a sentence that begins with a capital letter and has
/// nothing in it that means something to a shell.
fn is_request(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | ',' | '.' | '-' | '_' | '\'');
    text.starts_with(char::is_uppercase)
        && text.chars().all(plain)
        && text.split_whitespace().count() >= WORDS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_front_of_a_command_is_taken_off() {
        for (text, script) in [
            (
                "Run this shell command and reply with its output only: cat x; touch y",
                "cat x; touch y",
            ),
            ("Reply with exactly: ok", "ok"),
            ("Create a file named a-b.txt containing exactly: artifact-ok", "artifact-ok"),
            ("Run this command: echo 'a: b'", "echo 'a: b'"),
            ("Run this script:\necho 1\necho 2", "echo 1\necho 2"),
            ("Run this script:\n", "Run this script:\n"),
            // No request: each is run as it stands.
            ("echo a: b", "echo a: b"),
            ("Echo a: b", "Echo a: b"),
            ("PATH=x: y", "PATH=x: y"),
            ("Run this ${x}: y", "Run this ${x}: y"),
            ("Say it twice: one\ntwo", "Say it twice: one\ntwo"),
            (" : ignored\n", " : ignored\n"),
            ("case x in A b c: d", "case x in A b c: d"),
        ] {
            assert_eq!(script_of(text), script, "{text}");
        }
    }

    #[test]
    fn a_long_script_is_a_file() {
        let long = "#".repeat(ARGUMENT_BYTES_MAX + 1);
        let made = work(&long);
        assert_eq!(made.program[3..], ["sh", SCRIPT_PATH]);
        assert_eq!(made.script.unwrap().1, long.as_bytes());
        assert_eq!(work("id").program[3..], ["sh", "-c", "id"]);
    }
}
