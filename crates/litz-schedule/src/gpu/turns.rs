//! Takes turns of a long loop together, so that the loads of some are under way at once: a thread waits for the first of them, and not for each.
//!
//! ```text
//! for c in ceildiv(50257, 1024) { x[1024*c + t] }      =>      for c in 10 { unroll u in 5 { x[1024*(5*c + u) + t] } }
//! ```

use crate::context::Cx;
use crate::cost::{ceil_div, size};
use litz_ir::loops::Axis;
use litz_ir::schedule::{LoopKind, Tree};
use litz_sym::{Expr, Sym};

/// Turns together.
const FEWEST: i64 = 4;
const MOST: i64 = 8;

/// The loop over neighbours that a thread loads and stores at once.
pub fn at_once(count: i64) -> LoopKind {
    LoopKind::Vector { lanes: count as u32, copies: 1 }
}

/// Loops of a thread over turns.
pub struct Turns {
    /// The outermost first.
    loops: Vec<(LoopKind, Axis)>,
    /// The number of a turn.
    pub number: Expr,
}

impl Turns {
    /// `count` turns, in loops that are named so. Those of at most `written_out` are written out, if their number is known.
    pub fn of(cx: &Cx<'_>, count: Expr, written_out: i64, [turn, together]: [Sym; 2]) -> Turns {
        let expected = size(&cx.loops.facts, count);
        if expected <= written_out {
            let kind = if count.as_int().is_some() { LoopKind::Unroll } else { LoopKind::For };
            return Turns { loops: vec![(kind, Axis { var: turn, extent: count })], number: Expr::sym(turn) };
        }
        let few = few_of(expected);
        let outer = Axis { var: turn, extent: count.ceildiv(few) };
        let inner = Axis { var: together, extent: Expr::int(few) };
        let number = Expr::sym(turn) * few + Expr::sym(together);
        Turns { loops: vec![(LoopKind::For, outer), (LoopKind::Unroll, inner)], number }
    }

    /// The points of an axis, one by one.
    pub fn one_by_one(axis: Axis) -> Turns {
        Turns { loops: vec![(LoopKind::For, axis)], number: Expr::sym(axis.var) }
    }

    /// As many as the loops take, which may be more than were asked for.
    pub fn taken(&self) -> Expr {
        self.loops.iter().fold(Expr::one(), |taken, (_, axis)| taken * axis.extent)
    }

    /// The loops around what is done in a turn.
    pub fn around(&self, mut body: Vec<Tree>) -> Vec<Tree> {
        for &(kind, axis) in self.loops.iter().rev() {
            body = vec![Tree::Loop { kind, axis, body }];
        }
        body
    }
}

/// As many turns as loops take of so many, by [`Turns::of`].
pub fn taken_of(turns: i64, written_out: i64) -> i64 {
    let few = few_of(turns);
    if turns <= written_out { turns } else { ceil_div(turns, few) * few }
}

/// How many of so many are taken together: those of which the fewest are past the end, and of these the most.
fn few_of(turns: i64) -> i64 {
    let past = |few: i64| ceil_div(turns, few) * few - turns;
    (FEWEST..=MOST).rev().min_by_key(|&few| past(few)).unwrap_or(FEWEST)
}
