//! A: writing to the environment. The tree has `file` (0666), `open/` (0777) with `open/file`
//! (0666), `open/empty/` (0777), `open/victim-1` to `-7`, `link` to `file` and `lockfile` (0666), so file modes help nobody.

use crate::call;
use crate::report::Report;
use crate::sys::{self, Got, c, number, open};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Content of `file` as `hangar-probe prepare` writes it.
pub const CONTENT: u8 = b'p';
/// Its length: two pages, so that page tricks have a whole one.
pub const LENGTH: usize = 8192;

/// P001: overwrite and truncate.
pub fn overwrite(report: &Report) {
    for name in ["file", "open/file"] {
        let path = report.env(name);
        report.attempt(&format!("write {name}"), sys::write(&path, b"x"));
        report.attempt(&format!("append {name}"), {
            open(&path, libc::O_RDWR | libc::O_APPEND)
                .and_then(|fd| call!(libc::SYS_write, fd, &b"x"[..], 1))
        });
        report.attempt(&format!("open {name} O_TRUNC"), {
            open(&path, libc::O_RDONLY | libc::O_TRUNC)
        });
        report.attempt(&format!("truncate {name}"), call!(libc::SYS_truncate, &c(&path), 1));
    }
}

/// P002: create.
pub fn create(report: &Report) {
    let new = |name: &str| c(&report.env(&format!("open/{name}")));
    report.attempt("create a file", call!(libc::SYS_creat, &new("created"), 0o666));
    report.attempt("O_TMPFILE", open(&report.env("open"), libc::O_TMPFILE | libc::O_RDWR));
    report.attempt("mkdir", call!(libc::SYS_mkdir, &new("directory"), 0o777));
    report.attempt("mkfifo", call!(libc::SYS_mknod, &new("fifo"), libc::S_IFIFO | 0o666, 0));
    report.attempt("symlink", call!(libc::SYS_symlink, &c("/"), &new("symlink")));
    report.attempt("mknod of a device", {
        call!(libc::SYS_mknod, &new("device"), libc::S_IFCHR | 0o666, 0x103)
    });
    report.attempt("bind a socket", bind_path(&report.env("open/socket")));
}

/// Binds a Unix socket to a path.
pub fn bind_path(path: &str) -> Got<i64> {
    let address = unix_address(path.as_bytes());
    let fd = call!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    call!(libc::SYS_bind, fd, address.as_slice(), address.len() as u64)
}

/// `struct sockaddr_un`; a name that starts with NUL is abstract.
pub fn unix_address(name: &[u8]) -> Vec<u8> {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend(name);
    if name.first() != Some(&0) {
        address.push(0);
    }
    address
}

/// P003: delete and rename, also between the environment and the working directory. Each attempt
/// has a victim of its own, so that one that succeeds is not in the way of the next.
pub fn delete(report: &Report) {
    let victim = |number: u8| c(&report.env(&format!("open/victim-{number}")));
    let inside = |name: &str| c(&report.env(&format!("open/{name}")));
    let outside = |name: &str| c(&report.work(name));
    for name in ["mine", "mine-too"] {
        let _ = std::fs::write(report.work(name), b"mine");
    }
    let cwd = libc::AT_FDCWD;
    let exchange =
        |from: &CStr, to: &CStr, flags: i32| call!(libc::SYS_renameat2, cwd, from, cwd, to, flags);
    report.attempt("unlink", call!(libc::SYS_unlink, &victim(1)));
    report.attempt("rmdir", call!(libc::SYS_rmdir, &inside("empty")));
    report.attempt("rename inside", call!(libc::SYS_rename, &victim(2), &inside("renamed")));
    report.attempt("exchange inside", exchange(&victim(3), &victim(4), 2));
    report.attempt("whiteout inside", exchange(&victim(5), &inside("whited-out"), 4));
    report.attempt("rename out", call!(libc::SYS_rename, &victim(6), &outside("taken")));
    report.attempt("rename in", call!(libc::SYS_rename, &outside("mine"), &inside("planted")));
    report.attempt("exchange in and out", exchange(&outside("mine-too"), &victim(7), 2));
}

/// How many victims [`delete`] has.
pub const VICTIMS: u8 = 7;

/// P004: hard links out of and into the environment.
pub fn hard_link(report: &Report) {
    let links =
        || std::fs::metadata(report.env("file")).map(|m| std::os::unix::fs::MetadataExt::nlink(&m));
    let before = links().ok();
    let (file, cwd) = (c(&report.env("file")), libc::AT_FDCWD);
    let taken = |n: u8| c(&report.work(&format!("linked-{n}-{}", std::process::id())));
    report.attempt("link out", call!(libc::SYS_link, &file, &taken(1)));
    let fd = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    report.attempt("link out by descriptor", {
        call!(libc::SYS_linkat, fd, &c(""), cwd, &taken(2), libc::AT_EMPTY_PATH)
    });
    report.attempt("link out through proc", {
        let magic = c(&format!("/proc/self/fd/{fd}"));
        call!(libc::SYS_linkat, cwd, &magic, cwd, &taken(3), libc::AT_SYMLINK_FOLLOW)
    });
    let _ = std::fs::write(report.work("mine"), b"mine");
    report.attempt("link in", {
        call!(libc::SYS_link, &c(&report.work("mine")), &c(&report.env("open/mine")))
    });
    report.attempt("link inside", call!(libc::SYS_link, &file, &c(&report.env("open/twice"))));
    report.effect("link count changed", links().ok() != before, &format!("{before:?}"));
}

/// Mode, owner and times of every kind of name.
fn metadata(report: &Report) -> Vec<String> {
    ["", "file", "open", "open/file", "link"]
        .iter()
        .map(|name| {
            use std::os::unix::fs::MetadataExt;
            std::fs::symlink_metadata(report.env(name)).map_or_else(
                |error| format!("{name}: {error}"),
                |m| {
                    let times = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
                    format!("{name}: {:o} {} {} {times:?}", m.mode(), m.uid(), m.gid())
                },
            )
        })
        .collect()
}

/// P005: modes, owners and times of a file, a directory, a link and the root of the mount.
pub fn change_metadata(report: &Report) {
    let before = metadata(report);
    let (me, cwd) = (current_uid(), libc::AT_FDCWD);
    for (what, name) in [("file", "file"), ("directory", "open"), ("root", ""), ("link", "link")] {
        let path = c(&report.env(name));
        if what != "link" {
            report.attempt(&format!("chmod {what}"), call!(libc::SYS_chmod, &path, 0o777));
        }
        report.attempt(&format!("fchmodat2 {what}"), {
            call!(libc::SYS_fchmodat2, cwd, &path, 0o777, libc::AT_SYMLINK_NOFOLLOW)
        });
        report.attempt(&format!("lchown {what}"), call!(libc::SYS_lchown, &path, me, me));
        report.attempt(&format!("utimensat {what}"), {
            let times = [0_u8; 32];
            call!(libc::SYS_utimensat, cwd, &path, &times[..], libc::AT_SYMLINK_NOFOLLOW)
        });
    }
    let fd = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    report.attempt("fchmod by descriptor", call!(libc::SYS_fchmod, fd, 0o777));
    report.attempt("fchown by descriptor", call!(libc::SYS_fchown, fd, me, me));
    report.attempt("futimens to now by descriptor", call!(libc::SYS_utimensat, fd, 0, 0, 0));
    let after = metadata(report);
    report.effect("metadata changed", before != after, "");
}

/// The effective uid.
pub fn current_uid() -> u32 {
    // SAFETY: takes and touches nothing.
    unsafe { libc::geteuid() }
}

/// P006: extended attributes.
pub fn attributes(report: &Report) {
    let file = c(&report.env("file"));
    let set = |name: &str, value: &[u8]| {
        call!(libc::SYS_setxattr, &file, &c(name), value, value.len() as u64, 0)
    };
    report.attempt("user attribute", set("user.probe", b"x"));
    report.attempt("security.capability", set("security.capability", &CAPABILITY));
    report.attempt("trusted attribute", set("trusted.overlay.opaque", b"y"));
    report.attempt("access list", set("system.posix_acl_access", &EVERYBODY_MAY));
    report.attempt("setxattrat", {
        let value = b"x";
        let mut arguments = (value.as_ptr() as u64).to_ne_bytes().to_vec();
        arguments.extend(1_u32.to_ne_bytes());
        arguments.extend(0_u32.to_ne_bytes());
        let name = c("user.probe");
        call!(number::SETXATTRAT, libc::AT_FDCWD, &file, 0, &name, arguments.as_slice(), 16)
    });
    report.attempt("removexattr", call!(libc::SYS_removexattr, &file, &c("user.planted")));
}

/// `cap_sys_admin=ep`, version 2.
pub const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// An access list: version 2; owner, group, other, each rwx.
const EVERYBODY_MAY: [u8; 28] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0, 255, 255, 255, 255, 32, 0, 7, 0, 255,
    255, 255, 255,
];

/// P007: inode flags and file system ioctls through a descriptor for reading.
pub fn inode_flags(report: &Report) {
    let fd = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    let root = open(&report.env(""), libc::O_RDONLY).unwrap_or(-1);
    let ioctl = |fd: RawFd, request: u32, size: usize| {
        let mut argument = vec![0_u8; size];
        call!(libc::SYS_ioctl, fd, request, argument.as_mut_slice())
    };
    let mut nodump = [0_u8; 8];
    nodump[0] = 0x40;
    report.attempt("FS_IOC_SETFLAGS", call!(libc::SYS_ioctl, fd, 0x4008_6602, &nodump[..]));
    report.attempt("FS_IOC_FSSETXATTR", ioctl(fd, 0x401c_5820, 28));
    report.attempt("FS_IOC_ENABLE_VERITY", {
        let mut argument = [0_u8; 128];
        argument[..12].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 16, 0, 0]);
        call!(libc::SYS_ioctl, fd, 0x4080_6685_u32, argument.as_mut_slice())
    });
    report.attempt("FIFREEZE", ioctl(root, 0xc004_5877, 4));
    report.attempt("FITRIM", ioctl(root, 0xc018_5879, 24));
    report.attempt("EXT4_IOC_MIGRATE", ioctl(fd, 0x6609, 8));
    report.attempt("EXT4_IOC_RESIZE_FS", ioctl(root, 0x4008_6610, 8));
    report.attempt("FS_IOC_SETFSLABEL", ioctl(root, 0x4100_9432, 256));
    report.attempt("file_setattr", {
        let argument = [0_u8; 24];
        let file = c(&report.env("file"));
        call!(number::FILE_SETATTR, libc::AT_FDCWD, &file, &argument[..], 24, 0)
    });
}

/// P008: from a descriptor for reading to one for writing.
pub fn reopen(report: &Report) {
    let fd = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    let magic = format!("/proc/self/fd/{fd}");
    report.attempt("open through proc", open(&magic, libc::O_RDWR));
    report.attempt("openat2 through proc", {
        let mut how = (libc::O_RDWR as u64).to_ne_bytes().to_vec();
        how.extend([0; 16]);
        call!(libc::SYS_openat2, libc::AT_FDCWD, &c(&magic), how.as_slice(), 24)
    });
    let _ = call!(libc::SYS_fcntl, fd, libc::F_SETFL, libc::O_RDWR);
    report.attempt("write after F_SETFL", call!(libc::SYS_write, fd, &b"x"[..], 1));
    let path_only = open(&report.env("file"), libc::O_PATH).unwrap_or(-1);
    report.attempt("reopen O_PATH", open(&format!("/proc/self/fd/{path_only}"), libc::O_WRONLY));
}

fn content_changed(report: &Report) -> bool {
    sys::read(&report.env("file"), LENGTH).is_ok_and(|bytes| bytes.iter().any(|b| *b != CONTENT))
}

/// P009: through a mapping.
pub fn map(report: &Report) {
    let fd = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    let shared =
        |protection: i32| call!(libc::SYS_mmap, 0, 4096, protection, libc::MAP_SHARED, fd, 0);
    report.attempt("map shared for writing", shared(libc::PROT_READ | libc::PROT_WRITE));
    report.attempt("mprotect a shared mapping", {
        shared(libc::PROT_READ)
            .and_then(|at| call!(libc::SYS_mprotect, at, 4096, libc::PROT_READ | libc::PROT_WRITE))
    });
    let written = call!(libc::SYS_mmap, 0, 4096, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0)
        .and_then(|at| {
            let memory = open("/proc/self/mem", libc::O_RDWR)?;
            call!(libc::SYS_pwrite64, memory, &b"changed"[..], 7, at)
        });
    // Writing the private copy may work; the file must not see it.
    report.effect(
        "file changed through /proc/self/mem",
        content_changed(report),
        &format!("{written:?}"),
    );
    report.attempt("process_madvise", {
        let pidfd = call!(libc::SYS_pidfd_open, std::process::id(), 0).unwrap_or(-1);
        let vector = [0_u8; 16];
        call!(libc::SYS_process_madvise, pidfd, &vector[..], 1, 20, 0)
    });
}

/// P010: copying inside the kernel to a descriptor for reading.
pub fn zero_copy(report: &Report) {
    let target = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    let source = open(&report.env("open/file"), libc::O_RDONLY).unwrap_or(-1);
    let _ = std::fs::write(report.work("bytes"), [b'x'; LENGTH]);
    let mine = open(&report.work("bytes"), libc::O_RDONLY).unwrap_or(-1);
    let (reader, writer) = sys::pipe().unwrap_or((-1, -1));
    let _ = call!(libc::SYS_write, writer, &[b'x'; 16][..], 16);
    report.attempt("splice", call!(libc::SYS_splice, reader, 0, target, 0, 16, 0));
    report.attempt("vmsplice", {
        let page = vec![b'x'; 4096];
        let mut vector = (page.as_ptr() as u64).to_ne_bytes().to_vec();
        vector.extend(16_u64.to_ne_bytes());
        call!(libc::SYS_vmsplice, writer, vector.as_slice(), 1, 0)
    });
    report.attempt("sendfile", call!(libc::SYS_sendfile, target, mine, 0, 16));
    report.attempt("copy_file_range", {
        call!(libc::SYS_copy_file_range, mine, 0, target, 0, 16, 0)
    });
    report.attempt("FICLONE", call!(libc::SYS_ioctl, target, 0x4004_9409, source));
    report.attempt("FICLONERANGE", {
        let mut range = i64::from(source).to_ne_bytes().to_vec();
        range.extend([0; 24]);
        call!(libc::SYS_ioctl, target, 0x4020_940d, range.as_slice())
    });
    report.attempt("FIDEDUPERANGE", deduplicate(source, target));
    report.effect("file changed", content_changed(report), "");
}

/// Asks to make a range of `target` share the blocks of `source`; the answer is in the argument.
fn deduplicate(source: RawFd, target: RawFd) -> Got<i64> {
    let mut argument = vec![0_u8; 56];
    argument[8..16].copy_from_slice(&4096_u64.to_ne_bytes());
    argument[16..18].copy_from_slice(&1_u16.to_ne_bytes());
    argument[24..32].copy_from_slice(&i64::from(target).to_ne_bytes());
    call!(libc::SYS_ioctl, source, 0xc018_9436_u32, argument.as_mut_slice())?;
    let status = i32::from_ne_bytes([argument[48], argument[49], argument[50], argument[51]]);
    if status < 0 { Err(sys::Errno(-status)) } else { Ok(i64::from(status)) }
}

/// P011: Dirty Pipe. A pipe whose buffers were all filled and drained once keeps their "may be
/// appended to" flag on old kernels; a spliced page of a file then takes what is written next.
pub fn dirty_pipe(report: &Report) {
    let fd = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    let spliced = sys::pipe().and_then(|(reader, writer)| {
        let capacity = call!(libc::SYS_fcntl, writer, libc::F_GETPIPE_SZ)?;
        let mut page = vec![0_u8; 4096];
        for _ in 0..capacity / 4096 {
            call!(libc::SYS_write, writer, page.as_slice(), 4096)?;
        }
        for _ in 0..capacity / 4096 {
            call!(libc::SYS_read, reader, page.as_mut_slice(), 4096)?;
        }
        let mut offset = 1_u64.to_ne_bytes();
        call!(libc::SYS_splice, fd, offset.as_mut_slice(), writer, 0, 1, 0)?;
        call!(libc::SYS_write, writer, &b"dirty"[..], 5)
    });
    report.effect("file changed through a pipe", content_changed(report), &format!("{spliced:?}"));
}

/// P012: reads the environment, for the host to compare with what is recorded.
pub fn read_everything(report: &Report) {
    let mut pending = vec![report.options.environment.clone()];
    let (mut files, mut bytes, mut sum) = (0_u64, 0_u64, 0xcbf2_9ce4_8422_2325_u64);
    while let Some(directory) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                pending.push(path.to_string_lossy().into_owned());
            } else if metadata.is_file() {
                let content = std::fs::read(&path).unwrap_or_default();
                files += 1;
                bytes += content.len() as u64;
                for byte in content {
                    sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
    }
    report.fact("read everything", &format!("files={files} bytes={bytes} fnv1a={sum:016x}"));
}
