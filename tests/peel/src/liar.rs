//! An init that lies about one field of its proof record.

use hangar_runtime::proof::ProofRecord;

/// Changes one field to what would please a careless warden, or to anything else that is not so.
///
/// The pattern names every field there is, so a new one does not compile until it has a lie.
///
/// # Panics
/// For a lie that is not in [`LIES`].
#[must_use]
pub fn tell(mut record: ProofRecord, lie: Option<&str>) -> ProofRecord {
    let ProofRecord {
        namespaces,
        uid_map,
        gid_map,
        mounts,
        capabilities,
        no_new_privs,
        securebits,
        seccomp_mode,
        seccomp_filters,
        landlock,
        cgroups,
        rlimits,
        uids,
        gids,
        groups,
    } = &mut record;
    match lie {
        None => {}
        Some("namespaces") => *namespaces.get_mut("net").expect("net") += 1,
        Some("uid_map") => uid_map[0].outside += 1,
        Some("gid_map") => gid_map[0].count -= 1,
        Some("mounts") => mounts.retain(|mount| mount.target != "/tmp"),
        Some("capabilities") => capabilities.effective = 0,
        Some("no_new_privs") => *no_new_privs = !*no_new_privs,
        Some("securebits") => *securebits = 0,
        Some("seccomp_mode") => *seccomp_mode = 0,
        Some("seccomp_filters") => *seccomp_filters += 1,
        Some("landlock.abi") => landlock.abi += 1,
        Some("landlock.handled") => drop(landlock.handled.pop()),
        Some("landlock.scopes") => landlock.scopes.push("Everything".into()),
        Some("landlock.absent") => landlock.absent.push("nothing".into()),
        Some("landlock.rules") => landlock.rules.push(("/".into(), "write".into())),
        Some("landlock.fully_enforced") => landlock.fully_enforced = false,
        Some("cgroups") => drop(cgroups.insert(String::new(), "/elsewhere".into())),
        Some("rlimits") => drop(rlimits.insert("Max open files".into(), (Some(1), Some(1)))),
        Some("uids") => uids[1] = 1000,
        Some("gids") => gids[3] = 1000,
        Some("groups") => groups.push(27),
        Some(other) => panic!("no lie about {other}"),
    }
    record
}

/// Every lie there is, for the test that tells each in turn.
pub const LIES: &[&str] = &[
    "namespaces",
    "uid_map",
    "gid_map",
    "mounts",
    "capabilities",
    "no_new_privs",
    "securebits",
    "seccomp_mode",
    "seccomp_filters",
    "landlock.abi",
    "landlock.handled",
    "landlock.scopes",
    "landlock.absent",
    "landlock.rules",
    "landlock.fully_enforced",
    "cgroups",
    "rlimits",
    "uids",
    "gids",
    "groups",
];
