//! Inserts barriers between a store and an access of the same memory by another thread.
//!
//! What follows a loop over a level begins when all its iterations are done, as far as it can notice: a barrier is needed where
//! one thread's store meets another's access, and nowhere else. So accesses are gathered since the last barrier, and
//! the next one is put ahead of the first statement that conflicts with them. The end of a sequential loop is
//! followed by its beginning. An access at the index of a store, by the same thread, needs none: what no two threads store
//! to belongs to the one that does. It does if it makes that store, too: where all holds that the store asks for.
//!
//! Several blocks of a grid point meet as a cluster does, or once, where the last one is elected: see [`Blocks`].
//!
//! Iterations of a chain run one after another from the first statement that conflicts with another iteration to the last one.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Blocks, Kernel, Loop, LoopKind, Mem, Op, Space, Stmt, Sync, visit};
use litz_ir::target::{Level, Target, Team};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "sync", run };

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if !has_levels(&kernel.body) {
        return Ok(());
    }
    let shared: Vec<Mem> =
        kernel.mems.iter().filter(|(_, data)| data.space.is_shared()).map(|mem| mem.0).collect();
    let fixed = kernel.sizes.iter().copied().chain(kernel.grid.iter().map(|axis| axis.var)).collect();
    let is_blocks_own = |mem: &Mem| kernel.mems[*mem].space == Space::Shared;
    let between = shared.iter().copied().filter(|mem| !is_blocks_own(mem)).collect();
    let barriers = Barriers { shared, between, fixed, behind: written_behind(&kernel.body) };
    let top = match kernel.blocks() {
        Blocks::One => Sync::Barrier(Level::Block),
        Blocks::Cluster => Sync::Cluster,
        Blocks::Many => Sync::Elect,
    };
    let body = std::mem::take(&mut kernel.body);
    kernel.body = barriers.block(without_barriers(body), top, Vec::new()).0;
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
        Stmt::Act(Act::Sync(sync)) => matches!(sync, Sync::Commit | Sync::Wait { .. }),
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
    index: Vec<Expr>,
    is_store: bool,
    /// A combining store, which others may do at once.
    is_atomic: bool,
    /// A store that happens in the background.
    is_behind: bool,
    /// A store that all threads of the team come to.
    is_all_stores: bool,
    /// The loops over levels around it, within the statement.
    threads: Vec<(Team, Sym)>,
    /// What holds where it happens. None where that is not known.
    conds: Option<Vec<Rel>>,
}

/// What is around a statement.
#[derive(Clone)]
struct Around {
    threads: Vec<(Team, Sym)>,
    conds: Option<Vec<Rel>>,
}

impl Access {
    /// A store by no thread in particular.
    fn of_unknown(mem: Mem) -> Access {
        let (index, threads) = (Vec::new(), Vec::new());
        Access {
            mem,
            index,
            is_store: true,
            is_atomic: false,
            is_behind: false,
            is_all_stores: false,
            threads,
            conds: None,
        }
    }
}

/// What happens in a block.
#[derive(Default)]
struct Flow {
    /// Accesses since the last barrier.
    pending: Vec<Access>,
    /// Accesses before the first one.
    head: Vec<Access>,
    has_barrier: bool,
}

/// The memories that copies in the background write.
fn written_behind(stmts: &[Stmt]) -> Vec<Mem> {
    let mut found = Vec::new();
    visit(stmts, &mut |stmt| {
        if let Stmt::Act(Act::Copy { to, is_async: true, .. }) = stmt
            && !found.contains(&to.mem)
        {
            found.push(to.mem);
        }
    });
    found
}

struct Barriers {
    shared: Vec<Mem>,
    /// Those that several blocks see.
    between: Vec<Mem>,
    /// Symbols that have one value in all of a kernel.
    fixed: HashSet<Sym>,
    /// The memories that copies in the background write: as far as others can see, when their thread has waited for them.
    behind: Vec<Mem>,
}

impl Barriers {
    /// The statements of a block, with what lets all threads that run it meet, given the accesses that are pending ahead of it.
    fn block(&self, stmts: Vec<Stmt>, mut meeting: Sync, pending: Vec<Access>) -> (Vec<Stmt>, Flow) {
        let (mut out, mut flow) = (Vec::new(), Flow { pending, ..Flow::default() });
        for stmt in stmts {
            if meeting == Sync::Elect {
                // Once, so not in a loop. Behind it is one block.
                let elect = self.meeting_before(&self.accesses([&stmt], Vec::new()), meeting, &mut flow);
                if elect.is_some() {
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
                    out.extend(self.meeting_before(&found, meeting, &mut flow));
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
                    out.extend(self.meeting_before(&found, meeting, &mut flow));
                    if let Stmt::Loop(Loop { kind, var, body, .. }) = &mut stmt
                        && let Some(level) = kind.level().filter(|level| level.has_threads())
                    {
                        let mut inner = std::mem::take(body);
                        if *kind == LoopKind::Chain {
                            self.take_turns(*var, &mut inner);
                        }
                        *body = self.block(inner, Sync::Barrier(level), Vec::new()).0;
                    }
                    if let Stmt::Act(Act::Sync(Sync::Await | Sync::Pass)) = stmt {
                        flow.meet();
                    }
                    if !flow.has_barrier {
                        flow.head.extend(found.iter().cloned());
                    }
                    flow.pending.extend(found.into_iter().filter(|access| !access.is_behind));
                    if let Stmt::Act(Act::Sync(Sync::Wait { .. })) = stmt {
                        flow.pending.extend(self.behind.iter().map(|&mem| Access::of_unknown(mem)));
                    }
                    out.push(stmt);
                }
            }
        }
        (out, flow)
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

    /// A loop that all threads run together.
    fn repeated(&self, mut inner: Loop, meeting: Sync, flow: &mut Flow, out: &mut Vec<Stmt>) {
        let body = std::mem::take(&mut inner.body);
        let repeat = |before: Vec<Access>| {
            let (mut body, mut inside) = self.block(body.clone(), meeting, before);
            // Behind the end of an iteration is the beginning of the next.
            if self.conflict(&inside.pending, &inside.head) {
                body.push(Stmt::Act(Act::Sync(meeting)));
                inside.meet();
            }
            (body, inside)
        };
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

    /// A meeting, where accesses that come next have to wait for pending ones.
    fn meeting_before(&self, next: &[Access], meeting: Sync, flow: &mut Flow) -> Option<Stmt> {
        if !self.conflict(&flow.pending, next) {
            return None;
        }
        flow.meet();
        Some(Stmt::Act(Act::Sync(meeting)))
    }

    /// The accesses of statements that nothing but these threads is around.
    fn accesses<'s>(
        &self,
        stmts: impl IntoIterator<Item = &'s Stmt>,
        threads: Vec<(Team, Sym)>,
    ) -> Vec<Access> {
        let (around, mut found) = (Around { threads, conds: Some(Vec::new()) }, Vec::new());
        stmts.into_iter().for_each(|stmt| self.gather(stmt, &around, &mut found));
        found
    }

    /// Adds the accesses of a statement.
    fn gather(&self, stmt: &Stmt, around: &Around, found: &mut Vec<Access>) {
        let is_atomic = matches!(stmt, Stmt::Act(Act::Store { atomic: true, .. }));
        let own =
            stmt.loaded().map(|access| (access, false)).chain(stmt.stored().map(|access| (access, true)));
        for ((mem, index), is_store) in own.filter(|((mem, _), _)| self.shared.contains(mem)) {
            let Around { threads, conds } = around.clone().where_all(guards(stmt, is_store));
            let is_behind = is_store && matches!(stmt, Stmt::Act(Act::Copy { is_async: true, .. }));
            let is_all_stores = is_store && threads.is_empty();
            found.push(Access {
                mem,
                index: index.to_vec(),
                is_store,
                is_atomic,
                is_behind,
                is_all_stores,
                threads,
                conds,
            });
        }
        let gather = |stmts: &[Stmt], around: &Around, found: &mut Vec<Access>| {
            stmts.iter().for_each(|inner| self.gather(inner, around, found));
        };
        match stmt {
            Stmt::Loop(Loop { kind, var, extent, body }) => {
                let mut around = around.clone();
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
        earlier.iter().any(|one| {
            later.iter().any(|other| {
                one.mem == other.mem
                    && (one.is_store || other.is_store)
                    && !(one.is_atomic && other.is_atomic)
                    && !self.is_same_thread(one, other)
            })
        })
    }

    /// Whether the thread that touches an element is the same one for both.
    fn is_same_thread(&self, one: &Access, other: &Access) -> bool {
        // One thread makes the stores of all.
        if one.is_all_stores && other.is_all_stores {
            return true;
        }
        let is_alike = |((a, _), (b, _)): (&(Team, Sym), &(Team, Sym))| a == b;
        let threads = one.threads.iter().zip(&other.threads);
        if one.threads.is_empty()
            || one.threads.len() != other.threads.len()
            || !threads.clone().all(is_alike)
        {
            return false;
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
        // No two threads store to one element between barriers. So where the index of a store mentions the variables of all
        // threads, an equal index at the other access is that of the same thread.
        is_owned
            && one.index.iter().zip(&other.index).all(|(&a, b)| a == b.subst(&renamed))
            && one.index.iter().flat_map(|at| at.syms()).all(is_known)
            && one.threads.iter().all(|thread| one.index.iter().any(|at| at.has_sym(thread.1)))
    }
}

impl Around {
    /// Where more holds.
    fn where_all(mut self, rels: &[Rel]) -> Around {
        self.conds.iter_mut().for_each(|conds| conds.extend(rels));
        self
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

impl Flow {
    /// All threads are here: what they did before, everybody sees.
    fn meet(&mut self) {
        self.pending.clear();
        self.has_barrier = true;
    }

    /// Adds what happens in a part that may not be all that runs.
    fn join(&mut self, inner: Flow) {
        self.pending.extend(inner.pending);
        if !self.has_barrier {
            self.head.extend(inner.head);
        }
    }
}
