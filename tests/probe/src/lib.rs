//! Attacks from inside a session, for tests only.
//!
//! `hangar-probe ID` runs one probe of the catalogue and prints a JSON line for each attempt:
//! `{"id","attempt","result","detail"}`. A result is `ok` when the attack got what it wanted, the
//! name of the error when a call was refused, and `none` when a search found nothing or an effect
//! did not come. The probe does not judge: the same probe runs with barriers left out, where it
//! has to succeed.
//!
//! `unsafe` stands here and in the runtime's system call crate only; this crate is not shipped.

pub mod catalogue;
pub mod cross;
pub mod files;
pub mod identity;
pub mod landlock;
pub mod mounts;
pub mod proc;
pub mod report;
pub mod seccomp;
pub mod setup;
pub mod sys;
pub mod tree;
