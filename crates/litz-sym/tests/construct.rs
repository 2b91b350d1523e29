//! Checks the rules of the constructors, as `written => canonical`; they hold whatever the symbols are.

use litz_sym::{Expr, Sym, parse};

/// Each line is `written => canonical`; the canonical text also reads back as itself.
fn check(rules: &str) {
    for rule in rules.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (written, canonical) = rule.split_once(" => ").expect("a rule has two sides");
        let e = parse(written).expect("left side parses");
        assert_eq!(e.to_string(), canonical, "{written}");
        assert_eq!(parse(canonical), Ok(e), "{canonical}");
    }
}

#[test]
fn sums_and_products() {
    check(
        "1 + 2*3 => 7
         x - x => 0
         x + y - 2*x + 3 => -x + y + 3
         s10 + s2 => s2 + s10
         3 - x => -x + 3
         0*x => 0
         x*y*x => x*x*y
         (x + 1)*(x - 1) => x*x - 1
         2*(x + y)*3 => 6*x + 6*y
         (x + y)*(x - y) => x*x - y*y
         -(x - y) => -x + y
         x - (y - (x - 1)) => 2*x - y - 1
         x*floordiv(x, 2)*2 => 2*x*floordiv(x, 2)",
    );
}

#[test]
fn floordiv_of_constants_rounds_down() {
    check(
        "floordiv(7, 2) => 3
         floordiv(-7, 2) => -4
         floordiv(7, -2) => -4
         floordiv(-6, 3) => -2
         ceildiv(7, 2) => 4
         ceildiv(-7, 2) => -3
         floordiv(x, 1) => x
         floordiv(x, -1) => -x
         floordiv(0, x) => 0
         floordiv(x, 0) => floordiv(x, 0)",
    );
}

#[test]
fn floordiv_takes_multiples_out() {
    check(
        "floordiv(64*i + j, 64) => i + floordiv(j, 64)
         floordiv(65*i, 64) => i + floordiv(i, 64)
         floordiv(6*i + 3, 4) => i + ceildiv(i, 2)
         floordiv(4*i + 3, 4) => i
         floordiv(x + 11, 4) => ceildiv(x, 4) + 2
         floordiv(x - 1, 4) => ceildiv(x, 4) - 1
         floordiv(x, -4) => floordiv(-x, 4)
         floordiv(s0*i + j, s0) => i + floordiv(j, s0)
         floordiv(s0*s1, s1) => s0
         floordiv(s0, s0) => 1
         floordiv(2*s0*i + 3, 2*s0) => i + floordiv(3, 2*s0)
         floordiv((s0 + 1)*i + j, s0 + 1) => i + floordiv(j, s0 + 1)
         floordiv((s0 + 1)*(s1 - 2)*3, s0 + 1) => 3*s1 - 6
         floordiv(s0*x, s0*y) => floordiv(x, y)
         floordiv(4*s0*x, 6*s0) => floordiv(2*x, 3)
         floordiv(x, -s0) => floordiv(-x, s0)",
    );
}

#[test]
fn nested_floordiv() {
    check(
        "floordiv(floordiv(x, 4), 8) => floordiv(x, 32)
         floordiv(floordiv(x, 4) + 3, 8) => floordiv(x + 12, 32)
         floordiv(floordiv(x, s0), 4) => floordiv(x, 4*s0)
         floordiv(floordiv(x, 4), s0) => floordiv(floordiv(x, 4), s0)
         floordiv(floordiv(x, -4), 8) => floordiv(-x, 32)
         floordiv(mod(x, 64), 8) => mod(floordiv(x, 8), 8)
         floordiv(mod(x, 12), 8) => floordiv(mod(x, 12), 8)",
    );
}

#[test]
fn mod_drops_multiples() {
    check(
        "mod(7, 4) => 3
         mod(-7, 4) => 1
         mod(7, -4) => -1
         mod(x, 1) => 0
         mod(x, 0) => mod(x, 0)
         mod(64*i + j, 64) => mod(j, 64)
         mod(4*i, 16) => 4*mod(i, 4)
         mod(4*i + 6, 16) => 4*mod(i + 1, 4) + 2
         mod(x - 1, 4) => mod(x + 3, 4)
         mod(x, -4) => -mod(-x, 4)
         mod(s0*i, s0) => 0
         mod(s0*i + j, s0) => mod(j, s0)
         mod(s0*x, s0*y) => s0*mod(x, y)
         mod((s0 + 1)*i + j, s0 + 1) => mod(j, s0 + 1)
         mod(mod(x, 32), 8) => mod(x, 8)
         mod(mod(x, 8), 32) => mod(x, 8)
         mod(mod(x, 8), 12) => mod(x, 8)
         mod(mod(x, 12), 8) => mod(mod(x, 12), 8)",
    );
}

#[test]
fn mod_sees_through_inner_mod() {
    check(
        "mod(2*mod(x, 4) + y, 8) => mod(2*x + y, 8)
         mod(mod(x, s0) + y, s0) => mod(x + y, s0)
         mod(mod(x, s0*s1) + y, s0) => mod(x + y, s0)
         mod(mod(x, 6) + y, 4) => mod(y + mod(x, 6), 4)",
    );
}

#[test]
fn extrema() {
    check(
        "min(3, 5) => 3
         max(3, x) => max(x, 3)
         min(x, x) => x
         min(y, min(x, 4)) => min(x, min(y, 4))
         min(min(y, 7), min(x, 4)) => min(x, min(y, 4))
         min(x + 1, x + 3) => x + 1
         max(x + 1, max(y, x + 3)) => max(y, x + 3)
         min(x, max(x, y)) => x
         max(min(x, y), y) => y
         min(max(x, y), max(y, x)) => max(x, y)
         max(x, min(y, 2)) => max(x, min(y, 2))
             min(9223372036854775807, x) => x
             max(x, -9223372036854775808) => x
             min(9223372036854775807, 9223372036854775807) => 9223372036854775807",
    );
}

#[test]
fn arithmetic_saturates() {
    let max = Expr::int(i64::MAX);
    assert_eq!(max + 1, max);
    assert_eq!(max * 2, max);
    assert_eq!(-Expr::int(i64::MIN), max);
    assert_eq!(Expr::int(i64::MIN).floordiv(-1), max);
    assert_eq!(Expr::int(i64::MIN).modulo(-1), Expr::zero());
    let x = Expr::named("x");
    assert_eq!((x * i64::MAX) * 2, x * i64::MAX);
    // Negating the divisor is impossible here; the operands stay as they are.
    assert_eq!(x.floordiv(i64::MIN).to_string(), "floordiv(x, -9223372036854775808)");
    assert_eq!(x.floordiv(i64::MAX).floordiv(4).to_string(), "floordiv(floordiv(x, 9223372036854775807), 4)");
}

#[test]
fn powers_and_folds() {
    let (x, y) = (Expr::named("x"), Expr::named("y"));
    assert_eq!((x + 1).pow(3).to_string(), "x*x*x + 3*x*x + 3*x + 1");
    assert_eq!(x.pow(0), Expr::one());
    assert_eq!([x, y, x].iter().sum::<Expr>(), 2 * x + y);
    assert_eq!([x, y, x].into_iter().product::<Expr>(), x * x * y);
    assert_eq!(Expr::default(), 1 - Expr::one());
}

#[test]
fn substitution_is_simultaneous() {
    let (x, y) = (Sym::new("x"), Sym::new("y"));
    let e = Expr::sym(x) * 2 + Expr::sym(y).modulo(Expr::sym(x));
    let swap = |sym| Some(Expr::sym(if sym == x { y } else { x }));
    assert_eq!(e.subst(&swap), Expr::sym(y) * 2 + Expr::sym(x).modulo(Expr::sym(y)));
    assert_eq!(e.replace(x, Expr::int(4)), Expr::sym(y).modulo(4) + 8);
    assert_eq!(e.replace(Sym::new("z"), Expr::zero()), e);
}
