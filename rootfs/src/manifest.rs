//! The manifest of a frozen tree: every path with what it is, and a digest over all of it.
//!
//! A text file, version 1, one line per path in the order of the paths' bytes, the root first:
//!
//! ```text
//! hangar-manifest 1
//! d MODE MTIME PATH
//! f MODE MTIME SIZE BLAKE3 PATH
//! l MTIME TARGET PATH
//! root BLAKE3
//! ```
//!
//! MODE is four octal digits, MTIME seconds since 1970 with nine decimals, PATH is relative to the
//! root (`.` is the root itself). PATH and TARGET are escaped so that every byte survives
//! ([`crate::names::escape`]). The last line holds the *root digest*: BLAKE3 of all bytes before
//! it. Owner, ctime, inode numbers and link counts stay out, because sharing a file between two
//! versions by a hard link changes them.

use crate::job::{Refusal, RefusalCode};
use crate::names::{escape, unescape};
use crate::tree::Time;
use std::io::{self, BufRead, Write};

/// The first line.
const HEADER: &str = "hangar-manifest 1";

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// One path of a frozen tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root; empty for the root.
    pub path: Box<[u8]>,
    /// The time of last modification.
    pub mtime: Time,
    /// What it is.
    pub node: Node,
}

/// What a path of a frozen tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory {
        /// Permission bits.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Permission bits.
        mode: u32,
        /// In bytes.
        size: u64,
        /// Of the content.
        digest: Digest,
    },
    /// A symlink, as it is written.
    Symlink {
        /// Any bytes but NUL.
        target: Box<[u8]>,
    },
}

/// All paths of a frozen tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
}

impl Manifest {
    /// Puts the entries in order.
    #[must_use]
    pub fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self { entries }
    }

    /// In the order of their paths.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Gives the entries back.
    #[must_use]
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// The index of a path.
    #[must_use]
    pub fn position(&self, path: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| (*entry.path).cmp(path)).ok()
    }

    /// Writes the manifest; returns the root digest.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, writer: &mut impl Write) -> io::Result<Digest> {
        let mut hasher = blake3::Hasher::new();
        let mut put = |line: String| {
            hasher.update(line.as_bytes());
            writer.write_all(line.as_bytes())
        };
        put(format!("{HEADER}\n"))?;
        for entry in &self.entries {
            put(line_of(entry))?;
        }
        let digest = *hasher.finalize().as_bytes();
        writeln!(writer, "root {}", hex(&digest))?;
        Ok(digest)
    }

    /// Reads a manifest; returns it with its root digest, which its lines have.
    ///
    /// # Errors
    /// [`RefusalCode::CorruptManifest`] names the line. A failed read is [`RefusalCode::Failed`].
    pub fn read_from(reader: &mut impl BufRead) -> Result<(Self, Digest), Refusal> {
        let mut lines = Lines { reader, number: 0, line: Vec::new() };
        let mut hasher = blake3::Hasher::new();
        let mut entries: Vec<Entry> = Vec::new();
        if lines.next()? != HEADER.as_bytes() {
            return Err(lines.corrupt("is not the header of a manifest of version 1"));
        }
        lines.hash(&mut hasher);
        loop {
            let line = lines.next()?;
            if let Some(written) = line.strip_prefix(b"root ") {
                let digest = *hasher.finalize().as_bytes();
                if written != hex(&digest).as_bytes() {
                    return Err(lines.corrupt("is not the digest of the lines before it"));
                }
                lines.expect_end()?;
                return Ok((Self { entries }, digest));
            }
            let entry = parse(line).ok_or_else(|| lines.corrupt("is no entry"))?;
            if entries.last().is_some_and(|last| last.path >= entry.path) {
                return Err(lines.corrupt("is out of order"));
            }
            lines.hash(&mut hasher);
            entries.push(entry);
        }
    }
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(digest: &Digest) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

struct Lines<'a, R> {
    reader: &'a mut R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<'_, R> {
    /// The next line without its end.
    fn next(&mut self) -> Result<&[u8], Refusal> {
        self.number += 1;
        self.line.clear();
        self.reader.read_until(b'\n', &mut self.line).map_err(|error| {
            Refusal::new(RefusalCode::Failed, "the manifest could not be read").detail(error)
        })?;
        match self.line.strip_suffix(b"\n") {
            Some(line) => Ok(line),
            None => Err(self.corrupt("is missing or cut short")),
        }
    }

    fn hash(&self, hasher: &mut blake3::Hasher) {
        hasher.update(&self.line);
    }

    fn expect_end(&mut self) -> Result<(), Refusal> {
        match self.reader.fill_buf() {
            Ok([]) => Ok(()),
            _ => Err(self.corrupt("is not the last one")),
        }
    }

    fn corrupt(&self, what: &str) -> Refusal {
        let message = format!("line {} of the manifest {what}", self.number);
        Refusal::new(RefusalCode::CorruptManifest, message)
    }
}

fn line_of(entry: &Entry) -> String {
    let path = if entry.path.is_empty() { ".".to_owned() } else { escape(&entry.path) };
    let mtime = format!("{}.{:09}", entry.mtime.seconds, entry.mtime.nanoseconds);
    match &entry.node {
        Node::Directory { mode } => format!("d {mode:04o} {mtime} {path}\n"),
        Node::File { mode, size, digest } => {
            format!("f {mode:04o} {mtime} {size} {} {path}\n", hex(digest))
        }
        Node::Symlink { target } => format!("l {mtime} {} {path}\n", escape(target)),
    }
}

fn parse(line: &[u8]) -> Option<Entry> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut word = || words.next();
    let kind = word()?;
    let (mtime, node) = match kind {
        b"d" => {
            let mode = parse_mode(word()?)?;
            (parse_time(word()?)?, Node::Directory { mode })
        }
        b"f" => {
            let mode = parse_mode(word()?)?;
            let mtime = parse_time(word()?)?;
            let size = text(word()?)?.parse().ok()?;
            let digest = *blake3::Hash::from_hex(word()?).ok()?.as_bytes();
            (mtime, Node::File { mode, size, digest })
        }
        b"l" => {
            let mtime = parse_time(word()?)?;
            (mtime, Node::Symlink { target: unescape(word()?)?.into() })
        }
        _ => return None,
    };
    let path = parse_path(word()?)?;
    let is_whole = word().is_none();
    is_whole.then_some(Entry { path, mtime, node })
}

/// A path that stays below the root whoever wrote the manifest.
fn parse_path(word: &[u8]) -> Option<Box<[u8]>> {
    if word == b"." {
        return Some(Box::default());
    }
    let path = unescape(word)?;
    let is_sound = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    path.split(|byte| *byte == b'/').all(is_sound).then(|| path.into())
}

fn parse_mode(word: &[u8]) -> Option<u32> {
    u32::from_str_radix(text(word)?, 8).ok().filter(|mode| *mode <= 0o7777 && word.len() == 4)
}

fn parse_time(word: &[u8]) -> Option<Time> {
    let (seconds, nanoseconds) = text(word)?.split_once('.')?;
    let nanoseconds = Some(nanoseconds).filter(|digits| digits.len() == 9)?.parse().ok()?;
    Some(Time { seconds: seconds.parse().ok()?, nanoseconds })
}

fn text(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &[u8], node: Node) -> Entry {
        Entry { path: path.into(), mtime: Time { seconds: -3, nanoseconds: 7 }, node }
    }

    fn sample() -> Manifest {
        let file = |digest| Node::File { mode: 0o444, size: 12, digest: [digest; 32] };
        Manifest::new(vec![
            entry(b"a/b", file(1)),
            entry(b"a-b", file(2)),
            entry(b"", Node::Directory { mode: 0o555 }),
            entry(b"a", Node::Directory { mode: 0o555 }),
            entry(b"odd \xff\n%", Node::Symlink { target: (*b"/usr/bin/py\xe9").into() }),
        ])
    }

    fn written(manifest: &Manifest) -> (Vec<u8>, Digest) {
        let mut bytes = Vec::new();
        let digest = manifest.write_to(&mut bytes).unwrap();
        (bytes, digest)
    }

    #[test]
    fn a_manifest_reads_back_as_it_was_written() {
        let (bytes, digest) = written(&sample());
        let (read, read_digest) = Manifest::read_from(&mut &bytes[..]).unwrap();
        assert_eq!(read, sample());
        assert_eq!(read_digest, digest);
        assert_eq!(written(&read).0, bytes);
        let paths: Vec<&[u8]> = read.entries().iter().map(|entry| &*entry.path).collect();
        assert_eq!(paths, [&b""[..], b"a", b"a-b", b"a/b", b"odd \xff\n%"]);
    }

    #[test]
    fn the_root_digest_is_over_all_lines_before_it() {
        let (bytes, digest) = written(&sample());
        let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(*blake3::hash(&bytes[..last]).as_bytes(), digest);
        assert_eq!(bytes[last..], *format!("root {}\n", hex(&digest)).as_bytes());
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let (bytes, _) = written(&sample());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let refusal = Manifest::read_from(&mut &damaged[..]).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::CorruptManifest, "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(Manifest::read_from(&mut &bytes[..length]).is_err(), "cut at {length}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(Manifest::read_from(&mut &longer[..]).is_err());
    }

    #[test]
    fn paths_in_a_manifest_stay_below_the_root() {
        for path in ["..", "a/../b", "/a", "a//b", "a/", "a/./b", "a%00b", "%2E%2E"] {
            let mut body = format!("{HEADER}\nd 0555 0.000000000 {path}\n");
            let digest = *blake3::hash(body.as_bytes()).as_bytes();
            body.push_str(&format!("root {}\n", hex(&digest)));
            let refusal = Manifest::read_from(&mut body.as_bytes()).unwrap_err();
            assert_eq!(refusal.message, "line 2 of the manifest is no entry", "{path}");
        }
    }
}
