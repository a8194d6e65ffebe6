//! How far long work is, for somebody who watches a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two lines.
const EVERY: Duration = Duration::from_millis(200);

/// A line on standard error that is written again and again; nothing where that is no terminal.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    bytes: u64,
    last: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Nothing was done yet.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        let last = io::stderr().is_terminal().then(Instant::now);
        Self { what, bytes: 0, last, shown: false }
    }

    /// So many bytes more are done.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        let Some(last) = &mut self.last else { return };
        if last.elapsed() < EVERY {
            return;
        }
        *last = Instant::now();
        self.shown = true;
        // That it is not seen ends nothing.
        let _unread = write!(io::stderr(), "\r{} {}\x1b[K", self.what, human(self.bytes));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _unread = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A number of bytes as people read it.
#[must_use]
pub fn human(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
            (3 << 40, "3.0 TiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
