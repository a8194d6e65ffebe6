//! Builds: from a source to a frozen version.
//!
//! The API drives a build through the warden; every command runs in the build's own session, as
//! confined as any other. Reading order: [`recipe`] (what is run), [`run`] (the order of things),
//! [`step`] (one command), [`finish`] (freezing), [`log`].

pub mod finish;
pub mod log;
pub mod recipe;
pub mod run;
pub mod step;

use super::source::Source;
use crate::app::{App, blocking, now_s, random_hex};
use crate::failure::{Code, Failure, Tried};
use crate::store::{EnvironmentRow, VersionRow, VersionStatus};
use hangar_runtime::ids::{EnvironmentId, SessionId, VersionNumber};
use hangar_runtime::plan::Network;
use std::sync::Arc;

/// When a build is started at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// Only when the active version was built from something else.
    Changed,
}

/// What came of asking for a build.
#[derive(Debug)]
pub enum Started {
    /// It runs and makes this version.
    Building(VersionNumber),
    /// The active version is what a build would make.
    Unchanged(Box<VersionRow>),
}

/// Starts a build of an environment, and returns at once.
///
/// # Errors
/// [`Code::EnvironmentBusy`] when one runs already.
pub async fn start(
    app: &Arc<App>,
    environment: EnvironmentRow,
    network: Network,
    when: When,
) -> Result<Started, Failure> {
    if !environment.declared.apt.is_empty() {
        let message = "this server does not install Debian packages into environments";
        return Err(Failure::new(Code::EnvironmentInvalid, message).with_param("packages.apt"));
    }
    if when == When::Changed
        && let Some(version) = unchanged(app, &environment, network).await?
    {
        return Ok(Started::Unchanged(Box::new(version)));
    }
    let session = SessionId::parse(&format!("hsess{}", random_hex())).expect("32 digits");
    let number = app.store.begin_build(&environment.id, &session, now_s()).await;
    let busy = || Failure::new(Code::EnvironmentBusy, "a build of this environment runs already");
    let number = number.tried("storing the build")?.ok_or_else(busy)?;
    let build = run::Build::new(Arc::clone(app), environment, number, session, network);
    tokio::spawn(build.run());
    Ok(Started::Building(number))
}

/// The active version, when a build would make the same again.
async fn unchanged(
    app: &App,
    environment: &EnvironmentRow,
    network: Network,
) -> Result<Option<VersionRow>, Failure> {
    let Some(number) = environment.active else { return Ok(None) };
    let active = app.store.version(&environment.id, number).await.tried("reading the version")?;
    let Some(active) = active.filter(|version| version.status == VersionStatus::Ready) else {
        return Ok(None);
    };
    let toolchain = app.toolchain.id().await.text();
    if active.toolchain.as_deref() != Some(&toolchain)
        || active.inputs != Some(inputs(app, environment, network))
    {
        return Ok(None);
    }
    let _copying = app.locks.copying(&environment.id).await;
    let path = app.sources.path(&environment.id);
    let digest = blocking(move || Source::at(&path).tried("opening the source")?.digest()).await?;
    Ok((active.source_digest == Some(digest)).then_some(active))
}

/// A digest of what decides about a build beside source and toolchain.
fn inputs(app: &App, environment: &EnvironmentRow, network: Network) -> String {
    use sha2::{Digest, Sha256};
    let text = serde_json::json!([
        environment.declared,
        environment.python,
        settings(app),
        crate::sessions::service::network_name(network),
    ]);
    crate::app::hex(&Sha256::digest(text.to_string()))
}

/// The settings of the installers.
fn settings(app: &App) -> [&str; 2] {
    let build = &app.config.build;
    [
        build.pip_index_url.as_deref().unwrap_or_default(),
        build.npm_registry.as_deref().unwrap_or_default(),
    ]
}

/// Fails the builds that the end of an earlier process cut off; they block nothing any more.
///
/// # Errors
/// When the store fails.
pub async fn fail_cut_off(app: &App) -> Result<(), crate::store::StoreError> {
    for row in app.store.unfinished_builds().await? {
        let reason = "the server stopped while the build ran";
        end_failed(app, &row.environment, row.number, &row.session, reason).await?;
    }
    Ok(())
}

/// Records that a build failed, and removes what is left of it. What is not possible now is done
/// later.
async fn end_failed(
    app: &App,
    environment: &EnvironmentId,
    number: VersionNumber,
    session: &SessionId,
    reason: &str,
) -> Result<(), crate::store::StoreError> {
    app.store.add_garbage("session", session.as_str()).await?;
    // Mostly it was never frozen.
    app.store.add_garbage("version", &format!("{environment}/{number}")).await?;
    app.store.fail_build(environment, number, reason, now_s()).await?;
    crate::sessions::sweep::remove_garbage(app).await;
    Ok(())
}
