//! Symbolic integers: text or arithmetic into interned canonical expressions, and facts about symbols into
//! simplified expressions, bounds and proofs.
//!
//! Pure algebra: nothing here knows tensors. An [`Expr`] is one pointer; equal expressions are the same pointer, so
//! equality and hashing take constant time. What is known about symbols (ranges, divisors, guards) lives in
//! [`Facts`], never in the expression.
//!
//! ```
//! use litz_sym::{Facts, Range, Sym, parse, parse_rel};
//!
//! let mut facts = Facts::new();
//! facts.declare(Sym::new("s0"), Range::new(2, 1024), Some(16));
//! facts.declare_index(Sym::new("i"), parse("s0")?);
//! facts.declare_index(Sym::new("c"), parse("64")?);
//! assert_eq!(facts.simplify(parse("mod(64*i + c, 64)")?), parse("c")?);
//! assert!(facts.holds(&parse_rel("64*i + c < 64*s0")?));
//! # Ok::<(), litz_sym::ParseError>(())
//! ```
//!
//! Values are `i64`. Constant folding **saturates** at the `i64` limits, and an expression that divides by zero has
//! no value: a rewrite may give it one (`floordiv(s0, s0) => 1`). Where the written expression evaluates without
//! overflow or division by zero, every form this crate rewrites it into evaluates to the same number.
#![forbid(unsafe_code)]

mod answers;
mod bounds;
mod build;
mod digits;
mod expr;
mod facts;
mod points;
mod prove;
mod rel;
mod simplify;
mod solve;
mod text;

pub use bounds::Range;
pub use expr::{Expr, Interned, Kind, Sym, Terms, interned};
pub use facts::{Contradiction, Facts, Guard};
pub use rel::{Clause, Cmp, Known, Rel};
pub use solve::{checked_product, solve_linear};
pub use text::{ParseError, parse, parse_prefix, parse_rel};
