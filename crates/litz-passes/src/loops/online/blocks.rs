//! Cuts nests to blocks of columns, and finds what they compute for columns past the last one.

use super::super::names;
use litz_analysis::online::Chain;
use litz_analysis::online::chain::nest;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Val};
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::BTreeMap;

/// How columns are cut into blocks.
pub struct Blocks {
    /// Counts blocks, of each slab.
    pub over: Axis,
    /// Counts slabs, which have the same number of blocks, if there are several.
    pub slabs: Option<Axis>,
    /// Columns.
    pub columns: Expr,
    /// Columns of a block.
    pub width: i64,
    /// Every block is full.
    pub is_whole: bool,
}

impl Blocks {
    /// Blocks of so many columns of a chain, in so many slabs.
    pub fn new(loops: &Loops, chain: &Chain, width: i64, slabs: i64) -> Blocks {
        let name = |name: &str| {
            let nests = chain.members.keys().filter_map(|&at| nest(loops, at));
            names::symbol(name, &loops.facts, nests.flat_map(Nest::all_axes))
        };
        let extent = chain.columns.ceildiv(width * slabs);
        let over = Axis { var: name("jb"), extent };
        let slabs = (slabs > 1).then(|| Axis { var: name("slab"), extent: Expr::int(slabs) });
        let all = slabs.map_or(width, |slabs| width * slabs.extent.as_int().unwrap_or(1));
        let is_whole = loops.facts.divides(all, chain.columns);
        Blocks { over, slabs, columns: chain.columns, width, is_whole }
    }

    /// The column that `var` is in a block.
    pub fn column(&self, var: Sym) -> Expr {
        let slab = self.slabs.map_or(Expr::zero(), |slabs| Expr::sym(slabs.var) * self.over.extent);
        (slab + Expr::sym(self.over.var)) * self.width + Expr::sym(var)
    }

    /// Holds for columns that there are.
    pub fn exists(&self, var: Sym) -> Rel {
        Rel::lt(self.column(var), self.columns)
    }

    /// Axes of a nest, with the one that counts columns running over a block.
    pub fn axes(&self, axes: &[Axis], column: Sym) -> Vec<Axis> {
        let width = Expr::int(self.width);
        axes.iter()
            .map(|axis| if axis.var == column { Axis { extent: width, ..*axis } } else { *axis })
            .collect()
    }

    /// An instruction at columns of a block. Loads along them are guarded where the block may not be full, and give `missing`
    /// there, unless the buffer has elements for columns past the last one, too.
    pub fn cut(&self, inst: &mut Inst, column: Sym, loops: &Loops, facts: &Facts, missing: f64) {
        let is_along = inst.op.exprs().iter().any(|e| e.has_sym(column));
        inst.op.map_exprs(&mut |e| {
            if e.has_sym(column) { facts.simplify(e.replace(column, self.column(column))) } else { e }
        });
        if let InstOp::Load { buf, index, guard, other } = &mut inst.op
            && is_along
            && !self.is_whole
            && !is_inside(loops, *buf, index, facts)
        {
            if guard.is_empty() {
                *other = if inst.ty.is_float() { Scalar::Float(missing) } else { Scalar::zero(inst.ty) };
            }
            guard.push(self.exists(column));
        }
    }
}

/// Whether an element is one of its buffer: columns past the last one may be before the first element, where a nest goes through a dimension backwards.
fn is_inside(loops: &Loops, buf: Buf, index: &[Expr], facts: &Facts) -> bool {
    let mut coordinates = index.iter().zip(&loops.bufs[buf].sizes);
    coordinates.all(|(&at, &size)| facts.holds(&Rel::lt(at, size)) && facts.holds(&Rel::le(0, at)))
}

/// What a value is at points where a condition fails, such as for columns past the last one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Missing {
    /// That number.
    Number(f64),
    /// Neither infinite nor NaN.
    Finite,
    /// Anything.
    Unknown,
}

/// For each instruction of a body, what it is where a relation of indices fails, in a condition or guard. `known` has buffers of
/// which it is known what they hold there, and `is_finite` says which others hold finite numbers.
pub fn missing(
    body: &[Inst],
    known: &BTreeMap<Buf, Missing>,
    is_finite: &dyn Fn(Buf) -> bool,
    fails: Option<Rel>,
) -> Vec<Missing> {
    let mut all: Vec<Missing> = Vec::with_capacity(body.len());
    for inst in body {
        let of = |val: &Val| all[val.index()];
        all.push(match &inst.op {
            InstOp::Const(scalar) => Missing::Number(scalar.as_f64()),
            InstOp::Load { guard, other, .. } if fails.is_some_and(|rel| guard.contains(&rel)) => {
                Missing::Number(other.as_f64())
            }
            InstOp::Load { buf, .. } => match known.get(buf) {
                Some(&number @ Missing::Number(_)) => number,
                _ if is_finite(*buf) => Missing::Finite,
                _ => Missing::Unknown,
            },
            InstOp::Cond(rel) if fails == Some(*rel) => Missing::Number(0.0),
            InstOp::Cast(value) if inst.ty.is_float() => of(value),
            InstOp::Op(op, args) => operation(*op, &args.iter().map(of).collect::<Vec<_>>()),
            InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Bind { .. }
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => Missing::Unknown,
        });
    }
    all
}

fn operation(op: ScalarOp, args: &[Missing]) -> Missing {
    use Missing::{Finite, Number, Unknown};
    let is_finite = |arg: &Missing| match arg {
        Number(number) => number.is_finite(),
        Finite => true,
        Unknown => false,
    };
    match (op, args) {
        (ScalarOp::Add, [Number(a), Number(b)]) => Number(a + b),
        (ScalarOp::Sub, [Number(a), Number(b)]) => Number(a - b),
        (ScalarOp::Mul, [Number(a), Number(b)]) => Number(a * b),
        (ScalarOp::Div, [Number(a), Number(b)]) => Number(a / b),
        (ScalarOp::Neg, [Number(a)]) => Number(-a),
        // -inf - m => -inf
        (ScalarOp::Add | ScalarOp::Sub, [Number(a), other]) if a.is_infinite() && is_finite(other) => {
            Number(*a)
        }
        (ScalarOp::Add, [other, Number(a)]) if a.is_infinite() && is_finite(other) => Number(*a),
        (ScalarOp::Sub, [other, Number(a)]) if a.is_infinite() && is_finite(other) => Number(-a),
        // 0 * m => 0
        (ScalarOp::Mul, [Number(0.0), other] | [other, Number(0.0)]) if is_finite(other) => Number(0.0),
        (ScalarOp::Exp | ScalarOp::Exp2, [Number(a)]) if *a == f64::NEG_INFINITY => Number(0.0),
        (ScalarOp::And, [Number(0.0), _] | [_, Number(0.0)]) => Number(0.0),
        (ScalarOp::Select, [Number(0.0), _, b]) => *b,
        (ScalarOp::Select, [_, a, b]) if a == b => *a,
        (ScalarOp::Select, [_, a, b]) if is_finite(a) && is_finite(b) => Finite,
        _ => Unknown,
    }
}

/// A body in the making.
#[derive(Default)]
pub struct Body(pub Vec<Inst>);

impl Body {
    /// Adds an instruction.
    pub fn push(&mut self, ty: Dtype, op: InstOp) -> Val {
        self.0.push(Inst { op, ty });
        Val(self.0.len() as u32 - 1)
    }
    /// Adds a load of what there is of a buffer.
    pub fn load(&mut self, ty: Dtype, buf: Buf, index: &[Expr]) -> Val {
        self.push(ty, InstOp::Load { buf, index: index.to_vec(), guard: Vec::new(), other: Scalar::zero(ty) })
    }
    /// Adds a literal.
    pub fn literal(&mut self, ty: Dtype, value: f64) -> Val {
        self.push(ty, InstOp::Const(Scalar::Float(value)))
    }
    /// Adds an operation.
    pub fn op(&mut self, ty: Dtype, op: ScalarOp, args: &[Val]) -> Val {
        self.push(ty, InstOp::Op(op, args.to_vec()))
    }
    /// Adds a number that is an index expression.
    pub fn number(&mut self, ty: Dtype, value: Expr) -> Val {
        let index = self.push(Dtype::I64, InstOp::Index(value));
        self.push(ty, InstOp::Cast(index))
    }
    /// `value` times a constant.
    pub fn times(&mut self, ty: Dtype, value: Val, by: f64) -> Val {
        if by == 1.0 {
            return value;
        }
        let by = self.literal(ty, by);
        self.op(ty, ScalarOp::Mul, &[value, by])
    }
    /// `value` where the column exists, `other` elsewhere.
    pub fn masked(&mut self, ty: Dtype, value: Val, exists: Rel, other: Scalar) -> Val {
        let keep = self.push(Dtype::Bool, InstOp::Cond(exists));
        let removed = self.push(ty, InstOp::Const(other));
        self.op(ty, ScalarOp::Select, &[keep, value, removed])
    }
    /// Adds a store.
    pub fn store(&mut self, ty: Dtype, buf: Buf, index: &[Expr], value: Val) {
        self.push(ty, InstOp::Store { buf, index: index.to_vec(), value, combine: None });
    }
}
