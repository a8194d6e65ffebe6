//! Sending and receiving one message with its descriptors.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest message in bytes. It fits the default socket buffer of Linux.
pub const MESSAGE_BYTES_MAX: usize = 160 << 10;

/// The most descriptors one message carries.
pub const FDS_MAX: usize = 64;

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other side is gone.
    #[error("the other side closed the connection")]
    Closed,
    /// There is no message now (only on a non-blocking socket).
    #[error("no message is waiting")]
    WouldBlock,
    /// The message is longer than [`MESSAGE_BYTES_MAX`].
    #[error("a message of {0} bytes is longer than {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    /// The message was cut by the kernel: too long, or too many descriptors.
    #[error("a message was truncated on receipt")]
    Truncated,
    /// The bytes are not a message of this protocol.
    #[error("a message does not decode: {0}")]
    Decode(postcard::Error),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] rustix::io::Errno),
}

/// A connected pair of sockets for messages, both close-on-exec.
///
/// # Errors
/// When the process has no descriptors left.
pub fn pair() -> Result<(OwnedFd, OwnedFd), WireError> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message with its descriptors.
///
/// # Errors
/// [`WireError::Closed`] when nobody receives any more; no signal is raised.
pub fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    let bytes = postcard::to_allocvec(message).map_err(WireError::Decode)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLong(bytes.len()));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(WireError::Truncated);
    }
    match sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Err(WireError::Closed),
        Err(rustix::io::Errno::AGAIN) => Err(WireError::WouldBlock),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives one message with its descriptors, which are close-on-exec.
///
/// # Errors
/// [`WireError::Closed`] at the end of the connection. After any error but
/// [`WireError::WouldBlock`] the connection is of no more use.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<(T, Vec<OwnedFd>), WireError> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Err(WireError::WouldBlock),
            Err(rustix::io::Errno::CONNRESET) => return Err(WireError::Closed),
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(WireError::Truncated);
    }
    if received.bytes == 0 {
        return Err(WireError::Closed);
    }
    let (message, rest) =
        postcard::take_from_bytes(&bytes[..received.bytes]).map_err(WireError::Decode)?;
    if !rest.is_empty() {
        return Err(WireError::Decode(postcard::Error::DeserializeBadEncoding));
    }
    Ok((message, fds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (near, far) = pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        send(&near, &("hello", 7u32), &[write.as_fd()]).unwrap();
        drop(write);
        let ((text, number), fds) = receive::<(String, u32)>(&far).unwrap();
        assert_eq!((text.as_str(), number, fds.len()), ("hello", 7, 1));
        rustix::io::write(&fds[0], b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&read, &mut byte).unwrap(), 1);
    }

    #[test]
    fn what_does_not_decode_is_an_error() {
        let (near, far) = pair().unwrap();
        rustix::net::send(&near, &[0xff; 40], SendFlags::empty()).unwrap();
        assert!(matches!(receive::<(String, u32)>(&far), Err(WireError::Decode(_))));
        send(&near, &(1u8, 2u8), &[]).unwrap();
        assert!(matches!(receive::<u8>(&far), Err(WireError::Decode(_))), "trailing bytes");
    }

    #[test]
    fn an_oversized_message_is_refused_by_the_sender() {
        let (near, _far) = pair().unwrap();
        let long = vec![0u8; MESSAGE_BYTES_MAX + 1];
        assert!(matches!(send(&near, &long, &[]), Err(WireError::TooLong(_))));
    }

    #[test]
    fn a_closed_peer_is_an_end_and_no_signal() {
        let (near, far) = pair().unwrap();
        drop(far);
        assert!(matches!(send(&near, &1u8, &[]), Err(WireError::Closed)));
        assert!(matches!(receive::<u8>(&near), Err(WireError::Closed)));
    }
}
