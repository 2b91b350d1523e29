//! Plans kernels of regions by tiles, as flash attention goes over keys: each warp has sixteen rows, of which it keeps in registers what it
//! has come to, and a loop in order brings it blocks of columns, copied ahead into memory that the warps share.
//!
//! Scores and weights are where instructions leave and take them, and never in memory. Of a row, its maximum and its sum, the four lanes
//! that have elements of it all have the value.

mod operands;
mod plan;
mod problem;
mod warpgroups;

use crate::context::Cx;
use crate::draft::{Draft, Family, Planned, Traits};
use crate::group::{Group, Member};
use crate::no_fuse::NoFuse;
use crate::region::Shared;
use litz_ir::loops::Axis;
use problem::Problem;

/// A region of which warps take rows.
#[derive(Debug)]
pub struct Attend {
    over: Axis,
    parts: [Vec<Member>; 3],
}

/// The kernel of a region, if its nests are products by instructions of one axis of rows, and what goes on at their rows and points.
pub fn form(cx: &Cx<'_>, shared: &Shared) -> Option<Draft> {
    let Shared { over, group, parts } = shared;
    problem(cx, group, *over, parts)?;
    Some(Draft::new(group.clone(), false, Attend { over: *over, parts: parts.clone() }))
}

/// What is to be planned: by warpgroups, or by warps.
fn problem<'a>(
    cx: &'a Cx<'a>,
    group: &'a Group,
    over: Axis,
    parts: &'a [Vec<Member>; 3],
) -> Option<Problem<'a>> {
    let problem = Problem::new(cx, group, over, parts)?;
    warpgroups::by_warpgroups(&problem).or_else(|| problem.by_warps())
}

impl Family for Attend {
    fn traits(&self) -> Traits {
        // A region may read in its next iteration what it writes in this one.
        Traits { passes_on: false, shares_launch: false, overwrites: false }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Recurrence)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let first = problem(cx, group, self.over, &self.parts)?;
        let other = || {
            let own = Problem::new(cx, group, self.over, &self.parts)?;
            let by_warpgroups = warpgroups::by_warpgroups(&own);
            let by_warps = own.by_warps().into_iter().flat_map(Problem::of_other_warps);
            by_warpgroups.into_iter().chain(by_warps).nth(cx.heuristics.choice)
        };
        let chosen = if cx.heuristics.choice == 0 { None } else { other() };
        Some(plan::plan(&chosen.unwrap_or(first)))
    }
}
