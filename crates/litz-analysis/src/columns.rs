//! Finds columns that lie side by side in memory and are reduced, and how many of them a lane of a GPU takes at once.
//!
//! ```text
//! sum of x[i, j] over i, x: bf16[32768, 768]      =>      4 columns of 8 bytes a lane, 128 of a warp
//! ```

use crate::access::{Stride, bound_places, stride};
use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_ir::target::Gpu;
use litz_sym::Expr;

/// Bytes that a lane loads at once, at most. Of 48 warps that have 8 loads each under way, these are 96 KiB for each unit: four times
/// what memory hands over while it answers one of them.
const BYTES: i64 = 8;

/// The axis of a nest along which all that it loads along its reduced axes lies side by side, if that is as long as half of a warp.
pub fn column_of(loops: &Loops, nest: &Nest) -> Option<Axis> {
    let loads = reduced(loops, nest);
    let is_beside = |axis: &&Axis| loads.iter().all(|&(place, _)| stride(place, axis.var) == Stride::Unit);
    let is_wide = |axis: &&Axis| loops.facts.size_hint(axis.extent) >= i64::from(Gpu::LANES) / 2;
    nest.axes.iter().filter(is_wide).find(is_beside).copied().filter(|_| !loads.is_empty())
}

/// How many neighbours along such an axis a lane takes at once, of at most so many: as many as make whole runs, and begin where so many elements
/// do in each row. Positions of extremes are found column by column.
pub fn at_once(loops: &Loops, nest: &Nest, column: Axis, most: i64) -> i64 {
    let (loads, facts) = (reduced(loops, nest), nest.facts(&loops.facts));
    let widest = loads.iter().map(|load| load.1).max().unwrap_or(BYTES);
    let has_positions = nest.body.iter().any(|inst| matches!(inst.op, InstOp::ArgReduce { .. }));
    let most = most.min(loops.facts.size_hint(column.extent) / i64::from(Gpu::LANES));
    let starts: Vec<Expr> =
        loads.iter().map(|load| load.0.replace(column.var, Expr::zero())).chain([column.extent]).collect();
    let is_whole = |count: &i64| starts.iter().all(|at| facts.simplify(at.modulo(*count)).is_zero());
    let counts = std::iter::successors(Some(BYTES / widest), |count| Some(count / 2));
    let mut counts = counts.take_while(|&count| count > 1).filter(|&count| count <= most);
    counts.find(is_whole).filter(|_| !has_positions).unwrap_or(1)
}

/// Where a nest loads along its reduced axes, and the bytes of an element there.
fn reduced(loops: &Loops, nest: &Nest) -> Vec<(Expr, i64)> {
    let is_reduced = |place: Expr| nest.reduced.iter().any(|axis| place.has_sym(axis.var));
    bound_places(loops, nest, &[], &nest.facts(&loops.facts))
        .into_iter()
        .filter(|(access, place)| !access.store && is_reduced(*place))
        .map(|(access, place)| (place, loops.bufs[access.buf].dtype.size() as i64))
        .collect()
}
