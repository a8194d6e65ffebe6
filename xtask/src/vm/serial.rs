//! What a machine tells over its serial line.
//!
//! The guest's script marks its lines: `hangar-vm: begin NAME`, `hangar-vm: end NAME STATUS`, and
//! last `hangar-vm: done`. Everything else is for people.

use crate::failure::{Failure, Step};
use crate::tally::Tally;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const MARK: &str = "hangar-vm: ";

/// The checks of a machine and their exit status.
#[derive(Debug, Default)]
pub struct Checks {
    ended: Vec<(String, String)>,
    begun: Option<String>,
    done: bool,
}

impl Checks {
    /// Takes in one line.
    pub fn read_line(&mut self, line: &str) {
        let Some(marked) = line.strip_prefix(MARK) else { return };
        let words: Vec<&str> = marked.split_whitespace().collect();
        match words[..] {
            ["begin", name] => self.begun = Some(name.to_owned()),
            ["end", name, status] => {
                self.begun = None;
                self.ended.push((name.to_owned(), status.to_owned()));
            }
            ["done"] => self.done = true,
            _ => {}
        }
    }

    /// Counts the checks. A machine that went away without telling that it is done counts as one
    /// failure more.
    pub fn tally(&self, machine: &str) -> Tally {
        let mut tally = Tally::default();
        for (name, status) in &self.ended {
            let result = match status.as_str() {
                "0" => Ok(()),
                other => Err(Failure::new(format!("the check ended with status {other}"))),
            };
            tally.check(&format!("vm {machine} {name}"), result);
        }
        if !self.done {
            let last = self.begun.as_deref().unwrap_or("its boot");
            let end = Failure::new(format!("the machine ended or was ended in {last}"));
            tally.check(&format!("vm {machine}"), Err(end));
        }
        tally
    }
}

/// A line without the carriage return and the control characters of a terminal.
pub fn plain(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).collect()
}

/// Kills a child that runs longer than it may.
pub struct Watch {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Watch {
    /// Starts watching.
    pub fn over(mut child: Child, longest: Duration) -> Self {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let (ended, changed) = &*told;
            let guard = ended.lock().expect("no holder panics");
            let (guard, wait) = changed
                .wait_timeout_while(guard, longest, |ended| !*ended)
                .expect("no holder panics");
            drop(guard);
            if wait.timed_out() {
                child.kill()?;
            }
            child.wait().map(drop)
        });
        Self { over, thread }
    }

    /// Waits for the child, which closed its output.
    ///
    /// # Errors
    /// When the child could not be killed or waited for.
    pub fn end(self) -> Result<(), Failure> {
        *self.over.0.lock().expect("no holder panics") = true;
        self.over.1.notify_all();
        self.thread
            .join()
            .expect("the watching thread does not panic")
            .step(|| "waiting for the emulator".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(lines: &[&str]) -> Tally {
        let mut checks = Checks::default();
        lines.iter().for_each(|line| checks.read_line(line));
        checks.tally("test")
    }

    #[test]
    fn counts_what_the_guest_tells() {
        let lines = [
            "hangar-vm: begin one",
            "noise",
            "hangar-vm: end one 0",
            "hangar-vm: begin two",
            "hangar-vm: end two 3",
            "hangar-vm: done",
        ];
        assert_eq!(checks(&lines), Tally { passed: 1, failed: 1 });
    }

    #[test]
    fn a_machine_that_goes_away_is_a_failure() {
        assert_eq!(checks(&[]), Tally { passed: 0, failed: 1 });
        assert_eq!(
            checks(&["hangar-vm: begin one", "hangar-vm: end one 0", "hangar-vm: begin two"]),
            Tally { passed: 1, failed: 1 }
        );
    }

    #[test]
    fn control_characters_are_left_out() {
        assert_eq!(plain(b"\x1b[2Jhangar-vm: done\r"), "[2Jhangar-vm: done");
        assert_eq!(plain(b"hangar-vm: done\r"), "hangar-vm: done");
    }
}
