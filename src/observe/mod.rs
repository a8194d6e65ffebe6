//! What an operator learns of a running server: an id and a line for each request, numbers, and
//! the audit log.
//!
//! Everything here looks at requests from outside: no handler says what it did, so none can
//! forget to.

pub mod audit;
pub mod metrics;
mod requests;

pub use requests::{Caller, observe};
