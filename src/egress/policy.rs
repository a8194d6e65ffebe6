//! Which addresses the proxy dials.
//!
//! A session may reach the internet and nothing that is only reachable because hangar runs
//! where it does: not this host, not its neighbours, not the services a cloud gives its machines.
//! The list names what is refused instead of demanding a "global" address, because package
//! mirrors are sometimes reached at addresses of documentation or benchmark ranges.
//!
//! The list judges addresses after resolution, and the address it judged is the one that is
//! dialled; so no name, and no answer that changes between two look-ups, gets around it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Decides about one resolved address.
pub trait Policy: Send + Sync + 'static {
    /// Lets the address pass or says why not.
    ///
    /// # Errors
    /// The address, and the reason for the session to read.
    fn check(&self, address: IpAddr, port: u16) -> Result<(), Denied>;
}

/// An address that is not dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The address.
    pub address: IpAddr,
    /// What it is, such as `a private address`.
    pub reason: &'static str,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.address, self.reason)
    }
}

/// The policy of the shipped proxy: the named list, this host's own addresses, and port 25.
#[derive(Debug, Clone, Copy)]
pub struct NamedList;

impl Policy for NamedList {
    fn check(&self, address: IpAddr, port: u16) -> Result<(), Denied> {
        let deny = |reason| Err(Denied { address, reason });
        if port == 25 {
            return deny("asked for at port 25, and mail is not sent from here");
        }
        if let Some(reason) = listed(address) {
            return deny(reason);
        }
        let embedded = embedded_v4(address).into_iter().map(IpAddr::V4);
        if std::iter::once(address).chain(embedded).any(is_own) {
            return deny("an address of this host");
        }
        Ok(())
    }
}

/// What the address is, when it is on the list; an IPv6 address that carries an IPv4 address is
/// judged by that one too.
#[must_use]
pub fn listed(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => listed_v4(v4),
        IpAddr::V6(v6) => {
            listed_v6(v6).or_else(|| embedded_v4(address).into_iter().find_map(listed_v4))
        }
    }
}

fn listed_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("an unspecified address"),
        [127, ..] => Some("a loopback address"),
        [169, 254, 169, 254] | [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192] => {
            Some("a cloud's metadata service")
        }
        [169, 254, ..] => Some("a link-local address"),
        [10, ..] | [192, 168, ..] => Some("a private address"),
        [172, second, ..] if second & 0xf0 == 16 => Some("a private address"),
        [100, second, ..] if second & 0xc0 == 64 => Some("a carrier's shared address"),
        [192, 0, 0, _] => Some("an address for protocol assignments"),
        [255, 255, 255, 255] => Some("the broadcast address"),
        [first, ..] if first & 0xf0 == 224 => Some("a multicast address"),
        [first, ..] if first & 0xf0 == 240 => Some("a reserved address"),
        _ => None,
    }
}

fn listed_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => {
            Some("a cloud's metadata service")
        }
        [first, ..] if first & 0xfe00 == 0xfc00 => Some("a unique local address"),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some("a link-local address"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Some("a site-local address"),
        [first, ..] if first & 0xff00 == 0xff00 => Some("a multicast address"),
        [0x64, 0xff9b, 1, ..] => Some("a local address translator's address"),
        _ => None,
    }
}

/// The IPv4 addresses that packets to this IPv6 address may end at: mapped (RFC 4291), compatible
/// (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052), 6to4 (RFC 3056), Teredo's server and
/// client (RFC 4380), ISATAP (RFC 5214).
fn embedded_v4(address: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return Vec::new() };
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    let last = join(g, h);
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            vec![last]
        }
        [0x2002, high, low, ..] => vec![join(high, low)],
        [0x2001, 0, high, low, ..] => vec![join(high, low), join(!g, !h)],
        [.., 0 | 0x200, 0x5efe] => vec![last],
        _ => Vec::new(),
    }
}

/// Whether the address is one of this host now.
///
/// The kernel is asked, by binding a socket to it: unlike a list of the interfaces' addresses
/// this knows broadcast addresses and local routes too and cannot be out of date. Where
/// `ip_nonlocal_bind` is set every address counts as the host's own and nothing is dialled. So it
/// is when no socket can be made.
fn is_own(address: IpAddr) -> bool {
    match UdpSocket::bind(SocketAddr::new(address, 0)) {
        Ok(_) => true,
        // EAFNOSUPPORT: this host has no IPv6 and so no such address.
        Err(error) => !matches!(
            rustix::io::Errno::from_io_error(&error),
            Some(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::AFNOSUPPORT)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range of the list with its first and last address, and with its neighbours outside.
    #[test]
    fn the_list_ends_where_its_ranges_end() {
        for (refused, allowed) in [
            (&["0.0.0.0", "0.255.255.255"][..], &["1.0.0.0"][..]),
            (&["10.0.0.0", "10.255.255.255"], &["9.255.255.255", "11.0.0.0"]),
            (
                &["100.64.0.0", "100.127.255.255", "100.100.100.200"],
                &["100.63.255.255", "100.128.0.0"],
            ),
            (&["127.0.0.0", "127.0.0.1", "127.255.255.255"], &["126.255.255.255", "128.0.0.0"]),
            (
                &["169.254.0.0", "169.254.169.254", "169.254.255.255"],
                &["169.253.255.255", "169.255.0.0"],
            ),
            (&["172.16.0.0", "172.31.255.255"], &["172.15.255.255", "172.32.0.0"]),
            (&["192.0.0.0", "192.0.0.192", "192.0.0.255"], &["191.255.255.255", "192.0.1.0"]),
            (&["192.168.0.0", "192.168.255.255"], &["192.167.255.255", "192.169.0.0"]),
            (&["168.63.129.16"], &["168.63.129.15", "168.63.129.17"]),
            (
                &["224.0.0.0", "239.255.255.255", "240.0.0.0", "255.255.255.255"],
                &["223.255.255.255"],
            ),
            (&["::", "::1"], &["2000::"]),
            (&["fc00::", "fdff:ffff::1", "fd00:ec2::254", "fd20:ce::254"], &["fbff::1", "fe00::1"]),
            (&["fe80::", "fe80::1", "febf:ffff::", "fec0::", "feff::1"], &["fe7f:ffff::"]),
            (&["ff00::", "ff02::1", "ffff::"], &[]),
            (&["64:ff9b:1::", "64:ff9b:1:ffff::8.8.8.8"], &["64:ff9b:2::"]),
        ] {
            for text in refused {
                assert!(listed(text.parse().unwrap()).is_some(), "{text} passes");
            }
            for text in allowed {
                assert_eq!(listed(text.parse().unwrap()), None, "{text}");
            }
        }
    }

    /// Mirrors of package indexes are found at such addresses.
    #[test]
    fn documentation_and_benchmark_ranges_pass() {
        for text in ["192.0.2.1", "198.51.100.1", "203.0.113.80", "198.18.0.1", "198.19.255.255"] {
            assert_eq!(listed(text.parse().unwrap()), None, "{text}");
        }
        for text in ["2001:db8::1", "3fff::1", "2606:4700::1111", "8.8.8.8", "151.101.0.223"] {
            assert_eq!(listed(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn an_address_inside_an_address_is_judged_too() {
        let forms: [fn(Ipv4Addr) -> Ipv6Addr; 9] = [
            |v4| v4.to_ipv6_mapped(),
            |v4| v4.to_ipv6_compatible(),
            |v4| with_last([0, 0, 0, 0, 0xffff, 0], v4),
            |v4| with_last([0x64, 0xff9b, 0, 0, 0, 0], v4),
            |v4| with_last([0x2606, 0x4700, 0, 0, 0, 0x5efe], v4),
            |v4| with_last([0x2606, 0x4700, 0, 0, 0x200, 0x5efe], v4),
            |v4| with_last([0x2001, 0, 0x0808, 0x0808, 0, 0], Ipv4Addr::from(!u32::from(v4))),
            |v4| {
                let [a, b, c, d] = v4.octets().map(u16::from);
                Ipv6Addr::new(0x2002, a << 8 | b, c << 8 | d, 0, 0, 0, 0, 1)
            },
            |v4| {
                let [a, b, c, d] = v4.octets().map(u16::from);
                // The client behind is 8.8.8.8.
                Ipv6Addr::new(0x2001, 0, a << 8 | b, c << 8 | d, 0, 0, !0x0808, !0x0808)
            },
        ];
        for form in forms {
            for inside in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1"]
            {
                let address = form(inside.parse().unwrap());
                assert!(listed(address.into()).is_some(), "{address} passes with {inside}");
            }
            let address = form("93.184.216.34".parse().unwrap());
            assert_eq!(listed(address.into()), None, "{address}");
        }
    }

    fn with_last(high: [u16; 6], v4: Ipv4Addr) -> Ipv6Addr {
        let [a, b, c, d, e, f] = high;
        let [i, j, k, l] = v4.octets().map(u16::from);
        Ipv6Addr::new(a, b, c, d, e, f, i << 8 | j, k << 8 | l)
    }

    /// The addresses of the interfaces as the kernel lists them, each refused whatever its range.
    #[test]
    fn the_hosts_own_addresses_are_refused() {
        let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap();
        let mut own = Vec::new();
        let mut last = None;
        for line in table.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("|-- ") {
                last = rest.parse::<Ipv4Addr>().ok();
            } else if line.starts_with("/32 host LOCAL") {
                own.extend(last);
            }
        }
        assert!(own.contains(&Ipv4Addr::LOCALHOST), "{own:?}");
        for address in own {
            assert!(NamedList.check(address.into(), 443).is_err(), "{address} passes");
            let mapped = address.to_ipv6_mapped();
            assert!(NamedList.check(mapped.into(), 443).is_err(), "{mapped} passes");
        }
        assert_eq!(NamedList.check("203.0.113.80".parse().unwrap(), 443), Ok(()));
    }

    #[test]
    fn mail_is_not_sent() {
        let denied = NamedList.check("203.0.113.80".parse().unwrap(), 25).unwrap_err();
        assert!(denied.to_string().contains("port 25"), "{denied}");
    }
}
