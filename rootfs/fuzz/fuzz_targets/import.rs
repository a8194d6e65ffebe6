//! `cargo +nightly fuzz run import`: uploads of every format.

#![no_main]

#[path = "../src/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::import(bytes));
