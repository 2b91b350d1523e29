//! Cuts the loops of long sums into blocks, so that rounding errors stay small and operands stay in the cache.

use crate::axes::variable;
use crate::cost::{ceil_div, size};
use crate::cut::{balanced, cut, rebind};
use crate::remainders::ended;
use litz_analysis::access::{Access, accesses};
use litz_analysis::inside::enter;
use litz_ir::ReduceOp;
use litz_ir::loops::{Axis, InstOp, Loops, Nest, Stmt};
use litz_ir::schedule::{Leaf, LoopKind, Part, Tree};
use litz_sym::{Expr, Sym};
use std::ops::RangeInclusive;

/// The reduced loops around `body`, outermost first. Sums of which an accumulator takes many terms are added up by K blocks of about `wanted`
/// of these: a single loop is cut into them, and of several loops the innermost that are long enough together make one. `axes`
/// belong to a kernel of `loops`.
pub fn sum_in_k_blocks(body: Vec<Tree>, axes: &[(LoopKind, Axis)], loops: &Loops, wanted: i64) -> Vec<Tree> {
    cut_into_k_blocks(body, axes, loops, wanted).0
}

/// Loops that go by one after another.
pub fn in_order(axes: &[Axis]) -> Vec<(LoopKind, Axis)> {
    axes.iter().map(|&axis| (LoopKind::For, axis)).collect()
}

/// The loops around `body` that add up one K block of the cache, in shorter K blocks for the sake of rounding. Where it is too
/// short to be cut, it is one such block itself.
pub fn sum_of_k_block(body: Vec<Tree>, axes: &[Axis], loops: &Loops, wanted: i64) -> Vec<Tree> {
    let (trees, is_cut) = cut_into_k_blocks(body, &in_order(axes), loops, wanted);
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
        let nest = nest_of(leaf, loops).filter(|nest| leaf.part == Part::Update && adds_up(nest))?;
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

/// Whether all that a nest stores is rounded to half types.
pub fn is_rounded_to_half(loops: &Loops, nest: &Nest) -> bool {
    let is_half = |access: Access<'_>| {
        let dtype = loops.bufs[access.buf].dtype;
        dtype.compute() != dtype
    };
    accesses(nest).filter(|access| access.store).all(is_half)
}

/// Whether the order of terms decides what a nest computes.
fn adds_up(nest: &Nest) -> bool {
    nest.body.iter().any(|inst| matches!(inst.op, InstOp::Reduce(ReduceOp::Sum, _)))
}

fn nest_of<'a>(leaf: &Leaf, loops: &'a Loops) -> Option<&'a Nest> {
    loops.stmts.iter().flat_map(Stmt::nests).find(|nest| nest.name == leaf.nest)
}

/// Sums of K blocks that are added up one after another; where there are more, these are blocks as well. Rounding errors of n terms in
/// K blocks of b, added up in blocks of c, grow as the root of `n*b + n*c + n*n/(b*c)`, where without the latter they grow as that of `n*b + n*n/b`:
/// a gradient of the weights of a grouped convolution over 100,352 places erred by 7 roundings of its largest element.
const BLOCKS_IN_ORDER: i64 = 64;

/// The loops, and whether they are cut into K blocks.
fn cut_into_k_blocks(
    body: Vec<Tree>,
    axes: &[(LoopKind, Axis)],
    loops: &Loops,
    wanted: i64,
) -> (Vec<Tree>, bool) {
    let mut trees = body;
    // What an accumulator adds up one after another in `trees`: terms, or the sums of blocks.
    let (mut length, mut wanted) = (1i64, wanted);
    let (mut is_block, mut is_cut) = (false, false);
    let mut rest = axes.to_vec();
    while let Some((kind, axis)) = rest.pop() {
        let at_once = at_once(kind);
        let extent = ceil_div(size(&loops.facts, axis.extent), at_once);
        let is_long = |length: i64, wanted: i64| length.saturating_mul(extent) > 2 * wanted;
        // Two iterations would be more than is wanted.
        if is_long(length, wanted) && 2 * length > wanted && at_once == 1 {
            (is_block, is_cut) = (true, true);
            (length, wanted) = (1, BLOCKS_IN_ORDER);
        }
        if std::mem::take(&mut is_block) {
            trees.extend(merges(&trees, loops));
        }
        if !is_long(length, wanted) {
            trees = vec![Tree::Loop { kind, axis, body: trees }];
            length = length.saturating_mul(extent);
            continue;
        }
        let k_block = at_once * k_block_of(axis.extent, at_once, wanted / length);
        let name = |suffix: &str| variable(loops, &format!("{}{suffix}", axis.var));
        let (outside, mut inside, value) = cut(axis, k_block, name("b"), name("i"));
        if axis.extent.as_int().is_none_or(|extent| extent % k_block != 0) {
            let mut facts = loops.facts.clone();
            enter(&mut facts, outside);
            inside.extent = ended(inside.extent, axis.extent - Expr::sym(outside.var) * k_block, &facts);
        }
        let body = trees.into_iter().map(|t| rebind(t, axis.var, value)).collect();
        trees = vec![Tree::Loop { kind, axis: inside, body }];
        rest.push((LoopKind::For, outside));
        (is_block, is_cut) = (true, true);
        (length, wanted) = (1, BLOCKS_IN_ORDER);
    }
    (trees, is_cut)
}

/// How many terms an accumulator takes of a sum along these loops.
pub fn chain(axes: &[(LoopKind, Axis)], loops: &Loops) -> i64 {
    let lengths = axes.iter().map(|(kind, axis)| ceil_div(size(&loops.facts, axis.extent), at_once(*kind)));
    lengths.fold(1, i64::saturating_mul)
}

/// Iterations of a loop that are added up in accumulators of their own: lanes, and vectors in flight.
fn at_once(kind: LoopKind) -> i64 {
    match kind {
        LoopKind::Vector { lanes, copies } => i64::from(lanes) * i64::from(copies),
        LoopKind::For
        | LoopKind::Unroll
        | LoopKind::Pipeline { .. }
        | LoopKind::Level(_)
        | LoopKind::Chain
        | LoopKind::Mma => 1,
    }
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

/// How long to cut the K blocks of a loop, in what it takes at once: about `wanted`, of equal length where the extent has a divisor near
/// it, else with the last one shorter.
fn k_block_of(extent: Expr, at_once: i64, wanted: i64) -> i64 {
    let Some(extent) = extent.as_int() else { return wanted };
    let whole = (extent % at_once == 0).then_some(extent / at_once);
    whole
        .and_then(|whole| divisor_near(whole, wanted, wanted / 2 + 1..=wanted + wanted / 3))
        .unwrap_or_else(|| balanced(ceil_div(extent, at_once), wanted, true))
}

/// The divisor of an extent that is closest to what is wanted, of those of some size; of two that are as close the larger one.
fn divisor_near(extent: i64, wanted: i64, sizes: RangeInclusive<i64>) -> Option<i64> {
    let divisors = sizes.filter(|d| *d > 1 && extent % d == 0);
    divisors.rev().min_by_key(|d| (d - wanted).abs())
}
