//! Compares random expressions with naive evaluation: construction, text, simplification, bounds and proofs.

use std::collections::BTreeMap;

use litz_sym::{Expr, Facts, Known, Range, Rel, Sym, parse};
use proptest::prelude::*;

/// An expression as written, with no rules applied.
#[derive(Clone, Debug)]
enum Tree {
    Int(i64),
    Sym(&'static str),
    Binary(&'static str, Box<Tree>, Box<Tree>),
}

const OPERATORS: [&str; 8] = ["+", "-", "*", "floordiv", "mod", "min", "max", "ceildiv"];

/// Sizes, then indices below them: `i < s0`, `j < s1`, `k < 8`, and `n` of any sign.
const SYMBOLS: [&str; 6] = ["s0", "s1", "i", "j", "k", "n"];

fn tree() -> impl Strategy<Value = Tree> {
    let constant = prop_oneof![
        4 => -4i64..10,
        2 => prop::sample::select(vec![8i64, 16, 32, 64, -8, 63, 127]),
        1 => -1000i64..1000,
    ];
    let leaf =
        prop_oneof![constant.prop_map(Tree::Int), prop::sample::select(&SYMBOLS[..]).prop_map(Tree::Sym)];
    leaf.prop_recursive(5, 24, 2, |inner| {
        (prop::sample::select(&OPERATORS[..]), inner.clone(), inner)
            .prop_map(|(operator, a, b)| Tree::Binary(operator, Box::new(a), Box::new(b)))
    })
}

/// A leaf or one operator: simple enough that many bindings satisfy a relation of two.
fn small_tree() -> impl Strategy<Value = Tree> {
    let leaf = || {
        let constant = prop::sample::select(vec![0i64, 1, 2, 3, 8]).prop_map(Tree::Int);
        prop_oneof![1 => constant, 2 => prop::sample::select(&SYMBOLS[..]).prop_map(Tree::Sym)]
    };
    let operator = prop::sample::select(vec!["+", "-", "*", "mod", "floordiv", "min"]);
    prop_oneof![leaf(), (operator, leaf(), leaf()).prop_map(|(operator, a, b)| binary(operator, a, b))]
}

/// What views, slices, pads and reshapes write: sums of scaled indices, split and merged again.
fn index_tree() -> impl Strategy<Value = Tree> {
    let scaled = |name: &'static str, by: Tree| binary("*", Tree::Sym(name), by);
    let size = prop_oneof![
        prop::sample::select(vec![1i64, 2, 4, 8, 16, 64]).prop_map(Tree::Int),
        prop::sample::select(vec!["s0", "s1"]).prop_map(Tree::Sym),
    ];
    let linear = (size.clone(), size.clone(), prop::sample::select(vec!["i", "j", "k", "n"]), -2i64..9)
        .prop_map(move |(a, b, name, offset)| {
            let first = binary("*", binary("+", scaled("i", a), Tree::Sym("k")), b);
            binary("+", binary("+", first, Tree::Sym(name)), Tree::Int(offset))
        });
    linear.prop_recursive(4, 32, 2, move |inner| {
        let operator = prop::sample::select(vec!["floordiv", "mod", "floordiv", "mod", "ceildiv"]);
        let split =
            (operator, inner.clone(), size.clone()).prop_map(|(operator, a, b)| binary(operator, a, b));
        let merge =
            (inner.clone(), inner, size.clone()).prop_map(|(a, b, by)| binary("+", binary("*", a, by), b));
        let rejoin = split.clone().prop_flat_map(|tree| {
            let Tree::Binary(_, x, b) = tree else { unreachable!("split is binary") };
            let whole = binary("*", binary("floordiv", (*x).clone(), (*b).clone()), (*b).clone());
            Just(binary("+", whole, Tree::Binary("mod", x, b)))
        });
        prop_oneof![2 => split, 1 => merge, 1 => rejoin]
    })
}

/// Some digits of a symbol, in powers of two, times a number.
fn digits(name: &'static str) -> impl Strategy<Value = Tree> {
    let place = || prop::sample::select(vec![1i64, 2, 4, 8, 16]);
    (place(), prop::option::of(prop::sample::select(vec![2i64, 4])), -40i64..40).prop_map(
        move |(from, count, times)| {
            let above = binary("floordiv", Tree::Sym(name), Tree::Int(from));
            let those = match count {
                Some(count) => binary("mod", above, Tree::Int(count)),
                None => above,
            };
            binary("*", Tree::Int(times), those)
        },
    )
}

fn binary(operator: &'static str, a: Tree, b: Tree) -> Tree {
    Tree::Binary(operator, Box::new(a), Box::new(b))
}

fn build(tree: &Tree) -> Expr {
    match tree {
        Tree::Int(value) => Expr::int(*value),
        Tree::Sym(name) => Expr::named(name),
        Tree::Binary(operator, a, b) => {
            let (a, b) = (build(a), build(b));
            match *operator {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "floordiv" => a.floordiv(b),
                "mod" => a.modulo(b),
                "min" => a.min(b),
                "max" => a.max(b),
                "ceildiv" => a.ceildiv(b),
                other => unreachable!("no operator {other}"),
            }
        }
    }
}

/// The value in wide arithmetic; None for division by zero or beyond 40 bits anywhere, where saturation could begin.
fn naive(tree: &Tree, values: &Binding) -> Option<i128> {
    let value = match tree {
        Tree::Int(value) => i128::from(*value),
        Tree::Sym(name) => i128::from(values[name]),
        Tree::Binary(operator, a, b) => {
            let (a, b) = (naive(a, values)?, naive(b, values)?);
            match *operator {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "floordiv" => floor_divide(a, b)?,
                "mod" => a - b * floor_divide(a, b)?,
                "min" => a.min(b),
                "max" => a.max(b),
                "ceildiv" => floor_divide(a + b - 1, b)?,
                other => unreachable!("no operator {other}"),
            }
        }
    };
    (value.abs() < 1 << 40).then_some(value)
}

fn floor_divide(a: i128, b: i128) -> Option<i128> {
    let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    Some(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
}

type Binding = BTreeMap<&'static str, i64>;

/// Bindings that respect the facts, among them the corners of each range.
fn bindings() -> Vec<Binding> {
    let mut state = 1u64;
    let mut pick = |lo: i64, hi: i64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match state >> 60 {
            0..4 => lo,
            4..8 => hi,
            _ => lo + (state >> 33) as i64 % (hi - lo + 1),
        }
    };
    let mut bind = || {
        let (s0, s1) = (pick(1, 11), 4 * pick(1, 40));
        let (i, j, k, n) = (pick(0, s0 - 1), pick(0, s1 - 1), pick(0, 7), pick(-20, 20));
        BTreeMap::from([("s0", s0), ("s1", s1), ("i", i), ("j", j), ("k", k), ("n", n)])
    };
    (0..64).map(|_| bind()).collect()
}

fn facts() -> Facts {
    let mut facts = Facts::new();
    facts.declare(Sym::new("s0"), Range::new(1, 11), Some(4));
    facts.declare(Sym::new("s1"), Range::new(2, 160), Some(16));
    facts.declare_divisor(Sym::new("s1"), 4);
    facts.declare_index(Sym::new("i"), Expr::named("s0"));
    facts.declare_index(Sym::new("j"), Expr::named("s1"));
    facts.declare_index(Sym::new("k"), Expr::int(8));
    facts.declare(Sym::new("n"), Range::new(-20, 20), None);
    facts
}

fn value_of(e: Expr, values: &Binding) -> Option<i64> {
    e.eval(&|sym| values.get(sym.name()).copied())
}

/// Checks one written expression in every way at once.
fn check(tree: &Tree) -> Result<(), TestCaseError> {
    let e = build(tree);
    let text = e.to_string();
    prop_assert_eq!(parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?, e);
    prop_assert_eq!(e.subst(&|sym| Some(Expr::sym(sym))), e);
    let facts = facts();
    let simple = facts.simplify(e);
    let bounds = facts.bounds(e);
    let (positive, zero) = (Rel::gt(e, 0), Rel::eq(e, 0));
    let known = (facts.known(&positive), facts.known(&zero));
    let largest = facts.largest(e, &e.syms());
    for values in &bindings() {
        let Some(expected) = naive(tree, values) else { continue };
        let expected = expected as i64;
        prop_assert_eq!(value_of(e, values), Some(expected), "construct {} with {:?}", e, values);
        prop_assert_eq!(
            value_of(simple, values),
            Some(expected),
            "simplify {} => {} with {:?}",
            e,
            simple,
            values
        );
        prop_assert!(bounds.contains(expected), "{} in {} is {} with {:?}", e, bounds, expected, values);
        prop_assert!(
            value_of(largest, values).is_none_or(|largest| expected <= largest),
            "{} at most {} with {:?}",
            e,
            largest,
            values
        );
        for (rel, known) in [(positive, known.0), (zero, known.1)] {
            let holds = rel.eval(&|sym| values.get(sym.name()).copied());
            prop_assert!(known != Known::Yes || holds == Some(true), "{} with {:?}", rel, values);
            prop_assert!(known != Known::No || holds == Some(false), "{} with {:?}", rel, values);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_expressions_keep_their_value(tree in tree()) {
        check(&tree)?;
    }

    #[test]
    fn index_expressions_keep_their_value(tree in index_tree()) {
        check(&tree)?;
    }

    /// Digits of symbols are bounded together: where all places divide the extent, no number of a range of one symbol is missing.
    #[test]
    fn sums_of_digits_have_the_range_of_their_values(
        i in prop::collection::vec(digits("i"), 1..4),
        k in prop::collection::vec(digits("k"), 0..3),
        extents in prop::collection::vec(prop_oneof![0i64..100, Just(63), Just(127)], 2),
        added in -50i64..50,
    ) {
        let sum = i.iter().chain(&k).map(build).sum::<Expr>() + added;
        let extent = |sym: Sym| extents[usize::from(sym.name() == "k")];
        let range = sum.range(&|sym| Range::new(0, extent(sym)));
        let value = |i: i64, k: i64| sum.eval(&|sym| Some(if sym.name() == "k" { k } else { i }));
        let values = (0..=extents[0]).flat_map(|i| (0..=extents[1]).map(move |k| (i, k)));
        let values: Vec<i64> = values.filter_map(|(i, k)| value(i, k)).collect();
        prop_assert!(values.iter().all(|&value| range.contains(value)), "{} in {}", sum, range);
        let is_whole = extents.iter().all(|extent| (extent + 1) % 64 == 0);
        let hull = values.into_iter().map(Range::exactly).reduce(Range::hull);
        prop_assert!(!is_whole || hull == Some(range), "{} in {}, not {:?}", sum, range, hull);
    }

    #[test]
    fn guards_exclude_only_what_they_exclude(
        guards in prop::collection::vec((small_tree(), small_tree(), 0usize..4), 1..4),
        trees in prop::collection::vec(prop_oneof![tree(), index_tree()], 4),
    ) {
        let (mut facts, mut given) = (facts(), Vec::new());
        let all = bindings();
        let mut left: Vec<&Binding> = all.iter().collect();
        for (a, b, which) in &guards {
            let (x, y) = (build(a), build(b));
            let rel = [Rel::eq(x, y), Rel::ne(x, y), Rel::lt(x, y), Rel::le(x, y)][*which];
            let outcome = facts.require(rel, "test");
            given.push(rel);
            left.retain(|values| {
                let exact = naive(a, values).is_some() && naive(b, values).is_some();
                exact && rel.eval(&|sym| values.get(sym.name()).copied()) == Some(true)
            });
            prop_assert!(outcome.is_ok() || left.is_empty(), "{:?} refused but holds with {:?}", given, left);
            if outcome.is_err() { return Ok(()) }
        }
        for tree in &trees {
            let e = build(tree);
            let (simple, bounds) = (facts.simplify(e), facts.bounds(e));
            for values in &left {
                let Some(expected) = naive(tree, values) else { continue };
                let expected = expected as i64;
                prop_assert_eq!(value_of(simple, values), Some(expected), "{} => {} given {:?}", e, simple, given);
                prop_assert!(bounds.contains(expected), "{} in {} given {:?}", e, bounds, given);
            }
        }
    }

    /// What both sides of a minimum were taken to be at least, so is the minimum.
    #[test]
    fn an_order_that_was_assumed_is_known(of in prop::collection::vec(1i64..10, 2), limit in 2i64..9) {
        let (mut facts, [s0, k, n]) = (facts(), ["s0", "k", "n"].map(|name| Expr::sym(Sym::new(name))));
        let rel = Rel::le(k * of[0] + n, s0.min(limit) * of[1]);
        prop_assert!(facts.assume(rel));
        prop_assert_eq!(facts.known(&rel), Known::Yes, "{}", rel);
    }

    #[test]
    fn parser_never_panics(
        text in "[-+*(),0-9a-c%_. ]{0,40}|(floordiv|mod|min|max|ceildiv|\\(|\\)|,|-|7|x| |\\*|\\+){0,20}",
    ) {
        if let Ok(e) = parse(&text) {
            prop_assert_eq!(parse(&e.to_string()), Ok(e));
        }
    }
}

proptest! {
    // What cannot be proved takes all the effort there is, some milliseconds.
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// What follows from assumptions holds wherever they do, and relations at the very bounds are asked for.
    #[test]
    fn proofs_under_assumptions_hold(
        premises in prop::collection::vec((prop_oneof![small_tree(), index_tree()], small_tree(), 0usize..4), 1..4),
        trees in prop::collection::vec(prop_oneof![small_tree(), index_tree()], 3),
    ) {
        let mut facts = facts();
        let all = bindings();
        let mut left: Vec<&Binding> = all.iter().collect();
        for (a, b, which) in &premises {
            let (x, y) = (build(a), build(b));
            let rel = [Rel::eq(x, y), Rel::ne(x, y), Rel::lt(x, y), Rel::le(x, y)][*which];
            let is_possible = facts.assume(rel);
            left.retain(|values| {
                let exact = naive(a, values).is_some() && naive(b, values).is_some();
                exact && rel.eval(&|sym| values.get(sym.name()).copied()) == Some(true)
            });
            prop_assert!(is_possible || left.is_empty(), "{:?} refused but holds with {:?}", premises, left);
            if !is_possible { return Ok(()) }
        }
        for tree in &trees {
            let e = build(tree);
            let found = left.iter().filter_map(|values| naive(tree, values)).map(|value| value as i64);
            let (Some(lowest), Some(highest)) = (found.clone().min(), found.max()) else { continue };
            for wrong in [Rel::gt(e, lowest), Rel::lt(e, highest)] {
                prop_assert!(!facts.proves(&wrong), "{} proved given {:?}", wrong, premises);
            }
        }
    }
}
