//! Prints index expressions and relations as integer instructions, scalar or one value a lane.
//!
//! Terms of a sum are added in the order of the scopes they live in, so that what does not change in a loop is
//! summed up before it.

use litz_ir::Scalar;
use litz_ir::kernel::Mem;
use litz_sym::{Cmp, Expr, Kind, Known, Rel, Sym};

use super::block::Value;
use super::ty::{Prim, Ty};
use super::{Bound, EmitError, Emitter, Form, Lanes};

/// How an index depends on the lane of the vector loop around it.
pub(super) enum Access {
    /// Not at all.
    Uniform(Expr),
    /// Lane by lane a constant number of elements apart; the index of lane 0.
    Strided(Expr, i64),
    /// In some other way.
    Any(Expr),
}

/// Conditions under which an access happens.
pub(super) enum Condition {
    Always,
    Never,
    /// One truth value, or one a lane.
    When(Value),
}

impl Emitter<'_> {
    /// The expression with unrolled variables replaced by their values.
    pub(super) fn resolve(&self, e: Expr) -> Expr {
        e.subst(&|sym| match self.syms.get(&sym) {
            Some(Bound::Constant(value)) => Some(Expr::int(*value)),
            Some(Bound::Shifted(value)) => Some(*value),
            Some(Bound::Scalar(_) | Bound::Vector(_) | Bound::Lane) | None => None,
        })
    }

    fn is_varying(&self, sym: Sym) -> bool {
        matches!(self.syms.get(&sym), Some(Bound::Lane | Bound::Shifted(_) | Bound::Vector(_)))
    }

    pub(super) fn varies(&self, e: Expr) -> bool {
        self.lanes.is_some() && e.syms().into_iter().any(|sym| self.is_varying(sym))
    }

    /// Classifies a resolved index.
    pub(super) fn access(&self, e: Expr) -> Access {
        let Some(lanes) = &self.lanes else { return Access::Uniform(e) };
        if !self.varies(e) {
            return Access::Uniform(e);
        }
        match self.in_lane(lanes, e) {
            Some((first, 0)) => Access::Uniform(first),
            Some((first, stride)) => Access::Strided(first, stride),
            None => Access::Any(e),
        }
    }

    /// The value of `e` in lane 0 and its constant difference from lane to lane, if it has one.
    fn in_lane(&self, lanes: &Lanes, e: Expr) -> Option<(Expr, i64)> {
        let split = |e: Expr, var: Sym| {
            let (stride, rest) = e.linear(var)?;
            let stride = stride.as_int()?;
            (!self.varies(rest)).then_some((stride, rest))
        };
        if let Some((stride, rest)) = split(e, lanes.var) {
            return Some((rest + lanes.first * stride, stride));
        }
        // Groups start at multiples of their size, so that `mod(j, 768)` advances by one within a group.
        let size = i64::from(lanes.count);
        let inside = Expr::sym(lanes.group) * size + Expr::sym(lanes.lane);
        let (stride, rest) = split(self.facts.simplify(e.replace(lanes.var, inside)), lanes.lane)?;
        Some((rest.replace(lanes.group, lanes.first.floordiv(size)), stride))
    }

    /// The value of `e` in lane 0, and how much more it is in each lane, if all together are a run of numbers that lanes share,
    /// as `floordiv(j, 2)` is.
    pub(super) fn in_run(&self, e: Expr) -> Option<(Expr, Vec<u32>)> {
        let lanes = self.lanes.as_ref()?;
        let size = i64::from(lanes.count);
        let inside = Expr::sym(lanes.group) * size + Expr::sym(lanes.lane);
        let inside = self.facts.simplify(e.replace(lanes.var, inside));
        let in_lane = |lane: i64| self.facts.simplify(inside.replace(lanes.lane, Expr::int(lane)));
        let first = in_lane(0);
        if self.varies(first) {
            return None;
        }
        let above = |lane: i64| (in_lane(lane) - first).as_int().and_then(|above| u32::try_from(above).ok());
        let run: Vec<u32> = (0..size).map(above).collect::<Option<_>>()?;
        let last = run.iter().copied().max().filter(|&last| 0 < last && last < lanes.count)?;
        let is_whole = (0..=last).all(|element| run.contains(&element));
        is_whole.then(|| (first.replace(lanes.group, lanes.first.floordiv(size)), run))
    }

    /// The value of a resolved expression that is the same in every lane.
    pub(super) fn scalar(&mut self, e: Expr) -> Result<Value, EmitError> {
        match e.kind() {
            Kind::Int(value) => Ok(self.b.int(Prim::I64, value)),
            Kind::Sym(sym) => match self.syms.get(&sym) {
                Some(Bound::Scalar(value)) => Ok(value.clone()),
                Some(Bound::Constant(value)) => Ok(self.b.int(Prim::I64, *value)),
                Some(Bound::Vector(_) | Bound::Lane | Bound::Shifted(_)) | None => {
                    Err(EmitError::malformed(format!("symbol `{}` has no value here", sym.name())))
                }
            },
            operator @ (Kind::Add(_)
            | Kind::Mul(_)
            | Kind::FloorDiv(..)
            | Kind::Mod(..)
            | Kind::Min(..)
            | Kind::Max(..)) => self.operator(operator, Self::scalar),
        }
    }

    /// The value of a resolved expression in each lane.
    pub(super) fn vector(&mut self, e: Expr) -> Result<Value, EmitError> {
        let count = self.lane_count();
        match self.access(e) {
            Access::Uniform(e) => {
                let value = self.scalar(e)?;
                return Ok(self.b.splat(&value, count));
            }
            Access::Strided(first, stride) => {
                let first = self.scalar(first)?;
                let first = self.b.splat(&first, count);
                let steps = self.b.iota(Prim::I64, count, stride);
                return Ok(self.b.binary("add", &first, &steps));
            }
            Access::Any(_) => {}
        }
        match e.kind() {
            Kind::Sym(sym) => match self.syms.get(&sym) {
                Some(Bound::Vector(value)) => Ok(value.clone()),
                Some(Bound::Scalar(_) | Bound::Constant(_) | Bound::Lane | Bound::Shifted(_)) | None => {
                    unreachable!("invariant: neither uniform nor strided")
                }
            },
            operator @ (Kind::Int(_)
            | Kind::Add(_)
            | Kind::Mul(_)
            | Kind::FloorDiv(..)
            | Kind::Mod(..)
            | Kind::Min(..)
            | Kind::Max(..)) => self.operator(operator, Self::vector),
        }
    }

    /// Applies an operator to the values that `operand` gives.
    fn operator(
        &mut self,
        kind: Kind,
        operand: fn(&mut Self, Expr) -> Result<Value, EmitError>,
    ) -> Result<Value, EmitError> {
        match kind {
            Kind::Int(_) | Kind::Sym(_) => unreachable!("invariant: not operators"),
            Kind::Add(list) => {
                let terms = list.iter().map(|&term| operand(self, term)).collect::<Result<_, _>>()?;
                Ok(self.fold("add", terms))
            }
            Kind::Mul(list) => {
                let factors = list.iter().map(|&factor| operand(self, factor)).collect::<Result<_, _>>()?;
                Ok(self.fold("mul", factors))
            }
            Kind::FloorDiv(a, b) | Kind::Mod(a, b) => {
                let (x, y) = (operand(self, a)?, operand(self, b)?);
                Ok(self.divide(matches!(kind, Kind::FloorDiv(..)), x, y, a, b))
            }
            Kind::Min(a, b) | Kind::Max(a, b) => {
                let (x, y) = (operand(self, a)?, operand(self, b)?);
                Ok(self.b.intrinsic(if matches!(kind, Kind::Min(..)) { "smin" } else { "smax" }, &[&x, &y]))
            }
        }
    }

    fn fold(&mut self, op: &str, mut items: Vec<Value>) -> Value {
        items.sort_by_key(|value| value.depth);
        let mut items = items.into_iter();
        let first = items.next().expect("invariant: sums and products have operands");
        items.fold(first, |sum, item| self.b.binary(op, &sum, &item))
    }

    /// `floordiv(a, b)` or `mod(a, b)` of the values `x` and `y`; a zero divisor counts as 1.
    fn divide(&mut self, is_quotient: bool, x: Value, y: Value, a: Expr, b: Expr) -> Value {
        let dividend = self.facts.bounds(a);
        let divisor = self.facts.bounds(b);
        let power = b.as_int().filter(|b| *b > 0 && b.count_ones() == 1);
        let ty = x.ty;
        if let Some(power) = power {
            // Rounding down and two's complement agree.
            let (op, amount) =
                if is_quotient { ("ashr", i64::from(power.trailing_zeros())) } else { ("and", power - 1) };
            let amount = self.b.constant_of(ty, Scalar::Int(amount));
            return self.b.binary(op, &x, &amount);
        }
        let one = self.b.constant_of(ty, Scalar::Int(1));
        let zero = self.b.constant_of(ty, Scalar::Int(0));
        let y = if divisor.contains(0) {
            let is_zero = self.b.compare("icmp eq", &y, &zero);
            self.b.select(&is_zero, &one, &y)
        } else {
            y
        };
        let small = i64::from(i32::MAX);
        if dividend.lo >= 0 && divisor.lo >= 0 {
            let op = if is_quotient { "udiv" } else { "urem" };
            if dividend.hi > small || divisor.hi > small {
                return self.b.binary(op, &x, &y);
            }
            // Division of 32 bits is several times faster.
            let (x, y) = (self.b.convert("trunc", &x, Prim::I32), self.narrow_literal(&y, b));
            let result = self.b.binary(op, &x, &y);
            return self.b.convert("zext", &result, Prim::I64);
        }
        let quotient = self.b.binary("sdiv", &x, &y);
        let product = self.b.binary("mul", &quotient, &y);
        let rest = self.b.binary("sub", &x, &product);
        let is_inexact = self.b.compare("icmp ne", &rest, &zero);
        let signs = self.b.binary("xor", &rest, &y);
        let differ = self.b.compare("icmp slt", &signs, &zero);
        let round = self.b.and(&is_inexact, &differ);
        if is_quotient {
            let less = self.b.binary("sub", &quotient, &one);
            self.b.select(&round, &less, &quotient)
        } else {
            let more = self.b.binary("add", &rest, &y);
            self.b.select(&round, &more, &rest)
        }
    }

    fn narrow_literal(&mut self, y: &Value, b: Expr) -> Value {
        match b.as_int() {
            Some(value) => self.b.constant_of(y.ty.with(Prim::I32), Scalar::Int(value)),
            None => self.b.convert("trunc", y, Prim::I32),
        }
    }

    /// Whether a relation holds, where that is known.
    fn holds(&self, rel: &Rel) -> Option<Value> {
        match self.facts.known(rel) {
            Known::Yes => Some(self.b.int(Prim::I1, 1)),
            Known::No => Some(self.b.int(Prim::I1, 0)),
            Known::Unknown => None,
        }
    }

    /// Whether a relation holds: one truth value, or one a lane where it varies.
    pub(super) fn relation(&mut self, rel: &Rel) -> Result<Value, EmitError> {
        let rel = Rel { cmp: rel.cmp, lhs: self.resolve(rel.lhs), rhs: self.resolve(rel.rhs) };
        if let Some(holds) = self.holds(&rel) {
            return Ok(holds);
        }
        let op = match rel.cmp {
            Cmp::Eq => "icmp eq",
            Cmp::Ne => "icmp ne",
            Cmp::Lt => "icmp slt",
            Cmp::Le => "icmp sle",
        };
        let difference = rel.lhs - rel.rhs;
        match self.access(difference) {
            Access::Uniform(_) if !self.varies(rel.lhs) && !self.varies(rel.rhs) => {
                let (a, b) = (self.scalar(rel.lhs)?, self.scalar(rel.rhs)?);
                Ok(self.b.compare(op, &a, &b))
            }
            Access::Uniform(difference) => {
                let (a, b) = (self.scalar(difference)?, self.b.int(Prim::I64, 0));
                Ok(self.b.compare(op, &a, &b))
            }
            Access::Strided(first, stride) if stride.abs() < 1 << 20 => {
                let count = self.lane_count();
                if self.thread.is_some() && stride == 1 && self.is_same_in_all(&rel, first) {
                    let (a, b) = (self.scalar(first)?, self.b.int(Prim::I64, 0));
                    return Ok(self.b.compare(op, &a, &b));
                }
                // A group by itself may say what the whole loop does not: that all of its lanes are beyond the last point.
                let lane = self.lanes.as_ref().map_or(Expr::zero(), |lanes| Expr::sym(lanes.lane));
                let in_group = Rel { cmp: rel.cmp, lhs: first + lane * stride, rhs: Expr::zero() };
                if let Some(holds) = self.holds(&in_group) {
                    return Ok(holds);
                }
                // first + stride*lane against 0, in 32 bits: the numbers of all lanes lie close together, so that
                // a first one far from 0 may be moved nearer.
                let reach = (stride.abs() + 1) * i64::from(count);
                let first = self.scalar(first)?;
                let (low, high) = (self.b.int(Prim::I64, -reach), self.b.int(Prim::I64, reach));
                let first = self.b.intrinsic("smax", &[&first, &low]);
                let first = self.b.intrinsic("smin", &[&first, &high]);
                let first = self.b.convert("trunc", &first, Prim::I32);
                let zero = self.b.int(Prim::I32, 0);
                let bound = self.b.binary("sub", &zero, &first);
                let bound = self.b.splat(&bound, count);
                let steps = self.b.iota(Prim::I32, count, stride);
                Ok(self.b.compare(op, &steps, &bound))
            }
            Access::Strided(..) | Access::Any(_) => {
                let (a, b) = (self.vector(rel.lhs)?, self.vector(rel.rhs)?);
                Ok(self.b.compare(op, &a, &b))
            }
        }
    }

    /// Whether all of `guard` holds.
    pub(super) fn condition(&mut self, guard: &[Rel]) -> Result<Condition, EmitError> {
        let mut all: Option<Value> = None;
        for rel in guard {
            let holds = self.relation(rel)?;
            match &*holds.text {
                "true" => continue,
                "false" => return Ok(Condition::Never),
                _ => {}
            }
            all = Some(match all {
                Some(all) => self.b.and(&all, &holds),
                None => holds,
            });
        }
        Ok(all.map_or(Condition::Always, Condition::When))
    }

    /// Address of the element `index`, the same in every lane. The constant part comes last, where it becomes part
    /// of the addressing mode, and what changes least comes first.
    pub(super) fn address(&mut self, mem: Mem, index: Expr) -> Result<Value, EmitError> {
        let start = self.mems[mem].base.clone();
        if self.kernel.mems[mem].swizzle.is_some() {
            return self.address_in_swizzle(mem, index);
        }
        self.address_from(mem, &start, index)
    }

    /// As `address`, from `start` instead of the first element.
    pub(super) fn address_from(&mut self, mem: Mem, start: &Value, index: Expr) -> Result<Value, EmitError> {
        if self.mems[mem].form != Form::Memory {
            let name = &self.kernel.mems[mem].name;
            return Err(EmitError::malformed(format!(
                "`{name}` is held in registers, which have no address"
            )));
        }
        let prim = Ty::scalar(self.mems[mem].prim);
        let mut terms =
            index.terms().map(|(factor, term)| self.scalar(term * factor)).collect::<Result<Vec<_>, _>>()?;
        terms.sort_by_key(|value| value.depth);
        let mut address = start.clone();
        for group in terms.chunk_by(|a, b| a.depth == b.depth) {
            let offset = self.fold("add", group.to_vec());
            address = self.advance(prim, &address, &offset);
        }
        let constant = index.constant();
        if constant == 0 {
            return Ok(address);
        }
        let offset = self.b.int(Prim::I64, constant);
        Ok(self.advance(prim, &address, &offset))
    }

    /// `address` moved by `offset` elements; as many addresses as offsets.
    pub(super) fn advance(&mut self, element: Ty, address: &Value, offset: &Value) -> Value {
        let text = format!("getelementptr {element}, ptr {}, {} {}", address.text, offset.ty, offset.text);
        self.b.pure(offset.ty.with(Prim::Ptr), &[address, offset], text)
    }

    pub(super) fn lane_count(&self) -> u32 {
        self.lanes.as_ref().map_or(1, |lanes| lanes.count)
    }
}
