//! What a source declares, as far as a build acts on it.

use super::hints;
use super::installers::Installer;
use super::node::{self, Node};
use super::others::{self, Other};
use super::python::{self, Python};
use crate::store::Declared;
use std::collections::BTreeMap;

/// Reads a small file of a source by its path; `None` when there is no such regular file.
pub type Files<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// The largest manifest that is read; a larger one is as good as none.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// Whether installed dependencies can be kept for later builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// They depend on these inputs, by name, and on nothing else of the source.
    By(BTreeMap<String, Vec<u8>>),
    /// They can depend on anything in the source.
    Never(&'static str),
}

/// Everything a build acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifests {
    /// What is installed for Python.
    pub python: Option<Python>,
    /// What is installed for Node.
    pub node: Option<Node>,
    /// What is installed beside, in the order in which it is.
    pub others: Vec<Other>,
    /// There is a `setup.sh`.
    pub setup: bool,
    /// What the owner should know before anything runs.
    pub hints: Vec<String>,
}

impl Manifests {
    /// The installers that run, in their order.
    pub fn installers(&self) -> impl Iterator<Item = Installer> {
        let python = self.python.iter().map(|python| python.installer);
        let node = self.node.iter().map(|node| node.installer);
        python.chain(node).chain(self.others.iter().map(|other| other.installer))
    }
}

/// Reads the manifests at the root of a source.
#[must_use]
pub fn detect(files: Files<'_>, declared: &Declared) -> Manifests {
    Manifests {
        python: python::detect(files, &declared.pip),
        node: node::detect(files, &declared.npm),
        others: others::detect(files, &declared.apt),
        setup: files("setup.sh").is_some(),
        hints: hints::find(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_manifests_installs_nothing() {
        let found = detect(&|_| None, &Declared::default());
        assert!(found.python.is_none() && found.node.is_none() && found.others.is_empty());
        assert!(!found.setup && found.hints.is_empty());
        assert_eq!(found.installers().count(), 0);
    }

    #[test]
    fn declared_packages_need_no_manifest() {
        let declared = Declared { pip: vec!["numpy".into()], npm: vec![], apt: vec!["jq".into()] };
        let found = detect(&|_| None, &declared);
        let python = found.python.as_ref().unwrap();
        assert!(!python.requirements && python.project.is_none());
        assert!(found.node.is_none());
        let all: Vec<_> = found.installers().collect();
        assert_eq!(all, [Installer::Pip, Installer::Apt]);
    }
}
