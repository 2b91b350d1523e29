//! Kernels emitted, compiled, loaded and run, against direct computations.

mod harness;
mod matrix;
mod numeric;
mod pointwise;
mod reductions;
mod text;
mod tiles;
