//! Files that clients send ahead of the tasks that read them.
//!
//! The bytes of an upload are in the file of its id below `api/uploads/kept`. It is there and on
//! disk before its row is, and the row before the client is told; a file without a row belongs to
//! nobody and is removed at the next start.

use crate::app::{ApiFiles, App, blocking, now_ms, random_hex};
use crate::failure::{Code, Failure, Tried};
use crate::store::UploadRow;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file on its way; it is removed with the value unless it was kept.
#[derive(Debug)]
pub struct Incoming {
    id: String,
    /// Where it is while it arrives.
    path: PathBuf,
    /// Open for writing.
    pub file: Arc<File>,
}

/// What is told of a file.
#[derive(Debug)]
pub struct About {
    /// One plain name.
    pub name: String,
    /// A media type.
    pub media_type: String,
    /// What it is for.
    pub purpose: String,
    /// How many bytes arrived.
    pub bytes: u64,
}

impl Incoming {
    /// An empty file that nobody knows of yet.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn start(app: &App) -> Result<Self, Failure> {
        // What tells it from the id of an artifact: no hexadecimal digit.
        let id = format!("file_up{}", random_hex());
        let path = app.files.uploads().join(&id);
        let made = path.clone();
        let file = blocking(move || File::options().write(true).create_new(true).open(made)).await;
        let file = file.map_err(|error| Failure::not_stored("the upload", &error))?;
        Ok(Self { id, path, file: Arc::new(file) })
    }

    /// Keeps the file: from the return on it outlives a loss of power.
    ///
    /// # Errors
    /// [`Code::QuotaExhausted`] when the scope keeps too much already; nothing is kept then.
    pub async fn keep(self, app: &App, scope: &str, about: About) -> Result<UploadRow, Failure> {
        let kept = app.files.kept_uploads();
        let (file, from, to) = (Arc::clone(&self.file), self.path.clone(), kept.join(&self.id));
        let place = move || {
            file.sync_all()?;
            std::fs::rename(from, to)?;
            File::open(kept)?.sync_all()
        };
        blocking(place).await.map_err(|error| Failure::not_stored("the upload", &error))?;
        let row = UploadRow {
            id: self.id.clone(),
            scope: scope.to_owned(),
            name: about.name,
            media_type: about.media_type,
            purpose: about.purpose,
            bytes: about.bytes,
            created_ms: now_ms(),
        };
        let max = app.config.uploads.inputs_bytes_max;
        let stored = app.store.create_upload(row.clone(), max).await;
        if !matches!(stored, Ok(true)) {
            remove_file(app.files.kept_uploads().join(&self.id)).await;
        }
        match stored.tried("storing the upload")? {
            true => Ok(row),
            false => Err(Failure::new(
                Code::QuotaExhausted,
                "the files of this scope take too much room; delete some of them",
            )
            .with_detail(serde_json::json!({ "max_bytes": max }))),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // One that was kept is not here any more.
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// The upload with this id.
///
/// # Errors
/// [`Code::FileNotFound`] when the scope has none of that id.
pub async fn find(app: &App, scope: &str, id: &str) -> Result<UploadRow, Failure> {
    let row = app.store.upload(scope, id).await.tried("reading the upload")?;
    row.ok_or_else(|| Failure::new(Code::FileNotFound, "there is no such file"))
}

/// The upload with this id, and its bytes from their beginning. They stay readable when it is
/// deleted meanwhile.
///
/// # Errors
/// As for [`find`].
pub async fn open(app: &App, scope: &str, id: &str) -> Result<(UploadRow, File), Failure> {
    let row = find(app, scope, id).await?;
    // Only the id that the store has becomes a path.
    let path = app.files.kept_uploads().join(&row.id);
    let file = blocking(move || File::open(path)).await.tried("reading the upload")?;
    Ok((row, file))
}

/// Removes an upload. Tasks that have read it keep what they read.
///
/// # Errors
/// As for [`find`].
pub async fn delete(app: &App, scope: &str, id: &str) -> Result<(), Failure> {
    if !app.store.delete_upload(scope, id).await.tried("removing the upload")? {
        return Err(Failure::new(Code::FileNotFound, "there is no such file"));
    }
    remove_file(app.files.kept_uploads().join(id)).await;
    Ok(())
}

/// Nobody knows of the file any more; one that stays is removed at the next start.
async fn remove_file(path: PathBuf) {
    if let Err(error) = blocking(move || std::fs::remove_file(path)).await {
        tracing::warn!("an upload that nobody knows was not removed: {error}");
    }
}

/// Makes the directory of kept uploads and removes what an earlier process left unfinished.
///
/// # Errors
/// When the directory cannot be made.
pub fn prepare(files: &ApiFiles) -> std::io::Result<()> {
    match std::fs::create_dir(files.kept_uploads()) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for entry in std::fs::read_dir(files.uploads())?.flatten() {
        if entry.path() != files.kept_uploads() {
            remove_at_start(&entry.path());
        }
    }
    Ok(())
}

/// Removes the files of uploads that were never acknowledged, or whose row is gone.
///
/// # Errors
/// When the database fails.
pub async fn sweep(app: &App) -> Result<(), crate::store::StoreError> {
    let known = app.store.uploads(None).await?;
    let known: HashSet<String> = known.into_iter().map(|upload| upload.id).collect();
    let kept = std::fs::read_dir(app.files.kept_uploads()).into_iter().flatten().flatten();
    for entry in kept.filter(|e| e.file_name().to_str().is_none_or(|name| !known.contains(name))) {
        remove_at_start(&entry.path());
    }
    Ok(())
}

fn remove_at_start(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!("an upload of an earlier process was not removed: {error}");
    }
}
