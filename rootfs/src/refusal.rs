//! Making a [`Refusal`] out of what went wrong.

use crate::job::{Refusal, RefusalCode};
use rustix::io::Errno;
use std::fmt;
use std::io;

impl Refusal {
    /// A refusal whose message says it all.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: String::new(), limit: None }
    }

    /// Adds what is for the log only.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.detail = detail.to_string();
        self
    }

    /// Adds the limit that was passed.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// A system call that failed while `subject` (as in "the member \"x\"") was worked on.
    pub fn call(subject: &str, call: &str, errno: Errno) -> Self {
        let refusal = match errno {
            Errno::NOSPC | Errno::DQUOT => Self::new(
                RefusalCode::DiskFull,
                format!("the disk is full; {subject} could not be written"),
            ),
            _ => {
                Self::new(RefusalCode::Failed, format!("{subject} could not be processed: {errno}"))
            }
        };
        refusal.detail(format!("{call} failed: {errno} (errno {})", errno.raw_os_error()))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

impl std::error::Error for Refusal {}

/// Carries a refusal through an interface that knows [`io::Error`] only; [`refusal_within`] takes
/// it out again.
pub(crate) fn into_io(refusal: Refusal) -> io::Error {
    io::Error::other(refusal)
}

/// The refusal that [`into_io`] put in, if there is one.
pub(crate) fn refusal_within(error: &io::Error) -> Option<&Refusal> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>())
}

/// Names the subject and the call of a system call that failed.
pub(crate) trait Attempt<T> {
    /// `subject` is for the client, as in "the file \"x\""; `call` is for the log.
    fn attempt(self, subject: impl FnOnce() -> String, call: &str) -> Result<T, Refusal>;
}

impl<T> Attempt<T> for Result<T, Errno> {
    fn attempt(self, subject: impl FnOnce() -> String, call: &str) -> Result<T, Refusal> {
        self.map_err(|errno| Refusal::call(&subject(), call, errno))
    }
}
