//! Prints conversions between element types, and between the forms of half types in memory and in registers.

use litz_ir::dtype::Kind;
use litz_ir::{Dtype, Scalar, ScalarOp};

use super::block::Value;
use super::small::small_format;
use super::ty::{Prim, Ty, register_type};
use super::{EmitError, Emitter};
use crate::processor::Isa;

impl Emitter<'_> {
    /// Conversion as PyTorch's `to`. Floats out of an integer type's range give some number, always the same.
    pub(super) fn cast(&mut self, value: &Value, from: Dtype, to: Dtype) -> Result<Value, EmitError> {
        let prim = register_type(to)?;
        let source = value.ty.prim;
        let result = match (from.kind(), to.kind()) {
            (Kind::Complex, _) | (_, Kind::Complex) => {
                return Err(EmitError::unsupported(format!("cast of {from} to {to}")));
            }
            (Kind::Bool, Kind::Bool) => value.clone(),
            (Kind::Bool, Kind::Int) => self.b.convert("zext", value, prim),
            (Kind::Bool, Kind::Float) => self.b.convert("uitofp", value, prim),
            (Kind::Int, Kind::Bool) => {
                let zero = self.zero(value.ty);
                self.b.compare("icmp ne", value, &zero)
            }
            (Kind::Float, Kind::Bool) => {
                let zero = self.zero(value.ty);
                self.b.compare("fcmp une", value, &zero)
            }
            (Kind::Int, Kind::Int) if prim.bits() < source.bits() => self.b.convert("trunc", value, prim),
            (Kind::Int, Kind::Int) => {
                self.b.convert(if from.is_unsigned() { "zext" } else { "sext" }, value, prim)
            }
            (Kind::Int, Kind::Float) => {
                let small = if prim == Prim::F32 { self.float_of_small(value, from) } else { None };
                let op = if from.is_unsigned() { "uitofp" } else { "sitofp" };
                small.unwrap_or_else(|| self.b.convert(op, value, prim))
            }
            (Kind::Float, Kind::Int) => self.float_to_int(value, to, prim),
            (Kind::Float, Kind::Float) if prim.bits() < source.bits() => {
                self.b.convert("fptrunc", value, prim)
            }
            (Kind::Float, Kind::Float) => self.b.convert("fpext", value, prim),
        };
        // A bf16 has eight bits of a number: all of one byte.
        let is_byte = from.size() == 1 || self.bits(value, from).is_some_and(|bits| bits <= 8);
        if is_byte && result.ty.prim == Prim::F32 && from.kind() != Kind::Float && !result.is_literal() {
            self.rounded.insert(result.text.clone(), (Dtype::BF16, None));
        }
        self.keep_small_cast(value, from, &result, to);
        Ok(if from == to { result } else { self.round(&result, to) })
    }

    /// By way of the next signed type that holds all values, so that small negative numbers wrap as on x86.
    fn float_to_int(&mut self, value: &Value, to: Dtype, prim: Prim) -> Value {
        if to == Dtype::U64 {
            // 2^63 and more: the difference, and then the top bit back.
            let limit = self.b.constant_of(value.ty, Scalar::Float(9_223_372_036_854_775_808.0));
            let is_big = self.b.compare("fcmp oge", value, &limit);
            let less = self.b.binary("fsub", value, &limit);
            let near = self.b.select(&is_big, &less, value);
            let near = self.signed(&near, Prim::I64);
            let top = self.b.constant_of(near.ty, Scalar::Int(i64::MIN));
            let far = self.b.binary("xor", &near, &top);
            return self.b.select(&is_big, &far, &near);
        }
        // The lower 8 bits of an f32 that is no i32 are zero, as those of the smallest i32 are, but not those of the nearest.
        let is_byte = to == Dtype::U8 && (value.ty.prim == Prim::F64 || self.thread.is_some());
        let wide = if matches!(to, Dtype::I64 | Dtype::U32) || is_byte { Prim::I64 } else { Prim::I32 };
        let result = self.signed(value, wide);
        self.b.convert("trunc", &result, prim)
    }

    fn signed(&mut self, value: &Value, prim: Prim) -> Value {
        // Out of range the conversion alone would be poison. What the processor gives there is wanted: not the lower bits of
        // an integer that the float was made of, nor a guess for a constant.
        if self.thread.is_some() {
            // The instruction gives the nearest integer.
            return self.b.convert("fptosi", value, prim);
        }
        let float = self.b.intrinsic("arithmetic.fence", &[value]);
        let result = self.b.convert("fptosi", &float, prim);
        self.b.unary("freeze", &result)
    }

    /// The nearest value of a half type, as f32.
    pub(super) fn round(&mut self, value: &Value, to: Dtype) -> Value {
        if to.compute() == to || self.is_rounded(value, to) {
            return value.clone();
        }
        // GPUs have an instruction, two values at once.
        if to == Dtype::BF16 && self.thread.is_none() {
            return self.round_to_bfloat(value);
        }
        if to == Dtype::BF16 && value.ty.lanes == 1 && self.target.rounds_pairs() {
            return self.round_in_word(value);
        }
        let stored = self.narrow(value, to);
        self.widen(&stored, to)
    }

    /// A bf16 as the upper half of a word, whose lower half is zero: that is the float. The instruction that rounds one alone takes four times as long,
    /// and what it gives has to be moved.
    fn round_in_word(&mut self, value: &Value) -> Value {
        let zero = self.zero(value.ty);
        let pair = Ty { prim: Prim::BF16, lanes: 2 };
        let pair = self.b.call(pair, "llvm.nvvm.ff2bf16x2.rn", &[value, &zero]);
        let word = self.b.reinterpret(&pair, Ty::scalar(Prim::I32));
        let sixteen = self.b.constant_of(word.ty, Scalar::Int(16));
        let stored = self.b.binary("lshr", &word, &sixteen);
        let stored = self.b.convert("trunc", &stored, Prim::I16);
        let result = self.b.convert("bitcast", &word, Prim::F32);
        if !result.is_literal() {
            self.rounded.insert(result.text.clone(), (Dtype::BF16, Some(stored)));
        }
        result
    }

    /// Whether a value is known to be one of a half type.
    fn is_rounded(&self, value: &Value, to: Dtype) -> bool {
        self.rounded.get(&value.text).is_some_and(|rounded| rounded.0 == to)
    }

    /// Notes that the result of an operation that picks one of its operands, or changes a sign, is of a half type where
    /// they are.
    pub(super) fn keep_rounded(&mut self, op: ScalarOp, operands: &[Value], result: &Value) {
        let picks = matches!(op, ScalarOp::Max | ScalarOp::Min | ScalarOp::Neg | ScalarOp::Abs);
        let operands = if op == ScalarOp::Select { &operands[1..] } else { operands };
        if !picks && op != ScalarOp::Select {
            return;
        }
        let types: Vec<Option<Dtype>> =
            operands.iter().map(|value| self.rounded.get(&value.text).map(|r| r.0)).collect();
        // Zero is a value of every type.
        let Some(dtype) = types.iter().flatten().next().copied() else { return };
        let zeros: Vec<Value> = operands.iter().map(|value| self.zero(value.ty)).collect();
        let all = (0..operands.len()).all(|at| types[at] == Some(dtype) || operands[at] == zeros[at]);
        if all && !result.is_literal() {
            self.rounded.insert(result.text.clone(), (dtype, None));
        }
    }

    /// The value of one lane, which is known to be one of a half type where those of all lanes are.
    pub(super) fn lane_value(&mut self, value: &Value, lane: u32) -> Value {
        let part = self.b.extract(value, lane);
        if value.ty.lanes > 1
            && let Some(&(dtype, _)) = self.rounded.get(&value.text)
        {
            self.rounded.insert(part.text.clone(), (dtype, None));
        }
        part
    }

    /// Bits of `value`, as another type of equal size.
    pub(super) fn bitcast(&mut self, value: &Value, from: Dtype, to: Dtype) -> Result<Value, EmitError> {
        if from.size() != to.size() {
            return Err(EmitError::malformed(format!("bitcast of {from} to {to}")));
        }
        let stored = self.narrow(value, from);
        let stored = self.b.convert("bitcast", &stored, super::ty::memory_type(to)?);
        Ok(self.widen(&stored, to))
    }

    /// A register value as it is kept in memory.
    pub(super) fn narrow(&mut self, value: &Value, dtype: Dtype) -> Value {
        if let Some((rounded, Some(stored))) = self.rounded.get(&value.text)
            && *rounded == dtype
        {
            return stored.clone();
        }
        match dtype {
            Dtype::Bool => self.b.convert("zext", value, Prim::I8),
            Dtype::F16 if self.target.isa != Isa::Baseline => {
                // Else LLVM rounds the operands of a `copysign` instead, of which one may be a rounded f64: with a routine
                // of the compiler's library, which is not there.
                let value = match self.thread {
                    Some(_) => value.clone(),
                    None => self.b.intrinsic("arithmetic.fence", &[value]),
                };
                let stored = self.b.convert("fptrunc", &value, Prim::F16);
                self.b.convert("bitcast", &stored, Prim::I16)
            }
            Dtype::BF16 if self.thread.is_some() => {
                let stored = self.b.convert("fptrunc", value, Prim::BF16);
                self.b.convert("bitcast", &stored, Prim::I16)
            }
            Dtype::BF16 => {
                let rounded = self.round(value, Dtype::BF16);
                let bits = self.b.convert("bitcast", &rounded, Prim::I32);
                let sixteen = self.b.constant_of(bits.ty, Scalar::Int(16));
                let bits = self.b.binary("lshr", &bits, &sixteen);
                self.b.convert("trunc", &bits, Prim::I16)
            }
            Dtype::F16 | Dtype::F8E4M3 | Dtype::F8E5M2 => {
                let format = small_format(dtype).expect("invariant: these are the small formats");
                self.encode(value, format)
            }
            Dtype::U8
            | Dtype::U16
            | Dtype::U32
            | Dtype::U64
            | Dtype::I8
            | Dtype::I16
            | Dtype::I32
            | Dtype::I64
            | Dtype::F32
            | Dtype::F64
            | Dtype::C64
            | Dtype::C128 => value.clone(),
        }
    }

    /// A value as it is kept in memory, made a register value.
    pub(super) fn widen(&mut self, value: &Value, dtype: Dtype) -> Value {
        let wide = self.widened(value, dtype);
        if dtype.compute() != dtype && !wide.is_literal() {
            self.rounded.insert(wide.text.clone(), (dtype, Some(value.clone())));
        }
        wide
    }

    fn widened(&mut self, value: &Value, dtype: Dtype) -> Value {
        match dtype {
            Dtype::Bool => {
                let zero = self.zero(value.ty);
                self.b.compare("icmp ne", value, &zero)
            }
            Dtype::F16 if self.target.isa != Isa::Baseline => {
                let stored = self.b.convert("bitcast", value, Prim::F16);
                self.b.convert("fpext", &stored, Prim::F32)
            }
            Dtype::BF16 if self.thread.is_some() && value.ty.lanes.is_multiple_of(2) => {
                self.widen_pairs(value)
            }
            Dtype::BF16 => {
                let bits = self.b.convert("zext", value, Prim::I32);
                let amount = self.b.constant_of(bits.ty, Scalar::Int(16));
                let bits = self.b.binary("shl", &bits, &amount);
                self.b.convert("bitcast", &bits, Prim::F32)
            }
            Dtype::F16 | Dtype::F8E4M3 | Dtype::F8E5M2 => {
                let format = small_format(dtype).expect("invariant: these are the small formats");
                self.decode(value, format)
            }
            Dtype::U8
            | Dtype::U16
            | Dtype::U32
            | Dtype::U64
            | Dtype::I8
            | Dtype::I16
            | Dtype::I32
            | Dtype::I64
            | Dtype::F32
            | Dtype::F64
            | Dtype::C64
            | Dtype::C128 => value.clone(),
        }
    }

    /// Values of bf16 in pairs, each a word of two: one instruction makes a float of either half.
    fn widen_pairs(&mut self, value: &Value) -> Value {
        let lanes = value.ty.lanes;
        let words = self.b.reinterpret(value, Ty { prim: Prim::I32, lanes: lanes / 2 });
        let [sixteen, upper] =
            [16, -0x1_0000].map(|literal| self.b.constant_of(Ty::scalar(Prim::I32), Scalar::Int(literal)));
        let mut bits = self.b.poison(Ty { prim: Prim::I32, lanes });
        for at in 0..lanes / 2 {
            let word = self.b.extract(&words, at);
            let halves = [self.b.binary("shl", &word, &sixteen), self.b.binary("and", &word, &upper)];
            for (half, number) in halves.iter().zip(0..) {
                bits = self.b.insert(&bits, 2 * at + number, half);
            }
        }
        self.b.convert("bitcast", &bits, Prim::F32)
    }

    /// Rounds to nearest even by adding just less than half a unit, and the unit's parity. The instruction for it takes
    /// subnormal numbers for zero, and so is no help.
    fn round_to_bfloat(&mut self, value: &Value) -> Value {
        let bits = self.b.convert("bitcast", value, Prim::I32);
        let [sixteen, one, half, upper, quiet] = [16, 1, 0x7fff, -0x1_0000, 0x7fc0_0000]
            .map(|literal| self.b.constant_of(bits.ty, Scalar::Int(literal)));
        let high = self.b.binary("lshr", &bits, &sixteen);
        let parity = self.b.binary("and", &high, &one);
        let sum = self.b.binary("add", &bits, &half);
        let sum = self.b.binary("add", &sum, &parity);
        let rounded = self.b.binary("and", &sum, &upper);
        let is_nan = self.b.compare("fcmp uno", value, value);
        let result = self.b.select(&is_nan, &quiet, &rounded);
        let result = self.b.convert("bitcast", &result, Prim::F32);
        if !result.is_literal() {
            self.rounded.insert(result.text.clone(), (Dtype::BF16, None));
        }
        result
    }
}
