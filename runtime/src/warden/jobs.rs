//! Jobs of the worker: what each one sees, and what the warden does once it is done.

use super::api::Outbox;
use super::blocks::Blocks;
use super::job::{DATAGRAM_BYTES_MAX, Running, ended_with, in_words};
use super::job_plans::{Work, plan_session_removal, plan_tree_removal, prepare};
use super::session_dir::DoomedSession;
use super::state::{StateDir, remove_dir};
use super::version_dir::EnvironmentDir;
use super::worker::{self, Plan, Program};
use crate::cgroup::Cgroups;
use crate::error::SetupError;
use crate::ids::{EnvironmentId, SessionId};
use crate::wire::warden::{Event, ExitStatus, Job, JobEnd, JobId, Refusal, RefusalCode};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How many jobs run at once.
const RUNNING_MAX: usize = 16;
/// How long after its worker failed a removal is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// All jobs.
#[derive(Debug)]
pub(super) struct Jobs {
    program: Program,
    running: BTreeMap<u64, Running>,
    started: u64,
    /// Removals whose worker failed: what they remove has lost its name, so nobody asks again.
    failed: Vec<(Instant, Work)>,
    /// The warden ends.
    closed: bool,
}

/// What jobs work with.
pub(super) struct Context<'a> {
    pub(super) state: &'a StateDir,
    pub(super) cgroups: &'a Cgroups,
    pub(super) blocks: &'a mut Blocks,
    pub(super) outbox: &'a mut Outbox,
}

impl Jobs {
    pub(super) fn new(program: Program) -> Self {
        Self { program, running: BTreeMap::new(), started: 0, failed: Vec::new(), closed: false }
    }

    /// Starts a job for the API.
    pub(super) fn start(
        &mut self,
        context: &mut Context<'_>,
        id: JobId,
        job: Job,
        options: Vec<u8>,
        upload: Option<OwnedFd>,
    ) -> Result<(), Refusal> {
        if options.len() > DATAGRAM_BYTES_MAX {
            return Err(Refusal::new(RefusalCode::Invalid, "the options are longer than 64 KiB"));
        }
        if self.running.values().any(|running| running.id == Some(id)) {
            return Err(Refusal::new(RefusalCode::Exists, "a job of this number runs"));
        }
        if self.running.len() >= RUNNING_MAX {
            return Err(Refusal::new(RefusalCode::Busy, "too many jobs run"));
        }
        if upload.is_some() != matches!(job, Job::Import { .. } | Job::Compare { .. }) {
            return Err(Refusal::new(
                RefusalCode::Invalid,
                "an import has an upload, a comparison a file to write, and nothing else either",
            ));
        }
        self.refuse_conflicts(&job)?;
        let (work, plan) = prepare(context.state, job, options, upload)?;
        self.spawn(context, Some(id), work, &plan)
    }

    /// Removes a session that lost its name already.
    pub(super) fn remove_doomed_session(
        &mut self,
        context: &mut Context<'_>,
        doomed: DoomedSession,
    ) {
        let name = doomed.name.clone();
        let result =
            plan_session_removal(&doomed, b"{}".to_vec()).map_err(Refusal::from).and_then(|plan| {
                match plan {
                    Some(plan) => self.spawn(context, None, Work::RemoveSession(doomed), &plan),
                    None => Ok(doomed.finish(context.state)?),
                }
            });
        report(result, &format!("removing session {name}"));
    }

    /// Removes a tree that lost its name already.
    pub(super) fn remove_doomed_tree(
        &mut self,
        context: &mut Context<'_>,
        environment: Option<EnvironmentId>,
        name: String,
    ) {
        let what = format!("removing tree {name}");
        let result = plan_tree_removal(context.state, environment.as_ref(), &name, b"{}".to_vec())
            .map_err(Refusal::from)
            .and_then(|plan| {
                self.spawn(context, None, Work::RemoveTree { environment, name }, &plan)
            });
        report(result, &what);
    }

    fn spawn(
        &mut self,
        context: &mut Context<'_>,
        id: Option<JobId>,
        work: Work,
        plan: &Plan,
    ) -> Result<(), Refusal> {
        self.started += 1;
        let name = format!("job-{}", self.started);
        match worker::start(&self.program, context.cgroups, &name, plan) {
            Ok(worker) => {
                let running = Running {
                    id,
                    work,
                    worker,
                    answer: None,
                    failure: None,
                    cancelled: false,
                    status: None,
                };
                self.running.insert(self.started, running);
                Ok(())
            }
            Err(error) => {
                self.clean_up_after(context, work, false);
                Err(error.into())
            }
        }
    }

    /// Kills the worker of a job.
    pub(super) fn cancel(&mut self, id: JobId) -> Result<(), Refusal> {
        let running = self
            .running
            .values_mut()
            .find(|running| running.id == Some(id))
            .ok_or_else(|| Refusal::new(RefusalCode::NotFound, "no such job runs"))?;
        running.cancelled = true;
        Ok(running.worker.kill()?)
    }

    /// Kills the workers of all jobs that the API asked for: it is gone, or all ends.
    pub(super) fn cancel_all(&mut self) {
        for running in self.running.values_mut().filter(|running| running.id.is_some()) {
            running.cancelled = true;
            report(running.worker.kill().map_err(Refusal::from), "killing a worker");
        }
    }

    /// Kills every worker, those of the warden's own jobs too, and starts no more; what they leave
    /// is done at the next start.
    pub(super) fn shut_down(&mut self) {
        self.closed = true;
        self.failed.clear();
        for running in self.running.values_mut() {
            running.cancelled = true;
            report(running.worker.kill().map_err(Refusal::from), "killing a worker");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// What to wait for: the number of the job, its socket and its end.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>, Wait)> {
        self.running.iter().filter(|(_, running)| running.status.is_none()).flat_map(
            |(key, running)| {
                [
                    (*key, running.worker.socket.as_fd(), Wait::Socket),
                    (*key, running.worker.pidfd.as_fd(), Wait::Exit),
                ]
            },
        )
    }

    /// Whether a worker has ended and its group is still to be removed.
    pub(super) fn has_ending(&self) -> bool {
        self.running.values().any(|running| running.status.is_some())
    }

    /// Reads what a worker said.
    pub(super) fn read(&mut self, key: u64, outbox: &mut Outbox) {
        let Some(running) = self.running.get_mut(&key) else { return };
        if !running.read(outbox) {
            // Nothing more comes, and a worker that is not heard can do no more good.
            report(running.worker.kill().map_err(Refusal::from), "killing a worker");
        }
    }

    /// Notes the end of a worker.
    pub(super) fn exited(&mut self, key: u64, outbox: &mut Outbox) {
        let Some(running) = self.running.get_mut(&key) else { return };
        while running.read(outbox) && running.has_waiting() {}
        running.status = Some(super::reap(&running.worker.pidfd));
        report(running.worker.kill().map_err(Refusal::from), "killing what a worker left");
    }

    /// Finishes jobs whose processes are all gone.
    pub(super) fn finish_ended(&mut self, context: &mut Context<'_>) {
        let ended: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, running)| running.status.is_some())
            .map(|(key, _)| *key)
            .collect();
        for key in ended {
            match self.running[&key].worker.group.try_remove() {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) => report(Err(error.into()), "removing the group of a worker"),
            }
            if let Some(running) = self.running.remove(&key) {
                self.finish(context, running);
            }
        }
    }

    fn finish(&mut self, context: &mut Context<'_>, running: Running) {
        let Running { id, work, answer, failure, cancelled, status, .. } = running;
        let mut end = match (answer, status) {
            (Some(JobEnd::Done(outcome)), Some(ExitStatus::Code(0))) => JobEnd::Done(outcome),
            (Some(JobEnd::Refused(why)), _) => JobEnd::Refused(why),
            _ if cancelled => JobEnd::Cancelled,
            (_, status) => JobEnd::Died(failure.unwrap_or_else(|| ended_with(status))),
        };
        if let JobEnd::Done(_) = end
            && let Err(error) = self.complete(context, &work)
        {
            end = JobEnd::Died(error.to_string());
        }
        let done = matches!(end, JobEnd::Done(_));
        match id {
            Some(job) => context.outbox.event(Event::JobEnded { job, end }),
            None if done => {}
            None if cancelled => {}
            None => log!("{work:?} was not done: {}", in_words(&end)),
        }
        self.clean_up_after(context, work, done);
    }

    /// What makes the work of a worker count.
    fn complete(&mut self, context: &mut Context<'_>, work: &Work) -> Result<(), SetupError> {
        match work {
            Work::Import | Work::Read { .. } => Ok(()),
            Work::Freeze { environment, tree, .. } => {
                EnvironmentDir::ensure(context.state, environment)?.publish(tree)
            }
            Work::RemoveSession(doomed) => {
                doomed.finish(context.state)?;
                if let Some(block) = doomed.block {
                    context.blocks.give_back(block);
                }
                Ok(())
            }
            Work::RemoveTree { environment: None, name } => {
                remove_dir(&context.state.versions, name)
            }
            Work::RemoveTree { environment: Some(environment), name } => {
                match EnvironmentDir::open(context.state, environment)? {
                    Some(dir) => remove_dir(dir.as_fd(), name),
                    None => Ok(()),
                }
            }
        }
    }

    /// A tree that was not frozen to its end is removed at once; a removal is tried again later.
    fn clean_up_after(&mut self, context: &mut Context<'_>, work: Work, done: bool) {
        if done || self.closed {
            return;
        }
        let (environment, tree) = match work {
            Work::Freeze { environment, tree, .. } => (environment, tree),
            Work::RemoveSession(_) | Work::RemoveTree { .. } => {
                self.failed.push((Instant::now() + RETRY_AFTER, work));
                return;
            }
            Work::Import | Work::Read { .. } => return,
        };
        let doomed = EnvironmentDir::ensure(context.state, &environment)
            .and_then(|dir| dir.doom(&EnvironmentDir::temporary_name(&tree)));
        match doomed {
            Ok(name) => self.remove_doomed_tree(context, Some(environment), name),
            Err(error) => report(Err(error.into()), "removing a tree that was not frozen"),
        }
    }

    /// When a removal is tried again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.failed.iter().map(|(at, _)| *at).min()
    }

    /// Tries removals again when it is time.
    pub(super) fn retry(&mut self, context: &mut Context<'_>) {
        let now = Instant::now();
        let due = self.failed.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>();
        for (_, work) in due {
            match work {
                Work::RemoveSession(doomed) => self.remove_doomed_session(context, doomed),
                Work::RemoveTree { environment, name } => {
                    self.remove_doomed_tree(context, environment, name);
                }
                Work::Import | Work::Freeze { .. } | Work::Read { .. } => {}
            }
        }
    }

    /// Whether a job reads or removes what belongs to this session.
    pub(super) fn uses_session(&self, session: &SessionId) -> bool {
        self.running
            .values()
            .any(|running| matches!(&running.work, Work::Freeze { session: used, .. } if used == session))
    }

    fn uses_environment(&self, id: &EnvironmentId) -> bool {
        self.running.values().any(|running| match &running.work {
            Work::Freeze { environment, .. } | Work::Read { environment } => environment == id,
            _ => false,
        })
    }

    fn refuse_conflicts(&self, job: &Job) -> Result<(), Refusal> {
        let busy = match job {
            Job::RemoveSession { session } => self.uses_session(session),
            Job::RemoveVersion { environment, .. }
            | Job::RemoveDependencies { environment, .. }
            | Job::RemoveEnvironment { environment } => self.uses_environment(environment),
            Job::Freeze { session, .. } | Job::FreezeDependencies { session, .. } => {
                self.uses_session(session)
            }
            Job::Import { .. } | Job::Verify { .. } | Job::Compare { .. } | Job::Measure { .. } => {
                false
            }
        };
        if busy { Err(Refusal::new(RefusalCode::Busy, "another job uses it")) } else { Ok(()) }
    }
}

/// Which descriptor of a job is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The worker said something.
    Socket,
    /// The worker ended.
    Exit,
}

fn report(result: Result<(), Refusal>, what: &str) {
    if let Err(refusal) = result {
        log!("{what}: {refusal}");
    }
}
