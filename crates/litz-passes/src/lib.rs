//! Rewrites, one file each: graph to graph, loops to loops. Everything that changes *what* is computed happens here.
//!
//! A pass, its file, its name on the command line and its test folder are called the same.

#![forbid(unsafe_code)]
// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod graph;
pub mod loops;
