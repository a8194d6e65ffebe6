//! `cargo +nightly fuzz run name`: names of members.

#![no_main]

#[path = "../src/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::name(bytes));
