//! Which installed dependencies are kept for later builds, and under what key.

use super::installers::Installer;
use super::manifests::{Kept, Manifests};
use super::others::directory;
use super::toolchain;
use crate::app::hex;
use hangar_runtime::ids::DependencyKey;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Where the tools are kept that build a `pyproject.toml` project; no version has it.
pub const BUILD_TOOLS: &str = ".hangar-build";

/// What a build keeps, or takes from an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reuse {
    /// Names what is kept.
    pub key: DependencyKey,
    /// The names at the root of the version that are kept.
    pub entries: Vec<String>,
    /// Whose packages they are.
    pub of: Vec<Installer>,
}

impl Reuse {
    /// Whether the packages of this installer are kept.
    #[must_use]
    pub fn keeps(&self, installer: Installer) -> bool {
        self.of.contains(&installer)
    }
}

/// What can be kept, and why something cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What is kept; `None` when nothing can be.
    pub reuse: Option<Reuse>,
    /// For the log: whose packages are always installed again, and why.
    pub never: Vec<(Installer, &'static str)>,
}

/// Decides what is kept. The key covers the toolchain, the settings of the installers and every
/// input that decides what they install.
#[must_use]
pub fn decide(manifests: &Manifests, toolchain_id: &str, settings: &[&str]) -> Decision {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    add(b"hangar dependencies 2");
    add(toolchain_id.as_bytes());
    settings.iter().for_each(|setting| add(setting.as_bytes()));
    let (mut of, mut entries, mut never) = (Vec::new(), Vec::new(), Vec::new());
    let python = manifests.python.iter().map(|python| (python.installer, &python.kept));
    let node = manifests.node.iter().map(|node| (node.installer, &node.kept));
    let others = manifests.others.iter().map(|other| (other.installer, &other.kept));
    for (installer, kept) in python.chain(node).chain(others) {
        match kept {
            Kept::Never(why) => never.push((installer, *why)),
            Kept::By(inputs) => {
                add(installer.name().as_bytes());
                for program in installer.programs() {
                    add(toolchain::identity(program).as_bytes());
                }
                add_inputs(inputs, &mut add);
                of.push(installer);
                entries.push(directory(installer).to_owned());
            }
        }
    }
    if of.contains(&Installer::Pip)
        && manifests.python.as_ref().is_some_and(|python| python.project.is_some())
    {
        entries.push(BUILD_TOOLS.to_owned());
    }
    if of.contains(&Installer::Npm)
        && manifests.node.as_ref().is_some_and(|node| node.manifest && !node.locked)
    {
        entries.push("package-lock.json".to_owned());
    }
    if entries.is_empty() {
        return Decision { reuse: None, never };
    }
    let key = DependencyKey::parse(&hex(&digest.finalize())).expect("64 hexadecimal digits");
    Decision { reuse: Some(Reuse { key, entries, of }), never }
}

fn add_inputs(inputs: &BTreeMap<String, Vec<u8>>, add: &mut impl FnMut(&[u8])) {
    add(&(inputs.len() as u64).to_le_bytes());
    for (name, bytes) in inputs {
        add(name.as_bytes());
        add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifests::detect;
    use super::*;
    use crate::store::Declared;

    type SourceFiles<'a> = &'a [(&'a str, &'a str)];

    fn decision(files: SourceFiles<'_>, toolchain: &str) -> Decision {
        let read = |name: &str| {
            files.iter().find(|(path, _)| *path == name).map(|(_, text)| text.as_bytes().to_vec())
        };
        decide(&detect(&read, &Declared::default()), toolchain, &["egress"])
    }

    fn key(files: SourceFiles<'_>, toolchain: &str) -> DependencyKey {
        decision(files, toolchain).reuse.unwrap().key
    }

    #[test]
    fn source_files_do_not_change_the_key_and_inputs_do() {
        let base = [("requirements.txt", "numpy\n-c c.txt"), ("c.txt", "numpy<3"), ("a.py", "1")];
        let edited = [base[0], base[1], ("a.py", "2")];
        let constrained = [base[0], ("c.txt", "numpy<2"), base[2]];
        assert_eq!(key(&base, "t"), key(&edited, "t"));
        assert_ne!(key(&base, "t"), key(&constrained, "t"));
        assert_ne!(key(&base, "t"), key(&base, "other"));
    }

    #[test]
    fn a_manager_that_reads_the_source_is_left_out_of_the_rest() {
        let files =
            [("requirements.txt", "-e ."), ("package.json", "{}"), ("package-lock.json", "{}")];
        let decision = decision(&files, "t");
        let reuse = decision.reuse.unwrap();
        assert_eq!(reuse.entries, ["node_modules"]);
        assert!(reuse.keeps(Installer::Npm) && !reuse.keeps(Installer::Pip));
        assert_eq!(decision.never[0].0, Installer::Pip);
    }

    #[test]
    fn nothing_is_kept_when_nothing_is_installed() {
        assert_eq!(decision(&[("setup.sh", "")], "t"), Decision { reuse: None, never: vec![] });
    }

    #[test]
    fn inputs_cannot_be_shifted_from_one_file_to_another() {
        let one = [("requirements.txt", "a\n-r b.txt"), ("b.txt", "c")];
        let two = [("requirements.txt", "a\n-r b.txt\nc"), ("b.txt", "")];
        assert_ne!(key(&one, "t"), key(&two, "t"));
    }
}
