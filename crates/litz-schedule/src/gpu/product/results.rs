//! Lets results pass through shared memory, where threads would store less of a row than memory takes at once.
//!
//! Of a row a thread has two neighbours, and four threads have eight: 16 bytes of a half type, where memory takes 32. So a warp stores its part of
//! the tile to shared memory, where units of 16 bytes change places, and takes it from there row by row.

use super::problem::{Problem, Unit};
use super::tile::Tile;
use crate::gpu::stage::Staged;
use crate::gpu::{looped, passed_on};
use crate::group::Member;
use crate::nest;
use litz_analysis::access::{Stride, accesses, stride, substitute};
use litz_analysis::results::stored_once;
use litz_ir::schedule::{LoopKind, Tree};
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Sym};

/// Columns that the warps of a warpgroup store at a time: 128, 64 or 96 bytes of each row.
const COLUMNS: [i64; 3] = [64, 32, 48];

/// Bytes of neighbours below which a warp's part has no more of a row than its threads store without.
const LEAST_BYTES: i64 = 32;

/// A buffer whose elements are stored to shared memory first.
pub struct Passing {
    staged: Staged,
    /// The side of the tile along which neighbours in memory are.
    side: usize,
    /// Elements that a thread stores at once.
    vector: i64,
    /// Points of the tile.
    tile: [i64; 2],
    /// Points of the block that are there at a time.
    part: [i64; 2],
    /// Those of a warp.
    of_warp: [i64; 2],
    /// Bytes of an element.
    size: i64,
}

impl Passing {
    /// Those of a kernel: what its members store for others, of at most two bytes, where a warp has whole sectors of it.
    pub fn of(problem: &Problem<'_>, tile: Tile) -> Vec<Passing> {
        let part = part(problem, tile);
        let of_warp = match problem.unit {
            Unit::Warp(_) => [0, 1].map(|side| part[side] / tile.teams[side]),
            Unit::Warpgroup(_) => [part[0] / tile.teams[0] / 4, part[1]],
            Unit::Threads => return Vec::new(),
        };
        let (cx, facts) = (problem.cx, problem.group.facts(&problem.cx.loops.facts));
        let inside = passed_on(cx, problem.group);
        let mut found: Vec<Passing> = Vec::new();
        for member in &problem.group.members {
            let own = nest(cx.loops, member.stmt);
            let facts = own.facts(&facts);
            let here = |at: Expr| facts.simplify(substitute(substitute(at, &member.bind), &problem.values));
            for access in accesses(own).filter(|access| access.store) {
                let size = cx.loops.bufs[access.buf].dtype.size() as i64;
                let is_read = |other: &Member| {
                    other.stmt != member.stmt && cx.deps.users[access.buf].contains(&other.stmt)
                };
                // What follows in the kernel finds in memory what was stored.
                if inside.contains(&access.buf)
                    || problem.group.members.iter().any(is_read)
                    || size > 2
                    || stored_once(cx.loops, access.buf) != Some(member.stmt)
                {
                    continue;
                }
                let place = here(access.place(cx.loops, own));
                let is_beside = |side: &usize| stride(place, problem.sides[*side].var) == Stride::Unit;
                let Some(side) = [1, 0].into_iter().find(is_beside) else { continue };
                let index: Vec<Expr> = access.index.iter().map(|&at| here(at)).collect();
                // Where an axis is a part of a dimension, tiles that go past its end are in the next part.
                let is_whole = |staged: &Staged, at: usize| {
                    let rest = problem.sides[at].extent.modulo(tile.sides(problem.unit)[at]);
                    staged.begins_at_zero(at) || cx.loops.facts.simplify(rest).is_zero()
                };
                let staged = Staged::of(cx, (problem.group, member), access.buf, index, problem.sides)
                    .filter(|staged| {
                        of_warp[side] * size >= LEAST_BYTES && is_whole(staged, 0) && is_whole(staged, 1)
                    });
                if let Some(staged) = staged
                    && let Some(vector) = staged.vector(cx, &facts)
                {
                    let staged = staged.for_result(cx);
                    let (vector, tile) = (vector.min(of_warp[side]), tile.sides(problem.unit));
                    found.push(Passing { staged, side, vector, tile, part, of_warp, size });
                }
            }
        }
        found
    }

    /// The memory, for the points of the block that are there at a time.
    pub fn local(&self, problem: &Problem<'_>) -> Tree {
        self.staged.result(problem.cx, Gpu::VECTOR_BYTES, self.part)
    }

    /// Bytes of it.
    pub fn bytes(&self) -> i64 {
        self.part[0] * self.part[1] * self.size
    }

    /// What a warp does that stores its points, which begin at these places.
    pub fn stores(&self, problem: &Problem<'_>, starts: [Expr; 2]) -> Tree {
        let [l, e, v] = ["l", "e", "z"].map(|name| problem.name(name));
        let Passing { side, vector, of_warp, .. } = *self;
        let groups = of_warp[side] / vector;
        let all = of_warp[1 - side] * groups;
        let lanes = all.min(Gpu::LANES.into());
        let turn = if all == lanes { Expr::zero() } else { Expr::sym(e) };
        let number = turn * lanes + Expr::sym(l);
        let element = if vector == 1 { Expr::zero() } else { Expr::sym(v) };
        let mut places = starts;
        places[side] = starts[side] + number.modulo(groups) * vector + element;
        places[1 - side] = starts[1 - side] + number.floordiv(groups);
        let mut body = self.staged.leaf(problem.cx, places, self.tile);
        let around = |kind, var: Sym, extent: i64, body| match extent {
            1 => body,
            _ => looped(kind, var, extent, vec![body]),
        };
        body = around(LoopKind::Vector { lanes: vector as u32, copies: 1 }, v, vector, body);
        body = around(LoopKind::Unroll, e, all / lanes, body);
        looped(LoopKind::Level(Level::Lane.into()), l, lanes, vec![body])
    }
}

/// Points of a block that are stored at a time: all of warps, a part of the columns of warpgroups, and what each of them has of one instruction.
pub fn part(problem: &Problem<'_>, tile: Tile) -> [i64; 2] {
    let [rows, columns] = tile.sides(problem.unit);
    match problem.unit {
        Unit::Warp(_) | Unit::Threads => [rows, columns],
        Unit::Warpgroup(_) => {
            let part = COLUMNS.into_iter().find(|part| columns % part == 0);
            [rows / tile.each[0], part.unwrap_or(columns)]
        }
    }
}
