//! Strong validators of files: digests of what is in them, computed once for each.

use crate::app::hex;
use hangar_runtime::ids::EnvironmentId;
use rustix::fs::{Stat, fstat};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// How many tags are remembered; with one more all are forgotten.
const REMEMBERED_MAX: usize = 4096;
/// How old a change must be before the times of a file tell it from one that took its place.
const SETTLED_NS: i128 = 2_000_000_000;

/// A file as the kernel tells it from others, its last change included.
type Identity = (u64, i64, i128, i128);

/// Tags that were computed.
#[derive(Debug, Default)]
pub struct Tags {
    known: Mutex<HashMap<(EnvironmentId, Identity), String>>,
}

impl Tags {
    /// The tag of a file that nobody changes in place: its digest, quoted.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of(&self, id: &EnvironmentId, file: &File) -> std::io::Result<String> {
        let stat = fstat(file)?;
        let key = (id.clone(), identity(&stat));
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tag) = lock().get(&key) {
            return Ok(tag.clone());
        }
        let tag = format!("\"{}\"", digest(file)?);
        // An inode can be used again at once; within one tick of the clock it looks the same.
        if now_ns() - change_ns(&stat) > SETTLED_NS {
            let mut known = lock();
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
            known.insert(key, tag.clone());
        }
        Ok(tag)
    }
}

fn identity(stat: &Stat) -> Identity {
    let modified = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    (stat.st_ino, stat.st_size, modified, change_ns(stat))
}

fn change_ns(stat: &Stat) -> i128 {
    i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec)
}

fn now_ns() -> i128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i128::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(i128::MAX)
}

/// Reads by position, so that the file is still at its beginning for whoever sends it.
fn digest(file: &File) -> std::io::Result<String> {
    let mut digest = Sha256::new();
    let (mut buffer, mut offset) = (vec![0; 256 << 10], 0);
    loop {
        let read = file.read_at(&mut buffer, offset)?;
        if read == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&buffer[..read]);
        offset += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_tag_is_of_the_content_and_moves_nothing() {
        let id = EnvironmentId::parse(&format!("henv_{}", "1".repeat(32))).unwrap();
        let tags = Tags::default();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one").unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let first = tags.of(&id, &file).unwrap();
        assert_eq!(first.len(), 66);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
        file.write_all(b"two").unwrap();
        assert_ne!(tags.of(&id, &file).unwrap(), first, "a young file is never remembered");
    }
}
