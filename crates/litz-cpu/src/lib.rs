//! Kernels to LLVM IR text to object code for CPUs.

pub mod emit;
pub mod llvm;
pub mod vmath;
