//! Checks that a pipelined loop begins with copies which can be made ahead of it, in the background.
//!
//! What the loop begins with, up to the first tree that does something else, is started some iterations early. So it copies elements as they
//! are, to shared memory that nothing outside of the loop touches, that one of the copies alone stores to, to
//! each element once in an iteration, and nothing behind them, and what it copies the loop does not change.

use std::collections::HashMap;
use std::ops::Range;

use super::{Around, Occurrence, Site, Verifier, Within, proofs};
use litz_ir::Scalar;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Nest, Stmt};
use litz_ir::schedule::{KernelPlan, LocalSpace, LoopKind, Part, ScheduleStep, Tree};
use litz_sym::Expr;

/// How many loops and leaves of a schedule are ahead of a tree.
#[derive(Clone, Copy)]
struct Ahead {
    loops: usize,
    leaves: usize,
}

/// A pipelined loop: its number, its leaves, and those of each tree that it begins with.
struct Pipelined {
    number: usize,
    leaves: Range<usize>,
    trees: Vec<Range<usize>>,
}

impl<'a> Verifier<'a> {
    /// Checks all pipelined loops of a schedule whose points are those of its nests.
    pub(super) fn pipelines(&mut self) {
        let mut ahead = Ahead { loops: 0, leaves: 0 };
        let mut problems = Vec::new();
        for (step, of_step) in self.schedule.steps.iter().enumerate() {
            let ScheduleStep::Kernel(plan) = of_step else {
                continue;
            };
            for found in pipelined(plan, &mut ahead) {
                if let Some(why) = self.no_pipeline(&found) {
                    let site = Site { step, within: Some(Within::Loop(found.number)) };
                    problems.push((format!("kernel @{}: {why}", plan.name), Some(site)));
                }
            }
        }
        self.fail_all("no-pipeline", problems);
    }

    /// Why nothing of the loop can be made ahead.
    fn no_pipeline(&self, found: &Pipelined) -> Option<String> {
        let mut leaves: HashMap<usize, (&'a Nest, &Occurrence)> = HashMap::new();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            let Stmt::Nest(nest) = stmt else { continue };
            let own = places.iter().filter_map(|place| Some((place.leaf?, place)));
            leaves.extend(
                own.filter(|own| found.leaves.contains(&own.0)).map(|(leaf, place)| (leaf, (nest, place))),
            );
        }
        let copies = found.trees.iter().map(|tree| -> Option<Vec<usize>> {
            tree.clone().map(|leaf| self.copied_ahead(*leaves.get(&leaf)?, &leaves, found)).collect()
        });
        let copies: Vec<Vec<usize>> = copies.take_while(Option::is_some).flatten().collect();
        if copies.iter().all(Vec::is_empty) {
            return Some(
                "a pipeline begins with copies, to shared memory of its own, of what it does not store to"
                    .to_owned(),
            );
        }
        let copied: Vec<usize> = copies.iter().flatten().copied().collect();
        let name = |number: usize| self.locals[number].0.buffer().unwrap_or_default();
        // Copies in the background are under way side by side: nothing orders two of them that store to one element.
        if let Some((_, &number)) =
            copied.iter().enumerate().find(|&(at, number)| copied[..at].contains(number))
        {
            return Some(format!("a pipeline copies ahead to `{}` twice", name(number)));
        }
        let end = copied.len() + found.leaves.start;
        let again = copied.iter().find(|&&number| {
            self.uses_of_buffer(number)
                .iter()
                .any(|used| used.is_store() && used.leaf().is_some_and(|leaf| leaf >= end))
        });
        again.map(|&number| format!("a pipeline stores to `{}`, which it copies ahead", name(number)))
    }

    /// The number of the memory that a leaf copies to, if it can be run ahead of the loop that it is in.
    fn copied_ahead(
        &self,
        (nest, place): (&'a Nest, &Occurrence),
        leaves: &HashMap<usize, (&'a Nest, &Occurrence)>,
        found: &Pipelined,
    ) -> Option<usize> {
        // What comes before says which elements these are.
        let [before @ .., load, store] = &nest.body[..] else { return None };
        let InstOp::Load { buf, guard, other, .. } = &load.op else { return None };
        let InstOp::Store { buf: target, value, combine: None, .. } = &store.op else { return None };
        if value.index() != before.len() || !self.is_chosen_ahead(before, nest, place, found) {
            return None;
        }
        let types = [buf, target].map(|&buf| self.loops.bufs[buf].dtype);
        let is_zero = guard.is_empty() || *other == Scalar::zero(types[0]);
        if place.part != Part::Whole || place.block.is_some() || types[0] != types[1] || !is_zero {
            return None;
        }
        let number = self.declared_around(place, *target)?.number;
        let is_own =
            |used: &super::levels::Use<'a>| used.leaf().is_some_and(|leaf| found.leaves.contains(&leaf));
        let is_shared = self.locals[number].0.space == LocalSpace::Shared;
        if !is_shared || !self.uses_of_buffer(number).iter().all(is_own) {
            return None;
        }
        let is_stored_to = |(at, buf): (usize, Buf)| {
            let (source, held) = self.held(nest, place, (at, buf));
            leaves.values().any(|(nest, place)| {
                let is_same =
                    || self.declared_around(place, source).map(|d| d.number) == held.map(|d| d.number);
                nest.writes().contains(&source) && is_same()
            })
        };
        let loads = nest.body.iter().enumerate().filter_map(|(at, inst)| {
            if let InstOp::Load { buf, .. } = inst.op { Some((at, buf)) } else { None }
        });
        (!loads.into_iter().any(is_stored_to) && self.stores_once(nest, place, found)).then_some(number)
    }

    /// Whether these instructions, at a leaf of a nest, load indices and check them, the same in all of a loop: of what the kernel does not
    /// store to, and wherever the loop runs.
    fn is_chosen_ahead(&self, insts: &[Inst], nest: &'a Nest, place: &Occurrence, found: &Pipelined) -> bool {
        let Some(at) = place.path.iter().position(|around| around.number == found.number) else {
            return false;
        };
        let inside = &place.path[at..];
        let is_some = |around: &Around| self.loops.facts.bounds(around.axis.extent).lo >= 1;
        let runs =
            !place.masked && inside.iter().all(is_some) && place.sides.iter().all(|side| side.loops <= at);
        let stores_to = |buf: Buf| {
            let mut users = self.users.get(&buf).into_iter().flatten();
            users.any(|&user| {
                self.loops.stmts[user].writes().contains(&buf)
                    && self.placed[user].iter().any(|other| other.step == place.step)
            })
        };
        let is_same = |e: Expr| {
            let here = e.subst(&|sym| place.bind.iter().find(|bind| bind.0 == sym).map(|bind| bind.1));
            !inside.iter().any(|around| here.has_sym(around.axis.var))
        };
        let is_index = |(at, inst): (usize, &Inst)| {
            let is_loaded = if let InstOp::Load { buf, guard, .. } = &inst.op {
                guard.is_empty() && self.held(nest, place, (at, *buf)).1.is_none() && !stores_to(*buf)
            } else {
                matches!(inst.op, InstOp::Bind { .. })
            };
            is_loaded && inst.op.exprs().into_iter().all(is_same)
        };
        insts.is_empty() || runs && insts.iter().enumerate().all(is_index)
    }

    /// Whether a copy stores to each element once in an iteration of the loop: no loop within repeats it.
    fn stores_once(&self, nest: &'a Nest, place: &Occurrence, found: &Pipelined) -> bool {
        let Some(at) = place.path.iter().position(|around| around.number == found.number) else {
            return false;
        };
        let axes: Vec<Axis> = place.path.iter().map(|around| around.axis).collect();
        let (outside, inside) = axes.split_at(at + 1);
        let store = proofs::Access { nest, place, at: nest.body.len() - 1 };
        self.proofs.borrow_mut().are_apart_within(self.loops, [outside, inside], store, store)
    }
}

/// The pipelined loops of a kernel, which so much is ahead of.
fn pipelined(plan: &KernelPlan, ahead: &mut Ahead) -> Vec<Pipelined> {
    ahead.loops += plan.grid.len();
    let mut found = Vec::new();
    plan.body.iter().for_each(|tree| gather(tree, ahead, &mut found));
    found
}

fn gather(tree: &Tree, ahead: &mut Ahead, found: &mut Vec<Pipelined>) {
    let number = ahead.loops;
    match tree {
        Tree::Leaf(_) => ahead.leaves += 1,
        Tree::Local(_) => {}
        Tree::If { .. } => {
            tree.blocks().into_iter().flatten().for_each(|tree| gather(tree, ahead, found));
        }
        Tree::Loop { kind, body, .. } => {
            ahead.loops += 1;
            let (first, mut trees) = (ahead.leaves, Vec::new());
            for tree in body {
                let start = ahead.leaves;
                gather(tree, ahead, found);
                trees.extend((!matches!(tree, Tree::Local(_))).then_some(start..ahead.leaves));
            }
            if matches!(kind, LoopKind::Pipeline { .. }) {
                found.push(Pipelined { number, leaves: first..ahead.leaves, trees });
            }
        }
    }
}
