//! From the end of a command to the exit status of `hangar`.

use super::wire::Ended;

/// hangar itself failed; nothing was written to standard output.
pub const OWN_FAILURE: u8 = 125;
/// The program is there and could not be executed.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
const NOT_FOUND: u8 = 127;

/// The exit status of a shell for a command that ended like this.
#[must_use]
pub fn status(ended: &Ended) -> u8 {
    const ENOENT: i32 = 2;
    match (ended.exit_code, ended.signal, ended.not_executed) {
        (Some(code), _, _) => code,
        (_, Some(signal), _) => of_signal(signal),
        (_, _, Some(ENOENT)) => NOT_FOUND,
        (_, _, Some(_)) => NOT_EXECUTABLE,
        (None, None, None) => OWN_FAILURE,
    }
}

/// The exit status of a shell for a command that a signal killed.
#[must_use]
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
}

/// What the exit status alone does not tell, for standard error.
#[must_use]
pub fn remarks(ended: &Ended, program: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(errno) = ended.not_executed {
        let why = std::io::Error::from_raw_os_error(errno);
        remarks.push(format!("{program} was not executed: {why}"));
    }
    match ended.cause.as_deref() {
        Some("timeout") => remarks.push("the command was ended: its time was over".to_owned()),
        Some("out_of_memory") => {
            remarks.push("the command was ended: the session's memory was used up".to_owned());
        }
        Some("session_ended") => {
            remarks.push("the command was ended: its session ended".to_owned());
        }
        _ => {}
    }
    if ended.pids_limit_hit {
        remarks.push("the session ran into its limit on processes".to_owned());
    }
    if ended.lost > 0 {
        remarks.push(format!("{} bytes of output were too many and are lost", ended.lost));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(json: &str) -> Ended {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        for (json, expected) in [
            (r#"{"exit_code":0,"cause":"own"}"#, 0),
            (r#"{"exit_code":255}"#, 255),
            (r#"{"exit_code":null,"signal":9,"cause":"timeout"}"#, 137),
            (r#"{"signal":15}"#, 143),
            (r#"{"not_executed":2}"#, 127),
            (r#"{"not_executed":13}"#, 126),
            (r#"{"not_executed":8}"#, 126),
            (r#"{"cause":"session_ended"}"#, 125),
        ] {
            assert_eq!(status(&ended(json)), expected, "{json}");
        }
    }

    #[test]
    fn limits_are_told_apart() {
        let remark = |json: &str| remarks(&ended(json), "x").join("; ");
        assert_eq!(remark(r#"{"exit_code":1,"cause":"own"}"#), "");
        assert!(remark(r#"{"signal":9,"cause":"timeout"}"#).contains("time was over"));
        assert!(remark(r#"{"signal":9,"cause":"out_of_memory"}"#).contains("memory"));
        assert!(remark(r#"{"exit_code":1,"pids_limit_hit":true}"#).contains("processes"));
        assert!(remark(r#"{"exit_code":0,"lost":7}"#).contains("7 bytes"));
        assert!(remark(r#"{"not_executed":2}"#).contains("No such file"));
    }
}
