//! Files that a task is sent: they are written into the session by the session's own user.

use super::input::{self, Content, Input};
use crate::app::{App, blocking};
use crate::failure::{Failure, Tried};
use crate::sessions::service::{self, NewCommand};
use crate::store::SessionRow;
use crate::uploads;
use hangar_runtime::ids::CommandId;
use hangar_runtime::wire::warden::{CommandEnd, EndCause, ExitStatus, OutputLimit};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{Seek, Write};

/// A file on its way into a session.
#[derive(Debug)]
pub struct Placed {
    /// Its path, relative to the working directory or absolute.
    pub path: String,
    /// Its bytes, from their beginning.
    pub file: File,
    /// What becomes of them.
    pub how: How,
}

/// What the bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The content of the file.
    File,
    /// A tar archive of a directory, which takes the place of what is there.
    Tree,
}

impl How {
    /// What the session's shell does with standard input and the path.
    fn script(self) -> &'static str {
        match self {
            Self::File => "exec cat > \"$1\"",
            Self::Tree => "rm -rf \"$1\" && mkdir -p \"$1\" && exec tar -xf - -C \"$1\"",
        }
    }
}

/// Opens all files of a request, so that they stay what they are.
///
/// # Errors
/// [`crate::failure::Code::FileNotFound`] when an upload is not there.
pub async fn open(app: &App, scope: &str, input: &Input) -> Result<Vec<Placed>, Failure> {
    let mut placed = Vec::new();
    let mut taken: HashSet<String> =
        input.files.iter().map(|file| file.name.clone()).filter(|name| !name.is_empty()).collect();
    for file in &input.files {
        placed.push(match &file.content {
            Content::Inline(bytes) => in_memory(&file.name, bytes.clone()).await?,
            Content::Upload(id) => {
                let opened = uploads::open(app, scope, id).await;
                let (row, bytes) = opened.map_err(|failure| failure.with_param(&file.param))?;
                let name = match file.name.as_str() {
                    // A name that is none in a directory cannot be the upload's.
                    "" => input::plain_name(&row.name).unwrap_or_else(|| row.id.clone()),
                    name => name.to_owned(),
                };
                let name =
                    if file.name.is_empty() { input::free_name(&name, &taken) } else { name };
                taken.insert(name.clone());
                Placed { path: name, file: bytes, how: How::File }
            }
        });
    }
    Ok(placed)
}

/// A file that is in memory only.
///
/// # Errors
/// When there is no memory for it.
pub async fn in_memory(path: &str, bytes: Vec<u8>) -> Result<Placed, Failure> {
    let path = path.to_owned();
    let file = blocking(move || {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("hangar-input", flags)?);
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok::<_, std::io::Error>(file)
    });
    Ok(Placed { path, file: file.await.tried("keeping an input file")?, how: How::File })
}

/// Writes a file into a running session, as its user; `false` when that user could not.
///
/// # Errors
/// When the command that writes it cannot be started.
pub async fn place(
    app: &App,
    session: &SessionRow,
    number: CommandId,
    placed: Placed,
) -> Result<bool, Failure> {
    let command = NewCommand {
        program: ["/bin/sh", "-c", placed.how.script(), "sh", &placed.path]
            .map(str::to_owned)
            .into(),
        variables: BTreeMap::new(),
        directory: None,
        timeout_ms: None,
        output: OutputLimit { head_bytes_max: 64 << 10, tail_bytes_max: 0 },
    };
    let command = service::start(app, session, &command, number, Some(placed.file.into())).await?;
    let end = command.ended().await;
    app.isolations.release(&session.id, number);
    let written = CommandEnd { status: ExitStatus::Code(0), cause: EndCause::Own, ..end };
    Ok(end == written)
}
