//! Which host ids are hangar's: as configured, and nobody else's.

use super::ServeError;
use hangar_runtime::ids::{BLOCK_SIZE, Range};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What systemd hands out to containers; the default range begins right above.
const CONTAINERS: RangeInclusive<u32> = 524_288..=1_879_048_191;
/// Who may hand out ids of their own, and which: `name:first:count` in each line.
const SUBORDINATE: [&str; 2] = ["/etc/subuid", "/etc/subgid"];
/// The end of what hangar uses: ids are signed in too many programs.
const END: u32 = 1 << 31;

/// The range with this base, if it is a valid one, the one the state directory was made with, and
/// not handed out by the host to others.
pub(super) fn checked(base: u32, state_dir: &Path) -> Result<Range, ServeError> {
    let refuse = |why: String| ServeError::step("checking warden.range_base", why);
    let range = Range::checked(base).map_err(refuse)?;
    if CONTAINERS.contains(&base) {
        let (first, last) = (CONTAINERS.start(), CONTAINERS.end());
        let why = format!("{base} is among the ids of containers, {first} to {last}");
        return Err(refuse(why));
    }
    for path in SUBORDINATE {
        // A host without the file hands nothing out.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(line) = overlap(base, &text) {
            return Err(refuse(format!("{path} hands out ids from {base} on: `{line}`")));
        }
    }
    match std::fs::metadata(state_dir.join("api")) {
        Ok(api) if api.uid() != range.api() => {
            let made = api.uid() / BLOCK_SIZE * BLOCK_SIZE;
            Err(refuse(format!("the state directory was made with {made}, not with {base}")))
        }
        _ => Ok(range),
    }
}

/// The first line that hands out an id from `base` on.
fn overlap(base: u32, subordinate: &str) -> Option<&str> {
    subordinate.lines().find(|line| {
        let mut fields = line.rsplit(':').map(|field| field.trim().parse::<u64>());
        let (Some(Ok(count)), Some(Ok(first))) = (fields.next(), fields.next()) else {
            return false;
        };
        first < u64::from(END) && first + count > u64::from(base)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_runtime::ids::DEFAULT_RANGE_BASE;

    #[test]
    fn subordinate_ids_are_read_as_they_are_written() {
        let base = 0x7000_0000;
        let text = "alice:100000:65536\nbob:1879048192:65536\n";
        assert_eq!(overlap(base, text), Some("bob:1879048192:65536"));
        assert_eq!(overlap(base + 65_536, text), None);
        assert_eq!(overlap(base, "alice:100000:65536\n# no line\n\nbroken:x:y\n"), None);
        assert_eq!(overlap(base, "big:100000:4000000000\n"), Some("big:100000:4000000000"));
        assert_eq!(overlap(base, "above:2147483648:65536\n"), None);
    }

    #[test]
    fn a_range_is_valid_free_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let check = |base| checked(base, dir.path());
        assert_eq!(check(DEFAULT_RANGE_BASE).unwrap(), Range::default());
        let other = DEFAULT_RANGE_BASE + 16 * BLOCK_SIZE;
        assert_eq!(check(other).unwrap().base, other);
        for bad in [0, 1, BLOCK_SIZE * 16, DEFAULT_RANGE_BASE + 1, u32::MAX / 2 + 1] {
            assert!(check(bad).is_err(), "{bad}");
        }
        // Made with the default, served with another: its owners would be strangers.
        let api = dir.path().join("api");
        std::fs::create_dir(&api).unwrap();
        let owner = Some(Range::default().api());
        std::os::unix::fs::chown(&api, owner, owner).unwrap();
        assert!(check(DEFAULT_RANGE_BASE).is_ok());
        let error = check(other).unwrap_err().to_string();
        assert!(error.contains(&DEFAULT_RANGE_BASE.to_string()), "{error}");
    }
}
