//! Packs the right operand of a product panel by panel, in the kernel of the product.
//!
//! Weights that are parameters of a call are packed at each call. A product of few rows uses a packed element few times, so that
//! it costs as much to write all of the panels to memory and to read them again as to multiply. In one kernel a thread packs the
//! columns of a tile, which stay in its second-level cache, and multiplies all rows with them.

use crate::axes::fresh;
use crate::cost::{points, size};
use crate::cpu::loops::phase;
use crate::cpu::product::problem::Problem;
use crate::cpu::product::tiling::{PANELS_PER_THREAD, Tiling};
use crate::group::{Group, Member};
use crate::nest;
use litz_analysis::access::{accesses, substitute};
use litz_analysis::inside::enter;
use litz_ir::loops::{Axis, Buf, InstOp, Nest};
use litz_ir::schedule::{Holds, Layout, Local, LocalSpace, Tree};
use litz_sym::{Expr, Sym};

/// Rows from which on a product has enough to do with a panel for packing it to be cheap wherever it is written: the left operand
/// of more is read again for every panel.
const MOST_ROWS: i64 = 256;

/// Whether the kernel of a product packs its right operand by its statement `packed`, which stores to `buf`.
pub fn is_worth_it(problem: &Problem<'_>, buf: Buf) -> bool {
    let facts = &problem.loops.facts;
    let is_plain = problem.unit.is_none() && problem.in_place.is_none();
    let rows = points(facts, &problem.columns.contraction.m);
    if !is_plain || right(problem) != Some(buf) || rows > MOST_ROWS {
        return false;
    }
    let tiling = Tiling::new(problem);
    let column = tiling.grid_column.filter(|_| tiling.batch.is_empty());
    let is_parallel =
        |column: Axis| size(facts, column.extent) >= PANELS_PER_THREAD * i64::from(problem.target.threads);
    column.is_some_and(|column| Panel::of(problem, &tiling).is_some() && is_parallel(column))
}

/// The buffer that a product reads as its right operand, and in no other way.
fn right(problem: &Problem<'_>) -> Option<Buf> {
    let at = problem.columns.contraction.rhs;
    let loads = |buf: Buf| accesses(problem.head).filter(|access| access.buf == buf).count();
    let InstOp::Load { buf, guard, .. } = &problem.head.body[at].op else { return None };
    (guard.is_empty() && loads(*buf) == 1).then_some(*buf)
}

/// What of the right operand the tiles of one point of the grid read.
pub struct Panel<'a> {
    nest: &'a Nest,
    stmt: usize,
    /// Values of the axes that the point determines.
    bind: Vec<(Sym, Expr)>,
    /// The other axes.
    axes: Vec<Axis>,
    /// The loops that count K blocks, where it is what one of these reads; none where it is all of the sum.
    pub k_blocks: Vec<Axis>,
}

impl<'a> Panel<'a> {
    /// The panel of a product that packs its operand: all of it where that stays in the cache, else what a K block has of it. None
    /// where neither can be, or where an index says more than which panel, or which element of it.
    pub fn of(problem: &Problem<'a>, tiling: &Tiling) -> Option<Panel<'a>> {
        let &Problem { loops, group, head, .. } = problem;
        let (stmt, column) = (problem.packed?, tiling.grid_column?);
        let pack = nest(loops, stmt);
        let (mut bind, mut axes, mut along_sum) = (Vec::new(), pack.axes.clone(), None);
        let store = accesses(pack).find(|access| access.store)?;
        let InstOp::Load { index, .. } = &head.body[problem.columns.contraction.rhs].op else { return None };
        let values: Vec<(Sym, Expr)> =
            tiling.bind(&group.members[0]).into_iter().chain(problem.bind.iter().copied()).collect();
        let mut facts = loops.facts.clone();
        let around = tiling.grid(problem).into_iter().chain(tiling.tiles());
        around.for_each(|axis| enter(&mut facts, axis));
        tiling.tile_axes().for_each(|axis| enter(&mut facts, axis));
        if !pack.reduced.is_empty() || store.index.len() != index.len() {
            return None;
        }
        for (own, read) in store.index.iter().zip(index) {
            let read = facts.simplify(substitute(*read, &values));
            if let [sum] = problem.sum[..]
                && read == Expr::sym(sum.var)
            {
                along_sum = own.as_sym();
            }
            if !read.has_sym(column.var) {
                continue;
            }
            let at = axes.iter().position(|axis| Some(axis.var) == own.as_sym())?;
            if Some(read) != tiling.column_tile {
                return None;
            }
            bind.push((axes.remove(at).var, read));
        }
        if bind.is_empty() {
            return None;
        }
        let element = loops.bufs[store.buf].dtype.size() as i64;
        let bytes = points(&loops.facts, &axes).saturating_mul(element);
        let whole = Panel { nest: pack, stmt, bind, axes, k_blocks: Vec::new() };
        if bytes <= problem.target.l2_bytes / problem.heuristics.local_fraction {
            return Some(whole);
        }
        whole.of_k_block(problem, tiling, along_sum?)
    }

    /// What a K block reads of it, if all rows share that; `along` is the axis of the sum.
    fn of_k_block(mut self, problem: &Problem<'a>, tiling: &Tiling, along: Sym) -> Option<Panel<'a>> {
        let &Problem { loops, ref sum, .. } = problem;
        let k_blocks = tiling.blocks.filter(|_| tiling.grid_rows().is_empty())?.k_blocks(sum, loops);
        let (_, value) = k_blocks.value?;
        let (at, inside) = (self.axes.iter().position(|axis| axis.var == along)?, *k_blocks.inside.first()?);
        self.axes[at] = inside;
        self.bind.push((along, value));
        self.k_blocks = k_blocks.outside;
        Some(self)
    }

    /// The memory of a panel, and the loops that fill it. `around` are those around it.
    pub fn trees(&self, problem: &Problem<'_>, around: &[Axis]) -> Vec<Tree> {
        let &Problem { loops, target, heuristics, .. } = problem;
        let (mut bind, mut outer) = (self.bind.clone(), Vec::new());
        for axis in &self.axes {
            let is_taken = |s: Sym| {
                self.nest.all_axes().any(|a| a.var == s)
                    || loops.facts.is_symbol_declared(s)
                    || outer.iter().any(|o: &Axis| o.var == s)
            };
            let var = fresh("p", is_taken);
            outer.push(Axis { var, extent: axis.extent });
            bind.iter_mut().for_each(|(_, value)| *value = value.replace(axis.var, Expr::sym(var)));
            if self.nest.axes.iter().any(|own| own.var == axis.var) {
                bind.push((axis.var, Expr::sym(var)));
            }
        }
        let members = vec![Member { stmt: self.stmt, bind }];
        let packing = Group { members, outer };
        let buf = accesses(self.nest).find(|access| access.store).map(|access| access.buf);
        let memory = buf.map(|buf| {
            let holds = Holds::Buffer(loops.bufs[buf].name.clone());
            Tree::Local(Local { holds, space: LocalSpace::Scratch, layout: Layout::Padded(crate::LINE) })
        });
        let loops_of = phase(loops, &packing, around, target, heuristics);
        memory.into_iter().chain(loops_of).collect()
    }
}
