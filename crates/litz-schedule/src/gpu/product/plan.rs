//! Writes the kernel of a contraction.
//!
//! ```text
//! parallel row_block in ceildiv(n, 128), column_block in ceildiv(m, 64) {
//!   register accumulator of mm
//!   warp w in 4 { lane l in 32 { unroll .. { mm.init [..] masked } } }
//!   pipeline k in ceildiv(p, 32) by 3 {
//!     shared a_tile = a swizzled 16
//!     shared b_tile = b swizzled 16 in pairs
//!     thread t in 128 { unroll e in 4 { vector v in 8 by 8 { a_tile [..] masked } } }
//!     thread t in 128 { unroll e in 2 { vector v in 8 by 8 { b_tile [..] masked } } }
//!     warp w in 4 { unroll i in 2, u in 4, v in 4 { mma mi in 16, mj in 8, mk in 16 { mm.update [..] masked } } }
//!   }
//!   warp w in 4 { lane l in 32 { unroll .. { mm.final [..] masked; relu [..] masked } } }
//! }
//! ```

use super::problem::{BUFFERS, Contracted, Problem, Unit};
use super::results::{self, Passing};
use super::stage::Operand;
use super::tile::Tile;
use crate::cost::{ceil_div, size};
use crate::cut::nested;
use crate::draft::Planned;
use crate::gpu::stage::{Copying, LEAST_COPIED};
use crate::gpu::{looped, registers};
use crate::group::Member;
use crate::nest;
use litz_analysis::access::accesses;
use litz_ir::loops::{Axis, Nest};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Level, Persistent};
use litz_sym::{Expr, Sym};

/// Columns of a thread that lie side by side.
const BESIDE: i64 = 4;

/// Sums of four bytes of a thread, with which it may have so many registers: a unit has room for two blocks of 256 threads then, one of which goes on
/// where the other waits.
const SUMS: i64 = 64;
const REGISTERS: u32 = 128;

/// Lanes of a warp along the rows and along the columns of what its threads sum: from shared memory they load four places and eight.
const LANES: [i64; 2] = [4, 8];

/// Buffers in rotation, at most, of boxes and of what warps copy, whose buffers may be small: more would wait for the memory no shorter.
const MOST_BUFFERS: i64 = 8;
const MOST_OF_WARPS: i64 = 16;

/// Bytes that blocks of warps copy ahead, at least: what memory hands over in the time that it takes to answer, for each unit (4.8 TB/s, 800 ns,
/// 132 units).
const UNDER_WAY: i64 = 30_000;

/// Plans the kernel of a contraction and what follows it, of which a block sums such tiles.
pub fn plan(problem: &Problem<'_>, tile: Tile) -> Planned {
    let Blocks { grid, starts, others, persistent } = blocks(problem, tile);
    let points = Points {
        problem,
        tile,
        starts,
        has_pairs: has_pairs(problem, tile),
        lies_along: [0, 1].map(|side| lies_along(problem, side)),
    };
    let mut body = points.zeros();
    body.extend(points.summed());
    let of_member = |member: &Member| {
        let is_product = problem.products.iter().any(|product| product.member.stmt == member.stmt);
        problem.leaf(member, if is_product { Part::Final } else { Part::Whole })
    };
    let last = problem.group.members.iter().map(of_member).collect();
    body.extend(points.finished(last));
    for (axis, value) in others {
        body.iter_mut().for_each(|tree| tree.replace(axis, value));
    }
    let sums = tile.each.iter().product::<i64>() * problem.products.len() as i64;
    // Of operands that both lie along the sum a thread loads four numbers of each of its rows and columns at once, for which it needs registers.
    let operands = Operand::of(problem);
    let are_along = !operands.is_empty() && operands.iter().all(|operand| operand.is_along_sum(problem));
    let is_full = problem.unit == Unit::Threads && sums == SUMS && problem.operand_bytes() <= 4 && !are_along;
    let registers = is_full.then_some(REGISTERS).or(problem.registers(
        tile.threads(problem.unit) * persistent.map_or(1, |stays| i64::from(stays.teams)),
        persistent.is_some(),
    ));
    let kernel = KernelPlan { persistent, registers, ..KernelPlan::new(grid, 1, body) };
    Planned { is_whole: true, ..Planned::from(kernel) }
}

/// The blocks of a kernel.
struct Blocks {
    grid: Vec<Axis>,
    /// Where the tile of a block begins along the rows and along the columns.
    starts: [Expr; 2],
    /// Values of axes of the result that are not axes of the grid.
    others: Vec<(Sym, Expr)>,
    /// Blocks that run all points of the grid.
    persistent: Option<Persistent>,
}

/// One block for each tile. Of warpgroups a unit runs one, which takes tile after tile and goes on copying meanwhile: in groups of a few
/// tiles of rows and all of columns, so that tiles at the same time read the same operands. Tiles of rows that data gives matrices to, one each,
/// are neighbours where they have the same.
fn blocks(problem: &Problem<'_>, tile: Tile) -> Blocks {
    let sides = tile.sides(problem.unit);
    let mut grid = problem.others.clone();
    let is_one =
        |side: usize| problem.sides[side].extent.as_int().is_some_and(|extent| extent <= sides[side]);
    let name = |side: usize, what: &str| problem.name(&format!("{}_{what}", problem.sides[side].var));
    let counts = [0, 1].map(|side| problem.sides[side].extent.ceildiv(sides[side]));
    let units = problem.gpu.units;
    let is_persistent =
        matches!(problem.unit, Unit::Warpgroup(_)) && tile.count(problem, problem.unit) > i64::from(units);
    let persistent = is_persistent.then_some(Persistent { blocks: units, teams: tile.under_way });
    // The axis that counts tiles of rows besides that of their own.
    let chosen = grid.last().copied().filter(|_| problem.is_chosen());
    let rows = chosen.map_or(Expr::one(), |axis| axis.extent) * counts[0];
    let group = [8, 4, 2].into_iter().find(|&group| problem.cx.loops.facts.divides(group, rows));
    let group = group.filter(|_| is_persistent && !is_one(1) && (!is_one(0) || chosen.is_some()));
    if let Some(group) = group {
        let [groups, inside, columns] = [name(0, "group"), name(0, "block"), name(1, "block")];
        grid.truncate(grid.len() - usize::from(chosen.is_some()));
        grid.extend([
            Axis { var: groups, extent: rows.floordiv(group) },
            Axis { var: columns, extent: counts[1] },
            Axis { var: inside, extent: Expr::int(group) },
        ]);
        let row = Expr::sym(groups) * group + Expr::sym(inside);
        let column = Expr::sym(columns) * sides[1];
        let (start, others) = match chosen {
            Some(axis) => (row.modulo(counts[0]) * sides[0], vec![(axis.var, row.floordiv(counts[0]))]),
            None => (row * sides[0], Vec::new()),
        };
        return Blocks { grid, starts: [start, column], others, persistent };
    }
    let starts = [0, 1].map(|side| {
        if is_one(side) {
            return Expr::zero();
        }
        let block = name(side, "block");
        grid.push(Axis { var: block, extent: counts[side] });
        Expr::sym(block) * sides[side]
    });
    Blocks { grid, starts, others: Vec::new(), persistent }
}

/// Whether instructions side by side take columns in pairs, so that a thread has four neighbours of each row and eight bytes to store. Four
/// threads store the 32 bytes that memory takes at once; sums of four bytes do so without. Of an operand that lies along the columns, eight
/// neighbours are loaded at once, which are no pairs.
fn has_pairs(problem: &Problem<'_>, tile: Tile) -> bool {
    let last = problem.group.members.last().map(|member| nest(problem.cx.loops, member.stmt));
    let column = problem.sides[1].var;
    let is_half = |nest: &Nest| {
        let stores = accesses(nest).filter(|access| access.store);
        stores.into_iter().all(|store| problem.cx.loops.bufs[store.buf].dtype.size() == 2)
    };
    let columns = problem.sides[1].extent.modulo(tile.sides(problem.unit)[1]);
    let is_whole = problem.cx.loops.facts.simplify(columns).is_zero();
    matches!(problem.unit, Unit::Warp(_))
        && is_whole
        && problem.is_beside(column)
        && tile.each[1] % 2 == 0
        && Operand::of(problem).iter().all(|operand| operand.side == 0 || operand.is_along_sum(problem))
        && last.is_some_and(is_half)
}

/// Whether an operand lies along a side and not along the sum.
fn lies_along(problem: &Problem<'_>, side: usize) -> bool {
    Operand::of(problem).iter().any(|operand| operand.side == side && !operand.is_along_sum(problem))
}

/// The points of a block.
struct Points<'a> {
    problem: &'a Problem<'a>,
    tile: Tile,
    /// Where the tile begins along the rows and along the columns.
    starts: [Expr; 2],
    /// Whether two instructions side by side take columns in pairs, in turn.
    has_pairs: bool,
    /// Whether an operand lies along the rows, or along the columns, and not along the sum.
    lies_along: [bool; 2],
}

impl Points<'_> {
    /// A loop along the sum, in which the teams of the block add up what they have, of copies in shared memory where there are.
    fn summed(&self) -> Vec<Tree> {
        let problem = self.problem;
        let staged = Operand::of(problem);
        let [step, inner] = ["k_step", "k_in"].map(|name| problem.name(name));
        let updates = self.leaves(Part::Update);
        let at_once = problem.unit.depth();
        // Points of the sum between two meetings of the block's threads.
        let (terms, most) =
            (size(&problem.cx.loops.facts, problem.depth.extent), problem.most_copied(at_once));
        let turns = if staged.is_empty() { 1 } else { ceil_div(terms, at_once).clamp(1, most / at_once) };
        let start = Expr::sym(step) * (turns * at_once);
        let turn = if turns == 1 { Expr::zero() } else { Expr::sym(inner) };
        let body = match problem.unit {
            Unit::Warp(by) => {
                let [i, j, k] = ["mi", "mj", "mk"].map(|name| problem.name(name));
                let shape = by.shape();
                let body = by_instruction(updates, [(i, shape[0]), (j, shape[1]), (k, shape[2])]);
                let depth = start + turn * at_once + Expr::sym(k);
                let pair = problem.name("pair");
                let (body, column) = match self.has_pairs {
                    true => {
                        let (j, pair_of) = (Expr::sym(j), Expr::sym(pair) * 2);
                        (unrolled(pair, 2, body), j.floordiv(2) * 4 + pair_of + j.modulo(2))
                    }
                    false => (body, Expr::sym(j)),
                };
                let body = self.at(self.in_team(body), [Expr::sym(i), column], Some(depth));
                unrolled(inner, turns, body)
            }
            Unit::Warpgroup(by) => {
                let [i, j, k] = ["mi", "mj", "mk"].map(|name| problem.name(name));
                let columns = self.tile.each[1] * problem.unit.shape()[1];
                let shape = [(i, i64::from(by.rows)), (j, columns), (k, i64::from(by.depth))];
                let body = by_instruction(updates, shape);
                let depth = start + turn * at_once + Expr::sym(k);
                let mut body = self.at(body, [Expr::sym(i), Expr::sym(j)], Some(depth));
                // One instruction takes all columns of its warpgroup.
                let [u, v] = self.each();
                body.iter_mut().for_each(|tree| tree.replace(v, Expr::zero()));
                unrolled(inner, turns, unrolled(u, self.tile.each[0], body))
            }
            Unit::Threads => {
                let at = [Expr::zero(), Expr::zero()];
                // Written out, places in shared memory are numbers, and what the next points need is loaded while some are multiplied.
                unrolled(inner, turns, self.at(self.in_team(updates), at, Some(start + turn)))
            }
        };
        let points = |side: usize| [self.tile.sides(problem.unit)[side], turns * at_once];
        let mut step_of: Vec<Tree> = staged
            .iter()
            .map(|operand| operand.local(problem, self.has_pairs, points(operand.side)))
            .collect();
        step_of.extend(staged.iter().map(|operand| {
            let (starts, points) = ([self.starts[operand.side], start], points(operand.side));
            let threads = self.tile.threads(problem.unit);
            let by = Copying { threads, starts, points };
            match problem.unit {
                // The warp behind those that multiply.
                Unit::Warpgroup(_) => operand.boxed(problem, threads as u32 / Gpu::LANES, by),
                Unit::Warp(_) | Unit::Threads => operand.copies(problem, by),
            }
        }));
        // Sums of a part have registers of their own: it is added to the others behind it.
        let is_part = problem.terms_of_part().is_some();
        if is_part {
            step_of.extend(self.zeros());
        }
        step_of.push(self.of_teams(body));
        if is_part {
            step_of.push(self.of_threads(Vec::new(), self.leaves(Part::Merge), &[]));
        }
        // What is copied in the background is of four bytes at least.
        let is_wide = |operand: &Operand| operand.vector * problem.operand_bytes() >= LEAST_COPIED;
        let is_early = |operand: &Operand| !operand.is_chosen_late(problem, points(operand.side));
        let axis = Axis { var: step, extent: problem.depth.extent.ceildiv(turns * at_once) };
        let kind = match !staged.is_empty() && staged.iter().all(|of| is_wide(of) && is_early(of)) {
            true => LoopKind::Pipeline { buffers: self.buffers(axis.extent) },
            false => LoopKind::For,
        };
        nested(vec![Tree::Loop { kind, axis, body: step_of }], &problem.sum)
    }

    /// Buffers in rotation, for so many steps of the sum. Of warpgroups a unit has one block, which takes all that threads may share. Small tiles of
    /// warps need more than large ones for as much to be under way.
    fn buffers(&self, steps: Expr) -> u32 {
        let problem = self.problem;
        let sides = self.tile.sides(problem.unit);
        // What blocks load of an operand that all of them load comes from the cache: of warps, which have few points of it, as much as of the other.
        let is_common = |side: usize| {
            let is_one = |side: usize| problem.points(side) <= sides[side];
            matches!(problem.unit, Unit::Warp(_)) && is_one(side) && !is_one(1 - side)
        };
        let own = [0, 1].into_iter().filter(|&side| !is_common(side));
        let points: i64 = own.map(|side| sides[side] * problem.apart[side]).sum();
        let bytes = points * problem.most_copied(problem.unit.depth()) * problem.operand_bytes();
        match problem.unit {
            Unit::Warpgroup(_) => {
                let results: i64 = Passing::of(problem, self.tile).iter().map(Passing::bytes).sum();
                let results = results * i64::from(self.tile.under_way);
                ((problem.shared_bytes() - results) / bytes).clamp(2, MOST_BUFFERS) as u32
            }
            Unit::Warp(_) => {
                let most = size(&problem.cx.loops.facts, steps).clamp(BUFFERS.into(), MOST_OF_WARPS);
                (1 + ceil_div(UNDER_WAY, bytes)).clamp(BUFFERS.into(), most) as u32
            }
            Unit::Threads => BUFFERS,
        }
    }

    /// What runs at the points of the tile behind the sum. Results that pass through shared memory do so a part of the columns after another.
    fn finished(&self, leaves: Vec<Tree>) -> Vec<Tree> {
        let Points { problem, tile, starts, has_pairs, lies_along } = *self;
        let memory = registers(problem.cx, problem.group);
        // Where a thread has four neighbours, four threads have all that memory takes at once.
        let passing = if has_pairs { Vec::new() } else { Passing::of(problem, tile) };
        if passing.is_empty() {
            return vec![self.of_threads(memory, leaves, &[])];
        }
        let parts = [self.each()[0], problem.name("part")];
        let (all, part) = (tile.sides(problem.unit), results::part(problem, tile));
        let first = [0, 1].map(|side| match all[side] == part[side] {
            true => Expr::zero(),
            false => Expr::sym(parts[side]) * part[side],
        });
        let each = [0, 1].map(|side| part[side] / tile.teams[side] / problem.unit.shape()[side]);
        let (tile, starts) = (Tile { each, ..tile }, [0, 1].map(|side| starts[side] + first[side]));
        let points = Points { problem, tile, starts, has_pairs, lies_along };
        let mut body: Vec<Tree> = passing.iter().map(|passing| passing.local(problem)).collect();
        body.push(points.of_threads(memory, leaves, &passing));
        unrolled(parts[0], all[0] / part[0], unrolled(parts[1], all[1] / part[1], body))
    }

    /// What runs at each point of the tile, by the thread that has its sum, with memory for a few points at a time. Warps store what is
    /// `passing` through shared memory behind it.
    fn of_threads(&self, memory: Vec<Tree>, leaves: Vec<Tree>, passing: &[Passing]) -> Tree {
        let few =
            |kind, axis, count| [memory.clone(), vec![looped(kind, axis, count, leaves.clone())]].concat();
        let body = match self.problem.unit {
            Unit::Threads => {
                let leaves = [memory, leaves].concat();
                self.at(self.in_team(leaves), [Expr::zero(), Expr::zero()], None)
            }
            Unit::Warpgroup(by) => {
                let [x, l, r, c] = ["x", "l", "r", "c"].map(|name| self.problem.name(name));
                let at = Gpu::sum_of_thread([x, l].map(Expr::sym), [r, c].map(Expr::sym));
                let kind = LoopKind::Vector { lanes: 2, copies: 1 };
                let body = unrolled(r, 2, self.in_team(few(kind, c, 2)));
                let lanes = LoopKind::Level(Level::Lane.into());
                let mut body = vec![looped(lanes, l, i64::from(Gpu::LANES), self.at(body, at, None))];
                let [row, column] = self.of_team();
                let warp = [row + Expr::sym(x) * i64::from(by.rows / 4), column];
                body.extend(passing.iter().map(|passing| passing.stores(self.problem, warp)));
                let warps = i64::from(by.threads() / Gpu::LANES);
                vec![looped(LoopKind::Level(Level::Warp.into()), x, warps, body)]
            }
            Unit::Warp(by) => {
                let [l, r, c] = ["l", "r", "c"].map(|name| self.problem.name(name));
                let rows = i64::from(by.rows) / 8;
                let row = if rows == 1 { Expr::zero() } else { Expr::sym(r) };
                let [place, column] = Gpu::sum_of_thread([Expr::zero(), Expr::sym(l)], [row, Expr::sym(c)]);
                let (count, column) = match self.has_pairs {
                    true => (4, Expr::sym(l).modulo(4) * 4 + Expr::sym(c)),
                    false => (2, column),
                };
                let of_warp = [place, column];
                // Neighbouring sums of a thread are stored at once.
                let kind = LoopKind::Vector { lanes: count as u32, copies: 1 };
                let body = self.in_team(unrolled(r, rows, few(kind, c, count)));
                let body = self.at(body, of_warp, None);
                let lanes = LoopKind::Level(Level::Lane.into());
                let mut body = vec![looped(lanes, l, i64::from(Gpu::LANES), body)];
                body.extend(passing.iter().map(|passing| passing.stores(self.problem, self.of_team())));
                body
            }
        };
        self.of_teams(body)
    }

    /// Accumulators of all contractions, at first zero.
    fn zeros(&self) -> Vec<Tree> {
        let sums = |product: &Contracted<'_>| {
            let holds = Holds::Accumulator(product.nest.name.clone());
            Tree::Local(Local { holds, space: LocalSpace::Register, layout: Layout::Dense })
        };
        let mut body: Vec<Tree> = self.problem.products.iter().map(sums).collect();
        body.push(self.of_threads(Vec::new(), self.leaves(Part::Init), &[]));
        body
    }

    /// What every team of the block does.
    fn of_teams(&self, body: Vec<Tree>) -> Tree {
        let level = match self.problem.unit {
            Unit::Warp(_) => Level::Warp,
            Unit::Warpgroup(_) => Level::Warpgroup,
            Unit::Threads => Level::Thread,
        };
        looped(LoopKind::Level(level.into()), self.team(), self.tile.teams.iter().product(), body)
    }

    /// Loops over the instructions of a warp, or the points of a thread.
    fn in_team(&self, body: Vec<Tree>) -> Vec<Tree> {
        let [u, v] = self.each();
        let [rows, columns] = self.at_once();
        unrolled(u, rows, unrolled(v, columns, body))
    }

    /// The tree with values for the axes of the sides, of which `of_team` is the place in what a team does at once, and for that of the
    /// sum. Neighbouring threads have neighbouring columns, and the instructions of a warp neighbouring tiles.
    fn at(&self, mut trees: Vec<Tree>, of_team: [Expr; 2], depth: Option<Expr>) -> Vec<Tree> {
        let Points { problem, tile, starts, .. } = self;
        let [teams, first] = [self.teams(), self.of_team()];
        let each = self.each();
        let mut values: Vec<(Sym, Expr)> =
            depth.map(|depth| (problem.depth.var, depth)).into_iter().collect();
        for side in [0, 1] {
            let count = self.at_once()[side];
            let each = if count == 1 { Expr::zero() } else { Expr::sym(each[side]) };
            let value = match problem.unit {
                Unit::Warp(_) | Unit::Warpgroup(_) => {
                    let all = tile.each[side] * problem.unit.shape()[side];
                    first[side] + each * (all / count) + of_team[side]
                }
                // Of an operand that lies along the side a thread has four neighbours, which are 16 bytes in shared memory.
                Unit::Threads if self.lies_along[side] && count % BESIDE == 0 => {
                    let (four, one) = (each.floordiv(BESIDE), each.modulo(BESIDE));
                    starts[side] + four * (BESIDE * tile.teams[side]) + teams[side] * BESIDE + one
                }
                Unit::Threads => starts[side] + each * tile.teams[side] + teams[side],
            };
            values.push((problem.sides[side].var, value));
        }
        for (var, value) in values {
            trees.iter_mut().for_each(|tree| tree.replace(var, value));
        }
        trees
    }

    /// Which team it is along the rows and along the columns.
    fn teams(&self) -> [Expr; 2] {
        let team = Expr::sym(self.team());
        match (self.problem.unit, self.tile.teams) {
            (Unit::Threads, [_, columns]) => {
                let lanes = i64::from(Gpu::LANES);
                let (warp, lane) = (team.floordiv(lanes), team.modulo(lanes));
                let (warps, [rows, across]) = (columns / LANES[1], LANES);
                [
                    warp.floordiv(warps) * rows + lane.floordiv(across),
                    warp.modulo(warps) * across + lane.modulo(across),
                ]
            }
            (Unit::Warp(_) | Unit::Warpgroup(_), [1, _]) => [Expr::zero(), team],
            (Unit::Warp(_) | Unit::Warpgroup(_), [_, columns]) => {
                [team.floordiv(columns), team.modulo(columns)]
            }
        }
    }

    /// Where the tile of a warp or warpgroup begins.
    fn of_team(&self) -> [Expr; 2] {
        let (teams, shape) = (self.teams(), self.problem.unit.shape());
        [0, 1].map(|side| self.starts[side] + teams[side] * (self.tile.each[side] * shape[side]))
    }

    /// Instructions of a warp, or pairs of them, and points of a thread, along each side.
    fn at_once(&self) -> [i64; 2] {
        let [rows, columns] = self.tile.each;
        [rows, if self.has_pairs { columns / 2 } else { columns }]
    }

    fn each(&self) -> [Sym; 2] {
        ["u", "v"].map(|name| self.problem.name(name))
    }

    fn team(&self) -> Sym {
        self.problem.name("w")
    }

    /// Leaves of all contractions.
    fn leaves(&self, part: Part) -> Vec<Tree> {
        self.problem.products.iter().map(|product| self.problem.leaf(product.member, part)).collect()
    }
}

/// What each leaf sums, by an instruction with these loops.
fn by_instruction(leaves: Vec<Tree>, loops: [(Sym, i64); 3]) -> Vec<Tree> {
    let within = |leaf| {
        let around = |body, (var, extent)| looped(LoopKind::Mma, var, extent, vec![body]);
        loops.into_iter().rev().fold(leaf, around)
    };
    leaves.into_iter().map(within).collect()
}

/// A loop that is written out, if it has more than one iteration.
pub fn unrolled(var: Sym, extent: i64, body: Vec<Tree>) -> Vec<Tree> {
    if extent == 1 { body } else { vec![looped(LoopKind::Unroll, var, extent, body)] }
}
