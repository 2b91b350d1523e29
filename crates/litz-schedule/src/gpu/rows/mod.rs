//! Plans kernels that take rows: each row is a warp's, or a block's where it is long, and its elements go to the threads in turn.
//!
//! What follows goes on at the same rows, a reduction or at each element: softmax and norms are one kernel. A value of a row, such as its
//! largest number, every thread of the row has. What several nests read is loaded once, and an element that a thread hands on to itself
//! stays in its registers, both as far as these go; what others read is in shared memory, and then a row is a block's. Rows that are scanned
//! come as runs of few elements (the loops pass `split_scan`), which a thread each scans in shared memory.
//!
//! ```text
//! parallel i_block in ceildiv(n, 8) {
//!   warp i_in in 8 {
//!     register x_row = x
//!     lane l in 32 { unroll c in 4 { vector v in 4 by 4 { x_row [d0 = 8*i_block + i_in, d1 = 128*c + 4*l + v] } } }
//!     lane l in 32 { unroll c in 4, v in 4 { most.update [i = 8*i_block + i_in, j = 128*c + 4*l + v] }; most.merge [..] }
//!     most.final [..]
//!     lane l in 32 { unroll c in 4 { vector v in 4 by 4 { share [i = 8*i_block + i_in, j = 128*c + 4*l + v] } } }
//!   }
//! }
//! ```

mod plan;
mod team;

use crate::context::Cx;
use crate::cost::{points, size};
use crate::draft::{Draft, Family, MOST_MEMBERS, Planned, Relation, Traits};
use crate::group::{Group, Member};
use crate::join::{align_members, alone, bind_like, join, overwrites, own_axes, same_extents};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{Stride, accesses, bound_places, stride};
use litz_analysis::align::DomainMap;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Nest};
use litz_ir::target::{Gpu, Target};
use litz_sym::{Expr, Sym};
use plan::plan;
use team::{bytes_of, chosen_team, is_of_runs, row_of, team};

/// Elements of a row from which threads share it, unless it is the only one: fewer one thread takes as fast as many combine them.
const LEAST_ROW: i64 = 32;

/// How many times what a statement shares with others it reads besides, where units that have no row are worth a launch.
const FAR_MORE: i64 = 4;

/// Elements of a run that a thread scans in shared memory, at most: runs that are longer are rows that nobody divides.
const RUN: i64 = 2048;

/// Rows that warps or blocks take.
#[derive(Debug)]
pub struct Rows;

impl Family for Rows {
    fn traits(&self) -> Traits {
        Traits { passes_on: false, shares_launch: true, overwrites: false }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        // What is made twice is made for two kernels.
        let mut members = draft.group.members.iter().map(|member| nest(cx.loops, member.stmt));
        if members.any(|member| is_again(member, nest(cx.loops, s))) {
            return Err(NoFuse::OtherPoints);
        }
        match relation {
            Relation::Behind => take(cx, draft, s),
            Relation::Beside => beside(cx, draft, s),
            Relation::Aligned => Err(NoFuse::OtherShape),
        }
    }

    fn is_dissolvable(&self) -> bool {
        true
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan(cx, group, &chosen_team(cx, group)?).into())
    }
}

/// Whether threads share the rows that a nest reduces: they lie in memory side by side.
pub fn reduces_rows(cx: &Cx<'_>, s: usize, group: &Group) -> bool {
    let own = nest(cx.loops, s);
    let [rows, reduced] = [&own.axes, &own.reduced].map(|axes| points(&cx.loops.facts, axes));
    let is_long = reduced >= LEAST_ROW || rows <= 1 && reduced > 1;
    own.reduces() && !is_in_order(cx, s) && is_long && team(cx, group).is_some() && {
        let row = row_of(cx, own, &own.reduced);
        let mut places = bound_places(cx.loops, own, &[], &own.facts(&cx.loops.facts));
        // What is accessed once a row says nothing of how rows lie.
        places.retain(|place| own.reduced.iter().any(|axis| place.1.has_sym(axis.var)));
        // A filter that all points of an image read says little beside the image.
        let weight = |var: Sym| {
            let beside = places.iter().filter(|place| stride(place.1, var) == Stride::Unit);
            beside.fold(0i64, |sum, (access, _)| sum.saturating_add(bytes_of(cx, access)))
        };
        let rows = own.axes.iter().map(|axis| (weight(axis.var), size(&cx.loops.facts, axis.extent)));
        // Columns side by side go to threads as they are, if there are enough of them.
        row.is_some_and(|row| {
            rows.filter(|row| row.1 > 1)
                .all(|(beside, count)| weight(row.var) >= beside || count < i64::from(Gpu::LANES))
        })
    }
}

/// Whether points of a nest depend on each other, along any axis.
pub fn is_in_order(cx: &Cx<'_>, s: usize) -> bool {
    nest(cx.loops, s).scanned().next().is_some() || !cx.deps.stmts[s].ordered.is_empty()
}

/// Whether a member of a group has to be taken in an order that threads of a row do not keep. Runs of what other members store, a thread
/// scans in order.
fn needs_order(cx: &Cx<'_>, group: &Group, member: &Member) -> bool {
    let own = nest(cx.loops, member.stmt);
    let is_stored =
        |buf: Buf| group.members.iter().any(|other| cx.deps.stmts[other.stmt].writes.contains(&buf));
    let is_run = |&var: &Sym| {
        let mut loads = accesses(own).filter(|access| !access.store);
        let is_short =
            |axis: &Axis| axis.var == var && axis.extent.as_int().is_some_and(|extent| extent <= RUN);
        own.scanned().any(|scanned| scanned == var)
            && own.axes.iter().any(is_short)
            && loads.all(|load| is_stored(load.buf) || !load.index.iter().any(|at| at.has_sym(var)))
    };
    own.reduces() && own.scanned().next().is_some() || !cx.deps.stmts[member.stmt].ordered.iter().all(is_run)
}

/// The rows of a nest that stores what threads scan in runs, each element of a row to a run: what is no digit of where it stores.
pub fn rows_of_runs(cx: &Cx<'_>, s: usize) -> Option<Group> {
    let own = nest(cx.loops, s);
    let &[buf] = &cx.deps.stmts[s].writes[..] else { return None };
    if own.accumulates()
        || is_in_order(cx, s)
        || cx.deps.escapes[buf]
        || !is_of_runs(cx, buf, &cx.deps.users[buf])
    {
        return None;
    }
    let store = accesses(own).find(|access| access.store)?;
    let (mut bind, mut outer) = (Vec::new(), Vec::new());
    for axis in own.axes.iter().filter(|axis| store.index.contains(&Expr::sym(axis.var))) {
        bind.push(cx.share(axis, &mut outer));
    }
    let group = Group { members: vec![Member { stmt: s, bind }], outer };
    (group.members[0].bind.len() < own.axes.len() && team(cx, &group).is_some()).then_some(group)
}

/// The draft with a statement that goes on at its rows.
pub fn take(cx: &Cx<'_>, draft: &Draft, s: usize) -> Result<Draft, NoFuse> {
    let group = &draft.group;
    if cx.contractions[s].is_some() {
        return Err(NoFuse::ProductConsumer);
    }
    let mut map = DomainMap::default();
    align_members(cx, group, s, &group.outer, &mut map);
    let joined = join(cx, group, s, map, false)?;
    let rows = |group: &Group| points(&cx.loops.facts, &group.outer);
    let needs_order = joined.members.iter().any(|member| needs_order(cx, &joined, member));
    // Rows of what the draft has already, unless it has points alone: then the rows are those that the statement reduces.
    let is_same = joined.outer.len() == group.outer.len();
    let begins = !is_same && draft.family::<Rows>().is_none() && reduces_rows(cx, s, &alone(cx, s));
    if needs_order || !(is_same || begins) {
        return Err(NoFuse::OtherPoints);
    }
    if joined.members.iter().any(|member| reduces_columns(cx, member)) {
        return Err(NoFuse::OtherShape);
    }
    let Target::Gpu(gpu) = cx.target else { return Err(NoFuse::OtherShape) };
    let loses_rows = rows(&joined) * 4 < i64::from(gpu.units) && rows(&joined) < rows(group);
    if loses_rows || rows(&joined) <= i64::from(gpu.units) && wants_units(cx, group, s) {
        return Err(NoFuse::LessParallel);
    }
    if overwrites(cx, group, s) || team(cx, &joined).is_none() {
        return Err(NoFuse::OtherPoints);
    }
    Ok(Draft { family: std::sync::Arc::new(Rows), ..draft.with(joined) })
}

/// The draft with a statement that reduces rows just like a member, and needs nothing of it: both products of a gate, `silu(x*a) * (x*b)` of
/// one row `x`, have their sums in the same threads, so that what follows has them at hand.
fn beside(cx: &Cx<'_>, draft: &Draft, s: usize) -> Result<Draft, NoFuse> {
    let group = &draft.group;
    let own = nest(cx.loops, s);
    let is_alike = |member: &Member| {
        let other = nest(cx.loops, member.stmt);
        other.reduces() && same_extents(&own.axes, &other.axes) && same_extents(&own.reduced, &other.reduced)
    };
    if cx.contractions[s].is_some() {
        return Err(NoFuse::ProductConsumer);
    }
    let Some(mate) = group.members.iter().find(|member| is_alike(member)) else {
        return Err(NoFuse::OtherShape);
    };
    let mut joined = group.clone();
    joined.members.push(Member { stmt: s, bind: bind_like(cx, mate, s) });
    let needs_order = joined.members.iter().any(|member| needs_order(cx, &joined, member));
    if needs_order || overwrites(cx, group, s) || team(cx, &joined).is_none() {
        return Err(NoFuse::OtherPoints);
    }
    Ok(draft.with(joined))
}

/// Whether a nest computes what another one does, for another buffer.
fn is_again(one: &Nest, other: &Nest) -> bool {
    let is_same = |(one, other): (&Inst, &Inst)| match (&one.op, &other.op) {
        (InstOp::Store { index, value, .. }, InstOp::Store { index: at, value: of, .. }) => {
            (index, value) == (at, of)
        }
        (op, again) => op == again,
    };
    let have_axes = (&one.axes, &one.reduced) == (&other.axes, &other.reduced);
    have_axes && one.body.len() == other.body.len() && one.body.iter().zip(&other.body).all(is_same)
}

/// The kernel of many rows, each block of which makes for itself the one row that all are multiplied with, if none but it needs that: of a norm
/// ahead of a product it saves the launch. See [`team`].
pub fn repeat_row(cx: &Cx<'_>, row: &Draft, rows: &Draft) -> Option<Draft> {
    let are_rows = row.family::<Rows>().is_some() && rows.family::<Rows>().is_some();
    let is_one = |axis: &&Axis| axis.extent.is_one();
    let stmts = [row.stmts(), rows.stmts()].concat();
    let is_own =
        |buf: &Buf| !cx.deps.escapes[*buf] && cx.deps.users[*buf].iter().all(|user| stmts.contains(user));
    let are_own = row.stmts().iter().flat_map(|&stmt| &cx.deps.stmts[stmt].writes).all(is_own);
    let is_at_call = !row.at_load && !rows.at_load;
    let [is_row, has_rows] = [row, rows].map(|draft| draft.group.outer.iter().any(|axis| !is_one(&axis)));
    if !are_rows || !is_at_call || !are_own || is_row || !has_rows || stmts.len() > MOST_MEMBERS {
        return None;
    }
    // Axes of one point are the same for all.
    let without_ones = |group: &Group| {
        let mut group = group.clone();
        for (_, value) in group.members.iter_mut().flat_map(|member| &mut member.bind) {
            group.outer.iter().filter(is_one).for_each(|one| *value = value.replace(one.var, Expr::zero()));
        }
        group.outer.retain(|axis| !is_one(&axis));
        group
    };
    let [one, all] = [row, rows].map(|draft| without_ones(&draft.group));
    let joined = Group { members: [one.members, all.members].concat(), outer: all.outer };
    team(cx, &joined).is_some().then(|| rows.with(joined))
}

/// Whether a member reduces for each of many columns of its own what threads of a row would take in turns: a depthwise convolution, whose
/// channels lie side by side.
fn reduces_columns(cx: &Cx<'_>, member: &Member) -> bool {
    let own = nest(cx.loops, member.stmt);
    let columns: Vec<Axis> = own_axes(own, member).copied().collect();
    own.reduces()
        && points(&cx.loops.facts, &columns) >= LEAST_ROW
        && !reduces_rows(cx, member.stmt, &alone(cx, member.stmt))
}

/// Whether a statement reads far more than what the members of a group read and store, too, as the product behind a norm of one row reads
/// weights, and has points to do so by more blocks than there are rows.
fn wants_units(cx: &Cx<'_>, group: &Group, s: usize) -> bool {
    let (own, facts) = (nest(cx.loops, s), &cx.loops.facts);
    let points = |axes: &[Axis]| points(facts, axes);
    let all = points(&own.axes).saturating_mul(points(&own.reduced));
    let is_given = |buf: Buf| {
        let infos = group.members.iter().map(|member| &cx.deps.stmts[member.stmt]);
        infos.into_iter().any(|info| info.writes.contains(&buf) || info.reads.contains(&buf))
    };
    let mut read = [0i64; 2];
    for &buf in &cx.deps.stmts[s].reads {
        let data = &cx.loops.bufs[buf];
        let bytes = size(facts, data.elements()).min(all).saturating_mul(data.dtype.size() as i64);
        let sum = &mut read[usize::from(is_given(buf))];
        *sum = sum.saturating_add(bytes);
    }
    points(&own.axes) > points(&group.outer) && read[0] > FAR_MORE * read[1]
}
