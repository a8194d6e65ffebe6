//! Versions beside each other: what they differ in, what they take, and which are kept.

use super::auth::Scope;
use super::body;
use super::builds::{Place, describe, ready};
use super::extract::{Named, QueryOf};
use crate::app::{App, blocking, now_ms};
use crate::environments::import::anonymous_upload;
use crate::environments::{find, retention};
use crate::failure::{Code, Failure, Tried};
use crate::sessions::service::failure;
use crate::store::{PackageRow, Removal};
use crate::warden_client::WardenError;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use hangar_rootfs::job::{CompareOptions, CompareOutcome, MeasureOutcome, TreeSize};
use hangar_runtime::ids::{EnvironmentId, VersionNumber};
use hangar_runtime::wire::warden::{Job, JobEnd, RefusalCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How many differences are listed where a request says nothing, and at most.
const LISTED: u64 = 1000;
const LISTED_MAX: u64 = 20_000;

#[derive(Debug, Deserialize)]
pub(super) struct Compared {
    from: Option<VersionNumber>,
    to: Option<VersionNumber>,
    limit: Option<u64>,
}

/// What two versions differ in: files by their digests, packages by their versions.
pub(super) async fn diff(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
    QueryOf(query): QueryOf<Compared>,
) -> Result<Json<Value>, Failure> {
    let number = |param: &str| {
        Failure::new(Code::InvalidInput, "`from` and `to` are numbers of versions")
            .with_param(param)
    };
    let (from, to) =
        (query.from.ok_or_else(|| number("from"))?, query.to.ok_or_else(|| number("to"))?);
    let before = ready(&app, &scope, &(id.clone(), from)).await?;
    let after = ready(&app, &scope, &(id.clone(), to)).await?;
    let what = "comparing the versions";
    let spooled = Arc::clone(&app);
    let mut file = blocking(move || anonymous_upload(&spooled)).await.tried(what)?;
    let listed_max = query.limit.unwrap_or(LISTED).min(LISTED_MAX);
    let options = serde_json::to_vec(&CompareOptions { listed_max }).tried(what)?;
    let work = Job::Compare { environment: id.clone(), from, to };
    let written = OwnedFd::from(file.try_clone().tried(what)?);
    let outcome: CompareOutcome = outcome(what, app.warden.job(work, options, &[written]).await)?;
    let files = blocking(move || {
        file.rewind()?;
        read_lines(file)
    });
    Ok(Json(json!({
        "id": id,
        "object": "hangar.diff",
        "from": from,
        "to": to,
        "from_root_digest": outcome.from_root_digest,
        "to_root_digest": outcome.to_root_digest,
        "files": {
            "added": outcome.added,
            "removed": outcome.removed,
            "changed": outcome.changed,
            "unchanged": outcome.unchanged,
            "bytes_before": outcome.bytes_before,
            "bytes_after": outcome.bytes_after,
            "truncated": outcome.truncated,
            "entries": files.await.tried(what)?,
        },
        "packages": package_differences(&before.packages, &after.packages),
    })))
}

fn read_lines(file: File) -> std::io::Result<Vec<Value>> {
    let lines = BufReader::new(file).lines();
    lines.map(|line| serde_json::from_str(&line?).map_err(std::io::Error::from)).collect()
}

/// What a job of the worker answered.
fn outcome<T: DeserializeOwned>(
    what: &str,
    end: Result<JobEnd, WardenError>,
) -> Result<T, Failure> {
    match end {
        Ok(JobEnd::Done(bytes)) => serde_json::from_slice(&bytes).tried(what),
        Ok(other) => Err(Failure::internal(what, describe(&other))),
        Err(error @ (WardenError::Gone | WardenError::Timeout)) => {
            let message = format!("{what} failed: the worker is not there");
            Err(Failure::new(Code::EnvironmentUnavailable, message).with_cause(error))
        }
        Err(error) => Err(failure(what, &error)),
    }
}

/// Packages of one manager and name can be installed in several versions.
fn package_differences(before: &[PackageRow], after: &[PackageRow]) -> Vec<Value> {
    type Versions<'a> = BTreeMap<(&'a str, &'a str), [BTreeSet<&'a str>; 2]>;
    let mut all = Versions::new();
    for (side, packages) in [before, after].into_iter().enumerate() {
        for package in packages {
            let versions = all.entry((&package.manager, &package.name)).or_default();
            versions[side].insert(&package.version);
        }
    }
    let text = |versions: &BTreeSet<&str>| {
        (!versions.is_empty()).then(|| versions.iter().copied().collect::<Vec<_>>().join(", "))
    };
    all.into_iter()
        .filter(|(_, [before, after])| before != after)
        .map(|((manager, name), [before, after])| {
            json!({
                "manager": manager, "name": name, "before": text(&before), "after": text(&after),
            })
        })
        .collect()
}

/// What an environment takes on disk. A file that several versions share counts once.
pub(super) async fn usage(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Json<Value>, Failure> {
    let environment = find(&app, &scope, &id).await?;
    let what = "measuring the environment";
    let rows = app.store.versions(&id).await.tried("reading the versions")?;
    let measured = app.warden.job(Job::Measure { environment: id.clone() }, b"{}".to_vec(), &[]);
    let measured = match measured.await {
        // It was never built.
        Err(WardenError::Refused(refusal)) if refusal.code == RefusalCode::NotFound => {
            MeasureOutcome::default()
        }
        other => outcome(what, other)?,
    };
    let (sources, at) = (app.sources.clone(), id.clone());
    let (source_files, source_bytes) = blocking(move || sources.open(&at)?.size()).await?;
    let size = |tree: &TreeSize| {
        json!({
            "files": tree.files,
            "bytes": tree.bytes,
            "disk_bytes": tree.disk_bytes,
            "own_disk_bytes": tree.own_disk_bytes,
        })
    };
    let versions = rows.iter().filter_map(|row| {
        let mut object = size(measured.trees.get(&row.number.to_string())?);
        object["version"] = json!(row.number);
        object["active"] = json!(environment.active == Some(row.number));
        Some(object)
    });
    let is_kept = |name: &str| name.starts_with("dependencies-");
    let kept = measured.trees.iter().filter(|(name, _)| is_kept(name));
    Ok(Json(json!({
        "id": id,
        "object": "hangar.usage",
        "disk_bytes": measured.disk_bytes,
        "source": { "files": source_files, "bytes": source_bytes },
        "versions": versions.collect::<Vec<_>>(),
        "kept_dependencies": kept.map(|(_, tree)| size(tree)).collect::<Vec<_>>(),
    })))
}

/// Removes a version that nobody uses.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((id, number)): Named<Place>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let in_use = |why: String| Err(Failure::new(Code::VersionInUse, why));
    match app.store.remove_version(&id, number).await.tried("removing the version")? {
        Removal::Removed => {}
        Removal::NotFound => {
            return Err(Failure::new(Code::VersionNotFound, "there is no such version"));
        }
        Removal::Active => {
            return in_use("the version is the active one: activate another one first".to_owned());
        }
        Removal::Building => {
            return Err(Failure::new(Code::EnvironmentBusy, "the version is still being built"));
        }
        Removal::Read(1) => return in_use("a session reads the version".to_owned()),
        Removal::Read(sessions) => return in_use(format!("{sessions} sessions read the version")),
    }
    retention::remove_log(&app, &id, number);
    crate::sessions::sweep::remove_garbage(&app).await;
    Ok(Json(json!({ "id": id, "version": number, "deleted": true })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retention {
    keep_last: Option<NonZeroU32>,
}

pub(super) async fn show_retention(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    retention_of(&app, &id).await
}

/// Says how many finished versions of an environment are kept; null leaves it to the server.
pub(super) async fn set_retention(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let asked: Retention = body::json(&app, body).await?;
    let keep_last = asked.keep_last.map(NonZeroU32::get);
    app.store.set_keep_last(&id, keep_last, now_ms()).await.tried("storing the retention")?;
    retention::apply(&app).await;
    crate::sessions::sweep::remove_garbage(&app).await;
    retention_of(&app, &id).await
}

async fn retention_of(app: &App, id: &EnvironmentId) -> Result<Json<Value>, Failure> {
    let own = app.store.keep_last(id).await.tried("reading the retention")?;
    let default = app.config.versions.keep_last.map(NonZeroU32::get);
    Ok(Json(json!({
        "id": id,
        "object": "hangar.retention",
        "keep_last": own,
        "default_keep_last": default,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_apart_by_manager_and_version() {
        let row = |manager: &str, name: &str, version: &str| PackageRow {
            manager: manager.to_owned(),
            name: name.to_owned(),
            version: version.to_owned(),
        };
        let before = [row("pip", "a", "1"), row("pip", "b", "1"), row("npm", "c", "1")];
        let after = [row("pip", "a", "1"), row("pip", "b", "2"), row("pip", "c", "1")];
        let told = package_differences(&before, &after);
        let expected = json!([
            { "manager": "npm", "name": "c", "before": "1", "after": null },
            { "manager": "pip", "name": "b", "before": "1", "after": "2" },
            { "manager": "pip", "name": "c", "before": null, "after": "1" },
        ]);
        assert_eq!(json!(told), expected);
    }
}
