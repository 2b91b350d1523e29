//! Chooses the tile of the result that a block sums.

use super::problem::{Problem, ROW_BYTES, Unit};
use super::stage::Operand;
use crate::cost::{ceil_div, points, size};
use crate::nest;
use litz_ir::target::{Gpu, ThreadTile};

/// The part of the result that a block sums.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tile {
    /// Teams along the rows and along the columns: warps, or threads.
    pub teams: [i64; 2],
    /// Instructions of a warp, or points of a thread, along each.
    pub each: [i64; 2],
    /// Tiles that a block has under way, where it takes several: of two, which are of warps of their own, one is summed while the other is stored.
    pub under_way: u32,
}

const fn tile(teams: [i64; 2], each: [i64; 2]) -> Tile {
    Tile { teams, each, under_way: 1 }
}

/// One of a warpgroup alone, while another one has another.
const fn of_pair(each: [i64; 2]) -> Tile {
    Tile { teams: [1, 1], each, under_way: 2 }
}

/// Tiles by the instructions of warps, the largest first. A warp of 64 by 32 points has 64 registers for its sums, and takes 12 fragments
/// of operands for 16 products.
const OF_WARPS: [Tile; 12] = [
    tile([2, 4], [4, 4]),
    tile([2, 2], [4, 4]),
    tile([4, 1], [2, 4]),
    tile([2, 2], [2, 4]),
    tile([2, 2], [2, 2]),
    tile([4, 1], [2, 1]),
    tile([4, 1], [1, 1]),
    tile([2, 2], [1, 2]),
    tile([1, 4], [1, 2]),
    tile([1, 2], [1, 1]),
    tile([2, 1], [1, 1]),
    tile([1, 1], [1, 1]),
];

/// Tiles by the instructions of warpgroups, of 64 rows and so many times eight columns. Two of them share the columns: with 256 of these a
/// thread has 128 registers for its sums. There are as many widths as results can be stored by, so that units have whole turns: 2048 rows of 3072 columns are
/// 192 tiles of 256 columns, which take 132 units two turns, and 256 of 192, which take two shorter ones.
/// Of pairs, which come last, each of two warpgroups has a tile of its own, and may have more sums: it does not begin the next one while it stores.
const OF_WARPGROUPS: [Tile; 26] = [
    tile([2, 1], [1, 32]),
    tile([2, 1], [1, 30]),
    tile([2, 1], [1, 28]),
    tile([2, 1], [1, 24]),
    tile([2, 1], [1, 20]),
    tile([2, 1], [1, 18]),
    tile([2, 1], [1, 16]),
    tile([2, 1], [1, 12]),
    tile([2, 1], [1, 8]),
    tile([1, 1], [1, 32]),
    tile([1, 1], [1, 28]),
    tile([1, 1], [1, 24]),
    tile([1, 1], [1, 20]),
    tile([1, 1], [1, 16]),
    tile([1, 1], [1, 12]),
    tile([1, 1], [1, 8]),
    tile([1, 1], [1, 4]),
    tile([1, 1], [1, 2]),
    tile([1, 1], [1, 1]),
    of_pair([2, 20]),
    of_pair([2, 18]),
    of_pair([2, 16]),
    of_pair([2, 12]),
    of_pair([2, 8]),
    of_pair([1, 24]),
    of_pair([1, 16]),
];

/// Numbers of 32 bits that a unit loads from shared memory in a clock, a bank each.
const SHARED_IN_CLOCK: i64 = 32;

/// Of what instructions of warpgroups might sum, what they do at best: 770 of 949 TFLOP/s (bf16, an H100 at 1.75 GHz).
const MOST_OF_PEAK: [i64; 2] = [4, 5];
const ALONE_OF_PEAK: [i64; 2] = [2, 3];

/// Clocks in which a warpgroup begins a tile, in which it stores a sum of each thread, and for each instruction of what follows at its point.
const BEGIN: i64 = 500;
const STORE: i64 = 12;
const INSTRUCTION: i64 = 2;

/// Words of the sums of a thread, at most, and of one of which each has half of a block's tiles.
const MOST_SUMS: [i64; 2] = [128, 160];

/// The same where sums of parts have registers besides.
const MOST_SUMS_OF_PARTS: i64 = 192;

impl Tile {
    /// Points along the rows and along the columns.
    pub fn sides(&self, unit: Unit) -> [i64; 2] {
        let of_team = unit.shape();
        [0, 1].map(|side| self.teams[side] * self.each[side] * of_team[side])
    }

    /// Threads.
    pub fn threads(&self, unit: Unit) -> i64 {
        let of_team = match unit {
            Unit::Warp(_) => i64::from(Gpu::LANES),
            Unit::Warpgroup(_) => i64::from(Gpu::WARPGROUP),
            Unit::Threads => 1,
        };
        self.teams.iter().product::<i64>() * of_team
    }

    /// Tiles along both sides and of all points besides.
    pub fn count(&self, problem: &Problem<'_>, unit: Unit) -> i64 {
        let along = self.sides(unit).into_iter().enumerate();
        let along = along.map(|(side, count)| ceil_div(problem.points(side), count));
        along.fold(points(&problem.cx.loops.facts, &problem.others), i64::saturating_mul)
    }

    /// The tile that takes least time: for each that a unit has to sum one after another, what summing takes or what loading the operands
    /// does, whichever is longer, and of warpgroups what it takes to begin and to end. Of tiles that take as long, those that sum least past the
    /// ends of the axes, and of these the largest.
    pub fn of(problem: &Problem<'_>) -> Tile {
        Tile::ranked(problem)[0]
    }

    /// All that suit, in the order of the time that they take: see [`Tile::of`]. There is one at least.
    pub fn ranked(problem: &Problem<'_>) -> Vec<Tile> {
        let terms = size(&problem.cx.loops.facts, problem.depth.extent);
        let sums = points(&problem.cx.loops.facts, &problem.sum).saturating_mul(terms).max(1);
        let members = problem.group.members.iter().skip(problem.products.len());
        let insts: usize = members.map(|member| nest(problem.cx.loops, member.stmt).body.len()).sum();
        let around = |tile: &Tile| match problem.unit {
            Unit::Warpgroup(_) => {
                let each = tile.sides(problem.unit).iter().product::<i64>() / tile.threads(problem.unit);
                (BEGIN + each * (STORE + INSTRUCTION * insts as i64)) * 64 / sums
            }
            Unit::Warp(_) | Unit::Threads => 0,
        };
        Tile::by_time(problem, problem.unit, &around).into_iter().map(|(tile, _)| tile).collect()
    }

    /// That of least time for who sums, and the clocks that it takes for 64 points of the sum, and so many more `around` those of each tile.
    pub fn best(problem: &Problem<'_>, unit: Unit, around: &dyn Fn(&Tile) -> i64) -> (Tile, i64) {
        Tile::by_time(problem, unit, around)[0]
    }

    /// All for who sums that suit, that of least time first, each with its time as [`Tile::best`] says.
    fn by_time(problem: &Problem<'_>, unit: Unit, around: &dyn Fn(&Tile) -> i64) -> Vec<(Tile, i64)> {
        let of_threads = ThreadTile::ALL.map(|of| tile(of.threads, of.each));
        let tiles: &[Tile] = match unit {
            Unit::Warp(_) => &OF_WARPS,
            Unit::Warpgroup(_) => &OF_WARPGROUPS,
            Unit::Threads => &of_threads,
        };
        let bytes = problem.operand_bytes();
        let count = problem.products.len() as i64;
        let words = problem.words_of_sum();
        let time = |tile: &Tile| {
            let [rows, columns] = tile.sides(unit);
            // What is past the end of an axis is summed, but not loaded.
            let loaded: i64 = [0, 1]
                .map(|side| [rows, columns][side].min(problem.points(side)) * problem.apart[side])
                .iter()
                .sum();
            let turns = ceil_div(tile.count(problem, unit), i64::from(problem.gpu.units));
            // Of 64 points of the sum: smaller numbers would be rounded to 0.
            let loads = loaded * 64 * bytes / Gpu::LOADED_IN_CLOCK;
            let products = |by| rows * columns * count * 64 / Gpu::products_in_clock(by);
            // An instruction of a warpgroup loads all of its operands from shared memory, which boxes have stored there.
            let (sums, shared) = match unit {
                Unit::Threads => {
                    let of_threads = ThreadTile { threads: tile.teams, each: tile.each };
                    let sums = of_threads.clocks(problem.gpu, tile.count(problem, unit), count * words);
                    return sums.max(turns.saturating_mul(loads));
                }
                Unit::Warpgroup(by) => {
                    let sums = products(by);
                    let instructions = count * tile.each[0] * tile.teams.iter().product::<i64>();
                    let read = instructions * (i64::from(by.rows) + tile.each[1] * unit.shape()[1]);
                    // Nobody sums while one that is alone waits.
                    let is_alone = tile.under_way == 1 && tile.teams == [1, 1];
                    let at_best = if is_alone { ALONE_OF_PEAK } else { MOST_OF_PEAK };
                    (sums * at_best[1] / at_best[0], (read + loaded) * 64 * bytes / (4 * SHARED_IN_CLOCK))
                }
                Unit::Warp(by) => (products(by), 0),
            };
            let (most, around) = (sums.max(loads).max(shared), around(tile));
            match tile.under_way {
                1 => turns.saturating_mul(most + around),
                // One is stored while the other is summed.
                _ => turns.saturating_mul(most.max((most + around) / 2)).saturating_add(around),
            }
        };
        // Panels of columns that boxes of an operand fill are whole, and boxes of what is gathered, but of windows.
        let boxes = match unit {
            Unit::Warpgroup(_) => Operand::of(problem),
            Unit::Warp(_) | Unit::Threads => Vec::new(),
        };
        let sides_of = |is_wanted: &dyn Fn(&Operand) -> bool| -> Vec<usize> {
            boxes.iter().filter(|operand| is_wanted(operand)).map(|operand| operand.side).collect()
        };
        let panels = sides_of(&|operand| !operand.is_along_sum(problem));
        let is_gathered = |operand: &Operand| problem.gathering(operand.buf()).is_some();
        let gathered = sides_of(&|operand| is_gathered(operand) && !operand.is_of_windows(problem));
        // The last team has points to sum, too, and a thread registers for its sums.
        let has_parts = problem.terms_of_part().is_some();
        let suits = |tile: &&Tile| {
            let sides = tile.sides(unit);
            let sums = sides.iter().product::<i64>() / tile.threads(unit);
            let is_pair = tile.under_way > 1;
            let (words, most) = match has_parts {
                true => (2 * words, MOST_SUMS_OF_PARTS),
                false => (words, MOST_SUMS[usize::from(is_pair)]),
            };
            (sums * count * words <= most || sums == 1)
                && (!is_pair || tile.count(problem, unit) > i64::from(problem.gpu.units))
                && panels.iter().all(|&side| sides[side] * bytes % ROW_BYTES == 0)
                && gathered
                    .iter()
                    .all(|&side| problem.cx.loops.facts.divides(sides[side], problem.sides[side].extent))
                && [0, 1].iter().all(|&side| {
                    let before = sides[side] / tile.teams[side] * (tile.teams[side] - 1);
                    tile.teams[side] == 1 || before < problem.points(side)
                })
        };
        let summed =
            |tile: &Tile| tile.count(problem, unit).saturating_mul(tile.sides(unit).iter().product());
        let mut found: Vec<(Tile, i64)> =
            tiles.iter().filter(suits).map(|tile| (*tile, time(tile))).collect();
        found.sort_by_key(|(tile, time)| (*time, summed(tile)));
        if found.is_empty() {
            let smallest = tiles.last().copied().unwrap_or(tile([1, 1], [1, 1]));
            found.push((smallest, time(&smallest)));
        }
        found
    }
}
