//! The isolations that run now and the commands in them, as the warden tells of them.

use super::output::Command;
use crate::observe::metrics::{self, Outcome};
use crate::warden_client::{Notice, WardenClient, WardenError};
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::plan::Plan;
use hangar_runtime::proof::ProofRecord;
use hangar_runtime::wire::warden::{
    Answer, CommandEnd, EndCause, Event, Exec, ExitStatus, Request, RunningSession,
};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How many ended commands of one session keep their output record open.
const ENDED_RECORDS_MAX: usize = 32;

/// A command that ended, for the store.
#[derive(Debug)]
pub struct Ended {
    /// The session.
    pub session: SessionId,
    /// The command.
    pub command: CommandId,
    /// How it ended.
    pub end: CommandEnd,
}

/// The isolations that run now.
#[derive(Debug)]
pub struct Isolations {
    warden: WardenClient,
    sessions: Mutex<HashMap<SessionId, Isolation>>,
    ended: mpsc::UnboundedSender<Ended>,
}

/// One session as far as this process knows it.
#[derive(Debug)]
pub(super) struct Isolation {
    pub(super) running: bool,
    /// It ran a task, so that it may be ended when many such are idle.
    pub(super) ran_tasks: bool,
    /// It was chosen to be ended, and nobody else chooses it.
    pub(super) is_chosen: bool,
    pub(super) last_used: Instant,
    pub(super) commands: BTreeMap<CommandId, Arc<Command>>,
    /// Held while the session is started or removed.
    change: Arc<tokio::sync::Mutex<()>>,
}

impl Default for Isolation {
    fn default() -> Self {
        Self {
            running: false,
            ran_tasks: false,
            is_chosen: false,
            last_used: Instant::now(),
            commands: BTreeMap::new(),
            change: Arc::default(),
        }
    }
}

/// What a command ends with when its session is gone before it told anything.
pub const SESSION_GONE: CommandEnd = CommandEnd {
    status: ExitStatus::Signal(9),
    cause: EndCause::SessionEnded,
    pids_limit_hit: false,
};

impl Isolations {
    /// An empty list; ends of commands go to the channel.
    #[must_use]
    pub fn new(warden: WardenClient, ended: mpsc::UnboundedSender<Ended>) -> Self {
        Self { warden, sessions: Mutex::default(), ended }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Isolation>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What must be held to start or remove a session.
    #[must_use]
    pub fn change(&self, session: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.lock().entry(session.clone()).or_default().change)
    }

    /// The session's isolation runs.
    #[must_use]
    pub fn is_running(&self, session: &SessionId) -> bool {
        self.lock().get(session).is_some_and(|isolation| isolation.running)
    }

    /// How many isolations run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.lock().values().filter(|isolation| isolation.running).count()
    }

    /// Waits until a session the warden does not know is not taken for running here either: the
    /// event that it ended is on its way.
    pub async fn settle(&self, session: &SessionId) {
        for _ in 0..100 {
            if !self.is_running(session) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts a session's isolation.
    ///
    /// # Errors
    /// When the warden refuses; nothing runs then.
    pub async fn launch(&self, plan: Plan) -> Result<ProofRecord, WardenError> {
        let session = plan.session.clone();
        let began = Instant::now();
        let launched = self.warden.call(Request::Launch(Box::new(plan)), &[]).await;
        metrics::launch(Outcome::of(&launched), began.elapsed());
        let (answer, _) = launched?;
        let Answer::Launched(proof) = answer else { return Err(WardenError::Confused) };
        let mut sessions = self.lock();
        let isolation = sessions.entry(session).or_default();
        isolation.running = true;
        isolation.last_used = Instant::now();
        Ok(*proof)
    }

    /// Starts a command of a running session.
    ///
    /// # Errors
    /// When the warden refuses; the command does not run then.
    pub async fn exec(
        &self,
        exec: Exec,
        stdin: Option<OwnedFd>,
    ) -> Result<Arc<Command>, WardenError> {
        let (session, id) = (exec.session.clone(), exec.command);
        let command = Arc::new(Command::new(id));
        {
            // Known before it starts: its end can be told before its start is answered.
            let mut sessions = self.lock();
            let isolation = sessions.entry(session.clone()).or_default();
            if !isolation.running {
                return Err(WardenError::NotRunning);
            }
            isolation.last_used = Instant::now();
            isolation.commands.insert(id, Arc::clone(&command));
            forget_oldest(&mut isolation.commands);
        }
        let descriptors: Vec<_> = stdin.into_iter().collect();
        let started = self.warden.call(Request::Exec(Box::new(exec)), &descriptors).await;
        let outcome = started.and_then(|(answer, fds)| match answer {
            Answer::Started => attach(&command, fds),
            _ => Err(WardenError::Confused),
        });
        match outcome {
            Ok(()) => Ok(command),
            Err(error) => {
                if let Some(isolation) = self.lock().get_mut(&session) {
                    isolation.commands.remove(&id);
                }
                Err(error)
            }
        }
    }

    /// A command whose output is at hand.
    #[must_use]
    pub fn command(&self, session: &SessionId, id: CommandId) -> Option<Arc<Command>> {
        self.lock().get(session)?.commands.get(&id).cloned()
    }

    /// Ends a session's isolation. One that does not run is as good as ended.
    ///
    /// # Errors
    /// When the warden is not there or cannot end it.
    pub async fn stop(&self, session: &SessionId) -> Result<(), WardenError> {
        let stopped = self.warden.order(Request::Stop { session: session.clone() }).await;
        match stopped {
            Err(error) if !is_not_found(&error) => return Err(error),
            _ => {}
        }
        self.session_ended(session);
        Ok(())
    }

    /// Lets go of the record of a command that has ended.
    pub fn release(&self, session: &SessionId, id: CommandId) {
        if let Some(isolation) = self.lock().get_mut(session) {
            isolation.commands.remove(&id);
        }
    }

    /// Forgets a session that was removed.
    pub fn forget(&self, session: &SessionId) {
        self.lock().remove(session);
    }

    /// A command runs and somebody reads its output: a client, or a build.
    #[must_use]
    pub fn any_command_is_followed(&self) -> bool {
        let sessions = self.lock();
        sessions
            .values()
            .flat_map(|s| s.commands.values())
            .any(|c| c.end().is_none() && c.is_followed())
    }

    /// Takes note of what the warden tells, until the client is gone.
    pub async fn follow(self: Arc<Self>, mut notices: mpsc::UnboundedReceiver<Notice>) {
        while let Some(notice) = notices.recv().await {
            self.note(notice).await;
        }
    }

    /// Takes note of what the warden told so far.
    pub async fn catch_up(&self, notices: &mut mpsc::UnboundedReceiver<Notice>) {
        while let Ok(notice) = notices.try_recv() {
            self.note(notice).await;
        }
    }

    async fn note(&self, notice: Notice) {
        match notice {
            Notice::Connected => {
                if let Err(error) = self.adopt().await {
                    tracing::warn!("the running sessions could not be listed: {error}");
                }
            }
            Notice::Gone => {
                let all: Vec<_> = self.lock().keys().cloned().collect();
                all.iter().for_each(|session| self.session_ended(session));
            }
            Notice::Event(Event::CommandEnded { session, command, end }) => {
                self.command_ended(session, command, end);
            }
            Notice::Event(Event::SessionEnded { session, .. }) => self.session_ended(&session),
            Notice::Event(_) => {}
        }
    }

    /// Takes over what a warden runs already, and learns of ends that were missed.
    ///
    /// # Errors
    /// When the warden is not there.
    pub async fn adopt(&self) -> Result<(), WardenError> {
        let (answer, _) = self.warden.call(Request::Sessions, &[]).await?;
        let Answer::Sessions(running) = answer else { return Err(WardenError::Confused) };
        for RunningSession { session, commands, ended } in running {
            self.lock().entry(session.clone()).or_default().running = true;
            for id in commands {
                self.attached(&session, id, None).await?;
            }
            for (id, end) in ended {
                self.command_ended(session.clone(), id, end);
            }
        }
        Ok(())
    }

    /// A command whose output is to be read: at hand, or asked of the warden again.
    ///
    /// # Errors
    /// When the warden is not there or has no record of the command.
    pub async fn attached(
        &self,
        session: &SessionId,
        id: CommandId,
        ending: Option<CommandEnd>,
    ) -> Result<Arc<Command>, WardenError> {
        if let Some(command) = self.command(session, id) {
            return Ok(command);
        }
        let request = Request::Attach { session: session.clone(), command: id };
        let (answer, fds) = self.warden.call(request, &[]).await?;
        let Answer::Started = answer else { return Err(WardenError::Confused) };
        let command = Arc::new(Command::new(id));
        ending.into_iter().for_each(|end| command.set_end(end));
        attach(&command, fds)?;
        let mut sessions = self.lock();
        let commands = &mut sessions.entry(session.clone()).or_default().commands;
        let command = Arc::clone(commands.entry(id).or_insert(command));
        forget_oldest(commands);
        Ok(command)
    }

    fn command_ended(&self, session: SessionId, id: CommandId, end: CommandEnd) {
        if let Some(isolation) = self.lock().get_mut(&session) {
            isolation.last_used = Instant::now();
            if let Some(command) = isolation.commands.get(&id) {
                command.set_end(end);
            }
        }
        // Nobody listens only while the process ends.
        let _ = self.ended.send(Ended { session, command: id, end });
    }

    fn session_ended(&self, session: &SessionId) {
        let mut open = Vec::new();
        if let Some(isolation) = self.lock().get_mut(session) {
            isolation.running = false;
            open.extend(isolation.commands.values().filter(|c| c.end().is_none()).map(|c| c.id()));
        }
        for id in open {
            self.command_ended(session.clone(), id, SESSION_GONE);
        }
    }
}

/// Gives a command its output record and the eventfd that tells of its growth.
fn attach(command: &Arc<Command>, fds: Vec<OwnedFd>) -> Result<(), WardenError> {
    let [record, grew] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| WardenError::Confused)?;
    command.attach(record, grew).map_err(|error| WardenError::NotSent(error.to_string()))
}

fn forget_oldest(commands: &mut BTreeMap<CommandId, Arc<Command>>) {
    let ended: Vec<_> =
        commands.iter().filter(|(_, c)| c.end().is_some()).map(|(id, _)| *id).collect();
    for id in ended.iter().take(ended.len().saturating_sub(ENDED_RECORDS_MAX)) {
        commands.remove(id);
    }
}

/// There is nothing of that name, or it does not run.
#[must_use]
pub fn is_not_found(error: &WardenError) -> bool {
    use hangar_runtime::wire::warden::RefusalCode;
    match error {
        WardenError::Refused(refusal) => refusal.code == RefusalCode::NotFound,
        WardenError::NotRunning => true,
        _ => false,
    }
}
