//! Finds the axes of a nest along which several points may store to one element.
//!
//! Points that store to one element run one after another, in row-major order of the nest's axes: the last plain store wins, and
//! combining stores combine in that order. Points that differ along an axis that the stored address determines never meet, so
//! that these axes may run in any order and on several threads. The others are the nest's *colliding* axes.
//!
//! The place that an index has in memory is read as a sum of digits, `stride * axis`. Where two points have equal places, the differences of their
//! digits add up to zero, and two rules say that single differences are zero:
//!
//! - a stride larger than all lower digits together reach determines its own axis: `64*i + j` with `j < 64` determines `i`;
//! - digits that a common factor of all higher strides exceeds add up to zero by themselves: of `64*i + 64*t + j` with
//!   `j < 64` the axis `j` is determined, although `i` and `t` are not.
//!
//! An axis that is divided is what its digits are: the rows of a padded image, counted by one axis `m`, are at
//! `m + 2*floordiv(m, 112)`, which is `114*m1 + m0` for `m = 112*m1 + m0`.
//!
//! A symbol that the body binds to a value is a digit of its range, which any two points may share.

use crate::access::accesses;
use crate::apart::{InDigits, in_mixed_radix};
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest};
use litz_sym::{Expr, Facts, Kind, Rel, Sym};

/// What a size that may be larger is taken for, to guess which of two strides is larger.
const SIZE: i64 = 4096;

/// A digit of an index: `stride * var`, where `var` takes `extent` values.
#[derive(Clone, Copy)]
struct Digit {
    /// Not negative.
    stride: Expr,
    /// `None`: an expression whose value determines no axis.
    var: Option<Sym>,
    /// What the digit reaches: the stride times one less than the extent.
    reach: Expr,
}

/// The axes along which several points may store to one element, in order. The nest is one of `loops`.
pub fn colliding_axes(loops: &Loops, nest: &Nest) -> Vec<Sym> {
    colliding_axes_of(loops, nest, |_| true)
}

/// As [`colliding_axes`], for the stores that `counts` picks and all that share a buffer with one.
pub fn colliding_axes_of(loops: &Loops, nest: &Nest, counts: impl Fn(&Inst) -> bool) -> Vec<Sym> {
    let mut bufs: Vec<Buf> = Vec::new();
    for inst in nest.body.iter().filter(|inst| counts(inst)) {
        if let InstOp::Store { buf, .. } = inst.op
            && !bufs.contains(&buf)
        {
            bufs.push(buf);
        }
    }
    let mut colliding: Vec<Sym> = Vec::new();
    for buf in bufs {
        let stores = accesses(nest).filter(|access| access.store && access.buf == buf);
        let places: Vec<(usize, Expr)> = stores.map(|store| (store.at, store.place(loops, nest))).collect();
        colliding.extend(colliding_in(nest, &places, &loops.facts));
    }
    let axes = nest.all_axes().map(|axis| axis.var);
    axes.filter(|var| colliding.contains(var)).collect()
}

/// The axes along which the stores at these positions of the body, to these places in one buffer, may meet.
fn colliding_in(nest: &Nest, stores: &[(usize, Expr)], facts: &Facts) -> Vec<Sym> {
    let has_points = |axis: &&Axis| number(axis.extent, facts) != Some(1);
    let mut axes: Vec<Axis> = nest.axes.iter().filter(has_points).copied().collect();
    if !nest.reduced.is_empty() {
        let after = nest.after_reduce();
        if stores.iter().any(|&(at, _)| !after[at]) {
            axes.extend(nest.reduced.iter().filter(has_points));
        }
    }
    if axes.is_empty() || nest.all_axes().any(|axis| number(axis.extent, facts) == Some(0)) {
        return Vec::new();
    }
    let places: Vec<Expr> = stores.iter().map(|store| store.1).collect();
    let indices: Vec<Axis> = nest.indices().collect();
    let mut facts = nest.facts(facts);
    let InDigits { sums, axes: vars, values } = in_mixed_radix(&places, &indices, &facts)
        .unwrap_or(InDigits { sums: places, axes: indices, values: Vec::new() });
    vars.iter().for_each(|var| facts.declare_index(var.var, var.extent));
    let facts = &facts;
    let determined = mixed_radix_digits(&vars, &sums, facts).map_or(Vec::new(), |mut digits| {
        // A guess at what is larger: what follows is proved for any order.
        let example = |sym| Some(facts.range_of(sym).hi.min(SIZE));
        digits.sort_by_cached_key(|digit| digit.stride.eval(&example));
        let mut determined = Vec::new();
        determine(&digits, facts, &mut determined);
        determined
    });
    // An axis is what its digits are.
    let is_determined = |var: &Sym| match values.iter().find(|value| value.0 == *var) {
        Some((_, value)) => value.syms().iter().all(|digit| determined.contains(digit)),
        None => determined.contains(var),
    };
    axes.iter().map(|axis| axis.var).filter(|var| !is_determined(var)).collect()
}

/// The places of stores which differ by sizes alone, as digits; which of them it is, is a digit too.
fn mixed_radix_digits(vars: &[Axis], places: &[Expr], facts: &Facts) -> Option<Vec<Digit>> {
    let varies = |e: Expr| vars.iter().any(|axis| e.has_sym(axis.var));
    let index = *places.first()?;
    let mut digits = Vec::new();
    for &other in &places[1..] {
        let distance = other - index;
        if varies(distance) {
            return None;
        }
        let stride = magnitude(distance, facts)?;
        digits.push(Digit { stride, var: None, reach: stride });
    }
    let mut rest = index;
    for axis in vars.iter().filter(|axis| index.has_sym(axis.var)) {
        let Some((stride, without)) = rest.linear(axis.var) else { continue };
        if varies(stride) {
            continue;
        }
        rest = without;
        let stride = magnitude(stride, facts)?;
        if number(axis.extent, facts) != Some(1) && !stride.is_zero() {
            digits.push(Digit { stride, var: Some(axis.var), reach: stride * (axis.extent - 1) });
        }
    }
    for rotation in rotations(rest) {
        let Kind::Mod(value, count) = rotation.kind() else { continue };
        let (stride, without) = split(rest, rotation);
        let mut inside = vars.iter().filter(|axis| rotation.has_sym(axis.var));
        let (Some(axis), None) = (inside.next(), inside.next()) else { continue };
        if varies(stride) || count.has_sym(axis.var) || !is_less(Expr::zero(), count, facts) {
            continue;
        }
        rest = without;
        let stride = magnitude(stride, facts)?;
        // Of an axis that fits it goes around once at most.
        let is_step = |step: Expr| step.is_one() || step == Expr::int(-1);
        let is_determined = value.linear(axis.var).is_some_and(|(step, _)| is_step(step))
            && is_less(axis.extent - 1, count, facts);
        digits.push(Digit { stride, var: is_determined.then_some(axis.var), reach: stride * (count - 1) });
    }
    for (factor, other) in rest.terms().filter(|term| varies(term.1)) {
        let range = facts.bounds(other);
        let reach = range.hi.checked_sub(range.lo).filter(|_| range.lo != i64::MIN)?;
        let stride = Expr::int(factor.checked_abs()?);
        digits.push(Digit { stride, var: None, reach: stride * reach });
    }
    Some(digits)
}

/// The remainders that are terms of `e`, or factors of its terms.
fn rotations(e: Expr) -> Vec<Expr> {
    let mut found = Vec::new();
    for (_, term) in e.terms() {
        for factor in factors(term) {
            if matches!(factor.kind(), Kind::Mod(..)) && !found.contains(&factor) {
                found.push(factor);
            }
        }
    }
    found
}

fn factors(term: Expr) -> Vec<Expr> {
    if let Kind::Mul(factors) = term.kind() { factors.to_vec() } else { vec![term] }
}

/// `(stride, rest)` with `e == stride*atom + rest`, of terms that have the atom as a factor once, and others.
fn split(e: Expr, atom: Expr) -> (Expr, Expr) {
    let (mut stride, mut rest) = (Expr::zero(), Expr::int(e.constant()));
    for (number, term) in e.terms() {
        let (own, others): (Vec<Expr>, Vec<Expr>) = factors(term).into_iter().partition(|&f| f == atom);
        match own.len() {
            1 => stride = stride + others.into_iter().fold(Expr::int(number), |product, f| product * f),
            _ => rest = rest + term * number,
        }
    }
    (stride, rest)
}

/// The number that an extent is in every call.
fn number(extent: Expr, facts: &Facts) -> Option<i64> {
    extent.as_int().or_else(|| facts.simplify(extent).as_int())
}

/// Without its sign, where that is known.
fn magnitude(e: Expr, facts: &Facts) -> Option<Expr> {
    if is_less(Expr::int(-1), e, facts) {
        return Some(e);
    }
    is_less(e, Expr::one(), facts).then(|| Expr::zero() - e)
}

/// Whether `a < b` is known. Numbers, which almost all strides are, need no proof.
fn is_less(a: Expr, b: Expr, facts: &Facts) -> bool {
    match (a.as_int(), b.as_int()) {
        (Some(a), Some(b)) => a < b,
        _ => facts.holds(&Rel::lt(a, b)),
    }
}

/// Adds the variables of which equal sums of `digits` have equal values, lowest digit first.
fn determine(digits: &[Digit], facts: &Facts, determined: &mut Vec<Sym>) {
    let Some((top, lower)) = digits.split_last() else { return };
    let reach = |digits: &[Digit]| digits.iter().fold(Expr::zero(), |sum, digit| sum + digit.reach);
    if is_less(reach(lower), top.stride, facts) {
        determined.extend(top.var);
        return determine(lower, facts, determined);
    }
    for at in 1..digits.len() {
        let (lower, upper) = digits.split_at(at);
        let factor = common_factor(upper, facts);
        if is_less(reach(lower), factor, facts) {
            determine(lower, facts, determined);
            return determine(upper, facts, determined);
        }
    }
}

/// A number that divides the stride of each digit, of which there is one at least; 1 where none is known.
fn common_factor(digits: &[Digit], facts: &Facts) -> Expr {
    let numbers: Option<Vec<i64>> = digits.iter().map(|digit| digit.stride.as_int()).collect();
    if let Some(numbers) = numbers {
        return Expr::int(numbers.into_iter().fold(0, greatest_common_divisor));
    }
    let lowest = digits[0].stride;
    let divides = |digit: &Digit| facts.simplify(digit.stride.modulo(lowest)).is_zero();
    if digits.iter().all(divides) { lowest } else { Expr::one() }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
