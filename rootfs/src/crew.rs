//! A few threads that work on what one thread finds.

use crate::job::{Refusal, RefusalCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Tasks that wait at most. Each can hold a directory open, so this bounds descriptors as well.
const WAITING_MAX: usize = 64;

/// Threads that read files at most; more than two gain nothing on one disk.
const THREADS_MAX: usize = 2;

/// Takes tasks for the crew.
pub(crate) struct Tasks<'a, T> {
    sender: SyncSender<T>,
    stopped: &'a AtomicBool,
}

/// The crew has stopped because a task failed; [`run`] returns that failure.
#[derive(Debug)]
pub(crate) struct Stopped;

impl<T> Tasks<'_, T> {
    /// Hands a task over; waits while too many are waiting already.
    pub(crate) fn give(&self, task: T) -> Result<(), Stopped> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        self.sender.send(task).map_err(|_| Stopped)
    }
}

/// Why the thread that finds tasks came to an end early.
pub(crate) enum FeedEnd {
    /// A task failed.
    Stopped,
    /// It failed itself.
    Refused(Refusal),
}

impl From<Stopped> for FeedEnd {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Refusal> for FeedEnd {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Runs `feed` on this thread and `work` for each of its tasks on others; `state` makes what a
/// thread keeps from task to task, such as a buffer. Results come in no order.
///
/// # Errors
/// The first failure, of a task or of `feed`; then no further task is begun.
pub(crate) fn run<T: Send, S, R: Send>(
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T) -> Result<R, Refusal> + Sync,
    feed: impl FnOnce(&Tasks<'_, T>) -> Result<(), FeedEnd>,
) -> Result<Vec<R>, Refusal> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let receiver = Mutex::new(receiver);
    let stopped = AtomicBool::new(false);
    let work_off = || {
        let mut state = state();
        let mut results = Ok(Vec::new());
        while let Some(task) = next_of(&receiver) {
            // After a failure tasks are still taken, or the feed would wait for ever.
            if stopped.load(Ordering::Relaxed) {
                continue;
            }
            match (work(&mut state, task), &mut results) {
                (Ok(result), Ok(results)) => results.push(result),
                (Ok(_), Err(_)) => {}
                (Err(refusal), _) => {
                    stopped.store(true, Ordering::Relaxed);
                    results = Err(refusal);
                }
            }
        }
        results
    };
    thread::scope(|scope| {
        let count = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let mut crew = Vec::new();
        for _ in 0..count {
            let thread = thread::Builder::new().spawn_scoped(scope, work_off);
            crew.push(thread.map_err(|error| {
                Refusal::new(RefusalCode::Failed, "a thread could not be started").detail(error)
            })?);
        }
        let fed = feed(&Tasks { sender, stopped: &stopped });
        if fed.is_err() {
            stopped.store(true, Ordering::Relaxed);
        }
        let mut results = Vec::new();
        let mut failure = None;
        for thread in crew {
            match thread.join() {
                Ok(Ok(more)) => results.extend(more),
                Ok(Err(refusal)) => failure = failure.or(Some(refusal)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        match (failure, fed) {
            (Some(refusal), _) | (None, Err(FeedEnd::Refused(refusal))) => Err(refusal),
            (None, Ok(())) => Ok(results),
            (None, Err(FeedEnd::Stopped)) => {
                Err(Refusal::new(RefusalCode::Failed, "the work was stopped"))
            }
        }
    })
}

fn next_of<T>(receiver: &Mutex<Receiver<T>>) -> Option<T> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_worked_on_once() {
        let mut results = run(
            || (),
            |(), number: u32| Ok(number * 2),
            |tasks| {
                for number in 0..1000 {
                    tasks.give(number)?;
                }
                Ok(())
            },
        )
        .unwrap();
        results.sort_unstable();
        assert_eq!(results, (0..1000).map(|number| number * 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_failed_task_ends_the_feed() {
        let refusal = run(
            || (),
            |(), number: u32| match number {
                500 => Err(Refusal::new(RefusalCode::SpecialFile, "this one")),
                _ => Ok(()),
            },
            |tasks| {
                for number in 0.. {
                    tasks.give(number)?;
                }
                Ok(())
            },
        )
        .unwrap_err();
        assert_eq!(refusal.message, "this one");
    }

    #[test]
    fn a_failed_feed_is_the_failure() {
        let refusal = run(
            || (),
            |(), (): ()| Ok(()),
            |_| Err(Refusal::new(RefusalCode::MountInTree, "there").into()),
        )
        .unwrap_err();
        assert_eq!(refusal.message, "there");
    }
}
