//! Programs that have to work under the filters of a session's command.

use hangar_seccomp::{Instruction, Profile, program};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// Starts a program below the filters of a session's command.
pub fn filtered(arguments: &[&str]) -> Command {
    let filters: Vec<Vec<seccompiler::sock_filter>> = [Profile::Init, Profile::Command]
        .into_iter()
        .flat_map(|profile| program(profile).unwrap().filters)
        .map(|filter| {
            let kernel = |i: Instruction| seccompiler::sock_filter {
                code: i.code,
                jt: i.jt,
                jf: i.jf,
                k: i.k,
            };
            filter.into_iter().map(kernel).collect()
        })
        .collect();
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).stdin(Stdio::null());
    // SAFETY: between fork and exec the closure makes two system calls per filter on memory that
    // was filled before the fork; it takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            for filter in &filters {
                seccompiler::apply_filter(filter).map_err(std::io::Error::other)?;
            }
            Ok(())
        });
    }
    command
}

fn output(arguments: &[&str]) -> Output {
    filtered(arguments).output().unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn prints(arguments: &[&str], expected: &str) {
    let output = output(arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.trim(), expected, "{arguments:?}: {} {errors}", output.status);
    assert!(output.status.success(), "{arguments:?}: {} {errors}", output.status);
}

#[test]
fn python_works() {
    prints(&["python3", "-c", "import os; print(os.getpid() > 0)"], "True");
    prints(
        &[
            "python3",
            "-c",
            "import multiprocessing as m\nif __name__ == '__main__':\n print(sum(m.get_context('fork').Pool(2).map(abs, [-1, -2])))",
        ],
        "3",
    );
    prints(
        &[
            "python3",
            "-c",
            "import threading as t, subprocess as s\nx = t.Thread(target=s.check_call, args=(['true'],)); x.start(); x.join(); print('joined')",
        ],
        "joined",
    );
    prints(
        &[
            "python3",
            "-c",
            "import asyncio, socket\nasync def f():\n s = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)\n r, w = await asyncio.open_connection(*s.sockets[0].getsockname())\n return await r.read()\nprint(asyncio.run(f()))",
        ],
        "b''",
    );
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let venv = directory.path().join("venv");
    prints(&["python3", "-m", "venv", venv.to_str().unwrap()], "");
    prints(
        &[
            venv.join("bin/python").to_str().unwrap(),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "list",
            "--format=json",
            "--exclude=setuptools",
            "--exclude=pip",
        ],
        "[]",
    );
}

#[test]
fn node_works() {
    prints(
        &[
            "node",
            "-e",
            "const {Worker} = require('worker_threads'); new Worker(\"require('worker_threads').parentPort.postMessage(7)\", {eval: true}).on('message', m => console.log(m))",
        ],
        "7",
    );
    prints(
        &[
            "node",
            "-e",
            "const fs = require('fs'); fs.promises.readFile('/etc/hostname').then(b => console.log(b.length > 0))",
        ],
        "true",
    );
    prints(
        &[
            "node",
            "-e",
            "console.log(require('child_process').execSync('echo child').toString().trim())",
        ],
        "child",
    );
    let version = Command::new("npm").arg("--version").output().unwrap();
    prints(&["npm", "--version"], String::from_utf8_lossy(&version.stdout).trim());
}

#[test]
fn git_and_compilers_and_shells_work() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = directory.path().to_str().unwrap();
    prints(&["bash", "-c", "echo one | cat; (sleep 0 & wait); echo $(echo two)"], "one\ntwo");
    prints(
        &[
            "bash",
            "-ec",
            &format!(
                "cd {at}; git init -q a; cd a; echo x > x; git add x; git -c user.name=n -c user.email=e commit -qm m; git clone -q . ../b; cd ../b; git status --porcelain; git log --format=%s"
            ),
        ],
        "m",
    );
    prints(
        &[
            "bash",
            "-ec",
            &format!(
                "cd {at}; echo 'int main(void) {{ return puts(\"hello\") < 0; }}' > m.c; gcc -w -o m m.c; ./m"
            ),
        ],
        "hello",
    );
}

#[test]
fn debuggers_work() {
    let output = output(&["strace", "-f", "-e", "trace=execve", "true"]);
    let trace = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && trace.contains("execve("), "{trace}");
    // A call that the tracer leaves out gets the tracer's result, not ours.
    let output = self::output(&[
        "strace",
        "-e",
        "inject=chdir:retval=0",
        "-e",
        "trace=chdir",
        "bash",
        "-c",
        "cd /nowhere && echo moved",
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("moved"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_terminal_multiplexer_works() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = directory.path().to_str().unwrap();
    prints(
        &[
            "bash",
            "-ec",
            &format!(
                "export TERM=xterm TMUX_TMPDIR={at}; tmux -f /dev/null new-session -d -s s 'echo inside > {at}/out; sleep 60'; for i in $(seq 100); do [ -s {at}/out ] && break; sleep 0.1; done; tmux kill-server; cat {at}/out"
            ),
        ],
        "inside",
    );
}
