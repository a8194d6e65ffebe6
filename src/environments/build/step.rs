//! One command of a build: started, followed into the log, judged.

use super::debian;
use super::log::BuildLog;
use super::recipe::{Input, OnFailure, Step};
use super::run::{Build, BuildError};
use crate::failure::Failure;
use crate::sessions::output::{Batch, Command};
use crate::sessions::presets::{self, Purpose, Setting};
use crate::sessions::service::{cancel, failure};
use crate::store::Parts;
use hangar_runtime::ids::CommandId;
use hangar_runtime::plan::{HOME_DIR, Limits};
use hangar_runtime::record::{Frame, Stream};
use hangar_runtime::wire::warden::{CommandEnd, EndCause, Exec, ExitStatus, OutputLimit, Program};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast::error::RecvError;

/// The most output that is read of a command whose output is data.
const DATA_BYTES_MAX: usize = 8 << 20;

/// Where the output of a command goes.
enum Output<'a> {
    Log(&'a BuildLog),
    Data(&'a mut Vec<u8>),
}

impl Build {
    /// Runs steps in order; what they print is in the log.
    pub(super) async fn run_steps(
        &mut self,
        steps: &[Step],
        parts: Parts,
        log: &BuildLog,
    ) -> Result<(), BuildError> {
        for step in steps {
            self.run_step(step, parts, log).await?;
        }
        Ok(())
    }

    async fn run_step(
        &mut self,
        step: &Step,
        parts: Parts,
        log: &BuildLog,
    ) -> Result<(), BuildError> {
        self.enter(step.stage).await?;
        let mut step = step;
        loop {
            log.note(&format!("$ {}", step.title)).await?;
            let program = arguments(&step.arguments);
            let environment = self.environment_of(step.purpose, parts, &step.variables);
            let input = match step.input {
                Input::Empty => None,
                Input::DebianSources => Some(debian::sources(&self.app).await?),
            };
            let began = Instant::now();
            let command = self.begin(program, environment, input).await?;
            let end = self.follow(&command, Output::Log(log)).await?;
            if end.status == ExitStatus::Code(0) {
                let seconds = began.elapsed().as_secs_f64();
                return Ok(log.note(&format!("[hangar: the step took {seconds:.2} s]")).await?);
            }
            // Only a program that ended by itself says something about its step.
            match (&step.on_failure, end.cause) {
                (OnFailure::Ignore, EndCause::Own) => return Ok(()),
                (OnFailure::Instead(other), EndCause::Own) => step = other,
                _ => return Err(BuildError::new(self.reason(&step.title, end))),
            }
        }
    }

    /// Begins to copy a tree inside the session, as the session's user.
    pub(super) async fn begin_copy(
        &mut self,
        from: &str,
        to: &str,
        skip: &[&str],
    ) -> Result<Arc<Command>, BuildError> {
        let program = Program::CopyTree {
            from: from.as_bytes().to_vec(),
            to: to.as_bytes().to_vec(),
            skip: skip.iter().map(|name| name.as_bytes().to_vec()).collect(),
        };
        self.begin(program, Vec::new(), None).await
    }

    /// Waits until a copy is complete.
    pub(super) async fn finish_copy(
        &mut self,
        copy: &Arc<Command>,
        log: &BuildLog,
    ) -> Result<(), BuildError> {
        let end = self.follow(copy, Output::Log(log)).await?;
        match end.status {
            ExitStatus::Code(0) => Ok(()),
            _ => Err(BuildError::new(self.reason("copying files", end))),
        }
    }

    /// Runs a program for what it prints.
    pub(super) async fn data(
        &mut self,
        program: &[&str],
        parts: Parts,
    ) -> Result<Vec<u8>, BuildError> {
        let mut bytes = Vec::new();
        let program: Vec<_> = program.iter().map(|argument| (*argument).to_owned()).collect();
        let environment = self.environment_of(Purpose::Installer, parts, &[]);
        let command = self.begin(arguments(&program), environment, None).await?;
        self.follow(&command, Output::Data(&mut bytes)).await?;
        Ok(bytes)
    }

    fn environment_of(
        &self,
        purpose: Purpose,
        parts: Parts,
        more: &[(&'static str, String)],
    ) -> Vec<Vec<u8>> {
        let config = &self.app.config.build;
        let setting = Setting {
            slug: Some(&self.environment.slug),
            parts,
            network: self.order.network,
            ca_bundle: config.ca_bundle.as_deref(),
        };
        let mut variables = presets::variables(setting, purpose);
        for (name, value) in [
            ("PIP_INDEX_URL", &config.pip_index_url),
            ("UV_DEFAULT_INDEX", &config.pip_index_url),
            ("npm_config_registry", &config.npm_registry),
            ("GOPROXY", &config.go_proxy),
            ("BUNDLE_MIRROR__ALL", &config.gem_mirror),
        ] {
            variables.extend(value.as_ref().map(|value| (name.to_owned(), value.clone())));
        }
        variables.extend(self.order.variables.clone());
        variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        presets::as_environment(&variables)
    }

    async fn begin(
        &mut self,
        program: Program,
        environment: Vec<Vec<u8>>,
        input: Option<OwnedFd>,
    ) -> Result<Arc<Command>, BuildError> {
        if let Some(reason) = self.stop.reason() {
            return Err(BuildError::new(reason));
        }
        self.commands += 1;
        let left = self.deadline.saturating_duration_since(Instant::now());
        // The copy of the source makes the directory every later command runs in.
        let directory = match program {
            Program::CopyTree { .. } => HOME_DIR.to_owned(),
            Program::Arguments(_) => self.mount(),
        };
        let exec = Exec {
            session: self.session.clone(),
            command: CommandId(self.commands),
            program,
            environment,
            directory: directory.into_bytes(),
            timeout_ms: Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)),
            // All of it passes through here, and what is too much ends the build.
            output: OutputLimit {
                head_bytes_max: self.app.config.build.output_bytes_max.saturating_add(1 << 20),
                tail_bytes_max: 0,
            },
        };
        let command = self.app.isolations.exec(exec, input).await;
        Ok(command.map_err(|error| failure("starting a step of the build", &error))?)
    }

    /// Reads a command's output to its end. A command that prints nothing for too long is killed.
    async fn follow(
        &mut self,
        command: &Arc<Command>,
        mut output: Output<'_>,
    ) -> Result<CommandEnd, BuildError> {
        let silence = Duration::from_secs(self.app.config.build.silence_timeout_s);
        let what = "reading the output of the build";
        let mut follower =
            command.follow().ok_or_else(|| Failure::internal(what, "there is no record"))?;
        loop {
            let mut next = pin!(follower.next());
            let quiet_until = tokio::time::Instant::now() + silence;
            let batch = loop {
                tokio::select! {
                    batch = &mut next => break batch,
                    refusal = self.refusals.recv() => match refusal {
                        Ok(refusal) => self.note_refusal(refusal, &output).await?,
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => break (&mut next).await,
                    },
                    reason = self.stop.asked() => {
                        cancel(&self.app, &self.session, command.id()).await?;
                        return Err(BuildError::new(reason));
                    }
                    () = tokio::time::sleep_until(quiet_until) => {
                        cancel(&self.app, &self.session, command.id()).await?;
                        let seconds = silence.as_secs();
                        let reason = format!("the build printed nothing for {seconds} s");
                        return Err(BuildError::new(reason));
                    }
                }
            };
            match batch.map_err(|error| Failure::internal(what, error))? {
                Batch::Frames(frames) => {
                    self.take(frames, &mut output).await?;
                    let bytes_max = self.app.config.build.output_bytes_max;
                    if self.printed > bytes_max {
                        cancel(&self.app, &self.session, command.id()).await?;
                        let reason = format!("the build printed more than {bytes_max} bytes");
                        return Err(BuildError::new(reason));
                    }
                }
                Batch::End { end, .. } => {
                    while let Ok(refusal) = self.refusals.try_recv() {
                        self.note_refusal(refusal, &output).await?;
                    }
                    return Ok(end);
                }
            }
        }
    }

    async fn take(
        &mut self,
        frames: Vec<Frame>,
        output: &mut Output<'_>,
    ) -> Result<(), BuildError> {
        self.printed += frames.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
        match output {
            Output::Log(log) => {
                let bytes = frames.into_iter().flat_map(|frame| frame.bytes).collect();
                log.append(bytes).await?;
            }
            Output::Data(data) => {
                for frame in frames.into_iter().filter(|frame| frame.stream == Stream::Stdout) {
                    if data.len() + frame.bytes.len() <= DATA_BYTES_MAX {
                        data.extend(frame.bytes);
                    }
                }
            }
        }
        Ok(())
    }

    async fn note_refusal(
        &mut self,
        refusal: crate::warden_client::EgressRefusal,
        output: &Output<'_>,
    ) -> Result<(), BuildError> {
        if refusal.session != self.session {
            return Ok(());
        }
        let text = format!("tried to reach {}: refused ({})", refusal.target, refusal.reason);
        if let Output::Log(log) = output {
            log.note(&format!("[hangar: the build {text}]")).await?;
        }
        self.refused.get_or_insert(text);
        Ok(())
    }

    /// One public sentence for a step that failed.
    fn reason(&self, title: &str, end: CommandEnd) -> String {
        let timeout = self.app.config.build.timeout_s;
        match (end.cause, end.status) {
            (EndCause::Timeout, _) => format!("the build took longer than {timeout} s"),
            (EndCause::OutOfMemory, _) => format!("`{title}` used up the memory of the build"),
            (EndCause::Cancelled, _) => format!("`{title}` was cancelled"),
            (EndCause::SessionEnded, _) => format!("the build's session ended during `{title}`"),
            (EndCause::Own, _) if end.pids_limit_hit => {
                format!("`{title}` failed and ran into the limit on processes")
            }
            // SIGXFSZ, as a shell tells it and as it is.
            (EndCause::Own, ExitStatus::Code(153) | ExitStatus::Signal(25)) => {
                let limits = self.app.config.build.limits.over(Limits::default());
                let most = limits.file_bytes_max;
                format!("`{title}` wrote a file of more than {most} bytes")
            }
            (EndCause::Own, ExitStatus::Code(code)) => {
                format!("`{title}` ended with status {code}")
            }
            (EndCause::Own, ExitStatus::Signal(signal)) => {
                format!("`{title}` was killed by signal {signal}")
            }
            (EndCause::Own, ExitStatus::NotExecuted(errno)) => {
                let error = std::io::Error::from_raw_os_error(errno);
                format!("`{title}` could not be run: {error}")
            }
        }
    }
}

fn arguments(program: &[String]) -> Program {
    Program::Arguments(program.iter().map(|argument| argument.clone().into_bytes()).collect())
}
