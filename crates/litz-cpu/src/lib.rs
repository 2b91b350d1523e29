//! Kernels to LLVM IR text to object code for CPUs.
