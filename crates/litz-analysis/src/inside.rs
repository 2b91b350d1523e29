//! Proves that a value which is bound to an axis is below its extent, and bounds the extents of loops.

use litz_ir::loops::Axis;
use litz_sym::{Expr, Facts, Kind, Rel, Sym};

/// Steps into a loop: where its variable has a value, it has an iteration.
pub fn enter(facts: &mut Facts, axis: Axis) {
    facts.declare_index(axis.var, axis.extent);
    if axis.extent.as_int().is_none() {
        // What never runs may be taken to be anything.
        let _is_possible = facts.assume(Rel::le(1, axis.extent));
    }
}

/// Whether `value < extent` is known.
pub fn is_inside(value: Expr, extent: Expr, facts: &Facts) -> bool {
    let is_known = |value, extent| facts.holds(&Rel::lt(value, extent));
    is_known(value, extent) || {
        let (whole, end) = undivided(value, extent, facts);
        (whole, end) != (value, extent) && is_known(whole, end)
    }
}

/// What is smaller than what exactly where `value < extent`, without divisions: rows of a merged axis are found by one.
/// y + floordiv(x, n) < m, n > 0 => x + n*y < m*n
pub fn undivided(mut value: Expr, mut extent: Expr, facts: &Facts) -> (Expr, Expr) {
    let is_positive = |e: Expr| facts.holds(&Rel::le(Expr::one(), e));
    loop {
        let divided = value.terms().into_iter().find_map(|(factor, term)| {
            let (inner, divisor) = term.as_floordiv().filter(|_| factor == 1)?;
            is_positive(divisor).then(|| (inner + (value - term) * divisor, divisor))
        });
        let Some((inner, divisor)) = divided else { return (value, extent) };
        (value, extent) = (facts.simplify(inner), extent * divisor);
    }
}

/// The end of a loop that has no iterations where that is below 0: `x` of `max(0, x)`.
pub fn end_of(extent: Expr) -> Expr {
    let Kind::Max(a, b) = extent.kind() else { return extent };
    match (a.is_zero(), b.is_zero()) {
        (true, _) => b,
        (false, true) => a,
        (false, false) => extent,
    }
}

/// The extent of a loop where it does not end early: `13` of `min(13, n - 13*t)`. What holds for the iterations of that many
/// holds for fewer, and numbers are told apart more easily than where they end.
pub fn longest(extent: Expr) -> Expr {
    let Kind::Min(a, b) = end_of(extent).kind() else { return extent };
    [a, b].into_iter().find(|end| end.as_int().is_some()).unwrap_or(extent)
}

/// Loops, outermost first, that are no longer than these can be where all `conds` hold. None where they never do.
///
/// That is all that is taken from what holds. More may be known of the variables, up to their values: but of two places, what
/// one alone knew would set them apart in name.
pub fn loops_where(
    mut loops: Vec<Axis>,
    conds: impl Iterator<Item = Rel>,
    facts: &Facts,
) -> Option<Vec<Axis>> {
    let mut conds = conds.peekable();
    if conds.peek().is_none() {
        return Some(loops);
    }
    let mut here = facts.clone();
    loops.iter().for_each(|axis| here.declare_index(axis.var, axis.extent));
    if !conds.all(|cond| here.assume(cond)) {
        return None;
    }
    for axis in loops.iter_mut().filter(|axis| axis.extent.as_int().is_none()) {
        let most = here.bounds(axis.extent).hi;
        if most < i64::MAX {
            axis.extent = end_of(axis.extent).min(most);
        }
    }
    Some(loops)
}

/// The least of the values that an expression has for all values of `vars`, and how many there are from there on at most, in terms of
/// other symbols. None where no such numbers are known.
pub fn first_and_count(value: Expr, vars: &[Sym], facts: &Facts) -> Option<(Expr, Expr)> {
    let first = facts.simplify(value.subst(&|sym| vars.contains(&sym).then(Expr::zero)));
    let offset = facts.simplify(value - first);
    let is_least = offset.is_zero() || facts.holds(&Rel::le(0, offset));
    let count = is_least.then(|| end(offset, vars, facts)).flatten()?;
    Some((first, facts.simplify(count)))
}

/// What a value of 0 and more is below, whatever the variables that it depends on.
fn end(value: Expr, vars: &[Sym], facts: &Facts) -> Option<Expr> {
    let is_free = |end: &Expr| !vars.iter().any(|&var| end.has_sym(var));
    let digit = match value.kind() {
        Kind::Mod(_, radix) => Some(radix),
        Kind::Int(_)
        | Kind::Sym(_)
        | Kind::Add(_)
        | Kind::Mul(_)
        | Kind::Min(..)
        | Kind::Max(..)
        | Kind::FloorDiv(..) => None,
    };
    let last = facts.bounds(value).hi;
    let number = (last < i64::MAX).then(|| Expr::int(last + 1));
    [Some(facts.largest(value, vars) + 1), digit, number].into_iter().flatten().find(is_free)
}
