//! The state directory as far as the API needs it: made by root, owned as decided.

use super::ServeError;
use crate::api::auth::token_digest;
use crate::app::{hex, random_hex};
use hangar_runtime::ids::Range;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid, chmodat, chownat, flock, mkdirat, openat,
    statat,
};
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The state directory, made and open.
#[derive(Debug)]
pub(super) struct StateDirectory {
    /// Absolute.
    pub(super) path: PathBuf,
}

/// Makes the directory and the parts the API touches; what exists keeps its content.
pub(super) fn prepare(dir: &Path, range: Range) -> Result<StateDirectory, ServeError> {
    std::fs::create_dir_all(dir).map_err(|e| ServeError::step("making the state directory", e))?;
    let path =
        dir.canonicalize().map_err(|e| ServeError::step("finding the state directory", e))?;
    let api = range.api();
    own(&path, 0, api, 0o710)?;
    for (name, uid, gid, mode) in [
        ("run", 0, api, 0o710),
        ("api", api, api, 0o700),
        ("api/sources", api, api, 0o700),
        ("api/uploads", api, api, 0o700),
        ("api/logs", api, api, 0o700),
    ] {
        let below = path.join(name);
        match mkdirat(CWD, &below, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(ServeError::step(format!("making {name}"), errno)),
        }
        own(&below, uid, gid, mode)?;
    }
    Ok(StateDirectory { path })
}

fn own(path: &Path, uid: u32, gid: u32, mode: u32) -> Result<(), ServeError> {
    let fail = |errno| ServeError::step(format!("owning {}", path.display()), errno);
    let kind = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?.st_mode;
    if rustix::fs::FileType::from_raw_mode(kind) != rustix::fs::FileType::Directory {
        return Err(fail(Errno::NOTDIR));
    }
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
    chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty()).map_err(fail)
}

/// One server for each state directory. The kernel lets go of the lock when the process ends.
pub(super) fn lock(dir: &Path) -> Result<OwnedFd, ServeError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(CWD, dir.join("run/api.lock"), flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| ServeError::step("opening the server's lock", errno))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(ServeError::InUse),
        Err(errno) => Err(ServeError::step("taking the server's lock", errno)),
    }
}

/// The first token: made once, for root only. The API gets its digest, never the token.
pub(super) fn token(dir: &Path, range: Range) -> Result<[u8; 32], ServeError> {
    let path = dir.join("token");
    let fail = |e: std::io::Error| ServeError::step("making the token", e);
    let token = match std::fs::read_to_string(&path) {
        Ok(token) if !token.trim().is_empty() => token.trim().to_owned(),
        Ok(_) => return Err(ServeError::step("reading the token", "the file is empty")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let token = format!("hangar_{}{}", random_hex(), random_hex());
            write_whole(&path, &token).map_err(fail)?;
            token
        }
        Err(error) => return Err(ServeError::step("reading the token", error)),
    };
    let digest = token_digest(&token);
    let copy = dir.join("api/token.sha256");
    write_whole(&copy, &hex(&digest)).map_err(fail)?;
    let api = range.api();
    chownat(
        CWD,
        &copy,
        Some(Uid::from_raw(api)),
        Some(Gid::from_raw(api)),
        AtFlags::SYMLINK_NOFOLLOW,
    )
    .map_err(|errno| ServeError::step("owning the token's digest", errno))?;
    Ok(digest)
}

/// Writes a file that is whole under its name or not there.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension(format!("new-{}", random_hex()));
    let mut file =
        std::fs::File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(temporary, path)
}

/// The digest an earlier start as root left for the API.
pub(super) fn stored_token_digest(dir: &Path) -> Option<[u8; 32]> {
    let text = std::fs::read_to_string(dir.join("api/token.sha256")).ok()?;
    let text = text.trim();
    let bytes: Option<Vec<u8>> =
        (0..32).map(|i| u8::from_str_radix(text.get(i * 2..i * 2 + 2)?, 16).ok()).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn directories_and_token_have_their_owners() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let range = Range::default();
        let state = prepare(&dir.path().join("deep/state"), range).unwrap();
        let at = |name: &str| {
            let meta = std::fs::metadata(state.path.join(name)).unwrap();
            (meta.uid(), meta.gid(), meta.permissions().mode() & 0o7777)
        };
        let digest = token(&state.path, range).unwrap();
        assert_eq!(at(""), (0, range.api(), 0o710));
        assert_eq!(at("run"), (0, range.api(), 0o710));
        assert_eq!(at("api"), (range.api(), range.api(), 0o700));
        assert_eq!(at("token"), (0, 0, 0o600));
        assert_eq!(at("api/token.sha256"), (range.api(), range.api(), 0o600));
        // A second start changes nothing.
        prepare(&state.path, range).unwrap();
        assert_eq!(token(&state.path, range).unwrap(), digest);
        assert_eq!(stored_token_digest(&state.path), Some(digest));
    }

    #[test]
    fn a_state_directory_has_one_server() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let state = prepare(dir.path(), Range::default()).unwrap();
        let held = lock(&state.path).unwrap();
        assert!(matches!(lock(&state.path), Err(ServeError::InUse)));
        drop(held);
        lock(&state.path).unwrap();
    }

    #[test]
    fn a_link_in_place_of_a_part_is_refused() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("api")).unwrap();
        assert!(prepare(dir.path(), Range::default()).is_err());
    }
}
