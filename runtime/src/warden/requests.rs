//! The verbs: one function each, as [`crate::wire::warden::Request`] documents them.

use super::parking::Place;
use super::server::Launching;
use super::server::Server;
use super::session_dir::SessionDir;
use super::version_dir::{EnvironmentDir, RECORD_BYTES_MAX, TreeName};
use super::workspace;
use crate::ids::{EnvironmentId, SessionId, VersionNumber};
use crate::plan::{Network, Plan};
use crate::wire::warden::{
    Answer, BUILD_ID, Call, Exec, Job, JobId, Message, Refusal, RefusalCode, Request, RequestId,
};
use std::os::fd::{AsFd, OwnedFd};

/// What a request comes to now: an answer, or one that comes later.
type Outcome = Result<Option<(Answer, Vec<OwnedFd>)>, Refusal>;

const DONE: Outcome = Ok(Some((Answer::Done, Vec::new())));

impl Server {
    /// Carries a request out.
    pub(super) fn answer(&mut self, call: Call, fds: Vec<OwnedFd>) {
        let Call { id, request } = call;
        // As it stands in the program file, not as a constant in its code: a test exchanges it.
        let own = std::hint::black_box(BUILD_ID);
        if let Request::Hello { build } = request {
            // Its answer goes first, then what happened while nobody was there.
            let result = Ok(Answer::Hello { build: own.to_owned() });
            self.send_first(&Message::Reply { id, result });
            self.greeted = build == own;
            return;
        }
        if !self.greeted {
            let message = format!("this warden is of build {own}");
            let result = Err(Refusal::new(RefusalCode::OtherBuild, message));
            self.send_first(&Message::Reply { id, result });
            return;
        }
        match self.carry_out(id, request, fds) {
            Ok(Some(answer)) => self.outbox.reply(id, Ok(answer)),
            Ok(None) => {}
            Err(refusal) => self.outbox.reply(id, Err(refusal)),
        }
    }

    fn carry_out(&mut self, id: RequestId, request: Request, fds: Vec<OwnedFd>) -> Outcome {
        let mut fds = fds.into_iter();
        let fd = match &request {
            Request::Exec(_) | Request::StartJob { .. } => fds.next(),
            _ => None,
        };
        if fds.next().is_some() {
            return Err(Refusal::new(RefusalCode::Invalid, "too many descriptors"));
        }
        if self.shutdown.is_some() && !matches!(request, Request::Shutdown | Request::Sessions) {
            return Err(Refusal::new(RefusalCode::Busy, "the warden ends"));
        }
        match request {
            Request::Hello { .. } => DONE,
            Request::Launch(plan) => self.launch(&plan),
            Request::Exec(exec) => self.exec(*exec, fd),
            Request::Attach { session, command } => {
                let fds = self.sessions.attach(&self.state, &session, command)?;
                Ok(Some((Answer::Started, fds)))
            }
            Request::Signal { session, command, signal } => {
                self.sessions.signal(&session, command, signal)?;
                DONE
            }
            Request::Stop { session } => self.stop(id, &session),
            Request::StartJob { job, work, options } => self.start_job(job, work, options, fd),
            Request::CancelJob { job } => {
                self.jobs.cancel(job)?;
                DONE
            }
            Request::WriteRecord { environment, version, record } => {
                self.write_record(&environment, version, &record)
            }
            Request::ReadRecord { environment, version } => self.read_record(&environment, version),
            Request::ViewWorkspace { session } => self.view_workspace(&session),
            Request::Sessions => Ok(Some((Answer::Sessions(self.sessions.list()), Vec::new()))),
            Request::Proof { session } => {
                let proof = self.sessions.proof(&session).ok_or_else(not_running)?;
                Ok(Some((Answer::Proof(Box::new(proof)), Vec::new())))
            }
            Request::Shutdown => {
                self.begin_shutdown(Some(id));
                Ok(None)
            }
        }
    }

    fn launch(&mut self, plan: &Plan) -> Outcome {
        plan.check().map_err(|why| Refusal::new(RefusalCode::Invalid, why))?;
        let id = &plan.session;
        if self.sessions.is_running(id) {
            return Err(Refusal::new(RefusalCode::Exists, "the session runs"));
        }
        if self.jobs.uses_session(id) {
            return Err(Refusal::new(RefusalCode::Busy, "a job uses the session"));
        }
        if plan.network == Network::Egress && !self.egress.is_available() {
            let message = "there is no hangar program beside the warden for the egress proxy";
            return Err(Refusal::new(RefusalCode::Unsupported, message));
        }
        let (dir, place) = self.session_dir(id)?;
        let Launching { means, sessions, egress, .. } = self.launching();
        let proof = sessions.launch(&means, egress, plan, dir, place)?;
        Ok(Some((Answer::Launched(Box::new(proof)), Vec::new())))
    }

    /// The directories of a session. For a new one they are made, with the block of the parked
    /// child, if one waits, which comes along.
    fn session_dir(&mut self, id: &SessionId) -> Result<(SessionDir, Option<Place>), Refusal> {
        if SessionDir::exists(&self.state, id)? {
            return Ok((SessionDir::open(&self.state, id)?, None));
        }
        let place = self.parked();
        let block = match &place {
            Some(place) => place.child.block(),
            None => self.blocks.allocate().ok_or_else(|| {
                let message = "every block of uids belongs to a stored session";
                Refusal::new(RefusalCode::Failed, message)
            })?,
        };
        match SessionDir::create(&self.state, id, block) {
            Ok(dir) => Ok((dir, place)),
            Err(error) => {
                match place {
                    Some(place) => self.discard(place),
                    None => self.blocks.give_back(block),
                }
                Err(error.into())
            }
        }
    }

    /// The parked child, unless something killed it.
    fn parked(&mut self) -> Option<Place> {
        let place = self.parking.take()?;
        if place.child.waits() {
            return Some(place);
        }
        log!("the parked child had ended");
        self.discard(place);
        None
    }

    fn exec(&mut self, exec: Exec, stdin: Option<OwnedFd>) -> Outcome {
        if self.jobs.uses_session(&exec.session) {
            return Err(Refusal::new(RefusalCode::Busy, "a job reads the session's tree"));
        }
        let fds = self.sessions.exec(exec, stdin)?;
        Ok(Some((Answer::Started, fds)))
    }

    fn stop(&mut self, id: RequestId, session: &SessionId) -> Outcome {
        if self.sessions.stop(session, id) {
            return Ok(None);
        }
        if SessionDir::exists(&self.state, session)? {
            return DONE;
        }
        Err(Refusal::new(RefusalCode::NotFound, "no such session"))
    }

    fn start_job(
        &mut self,
        job: JobId,
        work: Job,
        options: Vec<u8>,
        upload: Option<OwnedFd>,
    ) -> Outcome {
        let busy = match &work {
            Job::Import { .. } | Job::Verify { .. } | Job::Compare { .. } | Job::Measure { .. } => {
                false
            }
            Job::Freeze { session, .. } | Job::RemoveSession { session } => {
                self.sessions.is_running(session)
            }
            Job::FreezeDependencies { session, .. } => self.sessions.has_commands(session),
            Job::RemoveVersion { environment, version } => {
                self.sessions.uses(environment, Some(*version))
            }
            Job::RemoveDependencies { environment, key } => {
                self.sessions.uses_dependencies(environment, key)
            }
            Job::RemoveEnvironment { environment } => self.sessions.uses(environment, None),
        };
        if busy {
            return Err(Refusal::new(RefusalCode::Busy, "a session uses it"));
        }
        let (jobs, mut context) = self.jobs_and_context();
        jobs.start(&mut context, job, work, options, upload)?;
        DONE
    }

    fn write_record(
        &mut self,
        environment: &EnvironmentId,
        version: VersionNumber,
        record: &[u8],
    ) -> Outcome {
        if record.len() > RECORD_BYTES_MAX {
            return Err(Refusal::new(RefusalCode::Invalid, "the record is longer than 64 KiB"));
        }
        let dir = self.version(environment, version)?;
        dir.write_record(version, record)?;
        DONE
    }

    fn read_record(&mut self, environment: &EnvironmentId, version: VersionNumber) -> Outcome {
        let dir = self.version(environment, version)?;
        let record = dir.read_record(version).map_err(Refusal::not_found)?;
        Ok(Some((Answer::Record(record), Vec::new())))
    }

    fn version(
        &self,
        environment: &EnvironmentId,
        version: VersionNumber,
    ) -> Result<EnvironmentDir, Refusal> {
        let dir = EnvironmentDir::open(&self.state, environment)?;
        match dir {
            Some(dir) if dir.has(&TreeName::Version(version))? => Ok(dir),
            _ => Err(Refusal::new(RefusalCode::NotFound, "no such version")),
        }
    }

    fn view_workspace(&mut self, session: &SessionId) -> Outcome {
        let dir = SessionDir::open(&self.state, session).map_err(Refusal::not_found)?;
        let workdir = dir.workdir()?;
        let api = self.state.range().api();
        let view = workspace::view(workdir.as_fd(), dir.block(), api)?;
        Ok(Some((Answer::View, vec![view])))
    }
}

fn not_running() -> Refusal {
    Refusal::new(RefusalCode::NotFound, "the session does not run")
}
