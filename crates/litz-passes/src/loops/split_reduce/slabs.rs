//! Says what it takes a GPU to sum a contraction in slabs of its sum, by which the number of slabs is chosen.
//!
//! A result of fewer tiles than a GPU has units leaves units idle. With slabs each tile is summed several times, a part of the sum at a
//! time, by units of their own. Larger tiles read less of the operands, too, of which slabs leave enough.

use litz_analysis::contraction::{Columns, Contraction};
use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_ir::target::{Gpu, Instruction, ThreadTile};
use litz_sym::{Expr, Sym};

/// Points of a slab, at least: what is stored and loaded of its sums is little beside its products.
const LEAST_OF_SLAB: i64 = 256;
/// Bytes of a row that are copied at once, of which slabs have a whole number.
const ROW_BYTES: i64 = 128;
/// Rows, and columns, of which a product is left to who sums rows where it has fewer.
const LEAST_ROWS: i64 = 2;
const LEAST_COLUMNS: i64 = 8;
/// Points of the sides of tiles that instructions sum.
const SIDES: [i64; 4] = [16, 32, 64, 128];

/// Clocks that a step of 64 bytes of each row waits for memory: about 300, of which two steps are on the way.
const WAIT: i64 = 150;
/// Bytes that a unit has of main memory in a clock: 3 TB/s for 132 units of 1.75 GHz.
const MEMORY: i64 = 13;
/// Bytes of the sums of slabs that a unit stores, or loads again, in a clock, where they take more than this part of the cache that all units share, and where they
/// stay in it. In three slabs those of 3152 by 768 results are 29 MB and take 10 microseconds, so that a product of 3072 terms in bfloat16 took 32
/// instead of 22 (H200).
const PARTIAL: i64 = 24;
const PART_OF_CACHE: i64 = 4;
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
    /// The instruction that sums them; threads do where there is none.
    by: Option<&'static Instruction>,
    gpu: Gpu,
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
            by,
            gpu: *gpu,
        };
        (is_plain && rows >= LEAST_ROWS && columns >= LEAST_COLUMNS).then_some(product)
    }

    /// Slabs that there may be, at most.
    pub fn most_slabs(&self) -> i64 {
        (self.terms / LEAST_OF_SLAB).min(2 * i64::from(self.gpu.units))
    }

    /// Clocks that it takes with so many slabs. For one after another of the tiles of a unit what summing takes, or loading the operands, or
    /// waiting for them, whichever is longest; all operands come from main memory once. Sums of slabs are stored and loaded by a kernel more.
    pub fn time(&self, slabs: i64) -> i64 {
        let (steps, units) = ((self.terms + slabs - 1) / slabs, i64::from(self.gpu.units));
        let of_tile = |[rows, columns]: [i64; 2], clocks: &dyn Fn(i64, i64) -> i64| {
            let tiles = [(self.rows, rows), (self.columns, columns)].map(|(n, side)| (n + side - 1) / side);
            let tiles = tiles[0].saturating_mul(tiles[1]).saturating_mul(self.others).saturating_mul(slabs);
            let turns = (tiles + units - 1) / units;
            let loaded = (rows.min(self.rows) + columns.min(self.columns)) * self.bytes;
            // Of 64 points of the sum: smaller numbers would be rounded to 0.
            let loads = turns.saturating_mul(loaded * 64 / Gpu::LOADED_IN_CLOCK);
            clocks(tiles, turns).max(loads).max(WAIT * self.bytes).saturating_mul(steps) / 64
        };
        let tiles = match self.by {
            Some(by) => SIDES
                .iter()
                .flat_map(|&rows| SIDES.map(|columns| [rows, columns]))
                .map(|sides| {
                    let sums = sides[0] * sides[1] * 64 / Gpu::products_in_clock(by);
                    of_tile(sides, &|_, turns| turns.saturating_mul(sums))
                })
                .min(),
            None => ThreadTile::ALL
                .iter()
                .map(|tile| {
                    of_tile(tile.sides(), &|tiles, _| tile.clocks(&self.gpu, tiles, (self.sums + 3) / 4))
                })
                .min(),
        };
        let results = self.rows.saturating_mul(self.columns).saturating_mul(self.others);
        let operands = (self.rows + self.columns).saturating_mul(self.others).saturating_mul(self.terms);
        let once = operands.saturating_mul(self.bytes) / (MEMORY * units);
        let partial = results.saturating_mul(self.sums * slabs);
        let stays = partial <= self.gpu.l2_bytes / PART_OF_CACHE;
        let rate = if stays { Gpu::LOADED_IN_CLOCK } else { PARTIAL };
        let partial = partial.saturating_mul(2) / (rate * units);
        let behind = if slabs > 1 { LAUNCH + partial } else { 0 };
        tiles.unwrap_or(0).max(once).saturating_add(behind)
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
