//! Archives made byte by byte, also ones that no archiver would write.

#![forbid(unsafe_code)]

mod packed;
mod tar;
mod zip;

pub use packed::{bzip2, gzip, upload, xz, zstd};
pub use tar::{Header, MTIME, Tar};
pub use zip::{Method, Sizes, System, Zip, ZipMember, unicode_name};
