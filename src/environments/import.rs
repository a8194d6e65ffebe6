//! Importing a whole project: spooled by the API, unpacked by the worker, put in place at once.

use super::source::Source;
use crate::app::{App, blocking, now_ms, random_hex};
use crate::failure::{Code, Failure, Tried};
use hangar_rootfs::job::{self, ImportOptions, ImportOutcome, RefusalCode, Wrapper};
use hangar_runtime::ids::EnvironmentId;
use hangar_runtime::wire::warden::{Job, JobEnd};
use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Whether the import takes the place of what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// What is there goes away.
    Replaced,
    /// What is there stays, but for the paths the import has too.
    Kept,
}

/// What is imported.
#[derive(Debug)]
pub struct Upload {
    /// An archive, in a file that nobody writes any more.
    pub file: File,
    /// What becomes of the source as it is.
    pub existing: Existing,
    /// What becomes of a directory that wraps everything.
    pub wrapper: Wrapper,
}

/// Unpacks an archive and makes it the source, whole or not at all.
///
/// # Errors
/// What the worker refused, as the caller can understand it; the source is as it was then.
pub async fn import(
    app: &App,
    id: &EnvironmentId,
    upload: Upload,
) -> Result<ImportOutcome, Failure> {
    let Upload { mut file, existing, wrapper } = upload;
    file.seek(SeekFrom::Start(0)).tried("reading the upload")?;
    let _changing = app.locks.changing(id).await;
    let (source, target) = (app.sources.path(id), app.sources.import_path(id));
    let made = target.clone();
    blocking(move || make_empty(&made))
        .await
        .map_err(|error| Failure::not_stored("the import", &error))?;
    let made = make(app, id, file, wrapper, (source, target.clone()), existing).await;
    // The old tree, or what there is of the new one: nobody will look at it again.
    if let Err(error) = blocking(move || std::fs::remove_dir_all(&target)).await {
        tracing::warn!("what an import of {id} left was not removed: {error}");
    }
    made
}

/// Makes the new tree beside the source and exchanges them.
async fn make(
    app: &App,
    id: &EnvironmentId,
    file: File,
    wrapper: Wrapper,
    (source, target): (PathBuf, PathBuf),
    existing: Existing,
) -> Result<ImportOutcome, Failure> {
    let mut outcome = unpack(app, id, file, wrapper).await?;
    // Before the exchange, so that no failure of the store can follow it.
    app.store.set_source_size(id, None, now_ms()).await.tried("storing the import")?;
    let placed = blocking(move || put_in_place(&source, &target, existing)).await;
    let size = placed.map_err(|error| Failure::not_stored("the import", &error))?;
    if let Some(size) = size {
        (outcome.count, outcome.bytes) = size;
        // It is counted again when it is asked for.
        if let Err(error) = app.store.set_source_size(id, Some(size), now_ms()).await {
            tracing::warn!("the size of the source of {id} was not stored: {error}");
        }
    }
    Ok(outcome)
}

/// Exchanges the source for the new tree, which got what it keeps of the old one before. From the
/// exchange on nothing fails any more. The answer is the size of the new source.
fn put_in_place(
    source: &Path,
    target: &Path,
    existing: Existing,
) -> std::io::Result<Option<(u64, u64)>> {
    if existing == Existing::Kept {
        keep_what_was_there(source, target)?;
    }
    let size = Source::at(target).map_err(std::io::Error::from)?.size().ok();
    let parent = File::open(source.parent().unwrap_or(source))?;
    renameat_with(CWD, source, CWD, target, RenameFlags::EXCHANGE)?;
    // What is acknowledged outlives a loss of power; what was not may do so too.
    if let Err(error) = parent.sync_all() {
        tracing::error!("an import was put in place and not synced: {error}");
    }
    Ok(size)
}

/// Makes an empty directory, whatever an import that was cut off left there.
fn make_empty(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::DirBuilder::new().mode(0o755).create(path)
}

async fn unpack(
    app: &App,
    id: &EnvironmentId,
    upload: File,
    wrapper: Wrapper,
) -> Result<ImportOutcome, Failure> {
    let limits = &app.config.uploads;
    let options = ImportOptions {
        wrapper,
        limits: job::Limits {
            bytes_max: limits.unpacked_bytes_max,
            file_bytes_max: limits.unpacked_bytes_max,
            entries_max: limits.entries_max,
            ..job::Limits::default()
        },
        ..ImportOptions::default()
    };
    let options = serde_json::to_vec(&options).tried("preparing the import")?;
    let work = Job::Import { environment: id.clone() };
    let end = app.warden.job(work, options, &[upload.into()]).await;
    let end = end.map_err(|error| crate::sessions::service::failure("the import", &error))?;
    match end {
        JobEnd::Done(bytes) => serde_json::from_slice(&bytes).tried("reading the import's outcome"),
        JobEnd::Refused(bytes) => Err(refused(&bytes)),
        other => Err(Failure::internal("the import", format!("{other:?}"))),
    }
}

/// What the caller learns of a refusal by the worker.
fn refused(bytes: &[u8]) -> Failure {
    let refusal: job::Refusal = match serde_json::from_slice(bytes) {
        Ok(refusal) => refusal,
        Err(error) => return Failure::internal("the import", error),
    };
    let (code, limit) = match refusal.code {
        RefusalCode::FileTooLarge | RefusalCode::TreeTooLarge => {
            (Code::FileTooLarge, Some("max_bytes"))
        }
        RefusalCode::TooManyEntries => (Code::EnvironmentInvalid, Some("max_entries")),
        RefusalCode::PathTooLong => (Code::EnvironmentInvalid, Some("max_path_bytes")),
        RefusalCode::PathTooDeep => (Code::EnvironmentInvalid, Some("max_path_depth")),
        RefusalCode::RatioTooHigh => (Code::EnvironmentInvalid, Some("max_ratio")),
        RefusalCode::DiskFull => (Code::EnvironmentUnavailable, None),
        RefusalCode::Failed | RefusalCode::InvalidOptions => (Code::Internal, None),
        _ => (Code::EnvironmentInvalid, None),
    };
    let mut failure = Failure::new(code, refusal.message).with_cause(refusal.detail);
    if let (Some(name), Some(limit)) = (limit, refusal.limit) {
        failure = failure.with_detail(serde_json::json!({ name: limit }));
    }
    failure
}

/// Links every file of the old tree into the new one where the new one has nothing of that name.
fn keep_what_was_there(old: &Path, new: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(old)? {
        let entry = entry?;
        let (from, to) = (entry.path(), new.join(entry.file_name()));
        let there = std::fs::symlink_metadata(&to);
        if entry.file_type()?.is_dir() {
            match there {
                Ok(there) if there.is_dir() => {}
                Ok(_) => continue,
                Err(_) => std::fs::create_dir(&to)?,
            }
            keep_what_was_there(&from, &to)?;
        } else if there.is_err() {
            linkat(CWD, &from, CWD, &to, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// An empty file in the directory of uploads that no name leads to.
///
/// # Errors
/// When the directory cannot be written.
pub fn anonymous_upload(app: &App) -> std::io::Result<File> {
    let path = app.files.uploads().join(random_hex());
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_lands_over_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (path, text) in [
            ("old/kept", "old"),
            ("old/both", "old"),
            ("old/d/kept", "old"),
            ("old/d/both", "old"),
            ("old/was-dir/x", "old"),
            ("old/only/deep/x", "old"),
            ("new/both", "new"),
            ("new/d/both", "new"),
            ("new/was-dir", "new"),
        ] {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), text).unwrap();
        }
        keep_what_was_there(&at("old"), &at("new")).unwrap();
        for (path, text) in [
            ("kept", "old"),
            ("both", "new"),
            ("d/kept", "old"),
            ("d/both", "new"),
            ("was-dir", "new"),
            ("only/deep/x", "old"),
        ] {
            assert_eq!(std::fs::read_to_string(at("new").join(path)).unwrap(), text, "{path}");
        }
    }

    #[test]
    fn a_limit_that_was_passed_is_named_by_what_it_counts() {
        use RefusalCode::*;
        for (code, expected, name) in [
            (FileTooLarge, Code::FileTooLarge, "max_bytes"),
            (TreeTooLarge, Code::FileTooLarge, "max_bytes"),
            (TooManyEntries, Code::EnvironmentInvalid, "max_entries"),
            (PathTooLong, Code::EnvironmentInvalid, "max_path_bytes"),
            (PathTooDeep, Code::EnvironmentInvalid, "max_path_depth"),
            (RatioTooHigh, Code::EnvironmentInvalid, "max_ratio"),
        ] {
            let refusal = job::Refusal {
                code,
                message: "it is too large".into(),
                detail: "/out/x".into(),
                limit: Some(5),
            };
            let failure = refused(&serde_json::to_vec(&refusal).unwrap());
            assert_eq!(failure.code, expected);
            assert_eq!(failure.detail.unwrap(), serde_json::json!({ name: 5 }));
        }
    }
}
