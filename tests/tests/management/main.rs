//! What is around tasks: harnesses, uploads, sharing, tokens and the limits of clients.

mod harnesses;
mod public;
mod sharing;
mod slow;
mod tokens;
mod uploads;

/// Waits for something that comes by itself, and fails where it does not.
fn until(what: &str, mut look: impl FnMut() -> bool) {
    hangar_tests::processes::wait_for(what, || look().then_some(()));
}
