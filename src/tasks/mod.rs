//! Tasks: what a client asks of a harness, from the request to the stored response.
//!
//! A task is stored before anybody is told of it, runs in a session whoever listens, and its end
//! is stored before it is told. Reading order: [`request`], [`input`], [`harness`], [`begin`],
//! [`run`], [`timeline`], [`recover`].

pub mod artifacts;
pub mod begin;
pub mod budgets;
pub mod data_url;
pub mod engine;
pub mod events;
pub mod harness;
pub mod idempotency;
pub mod input;
pub mod placing;
pub mod recover;
pub mod request;
pub mod response;
pub mod run;
pub mod shell;
pub mod skills;
pub mod text;
pub mod timeline;
