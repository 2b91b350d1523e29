//! Plans kernels of regions: each thread takes the points that all nests of the region share, and runs the region's loop for them.

use super::blocks::spread;
use super::threads::points;
use crate::context::Cx;
use crate::draft::{Draft, Family, Planned, Traits};
use crate::group::{Group, Member, beside_axes, shared_axes};
use crate::in_order::InOrder;
use crate::no_fuse::NoFuse;
use crate::region::Shared;
use litz_ir::loops::{Axis, Span};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_sym::{Expr, Sym};

/// A region.
#[derive(Debug)]
struct Region {
    /// The loop in order.
    over: Axis,
    /// The nests before it, in it and after it.
    parts: [Vec<Member>; 3],
}

/// The kernel of a region. Where its nests share no points, one thread runs them.
pub fn form(region: &Span, shared: Shared) -> Draft {
    let Shared { over, group, parts } = shared;
    match group.outer.iter().any(|axis| !axis.extent.is_one()) {
        true => Draft::new(group, false, Region { over, parts }),
        false => InOrder::region(region),
    }
}

impl Family for Region {
    fn traits(&self) -> Traits {
        // A region may read in its next iteration what it writes in this one.
        Traits { passes_on: true, shares_launch: false, overwrites: false }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Recurrence)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let name = |name: &str| beside_axes(cx.loops, group, name);
        let mut facts = group.facts(&cx.loops.facts);
        facts.declare_index(self.over.var, self.over.extent);
        let shared = shared_axes(cx.loops, group, &facts, &|i| name(&format!("g{i}")));
        let values: Vec<(Sym, Expr)> = shared.iter().flat_map(|merged| merged.parts.clone()).collect();
        let mut grid: Vec<Axis> = shared.iter().map(|merged| merged.axis).collect();
        grid.retain(|axis| !axis.extent.is_one());
        let [before, repeated, after] = self.parts.each_ref().map(|part| -> Vec<Tree> {
            part.iter().flat_map(|member| points(cx, group, member, &values)).collect()
        });
        let iterations = Tree::Loop { kind: LoopKind::For, axis: self.over, body: repeated };
        let mut body: Vec<Tree> = before.into_iter().chain([iterations]).chain(after).collect();
        let scope = spread(cx, &mut grid, &mut body, &name);
        let kernel = KernelPlan::new(grid, 1, body);
        Some(Planned { scope, ..Planned::from(kernel) })
    }
}
