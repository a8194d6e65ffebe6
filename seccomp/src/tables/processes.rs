//! Processes, threads, signals, identity, memory, time.

use crate::row::{Errno, Row, Topic, allow, bits, case, enosys, eperm, except, is, only};

/// Every `CLONE_NEW*` flag that `clone` takes. `CLONE_NEWTIME` lies in the bits of the exit signal
/// there and is only a flag of `clone3` and `unshare`.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
const CLONE_NEWTIME: u32 = 0x80;

const CLONE: Row = only(
    56,
    "clone",
    &[case("no CLONE_NEW* flag", &[bits(0, NEW_NAMESPACES, 0)])],
    Errno::Perm,
    "processes and threads; a new user namespace brings back every capability inside it",
);

const UNSHARE: Row = only(
    272,
    "unshare",
    &[case("no CLONE_NEW* flag", &[bits(0, NEW_NAMESPACES | CLONE_NEWTIME, 0)])],
    Errno::Perm,
    "a thread's own file table; new namespaces as for clone",
);

/// Processes and threads.
pub const PROCESSES: Topic = Topic {
    title: "Processes and threads",
    rows: &[
        allow(24, "sched_yield", "threads"),
        allow(39, "getpid", "identity"),
        CLONE,
        allow(57, "fork", "processes"),
        allow(58, "vfork", "processes"),
        allow(59, "execve", "programs; no_new_privs makes setuid bits void"),
        allow(60, "exit", "end of a thread"),
        allow(61, "wait4", "processes"),
        allow(101, "ptrace", "gdb and strace; processes of the session only"),
        allow(109, "setpgid", "job control"),
        allow(110, "getppid", "identity"),
        allow(111, "getpgrp", "job control"),
        allow(112, "setsid", "daemons, terminals"),
        allow(121, "getpgid", "job control"),
        allow(124, "getsid", "job control"),
        PERSONALITY,
        allow(140, "getpriority", "nice"),
        allow(141, "setpriority", "nice; the kernel refuses more than the limits"),
        allow(142, "sched_setparam", "the kernel refuses more than the limits"),
        allow(143, "sched_getparam", "scheduling"),
        allow(144, "sched_setscheduler", "batch and idle; real time needs a limit nobody has"),
        allow(145, "sched_getscheduler", "scheduling"),
        allow(146, "sched_get_priority_max", "scheduling"),
        allow(147, "sched_get_priority_min", "scheduling"),
        allow(148, "sched_rr_get_interval", "scheduling"),
        PRCTL,
        allow(158, "arch_prctl", "thread-local storage"),
        allow(186, "gettid", "identity"),
        allow(202, "futex", "locks"),
        allow(203, "sched_setaffinity", "processors; the cgroup holds the limit"),
        allow(204, "sched_getaffinity", "processors"),
        enosys(205, "set_thread_area", "32-bit only"),
        enosys(211, "get_thread_area", "32-bit only"),
        allow(218, "set_tid_address", "threads"),
        allow(231, "exit_group", "end of a process"),
        allow(247, "waitid", "processes"),
        allow(251, "ioprio_set", "ionice; real time needs a capability"),
        allow(252, "ioprio_get", "ionice"),
        UNSHARE,
        allow(273, "set_robust_list", "locks"),
        allow(274, "get_robust_list", "locks"),
        allow(309, "getcpu", "processors"),
        allow(310, "process_vm_readv", "debuggers and sanitizers; checked like ptrace"),
        allow(311, "process_vm_writev", "as process_vm_readv"),
        allow(314, "sched_setattr", "the kernel refuses more than the limits"),
        allow(315, "sched_getattr", "scheduling"),
        allow(317, "seccomp", "agents and browsers add filters; none can be taken away"),
        allow(322, "execveat", "programs by descriptor"),
        allow(324, "membarrier", "locks"),
        allow(334, "rseq", "per-CPU data of the C library"),
        allow(335, "uretprobe", "trampoline of host tracing; newer kernels ask no filter about it"),
        allow(336, "uprobe", "as uretprobe"),
        allow(434, "pidfd_open", "processes"),
        enosys(435, "clone3", "its flags are in memory, out of a filter's reach; clone remains"),
        eperm(438, "pidfd_getfd", "takes descriptors out of other processes"),
        allow(444, "landlock_create_ruleset", "agents confine themselves further"),
        allow(445, "landlock_add_rule", "as landlock_create_ruleset"),
        allow(446, "landlock_restrict_self", "as landlock_create_ruleset"),
        allow(449, "futex_waitv", "locks"),
        allow(454, "futex_wake", "locks"),
        allow(455, "futex_wait", "locks"),
        allow(456, "futex_requeue", "locks"),
        enosys(459, "lsm_get_self_attr", "security modules are no business of a session"),
        enosys(460, "lsm_set_self_attr", "as lsm_get_self_attr"),
        enosys(461, "lsm_list_modules", "as lsm_get_self_attr"),
        enosys(470, "listns", "lists namespaces; nothing needs it"),
    ],
};

const PERSONALITY: Row = only(
    135,
    "personality",
    &[
        case("the Linux personality", &[is(0, 0)]),
        case("asking for the current one", &[is(0, u32::MAX)]),
    ],
    Errno::Perm,
    "other personalities turn off address randomisation or make data executable",
);

const PRCTL: Row = except(
    157,
    "prctl",
    &[case("PR_SET_MM", &[is(0, 35)]), case("PR_SET_SECUREBITS", &[is(0, 28)])],
    Errno::Perm,
    "names, death signals, own filters; not the memory layout and not the securebits",
);

/// Signals.
pub const SIGNALS: Topic = Topic {
    title: "Signals",
    rows: &[
        allow(13, "rt_sigaction", "handlers"),
        allow(14, "rt_sigprocmask", "masks"),
        allow(15, "rt_sigreturn", "end of a handler"),
        allow(34, "pause", "waiting"),
        allow(62, "kill", "processes of the session only: it has a process namespace"),
        allow(127, "rt_sigpending", "waiting"),
        allow(128, "rt_sigtimedwait", "waiting"),
        allow(129, "rt_sigqueueinfo", "as kill"),
        allow(130, "rt_sigsuspend", "waiting"),
        allow(131, "sigaltstack", "handlers"),
        allow(200, "tkill", "as kill"),
        allow(219, "restart_syscall", "the kernel resumes sleeps with it"),
        allow(234, "tgkill", "as kill"),
        allow(297, "rt_tgsigqueueinfo", "as kill"),
        allow(424, "pidfd_send_signal", "as kill"),
    ],
};

/// Users, groups, limits.
pub const IDENTITY: Topic = Topic {
    title: "Users, groups, capabilities, limits",
    rows: &[
        allow(97, "getrlimit", "limits"),
        allow(98, "getrusage", "time and commands like it"),
        allow(102, "getuid", "identity"),
        allow(104, "getgid", "identity"),
        allow(105, "setuid", "shells set it to what it is; anything else needs a capability"),
        allow(106, "setgid", "as setuid"),
        allow(107, "geteuid", "identity"),
        allow(108, "getegid", "identity"),
        allow(113, "setreuid", "as setuid"),
        allow(114, "setregid", "as setuid"),
        allow(115, "getgroups", "identity"),
        eperm(116, "setgroups", "groups are fixed before the first command"),
        allow(117, "setresuid", "as setuid"),
        allow(118, "getresuid", "identity"),
        allow(119, "setresgid", "as setuid"),
        allow(120, "getresgid", "identity"),
        allow(122, "setfsuid", "as setuid"),
        allow(123, "setfsgid", "as setuid"),
        allow(125, "capget", "reading capabilities"),
        allow(126, "capset", "only drops"),
        allow(160, "setrlimit", "limits are only ever lowered"),
        allow(302, "prlimit64", "limits are only ever lowered"),
    ],
};

/// Memory.
pub const MEMORY: Topic = Topic {
    title: "Memory",
    rows: &[
        allow(9, "mmap", "memory"),
        allow(10, "mprotect", "just-in-time compilers"),
        allow(11, "munmap", "memory"),
        allow(12, "brk", "memory"),
        allow(25, "mremap", "memory"),
        allow(26, "msync", "mapped files"),
        allow(27, "mincore", "the kernel answers for own files only"),
        allow(28, "madvise", "allocators"),
        allow(149, "mlock", "secrets; limited"),
        allow(150, "munlock", "as mlock"),
        allow(151, "mlockall", "as mlock"),
        allow(152, "munlockall", "as mlock"),
        allow(216, "remap_file_pages", "old programs; the kernel emulates it"),
        enosys(237, "mbind", "placement on memory nodes; programs take it as one node"),
        enosys(238, "set_mempolicy", "as mbind"),
        enosys(239, "get_mempolicy", "as mbind, so libnuma reports no nodes"),
        enosys(256, "migrate_pages", "as mbind"),
        enosys(279, "move_pages", "as mbind; also tells where pages are"),
        allow(319, "memfd_create", "Node and display protocols"),
        eperm(323, "userfaultfd", "stops the kernel at chosen points, which exploits need"),
        allow(325, "mlock2", "as mlock"),
        allow(329, "pkey_mprotect", "V8"),
        allow(330, "pkey_alloc", "V8"),
        allow(331, "pkey_free", "V8"),
        enosys(440, "process_madvise", "acts on other processes' memory; allocators fall back"),
        enosys(447, "memfd_secret", "memory that cannot be moved; OpenSSL falls back"),
        enosys(448, "process_mrelease", "acts on other processes' memory"),
        enosys(450, "set_mempolicy_home_node", "as mbind"),
        allow(453, "map_shadow_stack", "hardware shadow stacks"),
        allow(462, "mseal", "takes rights away only"),
    ],
};

/// Time.
pub const TIME: Topic = Topic {
    title: "Time",
    rows: &[
        allow(35, "nanosleep", "sleeping"),
        allow(36, "getitimer", "timers"),
        allow(37, "alarm", "timers"),
        allow(38, "setitimer", "timers"),
        allow(96, "gettimeofday", "clock"),
        allow(100, "times", "clock"),
        eperm(159, "adjtimex", "the host's clock"),
        eperm(164, "settimeofday", "the host's clock"),
        allow(201, "time", "clock"),
        allow(222, "timer_create", "timers"),
        allow(223, "timer_settime", "timers"),
        allow(224, "timer_gettime", "timers"),
        allow(225, "timer_getoverrun", "timers"),
        allow(226, "timer_delete", "timers"),
        eperm(227, "clock_settime", "the host's clock"),
        allow(228, "clock_gettime", "clock"),
        allow(229, "clock_getres", "clock"),
        allow(230, "clock_nanosleep", "sleeping"),
        allow(283, "timerfd_create", "timers"),
        allow(286, "timerfd_settime", "timers"),
        allow(287, "timerfd_gettime", "timers"),
        eperm(305, "clock_adjtime", "the host's clock"),
    ],
};

/// What init needs beyond its commands.
///
/// Filters add up: a command runs under init's and its own, so init's has to allow all that
/// the command's allows, and each command loses these when its own filter is added.
pub const INIT: Topic = Topic {
    title: "Init only",
    rows: &[
        allow(116, "setgroups", "empties the groups of each command before it runs"),
        except(
            157,
            "prctl",
            &[case("PR_SET_MM", &[is(0, 35)])],
            Errno::Perm,
            "locks the securebits of each command as well",
        ),
        allow(435, "clone3", "starts each command in its own cgroup, with a process descriptor"),
    ],
};
