//! Builds the bodies of nests: axes, loads, scalar operations and stores, appended in order.

use crate::args::{Args, Number};
use crate::view::ValueAccess;
use litz_ir::dtype::Kind;
use litz_ir::loops::{Axis, BindOf, Inst, InstOp, Nest, Val};
use litz_ir::scalar::Signature;
use litz_ir::target::Rounds;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::ops::{Deref, DerefMut};

/// A nest being built. Equal pure instructions are made once.
pub struct Body<'a> {
    facts: &'a Facts,
    /// The program's facts and the ranges of this nest's axes; made when an index needs them.
    scoped: Option<Facts>,
    axes: Vec<Axis>,
    reduced: Vec<Axis>,
    insts: Vec<Inst>,
    binds: usize,
    rounds: Rounds,
}

/// The body of a pointwise operator being built: a [`Body`] and the node's arguments.
pub struct Point<'p, 'a> {
    body: &'p mut Body<'a>,
    /// The node's arguments.
    pub args: &'p Args<'p>,
    /// The condition argument, as bool.
    pub condition: Option<Val>,
    /// The type operands arrive in.
    pub dtype: Dtype,
    /// The type that they have in common, whose compute type that is.
    common: Dtype,
}

const AXIS_NAMES: [&str; 8] = ["i", "j", "k", "l", "m", "n", "o", "p"];

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),+) = $op:ident;)*) => {
        impl Body<'_> {
            $($(#[$doc])* pub fn $name(&mut self, $($arg: Val),+) -> Val { self.op(ScalarOp::$op, &[$($arg),+]) })*
        }
    };
}

operations! {
    /// `a + b`
    add(a, b) = Add;
    /// `a - b`
    sub(a, b) = Sub;
    /// `a * b`
    mul(a, b) = Mul;
    /// `a / b`
    div(a, b) = Div;
    /// The larger; NaN wins.
    max(a, b) = Max;
    /// The smaller; NaN wins.
    min(a, b) = Min;
    /// `-a`
    neg(a) = Neg;
    /// `|a|`
    abs(a) = Abs;
    /// e to the power of `a`.
    exp(a) = Exp;
    /// Natural logarithm.
    log(a) = Log;
    /// `log(1 + a)`
    log1p(a) = Log1p;
    /// Square root.
    sqrt(a) = Sqrt;
    /// Hyperbolic tangent.
    tanh(a) = Tanh;
    /// Error function.
    erf(a) = Erf;
    /// `floor(a)`
    floor(a) = Floor;
    /// `a == b`
    eq(a, b) = Eq;
    /// `a != b`
    ne(a, b) = Ne;
    /// `a < b`
    lt(a, b) = Lt;
    /// `a <= b`
    le(a, b) = Le;
    /// `a > b`
    gt(a, b) = Gt;
    /// `a >= b`
    ge(a, b) = Ge;
    /// Logical or bitwise and.
    and(a, b) = And;
    /// Logical or bitwise or.
    or(a, b) = Or;
    /// Logical or bitwise not.
    not(a) = Not;
    /// `if c then a else b`
    select(c, a, b) = Select;
}

impl<'a> Body<'a> {
    pub(crate) fn new(facts: &'a Facts) -> Body<'a> {
        let (axes, reduced, insts) = (Vec::new(), Vec::new(), Vec::new());
        Body { facts, scoped: None, axes, reduced, insts, binds: 0, rounds: Rounds::Never }
    }

    /// Allows instructions that are less exact than the type of sums to add up products.
    pub(crate) fn round_sums(&mut self, rounds: Rounds) {
        self.rounds = rounds;
    }

    /// An outer axis; its variable. An extent of 1 needs no axis: the coordinate is 0.
    pub fn axis(&mut self, extent: Expr) -> Expr {
        if self.extent(extent).is_one() {
            return Expr::zero();
        }
        let at = self.axes.len();
        let name = AXIS_NAMES.get(at).map_or_else(|| format!("i{at}"), |n| (*n).to_owned());
        let axis = self.new_axis(name, extent);
        self.axes.push(axis);
        Expr::sym(axis.var)
    }

    /// Outer axes, one for each size.
    pub fn axes(&mut self, sizes: &[Expr]) -> Vec<Expr> {
        sizes.iter().map(|&s| self.axis(s)).collect()
    }

    /// A reduced axis; its variable.
    pub fn reduced_axis(&mut self, extent: Expr) -> Expr {
        let axis = self.new_axis(format!("r{}", self.reduced.len()), extent);
        self.reduced.push(axis);
        Expr::sym(axis.var)
    }

    fn new_axis(&mut self, name: String, extent: Expr) -> Axis {
        let axis = Axis { var: self.fresh(name), extent: self.extent(extent) };
        if let Some(scoped) = &mut self.scoped {
            scoped.declare_index(axis.var, axis.extent);
        }
        axis
    }

    fn extent(&self, extent: Expr) -> Expr {
        if extent.as_int().is_some() { extent } else { self.facts.simplify(extent) }
    }

    /// A symbol of that name, or a longer one where a size symbol has it.
    fn fresh(&self, mut name: String) -> Sym {
        while self.facts.is_symbol_declared(Sym::new(&name)) {
            name.push('_');
        }
        Sym::new(&name)
    }

    fn scoped(&mut self) -> &Facts {
        let (facts, axes) = (self.facts, self.axes.iter().chain(&self.reduced));
        self.scoped.get_or_insert_with(|| {
            let mut scoped = facts.clone();
            axes.for_each(|a| scoped.declare_index(a.var, a.extent));
            scoped
        })
    }

    /// Where an element of a value is, in the simplest form.
    fn place(&mut self, access: &ValueAccess, at: &[Expr]) -> Vec<Expr> {
        access.at(at).into_iter().map(|index| self.simplify(index)).collect()
    }

    /// An index in its simplest form under the ranges of the axes.
    pub fn simplify(&mut self, index: Expr) -> Expr {
        if index.is_polynomial() { index } else { self.scoped().simplify(index) }
    }

    /// The element of a value, as stored.
    pub fn load(&mut self, from: &ValueAccess, at: &[Expr]) -> Val {
        self.load_if(from, at, Vec::new(), Scalar::zero(from.dtype))
    }

    /// The element of a value, as stored, or `other` where a guard fails. Guards that always hold are left out.
    pub fn load_if(&mut self, from: &ValueAccess, at: &[Expr], guard: Vec<Rel>, other: Scalar) -> Val {
        let index = self.place(from, at);
        let guard: Vec<Rel> = if guard.is_empty() {
            guard
        } else {
            let scoped = self.scoped();
            guard.into_iter().filter(|rel| !scoped.holds(rel)).collect()
        };
        let other = other.to(from.dtype);
        self.push(InstOp::Load { buf: from.buf, index, guard, other }, from.dtype)
    }

    /// The element of a value in its compute type: half types widened.
    pub fn read(&mut self, from: &ValueAccess, at: &[Expr]) -> Val {
        self.read_as(from, at, from.dtype.compute())
    }

    /// The element of a value, converted.
    pub fn read_as(&mut self, from: &ValueAccess, at: &[Expr], dtype: Dtype) -> Val {
        let v = self.load(from, at);
        self.cast(v, dtype)
    }

    /// Writes an element, converting to the buffer's type.
    pub fn store(&mut self, to: &ValueAccess, at: &[Expr], value: Val) {
        self.store_combined(to, at, value, None);
    }

    /// Writes an element, combining with what is there.
    pub fn store_combined(&mut self, to: &ValueAccess, at: &[Expr], value: Val, combine: Option<ReduceOp>) {
        let index = self.place(to, at);
        let value = self.cast(value, to.dtype);
        self.push(InstOp::Store { buf: to.buf, index, value, combine }, to.dtype);
    }

    /// A literal.
    pub fn literal(&mut self, value: Scalar, dtype: Dtype) -> Val {
        self.push(InstOp::Const(value.to(dtype)), dtype)
    }

    /// A literal of the type of `like`.
    pub fn lit(&mut self, like: Val, value: f64) -> Val {
        let dtype = self.ty(like);
        self.literal(Scalar::Float(value), dtype)
    }

    /// The value of an index expression, as i64 converted to `dtype`.
    pub fn index(&mut self, e: Expr, dtype: Dtype) -> Val {
        let e = self.simplify(e);
        if let Some(i) = e.as_int() {
            return self.literal(Scalar::Int(i), dtype);
        }
        let v = self.push(InstOp::Index(e), Dtype::I64);
        self.cast(v, dtype)
    }

    /// A number argument as a value.
    pub fn number(&mut self, n: Number, dtype: Dtype) -> Val {
        match n {
            Number::Bool(b) => self.literal(Scalar::Bool(b), dtype),
            Number::Float(f) | Number::Complex(f, _) => self.literal(Scalar::Float(f), dtype),
            Number::Int(e) => self.index(e, dtype),
        }
    }

    /// A number in the compute type of `dtype`, rounded to `dtype`.
    pub fn rounded_number(&mut self, n: Number, dtype: Dtype) -> Val {
        let literal = match n {
            Number::Bool(b) => Some(Scalar::Bool(b)),
            Number::Float(f) | Number::Complex(f, _) => Some(Scalar::Float(f)),
            Number::Int(e) => e.as_int().map(Scalar::Int),
        };
        match literal {
            Some(literal) => self.literal(literal.rounded(dtype), dtype.compute()),
            None => {
                let exact = self.number(n, dtype.compute());
                let rounded = self.cast(exact, dtype);
                self.cast(rounded, dtype.compute())
            }
        }
    }

    /// Whether a relation of index expressions holds.
    pub fn cond(&mut self, rel: Rel) -> Val {
        match self.scoped().known(&rel) {
            litz_sym::Known::Yes => self.literal(Scalar::Bool(true), Dtype::Bool),
            litz_sym::Known::No => self.literal(Scalar::Bool(false), Dtype::Bool),
            litz_sym::Known::Unknown => {
                let rel = Rel { cmp: rel.cmp, lhs: self.simplify(rel.lhs), rhs: self.simplify(rel.rhs) };
                self.push(InstOp::Cond(rel), Dtype::Bool)
            }
        }
    }

    /// A value usable in indices: checked to be at least 0 and below `extent` at run time.
    pub fn bind(&mut self, value: Val, extent: Expr) -> Expr {
        self.bind_as(BindOf::Index, value, extent)
    }

    /// Checks at run time that an integer that others are divided by is not zero.
    pub fn check_divisor(&mut self, divisor: Val) {
        let is_known = match &self.insts[divisor.0 as usize].op {
            InstOp::Const(number) => number.as_f64() != 0.0,
            &InstOp::Index(e) => self.scoped().holds(&Rel::ne(e, Expr::zero())),
            _ => false,
        };
        if !is_known {
            let zero = self.lit(divisor, 0.0);
            let is_zero = self.eq(divisor, zero);
            self.bind_as(BindOf::Divisor, is_zero, Expr::one());
        }
    }

    /// Checks at run time that an element is one that the operator takes.
    pub fn check_value(&mut self, holds: Val) {
        let fails = self.not(holds);
        self.bind_as(BindOf::Value, fails, Expr::one());
    }

    fn bind_as(&mut self, of: BindOf, value: Val, extent: Expr) -> Expr {
        let value = self.cast(value, Dtype::I64);
        let same = |inst: &Inst| match inst.op {
            InstOp::Bind { sym, value: v, extent: e, of: o } if (v, e, o) == (value, extent, of) => {
                Some(Expr::sym(sym))
            }
            _ => None,
        };
        if let Some(found) = self.insts.iter().find_map(same) {
            return found;
        }
        let sym = self.fresh(format!("t{}", self.binds));
        self.binds += 1;
        self.scoped();
        if let Some(scoped) = &mut self.scoped {
            scoped.declare_index(sym, extent);
        }
        self.push(InstOp::Bind { sym, value, extent, of }, Dtype::I64);
        Expr::sym(sym)
    }

    /// As [`Body::bind`], negative values counting from the end.
    pub fn bind_wrapped(&mut self, value: Val, extent: Expr) -> Expr {
        let value = self.cast(value, Dtype::I64);
        let (zero, n) = (self.lit(value, 0.0), self.index(extent, Dtype::I64));
        let (negative, wrapped) = (self.lt(value, zero), self.add(value, n));
        let value = self.select(negative, wrapped, value);
        self.bind(value, extent)
    }

    /// A scalar operation; the result type follows from its signature.
    pub fn op(&mut self, op: ScalarOp, args: &[Val]) -> Val {
        let ty = match op.signature() {
            Signature::Compare => Dtype::Bool,
            Signature::Select => self.ty(args[1]),
            Signature::Same | Signature::Float | Signature::Bits => self.ty(args[0]),
        };
        self.push(InstOp::Op(op, args.to_vec()), ty)
    }

    /// Conversion as PyTorch's `to`; nothing when the type is right.
    pub fn cast(&mut self, v: Val, dtype: Dtype) -> Val {
        if self.ty(v) == dtype { v } else { self.push(InstOp::Cast(v), dtype) }
    }

    /// Reinterpretation of the bits.
    pub fn bitcast(&mut self, v: Val, dtype: Dtype) -> Val {
        if self.ty(v) == dtype { v } else { self.push(InstOp::Bitcast(v), dtype) }
    }

    /// Combines a value over the reduced axes; without any, the value itself.
    pub fn reduce(&mut self, op: ReduceOp, v: Val) -> Val {
        if self.reduced.is_empty() {
            return v;
        }
        let ty = self.ty(v);
        self.push(InstOp::Reduce(op, v), ty)
    }

    /// Position of the extreme along the reduced axes.
    pub fn arg_reduce(&mut self, max: bool, value: Val) -> Val {
        if self.reduced.is_empty() {
            return self.literal(Scalar::Int(0), Dtype::I64);
        }
        self.push(InstOp::ArgReduce { max, value }, Dtype::I64)
    }

    /// Running combination along an outer axis, given by its variable.
    pub fn scan(&mut self, op: ReduceOp, value: Val, axis: Expr) -> Val {
        let ty = self.ty(value);
        // An axis of extent 1 has no variable, and nothing to combine.
        match axis.as_sym() {
            Some(axis) => self.push(InstOp::Scan { op, value, axis }, ty),
            None => value,
        }
    }

    /// The type of a value.
    pub fn ty(&self, v: Val) -> Dtype {
        self.insts[v.0 as usize].ty
    }

    fn push(&mut self, op: InstOp, ty: Dtype) -> Val {
        let inst = Inst { op, ty };
        let pure = !matches!(inst.op, InstOp::Store { .. } | InstOp::Bind { .. });
        let at = if pure { self.insts.iter().position(|i| *i == inst) } else { None };
        let at = at.unwrap_or_else(|| {
            self.insts.push(inst);
            self.insts.len() - 1
        });
        Val(at as u32)
    }

    pub(crate) fn finish(self, name: String, from: Vec<String>) -> Nest {
        Nest {
            name,
            from,
            axes: self.axes,
            reduced: self.reduced,
            idle: None,
            rounds: self.rounds,
            body: without_unused(self.insts),
        }
    }
}

/// The instructions that stores and checks need.
fn without_unused(mut insts: Vec<Inst>) -> Vec<Inst> {
    let mut used: Vec<bool> =
        insts.iter().map(|i| matches!(i.op, InstOp::Store { .. } | InstOp::Bind { .. })).collect();
    for at in (0..insts.len()).rev() {
        if used[at] {
            insts[at].op.operands().iter().for_each(|v| used[v.0 as usize] = true);
        }
    }
    let mut places = vec![Val(0); insts.len()];
    let kept = places.iter_mut().zip(&used).filter(|(_, used)| **used);
    kept.zip(0..).for_each(|((place, _), at)| *place = Val(at));
    insts.iter_mut().for_each(|i| i.op.operands_mut().into_iter().for_each(|v| *v = places[v.0 as usize]));
    let mut used = used.into_iter();
    insts.retain(|_| used.next().unwrap_or(false));
    insts
}

impl<'p, 'a> Point<'p, 'a> {
    pub(crate) fn new(
        body: &'p mut Body<'a>,
        args: &'p Args<'p>,
        condition: Option<Val>,
        common: Dtype,
    ) -> Self {
        Point { body, args, condition, dtype: common.compute(), common }
    }

    /// As [`Body::op`]; integers are not divided by zero.
    pub fn op(&mut self, op: ScalarOp, args: &[Val]) -> Val {
        let divides = matches!(op, ScalarOp::Div | ScalarOp::FloorDiv | ScalarOp::Mod | ScalarOp::Rem);
        if let [_, divisor] = *args
            && divides
            && self.ty(divisor).kind() == Kind::Int
        {
            self.body.check_divisor(divisor);
        }
        self.body.op(op, args)
    }

    /// As [`Body::div`]; integers are not divided by zero.
    pub fn div(&mut self, a: Val, b: Val) -> Val {
        self.op(ScalarOp::Div, &[a, b])
    }

    /// The value that the operands' common type has of a number, where eager's kernels round it.
    pub fn rounded(&self, number: f64) -> f64 {
        Scalar::Float(number).rounded(self.common).as_f64()
    }
}

impl<'a> Deref for Point<'_, 'a> {
    type Target = Body<'a>;
    fn deref(&self) -> &Body<'a> {
        self.body
    }
}

impl<'a> DerefMut for Point<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Body<'a> {
        self.body
    }
}
