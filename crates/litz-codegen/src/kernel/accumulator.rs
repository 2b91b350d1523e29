//! Lowers the accumulators of reductions and scans to memory with an element for each running value.
//!
//! What the threads of a level have combined is combined by [`super::merge`].

use super::{Builder, Env, space_of};
use litz_analysis::footprint::Shape;
use litz_ir::kernel::{Act, Mem, MemorySpace, Op, Stmt, Val};
use litz_ir::loops::{InstOp, Nest};
use litz_ir::schedule::{Leaf, Local, Part};
use litz_ir::{Diag, Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Facts, Rel};
use std::rc::Rc;

/// The accumulator of one reduction or scan of a nest.
#[derive(Clone)]
pub(super) struct Accumulator {
    /// Position of the reduction in the nest's body.
    pub(super) inst: usize,
    /// What values are combined by, and positions chosen by.
    pub(super) op: ReduceOp,
    pub(super) mem: Mem,
    /// Position of the best value, for an arg-reduction.
    pub(super) at: Option<Mem>,
    /// How many loops and branches are around the declaration.
    pub(super) depth: usize,
    pub(super) shape: Shape,
}

impl Accumulator {
    /// The coordinates of the element for the point at which `leaf` runs.
    pub(super) fn index(&self, leaf: &Leaf, facts: &Facts) -> Vec<Expr> {
        self.shape.index(leaf, facts)
    }

    /// See [`Shape::guard_of`].
    pub(super) fn guard_of(&self, leaf: &Leaf, guard: &[Rel], facts: &Facts) -> Vec<Rel> {
        self.shape.guard_of(leaf, guard, facts)
    }
}

impl<'a> Builder<'a> {
    /// The accumulators of `nest` that are declared innermost around.
    pub(super) fn accumulators_around(&self, nest: &Nest, env: &Env<'a>) -> Rc<[Accumulator]> {
        let mut around = env.accumulators.iter().rev().filter(|(name, _)| *name == nest.name);
        around.next().map_or_else(|| [].into(), |(_, accumulators)| accumulators.clone())
    }

    /// Translates a leaf that touches accumulators alone.
    pub(super) fn accumulators(
        &mut self,
        leaf: &'a Leaf,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let nest = self.nest(leaf)?;
        match leaf.part {
            Part::Init => self.init(nest, leaf, env, out),
            Part::Merge => self.merge(nest, leaf, env, out),
            Part::Whole | Part::Update | Part::Final => {
                unreachable!("invariant: {} runs instructions", nest.name)
            }
        }
    }

    /// Puts the identity of its operator into the element for a point of each accumulator.
    fn init(
        &mut self,
        nest: &'a Nest,
        leaf: &'a Leaf,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let accumulators = self.accumulators_around(nest, env);
        if accumulators.is_empty() {
            return Err(self.error(format!("{} has no accumulators here", nest.name)));
        }
        let guards = self.guards(leaf, nest, env)?;
        for accumulator in &*accumulators {
            let Accumulator { op, mem, at, depth, .. } = *accumulator;
            let index = accumulator.index(leaf, &env.facts);
            let guard = accumulator.guard_of(leaf, &guards, &env.facts);
            let ty = self.kernel.mems[mem].dtype;
            if !self.kernel.mems[mem].space.is_shared() {
                self.owners.insert(mem, env.path[depth..].iter().filter(|around| around.is_level()).count());
            }
            for (mem, ty, first) in [(Some(mem), ty, op.identity(ty)), (at, Dtype::I64, Scalar::Int(0))] {
                let Some(mem) = mem else { continue };
                let val = self.value(ty);
                out.push(Stmt::Act(Act::Let { val, op: Op::Const(first) }));
                out.push(store(mem, index.clone(), val, None, guard.clone()));
            }
        }
        Ok(())
    }

    /// Makes the accumulators that `local` declares.
    pub(super) fn declare_accumulators(
        &mut self,
        name: &'a str,
        local: &'a Local,
        env: &Env<'a>,
    ) -> Result<Vec<Accumulator>, Diag> {
        let nest = self.names.nests.get(name).copied();
        let nest = nest.ok_or_else(|| self.error(format!("no nest {name}")))?;
        let shape = self.shapes.get(&std::ptr::from_ref(local)).cloned();
        let shape = shape.ok_or_else(|| self.error(format!("{name} has no accumulators here")))?;
        Ok(self.declare(nest, &shape, space_of(local.space), env.path.len()))
    }

    /// Memory for the accumulators of a nest.
    fn declare(&mut self, nest: &Nest, shape: &Shape, space: MemorySpace, depth: usize) -> Vec<Accumulator> {
        let mut accumulators = Vec::new();
        for (inst, op) in nest.body.iter().map(|inst| &inst.op).enumerate() {
            let (op, value, is_arg) = match op {
                InstOp::Reduce(op, value) | InstOp::Scan { op, value, .. } => (*op, value, false),
                InstOp::ArgReduce { max: true, value } => (ReduceOp::Max, value, true),
                InstOp::ArgReduce { max: false, value } => (ReduceOp::Min, value, true),
                InstOp::Load { .. }
                | InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. }
                | InstOp::Store { .. } => continue,
            };
            // Half types are combined in f32: a sum that is rounded to one after each term loses terms that are small beside it.
            let ty = nest.body[value.0 as usize].ty.compute();
            let mem = self.local(&format!("{}_acc{inst}", nest.name), ty, shape.sizes(), space);
            let at = is_arg
                .then(|| self.local(&format!("{}_at{inst}", nest.name), Dtype::I64, shape.sizes(), space));
            accumulators.push(Accumulator { inst, op, mem, at, depth, shape: shape.clone() });
        }
        accumulators
    }
}

/// A store into an accumulator, which no other thread has.
pub(super) fn store(
    mem: Mem,
    index: Vec<Expr>,
    value: Val,
    combine: Option<ReduceOp>,
    guard: Vec<Rel>,
) -> Stmt {
    Stmt::Act(Act::Store { mem, index, value, combine, guard, atomic: false })
}
