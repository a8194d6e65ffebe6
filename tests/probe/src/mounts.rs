//! B: mounts, namespaces, special files.

use crate::call;
use crate::report::Report;
use crate::sys::{self, Got, c, number, open};

/// Targets of `/proc/self/mountinfo`.
pub fn mount_targets() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
}

fn mount(source: &str, target: &str, kind: &str, flags: u64, data: &str) -> Got<i64> {
    call!(libc::SYS_mount, &c(source), &c(target), &c(kind), flags, &c(data))
}

/// `struct mount_attr`: set, clear, propagation, user namespace.
fn mount_attr(set: u64, clear: u64) -> Vec<u8> {
    [set, clear, 0, 0].iter().flat_map(|value| value.to_ne_bytes()).collect()
}

const MOUNT_ATTR_RDONLY: u64 = 1;
const AT_RECURSIVE: i32 = 0x8000;
const OPEN_TREE_CLONE: i32 = 1;

/// P013: makes the read-only mount writable.
pub fn remount(report: &Report) {
    let env = report.options.environment.clone();
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_NOSUID | libc::MS_NODEV;
    report.attempt("remount the bind", mount("none", &env, "none", flags, ""));
    report.attempt("remount the file system", mount("none", &env, "none", libc::MS_REMOUNT, ""));
    let attr = mount_attr(0, MOUNT_ATTR_RDONLY);
    report.attempt("mount_setattr", {
        call!(libc::SYS_mount_setattr, -100, &c(&env), AT_RECURSIVE, attr.as_slice(), 32)
    });
    report.attempt("write afterwards", sys::write(&report.env("file"), b"p"));
}

/// P014: takes mounts away to see what is below.
pub fn unmount(report: &Report) {
    let umount = |target: &str| call!(libc::SYS_umount2, &c(target), libc::MNT_DETACH);
    report.attempt("umount the environment", umount(&report.options.environment));
    let targets = mount_targets();
    let mask = targets.iter().find(|target| target.starts_with("/proc/"));
    report.attempt("umount a mask", umount(mask.map_or("/proc/keys", String::as_str)));
    let all: Vec<_> = targets.into_iter().map(|target| (target.clone(), umount(&target))).collect();
    report.all("umount every mount", &all);
}

/// P015: copies the mount and makes the copy writable.
pub fn clone_tree(report: &Report) {
    let env = c(&report.options.environment);
    let tree = call!(libc::SYS_open_tree, -100, &env, OPEN_TREE_CLONE);
    report.attempt("open_tree", tree);
    let attr = mount_attr(0, MOUNT_ATTR_RDONLY);
    report.attempt("open_tree_attr", {
        call!(number::OPEN_TREE_ATTR, -100, &env, OPEN_TREE_CLONE, attr.as_slice(), 32)
    });
    let fd = tree.unwrap_or(-1);
    report.attempt("mount_setattr of the copy", {
        call!(libc::SYS_mount_setattr, fd, &c(""), libc::AT_EMPTY_PATH, attr.as_slice(), 32)
    });
    report.attempt("move_mount onto the working directory", {
        call!(libc::SYS_move_mount, fd, &c(""), -100, &c(&report.options.workspace), 4)
    });
}

/// P016: mounts over what others trust.
pub fn mount_over(report: &Report) {
    let (env, work) = (report.options.environment.clone(), report.options.workspace.clone());
    report.attempt("overlay with the environment as upper", {
        let data = format!("lowerdir=/usr,upperdir={env}/open,workdir={env}/open/empty");
        mount("overlay", &work, "overlay", 0, &data)
    });
    for target in [env.as_str(), "/opt", "/usr"] {
        let name = if target == env { "the environment" } else { target };
        report.attempt(&format!("tmpfs over {name}"), mount("none", target, "tmpfs", 0, ""));
        report
            .attempt(&format!("bind over {name}"), mount(&work, target, "none", libc::MS_BIND, ""));
    }
    let _ = std::fs::write(report.work("preload"), b"");
    report.attempt("bind over a file of /etc", {
        mount(&report.work("preload"), "/etc/passwd", "none", libc::MS_BIND, "")
    });
}

/// P017: a mount that would show outside.
pub fn propagate(report: &Report) {
    let target = report.work("propagated");
    let _ = std::fs::create_dir(&target);
    report.attempt("tmpfs in the working directory", mount("none", &target, "tmpfs", 0, ""));
    report.child("the same in nested namespaces", {
        sys::in_child(|| {
            call!(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
            mount("none", &target, "tmpfs", 0, "").map(|_| String::new())
        })
    });
}

/// P018: a user namespace of one's own, with all capabilities in it.
pub fn nested_user_namespace(report: &Report) {
    let namespace = libc::CLONE_NEWUSER;
    let unshare = || call!(libc::SYS_unshare, namespace).map(|_| String::new());
    report.child("unshare", sys::in_child(unshare));
    report.attempt(
        "clone",
        cloned(|| call!(libc::SYS_clone, namespace as u64 | libc::SIGCHLD as u64, 0, 0, 0, 0)),
    );
    let mut arguments = vec![0_u8; 88];
    arguments[..8].copy_from_slice(&(namespace as u64).to_ne_bytes());
    arguments[32..40].copy_from_slice(&(libc::SIGCHLD as u64).to_ne_bytes());
    report.attempt("clone3", cloned(|| call!(libc::SYS_clone3, arguments.as_slice(), 88)));
    report.child("setns to the own one", {
        sys::in_child(|| {
            let fd = open("/proc/self/ns/user", libc::O_RDONLY)?;
            call!(libc::SYS_setns, fd, namespace).map(|_| String::new())
        })
    });
}

/// A call that returns twice; the child ends at once.
fn cloned(call: impl FnOnce() -> Got<i64>) -> Got<i64> {
    let child = call()?;
    if child == 0 {
        // SAFETY: leaves without running anything of the parent's.
        unsafe { libc::_exit(0) }
    }
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(child as i32, std::ptr::null_mut(), 0) };
    Ok(child)
}

/// P019: new file systems through the new mount calls (CVE-2022-0185).
pub fn new_file_systems(report: &Report) {
    for kind in ["ext4", "overlay", "proc", "cgroup2", "tmpfs"] {
        report.attempt(&format!("fsopen {kind}"), call!(libc::SYS_fsopen, &c(kind), 0));
    }
    let long = "x".repeat(4095);
    let context = call!(libc::SYS_fsopen, &c("tmpfs"), 0).unwrap_or(-1);
    report.attempt("fsconfig with a long value", {
        call!(libc::SYS_fsconfig, context, 1, &c("source"), &c(&long), 0)
    });
    report.attempt("fspick", call!(libc::SYS_fspick, -100, &c("/"), 0));
}

/// Prints uid, effective uid, effective capabilities and `AT_SECURE`: what `setuid` and `filecap`
/// say when they are run.
pub fn show_identity() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(",")
    };
    // SAFETY: reads the auxiliary vector the kernel gave this process.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) };
    println!("{} {} {secure}", field("Uid:"), field("CapEff:"));
}

/// Runs a planted program; what it gained.
pub fn run_planted(report: &Report, attempt: &str, path: &str) {
    let own = identity("/proc/self/exe");
    match identity(path) {
        Ok(got) => report.effect(attempt, own.as_ref().ok() != Some(&got), &got),
        Err(errno) => report.attempt::<()>(attempt, Err(errno)),
    }
}

fn identity(program: &str) -> Got<String> {
    let output = std::process::Command::new(program).arg("show-identity").output();
    let output = output.map_err(|error| sys::errno(&error))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// P020: setuid programs.
pub fn setuid_programs(report: &Report) {
    run_planted(report, "setuid program in the environment", &report.env("setuid"));
    let mine = report.work("setuid");
    let copied = std::fs::copy("/proc/self/exe", &mine);
    let marked =
        copied.map_err(|e| sys::errno(&e)).and_then(|_| call!(libc::SYS_chmod, &c(&mine), 0o4755));
    report.attempt("make one in the working directory", marked);
    run_planted(report, "run it", &mine);
}

/// P021: device nodes.
pub fn device_nodes(report: &Report) {
    let pid = std::process::id();
    for directory in [report.options.workspace.as_str(), "/tmp", "/dev", "/dev/shm"] {
        let name = if directory == report.options.workspace { "workspace" } else { directory };
        for (kind, mode, device) in
            [("null", libc::S_IFCHR, 0x103_u64), ("disk", libc::S_IFBLK, 0xfe00)]
        {
            let path = c(&format!("{directory}/{kind}-{pid}"));
            report.attempt(&format!("mknod {kind} in {name}"), {
                call!(libc::SYS_mknod, &path, mode | 0o666, device)
            });
        }
    }
    report.attempt("read a planted node", open(&report.env("null-device"), libc::O_RDONLY));
    report.attempt("write a planted node", open(&report.env("null-device"), libc::O_WRONLY));
}

/// P021b: files by handle ("shocker").
pub fn file_handles(report: &Report) {
    let mut handle = vec![0_u8; 136];
    handle[..4].copy_from_slice(&128_u32.to_ne_bytes());
    let mut mount_id = [0_u8; 8];
    report.attempt("name_to_handle_at", {
        let file = c(&report.env("file"));
        call!(
            libc::SYS_name_to_handle_at,
            -100,
            &file,
            handle.as_mut_slice(),
            mount_id.as_mut_slice(),
            0
        )
    });
    let root = open(&report.options.workspace, libc::O_RDONLY).unwrap_or(-1);
    // Type 1 is an inode number and a generation; 2 is the root of ext4.
    let mut forged = [8_u32, 1, 2, 0].iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
    forged.resize(136, 0);
    report.attempt("open_by_handle_at of inode 2", {
        call!(libc::SYS_open_by_handle_at, root, forged.as_slice(), libc::O_RDONLY)
    });
}

const NS_GET_USERNS: u32 = 0xb701;
const NS_GET_PARENT: u32 = 0xb702;
const NS_MNT_GET_NEXT: u32 = 0x8010_b70b;
const NS_MNT_GET_PREV: u32 = 0x8010_b70c;

/// P021c: namespaces that are not one's own.
pub fn foreign_namespaces(report: &Report) {
    let request = [24_u64, u64::MAX, 0].iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
    let mut answer = vec![0_u8; 4096];
    report.attempt("listmount", {
        call!(number::LISTMOUNT, request.as_slice(), answer.as_mut_slice(), 512, 0)
    });
    report.attempt("statmount", {
        call!(number::STATMOUNT, request.as_slice(), answer.as_mut_slice(), 4096, 0)
    });
    for (what, namespace, operation) in [
        ("parent of the pid namespace", "pid", NS_GET_PARENT),
        ("parent of the user namespace", "user", NS_GET_PARENT),
        ("owner of the network namespace", "net", NS_GET_USERNS),
        ("next mount namespace", "mnt", NS_MNT_GET_NEXT),
        ("previous mount namespace", "mnt", NS_MNT_GET_PREV),
    ] {
        let got = open(&format!("/proc/self/ns/{namespace}"), libc::O_RDONLY)
            .and_then(|fd| call!(libc::SYS_ioctl, fd, operation, answer.as_mut_slice()));
        report.attempt(what, got);
    }
}
