//! The audit log: who asked for something that changes or starts anything, and who was refused.
//!
//! One JSON object a line, appended and brought to disk by a thread of its own. A full file is
//! renamed, and the oldest of those goes. Requests wait while many lines are waiting: none is
//! dropped. When the disk takes no line, the server's log gets it instead.

use serde::Serialize;
use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// Lines that may wait for the disk.
const WAITING_MAX: usize = 1024;
/// How long a file gets.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// How many full files are kept.
const FULL_FILES_MAX: u32 = 4;

/// One request.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// When it was answered, in milliseconds since 1970.
    pub time_ms: i64,
    /// The id of the request, as the caller got it.
    pub request: String,
    /// `local` or `remote`.
    pub peer: &'static str,
    /// Whose objects it was about; absent when nobody was let in.
    pub scope: Option<String>,
    /// The id of the token, of remote callers.
    pub token: Option<String>,
    /// The method.
    pub method: String,
    /// The path without the query, which can hold what is secret.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
    /// The code of a refusal.
    pub code: Option<&'static str>,
}

/// The way to the log. Without one, as in tests of other things, lines go nowhere.
#[derive(Debug, Default)]
pub struct Audit {
    sender: Option<mpsc::Sender<Entry>>,
}

impl Audit {
    /// Opens or makes the file and starts the thread that writes it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn start(path: PathBuf) -> io::Result<Self> {
        let mut log = Log::open(path)?;
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let write = move || {
            let mut entries = Vec::new();
            while receiver.blocking_recv_many(&mut entries, WAITING_MAX) > 0 {
                if let Err(error) = log.append(&entries) {
                    tracing::error!("the audit log was not written: {error}: {entries:?}");
                }
                entries.clear();
            }
        };
        std::thread::Builder::new().name("audit".to_owned()).spawn(write)?;
        Ok(Self { sender: Some(sender) })
    }

    /// Hands an entry over.
    pub async fn note(&self, entry: Entry) {
        if let Some(sender) = &self.sender
            && sender.send(entry).await.is_err()
        {
            tracing::error!("the thread of the audit log is gone");
        }
    }
}

struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Log {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = append_to(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes })
    }

    fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        if self.bytes >= FILE_BYTES_MAX {
            self.begin_anew()?;
        }
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        self.file.write_all(&lines)?;
        self.bytes += lines.len() as u64;
        self.file.sync_data()
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        for number in (1..FULL_FILES_MAX).rev() {
            match rename(numbered(&self.path, number), numbered(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        rename(&self.path, numbered(&self.path, 1))?;
        self.file = append_to(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    path.with_added_extension(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry {
            time_ms: 1,
            request: "r".into(),
            peer: "local",
            scope: Some("default".into()),
            token: None,
            method: "POST".into(),
            path: path.into(),
            status: 409,
            code: Some("environment_busy"),
        }
    }

    #[test]
    fn every_entry_is_a_line_of_json_and_survives_a_new_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        for name in ["/a", "/b\n{"] {
            Log::open(path.clone()).unwrap().append(&[entry(name)]).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["path"], "/a");
        assert_eq!(lines[1]["path"], "/b\n{");
        assert_eq!(lines[1]["code"], "environment_busy");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_full_file_is_kept_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut log = Log::open(path.clone()).unwrap();
        for round in 0..7 {
            log.append(&[entry(&format!("/{round}"))]).unwrap();
            log.bytes = FILE_BYTES_MAX;
        }
        let first_of = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            let first: serde_json::Value = serde_json::from_str(&text).unwrap();
            first["path"].as_str().unwrap().to_owned()
        };
        assert_eq!(first_of(&path), "/6");
        let kept: Vec<_> = (1..=4).map(|number| first_of(&numbered(&path, number))).collect();
        assert_eq!(kept, ["/5", "/4", "/3", "/2"]);
        assert!(!numbered(&path, 5).exists());
    }
}
