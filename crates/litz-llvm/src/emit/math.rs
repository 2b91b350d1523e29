//! Prints mathematical functions: inline where they are short, else as calls of helper functions or of scalar routines.

use litz_ir::{Dtype, ScalarOp};

use super::Emitter;
use super::block::Value;
use super::ty::Ty;
use crate::vmath::{self, Elem, MathFn};

/// Routines of the runtime that emitted code may call, for functions too rare for vector code: name for f32 and for
/// f64. Operands and result are of that type.
const ROUTINES: &[(ScalarOp, &str, &str)] = &[
    (ScalarOp::Erfinv, "lz_erfinv_f32", "lz_erfinv_f64"),
    (ScalarOp::Lgamma, "lgammaf", "lgamma"),
    (ScalarOp::Digamma, "lz_digamma_f32", "lz_digamma_f64"),
    (ScalarOp::Nextafter, "nextafterf", "nextafter"),
];

/// Names of the routines that emitted code may call besides what [`vmath`] does and what LLVM lowers to calls.
pub fn externals() -> impl Iterator<Item = &'static str> {
    ROUTINES.iter().flat_map(|&(_, single, double)| [single, double])
}

/// Expansions of a function that are written out in one kernel; later ones become calls. Code for many rows at once
/// costs compile time (18 ms for a gelu of 28 vectors written out, 5 ms for one), and calls cost little.
const INLINE_LIMIT: u32 = 8;

/// The vector function for an operation, if there is one.
fn vector_function(op: ScalarOp) -> Option<MathFn> {
    Some(match op {
        ScalarOp::Exp => MathFn::Exp,
        ScalarOp::Exp2 => MathFn::Exp2,
        ScalarOp::Expm1 => MathFn::Expm1,
        ScalarOp::Log => MathFn::Log,
        ScalarOp::Log2 => MathFn::Log2,
        ScalarOp::Log10 => MathFn::Log10,
        ScalarOp::Log1p => MathFn::Log1p,
        ScalarOp::Tanh => MathFn::Tanh,
        ScalarOp::Erf => MathFn::Erf,
        ScalarOp::Erfc => MathFn::Erfc,
        ScalarOp::Sin => MathFn::Sin,
        ScalarOp::Cos => MathFn::Cos,
        ScalarOp::Tan => MathFn::Tan,
        ScalarOp::Pow => MathFn::Pow,
        ScalarOp::Rsqrt => MathFn::Rsqrt,
        ScalarOp::Asin => MathFn::Asin,
        ScalarOp::Acos => MathFn::Acos,
        ScalarOp::Atan => MathFn::Atan,
        ScalarOp::Atan2 => MathFn::Atan2,
        ScalarOp::Sinh => MathFn::Sinh,
        ScalarOp::Cosh => MathFn::Cosh,
        ScalarOp::Asinh => MathFn::Asinh,
        ScalarOp::Acosh => MathFn::Acosh,
        ScalarOp::Atanh => MathFn::Atanh,
        ScalarOp::Add
        | ScalarOp::Sub
        | ScalarOp::Mul
        | ScalarOp::Div
        | ScalarOp::FloorDiv
        | ScalarOp::Mod
        | ScalarOp::Rem
        | ScalarOp::Max
        | ScalarOp::Min
        | ScalarOp::Neg
        | ScalarOp::Abs
        | ScalarOp::Sign
        | ScalarOp::Fma
        | ScalarOp::Sqrt
        | ScalarOp::Erfinv
        | ScalarOp::Lgamma
        | ScalarOp::Digamma
        | ScalarOp::Floor
        | ScalarOp::Ceil
        | ScalarOp::Round
        | ScalarOp::Trunc
        | ScalarOp::Copysign
        | ScalarOp::Nextafter
        | ScalarOp::And
        | ScalarOp::Or
        | ScalarOp::Xor
        | ScalarOp::Not
        | ScalarOp::Shl
        | ScalarOp::Shr
        | ScalarOp::Eq
        | ScalarOp::Ne
        | ScalarOp::Lt
        | ScalarOp::Le
        | ScalarOp::Gt
        | ScalarOp::Ge
        | ScalarOp::Isnan
        | ScalarOp::Isinf
        | ScalarOp::Select => return None,
    })
}

impl Emitter<'_> {
    /// A function of floats that LLVM has no instruction for; None if `op` is not one.
    pub(super) fn math(&mut self, op: ScalarOp, dtype: Dtype, operands: &[Value]) -> Option<Value> {
        let elem = if dtype == Dtype::F64 { Elem::F64 } else { Elem::F32 };
        if let Some(function) = vector_function(op) {
            return Some(self.vector_math(function, elem, operands));
        }
        let &(_, single, double) = ROUTINES.iter().find(|routine| routine.0 == op)?;
        let name = if elem == Elem::F64 { double } else { single };
        Some(self.each_lane(operands, &mut |cx, lane| {
            let lane: Vec<&Value> = lane.iter().collect();
            cx.b.call(lane[0].ty, name, &lane)
        }))
    }

    fn vector_math(&mut self, function: MathFn, elem: Elem, operands: &[Value]) -> Value {
        let ty = operands[0].ty;
        if let [operand] = operands
            && elem == Elem::F32
            && let Some(value) = self.rough_math(function, operand)
        {
            return value;
        }
        if let [operand] = operands
            && (self.inlined < INLINE_LIMIT || self.thread.is_some())
        {
            let key = format!("inline {} {ty} {}", function.name(), operand.text);
            let isa = self.target.isa;
            let inlined = self.b.inline(ty, operand, key, &|fresh, out| {
                vmath::inline(function, elem, ty.lanes, isa, &operand.text, fresh, out)
            });
            if let Some(value) = inlined {
                self.inlined += 1;
                return value;
            }
        }
        let mut definition = String::new();
        let name = vmath::define(function, elem, ty.lanes, self.target.isa, &mut definition);
        // Library declarations stand before the definition; two functions may share one.
        while let Some(rest) = definition.strip_prefix("declare ") {
            let (line, rest) = rest.split_once('\n').expect("invariant: declarations are lines");
            self.b.declarations.insert(format!("declare {line}"));
            definition = rest.to_string();
        }
        self.b.declarations.insert(definition);
        let list: Vec<String> = operands.iter().map(|value| format!("{ty} {}", value.text)).collect();
        let operands: Vec<&Value> = operands.iter().collect();
        self.b.pure(ty, &operands, format!("call fastcc {ty} {name}({})", list.join(", ")))
    }

    /// The chip's approximation, where that is enough for what the kernel stores, and there is one.
    fn rough_math(&mut self, function: MathFn, operand: &Value) -> Option<Value> {
        if !self.is_rough() {
            return None;
        }
        let mut is_there = true;
        let value = self.each_lane(std::slice::from_ref(operand), &mut |cx, lane| {
            let key = format!("rough {} {}", function.name(), lane[0].text);
            let value = cx.b.inline(lane[0].ty, &lane[0], key, &|fresh, out| {
                vmath::rough(function, &lane[0].text, fresh, out)
            });
            is_there &= value.is_some();
            value.unwrap_or_else(|| lane[0].clone())
        });
        is_there.then_some(value)
    }

    /// Does something lane by lane.
    pub(super) fn each_lane(
        &mut self,
        operands: &[Value],
        scalar: &mut dyn FnMut(&mut Self, &[Value]) -> Value,
    ) -> Value {
        let lanes = operands[0].ty.lanes;
        if lanes == 1 {
            return scalar(self, operands);
        }
        let mut result: Option<Value> = None;
        for lane in 0..lanes {
            let items: Vec<Value> = operands.iter().map(|value| self.b.extract(value, lane)).collect();
            let item = scalar(self, &items);
            let so_far = result.unwrap_or_else(|| self.b.poison(Ty { prim: item.ty.prim, lanes }));
            result = Some(self.b.insert(&so_far, lane, &item));
        }
        result.expect("invariant: vectors have lanes")
    }

    /// Zero in every lane.
    pub(super) fn zero(&mut self, ty: Ty) -> Value {
        self.b.constant_of(ty, litz_ir::Scalar::Int(0))
    }
}
