//! Failures of the command line, printed once, at the edge.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a command of hangar did not do what it was asked.
#[derive(Debug)]
pub struct CliError {
    /// What was to be done, or what is wrong; lower case, no full stop.
    what: String,
    /// Why it failed.
    source: Option<Box<dyn Error + Send + Sync>>,
    /// What the user can do about it.
    hint: Option<String>,
    /// Set when the server answered with an error.
    api: Option<ApiCode>,
    /// Set when a signal ended the command before it did anything else.
    signal: Option<i32>,
}

/// What the server says in an error, for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCode {
    /// The status of the answer.
    pub status: u16,
    /// The stable code, such as `environment_exists`.
    pub code: String,
}

impl CliError {
    /// Something is wrong and there is no further cause.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None, hint: None, api: None, signal: None }
    }

    /// A step failed because of something else.
    pub fn caused(what: impl Into<String>, by: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(by.into()), ..Self::new(what) }
    }

    /// The server answered with an error.
    pub fn from_api(api: ApiCode, message: impl Into<String>) -> Self {
        Self { api: Some(api), ..Self::new(message) }
    }

    /// A signal came before there was a command to hand it to.
    pub fn interrupted(signal: i32) -> Self {
        Self { signal: Some(signal), ..Self::new("interrupted") }
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The server's code, when the server refused.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.find(|error| error.api.as_ref()).map(|api| api.code.as_str())
    }

    /// The signal that ended the command.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.find(|error| error.signal.as_ref()).copied()
    }

    /// The first answer of this error and its causes.
    fn find<'a, T>(&'a self, get: impl Fn(&'a Self) -> Option<&'a T>) -> Option<&'a T> {
        let mut error = Some(self);
        while let Some(this) = error {
            if let Some(found) = get(this) {
                return Some(found);
            }
            error = this.source().and_then(|source| source.downcast_ref());
        }
        None
    }

    /// The whole chain as it is shown.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = format!("error: {}", self.what);
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str("\n  caused by: ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        if let Some(hint) = self.find(|error| error.hint.as_ref()) {
            text.push_str("\nhint: ");
            text.push_str(hint);
        }
        text
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for CliError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// Names what was being done when a call failed.
pub trait While<T> {
    /// Adds the context; it is only built when the call failed.
    ///
    /// # Errors
    /// The error of `self` as the cause.
    fn while_doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, CliError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> While<T> for Result<T, E> {
    fn while_doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, CliError> {
        self.map_err(|error| CliError::caused(what(), error))
    }
}

/// Whether the reader of a pipe went away.
#[must_use]
pub fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_every_cause_once() {
        let io = io::Error::from_raw_os_error(13);
        let error = Err::<(), _>(io)
            .while_doing(|| "reading x failed")
            .while_doing(|| "the project was not imported")
            .unwrap_err()
            .hint("try sudo");
        assert_eq!(
            error.chain(),
            "error: the project was not imported\n  caused by: reading x failed\n  \
             caused by: Permission denied (os error 13)\nhint: try sudo"
        );
    }

    #[test]
    fn what_a_cause_knows_is_not_lost_by_naming_the_step() {
        let code = ApiCode { status: 409, code: "environment_busy".to_owned() };
        let error = Err::<(), _>(CliError::from_api(code, "a build runs").hint("wait"))
            .while_doing(|| "outer")
            .unwrap_err();
        assert_eq!((error.code(), error.signal()), (Some("environment_busy"), None));
        assert!(error.chain().ends_with("\nhint: wait"));
        let error = Err::<(), _>(CliError::interrupted(2)).while_doing(|| "outer").unwrap_err();
        assert_eq!((error.code(), error.signal()), (None, Some(2)));
    }
}
