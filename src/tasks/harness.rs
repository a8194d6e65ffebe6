//! What runs the tasks of a harness: for each base, which program does the work.

use super::shell;
use crate::failure::{Code, Failure};
use crate::store::HarnessRow;

/// A base that can run tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The text is a script of bash. No model takes part.
    Shell,
}

/// What a base makes of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// A file it needs beside those of the request: its absolute path and its bytes.
    pub script: Option<(String, Vec<u8>)>,
    /// The name of the tool call that it is told as.
    pub tool: &'static str,
    /// The arguments of the call, as JSON.
    pub arguments: serde_json::Value,
}

impl Base {
    /// The base of a harness.
    ///
    /// # Errors
    /// [`Code::HarnessUnavailable`] when this server cannot run it.
    pub fn of(harness: &HarnessRow) -> Result<Self, Failure> {
        match harness.base.as_str() {
            SHELL => Ok(Self::Shell),
            _ => Err(Failure::new(
                Code::HarnessUnavailable,
                "this server cannot run harnesses of that base",
            )
            .with_param("metadata.harness_id")),
        }
    }

    /// The model that does the work of its tasks, as responses name it.
    #[must_use]
    pub fn model(self) -> &'static str {
        match self {
            Self::Shell => NO_MODEL,
        }
    }

    /// What is run for a text.
    #[must_use]
    pub fn work(self, text: &str) -> Work {
        match self {
            Self::Shell => shell::work(text),
        }
    }
}

/// The name of the base that needs no model.
pub const SHELL: &str = "shell";

/// What responses name where no model took part.
pub const NO_MODEL: &str = "none";
