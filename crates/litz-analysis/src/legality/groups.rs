//! Reads what a lane does as what the lanes do that have the same private memory.
//!
//! A loop `lane g in 8 by 4` has its iterations run by four lanes each, and what an iteration stores to private memory each of the four has.
//! So lane 13 may load what iteration 3 has stored. In a loop `lane l in 32` that is where `l = 4*g + w`, with a `w` in 4 that says nothing
//! about whose memory it is: the loads of that loop are read as those of loops over `g` and `w`.

use super::{Around, Occurrence};
use crate::together::lanes_together;
use litz_ir::loops::Axis;
use litz_ir::schedule::LoopKind;
use litz_ir::target::{Gpu, Level, Team};
use litz_sym::{Expr, Facts, Rel, Sym};

/// Of what lanes own, how many of them have it: each owner of an element is so many lanes side by side.
pub(super) fn lanes_of(owner: &[(Team, Axis)]) -> Option<u32> {
    owner.iter().find(|(team, _)| team.level == Level::Lane).map(|(team, _)| team.each)
}

/// Whether the lanes that have what a merge leaves are those that it combines, where not all lanes of the warp are combined. `loops` are
/// around the declaration of what takes the result.
pub(super) fn has_result(
    place: &Occurrence,
    element: &[Expr],
    loops: usize,
    owner: &[(Team, Axis)],
    facts: &Facts,
) -> bool {
    let is_over_lanes =
        |around: &&Around| around.kind.and_then(LoopKind::level).is_some_and(|level| level == Level::Lane);
    let Some(lanes) = place.path[loops..].iter().find(is_over_lanes) else { return true };
    let value = |e: &Expr| e.as_sym().and_then(|own| place.value(own)).unwrap_or(*e);
    let values: Vec<Expr> = element.iter().map(value).collect();
    let together = lanes_together(lanes.axis, &values, facts);
    lanes_of(owner).unwrap_or(Gpu::LANES) == together
}

/// A place in a loop over lanes as one in a loop over groups of so many of them.
pub(super) fn by_groups(place: &Occurrence, each: u32) -> Occurrence {
    let is_lanes = |around: &Around| around.kind == Some(LoopKind::Level(Level::Lane.into()));
    let Some(at) = place.path.iter().position(is_lanes) else { return place.clone() };
    let lanes = place.path[at];
    let [group, within] = ["group", "within"].map(|what| Sym::new(&format!("{what} of {}", lanes.axis.var)));
    let lane = Expr::sym(group) * i64::from(each) + Expr::sym(within);
    let put = |e: Expr| e.subst(&|sym| (sym == lanes.axis.var).then_some(lane));
    let mut changed = place.clone();
    changed.bind.iter_mut().for_each(|bind| bind.1 = put(bind.1));
    for side in &mut changed.sides {
        let Rel { lhs, rhs, .. } = side.cond;
        side.cond = Rel { lhs: put(lhs), rhs: put(rhs), ..side.cond };
    }
    changed.path.iter_mut().skip(at + 1).for_each(|around| around.axis.extent = put(around.axis.extent));
    let team = Team { level: Level::Lane, from: 0, each };
    let groups = Axis { var: group, extent: lanes.axis.extent.ceildiv(i64::from(each)) };
    changed.path[at] = Around { kind: Some(LoopKind::Level(team)), axis: groups, ..lanes };
    let within = Axis { var: within, extent: Expr::int(each.into()) };
    changed.path.insert(at + 1, Around { kind: Some(LoopKind::For), axis: within, ..lanes });
    changed
}
