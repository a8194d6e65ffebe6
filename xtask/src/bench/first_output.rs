//! From the request over HTTP to the first byte that a command printed.

use super::Row;
use super::api::Api;
use super::sample::{Pace, alone, timed};
use crate::failure::Failure;
use crate::test_fs::TestFs;

/// Measures in a session that runs, and with a session of its own for each request.
///
/// # Errors
/// When the API refuses.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let api = Api::start(&fs.path().join("output"))?;
    let running = api.new_session()?;
    let mut rows = Vec::new();
    for pace in [Pace::BackToBack, Pace::AfterQuiet] {
        let value = alone(pace, &mut || timed(|| api.first_output(&running)))?;
        let name = format!("request to first output, {}", pace.told());
        rows.push(Row::alone(name, value, "ms"));
    }
    for pace in [Pace::BackToBack, Pace::AfterQuiet] {
        let value = alone(pace, &mut || {
            let mut session = String::new();
            let taken = timed(|| {
                session = api.new_session()?;
                api.first_output(&session)
            })?;
            api.delete_session(&session)?;
            Ok(taken)
        })?;
        let name = format!("request for a session to first output, {}", pace.told());
        rows.push(Row::alone(name, value, "ms"));
    }
    Ok(rows)
}
