//! Signals that end `hangar run`, taken as events so that it can clean up first.

use super::error::{CliError, While};
use std::future::Future;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, SIGINT and SIGTERM from now on.
#[derive(Debug)]
pub struct Interrupts {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Takes the signals over from their default, which is to end the process.
    ///
    /// # Errors
    /// When the runtime has no driver for signals.
    pub fn take_over() -> Result<Self, CliError> {
        let take = |kind| signal(kind).while_doing(|| "signals cannot be taken over");
        Ok(Self {
            hangup: take(SignalKind::hangup())?,
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
        })
    }

    /// The number of the next signal.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.hangup.recv() => SignalKind::hangup().as_raw_value(),
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    }

    /// Does the work unless a signal comes first.
    ///
    /// # Errors
    /// That of the work, or that a signal came.
    pub async fn unless<T>(
        &mut self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            done = work => done,
            signal = self.next() => Err(CliError::interrupted(signal)),
        }
    }
}
