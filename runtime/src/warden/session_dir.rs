//! The directories of one session: `sessions/<id>/{workdir,home,tree,commands}`.

use super::blocks::block_of;
use super::state::{
    DIRECTORY, StateDir, exists, make_dir, names, open_below, open_file, publish, remove_dir,
    remove_file,
};
use crate::error::{AtStep, SetupError};
use crate::ids::{Block, CommandId, Range, SessionId};
use crate::wire::warden::ExitStatus;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchown, mkdirat, openat, renameat_with, statat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the session's user writes; each belongs to the agent's uid of the session's block.
const WRITTEN: [&str; 3] = ["workdir", "home", "tree"];
/// Holds what is to be deleted, while it is; belongs to the first uid of the block.
const DOOMED: &str = "doomed";
/// Ends the names of sessions that are being made.
pub(super) const TEMPORARY: &str = ".tmp";
/// Ends the names of sessions that are being removed.
pub(super) const REMOVING: &str = ".removing";

/// An open session directory.
#[derive(Debug)]
pub struct SessionDir {
    dir: OwnedFd,
    block: Block,
}

impl SessionDir {
    /// Makes the directories of a new session. The block is in use from here on.
    ///
    /// # Errors
    /// When the session exists or a call fails; then nothing is left.
    pub fn create(state: &StateDir, session: &SessionId, block: Block) -> Result<Self, SetupError> {
        let temporary = format!("{session}{TEMPORARY}");
        let result = Self::make(state, &temporary, block)
            .and_then(|()| publish(state.sessions.as_fd(), &temporary, session.as_str()));
        if let Err(error) = result {
            // The first error tells; start-up removes what this cannot.
            let _ = remove_unfinished(state, &temporary);
            return Err(error);
        }
        Self::open(state, session)
    }

    fn make(state: &StateDir, name: &str, block: Block) -> Result<(), SetupError> {
        let dir = make_dir(&state.sessions, name, 0, 0o700)?;
        make_dir(&dir, "commands", 0, 0o700)?;
        make_dir(&dir, "home", block.agent(), 0o700)?;
        make_dir(&dir, "workdir", block.agent(), 0o755)?;
        // Made now, because a session that took the last inode could not be removed otherwise.
        make_dir(&dir, DOOMED, block.base, 0o700)?;
        Ok(())
    }

    /// Opens a stored session.
    ///
    /// # Errors
    /// When it is not there, or its owner is no block of this range.
    pub fn open(state: &StateDir, session: &SessionId) -> Result<Self, SetupError> {
        let dir = open_below(&state.sessions, session.as_str())?;
        let stat = statat(&dir, "workdir", AtFlags::SYMLINK_NOFOLLOW)
            .at("open-session", || format!("fstatat({session}/workdir)"))?;
        let block = block_of(state.range(), stat.st_uid)
            .filter(|block| block.agent() == stat.st_uid)
            .ok_or_else(|| {
                SetupError::other(
                    "open-session",
                    format!("fstatat({session}/workdir)"),
                    format!("its owner {} is the agent of no block", stat.st_uid),
                )
            })?;
        Ok(Self { dir, block })
    }

    /// Whether the session is stored.
    ///
    /// # Errors
    /// When the state directory cannot be looked at.
    pub fn exists(state: &StateDir, session: &SessionId) -> Result<bool, SetupError> {
        exists(&state.sessions, session.as_str())
    }

    /// The uids of the session.
    #[must_use]
    pub fn block(&self) -> Block {
        self.block
    }

    /// `/workspace` of the session.
    ///
    /// # Errors
    /// When it is not there.
    pub fn workdir(&self) -> Result<OwnedFd, SetupError> {
        open_below(&self.dir, "workdir")
    }

    /// `/home/agent` of the session.
    ///
    /// # Errors
    /// When it is not there.
    pub fn home(&self) -> Result<OwnedFd, SetupError> {
        open_below(&self.dir, "home")
    }

    /// The staging tree of a build.
    ///
    /// # Errors
    /// When it is not there.
    pub fn tree(&self) -> Result<OwnedFd, SetupError> {
        open_below(&self.dir, "tree")
    }

    /// The staging tree of a build, made where it is missing.
    ///
    /// # Errors
    /// When a call fails.
    pub fn ensure_tree(&self) -> Result<OwnedFd, SetupError> {
        if exists(&self.dir, "tree")? {
            return self.tree();
        }
        // Renamed into place, so that no crash leaves a tree of the wrong owner.
        let temporary = "tree.tmp";
        remove_dir(&self.dir, temporary)?;
        make_dir(&self.dir, temporary, self.block.agent(), 0o755)?;
        publish(self.dir.as_fd(), temporary, "tree")?;
        self.tree()
    }

    /// Makes the output record of a new command, readable and writable.
    ///
    /// # Errors
    /// `EEXIST` when the command's number was used before.
    pub fn create_record(&self, command: CommandId) -> Result<OwnedFd, SetupError> {
        let commands = open_below(&self.dir, "commands")?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&commands, command.to_string(), flags, Mode::from_raw_mode(0o600))
            .at("create-record", || format!("openat(commands/{command}, CREATE|EXCL)"))
    }

    /// Opens the output record of a command, for reading or for its end.
    ///
    /// # Errors
    /// When it is not there.
    pub fn open_record(&self, command: CommandId, access: OFlags) -> Result<OwnedFd, SetupError> {
        open_file(&self.dir, &format!("commands/{command}"), access)
    }

    /// Ends the records of commands that died with an earlier warden.
    ///
    /// # Errors
    /// When a record cannot be read or written.
    pub(super) fn complete_records(&self) -> Result<(), SetupError> {
        let commands = open_below(&self.dir, "commands")?;
        for name in names(commands.as_fd())? {
            let file = open_file(&commands, &name, OFlags::RDWR)?;
            crate::record::complete(file, ExitStatus::Signal(libc::SIGKILL)).map_err(|error| {
                SetupError::other("complete-record", format!("commands/{name}"), error)
            })?;
        }
        Ok(())
    }

    /// Takes back the record of a command that was never started.
    ///
    /// # Errors
    /// When a call fails.
    pub fn remove_record(&self, command: CommandId) -> Result<(), SetupError> {
        remove_file(&open_below(&self.dir, "commands")?, &command.to_string())
    }
}

/// A session that is being removed: it is no session any more, its block is still in use.
#[derive(Debug)]
pub struct DoomedSession {
    /// The name in the sessions' directory.
    pub name: String,
    /// Gives its block back once [`Self::finish`] succeeded.
    pub block: Option<Block>,
    dir: OwnedFd,
}

impl DoomedSession {
    /// Takes a stored session's name away, for good.
    ///
    /// # Errors
    /// When it is not there.
    pub fn new(state: &StateDir, session: &SessionId) -> Result<Self, SetupError> {
        let name = format!("{session}{REMOVING}");
        publish(state.sessions.as_fd(), session.as_str(), &name)?;
        Self::open(state, name)
    }

    /// Opens one that an earlier warden left.
    ///
    /// # Errors
    /// When it is not there.
    pub fn open(state: &StateDir, name: String) -> Result<Self, SetupError> {
        let dir = open_below(&state.sessions, &name)?;
        let block = owner_block(state.range(), dir.as_fd())?;
        Ok(Self { name, block, dir })
    }

    /// Puts all that the session wrote into one directory that the worker can delete from;
    /// nothing when there is none.
    ///
    /// # Errors
    /// When a call fails; it can be done again.
    pub fn doom(&self) -> Result<Option<OwnedFd>, SetupError> {
        let step = "doom-session";
        let Some(block) = self.block else { return Ok(None) };
        match mkdirat(&self.dir, DOOMED, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).at(step, || format!("mkdirat({}/doomed)", self.name)),
        }
        let doomed = openat(&self.dir, DOOMED, DIRECTORY, Mode::empty())
            .at(step, || format!("openat({}/doomed)", self.name))?;
        fchown(&doomed, Some(Uid::from_raw(block.base)), Some(Gid::from_raw(block.base)))
            .at(step, || format!("fchown({}/doomed)", self.name))?;
        for name in WRITTEN {
            match renameat_with(&self.dir, name, &doomed, name, RenameFlags::NOREPLACE) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(errno)
                        .at(step, || format!("renameat2({}/{name}, doomed)", self.name));
                }
            }
        }
        Ok(Some(doomed))
    }

    /// Removes what the worker left: the warden's own files and empty directories.
    ///
    /// # Errors
    /// When something of the session is left.
    pub fn finish(&self, state: &StateDir) -> Result<(), SetupError> {
        remove_dir(&self.dir, DOOMED)?;
        remove_dir(&self.dir, "tree.tmp")?;
        if exists(&self.dir, "commands")? {
            let commands = open_below(&self.dir, "commands")?;
            for name in names(commands.as_fd())? {
                remove_file(&commands, &name)?;
            }
            remove_dir(&self.dir, "commands")?;
        }
        remove_dir(&state.sessions, &self.name)
    }
}

/// Removes a session that was never finished: its directories are empty.
///
/// # Errors
/// When something was written there after all.
pub(super) fn remove_unfinished(state: &StateDir, name: &str) -> Result<(), SetupError> {
    if !exists(&state.sessions, name)? {
        return Ok(());
    }
    let dir = open_below(&state.sessions, name)?;
    for entry in names(dir.as_fd())? {
        remove_dir(&dir, &entry)?;
    }
    remove_dir(&state.sessions, name)
}

/// The block of a session's directory, whatever state it is in; nothing when no file of a block
/// can be in it.
///
/// # Errors
/// When it cannot be looked at.
pub(super) fn owner_block(range: Range, dir: BorrowedFd<'_>) -> Result<Option<Block>, SetupError> {
    for name in WRITTEN.iter().chain(&[DOOMED]) {
        match statat(dir, *name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                if let Some(block) = block_of(range, stat.st_uid) {
                    return Ok(Some(block));
                }
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).at("find-block", || format!("fstatat({name})")),
        }
    }
    Ok(None)
}

/// The blocks of all directories below `sessions`.
///
/// # Errors
/// When one cannot be looked at: a block that is not seen could be given away.
pub(super) fn blocks_in_use(state: &StateDir) -> Result<Vec<Block>, SetupError> {
    let mut blocks = Vec::new();
    for name in state.session_names()? {
        let dir = open_below(&state.sessions, &name)?;
        blocks.extend(owner_block(state.range(), dir.as_fd())?);
    }
    Ok(blocks)
}
