//! Messages between hangar's processes: postcard over `SOCK_SEQPACKET`, with descriptors.
//!
//! One datagram is one message. A datagram that is too long, does not decode, carries trailing
//! bytes or more descriptors than [`FDS_MAX`] is an error of the connection, never skipped.

pub mod egress;
pub mod init;
mod socket;
pub mod warden;

pub use socket::{FDS_MAX, MESSAGE_BYTES_MAX, WireError, pair, receive, send};
