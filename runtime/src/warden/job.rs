//! One job: its worker, and what the worker says.

use super::api::Outbox;
use super::job_plans::Work;
use super::worker::{SETUP_FAILED, Worker};
use crate::wire::warden::{ExitStatus, JobEnd, JobId};
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// The longest datagram from and to a worker.
pub(super) const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// A job whose worker runs, or whose group is not empty yet.
#[derive(Debug)]
pub(super) struct Running {
    /// `None`: a job of the warden's own.
    pub(super) id: Option<JobId>,
    pub(super) work: Work,
    pub(super) worker: Worker,
    /// What the worker said last: done or refused.
    pub(super) answer: Option<JobEnd>,
    /// Why the worker was not started, as the child told.
    pub(super) failure: Option<String>,
    pub(super) cancelled: bool,
    /// How it ended, once it has.
    pub(super) status: Option<ExitStatus>,
}

impl Running {
    /// Reads one datagram; `false` at the end of the connection and after a message that is none.
    pub(super) fn read(&mut self, outbox: &mut Outbox) -> bool {
        let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
        let received = rustix::net::recv(
            &self.worker.socket,
            &mut bytes[..],
            RecvFlags::DONTWAIT | RecvFlags::TRUNC,
        );
        let length = match received {
            Ok((_, length)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => 0,
        };
        if length == 0 || length > bytes.len() {
            return false;
        }
        bytes.truncate(length);
        let payload = bytes.split_off(1);
        match bytes[0] {
            b'P' => {
                if let Some(job) = self.id {
                    outbox.progress(job, payload);
                }
            }
            b'D' => self.answer = Some(JobEnd::Done(payload)),
            b'R' => self.answer = Some(JobEnd::Refused(payload)),
            SETUP_FAILED => {
                self.failure = Some(printable(&payload));
            }
            _ => return false,
        }
        true
    }

    pub(super) fn has_waiting(&self) -> bool {
        let mut byte = [0];
        rustix::net::recv(&self.worker.socket, &mut byte[..], RecvFlags::DONTWAIT | RecvFlags::PEEK)
            .is_ok_and(|(_, length)| length > 0)
    }
}

pub(super) fn ended_with(status: Option<ExitStatus>) -> String {
    match status {
        Some(ExitStatus::Code(code)) => format!("the worker exited with {code} and no answer"),
        Some(ExitStatus::Signal(signal)) => format!("the worker was killed by signal {signal}"),
        Some(ExitStatus::NotExecuted(_)) | None => "the worker did not run".to_owned(),
    }
}

/// A worker's bytes for the log: it reads hostile input, and a log is read on terminals.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().take(4000).collect()
}

pub(super) fn in_words(end: &JobEnd) -> String {
    match end {
        JobEnd::Done(_) => "done".to_owned(),
        JobEnd::Refused(why) => printable(why),
        JobEnd::Died(why) => why.clone(),
        JobEnd::Cancelled => "cancelled".to_owned(),
    }
}
