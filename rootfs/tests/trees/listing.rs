//! Directories for tests, and what is in them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory with a root inside and a witness beside it that must stay as it is.
pub struct Place {
    temporary: TempDir,
    root: OwnedFd,
}

impl Place {
    /// On the disk: tmpfs has other rules for links, holes and ids.
    pub fn new() -> Self {
        Self::below("/var/tmp")
    }

    /// In memory, for what is about the number of directories and not about the file system.
    pub fn in_memory() -> Self {
        Self::below("/dev/shm")
    }

    fn below(parent: &str) -> Self {
        let temporary = tempfile::tempdir_in(parent).unwrap();
        fs::create_dir(temporary.path().join("root")).unwrap();
        fs::write(temporary.path().join("witness"), "untouched").unwrap();
        let root = File::open(temporary.path().join("root")).unwrap().into();
        Self { temporary, root }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub fn path(&self) -> PathBuf {
        self.temporary.path().join("root")
    }

    pub fn at(&self, path: impl AsRef<[u8]>) -> PathBuf {
        self.path().join(OsStr::from_bytes(path.as_ref()))
    }

    /// Makes a file and its directories.
    pub fn write(&self, path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// One line for each path below the root: `d PATH`, `f PATH CONTENT` or `l PATH -> TARGET`.
    pub fn lines(&self) -> Vec<String> {
        tree(&self.path()).iter().map(|(path, node)| node.line(path)).collect()
    }

    /// Nothing beside the root was made, changed or removed.
    pub fn assert_nothing_outside(&self) {
        let entries = fs::read_dir(self.temporary.path()).unwrap();
        let mut beside: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        beside.sort();
        assert_eq!(beside, ["root", "witness"]);
        let witness = self.temporary.path().join("witness");
        assert_eq!(fs::read(&witness).unwrap(), b"untouched");
        let metadata = fs::metadata(&witness).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.nlink()), (0o644, 1));
    }
}

/// One path of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Directory,
    File { content: Vec<u8>, is_executable: bool, mtime: i64 },
    Symlink(Vec<u8>),
    Other,
}

impl Node {
    fn line(&self, path: &[u8]) -> String {
        let path = path.escape_ascii();
        match self {
            Self::Directory => format!("d {path}"),
            Self::File { content, .. } => format!("f {path} {}", content.escape_ascii()),
            Self::Symlink(target) => format!("l {path} -> {}", target.escape_ascii()),
            Self::Other => format!("? {path}"),
        }
    }
}

/// Every path below a directory with what it is.
pub fn tree(root: &Path) -> BTreeMap<Vec<u8>, Node> {
    let mut nodes = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let node = if metadata.is_dir() {
                pending.push(path.clone());
                Node::Directory
            } else if metadata.is_symlink() {
                Node::Symlink(fs::read_link(&path).unwrap().into_os_string().into_vec())
            } else if metadata.is_file() {
                Node::File {
                    content: fs::read(&path).unwrap(),
                    is_executable: metadata.mode() & 0o111 != 0,
                    mtime: metadata.mtime(),
                }
            } else {
                Node::Other
            };
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            nodes.insert(name, node);
        }
    }
    nodes
}
