//! Capabilities, securebits and what else can never come back.

use super::Confinement;
use crate::error::{AtStep, SetupError};
use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::DumpableBehavior;
use rustix::thread::CapabilitiesSecureBits;

/// What init keeps: to signal its commands and to give them their ids.
pub const INIT_CAPABILITIES: [Capability; 3] =
    [Capability::CAP_KILL, Capability::CAP_SETGID, Capability::CAP_SETUID];

/// The securebits of a session, all of them locked.
pub const SECUREBITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// Keeps other processes of the session from tracing init and from reading its memory.
///
/// # Errors
/// None is expected.
pub fn become_undumpable(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "become-undumpable";
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .at(name, || "prctl(PR_SET_DUMPABLE, 0)")
}

/// Takes the special rights of uid 0 away and locks that.
///
/// # Errors
/// `EPERM` without CAP_SETPCAP.
pub fn lock_securebits(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "lock-securebits";
    rustix::thread::set_capabilities_secure_bits(SECUREBITS)
        .at(name, || "prctl(PR_SET_SECUREBITS)")?;
    let found = rustix::thread::capabilities_secure_bits().at(name, || "prctl(GET_SECUREBITS)")?;
    if found == SECUREBITS {
        return Ok(());
    }
    Err(SetupError::mismatch(
        name,
        "the securebits",
        format!("{:#x}", SECUREBITS.bits()),
        format!("{:#x}", found.bits()),
    ))
}

/// Empties the bounding set. It must come before CAP_SETPCAP goes (isolation fact 3).
///
/// # Errors
/// When any capability is left, which a kernel newer than this program could have.
pub fn drop_bounding_set(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "drop-bounding-set";
    for number in 0..64 {
        match hangar_runtime_sys::drop_from_bounding_set(number) {
            Ok(()) => {}
            // The first number this kernel does not know; those after it are unknown too.
            Err(rustix::io::Errno::INVAL) => break,
            Err(errno) => {
                return Err(SetupError::call(
                    name,
                    format!("prctl(PR_CAPBSET_DROP, {number})"),
                    errno,
                ));
            }
        }
    }
    expect_empty(name, CapSet::Bounding)
}

/// Reduces init to its three capabilities, in every set.
///
/// # Errors
/// When what is read back differs.
pub fn drop_capabilities(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "drop-capabilities";
    set_exactly(name, &INIT_CAPABILITIES.into_iter().collect())
}

/// Sets the capability sets of this process: effective and permitted as given, inheritable and
/// ambient empty; reads them back. The kernel keeps the ambient set within the inheritable one.
pub(crate) fn set_exactly(name: &'static str, wanted: &CapsHashSet) -> Result<(), SetupError> {
    let failed = |set: CapSet| move |error| SetupError::other(name, format!("{set:?} set"), error);
    caps::clear(None, CapSet::Ambient).map_err(failed(CapSet::Ambient))?;
    caps::set(None, CapSet::Effective, wanted).map_err(failed(CapSet::Effective))?;
    caps::set(None, CapSet::Permitted, wanted).map_err(failed(CapSet::Permitted))?;
    caps::clear(None, CapSet::Inheritable).map_err(failed(CapSet::Inheritable))?;
    let mask = wanted.iter().map(Capability::bitmask).sum::<u64>();
    let found = rustix::thread::capabilities(None).at(name, || "capget()")?;
    let found = (found.effective.bits(), found.permitted.bits(), found.inheritable.bits());
    if found == (mask, mask, 0) {
        return Ok(());
    }
    Err(SetupError::mismatch(
        name,
        "the effective, permitted and inheritable sets",
        format!("{:#x?}", (mask, mask, 0)),
        format!("{found:#x?}"),
    ))
}

pub(crate) fn expect_empty(name: &'static str, set: CapSet) -> Result<(), SetupError> {
    let found = caps::read(None, set)
        .map_err(|error| SetupError::other(name, format!("reading the {set:?} set"), error))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(SetupError::mismatch(name, format!("the {set:?} set"), "{}", format!("{found:?}")))
}

/// Has the kernel kill init when the warden dies, beside the end of their connection.
///
/// # Errors
/// None is expected.
pub fn die_with_the_warden(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    // A change of ids clears the signal, so this comes after the last one.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .at("die-with-the-warden", || "prctl(PR_SET_PDEATHSIG, SIGKILL)")
}

/// Makes sure that executing a file never gives more rights than the process has.
///
/// # Errors
/// None is expected.
pub fn set_no_new_privs(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "set-no-new-privs";
    rustix::thread::set_no_new_privs(true).at(name, || "prctl(PR_SET_NO_NEW_PRIVS)")?;
    if rustix::thread::no_new_privs().at(name, || "prctl(PR_GET_NO_NEW_PRIVS)")? {
        return Ok(());
    }
    Err(SetupError::mismatch(name, "no_new_privs", 1, 0))
}
