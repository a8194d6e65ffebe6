//! Tasks that ran when the server died: their commands are followed again where they are there,
//! those that never began begin now, and the rest have failed with the reason.

use super::begin;
use super::engine::Task;
use super::harness::SHELL;
use super::response::Ending;
use super::run::{self, Worked};
use crate::app::{App, now_ms};
use crate::failure::{Code, Failure, Tried};
use crate::harnesses;
use crate::sessions::isolation::is_not_found;
use crate::sessions::service::{self, failure};
use crate::store::{HarnessConfig, HarnessRow, ResponseRow, SessionRow, StoreError};
use std::sync::Arc;

/// Takes up every task whose end is not stored.
///
/// # Errors
/// When the database fails.
pub async fn take_up_all(app: &Arc<App>) -> Result<(), StoreError> {
    for row in app.store.running_tasks().await? {
        let Some(session) = app.store.session(&row.scope, &row.session).await? else { continue };
        let initial = row.initial.clone();
        let task = app.tasks.take_up(&row.id, &row.scope, &row.session, &row.harness, initial);
        tokio::spawn(resume(Arc::clone(app), task, row, session));
    }
    Ok(())
}

async fn resume(app: Arc<App>, task: Arc<Task>, row: ResponseRow, session: SessionRow) {
    let worked = match go_on(&app, &task, &row, &session).await {
        Ok(Some(worked)) => worked,
        // It began anew and ends by itself.
        Ok(None) => return,
        Err(failure) => {
            tracing::warn!("the task {} was lost: {failure}: {:?}", task.id, failure.cause);
            // Nobody would hear of a command that goes on.
            if let Err(failure) = service::cancel(&app, &row.session, row.command).await {
                tracing::warn!("the command of {} was not ended: {failure}", task.id);
            }
            let message = "the server ended while the task ran, and it could not be taken up again";
            let code = "hangar_task_lost";
            Worked::not_begun(Ending::Failed { code, message: message.to_owned() })
        }
    };
    run::conclude(&app, &task, &session, worked).await;
}

async fn go_on(
    app: &Arc<App>,
    task: &Arc<Task>,
    row: &ResponseRow,
    session: &SessionRow,
) -> Result<Option<Worked>, Failure> {
    let harness = harness_of(app, row).await?;
    let ending = app.store.ending_of(&row.session, row.command).await;
    let ending = ending.tried("reading the command")?;
    let command = match app.isolations.attached(&row.session, row.command, ending).await {
        Ok(command) => command,
        // There is no record of it, so it never began.
        Err(error) if is_not_found(&error) => {
            begin_now(app, task, row, &harness, session.clone()).await?;
            return Ok(None);
        }
        Err(error) => return Err(failure("taking up the task", &error)),
    };
    task.begins();
    let job = begin::job_again(app, row, &harness, session.clone())?;
    task.calls(super::response::Items::of(&task.id).call(&job.work));
    // What was there before the turn is not known any more.
    let worked = run::follow(app, task, session, &command, job.budgets, None).await?;
    Ok(Some(worked))
}

/// The harness of a task; one that was deleted meanwhile does not stop what it began.
async fn harness_of(app: &App, row: &ResponseRow) -> Result<HarnessRow, Failure> {
    match harnesses::named(app, &row.scope, &row.harness).await {
        Err(failure) if failure.code == Code::HarnessNotFound => Ok(HarnessRow {
            id: row.harness.clone(),
            scope: row.scope.clone(),
            base: SHELL.to_owned(),
            config: HarnessConfig::default(),
            created_ms: row.created_ms,
        }),
        other => other,
    }
}

async fn begin_now(
    app: &Arc<App>,
    task: &Arc<Task>,
    row: &ResponseRow,
    harness: &HarnessRow,
    session: SessionRow,
) -> Result<(), Failure> {
    let mut job = begin::job_again(app, row, harness, session)?;
    let mut files = begin::files_again(app, row).await?;
    files.extend(super::skills::placed(app, harness).await?);
    let before = files.len() + usize::from(job.work.script.is_some());
    let before = u32::try_from(before).tried("counting the files")?;
    let command = app.store.begin_again(row.clone(), before, now_ms()).await;
    job.command = command.tried("storing the task")?;
    job.files = files;
    tokio::spawn(run::run(Arc::clone(app), Arc::clone(task), job));
    Ok(())
}
