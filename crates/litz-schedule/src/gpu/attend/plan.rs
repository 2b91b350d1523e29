//! Writes the kernel of a region by tiles.
//!
//! ```text
//! parallel h in heads, i_block in ceildiv(n, 64) {
//!   register most; register sum; register out
//!   shared q_tile = q swizzled 16
//!   thread t in 128 { unroll e in 4 { vector v in 8 by 8 { q_tile [..] masked } } }
//!   warp w in 4 { lane g in 8 by 4 { unroll r in 2 { first [.. i = 64*i_block + 16*w + g + 8*r] masked } } .. }
//!   pipeline jb in ceildiv(m, 64) by 2 {
//!     shared k_tile = k swizzled 16
//!     shared v_tile = v swizzled 16
//!     thread t in 128 { .. k_tile [..] masked } thread t in 128 { .. v_tile [..] masked }
//!     register score; register next; register weight
//!     warp w in 4 {
//!       register accumulator of scores
//!       lane l in 32 { .. scores.init [..] }
//!       unroll x in 4, e in 8 { mma i in 16, j in 8, k in 16 { scores.update [..] } }
//!       lane l in 32 { .. scores.final [..] }
//!       register accumulator of maximum
//!       lane g in 8 by 4 { unroll r in 2 { maximum.init [..] } }
//!       lane l in 32 {
//!         register accumulator of maximum
//!         unroll r in 2 { maximum.init [..] }
//!         unroll r in 2, e in 8 { vector c in 2 by 2 { maximum.update [..] } }
//!         unroll r in 2 { maximum.merge [..] }
//!       }
//!       lane g in 8 by 4 { unroll r in 2 { maximum.final [..] } }
//!       ..
//!     }
//!   }
//!   warp w in 4 { lane l in 32 { .. last [..] masked } }
//! }
//! ```

use super::operands::{Operand, operands};
use super::problem::{BUFFERS, Columns, Kind, Problem, ROWS, Task, Unit, ceil_to};
use super::warpgroups::{buffers, copied_points};
use crate::cost::{points, size};
use crate::draft::Planned;
use crate::gpu::{looped, passed_on, register};
use crate::region::end;
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Instruction, Level, Persistent, Team};
use litz_sym::{Expr, Sym};
use std::collections::BTreeSet;

/// Lanes that have elements of one row.
const LANES_OF_ROW: u32 = 4;

/// Plans the kernel.
pub fn plan(problem: &Problem<'_>) -> Planned {
    let names = ["w", "l", "g", "r", "e", "c", "x", "u", "pair", "i", "j", "k", "of_group"]
        .map(|name| problem.name(name));
    let mut grid = problem.others.clone();
    let rows = problem.rows();
    let mut start = Expr::zero();
    if problem.row.extent.as_int().is_none_or(|extent| extent > rows) {
        let block = problem.name(&format!("{}_block", problem.row.var));
        grid.push(Axis { var: block, extent: problem.row.extent.ceildiv(rows) });
        start = Expr::sym(block) * rows;
    }
    let mut tiles = Tiles { problem, names, start };
    if let Some(block) = grid.last().copied().filter(|block| tiles.end(&grid).has_sym(block.var)) {
        // Blocks that take longest come first, so that no unit waits for one at the end, and those of all heads, if a cache has what all of them read.
        tiles.start = (block.extent - 1 - Expr::sym(block.var)) * rows;
        if tiles.read_bytes() <= problem.gpu.l2_bytes {
            grid.rotate_right(1);
        }
    }
    let (kept, passing): (Vec<Buf>, Vec<Buf>) =
        passed_on(problem.cx, problem.group).into_iter().partition(|&buf| problem.is_kept(buf));
    let registers = |bufs: Vec<Buf>| bufs.into_iter().map(|buf| register(problem.cx, buf));
    let [once, mut repeated] = operands(problem);
    repeated.extend(copied_points(problem));
    let copied = |operands: &[Operand], start: Expr| -> Vec<Tree> {
        let locals = operands.iter().map(|operand| operand.local(problem));
        locals.chain(operands.iter().map(|operand| operand.copies(problem, start))).collect()
    };
    let mut body: Vec<Tree> = registers(kept).collect();
    body.extend(copied(&once, tiles.start));
    body.extend(tiles.of_teams(&problem.parts[0]));
    let mut iteration = copied(&repeated, tiles.start);
    iteration.extend(registers(passing));
    iteration.extend(tiles.of_teams(&problem.parts[1]));
    let over = Axis { extent: tiles.end(&grid), ..problem.over };
    let kind = match repeated.is_empty() || repeated.iter().any(|operand| !operand.is_wide) {
        true => LoopKind::For,
        false => LoopKind::Pipeline { buffers: buffers_of(problem) },
    };
    body.push(Tree::Loop { kind, axis: over, body: iteration });
    body.extend(tiles.of_teams(&problem.parts[2]));
    let persistent = persistent_of(problem, &grid);
    let kernel =
        KernelPlan { persistent, registers: registers_of(problem), ..KernelPlan::new(grid, 1, body) };
    Planned { is_whole: true, ..Planned::from(kernel) }
}

/// Buffers of what an iteration has copied.
fn buffers_of(problem: &Problem<'_>) -> u32 {
    match problem.unit {
        Unit::Warpgroups(_) => buffers(problem),
        Unit::Warps { .. } => BUFFERS,
    }
}

/// Blocks that take all points of the grid one after another, where a unit has room for one block of warpgroups and there are more points than units:
/// what the next point reads is copied while the one before it is finished.
fn persistent_of(problem: &Problem<'_>, grid: &[Axis]) -> Option<Persistent> {
    let units = problem.gpu.units;
    let is_more = points(&problem.cx.loops.facts, grid) > i64::from(units);
    (matches!(problem.unit, Unit::Warpgroups(_)) && is_more).then(|| Persistent::of(units))
}

/// Registers of a thread, where warpgroups take rows: what those that copy for them leave.
fn registers_of(problem: &Problem<'_>) -> Option<u32> {
    let threads = problem.warps() * i64::from(Gpu::LANES);
    matches!(problem.unit, Unit::Warpgroups(_)).then(|| problem.gpu.registers_beside_copies(threads))
}

/// What the warps of a block go through.
struct Tiles<'a> {
    problem: &'a Problem<'a>,
    /// Names of variables: of a team, a lane, lanes that have a row, what a lane has of rows, instructions and columns, what is summed,
    /// instructions below each other, pairs of them, of what an instruction takes, and of a warp of a warpgroup.
    names: [Sym; 13],
    /// The first row of the block.
    start: Expr,
}

impl Tiles<'_> {
    /// What each team does for nests, one after another.
    fn of_teams(&self, tasks: &[Task<'_>]) -> Vec<Tree> {
        let body: Vec<Tree> = tasks.iter().flat_map(|task| self.task(task)).collect();
        if body.is_empty() {
            return Vec::new();
        }
        let (level, count) = match self.problem.unit {
            Unit::Warps { count, .. } => (Level::Warp, count),
            Unit::Warpgroups(count) => (Level::Warpgroup, count),
        };
        vec![looped(LoopKind::Level(level.into()), self.names[0], count, body)]
    }

    /// What each warp of a team does.
    fn of_warps(&self, body: Vec<Tree>) -> Vec<Tree> {
        let warps = i64::from(Gpu::WARPGROUP / Gpu::LANES);
        match self.problem.unit {
            Unit::Warps { .. } => body,
            Unit::Warpgroups(_) => {
                vec![looped(LoopKind::Level(Level::Warp.into()), self.names[12], warps, body)]
            }
        }
    }

    fn task(&self, task: &Task<'_>) -> Vec<Tree> {
        let sums = || {
            let holds = Holds::Accumulator(task.nest.name.clone());
            Tree::Local(Local { holds, space: LocalSpace::Register, layout: Layout::Dense })
        };
        match task.kind {
            Kind::Row => self.of_warps(vec![self.of_rows(task, Part::Whole)]),
            Kind::Points(columns) => {
                self.of_warps(vec![self.of_points(vec![self.at_points(task, columns, Part::Whole)])])
            }
            Kind::Reduction(columns) => {
                let (r, rows) = (self.names[3], self.row_of_lane());
                let of_lane = |part| {
                    looped(
                        LoopKind::Unroll,
                        r,
                        self.rows_of_lane(),
                        vec![self.leaf(task, part, rows, None, None)],
                    )
                };
                let own = vec![
                    sums(),
                    of_lane(Part::Init),
                    self.at_points(task, columns, Part::Update),
                    of_lane(Part::Merge),
                ];
                self.of_warps(vec![
                    sums(),
                    self.of_rows(task, Part::Init),
                    self.of_points(own),
                    self.of_rows(task, Part::Final),
                ])
            }
            Kind::Product { columns, depth, by, .. } => {
                let at =
                    |part| self.of_warps(vec![self.of_points(vec![self.at_points(task, columns, part)])]);
                let mut all = vec![sums()];
                all.extend(at(Part::Init));
                all.push(match self.problem.unit {
                    Unit::Warps { .. } => self.by_instructions(task, columns, depth),
                    Unit::Warpgroups(_) => self.by_warpgroup(task, columns, depth, by),
                });
                all.extend(at(Part::Final));
                all
            }
        }
    }

    /// A part at the rows of a warp, by the lanes that have them.
    fn of_rows(&self, task: &Task<'_>, part: Part) -> Tree {
        let [_, _, g, r, ..] = self.names;
        let row = self.of_warp() + Expr::sym(g) + Expr::sym(r) * 8;
        let leaf = self.leaf(task, part, row, None, None);
        let team = Team { level: Level::Lane, from: 0, each: LANES_OF_ROW };
        let lanes = i64::from(Gpu::LANES / LANES_OF_ROW);
        looped(
            LoopKind::Level(team),
            g,
            lanes,
            vec![looped(LoopKind::Unroll, r, self.rows_of_lane(), vec![leaf])],
        )
    }

    /// What each lane of a warp does.
    fn of_points(&self, body: Vec<Tree>) -> Tree {
        looped(LoopKind::Level(Level::Lane.into()), self.names[1], i64::from(Gpu::LANES), body)
    }

    /// A part at the elements that a lane has of rows and columns.
    fn at_points(&self, task: &Task<'_>, columns: Columns, part: Part) -> Tree {
        let [_, l, _, r, e, c, ..] = self.names;
        let [width, beside] = if columns.is_paired { [16, 4] } else { [8, 2] };
        let column = Expr::sym(e) * width + Expr::sym(l).modulo(4) * beside + Expr::sym(c);
        let is_reduced = part == Part::Update;
        let at = if is_reduced {
            (None, Some((columns.axis, column)))
        } else {
            (Some((columns.axis, column)), None)
        };
        let leaf = self.leaf(task, part, self.row_of_lane(), at.0, at.1);
        // Neighbours are loaded and stored at once.
        let kind = LoopKind::Vector { lanes: beside as u32, copies: 1 };
        let [columns, rows] = [(e, columns.padded() / width), (r, self.rows_of_lane())];
        let unrolled = |body, (var, extent)| looped(LoopKind::Unroll, var, extent, vec![body]);
        if is_reduced {
            // Each waits for the one before it of the same row.
            return [rows, (c, beside), columns].into_iter().fold(leaf, unrolled);
        }
        [columns, rows].into_iter().fold(looped(kind, c, beside, vec![leaf]), unrolled)
    }

    /// The sums of products.
    fn by_instructions(&self, task: &Task<'_>, columns: Columns, depth: Axis) -> Tree {
        let [_, _, _, _, e, _, x, u, pair, i, j, k, _] = self.names;
        let at_once = self.depth_of(task);
        let tiles = self.problem.tiles();
        let below = if tiles == 1 { Expr::zero() } else { Expr::sym(u) * ROWS };
        let row = self.of_warp() + below + Expr::sym(i);
        let (column, width) = match columns.is_paired {
            true => {
                let place = Expr::sym(j).floordiv(2) * 4 + Expr::sym(pair) * 2 + Expr::sym(j).modulo(2);
                (Expr::sym(e) * 16 + place, 16)
            }
            false => (Expr::sym(e) * 8 + Expr::sym(j), 8),
        };
        let along = Expr::sym(x) * at_once + Expr::sym(k);
        let leaf = self.leaf(task, Part::Update, row, Some((columns.axis, column)), Some((depth, along)));
        let loops = [(i, ROWS), (j, 8), (k, at_once)];
        let mut body = loops
            .into_iter()
            .rev()
            .fold(leaf, |body, (var, extent)| looped(LoopKind::Mma, var, extent, vec![body]));
        if columns.is_paired {
            body = looped(LoopKind::Unroll, pair, 2, vec![body]);
        }
        if tiles > 1 {
            body = looped(LoopKind::Unroll, u, tiles, vec![body]);
        }
        let body = looped(LoopKind::Unroll, e, columns.padded() / width, vec![body]);
        let turns = ceil_to(depth.extent.as_int().unwrap_or(0), at_once) / at_once;
        looped(LoopKind::Unroll, x, turns, vec![body])
    }

    /// The sums of products of a warpgroup, of which one instruction takes all columns.
    fn by_warpgroup(&self, task: &Task<'_>, columns: Columns, depth: Axis, by: &Instruction) -> Tree {
        let [team, _, _, _, _, _, x, _, _, i, j, k, _] = self.names;
        let [rows, _, at_once] = by.shape();
        let row = Expr::sym(team) * rows + Expr::sym(i);
        let along = Expr::sym(x) * at_once + Expr::sym(k);
        let column = (columns.axis, Expr::sym(j));
        let leaf = self.leaf(task, Part::Update, row, Some(column), Some((depth, along)));
        let loops = [(i, rows), (j, columns.count), (k, at_once)];
        let around = |body, (var, extent)| looped(LoopKind::Mma, var, extent, vec![body]);
        let body = loops.into_iter().rev().fold(leaf, around);
        looped(LoopKind::Unroll, x, depth.extent.as_int().unwrap_or(0) / at_once, vec![body])
    }

    /// A leaf at a row, a column and a point of the sum.
    fn leaf(
        &self,
        task: &Task<'_>,
        part: Part,
        row: Expr,
        column: Option<(Axis, Expr)>,
        depth: Option<(Axis, Expr)>,
    ) -> Tree {
        let problem = self.problem;
        let row = self.start + row;
        let put = |e: Expr| substitute(substitute(e, &problem.values), &[(problem.row.var, row)]);
        let mut bind: Vec<(Sym, Expr)> =
            task.member.bind.iter().map(|&(axis, value)| (axis, put(value))).collect();
        let given = column.into_iter().chain(depth).map(|(axis, value)| (axis.var, value));
        bind.extend(given);
        let is_missing = |axis: &&Axis| axis.extent.is_one() && bind.iter().all(|bound| bound.0 != axis.var);
        let reduced: &[Axis] = if part == Part::Update { &task.nest.reduced } else { &[] };
        let ones: Vec<(Sym, Expr)> = task
            .nest
            .axes
            .iter()
            .chain(reduced)
            .filter(is_missing)
            .map(|axis| (axis.var, Expr::zero()))
            .collect();
        bind.extend(ones);
        Tree::Leaf(Leaf { nest: task.nest.name.clone(), part, bind, masked: false, block: None, by: None })
    }

    /// The first row of a warp in the block.
    fn of_warp(&self) -> Expr {
        let team = Expr::sym(self.names[0]);
        match self.problem.unit {
            Unit::Warps { tiles, .. } => team * (tiles * ROWS),
            Unit::Warpgroups(_) => team * i64::from(Gpu::WARPGROUP_ROWS) + Expr::sym(self.names[12]) * ROWS,
        }
    }

    /// Rows that a lane has elements of, eight apart.
    fn rows_of_lane(&self) -> i64 {
        self.problem.tiles() * ROWS / 8
    }

    /// A row that a lane has elements of, in the block.
    fn row_of_lane(&self) -> Expr {
        let [_, l, _, r, ..] = self.names;
        self.of_warp() + Expr::sym(l).floordiv(4) + Expr::sym(r) * 8
    }

    /// Bytes of the buffers that blocks read in each iteration.
    fn read_bytes(&self) -> i64 {
        let cx = self.problem.cx;
        let [_, repeated] = operands(self.problem);
        let bufs: BTreeSet<Buf> = repeated.iter().map(|operand| operand.staged.buf).collect();
        let bytes = |buf: Buf| {
            let data = &cx.loops.bufs[buf];
            let count: Expr = data.sizes.iter().copied().product();
            size(&cx.loops.facts, count) * data.dtype.size() as i64
        };
        bufs.into_iter().map(bytes).sum()
    }

    /// How many iterations the block takes.
    fn end(&self, grid: &[Axis]) -> Expr {
        let problem = self.problem;
        let rows = Axis { var: self.names[9], extent: Expr::int(problem.rows()) };
        let axes = [grid, &[rows]].concat();
        let row = self.start + Expr::sym(rows.var);
        let at = |e: Expr| substitute(substitute(e, &problem.values), &[(problem.row.var, row)]);
        end(problem.cx.loops, problem.group, problem.over, (&axes, &[rows.var]), &at)
    }

    /// Points of the sum that an instruction takes.
    fn depth_of(&self, task: &Task<'_>) -> i64 {
        if let Kind::Product { by, .. } = task.kind { i64::from(by.depth) } else { 1 }
    }
}
