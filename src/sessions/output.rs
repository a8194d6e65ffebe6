//! Following the output of a command: from its record, in bounded batches, at the reader's pace.

use hangar_runtime::ids::CommandId;
use hangar_runtime::record::{Frame, Next, RecordError, RecordReader};
use hangar_runtime::wire::warden::CommandEnd;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// How many bytes one batch holds at most, but for its last frame.
const BATCH_BYTES: usize = 1 << 20;
/// How long a follower waits before it looks again although nothing was told.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A command of a running isolation.
#[derive(Debug)]
pub struct Command {
    id: CommandId,
    record: OnceLock<Arc<OwnedFd>>,
    grew: watch::Sender<u64>,
    end: watch::Sender<Option<CommandEnd>>,
}

impl Command {
    /// A command whose record is not there yet.
    #[must_use]
    pub fn new(id: CommandId) -> Self {
        Self {
            id,
            record: OnceLock::new(),
            grew: watch::Sender::new(0),
            end: watch::Sender::new(None),
        }
    }

    /// Its number in the session.
    #[must_use]
    pub fn id(&self) -> CommandId {
        self.id
    }

    /// Somebody reads its output.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.grew.receiver_count() > 0
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn end(&self) -> Option<CommandEnd> {
        *self.end.borrow()
    }

    /// Waits for its end.
    pub async fn ended(&self) -> CommandEnd {
        let mut end = self.end.subscribe();
        let value = end.wait_for(Option::is_some).await.expect("self holds the sender");
        value.expect("waited for")
    }

    /// Notes its end; the first one counts.
    pub fn set_end(&self, end: CommandEnd) {
        self.end.send_if_modified(|slot| {
            let first = slot.is_none();
            slot.get_or_insert(end);
            first
        });
    }

    /// Takes the record, and watches the eventfd for its growth until the command ended.
    ///
    /// # Errors
    /// When the eventfd cannot be watched.
    pub fn attach(self: &Arc<Self>, record: OwnedFd, grew: OwnedFd) -> std::io::Result<()> {
        rustix::io::ioctl_fionbio(&grew, true)?;
        #[expect(deprecated, reason = "the other form is unsafe; this one is sound for an OwnedFd")]
        let grew = AsyncFd::new(grew)?;
        // A second record of the same command is the same file.
        let _ = self.record.set(Arc::new(record));
        self.grew.send_modify(|count| *count += 1);
        tokio::spawn(watch_growth(Arc::clone(self), grew));
        Ok(())
    }

    /// Follows the output from its beginning; `None` when the record is not at hand.
    #[must_use]
    pub fn follow(self: &Arc<Self>) -> Option<Follower> {
        let record = Arc::clone(self.record.get()?);
        Some(Follower {
            grew: self.grew.subscribe(),
            end: self.end.subscribe(),
            reader: Arc::new(Mutex::new(RecordReader::new(record))),
            lost: 0,
        })
    }
}

async fn watch_growth(command: Arc<Command>, eventfd: AsyncFd<OwnedFd>) {
    let mut end = command.end.subscribe();
    let grown = async {
        loop {
            let Ok(mut ready) = eventfd.readable().await else { return };
            let mut count = [0; 8];
            match rustix::io::read(eventfd.get_ref(), &mut count) {
                Ok(_) => command.grew.send_modify(|count| *count += 1),
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = grown => {}
        _ = end.wait_for(Option::is_some) => {}
    }
    command.grew.send_modify(|count| *count += 1);
}

/// What a follower gets.
#[derive(Debug)]
pub enum Batch {
    /// Frames in order, at least one.
    Frames(Vec<Frame>),
    /// Everything was read and the command ended.
    End {
        /// How.
        end: CommandEnd,
        /// Bytes the record did not keep.
        lost: u64,
    },
}

/// Reads a record while it grows. It holds one batch at most, however slow its reader is.
#[derive(Debug)]
pub struct Follower {
    reader: Arc<Mutex<RecordReader<Arc<OwnedFd>>>>,
    grew: watch::Receiver<u64>,
    end: watch::Receiver<Option<CommandEnd>>,
    lost: u64,
}

impl Follower {
    /// The next batch; waits for it. After [`Batch::End`] there is nothing more. A future that is
    /// dropped before it is done can take frames with it.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub async fn next(&mut self) -> Result<Batch, RecordError> {
        loop {
            self.grew.borrow_and_update();
            let ended = *self.end.borrow_and_update();
            let reader = Arc::clone(&self.reader);
            let (frames, next) = crate::app::blocking(move || read_batch(&reader)).await?;
            self.lost += frames.iter().map(|frame| frame.lost_before).sum::<u64>();
            if !frames.is_empty() {
                return Ok(Batch::Frames(frames));
            }
            match (next, ended) {
                (Next::End { lost, .. }, _) => {
                    let end = self.end.wait_for(Option::is_some).await;
                    // The command is forgotten only with its session.
                    let end = end.ok().and_then(|end| *end);
                    let end = end.unwrap_or(super::isolation::SESSION_GONE);
                    return Ok(Batch::End { end, lost: self.lost + lost });
                }
                // init died before it could write an end.
                (_, Some(end)) => return Ok(Batch::End { end, lost: self.lost }),
                (_, None) => {}
            }
            tokio::select! {
                _ = self.grew.changed() => {}
                _ = self.end.changed() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }
}

fn read_batch(
    reader: &Mutex<RecordReader<Arc<OwnedFd>>>,
) -> Result<(Vec<Frame>, Next), RecordError> {
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut frames, mut bytes) = (Vec::new(), 0);
    loop {
        match reader.next()? {
            Next::Frame(frame) => {
                bytes += frame.bytes.len();
                frames.push(frame);
                if bytes >= BATCH_BYTES {
                    return Ok((frames, Next::Pending));
                }
            }
            other => return Ok((frames, other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_runtime::record::{RecordWriter, Stream};
    use hangar_runtime::wire::warden::{EndCause, ExitStatus, OutputLimit};
    use rustix::event::{EventfdFlags, eventfd};

    const END: CommandEnd =
        CommandEnd { status: ExitStatus::Code(0), cause: EndCause::Own, pids_limit_hit: false };

    #[tokio::test(flavor = "multi_thread")]
    async fn two_followers_get_every_byte_of_a_record_that_grows() {
        let file = tempfile::tempfile().unwrap();
        let grew = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let tell = grew.try_clone().unwrap();
        let command = Arc::new(Command::new(CommandId(1)));
        command.attach(file.try_clone().unwrap().into(), grew).unwrap();
        let followers =
            [command.follow().unwrap(), command.follow().unwrap()].map(|mut follower| {
                tokio::spawn(async move {
                    let mut bytes: Vec<u8> = Vec::new();
                    loop {
                        match follower.next().await.unwrap() {
                            Batch::Frames(frames) => {
                                frames.iter().for_each(|f| bytes.extend(&f.bytes))
                            }
                            Batch::End { end, lost } => return (bytes, end, lost),
                        }
                    }
                })
            });
        let all: Vec<u8> = (0..5_000_000u32).map(|i| (i / 3) as u8).collect();
        let written = all.clone();
        crate::app::blocking(move || {
            let mut writer = RecordWriter::new(file, OutputLimit::default());
            for chunk in written.chunks(30_000) {
                writer.append(Stream::Stdout, chunk);
                rustix::io::write(&tell, &1u64.to_ne_bytes()).unwrap();
            }
            writer.end(ExitStatus::Code(0));
            rustix::io::write(&tell, &1u64.to_ne_bytes()).unwrap();
        })
        .await;
        command.set_end(END);
        for follower in followers {
            let (bytes, end, lost) = follower.await.unwrap();
            assert!(bytes == all, "{} of {} bytes", bytes.len(), all.len());
            assert_eq!((end, lost), (END, 0));
        }
    }

    #[tokio::test]
    async fn a_record_that_is_never_ended_ends_with_its_session() {
        let file = tempfile::tempfile().unwrap();
        let command = Arc::new(Command::new(CommandId(1)));
        let grew = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut writer = RecordWriter::new(file.try_clone().unwrap(), OutputLimit::default());
        writer.append(Stream::Stdout, b"half");
        command.attach(file.into(), grew).unwrap();
        let mut follower = command.follow().unwrap();
        assert!(matches!(follower.next().await.unwrap(), Batch::Frames(_)));
        command.set_end(super::super::isolation::SESSION_GONE);
        let Batch::End { end, .. } = follower.next().await.unwrap() else { panic!("no end") };
        assert_eq!(end.cause, EndCause::SessionEnded);
    }
}
