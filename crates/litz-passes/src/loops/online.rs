//! Softmax and the product that it weights, of rows too long to keep: a region over blocks of columns instead.
//!
//! ```text
//! s = a.b          m = max(s)      e = exp(s - m)      l = sum(e)      y = sum(e*v) / l
//! ```
//! becomes, block by block of the columns, with sums corrected by how much the maximum has grown:
//! ```text
//! s = a.b   n = max(m, max(s))   c = exp(m - n)   m = n   e = exp(s - n)   l = l*c + sum(e)   o = o*c + sum(e*v)
//! ```
//! No more than a block of a row of `s` and `e` is alive at a time. Rounding is that of sums in parts.

use super::{Edits, Names, Settings, cse, names};
use litz_analysis::{Contraction, Uses};
use litz_ir::graph::contiguous_strides;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Region, Stmt, Val};
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Known, Rel, Sym};

/// Columns of a block, the first that leaves no rest: correcting the sums costs a row about as much as 16 columns at 64
/// features. Where none does, blocks are as wide as packed panels, which are filled up.
const BLOCKS: [i64; 3] = [256, 128, 64];
/// Rows that share the columns' operands, at least: below, these are read about as often as the scores.
const MIN_ROWS: i64 = 16;
/// Rows that a kernel takes at a time, about.
const TILE_ROWS: i64 = 16;

/// Rewrites chains; returns how many.
pub fn run(loops: &mut Loops, settings: &Settings) -> usize {
    let (mut uses, mut edits, mut names) = (Uses::of(loops), Edits::default(), Names::of(loops));
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        if let Some(chain) = find(loops, at, &uses).filter(|chain| is_long(loops, chain, settings)) {
            let [rest @ .., last] = chain.at;
            loops.stmts[last] = Stmt::Region(rewrite(loops, &chain, &mut names, settings));
            uses.update(last, Some(&loops.stmts[last]));
            for at in rest {
                edits.remove(at);
                uses.update(at, None);
            }
            count += 1;
        }
    }
    edits.apply(loops);
    count
}

/// The five nests, and what passes between them.
struct Chain {
    /// Positions of scores, maxima, exponentials, sums and result.
    at: [usize; 5],
    scores: Buf,
    max: Buf,
    exps: Buf,
    sum: Buf,
    /// The dimension of scores and exponentials that columns run along.
    dim: usize,
    /// Instructions of `max`, `sum` and the result that reduce.
    reduces: [usize; 3],
}

/// A load or store of a nest.
struct Touch {
    at: usize,
    coords: Vec<Expr>,
}

/// The only load (or store) of `buf` in a nest, if it is a plain one.
fn touch(nest: &Nest, buf: Buf, is_store: bool) -> Option<Touch> {
    let mut found = None;
    for (at, inst) in nest.body.iter().enumerate() {
        let index = match &inst.op {
            InstOp::Load { buf: b, index, guard, .. } if *b == buf && !is_store && guard.is_empty() => index,
            InstOp::Store { buf: b, index, combine: None, .. } if *b == buf && is_store => index,
            InstOp::Load { buf: b, .. } | InstOp::Store { buf: b, .. } if *b == buf => return None,
            _ => continue,
        };
        if found.is_some() {
            return None;
        }
        found = Some(Touch { at, coords: index.clone() });
    }
    found
}

fn nest(loops: &Loops, at: usize) -> Option<&Nest> {
    match &loops.stmts[at] {
        Stmt::Nest(nest) => Some(nest),
        Stmt::Extern(_) | Stmt::Region(_) => None,
    }
}

/// The only buffer a nest stores to, and that is there for other statements alone.
fn result(loops: &Loops, at: usize, uses: &Uses) -> Option<Buf> {
    let &[buf] = uses.writes_of(at) else { return None };
    (loops.is_internal(buf) && uses.writers(buf) == [at]).then_some(buf)
}

/// The only reduction of a nest, with its operation and operand.
fn reduction(nest: &Nest) -> Option<(usize, ReduceOp, Val)> {
    let mut found = None;
    for (at, inst) in nest.body.iter().enumerate() {
        match inst.op {
            InstOp::Reduce(op, value) if found.is_none() => found = Some((at, op, value)),
            InstOp::Reduce(..) | InstOp::ArgReduce { .. } | InstOp::Scan { .. } | InstOp::Bind { .. } => {
                return None;
            }
            _ => {}
        }
    }
    found
}

/// The chain that starts with the product at position `at`.
fn find(loops: &Loops, at: usize, uses: &Uses) -> Option<Chain> {
    let scores = result(loops, at, uses)?;
    let &[first, second] = uses.readers(scores) else { return None };
    Contraction::by_result(loops, nest(loops, at)?)?;
    let (max_at, exp_at) =
        if nest(loops, first)?.reduced.is_empty() { (second, first) } else { (first, second) };
    let (max, exps) = (result(loops, max_at, uses)?, result(loops, exp_at, uses)?);
    let &[sum_at, out_at] = uses.readers(exps) else { return None };
    let sum = result(loops, sum_at, uses)?;
    let is_read_by = |buf, at| uses.readers(buf) == [at];
    if !is_read_by(max, exp_at) || !is_read_by(sum, out_at) {
        return None;
    }
    let alike = |a: Buf, b: Buf| {
        let of = |buf: Buf| (loops.bufs[buf].dtype, &loops.bufs[buf].sizes, &loops.bufs[buf].strides);
        of(a) == of(b)
    };
    if !alike(scores, exps) || !alike(max, sum) || loops.bufs[scores].dtype != loops.bufs[max].dtype {
        return None;
    }
    let [max_nest, exp_nest] = [nest(loops, max_at)?, nest(loops, exp_at)?];
    let [sum_nest, out_nest] = [nest(loops, sum_at)?, nest(loops, out_at)?];
    // Maxima: of a load, over one axis.
    let load = touch(max_nest, scores, false)?;
    let &[column] = max_nest.reduced.as_slice() else { return None };
    let dim = load.coords.iter().position(|&c| c == Expr::sym(column.var))?;
    let (max_reduce, op, value) = reduction(max_nest)?;
    let rows_are = |touch: &Touch, row: &Touch| {
        let of = |t: &Touch, skip: Option<usize>| -> Vec<Expr> {
            let kept = t.coords.iter().enumerate().filter(|(d, c)| Some(*d) != skip && !c.is_zero());
            kept.map(|c| *c.1).collect()
        };
        of(touch, Some(dim)) == of(row, None)
    };
    let is_column = |touch: &Touch, column: Sym| touch.coords[dim] == Expr::sym(column);
    let has_one_load = |nest: &Nest| {
        nest.body.iter().filter(|i| matches!(i.op, InstOp::Load { .. })).count() == 1
            && nest.reduced.len() == 1
    };
    let is_max = op == ReduceOp::Max && value.index() == load.at && has_one_load(max_nest);
    if !is_max || !rows_are(&load, &touch(max_nest, max, true)?) {
        return None;
    }
    // Exponentials: of scores less the row's maximum.
    let [load, row] = [touch(exp_nest, scores, false)?, touch(exp_nest, max, false)?];
    let store = touch(exp_nest, exps, true)?;
    let InstOp::Store { value, .. } = exp_nest.body[store.at].op else { return None };
    let InstOp::Op(ScalarOp::Exp, exp) = &exp_nest.body[value.index()].op else { return None };
    let InstOp::Op(ScalarOp::Sub, sub) = &exp_nest.body[exp[0].index()].op else { return None };
    let is_exp = sub[0].index() == load.at && sub[1].index() == row.at && exp_nest.body.len() == 5;
    if !is_exp || !rows_are(&load, &row) || load.coords != store.coords || !exp_nest.reduced.is_empty() {
        return None;
    }
    // Sums: of a load, over one axis.
    let load = touch(sum_nest, exps, false)?;
    let (sum_reduce, op, value) = reduction(sum_nest)?;
    let is_sum = op == ReduceOp::Sum && value.index() == load.at && has_one_load(sum_nest);
    if !is_sum || !is_column(&load, sum_nest.reduced[0].var) || !rows_are(&load, &touch(sum_nest, sum, true)?)
    {
        return None;
    }
    // The result: a sum over one axis of products with a load.
    let [load, row] = [touch(out_nest, exps, false)?, touch(out_nest, sum, false)?];
    let &[over] = out_nest.reduced.as_slice() else { return None };
    let (out_reduce, op, value) = reduction(out_nest)?;
    let InstOp::Op(ScalarOp::Mul, factors) = &out_nest.body[value.index()].op else { return None };
    let is_weighted =
        op == ReduceOp::Sum && factors.contains(&Val(load.at as u32)) && factors[0] != factors[1];
    if !is_weighted || !is_column(&load, over.var) || !rows_are(&load, &row) {
        return None;
    }
    // The scores: each column is an axis of the product.
    let store = touch(nest(loops, at)?, scores, true)?;
    let is_last = store.at + 1 == nest(loops, at)?.body.len();
    store.coords[dim].as_sym().filter(|_| is_last)?;
    let at = [at, max_at, exp_at, sum_at, out_at];
    // All move to where the result is computed.
    let is_between = |s: &usize| (at[0]..out_at).contains(s) && !at.contains(s);
    let is_overwritten = |buf: &Buf| uses.writers(*buf).iter().any(is_between);
    let reads = |&s: &usize| uses.reads_of(s).iter();
    if !at.is_sorted_by(|a, b| a < b) || at.iter().flat_map(reads).any(is_overwritten) {
        return None;
    }
    Some(Chain { at, scores, max, exps, sum, dim, reduces: [max_reduce, sum_reduce, out_reduce] })
}

/// Whether a block of rows of scores and exponentials, beside the operand of a product with them, takes more than half
/// the second-level cache, and enough rows share the operands. One head of 2048 rows by 2048 columns took 7.2 ms by blocks,
/// 8.2 by whole rows, 7.7 in separate kernels; of 1024 by 1024, 1.4 ms by whole rows and 1.9 in separate kernels (Intel
/// Xeon with AVX-512 and 2 MiB of second-level cache, one thread, shortest of 60 calls).
fn is_long(loops: &Loops, chain: &Chain, settings: &Settings) -> bool {
    let hint = |e: Expr| loops.facts.hint(e).unwrap_or(64);
    let Some(product) = nest(loops, chain.at[0]) else { return false };
    let Some(columns) = Contraction::by_result(loops, product) else { return false };
    let rows: i64 = columns.contraction.m.iter().map(|a| hint(a.extent)).product();
    let columns = hint(loops.bufs[chain.scores].sizes[chain.dim]);
    let features: i64 = product.reduced.iter().map(|a| hint(a.extent)).product();
    let bytes = columns.saturating_mul(2 * TILE_ROWS + features).saturating_mul(4);
    rows >= MIN_ROWS && bytes > settings.cache_bytes / 2
}

/// What the nests of a region have in common.
struct Blocks {
    /// Counts blocks.
    over: Axis,
    /// Columns.
    columns: Expr,
    /// Columns of a block.
    width: i64,
    /// Every block is full.
    is_whole: bool,
}

impl Blocks {
    /// The column that `var` is in a block.
    fn column(&self, var: Sym) -> Expr {
        Expr::sym(self.over.var) * self.width + Expr::sym(var)
    }

    fn exists(&self, var: Sym) -> Rel {
        Rel::lt(self.column(var), self.columns)
    }

    /// The nest with its axis `var` running over a block. Loads along it are guarded where the block may not be full;
    /// those of which `is_padded` knows better are not.
    fn cut(
        &self,
        nest: &Nest,
        var: Sym,
        facts: &Facts,
        is_padded: impl Fn(Buf, &[Expr], &Facts) -> bool,
    ) -> Nest {
        let mut nest = nest.clone();
        for axis in nest.axes.iter_mut().chain(&mut nest.reduced).filter(|a| a.var == var) {
            axis.extent = Expr::int(self.width);
        }
        nest.axes.insert(0, self.over);
        let facts = nest.facts(facts);
        for inst in &mut nest.body {
            let is_along = inst.op.exprs().iter().any(|e| e.has_sym(var));
            inst.op.map_exprs(&mut |e| {
                if e.has_sym(var) { facts.simplify(e.replace(var, self.column(var))) } else { e }
            });
            if let InstOp::Load { buf, index, guard, other } = &mut inst.op
                && is_along
                && !self.is_whole
                && !is_padded(*buf, index, &facts)
            {
                if guard.is_empty() {
                    *other = Scalar::zero(inst.ty);
                }
                guard.push(self.exists(var));
            }
        }
        nest
    }
}

/// A body in the making.
#[derive(Default)]
struct Body(Vec<Inst>);

impl Body {
    fn push(&mut self, ty: Dtype, op: InstOp) -> Val {
        self.0.push(Inst { op, ty });
        Val(self.0.len() as u32 - 1)
    }
    fn load(&mut self, ty: Dtype, buf: Buf, index: &[Expr]) -> Val {
        self.push(ty, InstOp::Load { buf, index: index.to_vec(), guard: Vec::new(), other: Scalar::zero(ty) })
    }
    fn literal(&mut self, ty: Dtype, value: f64) -> Val {
        self.push(ty, InstOp::Const(Scalar::Float(value)))
    }
    fn op(&mut self, ty: Dtype, op: ScalarOp, args: &[Val]) -> Val {
        self.push(ty, InstOp::Op(op, args.to_vec()))
    }
    fn store(&mut self, ty: Dtype, buf: Buf, index: &[Expr], value: Val) {
        self.push(ty, InstOp::Store { buf, index: index.to_vec(), value, combine: None });
    }
}

/// The region that does what a chain does.
fn rewrite(loops: &mut Loops, chain: &Chain, names: &mut Names, settings: &Settings) -> Region {
    let nests = chain.at.map(|at| nest(loops, at).expect("invariant: a chain has nests").clone());
    let [scores_nest, max_nest, exp_nest, sum_nest, out_nest] = &nests;
    let facts = loops.facts.clone();
    let ty = loops.bufs[chain.scores].dtype;
    let columns = loops.bufs[chain.scores].sizes[chain.dim];
    let whole = BLOCKS.into_iter().find(|&width| facts.divides(width, columns));
    let (width, is_whole) = (whole.unwrap_or(i64::from(settings.tile_columns)), whole.is_some());
    let over = Axis {
        var: names::symbol("jb", &facts, nests.iter().flat_map(Nest::all_axes)),
        extent: columns.ceildiv(width),
    };
    let blocks = Blocks { over, columns, width, is_whole };
    let touched = |nest: &Nest, buf: Buf, is_store| {
        touch(nest, buf, is_store).expect("invariant: each nest of a chain touches what it passes on once")
    };
    let row_of = |nest: &Nest, buf: Buf, is_store| touched(nest, buf, is_store).coords;
    let [max_row, exp_row] = [row_of(max_nest, chain.max, true), row_of(exp_nest, chain.max, false)];
    let [sum_row, out_row] = [row_of(sum_nest, chain.sum, true), row_of(out_nest, chain.sum, false)];
    let coords = |nest: &Nest, buf: Buf, is_store| touched(nest, buf, is_store).coords;
    let stored = coords(scores_nest, chain.scores, true);
    let column = stored[chain.dim].as_sym().expect("invariant: columns are an axis");
    let exp_coords = coords(exp_nest, chain.scores, false);
    let exp_column = exp_coords[chain.dim].as_sym();
    let places = [
        stored,
        coords(max_nest, chain.scores, false),
        exp_coords,
        coords(sum_nest, chain.exps, false),
        coords(out_nest, chain.exps, false),
    ];
    let loads = [touched(max_nest, chain.scores, false).at, touched(out_nest, chain.exps, false).at];

    // Buffers of the region.
    let mut sizes = loops.bufs[chain.scores].sizes.clone();
    sizes[chain.dim] = Expr::int(width);
    let strides = contiguous_strides(&sizes);
    let base = loops.bufs[chain.scores].name.clone();
    let rows = (loops.bufs[chain.max].sizes.clone(), loops.bufs[chain.max].strides.clone());
    let out_sizes: Vec<Expr> = out_nest.axes.iter().map(|a| a.extent).collect();
    let out_strides = contiguous_strides(&out_sizes);
    let out_index: Vec<Expr> = out_nest.axes.iter().map(|a| Expr::sym(a.var)).collect();
    let mut buf = |suffix: &str, sizes: &[Expr], strides: &[Expr]| {
        names.add_buf(loops, &format!("{base}_{suffix}"), ty, sizes.to_vec(), strides.to_vec())
    };
    let [block, exps] = ["block", "exps"].map(|name| buf(name, &sizes, &strides));
    let [max, next, top] = ["max", "next", "top"].map(|name| buf(name, &rows.0, &rows.1));
    let [sum, ratio] = ["sum", "ratio"].map(|name| buf(name, &rows.0, &rows.1));
    let out = buf("out", &out_sizes, &out_strides);

    let mut made = |like: &Nest, suffix: &str, axes: Vec<Axis>, reduced: Vec<Axis>, body: Body| {
        let name = match suffix {
            "" => like.name.clone(),
            _ => names.statement(&format!("{}_{suffix}", like.name)),
        };
        Nest { name, from: like.from.clone(), axes, reduced, body: body.0 }
    };
    let in_block = |nest: &Nest| [&[over], &nest.axes[..]].concat();
    let reduced = |nest: &Nest| vec![Axis { extent: Expr::int(width), ..nest.reduced[0] }];
    let mut nests = Vec::new();

    let mut b = Body::default();
    let lowest = b.literal(ty, f64::NEG_INFINITY);
    b.store(ty, max, &max_row, lowest);
    nests.push(made(max_nest, "first", max_nest.axes.clone(), Vec::new(), b));
    let mut b = Body::default();
    let zero = b.literal(ty, 0.0);
    b.store(ty, sum, &sum_row, zero);
    nests.push(made(sum_nest, "first", sum_nest.axes.clone(), Vec::new(), b));
    let mut b = Body::default();
    let zero = b.literal(ty, 0.0);
    b.store(ty, out, &out_index, zero);
    nests.push(made(out_nest, "first", out_nest.axes.clone(), Vec::new(), b));

    // Scores of a block; columns that do not exist are removed as by a mask.
    let is_there = |buf: Buf, index: &[Expr], facts: &Facts| {
        let mut coordinates = index.iter().zip(&loops.bufs[buf].sizes);
        coordinates.all(|(&at, &size)| facts.known(&Rel::lt(at, size)) == Known::Yes)
    };
    let mut cut = blocks.cut(scores_nest, column, &facts, is_there);
    if let Some(Inst { op: InstOp::Store { value, .. }, .. }) = cut.body.pop() {
        let mut b = Body(cut.body);
        let value = match blocks.is_whole {
            true => value,
            false => {
                let keep = b.push(Dtype::Bool, InstOp::Cond(blocks.exists(column)));
                let removed = b.literal(ty, f64::NEG_INFINITY);
                b.op(ty, ScalarOp::Select, &[keep, value, removed])
            }
        };
        b.store(ty, block, &places[0], value);
        cut.body = b.0;
    }
    nests.push(cut);

    let mut b = Body::default();
    let score = b.load(ty, block, &places[1]);
    let largest = b.push(ty, InstOp::Reduce(ReduceOp::Max, score));
    let before = b.load(ty, max, &max_row);
    let largest = b.op(ty, ScalarOp::Max, &[largest, before]);
    b.store(ty, next, &max_row, largest);
    nests.push(made(max_nest, "", in_block(max_nest), reduced(max_nest), b));

    // While all columns were removed the maximum is -inf; anything finite will do instead.
    let mut b = Body::default();
    let [before, after] = [max, next].map(|buf| b.load(ty, buf, &max_row));
    let [lowest, zero] = [f64::NEG_INFINITY, 0.0].map(|x| b.literal(ty, x));
    let is_lowest = b.op(Dtype::Bool, ScalarOp::Eq, &[after, lowest]);
    let shift = b.op(ty, ScalarOp::Select, &[is_lowest, zero, after]);
    let grown = b.op(ty, ScalarOp::Sub, &[before, shift]);
    let factor = b.op(ty, ScalarOp::Exp, &[grown]);
    b.store(ty, top, &max_row, shift);
    b.store(ty, ratio, &max_row, factor);
    b.store(ty, max, &max_row, after);
    nests.push(made(max_nest, "ratio", in_block(max_nest), Vec::new(), b));

    let mut b = Body::default();
    let [score, shift] = [b.load(ty, block, &places[2]), b.load(ty, top, &exp_row)];
    let shifted = b.op(ty, ScalarOp::Sub, &[score, shift]);
    let exp = b.op(ty, ScalarOp::Exp, &[shifted]);
    b.store(ty, exps, &places[2], exp);
    let mut axes = in_block(exp_nest);
    axes.iter_mut().filter(|a| Some(a.var) == exp_column).for_each(|a| a.extent = Expr::int(width));
    nests.push(made(exp_nest, "", axes, Vec::new(), b));

    let mut b = Body::default();
    let exp = b.load(ty, exps, &places[3]);
    let part = b.push(ty, InstOp::Reduce(ReduceOp::Sum, exp));
    let [before, factor] = [sum, ratio].map(|buf| b.load(ty, buf, &sum_row));
    let before = b.op(ty, ScalarOp::Mul, &[before, factor]);
    let total = b.op(ty, ScalarOp::Add, &[before, part]);
    b.store(ty, sum, &sum_row, total);
    nests.push(made(sum_nest, "", in_block(sum_nest), reduced(sum_nest), b));

    // The weighted sum: what the result's nest does up to its reduction.
    let mut weighted = out_nest.clone();
    weighted.body.truncate(chain.reduces[2] + 1);
    let mut weighted = blocks.cut(&weighted, out_nest.reduced[0].var, &facts, |_, _, _| false);
    weighted.body[loads[1]].op =
        InstOp::Load { buf: exps, index: places[4].clone(), guard: Vec::new(), other: Scalar::zero(ty) };
    let mut b = Body(weighted.body);
    let [before, factor] = [b.load(ty, out, &out_index), b.load(ty, ratio, &out_row)];
    let before = b.op(ty, ScalarOp::Mul, &[before, factor]);
    let total = b.op(ty, ScalarOp::Add, &[before, Val::new(chain.reduces[2])]);
    b.store(ty, out, &out_index, total);
    weighted.body = b.0;
    cse::clean(&mut weighted);
    nests.push(weighted);

    // What follows the reductions.
    let mut tail = |nest: &Nest, reduce: usize, buf: Buf, index: Vec<Expr>| {
        let mut body = Body(nest.body.clone());
        body.0[reduce].op = InstOp::Load { buf, index, guard: Vec::new(), other: Scalar::zero(ty) };
        let mut nest = made(nest, "last", nest.axes.clone(), Vec::new(), body);
        cse::clean(&mut nest);
        nest
    };
    nests.push(tail(sum_nest, chain.reduces[1], sum, sum_row));
    nests.push(tail(out_nest, chain.reduces[2], out, out_index));

    let name = names.statement(&format!("{}_online", out_nest.name));
    Region { name, from: out_nest.from.clone(), over, carry: vec![max, sum, out], nests }
}
