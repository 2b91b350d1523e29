//! Defines the statements of kernels: structure, which is loops and branches, and acts.

use litz_sym::{Expr, Rel, Sym};

use super::{Act, Mem, Part, PartMut, Sync, Touch, Val};
use crate::target::{Level, Team};

/// A statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    /// A loop.
    Loop(Loop),
    /// `if` with both branches.
    If {
        /// All must hold.
        cond: Vec<Rel>,
        /// Taken when they do.
        then: Vec<Stmt>,
        /// Taken when not.
        other: Vec<Stmt>,
    },
    /// What has no statements in it.
    Act(Act),
}

/// A loop: `var` takes 0, 1, ... `extent - 1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Loop {
    /// How it runs.
    pub kind: KernelLoopKind,
    /// Index variable.
    pub var: Sym,
    /// Number of iterations.
    pub extent: Expr,
    /// Body.
    pub body: Vec<Stmt>,
}

/// How a loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum KernelLoopKind {
    /// One iteration after another.
    For,
    /// As `For`, written out; constant extent.
    Unroll,
    /// `lanes` iterations at once, the last ones masked; `copies` groups with accumulators of their own.
    Vector {
        /// Iterations at once.
        lanes: u32,
        /// Groups in flight; 1 for plain loops.
        copies: u32,
        /// Whether the instructions of groups in flight are interleaved, rather than one group after the other: the body is
        /// straight, and no iteration touches what another one stores.
        interleaved: bool,
        /// A variable for the number of the lane among all that are in flight: in whole rounds of all copies the number of
        /// the iteration modulo `lanes * copies`, in what is left, where the first copy runs alone, modulo `lanes`.
        lane: Option<Sym>,
    },
    /// As `For`, with the copies that it begins with made some iterations ahead: a pass makes them so, or fails.
    Pipeline {
        /// Buffers of what is copied.
        buffers: u32,
    },
    /// In parallel, each iteration by one unit of a level of the machine. Threads are ordered by barriers alone, of which one has to
    /// be between a store and another thread's access. Statements outside of such loops are run by every thread, but one of them
    /// makes the stores to memory other than registers.
    Level(Team),
    /// By blocks, one for each iteration, which run at the same time except between `await turn` and `pass turn`: there they run in
    /// the order of iterations.
    Chain,
    /// As `For`, of a body that finds out whether an iteration has anything to do, which few have: acts that say where it stores, and one
    /// branch. Ahead of that it loads what the kernel only reads, so that many iterations are asked at once. The lanes of a warp, which come
    /// to it together, ask of an iteration each, and run those that have something to do together, in their order. In a loop over threads
    /// each thread asks of its own.
    Search,
    /// As `For`, iterations that an instruction takes together: a pass makes them a [`Dot`](super::Dot) or a [`MatrixProduct`](super::MatrixProduct), or fails.
    Mma {
        /// Whether by one that is less exact than the type of its sums: [`Instruction::rounds`](crate::target::Instruction::rounds).
        rounds: bool,
    },
}

impl KernelLoopKind {
    /// Those that run its iterations, if it is over a level.
    pub fn team(self) -> Option<Team> {
        match self {
            KernelLoopKind::Level(team) => Some(team),
            KernelLoopKind::Chain => Some(Level::Block.into()),
            KernelLoopKind::For
            | KernelLoopKind::Unroll
            | KernelLoopKind::Vector { .. }
            | KernelLoopKind::Pipeline { .. }
            | KernelLoopKind::Search
            | KernelLoopKind::Mma { .. } => None,
        }
    }

    /// The level that it is over, if there is one.
    pub fn level(self) -> Option<Level> {
        self.team().map(|team| team.level)
    }

    /// A vector loop of so many lanes, whose groups in flight run one after the other.
    pub fn vector(lanes: u32, copies: u32) -> KernelLoopKind {
        KernelLoopKind::Vector { lanes, copies, interleaved: false, lane: None }
    }
}

/// Calls `f` for every statement, outer ones first.
pub fn visit<'k>(stmts: &'k [Stmt], f: &mut impl FnMut(&'k Stmt)) {
    for stmt in stmts {
        f(stmt);
        for block in stmt.blocks() {
            visit(block, f);
        }
    }
}

/// Calls `f` for every statement, to be changed, inner ones first.
pub fn visit_mut(stmts: &mut [Stmt], f: &mut impl FnMut(&mut Stmt)) {
    for stmt in stmts {
        for block in stmt.blocks_mut() {
            visit_mut(block, f);
        }
        f(stmt);
    }
}

impl From<Act> for Stmt {
    fn from(act: Act) -> Stmt {
        Stmt::Act(act)
    }
}

impl Stmt {
    /// The blocks of statements in it, in order.
    pub fn blocks(&self) -> [&[Stmt]; 2] {
        match self {
            Stmt::Loop(inner) => [&inner.body, &[]],
            Stmt::If { then, other, .. } => [then, other],
            Stmt::Act(_) => [&[], &[]],
        }
    }

    /// The blocks of statements in it, to be changed.
    pub fn blocks_mut(&mut self) -> Vec<&mut Vec<Stmt>> {
        match self {
            Stmt::Loop(inner) => vec![&mut inner.body],
            Stmt::If { then, other, .. } => vec![then, other],
            Stmt::Act(_) => Vec::new(),
        }
    }

    /// The symbols that it defines itself: variables of loops, and of products; indices that are bound; buffers that are acquired.
    pub fn defined(&self) -> Vec<Sym> {
        match self {
            Stmt::Loop(Loop { kind: KernelLoopKind::Vector { lane: Some(lane), .. }, var, .. }) => {
                vec![*var, *lane]
            }
            Stmt::Loop(inner) => vec![inner.var],
            Stmt::Act(Act::Bind { sym, .. } | Act::Sync(Sync::Acquire { buffer: sym, .. })) => vec![*sym],
            Stmt::Act(Act::MatrixProduct(product)) => product.over.iter().map(|axis| axis.var).collect(),
            Stmt::If { .. } | Stmt::Act(_) => Vec::new(),
        }
    }

    /// Calls `f` with everything that it mentions itself; statements in it mention more.
    pub fn each_part<'a>(&'a self, f: &mut dyn FnMut(Part<'a>)) {
        match self {
            Stmt::Loop(inner) => f(Part::Expr(&inner.extent)),
            Stmt::If { cond, .. } => cond.iter().for_each(|rel| f(Part::Rel(rel))),
            Stmt::Act(act) => act.each_part(f),
        }
    }

    /// Calls `f` with everything that it mentions itself, to be changed.
    pub fn each_part_mut<'a>(&'a mut self, f: &mut dyn FnMut(PartMut<'a>)) {
        match self {
            Stmt::Loop(inner) => f(PartMut::Expr(&mut inner.extent)),
            Stmt::If { cond, .. } => cond.iter_mut().for_each(|rel| f(PartMut::Rel(rel))),
            Stmt::Act(act) => act.each_part_mut(f),
        }
    }

    /// Calls `f` with each value that it uses itself.
    pub fn each_value(&self, f: &mut impl FnMut(Val)) {
        self.each_part(&mut |part| {
            if let Part::Val(&value) = part {
                f(value);
            }
        });
    }

    /// The memories that it touches in one of these ways, with the coordinates.
    fn touched(&self, is_wanted: impl Fn(Touch) -> bool) -> impl Iterator<Item = (Mem, &[Expr])> {
        let mut touched = Vec::new();
        self.each_part(&mut |part| {
            if let Part::Access { touch, mem, beside, index, .. } = part
                && is_wanted(touch)
            {
                touched.extend([Some(mem), beside].into_iter().flatten().map(|&mem| (mem, index)));
            }
        });
        touched.into_iter()
    }

    /// The memories that it loads from, with the coordinates. What it combines with is not among them.
    pub fn loaded(&self) -> impl Iterator<Item = (Mem, &[Expr])> {
        self.touched(|touch| touch == Touch::Load)
    }

    /// The memories that it stores to, with the coordinates.
    pub fn stored(&self) -> impl Iterator<Item = (Mem, &[Expr])> {
        self.touched(|touch| touch == Touch::Store)
    }

    /// The memories that it accesses, with the coordinates. Hints are no accesses.
    pub fn accesses(&self) -> impl Iterator<Item = (Mem, &[Expr])> {
        self.touched(|touch| touch != Touch::Hint)
    }

    /// Calls `f` with each memory that it mentions and the coordinates there, to be changed: once where two memories share them.
    pub fn each_access_mut(&mut self, f: &mut impl FnMut(Mem, &mut [Expr])) {
        self.each_part_mut(&mut |part| {
            if let PartMut::Access { mem, index, .. } = part {
                f(*mem, index);
            }
        });
    }

    /// Calls `f` with every expression that it mentions itself, both sides of relations included, to be changed.
    pub fn each_expr_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        let rels = |rels: &mut [Rel], f: &mut dyn FnMut(&mut Expr)| {
            rels.iter_mut().flat_map(|rel| [&mut rel.lhs, &mut rel.rhs]).for_each(f);
        };
        self.each_part_mut(&mut |part| match part {
            PartMut::Access { index, guard, .. } => {
                index.iter_mut().for_each(&mut *f);
                rels(guard, f);
            }
            PartMut::Expr(value) => f(value),
            PartMut::Rel(rel) => rels(std::slice::from_mut(rel), f),
            PartMut::Val(_) => {}
        });
    }

    /// Replaces variable `var` by `value` in every expression that it mentions itself.
    pub fn replace(&mut self, var: Sym, value: Expr) {
        self.each_expr_mut(&mut |e| *e = e.replace(var, value));
    }

    /// Expressions that it mentions itself, both sides of relations included.
    pub fn exprs(&self) -> Vec<Expr> {
        let mut exprs = Vec::new();
        self.each_part(&mut |part| match part {
            Part::Access { index, guard, .. } => {
                exprs.extend(index);
                exprs.extend(guard.iter().flat_map(|rel| [rel.lhs, rel.rhs]));
            }
            Part::Expr(value) => exprs.push(*value),
            Part::Rel(rel) => exprs.extend([rel.lhs, rel.rhs]),
            Part::Val(_) => {}
        });
        exprs
    }
}
