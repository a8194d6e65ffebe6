//! What the worker is asked and what it answers: JSON in datagrams on descriptor 3.
//!
//! The first datagram to the worker holds the options of its verb. The worker answers with any
//! number of datagrams [`PROGRESS`] and then one that is [`DONE`] (with the outcome of the verb)
//! or [`REFUSED`] (with a [`Refusal`]): one byte, then JSON.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// First byte of a datagram that holds a [`Progress`].
pub const PROGRESS: u8 = b'P';
/// First byte of the datagram that ends a job that succeeded.
pub const DONE: u8 = b'D';
/// First byte of the datagram that ends a job that did not; it holds a [`Refusal`].
pub const REFUSED: u8 = b'R';
/// The longest datagram to and from the worker.
pub const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// How large a tree can be. A tree beyond a limit is refused, never cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The sum of the sizes of all files; holes count.
    pub bytes_max: u64,
    /// The size of one file; holes count.
    pub file_bytes_max: u64,
    /// The number of files, directories and links. In an archive, dropped members count as well,
    /// and directories that are only named in the paths of others.
    pub entries_max: u64,
    /// The number of names in one path.
    pub depth_max: u32,
    /// The length of one path, relative to the root. Above 4095 the kernel takes none.
    pub path_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 16 << 30,
            file_bytes_max: 4 << 30,
            entries_max: 1_000_000,
            depth_max: 256,
            path_bytes_max: 3072,
        }
    }
}

impl Limits {
    /// Any tree the kernel can hold.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            bytes_max: u64::MAX,
            file_bytes_max: u64::MAX,
            entries_max: u64::MAX,
            depth_max: u32::MAX,
            path_bytes_max: 4095,
        }
    }
}

/// Options of `import`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImportOptions {
    /// What becomes of a directory that wraps everything.
    pub wrapper: Wrapper,
    /// How large the imported tree can be.
    pub limits: Limits,
    /// How many times larger than the upload the unpacked stream can be. It is looked at once
    /// 64 MiB are unpacked, so that a small project full of zeros is not taken for a bomb.
    pub ratio_max: u32,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { wrapper: Wrapper::default(), limits: Limits::default(), ratio_max: 200 }
    }
}

/// What becomes of a single directory that wraps everything in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrapper {
    /// Its content becomes the root.
    #[default]
    Strip,
    /// It stays a directory below the root.
    Keep,
}

/// Outcome of `import`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOutcome {
    /// Files, symlinks and hard links that landed. Directories are not counted.
    pub written: u64,
    /// Members that were dropped; the rest of the archive landed.
    pub skipped: u64,
    /// Why, and how many for each reason.
    pub skipped_reasons: BTreeMap<SkipReason, u64>,
    /// The first few members that were dropped.
    pub skipped_examples: Vec<Skipped>,
    /// What is worth knowing though nothing was dropped, and of how many members it is true.
    pub notes: BTreeMap<Note, u64>,
    /// Regular files in the tree afterwards, those that were there before included.
    pub count: u64,
    /// The sum of their sizes.
    pub bytes: u64,
    /// The wrapping directory whose content became the root.
    pub wrapper_stripped: Option<String>,
}

/// What is worth knowing of an import besides what was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// The member was packed on Windows, and the backslashes in its name became slashes.
    BackslashesConverted,
    /// The zip has the name in Unicode beside one in another encoding; the former was taken.
    NamesFromUnicodeField,
    /// The zip does not say that the name is UTF-8; it is valid as such and was taken for it.
    NamesTakenForUtf8,
    /// The name is no UTF-8 and was decoded as code page 437, which is what a zip then means.
    NamesFromCp437,
    /// The zip says nothing about the mode of the file; it is not executable.
    ModesAbsent,
    /// Another name in the directory is the same but for upper and lower case.
    NamesDifferOnlyByCase,
    /// The name is no UTF-8; it was kept byte for byte.
    NamesNotUtf8,
}

/// A member that was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name in the archive, printable.
    pub name: String,
    /// Why it was dropped.
    pub reason: SkipReason,
}

/// Why a member was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The name begins with `/`.
    AbsolutePath,
    /// The name has a `..`.
    ParentInPath,
    /// The name or the target of the link is empty or has a NUL.
    BadName,
    /// The name leads through a symlink.
    ThroughSymlink,
    /// The symlink is absolute.
    AbsoluteLink,
    /// The link leads out of the root.
    LinkOutside,
    /// The hard link names no file that came before it.
    LinkWithoutFile,
    /// A character or block device.
    Device,
    /// A named pipe.
    Fifo,
    /// A kind of member that is none of a project's.
    UnknownType,
    /// `__MACOSX`, `.DS_Store`, AppleDouble side files, `pax_global_header`.
    ArchiverMetadata,
}

/// Options of `freeze`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FreezeOptions {
    /// Frozen trees below the store, such as `2/tree`; their manifest lies beside them. Unchanged
    /// files are linked from the first one that has them.
    pub references: Vec<String>,
    /// The names directly below the root that are frozen; everything when absent.
    pub entries: Option<Vec<String>>,
    /// How large the tree can be.
    pub limits: Limits,
    /// When the tree is on disk.
    pub durability: Durability,
}

/// When what was written outlives a loss of power.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When the job is done.
    #[default]
    Done,
    /// Some time later, or when a later job on the same file system is done.
    Later,
}

/// Outcome of `freeze`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeOutcome {
    /// Of the manifest: 64 lower-case hexadecimal digits.
    pub root_digest: String,
    /// Regular files, by path.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// The sum of the sizes of all files, by path.
    pub bytes: u64,
    /// Files that were linked from a reference instead of copied.
    pub linked_files: u64,
    /// The sum of their sizes.
    pub linked_bytes: u64,
    /// References that could not be used, with the reason; their files were copied.
    pub unusable_references: BTreeMap<String, String>,
}

/// Options of `verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyOptions {}

/// Outcome of `verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyOutcome {
    /// Of the manifest, which agrees with itself: 64 lower-case hexadecimal digits.
    pub root_digest: String,
    /// Regular files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// All differences; 0 means that the tree is what was frozen.
    pub mismatch_count: u64,
    /// The first [`MISMATCHES_MAX`] of them by path.
    pub mismatches: Vec<Mismatch>,
}

/// The most mismatches a [`VerifyOutcome`] lists.
pub const MISMATCHES_MAX: usize = 32;

/// One difference between a frozen tree and its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Relative to the root, printable; `.` is the root.
    pub path: String,
    /// What differs.
    pub what: Difference,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The bytes of a file.
    Content,
    /// In the manifest and not in the tree.
    Missing,
    /// In the tree and not in the manifest.
    Extra,
    /// A file, directory or link became another of these, or something else.
    Type,
    /// The mode.
    Mode,
    /// The time of last modification.
    Mtime,
    /// What a symlink points to.
    LinkTarget,
    /// It could not be read.
    Unreadable,
}

/// Options of `compare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareOptions {
    /// The most differences that are written; all are counted.
    pub listed_max: u64,
}

/// Outcome of `compare`; the differences themselves are in the file on descriptor 4.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompareOutcome {
    /// Of the manifest before.
    pub from_root_digest: String,
    /// Of the manifest after.
    pub to_root_digest: String,
    /// Paths that are only in the tree after.
    pub added: u64,
    /// Paths that are only in the tree before.
    pub removed: u64,
    /// Paths with other content, mode, target or kind.
    pub changed: u64,
    /// Paths without a difference.
    pub unchanged: u64,
    /// Bytes of the differing files before.
    pub bytes_before: u64,
    /// Bytes of the differing files after.
    pub bytes_after: u64,
    /// There are more differences than were written.
    pub truncated: bool,
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathDifference {
    /// Relative to the root, printable; `.` is the root.
    pub path: String,
    /// What it was; nothing when it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<NodeShown>,
    /// What it is; nothing when it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<NodeShown>,
}

/// What a path of a frozen tree is, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeShown {
    /// A directory.
    Directory {
        /// Four octal digits.
        mode: String,
    },
    /// A regular file.
    File {
        /// Four octal digits.
        mode: String,
        /// Its size.
        bytes: u64,
        /// `blake3:` and 64 hexadecimal digits.
        digest: String,
    },
    /// A symlink.
    Symlink {
        /// Printable.
        target: String,
    },
}

/// Options of `measure`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeasureOptions {}

/// Outcome of `measure`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureOutcome {
    /// What all trees take together, each file once.
    pub disk_bytes: u64,
    /// Each tree by the name of its directory, such as `3`.
    pub trees: BTreeMap<String, TreeSize>,
}

/// What one tree has and takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSize {
    /// Regular files, by path.
    pub files: u64,
    /// The sum of their sizes.
    pub bytes: u64,
    /// What it takes on disk, each file once.
    pub disk_bytes: u64,
    /// What of that no other tree shares, which its removal gives back.
    pub own_disk_bytes: u64,
}

/// Options of `remove`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemoveOptions {}

/// Outcome of `remove`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveOutcome {
    /// What was removed: files, links and directories.
    pub entries: u64,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Files, directories and links so far.
    pub entries: u64,
    /// Bytes of files so far.
    pub bytes: u64,
}

/// Why a job was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// One sentence for the client. It names the member or file and the cause, and no path of the
    /// host.
    pub message: String,
    /// The chain of causes for the log; empty when the message says it all.
    #[serde(default)]
    pub detail: String,
    /// The limit that was passed, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The options do not decode, or name what cannot be named.
    InvalidOptions,
    /// The upload is a format that is not read.
    UnsupportedFormat,
    /// The upload is no archive, or a damaged one.
    CorruptArchive,
    /// The upload ends too early.
    TruncatedArchive,
    /// A member can be read in two ways.
    AmbiguousArchive,
    /// A name is a file and a directory.
    NameConflict,
    /// A file is larger than [`Limits::file_bytes_max`].
    FileTooLarge,
    /// The tree is larger than [`Limits::bytes_max`].
    TreeTooLarge,
    /// There are more entries than [`Limits::entries_max`].
    TooManyEntries,
    /// A path is longer than [`Limits::path_bytes_max`].
    PathTooLong,
    /// A path has more names than [`Limits::depth_max`].
    PathTooDeep,
    /// The upload unpacks to more than [`ImportOptions::ratio_max`] times its size.
    RatioTooHigh,
    /// The tree holds something that is not a file, a directory or a symlink.
    SpecialFile,
    /// The tree holds a mount.
    MountInTree,
    /// A file changed while it was read.
    ChangedWhileRead,
    /// The manifest is damaged.
    CorruptManifest,
    /// The disk is full.
    DiskFull,
    /// There is nothing of that name.
    NotFound,
    /// A system call failed.
    Failed,
}
