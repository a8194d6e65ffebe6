//! What went wrong, and why, told once at the end.

use std::error::Error;
use std::fmt;

/// The step that failed and what it failed of.
#[derive(Debug)]
pub struct Failure {
    step: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that has no cause of its own.
    pub fn new(step: impl Into<String>) -> Self {
        Self { step: step.into(), cause: None }
    }

    /// The failure and its causes, one a line.
    pub fn chain(&self) -> String {
        let mut text = format!("error: {self}");
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(&format!("\n  caused by: {error}"));
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.step)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as &(dyn Error + 'static))
    }
}

/// Names the step that an error ended.
pub trait Step<T> {
    /// Makes the error the cause of the step's failure.
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Error + Send + Sync + 'static> Step<T> for Result<T, E> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure { step: step(), cause: Some(Box::new(error)) })
    }
}
