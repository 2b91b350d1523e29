//! Times construction, simplification and proofs on index expressions of common models.
//!
//! `cargo bench -p litz-sym`. The names of the cases are the expressions.

use divan::{Bencher, black_box};
use litz_sym::{Expr, Facts, Range, Rel, Sym, parse, parse_rel};

fn main() {
    divan::main();
}

/// `s0` in [2, 1024], `s1` at least 1; `i < s0`, `j < s1`, `b < 8`, `c < 64`, `h < 56`, `w < 56`.
fn facts() -> Facts {
    let mut facts = Facts::new();
    facts.declare(Sym::new("s0"), Range::new(2, 1024), Some(16));
    facts.declare(Sym::new("s1"), Range::at_least(1), Some(16));
    for (index, extent) in [("i", "s0"), ("j", "s1"), ("b", "8"), ("c", "64"), ("h", "56"), ("w", "56")] {
        facts.declare_index(Sym::new(index), read(extent));
    }
    facts
}

fn read(text: &str) -> Expr {
    parse(text).expect("case parses")
}

/// `768*i + 64*b + c`: one row-major offset from three indices, all nodes known to the interner.
#[divan::bench]
fn construct_offset(bencher: Bencher) {
    let (i, b, c) = (Expr::named("i"), Expr::named("b"), Expr::named("c"));
    bencher.bench(|| black_box(i) * 768 + black_box(b) * 64 + black_box(c));
}

/// `i + 1`: one node known to the interner.
#[divan::bench]
fn construct_add(bencher: Bencher) {
    let i = Expr::named("i");
    bencher.bench(|| black_box(i) + 1);
}

/// `s0*i + j`: symbolic strides.
#[divan::bench]
fn construct_symbolic_offset(bencher: Bencher) {
    let (i, j, s0) = (Expr::named("i"), Expr::named("j"), Expr::named("s0"));
    bencher.bench(|| black_box(s0) * black_box(i) + black_box(j));
}

/// `floordiv(x + 3, 64)`: an atom that stays.
#[divan::bench]
fn construct_floordiv(bencher: Bencher) {
    let x = Expr::named("x") + 3;
    bencher.bench(|| black_box(x).floordiv(64));
}

/// A node that the interner has not seen.
#[divan::bench]
fn construct_fresh(bencher: Bencher) {
    let i = Expr::named("i");
    let mut constant = 1 << 20;
    bencher.bench_local(|| {
        constant += 1;
        black_box(i) + constant
    });
}

#[divan::bench(args = [
    "768*i + 64*b + c",
    "floordiv(64*i + c, 64)",
    "mod(64*i + c, 64)",
    "floordiv(3136*c + 56*h + w, 56)",
    "mod(floordiv(3136*c + 56*h + w, 56), 56)",
    "mod(floordiv(512*i + 64*b + c, 64), 8)",
    "floordiv(s1*i + j, s1)",
    "mod(s0*s1*c + s1*i + j, s0*s1)",
    "64*floordiv(x, 64) + 8*mod(floordiv(x, 8), 8) + mod(x, 8)",
    "min(max(h - 1, 0), 55) + 56*min(max(w + 1, 0), 55)",
    "floordiv(32*floordiv(x, 64) + mod(floordiv(x, 2), 32), 4)",
])]
fn simplify(bencher: Bencher, text: &str) {
    let (facts, e) = (facts(), read(text));
    bencher.bench(|| facts.simplify(black_box(e)));
}

#[divan::bench(args = [
    "64*b + c < 512",
    "c + 64*i < 64*s0",
    "s1*i + j < s0*s1",
    "64*floordiv(s0, 64) <= s0",
    "x < s0",
])]
fn known(bencher: Bencher, text: &str) {
    let (facts, rel) = (facts(), parse_rel(text).expect("case parses"));
    bencher.bench(|| facts.known(black_box(&rel)));
}

/// A guard that narrows one range, on facts about eight symbols.
#[divan::bench]
fn require(bencher: Bencher) {
    let rel = Rel::le(Expr::named("s1"), 4096);
    bencher.with_inputs(facts).bench_values(|mut facts| facts.require(rel, "bench").map(|()| facts));
}

#[divan::bench]
fn parse_text(bencher: Bencher) {
    bencher.bench(|| parse(black_box("mod(floordiv(3136*c + 56*h + w, 56), 56)")));
}
