//! Emits LLVM IR text for kernels and makes object code of it for CPUs.

// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

mod backend;
mod caches;
pub mod emit;
pub mod llvm;
pub mod vmath;

pub use backend::{CPU, CpuBackend};
