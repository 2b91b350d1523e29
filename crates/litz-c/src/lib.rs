//! Writes compiled programs as C: a pure function from a program and its kernels to the text that calls their machine code.
//!
//! What comes out needs the C library and POSIX threads, and nothing of Litz's runtime. [`write()`] gives the source and the header of one
//! model; [`SUPPORT`] has the files that all models share, [`makefile`] what builds them, [`layout`] says what the file of weights
//! holds.
//!
//! Every step of the program becomes a statement or two, in the order of the program, and every size an expression of C. Sizes
//! are `int64_t`. Where ranges show that an expression cannot overflow it is written with C's operators, else with calls that note
//! what overflows, so that the call fails.

#![forbid(unsafe_code)]

mod expr;
mod inputs;
mod kernels;
mod model;
mod names;
mod routines;
mod scope;
mod steps;
mod support;
mod weights;

pub use model::{Model, Source, write};
pub use names::{identifier, quoted};
pub use support::{SUPPORT, makefile};
pub use weights::{Constant, HEADER_BYTES, Layout, header, layout};

/// Something that programs of C do not do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported(pub String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}
