//! Inserts barriers between a store and an access of the same memory by another thread.
//!
//! What follows a loop over a level begins when all its iterations are done, as far as it can notice: a barrier is needed where
//! one thread's store meets another's access, and nowhere else. So accesses are gathered since the last barrier, and
//! the next one is put ahead of the first statement that conflicts with them. The end of a sequential loop is
//! followed by its beginning. An access at the index of a store, by the same thread, needs none: what no two threads store
//! to belongs to the one that does. It does if it makes that store, too: where all holds that the store asks for. Nor do two accesses
//! where the element says which thread touches it: see `digit.rs`. Of a warp or warpgroup the first thread stores, and all load. Where the element
//! says which warp it is that touches it, its threads alone wait for each other: the barrier is in the loop over warps.
//!
//! Several blocks of a grid point meet as a cluster does, or once, where the last one is elected: see [`Blocks`].
//!
//! What is done to the buffers of a ring the ring orders. In a kernel with rings the warps that have to wait for each other meet alone, so that
//! those that copy ahead of them go on.
//!
//! Iterations of a chain run one after another from the first statement that conflicts with another iteration to the last one.

mod digit;
mod flow;

use super::Pass;
use flow::Flow;
use litz_ir::Diag;
use litz_ir::ids::Table;
use litz_ir::kernel::{
    Act, Blocks, Filling, Kernel, KernelLoopKind, Loop, Mem, MemorySpace, Op, Ring, RingData, Stmt, Sync,
    Warps, visit,
};
use litz_ir::loops::Axis;
use litz_ir::target::{Gpu, Level, Target, Team};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "sync", run };

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if !has_levels(&kernel.body) {
        return Ok(());
    }
    let shared: Vec<Mem> =
        kernel.mems.iter().filter(|(_, data)| data.space.is_shared()).map(|mem| mem.0).collect();
    let fixed = kernel.facts.symbols().chain(kernel.grid.iter().map(|axis| axis.var)).collect();
    let is_blocks_own = |mem: &Mem| kernel.mems[*mem].space == MemorySpace::Shared;
    let between = shared.iter().copied().filter(|mem| !is_blocks_own(mem)).collect();
    let mut buffers = HashSet::new();
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Sync(Sync::Acquire { buffer, .. })) = stmt {
            buffers.insert(*buffer);
        }
    });
    // Without rings all warps keep step anyway.
    let is_act = |stmt: &Stmt| stmt.accesses().next().is_some();
    let warps = if buffers.is_empty() { None } else { Warps::that_run(&kernel.body, &is_act) };
    let behind = written_behind(&kernel.body, &buffers);
    let rings = kernel.rings.clone();
    let are_several = kernel.blocks() != Blocks::One;
    let facts = kernel.facts.clone();
    let barriers = Barriers { facts, shared, between, are_several, fixed, behind, buffers, rings, warps };
    let top = match kernel.blocks() {
        Blocks::One => Sync::Barrier(Level::Block),
        Blocks::Cluster => Sync::Cluster,
        Blocks::Many => Sync::Elect,
    };
    let body = without_barriers(std::mem::take(&mut kernel.body));
    // A block that stays runs one point behind another, which is of other elements of what others see. Its numbers are not the same in both.
    let is_of_point = |e: Expr| kernel.grid.iter().any(|axis| e.has_sym(axis.var));
    let is_own =
        |access: &Access| matches!(kernel.mems[access.mem].space, MemorySpace::Shared | MemorySpace::Cluster);
    let of_next_point = |access: &Access| {
        let mentions = |rel: &Rel| is_of_point(rel.lhs) || is_of_point(rel.rhs);
        let conds = access.conds.clone().filter(|conds| !conds.iter().any(mentions));
        is_own(access).then(|| Access { conds, ..access.clone() })
    };
    let has_places_of_point = barriers
        .accesses(&body, Vec::new())
        .iter()
        .any(|access| is_own(access) && access.index.iter().any(|&at| is_of_point(at)));
    kernel.body = match kernel.persistent {
        Some(_) if top != Sync::Elect && !has_places_of_point => {
            barriers.iterated(&body, top, Vec::new(), &of_next_point).0
        }
        _ => barriers.block(body, top, Vec::new()).0,
    };
    if kernel.persistent.is_some() && has_places_of_point {
        kernel.body.push(Stmt::Act(Act::Sync(top)));
    }
    Ok(())
}

fn has_levels(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| {
        matches!(stmt, Stmt::Loop(inner) if inner.kind.level().is_some())
            || stmt.blocks().into_iter().any(has_levels)
    })
}

/// Barriers are derived anew, so that the pass changes nothing when it runs again.
fn without_barriers(mut stmts: Vec<Stmt>) -> Vec<Stmt> {
    stmts.retain(|stmt| match stmt {
        Stmt::Act(Act::Sync(sync)) => match sync {
            Sync::Commit | Sync::Wait { .. } | Sync::Kernels => true,
            Sync::CommitProducts | Sync::Products { .. } => true,
            Sync::Acquire { .. } | Sync::Release { .. } => true,
            Sync::Barrier(_) | Sync::Warps(_) | Sync::Cluster | Sync::Elect | Sync::Await | Sync::Pass => {
                false
            }
        },
        Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => true,
    });
    for block in stmts.iter_mut().flat_map(Stmt::blocks_mut) {
        *block = without_barriers(std::mem::take(block));
    }
    stmts
}

/// An access of memory that others see.
#[derive(Clone)]
struct Access {
    mem: Mem,
    /// The first element.
    index: Vec<Expr>,
    /// How many elements follow each other that it accesses. None where they do not, or may not.
    width: Option<i64>,
    is_store: bool,
    /// A combining store, which others may do at once.
    is_atomic: bool,
    /// A store that happens in the background.
    is_behind: bool,
    /// A store that all threads of the team come to.
    is_all_stores: bool,
    /// The loops over levels around it, within the statement.
    threads: Vec<(Team, Sym)>,
    /// All loops around, within the statement.
    axes: Vec<Axis>,
    /// What holds where it happens. None where that is not known.
    conds: Option<Vec<Rel>>,
    /// The warps of a block that make it. None where any may.
    warps: Option<Warps>,
    /// Meetings since, or ahead of it since a loop began.
    met: Vec<Meeting>,
    /// The rings whose buffers were released since, as such, by warps that made it.
    released: Vec<(Ring, Filling)>,
    /// Whether it is one of the iteration before, behind whose end all are known to have met that have to.
    is_earlier: bool,
}

/// What some warps did before it, others see behind it.
#[derive(Clone, Copy)]
struct Meeting {
    from: Warps,
    to: Warps,
    /// What those have to have released since.
    released: Option<(Ring, Filling)>,
}

/// What is around a statement.
#[derive(Clone)]
struct Around {
    threads: Vec<(Team, Sym)>,
    axes: Vec<Axis>,
    conds: Option<Vec<Rel>>,
    warps: Option<Warps>,
}

impl Access {
    /// A store by no thread in particular.
    fn of_unknown(mem: Mem) -> Access {
        let (index, threads, axes) = (Vec::new(), Vec::new(), Vec::new());
        Access {
            mem,
            index,
            width: None,
            is_store: true,
            is_atomic: false,
            is_behind: false,
            is_all_stores: false,
            threads,
            axes,
            conds: None,
            warps: None,
            met: Vec::new(),
            released: Vec::new(),
            is_earlier: false,
        }
    }

    /// The same, as seen from an iteration of the outermost loop over a level around it, whose variable is `var` there.
    fn within(&self, var: Sym) -> Access {
        let mut own = self.clone();
        let (_, outermost) = own.threads.remove(0);
        own.axes.retain(|axis| axis.var != outermost);
        own.axes.iter_mut().for_each(|axis| axis.extent = axis.extent.replace(outermost, Expr::sym(var)));
        own.index.iter_mut().for_each(|at| *at = at.replace(outermost, Expr::sym(var)));
        // There warps are counted from the first of the iteration.
        own.warps = None;
        own.met.clear();
        own.released.clear();
        for rel in own.conds.iter_mut().flatten() {
            [rel.lhs, rel.rhs] = [rel.lhs, rel.rhs].map(|side| side.replace(outermost, Expr::sym(var)));
        }
        own
    }

    /// Whether all that make the other access, which comes later, see what all that make this one did.
    fn meets(&self, other: &Access) -> bool {
        let (Some(own), Some(others)) = (self.warps, other.warps) else { return false };
        self.met.iter().chain(&other.met).any(|met| {
            let is_released = met.released.is_none_or(|released| self.released.contains(&released));
            is_released && met.from.contains(own) && met.to.contains(others)
        })
    }
}

/// The memories that copies in the background write, but those that rings give away.
fn written_behind(stmts: &[Stmt], buffers: &HashSet<Sym>) -> Vec<Mem> {
    let mut found = Vec::new();
    visit(stmts, &mut |stmt| {
        if let Stmt::Act(Act::Copy { to, is_async: true, .. }) = stmt
            && !found.contains(&to.mem)
            && !is_in_ring(&to.index, buffers)
        {
            found.push(to.mem);
        }
    });
    found
}

/// Whether an element is in a buffer that is acquired.
fn is_in_ring(index: &[Expr], buffers: &HashSet<Sym>) -> bool {
    index.iter().flat_map(|at| at.syms()).any(|sym| buffers.contains(&sym))
}

#[derive(Clone)]
struct Barriers {
    facts: Facts,
    shared: Vec<Mem>,
    /// Those that several blocks see.
    between: Vec<Mem>,
    /// Whether several blocks run a point.
    are_several: bool,
    /// Symbols that have one value in all that runs between barriers: in all of a kernel, or in an iteration of a loop over a level around.
    fixed: HashSet<Sym>,
    /// The memories that copies in the background write: as far as others can see, when their thread has waited for them.
    behind: Vec<Mem>,
    /// The buffers of rings, which order what is done to them.
    buffers: HashSet<Sym>,
    rings: Table<Ring, RingData>,
    /// All warps of a block, where some of them may meet.
    warps: Option<Warps>,
}

impl Barriers {
    /// The statements of a block, with what lets all threads that run it meet, given the accesses that are pending ahead of it.
    fn block(&self, stmts: Vec<Stmt>, mut meeting: Sync, pending: Vec<Access>) -> (Vec<Stmt>, Flow) {
        let (mut out, mut flow) = (Vec::new(), Flow { pending, ..Flow::default() });
        for stmt in stmts {
            if meeting == Sync::Elect {
                // Once, so not in a loop. Behind it is one block.
                let elect = self.meetings_before(&self.accesses([&stmt], Vec::new()), meeting, &mut flow);
                if !elect.is_empty() {
                    out.extend(elect);
                    meeting = Sync::Barrier(Level::Block);
                }
            }
            match stmt {
                Stmt::Loop(inner) if inner.kind.level().is_none() => {
                    self.repeated(inner, meeting, &mut flow, &mut out);
                }
                Stmt::If { cond, then, other } => {
                    // One barrier serves both bodies, and what is behind them.
                    let found = self.accesses(then.iter().chain(&other), Vec::new());
                    out.extend(self.meetings_before(&found, meeting, &mut flow));
                    let before = std::mem::take(&mut flow.pending);
                    let [then, other] = [then, other].map(|body| {
                        let (body, inner) = self.block(body, meeting, before.clone());
                        flow.join(inner);
                        body
                    });
                    out.push(Stmt::If { cond, then, other });
                }
                mut stmt @ (Stmt::Loop(_) | Stmt::Act(_)) => {
                    let found = self.accesses([&stmt], Vec::new());
                    out.extend(self.meetings_before(&found, meeting, &mut flow));
                    if let Stmt::Loop(Loop { kind, var, body, .. }) = &mut stmt
                        && let Some(level) = kind.level().filter(|level| level.has_threads())
                    {
                        let before = self.within_teams(&flow.pending, &found, *var);
                        let mut inner = std::mem::take(body);
                        if *kind == KernelLoopKind::Chain {
                            self.take_turns(*var, &mut inner);
                        }
                        let mut of_iteration = self.clone();
                        of_iteration.fixed.insert(*var);
                        *body = of_iteration.block(inner, Sync::Barrier(level), before).0;
                    }
                    if let Stmt::Act(Act::Sync(sync)) = stmt {
                        self.synced(sync, &mut flow);
                    }
                    if !flow.has_barrier {
                        let met = &flow.met;
                        flow.head.extend(found.iter().map(|own| Access { met: met.clone(), ..own.clone() }));
                    }
                    flow.pending.extend(found.into_iter().filter(|access| !access.is_behind));
                    let mut waits = false;
                    visit(std::slice::from_ref(&stmt), &mut |stmt| {
                        waits |= matches!(stmt, Stmt::Act(Act::Sync(Sync::Wait { .. })));
                    });
                    if waits {
                        flow.pending.extend(self.behind.iter().map(|&mem| Access::of_unknown(mem)));
                    }
                    out.push(stmt);
                }
            }
        }
        (out, flow)
    }

    /// What is ordered by an act that is there already.
    fn synced(&self, sync: Sync, flow: &mut Flow) {
        match sync {
            Sync::Await | Sync::Pass => flow.meet(),
            Sync::Release { ring, filling } => {
                let makes = self.rings[ring].making(filling);
                let is_own = |access: &&mut Access| access.warps.is_some_and(|own| makes.contains(own));
                let released = (ring, filling);
                flow.pending.iter_mut().filter(is_own).for_each(|access| access.released.push(released));
            }
            // Who acquires a buffer that is full sees all that was done before it was released, in the same iteration. The only buffer of a
            // ring was released as empty in the iteration before, one of several some iterations ago.
            Sync::Acquire { ring, filling, .. } => {
                let data = self.rings[ring];
                let released = Some((ring, filling)).filter(|_| filling == Filling::Empty);
                if data.buffers > 1 && released.is_some() {
                    return;
                }
                let meeting = Meeting { from: data.making(filling), to: data.waiting(filling), released };
                let is_released = |access: &&mut Access| access.released.contains(&(ring, filling));
                flow.pending.iter_mut().filter(is_released).for_each(|access| access.met.push(meeting));
                flow.met.push(meeting);
            }
            Sync::Barrier(_) | Sync::Warps(_) | Sync::Cluster | Sync::Elect => {}
            Sync::Commit | Sync::Wait { .. } | Sync::Kernels => {}
            Sync::CommitProducts | Sync::Products { .. } => {}
        }
    }

    /// Puts the turn of an iteration around what meets other iterations.
    fn take_turns(&self, var: Sym, body: &mut Vec<Stmt>) {
        let accesses = body.iter().map(|stmt| {
            let mut found = self.accesses([stmt], vec![(Level::Block.into(), var)]);
            found.retain(|access| self.between.contains(&access.mem));
            found
        });
        let accesses: Vec<Vec<Access>> = accesses.collect();
        let meets = |own: &&Vec<Access>| accesses.iter().any(|other| self.conflict(own, other));
        let first = accesses.iter().position(|own| meets(&own));
        let last = accesses.iter().rposition(|own| meets(&own));
        if let (Some(first), Some(last)) = (first, last) {
            body.insert(last + 1, Stmt::Act(Act::Sync(Sync::Pass)));
            body.insert(first, Stmt::Act(Act::Sync(Sync::Await)));
        }
    }

    /// The statements of an iteration, behind whose end is the beginning of the next: accesses there wait for those here. `next` says how an access looks from
    /// the iteration beside its own. None where that touches other elements.
    fn iterated(
        &self,
        stmts: &[Stmt],
        meeting: Sync,
        before: Vec<Access>,
        next: &dyn Fn(&Access) -> Option<Access>,
    ) -> (Vec<Stmt>, Flow) {
        let once = |before: Vec<Access>| {
            let (mut body, mut inside) = self.block(stmts.to_vec(), meeting, before);
            let head: Vec<Access> = inside.head.iter().filter_map(next).collect();
            body.extend(self.meetings_before(&head, meeting, &mut inside));
            (body, inside, head)
        };
        let (body, inside, head) = once(before.clone());
        // Warps wait for themselves alone, within the next iteration.
        let is_of_team =
            |one: &Access| head.iter().any(|other| self.is_apart(one, other) && self.is_of_team(one, other));
        let earlier: Vec<Access> = inside.pending.iter().filter_map(next).filter(is_of_team).collect();
        if earlier.is_empty() {
            return (body, inside);
        }
        let earlier = earlier.into_iter().map(|access| Access { is_earlier: true, ..access });
        let (body, inside, _) = once(before.into_iter().chain(earlier).collect());
        (body, inside)
    }

    /// A loop that all threads run together.
    fn repeated(&self, mut inner: Loop, meeting: Sync, flow: &mut Flow, out: &mut Vec<Stmt>) {
        let body = std::mem::take(&mut inner.body);
        let is_again = inner.extent.as_int().is_none_or(|extent| extent > 1);
        let mut inside = self.clone();
        inside.facts.declare_index(inner.var, inner.extent);
        let next = |access: &Access| is_again.then(|| access.clone());
        let repeat = |before: Vec<Access>| inside.iterated(&body, meeting, before, &next);
        let (mut body, mut inside) = repeat(flow.pending.clone());
        if inside.has_barrier && meeting != Sync::Elect {
            // One ahead of the loop, if no iteration waits for another.
            let (other, alone) = repeat(Vec::new());
            if !alone.has_barrier {
                out.push(Stmt::Act(Act::Sync(meeting)));
                flow.meet();
                (body, inside) = (other, alone);
            }
        }
        // Where it does not run, what was pending still is.
        let may_skip = inner.extent.as_int().is_none_or(|extent| extent < 1);
        if !may_skip {
            flow.pending.clear();
        }
        flow.join(inside);
        inner.body = body;
        out.push(Stmt::Loop(inner));
    }

    /// Meetings, where accesses that come next have to wait for pending ones: of all threads, or in a kernel with rings of the warps that
    /// have to wait for each other.
    fn meetings_before(&self, next: &[Access], meeting: Sync, flow: &mut Flow) -> Vec<Stmt> {
        let (mut is_any, mut among) = (false, Some(Vec::new()));
        for [one, other] in self.conflicts(&flow.pending, next) {
            is_any = true;
            let both = one.warps.and_then(|own| Some(own.join(other.warps?)));
            among = among.zip(both).map(|(among, both)| with(among, both));
        }
        if !is_any {
            return Vec::new();
        }
        if let (Some(all), Some(among), Sync::Barrier(Level::Block)) = (self.warps, among, meeting)
            && among != [all]
        {
            among.iter().for_each(|&warps| flow.meet_among(warps));
            return among.into_iter().map(|warps| Stmt::Act(Act::Sync(Sync::Warps(warps)))).collect();
        }
        flow.meet();
        vec![Stmt::Act(Act::Sync(meeting))]
    }

    /// The accesses of statements that nothing but these threads is around.
    fn accesses<'s>(
        &self,
        stmts: impl IntoIterator<Item = &'s Stmt>,
        threads: Vec<(Team, Sym)>,
    ) -> Vec<Access> {
        let around = Around { threads, axes: Vec::new(), conds: Some(Vec::new()), warps: None };
        let mut found = Vec::new();
        stmts.into_iter().for_each(|stmt| self.gather(stmt, &around, &mut found));
        found
    }

    /// Adds the accesses of a statement.
    fn gather(&self, stmt: &Stmt, around: &Around, found: &mut Vec<Access>) {
        let is_atomic = matches!(stmt, Stmt::Act(Act::Store { atomic: true, .. }));
        let own =
            stmt.loaded().map(|access| (access, false)).chain(stmt.stored().map(|access| (access, true)));
        let is_seen =
            |mem: Mem, index: &[Expr]| self.shared.contains(&mem) && !is_in_ring(index, &self.buffers);
        for ((mem, index), is_store) in own.filter(|((mem, index), _)| is_seen(*mem, index)) {
            let Around { threads, axes, conds, warps } = around.clone().where_all(guards(stmt, is_store));
            let width = width(stmt, is_store);
            // Copies count runs.
            let index = index.iter().map(|&at| at * width.unwrap_or(1)).collect();
            let is_behind = is_store && matches!(stmt, Stmt::Act(Act::Copy { is_async: true, .. }));
            let is_all_stores = is_store && threads.is_empty();
            found.push(Access {
                mem,
                index,
                width,
                is_store,
                is_atomic,
                is_behind,
                is_all_stores,
                threads,
                axes,
                conds,
                warps,
                met: Vec::new(),
                released: Vec::new(),
                is_earlier: false,
            });
        }
        let gather = |stmts: &[Stmt], around: &Around, found: &mut Vec<Access>| {
            stmts.iter().for_each(|inner| self.gather(inner, around, found));
        };
        match stmt {
            Stmt::Loop(Loop { kind, var, extent, body }) => {
                let mut around = around.clone();
                if let Stmt::Loop(inner) = stmt
                    && !around.threads.iter().any(|(team, _)| team.level.has_threads())
                {
                    around.warps = Warps::of(inner);
                }
                around.axes.push(Axis { var: *var, extent: *extent });
                if let Some(team) = kind.team() {
                    around.threads.push((team, *var));
                    around = around.where_all(&[Rel::lt(Expr::sym(*var), *extent)]);
                } else if extent.as_int().is_none_or(|extent| extent < 1) {
                    around = around.where_all(&[Rel::lt(0, *extent)]);
                }
                gather(body, &around, found);
            }
            Stmt::If { cond, then, other } => {
                gather(then, &around.clone().where_all(cond), found);
                let elsewhere = match &cond[..] {
                    [cond] => around.clone().where_all(&[cond.negate()]),
                    _ => Around { conds: None, ..around.clone() },
                };
                gather(other, &elsewhere, found);
            }
            Stmt::Act(_) => {}
        }
    }

    /// Whether an access has to wait for an earlier one of another thread.
    fn conflict(&self, earlier: &[Access], later: &[Access]) -> bool {
        self.conflicts(earlier, later).next().is_some()
    }

    /// The accesses that have to wait for earlier ones of other threads, with these.
    fn conflicts<'s>(
        &self,
        earlier: &'s [Access],
        later: &'s [Access],
    ) -> impl Iterator<Item = [&'s Access; 2]> {
        let pairs = earlier.iter().flat_map(move |one| later.iter().map(move |other| [one, other]));
        pairs.filter(|[one, other]| {
            !one.is_earlier && self.is_apart(one, other) && !self.is_of_team(one, other)
        })
    }

    /// Whether two accesses are of one memory that one of them stores to, by different threads that have not met since.
    fn is_apart(&self, one: &Access, other: &Access) -> bool {
        one.mem == other.mem
            && (one.is_store || other.is_store)
            && !(one.is_atomic && other.is_atomic)
            && !one.meets(other)
            && !self.is_same_thread(one, other)
    }

    /// Whether two accesses are of threads of one warp or warpgroup, in a loop of which the later one is, as the element says, or there is one alone.
    fn is_of_team(&self, one: &Access, other: &Access) -> bool {
        let ([(own, _), ..], [(others, _), ..]) = (&one.threads[..], &other.threads[..]) else {
            return false;
        };
        // Each of several blocks has a warp of that number.
        let is_one = !self.are_several || !self.between.contains(&one.mem);
        let is_team = matches!(own.level, Level::Warpgroup | Level::Warp) && own.each == 1;
        let is_only_one = [one, other].iter().all(|access| {
            let (_, var) = access.threads[0];
            access.axes.iter().any(|axis| axis.var == var && axis.extent.is_one())
        });
        is_one && is_team && own == others && (is_only_one || self.is_told_by_element(one, other))
    }

    /// The accesses that later ones by other threads of their warp or warpgroup have to wait for, as seen from one of these, in a loop of the
    /// variable `var`.
    fn within_teams(&self, earlier: &[Access], later: &[Access], var: Sym) -> Vec<Access> {
        let is_waited_for = |one: &&Access| {
            later.iter().any(|other| self.is_apart(one, other) && self.is_of_team(one, other))
        };
        let found = earlier.iter().filter(is_waited_for);
        found.map(|one| Access { is_earlier: false, ..one.within(var) }).collect()
    }

    /// Whether the thread that touches an element is the same one for both.
    fn is_same_thread(&self, one: &Access, other: &Access) -> bool {
        // One thread makes the stores of all, or of a warp or warpgroup.
        let is_by_first = |access: &Access| {
            let count = match access.threads[..] {
                [(Team { level: Level::Warp, .. }, _)] => 1,
                [(Team { level: Level::Warpgroup, .. }, _)] => Gpu::WARPGROUP / Gpu::LANES,
                _ => return false,
            };
            access.is_store && access.warps.is_some_and(|warps| warps.count == count)
        };
        let is_first = is_by_first(one) && is_by_first(other) && one.warps == other.warps;
        if one.is_all_stores && other.is_all_stores || is_first {
            return true;
        }
        let is_alike = |((a, _), (b, _)): (&(Team, Sym), &(Team, Sym))| a == b;
        let threads = one.threads.iter().zip(&other.threads);
        // Of threads that run an iteration together the first one stores, but all load.
        let is_alone = |(team, _): &(Team, Sym)| !team.level.has_threads();
        let is_one = one.is_store && other.is_store || one.threads.last().is_some_and(is_alone);
        if one.threads.is_empty()
            || one.threads.iter().any(|(team, _)| team.each > 1)
            || one.threads.len() != other.threads.len()
            || !threads.clone().all(is_alike)
            || one.width.is_none()
            || other.width.is_none()
            || !is_one
        {
            return false;
        }
        if one.threads.len() == 1 && self.is_told_by_element(one, other) {
            return true;
        }
        let renamed =
            |sym: Sym| threads.clone().find(|(_, theirs)| theirs.1 == sym).map(|(own, _)| Expr::sym(own.1));
        let is_known =
            |sym: Sym| self.fixed.contains(&sym) || one.threads.iter().any(|thread| thread.1 == sym);
        let here = |rel: &Rel| Rel { lhs: rel.lhs.subst(&renamed), rhs: rel.rhs.subst(&renamed), ..*rel };
        let conds = |access: &Access, here: &dyn Fn(&Rel) -> Rel| -> Option<Vec<Rel>> {
            access.conds.as_ref().map(|conds| conds.iter().map(here).collect())
        };
        let sides = [(one, conds(one, &|rel| *rel)), (other, conds(other, &here))];
        // Whoever makes the one access makes the store.
        let is_owner = |(store, of_store): &(&Access, Option<Vec<Rel>>), all: &Option<Vec<Rel>>| {
            let (Some(asked), Some(all)) = (of_store, all) else { return false };
            let is_met = |rel: &Rel| {
                all.contains(rel) && [rel.lhs, rel.rhs].iter().flat_map(|e| e.syms()).all(is_known)
            };
            store.is_store && !store.is_atomic && asked.iter().all(is_met)
        };
        let is_owned = is_owner(&sides[0], &sides[1].1) || is_owner(&sides[1], &sides[0].1);
        // No two threads store to one element between barriers. So where as many elements are accessed and the index of a store mentions the variables of all
        // threads, an equal index at the other access is that of the same thread.
        is_owned
            && one.width == other.width
            && one.index.iter().zip(&other.index).all(|(&a, b)| a == b.subst(&renamed))
            && one.index.iter().flat_map(|at| at.syms()).all(is_known)
            && one.threads.iter().all(|thread| one.index.iter().any(|at| at.has_sym(thread.1)))
    }
}

/// How many elements follow each other that the loads of a statement are of, or its stores. None where they are here and there, or as many
/// as an instruction takes.
fn width(stmt: &Stmt, is_store: bool) -> Option<i64> {
    let Stmt::Act(act) = stmt else { return None };
    if let Act::Copy { count, .. } = act {
        return Some(i64::from(*count));
    }
    let is_one = matches!(act, Act::Let { op: Op::Load { .. }, .. } | Act::Store { .. } | Act::MulAdd { .. });
    let stores_one = is_store && matches!(act, Act::ArgStore { .. } | Act::Lanes(_));
    (is_one || stores_one).then_some(1)
}

impl Around {
    /// Where more holds.
    fn where_all(mut self, rels: &[Rel]) -> Around {
        self.conds.iter_mut().for_each(|conds| conds.extend(rels));
        self
    }
}

/// Warps that meet, with some more: those that have warps in common meet together.
fn with(among: Vec<Warps>, more: Warps) -> Vec<Warps> {
    let (together, mut apart): (Vec<Warps>, Vec<Warps>) =
        among.into_iter().partition(|own| own.overlaps(more));
    let joined = together.into_iter().fold(more, Warps::join);
    match apart.iter().any(|own| own.overlaps(joined)) {
        true => with(apart, joined),
        false => {
            apart.push(joined);
            apart
        }
    }
}

/// What has to hold for the loads of a statement to happen, or its stores.
fn guards(stmt: &Stmt, is_store: bool) -> &[Rel] {
    match (stmt, is_store) {
        (Stmt::Act(Act::Let { op: Op::Load { guard, .. }, .. }), false)
        | (Stmt::Act(Act::Store { guard, .. } | Act::MulAdd { guard, .. }), true) => guard,
        (Stmt::Act(Act::Copy { from, .. }), false) => &from.guard,
        (Stmt::Act(Act::Copy { to, .. }), true) => &to.guard,
        _ => &[],
    }
}
