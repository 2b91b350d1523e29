//! Emits LLVM IR text for kernels, and makes machine code of it.

// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod emit;
mod host;
pub mod llvm;
mod processor;
pub mod vmath;

pub use processor::{Isa, Processor};
