//! What a task may use up; where it ends at one of them, it is `incomplete` and says which.

use super::request::Bounds;
use crate::config;
use crate::store::HarnessConfig;
use std::time::Duration;

/// How many bytes of output are taken for a token where no model counts them.
const TOKEN_BYTES: u64 = 4;

/// The budgets of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Rounds of tool calls.
    pub steps: Option<u64>,
    /// Wall time.
    pub time: Duration,
    /// Bytes of output.
    pub output_bytes: u64,
    /// What is told when the output is too long.
    pub output_reason: Spent,
}

/// A budget that stopped a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The rounds of tool calls.
    Steps,
    /// The wall time.
    Time,
    /// The tokens that the request allowed.
    OutputTokens,
    /// What the server keeps of one task's output.
    OutputBytes,
}

impl Spent {
    /// As `incomplete_details.reason` tells it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Steps => "max_step",
            Self::Time => "timeout_seconds",
            Self::OutputTokens => "max_output_tokens",
            Self::OutputBytes => "hangar_output_bytes_max",
        }
    }
}

impl Budgets {
    /// The narrowest of what the request, its harness and the server allow.
    #[must_use]
    pub fn of(asked: Bounds, harness: &HarnessConfig, server: &config::Tasks) -> Self {
        let narrower = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let seconds = narrower(asked.seconds, harness.timeout_seconds);
        let seconds = seconds.unwrap_or(u64::MAX).min(server.timeout_s_max);
        let kept = server.output_bytes_max;
        let tokens = asked.output_tokens.map(|tokens| tokens.saturating_mul(TOKEN_BYTES));
        let (output_bytes, output_reason) = match tokens {
            Some(bytes) if bytes < kept => (bytes, Spent::OutputTokens),
            _ => (kept, Spent::OutputBytes),
        };
        Self {
            steps: narrower(asked.steps, harness.max_step),
            time: Duration::from_secs(seconds),
            output_bytes,
            output_reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_bound_counts() {
        let server =
            config::Tasks { timeout_s_max: 100, output_bytes_max: 1000, ..Default::default() };
        let harness = HarnessConfig { timeout_seconds: Some(50), ..Default::default() };
        let of = |seconds, output_tokens| {
            Budgets::of(Bounds { steps: Some(3), seconds, output_tokens }, &harness, &server)
        };
        let asked = of(Some(7), Some(10));
        assert_eq!((asked.time.as_secs(), asked.output_bytes), (7, 40));
        assert_eq!((asked.steps, asked.output_reason), (Some(3), Spent::OutputTokens));
        let wide = of(Some(7000), Some(10_000));
        assert_eq!((wide.time.as_secs(), wide.output_bytes), (50, 1000));
        assert_eq!(wide.output_reason, Spent::OutputBytes);
        let none = Budgets::of(Bounds::default(), &HarnessConfig::default(), &server);
        assert_eq!((none.time.as_secs(), none.steps), (100, None));
    }
}
