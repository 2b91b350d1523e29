//! Writes dot products: each lane adds two products of bf16 to its f32 accumulator.
//!
//! A lane holds the two factors of an operand as 32 bits. Operands that have them side by side are read as such; others, or
//! those with a guard, are put together.

use litz_ir::Dtype;
use litz_ir::kernel::{Dot, Element, position};
use litz_ir::{ReduceOp, Scalar};

use super::block::Value;
use super::index::Access;
use super::reduce::{Accumulator, Term};
use super::ty::{Prim, Ty};
use super::{EmitError, Emitter, Form};

/// Lanes of the narrowest instruction, which a single sum takes as well.
const LEAST_LANES: u32 = 4;

impl Emitter<'_> {
    pub(super) fn dot(&mut self, Dot { by, mem, index, terms }: &Dot) -> Result<(), EmitError> {
        let [[a, b], [c, d]] = &terms[..] else {
            return Err(EmitError::malformed(format!("{} of {} products", by.name, terms.len())));
        };
        if by.name != "dot.bf16.2" || !self.target.has("avx512bf16") {
            return Err(EmitError::unsupported(format!("{}: the target has no such instruction", by.name)));
        }
        if !matches!(self.lane_count(), 1 | LEAST_LANES | 8 | 16) {
            return Err(EmitError::unsupported(format!("{} in {} lanes", by.name, self.lane_count())));
        }
        let term = Term::Dot(self.pair([a, c])?, self.pair([b, d])?);
        let index = self.resolve(position(index));
        let into = Accumulator { mem: *mem, index, op: ReduceOp::Sum, dtype: Dtype::F32, atomic: false };
        self.combine_term(into, &term, None)
    }

    /// Two elements in each lane, the first in the low half.
    fn pair(&mut self, factors: [&Element; 2]) -> Result<Value, EmitError> {
        let mem = factors[0].mem;
        let [first, second] = factors.map(|factor| self.resolve(position(&factor.index)));
        let is_adjacent = factors[1].mem == mem && self.facts.simplify(second - first).is_one();
        let is_whole = factors.iter().all(|factor| factor.guard.is_empty());
        if is_adjacent && is_whole && self.mems[mem].form == Form::Memory {
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
        let [low, high] = factors
            .map(|Element { mem, index, guard }| self.load(*mem, position(index), guard, Scalar::Float(0.0)));
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
        if lanes == 1 {
            let [old, a, b] = [old, a, b].map(|value| self.b.splat(value, LEAST_LANES));
            let sum = self.dot_product(&old, &a, &b);
            return self.b.extract(&sum, 0);
        }
        let pairs = Ty { prim: Prim::BF16, lanes: 2 * lanes };
        let [a, b] = [a, b].map(|value| {
            let value = self.b.splat(value, lanes);
            self.b.reinterpret(&value, pairs)
        });
        self.b.call(old.ty, &format!("llvm.x86.avx512bf16.dpbf16ps.{}", 32 * lanes), &[old, &a, &b])
    }
}
