//! Completions and manual pages, made from the command line as it is.

use super::error::{CliError, While};
use super::table::print;
use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// Which completions.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  hangar completions bash | sudo tee /etc/bash_completion.d/hangar")]
pub struct Completions {
    /// The shell they are for
    shell: Shell,
}

/// Where manual pages go.
#[derive(Debug, Args)]
pub struct Manual {
    /// The directory, such as /usr/local/share/man/man1
    directory: PathBuf,
}

impl Completions {
    /// Prints them.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn run(&self, mut command: clap::Command) -> Result<u8, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "hangar", &mut script);
        print(&String::from_utf8_lossy(&script)).map(|()| 0)
    }
}

impl Manual {
    /// Writes one page for `hangar` and one for each command.
    ///
    /// # Errors
    /// When a page cannot be written.
    pub fn run(&self, command: clap::Command) -> Result<u8, CliError> {
        let at = || format!("the manual pages cannot be written to {}", self.directory.display());
        std::fs::create_dir_all(&self.directory).while_doing(at)?;
        clap_mangen::generate_to(command, &self.directory).while_doing(at)?;
        Ok(0)
    }
}
