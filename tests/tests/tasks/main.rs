//! Tasks as a client meets them: run, told, stopped, repeated, and what they read and leave.

mod environments;
mod inputs;
mod refusals;
mod repeats;
mod sessions;
mod stops;
mod streams;
