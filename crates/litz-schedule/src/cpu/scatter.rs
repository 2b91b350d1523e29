//! Plans kernels of scatters: nests of which several points may store to one element, so that these run in order.
//!
//! One loop in order walks the points that may meet. What tasks share is what keeps points apart:
//!
//! - *batches*, axes whose strides are longer than those of the positions that data chooses;
//! - *columns* of long rows, which are at a position as a whole;
//! - *blocks* of the destination, where there are too few of either: each task walks all points, and stores those that
//!   lie in its block. The order of points is that of one task, whatever the number of blocks.
//!
//! Several that store to one buffer are a kernel where their tasks are the same: each task takes all points of the one before those of the
//! next, so that every element gets what it gets in the order of the program.

use crate::axes::Merged;
use crate::context::Cx;
use crate::cost::{ceil_div, points, size};
use crate::cpu::cpu;
use crate::cut::{cut, grain};
use crate::draft::{Draft, Family, Planned, Relation, Traits};
use crate::group::{Group, Member, beside_axes};
use crate::heuristics::Heuristics;
use crate::nest;
use crate::no_fuse::NoFuse;
use crate::scatter::{Axes, axes, is_scatter, only_store};
use litz_analysis::access::{accesses, substitute};
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

/// Nests whose stores may meet, all to one buffer.
#[derive(Debug)]
pub struct Scatter;

impl Family for Scatter {
    fn traits(&self) -> Traits {
        // What it stores to is in memory for others; blocks are counted by the grid.
        Traits { passes_on: false, shares_launch: false, overwrites: true }
    }

    fn takes_scatters(&self) -> bool {
        true
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, _: Relation) -> Result<Draft, NoFuse> {
        if !is_scatter(cx, s) {
            return Err(NoFuse::Scatter);
        }
        let mut group = draft.group.clone();
        group.members.push(Member { stmt: s, bind: Vec::new() });
        let nests: Vec<&Nest> = group.stmts().into_iter().map(|stmt| nest(cx.loops, stmt)).collect();
        let stored = only_store(nests[0]);
        let is_only_stored = |nest: &Nest| {
            only_store(nest) == stored
                && accesses(nest).all(|access| access.store || Some(access.buf) != stored)
        };
        let walks = walks(cx, &group);
        let may_join = stored.is_some()
            && nests.into_iter().all(is_only_stored)
            && walks.iter().all(|walk| walk.has_tasks_of(&walks[0]));
        if may_join { Ok(draft.with(group)) } else { Err(NoFuse::Scatter) }
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let walks = walks(cx, group);
        let work = walks.iter().map(|walk| walk.work).fold(0, i64::saturating_add);
        let grid = walks[0].grid.clone();
        let grain = match grid.is_empty() {
            true => 1,
            false => grain(points(&cx.loops.facts, &grid), work, cpu(cx).threads, cx.heuristics),
        };
        let body = walks.into_iter().flat_map(|walk| walk.body).collect();
        Some(KernelPlan::new(grid, grain, body).into())
    }
}

/// What tasks a scatter has, and what each does.
struct Walk {
    /// The tasks.
    grid: Vec<Axis>,
    /// The block of the destination that a task stores to.
    block: Option<Block>,
    /// Where in memory its first store is, by the variables of its loops and by what data chooses.
    stored: Option<Expr>,
    /// The loops of a task.
    body: Vec<Tree>,
    /// Instructions that its points execute.
    work: i64,
}

impl Walk {
    /// Whether the tasks are those of another walk, and each stores where the other's does.
    fn has_tasks_of(&self, other: &Walk) -> bool {
        let is_alone = self.grid.is_empty() || self.block.is_some();
        (&self.grid, self.block) == (&other.grid, other.block) && (is_alone || self.stored == other.stored)
    }
}

/// The walks of all members of a group, whose tasks have the same names.
fn walks(cx: &Cx<'_>, group: &Group) -> Vec<Walk> {
    let walk = |stmt: usize| {
        let name = |name: &str| beside_axes(cx.loops, group, name);
        walk(cx.loops, nest(cx.loops, stmt), &cx.deps.stmts[stmt].ordered, &name, (cpu(cx), cx.heuristics))
    };
    group.stmts().into_iter().map(walk).collect()
}

/// Walks a scatter whose axes `ordered` must run in order. `name` makes names of variables.
fn walk(
    loops: &Loops,
    nest: &Nest,
    ordered: &[Sym],
    name: &dyn Fn(&str) -> Sym,
    (target, heuristics): (&Cpu, &Heuristics),
) -> Walk {
    let found = axes(loops, nest, ordered, name);
    let mut bind = found.bind();
    let Axes { batches, in_order, rows, step } = found;
    let of = |axes: &[Merged]| axes.iter().map(|m| m.axis).collect::<Vec<Axis>>();
    let (mut grid, mut walked, mut rows) = (of(&batches), of(&in_order), of(&rows));
    let count = |axes: &[Axis]| points(&loops.facts, axes);
    let work = count(&walked).saturating_mul(count(&rows)).saturating_mul(nest.body.len() as i64);
    let (lanes, threads) = (i64::from(target.lanes()), i64::from(target.threads));
    let is_long = work.saturating_mul(count(&grid)) >= 2 * heuristics.chunk_ops;
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
        } else if let Some(stored) = only_store(nest) {
            let span = loops.bufs[stored].span();
            let number = Axis { var: name("p"), extent: Expr::int(most) };
            let width = loops.facts.simplify(step * span.ceildiv(step).ceildiv(most));
            if loops.facts.holds(&Rel::le(span, width * most)) {
                block = Some(Block { number: Expr::sym(number.var), width });
                walked.splice(0..0, std::mem::replace(&mut grid, vec![number]));
            }
        }
    }
    let stored = accesses(nest).find(|access| access.store).map(|store| {
        let is_axis = |sym: Sym| nest.all_axes().any(|axis| axis.var == sym);
        let chosen = nest.indices().filter(|bound| !is_axis(bound.var)).enumerate();
        let chosen = chosen.map(|(at, bound)| (bound.var, Expr::sym(Sym::new(&format!("chosen {at}")))));
        substitute(store.place(loops, nest), &bind.iter().copied().chain(chosen).collect::<Vec<_>>())
    });
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
    Walk { grid, block, stored, body, work }
}
