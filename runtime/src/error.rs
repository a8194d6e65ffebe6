//! Errors of the launch: the step, the call with its arguments, the cause.

use rustix::io::Errno;
use std::fmt;

/// Why a session was not started, or a step of its life failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupError {
    /// The step of the launch, such as `make-root-read-only`.
    pub step: &'static str,
    /// The call with its arguments, such as `mount_setattr(root, RDONLY)`.
    pub call: String,
    /// Why it failed.
    pub cause: Cause,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The kernel said so.
    Errno(Errno),
    /// What was read back is not what was set.
    Mismatch {
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// Something else, in words.
    Other(String),
}

impl SetupError {
    /// A failed system call.
    pub fn call(step: &'static str, call: impl Into<String>, errno: Errno) -> Self {
        Self { step, call: call.into(), cause: Cause::Errno(errno) }
    }

    /// A drop or a limit that did not hold.
    pub fn mismatch(
        step: &'static str,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Self {
            step,
            call: what.into(),
            cause: Cause::Mismatch { expected: expected.to_string(), found: found.to_string() },
        }
    }

    /// Anything else.
    pub fn other(step: &'static str, call: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { step, call: call.into(), cause: Cause::Other(why.to_string()) }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.call)?;
        match &self.cause {
            Cause::Errno(errno) => write!(f, " failed: {errno} (errno {})", errno.raw_os_error()),
            Cause::Mismatch { expected, found } => {
                write!(f, " does not hold: expected {expected}, found {found}")
            }
            Cause::Other(why) => write!(f, " failed: {why}"),
        }
    }
}

impl std::error::Error for SetupError {}

/// Adds the step and the call to the error of a system call.
pub trait AtStep<T> {
    /// Names the step and the call; the call is only built when it failed.
    ///
    /// # Errors
    /// The error of `self`, with its context.
    fn at<S: Into<String>>(
        self,
        step: &'static str,
        call: impl FnOnce() -> S,
    ) -> Result<T, SetupError>;
}

impl<T> AtStep<T> for Result<T, Errno> {
    fn at<S: Into<String>>(
        self,
        step: &'static str,
        call: impl FnOnce() -> S,
    ) -> Result<T, SetupError> {
        self.map_err(|errno| SetupError::call(step, call(), errno))
    }
}

impl<T> AtStep<T> for std::io::Result<T> {
    fn at<S: Into<String>>(
        self,
        step: &'static str,
        call: impl FnOnce() -> S,
    ) -> Result<T, SetupError> {
        self.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => SetupError::call(step, call(), errno),
            None => SetupError::other(step, call(), error),
        })
    }
}
