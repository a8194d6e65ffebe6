//! From a request to a task that is stored and runs: everything that can be refused is refused
//! before anything is stored.

use super::budgets::Budgets;
use super::engine::Task;
use super::harness::Base;
use super::idempotency;
use super::placing::{self, Placed};
use super::request::{Bounds, TaskRequest};
use super::response;
use super::run::{self, Job};
use super::skills;
use crate::app::{App, now_ms, random_hex};
use crate::environments;
use crate::failure::{Code, Failure, Tried};
use crate::harnesses;
use crate::sessions::service;
use crate::store::{
    Begun, HarnessRow, IN_PROGRESS, NewTask, Outcome, Parts, Repeat, Repeated, ResponseRow,
    SessionRow,
};
use hangar_runtime::ids::{CommandId, EnvironmentId, SessionId, Slug, VersionNumber};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How often a task is looked for that is stored and not taken up yet, and the pause between.
const TAKEN_UP_TRIES: u32 = 500;
const TAKEN_UP_PAUSE: Duration = Duration::from_millis(10);
/// The longest title of a session.
const TITLE_BYTES_MAX: usize = 120;

/// A task of which the client is to learn.
#[derive(Debug)]
pub enum Accepted {
    /// It runs.
    Running(Arc<Task>),
    /// The request was repeated and its task has ended.
    Ended(Box<ResponseRow>),
}

/// What is stored of a request: enough to show it and to run it again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredRequest {
    /// The items of the input.
    pub items: Vec<Value>,
    /// What the user said.
    pub text: String,
    /// The bounds it named.
    pub bounds: Bounds,
}

/// Begins a task, or finds the one that the same request began before.
///
/// # Errors
/// When the request cannot be carried out; nothing has been started then.
pub async fn begin(
    app: &Arc<App>,
    scope: &str,
    request: TaskRequest,
    repeat: Option<Repeat>,
) -> Result<Accepted, Failure> {
    if let Some(repeat) = &repeat {
        let earlier = app.store.repeated(scope, repeat).await.tried("reading the key")?;
        if let Some(earlier) = earlier {
            return again(app, scope, repeat, &earlier).await;
        }
    }
    let previous = match &request.previous {
        None => None,
        Some(id) => Some(previous(app, scope, id).await?),
    };
    let harness = harness(app, scope, &request, previous.as_ref()).await?;
    let base = Base::of(&harness)?;
    let (session, rebound) = match &previous {
        None => (new_session(app, scope, &request, &harness).await?, false),
        Some(previous) => continued(app, scope, &request, previous).await?,
    };
    let mut files = placing::open(app, scope, &request.input).await?;
    files.extend(skills::placed(app, &harness).await?);
    let budgets = Budgets::of(request.bounds, &harness.config, &app.config.tasks);
    let work = base.work(&request.input.text);
    let commands_before = files.len() + usize::from(work.script.is_some());
    let row = row(&request, &session, base.model());
    let new = NewTask {
        row: row.clone(),
        session: session.clone(),
        continues: previous.is_some(),
        commands_before: u32::try_from(commands_before).expect("the files are few"),
        repeat: repeat.clone(),
    };
    let admitted = match &previous {
        None => service::admitted(app, scope).await?,
        Some(_) => None,
    };
    let command = match app.store.begin_task(new).await.tried("storing the task")? {
        Begun::Stored(command, _) => command,
        begun => return refused(app, scope, repeat.as_ref(), begun).await,
    };
    drop(admitted);
    let task = app.tasks.take_up(&row.id, scope, &session.id, &harness.id, row.initial);
    let fresh = previous.is_none();
    let job = Job { session, work, files, budgets, command, fresh, rebound };
    tokio::spawn(run::run(Arc::clone(app), Arc::clone(&task), job));
    Ok(Accepted::Running(task))
}

/// What became of a task that was not stored.
async fn refused(
    app: &App,
    scope: &str,
    repeat: Option<&Repeat>,
    begun: Begun,
) -> Result<Accepted, Failure> {
    match (begun, repeat) {
        (Begun::Repeated(earlier), Some(repeat)) => again(app, scope, repeat, &earlier).await,
        (Begun::Busy, _) => Err(Failure::new(
            Code::SessionBusy,
            "a task runs in this session; wait for its end or cancel it",
        )),
        (Begun::NotReadable, _) => Err(Failure::new(
            Code::EnvironmentNotReady,
            "the version that the session reads was just removed",
        )),
        _ => Err(Failure::new(Code::ResponseNotFound, "there is no such response")
            .with_param("previous_response_id")),
    }
}

/// The task that the same request began before.
async fn again(
    app: &App,
    scope: &str,
    repeat: &Repeat,
    earlier: &Repeated,
) -> Result<Accepted, Failure> {
    idempotency::same(repeat, earlier)?;
    for _ in 0..TAKEN_UP_TRIES {
        if let Some(task) = app.tasks.running(&earlier.response) {
            return Ok(Accepted::Running(task));
        }
        let row = app.store.response(scope, &earlier.response).await;
        match row.tried("reading the response")? {
            Some(row) if row.response.is_some() => return Ok(Accepted::Ended(Box::new(row))),
            // It was just stored, and is taken up in this moment.
            Some(row) if row.status == IN_PROGRESS => tokio::time::sleep(TAKEN_UP_PAUSE).await,
            _ => break,
        }
    }
    Err(Failure::new(Code::ResponseNotFound, "the response of this key was deleted"))
}

async fn previous(app: &App, scope: &str, id: &str) -> Result<ResponseRow, Failure> {
    let row = app.store.response(scope, id).await.tried("reading the response")?;
    row.filter(|row| !row.deleted).ok_or_else(|| {
        Failure::new(Code::ResponseNotFound, "there is no such response")
            .with_param("previous_response_id")
    })
}

async fn harness(
    app: &App,
    scope: &str,
    request: &TaskRequest,
    previous: Option<&ResponseRow>,
) -> Result<HarnessRow, Failure> {
    let wanted = request.harness.as_deref().or(previous.map(|previous| previous.harness.as_str()));
    let harness = harnesses::for_task(app, scope, wanted).await;
    let harness = harness.map_err(|failure| failure.with_param("metadata.harness_id"))?;
    if previous.is_some_and(|previous| previous.harness != harness.id) {
        let why = "the session belongs to another harness";
        return Err(Failure::new(Code::HarnessMismatch, why).with_param("metadata.harness_id"));
    }
    Ok(harness)
}

/// An environment with the version that is read of it.
type Bound = (EnvironmentId, VersionNumber, Slug);

/// The active version of an environment.
async fn readable(
    app: &App,
    scope: &str,
    (id, param): (&str, Option<&str>),
) -> Result<(Bound, Parts), Failure> {
    let name = |failure: Failure| match param {
        Some(param) => failure.with_param(param),
        None => failure,
    };
    let none = |_| Failure::new(Code::EnvironmentNotFound, "there is no such environment");
    let id = EnvironmentId::parse(id).map_err(none).map_err(name)?;
    let (environment, version) = service::readable(app, scope, &id, None).await.map_err(name)?;
    Ok(((id, version.number, environment.slug), version.parts))
}

/// The session that a first task makes.
async fn new_session(
    app: &App,
    scope: &str,
    request: &TaskRequest,
    harness: &HarnessRow,
) -> Result<SessionRow, Failure> {
    let named = request.environment.as_ref().map(|(id, param)| (id.as_str(), Some(*param)));
    let configured = harness.config.environment.as_deref().filter(|id| !id.is_empty());
    let (environment, parts) = match named.or(configured.map(|id| (id, None))) {
        None => (None, Parts::default()),
        Some(wanted) => {
            let (bound, parts) = readable(app, scope, wanted).await?;
            (Some(bound), parts)
        }
    };
    let now = now_ms();
    Ok(SessionRow {
        id: SessionId::parse(&format!("hsess{}", random_hex())).expect("32 hexadecimal digits"),
        scope: scope.to_owned(),
        environment,
        parts,
        network: app.config.tasks.network.clone(),
        limits: Default::default(),
        commands: 0,
        harness: Some(harness.id.clone()),
        title: title(&request.input.text),
        last_status: None,
        created_ms: now,
        updated_ms: now,
    })
}

/// The session that a task continues, and whether it reads another environment from now on. It
/// keeps its version, unless the request names another environment.
async fn continued(
    app: &App,
    scope: &str,
    request: &TaskRequest,
    previous: &ResponseRow,
) -> Result<(SessionRow, bool), Failure> {
    let session = app.store.session(scope, &previous.session).await.tried("reading the session")?;
    let mut session = session.ok_or_else(|| {
        Failure::new(Code::ResponseNotFound, "there is no such response")
            .with_param("previous_response_id")
    })?;
    session.updated_ms = now_ms();
    let now = session.environment.as_ref().map(|(id, _, _)| id.clone());
    match (&request.environment, now) {
        (Some((id, param)), now) if now.as_ref().is_none_or(|now| now.as_str() != id) => {
            let (bound, parts) = readable(app, scope, (id, Some(param))).await?;
            session.environment = Some(bound);
            session.parts = parts;
            Ok((session, true))
        }
        (_, Some(id)) => {
            // Its owner can have deleted it, and a task must not read it any more.
            environments::find(app, scope, &id).await?;
            Ok((session, false))
        }
        (_, None) => Ok((session, false)),
    }
}

fn title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    super::text::cut(line, TITLE_BYTES_MAX).to_owned()
}

fn row(request: &TaskRequest, session: &SessionRow, model: &str) -> ResponseRow {
    let (id, now) = (format!("resp_{}", random_hex()), now_ms());
    let stored = StoredRequest {
        items: request.items.clone(),
        text: request.input.text.clone(),
        bounds: request.bounds,
    };
    ResponseRow {
        initial: response::initial(&id, now, request, session, model),
        id,
        scope: session.scope.clone(),
        session: session.id.clone(),
        turn: 0,
        harness: session.harness.clone().unwrap_or_default(),
        status: IN_PROGRESS.to_owned(),
        command: CommandId(0),
        request: serde_json::to_value(stored).expect("a request is JSON"),
        response: None,
        outcome: Outcome::default(),
        stored: request.store,
        deleted: false,
        created_ms: now,
    }
}

/// What a task that was cut off was to do, but for its files.
///
/// # Errors
/// When what is stored of it cannot be read.
pub fn job_again(
    app: &App,
    row: &ResponseRow,
    harness: &HarnessRow,
    session: SessionRow,
) -> Result<Job, Failure> {
    let stored: StoredRequest =
        serde_json::from_value(row.request.clone()).tried("reading the task")?;
    Ok(Job {
        session,
        work: Base::of(harness)?.work(&stored.text),
        files: Vec::new(),
        budgets: Budgets::of(stored.bounds, &harness.config, &app.config.tasks),
        command: row.command,
        fresh: row.turn == 1,
        // Whether it was started for what the task reads is not known.
        rebound: true,
    })
}

/// The files of a task that was cut off.
///
/// # Errors
/// When one is not there any more.
pub async fn files_again(app: &App, row: &ResponseRow) -> Result<Vec<Placed>, Failure> {
    let (_, input) = super::input::read(row.request.get("items"))?;
    placing::open(app, &row.scope, &input).await
}
