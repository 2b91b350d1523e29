//! Plans kernels that take rows: each row is a warp's, or a block's where it is long, and its elements go to the threads in turn.
//!
//! What follows goes on at the same rows, a reduction or at each element: softmax and norms are one kernel. A value of a row, such as its
//! largest number, every thread of the row has. An element that a thread hands on to itself stays in its registers; what others read
//! is in shared memory, and then a row is a block's. Rows that are scanned come as runs of few elements (the loops pass `split_scan`), which a
//! thread each scans in shared memory.
//!
//! ```text
//! parallel i_block in ceildiv(n, 8) {
//!   warp i_in in 8 {
//!     lane l in 32 { for c in ceildiv(p, 32) { most.update [i = 8*i_block + i_in, j = 32*c + l] }; most.merge [..] }
//!     most.final [..]
//!     lane l in 32 { for c in ceildiv(p, 32) { share [i = 8*i_block + i_in, j = 32*c + l] } }
//!   }
//! }
//! ```

use crate::axes::variable;
use crate::context::Cx;
use crate::cost::{ceil_div, points, size};
use crate::cut::nested;
use crate::draft::{Draft, Family, Planned, Relation, Traits};
use crate::group::{Group, Member, beside_axes, shared_axes};
use crate::join::{align_members, alone, join};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{Stride, accesses, bound_places, stride, substitute};
use litz_analysis::align::DomainMap;
use litz_ir::loops::{Axis, Buf, Nest, Stmt};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Level, Target};
use litz_sym::{Expr, Sym};

/// Elements of a row that a warp takes, at most: 32 for each lane.
const WARP_ROW: i64 = 1024;

/// Elements of a row from which threads share it, unless it is the only one: fewer one thread takes as fast as many combine them.
const LEAST_ROW: i64 = 32;

/// Warps of a block, each with a row.
const WARPS: i64 = 8;

/// Threads of a block that has a row to itself, at most.
const THREADS: i64 = 256;

/// Elements of a row that a thread keeps in registers, at most.
const KEPT: i64 = 32;

/// Buffers of which a thread keeps elements in registers, at most.
const MOST_KEPT: i64 = 4;

/// How many times what a statement shares with others it reads besides, where units that have no row are worth a launch.
const FAR_MORE: i64 = 4;

/// Elements of a run that a thread scans in shared memory, at most: runs that are longer are rows that nobody divides.
const RUN: i64 = 2048;

/// Rows that warps or blocks take.
#[derive(Debug)]
pub struct Rows;

impl Family for Rows {
    fn traits(&self) -> Traits {
        Traits { passes_on: false, shares_launch: false, overwrites: false }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        match relation {
            Relation::Behind => take(cx, draft, s),
            Relation::Beside | Relation::Aligned => Err(NoFuse::OtherShape),
        }
    }

    fn is_dissolvable(&self) -> bool {
        true
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan(cx, group, &team(cx, group)?).into())
    }
}

/// Whether threads share the rows that a nest reduces: they lie in memory side by side.
pub fn reduces_rows(cx: &Cx<'_>, s: usize, group: &Group) -> bool {
    let own = nest(cx.loops, s);
    let [rows, reduced] = [&own.axes, &own.reduced].map(|axes| points(&cx.loops.facts, axes));
    let is_long = reduced >= LEAST_ROW || rows <= 1 && reduced > 1;
    own.reduces() && !is_in_order(cx, s) && is_long && team(cx, group).is_some() && {
        let row = row_of(cx, own, &own.reduced);
        let places = bound_places(cx.loops, own, &[], &own.facts(&cx.loops.facts));
        let weight = |var: Sym| places.iter().filter(|place| stride(place.1, var) == Stride::Unit).count();
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

/// Whether one of some statements scans along the last dimension of a buffer.
fn is_of_runs(cx: &Cx<'_>, buf: Buf, stmts: &[usize]) -> bool {
    let scans = |own: &Nest| {
        let mut accesses = accesses(own).filter(|access| access.buf == buf);
        accesses.any(|access| own.scanned().any(|axis| access.index.last() == Some(&Expr::sym(axis))))
    };
    stmts.iter().any(|&s| matches!(&cx.loops.stmts[s], Stmt::Nest(own) if scans(own)))
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
    let Target::Gpu(gpu) = cx.target else { return Err(NoFuse::OtherShape) };
    let loses_rows = rows(&joined) * 4 < i64::from(gpu.units) && rows(&joined) < rows(group);
    if loses_rows || rows(&joined) * 2 <= i64::from(gpu.units) && wants_units(cx, group, s) {
        return Err(NoFuse::LessParallel);
    }
    if crate::join::overwrites(cx, group, s) || team(cx, &joined).is_none() {
        return Err(NoFuse::OtherPoints);
    }
    Ok(Draft { family: std::sync::Arc::new(Rows), ..draft.with(joined) })
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

/// Who takes a row.
struct Team {
    /// Lanes of a warp, or threads of a block.
    level: Level,
    width: i64,
    /// Buffers that only members touch, with where they are.
    locals: Vec<(Buf, LocalSpace)>,
}

/// The team of the rows of a group. None where it would keep more than registers hold.
fn team(cx: &Cx<'_>, group: &Group) -> Option<Team> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let facts = &cx.loops.facts;
    let rows = group.members.iter().filter_map(|member| spread(cx, member));
    let longest = rows.map(|row| size(facts, row.extent)).max().unwrap_or(1);
    let is_inside = |s: &usize| group.members.iter().any(|member| member.stmt == *s);
    let (mut locals, mut shared, mut kept): (Vec<(Buf, LocalSpace)>, i64, i64) = (Vec::new(), 0, 0);
    for buf in group.members.iter().flat_map(|member| &cx.deps.stmts[member.stmt].writes).copied() {
        let is_declared = locals.iter().any(|local| local.0 == buf);
        if is_declared || cx.deps.escapes[buf] || !cx.deps.users[buf].iter().all(is_inside) {
            continue;
        }
        let bytes =
            elements_of(cx, group, buf).map(|elements| elements * cx.loops.bufs[buf].dtype.size() as i64);
        let place = match (passed(cx, group, buf), bytes) {
            (Passed::Row, _) => LocalSpace::Register,
            (Passed::Elements(count), _) if count <= KEPT * THREADS => {
                kept += 1;
                LocalSpace::Register
            }
            (Passed::Elements(_) | Passed::Others, Some(bytes)) if shared + bytes <= gpu.shared_bytes / 2 => {
                shared += bytes;
                LocalSpace::Shared
            }
            // What has no place in the kernel stays in global memory.
            (Passed::Elements(_) | Passed::Others, _) => continue,
        };
        locals.push((buf, place));
    }
    let lanes = i64::from(Gpu::LANES);
    let has_shared = locals.iter().any(|local| local.1 == LocalSpace::Shared);
    let team = match longest <= WARP_ROW && !has_shared {
        true => Team { level: Level::Lane, width: lanes, locals },
        false => {
            Team { level: Level::Thread, width: (ceil_div(longest, lanes) * lanes).min(THREADS), locals }
        }
    };
    (kept <= MOST_KEPT).then_some(team)
}

/// Elements of a buffer that are stored at each row. None where that is known at run time alone.
fn elements_of(cx: &Cx<'_>, group: &Group, buf: Buf) -> Option<i64> {
    let writers = group.members.iter().filter(|member| cx.deps.stmts[member.stmt].writes.contains(&buf));
    writers.map(|member| own_points(cx, member)).try_fold(0, |most, own| Some(i64::max(most, own?)))
}

/// How members pass a buffer on.
enum Passed {
    /// One value of a row.
    Row,
    /// So many elements of a row, each to the thread that stored it.
    Elements(i64),
    /// To other threads.
    Others,
}

fn passed(cx: &Cx<'_>, group: &Group, buf: Buf) -> Passed {
    let place = Sym::new("row element");
    let mut found: Option<(Vec<Expr>, Option<Expr>)> = None;
    for member in &group.members {
        let own = nest(cx.loops, member.stmt);
        let row = spread(cx, member);
        for access in accesses(own).filter(|access| access.buf == buf) {
            let index: Vec<Expr> = access
                .index
                .iter()
                .map(|&e| cx.loops.facts.simplify(substitute(e, &member.bind)))
                .map(|e| e.subst(&|sym| row.filter(|row| row.var == sym).map(|_| Expr::sym(place))))
                .collect();
            let extent = row.filter(|_| index.iter().any(|e| e.has_sym(place))).map(|row| row.extent);
            // Further axes of the member would be elements of one thread, in no order of their own.
            let has_more =
                own.all_axes().any(|axis| member.is_own(axis) && index.iter().any(|e| e.has_sym(axis.var)));
            let is_same = found.as_ref().is_none_or(|found| *found == (index.clone(), extent));
            if has_more || !is_same {
                return Passed::Others;
            }
            found = Some((index, extent));
        }
    }
    match found.and_then(|found| found.1) {
        None => Passed::Row,
        Some(extent) => extent.as_int().map_or(Passed::Others, Passed::Elements),
    }
}

/// Elements that a member has at each row. None where that is known at run time alone.
fn own_points(cx: &Cx<'_>, member: &Member) -> Option<i64> {
    let own = nest(cx.loops, member.stmt).axes.iter().filter(|axis| member.is_own(axis));
    own.map(|axis| axis.extent.as_int()).try_fold(1i64, |all, own| all.checked_mul(own?))
}

/// The axis of a member whose points threads share: of those that it reduces, or else of its own that are not scanned, the one along which
/// most lies in memory side by side.
fn spread(cx: &Cx<'_>, member: &Member) -> Option<Axis> {
    let own = nest(cx.loops, member.stmt);
    let axes: Vec<Axis> = match own.reduces() {
        true => own.reduced.clone(),
        false => {
            let is_shared = |axis: &&Axis| member.is_own(axis) && !own.is_running(axis.var);
            own.axes.iter().filter(is_shared).copied().collect()
        }
    };
    row_of(cx, own, &axes)
}

fn row_of(cx: &Cx<'_>, own: &Nest, axes: &[Axis]) -> Option<Axis> {
    let places = bound_places(cx.loops, own, &[], &own.facts(&cx.loops.facts));
    let weight =
        |axis: &Axis| places.iter().filter(|place| stride(place.1, axis.var) == Stride::Unit).count();
    let wide = |axis: &&Axis| size(&cx.loops.facts, axis.extent) > 1;
    axes.iter().filter(wide).max_by_key(|axis| weight(axis)).or(axes.last()).copied()
}

fn plan(cx: &Cx<'_>, group: &Group, team: &Team) -> KernelPlan {
    let name = |name: &str| beside_axes(cx.loops, group, name);
    let shared = shared_axes(cx.loops, group, &group.facts(&cx.loops.facts), &|i| name(&format!("g{i}")));
    let values: Vec<(Sym, Expr)> = shared.iter().flat_map(|merged| merged.parts.clone()).collect();
    let mut grid: Vec<Axis> =
        shared.iter().map(|merged| merged.axis).filter(|axis| !axis.extent.is_one()).collect();
    let stmts = group.stmts();
    let declared = team.locals.iter().map(|&(buf, space)| {
        let holds = Holds::Buffer(cx.loops.bufs[buf].name.clone());
        // Runs begin in different banks.
        let is_of_runs = space == LocalSpace::Shared && is_of_runs(cx, buf, &stmts);
        let layout = if is_of_runs { Layout::Padded(1) } else { Layout::Dense };
        Tree::Local(Local { holds, space, layout })
    });
    let mut body: Vec<Tree> = declared.collect();
    body.extend(group.members.iter().flat_map(|member| of_member(cx, member, &values, team)));
    if team.level == Level::Lane {
        let row = grid.pop();
        let (inside, width) =
            (name("row"), row.map_or(1, |row| size(&cx.loops.facts, row.extent).clamp(1, WARPS)));
        let is_cut = row.is_some_and(|row| row.extent.as_int().is_none_or(|extent| extent > width));
        let extent = match row {
            Some(row) if !is_cut => row.extent,
            Some(_) | None => Expr::int(width),
        };
        if let Some(row) = row {
            let block = name(&format!("{}_block", row.var));
            let value = if is_cut { Expr::sym(block) * width + Expr::sym(inside) } else { Expr::sym(inside) };
            body.iter_mut().for_each(|tree| tree.replace(row.var, value));
            grid.extend(is_cut.then(|| Axis { var: block, extent: row.extent.ceildiv(width) }));
        }
        let kind = LoopKind::Level(Level::Warp.into());
        body = vec![Tree::Loop { kind, axis: Axis { var: inside, extent }, body }];
    }
    KernelPlan::new(grid, 1, body)
}

/// What the threads of a row do of a member.
fn of_member(cx: &Cx<'_>, member: &Member, values: &[(Sym, Expr)], team: &Team) -> Vec<Tree> {
    let own = nest(cx.loops, member.stmt);
    let facts = own.facts(&cx.loops.facts);
    let mut bind: Vec<(Sym, Expr)> =
        member.bind.iter().map(|(axis, value)| (*axis, facts.simplify(substitute(*value, values)))).collect();
    let (scanned, outer): (Vec<Axis>, Vec<Axis>) =
        own.axes.iter().filter(|axis| member.is_own(axis)).partition(|axis| own.is_running(axis.var));
    let row = spread(cx, member);
    let mut at = 0;
    let mut looped = |axis: &Axis| {
        at += 1;
        Axis { var: variable(cx.loops, &format!("p{}_{at}", member.stmt)), extent: axis.extent }
    };
    let is_row = |axis: &Axis| row.is_some_and(|row| row.var == axis.var);
    let mut loops_of = |axes: &[Axis], bind: &mut Vec<(Sym, Expr)>| -> Vec<Axis> {
        let beside: Vec<&Axis> = axes.iter().filter(|axis| !is_row(axis)).collect();
        beside
            .into_iter()
            .map(|axis| {
                let by = looped(axis);
                bind.push((axis.var, Expr::sym(by.var)));
                by
            })
            .collect()
    };
    let outside = loops_of(&outer, &mut bind);
    let leaf = |part: Part, bind: &[(Sym, Expr)]| {
        Tree::Leaf(Leaf {
            nest: own.name.clone(),
            part,
            bind: bind.to_vec(),
            masked: false,
            block: None,
            by: None,
        })
    };
    let points = bind.clone();
    let inside = loops_of(if own.reduces() { &own.reduced } else { &scanned }, &mut bind);
    let spread_out = |part: Part, bind: &mut Vec<(Sym, Expr)>, more: Vec<Tree>| -> Vec<Tree> {
        let Some(row) = row else { return [nested(vec![leaf(part, bind)], &inside), more].concat() };
        let [thread, turn] = ["t", "c"].map(|what| variable(cx.loops, &format!("{what}{}", member.stmt)));
        let one_turn = row.extent.as_int().filter(|extent| *extent <= team.width);
        let turns = Axis { var: turn, extent: row.extent.ceildiv(team.width) };
        let value = match one_turn {
            Some(_) => Expr::sym(thread),
            None => Expr::sym(turn) * team.width + Expr::sym(thread),
        };
        bind.push((row.var, value));
        let mut body = nested(vec![leaf(part, bind)], &inside);
        if one_turn.is_none() {
            let kind = match turns.extent.as_int() {
                Some(turns) if turns <= KEPT => LoopKind::Unroll,
                Some(_) | None => LoopKind::For,
            };
            body = vec![Tree::Loop { kind, axis: turns, body }];
        }
        body.extend(more);
        let axis = Axis { var: thread, extent: one_turn.map_or(Expr::int(team.width), Expr::int) };
        vec![Tree::Loop { kind: LoopKind::Level(team.level.into()), axis, body }]
    };
    let body = match own.reduces() {
        true => {
            let merge = leaf(Part::Merge, &points);
            let mut body = spread_out(Part::Update, &mut bind, vec![merge]);
            body.push(leaf(Part::Final, &points));
            body
        }
        false => {
            // All that a thread has of its own is in its loop.
            let body = spread_out(Part::Whole, &mut bind, Vec::new());
            return nested(body, &outside);
        }
    };
    nested(body, &outside)
}
