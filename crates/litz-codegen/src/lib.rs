//! Applies a schedule to loops, giving kernels and a program; the trait every backend implements.
