//! Writes the kernel of rows: memory for what is kept of a row, its loads, and the members one after another.

use super::team::{KEPT, RowCopy, Team, WARPS, is_of_runs, place_in_row, spread};
use crate::context::Cx;
use crate::cost::size;
use crate::cut::nested;
use crate::gpu::blocks::{Ends, by_blocks, values_of};
use crate::gpu::stage::name_beside;
use crate::gpu::turns::{Turns, at_once};
use crate::group::{Group, Member, beside_axes, shared_axes};
use crate::nest;
use litz_analysis::access::substitute;
use litz_ir::loops::Axis;
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{BlockNeeds, Gpu, Level, Target};
use litz_sym::{Expr, Facts, Sym};

/// Instructions of nests, at most, for which so many registers are enough.
const SHORT: usize = 12;
const FEW_REGISTERS: i64 = 32;

/// The kernel of a group.
pub fn plan(cx: &Cx<'_>, group: &Group, team: &Team) -> KernelPlan {
    let name = |name: &str| beside_axes(cx.loops, group, name);
    let shared = shared_axes(cx.loops, group, &group.facts(&cx.loops.facts), &|i| name(&format!("g{i}")));
    let values: Vec<(Sym, Expr)> = shared.iter().flat_map(|merged| merged.parts.clone()).collect();
    let mut facts = cx.loops.facts.clone();
    shared.iter().for_each(|merged| facts.declare_index(merged.axis.var, merged.axis.extent));
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
    for copy in kept.clone() {
        if copy.is_ahead { &mut kept_ahead } else { &mut body }.push(memory_of(cx, copy));
    }
    for copy in kept.filter(|copy| copy.made_by.is_none() && !comes_with(cx, &group.members[0], copy)) {
        let walk = copy.row.map(|row| Walk::of(cx, team, row, names));
        let leaf = copied(cx, copy, &values, walk.as_ref());
        if copy.is_ahead { &mut ahead } else { &mut body }.push(match walk {
            Some(walk) => walk.by(team, walk.around(vec![leaf], at_once(team.vector))),
            None => leaf,
        });
    }
    let members = group.members.iter();
    let known = (&values[..], &facts);
    body.extend(members.flat_map(|member| of_member(cx, (group, member), known, (team, names))));
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

/// Registers of a thread, at most, with which a unit runs as many blocks as have their rows in its shared memory, where these are several and
/// what nests compute needs no more.
fn registers(cx: &Cx<'_>, group: &Group, team: &Team) -> Option<u32> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let has_row = team.registers == 0 && team.copies.iter().any(|copy| copy.space == LocalSpace::Shared);
    let needs = BlockNeeds { threads: team.width, registers: FEW_REGISTERS, shared_bytes: team.shared };
    let blocks = gpu.resident(needs) / i64::from(gpu.units);
    let are_short = group.stmts().into_iter().all(|s| nest(cx.loops, s).body.len() <= SHORT);
    let registers = i64::from(gpu.unit.registers) / (blocks.max(1) * team.width);
    let registers = u32::try_from(registers / Gpu::REGISTER_STEP * Gpu::REGISTER_STEP).ok()?;
    (has_row && blocks > 1 && are_short).then_some(registers.min(Gpu::REGISTERS))
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
    /// The walk of a team along a row, in loops that are named so.
    fn of(cx: &Cx<'_>, team: &Team, row: Axis, [thread, turn, together, element]: [Sym; 4]) -> Walk {
        let Team { width, vector, .. } = *team;
        let at_once = width * vector;
        let one_turn = row.extent.as_int().filter(|extent| *extent <= at_once);
        let turns = match one_turn {
            Some(_) => None,
            None => {
                let count = row.extent.ceildiv(at_once);
                let turns = Turns::of(cx, count, (team.written_out() / vector).max(1), [turn, together]);
                // What is loaded at once is there whole.
                let is_whole = vector == 1 || turns.taken() == count;
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
        Walk {
            thread: Axis { var: thread, extent: Expr::int(one_turn.map_or(width, |extent| extent / vector)) },
            turns,
            vector: (vector > 1).then(|| Axis { var: element, extent: Expr::int(vector) }),
            place,
            is_whole: taken.is_none_or(|taken| cx.loops.facts.simplify(taken - row.extent).is_zero()),
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
fn comes_with(cx: &Cx<'_>, first: &Member, copy: &RowCopy) -> bool {
    let own = nest(cx.loops, first.stmt);
    let is_once = own.reduces() && !own.axes.iter().any(|axis| first.is_own(axis));
    let reads = cx.deps.stmts[first.stmt].reads.contains(&copy.buf);
    let is_along = spread(cx, first).zip(copy.row).is_some_and(|(own, row)| own.extent == row.extent);
    copy.space == LocalSpace::Shared && copy.made_by.is_none() && is_once && reads && is_along
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
    (team, names): (&Team, [Sym; 4]),
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
            masked: false,
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
    // Short runs are written out, so that a thread loads what it scans at once.
    let is_short = |axis: &Axis| axis.extent.as_int().is_some_and(|extent| (1..=KEPT).contains(&extent));
    let kind = if !own.reduces() && inside.iter().all(is_short) { LoopKind::Unroll } else { LoopKind::For };
    let within =
        |body: Vec<Tree>| inside.iter().rev().fold(body, |body, &axis| vec![Tree::Loop { kind, axis, body }]);
    let writes = &cx.deps.stmts[member.stmt].writes;
    let mut shared = team.locals.iter().filter(|local| local.1 == LocalSpace::Shared);
    let by_warp = team.level == Level::Thread && shared.any(|local| writes.contains(&local.0));
    let spread_out = |part: Part, bind: &mut Vec<(Sym, Expr)>, more: Vec<Tree>| -> Vec<Tree> {
        let Some(row) = row else {
            let body = [within(kept(part, bind, None)), more].concat();
            // One warp is enough where all find in shared memory what it stores.
            let one = Axis { var: names[0], extent: Expr::one() };
            let kind = LoopKind::Level(Level::Warp.into());
            return if by_warp { vec![Tree::Loop { kind, axis: one, body }] } else { body };
        };
        let walk = Walk::of(cx, team, row, names);
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
        let copies = team.copies.iter().filter(|copy| is_first && comes_with(cx, member, copy));
        of_turn.extend(copies.map(|copy| copied(cx, copy, values, Some(&walk))));
        of_turn.extend(walk.elements(within(kept(part, bind, Some(&walk))), of_vector));
        let mut body = walk.turns(of_turn);
        body.extend(more);
        vec![walk.by(team, body)]
    };
    let body = match own.reduces() {
        true => {
            let merge = leaf(Part::Merge, &points);
            let mut body = spread_out(Part::Update, &mut bind, vec![merge]);
            body.extend(kept(Part::Final, &points, None));
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
