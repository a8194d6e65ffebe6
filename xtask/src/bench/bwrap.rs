//! The peer: bubblewrap with the mounts and namespaces of a session.

use std::path::PathBuf;
use std::process::Command;

/// As it is named in results.
pub const NAME: &str = "bwrap --unshare-all";

/// What bubblewrap mounts where a session has its own.
pub struct Mounts {
    /// At `/env/bench`, read-only.
    pub environment: PathBuf,
    /// At `/workspace`.
    pub workdir: PathBuf,
    /// At `/home/agent`.
    pub home: PathBuf,
}

/// A command that starts a program with the mounts.
pub fn command(mounts: &Mounts, program: &[&str]) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session"]);
    command.args(["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        command.args(["--symlink", &format!("usr/{name}"), &format!("/{name}")]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    for point in ["/tmp", "/run", "/dev/shm"] {
        command.args(["--tmpfs", point]);
    }
    command.arg("--ro-bind").arg(&mounts.environment).arg("/env/bench");
    command.arg("--bind").arg(&mounts.workdir).arg("/workspace");
    command.arg("--bind").arg(&mounts.home).arg("/home/agent");
    command.args(["--chdir", "/workspace", "--"]).args(program);
    command
}
