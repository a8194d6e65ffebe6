//! The worker: a static program that reads hostile archives and writes trees. It needs files,
//! memory, threads and one socket it was given. All else is refused with `ENOSYS`.

use crate::row::{Errno, Row, Topic, allow, bits, case, enosys, eperm, is, only};

const CLONE_THREAD_AND_VM: u32 = 0x1_0100;
const PROT_EXEC: u32 = 4;
const AT_EMPTY_PATH: u32 = 0x1000;

const NO_EXECUTABLE_MEMORY: &str =
    "the program is mapped by the kernel; memory made executable later is an attack";

/// Start, memory and threads.
pub const PROGRAM: Topic = Topic {
    title: "Start, memory and threads",
    rows: &[
        NEW_MEMORY,
        PROTECTION,
        allow(11, "munmap", "memory"),
        allow(12, "brk", "memory"),
        allow(13, "rt_sigaction", "handlers"),
        allow(14, "rt_sigprocmask", "masks"),
        allow(15, "rt_sigreturn", "end of a handler"),
        allow(24, "sched_yield", "threads"),
        allow(25, "mremap", "memory"),
        allow(28, "madvise", "allocator"),
        allow(35, "nanosleep", "waiting"),
        allow(39, "getpid", "abort"),
        THREADS,
        allow(60, "exit", "end of a thread"),
        allow(63, "uname", "start of the C library"),
        allow(96, "gettimeofday", "clock"),
        allow(98, "getrusage", "report"),
        allow(102, "getuid", "own identity"),
        allow(104, "getgid", "own identity"),
        allow(107, "geteuid", "own identity"),
        allow(108, "getegid", "own identity"),
        allow(131, "sigaltstack", "stack overflow handler"),
        OWN_NAME,
        allow(158, "arch_prctl", "thread-local storage"),
        allow(186, "gettid", "threads"),
        allow(202, "futex", "locks"),
        allow(204, "sched_getaffinity", "number of threads"),
        allow(218, "set_tid_address", "threads"),
        allow(219, "restart_syscall", "the kernel resumes sleeps with it"),
        allow(228, "clock_gettime", "clock"),
        allow(230, "clock_nanosleep", "waiting"),
        allow(231, "exit_group", "end"),
        allow(234, "tgkill", "abort"),
        allow(273, "set_robust_list", "locks"),
        allow(302, "prlimit64", "stack sizes; limits are only ever lowered"),
        allow(318, "getrandom", "hash seeds"),
        START,
        allow(324, "membarrier", "locks"),
        allow(334, "rseq", "per-CPU data of the C library"),
        enosys(435, "clone3", "its flags are out of a filter's reach; clone remains"),
    ],
};

const NEW_MEMORY: Row = only(
    9,
    "mmap",
    &[case("not executable", &[bits(2, PROT_EXEC, 0)])],
    Errno::Perm,
    NO_EXECUTABLE_MEMORY,
);

const PROTECTION: Row = only(
    10,
    "mprotect",
    &[case("not executable", &[bits(2, PROT_EXEC, 0)])],
    Errno::Perm,
    NO_EXECUTABLE_MEMORY,
);

const THREADS: Row = only(
    56,
    "clone",
    &[case("a thread", &[bits(0, CLONE_THREAD_AND_VM, CLONE_THREAD_AND_VM)])],
    Errno::Perm,
    "threads only: it starts no process",
);

const OWN_NAME: Row = only(
    157,
    "prctl",
    &[
        case("PR_SET_PDEATHSIG", &[is(0, 1)]),
        case("PR_SET_DUMPABLE", &[is(0, 4)]),
        case("PR_SET_NAME", &[is(0, 15)]),
        case("PR_SET_NO_NEW_PRIVS", &[is(0, 38)]),
        case("PR_SET_VMA", &[is(0, 0x5356_4d41)]),
    ],
    Errno::Perm,
    "thread names and giving up rights",
);

const START: Row = only(
    322,
    "execveat",
    &[case("an open descriptor", &[bits(4, AT_EMPTY_PATH, AT_EMPTY_PATH)])],
    Errno::Perm,
    "the warden starts the worker by descriptor under this filter; no program has a name there",
);

/// Files and the socket.
pub const FILES: Topic = Topic {
    title: "Files and the socket",
    rows: &[
        allow(0, "read", "files"),
        allow(1, "write", "files"),
        allow(2, "open", "files"),
        allow(3, "close", "descriptors"),
        allow(4, "stat", "metadata"),
        allow(5, "fstat", "metadata"),
        allow(6, "lstat", "metadata"),
        allow(7, "poll", "the socket"),
        allow(8, "lseek", "holes"),
        CLONE_FILE,
        allow(17, "pread64", "files"),
        allow(18, "pwrite64", "files"),
        allow(19, "readv", "files"),
        allow(20, "writev", "files"),
        allow(21, "access", "metadata"),
        allow(32, "dup", "descriptors"),
        allow(40, "sendfile", "copies"),
        allow(44, "sendto", "answers on the socket it was given"),
        allow(45, "recvfrom", "options from the socket it was given"),
        allow(46, "sendmsg", "as sendto"),
        allow(47, "recvmsg", "as recvfrom"),
        allow(48, "shutdown", "the socket"),
        allow(55, "getsockopt", "the socket"),
        allow(72, "fcntl", "descriptor flags"),
        allow(73, "flock", "locks"),
        allow(74, "fsync", "durability"),
        allow(75, "fdatasync", "durability"),
        allow(77, "ftruncate", "sparse files"),
        allow(79, "getcwd", "start"),
        allow(80, "chdir", "deep trees"),
        allow(81, "fchdir", "deep trees"),
        allow(82, "rename", "names"),
        allow(83, "mkdir", "names"),
        allow(84, "rmdir", "names"),
        allow(86, "link", "unchanged files are shared with the version before"),
        allow(87, "unlink", "names"),
        allow(88, "symlink", "names"),
        allow(89, "readlink", "names"),
        allow(90, "chmod", "modes"),
        allow(91, "fchmod", "modes"),
        allow(92, "chown", "owners within its user namespace"),
        allow(93, "fchown", "as chown"),
        allow(94, "lchown", "as chown"),
        allow(95, "umask", "modes"),
        eperm(133, "mknod", "no special file belongs in a tree"),
        allow(137, "statfs", "free space"),
        allow(138, "fstatfs", "free space"),
        allow(190, "fsetxattr", "attributes"),
        allow(193, "fgetxattr", "attributes"),
        allow(196, "flistxattr", "attributes"),
        allow(199, "fremovexattr", "attributes"),
        allow(217, "getdents64", "listing"),
        allow(221, "fadvise64", "a hint"),
        allow(257, "openat", "files"),
        allow(258, "mkdirat", "names"),
        eperm(259, "mknodat", "as mknod"),
        allow(260, "fchownat", "as chown"),
        allow(262, "newfstatat", "metadata"),
        allow(263, "unlinkat", "names"),
        allow(264, "renameat", "names"),
        allow(265, "linkat", "as link"),
        allow(266, "symlinkat", "names"),
        allow(267, "readlinkat", "names"),
        allow(268, "fchmodat", "modes"),
        allow(269, "faccessat", "metadata"),
        allow(271, "ppoll", "the socket"),
        allow(277, "sync_file_range", "durability"),
        allow(280, "utimensat", "times"),
        allow(285, "fallocate", "space"),
        allow(293, "pipe2", "threads"),
        allow(295, "preadv", "files"),
        allow(296, "pwritev", "files"),
        allow(306, "syncfs", "durability"),
        allow(316, "renameat2", "names"),
        allow(326, "copy_file_range", "copies"),
        allow(332, "statx", "metadata"),
        allow(
            434,
            "pidfd_open",
            "takes over descriptors 3 and 4; it is alone in its pid namespace",
        ),
        allow(436, "close_range", "descriptors"),
        allow(437, "openat2", "confined lookup"),
        allow(438, "pidfd_getfd", "as pidfd_open"),
        allow(439, "faccessat2", "metadata"),
        allow(452, "fchmodat2", "modes"),
    ],
};

const CLONE_FILE: Row = only(
    16,
    "ioctl",
    &[
        case("FICLONE: share the blocks of a file", &[is(1, 0x4004_9409)]),
        case("FICLONERANGE: share some of them", &[is(1, 0x4020_940d)]),
    ],
    Errno::Perm,
    "copies without copying; no terminal, no device",
);
