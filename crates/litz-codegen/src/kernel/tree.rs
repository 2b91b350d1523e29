//! Lowers the loops and conditions of a plan's tree to those of the kernel.

use super::{Around, Builder, Env};
use litz_ir::Diag;
use litz_ir::kernel::{KernelLoopKind, Loop, Stmt};
use litz_ir::loops::Axis;
use litz_ir::schedule::{self, Holds, Leaf, Local, Means, Tree};
use litz_sym::{Known, Rel};

impl<'a> Builder<'a> {
    /// Translates trees in order, appending to `out`. Adjacent leaves that run instructions are one run of statements, in
    /// which a value is used again and not loaded.
    pub(super) fn block(
        &mut self,
        trees: &'a [Tree],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let mut env = env.clone();
        let mut leaves: Vec<&'a Leaf> = Vec::new();
        for tree in trees {
            match tree {
                Tree::Leaf(leaf) if leaf.part.runs_instructions() => {
                    leaves.push(leaf);
                    continue;
                }
                Tree::Leaf(_) | Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) => {}
            }
            self.leaves(&std::mem::take(&mut leaves), &env, out)?;
            match tree {
                Tree::Leaf(leaf) => self.accumulators(leaf, &env, out)?,
                Tree::Loop { kind, axis, body } => self.tree_loop(*kind, *axis, body, &env, out)?,
                Tree::If { cond, then, other } => self.either(*cond, [then, other], &env, out)?,
                Tree::Local(local @ Local { holds: Holds::Accumulator(nest), .. }) => {
                    let declared = self.declare_accumulators(nest, local, &env)?;
                    env.accumulators.push((nest, declared.into()));
                }
                // Their memory was made in the beginning.
                Tree::Local(
                    local @ Local {
                        holds: Holds::Buffer(_) | Holds::Copy { .. } | Holds::Result { .. }, ..
                    },
                ) => {
                    env.locals.extend(self.held(local)?);
                }
            }
        }
        self.leaves(&leaves, &env, out)
    }

    fn tree_loop(
        &mut self,
        kind: schedule::LoopKind,
        axis: Axis,
        body: &'a [Tree],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        use schedule::LoopKind as K;
        let axis = Axis { extent: env.facts.simplify(axis.extent), ..axis };
        // As in a grid: nothing runs, and what is known of its variable contradicts itself.
        if axis.extent.is_zero() {
            return Ok(());
        }
        let planned = kind;
        let kind = match kind {
            // A vector of one point is an ordinary loop: an accumulator that loses the axis for being of one point may be read
            // where it is added to, while lanes add up only after their loop.
            K::Vector { .. } if axis.extent.is_one() => KernelLoopKind::For,
            K::Vector { lanes, copies } => KernelLoopKind::vector(lanes, copies),
            K::For => KernelLoopKind::For,
            K::Mma => KernelLoopKind::Mma { rounds: rounds(body) },
            K::Pipeline { buffers } => KernelLoopKind::Pipeline { buffers },
            K::Unroll if axis.extent.as_int().is_some() => KernelLoopKind::Unroll,
            K::Unroll => {
                return Err(
                    self.error(format!("loop {}: a written-out loop needs a constant extent", axis.var))
                );
            }
            K::Level(team) => KernelLoopKind::Level(team),
            K::Chain => KernelLoopKind::Chain,
        };
        if let Some(copy) = self.windows((planned, axis, body), env)? {
            out.push(copy);
            return Ok(());
        }
        let mut inner = env.clone();
        inner.enter(axis);
        inner.path.push(Around::Loop(kind, axis));
        let mut stmts = Vec::new();
        self.block(body, &inner, &mut stmts)?;
        let inner = Stmt::Loop(Loop { kind, var: axis.var, extent: axis.extent, body: stmts });
        self.meet(env.path.len(), inner, out);
        Ok(())
    }

    /// One of two bodies, or both with the condition if that is not known.
    fn either(
        &mut self,
        cond: Rel,
        [then, other]: [&'a [Tree]; 2],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        match env.facts.known(&cond) {
            Known::Yes => return self.block(then, env, out),
            Known::No => return self.block(other, env, out),
            Known::Unknown => {}
        }
        let mut body = |trees: &'a [Tree], cond: Rel| {
            let (mut inner, mut stmts) = (env.clone(), Vec::new());
            inner.path.push(Around::Branch);
            if inner.facts.assume(cond) {
                self.block(trees, &inner, &mut stmts)?;
            }
            Ok(stmts)
        };
        let (then, other) = (body(then, cond)?, body(other, cond.negate())?);
        if !then.is_empty() || !other.is_empty() {
            out.push(Stmt::If { cond: vec![cond], then, other });
        }
        Ok(())
    }
}

/// Whether an instruction is asked for that is less exact than the type of its sums.
fn rounds(trees: &[Tree]) -> bool {
    let mut found = false;
    for tree in trees {
        tree.each_leaf(&mut |leaf| found |= matches!(leaf.by, Some(Means::Instruction(by)) if by.rounds));
    }
    found
}
