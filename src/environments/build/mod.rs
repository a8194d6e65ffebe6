//! Builds: from a source to a frozen version.
//!
//! The API drives a build through the warden; every command runs in the build's own session, as
//! confined as any other. Reading order: [`recipe`] (what is run), [`run`] (the order of things),
//! [`step`] (one command), [`packages`] (what is installed), [`finish`] (freezing), [`log`],
//! [`stop`] (ending one from outside).

pub mod debian;
mod disk;
pub mod finish;
pub mod log;
pub mod packages;
pub mod recipe;
mod refusals;
pub mod run;
pub mod step;
pub mod stop;

use super::source::Source;
use crate::app::{App, blocking, now_s, random_hex};
use crate::failure::{Code, Failure, Tried};
use crate::store::{EnvironmentRow, VersionRow, VersionStatus};
use hangar_runtime::ids::{EnvironmentId, SessionId, VersionNumber};
use hangar_runtime::plan::Network;
use std::collections::BTreeMap;
use std::sync::Arc;

/// When a build is started at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// Only when the active version was built from something else.
    Changed,
}

/// What a build is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// What it reaches.
    pub network: Network,
    /// Variables of its installers and of `setup.sh`, over the presets.
    pub variables: BTreeMap<String, String>,
}

/// The most bytes of variables a build is started with.
const VARIABLES_BYTES_MAX: usize = 64 << 10;

impl Order {
    fn check(&self) -> Result<(), Failure> {
        let bytes: usize = self.variables.iter().map(|(n, v)| n.len() + v.len() + 2).sum();
        let fits = |(name, value): (&String, &String)| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !value.contains('\0')
        };
        if bytes > VARIABLES_BYTES_MAX || !self.variables.iter().all(fits) {
            let message = "the variables are too long, or a name is none of a variable";
            return Err(Failure::new(Code::InvalidInput, message).with_param("variables"));
        }
        Ok(())
    }
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
    order: Order,
    when: When,
) -> Result<Started, Failure> {
    order.check()?;
    if when == When::Changed
        && let Some(version) = unchanged(app, &environment, &order).await?
    {
        return Ok(Started::Unchanged(Box::new(version)));
    }
    let session = SessionId::parse(&format!("hsess{}", random_hex())).expect("32 digits");
    let number = app.store.begin_build(&environment.id, &session, now_s()).await;
    let busy = || Failure::new(Code::EnvironmentBusy, "a build of this environment runs already");
    let number = number.tried("storing the build")?.ok_or_else(busy)?;
    let running = app.builds.begin(&environment.id, number);
    let stop = running.stop.clone();
    let build = run::Build::new(Arc::clone(app), environment, number, session, order, stop);
    tokio::spawn(build.run(running));
    Ok(Started::Building(number))
}

/// Ends a build that runs, and waits for its end. A build that ended already stays as it is.
pub async fn cancel(app: &App, id: &EnvironmentId, number: VersionNumber) {
    app.builds.stop(id, number, "the build was cancelled").await;
}

/// The active version, when a build would make the same again.
async fn unchanged(
    app: &App,
    environment: &EnvironmentRow,
    order: &Order,
) -> Result<Option<VersionRow>, Failure> {
    let Some(number) = environment.active else { return Ok(None) };
    let active = app.store.version(&environment.id, number).await.tried("reading the version")?;
    let Some(active) = active.filter(|version| version.status == VersionStatus::Ready) else {
        return Ok(None);
    };
    let toolchain = app.toolchain.id().await.text();
    if active.toolchain.as_deref() != Some(&toolchain)
        || active.inputs != Some(inputs(app, environment, order))
    {
        return Ok(None);
    }
    let _copying = app.locks.copying(&environment.id).await;
    let path = app.sources.path(&environment.id);
    let digest = blocking(move || Source::at(&path).tried("opening the source")?.digest()).await?;
    Ok((active.source_digest == Some(digest)).then_some(active))
}

/// A digest of what decides about a build beside source and toolchain.
fn inputs(app: &App, environment: &EnvironmentRow, order: &Order) -> String {
    use sha2::{Digest, Sha256};
    let text = serde_json::json!([
        environment.declared,
        environment.python,
        settings(app),
        crate::sessions::service::network_name(order.network),
        order.variables,
    ]);
    crate::app::hex(&Sha256::digest(text.to_string()))
}

/// The settings of the installers.
fn settings(app: &App) -> [Option<&str>; 6] {
    let build = &app.config.build;
    [
        &build.pip_index_url,
        &build.npm_registry,
        &build.cargo_registry,
        &build.go_proxy,
        &build.gem_mirror,
        &build.apt_sources,
    ]
    .map(Option::as_deref)
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
