//! `kill -9` at every place where it hurts: what is left, and what the next start makes of it.
//!
//! Each test brings the work to a point, holds it there by stopping a process, kills one of the
//! processes that take part, starts again what has to be started, and compares the host with what
//! the server says it has.

mod builds;
mod removals;
mod repositories;
mod servers;
mod sessions;
mod sources;
mod tasks;
