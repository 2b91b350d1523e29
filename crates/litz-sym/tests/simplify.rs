//! Checks the rules of simplification, as `written => simplified` under declared facts.

use litz_sym::{Expr, Facts, Range, Rel, Sym, parse};

fn read(text: &str) -> Expr {
    parse(text).expect("test text parses")
}

/// Sizes s0 in [2, 1024], s1 in [1, inf], s2 in [0, 64] and a multiple of 8; `i < s0`, `j < s1`, `k < s2`;
/// a < 2, b < 4, c < 8, d < 64; `n` from -8 to 7; `x`, `y` unknown.
fn facts() -> Facts {
    let mut facts = Facts::new();
    facts.declare(Sym::new("s0"), Range::new(2, 1024), Some(16));
    facts.declare(Sym::new("s1"), Range::at_least(1), None);
    facts.declare(Sym::new("s2"), Range::new(0, 64), None);
    facts.declare_divisor(Sym::new("s2"), 8);
    facts.declare(Sym::new("n"), Range::new(-8, 7), None);
    for (index, extent) in
        [("i", "s0"), ("j", "s1"), ("k", "s2"), ("a", "2"), ("b", "4"), ("c", "8"), ("d", "64")]
    {
        facts.declare_index(Sym::new(index), read(extent));
    }
    facts
}

/// Each line is `written => simplified`.
fn check(facts: &Facts, rules: &str) {
    for rule in rules.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (written, simple) = rule.split_once(" => ").expect("a rule has two sides");
        assert_eq!(facts.simplify(read(written)).to_string(), simple, "{written}");
    }
}

#[test]
fn small_operands_vanish() {
    check(
        &facts(),
        "floordiv(d, 64) => 0
         floordiv(64*x + d, 64) => x
         mod(64*x + d, 64) => d
         mod(d, 65) => d
         floordiv(n, 8) => floordiv(n, 8)
         floordiv(n - 8, 16) => -1
         mod(n - 8, 16) => n + 8
         mod(n + 8, 16) => n + 8
         floordiv(n + 24, 16) => 1
         mod(d + 64, 64) => d
         floordiv(x, 64) => floordiv(x, 64)",
    );
}

#[test]
fn remainders_below_a_common_divisor_vanish() {
    check(
        &facts(),
        "floordiv(8*x + c, 64) => floordiv(x, 8)
         mod(8*x + c, 64) => c + 8*mod(x, 8)
         floordiv(16*x + 4*b + 3, 64) => floordiv(x, 4)
         floordiv(32*x + 8*b + c, 64) => floordiv(x, 2)
         mod(32*x + 8*b + c, 64) => 8*b + c + 32*mod(x, 2)
         floordiv(8*x + c + 8, 64) => floordiv(x + 1, 8)
         floordiv(8*x - c - 1, 64) => ceildiv(x, 8) - 1
         floordiv(6*x + c, 12) => floordiv(c + 6*x, 12)",
    );
}

#[test]
fn symbolic_sizes() {
    check(
        &facts(),
        "floordiv(s0*x + i, s0) => x
         mod(s0*x + i, s0) => i
         mod(i, s0) => i
         mod(i, 2*s0) => i
         mod(i - s0, s0) => i
         floordiv(i - s0, s0) => -1
         floordiv(s0*s1*x + s1*i + j, s1) => i + s0*x
         floordiv(s0*s1*x + s1*i + j, s0*s1) => x
         mod(floordiv(s0*s1*x + s1*i + j, s1), s0) => i
         mod(s1*i + j, s0*s1) => i*s1 + j
         floordiv(floordiv(x, s0), s1) => floordiv(x, s0*s1)
         floordiv((s0 + 1)*x + i, s0 + 1) => x
         floordiv(s1*x + j, s0*s1) => floordiv(x, s0)
         mod(s1*x + j, s0*s1) => j + s1*mod(x, s0)
         floordiv(s1*i + j, 4*s1) => floordiv(i, 4)
         floordiv(j, s0) => floordiv(j, s0)
         mod(mod(x, s0), s0) => mod(x, s0)",
    );
}

#[test]
fn flattened_indices_split_again() {
    let mut facts = facts();
    facts.declare_index(Sym::new("x"), read("64*s0"));
    facts.declare_index(Sym::new("y"), read("64*s0*s1"));
    check(
        &facts,
        "mod(floordiv(x, 64), s0) => floordiv(x, 64)
         floordiv(x, 64*s0) => 0
         mod(floordiv(y, 64*s1), s0) => floordiv(y, 64*s1)
         floordiv(y, 64*s1*s0) => 0
         64*s1*floordiv(y, 64*s1) + 64*mod(floordiv(y, 64), s1) + mod(y, 64) => y
         mod(floordiv(y, 64), s0*s1) => floordiv(y, 64)
         min(floordiv(y, s1), 64*s0 - 1) => floordiv(y, s1)",
    );
}

#[test]
fn split_and_merge_cancel() {
    check(
        &facts(),
        "64*floordiv(x, 64) + mod(x, 64) => x
         y + 3*mod(x, 64) + 192*floordiv(x, 64) => 3*x + y
         s0*floordiv(x, s0) + mod(x, s0) => x
         x - 64*floordiv(x, 64) => mod(x, 64)
         x - mod(x, 64) => 64*floordiv(x, 64)
         64*floordiv(x, 64) + 8*mod(floordiv(x, 8), 8) + mod(x, 8) => x
         8*mod(floordiv(x, 8), 8) + mod(x, 8) => mod(x, 64)
         s1*floordiv(x, s1) + mod(x, s1) + s0*y => s0*y + x
         floordiv(4*floordiv(x, 4) + mod(x, 4), 8) => floordiv(x, 8)
         floordiv(4*floordiv(x, 4), 4) => floordiv(x, 4)
         floordiv(4*floordiv(x, 4) + b, 8) => floordiv(x, 8)
         4*floordiv(4*x + 2*y, 4) + 2*mod(y, 2) => 4*x + 2*y
         s0*s1*floordiv(x, s0*s1) + s1*mod(floordiv(x, s1), s0) + mod(x, s1) => x",
    );
}

#[test]
fn known_divisors() {
    check(
        &facts(),
        "mod(s2, 8) => 0
         mod(s2*x, 4) => 0
         8*floordiv(s2, 8) => s2
         s2 - 4*floordiv(s2, 4) => 0
         floordiv(s2 + c, 8) => floordiv(s2, 8)
         mod(s2 + c, 8) => c
         mod(s2 + c, 16) => mod(c + s2, 16)
         floordiv(s2, 8) => floordiv(s2, 8)
         8*ceildiv(s2, 8) => s2",
    );
}

#[test]
fn extrema_by_bounds() {
    check(
        &facts(),
        "min(d, 64) => d
         max(d, 0) => d
         max(n, 0) => max(n, 0)
         min(max(d, 0), 63) => d
         max(0, d - 64) => 0
         min(i, s0 - 1) => i
         min(i + 1, s0) => i + 1
         max(i, s0) => s0
         min(s0, s0 + s1) => s0
         max(min(j, s1), 0) => j
         min(x, min(d, 70)) => min(d, x)
         floordiv(min(c, 9), 8) => 0",
    );
}

#[test]
fn guards_substitute() {
    let mut facts = facts();
    facts.declare(Sym::new("s3"), Range::new(0, 100), None);
    facts.declare(Sym::new("s4"), Range::new(0, 100), None);
    for guard in [Rel::eq(read("s4"), read("s3")), Rel::eq(read("2*s3"), 24), Rel::lt(read("x"), read("s2"))]
    {
        facts.require(guard, "test").expect("possible");
    }
    check(
        &facts,
        "s3 + s4*x => 12*x + 12
         floordiv(12*x + a, s4) => x
         max(x, s2) => s2",
    );
}

#[test]
fn extents_of_one_are_zero() {
    let mut facts = Facts::new();
    facts.declare_index(Sym::new("i"), Expr::one());
    check(&facts, "768*i + floordiv(i + j, 2) => floordiv(j, 2)");
}

#[test]
fn effort_is_bounded() {
    // Each level mentions the last one twice: 2^30 nodes as a tree.
    let facts = facts();
    let mut e = read("i + x");
    let start = std::time::Instant::now();
    for level in 1..30 {
        e = (e + read("j")).min(e.modulo(level + 5) + read("d")).floordiv(e);
        facts.simplify(e);
        facts.bounds(e);
    }
    assert!(e.size() > 1 << 29 && start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn digits_of_symbolic_radix_are_put_together() {
    check(
        &facts(),
        "s0*floordiv(x, s0 + 3) + 3*floordiv(x, s0 + 3) + mod(x, s0 + 3) => x
         13*s0*floordiv(x, 13*s0 + 39) + s0*floordiv(mod(x, 13*s0 + 39), s0 + 3) + 39*floordiv(x, 13*s0 + 39) + 3*floordiv(mod(x, 13*s0 + 39), s0 + 3) + mod(x, s0 + 3) => x",
    );
}

#[test]
fn indices_that_may_have_no_value_keep_their_names() {
    let mut facts = facts();
    facts.declare(Sym::new("s3"), Range::at_least(0), None);
    facts.declare_index(Sym::new("at_most_one"), read("min(s3, 1)"));
    facts.declare_index(Sym::new("one"), read("min(s1, 1)"));
    check(
        &facts,
        "i + 2*at_most_one => 2*at_most_one + i
         2*one + i => i",
    );
}
