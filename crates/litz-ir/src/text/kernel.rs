//! Prints and parses kernels.

mod parse;
mod print;

pub use parse::parse;
