//! Network interfaces.

use crate::mount::last_errno;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// Brings the loopback interface of this network namespace up.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the namespace.
pub fn bring_loopback_up() -> Result<(), Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: an ifreq of zero bytes is a valid value: an empty name and a null union.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The addresses of every interface of this network namespace.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn host_addresses() -> Result<Vec<IpAddr>, Errno> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` outlives the call; on success it is ours until freeifaddrs.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(last_errno());
    }
    let mut addresses = Vec::new();
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: `entry` is an element of the list, which is not freed yet.
        let item = unsafe { &*entry };
        entry = item.ifa_next;
        if item.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: every socket address begins with its family.
        match i32::from(unsafe { (*item.ifa_addr).sa_family }) {
            libc::AF_INET => {
                // SAFETY: the family says that this is a sockaddr_in; it may be unaligned.
                let address: libc::sockaddr_in =
                    unsafe { item.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                addresses.push(IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))));
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that this is a sockaddr_in6; it may be unaligned.
                let address: libc::sockaddr_in6 =
                    unsafe { item.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                addresses.push(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)));
            }
            _ => {}
        }
    }
    // SAFETY: `list` came from getifaddrs and is freed once; no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    Ok(addresses)
}
