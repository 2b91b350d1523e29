//! Writes the kernel of a contraction of few rows that no instruction takes: a warp has some columns, and its lanes share the sum.
//!
//! Nearly all that such a product reads is its right operand, each element once. Each lane has several loads of it under way, of 16 bytes,
//! and what it has loaded serves all rows.
//!
//! ```text
//! parallel j_block in ceildiv(n, 32) {
//!   warp w in 8 {
//!     register accumulator of mm
//!     unroll u in 8, v in 4 { mm.init [..] }
//!     lane l in 32 {
//!       register accumulator of mm
//!       unroll u in 8, v in 4 { mm.init [..] }
//!       for k_step in ceildiv(p, 512) {
//!         unroll k_in in 4 {
//!           register w_tile = w
//!           register x_tile = x
//!           unroll v in 4 { vector e in 4 by 4 { w_tile [.., d1 = 512*k_step + 128*k_in + 4*l + e] masked } }
//!           unroll u in 8 { vector e in 4 by 4 { x_tile [.., d1 = 512*k_step + 128*k_in + 4*l + e] masked } }
//!           unroll u in 8, v in 4, e in 4 { mm.update [..] masked }
//!         }
//!       }
//!       unroll u in 8, v in 4 { mm.merge [..] }
//!     }
//!     unroll u in 8, v in 4 { mm.final [..]; relu [..] }
//!   }
//! }
//! ```

use super::plan::unrolled;
use super::problem::{MOST_ROWS_OF_FEW, Problem, Unit};
use super::stage::Operand;
use crate::cost::{ceil_div, size};
use crate::draft::Planned;
use crate::gpu::{looped, registers};
use litz_ir::loops::Axis;
use litz_ir::schedule::{Holds, KernelPlan, Layout, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Sym};

/// Columns of a warp, half as many where sums are of eight bytes. Their sums are registers, those of a lane besides those of the warp: with 16 rows 128 of the 255 that
/// a thread may have. Rows are read once for all columns.
const COLUMNS: i64 = 4;

/// Warps of a block.
const WARPS: i64 = 8;

/// Vectors of a row of the right operand that a lane loads at a time, and those where there are more rows than eight.
const TURNS: [i64; 2] = [4, 2];

/// The kernel of a product of few rows whose operands both lie along the sum. None of others.
pub fn plan(problem: &Problem<'_>) -> Option<Planned> {
    let rows = problem.sides[0].extent.as_int().filter(|rows| (2..=MOST_ROWS_OF_FEW).contains(rows))?;
    let [product] = &problem.products[..] else { return None };
    if problem.unit != Unit::Threads || !problem.sum.is_empty() || !problem.gathered.is_empty() {
        return None;
    }
    let operands = Operand::of(problem);
    let [left, right] = [0, 1].map(|side| operands.iter().find(|operand| operand.side == side));
    let (left, right) = (left?, right?);
    if ![left, right].iter().all(|operand| operand.is_along_sum(problem)) {
        return None;
    }
    let vector = left.vector.min(right.vector);
    let lanes = i64::from(Gpu::LANES);
    let terms = size(&problem.cx.loops.facts, problem.depth.extent);
    let turns = TURNS[usize::from(rows > 8)].min(ceil_div(terms, lanes * vector)).max(1);
    let few = Few { problem, rows, columns: (COLUMNS / problem.words_of_sum()).max(2), vector, turns };
    let name = product.nest.name.clone();
    let sums = || {
        let holds = Holds::Accumulator(name.clone());
        Tree::Local(Local { holds, space: LocalSpace::Register, layout: Layout::Dense })
    };
    let part = |part: Part| few.at_points(vec![problem.leaf(product.member, part)]);
    let mut of_lane = vec![sums()];
    of_lane.extend(part(Part::Init));
    of_lane.push(few.summed(left, right));
    of_lane.extend(part(Part::Merge));
    let mut of_warp = vec![sums()];
    of_warp.extend(part(Part::Init));
    of_warp.push(looped(LoopKind::Level(Level::Lane.into()), few.name("l"), lanes, of_lane));
    let mut last = registers(problem.cx, problem.group);
    last.extend(problem.group.members.iter().map(|member| {
        problem.leaf(member, if member.stmt == product.member.stmt { Part::Final } else { Part::Whole })
    }));
    of_warp.extend(few.at_points(last));
    let body = vec![looped(LoopKind::Level(Level::Warp.into()), few.name("w"), WARPS, of_warp)];
    let mut grid = problem.others.clone();
    let blocks = problem.sides[1].extent.ceildiv(few.columns * WARPS);
    grid.push(Axis { var: few.block(), extent: blocks });
    Some(Planned { is_whole: true, ..Planned::from(KernelPlan::new(grid, 1, body)) })
}

/// A product of few rows.
struct Few<'a> {
    problem: &'a Problem<'a>,
    rows: i64,
    /// Columns of a warp.
    columns: i64,
    /// Elements that a lane loads at once.
    vector: i64,
    /// Vectors of a row that it loads at a time.
    turns: i64,
}

impl Few<'_> {
    fn name(&self, name: &str) -> Sym {
        self.problem.name(name)
    }

    fn block(&self) -> Sym {
        self.name(&format!("{}_block", self.problem.sides[1].var))
    }

    /// A row, and a column of the warp.
    fn point(&self) -> [Expr; 2] {
        let [block, w, u, v] = [self.block(), self.name("w"), self.name("u"), self.name("v")].map(Expr::sym);
        [u, block * (self.columns * WARPS) + w * self.columns + v]
    }

    /// A point of the sum that a lane takes in a step.
    fn term(&self) -> Expr {
        let [step, turn, l, e] = ["k_step", "k_in", "l", "e"].map(|name| Expr::sym(self.name(name)));
        let turn = if self.turns == 1 { Expr::zero() } else { turn };
        let element = if self.vector == 1 { Expr::zero() } else { e };
        let at_once = i64::from(Gpu::LANES) * self.vector;
        step * (at_once * self.turns) + turn * at_once + l * self.vector + element
    }

    /// What runs at all points of the warp, one after another.
    fn at_points(&self, body: Vec<Tree>) -> Vec<Tree> {
        let [u, v] = ["u", "v"].map(|name| self.name(name));
        unrolled(u, self.rows, unrolled(v, self.columns, self.bound(body)))
    }

    /// The trees with values for the axes of the sides and of the sum.
    fn bound(&self, mut trees: Vec<Tree>) -> Vec<Tree> {
        let [row, column] = self.point();
        let sides = [self.problem.sides[0].var, self.problem.sides[1].var, self.problem.depth.var];
        for (var, value) in sides.into_iter().zip([row, column, self.term()]) {
            trees.iter_mut().for_each(|tree| tree.replace(var, value));
        }
        trees
    }

    /// A loop along the sum. Its turns are written out, so that loads of all of them are under way.
    fn summed(&self, left: &Operand, right: &Operand) -> Tree {
        let problem = self.problem;
        let [step, turn, e] = ["k_step", "k_in", "e"].map(|name| self.name(name));
        let [u, v] = ["u", "v"].map(|name| self.name(name));
        let at_once = i64::from(Gpu::LANES) * self.vector * self.turns;
        let copied = |operand: &Operand| {
            let points = [[self.rows, self.columns * WARPS][operand.side], at_once];
            let leaf = operand.element(problem, [self.point()[operand.side], self.term()], points);
            match self.vector {
                1 => leaf,
                lanes => looped(LoopKind::Vector { lanes: lanes as u32, copies: 1 }, e, lanes, vec![leaf]),
            }
        };
        let product = &problem.products[0];
        let update = unrolled(e, self.vector, vec![problem.leaf(product.member, Part::Update)]);
        let mut of_turn = vec![right.in_registers(problem), left.in_registers(problem)];
        of_turn.extend(unrolled(v, self.columns, vec![copied(right)]));
        of_turn.extend(unrolled(u, self.rows, vec![copied(left)]));
        of_turn.extend(self.at_points(update));
        let body = unrolled(turn, self.turns, of_turn);
        let axis = Axis { var: step, extent: problem.depth.extent.ceildiv(at_once) };
        Tree::Loop { kind: LoopKind::For, axis, body }
    }
}
