//! Sockets, devices, messages between processes.

use crate::row::{Errno, Row, Topic, allow, bits, case, enosys, except, is, only};

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;
/// The kernel keeps `SOCK_CLOEXEC` and `SOCK_NONBLOCK` above these bits.
const SOCK_TYPE_MASK: u32 = 0xf;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const IPPROTO_ICMP: u32 = 1;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_ICMPV6: u32 = 58;
const NETLINK_ROUTE: u32 = 0;

/// A family, a type and a protocol that may be made into a socket.
macro_rules! socket_case {
    ($what:literal, $family:expr, $type:expr, $protocol:expr) => {
        case($what, &[is(0, $family), bits(1, SOCK_TYPE_MASK, $type), is(2, $protocol)])
    };
}

/// An allow-list, because families are where the kernel's bugs have been: `AF_ALG` (CVE-2026-31431),
/// `AF_PACKET` (CVE-2020-14386), `AF_VSOCK`, which ignores network namespaces, and whatever comes.
/// Protocols are listed too: SCTP, DCCP and MPTCP are families of code behind an innocent number.
const SOCKET: Row = only(
    41,
    "socket",
    &[
        case("a socket between processes", &[is(0, AF_UNIX)]),
        socket_case!("TCP", AF_INET, SOCK_STREAM, 0),
        socket_case!("TCP by its number", AF_INET, SOCK_STREAM, IPPROTO_TCP),
        socket_case!("UDP", AF_INET, SOCK_DGRAM, 0),
        socket_case!("UDP by its number", AF_INET, SOCK_DGRAM, IPPROTO_UDP),
        socket_case!("ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP),
        socket_case!("TCP over IPv6", AF_INET6, SOCK_STREAM, 0),
        socket_case!("TCP over IPv6 by its number", AF_INET6, SOCK_STREAM, IPPROTO_TCP),
        socket_case!("UDP over IPv6", AF_INET6, SOCK_DGRAM, 0),
        socket_case!("UDP over IPv6 by its number", AF_INET6, SOCK_DGRAM, IPPROTO_UDP),
        socket_case!("ping over IPv6", AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6),
        case("addresses and routes (getifaddrs)", &[is(0, AF_NETLINK), is(2, NETLINK_ROUTE)]),
    ],
    Errno::Afnosupport,
    "every other family, raw sockets and rare protocols are kernel code a session does not need",
);

const SOCKETPAIR: Row = only(
    53,
    "socketpair",
    &[case("a socket between processes", &[is(0, AF_UNIX)])],
    Errno::Afnosupport,
    "as socket; no other family has pairs",
);

/// Sockets.
pub const SOCKETS: Topic = Topic {
    title: "Sockets",
    rows: &[
        SOCKET,
        allow(42, "connect", "the network namespace has nothing but loopback"),
        allow(43, "accept", "servers of the session"),
        allow(44, "sendto", "messages"),
        allow(45, "recvfrom", "messages"),
        allow(46, "sendmsg", "messages, descriptors between processes of the session"),
        allow(47, "recvmsg", "messages"),
        allow(48, "shutdown", "sockets"),
        allow(49, "bind", "servers of the session"),
        allow(50, "listen", "servers of the session"),
        allow(51, "getsockname", "sockets"),
        allow(52, "getpeername", "sockets"),
        SOCKETPAIR,
        allow(54, "setsockopt", "sockets; what needs a capability is refused by the kernel"),
        allow(55, "getsockopt", "sockets"),
        allow(288, "accept4", "servers of the session"),
        allow(299, "recvmmsg", "messages"),
        allow(307, "sendmmsg", "messages"),
    ],
};

/// Devices and terminals.
pub const DEVICES: Topic = Topic {
    title: "Devices and terminals",
    rows: &[except(
        16,
        "ioctl",
        &[
            case("TIOCSTI: types into the terminal", &[is(1, 0x5412)]),
            case("TIOCLINUX: pastes into the terminal", &[is(1, 0x541c)]),
            case("TIOCCONS: takes over the console's output", &[is(1, 0x541d)]),
            case("TIOCSETD: loads line disciplines", &[is(1, 0x5423)]),
        ],
        Errno::Perm,
        "terminals and files; not the ways to put words in another's terminal",
    )],
};

/// Messages and memory between processes.
pub const MESSAGES: Topic = Topic {
    title: "System V and POSIX messages",
    rows: &[
        allow(29, "shmget", "the session has an IPC namespace of its own"),
        allow(30, "shmat", "as shmget"),
        allow(31, "shmctl", "as shmget"),
        allow(64, "semget", "as shmget"),
        allow(65, "semop", "as shmget"),
        allow(66, "semctl", "as shmget"),
        allow(67, "shmdt", "as shmget"),
        allow(68, "msgget", "as shmget"),
        allow(69, "msgsnd", "as shmget"),
        allow(70, "msgrcv", "as shmget"),
        allow(71, "msgctl", "as shmget"),
        enosys(181, "getpmsg", "never carried out by Linux"),
        enosys(182, "putpmsg", "never carried out by Linux"),
        allow(220, "semtimedop", "as shmget"),
        allow(240, "mq_open", "as shmget"),
        allow(241, "mq_unlink", "as shmget"),
        allow(242, "mq_timedsend", "as shmget"),
        allow(243, "mq_timedreceive", "as shmget"),
        allow(244, "mq_notify", "as shmget"),
        allow(245, "mq_getsetattr", "as shmget"),
    ],
};

/// Facts about the system.
pub const FACTS: Topic = Topic {
    title: "Facts about the system",
    rows: &[
        allow(63, "uname", "kernel version"),
        allow(99, "sysinfo", "memory"),
        allow(318, "getrandom", "random numbers"),
    ],
};
