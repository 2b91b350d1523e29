//! Gives each IR its text form: `Display` prints canonical text, and `parse` reads any text of the same grammar.
//!
//! Two laws hold: `parse(print(x))` is `x`, and `print(parse(t))` is `t` for canonical `t`. Names that are no plain
//! words print in quotes: `%"odd name"`. NaN prints as `nan`, whatever its sign and payload.

mod call;
mod control;
mod cursor;
pub mod graph;
pub mod kernel;
mod lexer;
pub mod loops;
pub(crate) mod print;
pub mod program;
pub mod schedule;
