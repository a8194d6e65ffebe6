//! Running git in a session of its own.

use super::{Repository, not_fetched};
use crate::app::App;
use crate::failure::{Code, Failure};
use crate::sessions::output::Batch;
use crate::sessions::presets::{self, Purpose, Setting};
use crate::sessions::service::failure;
use crate::store::Parts;
use crate::warden_client::EgressRefusal;
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::plan::{Environment, Limits, Network, Plan, Profile, WORKSPACE_DIR};
use hangar_runtime::record::{Frame, Stream};
use hangar_runtime::wire::warden::{CommandEnd, EndCause, Exec, ExitStatus, OutputLimit, Program};
use tokio::sync::broadcast;

const SCRIPT: &str = include_str!("fetch.sh");

/// What the script ends with when there is no such commit.
const NO_SUCH_COMMIT: u8 = 3;

/// The most that is kept of what git says, and of the facts.
const SAID_BYTES_MAX: usize = 2 << 10;
const FACTS_BYTES_MAX: usize = 64 << 10;

/// The most submodules that are named.
const SUBMODULES_MAX: usize = 20;

/// Variables over the presets: nothing but the command line and the repository decides what git
/// does, it asks nobody, and it speaks nothing but HTTP, always with the proxy.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_ALLOW_PROTOCOL", "https:http"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("SSH_ASKPASS", "/bin/false"),
    ("GIT_LFS_SKIP_SMUDGE", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("NO_PROXY", ""),
    ("no_proxy", ""),
];

/// What was fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The commit: 40 or 64 hexadecimal digits.
    pub commit: String,
    /// Paths of submodules, the first few; what they hold is not imported.
    pub submodules: Vec<String>,
    /// How many submodules there are.
    pub submodule_count: u64,
    /// Files that are stored elsewhere by Git LFS; their pointers were imported.
    pub lfs_pointers: u64,
}

/// A fetch that is to be run.
pub(super) struct Fetch<'a> {
    app: &'a App,
    session: &'a SessionId,
    repository: &'a Repository,
    refusals: broadcast::Receiver<EgressRefusal>,
    facts: Vec<u8>,
    said: Vec<u8>,
}

impl<'a> Fetch<'a> {
    pub(super) fn new(app: &'a App, session: &'a SessionId, repository: &'a Repository) -> Self {
        let refusals = app.warden.refusals();
        Self { app, session, repository, refusals, facts: Vec::new(), said: Vec::new() }
    }

    /// Starts the session and lets git make the tar in its working directory.
    ///
    /// # Errors
    /// When the session cannot be started, or git does not succeed.
    pub(super) async fn run(mut self) -> Result<Fetched, Failure> {
        let launched = self.app.isolations.launch(self.plan()).await;
        launched.map_err(|error| failure("starting the import", &error))?;
        let command = self.app.isolations.exec(self.exec(), None).await;
        let command = command.map_err(|error| failure("starting the import", &error))?;
        let what = "reading the output of the import";
        let mut follower =
            command.follow().ok_or_else(|| Failure::internal(what, "there is no record"))?;
        loop {
            match follower.next().await.map_err(|error| Failure::internal(what, error))? {
                Batch::Frames(frames) => self.take(frames),
                Batch::End { end, .. } => return self.judge(end),
            }
        }
    }

    fn plan(&self) -> Plan {
        let limits = self.app.config.build.limits.over(Limits::default());
        // Neither the pack nor the tar can be larger than what could be imported.
        let file_bytes_max = self.app.config.uploads.unpacked_bytes_max;
        Plan {
            session: self.session.clone(),
            profile: Profile::Strict,
            environment: Environment::None,
            network: Network::Egress,
            limits: Limits { file_bytes_max, ..limits },
        }
    }

    fn exec(&self) -> Exec {
        let Repository { address, reference } = self.repository;
        let reference = reference.as_ref().map_or("", |reference| reference.as_str());
        let arguments = ["/bin/bash", "-c", SCRIPT, "fetch", address.as_str(), reference];
        let ca_bundle = self.app.config.build.ca_bundle.as_deref();
        let (parts, network) = (Parts::default(), Network::Egress);
        let setting = Setting { slug: None, parts, network, ca_bundle };
        let mut variables = presets::variables(setting, Purpose::Session);
        variables.retain(|name, _| !name.starts_with("GIT_CONFIG"));
        let more = VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        variables.extend(more);
        Exec {
            session: self.session.clone(),
            command: CommandId(1),
            program: Program::Arguments(arguments.map(|text| text.as_bytes().to_vec()).to_vec()),
            environment: presets::as_environment(&variables),
            directory: WORKSPACE_DIR.as_bytes().to_vec(),
            timeout_ms: Some(self.app.config.uploads.git_timeout_s.saturating_mul(1000).max(1)),
            output: OutputLimit::default(),
        }
    }

    fn take(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            let (kept, max) = match frame.stream {
                Stream::Stdout => (&mut self.facts, FACTS_BYTES_MAX),
                _ => (&mut self.said, SAID_BYTES_MAX),
            };
            let room = max.saturating_sub(kept.len()).min(frame.bytes.len());
            kept.extend_from_slice(&frame.bytes[..room]);
        }
    }

    fn judge(mut self, end: CommandEnd) -> Result<Fetched, Failure> {
        let seconds = self.app.config.uploads.git_timeout_s;
        let bytes = self.app.config.uploads.unpacked_bytes_max;
        match (end.cause, end.status) {
            (EndCause::Own, ExitStatus::Code(0)) => self.read_facts(),
            (EndCause::Timeout, _) => {
                let message = format!("fetching the repository took longer than {seconds} s");
                let detail = serde_json::json!({ "max_seconds": seconds });
                Err(Failure::new(Code::EnvironmentInvalid, message)
                    .with_param("git")
                    .with_detail(detail))
            }
            (EndCause::OutOfMemory, _) => {
                Err(not_fetched("fetching the repository used up the memory of an import", ""))
            }
            (EndCause::Own, ExitStatus::Code(127) | ExitStatus::NotExecuted(_)) => {
                let message = "repositories cannot be imported: sessions of this host have no git";
                Err(Failure::new(Code::Unsupported, message))
            }
            (EndCause::Own, ExitStatus::Code(NO_SUCH_COMMIT)) => {
                let message = "the repository has no branch, tag or commit of that name";
                Err(Failure::new(Code::EnvironmentInvalid, message).with_param("git.ref"))
            }
            // SIGXFSZ, or the status a shell makes of it.
            (EndCause::Own, ExitStatus::Signal(25) | ExitStatus::Code(153)) => {
                let message = format!("the repository has more than {bytes} bytes");
                let detail = serde_json::json!({ "max_bytes": bytes });
                Err(Failure::new(Code::FileTooLarge, message).with_detail(detail))
            }
            (EndCause::Own, _) => Err(self.failed()),
            (EndCause::Cancelled | EndCause::SessionEnded, _) => {
                let message = "the import ended early, because its session did";
                Err(Failure::new(Code::EnvironmentUnavailable, message))
            }
        }
    }

    /// The proxy knows better than git why a host was not reached.
    fn failed(&mut self) -> Failure {
        let said = String::from_utf8_lossy(&self.said).trim().to_owned();
        while let Ok(refusal) = self.refusals.try_recv() {
            if refusal.session == *self.session {
                let message = format!(
                    "the repository could not be fetched: its address is refused ({})",
                    refusal.reason
                );
                return not_fetched(&message, &said);
            }
        }
        not_fetched("the repository could not be fetched", &said)
    }

    fn read_facts(&self) -> Result<Fetched, Failure> {
        let facts = String::from_utf8_lossy(&self.facts);
        let fetched = parse(&facts);
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !matches!(fetched.commit.len(), 40 | 64) || !digits(&fetched.commit) {
            return Err(Failure::internal("reading the commit that was fetched", facts));
        }
        Ok(fetched)
    }
}

fn parse(facts: &str) -> Fetched {
    let mut fetched = Fetched::default();
    for line in facts.lines() {
        match line.split_once(' ') {
            Some(("commit", commit)) => commit.clone_into(&mut fetched.commit),
            Some(("submodule", path)) => {
                fetched.submodule_count += 1;
                if fetched.submodules.len() < SUBMODULES_MAX {
                    fetched.submodules.push(path.to_owned());
                }
            }
            Some(("lfs_pointers", count)) => {
                fetched.lfs_pointers = count.trim().parse().unwrap_or(0)
            }
            _ => {}
        }
    }
    fetched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_lines() {
        let mut facts = "commit 0123\nlfs_pointers 2\n".to_owned();
        for number in 0..30 {
            facts.push_str(&format!("submodule a b/{number}\n"));
        }
        let fetched = parse(&facts);
        assert_eq!((fetched.commit.as_str(), fetched.lfs_pointers), ("0123", 2));
        assert_eq!((fetched.submodules.len(), fetched.submodule_count), (20, 30));
        assert_eq!(fetched.submodules[1], "a b/1");
        assert_eq!(parse("nonsense\n"), Fetched::default());
    }
}
