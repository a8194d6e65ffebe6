//! System call filters as commented data, compiled to BPF.
//!
//! A profile is a set of tables ([`topics`]); each row names one call, what happens to it and
//! why. Everything that no row names returns `ENOSYS`, so a call that a new kernel brings is
//! refused until somebody has thought about it. This crate decides and compiles; installing is
//! the caller's, by `seccomp(2)` with `no_new_privs` set.
#![forbid(unsafe_code)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the tables hold the system call numbers of x86-64");

mod compile;
mod report;
mod row;
mod tables;

pub use report::markdown;
pub use row::{Case, Condition, Errno, Row, Topic, Verdict};

use std::collections::BTreeMap;

/// Who runs under a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// PID 1 of a session: what commands may do, and what starting one needs.
    Init,
    /// Commands of a session. Installed on top of [`Profile::Init`], which they inherit.
    Command,
    /// The worker that parses archives and writes trees.
    Worker,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Init, Self::Command, Self::Worker];

    /// The name, as it stands in records and file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Command => "command",
            Self::Worker => "worker",
        }
    }
}

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// How many instructions to skip when the comparison holds.
    pub jt: u8,
    /// How many to skip when it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// The compiled filters of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The name of the profile.
    pub name: &'static str,
    /// To be installed in this order; together they are the profile.
    pub filters: Vec<Vec<Instruction>>,
}

impl Program {
    /// The filters as bytes: for each its length in instructions (4 bytes, little endian) and the
    /// instructions as the kernel takes them. The digest is over these.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for filter in &self.filters {
            // The kernel takes 4096 instructions at most.
            bytes.extend((filter.len() as u32).to_le_bytes());
            for instruction in filter {
                bytes.extend(instruction.code.to_le_bytes());
                bytes.extend([instruction.jt, instruction.jf]);
                bytes.extend(instruction.k.to_le_bytes());
            }
        }
        bytes
    }

    /// BLAKE3 of [`Self::bytes`] in hexadecimal: the same program on both sides of a process.
    pub fn digest(&self) -> String {
        blake3::hash(&self.bytes()).to_hex().to_string()
    }
}

/// A row that cannot be compiled. The tables are constants, so a test finds it, not a user.
#[derive(Debug)]
pub struct CompileError {
    /// The call of the row.
    pub syscall: &'static str,
    /// What seccompiler says.
    pub cause: seccompiler::BackendError,
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the filter row of {} was not compiled", self.syscall)
    }
}

impl std::error::Error for CompileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The tables of a profile. A number in an earlier topic is not looked at in later ones.
pub fn topics(profile: Profile) -> Vec<Topic> {
    match profile {
        Profile::Init => [tables::INIT, tables::COMMAND].concat(),
        Profile::Command => tables::COMMAND.to_vec(),
        Profile::Worker => tables::WORKER.to_vec(),
    }
}

/// The rows that count, by number.
pub fn rows(profile: Profile) -> Vec<Row> {
    let mut rows = BTreeMap::new();
    for row in topics(profile).iter().flat_map(|topic| topic.rows) {
        rows.entry(row.number).or_insert(*row);
    }
    rows.into_values().collect()
}

/// Compiles a profile.
///
/// # Errors
/// A row that seccompiler refuses, such as a condition on a seventh argument.
pub fn program(profile: Profile) -> Result<Program, CompileError> {
    let filter = compile::compile(&rows(profile))?;
    Ok(Program { name: profile.name(), filters: vec![filter] })
}
