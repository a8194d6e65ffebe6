//! The warden as its caller meets it: real sessions, jobs and crashes. Runs as root.

mod client;
mod crashes;
mod jobs;
mod sessions;
