//! Numbers, in the text format of Prometheus.

use crate::app::App;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;
use std::time::Duration;

/// Bounds of the classes of times, in seconds: from a command in a running session to a build.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0,
    1800.0,
];

/// Numbers are counted for the whole process; without this they are not counted.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

const REQUESTS: &str = "hangar_requests_total";
const REQUEST_SECONDS: &str = "hangar_request_seconds";
const REFUSALS: &str = "hangar_refusals_total";
const LAUNCHES: &str = "hangar_launches_total";
const LAUNCH_SECONDS: &str = "hangar_launch_seconds";
const BUILDS: &str = "hangar_builds_total";
const BUILD_SECONDS: &str = "hangar_build_seconds";
const EGRESS_REFUSALS: &str = "hangar_egress_refusals_total";
const SESSIONS_RUNNING: &str = "hangar_sessions_running";
const BUILDS_RUNNING: &str = "hangar_builds_running";
const MEMORY_BYTES: &str = "hangar_api_resident_bytes";
const OPEN_FILES: &str = "hangar_api_open_files";
const DISK_FREE_BYTES: &str = "hangar_disk_free_bytes";

/// Begins to count.
///
/// # Errors
/// When the process counts into something else already.
pub fn start() -> Result<(), BuildError> {
    let seconds = [REQUEST_SECONDS, LAUNCH_SECONDS, BUILD_SECONDS];
    let builder = seconds.iter().try_fold(PrometheusBuilder::new(), |builder, name| {
        builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), SECONDS)
    })?;
    let handle = builder.install_recorder()?;
    let _first = RECORDER.set(handle);
    describe();
    Ok(())
}

fn describe() {
    describe_counter!(REQUESTS, "Requests, by method, route and status");
    describe_histogram!(REQUEST_SECONDS, "From a request to the head of its answer");
    describe_counter!(REFUSALS, "Requests that were refused, by code");
    describe_counter!(LAUNCHES, "Isolations that were started, by outcome");
    describe_histogram!(LAUNCH_SECONDS, "From the order to the proof of an isolation");
    describe_counter!(BUILDS, "Builds that ended, by outcome");
    describe_histogram!(BUILD_SECONDS, "From the order for a version to its end");
    describe_counter!(EGRESS_REFUSALS, "Targets that sessions asked for and did not reach");
    describe_gauge!(SESSIONS_RUNNING, "Isolations that run");
    describe_gauge!(BUILDS_RUNNING, "Builds that run or wait for their turn");
    describe_gauge!(MEMORY_BYTES, "Resident memory of the API process");
    describe_gauge!(OPEN_FILES, "Open descriptors of the API process");
    describe_gauge!(DISK_FREE_BYTES, "Free bytes of the file system of the state directory");
}

/// Counts a request and its answer.
pub fn request(
    method: &str,
    route: &str,
    status: u16,
    refused: Option<&'static str>,
    took: Duration,
) {
    let of = [("method", method.to_owned()), ("route", route.to_owned())];
    histogram!(REQUEST_SECONDS, &of).record(took);
    let [method, route] = of;
    counter!(REQUESTS, &[method, route, ("status", status.to_string())]).increment(1);
    if let Some(code) = refused {
        counter!(REFUSALS, "code" => code).increment(1);
    }
}

/// What became of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It worked.
    Succeeded,
    /// It did not.
    Failed,
}

impl Outcome {
    /// That of a result.
    pub fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Succeeded } else { Self::Failed }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }
}

/// Counts a launch.
pub fn launch(outcome: Outcome, took: Duration) {
    counter!(LAUNCHES, "outcome" => outcome.label()).increment(1);
    if outcome == Outcome::Succeeded {
        histogram!(LAUNCH_SECONDS).record(took);
    }
}

/// Counts a build.
pub fn build(outcome: Outcome, took: Duration) {
    counter!(BUILDS, "outcome" => outcome.label()).increment(1);
    histogram!(BUILD_SECONDS, "outcome" => outcome.label()).record(took);
}

/// Counts a target that the proxy did not dial.
pub fn egress_refused() {
    counter!(EGRESS_REFUSALS).increment(1);
}

/// All numbers, as Prometheus reads them; empty when nothing is counted.
#[must_use]
pub fn text(app: &App) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    let float = |number: u64| number as f64;
    gauge!(SESSIONS_RUNNING).set(float(app.isolations.running() as u64));
    gauge!(BUILDS_RUNNING).set(float(app.builds.running() as u64));
    if let Some(bytes) = resident_bytes() {
        gauge!(MEMORY_BYTES).set(float(bytes));
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        gauge!(OPEN_FILES).set(float(open.count() as u64));
    }
    if let Ok(disk) = rustix::fs::statvfs(&app.files.root) {
        gauge!(DISK_FREE_BYTES).set(float(disk.f_bavail.saturating_mul(disk.f_frsize)));
    }
    let Some(handle) = RECORDER.get() else { return String::new() };
    handle.run_upkeep();
    handle.render()
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
