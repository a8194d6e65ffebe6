//! Archives and trees, good and hostile, against the real kernel and the real file system.

#![forbid(unsafe_code)]

mod compare;
mod damaged;
mod differential;
mod freeze;
mod fuzz;
mod hostile;
mod import;
mod listing;
mod properties;
mod remove;
mod verify;
mod worker;
mod zip;
