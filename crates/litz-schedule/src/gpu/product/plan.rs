//! Writes the kernel of a contraction.
//!
//! ```text
//! parallel row_block in ceildiv(n, 128), column_block in ceildiv(m, 64) {
//!   register accumulator of mm
//!   warp w in 4 { lane l in 32 { unroll .. { mm.init [..] masked } } }
//!   pipeline k in ceildiv(p, 32) by 3 {
//!     shared a_tile = a swizzled 16
//!     shared b_tile = b swizzled 16
//!     thread t in 128 { unroll e in 4 { vector v in 8 by 8 { a_tile [..] masked } } }
//!     thread t in 128 { unroll e in 2 { vector v in 8 by 8 { b_tile [..] masked } } }
//!     warp w in 4 { unroll i in 2, u in 4, v in 4 { mma mi in 16, mj in 8, mk in 16 { mm.update [..] masked } } }
//!   }
//!   warp w in 4 { lane l in 32 { unroll .. { mm.final [..] masked; relu [..] masked } } }
//! }
//! ```

use super::problem::{Problem, Unit};
use super::stage::{Copying, Operand};
use super::tile::Tile;
use crate::cost::{ceil_div, size};
use crate::cut::nested;
use crate::draft::Planned;
use crate::gpu::passed_on;
use crate::group::Member;
use crate::nest;
use litz_analysis::access::{accesses, substitute};
use litz_ir::loops::{Axis, Nest};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Sym};

/// Buffers in rotation of what is copied ahead.
const BUFFERS: u32 = 3;

/// Bytes that a thread copies in the background at once, at least.
const LEAST_COPIED: i64 = 4;

/// Plans the kernel of a contraction and what follows it.
pub fn plan(problem: &Problem<'_>) -> Planned {
    let tile = Tile::of(problem);
    let sides = tile.sides(problem.unit);
    let mut grid = problem.others.clone();
    // Where the tile of a block begins.
    let starts = [0, 1].map(|side| {
        let axis = problem.sides[side];
        if axis.extent.as_int().is_some_and(|extent| extent <= sides[side]) {
            return Expr::zero();
        }
        let block = problem.name(&format!("{}_block", axis.var));
        grid.push(Axis { var: block, extent: axis.extent.ceildiv(sides[side]) });
        Expr::sym(block) * sides[side]
    });
    let points = Points { problem, tile, starts, has_pairs: has_pairs(problem, tile) };
    let holds = Holds::Accumulator(problem.head.name.clone());
    let sums = Local { holds, space: LocalSpace::Register, layout: Layout::Dense };
    let mut body = vec![Tree::Local(sums)];
    body.extend(passed_on(problem.cx, problem.group));
    body.push(points.of_threads(vec![points.leaf(&problem.group.members[0], Part::Init)]));
    body.extend(points.summed());
    let mut last = vec![points.leaf(&problem.group.members[0], Part::Final)];
    last.extend(problem.group.members[1..].iter().map(|member| points.leaf(member, Part::Whole)));
    body.push(points.of_threads(last));
    let kernel = KernelPlan::new(grid, 1, body);
    Planned { is_whole: true, ..Planned::from(kernel) }
}

/// Whether instructions side by side take columns in pairs, so that a thread has four neighbours of each row and eight bytes to store. Four
/// threads store the 32 bytes that memory takes at once; sums of four bytes do so without.
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
        && last.is_some_and(is_half)
}

/// The points of a block.
struct Points<'a> {
    problem: &'a Problem<'a>,
    tile: Tile,
    /// Where the tile begins along the rows and along the columns.
    starts: [Expr; 2],
    /// Whether two instructions side by side take columns in pairs, in turn.
    has_pairs: bool,
}

impl Points<'_> {
    /// A loop along the sum, in which the teams of the block add up what they have, of copies in shared memory where there are.
    fn summed(&self) -> Vec<Tree> {
        let problem = self.problem;
        let staged = Operand::of(problem);
        let [step, inner] = ["k_step", "k_in"].map(|name| problem.name(name));
        let update = self.leaf(&problem.group.members[0], Part::Update);
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
                let mma = [(i, shape[0]), (j, shape[1]), (k, shape[2])].into_iter().rev();
                let body =
                    mma.fold(update, |body, (var, extent)| looped(LoopKind::Mma, var, extent, vec![body]));
                let depth = start + turn * at_once + Expr::sym(k);
                let pair = problem.name("pair");
                let (body, column) = match self.has_pairs {
                    true => {
                        let (j, pair_of) = (Expr::sym(j), Expr::sym(pair) * 2);
                        (unrolled(pair, 2, vec![body]), j.floordiv(2) * 4 + pair_of + j.modulo(2))
                    }
                    false => (vec![body], Expr::sym(j)),
                };
                let body = self.at(self.in_team(body), [Expr::sym(i), column], Some(depth));
                unrolled(inner, turns, body)
            }
            Unit::Threads => {
                let at = [Expr::zero(), Expr::zero()];
                let body = self.at(self.in_team(vec![update]), at, Some(start + turn));
                if turns == 1 { body } else { vec![looped(LoopKind::For, inner, turns, body)] }
            }
        };
        let points = |side: usize| [self.tile.sides(problem.unit)[side], turns * at_once];
        let mut step_of: Vec<Tree> =
            staged.iter().map(|operand| operand.local(problem, points(operand.side))).collect();
        step_of.extend(staged.iter().map(|operand| {
            let (starts, points) = ([self.starts[operand.side], start], points(operand.side));
            operand.copies(problem, Copying { threads: self.tile.threads(problem.unit), starts, points })
        }));
        step_of.push(self.of_teams(body));
        // What is copied in the background is of four bytes at least.
        let is_wide = |operand: &Operand| operand.vector * problem.operand_bytes() >= LEAST_COPIED;
        let kind = match !staged.is_empty() && staged.iter().all(is_wide) {
            true => LoopKind::Pipeline { buffers: BUFFERS },
            false => LoopKind::For,
        };
        let axis = Axis { var: step, extent: problem.depth.extent.ceildiv(turns * at_once) };
        nested(vec![Tree::Loop { kind, axis, body: step_of }], &problem.sum)
    }

    /// What runs at each point of the tile, by the thread that has its sum.
    fn of_threads(&self, leaves: Vec<Tree>) -> Tree {
        let body = match self.problem.unit {
            Unit::Threads => self.at(self.in_team(leaves), [Expr::zero(), Expr::zero()], None),
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
                let body = self.in_team(unrolled(r, rows, vec![looped(kind, c, count, leaves)]));
                let body = self.at(body, of_warp, None);
                vec![looped(LoopKind::Level(Level::Lane.into()), l, i64::from(Gpu::LANES), body)]
            }
        };
        self.of_teams(body)
    }

    /// What every team of the block does.
    fn of_teams(&self, body: Vec<Tree>) -> Tree {
        let level = match self.problem.unit {
            Unit::Warp(_) => Level::Warp,
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
        let team = Expr::sym(self.team());
        let teams = match tile.teams {
            [1, _] => [Expr::zero(), team],
            [_, columns] => [team.floordiv(columns), team.modulo(columns)],
        };
        let each = self.each();
        let mut values: Vec<(Sym, Expr)> =
            depth.map(|depth| (problem.depth.var, depth)).into_iter().collect();
        for side in [0, 1] {
            let count = self.at_once()[side];
            let each = if count == 1 { Expr::zero() } else { Expr::sym(each[side]) };
            let value = match problem.unit {
                Unit::Warp(by) => {
                    let all = tile.each[side] * by.shape()[side];
                    teams[side] * all + each * (all / count) + of_team[side]
                }
                Unit::Threads => each * tile.teams[side] + teams[side],
            };
            values.push((problem.sides[side].var, starts[side] + value));
        }
        for (var, value) in values {
            trees.iter_mut().for_each(|tree| tree.replace(var, value));
        }
        trees
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

    /// A leaf of a member, in terms of the sides and of the axes of the sum.
    fn leaf(&self, member: &Member, part: Part) -> Tree {
        let Points { problem, .. } = self;
        let own = nest(problem.cx.loops, member.stmt);
        let facts = own.facts(&problem.cx.loops.facts);
        let value = |&(axis, value): &(Sym, Expr)| (axis, facts.simplify(substitute(value, &problem.values)));
        let mut bind: Vec<(Sym, Expr)> = member.bind.iter().map(value).collect();
        if part == Part::Update {
            bind.extend(problem.reduced.iter().copied());
        }
        Tree::Leaf(Leaf { nest: own.name.clone(), part, bind, masked: false, block: None, by: None })
    }
}

fn looped(kind: LoopKind, var: Sym, extent: i64, body: Vec<Tree>) -> Tree {
    Tree::Loop { kind, axis: Axis { var, extent: Expr::int(extent) }, body }
}

fn unrolled(var: Sym, extent: i64, body: Vec<Tree>) -> Vec<Tree> {
    if extent == 1 { body } else { vec![looped(LoopKind::Unroll, var, extent, body)] }
}
