//! The tables: each system call of x86-64 once per profile, with what happens to it and why.

mod files;
mod network;
mod privileged;
mod processes;
mod worker;

use crate::row::Topic;

/// What commands of a session get: strict sessions and builds alike.
pub const COMMAND: &[Topic] = &[
    files::DESCRIPTORS,
    files::NAMES,
    files::ATTRIBUTES,
    files::EVENTS,
    processes::PROCESSES,
    processes::SIGNALS,
    processes::IDENTITY,
    processes::MEMORY,
    processes::TIME,
    network::SOCKETS,
    network::DEVICES,
    network::MESSAGES,
    network::FACTS,
    privileged::MOUNTS,
    privileged::KEYS,
    privileged::TRACING,
    privileged::MACHINE,
];

/// What init gets in place of the rows in [`COMMAND`].
pub const INIT: &[Topic] = &[processes::INIT];

/// What the worker gets.
pub const WORKER: &[Topic] = &[worker::PROGRAM, worker::FILES];
