//! What idle sessions cost: memory of hangar's processes, shared pages counted by their share.

use super::Row;
use super::api::Api;
use crate::failure::{Failure, Step};
use crate::test_fs::TestFs;
use std::path::Path;

const SESSIONS: u16 = 32;

/// Measures what each of many idle sessions adds.
///
/// # Errors
/// When the API refuses, or a process cannot be read.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let api = Api::start(&fs.path().join("memory"))?;
    // The first session makes what all later ones share.
    let first = api.new_session()?;
    let before = hangar_pss_bytes()?;
    for _ in 0..SESSIONS {
        api.new_session()?;
    }
    let after = hangar_pss_bytes()?;
    api.delete_session(&first)?;
    let each = (after.saturating_sub(before)) as f64 / f64::from(SESSIONS) / f64::from(1 << 20);
    Ok(vec![Row::alone(format!("memory of an idle session, of {SESSIONS}"), each, "MiB")])
}

/// The sum over all processes whose program is one of hangar's, init from its memory file
/// included. Other hangars of this machine must be idle meanwhile.
fn hangar_pss_bytes() -> Result<u64, Failure> {
    let processes = std::fs::read_dir("/proc").step(|| "listing /proc".to_owned())?;
    let mut sum = 0;
    for process in processes.filter_map(Result::ok) {
        let program = std::fs::read_link(process.path().join("exe"));
        let is_hangar = program.is_ok_and(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains("hangar"))
        });
        if is_hangar {
            sum += pss_bytes(&process.path())?;
        }
    }
    Ok(sum)
}

fn pss_bytes(process: &Path) -> Result<u64, Failure> {
    let path = process.join("smaps_rollup");
    let text = std::fs::read_to_string(&path).step(|| format!("reading {}", path.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| kib << 10)
        .ok_or_else(|| Failure::new(format!("{} has no line Pss", path.display())))
}
