//! Installing the filters that the warden compiled.

use super::Confinement;
use super::command::CommandSetup;
use crate::error::{AtStep, SetupError};
use crate::wire::init::{Filters, Instruction};
use hangar_runtime_sys::{SockFilter, install_seccomp_filter};

/// Compiles the filters of every session, once.
///
/// # Errors
/// When a profile does not compile, which its own tests rule out.
pub fn compile() -> Result<Filters, SetupError> {
    Ok(Filters {
        init: program("install-init-filter", hangar_seccomp::Profile::Init)?,
        command: program("install-command-filter", hangar_seccomp::Profile::Command)?,
    })
}

fn program(
    name: &'static str,
    profile: hangar_seccomp::Profile,
) -> Result<Vec<Vec<Instruction>>, SetupError> {
    let program = hangar_seccomp::program(profile)
        .map_err(|error| SetupError::other(name, format!("compiling {profile:?}"), error))?;
    Ok(program
        .filters
        .iter()
        .map(|filter| filter.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect())
        .collect())
}

/// Installs init's own filter, which every command inherits.
///
/// # Errors
/// `EACCES` without `no_new_privs`, `EINVAL` for a program the kernel does not accept.
pub fn install_init_filter(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "install-init-filter";
    install(name, &confinement.setup(name)?.filters.init)
}

/// Installs the filter of commands on top of init's.
///
/// # Errors
/// As for [`install_init_filter`].
pub fn install_command_filter(setup: &CommandSetup<'_>) -> Result<(), SetupError> {
    install("install-command-filter", setup.filters)
}

fn install(name: &'static str, filters: &[Vec<Instruction>]) -> Result<(), SetupError> {
    for filter in filters {
        let program: Vec<SockFilter> =
            filter.iter().map(|&(code, jt, jf, k)| SockFilter { code, jt, jf, k }).collect();
        install_seccomp_filter(&program)
            .at(name, || format!("seccomp(SET_MODE_FILTER, {} instructions)", program.len()))?;
    }
    Ok(())
}
