//! What a turn did to the files of its session: which it created, changed and deleted.

use crate::api::media::media_type;
use crate::app::App;
use crate::failure::Failure;
use crate::sessions::workspace::{self, Artifact};
use hangar_runtime::ids::SessionId;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The most files one message cites.
const CITED_MAX: usize = 1000;

/// The files of a working directory at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    files: HashMap<Vec<u8>, workspace::Stamp>,
    cut: bool,
}

/// What happened between two moments.
#[derive(Debug, Default)]
pub struct Changes {
    /// Files that are there now and were not, or not so.
    pub files: Vec<(Artifact, Change)>,
    /// Paths that were there.
    pub deleted: Vec<String>,
    /// There are more files than are looked at, or cited.
    pub incomplete: bool,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It was another one or had other content.
    Changed,
}

/// The files of a session now.
///
/// # Errors
/// When the warden is not there or the directory cannot be read.
pub async fn now(app: &App, session: &SessionId) -> Result<workspace::Artifacts, Failure> {
    let view = workspace::view(app, session).await?;
    workspace::list(view, app.config.session.artifacts_max).await
}

impl From<workspace::Artifacts> for Snapshot {
    fn from(found: workspace::Artifacts) -> Self {
        let files = found.files.into_iter().map(|file| (file.path, file.stamp)).collect();
        Self { files, cut: found.cut }
    }
}

impl Snapshot {
    /// What is different now.
    #[must_use]
    pub fn changes(mut self, found: workspace::Artifacts) -> Changes {
        let mut changes = Changes { incomplete: self.cut || found.cut, ..Changes::default() };
        for file in found.files {
            match self.files.remove(&file.path) {
                Some(before) if before == file.stamp => {}
                Some(_) => changes.files.push((file, Change::Changed)),
                None => changes.files.push((file, Change::Created)),
            }
        }
        // Of a list that was cut nobody knows what is missing from it.
        if !changes.incomplete {
            changes.deleted =
                self.files.into_keys().map(|path| String::from_utf8_lossy(&path).into()).collect();
            changes.deleted.sort();
        }
        if changes.files.len() > CITED_MAX {
            changes.files.truncate(CITED_MAX);
            changes.incomplete = true;
        }
        changes
    }
}

/// A file as a message cites it.
#[must_use]
pub fn citation(file: &Artifact, container: &str, text: &str) -> Value {
    let id = workspace::file_id(&file.path);
    let path = String::from_utf8_lossy(&file.path);
    json!({
        "type": "container_file_citation",
        "container_id": container,
        "file_id": id,
        "filename": path.rsplit('/').next(),
        "path": path,
        "download_url": format!("/v1/containers/{container}/files/{id}/content"),
        "start_index": 0,
        "end_index": text.chars().count(),
    })
}

/// A file as a turn lists it.
#[must_use]
pub fn listed(file: &Artifact, change: Change, container: &str) -> Value {
    let path = String::from_utf8_lossy(&file.path);
    json!({
        "id": workspace::file_id(&file.path),
        "object": "file",
        "container_id": container,
        "filename": path.rsplit('/').next(),
        "path": path,
        "bytes": file.bytes,
        "created_at": file.modified_s,
        "content_type": media_type(&path),
        "change": match change { Change::Created => "created", Change::Changed => "changed" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use workspace::Stamp;

    fn found(files: &[(&str, i64)]) -> workspace::Artifacts {
        let file = |(path, time): &(&str, i64)| Artifact {
            path: path.as_bytes().to_vec(),
            bytes: 1,
            modified_s: *time,
            stamp: Stamp { inode: 1, bytes: 1, modified: (*time, 0), changed: (*time, 0) },
        };
        workspace::Artifacts { files: files.iter().map(file).collect(), cut: false }
    }

    #[test]
    fn what_a_turn_did_is_told_exactly() {
        let before: Snapshot = found(&[("a", 1), ("b", 1), ("c", 1)]).into();
        let changes = before.changes(found(&[("a", 1), ("b", 2), ("d", 1)]));
        let files: Vec<_> = changes.files.iter().map(|(f, c)| (&f.path[..], *c)).collect();
        assert_eq!(files, [(&b"b"[..], Change::Changed), (b"d", Change::Created)]);
        assert_eq!((changes.deleted, changes.incomplete), (vec!["c".to_owned()], false));
    }

    #[test]
    fn a_cut_list_says_so_and_knows_of_nothing_deleted() {
        let before = Snapshot { cut: true, ..found(&[("a", 1)]).into() };
        let changes = before.changes(found(&[]));
        assert!(changes.incomplete && changes.deleted.is_empty());
    }
}
