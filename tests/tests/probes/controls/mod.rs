//! What each probe gives with its barriers left out, all of them and all but one.

mod files;
mod identity;
mod mounts;
mod sessions;
mod system_calls;

use hangar_tests::probing::Owner;

/// Attempts and what they give: results separated by `|`, as in the catalogue.
pub type Expected = &'static [(&'static str, &'static str)];

/// The positive control of one probe.
pub struct Control {
    pub id: &'static str,
    /// Who owns the attacked tree, where ownership is one of the barriers.
    pub owner: Owner,
    /// Attempts that do not succeed even then, or that need not on every kernel. All others do.
    pub still: Expected,
    /// Barriers that are there alone, and what they give. Some need another one beside them.
    pub alone: &'static [(&'static str, Expected)],
}

const fn control(
    id: &'static str,
    still: Expected,
    alone: &'static [(&'static str, Expected)],
) -> Control {
    Control { id, owner: Owner::Store, still, alone }
}

const fn owned(owner: Owner, control: Control) -> Control {
    Control { owner, ..control }
}

/// The control of a probe.
pub fn of(id: &str) -> Option<&'static Control> {
    let all = [
        files::CONTROLS,
        mounts::CONTROLS,
        identity::CONTROLS,
        system_calls::CONTROLS,
        sessions::CONTROLS,
    ];
    all.into_iter().flatten().find(|control| control.id == id)
}
