//! Skills of a harness: their whole folders are put where whatever runs in the session can read
//! them, outside the working directory, so that they are no artifacts.

use super::placing::{How, Placed};
use crate::app::{App, blocking};
use crate::failure::{Failure, Tried};
use crate::harnesses::skills::SkillFile;
use crate::store::HarnessRow;
use std::fs::File;
use std::io::{self, Seek as _};

/// Where the folders are, each by the name of its skill.
pub const SKILLS_DIR: &str = "/home/agent/.hangar/skills";

/// The enabled skills of a harness as they are placed; `None` for a harness that names none. What
/// was there of an earlier turn goes.
///
/// # Errors
/// When they cannot be read.
pub async fn placed(app: &App, harness: &HarnessRow) -> Result<Option<Placed>, Failure> {
    if harness.config.skills.is_empty() {
        return Ok(None);
    }
    let mut folders = Vec::new();
    for skill in harness.config.skills.iter().filter(|skill| skill.enabled) {
        let Some(blob) = &skill.blob else { continue };
        let files = app.store.skill_files(&harness.id, blob).await.tried("reading a skill")?;
        // Another request took it away since the harness was read.
        folders.extend(files.map(|files| (skill.name.clone(), files)));
    }
    let file = blocking(move || pack(&folders)).await.tried("keeping the skills")?;
    Ok(Some(Placed { path: SKILLS_DIR.to_owned(), file, how: How::Tree }))
}

fn pack(folders: &[(String, Vec<SkillFile>)]) -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut archive =
        tar::Builder::new(File::from(rustix::fs::memfd_create("hangar-skills", flags)?));
    for (name, files) in folders {
        for file in files {
            // It was checked when it was written.
            let bytes = file.bytes().map_err(io::Error::other)?;
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            // There are no modes in the protocol; what names its interpreter is a program.
            header.set_mode(if bytes.starts_with(b"#!") { 0o755 } else { 0o644 });
            archive.append_data(&mut header, format!("{name}/{}", file.path), &bytes[..])?;
        }
    }
    let mut file = archive.into_inner()?;
    file.rewind()?;
    Ok(file)
}
