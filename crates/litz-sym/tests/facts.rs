//! Checks declarations, bounds, proofs and guards.

use litz_sym::{Clause, Expr, Facts, Guard, Known, Range, Rel, Sym, parse, parse_rel};

fn read(text: &str) -> Expr {
    parse(text).expect("test text parses")
}

fn rel(text: &str) -> Rel {
    parse_rel(text).expect("test text parses")
}

/// Sizes s0 in [2, 1024], s1 in [0, inf], s2 a multiple of 8; indices `i < s0`, `j < s1`, `t < ceildiv(s0, 64)`,
/// `u < floordiv(s0, 64)`, `c < 32`.
fn facts() -> Facts {
    let mut facts = Facts::new();
    facts.declare(Sym::new("s0"), Range::new(2, 1024), Some(16));
    facts.declare(Sym::new("s1"), Range::at_least(0), Some(3));
    facts.declare(Sym::new("s2"), Range::new(0, 640), None);
    facts.declare_divisor(Sym::new("s2"), 8);
    for (index, extent) in
        [("i", "s0"), ("j", "s1"), ("t", "ceildiv(s0, 64)"), ("u", "floordiv(s0, 64)"), ("c", "32")]
    {
        facts.declare_index(Sym::new(index), read(extent));
    }
    facts
}

fn check(facts: &Facts, cases: &[(&str, Known)]) {
    for (text, expected) in cases {
        assert_eq!(facts.known(&rel(text)), *expected, "{text}");
        let opposite = match expected {
            Known::Yes => Known::No,
            Known::No => Known::Yes,
            Known::Unknown => Known::Unknown,
        };
        assert_eq!(facts.known(&rel(text).negate()), opposite, "negated {text}");
    }
}

#[test]
fn declarations_are_kept_in_order() {
    let facts = facts();
    let names: Vec<&str> = facts.symbols().map(Sym::name).collect();
    assert_eq!(names, ["s0", "s1", "s2", "i", "j", "t", "u", "c"]);
    assert_eq!(facts.range_of(Sym::new("i")), Range::new(0, 1023));
    assert_eq!(facts.range_of(Sym::new("t")), Range::new(0, 15));
    assert_eq!(facts.range_of(Sym::new("j")), Range::at_least(0));
    assert_eq!(facts.range_of(Sym::new("unknown")), Range::ALL);
    assert!(facts.is_symbol_declared(Sym::new("c")) && !facts.is_symbol_declared(Sym::new("unknown")));
    assert_eq!(facts.extent_of(Sym::new("c")), None);
    assert_eq!(facts.extent_of(Sym::new("j")), Some(read("s1")));
}

#[test]
fn bounds_by_intervals_and_elimination() {
    let facts = facts();
    for (text, expected) in [
        ("2*c + 1", "[1, 63]"),
        ("c - 32", "[-32, -1]"),
        ("i*c", "[0, 31713]"),
        ("j", "[0, inf]"),
        ("x", "[-inf, inf]"),
        ("0*x + 3", "[3, 3]"),
        ("mod(x, 8)", "[0, 7]"),
        ("mod(c, 64)", "[0, 31]"),
        ("mod(c - 32, 64)", "[32, 63]"),
        ("floordiv(c - 5, 4)", "[-2, 6]"),
        ("mod(x, -8)", "[-7, 0]"),
        ("mod(x, s0)", "[0, 1023]"),
        ("floordiv(c, s0)", "[0, 15]"),
        ("min(c, x)", "[-inf, 31]"),
        ("max(c, x)", "[0, inf]"),
        ("i - s0", "[-1024, -1]"),
        ("s0*j - s0*s1 + i", "[-inf, -1]"),
        ("s0 - 64*floordiv(s0, 64)", "[0, 63]"),
        ("64*ceildiv(s0, 64) - s0", "[0, 63]"),
        ("32*floordiv(s2 + 24, 32) - s2", "[0, 24]"),
        ("floordiv(s0, 2) - s0", "[-512, -1]"),
        ("min(s0, x) - s0", "[-inf, 0]"),
        ("max(s0, x) - s0", "[0, inf]"),
        ("mod(x, s0) - s0", "[-1024, -1]"),
    ] {
        assert_eq!(facts.bounds(read(text)).to_string(), expected, "{text}");
    }
}

#[test]
fn bounds_saturate() {
    let mut facts = Facts::new();
    facts.declare(Sym::new("big"), Range::new(0, i64::MAX - 1), None);
    assert_eq!(facts.bounds(read("4*big")).to_string(), "[0, inf]");
    assert_eq!(facts.bounds(read("-4*big")).to_string(), "[-inf, 0]");
    assert_eq!(facts.bounds(read("big*big - big")).lo, i64::MIN + 2);
}

#[test]
fn tiles_are_in_bounds() {
    use Known::{No, Unknown, Yes};
    check(
        &facts(),
        &[
            ("i < s0", Yes),
            ("i <= s0 - 1", Yes),
            ("i == s0", No),
            ("c + 32*i < 32*s0", Yes),
            ("s1*i + j < s0*s1", Yes),
            ("s1*s0*c + s1*i + j < 32*s0*s1", Yes),
            ("s1*i + j >= s0*s1", No),
            ("s0*j + i < s0*s1 - 1", Unknown),
            // Full tiles end inside, the last tile of a rounded-up split may not.
            ("64*u + 2*c + 1 < s0", Yes),
            ("64*t + 2*c + 1 < s0", Unknown),
            ("64*t < s0", Yes),
            ("64*t + 2*c < s0 + 63", Yes),
            ("64*floordiv(s0, 64) <= s0", Yes),
            ("2*c == 7", No),
            ("2*s1 + 4*x == 7", No),
            ("s2 == 12", No),
            ("s2 == 16", Unknown),
            ("s0 != 0", Yes),
            ("s0 == 1", No),
            ("x == x", Yes),
            ("x < x", No),
            ("x < y", Unknown),
            ("max(c, i) < max(s0, 32)", Yes),
        ],
    );
}

#[test]
fn divisibility() {
    let facts = facts();
    for (divisor, text, expected) in [
        (8, "s2", true),
        (4, "s2", true),
        (16, "s2", false),
        (16, "2*s2 + 32", true),
        (64, "s2*s2", true),
        (3, "6*x - 9*y", true),
        (3, "6*x + 1", false),
        (4, "mod(s2, 12)", true),
        (2, "floordiv(s2, 4)", true),
        (8, "min(s2, 16)", true),
        (5, "0", true),
        (0, "x", false),
        (-8, "s2", true),
    ] {
        assert_eq!(facts.divides(divisor, read(text)), expected, "{divisor} {text}");
    }
}

#[test]
fn hints_evaluate() {
    let mut facts = facts();
    assert_eq!(facts.hint(read("2*s0 + floordiv(s1, 2)")), Some(33));
    assert_eq!(facts.hint(read("s0 + s2")), None);
    facts.require(rel("s2 == 2*s0"), "test").expect("possible");
    assert_eq!(facts.hint(read("s0 + s2")), Some(48));
}

#[test]
fn requiring_what_is_known_adds_nothing() {
    let mut facts = facts();
    assert_eq!(facts.require(rel("i < s0"), "view"), Ok(()));
    assert!(facts.guards().is_empty());
    let refused = facts.require(rel("s0 == 1"), "view").expect_err("s0 is at least 2");
    assert_eq!(refused.to_string(), "view requires s0 == 1, which can never hold");
    assert!(facts.guards().is_empty());
}

#[test]
fn guards_narrow_ranges() {
    let mut facts = facts();
    for (text, sym, range) in [
        ("s0 < 100", "s0", "[2, 99]"),
        ("3*s0 >= 10", "s0", "[4, 99]"),
        ("-2*s0 >= -101", "s0", "[4, 50]"),
        ("s0 != 4", "s0", "[5, 50]"),
        ("s0 != 7", "s0", "[5, 50]"),
        ("s1 > 0", "s1", "[1, inf]"),
        ("v < 10", "v", "[-inf, 9]"),
    ] {
        facts.require(rel(text), "test").expect("possible");
        assert_eq!(facts.range_of(Sym::new(sym)).to_string(), range, "{text}");
    }
    assert_eq!(facts.guards().len(), 7);
    assert_eq!(facts.guards()[0], Guard { clause: rel("s0 < 100").into(), who: "test".into() });
    check(&facts, &[("s0 == 7", Known::No), ("s0 == 8", Known::Unknown), ("7 != s0", Known::Yes)]);
}

#[test]
fn alternatives_are_checked_and_teach_nothing() {
    let mut facts = facts();
    let clause = |texts: &[&str]| Clause::new(texts.iter().map(|text| rel(text)));
    let one_or_more = clause(&["s1 == 1", "s1 == s2"]);
    facts.require(one_or_more.clone(), "add").expect("possible");
    assert_eq!(facts.guards(), [Guard { clause: one_or_more, who: "add".into() }]);
    check(&facts, &[("s1 == 1", Known::Unknown), ("s1 == s2", Known::Unknown)]);
    // s0 is at least 2: what never holds is left out, and what is left alone teaches.
    facts.require(clause(&["s0 == 1", "s0 == 7"]), "mul").expect("possible");
    assert_eq!(facts.guards()[1].clause, rel("s0 == 7").into());
    assert_eq!(facts.simplify(read("s0")), Expr::int(7));
    // What one alternative always fulfils is no guard.
    facts.require(clause(&["s1 == 3", "s0 == 7"]), "sub").expect("possible");
    assert_eq!(facts.guards().len(), 2);
    for (texts, known) in [
        (&["s0 == 7", "s1 == 3"][..], Known::Yes),
        (&["s1 == 3", "s0 == 8"], Known::Unknown),
        (&["s0 == 8", "s0 > 9"], Known::No),
        (&[], Known::No),
    ] {
        assert_eq!(facts.known_clause(&clause(texts)), known, "{texts:?}");
    }
    let refused = facts.require(clause(&["s0 == 1", "s0 < 0"]), "div").expect_err("s0 is 7");
    assert_eq!(refused.to_string(), "div requires s0 == 1 or s0 < 0, which can never hold");
}

#[test]
fn guards_prove_relations() {
    let mut facts = facts();
    facts.require(rel("x <= y"), "test").expect("possible");
    facts.require(rel("a*b != z"), "test").expect("possible");
    use Known::{No, Unknown, Yes};
    check(
        &facts,
        &[
            ("x <= y", Yes),
            ("x < y + 1", Yes),
            ("x <= y + s1", Yes),
            ("y < x", No),
            ("x < y", Unknown),
            ("y + s0 == x", No),
            ("z != a*b", Yes),
        ],
    );
}

#[test]
fn multiples_of_guards_prove_relations() {
    let mut facts = facts();
    // As x + 11*y <= 20, which is all that it says of whole numbers.
    facts.require(rel("6 <= 128 - 6*x - 66*y"), "test").expect("possible");
    facts.declare(Sym::new("of_six"), Range { lo: 0, hi: 5 }, None);
    use Known::{Unknown, Yes};
    check(
        &facts,
        &[
            ("of_six + 6*x + 66*y < 128", Yes),
            ("of_six + 6*x + 66*y < 126", Yes),
            ("of_six + 6*x + 66*y < 125", Unknown),
            ("2*of_six + 12*x + 132*y < 256", Yes),
            ("of_six + 7*x + 77*y < 128", Unknown),
            ("of_six + 6*x + 67*y < 128", Unknown),
        ],
    );
}

#[test]
fn common_factors_of_quotients_are_taken_out_first() {
    use Known::{No, Unknown, Yes};
    let (least, rounded) = ("4*s1 + 2*floordiv(s1, 2)", "256*ceildiv(2*s1 + floordiv(s1, 2), 128)");
    check(
        &facts(),
        &[
            (&format!("{least} <= {rounded}"), Yes),
            (&format!("{least} < {rounded}"), Unknown),
            (&format!("{rounded} + 1 <= {least}"), No),
        ],
    );
}

#[test]
fn equalities_eliminate_the_later_symbol() {
    let mut facts = facts();
    facts.require(rel("s0 == 2*s1"), "test").expect("possible");
    // 2*s1 has the range of s0.
    assert_eq!(facts.range_of(Sym::new("s0")), Range::new(2, 1024));
    assert_eq!(facts.range_of(Sym::new("s1")), Range::new(1, 512));
    facts.require(rel("s2 == s1"), "test").expect("possible");
    assert_eq!(facts.simplify(read("s2 + s0")), read("3*s1"));
    // s1 took over the divisor of s2.
    assert!(facts.divides(8, facts.simplify(read("s1"))));
    facts.require(rel("s1 == 16"), "test").expect("possible");
    assert_eq!(facts.simplify(read("s2 + s0")), Expr::int(48));
    check(&facts, &[("s0 == 32", Known::Yes), ("i < 32", Known::Yes), ("j < 15", Known::Unknown)]);
    assert!(facts.require(rel("s2 == 8"), "test").is_err());
}

#[test]
fn equal_but_for_an_eliminated_symbol_whatever_the_other_guards_cost() {
    let mut facts = Facts::new();
    for name in ["n", "s1", "s22", "s23", "s31", "s41", "s64"] {
        facts.declare(Sym::new(name), Range::at_least(2), None);
    }
    let costly = "max(floordiv(s22, s23), 1)*max(floordiv(s22, floordiv(s22, s23)), 1)*max(floordiv(s64, floordiv(s64, s1)), 1)\
        *max(floordiv(s64, s1) - 4, 1) == floordiv(s22, s23)*floordiv(s22, floordiv(s22, s23))*floordiv(s64, s1)\
        *floordiv(s64, floordiv(s64, s1)) - 4*floordiv(s22, s23)*floordiv(s22, floordiv(s22, s23))*floordiv(s64, floordiv(s64, s1))";
    facts.require(rel(costly), "test").expect("nothing contradicts it");
    facts.require(rel("s1 == n"), "test").expect("nothing contradicts it");
    let (of_n, of_s1) = ("floordiv(s31*s41, n*floordiv(s64, n))", "floordiv(s31*s41, s1*floordiv(s64, s1))");
    assert_eq!(facts.known(&Rel::eq(read(of_n), read(of_s1))), Known::Yes);
    assert!(
        !facts.simplify(read(of_s1)).has_sym(Sym::new("s1"))
            && !facts.simplify(read(of_n)).has_sym(Sym::new("s1"))
    );
}

#[test]
fn sizes_are_not_replaced_by_indices() {
    let mut facts = facts();
    facts.require(rel("s1 == 2*i"), "test").expect("possible");
    assert_eq!(facts.simplify(read("s1")), read("s1"));
    check(&facts, &[("s1 == 2*i", Known::Yes), ("s1 < 2*i", Known::No)]);
}

#[test]
fn contradictions_between_guards() {
    let mut facts = facts();
    facts.require(rel("mod(s1, 8) == 0"), "test").expect("possible");
    assert!(facts.divides(8, read("s1")));
    assert!(facts.require(rel("s1 == 12"), "test").is_err());
    facts.require(rel("mod(s0 + x, 4) == 0"), "test").expect("possible");
    check(&facts, &[("mod(s0 + x, 4) == 0", Known::Yes), ("mod(x + s0, 2) == 0", Known::Yes)]);
    facts.require(rel("x + y <= 3"), "test").expect("possible");
    assert!(facts.require(rel("x + y > 4"), "test").is_err());
    assert!(facts.require(rel("x + y == 5"), "test").is_err());
}

/// The full tile of rows whose number is `min(n, 15)`: it is the first one, so that all of its rows are there.
#[test]
fn a_symbol_that_has_one_value_is_that_value_in_what_was_known_before() {
    let mut facts = Facts::new();
    facts.declare(Sym::new("n"), Range::new(0, 1000), Some(15));
    facts.declare_index(Sym::new("tile"), read("ceildiv(min(n, 15), 8)"));
    assert!(facts.assume(rel("8 <= -8*tile + min(n, 15)")));
    check(
        &facts,
        &[("tile == 0", Known::Yes), ("n >= 8", Known::Yes), ("8 <= -8*tile + min(n, 15)", Known::Yes)],
    );
    assert_eq!(facts.simplify(read("min(8, min(n, 15))")), read("8"));
}

#[test]
fn an_index_is_below_what_a_condition_says_where_that_is_less_than_its_extent() {
    let mut facts = Facts::new();
    facts.declare(Sym::new("n"), Range::new(2, 64), Some(33));
    facts.declare_index(Sym::new("p"), read("ceildiv(n, 32) + 2"));
    facts.declare_index(Sym::new("k"), read("ceildiv(n, 2)"));
    let last = |added: i64| format!("64*k + 64*p*ceildiv(n, 2) + {added} < 128*ceildiv(n, 2)");
    check(&facts, &[(&last(0), Known::Unknown)]);
    assert!(facts.assume(rel("p < 2")));
    check(&facts, &[(&last(63), Known::Yes), (&last(64), Known::Unknown)]);
}

#[test]
fn a_quotient_of_what_conditions_bound() {
    let mut facts = Facts::new();
    facts.declare(Sym::new("n"), Range::new(0, 64), Some(33));
    facts.declare_index(Sym::new("p"), read("3*n + ceildiv(n, 2) + ceildiv(5*n, 8) + 1"));
    facts.declare_index(Sym::new("v"), read("min(-8*p + 28*n + 8*ceildiv(5*n, 8) + 8, 8)"));
    assert!(facts.assume(rel("n + ceildiv(5*n, 8) <= p")));
    assert!(facts.assume(rel("n + ceildiv(5*n, 8) + 1 <= p")));
    // The quotient's own quotient is a remainder once it is simplified.
    for (question, is_true) in [
        ("0 <= floordiv(8*p - 8*n + v - 8*ceildiv(5*n, 8) + 12, 20) - 1", true),
        ("0 <= floordiv(8*p - 8*n + v - 8*ceildiv(5*n, 8) + 11, 20) - 1", false),
    ] {
        assert_eq!(facts.proves(&rel(question)), is_true, "{question}");
    }
}

/// `4*k < s2` for a multiple s2 of 8 leaves room for four elements, and for no more.
#[test]
fn a_guard_between_multiples_is_tightened_to_one() {
    let mut facts = facts();
    facts.declare_index(Sym::new("k"), read("1000"));
    assert!(facts.assume(rel("4*k < s2")));
    check(&facts, &[("4*k + 3 < s2", Known::Yes), ("4*k + 4 < s2", Known::Unknown)]);
}
