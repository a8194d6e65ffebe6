//! Every artifact of a session as one archive, made while it is read.
//!
//! The tree is as hostile as for a single file: each name is opened below the session's view without
//! following a link, and what is no regular file any more is left out.

use super::workspace::{self, Artifact};
use super::zip::Zip;
use crate::app::blocking;
use crate::failure::{Code, Failure};
use bytes::Bytes;
use futures_util::Stream;
use std::fs::File;
use std::io::{self, Read as _, Take};
use std::os::fd::{AsFd as _, OwnedFd};

/// How much is made at once: what is in memory of an archive, whatever its size.
const PIECE_BYTES: usize = 256 << 10;

/// An archive of which a part was made.
struct Archive {
    view: OwnedFd,
    left: std::vec::IntoIter<Artifact>,
    zip: Zip,
    reading: Option<Take<File>>,
    ended: bool,
}

/// The files below a view as a zip archive. Work is done when somebody reads on, and only then.
///
/// # Errors
/// When the tree cannot be read, or has more files than are looked at: half of them would look like
/// all of them.
pub async fn stream(view: OwnedFd) -> Result<impl Stream<Item = io::Result<Bytes>>, Failure> {
    let listing = view.try_clone().map_err(|e| Failure::internal("reading the files", e))?;
    let found = workspace::list(listing, usize::MAX).await?;
    if found.cut {
        let why = "the session has more files than fit into one archive";
        return Err(Failure::new(Code::FileTooLarge, why));
    }
    let archive = Archive {
        view,
        left: found.files.into_iter(),
        zip: Zip::default(),
        reading: None,
        ended: false,
    };
    Ok(futures_util::stream::unfold(Some(archive), |archive| async {
        let mut archive = archive.filter(|archive| !archive.ended)?;
        let (made, archive) = blocking(move || (archive.piece(), archive)).await;
        // After an error nothing more comes; the client sees that the archive is not whole.
        match made {
            Ok(bytes) => Some((Ok(Bytes::from(bytes)), Some(archive))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

impl Archive {
    /// The next piece; the last one has the directory of the archive.
    fn piece(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; PIECE_BYTES];
        while self.zip.waiting() < PIECE_BYTES && !self.ended {
            match &mut self.reading {
                Some(file) => match file.read(&mut buffer)? {
                    0 => {
                        self.zip.end();
                        self.reading = None;
                    }
                    read => self.zip.add(&buffer[..read]),
                },
                None => self.open_next(),
            }
        }
        Ok(self.zip.take())
    }

    fn open_next(&mut self) {
        let Some(Artifact { path, modified_s, .. }) = self.left.next() else {
            self.zip.finish();
            self.ended = true;
            return;
        };
        // One that went away since it was listed is left out.
        if let Some((file, bytes)) = workspace::open_regular(self.view.as_fd(), &path) {
            self.zip.begin(&path, modified_s, bytes);
            // A file that grows meanwhile would have no end.
            self.reading = Some(file.take(bytes));
        }
    }
}
