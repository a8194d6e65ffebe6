//! How often a scope may ask: a bucket for each kind of request, that fills as time goes by.

use crate::config::ScopeLimits;
use crate::failure::{Code, Failure};
use axum::extract::Request;
use axum::http::Method;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Any request.
    Request,
    /// One that starts a task; it counts as a request too.
    Task,
}

impl Kind {
    /// What a request is.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/responses") => Self::Task,
            _ => Self::Request,
        }
    }
}

/// What the scopes asked for lately. There is an entry for each scope that a token has, so there
/// are as many as the operator made.
#[derive(Debug, Default)]
pub struct Rates {
    buckets: Mutex<HashMap<(String, Kind), Bucket>>,
}

impl Rates {
    /// Counts a request, or refuses it.
    ///
    /// # Errors
    /// [`Code::RateLimited`] with the time after which there is room for one.
    pub fn admit(&self, limits: &ScopeLimits, scope: &str, kind: Kind) -> Result<(), Failure> {
        self.admit_at(limits, scope, kind, Instant::now())
    }

    fn admit_at(
        &self,
        limits: &ScopeLimits,
        scope: &str,
        kind: Kind,
        now: Instant,
    ) -> Result<(), Failure> {
        let counted = match kind {
            Kind::Request => vec![(Kind::Request, limits.requests_per_minute_max)],
            Kind::Task => vec![
                (Kind::Request, limits.requests_per_minute_max),
                (Kind::Task, limits.tasks_per_minute_max),
            ],
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, max) in counted.into_iter().filter_map(|(kind, max)| Some((kind, max?))) {
            let bucket = buckets.entry((scope.to_owned(), kind)).or_insert(Bucket::full(max, now));
            bucket.take(max, now).map_err(|wait| refused(kind, max, wait))?;
        }
        Ok(())
    }
}

fn refused(kind: Kind, max: NonZeroU32, wait: Duration) -> Failure {
    let what = match kind {
        Kind::Request => "requests",
        Kind::Task => "tasks",
    };
    Failure::new(Code::RateLimited, format!("this scope may have {max} {what} a minute"))
        .with_detail(serde_json::json!({
            "retry_after_ms": u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1),
            "per_minute_max": max,
        }))
}

#[derive(Debug)]
struct Bucket {
    /// Requests that may come now, and a part of the next one.
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(max: NonZeroU32, now: Instant) -> Self {
        Self { left: f64::from(max.get()), at: now }
    }

    /// Takes one, or says how long it takes until there is one.
    fn take(&mut self, max: NonZeroU32, now: Instant) -> Result<(), Duration> {
        let max = f64::from(max.get());
        let per_second = max / MINUTE.as_secs_f64();
        let filled = now.saturating_duration_since(self.at).as_secs_f64() * per_second;
        self.left = (self.left + filled).min(max);
        self.at = self.at.max(now);
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.left) / per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_as_time_goes_by() {
        let limits = ScopeLimits {
            requests_per_minute_max: NonZeroU32::new(6),
            tasks_per_minute_max: NonZeroU32::new(2),
            ..ScopeLimits::default()
        };
        let (rates, start) = (Rates::default(), Instant::now());
        let at = |seconds: u64, scope: &str, kind| {
            let now = start + Duration::from_secs(seconds);
            rates.admit_at(&limits, scope, kind, now).map_err(|failure| {
                assert_eq!(failure.code, Code::RateLimited);
                failure.detail.unwrap()["retry_after_ms"].as_u64().unwrap()
            })
        };
        assert_eq!((at(0, "a", Kind::Task), at(0, "a", Kind::Task)), (Ok(()), Ok(())));
        assert_eq!(at(0, "a", Kind::Task), Err(30_000), "tasks are used up");
        for _ in 0..3 {
            assert_eq!(at(0, "a", Kind::Request), Ok(()), "requests are not");
        }
        assert_eq!(at(0, "a", Kind::Request), Err(10_000));
        assert_eq!(at(0, "b", Kind::Request), Ok(()), "another scope");
        assert_eq!(at(10, "a", Kind::Request), Ok(()));
        assert_eq!(at(10, "a", Kind::Request), Err(10_000));
        for _ in 0..6 {
            assert_eq!(at(600, "a", Kind::Request), Ok(()));
        }
        assert!(at(600, "a", Kind::Request).is_err(), "it holds no more than a minute's");
        let unlimited = ScopeLimits::default();
        assert!((0..1000).all(|_| rates.admit(&unlimited, "a", Kind::Task).is_ok()));
    }
}
