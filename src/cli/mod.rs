//! The command line.
//!
//! Only `serve`, `egress` and `doctor` do anything themselves; every other command is a client of a
//! server's HTTP interface and has no other way in. What reads or writes files of the user
//! does so with the user's own rights.

mod archive;
mod artifacts;
mod build;
mod client;
mod command;
mod configuration;
mod daemon;
mod doctor;
mod environments;
mod error;
mod exit;
mod frames;
mod generate;
mod options;
mod output;
mod progress;
mod project;
mod run;
mod secured;
mod sessions;
mod signals;
mod table;
mod terminal;
mod tokens;
mod wire;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use environments::EnvironmentCommand;
use error::{CliError, While};
use options::Server;
use sessions::SessionCommand;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::process::ExitCode;

/// Gives coding agents a place to work: projects built once, sessions that share them read-only.
#[derive(Debug, Parser)]
#[command(
    name = "hangar",
    version,
    propagate_version = true,
    after_help = "\
Examples:
  sudo hangar run examples/content-studio -- python3 run.py --episode 12
  sudo hangar serve --listen 127.0.0.1:8700
  sudo hangar env list
  hangar env list --server http://127.0.0.1:8700 --token-file token"
)]
struct Cli {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command on a project, in a session of its own
    Run(run::Run),
    /// Run the server
    Serve(Serve),
    /// Environments: projects, their builds and versions
    #[command(subcommand)]
    Env(EnvironmentCommand),
    /// Sessions and their commands
    #[command(subcommand)]
    Session(SessionCommand),
    /// Bearer tokens for clients elsewhere
    #[command(subcommand)]
    Token(tokens::TokenCommand),
    /// Show how a session is isolated, as it was proven when it started
    Audit(sessions::Shown),
    /// Tell what this host enforces and lacks, by trying; fails where sessions cannot run
    Doctor,
    /// What a server on this host would be started with
    #[command(subcommand)]
    Config(configuration::ConfigCommand),
    /// Print completions for a shell
    Completions(generate::Completions),
    /// Write manual pages
    Man(generate::Manual),
    /// Dial out for sessions; started by the warden
    #[command(hide = true)]
    Egress(Egress),
}

/// The server.
#[derive(Debug, Args)]
#[command(after_help = "\
Needs root: it starts the warden, which makes the sessions, and then gives up its own rights.
Clients on this host use the socket DIR/run/api.sock. The token for --listen is in DIR/token.

Example:
  sudo hangar serve --listen 127.0.0.1:8700 --state-dir /var/lib/hangar")]
struct Serve {
    /// Listen here too, for clients with the token
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// A value of the configuration, before config.toml and the environment; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Serve one `hangar run`: end with standard input
    #[arg(long, hide = true)]
    ephemeral: bool,
}

#[derive(Debug, Args)]
struct Egress {
    /// The descriptor of the socket to the warden
    #[arg(long, value_name = "N")]
    control_fd: RawFd,
}

/// Runs `hangar` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Where it cannot be printed there is nobody to read it.
            let _unread = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ if std::env::args_os().nth(1).is_some_and(|name| name == "run") => {
                    exit::OWN_FAILURE.into()
                }
                _ => 2.into(),
            };
        }
    };
    let is_run = matches!(cli.command, Command::Run(_) | Command::Session(SessionCommand::Exec(_)));
    match cli.dispatch() {
        Ok(status) => status.into(),
        Err(error) => match error.signal() {
            Some(signal) => exit::of_signal(signal).into(),
            None => {
                terminal::note(&error.chain());
                if is_run { exit::OWN_FAILURE.into() } else { ExitCode::FAILURE }
            }
        },
    }
}

impl Cli {
    fn dispatch(self) -> Result<u8, CliError> {
        match self.command {
            Command::Serve(serve) => serve.run(self.server).map(|()| 0),
            Command::Egress(egress) => crate::egress::run(egress.control_fd)
                .while_doing(|| "the egress proxy ended")
                .map(|()| 0),
            Command::Doctor => doctor::run(&self.server.state_dir),
            Command::Config(command) => configuration::run(&command, &self.server.state_dir),
            Command::Completions(completions) => completions.run(Cli::command()),
            Command::Man(manual) => manual.run(Cli::command()),
            client => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .while_doing(|| "starting the runtime failed")?;
                let done = runtime.block_on(client.ask(&self.server));
                // A write to a pipe that nobody reads must not hold the process.
                runtime.shutdown_background();
                done
            }
        }
    }
}

impl Command {
    async fn ask(self, server: &Server) -> Result<u8, CliError> {
        match self {
            Self::Run(options) => run::run(&options, server).await,
            Self::Env(command) => environments::run(&command, server).await.map(|()| 0),
            Self::Session(command) => sessions::run(&command, server).await,
            Self::Token(command) => tokens::run(&command, server).await.map(|()| 0),
            Self::Audit(shown) => sessions::audit(&shown, server).await.map(|()| 0),
            Self::Serve(_)
            | Self::Doctor
            | Self::Config(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Egress(_) => Err(CliError::new("no command of a client")),
        }
    }
}

impl Serve {
    /// Starts no thread before: the server gives up its rights, which is per thread.
    fn run(self, server: Server) -> Result<(), CliError> {
        if server.server.is_some() {
            return Err(CliError::new("--server names a server to talk to, and this is one"));
        }
        let options = crate::serve::Options {
            state_dir: server.state_dir,
            listen: self.listen,
            set: self.set,
            ephemeral: self.ephemeral,
        };
        crate::serve::run(options).while_doing(|| "the server ended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_names_that_scripts_rely_on_are_taken() {
        for line in [
            "hangar serve --listen 127.0.0.1:8700 --state-dir /x",
            "hangar run --state-dir /x --artifacts out project -- python3 run.py --episode 12",
            "hangar --state-dir /x run project -- true",
            "hangar env list --server http://h:1 --token-file t --json",
            "hangar env verify content-studio 1 --state-dir /x",
            "hangar env import content-studio --git https://example.org/x.git --ref main",
            "hangar env push content-studio dir --to assets",
            "hangar env set content-studio --pip numpy==2.3.1 --apt ffmpeg --keep-last 3",
            "hangar env diff content-studio 1 2 --json",
            "hangar env rm content-studio --version 1",
            "hangar token create ci --scope team --read-only",
            "hangar config show --set build.timeout_s=5 --json",
            "hangar completions zsh",
            "hangar man out",
            "hangar serve --set build.timeout_s=5 --set log.format=json",
            "hangar session exec hsess0123456789abcdef0123456789abcdef --timeout 1.5 -- ls -l",
            "hangar egress --control-fd 3",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for line in [
            "hangar run project",
            "hangar run project true",
            "hangar run -- true",
            "hangar run --timeout -1 project -- true",
            "hangar run --network host project -- true",
            "hangar session show ../x",
            "hangar env list --token-file t",
            "hangar env import x",
            "hangar env import x dir --git https://example.org/x.git",
            "hangar env rm x --version 1 --file y",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn options_after_the_dashes_belong_to_the_command() {
        let line = "hangar run p -- x --timeout 5 --json -- --name";
        let Command::Run(run) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not a run");
        };
        assert_eq!(run.command, ["x", "--timeout", "5", "--json", "--", "--name"]);
    }
}
