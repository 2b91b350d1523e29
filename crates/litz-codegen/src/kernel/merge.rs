//! Lowers merges: what the accumulators of an inner scope have is combined with those of the scope around.
//!
//! Where no loop over a level is between the two scopes, that is a statement. Iterations of a loop over a level run at once, so there each
//! leaves what it has in an element of its own, and the elements are combined behind the loop, in an order that the kernel says. Two calls
//! have the same bits. Lanes keep theirs in registers, and a warp combines them as the lanes of a vector are combined; everything else
//! keeps them in shared memory, where threads read them one after another:
//!
//! ```text
//! register sum over warps and lanes            thread t in 256 {
//!   thread t in 256 {                            part = ...
//!     part = ...                          =>     parts[t] = part
//!     sum merges part                          }
//!   }                                          warp w in 8 { warps[w] = 0; warps[w] sum= lanes of parts[32*w] by 32 }
//!                                              barrier block
//!                                              for w in 8 { sum sum= warps[w] }
//! ```
//!
//! Each thread that runs the last loop has the result, the same one, so a register that all threads hold may take it. Elements of threads
//! that have no part in it hold what changes nothing.
//!
//! Lanes of which each few have one element, as `floordiv(l, 4)` is the row of four, are combined among these, which alone have the result:
//! `lane row in 8 by 4 { sum[row] sum= lanes of parts[4*row] by 4 }`.

use super::accumulator::{Accumulator, store};
use super::{Around, Builder, Env};
use litz_analysis::inside::longest;
use litz_analysis::together::lanes_together;
use litz_ir::kernel::{Act, KernelLoopKind, LaneReduction, Loop, Mem, MemorySpace, Op, Stmt};
use litz_ir::loops::{Axis, Nest};
use litz_ir::schedule::Leaf;
use litz_ir::target::{Gpu, Level, Team};
use litz_ir::{Diag, Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel, Sym};

/// What stands around a loop over a level, to combine what its iterations have.
pub(super) struct Meeting {
    /// How many loops and branches are around the loop.
    depth: usize,
    /// Ahead of it: elements get what changes nothing.
    before: Vec<Stmt>,
    /// Behind it: what the lanes of each warp have is combined.
    lanes: Vec<Stmt>,
    /// Behind that: what is left is combined with the accumulator.
    rest: Vec<Stmt>,
}

/// The loops between two scopes of accumulators, from the outermost loop over a level whose iterations are combined.
struct Between {
    /// In order, without those that repeat what one thread does to one element.
    loops: Vec<(Role, KernelLoopKind, Axis)>,
    /// Whether an iteration comes to the merge once, not several times and not sometimes.
    is_once: bool,
}

/// What iterations of a loop have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// An element of the outer accumulator each.
    Kept,
    /// They are threads, of which so many side by side are combined.
    Lanes(u32),
    /// They are of another level, and are combined.
    Units,
    /// One element, one after another.
    Repeated,
}

impl Between {
    fn kept(&self) -> impl DoubleEndedIterator<Item = (KernelLoopKind, Axis)> {
        self.loops.iter().filter(|around| around.0 == Role::Kept).map(|&(_, kind, axis)| (kind, axis))
    }

    fn units(&self) -> impl DoubleEndedIterator<Item = (KernelLoopKind, Axis)> {
        self.loops.iter().filter(|around| around.0 == Role::Units).map(|&(_, kind, axis)| (kind, axis))
    }

    /// The loop over threads that are combined, and how many of them at a time.
    fn lanes(&self) -> Option<(Level, Axis, u32)> {
        self.loops.iter().find_map(|&(role, kind, axis)| match role {
            Role::Lanes(group) => Some((kind.level()?, axis, group)),
            Role::Kept | Role::Units | Role::Repeated => None,
        })
    }
}

/// How an element gets a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Whatever it has.
    Put,
    /// With what it has.
    Combine,
}

/// Elements that iterations leave what they have in.
#[derive(Clone, Copy)]
struct Parts {
    mem: Mem,
    /// Memory of the positions of the best values.
    at: Option<Mem>,
}

impl<'a> Builder<'a> {
    /// Combines the accumulators that are declared innermost with those declared next around.
    pub(super) fn merge(
        &mut self,
        nest: &'a Nest,
        leaf: &'a Leaf,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let mut around = env.accumulators.iter().rev().filter(|(name, _)| *name == nest.name);
        let (Some((_, blocks)), Some((_, totals))) = (around.next(), around.next()) else {
            return Err(self.error(format!("{} merges accumulators before their init", nest.name)));
        };
        let guards = self.guards(leaf, nest, env)?;
        // Each declaration has an accumulator for each reduction of the nest, in the order of its body.
        for (block, total) in blocks.iter().zip(&**totals) {
            let index = total.index(leaf, &env.facts);
            match self.between(&env.path, total, &index) {
                Some((depth, between)) => {
                    self.merge_at_once((block, total), leaf, (depth, &between), &guards, env, out)?;
                }
                None => {
                    let guard = total.guard_of(leaf, &guards, &env.facts);
                    self.combine(block, leaf, env, &guards, (total, index, guard, How::Combine), out);
                }
            }
        }
        Ok(())
    }

    /// Combines an accumulator with an element of another, or puts it there, where a guard holds.
    fn combine(
        &mut self,
        block: &Accumulator,
        leaf: &Leaf,
        env: &Env<'a>,
        guards: &[Rel],
        (total, index, guard, how): (&Accumulator, Vec<Expr>, Vec<Rel>, How),
        out: &mut Vec<Stmt>,
    ) {
        let (from, from_guard) = (block.index(leaf, &env.facts), block.guard_of(leaf, guards, &env.facts));
        if block.at.is_some() {
            let parts = Parts { mem: block.mem, at: block.at };
            out.push(guarded([from_guard, guard].concat(), reduction(total, index, (parts, from), 1)));
            return;
        }
        let dtype = self.kernel.mems[block.mem].dtype;
        let val = self.value(dtype);
        let other = total.op.identity(dtype);
        let load = Op::Load { mem: block.mem, index: from, guard: from_guard, other };
        out.push(Stmt::Act(Act::Let { val, op: load }));
        out.push(store(total.mem, index, val, (how == How::Combine).then_some(total.op), guard));
    }

    /// The loops between accumulators and a merge into an element of them, if iterations of one over a level are combined; and how many
    /// loops and branches are around that one.
    fn between(&self, path: &[Around], total: &Accumulator, index: &[Expr]) -> Option<(usize, Between)> {
        let depth = total.depth;
        let is_kept = |axis: &Axis| index.iter().any(|e| e.has_sym(axis.var));
        // A thread that has the element in a loop of one iteration, which no element tells from others, is no part of what it combines.
        let owners = path.iter().enumerate().skip(depth).filter(|(_, around)| around.is_level());
        let owners = owners.take(self.owners.get(&total.mem).copied().unwrap_or(0));
        let is_alone = |(at, around): (usize, &Around)| match around {
            Around::Loop(_, axis) => !is_kept(axis) && owners.clone().any(|owner| owner.0 == at),
            Around::Branch => false,
        };
        let role = |kind: KernelLoopKind, axis: &Axis| match kind {
            KernelLoopKind::Level(Team { level: Level::Lane | Level::Thread, each: 1, .. }) => {
                let group = lanes_together(*axis, index, &self.loops.facts);
                if group > 1 { Role::Lanes(group) } else { Role::Kept }
            }
            _ if is_kept(axis) => Role::Kept,
            KernelLoopKind::Level(_) => Role::Units,
            KernelLoopKind::For
            | KernelLoopKind::Unroll
            | KernelLoopKind::Vector { .. }
            | KernelLoopKind::Pipeline { .. }
            | KernelLoopKind::Chain
            | KernelLoopKind::Search
            | KernelLoopKind::Mma { .. } => Role::Repeated,
        };
        let is_combined = |around: &Around| match around {
            Around::Loop(kind, axis) => matches!(role(*kind, axis), Role::Lanes(_) | Role::Units),
            Around::Branch => false,
        };
        let mut inside = path.iter().enumerate().skip(depth).filter(|&around| !is_alone(around));
        let first = inside.find(|(_, around)| is_combined(around))?.0;
        let mut between = Between { loops: Vec::new(), is_once: true };
        for (_, around) in path.iter().enumerate().skip(first).filter(|&around| !is_alone(around)) {
            match *around {
                Around::Loop(kind, axis) if role(kind, &axis) != Role::Repeated => {
                    between.loops.push((role(kind, &axis), kind, axis));
                }
                Around::Loop(..) | Around::Branch => between.is_once = false,
            }
        }
        Some((first, between))
    }

    /// Leaves what iterations of loops over levels have in elements of their own, and notes how these are combined.
    fn merge_at_once(
        &mut self,
        (block, total): (&Accumulator, &Accumulator),
        leaf: &'a Leaf,
        (depth, between): (usize, &Between),
        guards: &[Rel],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let Between { loops, is_once } = between;
        let (index, units, lanes) = (total.index(leaf, &env.facts), between.units(), between.lanes());
        let units: Vec<(KernelLoopKind, Axis)> = units.collect();
        // Lanes of one group have elements side by side, whichever group they are of.
        let first_of = |e: Expr, at: Expr| match lanes {
            Some((_, lane, _)) => env.facts.simplify(e.subst(&|sym| (sym == lane.var).then_some(at))),
            None => e,
        };
        // Units have rows of their own, so that threads side by side have elements in banks side by side.
        let row_of = |units: &[(KernelLoopKind, Axis)]| {
            units.iter().map(|unit| Expr::sym(unit.1.var)).collect::<Vec<_>>()
        };
        let first = index.iter().map(|&e| first_of(e, Expr::zero()));
        let own: Vec<Expr> = row_of(&units).into_iter().chain(first).collect();
        let sizes = self.sizes_of(&units, total)?;
        // Blocks of a cluster see what the accumulator is in.
        let is_of_blocks = units.iter().any(|unit| unit.0.level() == Some(Level::Block));
        let shared = if is_of_blocks { self.kernel.mems[total.mem].space } else { MemorySpace::Shared };
        let mut meeting = Meeting { depth, before: Vec::new(), lanes: Vec::new(), rest: Vec::new() };

        // What each iteration has. A warp has elements for all its lanes, of which a loop may leave some out.
        let mut all = loops.clone();
        let (parts, at) = match lanes {
            Some((_, axis, _)) => {
                let most = self.most_of(&axis)?.as_int().map_or(0, |most| u64::try_from(most).unwrap_or(0));
                let padded = Expr::int(most.max(1).next_multiple_of(u64::from(Gpu::LANES)) as i64);
                all.iter_mut()
                    .filter(|around| around.2.var == axis.var)
                    .for_each(|around| around.2.extent = padded);
                let parts =
                    self.parts_of(total, [sizes.clone(), vec![padded]].concat(), MemorySpace::Register);
                (parts, [own.clone(), vec![Expr::sym(axis.var)]].concat())
            }
            None => (self.parts_of(total, sizes.clone(), shared), own.clone()),
        };
        let kept: Vec<(KernelLoopKind, Axis)> = between.kept().collect();
        let gone: Vec<Sym> =
            loops_of(&env.path[depth..]).filter(|var| !kept.iter().any(|kept| kept.1.var == *var)).collect();
        let is_of_gone =
            |rel: &Rel| gone.iter().any(|&var| [rel.lhs, rel.rhs].iter().any(|e| e.has_sym(var)));
        let how = if total.at.is_none() && *is_once { How::Put } else { How::Combine };
        // Elements that a guard leaves out are combined all the same, unless that is what guards the accumulator's element, or that element is
        // nobody's.
        let guard_of_total = total.guard_of(leaf, guards, &env.facts);
        if all != *loops || how == How::Combine || guards.iter().any(is_of_gone) {
            let empty = self.empty(total.op, parts, at.clone());
            meeting.before.extend(nested(all.iter().map(|&(_, kind, axis)| (kind, axis)), empty));
        }
        let left = Accumulator { mem: parts.mem, at: parts.at, ..total.clone() };
        let is_needed = |rel: &&Rel| is_of_gone(rel) || guard_of_total.contains(rel);
        let needed: Vec<Rel> = guards.iter().filter(is_needed).copied().collect();
        self.combine(block, leaf, env, guards, (&left, at, needed, how), out);

        // What is left of loops, and of what guards the element of the accumulator, whatever the iterations are that are combined.
        let (mut kept, mut index, mut guard) = (kept, index, guard_of_total.clone());
        let mut lane = None;
        if let Some((level, axis, group)) = lanes {
            let mut first = Expr::zero();
            if group < Gpu::LANES {
                let var = self.variable(&format!("{}_group", axis.var));
                let groups = Axis { var, extent: env.facts.simplify(axis.extent.ceildiv(i64::from(group))) };
                let kind = if level == Level::Lane {
                    KernelLoopKind::Level(Team { level, from: 0, each: group })
                } else if groups.extent.as_int().is_some() {
                    KernelLoopKind::Unroll
                } else {
                    KernelLoopKind::For
                };
                first = Expr::sym(var) * i64::from(group);
                index.iter_mut().for_each(|e| *e = first_of(*e, first));
                guard.iter_mut().for_each(|rel| {
                    *rel = Rel { lhs: first_of(rel.lhs, first), rhs: first_of(rel.rhs, first), ..*rel }
                });
                // Lanes have no threads of their own, so their loop may be around all others that are left.
                kept.insert(0, (kind, groups));
            }
            lane = Some((level, axis, group, first));
        }
        guard.retain(|rel| !is_of_gone(rel));

        // What lanes have together.
        let (from, rows) = match lane {
            None => (parts, units),
            Some((Level::Lane, _, group, first)) if units.is_empty() => {
                let merged = reduction(total, index, (parts, [own, vec![first]].concat()), group);
                meeting.rest.extend(nested(kept.into_iter(), vec![guarded(guard, merged)]));
                self.meetings.push(meeting);
                return Ok(());
            }
            Some((level, axis, group, mut first)) => {
                // A loop over threads is one over warps, of lanes.
                let warps = (level == Level::Thread).then(|| {
                    let var = self.variable(&format!("{}_warp", axis.var));
                    Axis { var, extent: env.facts.simplify(axis.extent.ceildiv(i64::from(Gpu::LANES))) }
                });
                first = warps.map_or(first, |warp| Expr::sym(warp.var) * i64::from(Gpu::LANES));
                let warps = warps.map(|warp| (KernelLoopKind::Level(Level::Warp.into()), warp));
                let rows: Vec<(KernelLoopKind, Axis)> = units.into_iter().chain(warps).collect();
                let place = [row_of(&rows), index.clone()].concat();
                let sizes = self.sizes_of(&rows, total)?;
                let of_warps = self.parts_of(total, sizes, shared);
                let mut body = self.empty(total.op, of_warps, place.clone());
                let left = Accumulator { mem: of_warps.mem, at: of_warps.at, ..total.clone() };
                body.push(reduction(&left, place.clone(), (parts, [own, vec![first]].concat()), group));
                // Levels in the order that they have in each other.
                let is_level = |around: &&(KernelLoopKind, Axis)| around.0.level().is_some();
                let outer: Vec<(KernelLoopKind, Axis)> = loops
                    .iter()
                    .filter(|around| matches!(around.0, Role::Kept | Role::Units))
                    .map(|&(_, kind, axis)| (kind, axis))
                    .collect();
                let inner =
                    kept.iter().filter(|around| !is_level(around) && !outer.contains(around)).copied();
                let around: Vec<(KernelLoopKind, Axis)> =
                    outer.iter().copied().chain(warps).chain(inner).collect();
                meeting.lanes.extend(nested(around.into_iter(), body));
                (of_warps, rows)
            }
        };

        // One after another, in the order of their numbers.
        let place = [row_of(&rows), index.clone()].concat();
        let merged = guarded(guard, reduction(total, index, (from, place), 1));
        let has_warps = kept.iter().any(|around| around.0.level().is_some_and(|level| level != Level::Lane));
        let kept = kept.into_iter().map(|(kind, axis)| match kind.level() {
            // Lanes of warps that are no longer told apart.
            Some(Level::Lane) if !has_warps => (KernelLoopKind::Level(Level::Thread.into()), axis),
            _ => (kind, axis),
        });
        let rows = rows.into_iter().map(|(_, axis)| match axis.extent.as_int() {
            Some(_) => (KernelLoopKind::Unroll, axis),
            None => (KernelLoopKind::For, axis),
        });
        let around: Vec<(KernelLoopKind, Axis)> = kept.chain(rows).collect();
        meeting.rest.extend(nested(around.into_iter(), vec![merged]));
        self.meetings.push(meeting);
        Ok(())
    }

    /// Puts out a loop that so many loops and branches are around, with what combines what its iterations have.
    pub(super) fn meet(&mut self, depth: usize, inner: Stmt, out: &mut Vec<Stmt>) {
        let first =
            self.meetings.iter().position(|meeting| meeting.depth >= depth).unwrap_or(self.meetings.len());
        let mut here = self.meetings.split_off(first);
        here.iter_mut().for_each(|meeting| out.append(&mut meeting.before));
        out.push(inner);
        here.iter_mut().for_each(|meeting| out.append(&mut meeting.lanes));
        here.iter_mut().for_each(|meeting| out.append(&mut meeting.rest));
    }

    /// Most iterations of a loop over a level.
    fn most_of(&self, axis: &Axis) -> Result<Expr, Diag> {
        let most = longest(axis.extent);
        match most.as_int() {
            Some(_) => Ok(most),
            None => Err(self.error(format!(
                "loop {}: what its iterations have is merged, so at most a constant",
                axis.var
            ))),
        }
    }

    /// Sizes of memory with a row of the accumulator's elements for each unit.
    fn sizes_of(&self, units: &[(KernelLoopKind, Axis)], total: &Accumulator) -> Result<Vec<Expr>, Diag> {
        let rows = units.iter().map(|(_, axis)| self.most_of(axis));
        rows.chain(total.shape.sizes().into_iter().map(Ok)).collect()
    }

    /// Elements for what is combined with an accumulator.
    fn parts_of(&mut self, total: &Accumulator, sizes: Vec<Expr>, space: MemorySpace) -> Parts {
        let mut like = |of: Mem| {
            let (name, dtype) = (format!("{}_parts", self.kernel.mems[of].name), self.kernel.mems[of].dtype);
            self.local(&name, dtype, sizes.clone(), space)
        };
        Parts { mem: like(total.mem), at: total.at.map(&mut like) }
    }

    /// Statements that put what changes nothing into an element.
    fn empty(&mut self, op: ReduceOp, parts: Parts, index: Vec<Expr>) -> Vec<Stmt> {
        let mut out = Vec::new();
        let dtype = self.kernel.mems[parts.mem].dtype;
        let firsts = [(Some(parts.mem), dtype, op.identity(dtype)), (parts.at, Dtype::I64, Scalar::Int(0))];
        for (mem, dtype, first) in firsts {
            let Some(mem) = mem else { continue };
            let val = self.value(dtype);
            out.push(Stmt::Act(Act::Let { val, op: Op::Const(first) }));
            out.push(store(mem, index.clone(), val, None, Vec::new()));
        }
        out
    }

    /// A variable that no loop of the plan has.
    fn variable(&self, name: &str) -> Sym {
        let mut name = name.to_owned();
        let taken = self.plan.syms();
        while taken.contains(&Sym::new(&name)) {
            name.push('_');
        }
        Sym::new(&name)
    }
}

/// The variables of loops.
fn loops_of(path: &[Around]) -> impl Iterator<Item = Sym> {
    path.iter().filter_map(|around| match around {
        Around::Loop(_, axis) => Some(axis.var),
        Around::Branch => None,
    })
}

/// Combines so many elements, which are side by side, and then the result with an element of an accumulator.
fn reduction(into: &Accumulator, index: Vec<Expr>, (from, first): (Parts, Vec<Expr>), lanes: u32) -> Stmt {
    let positions = into.at.zip(from.at).map(|(at, places)| [at, places]);
    Stmt::Act(Act::Lanes(LaneReduction {
        op: into.op,
        into: into.mem,
        from: from.mem,
        positions,
        index,
        first,
        lanes,
        copies: 1,
        atomic: false,
    }))
}

/// Loops around statements, outermost first.
fn nested(loops: impl DoubleEndedIterator<Item = (KernelLoopKind, Axis)>, body: Vec<Stmt>) -> Vec<Stmt> {
    loops.rev().fold(body, |body, (kind, axis)| {
        vec![Stmt::Loop(Loop { kind, var: axis.var, extent: axis.extent, body })]
    })
}

/// A statement where all of `guard` hold.
fn guarded(guard: Vec<Rel>, stmt: Stmt) -> Stmt {
    match guard.is_empty() {
        true => stmt,
        false => Stmt::If { cond: guard, then: vec![stmt], other: Vec::new() },
    }
}
