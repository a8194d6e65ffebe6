//! Sessions: what runs, its commands, their output, and the files they leave.

pub mod archive;
pub mod idle;
pub mod isolation;
pub mod live;
pub mod output;
pub mod presets;
pub mod service;
pub mod sweep;
pub mod workspace;
pub mod zip;
