//! Defines nests: axes, and a body that runs at each point of them.

use litz_sym::{Expr, Facts, Rel, Sym};

use super::{Buf, Val, unique};
use crate::dtype::Dtype;
use crate::ids::Id;
use crate::scalar::{ReduceOp, Scalar, ScalarOp};
use crate::target::Rounds;

/// A loop nest: a body and the axes it runs over.
#[derive(Clone, PartialEq, Debug)]
pub struct Nest {
    /// Unique among statements.
    pub name: String,
    /// Graph values it came from, without the `%`.
    pub from: Vec<String>,
    /// Outer axes, outermost first as written; order matters between points that store to one element alone.
    pub axes: Vec<Axis>,
    /// Reduced axes.
    pub reduced: Vec<Axis>,
    /// Where this holds, points of a nest that a region repeats may be left out: there neither this iteration nor a later one
    /// changes anything that is read where it does not hold.
    pub idle: Option<Rel>,
    /// How many of its products instructions may sum that are less exact than the type of the sums.
    pub rounds: Rounds,
    /// Instructions in order; [`Val`] is a position here.
    pub body: Vec<Inst>,
}

/// An axis: `var` takes 0, 1, ... `extent - 1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Axis {
    /// The index variable.
    pub var: Sym,
    /// Number of points; may be 0, never negative.
    pub extent: Expr,
}

/// An instruction and the type of its result (for a store: of the value stored).
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// What it does.
    pub op: InstOp,
    /// Result type. Loads of half types may name a wider type: the conversion is part of the load.
    pub ty: Dtype,
}

/// What an instruction does.
#[derive(Clone, PartialEq, Debug)]
pub enum InstOp {
    /// `load x[i, k]`, or `load x[i, k] if a < b, ... else 0.0`: the element, or `other` where a guard fails.
    /// The element is read in the buffer's type; no conversion.
    Load {
        /// Buffer read.
        buf: Buf,
        /// The element's coordinate along each dimension of the buffer.
        index: Vec<Expr>,
        /// All must hold for the load to happen.
        guard: Vec<Rel>,
        /// Result where a guard fails.
        other: Scalar,
    },
    /// A literal.
    Const(Scalar),
    /// The value of an index expression, as i64.
    Index(Expr),
    /// Whether a relation of index expressions holds.
    Cond(Rel),
    /// An operation on values.
    Op(ScalarOp, Vec<Val>),
    /// Conversion of numbers to the instruction's type, as PyTorch's `to`.
    Cast(Val),
    /// Reinterpretation of the bits as the instruction's type, of equal size.
    Bitcast(Val),
    /// `bind t = %v in n`: checks 0 <= %v < n at run time (a failure is an error of the call) and lets index
    /// expressions of later instructions use the symbol `t` for it. `bind t = %v in 1 for divisor` checks that %v, whether a
    /// divisor is zero, does not hold, and `for value` the same of whether an element is not what the operator takes.
    Bind {
        /// Symbol defined.
        sym: Sym,
        /// An i64 value.
        value: Val,
        /// Exclusive upper bound.
        extent: Expr,
        /// What the number is, for the error.
        of: BindOf,
    },
    /// Combines the values over all points of the reduced axes.
    Reduce(ReduceOp, Val),
    /// Position, along the reduced axes flattened row-major, of the largest (`max`) or smallest value: first of
    /// equals, NaN above (below) all; 0 where there are no points. Result i64.
    ArgReduce {
        /// True for argmax.
        max: bool,
        /// Value compared.
        value: Val,
    },
    /// Inclusive running combination along the single axis `axis`, in increasing order of it.
    Scan {
        /// Combination.
        op: ReduceOp,
        /// Value combined.
        value: Val,
        /// One of the nest's outer axes.
        axis: Sym,
    },
    /// `store x[i, j] = %v`, or `store.sum`: writes one element of the buffer, combining when `combine` is given.
    /// A store depending on a reduce (or not on a reduced axis) runs once per outer point.
    Store {
        /// Buffer written.
        buf: Buf,
        /// The element's coordinate along each dimension of the buffer.
        index: Vec<Expr>,
        /// Value, of the buffer's type.
        value: Val,
        /// How to combine with what is there.
        combine: Option<ReduceOp>,
    },
}

/// What is checked to be in its range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BindOf {
    /// An index.
    Index,
    /// Whether an integer that others are divided by is zero.
    Divisor,
    /// Whether an element is none of those that the operator takes.
    Value,
}

impl BindOf {
    /// What to say where it is not in its range, in a nest of these operators.
    pub fn failure(self, from: &[String]) -> String {
        match self {
            BindOf::Index => format!("index of {} is out of range", from.join(", ")),
            BindOf::Divisor => format!("{} divides by zero", from.join(", ")),
            BindOf::Value => format!("an element is outside of the range that {} takes", from.join(", ")),
        }
    }
}

impl Nest {
    /// One that runs its body at each point of its axes: it reduces nothing.
    pub fn new(name: String, from: Vec<String>, axes: Vec<Axis>, body: Vec<Inst>) -> Nest {
        Nest { name, from, axes, reduced: Vec::new(), idle: None, rounds: Rounds::Never, body }
    }

    /// Buffers read, in order of first mention; combining stores read what they write.
    pub fn reads(&self) -> Vec<Buf> {
        let read = |inst: &Inst| {
            let is_read = !matches!(inst.op, InstOp::Store { combine: None, .. });
            inst.op.element().filter(|_| is_read).map(|(buf, _)| buf)
        };
        unique(self.body.iter().filter_map(read).collect())
    }
    /// Buffers written, in order of first mention.
    pub fn writes(&self) -> Vec<Buf> {
        let written = |inst: &Inst| if let InstOp::Store { buf, .. } = inst.op { Some(buf) } else { None };
        unique(self.body.iter().filter_map(written).collect())
    }
    /// The axes, and the symbols that the body binds.
    pub fn indices(&self) -> impl Iterator<Item = Axis> {
        let bound = self.body.iter().filter_map(|inst| {
            if let InstOp::Bind { sym, extent, .. } = inst.op {
                Some(Axis { var: sym, extent })
            } else {
                None
            }
        });
        self.all_axes().copied().chain(bound)
    }
    /// Declares the axes, and the symbols the body binds, as indices.
    pub fn declare(&self, facts: &mut Facts) {
        self.indices().for_each(|index| facts.declare_index(index.var, index.extent));
    }
    /// `facts` with what [`Nest::declare`] declares.
    pub fn facts(&self, facts: &Facts) -> Facts {
        let mut facts = facts.clone();
        self.declare(&mut facts);
        facts
    }
    /// All axes, outer ones first.
    pub fn all_axes(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().chain(&self.reduced)
    }
    /// Whether the nest has a part that runs once per outer point.
    pub fn reduces(&self) -> bool {
        self.body.iter().any(|inst| inst.op.is_reduction())
    }
    /// Whether the nest keeps running values: it reduces or scans.
    pub fn accumulates(&self) -> bool {
        self.reduces() || self.scanned().next().is_some()
    }
    /// Axes that scans run along.
    pub fn scanned(&self) -> impl Iterator<Item = Sym> {
        let along = |inst: &Inst| if let InstOp::Scan { axis, .. } = inst.op { Some(axis) } else { None };
        self.body.iter().filter_map(along)
    }
    /// Whether running values are combined along an axis: a reduced one, or that of a scan.
    pub fn is_running(&self, axis: Sym) -> bool {
        self.reduced.iter().any(|reduced| reduced.var == axis)
            || self.scanned().any(|scanned| scanned == axis)
    }
    /// The axes along which each point has a running value of its own.
    pub fn kept_apart(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().filter(|axis| !self.scanned().any(|scanned| scanned == axis.var))
    }
    /// For each instruction, whether it differs from one reduced point to another.
    pub fn varying(&self) -> Vec<bool> {
        let mut symbols: Vec<Sym> = self.reduced.iter().map(|axis| axis.var).collect();
        let mut varies: Vec<bool> = Vec::with_capacity(self.body.len());
        for inst in &self.body {
            let by_operand = inst.op.operands().iter().any(|val| varies.get(val.index()) == Some(&true));
            let by_symbol = inst.op.exprs().iter().any(|e| symbols.iter().any(|&sym| e.has_sym(sym)));
            let own = !inst.op.is_reduction() && (by_operand || by_symbol);
            if let (InstOp::Bind { sym, .. }, true) = (&inst.op, own) {
                symbols.push(*sym);
            }
            varies.push(own);
        }
        varies
    }
    /// For each instruction, whether it runs once per outer point after the reduction (true), that is, whether it
    /// depends on a `reduce`; stores of values that depend on no reduce and on no reduced axis count as such too.
    pub fn after_reduce(&self) -> Vec<bool> {
        let varies = self.varying();
        let mut after: Vec<bool> = Vec::with_capacity(self.body.len());
        for (inst, varies) in self.body.iter().zip(varies) {
            after.push(match &inst.op {
                InstOp::Reduce(..) | InstOp::ArgReduce { .. } => true,
                InstOp::Store { .. } => !varies,
                InstOp::Load { .. }
                | InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. }
                | InstOp::Scan { .. } => {
                    inst.op.operands().iter().any(|val| after.get(val.index()) == Some(&true))
                }
            });
        }
        after
    }
}

impl InstOp {
    /// Whether it gives a value that is a function of loaded elements, indices and other values at its point alone.
    pub fn is_term(&self) -> bool {
        match self {
            InstOp::Load { .. }
            | InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_) => true,
            InstOp::Bind { .. }
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => false,
        }
    }
    /// The element that a load or store accesses: its buffer and coordinates.
    pub fn element(&self) -> Option<(Buf, &[Expr])> {
        match self {
            InstOp::Load { buf, index, .. } | InstOp::Store { buf, index, .. } => Some((*buf, index)),
            InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Bind { .. }
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. } => None,
        }
    }
    /// Values used.
    pub fn operands(&self) -> Vec<Val> {
        match self {
            InstOp::Load { .. } | InstOp::Const(_) | InstOp::Index(_) | InstOp::Cond(_) => Vec::new(),
            InstOp::Op(_, args) => args.clone(),
            InstOp::Cast(v)
            | InstOp::Bitcast(v)
            | InstOp::Bind { value: v, .. }
            | InstOp::Reduce(_, v)
            | InstOp::ArgReduce { value: v, .. }
            | InstOp::Scan { value: v, .. }
            | InstOp::Store { value: v, .. } => vec![*v],
        }
    }
    /// Whether it gives one value for all points along the reduced axes.
    pub fn is_reduction(&self) -> bool {
        matches!(self, InstOp::Reduce(..) | InstOp::ArgReduce { .. })
    }
    /// Values used, to be changed.
    pub fn operands_mut(&mut self) -> Vec<&mut Val> {
        match self {
            InstOp::Load { .. } | InstOp::Const(_) | InstOp::Index(_) | InstOp::Cond(_) => Vec::new(),
            InstOp::Op(_, args) => args.iter_mut().collect(),
            InstOp::Cast(v)
            | InstOp::Bitcast(v)
            | InstOp::Bind { value: v, .. }
            | InstOp::Reduce(_, v)
            | InstOp::ArgReduce { value: v, .. }
            | InstOp::Scan { value: v, .. }
            | InstOp::Store { value: v, .. } => vec![v],
        }
    }
    /// Index expressions mentioned, both sides of relations included.
    pub fn exprs(&self) -> Vec<Expr> {
        match self {
            InstOp::Load { index, guard, .. } => {
                let mut all = index.clone();
                all.extend(guard.iter().flat_map(|r| [r.lhs, r.rhs]));
                all
            }
            InstOp::Index(e) => vec![*e],
            InstOp::Cond(r) => vec![r.lhs, r.rhs],
            InstOp::Store { index, .. } => index.clone(),
            InstOp::Bind { extent, .. } => vec![*extent],
            InstOp::Const(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. } => Vec::new(),
        }
    }
    /// Rewrites every index expression.
    pub fn map_exprs(&mut self, f: &mut impl FnMut(Expr) -> Expr) {
        match self {
            InstOp::Load { index, guard, .. } => {
                index.iter_mut().for_each(|at| *at = f(*at));
                for r in guard {
                    r.lhs = f(r.lhs);
                    r.rhs = f(r.rhs);
                }
            }
            InstOp::Index(e) => *e = f(*e),
            InstOp::Cond(r) => {
                r.lhs = f(r.lhs);
                r.rhs = f(r.rhs);
            }
            InstOp::Store { index, .. } => index.iter_mut().for_each(|at| *at = f(*at)),
            InstOp::Bind { extent, .. } => *extent = f(*extent),
            InstOp::Const(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. } => {}
        }
    }
}
