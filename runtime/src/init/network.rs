//! The network namespace: at most loopback, at most one listener.

use super::Confinement;
use crate::error::{AtStep, SetupError};
use crate::plan::{EGRESS_PORT, Network};
use std::net::{Ipv4Addr, TcpListener};

/// The host name of every session.
pub const HOST_NAME: &str = "hangar";

/// Gives the session a name of its own.
///
/// # Errors
/// `EPERM` outside a UTS namespace of the session.
pub fn set_host_name(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    rustix::system::sethostname(HOST_NAME.as_bytes())
        .at("set-host-name", || format!("sethostname({HOST_NAME})"))
}

/// Brings loopback up and makes the proxy's listener, as the plan says.
///
/// The listener is handed to a process outside. It accepts what the session connects to inside;
/// nothing in the session can dial out.
///
/// # Errors
/// `EPERM` outside a network namespace of the session.
pub fn configure(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "configure-network";
    let network = confinement.setup(name)?.network;
    if network == Network::None {
        return Ok(());
    }
    hangar_runtime_sys::bring_loopback_up().at(name, || "ioctl(SIOCSIFFLAGS, lo up)")?;
    if network == Network::Egress {
        let address = (Ipv4Addr::LOCALHOST, EGRESS_PORT);
        let listener =
            TcpListener::bind(address).at(name, || format!("bind(127.0.0.1:{EGRESS_PORT})"))?;
        confinement.listener = Some(listener);
    }
    Ok(())
}
