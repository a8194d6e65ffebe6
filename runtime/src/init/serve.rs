//! init's life after the launch: orders of the warden, output of commands, ends of processes.

use super::running::{Common, Running};
use crate::wire::init::{Order, Report};
use crate::wire::warden::ExitStatus;
use crate::wire::{self, WireError};
use hangar_runtime_sys::SignalFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, kill_process_group, wait};
use std::os::fd::{AsFd, OwnedFd};

/// Serves the warden until the connection ends; then the session ends with this process.
pub(super) fn serve(common: &Common<'_>, control: OwnedFd) -> Result<(), WireError> {
    let children = SignalFd::new(&[libc::SIGCHLD])?;
    let mut running: Vec<Running> = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let ready = wait_for_work(&control, &children, &running)?;
        for (index, stream) in ready.output {
            running[index].take(stream, &mut buffer);
        }
        if ready.child {
            while children.take()?.is_some() {}
            reap(&control, &mut running, &mut buffer)?;
        }
        if ready.control {
            match wire::receive::<Order>(&control) {
                Ok((order, fds)) => obey(common, &control, &mut running, order, fds)?,
                Err(WireError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

struct Ready {
    control: bool,
    child: bool,
    /// Commands, by index, and the streams that have something.
    output: Vec<(usize, crate::record::Stream)>,
}

fn wait_for_work(
    control: &OwnedFd,
    children: &SignalFd,
    running: &[Running],
) -> Result<Ready, WireError> {
    let mut sources = Vec::new();
    let mut fds = vec![
        PollFd::new(control, PollFlags::IN),
        PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN),
    ];
    for (index, command) in running.iter().enumerate() {
        for (stream, pipe) in command.pipes() {
            sources.push((index, stream));
            fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
        }
    }
    loop {
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    Ok(Ready {
        control: ready(&fds[0]),
        child: ready(&fds[1]),
        output: sources
            .into_iter()
            .zip(&fds[2..])
            .filter_map(|(source, fd)| ready(fd).then_some(source))
            .collect(),
    })
}

/// Reaps every process that ended: commands, and orphans that PID 1 inherits.
fn reap(control: &OwnedFd, running: &mut Vec<Running>, buffer: &mut [u8]) -> Result<(), WireError> {
    loop {
        let (pid, status) = match wait(WaitOptions::NOHANG) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(Errno::CHILD) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let Some(index) =
            running.iter().position(|command| command.pid == pid.as_raw_nonzero().get())
        else {
            continue;
        };
        let status = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            // Stopped or continued: not asked for, so not reported by wait.
            (None, None) => continue,
        };
        let mut command = running.swap_remove(index);
        let status = command.end(status, buffer);
        wire::send(control, &Report::Ended { command: command.command, status }, &[])?;
    }
}

fn obey(
    common: &Common<'_>,
    control: &OwnedFd,
    running: &mut Vec<Running>,
    order: Order,
    fds: Vec<OwnedFd>,
) -> Result<(), WireError> {
    match order {
        Order::Start(start) => match Running::start(common, &start, fds) {
            Ok(command) => running.push(command),
            Err(errno) => {
                let status = ExitStatus::NotExecuted(errno.raw_os_error());
                wire::send(control, &Report::Ended { command: start.command, status }, &[])?;
            }
        },
        Order::Signal { command, signal } => {
            let target = running.iter().find(|running| running.command == command);
            if let (Some(running), Some(signal)) =
                (target, rustix::process::Signal::from_named_raw(signal))
            {
                // The command can end at any moment; then there is nobody to signal.
                let _ = kill_process_group(Pid::from_raw(running.pid).expect("positive"), signal);
            }
        }
        // A second setup would be a mistake of the warden; nothing is done a second time.
        Order::Setup(_) => return Err(WireError::Closed),
    }
    Ok(())
}
