//! Archives to trees, trees to frozen trees, and their removal.
//!
//! Everything here reads hostile bytes: an archive a client sent, or a tree a build left behind.
//! The functions take directory descriptors and resolve every name below them with the kernel's
//! help ([`tree`]); no path of the host and no symlink is ever followed. The binary
//! `hangar-worker` runs them one job at a time in a user namespace of its own; [`job`] is what it
//! is asked and what it answers.
//!
//! Nothing in here knows sessions, environments or the API.

#![forbid(unsafe_code)]

pub mod compare;
mod crew;
mod flush;
pub mod freeze;
pub mod import;
pub mod job;
pub mod manifest;
pub mod measure;
pub mod names;
mod refusal;
pub mod remove;
pub mod tree;
pub mod verify;
