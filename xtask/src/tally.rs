//! Counting what passed and what failed.

use crate::failure::Failure;
use std::fmt;

/// How many checks passed and failed; displayed as the closing line of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Checks that held.
    pub passed: u32,
    /// Checks that did not.
    pub failed: u32,
}

impl Tally {
    /// Counts one check and prints why it failed.
    pub fn check(&mut self, name: &str, result: Result<(), Failure>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(failure) => {
                println!("FAILED {name}\n{}", failure.chain());
                self.failed += 1;
            }
        }
    }

    /// Counts what another tally counted.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Counts what a line tells, if it is the closing line of nextest or of one cargo test binary:
    /// `Summary [ 1.2s] 9 tests run: 8 passed, 1 failed, 0 skipped` or
    /// `test result: ok. 8 passed; 0 failed; …`. nextest repeats the latter, indented, for each
    /// test that failed.
    pub fn read_line(&mut self, line: &str) {
        let summary = line.trim_start().strip_prefix("Summary [");
        let counts = match (line.strip_prefix("test result: "), summary) {
            (Some(result), _) => result,
            (_, Some(summary)) => summary.split_once("run: ").map_or("", |(_, counts)| counts),
            _ => return,
        };
        let words: Vec<&str> = counts.split_whitespace().collect();
        for pair in words.windows(2) {
            let (Ok(count), what) = (pair[0].parse::<u32>(), pair[1].trim_matches([',', ';']))
            else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                // nextest counts a test that ended in another bad way beside the failed ones.
                "exec" | "timed" => self.failed += count,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read_line(line));
        tally
    }

    #[test]
    fn reads_the_closing_lines_of_both_runners() {
        let cargo = "test result: FAILED. 8 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(of(&[cargo, cargo]), Tally { passed: 16, failed: 2 });
        let nextest = "     Summary [   1.204s] 12 tests run: 9 passed (1 slow), 1 failed, 2 timed out, 3 skipped";
        assert_eq!(of(&[nextest]), Tally { passed: 9, failed: 3 });
    }

    #[test]
    fn other_lines_count_nothing() {
        let repeated = "    test result: FAILED. 0 passed; 1 failed; 0 ignored";
        let lines = ["5 passed, 5 failed", "test a ... ok", "        PASS [ 0.1s] x", repeated];
        assert_eq!(of(&lines), Tally::default());
    }
}
