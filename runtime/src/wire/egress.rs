//! What the warden tells the egress proxy, and what the proxy tells it.
//!
//! One datagram carries one message. The warden closes its end to end the proxy.

use crate::ids::SessionId;
use serde::{Deserialize, Serialize};

/// The descriptor of the control socket in the proxy.
pub const CONTROL_FD: i32 = 3;

/// The warden to the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Serve a session. One descriptor comes along: a TCP socket that listens at
    /// 127.0.0.1:[`crate::plan::EGRESS_PORT`] inside the session's network namespace.
    /// A second one for the same session takes the place of the first.
    Serve {
        /// The session.
        session: SessionId,
    },
    /// Close the listener of a session and every connection made through it.
    Forget {
        /// The session.
        session: SessionId,
    },
}

/// The proxy to the warden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// First and once: the proxy is confined and takes orders.
    Ready,
    /// A target was not dialled.
    Refused {
        /// The session that asked for it.
        session: SessionId,
        /// `host:port` as the session asked for it, printable ASCII, [`TARGET_BYTES_MAX`] at most.
        target: String,
        /// One sentence.
        reason: String,
    },
}

/// The longest [`Report::Refused::target`], in bytes.
pub const TARGET_BYTES_MAX: usize = 300;
