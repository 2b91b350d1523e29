//! Prints scalar operations, on scalars and lane-wise on vectors alike, with PyTorch's results.

use litz_ir::dtype::Kind;
use litz_ir::{Dtype, Scalar, ScalarOp};

use super::block::Value;
use super::ty::Prim;
use super::{EmitError, Emitter};

/// The smallest normal number of single precision. Numbers up to its inverse have normal inverses.
const NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// What divisors without normal inverses are multiplied or divided by.
const FAR: f64 = 16_777_216.0;

impl Emitter<'_> {
    /// The operation on operands of type `dtype` and as many lanes each.
    pub(super) fn apply(&mut self, op: ScalarOp, dtype: Dtype, args: &[Value]) -> Result<Value, EmitError> {
        if op == ScalarOp::Select {
            return Ok(self.b.select(&args[0], &args[1], &args[2]));
        }
        let result = match dtype.kind() {
            Kind::Float => self.float_op(op, dtype, args),
            Kind::Int => self.int_op(op, dtype.is_unsigned(), args),
            Kind::Bool => self.bool_op(op, args),
            Kind::Complex => None,
        };
        result.ok_or_else(|| EmitError::unsupported(format!("{} of {dtype}", op.name())))
    }

    fn number(&mut self, like: &Value, value: f64) -> Value {
        self.b.constant_of(like.ty, Scalar::Float(value))
    }

    fn integer(&mut self, like: &Value, value: i64) -> Value {
        self.b.constant_of(like.ty, Scalar::Int(value))
    }

    fn float_op(&mut self, op: ScalarOp, dtype: Dtype, args: &[Value]) -> Option<Value> {
        let a = &args[0];
        let b = args.get(1).unwrap_or(a);
        Some(match op {
            ScalarOp::Add => self.b.binary("fadd", a, b),
            ScalarOp::Sub => self.b.binary("fsub", a, b),
            ScalarOp::Mul => self.b.binary("fmul", a, b),
            ScalarOp::Div if self.is_rough() && dtype.compute() == Dtype::F32 => self.rough_quotient(a, b),
            ScalarOp::Div => self.b.binary("fdiv", a, b),
            ScalarOp::FloorDiv => self.floor_divide(a, b),
            ScalarOp::Mod => self.float_mod(a, b),
            ScalarOp::Rem => self.float_rem(a, b),
            ScalarOp::Max | ScalarOp::Min if self.thread.is_some() && a.ty.prim == Prim::F32 => {
                // One instruction, which gives NaN where either is, and of zeros the one whose sign says so.
                self.b.intrinsic(if op == ScalarOp::Max { "maximum" } else { "minimum" }, &[a, b])
            }
            ScalarOp::Max => self.float_extreme("fcmp ogt", a, b),
            ScalarOp::Min => self.float_extreme("fcmp olt", a, b),
            ScalarOp::Neg => self.b.unary("fneg", a),
            ScalarOp::Abs => self.b.intrinsic("fabs", &[a]),
            ScalarOp::Sign => {
                let [zero, one, minus] = [0.0, 1.0, -1.0].map(|value| self.number(a, value));
                let is_negative = self.b.compare("fcmp olt", a, &zero);
                let is_positive = self.b.compare("fcmp ogt", a, &zero);
                let rest = self.b.select(&is_negative, &minus, &zero);
                self.b.select(&is_positive, &one, &rest)
            }
            ScalarOp::Fma => self.b.intrinsic("fma", &[a, b, &args[2]]),
            ScalarOp::Sqrt => self.b.intrinsic("sqrt", &[a]),
            ScalarOp::Floor => self.b.intrinsic("floor", &[a]),
            ScalarOp::Ceil => self.b.intrinsic("ceil", &[a]),
            ScalarOp::Round => self.b.intrinsic("roundeven", &[a]),
            ScalarOp::Trunc => self.b.intrinsic("trunc", &[a]),
            ScalarOp::Copysign => self.b.intrinsic("copysign", &[a, b]),
            ScalarOp::Eq => self.b.compare("fcmp oeq", a, b),
            ScalarOp::Ne => self.b.compare("fcmp une", a, b),
            ScalarOp::Lt => self.b.compare("fcmp olt", a, b),
            ScalarOp::Le => self.b.compare("fcmp ole", a, b),
            ScalarOp::Gt => self.b.compare("fcmp ogt", a, b),
            ScalarOp::Ge => self.b.compare("fcmp oge", a, b),
            ScalarOp::Isnan => self.b.compare("fcmp uno", a, a),
            ScalarOp::Isinf => {
                let magnitude = self.b.intrinsic("fabs", &[a]);
                let infinity = self.number(a, f64::INFINITY);
                self.b.compare("fcmp oeq", &magnitude, &infinity)
            }
            ScalarOp::Pow => self.float_pow(dtype, args)?,
            ScalarOp::Rsqrt
            | ScalarOp::Exp
            | ScalarOp::Exp2
            | ScalarOp::Expm1
            | ScalarOp::Log
            | ScalarOp::Log2
            | ScalarOp::Log10
            | ScalarOp::Log1p
            | ScalarOp::Sin
            | ScalarOp::Cos
            | ScalarOp::Tan
            | ScalarOp::Asin
            | ScalarOp::Acos
            | ScalarOp::Atan
            | ScalarOp::Atan2
            | ScalarOp::Sinh
            | ScalarOp::Cosh
            | ScalarOp::Tanh
            | ScalarOp::Asinh
            | ScalarOp::Acosh
            | ScalarOp::Atanh
            | ScalarOp::Erf
            | ScalarOp::Erfc
            | ScalarOp::Erfinv
            | ScalarOp::Lgamma
            | ScalarOp::Digamma
            | ScalarOp::Nextafter => self.math(op, dtype, args)?,
            ScalarOp::And
            | ScalarOp::Or
            | ScalarOp::Xor
            | ScalarOp::Not
            | ScalarOp::Shl
            | ScalarOp::Shr
            | ScalarOp::Select => return None,
        })
    }

    /// The greater (`ogt`) or smaller (`olt`) of two, the first of equal ones such as zeros of either sign, or the one
    /// that is NaN. The first select is one `max` or `min` instruction on x86, which gives `a` where either is NaN.
    fn float_extreme(&mut self, better: &str, a: &Value, b: &Value) -> Value {
        let is_better = self.b.compare(better, b, a);
        let extreme = self.b.select(&is_better, b, a);
        let is_nan = self.b.compare("fcmp uno", b, b);
        self.b.select(&is_nan, b, &extreme)
    }

    /// A quotient by the approximations of the chip: the inverse of the divisor, which is computed once for all that it divides. Where the chip has none of
    /// normal size, both are brought nearer to 1 first.
    fn rough_quotient(&mut self, a: &Value, b: &Value) -> Value {
        let one = self.number(a, 1.0);
        let is_inverse = a.text == one.text;
        self.each_lane(&[a.clone(), b.clone()], &mut |cx, lane| match is_inverse {
            true => cx.b.call(lane[0].ty, "llvm.nvvm.rcp.approx.ftz.f", &[&lane[1]]),
            false => {
                let (a, b) = (&lane[0], &lane[1]);
                let [one, up, down] = [1.0, FAR, 1.0 / FAR].map(|value| cx.number(b, value));
                let [least, most] = [NORMAL, 1.0 / NORMAL].map(|value| cx.number(b, value));
                let size = cx.b.intrinsic("fabs", &[b]);
                let is_small = cx.b.compare("fcmp olt", &size, &least);
                let is_large = cx.b.compare("fcmp ogt", &size, &most);
                let scale = cx.b.select(&is_small, &up, &one);
                let scale = cx.b.select(&is_large, &down, &scale);
                let b = cx.b.binary("fmul", b, &scale);
                let inverse = cx.b.call(b.ty, "llvm.nvvm.rcp.approx.ftz.f", &[&b]);
                let a = cx.b.binary("fmul", a, &scale);
                cx.b.binary("fmul", &a, &inverse)
            }
        })
    }

    /// C's `fmod`.
    fn float_rem(&mut self, a: &Value, b: &Value) -> Value {
        let name = if a.ty.prim == Prim::F64 { "fmod" } else { "fmodf" };
        self.each_lane(&[a.clone(), b.clone()], &mut |cx, lane| {
            cx.b.call(lane[0].ty, name, &[&lane[0], &lane[1]])
        })
    }

    /// Whether a remainder is not zero and its sign not the divisor's.
    fn needs_shift(&mut self, rest: &Value, divisor: &Value) -> Value {
        let zero = self.number(rest, 0.0);
        let is_inexact = self.b.compare("fcmp une", rest, &zero);
        let a = self.b.compare("fcmp olt", rest, &zero);
        let b = self.b.compare("fcmp olt", divisor, &zero);
        let differ = self.b.binary("xor", &a, &b);
        self.b.and(&is_inexact, &differ)
    }

    /// `torch.remainder`.
    fn float_mod(&mut self, a: &Value, b: &Value) -> Value {
        let rest = self.float_rem(a, b);
        let shift = self.needs_shift(&rest, b);
        let shifted = self.b.binary("fadd", &rest, b);
        self.b.select(&shift, &shifted, &rest)
    }

    /// `torch.floor_divide`, operation for operation `c10::div_floor_floating`.
    fn floor_divide(&mut self, a: &Value, b: &Value) -> Value {
        let [zero, one, half] = [0.0, 1.0, 0.5].map(|value| self.number(a, value));
        let rest = self.float_rem(a, b);
        let difference = self.b.binary("fsub", a, &rest);
        let exact = self.b.binary("fdiv", &difference, b);
        let shift = self.needs_shift(&rest, b);
        let less = self.b.binary("fsub", &exact, &one);
        let quotient = self.b.select(&shift, &less, &exact);

        let floor = self.b.intrinsic("floor", &[&quotient]);
        let above = self.b.binary("fsub", &quotient, &floor);
        let rounds_up = self.b.compare("fcmp ogt", &above, &half);
        let up = self.b.binary("fadd", &floor, &one);
        let rounded = self.b.select(&rounds_up, &up, &floor);

        let plain = self.b.binary("fdiv", a, b);
        let signed_zero = self.b.intrinsic("copysign", &[&zero, &plain]);
        let is_zero = self.b.compare("fcmp oeq", &quotient, &zero);
        let result = self.b.select(&is_zero, &signed_zero, &rounded);
        let by_zero = self.b.compare("fcmp oeq", b, &zero);
        self.b.select(&by_zero, &plain, &result)
    }

    /// Powers that are one or two instructions, else the function.
    fn float_pow(&mut self, dtype: Dtype, args: &[Value]) -> Option<Value> {
        let a = &args[0];
        let [one, two, three, half, minus] =
            [1.0, 2.0, 3.0, 0.5, -1.0].map(|value| self.number(a, value).text);
        let exponent = &args[1].text;
        if *exponent == one {
            return Some(a.clone());
        }
        if *exponent == two {
            return Some(self.b.binary("fmul", a, a));
        }
        if *exponent == three {
            let square = self.b.binary("fmul", a, a);
            return Some(self.b.binary("fmul", &square, a));
        }
        if *exponent == half {
            return Some(self.b.intrinsic("sqrt", &[a]));
        }
        if *exponent == minus {
            let one = self.number(a, 1.0);
            return Some(self.b.binary("fdiv", &one, a));
        }
        self.math(ScalarOp::Pow, dtype, args)
    }

    fn int_op(&mut self, op: ScalarOp, is_unsigned: bool, args: &[Value]) -> Option<Value> {
        let a = &args[0];
        let b = args.get(1).unwrap_or(a);
        let by_sign =
            |signed: &'static str, unsigned: &'static str| if is_unsigned { unsigned } else { signed };
        Some(match op {
            ScalarOp::Add => self.b.binary("add", a, b),
            ScalarOp::Sub => self.b.binary("sub", a, b),
            ScalarOp::Mul => self.b.binary("mul", a, b),
            ScalarOp::Div => self.int_divide(a, b, is_unsigned).0,
            ScalarOp::Rem => self.int_divide(a, b, is_unsigned).1,
            ScalarOp::FloorDiv | ScalarOp::Mod => {
                let (quotient, rest) = self.int_divide(a, b, is_unsigned);
                if is_unsigned {
                    return Some(if op == ScalarOp::Mod { rest } else { quotient });
                }
                let [zero, one] = [0, 1].map(|value| self.integer(a, value));
                let is_inexact = self.b.compare("icmp ne", &rest, &zero);
                let signs = self.b.binary("xor", &rest, b);
                let differ = self.b.compare("icmp slt", &signs, &zero);
                let shift = self.b.and(&is_inexact, &differ);
                let (plain, shifted) = if op == ScalarOp::Mod {
                    let shifted = self.b.binary("add", &rest, b);
                    (rest, shifted)
                } else {
                    let shifted = self.b.binary("sub", &quotient, &one);
                    (quotient, shifted)
                };
                self.b.select(&shift, &shifted, &plain)
            }
            ScalarOp::Max => self.b.intrinsic(by_sign("smax", "umax"), &[a, b]),
            ScalarOp::Min => self.b.intrinsic(by_sign("smin", "umin"), &[a, b]),
            ScalarOp::Neg => {
                let zero = self.integer(a, 0);
                self.b.binary("sub", &zero, a)
            }
            ScalarOp::Abs if is_unsigned => a.clone(),
            ScalarOp::Abs => {
                let zero = self.integer(a, 0);
                let negated = self.b.binary("sub", &zero, a);
                self.b.intrinsic("smax", &[a, &negated])
            }
            ScalarOp::Sign => {
                let [zero, one, minus] = [0, 1, -1].map(|value| self.integer(a, value));
                let is_zero = self.b.compare("icmp eq", a, &zero);
                let is_negative = self.b.compare(by_sign("icmp slt", "icmp ult"), a, &zero);
                let rest = self.b.select(&is_negative, &minus, &one);
                self.b.select(&is_zero, &zero, &rest)
            }
            ScalarOp::Fma => {
                let product = self.b.binary("mul", a, b);
                self.b.binary("add", &product, &args[2])
            }
            ScalarOp::Pow => self.int_pow(a, b, is_unsigned),
            ScalarOp::And => self.b.binary("and", a, b),
            ScalarOp::Or => self.b.binary("or", a, b),
            ScalarOp::Xor => self.b.binary("xor", a, b),
            ScalarOp::Not => {
                let ones = self.integer(a, -1);
                self.b.binary("xor", a, &ones)
            }
            ScalarOp::Shl | ScalarOp::Shr => self.shift(op, a, b, is_unsigned),
            ScalarOp::Eq => self.b.compare("icmp eq", a, b),
            ScalarOp::Ne => self.b.compare("icmp ne", a, b),
            ScalarOp::Lt => self.b.compare(by_sign("icmp slt", "icmp ult"), a, b),
            ScalarOp::Le => self.b.compare(by_sign("icmp sle", "icmp ule"), a, b),
            ScalarOp::Gt => self.b.compare(by_sign("icmp sgt", "icmp ugt"), a, b),
            ScalarOp::Ge => self.b.compare(by_sign("icmp sge", "icmp uge"), a, b),
            ScalarOp::Isnan | ScalarOp::Isinf => self.b.constant_of(a.ty.with(Prim::I1), Scalar::Bool(false)),
            ScalarOp::Sqrt
            | ScalarOp::Rsqrt
            | ScalarOp::Exp
            | ScalarOp::Exp2
            | ScalarOp::Expm1
            | ScalarOp::Log
            | ScalarOp::Log2
            | ScalarOp::Log10
            | ScalarOp::Log1p
            | ScalarOp::Sin
            | ScalarOp::Cos
            | ScalarOp::Tan
            | ScalarOp::Asin
            | ScalarOp::Acos
            | ScalarOp::Atan
            | ScalarOp::Atan2
            | ScalarOp::Sinh
            | ScalarOp::Cosh
            | ScalarOp::Tanh
            | ScalarOp::Asinh
            | ScalarOp::Acosh
            | ScalarOp::Atanh
            | ScalarOp::Erf
            | ScalarOp::Erfc
            | ScalarOp::Erfinv
            | ScalarOp::Lgamma
            | ScalarOp::Digamma
            | ScalarOp::Floor
            | ScalarOp::Ceil
            | ScalarOp::Round
            | ScalarOp::Trunc
            | ScalarOp::Copysign
            | ScalarOp::Nextafter
            | ScalarOp::Select => return None,
        })
    }

    /// Quotient towards zero, and remainder. By zero both are 0; by -1 the quotient is the negation, which wraps.
    fn int_divide(&mut self, a: &Value, b: &Value, is_unsigned: bool) -> (Value, Value) {
        let [zero, one, minus] = [0, 1, -1].map(|value| self.integer(a, value));
        let (divide, rest) = if is_unsigned { ("udiv", "urem") } else { ("sdiv", "srem") };
        let is_safe = b.is_literal() && b.text != zero.text && b.text != minus.text;
        if is_safe {
            return (self.b.binary(divide, a, b), self.b.binary(rest, a, b));
        }
        let by_zero = self.b.compare("icmp eq", b, &zero);
        let mut divisor = self.b.select(&by_zero, &one, b);
        let by_minus = (!is_unsigned).then(|| self.b.compare("icmp eq", b, &minus));
        if let Some(by_minus) = &by_minus {
            divisor = self.b.select(by_minus, &one, &divisor);
        }
        let mut quotient = self.b.binary(divide, a, &divisor);
        if let Some(by_minus) = &by_minus {
            let negated = self.b.binary("sub", &zero, a);
            quotient = self.b.select(by_minus, &negated, &quotient);
        }
        let quotient = self.b.select(&by_zero, &zero, &quotient);
        // Divisors that were replaced by 1 leave 0.
        (quotient, self.b.binary(rest, a, &divisor))
    }

    /// Amounts out of range give 0, and for right shifts the sign.
    fn shift(&mut self, op: ScalarOp, a: &Value, b: &Value, is_unsigned: bool) -> Value {
        let width = i64::from(a.ty.prim.bits());
        if b.as_int().is_some_and(|amount| (0..width).contains(&amount)) {
            let right = if is_unsigned { "lshr" } else { "ashr" };
            let shift = if op == ScalarOp::Shl { "shl" } else { right };
            return self.b.binary(shift, a, b);
        }
        if op == ScalarOp::Shr && !is_unsigned {
            let last = self.integer(a, width - 1);
            let amount = self.b.intrinsic("umin", &[b, &last]);
            return self.b.binary("ashr", a, &amount);
        }
        let limit = self.integer(a, width);
        let zero = self.integer(a, 0);
        let is_inside = self.b.compare("icmp ult", b, &limit);
        let amount = self.b.select(&is_inside, b, &zero);
        let shifted = self.b.binary(if op == ScalarOp::Shl { "shl" } else { "lshr" }, a, &amount);
        self.b.select(&is_inside, &shifted, &zero)
    }

    /// By squaring. A negative exponent gives the truncated inverse: 0 but for bases 1 and -1.
    fn int_pow(&mut self, a: &Value, b: &Value, is_unsigned: bool) -> Value {
        let width = i64::from(a.ty.prim.bits());
        let [zero, one, minus] = [0, 1, -1].map(|value| self.integer(a, value));
        let mut result = one.clone();
        let mut power = a.clone();
        for bit in 0..width {
            let amount = self.integer(a, bit);
            let shifted = self.b.binary("lshr", b, &amount);
            let low = self.b.binary("and", &shifted, &one);
            let is_set = self.b.compare("icmp ne", &low, &zero);
            let product = self.b.binary("mul", &result, &power);
            result = self.b.select(&is_set, &product, &result);
            power = self.b.binary("mul", &power, &power);
        }
        if is_unsigned {
            return result;
        }
        // The parity of a negative exponent is that of its low bit, too, so bases 1 and -1 are right already.
        let is_negative = self.b.compare("icmp slt", b, &zero);
        let is_one = self.b.compare("icmp eq", a, &one);
        let is_minus = self.b.compare("icmp eq", a, &minus);
        let is_unit = self.b.binary("or", &is_one, &is_minus);
        let inverse = self.b.select(&is_unit, &result, &zero);
        self.b.select(&is_negative, &inverse, &result)
    }

    /// The complement of truth values.
    pub(super) fn not(&mut self, value: &Value) -> Value {
        let yes = self.b.constant_of(value.ty, Scalar::Bool(true));
        self.b.binary("xor", value, &yes)
    }

    /// Truth values as the numbers 0 and 1, with the result's low bit; sums saturate as in PyTorch.
    fn bool_op(&mut self, op: ScalarOp, args: &[Value]) -> Option<Value> {
        let a = &args[0];
        let b = args.get(1).unwrap_or(a);
        let no = self.b.constant_of(a.ty, Scalar::Bool(false));
        Some(match op {
            ScalarOp::Add | ScalarOp::Max | ScalarOp::Or => self.b.binary("or", a, b),
            ScalarOp::Mul | ScalarOp::Min | ScalarOp::And | ScalarOp::Div | ScalarOp::FloorDiv => {
                self.b.binary("and", a, b)
            }
            ScalarOp::Sub | ScalarOp::Xor | ScalarOp::Ne => self.b.binary("xor", a, b),
            ScalarOp::Mod | ScalarOp::Rem | ScalarOp::Isnan | ScalarOp::Isinf => no,
            ScalarOp::Neg | ScalarOp::Abs | ScalarOp::Sign => a.clone(),
            ScalarOp::Fma => {
                let product = self.b.binary("and", a, b);
                self.b.binary("or", &product, &args[2])
            }
            ScalarOp::Not => self.not(a),
            ScalarOp::Shl | ScalarOp::Shr | ScalarOp::Gt => {
                let other = self.not(b);
                self.b.binary("and", a, &other)
            }
            ScalarOp::Pow | ScalarOp::Ge => {
                let other = self.not(b);
                self.b.binary("or", a, &other)
            }
            ScalarOp::Lt => {
                let other = self.not(a);
                self.b.binary("and", &other, b)
            }
            ScalarOp::Le => {
                let other = self.not(a);
                self.b.binary("or", &other, b)
            }
            ScalarOp::Eq => {
                let differ = self.b.binary("xor", a, b);
                self.not(&differ)
            }
            ScalarOp::Sqrt
            | ScalarOp::Rsqrt
            | ScalarOp::Exp
            | ScalarOp::Exp2
            | ScalarOp::Expm1
            | ScalarOp::Log
            | ScalarOp::Log2
            | ScalarOp::Log10
            | ScalarOp::Log1p
            | ScalarOp::Sin
            | ScalarOp::Cos
            | ScalarOp::Tan
            | ScalarOp::Asin
            | ScalarOp::Acos
            | ScalarOp::Atan
            | ScalarOp::Atan2
            | ScalarOp::Sinh
            | ScalarOp::Cosh
            | ScalarOp::Tanh
            | ScalarOp::Asinh
            | ScalarOp::Acosh
            | ScalarOp::Atanh
            | ScalarOp::Erf
            | ScalarOp::Erfc
            | ScalarOp::Erfinv
            | ScalarOp::Lgamma
            | ScalarOp::Digamma
            | ScalarOp::Floor
            | ScalarOp::Ceil
            | ScalarOp::Round
            | ScalarOp::Trunc
            | ScalarOp::Copysign
            | ScalarOp::Nextafter
            | ScalarOp::Select => return None,
        })
    }
}
