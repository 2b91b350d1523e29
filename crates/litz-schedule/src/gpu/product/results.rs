//! Lets results of warpgroups pass through shared memory.
//!
//! Of a row a thread has two neighbours, and four threads have eight: 16 bytes of a half type, where memory takes 32 at once. So a warp
//! stores 64 columns of its 16 rows to shared memory, in which lines of 128 bytes change places, and takes them from there a line at a time.

use super::problem::{Problem, Unit};
use super::tile::Tile;
use crate::gpu::stage::Staged;
use crate::gpu::{looped, passed_on};
use crate::nest;
use litz_analysis::access::{Stride, accesses, stride, substitute};
use litz_analysis::results::stored_once;
use litz_ir::schedule::{LoopKind, Tree};
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Sym};

/// Columns that a warp stores at a time, at most.
const COLUMNS: i64 = 64;

/// Columns below which rows are no longer in shared memory than they are without.
const LEAST_COLUMNS: i64 = 16;

/// Rows of a warp.
pub const ROWS: i64 = 16;

/// A buffer whose elements are stored to shared memory first.
pub struct Passing {
    staged: Staged,
    /// Elements that a thread stores at once.
    vector: i64,
    /// Points of the tile along its sides.
    sides: [i64; 2],
    /// Columns that a warp stores at a time.
    columns: i64,
}

impl Passing {
    /// Those of a kernel: what its members store for others, of at most two bytes, in rows along the columns of the tile.
    pub fn of(problem: &Problem<'_>, tile: Tile) -> Vec<Passing> {
        let Unit::Warpgroup(_) = problem.unit else { return Vec::new() };
        let (cx, facts) = (problem.cx, problem.group.facts(&problem.cx.loops.facts));
        let inside = passed_on(cx, problem.group);
        let mut found: Vec<Passing> = Vec::new();
        if columns(tile) < LEAST_COLUMNS {
            return found;
        }
        for member in &problem.group.members {
            let own = nest(cx.loops, member.stmt);
            let facts = own.facts(&facts);
            for access in accesses(own).filter(|access| access.store) {
                let data = &cx.loops.bufs[access.buf];
                if inside.contains(&access.buf)
                    || data.dtype.size() > 2
                    || stored_once(cx.loops, access.buf) != Some(member.stmt)
                {
                    continue;
                }
                let here =
                    |at: Expr| facts.simplify(substitute(substitute(at, &member.bind), &problem.values));
                let index: Vec<Expr> = access.index.iter().map(|&at| here(at)).collect();
                let column = problem.sides[1].var;
                let is_row = stride(here(access.place(cx.loops, own)), column) == Stride::Unit;
                let staged = Staged::of(cx, access.buf, index, problem.sides).filter(|_| is_row);
                if let Some(staged) = staged
                    && let Some(vector) = staged.vector(cx, &facts)
                {
                    let (sides, columns) = (tile.sides(problem.unit), columns(tile));
                    found.push(Passing { staged, vector, sides, columns });
                }
            }
        }
        found
    }

    /// The memory, for a part of the tile.
    pub fn local(&self, problem: &Problem<'_>) -> Tree {
        self.staged.result(problem.cx, Gpu::VECTOR_BYTES, [self.sides[0], self.columns])
    }

    /// What a warp does that stores the rows which begin at these places.
    pub fn stores(&self, problem: &Problem<'_>, starts: [Expr; 2]) -> Tree {
        let [l, e, v] = ["l", "e", "z"].map(|name| problem.name(name));
        let lanes = i64::from(Gpu::LANES);
        let groups = self.columns / self.vector;
        let turns = ROWS * groups / lanes;
        let number = Expr::sym(e) * lanes + Expr::sym(l);
        let places = [
            starts[0] + number.floordiv(groups),
            starts[1] + number.modulo(groups) * self.vector + Expr::sym(v),
        ];
        let leaf = self.staged.leaf(problem.cx, places, self.sides);
        let around = |kind, var: Sym, extent: i64, mut body: Tree| match extent {
            1 => {
                body.replace(var, Expr::zero());
                body
            }
            _ => looped(kind, var, extent, vec![body]),
        };
        let vector = LoopKind::Vector { lanes: self.vector as u32, copies: 1 };
        let body = around(LoopKind::Unroll, e, turns, around(vector, v, self.vector, leaf));
        around(LoopKind::Level(Level::Lane.into()), l, lanes, body)
    }
}

/// Columns that a warp stores at a time.
pub fn columns(tile: Tile) -> i64 {
    (tile.each[1] * 8).min(COLUMNS)
}
