//! Calls with arguments, and what each profile does with them. Every row that looks at arguments
//! has examples of both outcomes here; a test checks that none is without.

/// One call.
pub struct Example {
    pub name: &'static str,
    pub arguments: [u64; 6],
    pub what: &'static str,
    pub command: &'static str,
    pub init: &'static str,
    pub worker: &'static str,
}

/// Garbage in the half of a register that the kernel does not look at.
const HIGH: u64 = 0xffff_ffff_0000_0000;

const fn example(
    name: &'static str,
    arguments: [u64; 6],
    what: &'static str,
    [command, init, worker]: [&'static str; 3],
) -> Example {
    Example { name, arguments, what, command, init, worker }
}

const ALLOWED: [&str; 3] = ["allow", "allow", "ENOSYS"];
const PERM: [&str; 3] = ["EPERM", "EPERM", "ENOSYS"];
const NO_FAMILY: [&str; 3] = ["EAFNOSUPPORT", "EAFNOSUPPORT", "ENOSYS"];
const CLOEXEC_NONBLOCK: u64 = 0x8_0800;

pub const EXAMPLES: &[Example] = &[
    // Sockets: family, type, protocol.
    example("socket", [1, 1, 0, 0, 0, 0], "unix stream", ALLOWED),
    example("socket", [1, 2 | CLOEXEC_NONBLOCK, 0, 0, 0, 0], "unix datagram", ALLOWED),
    example("socket", [1, 5, 0, 0, 0, 0], "unix seqpacket", ALLOWED),
    example("socket", [2, 1 | CLOEXEC_NONBLOCK, 0, 0, 0, 0], "tcp", ALLOWED),
    example("socket", [2, 1, 6, 0, 0, 0], "tcp by number", ALLOWED),
    example("socket", [2, 2, 0, 0, 0, 0], "udp", ALLOWED),
    example("socket", [2, 2, 17, 0, 0, 0], "udp by number", ALLOWED),
    example("socket", [10, 1, 0, 0, 0, 0], "tcp over ipv6", ALLOWED),
    example("socket", [10, 2, 58, 0, 0, 0], "ping over ipv6", ALLOWED),
    example("socket", [16, 3 | CLOEXEC_NONBLOCK, 0, 0, 0, 0], "netlink route", ALLOWED),
    example("socket", [16, 2, 0, 0, 0, 0], "netlink route, datagram", ALLOWED),
    example("socket", [2, 3, 1, 0, 0, 0], "raw icmp", NO_FAMILY),
    example("socket", [2, 3, 255, 0, 0, 0], "raw ip", NO_FAMILY),
    example("socket", [10, 3, 58, 0, 0, 0], "raw icmpv6", NO_FAMILY),
    example("socket", [2, 10, 0x300, 0, 0, 0], "SOCK_PACKET", NO_FAMILY),
    example("socket", [2, 1, 132, 0, 0, 0], "sctp", NO_FAMILY),
    example("socket", [2, 5, 132, 0, 0, 0], "sctp seqpacket", NO_FAMILY),
    example("socket", [2, 6, 33, 0, 0, 0], "dccp", NO_FAMILY),
    example("socket", [2, 1, 262, 0, 0, 0], "mptcp", NO_FAMILY),
    example("socket", [16, 3, 6, 0, 0, 0], "netlink xfrm", NO_FAMILY),
    example("socket", [16, 3, 12, 0, 0, 0], "netlink netfilter", NO_FAMILY),
    example("socket", [16, 3, 9, 0, 0, 0], "netlink audit", NO_FAMILY),
    example("socket", [17, 3, 0, 0, 0, 0], "packet", NO_FAMILY),
    example("socket", [38, 5, 0, 0, 0, 0], "alg", NO_FAMILY),
    example("socket", [40, 1, 0, 0, 0, 0], "vsock", NO_FAMILY),
    example("socket", [HIGH | 38, 5, 0, 0, 0, 0], "alg with garbage above", NO_FAMILY),
    example("socket", [HIGH | 2, 1, HIGH | 6, 0, 0, 0], "tcp with garbage above", ALLOWED),
    example("socketpair", [1, 1, 0, 0, 0, 0], "unix", ALLOWED),
    example("socketpair", [2, 1, 0, 0, 0, 0], "inet", NO_FAMILY),
    // Terminals and devices.
    example("ioctl", [0, 0x5401, 0, 0, 0, 0], "TCGETS", ["allow", "allow", "EPERM"]),
    example("ioctl", [0, 0x5412, 0, 0, 0, 0], "TIOCSTI", ["EPERM"; 3]),
    example("ioctl", [0, HIGH | 0x5412, 0, 0, 0, 0], "TIOCSTI with garbage above", ["EPERM"; 3]),
    example("ioctl", [0, 0x541c, 0, 0, 0, 0], "TIOCLINUX", ["EPERM"; 3]),
    example("ioctl", [0, 0x541d, 0, 0, 0, 0], "TIOCCONS", ["EPERM"; 3]),
    example("ioctl", [0, 0x5423, 0, 0, 0, 0], "TIOCSETD", ["EPERM"; 3]),
    example("ioctl", [3, 0x4004_9409, 4, 0, 0, 0], "FICLONE", ["allow"; 3]),
    example("ioctl", [3, 0x4020_940d, 0, 0, 0, 0], "FICLONERANGE", ["allow"; 3]),
    // Processes and namespaces.
    example("clone", [17, 0, 0, 0, 0, 0], "fork", ["allow", "allow", "EPERM"]),
    example("clone", [0x3d_0f00, 0, 0, 0, 0, 0], "thread", ["allow"; 3]),
    example("clone", [0x1000_0011, 0, 0, 0, 0, 0], "CLONE_NEWUSER", ["EPERM"; 3]),
    example("clone", [0x0002_0011, 0, 0, 0, 0, 0], "CLONE_NEWNS", ["EPERM"; 3]),
    example("clone", [0x0200_0011, 0, 0, 0, 0, 0], "CLONE_NEWCGROUP", ["EPERM"; 3]),
    example("clone", [0x0400_0011, 0, 0, 0, 0, 0], "CLONE_NEWUTS", ["EPERM"; 3]),
    example("clone", [0x0800_0011, 0, 0, 0, 0, 0], "CLONE_NEWIPC", ["EPERM"; 3]),
    example("clone", [0x2000_0011, 0, 0, 0, 0, 0], "CLONE_NEWPID", ["EPERM"; 3]),
    example("clone", [0x4000_0011, 0, 0, 0, 0, 0], "CLONE_NEWNET", ["EPERM"; 3]),
    example("clone", [HIGH | 0x1000_0011, 0, 0, 0, 0, 0], "NEWUSER, garbage above", ["EPERM"; 3]),
    example("unshare", [0x400, 0, 0, 0, 0, 0], "CLONE_FILES", ALLOWED),
    example("unshare", [0x1000_0000, 0, 0, 0, 0, 0], "CLONE_NEWUSER", PERM),
    example("unshare", [0x80, 0, 0, 0, 0, 0], "CLONE_NEWTIME", PERM),
    example("personality", [0, 0, 0, 0, 0, 0], "Linux", ALLOWED),
    example("personality", [0xffff_ffff, 0, 0, 0, 0, 0], "query", ALLOWED),
    example("personality", [0x4_0000, 0, 0, 0, 0, 0], "ADDR_NO_RANDOMIZE", PERM),
    example("personality", [0x40_0000, 0, 0, 0, 0, 0], "READ_IMPLIES_EXEC", PERM),
    example("personality", [8, 0, 0, 0, 0, 0], "PER_LINUX32", PERM),
    example("prctl", [15, 0, 0, 0, 0, 0], "PR_SET_NAME", ["allow"; 3]),
    example("prctl", [35, 0, 0, 0, 0, 0], "PR_SET_MM", ["EPERM"; 3]),
    example("prctl", [HIGH | 35, 0, 0, 0, 0, 0], "PR_SET_MM with garbage above", ["EPERM"; 3]),
    example("prctl", [28, 0, 0, 0, 0, 0], "PR_SET_SECUREBITS", ["EPERM", "allow", "EPERM"]),
    example("prctl", [22, 2, 0, 0, 0, 0], "PR_SET_SECCOMP", ["allow", "allow", "EPERM"]),
    example("execveat", [3, 0, 0, 0, 0x1000, 0], "by descriptor", ["allow"; 3]),
    example("execveat", [3, 0, 0, 0, 0, 0], "by name", ["allow", "allow", "EPERM"]),
    // Files.
    example("mknod", [0, 0o010_666, 0, 0, 0, 0], "named pipe", ["allow", "allow", "EPERM"]),
    example("mknod", [0, 0o666, 0, 0, 0, 0], "regular file", ["allow", "allow", "EPERM"]),
    example("mknod", [0, 0o140_666, 0, 0, 0, 0], "socket", ["allow", "allow", "EPERM"]),
    example("mknod", [0, 0o020_666, 0x101, 0, 0, 0], "character device", ["EPERM"; 3]),
    example("mknod", [0, 0o060_666, 0xfe00, 0, 0, 0], "block device", ["EPERM"; 3]),
    example("mknodat", [0, 0, 0o010_666, 0, 0, 0], "named pipe", ["allow", "allow", "EPERM"]),
    example("mknodat", [0, 0, 0o020_666, 0x101, 0, 0], "character device", ["EPERM"; 3]),
    example("mknodat", [0, 0, HIGH | 0o020_666, 0, 0, 0], "device, garbage above", ["EPERM"; 3]),
    example("preadv2", [3, 0, 0, 0, 0, 0], "plain", ALLOWED),
    example("preadv2", [3, 0, 0, 0, 0, 8], "RWF_NOWAIT", ["EOPNOTSUPP", "EOPNOTSUPP", "ENOSYS"]),
    example("pwritev2", [3, 0, 0, 0, 0, 0x10], "RWF_APPEND", ALLOWED),
    example(
        "pwritev2",
        [3, 0, 0, 0, 0, 0x1b],
        "with RWF_NOWAIT",
        ["EOPNOTSUPP", "EOPNOTSUPP", "ENOSYS"],
    ),
    // Memory.
    example("mmap", [0, 4096, 3, 0x22, 0, 0], "data", ["allow"; 3]),
    example("mmap", [0, 4096, 7, 0x22, 0, 0], "code", ["allow", "allow", "EPERM"]),
    example("mprotect", [0, 4096, 1, 0, 0, 0], "data", ["allow"; 3]),
    example("mprotect", [0, 4096, 5, 0, 0, 0], "code", ["allow", "allow", "EPERM"]),
];

impl Example {
    pub fn expected(&self, profile: hangar_seccomp::Profile) -> &'static str {
        match profile {
            hangar_seccomp::Profile::Command => self.command,
            hangar_seccomp::Profile::Init => self.init,
            hangar_seccomp::Profile::Worker => self.worker,
        }
    }

    /// The number of the call.
    pub fn number(&self) -> u32 {
        hangar_seccomp::rows(hangar_seccomp::Profile::Command)
            .iter()
            .find(|row| row.name == self.name)
            .unwrap_or_else(|| panic!("{} is in no table", self.name))
            .number
    }
}
