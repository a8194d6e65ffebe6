//! Skills of a harness: whole folders, checked when they are written and kept byte for byte.
//!
//! The harness names its skills; their files are stored beside it and read by the handle that a
//! client passes back, so that an edit of something else can not empty a folder.

use crate::app::random_hex;
use crate::environments::source_path::SourcePath;
use crate::failure::{Code, Failure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const SKILLS_MAX: usize = 200;
const NAME_BYTES_MAX: usize = 64;
const FILES_MAX: usize = 2000;
/// The most bytes of the files of one skill.
pub const SKILL_BYTES_MAX: usize = 8 << 20;
/// The file that makes a folder a skill.
const MANIFEST: &str = "SKILL.md";

/// A skill as the harness names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// The name of its folder.
    pub name: String,
    /// Whether the agent gets it; where not, neither does it get one of this name from its base.
    pub enabled: bool,
    /// The handle of its files; none for one that only suppresses another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// A file of a skill as a client writes and reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillFile {
    /// Relative to the folder.
    pub path: String,
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Its bytes in base64, where it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_b64: Option<String>,
}

impl SkillFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn bytes(&self) -> Result<Vec<u8>, &'static str> {
        match (&self.content, &self.content_b64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(digits)) => {
                STANDARD.decode(digits).map_err(|_| "a file of a skill has no valid base64")
            }
            _ => Err("a file of a skill has content or content_b64"),
        }
    }
}

/// A skill as a client writes it.
#[derive(Debug, Clone, Deserialize)]
pub struct Written {
    name: String,
    #[serde(default = "yes")]
    enabled: bool,
    files: Option<Vec<SkillFile>>,
    content: Option<String>,
    blob: Option<String>,
}

fn yes() -> bool {
    true
}

/// Files that are stored with the harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Their handle.
    pub blob: String,
    /// The files, as they were written.
    pub files: Vec<SkillFile>,
}

/// Checks the skills that a client wrote: what the harness names from now on, and the files that
/// are new. `stored` is what it has named so far.
///
/// # Errors
/// [`Code::InvalidInput`] with what is wrong; [`Code::FileTooLarge`] when a skill is too large.
pub fn checked(
    written: Vec<Written>,
    stored: &[Skill],
) -> Result<(Vec<Skill>, Vec<Bundle>), Failure> {
    if written.len() > SKILLS_MAX {
        return Err(invalid("there are too many skills"));
    }
    let (mut skills, mut bundles) = (Vec::<Skill>::new(), Vec::new());
    for one in written {
        check_name(&one.name)?;
        if skills.iter().any(|other| other.name == one.name) {
            return Err(invalid("two skills have the same name"));
        }
        let (skill, bundle) = take(one, stored)?;
        skills.push(skill);
        bundles.extend(bundle);
    }
    Ok((skills, bundles))
}

fn take(written: Written, stored: &[Skill]) -> Result<(Skill, Option<Bundle>), Failure> {
    let Written { name, enabled, files, content, blob } = written;
    let single =
        |text| vec![SkillFile { path: MANIFEST.into(), content: Some(text), content_b64: None }];
    if let Some(files) = files.or_else(|| content.map(single)) {
        check_files(&files)?;
        let blob = format!("skl_{}", random_hex());
        let skill = Skill { name, enabled, blob: Some(blob.clone()) };
        return Ok((skill, Some(Bundle { blob, files })));
    }
    // Neither files nor a handle: the files stay that the skill has.
    let known = stored.iter().find(|known| match &blob {
        Some(_) => known.blob == blob,
        None => known.name == name,
    });
    match known {
        Some(known) => Ok((Skill { name, enabled, blob: known.blob.clone() }, None)),
        None if blob.is_some() => {
            Err(invalid("a skill has a blob that this harness does not have"))
        }
        None if enabled => Err(invalid("a skill has no files")),
        None => Ok((Skill { name, enabled, blob: None }, None)),
    }
}

/// It becomes the name of a folder and a part of a URL.
fn check_name(name: &str) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_fine = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(fits)
        && !name.starts_with('.');
    match is_fine {
        true => Ok(()),
        false => Err(invalid("the name of a skill is of letters, digits, '-', '_' and '.'")),
    }
}

fn check_files(files: &[SkillFile]) -> Result<(), Failure> {
    if files.len() > FILES_MAX {
        return Err(invalid("a skill has too many files"));
    }
    let mut total = 0;
    let mut paths = BTreeSet::new();
    for file in files {
        SourcePath::parse(&file.path)
            .map_err(|_| invalid("a file of a skill has a path that leads out of its folder"))?;
        if !paths.insert(file.path.as_str()) {
            return Err(invalid("two files of a skill have the same path"));
        }
        total += file.bytes().map_err(invalid)?.len();
    }
    let is_directory = |path: &str| {
        let below = format!("{path}/");
        paths.range(below.as_str()..).next().is_some_and(|next| next.starts_with(&below))
    };
    if paths.iter().any(|path| is_directory(path)) {
        return Err(invalid("a file of a skill is a directory as well"));
    }
    if !paths.contains(MANIFEST) {
        return Err(invalid("a skill has no SKILL.md"));
    }
    match total > SKILL_BYTES_MAX {
        true => Err(Failure::new(Code::FileTooLarge, "a skill is larger than this server takes")
            .with_param("skills")
            .with_detail(serde_json::json!({ "max_bytes": SKILL_BYTES_MAX }))),
        false => Ok(()),
    }
}

fn invalid(why: &str) -> Failure {
    Failure::new(Code::InvalidInput, why).with_param("skills")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn take(skills: Value, stored: &[Skill]) -> Result<(Vec<Skill>, Vec<Bundle>), Failure> {
        checked(serde_json::from_value(skills).unwrap(), stored)
    }

    fn folder(paths: &[&str]) -> Value {
        let files: Vec<_> =
            paths.iter().map(|path| json!({ "path": path, "content": "x" })).collect();
        json!([{ "name": "s", "files": files }])
    }

    #[test]
    fn a_skill_is_a_whole_folder() {
        assert!(take(folder(&["SKILL.md", "scripts/x.sh", "scripts-2"]), &[]).is_ok());
        let (skills, bundles) = take(json!([{ "name": "s", "content": "x" }]), &[]).unwrap();
        assert_eq!(bundles[0].files[0].path, "SKILL.md");
        assert_eq!(skills[0].blob.as_ref(), Some(&bundles[0].blob));
        for bad in [
            folder(&["x.md"]),
            folder(&["SKILL.md", "../x"]),
            folder(&["SKILL.md", "/x"]),
            folder(&["SKILL.md", "a/./b"]),
            folder(&["SKILL.md", "a", "a/b"]),
            folder(&["SKILL.md", "SKILL.md"]),
            json!([{ "name": "s" }]),
            json!([{ "name": "../s", "content": "x" }]),
            json!([{ "name": "s", "files": [{ "path": "SKILL.md" }] }]),
            json!([{ "name": "s", "files": [{ "path": "SKILL.md", "content_b64": "=" }] }]),
            json!([{ "name": "s", "content": "x" }, { "name": "s", "content": "y" }]),
            json!([{ "name": "s", "blob": "skl_other" }]),
        ] {
            let failure = take(bad.clone(), &[]).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some("skills"), "{bad}");
        }
        let large = json!([{ "name": "s", "content": "x".repeat(SKILL_BYTES_MAX + 1) }]);
        assert_eq!(take(large, &[]).unwrap_err().code, Code::FileTooLarge);
    }

    #[test]
    fn a_skill_that_is_written_back_keeps_its_files() {
        let stored = [Skill { name: "s".into(), enabled: true, blob: Some("skl_1".into()) }];
        for (written, name, enabled) in [
            (json!([{ "name": "s", "enabled": true, "blob": "skl_1" }]), "s", true),
            (json!([{ "name": "renamed", "enabled": true, "blob": "skl_1" }]), "renamed", true),
            (json!([{ "name": "s", "enabled": false }]), "s", false),
        ] {
            let (skills, bundles) = take(written, &stored).unwrap();
            assert!(bundles.is_empty());
            assert_eq!(skills, [Skill { name: name.into(), enabled, blob: Some("skl_1".into()) }]);
        }
        let (suppressing, _) = take(json!([{ "name": "t", "enabled": false }]), &stored).unwrap();
        assert_eq!(suppressing[0].blob, None);
    }
}
