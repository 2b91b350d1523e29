//! Emits LLVM IR text for kernels and makes object code of it for CPUs.

mod backend;
mod caches;
pub mod emit;
pub mod llvm;
pub mod vmath;

pub use backend::{CPU, CpuBackend};
