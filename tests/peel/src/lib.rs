//! Test only. See [`spec::Spec`]; the program beside it runs one.

#![forbid(unsafe_code)]

pub mod liar;
pub mod spec;
