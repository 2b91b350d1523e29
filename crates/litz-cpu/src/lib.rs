//! Makes code for CPUs through LLVM, and devices that run it on threads of the host.

// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

mod backend;
mod caches;

pub use backend::{CPU, CpuBackend};
