//! Translates the accumulators of reductions and scans: memory with an element for each point whose sum is under way.

use super::leaf::Run;
use super::{Builder, Env, bound};
use crate::access::Region;
use litz_analysis::inside::longest;
use litz_ir::kernel::{Mem, Op, Space, Stmt, Val};
use litz_ir::loops::{Axis, InstOp, Nest};
use litz_ir::schedule::{Leaf, LocalSpace, LoopKind, Part, Tree};
use litz_ir::{Diag, Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::rc::Rc;

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
    /// How many loops over levels are around the declaration.
    levels: usize,
    shape: Shape,
}

/// Which points accumulators have elements for.
#[derive(Clone, PartialEq)]
struct Shape {
    /// Loops whose variables are coordinates. Their extents are those of the memory: of registers whole vectors, so that each
    /// row starts with one.
    loops: Vec<Axis>,
    /// Further coordinates, of axes that leaves count by different loops.
    digits: Vec<Digit>,
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
        // A loop of one point has left its leaves.
        let is_around = |var: Sym| leaf.bind.iter().any(|bind| bind.1.has_sym(var));
        let place = |axis: &Axis| if is_around(axis.var) { Expr::sym(axis.var) } else { Expr::zero() };
        self.loops.iter().map(place).chain(along).collect()
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
            let Accumulator { op, mem, at, .. } = *accumulator;
            let index = accumulator.index(leaf, &env.facts);
            let guard = accumulator.guard_of(&guards);
            let ty = self.kernel.mems[mem].dtype;
            for (mem, ty, first) in [(Some(mem), ty, op.identity(ty)), (at, Dtype::I64, Scalar::Int(0))] {
                let Some(mem) = mem else { continue };
                let val = self.value(ty);
                out.push(Stmt::Let { val, op: Op::Const(first) });
                out.push(store(mem, index.clone(), val, None, guard.clone()));
            }
        }
        Ok(())
    }

    /// Makes the accumulators that are declared before `rest` in a block.
    pub(super) fn declare_accumulators(
        &mut self,
        name: &'a str,
        space: LocalSpace,
        rest: &'a [Tree],
        env: &Env<'a>,
    ) -> Result<Vec<Accumulator>, Diag> {
        let nest = self.names.nests.get(name).copied();
        let nest = nest.ok_or_else(|| self.error(format!("no nest {name}")))?;
        let mut users = Vec::new();
        users_in(rest, (name, 0), &mut Vec::new(), &mut users);
        let shape = self.shape(nest, space, &users, env)?;
        let extent = shape.sizes().into_iter().product::<Expr>();
        let space = self.space_of(space, extent);
        Ok(self.declare(nest, &shape, space, env.levels.len()))
    }

    /// Memory for the accumulators of a nest.
    fn declare(&mut self, nest: &Nest, shape: &Shape, space: Space, levels: usize) -> Vec<Accumulator> {
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
            let ty = nest.body[value.0 as usize].ty.compute();
            let mem = self.local(&format!("{}_acc{inst}", nest.name), ty, shape.sizes(), space);
            let at = is_arg
                .then(|| self.local(&format!("{}_at{inst}", nest.name), Dtype::I64, shape.sizes(), space));
            accumulators.push(Accumulator { inst, op, mem, at, levels, shape: shape.clone() });
        }
        accumulators
    }

    /// Combines the accumulators that are declared innermost with those declared next around.
    fn merge(
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
        for (block, total) in blocks.iter().zip(&**totals) {
            let InstOp::Reduce(op, _) = nest.body[block.inst].op else {
                return Err(self.error(format!("{}: positions and scans cannot be merged", nest.name)));
            };
            let val = self.value(self.kernel.mems[block.mem].dtype);
            let from = block.index(leaf, &env.facts);
            let guard = block.guard_of(&guards);
            let other = op.identity(self.kernel.mems[block.mem].dtype);
            out.push(Stmt::Let { val, op: Op::Load { mem: block.mem, index: from, guard, other } });
            let (index, guard) = (total.index(leaf, &env.facts), total.guard_of(&guards));
            // Iterations of loops over levels combine at once.
            let atomic = env.levels.len() > total.levels;
            out.push(Stmt::Store { mem: total.mem, index, value: val, combine: Some(op), guard, atomic });
        }
        Ok(())
    }

    /// The shape of accumulators that `users` touch: they have elements for the points of the loops around their `init`.
    /// Coordinates are loops where all leaves count the axes by the same ones.
    fn shape(
        &self,
        nest: &Nest,
        space: LocalSpace,
        users: &[User<'a>],
        env: &Env<'a>,
    ) -> Result<Shape, Diag> {
        // In one body of an `if` loops may have a single point, and have left their leaves.
        let inits = || users.iter().filter(|user| user.leaf.part == Part::Init);
        let spanned = |user: &&User| {
            let is_spanned = |var: Sym| user.leaf.bind.iter().any(|bind| bind.1.has_sym(var));
            user.loops.iter().filter(|around| is_spanned(around.1.var)).count()
        };
        let most = inits().map(|user| spanned(&user)).max();
        let Some(init) = inits().find(|user| Some(spanned(user)) == most) else {
            return Err(self.error(format!("{} combines before its init", nest.name)));
        };
        let values = || init.leaf.bind.iter().copied();
        let mut facts = env.facts.clone();
        init.loops.iter().for_each(|(_, axis)| facts.declare_index(axis.var, axis.extent));
        // The last iteration of a loop around may have fewer points than the others.
        let around: Vec<Sym> =
            env.path.iter().copied().chain(init.loops.iter().map(|l| l.1)).map(|axis| axis.var).collect();
        let length = |(kind, axis): &(LoopKind, Axis)| {
            let extent = facts.largest(longest(axis.extent), &around);
            match (kind, space) {
                (LoopKind::Vector { lanes, .. }, LocalSpace::Register) => {
                    extent.ceildiv(i64::from(*lanes)) * i64::from(*lanes)
                }
                _ => extent,
            }
        };
        let spanned =
            init.loops.iter().filter(|(_, axis)| values().any(|(_, value)| value.has_sym(axis.var)));
        // What is masked may come to points past the end of an axis in longer loops than those of `init`.
        let longest_of = |var: Sym| {
            let alike = users.iter().flat_map(|user| &user.loops).filter(|around| around.1.var == var);
            alike
                .map(length)
                .reduce(|one, other| if one == other { one } else { facts.simplify(one.max(other)) })
        };
        let spanned =
            spanned.map(|own| Axis { extent: longest_of(own.1.var).unwrap_or_else(|| length(own)), ..own.1 });
        let spans = |var: Sym| init.loops.iter().any(|around| around.1.var == var);
        let is_same = |(axis, value): (Sym, Expr)| {
            users.iter().all(|user| {
                let is_around = |var: Sym| user.loops.iter().any(|around| around.1.var == var);
                // In the rest of a tile that is one point a loop of the others may be left out.
                let there = value.subst(&|var| (spans(var) && !is_around(var)).then(Expr::zero));
                bound(user.leaf, axis) == Some(there)
            })
        };
        let is_loop = |axis: &Axis| values().filter(|(_, value)| value.has_sym(axis.var)).all(is_same);
        let (loops, counted): (Vec<Axis>, Vec<Axis>) = spanned.partition(is_loop);
        let mut digits = Vec::new();
        for axis in nest.kept_apart() {
            let value =
                bound(init.leaf, axis.var).filter(|value| counted.iter().any(|axis| value.has_sym(axis.var)));
            let Some(value) = value else { continue };
            let region = Region::of(value, &counted, &facts).unwrap_or(Region::whole(axis.extent));
            let steps = region.steps.iter().enumerate();
            digits.extend(steps.map(|(at, &(step, count))| Digit {
                axis: axis.var,
                first: region.base,
                step,
                count,
                is_outermost: at == 0,
            }));
        }
        Ok(Shape { loops, digits })
    }
}

/// A leaf that touches accumulators, with the loops between it and their declaration, outermost first.
struct User<'a> {
    leaf: &'a Leaf,
    loops: Vec<(LoopKind, Axis)>,
}

/// Gathers the leaves of a nest in trees that touch accumulators which are declared before these, and so many times within
/// them again.
fn users_in<'a>(
    trees: &'a [Tree],
    (nest, mut again): (&str, usize),
    path: &mut Vec<(LoopKind, Axis)>,
    users: &mut Vec<User<'a>>,
) {
    for tree in trees {
        match tree {
            Tree::Local(local) => again += usize::from(local.accumulates() == Some(nest)),
            Tree::Leaf(leaf) => {
                let touches = again == 0 || again == 1 && leaf.part == Part::Merge;
                if leaf.nest == nest && touches {
                    users.push(User { leaf, loops: path.clone() });
                }
            }
            Tree::Loop { kind, axis, body } => {
                path.push((*kind, *axis));
                users_in(body, (nest, again), path, users);
                path.pop();
            }
            Tree::If { then, other, .. } => {
                [then, other].into_iter().for_each(|body| users_in(body, (nest, again), path, users));
            }
        }
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
    Stmt::Store { mem, index, value, combine, guard, atomic: false }
}
