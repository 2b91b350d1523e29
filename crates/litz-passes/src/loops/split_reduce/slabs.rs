//! Says what it takes a GPU to sum a contraction in slabs of its sum, by which the number of slabs is chosen.
//!
//! A result of fewer tiles than a GPU has units leaves units idle. With slabs each tile is summed several times, a part of the sum at a
//! time, by units of their own. Larger tiles read less of the operands, too, of which slabs leave enough.

use litz_analysis::contraction::{Columns, Contraction};
use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_ir::target::{Gpu, Instruction};
use litz_sym::{Expr, Sym};

/// Points of a slab, at least: what is stored and loaded of its sums is little beside its products.
const LEAST_OF_SLAB: i64 = 256;
/// Bytes of a row that are copied at once, of which slabs have a whole number.
const ROW_BYTES: i64 = 128;
/// Rows, and columns, of which a product is left to who sums rows where it has fewer.
const LEAST_ROWS: i64 = 2;
const LEAST_COLUMNS: i64 = 8;
/// Points of the sides of tiles. Those of threads are squares: smaller ones have few sums for a thread, which takes three times as long for each.
const SIDES: [i64; 4] = [16, 32, 64, 128];
const SIDES_OF_THREADS: [i64; 2] = [64, 128];

/// Clocks that a step of 64 bytes of each row waits for memory: about 300, of which two steps are on the way.
const WAIT: i64 = 150;
/// Bytes that a unit has of main memory in a clock: 3 TB/s for 132 units of 1.75 GHz.
const MEMORY: i64 = 13;
/// Clocks of a launch, 1.2 microseconds.
const LAUNCH: i64 = 2000;

/// A contraction whose result has rows and columns, by hints.
///
/// With these numbers 128 by 768 results of 3072 terms are split, and neither 1024 by 768 of 3072 nor 32 by 4096 of 4096, as is
/// fastest on an H100.
pub struct Product {
    /// The axis whose neighbours are neighbours in the sums of a slab.
    pub column: Axis,
    rows: i64,
    columns: i64,
    /// Points that both operands have.
    others: i64,
    terms: i64,
    /// Bytes of an element of the operands.
    bytes: i64,
    /// Bytes of an element of the sums.
    sums: i64,
    /// Products that a unit sums in a clock.
    each_clock: i64,
    /// Whether threads sum, and no instruction.
    is_by_threads: bool,
    units: i64,
}

impl Product {
    /// That of a nest, if tiles of its result are summed.
    pub fn of(loops: &Loops, nest: &Nest, gpu: &Gpu) -> Option<Product> {
        let all = Contraction::all_by_result(loops, nest);
        let is_enough = |of: &Columns| loops.facts.size_hint(of.column.extent) >= LEAST_COLUMNS;
        let columns = all.iter().find(|of| is_enough(of)).or(all.first())?;
        let column = columns.column;
        let Contraction { lhs, rhs, ref m, ref n, is_plain } = columns.contraction;
        let points = |axes: &[Axis]| {
            axes.iter().map(|a| loops.facts.size_hint(a.extent).max(1)).fold(1, i64::saturating_mul)
        };
        let [left, right] =
            [lhs, rhs].map(|at| nest.body[at].op.element().map(|(buf, _)| loops.bufs[buf].dtype));
        let sums = nest.body.iter().find(|inst| inst.op.is_reduction())?.ty;
        let dtype = left.filter(|_| left == right);
        let by = dtype.and_then(|dtype| gpu.of_warp(dtype, sums, nest.rounds).next());
        let is_tile =
            |by: &&Instruction| points(m) >= i64::from(by.rows) && points(n) >= i64::from(by.columns);
        let of_group = dtype.and_then(|dtype| gpu.of_warpgroup(dtype, sums, nest.rounds)).filter(is_tile);
        let by = of_group.or(by);
        let bytes = left.into_iter().chain(right).map(|dtype| dtype.size() as i64).max()?;
        let (rows, columns) = (points(m), points(n));
        let product = Product {
            column,
            rows,
            columns,
            others: points(&nest.axes) / (rows * columns),
            terms: points(&nest.reduced),
            bytes,
            sums: sums.size() as i64,
            each_clock: Gpu::products_in_clock(by),
            is_by_threads: by.is_none(),
            units: i64::from(gpu.units),
        };
        (is_plain && rows >= LEAST_ROWS && columns >= LEAST_COLUMNS).then_some(product)
    }

    /// Slabs that there may be, at most.
    pub fn most_slabs(&self) -> i64 {
        (self.terms / LEAST_OF_SLAB).min(2 * self.units)
    }

    /// Clocks that it takes with so many slabs. For one after another of the tiles of a unit what summing takes, or loading the operands, or
    /// waiting for them, whichever is longest; all operands come from main memory once. Sums of slabs are stored and loaded by a kernel more.
    pub fn time(&self, slabs: i64) -> i64 {
        let steps = (self.terms + slabs - 1) / slabs;
        let of_tile = |rows: i64, columns: i64| {
            let tiles = [(self.rows, rows), (self.columns, columns)].map(|(n, side)| (n + side - 1) / side);
            let tiles = tiles[0].saturating_mul(tiles[1]).saturating_mul(self.others).saturating_mul(slabs);
            let turns = (tiles + self.units - 1) / self.units;
            let loaded = (rows.min(self.rows) + columns.min(self.columns)) * self.bytes;
            // Of 64 points of the sum: smaller numbers would be rounded to 0.
            let (sums, loads) = (rows * columns * 64 / self.each_clock, loaded * 64 / Gpu::LOADED_IN_CLOCK);
            let turns = if self.is_by_threads { turns.max(Gpu::BLOCKS_OF_THREADS) } else { turns };
            turns.saturating_mul(sums.max(loads)).max(WAIT * self.bytes).saturating_mul(steps) / 64
        };
        let sides = if self.is_by_threads { &SIDES_OF_THREADS[..] } else { &SIDES };
        let is_tile = |rows: i64, columns: i64| !self.is_by_threads || rows == columns;
        let tiles = sides.iter().flat_map(|&rows| {
            sides
                .iter()
                .filter(move |&&columns| is_tile(rows, columns))
                .map(move |&columns| of_tile(rows, columns))
        });
        let results = self.rows.saturating_mul(self.columns).saturating_mul(self.others);
        let operands = (self.rows + self.columns).saturating_mul(self.others).saturating_mul(self.terms);
        let once = operands.saturating_mul(self.bytes) / (MEMORY * self.units);
        let partial = results.saturating_mul(2 * self.sums * slabs) / (Gpu::LOADED_IN_CLOCK * self.units);
        let behind = if slabs > 1 { LAUNCH + partial } else { 0 };
        tiles.min().unwrap_or(0).max(once).saturating_add(behind)
    }
}

/// Points of which a slab has a whole number along an axis of the sum: as many as are copied at once, where they lie side by side.
pub fn granule(loops: &Loops, nest: &Nest, axis: Sym) -> i64 {
    let is_beside = |place: Expr| place.linear(axis).is_some_and(|(step, _)| step.is_one());
    let granules = nest.body.iter().filter_map(|inst| {
        let InstOp::Load { buf, index, .. } = &inst.op else { return None };
        is_beside(loops.place(nest, *buf, index)).then(|| ROW_BYTES / loops.bufs[*buf].dtype.size() as i64)
    });
    granules.max().unwrap_or(1)
}

/// Whether both operands of a contraction have a dimension that an axis goes through from its start to its end, past which copies hold zeros.
pub fn has_end(loops: &Loops, nest: &Nest, axis: Sym) -> bool {
    let Some(extent) = nest.reduced.iter().find(|reduced| reduced.var == axis).map(|axis| axis.extent) else {
        return false;
    };
    let along = |op: &InstOp| {
        let InstOp::Load { buf, index, guard, .. } = op else { return None };
        let has_end = || {
            let mut dims = index.iter().zip(&loops.bufs[*buf].sizes);
            guard.is_empty() && dims.any(|(&at, &size)| at == Expr::sym(axis) && size == extent)
        };
        index.iter().any(|at| at.has_sym(axis)).then(has_end)
    };
    nest.body.iter().filter_map(|inst| along(&inst.op)).all(|has_end| has_end)
}
