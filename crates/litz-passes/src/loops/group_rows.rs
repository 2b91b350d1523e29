//! Gathers rows that are multiplied by one matrix of several into tiles, for GPUs.
//!
//! Of a product by group data says by which matrix a row is multiplied, and rows of one matrix are neighbours. Row by row that is no product of
//! matrices. `R` rows at a time, none of two matrices, are one: with `n[g]` rows of matrix `g` there are `ceildiv(n[g], R)` such tiles of it, and
//! of all no more than `rows / R + groups`, however data divides the rows. What is past the last row of a tile is multiplied and read by nobody.
//!
//! ```text
//! y[i, j] = sum over k of x[i, k] * w[group[i], k, j]       for a group[i] that does not fall
//!   =>
//! starts[g]   = the number of rows i with group[i] < g      the first row of each group, and how many there are
//! tiles[g]    = sum over h < g of ceildiv(starts[h + 1] - starts[h], R)
//! of[t]       = the number of groups g with tiles[g + 1] <= t
//! first[t]    = starts[of[t]] + R*(t - tiles[of[t]])
//! xs[t, r, k] = x[min(first[t] + r, rows - 1), k]
//! ws[t, k, j] = w[of[t], k, j]
//! p[t, r, j]  = sum over k of xs[t, r, k] * ws[t, k, j]
//! y[i, j]     = p[tiles[g] + n / R, n % R, j]               for g = group[i], n = i - starts[g]
//! ```
//!
//! What computes `x` is computed where it is gathered. A kernel of the product copies the part of `ws` that it needs from `w`, so that `ws` is
//! not in memory.

mod chained;
mod rises;
mod shared;
mod tiles;

use super::{Cx, Edits, Names, dead};
use chained::{Chain, Making};
use litz_analysis::{Contraction, Uses};
use litz_ir::ScalarOp;
use litz_ir::loops::{Axis, BindOf, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::{Gpu, Target};
use litz_sym::{Expr, Known, Rel, Sym};
use rises::Rises;
use shared::Key;

/// Rows of a tile, at most: of one that warps sum, and of one that warpgroups do. A matrix is read again for each.
const MOST_ROWS: i64 = 64;
const MOST_ROWS_OF_WARPGROUPS: i64 = 128;

/// Rows of a tile, points of its other side and terms of its sums, at least: of one that an instruction multiplies, which takes few rows along its
/// shorter side, and of one that threads do.
const LEAST_OF_INSTRUCTION: i64 = 8;
const LEAST_OF_THREADS: i64 = 16;

/// Rows of a group, by hints, below which threads would multiply tiles that are empty for the most part.
const LEAST_OF_GROUP: i64 = 8;

/// Whether a target has tiles that are faster than rows one by one.
pub fn wants(target: &Target) -> bool {
    target.gpu().is_some()
}

/// Gathers rows of products; returns of how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let gpu = cx.target.gpu().expect("invariant: no other target wants rows in tiles");
    let (mut edits, mut names, uses) = (Edits::default(), Names::of(loops), Uses::of(loops));
    let mut chains: Vec<Chain> = Vec::new();
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some(grouped) = Grouped::of(loops, &uses, nest, gpu) else { continue };
        let mut nest = nest.clone();
        shared::load_first(loops, &uses, &mut nest);
        let key = grouped.key(&nest);
        let mut known = chains.iter_mut().find(|known| known.key == key);
        let rows = known.as_mut().and_then(|known| {
            let mut making = Making { loops, names: &mut names, uses: &uses, edits: &mut edits };
            known.rows(&mut making, &grouped, &nest)
        });
        let tables = known.as_ref().map(|known| known.tables);
        let made = tiles::tiled(&grouped, (loops, &nest), tables, rows, &mut names);
        made.nests.iter().for_each(|nest| edits.insert(at, Stmt::Nest(nest.clone())));
        let chain = match known {
            Some(known) => known,
            None => {
                chains.push(Chain::new(key, made.tables, made.sizes));
                chains.last_mut().expect("invariant: one was added")
            }
        };
        chain.add((loops, &uses), &grouped, &nest, &made, at);
        edits.remove(at);
        count += 1;
    }
    edits.apply(loops);
    // What was computed row by row between products is read by nobody where that is.
    if count > 0 {
        dead::run(loops, cx);
    }
    count
}

/// A product of rows by matrices that data chooses.
struct Grouped {
    /// The axis of rows.
    row: Axis,
    /// The axes of the result that matrices have.
    columns: Vec<Axis>,
    /// Positions of the loads of rows and of matrices.
    operands: [usize; 2],
    /// Which matrix it is.
    choice: Choice,
    /// Position of the sum.
    sum: usize,
    /// Rows of a tile.
    height: i64,
}

/// An index of a matrix that does not fall from row to row.
struct Choice {
    value: Val,
    sym: Sym,
    /// How many matrices there are.
    count: Expr,
}

impl Grouped {
    /// The product that a nest is, if tiles of its rows are worth it.
    fn of(loops: &Loops, uses: &Uses, nest: &Nest, gpu: &Gpu) -> Option<Grouped> {
        if nest.idle.is_some() || nest.scanned().next().is_some() {
            return None;
        }
        let sum = nest.body.iter().position(|inst| inst.op.is_reduction())?;
        let both = Contraction::of(loops, nest)?;
        both.into_iter().filter(|of| of.is_plain).find_map(|of| {
            let has = |at: usize, sym: Sym| nest.body[at].op.exprs().iter().any(|e| e.has_sym(sym));
            let choice = choice(nest, |sym| has(of.rhs, sym), |sym| has(of.lhs, sym))?;
            let (rows, columns): (Vec<Axis>, Vec<Axis>) =
                nest.axes.iter().partition(|axis| has(of.lhs, axis.var));
            let &[row] = &rows[..] else { return None };
            let is_apart = !has(of.rhs, row.var) && columns.iter().all(|axis| has(of.rhs, axis.var));
            let rises = Rises { loops, uses, nest, axis: row.var };
            if !is_apart || !rises.has(choice.value) || rises.is_fixed(choice.value) {
                return None;
            }
            let operands = [of.lhs, of.rhs];
            let mut grouped = Grouped { row, columns, operands, choice, sum, height: 0 };
            grouped.height = grouped.rows_of_tile(loops, nest, gpu)?;
            Some(grouped)
        })
    }

    /// What its tables depend on.
    fn key(&self, nest: &Nest) -> Key {
        let choice = shared::computed(nest, self.choice.value);
        let chosen = nest.body[self.sum..].iter().filter_map(|inst| {
            let InstOp::Op(ScalarOp::Select, of) = &inst.op else { return None };
            Some(shared::computed(nest, of[0]))
        });
        let kept = chosen.collect();
        Key { choice, row: self.row, count: self.choice.count, height: self.height, kept }
    }

    /// Rows of a tile: about as many as a group has, by hints.
    fn rows_of_tile(&self, loops: &Loops, nest: &Nest, gpu: &Gpu) -> Option<i64> {
        let hint = |extent: Expr| loops.facts.size_hint(extent);
        let largest = |axes: &[Axis]| axes.iter().map(|axis| hint(axis.extent)).max().unwrap_or(0);
        let each = hint(self.row.extent) / hint(self.choice.count).max(1);
        let types = self.operands.map(|at| nest.body[at].op.element().map(|(buf, _)| loops.bufs[buf].dtype));
        let dtype = types[0].filter(|_| types[0] == types[1]);
        let has_instruction = dtype
            .is_some_and(|dtype| gpu.of_warp(dtype, nest.body[self.sum].ty, nest.rounds).next().is_some());
        let least = if has_instruction { LEAST_OF_INSTRUCTION } else { LEAST_OF_THREADS };
        let is_some = |extent: Expr| loops.facts.known(&Rel::le(1, extent)) == Known::Yes;
        let suits = (has_instruction || each >= LEAST_OF_GROUP)
            && hint(self.row.extent) > 1
            && [largest(&self.columns), largest(&nest.reduced)].iter().all(|&points| points >= least)
            && nest.all_axes().map(|axis| axis.extent).chain([self.choice.count]).all(is_some);
        let sums = nest.body[self.sum].ty;
        let is_of_warpgroups =
            dtype.is_some_and(|dtype| gpu.of_warpgroup(dtype, sums, nest.rounds).is_some());
        let most = if is_of_warpgroups { MOST_ROWS_OF_WARPGROUPS } else { MOST_ROWS };
        suits.then(|| (1_i64 << each.max(1).ilog2()).clamp(least, most))
    }
}

/// The index that is checked and is one of a matrix alone.
fn choice(
    nest: &Nest,
    is_of_matrix: impl Fn(Sym) -> bool,
    is_of_row: impl Fn(Sym) -> bool,
) -> Option<Choice> {
    let varies = nest.varying();
    let mut found = nest.body.iter().enumerate().filter_map(|(at, inst)| {
        let InstOp::Bind { sym, value, extent, of: BindOf::Index } = inst.op else { return None };
        let is_one = is_of_matrix(sym) && !is_of_row(sym) && !varies[at];
        is_one.then_some(Choice { value, sym, count: extent })
    });
    let choice = found.next().filter(|_| found.next().is_none())?;
    // Others would be computed where rows are not known.
    let others = nest.body.iter().filter_map(|inst| {
        if let InstOp::Bind { sym, .. } = inst.op { Some(sym).filter(|&sym| sym != choice.sym) } else { None }
    });
    others.into_iter().all(|sym| !is_of_matrix(sym) && !is_of_row(sym)).then_some(choice)
}
