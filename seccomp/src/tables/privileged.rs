//! What only the owner of a machine does. Each is refused by missing capabilities too; the filter
//! keeps the kernel code behind it out of reach, so that a bug in it cannot be tried.

use crate::row::{Topic, enosys, eperm};

/// Mounts and namespaces. The old calls say `EPERM`, as they do without the capability; the new
/// ones say `ENOSYS`, so that programs try the old one and report that error.
pub const MOUNTS: Topic = Topic {
    title: "Mounts and namespaces",
    rows: &[
        eperm(155, "pivot_root", "changes what the session sees"),
        eperm(161, "chroot", "as pivot_root"),
        eperm(165, "mount", "changes what the session sees; could make a mount writable"),
        eperm(166, "umount2", "reveals what lies below a mount"),
        eperm(308, "setns", "enters other namespaces"),
        enosys(428, "open_tree", "copies mounts"),
        enosys(429, "move_mount", "attaches mounts"),
        enosys(430, "fsopen", "makes file systems (CVE-2022-0185)"),
        enosys(431, "fsconfig", "as fsopen"),
        enosys(432, "fsmount", "as fsopen"),
        enosys(433, "fspick", "changes file systems"),
        enosys(442, "mount_setattr", "clears the read-only flag; Landlock does not see it"),
        enosys(457, "statmount", "reads mounts, also of other namespaces by id"),
        enosys(458, "listmount", "as statmount"),
        enosys(467, "open_tree_attr", "open_tree and mount_setattr in one"),
    ],
};

/// Keys. `EPERM` also for own keys: keyrings of a user are not namespaced with a process.
pub const KEYS: Topic = Topic {
    title: "Kernel keyrings",
    rows: &[
        eperm(248, "add_key", "keyrings outlive processes, and have had bugs (CVE-2016-0728)"),
        eperm(249, "request_key", "starts a program of the host (/sbin/request-key)"),
        eperm(250, "keyctl", "as add_key"),
    ],
};

/// Looking into the kernel or into other processes.
pub const TRACING: Topic = Topic {
    title: "Kernel programs and tracing",
    rows: &[
        eperm(103, "syslog", "the kernel log"),
        enosys(212, "lookup_dcookie", "gone since Linux 6.7"),
        eperm(298, "perf_event_open", "large and buggy; measures other processes"),
        eperm(312, "kcmp", "compares kernel objects of processes"),
        eperm(321, "bpf", "programs in the kernel"),
    ],
};

/// The machine.
pub const MACHINE: Topic = Topic {
    title: "The machine",
    rows: &[
        enosys(134, "uselib", "gone since Linux 5.x; old library format"),
        eperm(153, "vhangup", "takes a terminal from its users"),
        enosys(154, "modify_ldt", "16-bit segments; only emulators of old programs use it"),
        enosys(156, "_sysctl", "gone since Linux 5.5"),
        eperm(163, "acct", "process accounting of the host"),
        eperm(167, "swapon", "swap of the host"),
        eperm(168, "swapoff", "swap of the host"),
        eperm(169, "reboot", "power"),
        eperm(170, "sethostname", "the name is set before the first command"),
        eperm(171, "setdomainname", "as sethostname"),
        eperm(172, "iopl", "hardware ports"),
        eperm(173, "ioperm", "hardware ports"),
        enosys(174, "create_module", "gone since Linux 2.6"),
        eperm(175, "init_module", "kernel modules"),
        eperm(176, "delete_module", "kernel modules"),
        enosys(177, "get_kernel_syms", "gone since Linux 2.6"),
        enosys(178, "query_module", "gone since Linux 2.6"),
        eperm(179, "quotactl", "quotas of the host"),
        enosys(180, "nfsservctl", "gone since Linux 3.1"),
        enosys(183, "afs_syscall", "never carried out by Linux"),
        enosys(184, "tuxcall", "never carried out by Linux"),
        enosys(185, "security", "never carried out by Linux"),
        enosys(236, "vserver", "never carried out by Linux"),
        eperm(246, "kexec_load", "another kernel"),
        eperm(313, "finit_module", "kernel modules"),
        eperm(320, "kexec_file_load", "another kernel"),
        eperm(443, "quotactl_fd", "quotas of the host"),
    ],
};
