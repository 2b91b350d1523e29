//! Cuts axes into blocks, and puts loops around trees.

use litz_ir::loops::Axis;
use litz_ir::schedule::{LoopKind, Tree};
use litz_sym::{Expr, Sym};

use crate::cost::ceil_div;
use crate::heuristics::Heuristics;

/// Blocks of `width` points of an axis: the loop over blocks, that inside, and the axis in terms of both.
pub fn cut(axis: Axis, width: i64, outer: Sym, inner: Sym) -> (Axis, Axis, Expr) {
    let blocks = Axis { var: outer, extent: axis.extent.ceildiv(width) };
    let inside = Axis { var: inner, extent: Expr::int(width) };
    (blocks, inside, Expr::sym(outer) * width + Expr::sym(inner))
}

/// Grid points one thread takes at a time: enough to be worth waking for, few enough to share out evenly.
pub fn grain(points: i64, work: i64, threads: u32, heuristics: &Heuristics) -> u64 {
    let worth = (heuristics.chunk_ops / work.max(1)).max(1);
    let fair = (points / (4 * i64::from(threads.max(1)))).max(1);
    worth.max(fair.min(worth * 4)).min(points.max(1)) as u64
}

/// The tree with `value` for the variable `var`.
pub fn rebind(mut tree: Tree, var: Sym, value: Expr) -> Tree {
    tree.replace(var, value);
    tree
}

/// Plain loops around `body`, outermost first.
pub fn nested(body: Vec<Tree>, axes: &[Axis]) -> Vec<Tree> {
    let wrap = |body, axis: &Axis| vec![Tree::Loop { kind: LoopKind::For, axis: *axis, body }];
    axes.iter().rev().fold(body, wrap)
}

/// Rows of a tile: as many as fit, spread evenly over the tiles a known number of rows needs; fewer when the number is
/// only known at run time, where the rows that remain run one by one.
pub fn balanced(rows: i64, most: i64, known: bool) -> i64 {
    let most = if known { most } else { most.min(8) };
    ceil_div(rows, ceil_div(rows, most).max(1))
}
