//! Frozen trees whose unchanged files the new one shares.

use super::frozen_mode;
use crate::job::{Refusal, RefusalCode};
use crate::manifest::{Digest, Entry, Manifest, Node};
use crate::refusal::Attempt;
use crate::tree::{Time, is_file, open_directory, split, stat_leaf, subject};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, linkat, openat2};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The references of a freeze, in the order they are asked.
#[derive(Debug)]
pub(super) struct References {
    usable: Vec<Reference>,
    /// Those that are not, with the reason. A damaged version must not stop the next one from
    /// being built, so their files are copied, and the outcome tells.
    pub(super) unusable: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Reference {
    tree: OwnedFd,
    manifest: Manifest,
}

impl References {
    /// Opens them below the store; each is a path such as `2/tree`.
    ///
    /// # Errors
    /// [`RefusalCode::InvalidOptions`] for a path of another shape.
    pub(super) fn open(store: BorrowedFd<'_>, paths: &[String]) -> Result<Self, Refusal> {
        let mut references = Self { usable: Vec::new(), unusable: BTreeMap::new() };
        for path in paths {
            let name =
                path.strip_suffix("/tree").filter(|name| is_name(name)).ok_or_else(|| {
                    let message = format!("the reference {path:?} is not of the form NAME/tree");
                    Refusal::new(RefusalCode::InvalidOptions, message)
                })?;
            match Reference::open(store, name) {
                Ok(reference) => references.usable.push(reference),
                Err(refusal) => {
                    references.unusable.insert(path.clone(), refusal.to_string());
                }
            }
        }
        Ok(references)
    }

    /// The files of the references that could be the one found at `path`: all but the content is
    /// the same.
    pub(super) fn candidates(
        &self,
        path: &[u8],
        found: &Stat,
    ) -> impl Iterator<Item = Candidate<'_>> {
        let expected = (frozen_mode(found), u64::try_from(found.st_size).unwrap_or(u64::MAX));
        let mtime = Time::modified(found);
        self.usable.iter().filter_map(move |reference| {
            let entry = &reference.manifest.entries()[reference.manifest.position(path)?];
            match entry.node {
                Node::File { mode, size, digest }
                    if (mode, size) == expected && entry.mtime == mtime =>
                {
                    Some(Candidate { tree: reference.tree.as_fd(), entry, digest })
                }
                _ => None,
            }
        })
    }
}

impl Reference {
    fn open(store: BorrowedFd<'_>, name: &str) -> Result<Self, Refusal> {
        let at = || format!("the reference {name:?}");
        let directory = open_directory(store, name.as_bytes()).attempt(at, "openat2")?;
        let tree = open_directory(directory.as_fd(), b"tree").attempt(at, "openat2")?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let manifest = openat2(&directory, "manifest", flags, Mode::empty(), crate::tree::CONFINED)
            .attempt(at, "openat2")?;
        let mut reader = BufReader::with_capacity(256 << 10, File::from(manifest));
        let (manifest, _) = Manifest::read_from(&mut reader)?;
        Ok(Self { tree, manifest })
    }
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// A file of a reference that could be linked.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    tree: BorrowedFd<'a>,
    pub(super) entry: &'a Entry,
    pub(super) digest: Digest,
}

impl Candidate<'_> {
    /// Links the file into `target`. False when the file is not what its manifest says, or has as
    /// many links as the file system takes: then a copy is made, which is as good.
    ///
    /// # Errors
    /// Any other failed call.
    pub(super) fn link_into(
        &self,
        path: &[u8],
        target: &OwnedFd,
        name: &CStr,
    ) -> Result<bool, Refusal> {
        let (directory, _) = split(path);
        let Ok(directory) = open_directory(self.tree, directory) else { return Ok(false) };
        let Ok(stat) = stat_leaf(&directory, name) else { return Ok(false) };
        let Node::File { mode, size, .. } = self.entry.node else { return Ok(false) };
        let is_intact = is_file(&stat)
            && stat.st_mode & 0o7777 == mode
            && u64::try_from(stat.st_size) == Ok(size)
            && Time::modified(&stat) == self.entry.mtime;
        if !is_intact {
            return Ok(false);
        }
        match linkat(&directory, name, target, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::MLINK) => Ok(false),
            Err(errno) => Err(Refusal::call(&subject(path), "linkat", errno)),
        }
    }
}
