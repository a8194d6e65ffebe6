//! What happens by itself: ends are stored, idle sessions end, garbage is removed.

use super::isolation::{Ended, SESSION_GONE, is_not_found};
use crate::app::{App, now_ms};
use crate::environments::retention;
use crate::tasks::idempotency;
use crate::warden_client::WardenError;
use hangar_runtime::ids::{DependencyKey, EnvironmentId, SessionId, VersionNumber};
use hangar_runtime::wire::warden::{Job, JobEnd, RefusalCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often idle sessions and garbage are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// How many ends are stored at once.
const ENDS_AT_ONCE: usize = 256;

/// Stores how commands ended, as they end: what gathers while one is stored is stored together.
pub async fn store_ends(app: Arc<App>, mut ended: mpsc::UnboundedReceiver<Ended>) {
    let mut ends = Vec::new();
    while ended.recv_many(&mut ends, ENDS_AT_ONCE).await > 0 {
        store_all(&app, std::mem::take(&mut ends)).await;
    }
}

/// Stores the ends that are known now.
pub async fn store_known_ends(app: &App, ended: &mut mpsc::UnboundedReceiver<Ended>) {
    let mut ends = Vec::new();
    while let Ok(end) = ended.try_recv() {
        ends.push(end);
    }
    store_all(app, ends).await;
}

/// Commands of builds have no row; nothing is changed for them.
async fn store_all(app: &App, ends: Vec<Ended>) {
    if let Err(error) = app.store.end_commands(ends, now_ms()).await {
        tracing::error!("ends of commands were not stored: {error}");
    }
}

/// Ends idle sessions and removes garbage, for as long as the process runs.
pub async fn sweep(app: Arc<App>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let idle = Duration::from_secs(app.config.session.idle_timeout_s);
        if let Some(before) = Instant::now().checked_sub(idle) {
            for session in app.isolations.idle_since(before) {
                if let Err(error) = app.isolations.stop_idle(&session, before).await {
                    tracing::warn!("the idle session {session} was not ended: {error}");
                }
            }
        }
        retention::apply(&app).await;
        if let Err(error) = idempotency::forget_old(&app).await {
            tracing::error!("old keys of requests were not forgotten: {error}");
        }
        remove_garbage(&app).await;
    }
}

/// Removes what nothing refers to any more. What is still in use stays for the next time.
pub async fn remove_garbage(app: &App) {
    let garbage = match app.store.garbage().await {
        Ok(garbage) => garbage,
        Err(error) => return tracing::error!("the garbage could not be listed: {error}"),
    };
    for (kind, id) in garbage {
        match remove(app, &kind, &id).await {
            Ok(true) => {
                if let Err(error) = app.store.forget_garbage(&kind, &id).await {
                    tracing::error!("removed garbage was not forgotten: {error}");
                }
            }
            Ok(false) => {}
            Err(why) => tracing::warn!("{kind} {id} was not removed: {why}"),
        }
    }
}

/// Removes what a session left, whether or not that can be recorded now.
pub async fn remove_session(app: &App, session: &SessionId) {
    if let Err(why) = remove(app, "session", session.as_str()).await {
        tracing::warn!("session {session} was not removed: {why}");
    }
}

/// Whether it is gone now; `false` while it is in use.
async fn remove(app: &App, kind: &str, id: &str) -> Result<bool, String> {
    let work = match kind {
        "session" => {
            let session = SessionId::parse(id).map_err(|error| error.to_string())?;
            if app.live_sessions.has(&session) {
                return Ok(false);
            }
            app.isolations.stop(&session).await.map_err(|error| error.to_string())?;
            Job::RemoveSession { session }
        }
        "environment" => {
            let environment = EnvironmentId::parse(id).map_err(|error| error.to_string())?;
            crate::environments::remove_files(app, &environment).await?;
            Job::RemoveEnvironment { environment }
        }
        "version" => {
            let (environment, number) = id.split_once('/').ok_or("it is no version")?;
            let environment =
                EnvironmentId::parse(environment).map_err(|error| error.to_string())?;
            let version = number.parse().ok().and_then(VersionNumber::new);
            Job::RemoveVersion { environment, version: version.ok_or("it is no version")? }
        }
        "dependencies" => {
            let (environment, key) = id.split_once('/').ok_or("it has no key")?;
            let environment =
                EnvironmentId::parse(environment).map_err(|error| error.to_string())?;
            let key = DependencyKey::parse(key).map_err(|error| error.to_string())?;
            Job::RemoveDependencies { environment, key }
        }
        other => return Err(format!("{other} is no kind of garbage")),
    };
    match app.warden.job(work, b"{}".to_vec(), &[]).await {
        Ok(JobEnd::Done(_)) => {
            if kind == "session" {
                app.isolations.forget(&SessionId::parse(id).map_err(|error| error.to_string())?);
            }
            Ok(true)
        }
        Ok(end) => Err(format!("{end:?}")),
        Err(error) if is_not_found(&error) => Ok(true),
        Err(WardenError::Refused(refusal)) if refusal.code == RefusalCode::Busy => Ok(false),
        Err(WardenError::Gone) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Ends commands whose end nobody saw: the isolation they ran in is not there any more.
///
/// # Errors
/// When the store fails.
pub async fn end_lost_commands(app: &App) -> Result<(), crate::store::StoreError> {
    for row in app.store.unfinished_commands().await? {
        if app.isolations.command(&row.session, row.number).is_none() {
            app.store.end_command(&row.session, row.number, SESSION_GONE, now_ms()).await?;
        }
    }
    Ok(())
}
