//! The work of a task: its files are placed, its command runs, its output is told as it comes, and
//! its end is stored before it is told.

use super::artifacts::{self, Changes, Snapshot};
use super::budgets::{Budgets, Spent};
use super::engine::{Stop, Task};
use super::harness::Work;
use super::placing::{self, Placed};
use super::response::{self, Ending, Items};
use super::text::{self, Decoder};
use crate::api::objects::container_id;
use crate::app::{App, now_ms};
use crate::failure::{Code, Failure};
use crate::sessions::output::{Batch, Command, Follower};
use crate::sessions::service::{self, NewCommand};
use crate::store::{EndedTask, Outcome, SessionRow};
use hangar_runtime::ids::CommandId;
use hangar_runtime::record::{Frame, Stream};
use hangar_runtime::wire::warden::{CommandEnd, EndCause, ExitStatus, OutputLimit};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How much of the output stands in the result of the call, beside the message.
const RESULT_BYTES_MAX: usize = 16 << 10;
/// How often the output of a chatty task is told.
const CHATTY_EVERY: Duration = Duration::from_millis(50);
/// How often storing an end is tried, and the pause between two tries.
const STORE_TRIES: u32 = 60;
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// What a task is to do.
#[derive(Debug)]
pub struct Job {
    /// Where.
    pub session: SessionRow,
    /// What is run.
    pub work: Work,
    /// What is placed before.
    pub files: Vec<Placed>,
    /// What it may use up.
    pub budgets: Budgets,
    /// The number of its command; those before are for placing files.
    pub command: CommandId,
    /// Nothing is in the working directory.
    pub fresh: bool,
    /// The session reads another environment than before.
    pub rebound: bool,
}

/// How the work of a task ended.
#[derive(Debug)]
pub struct Worked {
    ending: Ending,
    noted: Map<String, Value>,
    changes: Changes,
}

impl Worked {
    /// It ended before it began.
    #[must_use]
    pub fn not_begun(ending: Ending) -> Self {
        Self { ending, noted: Map::new(), changes: Changes::default() }
    }
}

/// Carries a task out, whoever listens.
pub async fn run(app: Arc<App>, task: Arc<Task>, job: Job) {
    task.begins();
    let session = job.session.clone();
    let worked = match work(&app, &task, job).await {
        Ok(worked) => worked,
        Err(failure) => {
            tracing::warn!("the task {} failed: {failure}: {:?}", task.id, failure.cause);
            Worked::not_begun(failed(&failure))
        }
    };
    conclude(&app, &task, &session, worked).await;
}

/// A failure of ours as the task tells it.
fn failed(failure: &Failure) -> Ending {
    let code = match failure.code {
        Code::Internal => "hangar_internal",
        other => other.wire().0,
    };
    Ending::Failed { code, message: failure.message.clone() }
}

async fn work(app: &App, task: &Task, mut job: Job) -> Result<Worked, Failure> {
    if job.budgets.steps == Some(0) {
        return Ok(Worked::not_begun(Ending::Incomplete(Spent::Steps)));
    }
    if job.rebound {
        let stopped = app.isolations.stop(&job.session.id).await;
        stopped.map_err(|error| service::failure("changing the environment", &error))?;
    }
    let script = job.work.script.take();
    if let Some((path, bytes)) = script {
        job.files.push(placing::in_memory(&path, bytes).await?);
    }
    let (fresh, count) = (job.fresh && job.files.is_empty(), job.files.len());
    for (index, placed) in job.files.drain(..).enumerate() {
        let number = CommandId(job.command.0 - u32::try_from(count - index).expect("few"));
        let name = placed.path.clone();
        if !placing::place(app, &job.session, number, placed).await? {
            let message = format!("the file {name} could not be written into the session");
            return Ok(Worked::not_begun(Ending::Failed { code: "harness_error", message }));
        }
    }
    if task.stopped().is_some() {
        return Ok(Worked::not_begun(Ending::Cancelled));
    }
    let before = match fresh {
        true => Some(Snapshot::default()),
        false => look(app, &job.session).await,
    };
    let new = NewCommand {
        program: job.work.program.clone(),
        variables: BTreeMap::new(),
        directory: None,
        timeout_ms: Some(u64::try_from(job.budgets.time.as_millis()).unwrap_or(u64::MAX)),
        output: OutputLimit { tail_bytes_max: 0, ..OutputLimit::default() },
    };
    let command = service::start(app, &job.session, &new, job.command, None).await?;
    task.calls(Items::of(&task.id).call(&job.work));
    follow(app, task, &job.session, &command, job.budgets, before).await
}

async fn look(app: &App, session: &SessionRow) -> Option<Snapshot> {
    match artifacts::now(app, &session.id).await {
        Ok(found) => Some(found.into()),
        Err(failure) => {
            tracing::warn!("the files of {} were not listed: {failure}", session.id);
            None
        }
    }
}

/// Tells the output of a command that was started, until it has ended.
pub(super) async fn follow(
    app: &App,
    task: &Task,
    session: &SessionRow,
    command: &Arc<Command>,
    budgets: Budgets,
    before: Option<Snapshot>,
) -> Result<Worked, Failure> {
    if task.started(command.id()).is_some() {
        service::cancel(app, &session.id, command.id()).await?;
    }
    let what = "reading the output";
    let mut follower = command.follow().ok_or_else(|| Failure::internal(what, "no record"))?;
    let mut told = Telling { task, left: budgets.output_bytes, decoders: Default::default() };
    let (end, lost) = loop {
        match next(&mut follower).await? {
            Batch::End { end, lost } => break (end, lost),
            Batch::Frames(frames) => {
                if told.frames(&frames) && task.stopped().is_none() {
                    task.stop(Stop::OutputSpent);
                    service::cancel(app, &session.id, command.id()).await?;
                }
                if task.is_chatty() {
                    tokio::time::sleep(CHATTY_EVERY).await;
                }
            }
        }
    };
    told.rest();
    app.isolations.release(&session.id, command.id());
    let ending = ending(task.stopped(), end, lost, budgets);
    let mut noted = Map::new();
    match end.status {
        ExitStatus::Code(code) => noted.insert("exit_code".to_owned(), json!(code)),
        ExitStatus::Signal(signal) => noted.insert("signal".to_owned(), json!(signal)),
        ExitStatus::NotExecuted(_) => None,
    };
    let changes = match before {
        None => Changes { incomplete: true, ..Changes::default() },
        Some(before) => match artifacts::now(app, &session.id).await {
            Ok(found) => before.changes(found),
            Err(failure) => {
                tracing::warn!("the files of {} were not listed: {failure}", session.id);
                Changes { incomplete: true, ..Changes::default() }
            }
        },
    };
    Ok(Worked { ending, noted, changes })
}

async fn next(follower: &mut Follower) -> Result<Batch, Failure> {
    follower.next().await.map_err(|error| Failure::internal("reading the output", error))
}

/// Output on its way to the events.
struct Telling<'a> {
    task: &'a Task,
    left: u64,
    decoders: [Decoder; 2],
}

impl Telling<'_> {
    /// Tells frames, each by itself while they are few; `true` when no more may be told.
    fn frames(&mut self, frames: &[Frame]) -> bool {
        let chatty = self.task.is_chatty();
        let mut gathered = String::new();
        for frame in frames {
            let decoder = &mut self.decoders[usize::from(frame.stream == Stream::Stderr)];
            gathered.push_str(&decoder.push(&frame.bytes));
            if !chatty {
                self.say(&std::mem::take(&mut gathered));
            }
        }
        self.say(&gathered);
        self.left == 0
    }

    fn rest(&mut self) {
        let rest = self.decoders.each_mut().map(Decoder::finish).concat();
        self.say(&rest);
    }

    fn say(&mut self, text: &str) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let told = text::cut(text, left);
        self.task.says(told);
        self.left = match told.len() < text.len() {
            true => 0,
            false => self.left - told.len() as u64,
        };
    }
}

/// What the end of the command means for the task.
fn ending(stopped: Option<Stop>, end: CommandEnd, lost: u64, budgets: Budgets) -> Ending {
    let failed = |code, message: &str| Ending::Failed { code, message: message.to_owned() };
    match (stopped, end.cause) {
        (Some(Stop::Cancelled), _) => Ending::Cancelled,
        (Some(Stop::OutputSpent), _) => Ending::Incomplete(budgets.output_reason),
        (None, EndCause::Cancelled) => Ending::Cancelled,
        (None, EndCause::Timeout) => Ending::Incomplete(Spent::Time),
        (None, EndCause::OutOfMemory) => {
            failed("harness_error", "the memory of the session was used up")
        }
        (None, EndCause::SessionEnded) => failed(
            "hangar_session_lost",
            "the session ended while the task ran; its files are kept, and the next task starts it \
             again",
        ),
        (None, EndCause::Own) => match end.status {
            ExitStatus::NotExecuted(_) => failed("harness_error", "the shell could not be started"),
            _ if lost > 0 => Ending::Incomplete(Spent::OutputBytes),
            _ => Ending::Completed,
        },
    }
}

/// Stores how a task ended, and tells it then.
pub(super) async fn conclude(app: &Arc<App>, task: &Task, session: &SessionRow, worked: Worked) {
    let Worked { ending, mut noted, changes } = worked;
    let (call, text, deltas) = task.take_said();
    let container = container_id(session);
    if changes.incomplete {
        noted.insert("artifacts_incomplete".to_owned(), json!(true));
    }
    let items = Items::of(&task.id);
    let output = call.map(|call| {
        let cited = changes.files.iter();
        let cited: Vec<_> =
            cited.map(|(file, _)| artifacts::citation(file, &container, &text)).collect();
        let result = items.result(&result(&noted, &ending, &text), ending.item_status());
        vec![call, result, items.message(&text, &cited, ending.item_status())]
    });
    let last = response::ended(&task.initial, &ending, output.unwrap_or_default(), noted);
    let files =
        changes.files.iter().map(|(file, change)| artifacts::listed(file, *change, &container));
    let ended = EndedTask {
        id: task.id.clone(),
        status: ending.status().to_owned(),
        response: last.clone(),
        outcome: Outcome { deltas, files: files.collect(), deleted: changes.deleted },
        ended_ms: now_ms(),
    };
    store(app, ended).await;
    app.tasks.let_go(task, last);
    app.isolations.task_ended(&session.id);
    trim(app);
}

/// The result of the call in a form programs can read.
fn result(noted: &Map<String, Value>, ending: &Ending, text: &str) -> String {
    let shown = text::cut(text, RESULT_BYTES_MAX);
    let mut result = json!({ "output": shown, "status": ending.status() });
    for name in ["exit_code", "signal"] {
        if let Some(value) = noted.get(name) {
            result[name] = value.clone();
        }
    }
    if shown.len() < text.len() {
        result["truncated"] = json!(true);
    }
    result.to_string()
}

/// Stores an end. A full disk can have room again in a moment, and an end that is not stored is
/// not told.
async fn store(app: &App, ended: EndedTask) {
    for _ in 0..STORE_TRIES {
        match app.store.end_task(ended.clone()).await {
            Ok(()) => return,
            Err(error) => tracing::error!("the end of {} was not stored: {error}", ended.id),
        }
        tokio::time::sleep(STORE_PAUSE).await;
    }
    tracing::error!("the end of {} is told without being stored", ended.id);
}

/// Ends the isolations that were idle longest, where more are than are kept ready.
fn trim(app: &Arc<App>) {
    let max = app.config.tasks.idle_sessions_max;
    if !app.isolations.are_idle_beyond(max) {
        return;
    }
    let app = Arc::clone(app);
    tokio::spawn(async move {
        // Most of the time of an end is waiting, so some end at once; who finds no room leaves it
        // to those that do it.
        let Ok(_permit) = app.tasks.trimming.try_acquire() else { return };
        if let Err(error) = app.isolations.end_idle_beyond(max).await {
            tracing::warn!("an idle session was not ended: {error}");
        }
    });
}
