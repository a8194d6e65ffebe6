//! Measure: what frozen trees take on disk, each file once however many trees share it.

use crate::job::{Limits, MeasureOutcome, Progress, Refusal, TreeSize};
use crate::refusal::Attempt;
use crate::tree::{self, Walk, file_type, open_directory, stat_leaf};
use rustix::fs::{FileType, Stat, fstat};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd};

/// Measures every directory below `store` that holds a `tree`: versions and kept dependencies.
///
/// # Errors
/// When a tree cannot be read.
pub fn measure(
    store: BorrowedFd<'_>,
    progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
) -> Result<MeasureOutcome, Refusal> {
    let limits = Limits::unlimited();
    let names = Walk::new(store, &limits).next_directory()?.map(|top| top.names);
    let mut measure =
        Measure { owners: HashMap::new(), sizes: Vec::new(), done: Progress::default() };
    let mut all = Vec::new();
    for name in names.unwrap_or_default() {
        // What is being frozen or removed is no tree yet or none any more.
        let name = name.to_string_lossy().into_owned();
        if name.contains('.') {
            continue;
        }
        let Ok(dir) = open_directory(store, name.as_bytes()) else { continue };
        let Ok(root) = open_directory(dir.as_fd(), b"tree") else { continue };
        measure.tree(root.as_fd(), progress)?;
        all.push(name);
    }
    Ok(measure.finish(all))
}

/// Which trees have an inode.
struct Owner {
    /// The tree it was met in last.
    last: usize,
    several: bool,
    /// What the inode takes.
    disk: u64,
}

struct Measure {
    owners: HashMap<(u64, u64), Owner>,
    sizes: Vec<TreeSize>,
    done: Progress,
}

impl Measure {
    fn tree(
        &mut self,
        root: BorrowedFd<'_>,
        progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.sizes.push(TreeSize::default());
        let limits = Limits::unlimited();
        let mut walk = Walk::new(root, &limits);
        while let Some(directory) = walk.next_directory()? {
            let path = &directory.path;
            let stat = fstat(&directory.fd).attempt(|| tree::subject(path), "fstat")?;
            self.inode(&stat);
            for name in &directory.names {
                let path = directory.path_of(name);
                let stat =
                    stat_leaf(&directory.fd, name).attempt(|| tree::subject(&path), "fstatat")?;
                self.done.entries += 1;
                match file_type(&stat) {
                    FileType::Directory => walk.descend(path),
                    _ => self.inode(&stat),
                }
            }
            progress(self.done)?;
        }
        Ok(())
    }

    fn inode(&mut self, stat: &Stat) {
        let tree = self.sizes.len() - 1;
        let disk = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        let size = &mut self.sizes[tree];
        if tree::is_file(stat) {
            size.files += 1;
            size.bytes += u64::try_from(stat.st_size).unwrap_or(0);
        }
        let owner = self.owners.entry((stat.st_dev, stat.st_ino));
        let is_new = matches!(owner, Entry::Vacant(_));
        let owner = owner.or_insert(Owner { last: tree, several: false, disk });
        if is_new || owner.last != tree {
            size.disk_bytes += disk;
            owner.several |= owner.last != tree;
            owner.last = tree;
        }
    }

    fn finish(mut self, names: Vec<String>) -> MeasureOutcome {
        let mut outcome = MeasureOutcome::default();
        for owner in self.owners.values() {
            outcome.disk_bytes += owner.disk;
            if !owner.several {
                self.sizes[owner.last].own_disk_bytes += owner.disk;
            }
        }
        outcome.trees = names.into_iter().zip(self.sizes).collect();
        outcome
    }
}
