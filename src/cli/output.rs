//! Standard output and standard error of this process, for the bytes of a command.

use super::error::{CliError, While, is_broken_pipe};
use super::frames::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::sync::Notify;

/// Writes byte for byte, without a buffer and without holding up the runtime.
#[derive(Debug)]
pub struct Output {
    stdout: Option<Arc<File>>,
    stderr: Option<Arc<File>>,
    /// Notified when whoever read standard output went away.
    pub unread: Arc<Notify>,
}

impl Output {
    /// The standard streams this process was started with.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn of_this_process() -> Result<Self, CliError> {
        let file = |fd: io::Result<_>| {
            fd.map(|fd| Some(Arc::new(File::from(fd)))).while_doing(|| "no descriptor is left")
        };
        Ok(Self {
            stdout: file(io::stdout().as_fd().try_clone_to_owned())?,
            stderr: file(io::stderr().as_fd().try_clone_to_owned())?,
            unread: Arc::default(),
        })
    }

    /// Writes to the stream of the same name; what nobody reads any more is dropped.
    ///
    /// # Errors
    /// When it cannot be written for any other reason.
    pub async fn write(&mut self, stream: Stream, bytes: Vec<u8>) -> Result<(), CliError> {
        let slot = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
            Stream::End => return Ok(()),
        };
        let Some(file) = slot.clone() else { return Ok(()) };
        let what = || "the output cannot be written";
        let written = tokio::task::spawn_blocking(move || write_all(&file, &bytes)).await;
        match written.while_doing(what)? {
            Err(error) if is_broken_pipe(&error) => {
                *slot = None;
                if stream == Stream::Stdout {
                    self.unread.notify_one();
                }
                Ok(())
            }
            other => other.while_doing(what),
        }
    }
}

/// Writes everything, also where whoever shares the stream made it non-blocking.
fn write_all(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(&file, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_stream_that_does_not_block_gets_everything_too() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&write, true).unwrap();
        let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i % 253) as u8).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || write_all(&File::from(write), &sent));
        let mut received = Vec::new();
        File::from(read).read_to_end(&mut received).unwrap();
        writer.join().unwrap().unwrap();
        assert!(received == expected);
    }

    #[tokio::test]
    async fn the_end_of_the_reader_is_told_once_and_is_no_error() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        let stdout = Some(Arc::new(File::from(write)));
        let mut output = Output { stdout, stderr: None, unread: Arc::default() };
        output.write(Stream::Stdout, b"x".to_vec()).await.unwrap();
        output.unread.notified().await;
        output.write(Stream::Stdout, b"x".to_vec()).await.unwrap();
        output.write(Stream::Stderr, b"x".to_vec()).await.unwrap();
    }
}
