//! Translates the accumulators of reductions and scans: memory with an element for each point whose sum is under way.

use super::leaf::Run;
use super::{Builder, Env, TileLoop, bound, collect_leaves};
use crate::access::Region;
use litz_ir::kernel::{Mem, Op, Space, Stmt, Val};
use litz_ir::loops::{Axis, InstOp, Nest};
use litz_ir::schedule::{Leaf, LocalSpace, Part, Tree};
use litz_ir::{Diag, Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Facts, Rel, Sym};

/// The accumulator of one reduction or scan of a nest.
#[derive(Clone)]
pub(super) struct Accumulator {
    /// Position of the reduction in the nest's body.
    inst: usize,
    /// What values are combined by, and positions chosen by.
    op: ReduceOp,
    pub(super) mem: Mem,
    /// Position of the best value, for an arg-reduction.
    pub(super) at: Option<Mem>,
    shape: Shape,
}

/// Which points accumulators have elements for.
#[derive(Clone, PartialEq)]
struct Shape {
    /// Loops whose variables are coordinates. Their extents are those of the memory: whole vectors, so that each row starts
    /// with one.
    loops: Vec<Axis>,
    /// Further coordinates, of axes that leaves count by different loops.
    digits: Vec<Digit>,
    /// Some leaf touches the accumulators in loops of its own.
    is_shared: bool,
}

/// A coordinate `mod(floordiv(axis - first, step), count)`.
#[derive(Clone, PartialEq)]
struct Digit {
    axis: Sym,
    first: Expr,
    step: Expr,
    count: Expr,
    /// The outermost digit of its axis is below its count as it is.
    is_outermost: bool,
}

impl Shape {
    fn sizes(&self) -> Vec<Expr> {
        self.loops.iter().map(|axis| axis.extent).chain(self.digits.iter().map(|digit| digit.count)).collect()
    }

    fn index(&self, leaf: &Leaf, facts: &Facts) -> Vec<Expr> {
        let along = self.digits.iter().map(|digit| {
            let value = facts.simplify(bound(leaf, digit.axis).unwrap_or(Expr::zero()) - digit.first);
            let value = facts.simplify(value.floordiv(digit.step));
            if digit.is_outermost { value } else { facts.simplify(value.modulo(digit.count)) }
        });
        self.loops.iter().map(|axis| Expr::sym(axis.var)).chain(along).collect()
    }
}

impl Shape {
    /// What guards an access of an element at a point that exists where `guard` holds: there is one for each point of loops that
    /// are dimensions, those past the end of an axis among them, but along other axes only for the points that the axis has.
    fn guard_of(&self, guard: &[Rel]) -> Vec<Rel> {
        if self.digits.is_empty() { Vec::new() } else { guard.to_vec() }
    }
}

impl Accumulator {
    /// The coordinates of the element for the point at which `leaf` runs.
    pub(super) fn index(&self, leaf: &Leaf, facts: &Facts) -> Vec<Expr> {
        self.shape.index(leaf, facts)
    }

    /// See [`Shape::guard_of`].
    pub(super) fn guard_of(&self, guard: &[Rel]) -> Vec<Rel> {
        self.shape.guard_of(guard)
    }
}

impl<'a> Builder<'a> {
    /// The accumulator of the reduction at position `inst` of the nest that `run` is a leaf of.
    pub(super) fn accumulator(&self, run: &Run<'a, '_>, inst: usize) -> Result<Accumulator, Diag> {
        let found = run.accumulators.iter().find(|accumulator| accumulator.inst == inst);
        found.cloned().ok_or_else(|| self.error(format!("{} combines before its init", run.nest.name)))
    }

    /// The accumulators of `nest` in the innermost of its scopes around.
    pub(super) fn accumulators_around(
        &self,
        nest: &'a Nest,
        env: &Env<'a>,
    ) -> Result<Vec<Accumulator>, Diag> {
        if !nest.accumulates() {
            return Ok(Vec::new());
        }
        let depth = self.depth(nest, env)?;
        Ok(self.accumulators.get(&(nest.name.as_str(), depth)).cloned().unwrap_or_default())
    }

    /// How many scopes of the accumulators of `nest` there are around the innermost one here.
    fn depth(&self, nest: &Nest, env: &Env<'a>) -> Result<usize, Diag> {
        let around = self.scopes(nest, self.below_grid(env)).len();
        around.checked_sub(1).ok_or_else(|| self.error(format!("{} has no accumulators here", nest.name)))
    }

    /// Translates a leaf that touches accumulators alone. It runs in those of the tiles held back that they have elements for.
    pub(super) fn accumulators(
        &mut self,
        leaf: &'a Leaf,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let nest = self.nest(leaf)?;
        let depth = self.depth(nest, env)?;
        match leaf.part {
            Part::Init => self.init(nest, leaf, depth, env, out),
            Part::Merge => self.merge(nest, leaf, depth, env, out),
            Part::Whole | Part::Update | Part::Final => {
                unreachable!("invariant: {} runs instructions", nest.name)
            }
        }
    }

    /// Makes accumulators, each element of which is the identity of its operator.
    fn init(
        &mut self,
        nest: &'a Nest,
        leaf: &'a Leaf,
        depth: usize,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let shape = self.shape(nest, leaf, depth, env);
        let sizes = shape.sizes();
        let extent = sizes.iter().copied().product::<Expr>();
        let space = self.space_of(self.scopes(nest, self.below_grid(env))[depth].1, &nest.name, extent)?;
        let known = self.accumulators.get(&(nest.name.as_str(), depth)).filter(|_| shape.is_shared);
        let known = known.filter(|known| known.iter().all(|accumulator| accumulator.shape == shape)).cloned();
        let accumulators = known.unwrap_or_else(|| self.declare(nest, &shape, space));
        let index = shape.index(leaf, &env.facts);
        let guard = shape.guard_of(&self.guards(leaf, nest, env)?);
        for Accumulator { op, mem, at, .. } in &accumulators {
            let ty = self.kernel.mems[*mem].dtype;
            let mut stmts = Vec::new();
            for (mem, ty, first) in [(Some(*mem), ty, op.identity(ty)), (*at, Dtype::I64, Scalar::Int(0))] {
                let Some(mem) = mem else { continue };
                let val = self.value(ty);
                stmts.push(Stmt::Let { val, op: Op::Const(first) });
                stmts.push(store(mem, index.clone(), val, None, guard.clone()));
            }
            self.wrap_in_tiles(&mut stmts, env, |tile| leaf.bind.iter().any(|bind| bind.1.has_sym(tile)));
            out.extend(stmts);
        }
        self.accumulators.insert((&nest.name, depth), accumulators);
        Ok(())
    }

    /// Memory for the accumulators of a nest.
    fn declare(&mut self, nest: &Nest, shape: &Shape, space: Space) -> Vec<Accumulator> {
        let mut accumulators = Vec::new();
        for (inst, op) in nest.body.iter().map(|inst| &inst.op).enumerate() {
            let (op, value, is_arg) = match op {
                InstOp::Reduce(op, value) | InstOp::Scan { op, value, .. } => (*op, value, false),
                InstOp::ArgReduce { max: true, value } => (ReduceOp::Max, value, true),
                InstOp::ArgReduce { max: false, value } => (ReduceOp::Min, value, true),
                _ => continue,
            };
            let ty = nest.body[value.0 as usize].ty.compute();
            let mem = self.local(&format!("{}_acc{inst}", nest.name), ty, shape.sizes(), space);
            let at = is_arg
                .then(|| self.local(&format!("{}_at{inst}", nest.name), Dtype::I64, shape.sizes(), space));
            accumulators.push(Accumulator { inst, op, mem, at, shape: shape.clone() });
        }
        accumulators
    }

    /// Combines the accumulators of the innermost scope with those of the next one out.
    fn merge(
        &mut self,
        nest: &'a Nest,
        leaf: &'a Leaf,
        depth: usize,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let of = |depth: Option<usize>| {
            depth.and_then(|depth| self.accumulators.get(&(nest.name.as_str(), depth)))
        };
        let (Some(blocks), Some(totals)) = (of(Some(depth)).cloned(), of(depth.checked_sub(1)).cloned())
        else {
            return Err(self.error(format!("{} merges accumulators before their init", nest.name)));
        };
        let guards = self.guards(leaf, nest, env)?;
        for (block, total) in blocks.iter().zip(&totals) {
            let InstOp::Reduce(op, _) = nest.body[block.inst].op else {
                return Err(self.error(format!("{}: positions and scans cannot be merged", nest.name)));
            };
            let val = self.value(self.kernel.mems[block.mem].dtype);
            let from = block.index(leaf, &env.facts);
            let guard = block.guard_of(&guards);
            let other = op.identity(self.kernel.mems[block.mem].dtype);
            let mut stmts = vec![
                Stmt::Let { val, op: Op::Load { mem: block.mem, index: from, guard, other } },
                store(total.mem, total.index(leaf, &env.facts), val, Some(op), total.guard_of(&guards)),
            ];
            self.wrap_in_tiles(&mut stmts, env, |tile| leaf.bind.iter().any(|bind| bind.1.has_sym(tile)));
            out.extend(stmts);
        }
        Ok(())
    }

    /// Positions in `path`, without the grid, behind the scopes of a nest's accumulators that are around, outermost first, and
    /// where these accumulators are to be.
    fn scopes(&self, nest: &Nest, path: impl Iterator<Item = Axis> + Clone) -> Vec<(usize, LocalSpace)> {
        let declared = self.plan.locals.iter().filter(|local| local.accumulates() == Some(&nest.name));
        let is_grid = |var: Sym| self.plan.grid.iter().any(|axis| axis.var == var);
        let position = |scope: Option<Sym>| match scope.filter(|&var| !is_grid(var)) {
            None => Some(0),
            Some(var) => Some(1 + path.clone().position(|axis| axis.var == var)?),
        };
        let around = declared.filter_map(|local| Some((position(local.scope)?, local.space)));
        let mut around: Vec<(usize, LocalSpace)> = around.collect();
        around.sort_by_key(|scope| scope.0);
        around
    }

    /// The loops around that are not of the grid, outermost first.
    fn below_grid<'e>(&self, env: &'e Env<'a>) -> impl Iterator<Item = Axis> + Clone + use<'e, 'a> {
        env.path[self.plan.grid.len()..].iter().map(|around| around.axis)
    }

    /// The leaves of a nest that touch its accumulators in its scope of that depth.
    fn users(&self, nest: &Nest, depth: usize) -> Vec<&'a Leaf> {
        let leaves = collect_leaves(&self.plan.body).into_iter().filter(|(leaf, _)| leaf.nest == nest.name);
        let touches = |(leaf, path): &(&'a Leaf, Vec<Axis>)| {
            let innermost = self.scopes(nest, path.iter().copied()).len().checked_sub(1);
            innermost == Some(depth) || leaf.part == Part::Merge && innermost == Some(depth + 1)
        };
        leaves.filter(touches).map(|(leaf, _)| leaf).collect()
    }

    /// The shape of the accumulators that `leaf`, an `init`, makes: they have elements for the points of tiles held back and
    /// of loops within their scope. Coordinates are loops where all leaves count the axes by the same ones.
    fn shape(&self, nest: &'a Nest, leaf: &'a Leaf, depth: usize, env: &Env<'a>) -> Shape {
        let outside = self.scopes(nest, self.below_grid(env))[depth].0;
        let path = &env.path[self.plan.grid.len()..];
        let users = self.users(nest, depth);
        let values = || leaf.bind.iter().copied();
        let varies = |var: Sym| values().any(|(_, value)| value.has_sym(var));
        let enclosing: Vec<Sym> = env.path.iter().map(|around| around.axis.var).collect();
        // The last iteration of a loop around may have fewer points than the others.
        let longest = |axis: Axis| Axis { extent: env.facts.largest(axis.extent, &enclosing), ..axis };
        let mut is_shared = false;
        let mut spanned = Vec::new();
        for (at, around) in path.iter().enumerate() {
            let tile = env.tiles.iter().find(|tile| tile.axis.var == around.axis.var);
            let is_around_all = users.iter().all(|user| is_in(around.body, user));
            // Where leaves have loops of their own, they touch what all versions of a loop have initialized.
            let axis = if is_around_all { around.axis } else { around.planned };
            let is_run_apart = around.is_tile && tile.is_none();
            let is_spanned = tile.is_some() || at >= outside && !(is_run_apart && is_around_all);
            if is_spanned && varies(axis.var) {
                is_shared |= !is_around_all;
                let whole = tile.map(|tile| TileLoop { axis, ..*tile }.in_whole_vectors());
                spanned.push(longest(whole.unwrap_or(axis)));
            }
        }
        let is_same = |(axis, value)| users.iter().all(|user| bound(user, axis) == Some(value));
        let is_loop = |axis: &Axis| values().filter(|(_, value)| value.has_sym(axis.var)).all(is_same);
        let (loops, counted): (Vec<Axis>, Vec<Axis>) = spanned.into_iter().partition(is_loop);
        let mut digits = Vec::new();
        for axis in nest.kept_apart() {
            let value =
                bound(leaf, axis.var).filter(|value| counted.iter().any(|axis| value.has_sym(axis.var)));
            let Some(value) = value else { continue };
            let region = Region::of(value, &counted, &env.facts).unwrap_or(Region::whole(axis.extent));
            let steps = region.steps.iter().enumerate();
            digits.extend(steps.map(|(at, &(step, count))| Digit {
                axis: axis.var,
                first: region.base,
                step,
                count,
                is_outermost: at == 0,
            }));
        }
        Shape { loops, digits, is_shared }
    }
}

/// Whether a leaf is among trees or below one.
fn is_in(trees: &[Tree], leaf: &Leaf) -> bool {
    trees.iter().any(|tree| match tree {
        Tree::Leaf(own) => std::ptr::eq(own, leaf),
        Tree::Loop { body, .. } => is_in(body, leaf),
    })
}

/// A store into an accumulator, which no other thread has.
pub(super) fn store(
    mem: Mem,
    index: Vec<Expr>,
    value: Val,
    combine: Option<ReduceOp>,
    guard: Vec<Rel>,
) -> Stmt {
    Stmt::Store { mem, index, value, combine, guard, atomic: false }
}
