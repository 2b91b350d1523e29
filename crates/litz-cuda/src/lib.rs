//! Makes code for NVIDIA GPUs through LLVM, and devices that run it.

// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

mod assembler;
mod backend;

pub use assembler::{Assembled, Assembler};
pub use backend::{CUDA, CudaBackend};
