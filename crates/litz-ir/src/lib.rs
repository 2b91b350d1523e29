//! Defines the five IRs of Litz (graph, loops, schedule, kernel, program) as plain data with one text form each.
//!
//! Nothing here transforms, decides, or does I/O. Every struct owns its entities in tables indexed by
//! `u32` newtypes; links from one IR to another are names, so any text file stands alone.

#![forbid(unsafe_code)]
// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod call;
pub mod diag;
pub mod dtype;
pub mod graph;
pub mod ids;
pub mod kernel;
pub mod loops;
pub mod parallel;
pub mod program;
pub mod scalar;
pub mod schedule;
pub mod schema;
pub mod target;
pub mod text;
pub mod verify;

pub use diag::{Diag, Diags};
pub use dtype::Dtype;
pub use scalar::{ReduceOp, Scalar, ScalarOp};
