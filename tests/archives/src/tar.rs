//! Tars made byte by byte, also ones that no archiver would write.

/// A tar that is being made.
#[derive(Debug, Clone, Default)]
pub struct Tar {
    bytes: Vec<u8>,
}

/// The time members have unless told otherwise.
pub const MTIME: u64 = 1_600_000_000;

impl Tar {
    /// One without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A file that is not executable.
    #[must_use]
    pub fn file(self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        self.file_mode(name, content, 0o644)
    }

    /// A file with a mode.
    #[must_use]
    pub fn file_mode(self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>, mode: u32) -> Self {
        let content = content.as_ref();
        let header = Header::new(name.as_ref(), b'0').mode(mode).size(content.len() as u64);
        self.member(&header, content)
    }

    /// A directory.
    #[must_use]
    pub fn directory(self, name: impl AsRef<[u8]>) -> Self {
        self.member(&Header::new(name.as_ref(), b'5').mode(0o755), b"")
    }

    /// A symlink.
    #[must_use]
    pub fn symlink(self, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.member(&Header::new(name.as_ref(), b'2').link(target.as_ref()), b"")
    }

    /// One more name of a member.
    #[must_use]
    pub fn hard_link(self, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.member(&Header::new(name.as_ref(), b'1').link(target.as_ref()), b"")
    }

    /// A member without data of any type.
    #[must_use]
    pub fn special(self, name: impl AsRef<[u8]>, kind: u8) -> Self {
        self.member(&Header::new(name.as_ref(), kind), b"")
    }

    /// A pax header with these records.
    #[must_use]
    pub fn pax(self, kind: u8, records: &[(&str, &[u8])]) -> Self {
        let mut body = Vec::new();
        for (key, value) in records {
            body.extend_from_slice(&record(key, value));
        }
        let header = Header::new(b"PaxHeaders/x", kind).size(body.len() as u64);
        self.member(&header, &body)
    }

    /// A GNU header with a long name (`L`) or a long link target (`K`).
    #[must_use]
    pub fn long(self, kind: u8, name: &[u8]) -> Self {
        let body = [name, b"\0"].concat();
        let header = Header::new(b"././@LongLink", kind).size(body.len() as u64);
        self.member(&header, &body)
    }

    /// Any header and its data.
    #[must_use]
    pub fn member(mut self, header: &Header, data: &[u8]) -> Self {
        self.bytes.extend_from_slice(&header.block());
        self.bytes.extend_from_slice(data);
        let padded = self.bytes.len().next_multiple_of(512);
        self.bytes.resize(padded, 0);
        self
    }

    /// The archive with its end.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }

    /// The archive without its end.
    #[must_use]
    pub fn unfinished(self) -> Vec<u8> {
        self.bytes
    }
}

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let mut length = body.len() + 1;
    while length != body.len() + length.to_string().len() {
        length = body.len() + length.to_string().len();
    }
    [length.to_string().as_bytes(), &body].concat()
}

/// The header of a member.
#[derive(Debug, Clone)]
pub struct Header {
    block: [u8; 512],
}

impl Header {
    /// A name of at most 100 bytes and a type.
    ///
    /// # Panics
    /// When the name is longer.
    #[must_use]
    pub fn new(name: &[u8], kind: u8) -> Self {
        let mut header = Self { block: [0; 512] };
        assert!(name.len() <= 100, "a longer name needs Tar::long");
        header.block[..name.len()].copy_from_slice(name);
        header.block[108..116].copy_from_slice(b"0000000\0");
        header.block[116..124].copy_from_slice(b"0000000\0");
        header.block[156] = kind;
        header.block[257..265].copy_from_slice(b"ustar\x0000");
        header.mode(0o644).size(0).mtime(MTIME)
    }

    /// The mode.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.block[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
        self
    }

    /// How many bytes of data follow.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        self
    }

    /// The time of last modification.
    #[must_use]
    pub fn mtime(mut self, mtime: u64) -> Self {
        self.block[136..148].copy_from_slice(format!("{mtime:011o}\0").as_bytes());
        self
    }

    /// What a link points to.
    ///
    /// # Panics
    /// When it is longer than 100 bytes.
    #[must_use]
    pub fn link(mut self, target: &[u8]) -> Self {
        assert!(target.len() <= 100, "a longer target needs Tar::long");
        self.block[157..157 + target.len()].copy_from_slice(target);
        self
    }

    /// Overwrites bytes of the header.
    #[must_use]
    pub fn raw(mut self, at: usize, bytes: &[u8]) -> Self {
        self.block[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn block(&self) -> [u8; 512] {
        let mut block = self.block;
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}
