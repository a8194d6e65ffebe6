//! What idle sessions cost: memory of hangar's processes, shared pages counted by their share.

use super::Row;
use super::api::Api;
use crate::failure::{Failure, Step};
use crate::test_fs::TestFs;
use std::collections::HashMap;

const SESSIONS: u16 = 32;

/// Measures what each of many idle sessions adds.
///
/// # Errors
/// When the API refuses, a process cannot be read, or a session has no process of its own.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let api = Api::start(&fs.path().join("memory"))?;
    // The first session makes what all later ones share.
    api.new_session()?;
    let before = Usage::of(api.pid())?;
    for _ in 0..SESSIONS {
        api.new_session()?;
    }
    let after = Usage::of(api.pid())?;
    let added = after.processes.saturating_sub(before.processes);
    if added < usize::from(SESSIONS) {
        return Err(Failure::new(format!("{SESSIONS} sessions added {added} processes")));
    }
    let each = after.pss_bytes.saturating_sub(before.pss_bytes) as f64 / f64::from(SESSIONS);
    let name = format!("memory of an idle session, of {SESSIONS}");
    Ok(vec![Row::alone(name, each / f64::from(1 << 20), "MiB")])
}

/// What a process and all below it use.
struct Usage {
    processes: usize,
    pss_bytes: u64,
}

impl Usage {
    /// The server, its warden, the proxy, and the init of each session with what it started.
    fn of(server: u32) -> Result<Self, Failure> {
        let parents = parents()?;
        let below = |mut pid: u32| loop {
            match parents.get(&pid) {
                _ if pid == server => break true,
                Some(parent) => pid = *parent,
                None => break false,
            }
        };
        let mut usage = Self { processes: 0, pss_bytes: 0 };
        for pid in parents.keys().copied().filter(|pid| below(*pid)) {
            usage.processes += 1;
            usage.pss_bytes += pss_bytes(pid)?;
        }
        Ok(usage)
    }
}

/// Every process and its parent.
fn parents() -> Result<HashMap<u32, u32>, Failure> {
    let entries = std::fs::read_dir("/proc").step(|| "listing /proc".to_owned())?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    // A process that has ended since the listing has no parent any more.
    Ok(pids.filter_map(|pid| Some((pid, parent(pid)?))).collect())
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn pss_bytes(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).step(|| format!("reading {path}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| kib << 10)
        .ok_or_else(|| Failure::new(format!("{path} has no line Pss")))
}
