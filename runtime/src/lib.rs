//! From a [`plan::Plan`] to a running session.
//!
//! Two programs are made of this crate. The *warden* is root: it owns the state directory,
//! the cgroups and the mounts, and launches sessions. *init* is PID 1 of a session: it confines
//! itself, proves it, and forks every command of the session. Neither knows HTTP, JSON, a
//! database or an archive format.
//!
//! Reading order: [`plan`], [`steps`], [`launch`], [`init`], [`proof`], [`warden`].

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod doctor;
pub mod error;
pub mod ids;
pub mod init;
pub mod launch;
pub mod plan;
pub mod proof;
pub mod record;
pub mod steps;
pub mod warden;
pub mod wire;
