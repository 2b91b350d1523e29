//! Pairs of reduced points into dot products: each lane adds two products of bf16 to its f32 accumulator.
//!
//! A lane holds the two neighbouring elements of an operand as 32 bits. Operands that have them side by side are read as
//! such; others, or those with a guard, are put together.

use litz_ir::kernel::{Loop, Mem, Op, Stmt, position};
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel, Sym};

use super::block::Value;
use super::index::Access;
use super::reduce::Term;
use super::ty::{Prim, Ty};
use super::{EmitError, Emitter, Form};

/// `acc[index] sum= left * right`, of loaded elements.
pub(super) struct Accumulation<'k> {
    pub(super) factors: [Factor<'k>; 2],
    pub(super) acc: Mem,
    pub(super) index: Expr,
    pub(super) dtype: Dtype,
}

/// A loaded element.
#[derive(Clone, Copy)]
pub(super) struct Factor<'k> {
    pub(super) mem: Mem,
    pub(super) index: Expr,
    pub(super) guard: &'k [Rel],
    other: Scalar,
}

impl Emitter<'_> {
    /// What a body does that only adds products of two elements of type `dtype`.
    pub(super) fn accumulation<'k>(&self, body: &'k [Stmt], dtype: Dtype) -> Option<Accumulation<'k>> {
        let [
            Stmt::Let { val: a, op: Op::Load { mem: x, index: at_x, guard: guard_x, other: other_x } },
            Stmt::Let { val: b, op: Op::Load { mem: y, index: at_y, guard: guard_y, other: other_y } },
            Stmt::MulAdd { mem: acc, index, factors, guard },
        ] = body
        else {
            return None;
        };
        let is_product = *factors == [*a, *b] || *factors == [*b, *a];
        let fits = [x, y].iter().all(|mem| self.kernel.mems[**mem].dtype == dtype)
            && [a, b].iter().all(|val| self.kernel.vals[**val] == Dtype::F32)
            && self.kernel.mems[*acc].dtype == Dtype::F32;
        if !(is_product && guard.is_empty() && fits) {
            return None;
        }
        let factors = [
            Factor { mem: *x, index: position(at_x), guard: guard_x, other: *other_x },
            Factor { mem: *y, index: position(at_y), guard: guard_y, other: *other_y },
        ];
        Some(Accumulation { factors, acc: *acc, index: position(index), dtype: Dtype::F32 })
    }

    /// Writes a loop as a dot product; false where the target, or the vector loop around, has none for it.
    pub(super) fn dot(&mut self, inner: &Loop) -> Result<bool, EmitError> {
        let is_pair = self.resolve(inner.extent).as_int() == Some(2);
        let has_lanes = matches!(self.lane_count(), 4 | 8 | 16);
        if !(is_pair && has_lanes && self.target.has("avx512bf16")) {
            return Ok(false);
        }
        let Some(sum) = self.accumulation(&inner.body, Dtype::BF16) else { return Ok(false) };
        if sum.index.has_sym(inner.var) {
            return Ok(false);
        }
        let [a, b] = sum.factors;
        let term = Term::Dot(self.pair(&a, inner.var)?, self.pair(&b, inner.var)?);
        let index = self.resolve(sum.index);
        self.combine_term(sum.acc, index, ReduceOp::Sum, sum.dtype, &term, None, false)?;
        Ok(true)
    }

    /// The elements at 0 and 1 of `var`, the first in the low half of each lane.
    fn pair(&mut self, factor: &Factor<'_>, var: Sym) -> Result<Value, EmitError> {
        let Factor { mem, guard, other, .. } = *factor;
        let [first, second] = [0, 1].map(|n| self.resolve(factor.index.replace(var, Expr::int(n))));
        let is_adjacent = self.facts.simplify(second - first).is_one();
        if is_adjacent && guard.is_empty() && self.mems[mem].form == Form::Memory {
            let align = self.align(mem);
            match self.access(first) {
                Access::Uniform(index) => {
                    let address = self.address(mem, index)?;
                    let ty = Ty::scalar(Prim::I32);
                    let text = format!("load {ty}, ptr {}, align {align}", address.text);
                    return Ok(self.read(mem, ty, &[&address], text));
                }
                Access::Strided(index, 2) => {
                    let address = self.address(mem, index)?;
                    return Ok(self.load_vector_of(Prim::I32, mem, &address, None));
                }
                Access::Strided(..) | Access::Any(_) => {}
            }
        }
        let [low, high] = [0, 1].map(|n| {
            let at = |e: Expr| e.replace(var, Expr::int(n));
            let guard: Vec<Rel> =
                guard.iter().map(|r| Rel { cmp: r.cmp, lhs: at(r.lhs), rhs: at(r.rhs) }).collect();
            self.load(mem, at(factor.index), &guard, other)
        });
        let (low, high) = (low?, high?);
        let lanes = low.ty.lanes.max(high.ty.lanes);
        // Values of a half type in f32: the lower bits are zero.
        let [low, high] = [low, high].map(|value| {
            let value = self.b.splat(&value, lanes);
            self.b.convert("bitcast", &value, Prim::I32)
        });
        let half = self.b.constant_of(low.ty, Scalar::Int(16));
        let low = self.b.binary("lshr", &low, &half);
        Ok(self.b.binary("or", &low, &high))
    }

    /// `old` and the products of both halves of each lane.
    pub(super) fn dot_product(&mut self, old: &Value, a: &Value, b: &Value) -> Value {
        let lanes = old.ty.lanes;
        let pairs = Ty { prim: Prim::BF16, lanes: 2 * lanes };
        let [a, b] = [a, b].map(|value| {
            let value = self.b.splat(value, lanes);
            self.b.reinterpret(&value, pairs)
        });
        self.b.call(old.ty, &format!("llvm.x86.avx512bf16.dpbf16ps.{}", 32 * lanes), &[old, &a, &b])
    }
}
