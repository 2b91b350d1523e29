//! Plans kernels of scatters: nests of which several points may store to one element, so that these run in order.
//!
//! One loop in order walks the points that may meet. What tasks share is what keeps points apart:
//!
//! - *batches*, axes whose strides are longer than those of the positions that data chooses;
//! - *columns* of long rows, which are at a position as a whole;
//! - *blocks* of the destination, where there are too few of either: each task walks all points, and stores those that
//!   lie in its block. The order of points is that of one task, whatever the number of blocks.

use crate::axes::{Merged, fresh, merge_axes, order_axes};
use crate::context::Cx;
use crate::cost::{ceil_div, points, size};
use crate::cpu::cpu;
use crate::cut::{cut, grain};
use crate::draft::{Family, Planned, Traits};
use crate::group::Group;
use crate::heuristics::Heuristics;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{Access, Stride, accesses, side_exprs, stride};
use litz_ir::loops::{Axis, Loops, Nest};
use litz_ir::schedule::{Block, KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_ir::target::Cpu;
use litz_sym::{Expr, Rel, Sym};

/// Blocks of the destination at most. Each task looks at every position, which takes about a tenth of the time of a row
/// that is stored in memory: more tasks would hardly end earlier.
const MOST_BLOCKS: i64 = 16;

/// Columns of a long row that a task takes, at least: a page of f32. Tasks with shorter strips would touch as many pages
/// each as one with whole rows.
const STRIP: i64 = 1024;

/// Points of a loop that is written out rather than counted, at most.
const WRITTEN_OUT: i64 = 4;

/// A nest whose stores may meet, alone.
#[derive(Debug)]
pub struct Scatter;

impl Family for Scatter {
    fn traits(&self) -> Traits {
        // Alone in its kernel, it passes nothing on there; blocks are counted by the grid.
        Traits { passes_on: false, shares_launch: false, overwrites: true }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Scatter)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let stmt = group.members[0].stmt;
        let ordered = &cx.deps.stmts[stmt].ordered;
        Some(plan(cx.loops, crate::nest(cx.loops, stmt), ordered, cpu(cx), cx.heuristics).into())
    }
}

/// Whether the nest is a scatter of the kind planned here: without reductions and scans.
pub fn is_plain(nest: &Nest) -> bool {
    nest.reduced.is_empty() && !nest.accumulates()
}

/// Plans the kernel of a scatter whose axes `ordered` must run in order.
fn plan(loops: &Loops, nest: &Nest, ordered: &[Sym], target: &Cpu, heuristics: &Heuristics) -> KernelPlan {
    let Axes { batches, in_order, rows, step } = axes(loops, nest, ordered);
    let mut bind: Vec<(Sym, Expr)> =
        batches.iter().chain(&in_order).chain(&rows).flat_map(|m| m.parts.clone()).collect();
    let of = |axes: &[Merged]| axes.iter().map(|m| m.axis).collect::<Vec<Axis>>();
    let (mut grid, mut walked, mut rows) = (of(&batches), of(&in_order), of(&rows));
    let count = |axes: &[Axis]| points(&loops.facts, axes);
    let work = count(&walked).saturating_mul(count(&rows)).saturating_mul(nest.body.len() as i64);
    let (lanes, threads) = (i64::from(target.lanes()), i64::from(target.threads));
    let is_long = work.saturating_mul(count(&grid)) >= 2 * heuristics.chunk_ops;
    let name = |name: &str| variable(loops, nest, name);
    let mut block = None;
    if threads > 1 && is_long && count(&grid) < 2 * threads {
        let most = threads.min(MOST_BLOCKS);
        let strips = |row: &Axis| threads.min(size(&loops.facts, row.extent) / STRIP);
        if let Some(row) = rows.last_mut().filter(|row| strips(row) >= most) {
            let width = ceil_div(ceil_div(size(&loops.facts, row.extent), strips(row)), lanes) * lanes;
            let (blocks, inside, value) = cut(*row, width, name("b"), name("v"));
            bind.iter_mut().for_each(|(_, e)| *e = e.replace(row.var, value));
            *row = inside;
            grid.push(blocks);
        } else if let Some(span) = only_store(loops, nest) {
            let number = Axis { var: name("p"), extent: Expr::int(most) };
            let width = loops.facts.simplify(step * span.ceildiv(step).ceildiv(most));
            if loops.facts.known(&Rel::le(span, width * most)).is_yes() {
                block = Some(Block { number: Expr::sym(number.var), width });
                walked.splice(0..0, std::mem::replace(&mut grid, vec![number]));
            }
        }
    }
    let is_shared = !grid.is_empty();
    let leaf = Leaf { nest: nest.name.clone(), part: Part::Whole, bind, masked: false, block, by: None };
    let mut body = vec![Tree::Leaf(leaf)];
    for (at, &axis) in rows.iter().enumerate().rev() {
        let is_innermost = at + 1 == rows.len();
        let kind = match axis.extent.as_int() {
            Some(extent) if extent <= WRITTEN_OUT => LoopKind::Unroll,
            _ if is_innermost && size(&loops.facts, axis.extent) >= lanes => {
                LoopKind::Vector { lanes: target.lanes(), copies: 1 }
            }
            _ => LoopKind::For,
        };
        body = vec![Tree::Loop { kind, axis, body }];
    }
    for &axis in walked.iter().rev() {
        body = vec![Tree::Loop { kind: LoopKind::For, axis, body }];
    }
    let grain = if is_shared { grain(count(&grid), work, target.threads, heuristics) } else { 1 };
    KernelPlan { name: String::new(), at_load: false, grid, grain, persistent: None, body }
}

/// The axes of a scatter, merged, and from the longest strides to the shortest but for the second.
struct Axes {
    /// Those with longer strides than what data chooses.
    batches: Vec<Merged>,
    /// Those that run in order, in order.
    in_order: Vec<Merged>,
    /// Those with shorter strides.
    rows: Vec<Merged>,
    /// Elements from one position that data chooses to the next.
    step: Expr,
}

fn axes(loops: &Loops, nest: &Nest, ordered: &[Sym]) -> Axes {
    let facts = nest.facts(&loops.facts);
    let place = |access: Access| access.place(loops, nest);
    let indices: Vec<Expr> = accesses(nest).map(place).collect();
    let stored: Vec<Expr> = accesses(nest).filter(|access| access.store).map(place).collect();
    let is_free = |sym: Sym| nest.axes.iter().any(|axis| axis.var == sym && !ordered.contains(&sym));
    // What chooses the position: symbols that are neither free axes nor sizes.
    let choosing = |e: &Expr| {
        let chooses = |sym: &Sym| !is_free(*sym) && !loops.facts.is_symbol_declared(*sym);
        let steps =
            e.syms().into_iter().filter(chooses).map(|sym| e.linear(sym).map_or(Expr::one(), |l| l.0));
        steps.collect::<Vec<_>>()
    };
    let length = |e: Expr| size(&loops.facts, e.max(Expr::zero() - e));
    let step_of_positions = stored.iter().flat_map(choosing).min_by_key(|&e| length(e));
    let is_row = |axis: &Axis| {
        let Some(positions) = step_of_positions else { return true };
        stored.iter().all(|index| match stride(*index, axis.var) {
            Stride::Zero | Stride::Irregular => false,
            Stride::Unit => length(positions) > 1,
            Stride::Elements(far) => length(far) < length(positions),
        })
    };
    let (in_order, free): (Vec<Axis>, Vec<Axis>) =
        nest.axes.iter().partition(|axis| ordered.contains(&axis.var));
    let (rows, batches): (Vec<Axis>, Vec<Axis>) = free.into_iter().partition(is_row);
    // Stores decide ties: they count double.
    let weighted = [&indices[..], &stored].concat();
    let merged = |mut axes: Vec<Axis>, class: &str| {
        order_axes(&mut axes, &weighted, &facts);
        merge_axes(&axes, &indices, &side_exprs(nest), &|i| variable(loops, nest, &format!("{class}{i}")))
    };
    let alone = |(i, axis): (usize, &Axis)| Merged::alone(*axis, variable(loops, nest, &format!("o{i}")));
    Axes {
        batches: merged(batches, "g"),
        in_order: in_order.iter().enumerate().map(alone).collect(),
        rows: merged(rows, "r"),
        step: step_of_positions.filter(|step| !step.is_zero()).unwrap_or(Expr::one()),
    }
}

/// Elements of the buffer that the nest stores to, if it has one store.
fn only_store(loops: &Loops, nest: &Nest) -> Option<Expr> {
    let mut stores = accesses(nest).filter(|access| access.store);
    match (stores.next(), stores.next()) {
        (Some(store), None) => Some(loops.bufs[store.buf].span()),
        _ => None,
    }
}

/// A variable that is no axis of the nest and no size.
fn variable(loops: &Loops, nest: &Nest, name: &str) -> Sym {
    fresh(name, |sym| nest.all_axes().any(|axis| axis.var == sym) || loops.facts.is_symbol_declared(sym))
}
