//! What a source declares, as far as a build acts on it.

use super::node::{self, Node};
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
    /// What pip installs.
    pub python: Option<Python>,
    /// What npm installs.
    pub node: Option<Node>,
    /// There is a `setup.sh`.
    pub setup: bool,
}

/// Reads the manifests at the root of a source.
#[must_use]
pub fn detect(files: Files<'_>, declared: &Declared) -> Manifests {
    Manifests {
        python: python::detect(files, &declared.pip),
        node: node::detect(files, &declared.npm),
        setup: files("setup.sh").is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_manifests_installs_nothing() {
        let found = detect(&|_| None, &Declared::default());
        assert_eq!(found, Manifests { python: None, node: None, setup: false });
    }

    #[test]
    fn declared_packages_need_no_manifest() {
        let declared = Declared { pip: vec!["numpy".into()], npm: vec![], apt: vec![] };
        let found = detect(&|_| None, &declared);
        let python = found.python.unwrap();
        assert!(!python.requirements && python.project.is_none());
        assert!(found.node.is_none());
    }
}
