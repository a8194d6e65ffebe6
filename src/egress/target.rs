//! The target of a request, in one canonical form.
//!
//! A name can be written in many ways that mean the same host: in upper case, with a trailing
//! dot, as the decimal, octal or hexadecimal form of an address. What the policy judges and what
//! is dialled must be one value, so a target is parsed once, here, and anything that two parsers
//! could read differently is refused.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest host name in bytes (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// The longest label of a host name in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// A host and a port to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whom to dial.
    pub host: Host,
    /// The TCP port, never 0.
    pub port: u16,
}

/// A host in canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// Lower case, no trailing dot, letters, digits, `-`, `_` and `.` only; no form of an address.
    Name(String),
    /// An address that was written out.
    Address(IpAddr),
}

impl Target {
    /// Takes the authority of a request target: `host:port`, or `host` where the scheme has a
    /// port of its own.
    ///
    /// # Errors
    /// Says in a sentence what is wrong; the caller names the target.
    pub fn parse(authority: &str, default_port: Option<u16>) -> Result<Self, &'static str> {
        let (host, port) = split_port(authority)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => default_port.ok_or("the port is missing")?,
        };
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl Host {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner =
                inner.strip_suffix(']').ok_or("the bracket of the address is not closed")?;
            let address: Ipv6Addr =
                inner.parse().map_err(|_| "what is in brackets is not an IPv6 address")?;
            return Ok(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        check_name(&name)?;
        if ends_in_a_number(&name) {
            return Ok(Self::Address(parse_ipv4(&name)?.into()));
        }
        Ok(Self::Name(name))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// Parts the port from the host; colons inside brackets belong to the address.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    let after_host = match authority.strip_prefix('[') {
        Some(_) => authority.find(']').map_or(authority.len(), |at| at + 1),
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(after_host);
    match rest.strip_prefix(':') {
        Some(port) if port.contains(':') => Err("an IPv6 address must be written in brackets"),
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err("something other than a port follows the bracket"),
    }
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    // `u16::from_str` takes a leading plus sign, which no port has.
    if text.is_empty() || text.len() > 5 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err("the port is not a number from 1 to 65535");
    }
    match text.parse() {
        Ok(0) | Err(_) => Err("the port is not a number from 1 to 65535"),
        Ok(port) => Ok(port),
    }
}

/// Lets through what DNS names are made of, which leaves no room for a user name, a zone, an
/// escape, a space, a NUL, a second host or letters of other scripts that look like ASCII.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the host is missing");
    }
    if name.len() > NAME_BYTES_MAX {
        return Err("the host is longer than 253 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return Err("the host has a character other than letters, digits, '-', '_' and '.'");
    }
    if name.split('.').any(|label| label.is_empty() || label.len() > LABEL_BYTES_MAX) {
        return Err("a label of the host is empty or longer than 63 characters");
    }
    Ok(())
}

/// Whether resolvers may take the name for an address: they do when the last label is a number.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last.strip_prefix("0x");
    last.bytes().all(|b| b.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Reads an IPv4 address in every form `inet_aton` takes: one to four numbers, each decimal,
/// octal or hexadecimal, the last one filling the bytes that are left.
fn parse_ipv4(text: &str) -> Result<Ipv4Addr, &'static str> {
    const WRONG: &str = "the host ends in a number but is not an IPv4 address";
    let numbers = text.split('.').map(parse_number).collect::<Option<Vec<u32>>>().ok_or(WRONG)?;
    let (&last, leading) = numbers.split_last().ok_or(WRONG)?;
    if leading.len() > 3 || leading.iter().any(|&number| number > 255) {
        return Err(WRONG);
    }
    let last_bits = 8 * (4 - leading.len() as u32);
    if u64::from(last) >= 1 << last_bits {
        return Err(WRONG);
    }
    let leading = leading.iter().fold(0u64, |sum, &number| sum << 8 | u64::from(number));
    let address = leading << last_bits | u64::from(last);
    u32::try_from(address).map(Ipv4Addr::from).map_err(|_| WRONG)
}

fn parse_number(text: &str) -> Option<u32> {
    match text {
        "0x" => Some(0),
        _ if text.starts_with("0x") => u32::from_str_radix(&text[2..], 16).ok(),
        _ if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(&text[1..], 8).ok(),
        _ if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_has_one_form() {
        let long = format!("{}.example", "a".repeat(63));
        for (written, canonical) in [
            ("index.example:443", "index.example:443"),
            ("InDeX.EXAMPLE:443", "index.example:443"),
            ("index.example.:443", "index.example:443"),
            ("xn--bcher-kva.example:443", "xn--bcher-kva.example:443"),
            ("_service.example:8080", "_service.example:8080"),
            ("a1.b2.c3:1", "a1.b2.c3:1"),
            ("0x.example:65535", "0x.example:65535"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("127.0.0.1.:80", "127.0.0.1:80"),
            ("127.1:80", "127.0.0.1:80"),
            ("127.0.1:80", "127.0.0.1:80"),
            ("2130706433:80", "127.0.0.1:80"),
            ("0x7f000001:80", "127.0.0.1:80"),
            ("0X7F.1:80", "127.0.0.1:80"),
            ("0177.0.0.1:80", "127.0.0.1:80"),
            ("017700000001:80", "127.0.0.1:80"),
            ("0:80", "0.0.0.0:80"),
            ("0x:80", "0.0.0.0:80"),
            ("010.0.0.1:80", "8.0.0.1:80"),
            ("169.254.43518:80", "169.254.169.254:80"),
            ("255.255.255.255:80", "255.255.255.255:80"),
            ("4294967295:80", "255.255.255.255:80"),
            ("[::1]:80", "[::1]:80"),
            ("[0:0:0:0:0:0:0:1]:80", "[::1]:80"),
            ("[::FFFF:127.0.0.1]:80", "[::ffff:127.0.0.1]:80"),
            (&format!("{long}:80"), &format!("{long}:80")),
        ] {
            let target = Target::parse(written, None);
            assert_eq!(target.map(|t| t.to_string()).as_deref(), Ok(canonical), "{written}");
        }
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_refused() {
        let long_label = format!("{}.example:80", "a".repeat(64));
        let long_name = format!("{}x:80", "a.".repeat(127));
        for bad in [
            "",
            ":80",
            ".:80",
            "..:80",
            "index.example",
            "index.example:",
            "index.example:0",
            "index.example:65536",
            "index.example:+80",
            "index.example:-1",
            "index.example:80:80",
            "index.example: 80",
            "index.example:080000",
            "index.example:８０",
            "pypi..org:80",
            ".index.example:80",
            "index.example..:80",
            "allowed.example@127.0.0.1:80",
            "user:password@index.example:80",
            "index.example\0.evil:80",
            "index.example%00:80",
            "index.example%2e:80",
            "index.example/:80",
            "index.example\\:80",
            "index.example?:80",
            "index.example#:80",
            "index.example\t:80",
            "index.example\r\n:80",
            " index.example:80",
            "pypi org:80",
            "bücher.example:80",
            "pypi。org:80",
            "①②⑦.0.0.1:80",
            "::1:80",
            "::1",
            "[::1:80",
            "[::1]80",
            "[::1",
            "[]:80",
            "[127.0.0.1]:80",
            "[fe80::1%eth0]:80",
            "[::1%25lo]:80",
            "[::1]]:80",
            "[[::1]]:80",
            "127.0.0.256:80",
            "256.0.0.1:80",
            "1.2.3.4.5:80",
            "4294967296:80",
            "0x100000000:80",
            "08.0.0.1:80",
            "example.1:80",
            "example.0x7f:80",
            "127.0..1:80",
            "index.example,evil:80",
            "*:80",
            &long_label,
            &long_name,
        ] {
            assert!(Target::parse(bad, None).is_err(), "{bad:?} is taken");
        }
    }

    #[test]
    fn a_scheme_can_bring_the_port() {
        assert_eq!(Target::parse("index.example", Some(80)).unwrap().port, 80);
        assert_eq!(Target::parse("index.example:8080", Some(80)).unwrap().port, 8080);
        assert_eq!(Target::parse("[::1]", Some(80)).unwrap().port, 80);
    }
}
