//! Divides the points of a contraction into register tiles, and these into a grid.

use crate::axes::variable;
use crate::cost::{ceil_div, points, size};
use crate::cpu::product::blocks::{Blocks, KBlock, PER_TWO_K_BLOCKS, PER_TWO_K_BLOCKS_BEFORE_LOOPS, Tiles};
use crate::cpu::product::m_tile::MTile;
use crate::cpu::product::problem::{Problem, outer_of};
use crate::cpu::tiles::in_loops;
use crate::cut::{balanced, cut};
use crate::group::Member;
use litz_analysis::access::substitute;
use litz_ir::loops::Axis;
use litz_ir::schedule::{LoopKind, Tree};
use litz_sym::{Expr, Facts, Sym};

/// How much more it takes to read a byte of the left operand than one of the right: other threads wrote it last, and nothing
/// fetches it ahead. On two threads of an Intel Xeon 196 rows by 256 columns with sums of 1024 took 1.67 instead of 1.83 ms,
/// and 128 rows by 384 columns with sums of 1536 took 0.45 instead of 0.57 ms, where each thread kept its rows.
const LEFT_COST: i64 = 4;

/// Lanes of the narrowest vectors: registers have at least 16 bytes.
const LEAST_LANES: u32 = 4;

/// Points of the grid for each thread at least, where each of them packs what it reads of the right operand.
pub const PANELS_PER_THREAD: i64 = 4;

/// How a product's points are cut into tiles.
#[derive(Clone)]
pub struct Tiling {
    /// Axes that are cut where their extent is no multiple of the tile's, with their values at a point of it.
    ends: Vec<(Axis, Expr)>,
    /// Value of each variable of the group at a point of a tile.
    value: Vec<(Sym, Expr)>,
    /// Grid axes that are neither rows nor columns.
    pub batch: Vec<Axis>,
    /// Grid axes of rows.
    grid_rows: Vec<Axis>,
    /// The grid axis of columns, unless one tile has them all.
    pub grid_column: Option<Axis>,
    /// Which tile of columns it is at a point of a tile, if there are several.
    pub column_tile: Option<Expr>,
    /// All columns.
    column: Axis,
    /// Rows of a tile; `None` where the left operand has no axis of its own.
    tile_rows: Option<Axis>,
    /// Points of a second M axis that a tile spans, each with all of `tile_rows`.
    tile_outer_rows: Option<Axis>,
    /// Columns of a tile.
    tile_columns: Axis,
    /// Tiles that share the K blocks of the right operand.
    pub blocks: Option<Blocks>,
    /// The M tiles of an M block, whose left operand stays in the second-level cache while the columns pass by.
    pub m_block: Option<Axis>,
}

impl Tiling {
    /// Tiles for a product that is a kernel.
    pub fn new(problem: &Problem<'_>) -> Tiling {
        let &Problem { loops, group, target, .. } = problem;
        let rows = problem.columns.contraction.m.iter().filter_map(|m| outer_of(group, m.var)).collect();
        let Some(unit) = problem.matrix() else {
            let mut m_block = None;
            let mut tile = MTile::cut(loops, group, rows, &mut |rows, is_known| {
                let height = balanced(rows, target.tile_rows(), is_known);
                m_block = tiles_of_m_block(problem, rows, height).filter(|_| is_known);
                (height, m_block)
            });
            tile.add_outer_rows(loops, target);
            let mut tiling = Tiling::of_rows(problem, tile);
            tiling.m_block = m_block;
            if m_block.is_none() {
                tiling.add_blocks(problem);
            }
            return tiling;
        };
        let columns = ceil_div(size(&loops.facts, problem.column().extent), i64::from(target.tile_columns()));
        // Accumulators of a matrix instruction are two by two: each operand loaded is used twice.
        let most = 2 * i64::from(unit.rows);
        let mut blocks = None;
        let rows = MTile::cut(loops, group, rows, &mut |rows, is_known| {
            // What is left of an unknown number takes part of the instruction.
            let height = if is_known { balanced(rows, most, true) } else { most };
            let count = ceil_div(rows, height);
            let bytes = 4 * height * i64::from(target.tile_columns());
            // The left operand passes through the first-level cache too.
            let step = problem.step_bytes(i64::from(target.tile_columns()));
            let k_block = KBlock { step, wanted: i64::from(i32::MAX), room: target.l1_bytes / 3 };
            let (var, grid) = (variable(loops, "im"), count * columns);
            let tiles = Tiles { var, bytes, count, grid, per_two_k_blocks: PER_TWO_K_BLOCKS };
            blocks = match problem.sum[..] {
                [_] => Blocks::new(loops, &problem.sum, k_block, tiles, target),
                _ => None,
            };
            (height, blocks.map(|b| b.tiles))
        });
        Tiling { blocks, ..Tiling::of_rows(problem, rows) }
    }

    /// Lets tiles along one axis of the grid share K blocks of the right operand.
    fn add_blocks(&mut self, problem: &Problem<'_>) {
        let &Problem { loops, target, .. } = problem;
        let facts = &loops.facts;
        let per_two_k_blocks =
            if problem.is_inlined() { PER_TWO_K_BLOCKS } else { PER_TWO_K_BLOCKS_BEFORE_LOOPS };
        let grid = points(facts, self.batch.iter().chain(&self.grid_rows).chain(&self.grid_column));
        let bytes = 4 * self.points(facts);
        let blocks = |axis: &Axis, name: &str, k_block: KBlock| {
            let (var, count) = (variable(loops, name), axis.extent.as_int()?);
            let tiles = Tiles { var, bytes, count, grid, per_two_k_blocks };
            Blocks::new(loops, &problem.sum, k_block, tiles, target)
        };
        let width = size(facts, self.tile_columns.extent).max(i64::from(target.tile_columns()));
        let of_tile =
            KBlock { step: problem.step_bytes(width), wanted: problem.chain(), room: target.l1_bytes / 2 };
        // A panel that stays in the first-level cache beside a tile's rows is shared anyway, and sums need not wait: the gradient of
        // 768x3072 weights by 197 rows took 3.9 instead of 4.6 ms (two threads of an Intel Xeon, AVX-512).
        let used = problem.right_bytes(width).saturating_add(problem.left_bytes(self.rows(facts)));
        let stays = used <= target.l1_bytes;
        // Of axes along which equally many tiles share K blocks the innermost: they lie closest together.
        let found = self.grid_rows.iter().enumerate().filter(|_| !stays);
        let found = found.filter_map(|(at, axis)| Some((at, *axis, blocks(axis, "im", of_tile)?)));
        if let Some((at, axis, blocks)) = found.max_by_key(|found| found.2.tiles.extent.as_int()) {
            let groups = self.take_turns(problem, axis, "ig", blocks.tiles);
            self.grid_rows.splice(at..=at, groups);
            self.blocks = Some(blocks);
            self.share_left(problem);
            return;
        }
        let shared = self.grid_column.zip(self.k_block_of_lines(problem));
        if let Some((axis, blocks)) =
            shared.and_then(|(axis, lines)| Some((axis, blocks(&axis, "jm", lines)?)))
        {
            self.grid_column = self.take_turns(problem, axis, "jg", blocks.tiles);
            self.blocks = Some(blocks);
        }
    }

    /// Lets N tiles share K blocks of the left operand, where one K block of the right one is packed after another and all rows use it:
    /// the left operand would be read from further away for every N tile.
    fn share_left(&mut self, problem: &Problem<'_>) {
        let &Problem { loops, target, heuristics, .. } = problem;
        let (facts, Some(column)) = (&loops.facts, self.grid_column) else { return };
        let cache = target.l2_bytes / heuristics.local_fraction;
        let rows = points(facts, &problem.columns.contraction.m);
        let is_packed = problem.packed.is_some() && self.grid_rows.is_empty();
        let is_long = problem.right_bytes(size(facts, self.tile_columns.extent)) > cache;
        if !is_packed || !is_long || problem.left_bytes(rows) <= cache {
            return;
        }
        let count = size(facts, column.extent);
        // Accumulators come back from the second-level cache for each K block.
        let fitting = target.l2_bytes / (4 * 4 * self.points(facts)).max(1);
        let most = fitting.min(count / (PANELS_PER_THREAD * i64::from(target.threads.max(1))));
        if let Some(extent) = (2..=most).rev().find(|extent| count % extent == 0) {
            let tiles = Axis { var: variable(loops, "jm"), extent: Expr::int(extent) };
            self.grid_column = self.take_turns(problem, column, "jg", tiles);
            self.blocks.iter_mut().for_each(|blocks| blocks.columns = Some(tiles));
        }
    }

    /// The K block of which N tiles use parts of the same lines, where there is one M tile, so that each element of the right
    /// operand is used once: tiles that a thread runs one after another read lines once that tiles on two threads would read
    /// twice. Products of three rows of probabilities with 4096 rows of 64 values took 2.1 instead of 2.6 ms of twelve layers
    /// on two threads of an AMD EPYC (AVX2) in two tiles.
    ///
    /// Its length is that into which the sum is cut without it: how many tiles share it, none among these, depends on the number
    /// of threads, and results may not.
    fn k_block_of_lines(&self, problem: &Problem<'_>) -> Option<KBlock> {
        let facts = &problem.loops.facts;
        let [sum] = problem.sum[..] else { return None };
        let wanted = problem.chain_in(self.rows(facts));
        let is_plain = problem.unit.is_none() && problem.in_place.is_none() && problem.is_beside();
        let is_long = sum.extent.as_int()? > 2 * wanted;
        let step = problem.step_bytes(self.column.extent.as_int()?);
        let room = step.saturating_mul(wanted + wanted / 3);
        let fits = room <= problem.target.l2_bytes / 4;
        (is_plain && is_long && fits && points(facts, &self.grid_rows) == 1).then_some(KBlock {
            step,
            wanted,
            room,
        })
    }

    /// Lets a point of the grid run a group of tiles along one of its axes one after another, and gives the axis of the groups, if there
    /// are several.
    fn take_turns(&mut self, problem: &Problem<'_>, axis: Axis, name: &str, tiles: Axis) -> Option<Axis> {
        let loops = problem.loops;
        let (groups, _, place) =
            cut(axis, size(&loops.facts, tiles.extent), variable(loops, name), tiles.var);
        let is_one = groups.extent.is_one();
        let place = if is_one { Expr::sym(tiles.var) } else { place };
        let values = self.value.iter_mut().map(|v| &mut v.1);
        let values = values.chain(self.ends.iter_mut().map(|end| &mut end.1)).chain(&mut self.column_tile);
        values.for_each(|value| *value = value.replace(axis.var, place));
        (!is_one).then_some(groups)
    }

    /// Axes of the grid along which are rows.
    pub fn grid_rows(&self) -> &[Axis] {
        &self.grid_rows
    }

    /// Axes of the points of a tile.
    pub fn tile_axes(&self) -> impl Iterator<Item = Axis> {
        self.tile_outer_rows.iter().chain(&self.tile_rows).chain([&self.tile_columns]).copied()
    }

    /// Loops over the tiles that one point of the grid runs one after another, outermost first.
    pub fn tiles(&self) -> impl Iterator<Item = Axis> {
        let blocks = self.blocks.iter().flat_map(|blocks| blocks.columns.into_iter().chain([blocks.tiles]));
        self.m_block.into_iter().chain(blocks)
    }

    /// Tiles of the M axes that are cut already.
    pub fn of_rows(problem: &Problem<'_>, rows: MTile) -> Tiling {
        let &Problem { loops, group, .. } = problem;
        let column = problem.column();
        let MTile { mut value, grid: grid_rows, rows: tile_rows, outer_rows: tile_outer_rows } = rows;
        let height = points(&loops.facts, tile_rows.iter().chain(&tile_outer_rows));
        let width = problem.width(height, points(&loops.facts, &grid_rows));
        let (tiles, inside, at) = cut(column, width, variable(loops, "jo"), variable(loops, "ji"));
        let (tile_columns, at, grid_column) = match column.extent.as_int() {
            Some(n) if n <= width => (Axis { extent: column.extent, ..inside }, Expr::sym(inside.var), None),
            _ => (inside, at, Some(tiles)),
        };
        let column_tile = grid_column.map(|axis: Axis| Expr::sym(axis.var));
        value.push((column.var, at));
        let is_cut = |axis: &Axis, at: Expr, inside: Axis| {
            let whole =
                axis.extent.as_int().zip(inside.extent.as_int()).is_some_and(|(n, part)| n % part == 0);
            at != Expr::sym(inside.var) && !whole
        };
        let mut ends = Vec::new();
        for inside in tile_rows.iter().chain(&tile_outer_rows).chain([&tile_columns]) {
            let bound = group.outer.iter().filter_map(|axis| {
                let value = value.iter().find(|v| v.0 == axis.var)?.1;
                let is_linear = value.linear(inside.var).is_some_and(|(factor, _)| factor.is_one());
                (is_linear && is_cut(axis, value, *inside)).then_some((*axis, value))
            });
            ends.extend(bound);
        }
        let is_placed = |o: &Axis| value.iter().any(|v| v.0 == o.var);
        let batch = group.outer.iter().filter(|o| !is_placed(o)).copied().collect();
        let (blocks, m_block) = (None, None);
        Tiling {
            ends,
            value,
            batch,
            grid_rows,
            grid_column,
            column_tile,
            column,
            tile_rows,
            tile_outer_rows,
            tile_columns,
            blocks,
            m_block,
        }
    }

    /// Rows of a tile.
    pub fn rows(&self, facts: &Facts) -> i64 {
        points(facts, self.tile_outer_rows.iter().chain(&self.tile_rows))
    }

    /// Lanes of a tile's vectors: no more than its columns fill. Accumulators of fewer lanes than a register has are put
    /// together with what is in the others after each multiply-add: convolutions of 28x28 points in 32 groups of 8 channels took
    /// 0.49 ms instead of 0.78 on one thread of an Intel Xeon (AVX-512) in vectors of 8 lanes.
    pub fn lanes(&self, problem: &Problem<'_>) -> u32 {
        let lanes = problem.target.lanes();
        let columns = self.tile_columns.extent.as_int().and_then(|n| u32::try_from(n).ok());
        match columns.map(u32::next_power_of_two) {
            Some(columns) if problem.unit.is_none() && columns < lanes => columns.max(LEAST_LANES).min(lanes),
            _ => lanes,
        }
    }

    /// Points of the tiles of a point of the grid.
    pub fn points(&self, facts: &Facts) -> i64 {
        let tiles: Vec<Axis> = self.tiles().chain(self.tile_axes()).collect();
        points(facts, &tiles)
    }

    /// The grid, in the order in which one thread reads least: its outermost points are divided among the threads, and each of
    /// them needs the other operand again where that is too large for the second-level cache.
    pub fn grid(&self, problem: &Problem<'_>) -> Vec<Axis> {
        let (facts, target) = (&problem.loops.facts, problem.target);
        let row_tiles = points(facts, &self.grid_rows);
        let column_tiles = points(facts, &self.grid_column);
        let left = problem.left_bytes(points(facts, &problem.columns.contraction.m));
        let right = problem.right_bytes(size(facts, self.column.extent));
        let threads = (i64::from(target.threads) / points(facts, &self.batch).max(1)).max(1);
        // The bytes that a thread reads of the operand of the outer tiles, and of that of the inner ones.
        let reads = |outer: i64, tiles: i64, inner: i64| {
            let outer_share = threads.min(tiles).max(1);
            let inner_share = (threads / outer_share).max(1);
            let again = if inner > target.l2_bytes / 2 { ceil_div(tiles, outer_share) } else { 1 };
            (outer / outer_share, (inner / inner_share).saturating_mul(again))
        };
        let (of_right, of_left) = reads(right, column_tiles, left);
        let columns_outside = of_left.saturating_mul(LEFT_COST).saturating_add(of_right);
        let (of_left, of_right) = reads(left, row_tiles, right);
        let rows_outside = of_left.saturating_mul(LEFT_COST).saturating_add(of_right);
        // Of products that read different parts of the same lines one follows another: with the 32 groups of 4 channels of a
        // convolution of 56x56 points outermost, one thread of an Intel Xeon read each line of the image four times, and took
        // up to 1.4 times as long.
        let (beside, mut grid): (Vec<Axis>, Vec<Axis>) =
            self.batch.iter().partition(|axis| problem.shares_lines(axis));
        if columns_outside <= rows_outside && self.m_block.is_none() {
            grid.extend(self.grid_column);
            grid.extend(&self.grid_rows);
        } else {
            grid.extend(&self.grid_rows);
            grid.extend(self.grid_column);
        }
        grid.extend(beside);
        grid
    }

    /// The values of a member's axes at a point of a tile.
    pub fn bind(&self, member: &Member) -> Vec<(Sym, Expr)> {
        member.bind.iter().map(|(s, e)| (*s, substitute(*e, &self.value))).collect()
    }

    /// With loops that end where the product's axes do, if there are leaves that do not know: in a grouped convolution's
    /// epilogue the channel is that of the group and an offset, and what is past the end of one group is the next group's.
    pub fn ending_with(&self, leaves: &[Tree], facts: &Facts) -> Option<Tiling> {
        let mut ending = self.clone();
        let mut has_ends = false;
        let loops = [&mut ending.tile_rows, &mut ending.tile_outer_rows].into_iter().flatten();
        for inside in loops.chain([&mut ending.tile_columns]) {
            for (axis, value) in &self.ends {
                let is_offset =
                    |e: Expr| e != *value && e.linear(inside.var).is_some_and(|(factor, _)| factor.is_one());
                let mut has_offset = false;
                for tree in leaves {
                    tree.each_leaf(&mut |leaf| has_offset |= leaf.bind.iter().any(|b| is_offset(b.1)));
                }
                if has_offset && value.has_sym(inside.var) {
                    let left = axis.extent - value.replace(inside.var, Expr::zero());
                    inside.extent = facts.simplify(inside.extent.min(left));
                    has_ends = true;
                }
            }
        }
        has_ends.then_some(ending)
    }

    /// Loops over the points of a tile.
    pub fn loops(&self, body: Vec<Tree>, rows: LoopKind, columns: LoopKind) -> Vec<Tree> {
        in_loops(&self.axes(rows, columns), body)
    }

    /// The axes of a tile, outermost first, and how their loops run.
    pub fn axes(&self, rows: LoopKind, columns: LoopKind) -> Vec<(LoopKind, Axis)> {
        let around = self.tile_outer_rows.iter().chain(&self.tile_rows).map(|axis| (rows, *axis));
        around.chain([(columns, self.tile_columns)]).collect()
    }
}

/// As many tiles of a known number of rows as fit into half of the second-level cache, if neither operand does: then the left
/// one would be read from further away for every tile of columns. Products of 2048 rows with sums of 768 ran at about half of
/// an Intel Xeon's peak that way.
fn tiles_of_m_block(problem: &Problem<'_>, rows: i64, height: i64) -> Option<Axis> {
    let &Problem { loops, target, .. } = problem;
    let cache = target.l2_bytes / 2;
    let columns = size(&loops.facts, problem.column().extent);
    // Beside the left operand are the panel of the right one that is read, and the next.
    let panels = problem.right_bytes(2 * i64::from(target.tile_columns()));
    let left = problem.left_bytes(rows);
    if left.saturating_add(panels) <= cache || problem.right_bytes(columns) <= cache {
        return None;
    }
    let tiles = ceil_div(rows, height);
    let each = (tiles / i64::from(target.threads.max(1))).max(1);
    let most = (cache / problem.left_bytes(height).max(1)).min(each);
    (most > 1).then(|| Axis { var: variable(loops, "im"), extent: Expr::int(balanced(tiles, most, true)) })
}
