//! Zips made byte by byte, also ones whose two descriptions of a member differ.

use std::io::Write;

/// How the data of a member is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Stored,
    /// Deflated.
    Deflated,
    /// As one bzip2 stream.
    Bzip2,
    /// As one zstd frame.
    Zstd,
    /// Stored, under the number of another method.
    Numbered(u16),
}

/// Where a member was packed, with its mode where that is a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Windows with an old tool: no modes, backslashes.
    Dos,
    /// A mode with its type.
    Unix(u32),
}

/// Where the sizes of a member stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// In the header before the data.
    Before,
    /// Behind the data, since the archive was written to a pipe.
    Behind,
    /// The same, with eight bytes for each size.
    BehindWide,
    /// In the zip64 fields, though they would fit elsewhere.
    Wide,
}

/// A member.
#[derive(Debug, Clone)]
pub struct ZipMember {
    name: Vec<u8>,
    local_name: Vec<u8>,
    data: Vec<u8>,
    method: Method,
    system: System,
    sizes: Sizes,
    flags: u16,
    date: u16,
    time: u16,
    extra: Vec<u8>,
    checksum: Option<u32>,
    size: Option<u64>,
    header_of: Option<usize>,
}

impl ZipMember {
    /// A file of mode 0644, packed on Unix and deflated.
    #[must_use]
    pub fn new(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.as_ref().to_vec(),
            local_name: name.as_ref().to_vec(),
            data: data.as_ref().to_vec(),
            method: Method::Deflated,
            system: System::Unix(0o100_644),
            sizes: Sizes::Before,
            flags: 0,
            date: (40 << 9) | (9 << 5) | 13,
            time: 12 << 11,
            extra: Vec::new(),
            checksum: None,
            size: None,
            header_of: None,
        }
    }

    /// How its data is kept.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Where it was packed.
    #[must_use]
    pub fn system(mut self, system: System) -> Self {
        self.system = system;
        self
    }

    /// Where its sizes stand.
    #[must_use]
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// More flags, in both headers.
    #[must_use]
    pub fn flags(mut self, flags: u16) -> Self {
        self.flags |= flags;
        self
    }

    /// The date and time of DOS.
    #[must_use]
    pub fn time(mut self, date: u16, time: u16) -> Self {
        (self.date, self.time) = (date, time);
        self
    }

    /// Extra fields, in both headers.
    #[must_use]
    pub fn extra(mut self, fields: &[u8]) -> Self {
        self.extra.extend_from_slice(fields);
        self
    }

    /// The name in the header before the data.
    #[must_use]
    pub fn local_name(mut self, name: &str) -> Self {
        self.local_name = name.as_bytes().to_vec();
        self
    }

    /// A checksum that is not that of the data.
    #[must_use]
    pub fn checksum(mut self, checksum: u32) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// A size that is not that of the data.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// No member of its own: one more entry of the directory for that of an earlier one.
    #[must_use]
    pub fn header_of(mut self, member: usize) -> Self {
        self.header_of = Some(member);
        self
    }

    fn packed(&self) -> Vec<u8> {
        match self.method {
            Method::Stored | Method::Numbered(_) => self.data.clone(),
            Method::Bzip2 => crate::bzip2(&self.data),
            Method::Zstd => crate::zstd(&self.data),
            Method::Deflated => {
                let level = flate2::Compression::best();
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(&self.data).expect("memory takes everything");
                encoder.finish().expect("memory takes everything")
            }
        }
    }

    fn number(&self) -> u16 {
        match self.method {
            Method::Stored => 0,
            Method::Deflated => 8,
            Method::Bzip2 => 12,
            Method::Zstd => 93,
            Method::Numbered(number) => number,
        }
    }

    fn all_flags(&self) -> u16 {
        self.flags | if self.is_streamed() { 1 << 3 } else { 0 }
    }

    fn is_streamed(&self) -> bool {
        matches!(self.sizes, Sizes::Behind | Sizes::BehindWide)
    }

    fn is_wide(&self) -> bool {
        matches!(self.sizes, Sizes::Wide | Sizes::BehindWide)
    }
}

/// A zip that is being made.
#[derive(Debug, Clone, Default)]
pub struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    headers: Vec<u64>,
    entries: u64,
    is_wide: bool,
    comment: Vec<u8>,
}

impl Zip {
    /// One without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A file as Unix packs it.
    #[must_use]
    pub fn file(self, name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        self.member(&ZipMember::new(name, data))
    }

    /// A directory as Unix packs it; its name ends in a slash.
    #[must_use]
    pub fn directory(self, name: &str) -> Self {
        let member = ZipMember::new(name, "").method(Method::Stored);
        self.member(&member.system(System::Unix(0o40_755)))
    }

    /// A symlink as Unix packs it.
    #[must_use]
    pub fn symlink(self, name: &str, target: &str) -> Self {
        let member = ZipMember::new(name, target).method(Method::Stored);
        self.member(&member.system(System::Unix(0o120_777)))
    }

    /// Any member.
    #[must_use]
    pub fn member(mut self, member: &ZipMember) -> Self {
        let packed = member.packed();
        let mut checksum = flate2::Crc::new();
        checksum.update(&member.data);
        let checksum = member.checksum.unwrap_or(checksum.sum());
        let size = member.size.unwrap_or(member.data.len() as u64);
        let facts = Facts { checksum, packed: packed.len() as u64, size };
        let header_at = match member.header_of {
            Some(other) => self.headers[other],
            None => {
                let at = self.bytes.len() as u64;
                self.push_header(member, &facts);
                self.bytes.extend_from_slice(&packed);
                self.push_descriptor(member, &facts);
                at
            }
        };
        self.headers.push(header_at);
        self.push_entry(member, &facts, header_at);
        self.entries += 1;
        self
    }

    /// A comment at the end.
    #[must_use]
    pub fn comment(mut self, comment: &[u8]) -> Self {
        self.comment = comment.to_vec();
        self
    }

    /// An end in the form of zip64.
    #[must_use]
    pub fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }

    /// An end that tells another number of members.
    #[must_use]
    pub fn entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    fn push_header(&mut self, member: &ZipMember, facts: &Facts) {
        let known = Facts { checksum: 0, packed: 0, size: 0 };
        let shown = if member.is_streamed() { &known } else { facts };
        let wide = wide_field(member, &[shown.size, shown.packed]);
        let (out, name) = (&mut self.bytes, &member.local_name);
        out.extend_from_slice(b"PK\x03\x04\x14\0");
        push_common(out, member, shown);
        push16(out, name.len() as u64);
        push16(out, (wide.len() + member.extra.len()) as u64);
        for part in [name, &wide, &member.extra] {
            out.extend_from_slice(part);
        }
    }

    fn push_descriptor(&mut self, member: &ZipMember, facts: &Facts) {
        if !member.is_streamed() {
            return;
        }
        self.bytes.extend_from_slice(b"PK\x07\x08");
        push32(&mut self.bytes, u64::from(facts.checksum));
        for size in [facts.packed, facts.size] {
            let bytes = if member.is_wide() { 8 } else { 4 };
            self.bytes.extend_from_slice(&size.to_le_bytes()[..bytes]);
        }
    }

    fn push_entry(&mut self, member: &ZipMember, facts: &Facts, header_at: u64) {
        let wide = wide_field(member, &[facts.size, facts.packed]);
        let (system, attributes) = match member.system {
            System::Dos => (0, 0x20),
            System::Unix(mode) => (3, u64::from(mode) << 16),
        };
        let out = &mut self.directory;
        out.extend_from_slice(b"PK\x01\x02");
        out.extend_from_slice(&[0x14, system, 0x14, 0]);
        push_common(out, member, facts);
        push16(out, member.name.len() as u64);
        push16(out, (wide.len() + member.extra.len()) as u64);
        out.extend_from_slice(&[0; 6]);
        push32(out, attributes);
        push32(out, header_at);
        for part in [&member.name, &wide, &member.extra] {
            out.extend_from_slice(part);
        }
    }

    /// The archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let (at, length) = (self.bytes.len() as u64, self.directory.len() as u64);
        self.bytes.append(&mut self.directory);
        let out = &mut self.bytes;
        if self.is_wide {
            let wide_at = out.len() as u64;
            out.extend_from_slice(b"PK\x06\x06");
            out.extend_from_slice(&u64::to_le_bytes(44));
            out.extend_from_slice(&[0x14, 0, 0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            for number in [self.entries, self.entries, length, at] {
                out.extend_from_slice(&u64::to_le_bytes(number));
            }
            out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            out.extend_from_slice(&wide_at.to_le_bytes());
            out.extend_from_slice(&[1, 0, 0, 0]);
        }
        let full = |number: u64, full: u64| if self.is_wide { full } else { number };
        out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        push16(out, full(self.entries, 0xffff));
        push16(out, full(self.entries, 0xffff));
        push32(out, full(length, 0xffff_ffff));
        push32(out, full(at, 0xffff_ffff));
        push16(out, self.comment.len() as u64);
        out.extend_from_slice(&self.comment);
        self.bytes
    }
}

/// The extra field with a name in Unicode, which is for a plain name.
#[must_use]
pub fn unicode_name(plain: &[u8], unicode: &str) -> Vec<u8> {
    let mut checksum = flate2::Crc::new();
    checksum.update(plain);
    let mut field = vec![0x75, 0x70];
    push16(&mut field, 5 + unicode.len() as u64);
    field.push(1);
    push32(&mut field, u64::from(checksum.sum()));
    field.extend_from_slice(unicode.as_bytes());
    field
}

struct Facts {
    checksum: u32,
    packed: u64,
    size: u64,
}

/// What both headers have in the same order.
fn push_common(out: &mut Vec<u8>, member: &ZipMember, facts: &Facts) {
    push16(out, u64::from(member.all_flags()));
    push16(out, u64::from(member.number()));
    push16(out, u64::from(member.time));
    push16(out, u64::from(member.date));
    push32(out, u64::from(facts.checksum));
    let wide = member.is_wide();
    push32(out, if wide { 0xffff_ffff } else { facts.packed });
    push32(out, if wide { 0xffff_ffff } else { facts.size });
}

fn wide_field(member: &ZipMember, numbers: &[u64]) -> Vec<u8> {
    let mut field = Vec::new();
    if member.is_wide() {
        push16(&mut field, 1);
        push16(&mut field, 8 * numbers.len() as u64);
        numbers.iter().for_each(|number| field.extend_from_slice(&number.to_le_bytes()));
    }
    field
}

fn push16(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes()[..2]);
}

fn push32(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes()[..4]);
}
