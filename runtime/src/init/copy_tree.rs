//! Copying a tree inside a session, as its user, without any program of the toolchain.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, fstat, futimens,
    mkdirat, openat, readlinkat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

/// Copies regular files, directories and links from one directory into another.
///
/// The source is read-only while it is copied. Times and the executable bit are kept.
pub(super) fn copy_tree(from: &[u8], to: &[u8], skip: &[Vec<u8>]) -> Result<u64, String> {
    let source = open_directory(CWD, from).map_err(|e| failed("open", from, e))?;
    match mkdirat(CWD, to, Mode::from(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed("mkdir", to, errno)),
    }
    let target = open_directory(CWD, to).map_err(|e| failed("open", to, e))?;
    let mut count = 0;
    // Directories still to be copied: two descriptors each, so the depth of the tree is bounded
    // by the limit of open files, and an error says so.
    let mut pending = vec![(source, target, Vec::new())];
    while let Some((source, target, path)) = pending.pop() {
        for entry in Dir::read_from(&source).map_err(|e| failed("list", &path, e))? {
            let entry = entry.map_err(|e| failed("list", &path, e))?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if bytes == b"." || bytes == b".." || skip.iter().any(|skipped| skipped == bytes) {
                continue;
            }
            let inner = [&path, &b"/"[..], bytes].concat();
            match copy_entry(&source, &target, name).map_err(|e| failed("copy", &inner, e))? {
                Copied::Directory(source, target) => pending.push((source, target, inner)),
                Copied::File => count += 1,
            }
        }
    }
    Ok(count)
}

enum Copied {
    File,
    Directory(OwnedFd, OwnedFd),
}

fn copy_entry(source: &OwnedFd, target: &OwnedFd, name: &CStr) -> Result<Copied, Errno> {
    let stat = statat(source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let times = Timestamps {
        last_access: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            match mkdirat(target, name, Mode::from(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            let pair = (
                open_directory(source, name.to_bytes())?,
                open_directory(target, name.to_bytes())?,
            );
            Ok(Copied::Directory(pair.0, pair.1))
        }
        FileType::Symlink => {
            let link = readlinkat(source, name, Vec::new())?;
            symlinkat(link, target, name)?;
            utimensat(target, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(Copied::File)
        }
        FileType::RegularFile => {
            copy_file(source, target, name, stat.st_mode, &times)?;
            Ok(Copied::File)
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn copy_file(
    source: &OwnedFd,
    target: &OwnedFd,
    name: &CStr,
    mode: u32,
    times: &Timestamps,
) -> Result<(), Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = openat(source, name, OFlags::RDONLY | OFlags::NONBLOCK | flags, Mode::empty())?;
    let into = openat(
        target,
        name,
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | flags,
        Mode::from(0o644),
    )?;
    let size = fstat(&from)?.st_size;
    let mut done = 0;
    while done < size {
        match rustix::fs::copy_file_range(&from, None, &into, None, (size - done) as usize) {
            Ok(0) => break,
            Ok(n) => done += n as i64,
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                copy_bytes(&from, &into)?;
                break;
            }
            Err(errno) => return Err(errno),
        }
    }
    fchmod(&into, Mode::from(if mode & 0o111 == 0 { 0o644 } else { 0o755 }))?;
    futimens(&into, times)
}

fn copy_bytes(from: &OwnedFd, into: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = rustix::io::read(from, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let written = rustix::io::write(into, rest)?;
            rest = &rest[written..];
        }
    }
}

fn open_directory(at: impl std::os::fd::AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn failed(call: &str, path: &[u8], errno: Errno) -> String {
    format!("cannot {call} {}: {errno}", String::from_utf8_lossy(path))
}
