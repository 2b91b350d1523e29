//! Changes remainders: the conditions of `if`s, their bodies, and which leaves are masked.

use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::{Schedule, Tree};
use litz_sym::{Expr, Rel};

use super::tree::{each_leaf_mut, is_leaf, is_loop, list_mut, pick, trees};
use crate::choices::Choices;

fn is_if(tree: &Tree) -> bool {
    matches!(tree, Tree::If { .. })
}

/// The condition of an `if` asks for more, for less, or for the opposite.
pub(super) fn change_condition(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, is_if))?;
    let how = choices.below(5);
    let Tree::If { cond, then, other } = &mut list_mut(schedule, &place)?[at] else { return None };
    match how {
        // The bodies change places with it, so that nothing else does.
        0 => {
            *cond = cond.negate();
            std::mem::swap(then, other);
        }
        1 => cond.lhs = cond.lhs + 1,
        2 => cond.rhs = cond.rhs + 1,
        3 => *cond = cond.negate(),
        _ => cond.rhs = cond.rhs * 2,
    }
    Some(())
}

/// One body of an `if` goes, or stands for all of it.
pub(super) fn drop_body(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, is_if))?;
    let how = choices.below(4);
    let list = list_mut(schedule, &place)?;
    let Tree::If { then, other, .. } = &mut list[at] else { return None };
    match how {
        0 => {
            let body = std::mem::take(then);
            list.splice(at..=at, body);
        }
        1 => {
            let body = std::mem::take(other);
            list.splice(at..=at, body);
        }
        2 => then.clear(),
        _ => other.clear(),
    }
    Some(())
}

/// A tree stands in both bodies of an `if` that asks for something of a loop around, or for nothing.
pub(super) fn add_condition(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, |tree| is_leaf(tree) || is_loop(tree)))?;
    let around = super::binding::around(schedule, &place);
    let (bound, is_incomplete) = (choices.below(4) as i64, choices.once_in(4));
    let of = pick(choices, &around).map_or(Expr::one(), |(var, _)| Expr::sym(var));
    let list = list_mut(schedule, &place)?;
    let then = vec![list[at].clone()];
    let other = if is_incomplete { Vec::new() } else { then.clone() };
    list[at] = Tree::If { cond: Rel::le(of, bound), then, other };
    Some(())
}

/// A loop that counts to the end of an axis in blocks gets versions for full blocks and for the rest; once in a while the rest
/// is counted wrong.
pub(super) fn peel(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, is_loop))?;
    let (wrong, less) = (choices.below(4), choices.below(4) as i64);
    let list = list_mut(schedule, &place)?;
    let Tree::Loop { kind, axis, body } = &list[at] else { return None };
    let (kind, axis, body) = (*kind, *axis, body.clone());
    let with = |extent: Expr| vec![Tree::Loop { kind, axis: Axis { extent, ..axis }, body: body.clone() }];
    // `min(13, n - 13*t)` is 13, or the other.
    let (full, rest) = match axis.extent.kind() {
        litz_sym::Kind::Min(a, b) => (a, b),
        _ => (axis.extent, axis.extent - less),
    };
    let (then, other) = match wrong {
        3 => (with(rest), with(full)),
        _ => (with(full), with(rest)),
    };
    list[at] = Tree::If { cond: Rel::le(full, rest), then, other };
    Some(())
}

/// A leaf, or all of its list, is masked, or no longer is.
pub(super) fn change_mask(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, is_leaf))?;
    let is_all = choices.once_in(2);
    let list = list_mut(schedule, &place)?;
    let changed = if is_all { &mut list[..] } else { &mut list[at..=at] };
    each_leaf_mut(changed, &mut |leaf| leaf.masked = !leaf.masked);
    Some(())
}
