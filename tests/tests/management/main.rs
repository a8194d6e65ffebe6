//! What is around tasks: harnesses, uploads, sharing, tokens and the limits of clients.

mod harnesses;
mod public;
mod sharing;
mod uploads;
