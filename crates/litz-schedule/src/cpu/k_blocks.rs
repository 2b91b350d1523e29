//! Cuts the loops of long sums into blocks, so that rounding errors stay small and operands stay in the cache.

use crate::axes::variable;
use crate::cost::size;
use crate::cut::{balanced, cut, rebind};
use litz_ir::loops::{Axis, Loops, Nest, Stmt};
use litz_ir::schedule::{Leaf, LoopKind, Part, Tree};
use litz_sym::{Expr, Rel, Sym};
use std::ops::RangeInclusive;

/// The reduced loops around `body`. Long sums are added up by K blocks of about `wanted` terms: a single loop is cut into
/// them, and of several loops the innermost that are long enough together make one. `axes` belong to a kernel of `loops`.
pub fn sum_in_k_blocks(body: Vec<Tree>, axes: &[Axis], loops: &Loops, wanted: i64) -> Vec<Tree> {
    cut_into_k_blocks(body, axes, loops, wanted).0
}

/// The loops around `body` that add up one K block of the cache, in shorter K blocks for the sake of rounding. Where it is too
/// short to be cut, it is one such block itself.
pub fn sum_of_k_block(body: Vec<Tree>, axes: &[Axis], loops: &Loops, wanted: i64) -> Vec<Tree> {
    let (trees, is_cut) = cut_into_k_blocks(body, axes, loops, wanted);
    let Some(outermost) = axes.first().filter(|_| !is_cut) else { return trees };
    let whole = Axis { var: variable(loops, &format!("{}p", outermost.var)), extent: Expr::one() };
    let value = Expr::sym(whole.var) * outermost.extent + Expr::sym(outermost.var);
    let mut body: Vec<Tree> = trees.into_iter().map(|t| rebind(t, outermost.var, value)).collect();
    body.extend(merges(&body, loops));
    vec![Tree::Loop { kind: LoopKind::For, axis: whole, body }]
}

/// What merges the sums in the body of a loop, whose iterations are blocks of them, into the whole.
fn merges(body: &[Tree], loops: &Loops) -> Vec<Tree> {
    let mut merges = Vec::new();
    let merge = |leaf: &Leaf| {
        let nest = nest_of(leaf, loops).filter(|_| leaf.part == Part::Update)?;
        let bind = leaf.bind.iter().filter(|(axis, _)| !nest.is_running(*axis)).copied().collect();
        Some(Tree::Leaf(Leaf {
            nest: leaf.nest.clone(),
            part: Part::Merge,
            bind,
            masked: false,
            block: None,
            by: None,
        }))
    };
    body.iter().for_each(|tree| tree.each_leaf(&mut |leaf| merges.extend(merge(leaf))));
    merges
}

fn nest_of<'a>(leaf: &Leaf, loops: &'a Loops) -> Option<&'a Nest> {
    loops.stmts.iter().flat_map(Stmt::nests).find(|nest| nest.name == leaf.nest)
}

/// Sums of K blocks that are added up one after another; where there are more, these are blocks as well. Rounding errors of n terms in
/// K blocks of b, added up in blocks of c, grow as the root of `n*b + n*c + n*n/(b*c)`, where without the latter they grow as that of `n*b + n*n/b`:
/// a gradient of the weights of a grouped convolution over 100,352 places erred by 7 roundings of its largest element.
const BLOCKS_IN_ORDER: i64 = 64;

/// The loops, and whether they are cut into K blocks.
fn cut_into_k_blocks(body: Vec<Tree>, axes: &[Axis], loops: &Loops, wanted: i64) -> (Vec<Tree>, bool) {
    let mut trees = body;
    // What is added up one after another in `trees`: terms, or the sums of blocks.
    let (mut length, mut wanted) = (1i64, wanted);
    let (mut is_block, mut is_cut) = (false, false);
    let mut rest = axes.to_vec();
    while let Some(axis) = rest.pop() {
        let extent = size(&loops.facts, axis.extent);
        if length >= wanted && extent > 1 {
            (is_block, is_cut) = (true, true);
            (length, wanted) = (1, BLOCKS_IN_ORDER);
        }
        let is_short = length.saturating_mul(extent) <= 2 * wanted;
        let k_block = if is_short { None } else { k_block_of(&trees, &axis, loops, wanted / length) };
        if std::mem::take(&mut is_block) {
            trees.extend(merges(&trees, loops));
        }
        let Some(k_block) = k_block else {
            trees = vec![Tree::Loop { kind: LoopKind::For, axis, body: trees }];
            length = length.saturating_mul(extent);
            continue;
        };
        let name = |suffix: &str| variable(loops, &format!("{}{suffix}", axis.var));
        let (outside, inside, value) = cut(axis, k_block, name("b"), name("i"));
        let body = trees.into_iter().map(|t| rebind(t, axis.var, value)).collect();
        trees = vec![Tree::Loop { kind: LoopKind::For, axis: inside, body }];
        rest.push(outside);
        (is_block, is_cut) = (true, true);
        (length, wanted) = (1, BLOCKS_IN_ORDER);
    }
    (trees, is_cut)
}

/// Reduced loops in two levels.
pub struct KBlocks {
    /// Loops that count K blocks.
    pub outside: Vec<Axis>,
    /// Loops over a K block.
    pub inside: Vec<Axis>,
    /// The value of a loop's variable that was cut in two.
    pub value: Option<(Sym, Expr)>,
}

/// Cuts a sum into K blocks of about `wanted` points: `most` at most, and more than half of either. They have equal lengths where an
/// extent has a divisor near that, else the last one is shorter. Nothing where a K block is all of the sum, or where that says no
/// more of the outermost loop than that it is long. `axes` are the loops of a product's sum, which end where its axes do, in a kernel
/// of `loops`.
pub fn k_blocks(axes: &[Axis], loops: &Loops, most: i64, wanted: i64) -> Option<KBlocks> {
    let mut length = 1i64;
    // The lengths that sums which are cut for the sake of rounding alone have, too.
    let most = most.min(wanted.saturating_add(wanted / 3));
    let short = most.min(wanted) / 2;
    for (at, axis) in axes.iter().enumerate().rev() {
        let extent = axis.extent.as_int()?;
        if length.saturating_mul(extent) <= most {
            length *= extent;
            continue;
        }
        let mut cut_up =
            KBlocks { outside: axes[..=at].to_vec(), inside: axes[at + 1..].to_vec(), value: None };
        let near = most.min(wanted) / length;
        let divisor = divisor_near(extent, wanted / length, short / length + 1..=most / length);
        if let Some(k_block) = divisor.or_else(|| (length <= short).then(|| balanced(extent, near, true))) {
            let name = |suffix: &str| variable(loops, &format!("{}{suffix}", axis.var));
            let (count, points, value) = cut(*axis, k_block, name("b"), name("i"));
            cut_up.outside[at] = count;
            cut_up.inside.insert(0, points);
            cut_up.value = Some((axis.var, value));
            length *= k_block;
        }
        return (length > short).then_some(cut_up);
    }
    None
}

/// How long to cut the K blocks of a loop: about `wanted`, of equal length where the extent has a divisor near it, else with
/// the last one cut short, where it may be.
fn k_block_of(body: &[Tree], axis: &Axis, loops: &Loops, wanted: i64) -> Option<i64> {
    let even = |lengths| divisor_near(axis.extent.as_int()?, wanted, lengths);
    let uneven = || match axis.extent.as_int() {
        Some(extent) => balanced(extent, wanted, true),
        None => wanted,
    };
    even(wanted / 2 + 1..=wanted + wanted / 3)
        .or_else(|| may_be_cut_short(body, axis, loops).then(uneven))
        .or_else(|| even(wanted / 4 + 1..=2 * wanted))
}

/// The divisor of an extent that is closest to what is wanted, of those of some size; of two that are as close the larger one.
fn divisor_near(extent: i64, wanted: i64, sizes: RangeInclusive<i64>) -> Option<i64> {
    let divisors = sizes.filter(|d| *d > 1 && extent % d == 0);
    divisors.rev().min_by_key(|d| (d - wanted).abs())
}

/// Whether what lies past the end of a loop lies past the end of the axes that leaves bind to it: nothing runs there then.
/// It does not where the loop is a digit of merged axes, or the inner of two that an axis was cut into: past its end is
/// what the next iteration of the outer one begins with.
fn may_be_cut_short(body: &[Tree], axis: &Axis, loops: &Loops) -> bool {
    let mut may = true;
    let ends = |leaf: &Leaf, (of, value): &(Sym, Expr)| {
        let bound = nest_of(leaf, loops).and_then(|nest| nest.all_axes().find(|a| a.var == *of));
        // Other loops only add to it.
        let step = value.linear(axis.var).map(|(step, _)| step);
        bound.zip(step).is_some_and(|(bound, step)| {
            loops.facts.known(&Rel::le(bound.extent, step * axis.extent)).is_yes()
        })
    };
    for tree in body {
        tree.each_leaf(&mut |leaf| {
            may &= leaf.bind.iter().filter(|b| b.1.has_sym(axis.var)).all(|b| ends(leaf, b));
        });
    }
    may
}
