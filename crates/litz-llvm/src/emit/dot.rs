//! Writes dot products: each lane adds products of a few elements to its accumulator.
//!
//! A lane holds a group of the factors of an operand as 32 bits: two of bf16, or four bytes. Operands that have them side by
//! side are read as such; others, or those with a guard, are put together.

use litz_ir::kernel::{Dot, Element, position};
use litz_ir::{Dtype, ReduceOp, Scalar};

use super::block::Value;
use super::index::Access;
use super::reduce::{Accumulator, Groups, Term};
use super::ty::{Prim, Ty, register_type};
use super::{EmitError, Emitter, Form};

/// Lanes of the narrowest instruction, which a single sum takes as well.
const LEAST_LANES: u32 = 4;

/// The sign of each of four bytes.
const SIGNS: i64 = 0x8080_8080_u32 as i32 as i64;

impl Emitter<'_> {
    pub(super) fn dot(&mut self, Dot { by, mem, index, terms }: &Dot) -> Result<(), EmitError> {
        let feature = match by.name {
            "dot.bf16.2" => "avx512bf16",
            "dot.s8.8" => "avx512vnni",
            _ => "",
        };
        if !self.target.has(feature) {
            return Err(EmitError::unsupported(format!("{}: the target has no such instruction", by.name)));
        }
        let size = by.group as usize;
        if terms.is_empty() || !terms.len().is_multiple_of(size) {
            return Err(EmitError::malformed(format!("{} of {} products", by.name, terms.len())));
        }
        if !matches!(self.lane_count(), 1 | LEAST_LANES | 8 | 16) {
            return Err(EmitError::unsupported(format!("{} in {} lanes", by.name, self.lane_count())));
        }
        let mut groups = Vec::new();
        for group in terms.chunks_exact(size) {
            let side = |at: usize| group.iter().map(|factors| &factors[at]).collect::<Vec<_>>();
            groups.push([self.group_of(&side(0))?, self.group_of(&side(1))?]);
        }
        let index = self.resolve(position(index));
        let into = Accumulator { mem: *mem, index, op: ReduceOp::Sum, dtype: by.sums, atomic: false };
        self.combine_term(into, &Term::Dot(Groups { by, groups }), None)
    }

    /// The elements of a group in each lane, the first in the lowest bits.
    fn group_of(&mut self, factors: &[&Element]) -> Result<Value, EmitError> {
        let (mem, count) = (factors[0].mem, factors.len() as i64);
        let places: Vec<_> = factors.iter().map(|factor| self.resolve(position(&factor.index))).collect();
        let is_adjacent = (1..).zip(&factors[1..]).zip(&places[1..]).all(|((step, factor), &place)| {
            factor.mem == mem && self.facts.simplify(place - places[0]).as_int() == Some(step)
        });
        let is_whole = factors.iter().all(|factor| factor.guard.is_empty());
        if is_adjacent && is_whole && self.mems[mem].form == Form::Memory {
            let align = self.align(mem);
            match self.access(places[0]) {
                Access::Uniform(index) => {
                    let address = self.address(mem, index)?;
                    let ty = Ty::scalar(Prim::I32);
                    let text = format!("load {ty}, ptr {}, align {align}", address.text);
                    return Ok(self.read(mem, ty, &[&address], text));
                }
                Access::Strided(index, step) if step == count => {
                    let address = self.address(mem, index)?;
                    return Ok(self.load_vector_of(Prim::I32, mem, &address, None));
                }
                Access::Strided(..) | Access::Any(_) => {}
            }
        }
        let zero = if self.mems[mem].dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
        let mut values: Vec<Value> = Vec::new();
        for Element { mem, index, guard } in factors {
            values.push(self.load(*mem, position(index), guard, zero)?);
        }
        let values = values.into_iter().map(|value| {
            if value.ty.prim != Prim::F32 {
                return value;
            }
            // Of a half type: the lower bits are zero.
            let bits = self.b.convert("bitcast", &value, Prim::I32);
            let half = self.b.constant_of(bits.ty, Scalar::Int(16));
            let high = self.b.binary("lshr", &bits, &half);
            self.b.convert("trunc", &high, Prim::I16)
        });
        let values = values.collect();
        self.joined(values)
    }

    /// Integers that fill a word of 32 bits, the first in the lowest bits.
    pub(super) fn joined(&mut self, parts: Vec<Value>) -> Result<Value, EmitError> {
        let lanes = parts.iter().map(|part| part.ty.lanes).max().unwrap_or(1);
        let mut word: Option<Value> = None;
        for (at, part) in (0..).zip(&parts) {
            let by = at * i64::from(part.ty.prim.bits());
            let part = self.b.splat(part, lanes);
            let part = self.b.convert("zext", &part, Prim::I32);
            let by = self.b.constant_of(part.ty, Scalar::Int(by));
            let part = self.b.binary("shl", &part, &by);
            word = Some(match word {
                None => part,
                Some(word) => self.b.binary("or", &word, &part),
            });
        }
        word.ok_or_else(|| EmitError::malformed("a word of nothing"))
    }

    /// `old` and the products of all groups.
    pub(super) fn dot_product(&mut self, old: &Value, Groups { by, groups }: &Groups) -> Value {
        let lanes = old.ty.lanes;
        if lanes == 1 {
            let wide = |cx: &mut Self, value: &Value| cx.b.splat(value, LEAST_LANES);
            let old = wide(self, old);
            let groups = groups.iter().map(|[a, b]| [wide(self, a), wide(self, b)]).collect();
            let sum = self.dot_product(&old, &Groups { by, groups });
            return self.b.extract(&sum, 0);
        }
        let groups: Vec<[Value; 2]> =
            groups.iter().map(|group| group.each_ref().map(|value| self.b.splat(value, lanes))).collect();
        if by.dtype == Dtype::I8 {
            return self.bytes(old, &groups);
        }
        groups.iter().fold(old.clone(), |sum, [a, b]| self.pairs(&sum, a, b))
    }

    fn pairs(&mut self, sum: &Value, a: &Value, b: &Value) -> Value {
        let lanes = sum.ty.lanes;
        let [a, b] = [a, b].map(|value| self.b.reinterpret(value, Ty { prim: Prim::BF16, lanes: 2 * lanes }));
        self.b.call(sum.ty, &format!("llvm.x86.avx512bf16.dpbf16ps.{}", 32 * lanes), &[sum, &a, &b])
    }

    /// The instruction takes the bytes of its first factor without sign. With the sign's bit turned over a byte `a` is `a + 128`, and
    /// what is too much in a sum is 128 times the other factors: the same for all rows, which therefore compute it once. All of it
    /// wraps around as the sum does.
    fn bytes(&mut self, old: &Value, groups: &[[Value; 2]]) -> Value {
        let signs = self.b.constant_of(old.ty, Scalar::Int(SIGNS));
        let (mut sum, mut excess) = (old.clone(), self.zero(old.ty));
        for [a, b] in groups {
            let a = self.b.binary("xor", a, &signs);
            sum = self.quads(&sum, &a, b);
            excess = self.quads(&excess, &signs, b);
        }
        self.b.binary("sub", &sum, &excess)
    }

    fn quads(&mut self, sum: &Value, a: &Value, b: &Value) -> Value {
        let lanes = sum.ty.lanes;
        let [a, b] = [a, b].map(|value| self.b.reinterpret(value, Ty { prim: Prim::I8, lanes: 4 * lanes }));
        self.b.call(sum.ty, &format!("llvm.x86.avx512.vpdpbusd.{}", 32 * lanes), &[sum, &a, &b])
    }

    /// The sum of nothing but the groups.
    pub(super) fn whole_dot(&mut self, groups: &Groups) -> Result<Value, EmitError> {
        let zero = self.zero(Ty { prim: register_type(groups.by.sums)?, lanes: groups.lanes() });
        Ok(self.dot_product(&zero, groups))
    }
}
