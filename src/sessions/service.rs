//! Making sessions, running commands in them, and ending them.

use super::isolation::is_not_found;
use super::output::Command;
use super::presets::{self, Purpose, Setting};
use crate::app::{App, now_ms, random_hex};
use crate::config::LimitsConfig;
use crate::environments::not_ready;
use crate::failure::{Code, Failure, Tried};
use crate::store::{Parts, SessionRow, VersionRow, VersionStatus};
use crate::warden_client::WardenError;
use hangar_runtime::ids::{CommandId, EnvironmentId, SessionId, VersionNumber};
use hangar_runtime::plan::{Environment, Limits, Network, Plan, Profile, WORKSPACE_DIR};
use hangar_runtime::proof::ProofRecord;
use hangar_runtime::wire::warden::{Answer, Exec, OutputLimit, Program, RefusalCode, Request};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most bytes of arguments and variables a command is started with.
const ARGUMENTS_BYTES_MAX: usize = 96 << 10;

/// What a client asks for when it makes a session.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// The environment the session reads; none leaves `/env` empty.
    pub environment: Option<EnvironmentId>,
    /// Its version; the active one when absent.
    pub version: Option<VersionNumber>,
    /// What the session reaches.
    pub network: Network,
    /// Limits that differ from the defaults.
    pub limits: LimitsConfig,
}

/// What a client asks for when it runs a command.
#[derive(Debug, Clone)]
pub struct NewCommand {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Variables over the presets.
    pub variables: BTreeMap<String, String>,
    /// An absolute directory of the session.
    pub directory: Option<String>,
    /// Wall time.
    pub timeout_ms: Option<u64>,
    /// How much output is kept.
    pub output: OutputLimit,
}

/// Makes a session and starts its isolation.
///
/// # Errors
/// When the environment is not there or not built, or the isolation cannot be started; no session
/// is left then.
pub async fn create(app: &App, scope: &str, new: NewSession) -> Result<SessionRow, Failure> {
    let id = SessionId::parse(&format!("hsess{}", random_hex())).expect("32 hexadecimal digits");
    let (environment, parts) = match &new.environment {
        None => (None, Parts::default()),
        Some(wanted) => {
            let (environment, version) = readable(app, scope, wanted, new.version).await?;
            (Some((wanted.clone(), version.number, environment.slug)), version.parts)
        }
    };
    let now = now_ms();
    let row = SessionRow {
        id,
        scope: scope.to_owned(),
        environment,
        parts,
        network: network_name(new.network).to_owned(),
        limits: new.limits,
        commands: 0,
        harness: None,
        title: String::new(),
        last_status: None,
        created_ms: now,
        updated_ms: now,
    };
    plan(app, &row)?;
    let admitted = admitted(app, scope).await?;
    if !app.store.create_session(row.clone()).await.tried("storing the session")? {
        return Err(Failure::new(Code::EnvironmentNotReady, "that version was just removed"));
    }
    drop(admitted);
    match launch(app, &row).await {
        Ok(_) => Ok(row),
        Err(failure) => {
            app.store.delete_session(&row.id).await.tried("removing the session")?;
            Err(failure)
        }
    }
}

/// Lets one more session be added to a scope. What is returned is held until it is stored: two that
/// come at once are counted one after the other.
///
/// # Errors
/// [`Code::QuotaExhausted`] when the scope has as many as it may.
pub async fn admitted<'a>(
    app: &'a App,
    scope: &str,
) -> Result<Option<tokio::sync::MutexGuard<'a, ()>>, Failure> {
    let Some(max) = app.config.limits.sessions_max else { return Ok(None) };
    let held = app.admission.lock().await;
    match app.store.count_sessions(scope).await.tried("counting the sessions")? {
        count if count < max => Ok(Some(held)),
        _ => Err(Failure::new(
            Code::QuotaExhausted,
            "this scope has as many sessions as it may; delete some of them",
        )
        .with_detail(serde_json::json!({ "max_sessions": max }))),
    }
}

/// The environment and the version a session would read.
///
/// # Errors
/// When the environment is not there, or the version is not finished or cannot run here any more.
pub async fn readable(
    app: &App,
    scope: &str,
    id: &EnvironmentId,
    wanted: Option<VersionNumber>,
) -> Result<(crate::store::EnvironmentRow, VersionRow), Failure> {
    let environment = crate::environments::find(app, scope, id).await?;
    let versions = app.store.versions(id).await.tried("reading the versions")?;
    let Some(number) = wanted.or(environment.active) else {
        return Err(match versions.first() {
            Some(last) => not_ready(Some(last)),
            None => Failure::new(Code::EnvironmentNotReady, "the environment was never built"),
        });
    };
    let version = versions.into_iter().find(|version| version.number == number);
    let version = match version {
        Some(version) if version.status == VersionStatus::Ready => version,
        other => return Err(not_ready(other.as_ref())),
    };
    app.toolchain.check(version.toolchain.as_deref()).await?;
    Ok((environment, version))
}

/// The plan of a session, checked.
fn plan(app: &App, row: &SessionRow) -> Result<Plan, Failure> {
    let environment = match &row.environment {
        None => Environment::None,
        Some((id, version, slug)) => {
            Environment::Version { id: id.clone(), version: *version, slug: slug.clone() }
        }
    };
    let limits = row.limits.over(app.config.session.limits.over(Limits::default()));
    let network = parse_network(&row.network)
        .ok_or_else(|| Failure::internal("reading the session", "unknown network"))?;
    let plan =
        Plan { session: row.id.clone(), profile: Profile::Strict, environment, network, limits };
    plan.check().map_err(|why| Failure::new(Code::InvalidInput, why).with_param("limits"))?;
    Ok(plan)
}

/// Starts the isolation of a session unless it runs.
async fn launch(app: &App, row: &SessionRow) -> Result<(), Failure> {
    if app.isolations.is_running(&row.id) {
        return Ok(());
    }
    let change = app.isolations.change(&row.id);
    let _held = change.lock().await;
    if app.isolations.is_running(&row.id) {
        return Ok(());
    }
    let plan = plan(app, row)?;
    app.isolations.launch(plan).await.map_err(|error| failure("starting the session", &error))?;
    Ok(())
}

/// Starts a command in a session, and the session's isolation where it is gone.
///
/// # Errors
/// When the request makes no sense or the isolation cannot be started. A program that cannot be
/// executed is no error here: the command ends so.
pub async fn exec(app: &App, row: &SessionRow, new: NewCommand) -> Result<CommandId, Failure> {
    check(&new)?;
    launch(app, row).await?;
    let number = app.store.begin_command(&row.id, new.program.clone(), now_ms()).await;
    let number = number.tried("storing the command")?;
    match start(app, row, &new, number, None).await {
        Ok(_) => Ok(number),
        Err(failure) => {
            let end = super::isolation::SESSION_GONE;
            app.store.end_command(&row.id, number, end, now_ms()).await.tried("storing the end")?;
            Err(failure)
        }
    }
}

/// Starts a command that has a number already, and the session's isolation where it is gone.
///
/// # Errors
/// As for [`exec`].
pub async fn start(
    app: &App,
    row: &SessionRow,
    new: &NewCommand,
    number: CommandId,
    stdin: Option<OwnedFd>,
) -> Result<Arc<Command>, Failure> {
    check(new)?;
    launch(app, row).await?;
    let exec = request(app, row, new, number);
    let again = stdin.as_ref().map(OwnedFd::try_clone).transpose();
    let again = again.tried("starting the command")?;
    let started = match app.isolations.exec(exec.clone(), stdin).await {
        // It became idle or died a moment ago.
        Err(error) if is_not_found(&error) => {
            app.isolations.settle(&row.id).await;
            launch(app, row).await?;
            app.isolations.exec(exec, again).await
        }
        other => other,
    };
    started.map_err(|error| failure("starting the command", &error))
}

fn check(new: &NewCommand) -> Result<(), Failure> {
    let invalid =
        |param: &str, why: &str| Err(Failure::new(Code::InvalidInput, why).with_param(param));
    if new.program.first().is_none_or(String::is_empty) {
        return invalid("command", "the command is empty");
    }
    if new.program.iter().any(|argument| argument.contains('\0')) {
        return invalid("command", "an argument contains a NUL byte");
    }
    let named = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
    if new.variables.iter().any(|(name, value)| !named(name) || value.contains('\0')) {
        return invalid("env", "a variable has a name or value no program can get");
    }
    if new.directory.as_ref().is_some_and(|d| !d.starts_with('/') || d.contains('\0')) {
        return invalid("cwd", "the directory is not absolute");
    }
    let arguments: usize = new.program.iter().map(|argument| argument.len() + 1).sum();
    let variables: usize = new.variables.iter().map(|(n, v)| n.len() + v.len() + 2).sum();
    if arguments + variables > ARGUMENTS_BYTES_MAX {
        let detail = serde_json::json!({ "max_bytes": ARGUMENTS_BYTES_MAX });
        return Err(Failure::new(Code::InvalidInput, "arguments and variables are too long")
            .with_param("command")
            .with_detail(detail));
    }
    Ok(())
}

fn request(app: &App, row: &SessionRow, new: &NewCommand, number: CommandId) -> Exec {
    let network = parse_network(&row.network).unwrap_or(Network::None);
    let slug = row.environment.as_ref().map(|(_, _, slug)| slug);
    let ca_bundle = app.config.build.ca_bundle.as_deref();
    let setting = Setting { slug, parts: row.parts, network, ca_bundle };
    let mut variables = presets::variables(setting, Purpose::Session);
    variables.extend(new.variables.clone());
    Exec {
        session: row.id.clone(),
        command: number,
        program: Program::Arguments(new.program.iter().map(|a| a.clone().into_bytes()).collect()),
        environment: presets::as_environment(&variables),
        directory: new.directory.as_deref().unwrap_or(WORKSPACE_DIR).as_bytes().to_vec(),
        timeout_ms: new.timeout_ms,
        output: new.output,
    }
}

/// Kills a command with all its processes. One that ended already is left as it is.
///
/// # Errors
/// When the warden is not there or cannot do it.
pub async fn cancel(app: &App, session: &SessionId, command: CommandId) -> Result<(), Failure> {
    let request = Request::Signal { session: session.clone(), command, signal: 9 };
    match app.warden.order(request).await {
        Err(error) if !is_not_found(&error) => Err(failure("cancelling the command", &error)),
        _ => Ok(()),
    }
}

/// Ends a session and removes it with its files.
///
/// # Errors
/// When the warden is not there or the store fails; the session is as it was then.
pub async fn delete(app: &App, row: &SessionRow) -> Result<(), Failure> {
    let change = app.isolations.change(&row.id);
    let _held = change.lock().await;
    app.isolations.stop(&row.id).await.map_err(|error| failure("ending the session", &error))?;
    app.store.delete_session(&row.id).await.tried("removing the session")?;
    app.isolations.forget(&row.id);
    super::sweep::remove_garbage(app).await;
    Ok(())
}

/// What the session is, as init reported it and the warden checked it. Starts the isolation where
/// it is gone.
///
/// # Errors
/// When the isolation cannot be started or the warden is not there.
pub async fn proof(app: &App, row: &SessionRow) -> Result<ProofRecord, Failure> {
    launch(app, row).await?;
    let answer = app.warden.call(Request::Proof { session: row.id.clone() }, &[]).await;
    match answer.map_err(|error| failure("reading the proof", &error))?.0 {
        Answer::Proof(proof) => Ok(*proof),
        _ => Err(failure("reading the proof", &WardenError::Confused)),
    }
}

/// What a caller learns when the warden did not do what it was asked.
#[must_use]
pub fn failure(what: &str, error: &WardenError) -> Failure {
    let (code, message) = match error {
        WardenError::Gone | WardenError::Timeout | WardenError::NotRunning => {
            (Code::WardenUnavailable, format!("{what} failed: the session service is not there"))
        }
        WardenError::Refused(refusal) => match refusal.code {
            RefusalCode::Unsupported => (
                Code::Unsupported,
                format!("{what} failed: this host lacks what a session needs; see hangar doctor"),
            ),
            RefusalCode::Unproven => {
                (Code::Unproven, format!("{what} failed: a protection could not be proven"))
            }
            RefusalCode::Busy => (Code::SessionBusy, format!("{what} failed: it is in use")),
            _ => (Code::Internal, format!("{what} failed")),
        },
        WardenError::OtherBuild(_) | WardenError::NotSent(_) | WardenError::Confused => {
            (Code::Internal, format!("{what} failed"))
        }
    };
    Failure::new(code, message).with_cause(error)
}

/// The name of a network on the wire.
#[must_use]
pub fn network_name(network: Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Loopback => "loopback",
        Network::Egress => "egress",
    }
}

/// The network with a name.
#[must_use]
pub fn parse_network(name: &str) -> Option<Network> {
    [Network::None, Network::Loopback, Network::Egress]
        .into_iter()
        .find(|network| network_name(*network) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &[&str]) -> NewCommand {
        NewCommand {
            program: program.iter().map(|s| (*s).to_owned()).collect(),
            variables: BTreeMap::new(),
            directory: None,
            timeout_ms: None,
            output: OutputLimit::default(),
        }
    }

    #[test]
    fn what_no_program_could_get_is_refused() {
        assert!(check(&command(&["true"])).is_ok());
        assert!(check(&command(&[])).is_err());
        assert!(check(&command(&[""])).is_err());
        assert!(check(&command(&["a", "b\0"])).is_err());
        let long = "x".repeat(ARGUMENTS_BYTES_MAX);
        assert!(check(&command(&["a", &long])).is_err());
        for (name, value) in [("", "x"), ("A=B", "x"), ("A", "\0")] {
            let mut new = command(&["true"]);
            new.variables.insert(name.to_owned(), value.to_owned());
            assert_eq!(check(&new).unwrap_err().param.as_deref(), Some("env"));
        }
        let relative = NewCommand { directory: Some("x".into()), ..command(&["true"]) };
        assert_eq!(check(&relative).unwrap_err().param.as_deref(), Some("cwd"));
    }
}
