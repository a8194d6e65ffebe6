//! Importing a commit of a git repository.
//!
//! A repository is hostile, and so is the host that serves it: git runs in a session that reads no
//! environment and has nothing but the proxy, which judges every address it dials. There it makes
//! a tar of the commit; what comes out of the session is that tar, and the worker reads it as any
//! other upload. Nothing of the repository is ever looked at by a program on the host.

mod address;
mod fetch;

use super::import::{Existing, Upload};
use crate::app::{App, random_hex};
use crate::failure::{Code, Failure, Tried};
use crate::sessions::workspace;
use crate::store::ImportedCommit;
use address::{Address, Reference};
use fetch::Fetch;
pub use fetch::Fetched;
use hangar_rootfs::job::{ImportOutcome, Wrapper};
use hangar_runtime::ids::{EnvironmentId, SessionId};
use tokio::sync::Semaphore;

/// Repositories that are fetched at once.
const PARALLEL_MAX: usize = 2;

/// Where the tree comes from.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Its address.
    pub address: Address,
    /// A branch, tag or commit; what the repository says when absent.
    pub reference: Option<Reference>,
}

impl Repository {
    /// Takes what a client wrote.
    ///
    /// # Errors
    /// [`Code::EnvironmentInvalid`] for an address or a name that is none, or not public.
    pub fn parse(url: &str, reference: Option<&str>) -> Result<Self, Failure> {
        let reference = reference.filter(|reference| !reference.is_empty());
        Ok(Self {
            address: Address::parse(url)?,
            reference: reference.map(Reference::parse).transpose()?,
        })
    }
}

/// How many repositories are fetched at once; others wait.
#[derive(Debug)]
pub struct GitImports {
    places: Semaphore,
}

impl Default for GitImports {
    fn default() -> Self {
        Self { places: Semaphore::new(PARALLEL_MAX) }
    }
}

/// Makes a commit of a repository the source, whole or not at all.
///
/// # Errors
/// When the repository cannot be fetched or has no such commit, and as for the import of an
/// archive; the source is as it was then.
pub async fn import(
    app: &App,
    id: &EnvironmentId,
    repository: &Repository,
    existing: Existing,
) -> Result<(ImportOutcome, Fetched), Failure> {
    let _place = app.git_imports.places.acquire().await.expect("the places are never closed");
    let session = SessionId::parse(&format!("hsess{}", random_hex())).expect("32 digits");
    let live = app.live_sessions.begin(&session);
    app.store.add_garbage("session", session.as_str()).await.tried("storing the import")?;
    let imported = fetch_and_import(app, id, repository, existing, &session).await;
    drop(live);
    crate::sessions::sweep::remove_garbage(app).await;
    let (outcome, fetched) = imported?;
    let imported = ImportedCommit {
        url: repository.address.as_str().to_owned(),
        r#ref: repository.reference.as_ref().map(|name| name.as_str().to_owned()),
        commit: fetched.commit.clone(),
    };
    // The source is in place; the answer tells the commit in any case.
    if let Err(error) = app.store.set_imported(id, Some(imported)).await {
        tracing::error!("the commit that {id} was imported from was not stored: {error}");
    }
    Ok((outcome, fetched))
}

async fn fetch_and_import(
    app: &App,
    id: &EnvironmentId,
    repository: &Repository,
    existing: Existing,
    session: &SessionId,
) -> Result<(ImportOutcome, Fetched), Failure> {
    let fetched = Fetch::new(app, session, repository).run().await;
    // Whatever came of it, no process of the session runs while its files are read.
    let stopped = app.isolations.stop(session).await;
    let fetched = fetched?;
    stopped.map_err(|error| {
        crate::sessions::service::failure("ending the session of the import", &error)
    })?;
    let view = workspace::view(app, session).await?;
    let (file, _) = workspace::open(view, b"tree.tar".to_vec()).await?;
    // What is at the root of a repository is at the root of the environment.
    let upload = Upload { file, existing, wrapper: Wrapper::Keep };
    Ok((super::import::import(app, id, upload).await?, fetched))
}

/// A failure that is the repository's or its host's, with what git said for whoever asked.
fn not_fetched(message: &str, said: &str) -> Failure {
    let detail = serde_json::json!({ "git": said });
    Failure::new(Code::EnvironmentInvalid, message).with_param("git").with_detail(detail)
}
