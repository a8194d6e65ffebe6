//! Freezing: the tree of a build becomes a version, or kept dependencies, that never change.

use super::log::BuildLog;
use super::run::{Build, BuildError};
use crate::environments::reuse::Reuse;
use crate::failure::{Failure, Tried};
use crate::sessions::service::failure;
use crate::warden_client::WardenError;
use hangar_rootfs::job::{Durability, FreezeOptions, FreezeOutcome, Refusal};
use hangar_runtime::ids::DependencyKey;
use hangar_runtime::wire::warden::{Job, JobEnd, RefusalCode, Request};
use serde::Serialize;

/// A version that is complete on disk.
pub(super) struct Frozen {
    /// What the worker counted.
    pub(super) outcome: FreezeOutcome,
}

/// What stands in the record of a version, beside its tree.
#[derive(Debug, Serialize)]
struct Record<'a> {
    format: u32,
    environment: &'a str,
    version: u32,
    slug: &'a str,
    root_digest: &'a str,
    source_digest: &'a str,
    toolchain: &'a str,
    dependencies: Option<&'a str>,
    files: u64,
    bytes: u64,
    frozen_s: i64,
}

impl Build {
    /// Keeps what is installed so far; `false` when it could not be kept, which fails nothing.
    pub(super) async fn keep(&self, reuse: &Reuse, log: &BuildLog) -> Result<bool, BuildError> {
        // What is kept is what the installers left: nothing runs while it is frozen.
        let _paused = self.pause.lock().await;
        let options = FreezeOptions {
            references: self.active_tree(),
            entries: Some(reuse.entries.clone()),
            // The version that follows brings it to disk.
            durability: Durability::Later,
            ..FreezeOptions::default()
        };
        let options = serde_json::to_vec(&options).tried("keeping the packages")?;
        let mut kept = self.keep_anew(reuse, options.clone()).await;
        if matches!(&kept, Err(WardenError::Refused(refusal)) if refusal.code == RefusalCode::Exists)
        {
            // Nobody knows of it, so nobody knows whether it was whole when power was lost.
            self.remove_kept(reuse).await;
            kept = self.keep_anew(reuse, options).await;
        }
        match kept {
            Ok(JobEnd::Done(_)) => Ok(true),
            Err(error @ (WardenError::Gone | WardenError::Timeout)) => {
                Err(failure("keeping the packages", &error).into())
            }
            other => {
                tracing::warn!("the packages of a build were not kept: {other:?}");
                log.note("[hangar: the installed packages could not be kept]").await?;
                Ok(false)
            }
        }
    }

    async fn keep_anew(&self, reuse: &Reuse, options: Vec<u8>) -> Result<JobEnd, WardenError> {
        let work = Job::FreezeDependencies {
            environment: self.environment.id.clone(),
            key: reuse.key.clone(),
            session: self.session.clone(),
        };
        self.app.warden.job(work, options, &[]).await
    }

    async fn remove_kept(&self, reuse: &Reuse) {
        let environment = self.environment.id.clone();
        let work = Job::RemoveDependencies { environment, key: reuse.key.clone() };
        if let Err(error) = self.app.warden.job(work, b"{}".to_vec(), &[]).await {
            tracing::warn!("kept packages nobody knows of were not removed: {error}");
        }
    }

    /// Freezes the whole tree and writes the record that makes it usable.
    pub(super) async fn freeze(
        &self,
        source_digest: &str,
        toolchain: &str,
        kept: Option<DependencyKey>,
        log: &BuildLog,
    ) -> Result<Frozen, BuildError> {
        let stopped = self.app.isolations.stop(&self.session).await;
        stopped.map_err(|error| failure("ending the build's session", &error))?;
        let mut references: Vec<_> =
            kept.iter().map(|key| format!("dependencies-{key}/tree")).collect();
        references.extend(self.active_tree());
        let options = FreezeOptions { references, ..FreezeOptions::default() };
        let work = Job::Freeze {
            environment: self.environment.id.clone(),
            version: self.number,
            session: self.session.clone(),
        };
        let options = serde_json::to_vec(&options).tried("freezing the version")?;
        let end = self.app.warden.job(work, options, &[]).await;
        let outcome = frozen(end)?;
        for (reference, why) in &outcome.unusable_references {
            tracing::warn!("reference {reference} was not used: {why}");
        }
        let (files, linked) = (outcome.files, outcome.linked_files);
        log.note(&format!("froze {files} files, {linked} of them shared with kept trees")).await?;
        self.write_record(source_digest, toolchain, kept.as_ref(), &outcome).await?;
        Ok(Frozen { outcome })
    }

    /// The tree of the active version, to share unchanged files with.
    fn active_tree(&self) -> Vec<String> {
        self.environment.active.iter().map(|number| format!("{number}/tree")).collect()
    }

    async fn write_record(
        &self,
        source_digest: &str,
        toolchain: &str,
        kept: Option<&DependencyKey>,
        outcome: &FreezeOutcome,
    ) -> Result<(), BuildError> {
        let record = Record {
            format: 1,
            environment: self.environment.id.as_str(),
            version: self.number.0.get(),
            slug: self.environment.slug.as_str(),
            root_digest: &outcome.root_digest,
            source_digest,
            toolchain,
            dependencies: kept.map(DependencyKey::as_str),
            files: outcome.files,
            bytes: outcome.bytes,
            frozen_s: crate::app::now_s(),
        };
        let record = serde_json::to_vec_pretty(&record).tried("writing the record")?;
        let environment = self.environment.id.clone();
        let request = Request::WriteRecord { environment, version: self.number, record };
        let written = self.app.warden.order(request).await;
        written.map_err(|error| failure("writing the record", &error).into())
    }
}

fn frozen(end: Result<JobEnd, WardenError>) -> Result<FreezeOutcome, BuildError> {
    let what = "freezing the version";
    match end.map_err(|error| failure(what, &error))? {
        JobEnd::Done(bytes) => Ok(serde_json::from_slice(&bytes).tried(what)?),
        JobEnd::Refused(bytes) => {
            let refusal: Refusal = serde_json::from_slice(&bytes).tried(what)?;
            let reason = format!("the version could not be frozen: {}", refusal.message);
            Err(BuildError { reason, cause: Some(refusal.detail) })
        }
        other => Err(Failure::internal(what, format!("{other:?}")).into()),
    }
}
