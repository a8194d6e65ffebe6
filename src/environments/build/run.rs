//! The order of things in a build.

use super::finish::Frozen;
use super::log::BuildLog;
use super::recipe::{For, Packages, Recipe, Stage, recipe};
use super::stop::{Running, Stop};
use super::{Order, disk};
use crate::app::{App, blocking, now_s};
use crate::environments::manifests::{self, MANIFEST_BYTES_MAX, Manifests};
use crate::environments::retention;
use crate::environments::reuse::{self, BUILD_TOOLS, Decision};
use crate::environments::source::Source;
use crate::environments::toolchain::{self, ToolchainId};
use crate::failure::Failure;
use crate::observe::metrics::{self, Outcome};
use crate::sessions::isolation::is_not_found;
use crate::sessions::service::failure;
use crate::store::{EnvironmentRow, FinishedVersion, StoreError};
use crate::warden_client::{EgressRefusal, WardenError};
use hangar_runtime::ids::{DependencyKey, SessionId, VersionNumber};
use hangar_runtime::plan::{
    DEPENDENCIES_DIR, ENVIRONMENTS_DIR, Environment, Limits, Plan, Profile, SOURCE_DIR,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;

/// The longest pause before the end of a build is stored again.
const STORE_AGAIN_MAX: Duration = Duration::from_secs(30);

/// Why a build failed: a public sentence, and the chain of causes for the log of the server.
#[derive(Debug)]
pub struct BuildError {
    /// One sentence without host paths.
    pub reason: String,
    /// More, for the server's log.
    pub cause: Option<String>,
}

impl BuildError {
    /// A failure the owner can understand from the sentence alone.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), cause: None }
    }
}

impl From<Failure> for BuildError {
    fn from(failure: Failure) -> Self {
        Self { reason: failure.message, cause: failure.cause }
    }
}

impl From<StoreError> for BuildError {
    fn from(error: StoreError) -> Self {
        Failure::internal("storing the build", error).into()
    }
}

impl From<std::io::Error> for BuildError {
    fn from(error: std::io::Error) -> Self {
        Failure::internal("writing the build's log", error).into()
    }
}

/// One build, from its number to its version.
#[derive(Debug)]
pub struct Build {
    pub(super) app: Arc<App>,
    pub(super) environment: EnvironmentRow,
    pub(super) number: VersionNumber,
    pub(super) session: SessionId,
    pub(super) order: Order,
    /// What ends it from outside.
    pub(super) stop: Stop,
    /// Held while no command of the session may run.
    pub(super) pause: disk::Pause,
    pub(super) deadline: Instant,
    pub(super) refusals: broadcast::Receiver<EgressRefusal>,
    /// The first target the build could not reach, for the reason of a failure.
    pub(super) refused: Option<String>,
    pub(super) commands: u32,
    /// Bytes its steps have printed.
    pub(super) printed: u64,
    pub(super) stage: Stage,
}

/// What the source says, and what follows for this build.
struct Prepared {
    digest: String,
    toolchain: ToolchainId,
    manifests: Manifests,
    decision: Decision,
    /// Where the packages come from that are kept.
    packages: Packages,
}

impl Build {
    /// A build that was stored and has not begun.
    #[must_use]
    pub fn new(
        app: Arc<App>,
        environment: EnvironmentRow,
        number: VersionNumber,
        session: SessionId,
        order: Order,
        stop: Stop,
    ) -> Self {
        let deadline = Instant::now() + Duration::from_secs(app.config.build.timeout_s);
        let refusals = app.warden.refusals();
        Self {
            app,
            environment,
            number,
            session,
            order,
            stop,
            pause: disk::Pause::default(),
            deadline,
            refusals,
            refused: None,
            commands: 0,
            printed: 0,
            stage: Stage::CopyingFiles,
        }
    }

    /// Runs it to its end, and records what came of it.
    pub async fn run(mut self, _running: Running) {
        let (app, id, number) = (self.app.clone(), self.environment.id.clone(), self.number);
        let slots = Arc::clone(&app.build_slots);
        let slot = tokio::select! {
            slot = slots.acquire_owned() => Some(slot.expect("the slots are never closed")),
            // It is told when it begins its first step.
            _ = self.stop.asked() => None,
        };
        self.deadline = Instant::now() + Duration::from_secs(app.config.build.timeout_s);
        let began = Instant::now();
        let outcome = self.make().await;
        metrics::build(Outcome::of(&outcome), began.elapsed());
        drop(slot);
        let mut pause = Duration::from_millis(200);
        while let Err(error) = self.store_end(&outcome).await {
            tracing::error!("the end of version {number} of {id} was not stored: {error}");
            if matches!(error, StoreError::Closed) {
                // The next start finds the build unfinished, fails it and cleans up after it.
                return;
            }
            // A disk that the build has filled takes no record before the build is gone from it.
            crate::sessions::sweep::remove_session(&app, &self.session).await;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(STORE_AGAIN_MAX);
        }
    }

    async fn store_end(
        &self,
        outcome: &Result<FinishedVersion, BuildError>,
    ) -> Result<(), StoreError> {
        match outcome {
            Ok(finished) => self.finish(finished.clone()).await,
            Err(error) => self.fail(error).await,
        }
    }

    async fn finish(&self, finished: FinishedVersion) -> Result<(), StoreError> {
        let store = &self.app.store;
        store.add_garbage("session", self.session.as_str()).await?;
        store.finish_build(&self.environment.id, self.number, finished).await?;
        retention::apply(&self.app).await;
        crate::sessions::sweep::remove_garbage(&self.app).await;
        Ok(())
    }

    async fn fail(&self, error: &BuildError) -> Result<(), StoreError> {
        let (id, number) = (&self.environment.id, self.number);
        let reason = match &self.refused {
            Some(refused) => format!("{}; the build {refused}", error.reason),
            None => error.reason.clone(),
        };
        let cause = error.cause.as_deref().unwrap_or("the reason says it all");
        tracing::info!("version {number} of {id} failed: {reason}: {cause}");
        super::end_failed(&self.app, id, number, &self.session, &reason).await
    }

    async fn make(&mut self) -> Result<FinishedVersion, BuildError> {
        let config = &self.app.config.build;
        let logs = &self.app.logs;
        let (id, number) = (&self.environment.id, self.number);
        let log = logs.begin(&self.app.files.logs(), id, number, config.log_bytes_max)?;
        let began = Instant::now();
        let watch = disk::watch(
            Arc::clone(&self.app),
            self.session.clone(),
            self.mount(),
            self.stop.clone(),
            Arc::clone(&self.pause),
        );
        let watching = tokio::spawn(watch);
        let outcome = self.make_logged(&log).await;
        watching.abort();
        // Freezing is not broken off; a version that nobody wants any more is removed.
        let outcome = match self.stop.reason() {
            Some(reason) => Err(BuildError::new(reason)),
            None => outcome,
        };
        // No process of a build outlives it, whatever came of it.
        let stopped = self.app.isolations.stop(&self.session).await;
        let seconds = began.elapsed().as_secs_f64();
        match &outcome {
            Ok(_) => log.note(&format!("version {number} is ready after {seconds:.2} s")).await?,
            Err(error) => log.note(&format!("failed: {}", error.reason)).await?,
        }
        if let Err(error) = stopped {
            tracing::warn!("the session of a build was not ended: {error}");
        }
        outcome
    }

    async fn make_logged(&mut self, log: &BuildLog) -> Result<FinishedVersion, BuildError> {
        let prepared = self.copy_files(log).await?;
        let reuse = prepared.decision.reuse.as_ref();
        let of = For {
            mount: &self.mount(),
            python: self.environment.python.as_deref(),
            packages: prepared.packages,
            variables: &self.order.variables,
            yarn_berry: toolchain::yarn_berry(),
            settings: &self.app.config.build,
        };
        let recipe = recipe(&prepared.manifests, reuse, of);
        let kept = self.install_kept(&prepared, &recipe, log).await?;
        if prepared.packages == Packages::Installed {
            self.run_steps(&recipe.beside_copy, recipe.parts, log).await?;
        }
        self.run_steps(&recipe.always, recipe.parts, log).await?;
        self.enter(Stage::Finishing).await?;
        let installers: Vec<_> = prepared.manifests.installers().collect();
        let packages = self.packages(&installers, recipe.parts, log).await?;
        let Frozen { outcome } =
            self.freeze(&prepared.digest, &prepared.toolchain.text(), kept.clone(), log).await?;
        Ok(FinishedVersion {
            finished_s: now_s(),
            source_digest: prepared.digest,
            toolchain: prepared.toolchain.text(),
            inputs: super::inputs(&self.app, &self.environment, &self.order),
            root_digest: outcome.root_digest,
            packages,
            parts: recipe.parts,
            dependencies: kept,
            files: outcome.files,
            bytes: outcome.bytes,
        })
    }

    /// Reads the source and copies it into the build; nobody changes it meanwhile.
    async fn copy_files(&mut self, log: &BuildLog) -> Result<Prepared, BuildError> {
        let locks = self.app.clone();
        let _copying = locks.locks.copying(&self.environment.id).await;
        let mut prepared = self.prepare().await?;
        for hint in &prepared.manifests.hints {
            log.note(&format!("[hangar: {hint}]")).await?;
        }
        for (installer, why) in &prepared.decision.never {
            log.note(&format!("packages of {installer} are not kept for later builds: {why}"))
                .await?;
        }
        self.check(&prepared.manifests)?;
        prepared.packages = self.launch(&prepared).await?;
        log.note("copying the files of the project").await?;
        let mount = self.mount();
        let copy = self.begin_copy(SOURCE_DIR, &mount, crate::environments::LEFT_OUT).await?;
        self.finish_copy(&copy, log).await?;
        Ok(prepared)
    }

    async fn prepare(&self) -> Result<Prepared, BuildError> {
        let id = &self.environment.id;
        let toolchain = self.app.toolchain.id().await;
        let path = self.app.sources.path(id);
        let declared = self.environment.declared.clone();
        let read = blocking(move || -> Result<(String, Manifests), Failure> {
            let source = Source::at(&path)
                .map_err(|errno| Failure::internal("opening the source", errno))?;
            let files = |name: &str| source.read_small(name, MANIFEST_BYTES_MAX);
            Ok((source.digest()?, manifests::detect(&files, &declared)))
        });
        let (digest, manifests) = read.await?;
        let python = self.environment.python.as_deref();
        let own = serde_json::json!([super::settings(&self.app), self.order.variables]).to_string();
        let settings = [own.as_str(), python.unwrap_or_default()];
        let decision = reuse::decide(&manifests, &toolchain.text(), &settings);
        let packages = match &decision.reuse {
            Some(reuse) if self.app.store.has_dependencies(id, &reuse.key).await? => Packages::Kept,
            _ => Packages::Installed,
        };
        Ok(Prepared { digest, toolchain, manifests, decision, packages })
    }

    /// Starts the build's session, with kept dependencies where there are some. The answer is
    /// where the packages really come from.
    async fn launch(&self, prepared: &Prepared) -> Result<Packages, BuildError> {
        let id = &self.environment.id;
        if let (Packages::Kept, Some(reuse)) = (prepared.packages, &prepared.decision.reuse) {
            match self.app.isolations.launch(self.plan(Some(reuse.key.clone()))).await {
                Ok(_) => return Ok(Packages::Kept),
                // They were removed behind our back; they are installed again.
                Err(error) if is_not_found(&error) => {
                    self.app.store.forget_dependencies(id, &reuse.key).await?;
                }
                Err(error) => return Err(launch_failed(&error)),
            }
        }
        let launched = self.app.isolations.launch(self.plan(None)).await;
        launched.map(|_| Packages::Installed).map_err(|error| launch_failed(&error))
    }

    fn plan(&self, dependencies: Option<DependencyKey>) -> Plan {
        Plan {
            session: self.session.clone(),
            profile: Profile::Build,
            environment: Environment::Staging {
                id: self.environment.id.clone(),
                slug: self.environment.slug.clone(),
                dependencies,
            },
            network: self.order.network,
            limits: self.app.config.build.limits.over(Limits::default()),
        }
    }

    /// Takes dependencies from an earlier build, or installs them and keeps them. The answer is
    /// the key under which they lie, if any do.
    async fn install_kept(
        &mut self,
        prepared: &Prepared,
        recipe: &Recipe,
        log: &BuildLog,
    ) -> Result<Option<DependencyKey>, BuildError> {
        let Some(reuse) = &prepared.decision.reuse else { return Ok(None) };
        let id = self.environment.id.clone();
        if prepared.packages == Packages::Kept {
            log.note("taking the installed packages of an earlier build").await?;
            let mount = self.mount();
            let copy = self.begin_copy(DEPENDENCIES_DIR, &mount, &[BUILD_TOOLS]).await?;
            self.run_steps(&recipe.beside_copy, recipe.parts, log).await?;
            self.finish_copy(&copy, log).await?;
            return Ok(Some(reuse.key.clone()));
        }
        self.run_steps(&recipe.kept, recipe.parts, log).await?;
        if !self.keep(reuse, log).await? {
            return Ok(None);
        }
        self.app.store.keep_dependencies(&id, &reuse.key, &self.app.boot, now_s()).await?;
        Ok(Some(reuse.key.clone()))
    }

    pub(super) async fn enter(&mut self, stage: Stage) -> Result<(), BuildError> {
        if self.stage != stage {
            self.stage = stage;
            let (id, number) = (&self.environment.id, self.number);
            self.app.store.set_stage(id, number, stage.name()).await?;
        }
        Ok(())
    }

    /// Where the project lies in the build and in every session.
    pub(super) fn mount(&self) -> String {
        format!("{ENVIRONMENTS_DIR}/{}", self.environment.slug)
    }
}

fn launch_failed(error: &WardenError) -> BuildError {
    failure("starting the build", error).into()
}
