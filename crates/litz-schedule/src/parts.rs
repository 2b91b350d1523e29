//! Loops of long sums, cut so that rounding errors stay small.

use crate::axes::variable;
use crate::cost::size;
use crate::tree::{cut, rebind};
use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::{LoopKind, Tree};

/// The reduced loops around `body`. Long sums are added up from parts: a single loop is cut into pieces, of several the
/// innermost that are long enough together make a part, of about `part` terms. `axes` belong to a kernel of `loops`.
pub fn sum_in_parts(body: Vec<Tree>, axes: &[Axis], loops: &Loops, part: i64) -> Vec<Tree> {
    let mut trees = body;
    let mut length = 1i64;
    let mut is_cut = false;
    for a in axes.iter().rev() {
        let together = length.saturating_mul(size(&loops.facts, a.extent));
        if is_cut || together <= 2 * part {
            let is_part = !is_cut && length >= part && together > length;
            let kind = if is_part { LoopKind::Partial } else { LoopKind::For };
            is_cut |= is_part;
            length = together;
            trees = vec![Tree::Loop { kind, axis: *a, body: trees }];
        } else if length >= part {
            is_cut = true;
            trees = vec![Tree::Loop { kind: LoopKind::Partial, axis: *a, body: trees }];
        } else if let Some(piece) = piece_of(&trees, a, part / length) {
            // Pieces of this loop make the parts.
            is_cut = true;
            let name = |suffix: &str| variable(loops, &format!("{}{suffix}", a.var));
            let (outside, inside, value) = cut(*a, piece, name("b"), name("i"));
            let body = trees.into_iter().map(|t| rebind(t, a.var, value)).collect();
            let inside = Tree::Loop { kind: LoopKind::For, axis: inside, body };
            trees = vec![Tree::Loop { kind: LoopKind::Partial, axis: outside, body: vec![inside] }];
        } else {
            length = together;
            trees = vec![Tree::Loop { kind: LoopKind::For, axis: *a, body: trees }];
        }
    }
    trees
}

/// How long to cut the pieces of a loop. Where a leaf binds an axis to more than a multiple of the variable, as it does
/// to the digits of merged axes, no piece may be cut short.
fn piece_of(body: &[Tree], axis: &Axis, wanted: i64) -> Option<i64> {
    let mut linear = true;
    for tree in body {
        tree.each_leaf(&mut |leaf| linear &= leaf.bind.iter().all(|b| b.1.linear(axis.var).is_some()));
    }
    let even = axis.extent.as_int().and_then(|n| (wanted / 4 + 1..=wanted).rev().find(|d| n % d == 0));
    even.or(linear.then_some(wanted))
}
