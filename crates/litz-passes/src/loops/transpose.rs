//! Transposes what is read many times so that neighbouring results read neighbouring elements: vectors run along the axis with
//! the smallest stride in the result, and what has a long stride along it would be gathered element by element.
//!
//! Depthwise convolutions are the case that matters: their weights come as `[channel, tap]` and are read by channel. Constants
//! are laid out once, when the model is loaded, other operands at each call. On a GPU so are operands of large products for tf32, whose instructions
//! take neighbours along the sum.

use super::{Cx, Edits, Names, words};
use litz_analysis::access::{Stride, accesses, stride};
use litz_analysis::constants::Constants;
use litz_analysis::{Contraction, Uses};
use litz_ir::Scalar;
use litz_ir::graph::TensorType;
use litz_ir::loops::{Axis, Buf, BufData, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::{Gpu, Target};
use litz_sym::Expr;
use std::collections::HashMap;

/// Times an element must be read before a copy in another layout pays: one of a constant, and one at each call.
const MIN_READS: i64 = 4;
const MIN_READS_OF_CALL: i64 = 64;

/// Rows, columns and terms of a product of numbers that no instruction of a GPU takes, from which on its threads sum tiles.
const LEAST_OF_TILE: i64 = 16;

/// Columns and terms of one of few rows, from which on warps sum it along its rows.
const LEAST_COLUMNS: i64 = 64;
const LEAST_TERMS: i64 = 512;

/// Rows, columns and terms of a product from which on a copy at each call pays whose neighbours lie along the sum.
const LEAST_OF_COPIED: i64 = 256;

/// Lays out operands anew; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let uses = Uses::of(loops);
    let constants = Constants::of(loops, &[], &uses);
    let (mut edits, mut names) = (Edits::default(), Names::of(loops));
    let mut made: HashMap<(Buf, Vec<Expr>, Vec<Expr>), Buf> = HashMap::new();
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        // What runs once, when the model is loaded, is not worth a copy.
        // Vectors of words run along the sum.
        if constants.is_statement(at) || words::is_of_words(loops, nest, cx.target) {
            continue;
        }
        let lanes = if has_tiles(loops, nest, cx.target) { None } else { lane_axis(loops, nest) };
        for load in 0..nest.body.len() {
            let Stmt::Nest(nest) = &loops.stmts[at] else { break };
            let copy = match lanes {
                Some(lane) => wanted(loops, nest, load, lane, &constants, cx),
                None => along_sum(loops, nest, load, &constants, cx),
            };
            let Some(copy) = copy else { continue };
            // A later reader takes the same copy.
            if uses.writers(copy.source).iter().any(|&writer| writer >= at) {
                continue;
            }
            let buf = *made.entry(copy.key()).or_insert_with(|| {
                let (buf, nest) = add_copy(loops, &copy, &mut names);
                edits.insert(at, Stmt::Nest(nest));
                buf
            });
            if let Stmt::Nest(nest) = &mut loops.stmts[at]
                && let InstOp::Load { buf: source, index, .. } = &mut nest.body[load].op
            {
                (*source, *index) = (buf, copy.element());
            }
        }
    }
    edits.apply(loops);
    made.len()
}

/// Whether tiles of a GPU's product take a nest's operands: as they lie, by way of shared memory. Those of types that no instruction
/// multiplies have to be worth a tile, or a warp.
fn has_tiles(loops: &Loops, nest: &Nest, target: &Target) -> bool {
    let Target::Gpu(gpu) = target else { return false };
    let takes = |dtype| gpu.isa.instructions().iter().any(|by| by.dtype == dtype && !by.rounds);
    // What is added to the sum, such as a mask, threads read where they have it.
    let is_taken =
        |at: usize| nest.body[at].op.element().is_some_and(|(buf, _)| takes(loops.bufs[buf].dtype));
    let points = |axes: &[Axis]| {
        axes.iter().map(|axis| loops.facts.size_hint(axis.extent)).fold(1, i64::saturating_mul)
    };
    Contraction::of(loops, nest).is_some_and(|[of, _]| {
        let [rows, columns, terms] = [&of.m, &of.n, &nest.reduced].map(|axes| points(axes));
        let (few, many) = (rows.min(columns), rows.max(columns));
        let is_large = few >= LEAST_OF_TILE && terms >= LEAST_OF_TILE;
        let is_of_few = many >= LEAST_COLUMNS && terms >= LEAST_TERMS;
        // Tiles have rows and columns: in a depthwise convolution all that a filter has is shared with the image.
        let is_side = |axes: &[Axis]| axes.iter().any(|axis| !axis.extent.is_one());
        let is_taken = is_taken(of.lhs) && is_taken(of.rhs);
        of.is_plain && is_side(&of.m) && is_side(&of.n) && (is_taken || few > 1 && (is_large || is_of_few))
    })
}

/// The axis along which a reducing nest stores neighbouring elements.
fn lane_axis(loops: &Loops, nest: &Nest) -> Option<Axis> {
    if nest.reduced.is_empty() {
        return None;
    }
    let unit = |a: &&Axis| {
        let mut stores = accesses(nest).filter(|access| access.store);
        stores.all(|store| stride(store.place(loops, nest), a.var) == Stride::Unit)
    };
    nest.axes.iter().find(unit).copied()
}

/// What is read, in another layout.
struct Copy {
    source: Buf,
    index: Vec<Expr>,
    /// Axes of the copy, the lanes last.
    axes: Vec<Axis>,
}

impl Copy {
    /// What makes two copies the same: the source, how its index moves along each axis, and the extents.
    fn key(&self) -> (Buf, Vec<Expr>, Vec<Expr>) {
        let numbered = |&at: &Expr| {
            let axes = self.axes.iter().enumerate();
            axes.fold(at, |at, (i, a)| at.replace(a.var, Expr::named(&format!("axis{i}"))))
        };
        let index = self.index.iter().map(numbered).collect();
        (self.source, index, self.axes.iter().map(|a| a.extent).collect())
    }

    fn element(&self) -> Vec<Expr> {
        self.axes.iter().map(|a| Expr::sym(a.var)).collect()
    }
}

fn wanted(
    loops: &Loops,
    nest: &Nest,
    load: usize,
    lane: Axis,
    constants: &Constants,
    cx: &Cx<'_>,
) -> Option<Copy> {
    let InstOp::Load { buf, index, guard, .. } = &nest.body[load].op else { return None };
    if !guard.is_empty() {
        return None;
    }
    let place = loops.place(nest, *buf, index);
    let (step, _) = place.linear(lane.var)?;
    if step.is_zero() || step.is_one() {
        return None;
    }
    // Groups of reduced elements are laid out for matrix instructions already.
    let group = cx.target.group(loops.bufs[*buf].dtype).map(i64::from);
    let at = |a: &Axis, n: i64| place.replace(a.var, Expr::int(n));
    let is_grouped = |a: &Axis| (at(a, 1) - at(a, 0)).is_one();
    if step.as_int() == group && nest.reduced.iter().any(is_grouped) {
        return None;
    }
    let mut axes: Vec<Axis> =
        nest.all_axes().filter(|a| a.var != lane.var && place.has_sym(a.var)).copied().collect();
    let known =
        index.iter().flat_map(|at| at.syms()).all(|s| s == lane.var || axes.iter().any(|a| a.var == s));
    let product = |axes: &mut dyn Iterator<Item = &Axis>| -> Option<i64> {
        axes.map(|a| a.extent.as_int()).try_fold(1i64, |n, e| n.checked_mul(e?))
    };
    axes.push(lane);
    let elements = product(&mut axes.iter())?;
    // Of what is read by groups, a copy would have each element many times.
    if loops.facts.hint(loops.bufs[*buf].elements()).is_none_or(|all| elements > all) {
        return None;
    }
    let points: i64 = nest.all_axes().map(|a| loops.facts.size_hint(a.extent)).fold(1, i64::saturating_mul);
    let reads = if constants.is_buffer(*buf) { MIN_READS } else { MIN_READS_OF_CALL };
    (known && points >= elements.saturating_mul(reads)).then_some(Copy {
        source: *buf,
        index: index.clone(),
        axes,
    })
}

/// An operand of a product of which instructions take neighbours along the sum alone, as those for tf32 do, if its neighbours lie elsewhere and the
/// product is large enough. On an H200 `x @ w` of 4096^3 took 1007 us by the instructions of warps, which load numbers one by one.
fn along_sum(loops: &Loops, nest: &Nest, load: usize, constants: &Constants, cx: &Cx<'_>) -> Option<Copy> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let InstOp::Load { buf, index, guard, .. } = &nest.body[load].op else { return None };
    let dtype = loops.bufs[*buf].dtype;
    let by = gpu.of_warpgroup(dtype, dtype, nest.rounds).filter(|by| by.rounds && guard.is_empty())?;
    let [of, _] = Contraction::of(loops, nest).filter(|[of, _]| of.is_plain)?;
    let points = |axes: &[Axis]| {
        axes.iter().map(|axis| loops.facts.size_hint(axis.extent)).fold(1, i64::saturating_mul)
    };
    let least = if constants.is_buffer(*buf) { i64::from(by.rows) } else { LEAST_OF_COPIED };
    let is_large = points(&of.m).min(points(&of.n)) >= least && points(&nest.reduced) >= least;
    let place = loops.place(nest, *buf, index);
    let is_along = nest.reduced.iter().any(|axis| stride(place, axis.var) == Stride::Unit);
    // Rows of the copy begin where boxes may.
    let row = nest.reduced.iter().rev().find(|axis| place.has_sym(axis.var))?.extent;
    let is_row = loops.facts.divides(Gpu::VECTOR_BYTES as i64 / dtype.size() as i64, row);
    if ![of.lhs, of.rhs].contains(&load) || !is_large || is_along || !is_row {
        return None;
    }
    let axes: Vec<Axis> = nest.all_axes().filter(|axis| place.has_sym(axis.var)).copied().collect();
    let is_known = index.iter().flat_map(|at| at.syms()).all(|sym| axes.iter().any(|axis| axis.var == sym));
    // Of what is read by windows, a copy would have each element many times.
    let all = loops.facts.hint(loops.bufs[*buf].elements())?;
    (is_known && points(&axes) <= all).then(|| Copy { source: *buf, index: index.clone(), axes })
}

/// Adds a buffer for the copy; returns it with the nest that fills it.
fn add_copy(loops: &mut Loops, copy: &Copy, names: &mut Names) -> (Buf, Nest) {
    let BufData { name, dtype, device, .. } = loops.bufs[copy.source].clone();
    let ty = TensorType::contiguous(dtype, copy.axes.iter().map(|a| a.extent).collect()).on(device);
    let buf = names.add_buf(loops, &format!("{name}_lanes"), ty);
    let (guard, other) = (Vec::new(), Scalar::zero(dtype));
    let load = InstOp::Load { buf: copy.source, index: copy.index.clone(), guard, other };
    let store = InstOp::Store { buf, index: copy.element(), value: Val(0), combine: None };
    let body = vec![Inst { op: load, ty: dtype }, Inst { op: store, ty: dtype }];
    let statement = names.statement(&loops.bufs[buf].name);
    let (axes, reduced) = (copy.axes.clone(), Vec::new());
    (buf, Nest { reduced, ..Nest::new(statement, vec![name], axes, body) })
}
