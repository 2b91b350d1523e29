//! Merges the nests that unpack one buffer: each of them reads the same elements and stores a block of the result.
//!
//! Two integers of four bits in each byte are unpacked by two nests, `stack[i, j, 0] = w[i, j] & 15` and `stack[i, j, 1] =
//! w[i, j] >> 4`. The one nest `stack[i, j, k] = k == 0 ? w[i, j] & 15 : w[i, j] >> 4` can be taken in by what reads
//! the numbers, which then need not be stored. Nests that read as many bytes as they store stay apart: what they read
//! would be read again for each block.
//!
//! Threads of a GPU take one element each, and load what its block needs alone, `cat[i, j] = j < n ? (-x[i, j + n] if j < n) : (x[i, j - n] if
//! j >= n)`: there the turned halves of a rotary embedding are united where one pointwise nest reads them, and are no launches of their own.

use super::cost::cost;
use super::prologue::bytes_read;
use super::{Cx, Edits, cse, inline, names};
use litz_analysis::Uses;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::Target;
use litz_ir::{Dtype, ScalarOp};
use litz_sym::{Expr, Facts, Rel};

/// Most blocks of a buffer: the integers in a byte are 8 at most.
const MOST_BLOCKS: usize = 8;

/// Cost of a block's body (see [`cost`]), which is computed for the others' elements as well: a shift, a mask and another shift.
const MOST_COST: u32 = 3;

/// Unites nests, and puts what came of it where it is read; returns how many nests disappeared.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let (uses, mut edits) = (Uses::of(loops), Edits::default());
    let mut gone = 0;
    for buf in loops.bufs.iter().map(|(buf, _)| buf).collect::<Vec<_>>() {
        let writers = uses.writers(buf);
        let Some(nest) = united(loops, buf, &uses, cx.target) else { continue };
        let (&last, others) = writers.split_last().expect("invariant: a united buffer has writers");
        loops.stmts[last] = Stmt::Nest(nest);
        others.iter().for_each(|&at| edits.remove(at));
        gone += others.len();
    }
    edits.apply(loops);
    if gone > 0 {
        gone += inline::run(loops, cx);
    }
    gone
}

/// The nest that stores all of a buffer, if its writers are such as can be united. It stands where the last of them does.
fn united(loops: &Loops, buf: Buf, uses: &Uses, target: &Target) -> Option<Nest> {
    let writers = uses.writers(buf);
    let (&first, &last) = (writers.first()?, writers.last()?);
    let is_early = uses.readers(buf).iter().any(|&reader| reader <= last);
    if !(2..=MOST_BLOCKS).contains(&writers.len()) || !loops.is_internal(buf) || is_early {
        return None;
    }
    let is_overwritten = |source: &Buf| uses.writers(*source).iter().any(|at| (first..=last).contains(at));
    if writers.iter().any(|&at| uses.reads_of(at).iter().any(is_overwritten)) {
        return None;
    }
    let mut blocks =
        writers.iter().map(|&at| Block::of(loops, at, buf)).collect::<Option<Vec<Block<'_>>>>()?;
    let (dim, axis) = (blocks[0].dim(&blocks[1])?, blocks[0].nest.axes.clone());
    let size = loops.bufs[buf].sizes[dim].as_int()?;
    let extent = size / i64::try_from(blocks.len()).ok()?;
    blocks.sort_by_key(|block| block.index[dim].constant());
    let along = blocks[0].index[dim].as_sym();
    for (number, block) in (0i64..).zip(&blocks) {
        let is_shaped = block.nest.axes.len() == axis.len()
            && block.nest.axes.iter().zip(&axis).all(|(a, b)| a.extent == b.extent);
        let at = along.map_or(Expr::zero(), Expr::sym) + number * extent;
        let mut expected = blocks[0].index.to_vec();
        expected[dim] = at;
        let is_whole = match along {
            Some(var) => axis.iter().any(|a| a.var == var && a.extent.as_int() == Some(extent)),
            None => extent == 1,
        };
        if !is_shaped || !is_whole || block.renamed(block.index, &axis) != expected {
            return None;
        }
    }
    let written = axis.iter().map(|a| loops.facts.size_hint(a.extent)).fold(1, i64::saturating_mul);
    let written = written.saturating_mul(blocks.len() as i64 * loops.bufs[buf].dtype.size() as i64);
    // What all blocks read is one load of each element.
    let read = blocks.iter().map(|block| block.loads(&axis)).collect::<Vec<_>>();
    let is_cheap = blocks.iter().all(|block| cost(block.nest) <= MOST_COST);
    let is_shared = read.windows(2).all(|pair| pair[0] == pair[1]);
    let is_smaller = is_shared && bytes_read(loops, blocks[0].nest) < written;
    let is_chosen = !is_smaller && matches!(target, Target::Gpu(_)) && is_read_once(loops, buf, uses);
    let along = Along { dim, extent, size, is_chosen };
    (is_cheap && (is_smaller || is_chosen)).then(|| unite(&blocks, &loops.facts, along))
}

/// Whether one pointwise nest reads a buffer, one element at each of as many points as it has elements.
fn is_read_once(loops: &Loops, buf: Buf, uses: &Uses) -> bool {
    let &[reader] = uses.readers(buf) else { return false };
    let Stmt::Nest(reader) = &loops.stmts[reader] else { return false };
    let points = |extents: &mut dyn Iterator<Item = Expr>| {
        extents.map(|extent| loops.facts.size_hint(extent)).fold(1, i64::saturating_mul)
    };
    let mut loads = reader.body.iter().filter(|inst| inst.op.element().is_some_and(|(read, _)| read == buf));
    !reader.accumulates()
        && matches!((loads.next(), loads.next()), (Some(_), None))
        && points(&mut reader.axes.iter().map(|axis| axis.extent))
            == points(&mut loops.bufs[buf].sizes.iter().copied())
}

/// A nest that stores a block of a buffer.
struct Block<'a> {
    nest: &'a Nest,
    index: &'a [Expr],
    value: Val,
}

impl<'a> Block<'a> {
    fn of(loops: &'a Loops, at: usize, buf: Buf) -> Option<Block<'a>> {
        let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
        let (last, others) = nest.body.split_last()?;
        let InstOp::Store { buf: stored, index, value, combine: None } = &last.op else { return None };
        let are_terms = others.iter().all(|inst| inst.op.is_term());
        let is_pointwise = nest.reduced.is_empty() && nest.idle.is_none() && are_terms;
        (*stored == buf && is_pointwise).then_some(Block { nest, index, value: *value })
    }

    /// The dimension along which another block follows.
    fn dim(&self, other: &Block<'_>) -> Option<usize> {
        let other = other.renamed(other.index, &self.nest.axes);
        let mut differing = (0..self.index.len()).filter(|&dim| other.get(dim) != Some(&self.index[dim]));
        differing.next().filter(|_| differing.next().is_none())
    }

    /// Expressions in terms of other axes, one for each of this nest's.
    fn renamed(&self, exprs: &[Expr], axes: &[Axis]) -> Vec<Expr> {
        let other = |sym| {
            let at = self.nest.axes.iter().position(|axis| axis.var == sym)?;
            axes.get(at).map(|axis| Expr::sym(axis.var))
        };
        exprs.iter().map(|e| e.subst(&other)).collect()
    }

    /// The elements that are loaded.
    fn loads(&self, axes: &[Axis]) -> Vec<(Buf, Vec<Expr>)> {
        let element = |inst: &Inst| {
            let InstOp::Load { buf, index, .. } = &inst.op else { return None };
            Some((*buf, self.renamed(index, axes)))
        };
        self.nest.body.iter().filter_map(element).collect()
    }
}

/// The dimension of a buffer along which blocks follow each other, of `extent` elements each and `size` in all, and whether a point loads what its
/// own block needs alone.
#[derive(Clone, Copy)]
struct Along {
    dim: usize,
    extent: i64,
    size: i64,
    is_chosen: bool,
}

/// The nest that stores all blocks.
fn unite(blocks: &[Block<'_>], facts: &Facts, Along { dim, extent, size, is_chosen }: Along) -> Nest {
    let first = blocks[0].nest;
    let all = Axis { var: names::symbol("block", facts, first.axes.iter()), extent: Expr::int(size) };
    let along = blocks[0].index[dim].as_sym();
    let mut axes = first.axes.clone();
    match axes.iter_mut().find(|axis| Some(axis.var) == along) {
        Some(axis) => *axis = all,
        None => axes.push(all),
    }
    let at = Expr::sym(all.var);
    let mut facts = facts.clone();
    axes.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let place = |e: Expr| match along {
        Some(var) => facts.simplify(e.replace(var, at.modulo(extent))),
        None => e,
    };
    let is_here = |number: i64| Rel::eq(facts.simplify(at.floordiv(extent)), Expr::int(number));
    let (mut body, mut values, mut from) = (Vec::new(), Vec::new(), Vec::<String>::new());
    for (number, block) in (0i64..).zip(blocks) {
        let start = body.len();
        for inst in &block.nest.body[..block.nest.body.len() - 1] {
            let mut inst = inst.clone();
            inst.op.operands_mut().into_iter().for_each(|val| *val = Val::new(val.index() + start));
            inst.op.map_exprs(&mut |e| place(block.renamed(&[e], &first.axes)[0]));
            if let InstOp::Load { guard, .. } = &mut inst.op
                && is_chosen
            {
                guard.push(is_here(number));
            }
            body.push(inst);
        }
        values.push(Val::new(block.value.index() + start));
        for name in &block.nest.from {
            if !from.contains(name) {
                from.push(name.clone());
            }
        }
    }
    let store = first.body.last().expect("invariant: a block ends with its store");
    let mut push = |op, ty| {
        body.push(Inst { op, ty });
        Val::new(body.len() - 1)
    };
    let last = values.pop().expect("invariant: there are several blocks");
    let value =
        (0i64..).zip(values).collect::<Vec<_>>().into_iter().rev().fold(last, |other, (number, value)| {
            let chosen = push(InstOp::Cond(is_here(number)), Dtype::Bool);
            push(InstOp::Op(ScalarOp::Select, vec![chosen, value, other]), store.ty)
        });
    let mut op = store.op.clone();
    if let InstOp::Store { index, value: stored, .. } = &mut op {
        (index[dim], *stored) = (at, value);
    }
    push(op, store.ty);
    let mut nest = Nest::new(first.name.clone(), from, axes, body);
    cse::clean(&mut nest);
    nest
}
