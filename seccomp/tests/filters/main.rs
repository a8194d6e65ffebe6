//! The filters, by running their bytes here and in the kernel.

mod examples;
mod golden;
mod interpreter;
mod kernel;
mod programs;
