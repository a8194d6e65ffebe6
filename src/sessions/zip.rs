//! A zip archive that is written from its begin to its end, without going back: APPNOTE 6.3.10.
//!
//! Sizes and checksums follow the data of an entry, so nothing has to be known of a file before it
//! is read.

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use std::io::Write as _;

/// Version 4.5, the first one with 64-bit sizes; made on Unix.
const VERSION: u16 = 45;
const MADE_BY: u16 = (3 << 8) | VERSION;
/// Sizes follow the data.
const FOLLOWING: u16 = 1 << 3;
/// The name is UTF-8.
const UTF_8: u16 = 1 << 11;
const DEFLATED: u16 = 8;
/// A regular file that everybody can read.
const ATTRIBUTES: u32 = 0o100_644 << 16;
/// From here on a size or an offset does not fit; deflated data can be larger than what it was.
const LARGE: u64 = 0xF000_0000;

/// What the directory at the end says of an entry.
#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    modified_s: i64,
    checksum: u32,
    packed: u64,
    bytes: u64,
    offset: u64,
}

/// The entry that is written now.
struct Open {
    entry: Entry,
    encoder: DeflateEncoder<Vec<u8>>,
    crc: Crc,
    large: bool,
}

/// An archive on its way.
#[derive(Default)]
pub struct Zip {
    out: Vec<u8>,
    written: u64,
    entries: Vec<Entry>,
    open: Option<Open>,
}

impl Zip {
    /// Begins an entry that will have about so many bytes.
    pub fn begin(&mut self, name: &[u8], modified_s: i64, bytes: u64) {
        let large = bytes >= LARGE;
        let offset = self.written + self.out.len() as u64;
        let entry =
            Entry { name: name.to_vec(), modified_s, checksum: 0, packed: 0, bytes: 0, offset };
        self.put_u32(0x0403_4b50);
        self.put_u16(VERSION);
        self.put_common(&entry, [0; 3], if large { 20 } else { 0 });
        self.out.extend_from_slice(name);
        self.put_time(modified_s);
        if large {
            // Its presence says that the sizes behind the data have 64 bits.
            self.put_u16(1);
            self.put_u16(16);
            self.out.extend_from_slice(&[0; 16]);
        }
        let encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        self.open = Some(Open { entry, encoder, crc: Crc::new(), large });
    }

    /// Adds data to the entry that was begun.
    pub fn add(&mut self, bytes: &[u8]) {
        let Some(open) = &mut self.open else { return };
        open.crc.update(bytes);
        open.entry.bytes += bytes.len() as u64;
        open.encoder.write_all(bytes).expect("memory takes everything");
        let packed = std::mem::take(open.encoder.get_mut());
        open.entry.packed += packed.len() as u64;
        self.out.extend_from_slice(&packed);
    }

    /// Ends the entry that was begun.
    pub fn end(&mut self) {
        let Some(Open { mut entry, encoder, crc, large }) = self.open.take() else { return };
        let rest = encoder.finish().expect("memory takes everything");
        entry.packed += rest.len() as u64;
        entry.checksum = crc.sum();
        self.out.extend_from_slice(&rest);
        self.put_u32(0x0807_4b50);
        self.put_u32(entry.checksum);
        for size in [entry.packed, entry.bytes] {
            match large {
                true => self.put_u64(size),
                false => self.put_u32(short(size)),
            }
        }
        self.entries.push(entry);
    }

    /// Writes the directory of all entries, which ends the archive.
    pub fn finish(&mut self) {
        let begin = self.written + self.out.len() as u64;
        let entries = std::mem::take(&mut self.entries);
        for entry in &entries {
            self.put_directory_entry(entry);
        }
        let (count, end) = (entries.len() as u64, self.written + self.out.len() as u64);
        if count >= 0xFFFF || end >= LARGE {
            self.put_large_end(count, begin, end);
        }
        let short_count = u16::try_from(count).unwrap_or(0xFFFF);
        self.put_u32(0x0605_4b50);
        self.out.extend_from_slice(&[0; 4]);
        self.put_u16(short_count);
        self.put_u16(short_count);
        self.put_u32(short(end - begin));
        self.put_u32(short(begin));
        self.put_u16(0);
    }

    /// What was written since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        self.written += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    /// How much waits to be taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    fn put_directory_entry(&mut self, entry: &Entry) {
        let values = [entry.bytes, entry.packed, entry.offset];
        let large: Vec<u64> = values.into_iter().filter(|value| *value >= LARGE).collect();
        let extra = if large.is_empty() { 0 } else { 4 + 8 * large.len() as u16 };
        self.put_u32(0x0201_4b50);
        self.put_u16(MADE_BY);
        self.put_u16(VERSION);
        let sizes = [entry.checksum, limited(entry.packed), limited(entry.bytes)];
        self.put_common(entry, sizes, extra);
        self.out.extend_from_slice(&[0; 6]);
        self.put_u32(ATTRIBUTES);
        self.put_u32(limited(entry.offset));
        self.out.extend_from_slice(&entry.name);
        self.put_time(entry.modified_s);
        if !large.is_empty() {
            self.put_u16(1);
            self.put_u16(extra - 4);
            large.into_iter().for_each(|value| self.put_u64(value));
        }
    }

    /// The fields that both heads of an entry have, from its flags to the length of its extras.
    fn put_common(&mut self, entry: &Entry, sizes: [u32; 3], extra: u16) {
        let named = if std::str::from_utf8(&entry.name).is_ok() { UTF_8 } else { 0 };
        self.put_u16(FOLLOWING | named);
        self.put_u16(DEFLATED);
        // The first day that MS-DOS knows; the time is in the extras.
        self.put_u32(0x0021_0000);
        sizes.into_iter().for_each(|size| self.put_u32(size));
        self.put_u16(u16::try_from(entry.name.len()).unwrap_or(u16::MAX));
        self.put_u16(TIME_BYTES + extra);
    }

    /// The time of the last change, in seconds since 1970.
    fn put_time(&mut self, modified_s: i64) {
        self.put_u16(0x5455);
        self.put_u16(5);
        self.out.push(1);
        let seconds = i32::try_from(modified_s).unwrap_or(i32::MAX);
        self.out.extend_from_slice(&seconds.to_le_bytes());
    }

    fn put_large_end(&mut self, count: u64, begin: u64, end: u64) {
        self.put_u32(0x0606_4b50);
        self.put_u64(44);
        self.put_u16(MADE_BY);
        self.put_u16(VERSION);
        self.out.extend_from_slice(&[0; 8]);
        [count, count, end - begin, begin].into_iter().for_each(|value| self.put_u64(value));
        self.put_u32(0x0706_4b50);
        self.put_u32(0);
        self.put_u64(end);
        self.put_u32(1);
    }

    fn put_u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Bytes of the extra field of the time.
const TIME_BYTES: u16 = 9;

/// A value as 32 bits; all ones where it stands in the extras.
fn limited(value: u64) -> u32 {
    if value >= LARGE { u32::MAX } else { short(value) }
}

fn short(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn archive(files: &[(&[u8], &[u8], u64)]) -> Vec<u8> {
        let mut zip = Zip::default();
        let mut bytes = Vec::new();
        for (name, content, told) in files {
            zip.begin(name, 1_700_000_000, *told);
            content.chunks(7).for_each(|chunk| zip.add(chunk));
            zip.end();
            bytes.extend(zip.take());
        }
        zip.finish();
        bytes.extend(zip.take());
        bytes
    }

    /// Another program reads what was written.
    fn read(bytes: &[u8], code: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zip");
        std::fs::write(&path, bytes).unwrap();
        let code = format!("import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); {code}");
        let output = Command::new("python3").arg("-c").arg(code).arg(path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let files: [(&[u8], &[u8], u64); 3] = [
            ("d/\u{fc}.txt".as_bytes(), b"text\n", 5),
            (b"empty", b"", 0),
            // Told to be huge, so that the 64-bit fields are there.
            (b"large", &[b'x'; 100_000], 5 << 30),
        ];
        let code =
            "print(z.testzip(), [(i.filename, i.file_size, len(z.read(i))) for i in z.infolist()])";
        assert_eq!(
            read(&archive(&files), code),
            "None [('d/\u{fc}.txt', 5, 5), ('empty', 0, 0), ('large', 100000, 100000)]\n"
        );
        assert_eq!(read(&archive(&[]), "print(z.namelist())"), "[]\n");
    }

    #[test]
    fn there_can_be_more_entries_than_sixteen_bits_count() {
        let mut zip = Zip::default();
        for number in 0..70_000 {
            zip.begin(format!("f{number}").as_bytes(), 0, 0);
            zip.end();
        }
        zip.finish();
        assert_eq!(
            read(&zip.take(), "print(len(z.namelist()), z.namelist()[-1])"),
            "70000 f69999\n"
        );
    }
}
