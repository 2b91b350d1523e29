//! Splits a long reduction in two: partial results of blocks, then one result of the partial ones.
//!
//! The blocks are independent points. Of reductions with few results threads can share them; sums of the columns of a tensor
//! that leaves the cache are split for what goes over its rows, which can add up the columns of a block of them on the way. For a GPU
//! there are blocks for all of its units, where results alone would leave units idle, and slabs of the sums of contractions, where tiles
//! of the result would (`slabs.rs`). How many blocks there are depends on sizes, and on the units of a GPU, so results are the same for
//! any number of threads.

mod slabs;

use super::swept::Swept;
use super::{Cx, Edits, Names, cse, names};
use litz_analysis::Contraction;
use litz_analysis::access::{Access, Stride, accesses, stride};
use litz_analysis::columns;
use litz_ir::graph::TensorType;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, BindOf, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::{Gpu, Rounds, Target};
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel, Sym};
use slabs::Product;

/// Results above which a reduction occupies enough threads by itself.
const MANY_RESULTS: i64 = 64;
/// Results next to each other in memory, as sums of columns have, that one vector loop computes; and strips of so many
/// that are enough.
const STRIP: i64 = 64;
const MANY_STRIPS: i64 = 8;
/// Elements reduced in a row or a strip below which one thread is done before others have woken up.
const LONG: i64 = 64 * 1024;
/// Elements of a block: 32 KiB of f32, a few microseconds of work.
const BLOCK: i64 = 8 * 1024;
/// Blocks of one reduction, at most.
const MAX_BLOCKS: i64 = 256;
/// Rows of a block whose columns are added up on the way: what is stored and loaded of a block's sums is little beside its rows, and
/// rounding errors of 128 terms added up one by one, and then of the blocks, are less than those of all rows in accumulation blocks of 32.
const ROWS: i64 = 128;
/// Such blocks, at least: twice as many as the scheduler wants, since lengths are rounded up.
const LEAST_BLOCKS: i64 = 16;

/// Neighbouring results that the lanes of a warp reduce side by side.
const LANES: i64 = Gpu::LANES as i64;
/// Elements of a row, or rows of columns side by side, that a block of a GPU's threads reduces at least: what they store and meet for is
/// little beside these.
const LEAST_OF_ROW: i64 = 4096;
const LEAST_OF_COLUMNS: i64 = 128;

/// Splits reductions; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let (mut edits, mut names) = (Edits::default(), Names::of(loops));
    let mut count = 0;
    let swept = Swept::new(cx.target.near_bytes());
    for at in 0..loops.stmts.len() {
        if let Some(nests) = split(loops, at, (&swept, cx.target), &mut names) {
            nests.into_iter().for_each(|nest| edits.insert(at, Stmt::Nest(nest)));
            edits.remove(at);
            count += 1;
        }
    }
    edits.apply(loops);
    count
}

/// How the reduced axes are divided.
struct Division {
    /// Axes that count blocks.
    blocks: Vec<Axis>,
    /// Axes within a block.
    within: Vec<Axis>,
    /// The divided axis and its value.
    axis: Sym,
    value: Expr,
    /// Holds for points that exist; `None` when all blocks are full.
    exists: Option<Rel>,
    /// What a block adds up to is stored side by side, blocks outermost.
    is_of_rows: bool,
    /// The column of a product. Terms that do not exist are products of zeros, which are loaded in their place.
    column: Option<Sym>,
}

impl Division {
    /// What holds for points that exist, where others have values that count.
    fn masking(&self) -> Option<Rel> {
        self.exists.filter(|_| self.column.is_none())
    }
}

/// The nests that replace the reduction at position `at`, when splitting it pays.
fn split(loops: &mut Loops, at: usize, on: (&Swept, &Target), names: &mut Names) -> Option<Vec<Nest>> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let nest = nest.clone();
    let reduces: Vec<usize> = (0..nest.body.len()).filter(|&i| nest.body[i].op.is_reduction()).collect();
    let positions = nest.body.iter().any(|i| matches!(i.op, InstOp::ArgReduce { .. }));
    let narrow = reduces.iter().any(|&i| nest.body[i].ty.compute() != nest.body[i].ty);
    if reduces.is_empty() || narrow || positions && reduces.len() > 1 {
        return None;
    }
    let after = nest.after_reduce();
    let runs_at_points = |i: usize| {
        let op = &nest.body[i].op;
        matches!(op, InstOp::Scan { .. }) || matches!(op, InstOp::Store { .. }) && !after[i]
    };
    if (0..nest.body.len()).any(runs_at_points) {
        return None;
    }
    let division = match on.1 {
        Target::Gpu(gpu) => match Product::of(loops, &nest, gpu) {
            Some(product) => divide_product(loops, &nest, &product)?,
            None => divide(loops, (at, &nest), !positions, on)?,
        },
        // Register tiles keep their sums.
        Target::Cpu(_) if Contraction::by_result(loops, &nest).is_some() => return None,
        Target::Cpu(_) => divide(loops, (at, &nest), !positions, on)?,
    };
    let bound = nest.body.iter().any(|i| matches!(i.op, InstOp::Bind { .. }));
    if bound && division.exists.is_some() {
        return None;
    }
    Some(if let InstOp::ArgReduce { max, value } = nest.body[reduces[0]].op {
        split_position(loops, &nest, &division, (reduces[0], max, value), names)
    } else {
        split_values(loops, &nest, &division, &reduces, names)
    })
}

/// Divides the reduced axes into blocks. Axes may be reordered so that those with the largest steps count blocks.
fn divide(
    loops: &Loops,
    (at, nest): (usize, &Nest),
    any_order: bool,
    (swept, target): (&Swept, &Target),
) -> Option<Division> {
    let hint = |e: Expr| hint(loops, e);
    let product = |axes: &[Axis]| axes.iter().map(|a| hint(a.extent)).fold(1, i64::saturating_mul);
    let (results, reduced) = (product(&nest.axes), product(&nest.reduced));
    let columns = nest.axes.iter().any(|a| step(loops, nest, a.var) == 1);
    let (enough, elements) = match columns {
        true => (results >= STRIP * MANY_STRIPS, reduced.saturating_mul(results.min(STRIP))),
        false => (results >= MANY_RESULTS, reduced),
    };
    // Rows that have results of their own are in blocks of their own.
    let is_row = |axis: &&Axis| step(loops, nest, axis.var) != 1;
    let rows =
        nest.axes.iter().filter(is_row).map(|axis| hint(axis.extent)).fold(reduced, i64::saturating_mul);
    let has_blocks = || reduced >= 2 * ROWS && rows >= LEAST_BLOCKS * ROWS;
    let (for_threads, for_rows) = match target {
        Target::Cpu(_) => {
            let for_threads = (!enough && elements >= LONG).then(|| (elements / BLOCK).min(MAX_BLOCKS));
            let is_swept = columns && any_order && has_blocks() && swept.is_swept(loops, at, nest);
            (for_threads, is_swept.then_some(reduced / ROWS))
        }
        Target::Gpu(gpu) => {
            let has_columns = columns && has_columns(loops, nest);
            let least = if has_columns { LEAST_OF_COLUMNS } else { LEAST_OF_ROW };
            let wanted = |width: i64| {
                let blocks = (results + width - 1) / width;
                (2 * i64::from(gpu.units) / blocks).min(reduced / least)
            };
            let width = if has_columns { LANES } else { 1 };
            let pays = wanted(width) >= 2 && (has_columns || !is_kept(loops, at, gpu));
            // Lanes that take several columns leave fewer blocks of these, and more of rows.
            let most = results.saturating_mul(reduced / least) / (2 * i64::from(gpu.units) * LANES);
            let at_once = |column: Axis| columns::at_once(loops, nest, column, most);
            let column = columns::column_of(loops, nest).filter(|_| has_columns);
            let wanted = pays.then(|| wanted(width * column.map_or(1, at_once)));
            // Results of neighbouring columns are stored as neighbours, and of rows what a thread each adds up, where that is little.
            let is_beside = has_columns || wanted.is_some_and(|blocks| blocks < LANES);
            if is_beside { (None, wanted) } else { (wanted, None) }
        }
    };
    let wanted = for_threads.max(for_rows)?;
    let order = if any_order { by_step(loops, nest) } else { nest.reduced.clone() };
    let division = cut(loops, nest, (order, &|_| 1), wanted)?;
    Some(Division { is_of_rows: for_rows.is_some(), ..division })
}

/// Divides the sum of a contraction into slabs: as many as it takes least time with, if that is a tenth less than without any. The last one may
/// go past the end of the sum where that is the end of both operands: what copies them to shared memory stores zeros there.
fn divide_product(loops: &Loops, nest: &Nest, product: &Product) -> Option<Division> {
    let granule = |axis: Sym| slabs::granule(loops, nest, axis);
    let slabs = |wanted: i64| {
        let found = cut(loops, nest, (by_step(loops, nest), &granule), wanted)?;
        let count = found.blocks.iter().map(|axis| loops.facts.size_hint(axis.extent)).product();
        let suits = found.exists.is_none() || slabs::has_end(loops, nest, found.axis);
        (count > 1 && suits).then(|| (product.time(count), count, found))
    };
    let best = (2..=product.most_slabs()).filter_map(slabs).min_by_key(|slabs| (slabs.0, slabs.1))?;
    (best.0 < product.time(1) / 10 * 9).then_some(Division {
        is_of_rows: true,
        column: Some(product.column.var),
        ..best.2
    })
}

/// The reduced axes, those with the largest steps first.
fn by_step(loops: &Loops, nest: &Nest) -> Vec<Axis> {
    let mut axes = nest.reduced.clone();
    axes.sort_by_key(|axis| std::cmp::Reverse(step(loops, nest, axis.var)));
    axes
}

/// Divides reduced axes, the first of which count blocks, into about so many of these. A block has a whole number of granules of the axis
/// that is divided.
fn cut(
    loops: &Loops,
    nest: &Nest,
    (axes, granule): (Vec<Axis>, &dyn Fn(Sym) -> i64),
    wanted: i64,
) -> Option<Division> {
    let mut blocks = Vec::new();
    let mut count = 1;
    for (i, &axis) in axes.iter().enumerate() {
        let extent = hint(loops, axis.extent);
        if count * extent <= wanted && axis.extent.as_int().is_some() {
            count *= extent;
            blocks.push(axis);
            continue;
        }
        // A single block has no remainder.
        let granule = if wanted / count > 1 { granule(axis.var) } else { 1 };
        let granules = (extent + granule - 1) / granule;
        let length = granule * block_length(axis.extent.ceildiv(granule), granules, wanted / count);
        let [outer, inner] = ["o", "i"]
            .map(|part| names::symbol(&format!("{}_{part}", axis.var), &loops.facts, nest.all_axes()));
        let value = Expr::sym(outer) * length + Expr::sym(inner);
        let full = loops.facts.divides(length, axis.extent);
        blocks.push(Axis { var: outer, extent: loops.facts.simplify(axis.extent.ceildiv(length)) });
        let mut within = vec![Axis { var: inner, extent: Expr::int(length) }];
        within.extend(&axes[i + 1..]);
        let exists = (!full).then(|| Rel::lt(value, axis.extent));
        return Some(Division {
            blocks,
            within,
            axis: axis.var,
            value,
            exists,
            is_of_rows: false,
            column: None,
        });
    }
    None
}

/// A size by hints, 1 where a symbol has none.
pub(super) fn hint(loops: &Loops, e: Expr) -> i64 {
    loops.facts.hint(e).unwrap_or(1).max(1)
}

/// The step of the loads along an axis; the largest for steps that vary.
fn step(loops: &Loops, nest: &Nest, var: Sym) -> i64 {
    let of = |e: Expr| e.linear(var).map_or(i64::MAX, |(c, _)| loops.facts.hint(c).unwrap_or(1 << 20).abs());
    let loads = accesses(nest).filter(|access| !access.store).map(|load| of(load.place(loops, nest)));
    loads.max().unwrap_or(0)
}

/// Whether a block of a GPU's threads that has a row can keep what is reduced of it, in half of a unit's registers, for other nests that read
/// it, too: what several blocks share they would have to read again, and a unit, which loads 64 bytes in a clock, has so much in less time
/// than a launch takes.
fn is_kept(loops: &Loops, at: usize, gpu: &Gpu) -> bool {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return false };
    let reads = |nest: &Nest, buf: Buf| accesses(nest).any(|access| !access.store && access.buf == buf);
    let is_read = |buf: Buf| {
        let others = loops.stmts.iter().enumerate().filter(|(other, _)| *other != at);
        others.flat_map(|(_, stmt)| stmt.nests()).any(|other| reads(other, buf))
    };
    let along = |access: &Access<'_>| {
        nest.reduced.iter().any(|axis| access.index.iter().any(|at| at.has_sym(axis.var)))
    };
    let rows: Vec<Buf> =
        accesses(nest).filter(|access| !access.store && along(access)).map(|load| load.buf).collect();
    let elements = nest.reduced.iter().map(|axis| hint(loops, axis.extent)).fold(1, i64::saturating_mul);
    let bytes = rows.iter().map(|&buf| elements.saturating_mul(loops.bufs[buf].dtype.size() as i64));
    rows.iter().any(|&buf| is_read(buf))
        && bytes.fold(0, i64::saturating_add) <= 2 * i64::from(gpu.unit.registers)
}

/// Whether results next to each other are reduced from what lies next to each other: rows that data chooses are not.
fn has_columns(loops: &Loops, nest: &Nest) -> bool {
    let is_reduced = |place: &Expr| nest.reduced.iter().any(|axis| place.has_sym(axis.var));
    let mut loads = accesses(nest).filter(|access| !access.store).map(|load| load.place(loops, nest));
    let is_beside = |place: Expr| nest.axes.iter().any(|axis| stride(place, axis.var) == Stride::Unit);
    loads.any(|place| is_reduced(&place) && is_beside(place))
}

/// Points of the divided axis in a block, for about that many blocks: one that leaves no remainder, if there is one
/// with at most twice as many blocks.
pub(super) fn block_length(extent: Expr, hint: i64, blocks: i64) -> i64 {
    let length = (hint + blocks - 1) / blocks.max(1);
    match extent.as_int() {
        Some(n) => ((length + 1) / 2..=length).rev().find(|l| *l > 0 && n % l == 0).unwrap_or(length),
        None => length,
    }
}

/// Partial results of each reduction, then the nest with its reductions over them.
fn split_values(
    loops: &mut Loops,
    nest: &Nest,
    division: &Division,
    reduces: &[usize],
    names: &mut Names,
) -> Vec<Nest> {
    let mut partial = partial_nest(loops, nest, division, names);
    let mut combining = combining_nest(nest, division);
    let mut body = CombiningBody::new(nest);
    for &i in reduces {
        let InstOp::Reduce(op, value) = nest.body[i].op else { continue };
        let ty = nest.body[i].ty;
        let mut axes = match division.is_of_rows {
            true => [&*division.blocks, &*nest.axes].concat(),
            false => [&*nest.axes, &*division.blocks].concat(),
        };
        axes.sort_by_key(|axis| division.column == Some(axis.var));
        let buf = add_buf(loops, names, nest, "partial", ty, &axes);
        let index = element(&axes);
        let value = masked(&mut partial.body, division.masking(), value, (op.identity(ty), ty));
        let reduced = push(&mut partial.body, InstOp::Reduce(op, value), ty);
        let store = InstOp::Store { buf, index: index.clone(), value: reduced, combine: None };
        push(&mut partial.body, store, ty);
        let load = push(&mut body.insts, load(buf, index, ty), ty);
        body.define(i, InstOp::Reduce(op, load), ty);
    }
    combining.body = body.finish();
    cse::clean(&mut partial);
    cse::clean(&mut combining);
    vec![partial, combining]
}

/// The best value of each block and its position there; which block is best; then the nest with the position that the
/// best block holds.
fn split_position(
    loops: &mut Loops,
    nest: &Nest,
    division: &Division,
    (at, max, value): (usize, bool, Val),
    names: &mut Names,
) -> Vec<Nest> {
    let (op, ty) = (if max { ReduceOp::Max } else { ReduceOp::Min }, nest.body[value.index()].ty);
    let mut partial = partial_nest(loops, nest, division, names);
    let (best, best_at) = partial_buf(loops, names, nest, division, "best", ty);
    let (place, place_at) = partial_buf(loops, names, nest, division, "place", Dtype::I64);
    let value = masked(&mut partial.body, division.masking(), value, (op.identity(ty), ty));
    let reduced = push(&mut partial.body, InstOp::Reduce(op, value), ty);
    let store = InstOp::Store { buf: best, index: best_at.clone(), value: reduced, combine: None };
    push(&mut partial.body, store, ty);
    let position = push(&mut partial.body, InstOp::ArgReduce { max, value }, Dtype::I64);
    let store = InstOp::Store { buf: place, index: place_at, value: position, combine: None };
    push(&mut partial.body, store, Dtype::I64);
    cse::clean(&mut partial);

    // Which block, as a position along its axes flattened, in a buffer of its own: it becomes an index below.
    let mut choice = combining_nest(nest, division);
    choice.name = names.statement(&format!("{}_block", nest.name));
    let outer = element(&nest.axes);
    let chosen = add_buf(loops, names, nest, "block", Dtype::I64, &nest.axes);
    let value = push(&mut choice.body, load(best, best_at, ty), ty);
    let block = push(&mut choice.body, InstOp::ArgReduce { max, value }, Dtype::I64);
    let store = InstOp::Store { buf: chosen, index: outer.clone(), value: block, combine: None };
    push(&mut choice.body, store, Dtype::I64);

    let mut combining = combining_nest(nest, division);
    combining.reduced.clear();
    let mut body = CombiningBody::new(nest);
    let block = push(&mut body.insts, load(chosen, outer.clone(), Dtype::I64), Dtype::I64);
    let (sym, count) = (names::symbol("block", &loops.facts, nest.all_axes()), extent(&division.blocks));
    push(&mut body.insts, InstOp::Bind { sym, value: block, extent: count, of: BindOf::Index }, Dtype::I64);
    let index = [outer, point_at(Expr::sym(sym), &division.blocks)].concat();
    let inside = push(&mut body.insts, load(place, index, Dtype::I64), Dtype::I64);
    // Positions count the reduced axes flattened. The axes before the divided one and the blocks of it are outside of
    // a block: its first position follows from its number.
    let divided = nest.reduced.iter().find(|a| a.var == division.axis).map_or(Expr::one(), |a| a.extent);
    let blocks_of_axis = division.blocks.last().map_or(Expr::one(), |a| a.extent);
    let length = division.within.first().map_or(Expr::one(), |a| a.extent);
    let rest = extent(&division.within[1..]);
    let block = Expr::sym(sym);
    let first = (block.floordiv(blocks_of_axis) * divided + block.modulo(blocks_of_axis) * length) * rest;
    let first = push(&mut body.insts, InstOp::Index(first), Dtype::I64);
    body.define(at, InstOp::Op(ScalarOp::Add, vec![first, inside]), Dtype::I64);
    combining.body = body.finish();
    cse::clean(&mut combining);
    vec![partial, choice, combining]
}

/// The nest over outer points and blocks, with what the reductions need: those loads that a short last block cuts off
/// guarded. The reductions themselves are left out.
fn partial_nest(loops: &Loops, nest: &Nest, division: &Division, names: &mut Names) -> Nest {
    let mut axes = nest.axes.clone();
    axes.extend(&division.blocks);
    let name = names.statement(&format!("{}_partial", nest.name));
    let mut partial = Nest {
        name,
        from: nest.from.clone(),
        axes,
        reduced: division.within.clone(),
        idle: None,
        rounds: nest.rounds,
        body: Vec::new(),
    };
    let facts = partial.facts(&loops.facts);
    let after = nest.after_reduce();
    for (i, inst) in nest.body.iter().enumerate() {
        let mut inst = inst.clone();
        if after[i] {
            // Keeps positions; swept out in the end.
            inst = Inst { op: InstOp::Const(Scalar::zero(inst.ty)), ty: inst.ty };
        }
        if let (InstOp::Load { index, guard, other, .. }, Some(exists)) = (&mut inst.op, &division.exists)
            && index.iter().any(|at| at.has_sym(division.axis))
        {
            if guard.is_empty() {
                *other = Scalar::zero(inst.ty);
            }
            guard.push(*exists);
        }
        inst.op.map_exprs(&mut |e| match e.has_sym(division.axis) {
            true => facts.simplify(e.replace(division.axis, division.value)),
            false => e,
        });
        partial.body.push(inst);
    }
    partial
}

/// `value` at points that exist, where some do not, and `other` elsewhere.
pub(super) fn masked(
    body: &mut Vec<Inst>,
    exists: Option<Rel>,
    value: Val,
    (other, ty): (Scalar, Dtype),
) -> Val {
    let Some(exists) = exists else { return value };
    let exists = push(body, InstOp::Cond(exists), Dtype::Bool);
    let other = push(body, InstOp::Const(other), ty);
    push(body, InstOp::Op(ScalarOp::Select, vec![exists, value, other]), ty)
}

/// The nest over outer points that reduces blocks, without a body.
fn combining_nest(nest: &Nest, division: &Division) -> Nest {
    Nest { reduced: division.blocks.clone(), rounds: Rounds::Never, body: Vec::new(), ..nest.clone() }
}

/// The instructions of a nest that do not run at every reduced point, with its reductions replaced.
struct CombiningBody<'a> {
    nest: &'a Nest,
    insts: Vec<Inst>,
    defined: Vec<(usize, InstOp, Dtype)>,
}

impl<'a> CombiningBody<'a> {
    fn new(nest: &'a Nest) -> CombiningBody<'a> {
        CombiningBody { nest, insts: Vec::new(), defined: Vec::new() }
    }

    /// What computes the value that instruction `at` computed.
    fn define(&mut self, at: usize, op: InstOp, ty: Dtype) {
        self.defined.push((at, op, ty));
    }

    fn finish(mut self) -> Vec<Inst> {
        let mut map: Vec<Option<Val>> = Vec::with_capacity(self.nest.body.len());
        let mut gone: Vec<Sym> = self.nest.reduced.iter().map(|a| a.var).collect();
        for (i, inst) in self.nest.body.iter().enumerate() {
            if let Some((_, op, ty)) = self.defined.iter().find(|d| d.0 == i) {
                map.push(Some(push(&mut self.insts, op.clone(), *ty)));
                continue;
            }
            let operands: Option<Vec<Val>> = inst.op.operands().iter().map(|v| map[v.index()]).collect();
            let varies = inst.op.exprs().iter().any(|e| gone.iter().any(|&s| e.has_sym(s)));
            match operands.filter(|_| !varies) {
                Some(operands) => {
                    let mut op = inst.op.clone();
                    op.operands_mut().into_iter().zip(operands).for_each(|(slot, v)| *slot = v);
                    map.push(Some(push(&mut self.insts, op, inst.ty)));
                }
                None => {
                    if let InstOp::Bind { sym, .. } = inst.op {
                        gone.push(sym);
                    }
                    map.push(None);
                }
            }
        }
        self.insts
    }
}

/// A buffer with an element for each outer point and block, and its index there.
fn partial_buf(
    loops: &mut Loops,
    names: &mut Names,
    nest: &Nest,
    division: &Division,
    role: &str,
    dtype: Dtype,
) -> (Buf, Vec<Expr>) {
    let axes: Vec<Axis> = nest.axes.iter().chain(&division.blocks).copied().collect();
    (add_buf(loops, names, nest, role, dtype, &axes), element(&axes))
}

/// A buffer with an element for each point of the axes, where the nest runs.
pub(super) fn add_buf(
    loops: &mut Loops,
    names: &mut Names,
    nest: &Nest,
    role: &str,
    dtype: Dtype,
    axes: &[Axis],
) -> Buf {
    let sizes = axes.iter().map(|a| a.extent).collect();
    let ty = TensorType::contiguous(dtype, sizes).on(loops.device_of(&nest.body));
    names.add_buf(loops, &format!("{}_{role}", nest.name), ty)
}

/// The element of such a buffer at a point.
pub(super) fn element(axes: &[Axis]) -> Vec<Expr> {
    axes.iter().map(|a| Expr::sym(a.var)).collect()
}

/// The point of the axes at a row-major position.
fn point_at(position: Expr, axes: &[Axis]) -> Vec<Expr> {
    let mut digits = Vec::with_capacity(axes.len());
    let mut inner = Expr::one();
    for (i, axis) in axes.iter().enumerate().rev() {
        let digit = position.floordiv(inner);
        digits.push(if i == 0 { digit } else { digit.modulo(axis.extent) });
        inner = inner * axis.extent;
    }
    digits.reverse();
    digits
}

fn extent(axes: &[Axis]) -> Expr {
    axes.iter().fold(Expr::one(), |n, a| n * a.extent)
}

pub(super) fn load(buf: Buf, index: Vec<Expr>, ty: Dtype) -> InstOp {
    InstOp::Load { buf, index, guard: Vec::new(), other: Scalar::zero(ty) }
}

pub(super) fn push(body: &mut Vec<Inst>, op: InstOp, ty: Dtype) -> Val {
    body.push(Inst { op, ty });
    Val::new(body.len() - 1)
}
