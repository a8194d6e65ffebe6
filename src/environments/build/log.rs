//! The log of a build: a file that grows, and a way to wait for its growth.

use crate::app::blocking;
use hangar_runtime::ids::{EnvironmentId, VersionNumber};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

type Key = (EnvironmentId, VersionNumber);

/// The logs that grow now, with their lengths.
#[derive(Debug, Clone, Default)]
pub struct GrowingLogs {
    lengths: Arc<Mutex<HashMap<Key, watch::Sender<u64>>>>,
}

impl GrowingLogs {
    /// The length of a log that still grows, to be waited on.
    #[must_use]
    pub fn length(
        &self,
        id: &EnvironmentId,
        number: VersionNumber,
    ) -> Option<watch::Receiver<u64>> {
        let lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        Some(lengths.get(&(id.clone(), number))?.subscribe())
    }

    /// Begins a log.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn begin(
        &self,
        directory: &Path,
        id: &EnvironmentId,
        number: VersionNumber,
        bytes_max: u64,
    ) -> std::io::Result<BuildLog> {
        let path = path(directory, id, number);
        std::fs::create_dir_all(path.parent().expect("it lies in a directory"))?;
        let file = Arc::new(File::options().append(true).create(true).open(path)?);
        let key = (id.clone(), number);
        let length = watch::Sender::new(0);
        let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        lengths.insert(key.clone(), length.clone());
        Ok(BuildLog { logs: self.clone(), key, file, length, bytes_max })
    }
}

/// Where the log of a build is.
#[must_use]
pub fn path(directory: &Path, id: &EnvironmentId, number: VersionNumber) -> PathBuf {
    directory.join(id.as_str()).join(format!("{number}.log"))
}

/// The log of a build that runs. It is complete when this is dropped.
#[derive(Debug)]
pub struct BuildLog {
    logs: GrowingLogs,
    key: Key,
    file: Arc<File>,
    length: watch::Sender<u64>,
    bytes_max: u64,
}

/// What stands where a log was cut.
const CUT: &[u8] = b"\n[hangar: the log has reached its limit; the rest is left out]\n";

impl BuildLog {
    /// Adds bytes as an installer wrote them. Beyond the limit they are left out, which the log
    /// says once.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn append(&self, mut bytes: Vec<u8>) -> std::io::Result<()> {
        let before = *self.length.borrow();
        if before >= self.bytes_max {
            return Ok(());
        }
        if before + bytes.len() as u64 >= self.bytes_max {
            bytes.truncate(usize::try_from(self.bytes_max - before).unwrap_or(usize::MAX));
            bytes.extend_from_slice(CUT);
        }
        self.write(bytes).await
    }

    /// Adds a line of our own, beyond the limit too: it may be the reason why the build failed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn note(&self, line: &str) -> std::io::Result<()> {
        self.write(format!("{line}\n").into_bytes()).await
    }

    async fn write(&self, bytes: Vec<u8>) -> std::io::Result<()> {
        let (file, length) = (Arc::clone(&self.file), bytes.len() as u64);
        blocking(move || (&*file).write_all(&bytes)).await?;
        self.length.send_modify(|all| *all += length);
        Ok(())
    }
}

impl Drop for BuildLog {
    fn drop(&mut self) {
        let mut lengths = self.logs.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        lengths.remove(&self.key);
        self.length.send_modify(|_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_grows_to_its_limit_and_says_so_once() {
        let dir = tempfile::tempdir().unwrap();
        let id = EnvironmentId::parse(&format!("henv_{}", "1".repeat(32))).unwrap();
        let number = VersionNumber::new(1).unwrap();
        let logs = GrowingLogs::default();
        let log = logs.begin(dir.path(), &id, number, 10).unwrap();
        let mut length = logs.length(&id, number).unwrap();
        log.append(b"12345".to_vec()).await.unwrap();
        length.changed().await.unwrap();
        assert_eq!(*length.borrow_and_update(), 5);
        log.append(b"6789012345".to_vec()).await.unwrap();
        log.append(b"more".to_vec()).await.unwrap();
        log.note("failed: for a reason").await.unwrap();
        drop(log);
        assert!(logs.length(&id, number).is_none(), "it is complete");
        let bytes = std::fs::read(path(dir.path(), &id, number)).unwrap();
        assert_eq!(bytes, [&b"1234567890"[..], CUT, b"failed: for a reason\n"].concat());
    }
}
