//! Writes the kernel of rows: memory for what is kept of a row, its loads, and the members one after another.

use super::team::{
    KEPT, MOST_DIGITS, RowCopy, Team, WARPS, elements_of, is_of_rows, is_of_runs, place_in_row, spread,
};
use crate::context::Cx;
use crate::cost::{ceil_div, points, size};
use crate::cut::nested;
use crate::gpu::blocks::{Ends, by_blocks, values_of};
use crate::gpu::is_light;
use crate::gpu::stage::name_beside;
use crate::gpu::turns::{Turns, at_once};
use crate::group::{Group, Member, beside_axes, shared_axes};
use crate::nest;
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf, Nest};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{BlockNeeds, Level, Target};
use litz_sym::{Expr, Facts, Sym};
use std::collections::BTreeSet;

/// Instructions of nests, at most, for which so many registers are enough beside what a thread holds of rows: addresses, sums, and what it computes
/// of a vector.
const SHORT: usize = 16;
const BESIDE: i64 = 20;

/// Registers that an assembler without a limit gives a thread beside these: from 32 to 48 for norms and softmax of f32 and bf16 (nvJitLink 13.0).
const UNLIMITED: i64 = 40;

/// Bytes that a unit reads at a time, if memory is to be busy: layer norms of rows of 8 KiB take 20.0 us with six of them, of 20.8 with five, and those
/// of 16 KiB are slower with more than four (H200).
const IN_FLIGHT: i64 = 64 << 10;

/// The kernel of a group.
pub fn plan(cx: &Cx<'_>, group: &Group, team: &Team) -> KernelPlan {
    let name = |name: &str| beside_axes(cx.loops, group, name);
    let mut shared = shared_axes(cx.loops, group, &group.facts(&cx.loops.facts), &|i| name(&format!("g{i}")));
    let mut values: Vec<(Sym, Expr)> = shared.iter().flat_map(|merged| merged.parts.clone()).collect();
    let rows = Together(Axis { var: name("row"), extent: Expr::int(team.together) });
    if let Some(row) = shared.last_mut().filter(|_| team.together > 1) {
        let number = Expr::sym(row.axis.var) * team.together + Expr::sym(rows.0.var);
        values.iter_mut().for_each(|(_, value)| *value = value.replace(row.axis.var, number));
        row.axis.extent = row.axis.extent.floordiv(team.together);
    }
    if let Some(row) = shared.last().filter(|_| reads_again(cx, group, team)) {
        let backwards = row.axis.extent - 1 - Expr::sym(row.axis.var);
        values.iter_mut().for_each(|(_, value)| *value = value.replace(row.axis.var, backwards));
    }
    let mut facts = cx.loops.facts.clone();
    let loops = shared.iter().map(|merged| merged.axis).chain([rows.0]);
    loops.for_each(|axis| facts.declare_index(axis.var, axis.extent));
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
    let (mut kept_ahead, mut ahead) = (Vec::new(), Vec::new());
    // Loops that follow each other are called alike: what is proved of some is known of others like them.
    let names = ["t", "c", "u", "v"].map(name);
    let kept = team.copies.iter().filter(|copy| !copy.is_of_turn);
    // Ahead of the loop over warps each of these has elements of its own, and all of them a box: one coordinate counts them.
    let of_warps = shared.iter().rfind(|merged| !merged.axis.extent.is_one());
    let of_warps = of_warps.filter(|_| team.level == Level::Lane).map(|merged| merged.axis.var);
    let is_own = |copy: &RowCopy| {
        let Some(row) = of_warps else { return true };
        let at = copy.index.iter().map(|&at| substitute(at, &values)).filter(|at| at.has_sym(row));
        let counts =
            |at: Expr| at.linear(row).is_some_and(|(step, rest)| step.is_one() && !rest.has_sym(row));
        matches!(at.collect::<Vec<Expr>>()[..], [at] if counts(at))
    };
    for copy in kept.clone() {
        if copy.is_ahead && is_own(copy) { &mut kept_ahead } else { &mut body }.push(memory_of(cx, copy));
    }
    for copy in kept.filter(|copy| copy.made_by.is_none() && !comes_with(cx, team, &group.members[0], copy)) {
        let walk = copy.row.map(|row| Walk::of(cx, team, row, (&values, names)));
        let leaf = copied(cx, copy, &values, walk.as_ref());
        let is_ahead = copy.is_ahead && is_own(copy);
        if is_ahead { &mut ahead } else { &mut body }.extend(match walk {
            Some(walk) => vec![walk.by(team, rows.around(walk.around(vec![leaf], at_once(team.vector))))],
            None => rows.around(vec![leaf]),
        });
    }
    let members = group.members.iter();
    let known = (&values[..], &facts);
    body.extend(members.flat_map(|member| of_member(cx, (group, member), known, (team, names, rows))));
    if team.level == Level::Lane {
        let row = grid.last().copied().unwrap_or(Axis { var: name("g"), extent: Expr::one() });
        let ends = Ends::of(row, &grid, [values_of(&ahead), values_of(&body)].concat().into_iter());
        grid.pop();
        let width = size(&cx.loops.facts, row.extent).clamp(1, WARPS);
        let names = [name(&format!("{}_block", row.var)), name("row")];
        // Between the loops over warps a block waits for what it has not loaded ahead.
        if !ahead.is_empty() {
            by_blocks(Level::Warp, (row, ends), width, names, &mut ahead);
        }
        grid.extend(by_blocks(Level::Warp, (row, ends), width, names, &mut body));
    }
    let body = [kept_ahead, ahead, body].concat();
    let registers = if grid.is_empty() { None } else { registers(cx, group, team) };
    KernelPlan { registers, ..KernelPlan::new(grid, 1, body) }
}

/// Whether the kernel reads a buffer again that one before has read, for scans of its rows, and that fills half of the cache of all units or more:
/// what was read last is there still, so that the last rows come first.
fn reads_again(cx: &Cx<'_>, group: &Group, team: &Team) -> bool {
    let Target::Gpu(gpu) = cx.target else { return false };
    let stmts = group.stmts();
    let has_runs = team.locals.iter().any(|local| is_of_runs(cx, local.0, &stmts));
    let is_before = |user: &usize| stmts.iter().all(|own| user < own);
    let is_again = |buf: Buf| {
        let mut others = cx.deps.users[buf].iter().filter(|&user| is_before(user));
        bytes(cx, buf) >= gpu.l2_bytes / 2 && others.any(|&user| cx.deps.stmts[user].reads.contains(&buf))
    };
    team.level == Level::Thread && has_runs && read_from_memory(cx, group).into_iter().any(is_again)
}

/// Registers of a thread, at most, with which a unit runs as many blocks as have room for what they keep of their rows: where without a limit, of which
/// an assembler makes use, it would run one, or read too little of memory at a time, and what nests compute needs no more.
fn registers(cx: &Cx<'_>, group: &Group, team: &Team) -> Option<u32> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let rows = if team.level == Level::Lane { WARPS } else { 1 };
    let (threads, held) = (team.width * rows, held(cx, group, team));
    let blocks = |beside: i64| {
        let needs = BlockNeeds { threads, registers: held + beside, shared_bytes: team.shared };
        gpu.resident(needs) / i64::from(gpu.units)
    };
    let [few, many] = [blocks(UNLIMITED), blocks(BESIDE)];
    let rows = rows * team.together;
    let all = points(&cx.loops.facts, &group.outer) / rows;
    let is_enough = few > 1 && few * rows * bytes_of_row(cx, group) >= IN_FLIGHT;
    let is_short = |own: &Nest| own.body.len() <= SHORT && is_light(own);
    let are_short = group.stmts().into_iter().all(|s| is_short(nest(cx.loops, s)));
    // What is not kept is loaded ahead as far as there are registers.
    let is_kept = held + team.shared > 0 && !team.copies.iter().any(|copy| copy.is_of_turn);
    let has_more = many > few && all > few * i64::from(gpu.units);
    (has_more && !is_enough && are_short && is_kept).then(|| gpu.registers_for(many * threads))
}

/// Bytes of memory that a row reads.
fn bytes_of_row(cx: &Cx<'_>, group: &Group) -> i64 {
    let read = read_from_memory(cx, group).into_iter().map(|buf| bytes(cx, buf));
    read.fold(0, i64::saturating_add) / points(&cx.loops.facts, &group.outer).max(1)
}

/// What members read that none of them stores.
fn read_from_memory(cx: &Cx<'_>, group: &Group) -> BTreeSet<Buf> {
    let infos = group.members.iter().map(|member| &cx.deps.stmts[member.stmt]);
    let mut read: BTreeSet<Buf> = infos.clone().flat_map(|info| &info.reads).copied().collect();
    for buf in infos.flat_map(|info| &info.writes) {
        read.remove(buf);
    }
    read
}

/// Bytes of a buffer.
fn bytes(cx: &Cx<'_>, buf: Buf) -> i64 {
    let data = &cx.loops.bufs[buf];
    size(&cx.loops.facts, data.elements()).saturating_mul(data.dtype.size() as i64)
}

/// Registers in which a thread holds elements of rows, the most between one member and the next: what a member reads last makes room for what it
/// stores. A run that a thread scans is loaded at once.
fn held(cx: &Cx<'_>, group: &Group, team: &Team) -> i64 {
    let infos: Vec<_> = group.members.iter().map(|member| &cx.deps.stmts[member.stmt]).collect();
    let last = |buf: Buf| infos.iter().rposition(|info| info.reads.contains(&buf));
    let first = |buf: Buf| infos.iter().position(|info| info.writes.contains(&buf));
    let locals = team.locals.iter().filter(|local| local.1 == LocalSpace::Register);
    let locals = locals.map(|&(buf, _)| (buf, elements_of(cx, group, buf).unwrap_or(1)));
    let is_kept = |copy: &&RowCopy| copy.space == LocalSpace::Register && !copy.is_of_turn;
    let copies = team.copies.iter().filter(is_kept);
    let rows = |copy: &RowCopy| if is_of_rows(group, &copy.index) { team.together } else { 1 };
    let elements = |copy: &RowCopy| copy.row.and_then(|row| row.extent.as_int()).unwrap_or(1) * rows(copy);
    let copies = copies.map(|copy| (copy.buf, elements(copy)));
    let of_thread = |count: i64| match count {
        1 => 1,
        _ => ceil_div(count, team.width * team.vector) * team.vector,
    };
    let arrays = locals.chain(copies).map(|(buf, count)| (buf, of_thread(count) * words(cx, buf)));
    let arrays: Vec<(Buf, i64)> = arrays.collect();
    // What no member stores is there before the first one.
    let is_held = |buf: Buf, next: usize| {
        first(buf).is_none_or(|first| first < next) && last(buf).is_some_and(|last| last >= next)
    };
    let of = |next: usize| arrays.iter().filter(|array| is_held(array.0, next)).map(|array| array.1).sum();
    let kept: i64 = (0..infos.len()).map(of).max().unwrap_or(0);
    // Of runs of runs there are few.
    let mut runs = group.members.iter().map(|member| scanned(cx, member)).filter(|&run| run > 0);
    kept + runs.next().unwrap_or(0)
}

/// Registers for a run that a thread scans of a member.
fn scanned(cx: &Cx<'_>, member: &Member) -> i64 {
    let own = nest(cx.loops, member.stmt);
    let is_run = |axis: &&Axis| own.is_running(axis.var);
    let lengths = own.axes.iter().filter(is_run).filter_map(|axis| axis.extent.as_int());
    let widest = cx.deps.stmts[member.stmt].reads.iter().map(|&buf| words(cx, buf)).max();
    lengths.filter(|&length| length <= KEPT).max().unwrap_or(0) * widest.unwrap_or(0)
}

/// Registers of an element: one of a half type is a float there.
fn words(cx: &Cx<'_>, buf: Buf) -> i64 {
    ceil_div(cx.loops.bufs[buf].dtype.compute().size() as i64, 4)
}

/// The rows that a block takes together.
#[derive(Clone, Copy)]
struct Together(Axis);

impl Together {
    /// The loop over them around what is done for each.
    fn around(self, body: Vec<Tree>) -> Vec<Tree> {
        let mut is_for_each = false;
        let mut look = |leaf: &Leaf| is_for_each |= leaf.bind.iter().any(|bind| bind.1.has_sym(self.0.var));
        body.iter().for_each(|tree| tree.each_leaf(&mut look));
        if is_for_each { vec![Tree::Loop { kind: LoopKind::Unroll, axis: self.0, body }] } else { body }
    }
}

/// How the threads of a row take its elements.
struct Walk {
    thread: Axis,
    /// What a thread takes, if that is more than one element or vector.
    turns: Option<Turns>,
    /// The elements of a vector.
    vector: Option<Axis>,
    /// The element.
    place: Expr,
    /// Whether no place is past the end of the row.
    is_whole: bool,
}

impl Walk {
    /// The walk of a team along a row, in loops that are named so. The group's axes have `values` there.
    fn of(
        cx: &Cx<'_>,
        team: &Team,
        row: Axis,
        (values, [thread, turn, together, element]): (&[(Sym, Expr)], [Sym; 4]),
    ) -> Walk {
        let Team { width, vector, shift, .. } = *team;
        let at_once = width * vector;
        // As far as rows go that begin last in a run.
        let extent = if shift.is_some() { row.extent + (vector - 1) } else { row.extent };
        let one_turn = extent.as_int().filter(|extent| *extent <= at_once);
        let turns = match one_turn {
            Some(_) => None,
            None => {
                let count = extent.ceildiv(at_once);
                let turns = Turns::of(cx, count, (team.written_out() / vector).max(1), [turn, together]);
                // What is loaded at once is there whole.
                let is_whole = vector == 1 || shift.is_some() || turns.taken() == count;
                Some(if is_whole { turns } else { Turns::one_by_one(Axis { var: turn, extent: count }) })
            }
        };
        let taken = turns.as_ref().map(|turns| turns.taken() * at_once);
        let mut place = Expr::sym(thread) * vector;
        if let Some(turns) = &turns {
            place = turns.number * at_once + place;
        }
        if vector > 1 {
            place = place + Expr::sym(element);
        }
        if let Some(shift) = shift {
            place = place - cx.loops.facts.simplify(substitute(shift, values));
        }
        Walk {
            thread: Axis {
                var: thread,
                extent: Expr::int(one_turn.map_or(width, |extent| ceil_div(extent, vector))),
            },
            turns,
            vector: (vector > 1).then(|| Axis { var: element, extent: Expr::int(vector) }),
            place,
            is_whole: shift.is_none()
                && taken.is_none_or(|taken| cx.loops.facts.simplify(taken - row.extent).is_zero()),
        }
    }

    /// Loops of a thread around what it does at its elements.
    fn around(&self, body: Vec<Tree>, of_vector: LoopKind) -> Vec<Tree> {
        self.turns(self.elements(body, of_vector))
    }

    /// The loop around what a thread does at the elements of a turn.
    fn elements(&self, body: Vec<Tree>, of_vector: LoopKind) -> Vec<Tree> {
        match self.vector {
            Some(axis) => vec![Tree::Loop { kind: of_vector, axis, body }],
            None => body,
        }
    }

    /// Loops of a thread around what it does in a turn.
    fn turns(&self, body: Vec<Tree>) -> Vec<Tree> {
        match &self.turns {
            Some(turns) => turns.around(body),
            None => body,
        }
    }

    /// The loop over the threads around what each does.
    fn by(&self, team: &Team, body: Vec<Tree>) -> Tree {
        Tree::Loop { kind: LoopKind::Level(team.level.into()), axis: self.thread, body }
    }
}

/// Whether threads copy an element to the memory of their block where this member, which is the first, reduces it: they have it at hand then.
fn comes_with(cx: &Cx<'_>, team: &Team, first: &Member, copy: &RowCopy) -> bool {
    let own = nest(cx.loops, first.stmt);
    let is_once = own.reduces() && !own.axes.iter().any(|axis| first.is_own(axis));
    let reads = cx.deps.stmts[first.stmt].reads.contains(&copy.buf);
    let is_along = spread(cx, first).zip(copy.row).is_some_and(|(own, row)| own.extent == row.extent);
    // What is copied by several elements is on its way for all turns first.
    copy.space == LocalSpace::Shared
        && copy.made_by.is_none()
        && team.vector == 1
        && is_once
        && reads
        && is_along
}

/// The name of a copy.
fn name_of(cx: &Cx<'_>, copy: &RowCopy) -> String {
    name_beside(cx.loops, &format!("{}_row", cx.loops.bufs[copy.buf].name))
}

/// The memory of a copy.
fn memory_of(cx: &Cx<'_>, copy: &RowCopy) -> Tree {
    let holds =
        Holds::Copy { name: name_of(cx, copy), of: cx.loops.bufs[copy.buf].name.clone(), reader: None };
    Tree::Local(Local { holds, space: copy.space, layout: Layout::Dense })
}

/// The copy of an element that a thread comes to, or of a value of the row.
fn copied(cx: &Cx<'_>, copy: &RowCopy, values: &[(Sym, Expr)], walk: Option<&Walk>) -> Tree {
    let place = walk.map_or(Expr::zero(), |walk| walk.place);
    let bound = |at: Expr| substitute(at.replace(place_in_row(), place), values);
    let dims = copy.index.iter().enumerate();
    let bind: Vec<(Sym, Expr)> = dims.map(|(dim, &at)| (Sym::new(&format!("d{dim}")), bound(at))).collect();
    let (nest, masked) = (name_of(cx, copy), walk.is_some_and(|walk| !walk.is_whole));
    Tree::Leaf(Leaf { nest, part: Part::Whole, bind, masked, block: None, by: None })
}

/// What the threads of a row do of a member, in terms of the loops that the `facts` know.
fn of_member(
    cx: &Cx<'_>,
    (group, member): (&Group, &Member),
    (values, facts): (&[(Sym, Expr)], &Facts),
    (team, names, rows): (&Team, [Sym; 4], Together),
) -> Vec<Tree> {
    let own = nest(cx.loops, member.stmt);
    let facts = own.facts(facts);
    let mut bind: Vec<(Sym, Expr)> =
        member.bind.iter().map(|(axis, value)| (*axis, facts.simplify(substitute(*value, values)))).collect();
    let (scanned, outer): (Vec<Axis>, Vec<Axis>) =
        own.axes.iter().filter(|axis| member.is_own(axis)).partition(|axis| own.is_running(axis.var));
    let row = spread(cx, member);
    let mut at = 0;
    let mut looped = |axis: &Axis| {
        at += 1;
        Axis { var: beside_axes(cx.loops, group, &format!("p{at}")), extent: axis.extent }
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
            // All of a run that a row begins or ends in is loaded.
            masked: team.shift.is_some() && row.is_some_and(|row| bind.iter().any(|bind| bind.0 == row.var)),
            block: None,
            by: None,
        })
    };
    // What others read of what is stored here is kept as it is stored, and not loaded.
    let kept = |part: Part, bind: &[(Sym, Expr)], walk: Option<&Walk>| -> Vec<Tree> {
        let is_stored = |copy: &&RowCopy| part != Part::Update && copy.made_by == Some(member.stmt);
        let made = team.copies.iter().filter(is_stored);
        std::iter::once(leaf(part, bind)).chain(made.map(|copy| copied(cx, copy, values, walk))).collect()
    };
    let points = bind.clone();
    let inside = loops_of(if own.reduces() { &own.reduced } else { &scanned }, &mut bind);
    // Short runs are written out, so that a thread loads what it scans at once, and digits of what it has of a row.
    let most = if own.reduces() { MOST_DIGITS } else { KEPT };
    let is_short = |axis: &Axis| axis.extent.as_int().is_some_and(|extent| (1..=most).contains(&extent));
    let is_written_out = inside.iter().all(is_short) && (!own.reduces() || team.vector > 1);
    let kind = if is_written_out { LoopKind::Unroll } else { LoopKind::For };
    let within =
        |body: Vec<Tree>| inside.iter().rev().fold(body, |body, &axis| vec![Tree::Loop { kind, axis, body }]);
    let writes = &cx.deps.stmts[member.stmt].writes;
    let mut shared = team.locals.iter().filter(|local| local.1 == LocalSpace::Shared);
    let by_warp = team.level == Level::Thread && shared.any(|local| writes.contains(&local.0));
    let spread_out = |part: Part, bind: &mut Vec<(Sym, Expr)>, more: Vec<Tree>| -> Vec<Tree> {
        let Some(row) = row else {
            let body = rows.around([within(kept(part, bind, None)), more].concat());
            // One warp is enough where all find in shared memory what it stores.
            let one = Axis { var: names[0], extent: Expr::one() };
            let kind = LoopKind::Level(Level::Warp.into());
            return if by_warp { vec![Tree::Loop { kind, axis: one, body }] } else { body };
        };
        let walk = Walk::of(cx, team, row, (values, names));
        bind.push((row.var, walk.place));
        // What is reduced is in registers already, and combined in the order of the row.
        let of_vector = if part == Part::Update { LoopKind::Unroll } else { at_once(team.vector) };
        let mut of_turn = Vec::new();
        let reads = &cx.deps.stmts[member.stmt].reads;
        for copy in team.copies.iter().filter(|copy| copy.is_of_turn && reads.contains(&copy.buf)) {
            of_turn.push(memory_of(cx, copy));
            of_turn.extend(walk.elements(vec![copied(cx, copy, values, Some(&walk))], at_once(team.vector)));
        }
        let is_first = member.stmt == group.members[0].stmt;
        let copies = team.copies.iter().filter(|copy| is_first && comes_with(cx, team, member, copy));
        of_turn.extend(copies.map(|copy| copied(cx, copy, values, Some(&walk))));
        of_turn.extend(walk.elements(within(kept(part, bind, Some(&walk))), of_vector));
        let mut body = rows.around(walk.turns(of_turn));
        body.extend(rows.around(more));
        vec![walk.by(team, body)]
    };
    let body = match own.reduces() {
        true => {
            let merge = leaf(Part::Merge, &points);
            let mut body = spread_out(Part::Update, &mut bind, vec![merge]);
            body.extend(rows.around(kept(Part::Final, &points, None)));
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
