//! Plans kernels of regions, which are sequential loops over nests: the axes that all nests share become the grid, by M tiles where
//! there are contractions, and a sequential loop runs the nests that the region repeats.

use crate::context::Cx;
use crate::cpu::cpu;
use crate::cpu::rows::{RowGrid, product_phase, rows};
use crate::draft::{Draft, Family, Planned, Traits};
use crate::group::{Group, Member, Phase};
use crate::join::own_axes;
use crate::nest;
use crate::no_fuse::NoFuse;
use crate::region::{Shared, end};
use litz_ir::loops::{Axis, Span};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_sym::Sym;

/// A region, in phases as those of rows.
#[derive(Debug)]
struct Region {
    /// The loop in order.
    over: Axis,
    /// Once, before it.
    before: Vec<Phase>,
    /// In it.
    repeated: Vec<Phase>,
    /// Once, after it.
    after: Vec<Phase>,
}

impl Family for Region {
    fn traits(&self) -> Traits {
        // Regions are long, and may read in their next iteration what they write in this one.
        Traits { passes_on: true, shares_launch: false, overwrites: false }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Recurrence)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan(cx, group, self).into())
    }
}

/// The kernel of a region.
pub fn form(cx: &Cx<'_>, region: &Span) -> Draft {
    let Shared { over, group, parts } = Shared::of(cx, region);
    let phases_of =
        |with_products| parts.each_ref().map(|part| phases(cx, part, &group.outer, with_products));
    let mut all = phases_of(true);
    if rows(&group.outer, &all.concat()).is_empty() {
        all = phases_of(false);
    }
    let [before, repeated, after] = all;
    Draft::new(group, false, Region { over, before, repeated, after })
}

/// The nests of a part as phases: products by themselves, others together.
fn phases(cx: &Cx<'_>, part: &[Member], outer: &[Axis], with_products: bool) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for member in part {
        let n = nest(cx.loops, member.stmt);
        let product = cx.contractions[member.stmt].as_ref().filter(|_| with_products);
        let product = product.filter(|p| own_axes(n, member).any(|a| a.var == p.column.var));
        match (product, phases.last_mut()) {
            (Some(product), _) => phases.push(product_phase(cx, outer, member.clone(), product)),
            (None, Some(last)) if last.columns.is_none() => last.group.members.push(member.clone()),
            (None, _) => {
                let group = Group { members: vec![member.clone()], outer: outer.to_vec() };
                phases.push(Phase { group, columns: None });
            }
        }
    }
    phases
}

/// Plans the kernel.
fn plan(cx: &Cx<'_>, group: &Group, region: &Region) -> KernelPlan {
    let (&Cx { loops, heuristics, .. }, target) = (cx, cpu(cx));
    let Region { over, before, repeated, after } = region;
    let all = [&before[..], repeated, after].concat();
    let has_products = all.iter().any(|phase| phase.columns.is_some());
    let rows = if has_products { rows(&group.outer, &all) } else { Vec::new() };
    let blocks = RowGrid::new(loops, group, rows, target);
    let trees = |phases, around: &[Axis]| blocks.trees(loops, phases, around, target, heuristics);
    let mut body = trees(before, &[]);
    let axes: Vec<Axis> = blocks.axes().collect();
    let inside: Vec<Sym> = blocks.inside().map(|axis| axis.var).collect();
    let over = Axis { extent: end(loops, group, *over, (&axes, &inside), &|e| blocks.at(e)), ..*over };
    let iteration = trees(repeated, &[over]);
    body.push(Tree::Loop { kind: LoopKind::For, axis: over, body: iteration });
    body.extend(trees(after, &[]));
    blocks.kernel(loops, group, body, target, heuristics)
}
