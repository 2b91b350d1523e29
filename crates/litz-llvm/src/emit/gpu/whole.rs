//! Makes floats of small whole numbers, as of weights of a few bits.
//!
//! The instruction that converts runs at a quarter of the rate of others. A whole number `n` of less than 23 bits in the lower bits of the float 2^23 is
//! the float `2^23 + n`, from which 2^23 is taken off exactly. Of a signed number of 8 bits, `n + 128` is put there, which is `n` with its sign turned over,
//! and `n + 2^22` of an index that loops keep between -2^22 and 2^22, as the distance of a query and a key is.

use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::Expr;

use super::super::Emitter;
use super::super::block::Value;
use super::super::ty::Prim;

/// 2^23 as a float, and its bits.
const BASE: i64 = 1 << 23;
const BITS_OF_BASE: i64 = 0x4b00_0000;

/// Bits of a whole number that fit below.
const MOST_BITS: u32 = 22;

impl Emitter<'_> {
    /// The f32 of a whole number that is known to be small. None of others, of vectors, and for other devices.
    pub(in super::super) fn float_of_small(&mut self, value: &Value, from: Dtype) -> Option<Value> {
        // As an unsigned number the same bits are another one.
        if from == Dtype::I64 && self.near.contains(&value.text) {
            return Some(self.float_of_near(value));
        }
        if self.thread.is_none() || value.ty.lanes != 1 || value.is_literal() {
            return None;
        }
        let is_short = matches!(from, Dtype::I8 | Dtype::I16);
        let half = if is_short { 1 << (8 * from.size() - 1) } else { 0 };
        if !is_short && self.bits(value, from)? > MOST_BITS {
            return None;
        }
        let word = match value.ty.prim.bits() {
            32 => value.clone(),
            64 => self.b.convert("trunc", value, Prim::I32),
            _ => self.b.convert("zext", value, Prim::I32),
        };
        let base = self.b.constant_of(word.ty, Scalar::Int(BITS_OF_BASE + half));
        let word = self.b.binary("xor", &word, &base);
        let above = self.b.convert("bitcast", &word, Prim::F32);
        let base = self.b.constant_of(above.ty, Scalar::Float((BASE + half) as f64));
        Some(self.b.binary("fsub", &above, &base))
    }

    /// The f32 of an index that is near zero.
    fn float_of_near(&mut self, value: &Value) -> Value {
        let (half, word) = (1 << MOST_BITS, self.b.convert("trunc", value, Prim::I32));
        let base = self.b.constant_of(word.ty, Scalar::Int(BITS_OF_BASE + half));
        let word = self.b.binary("add", &word, &base);
        let above = self.b.convert("bitcast", &word, Prim::F32);
        let base = self.b.constant_of(above.ty, Scalar::Float((BASE + half) as f64));
        self.b.binary("fsub", &above, &base)
    }

    /// Notes that the value of an expression is near zero, if what the loops around count says so.
    pub(in super::super) fn keep_near(&mut self, e: Expr, value: &Value) {
        if self.thread.is_none() || value.is_literal() || value.ty.prim != Prim::I64 {
            return;
        }
        let (range, most) = (self.facts.bounds(e), 1 << MOST_BITS);
        if -most <= range.lo && range.hi < most {
            self.near.insert(value.text.clone());
        }
    }

    /// How many bits a whole number has at most that is not negative, where that is known.
    pub(in super::super) fn bits(&self, value: &Value, dtype: Dtype) -> Option<u32> {
        let of_type = match dtype == Dtype::Bool || dtype.is_unsigned() {
            true => Some(if dtype == Dtype::Bool { 1 } else { 8 * dtype.size() as u32 }),
            false => None,
        };
        match value.text.parse::<u64>() {
            Ok(number) => Some(u64::BITS - number.leading_zeros()),
            // As another type the same bits are another number.
            Err(_) => {
                self.small.get(&value.text).filter(|known| known.0 == dtype).map(|known| known.1).or(of_type)
            }
        }
    }

    /// Notes how many bits the result of an operation on whole numbers has, if that is known.
    pub(in super::super) fn keep_small(
        &mut self,
        op: ScalarOp,
        dtype: Dtype,
        operands: &[Value],
        result: &Value,
    ) {
        let bits = |value: &Value| self.bits(value, dtype);
        let found = match (op, operands) {
            (ScalarOp::And, [a, b]) => bits(a).into_iter().chain(bits(b)).min(),
            (ScalarOp::Or | ScalarOp::Max, [a, b]) => bits(a).zip(bits(b)).map(|(a, b)| a.max(b)),
            (ScalarOp::Shr, [a, by]) => match by.text.parse::<u32>() {
                Ok(by) => bits(a).map(|a| a.saturating_sub(by)),
                Err(_) => bits(a),
            },
            (ScalarOp::Select, [_, a, b]) => bits(a).zip(bits(b)).map(|(a, b)| a.max(b)),
            _ => None,
        };
        if let Some(found) = found.filter(|_| self.thread.is_some() && dtype.is_int() && !result.is_literal())
        {
            self.small.insert(result.text.clone(), (dtype, found));
        }
    }

    /// The same of a cast, where the type has room for as many bits and a sign.
    pub(in super::super) fn keep_small_cast(
        &mut self,
        value: &Value,
        from: Dtype,
        result: &Value,
        to: Dtype,
    ) {
        let room = 8 * to.size() as u32 - u32::from(!to.is_unsigned());
        if self.thread.is_some()
            && to.is_int()
            && (from.is_int() || from == Dtype::Bool)
            && !result.is_literal()
            && let Some(bits) = self.bits(value, from).filter(|&bits| bits <= room)
        {
            self.small.insert(result.text.clone(), (to, bits));
        }
    }
}
