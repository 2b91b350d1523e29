//! Converts floats of 8 and 16 bits to and from f32 by integer operations.
//!
//! A small float's bits, moved to where f32 has its exponent and mantissa, are that f32 but for the exponent's bias,
//! which one multiplication by a power of two corrects, for subnormal numbers too.

use litz_ir::{Dtype, Scalar};

use super::Emitter;
use super::block::Value;
use super::ty::Prim;

/// A small float format: sign, exponent, mantissa.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    pub(super) prim: Prim,
    mantissa_bits: i64,
    bias: i64,
    /// Bits, without sign, of infinity; None where there is none and only all ones are NaN.
    infinity: Option<i64>,
    /// The least f32 magnitude, as bits, that does not fit even after rounding.
    overflow: i64,
}

/// The format of a type, if it is one of these.
pub(super) fn small_format(dtype: Dtype) -> Option<Small> {
    Some(match dtype {
        Dtype::F16 => Small {
            prim: Prim::I16,
            mantissa_bits: 10,
            bias: 15,
            infinity: Some(0x7c00),
            overflow: 143 << 23,
        },
        Dtype::F8E5M2 => {
            Small { prim: Prim::I8, mantissa_bits: 2, bias: 15, infinity: Some(0x7c), overflow: 143 << 23 }
        }
        // From above 464 on: half way between 448, the largest, and 480, which would be the next.
        Dtype::F8E4M3 => {
            Small { prim: Prim::I8, mantissa_bits: 3, bias: 7, infinity: None, overflow: 0x43e8_0001 }
        }
        Dtype::Bool
        | Dtype::U8
        | Dtype::U16
        | Dtype::U32
        | Dtype::U64
        | Dtype::I8
        | Dtype::I16
        | Dtype::I32
        | Dtype::I64
        | Dtype::BF16
        | Dtype::F32
        | Dtype::F64
        | Dtype::C64
        | Dtype::C128 => return None,
    })
}

impl Small {
    /// How far the mantissa is from f32's.
    fn shift(self) -> i64 {
        23 - self.mantissa_bits
    }

    fn sign(self) -> i64 {
        1 << (self.prim.bits() - 1)
    }
}

impl Emitter<'_> {
    fn word(&mut self, like: &Value, value: i64) -> Value {
        self.b.constant_of(like.ty.with(Prim::I32), Scalar::Int(value))
    }

    /// The f32 of a small float's bits.
    pub(super) fn decode(&mut self, bits: &Value, format: Small) -> Value {
        let bits = self.b.convert("zext", bits, Prim::I32);
        let [mask, sign, shift, up] =
            [format.sign() - 1, format.sign(), format.shift(), 32 - i64::from(format.prim.bits())]
                .map(|value| self.word(&bits, value));
        let magnitude = self.b.binary("and", &bits, &mask);
        let moved = self.b.binary("shl", &magnitude, &shift);
        let number = self.b.convert("bitcast", &moved, Prim::F32);
        let scale = self.b.constant_of(number.ty, Scalar::Float(2f64.powi((127 - format.bias) as i32)));
        let number = self.b.binary("fmul", &number, &scale);
        let number = self.b.convert("bitcast", &number, Prim::I32);

        let first_special = self.word(&bits, format.infinity.unwrap_or(format.sign() - 1));
        let is_special = self.b.compare("icmp uge", &magnitude, &first_special);
        let special = if format.infinity.is_some() {
            let exponent = self.word(&bits, 0xff << 23);
            self.b.binary("or", &moved, &exponent)
        } else {
            self.word(&bits, 0x7fc0_0000)
        };
        let number = self.b.select(&is_special, &special, &number);
        let sign = self.b.binary("and", &bits, &sign);
        let sign = self.b.binary("shl", &sign, &up);
        let result = self.b.binary("or", &number, &sign);
        self.b.convert("bitcast", &result, Prim::F32)
    }

    /// The bits of the small float nearest to an f32, ties to even; what is too large becomes infinity, or else the
    /// largest number.
    pub(super) fn encode(&mut self, value: &Value, format: Small) -> Value {
        let bits = self.b.convert("bitcast", value, Prim::I32);
        let shift = format.shift();
        let rebias = (format.bias - 127) << 23;
        let magic = (127 - format.bias + shift + 1) << 23;
        let [mask, amount, one, round, magic, least_normal, overflow] = [
            i64::from(i32::MAX),
            shift,
            1,
            rebias + (1 << (shift - 1)) - 1,
            magic,
            (128 - format.bias) << 23,
            format.overflow,
        ]
        .map(|value| self.word(&bits, value));
        let magnitude = self.b.binary("and", &bits, &mask);

        // Normal numbers: rounded by adding just less than half a unit, and the unit's parity.
        let high = self.b.binary("lshr", &magnitude, &amount);
        let parity = self.b.binary("and", &high, &one);
        let sum = self.b.binary("add", &magnitude, &round);
        let sum = self.b.binary("add", &sum, &parity);
        let normal = self.b.binary("lshr", &sum, &amount);

        // Subnormal ones: added to a number whose unit is theirs, so that the addition rounds.
        let float = self.b.convert("bitcast", &magnitude, Prim::F32);
        let magic_float = self.b.convert("bitcast", &magic, Prim::F32);
        let sum = self.b.binary("fadd", &float, &magic_float);
        let sum = self.b.convert("bitcast", &sum, Prim::I32);
        let subnormal = self.b.binary("sub", &sum, &magic);

        let is_subnormal = self.b.compare("icmp ult", &magnitude, &least_normal);
        let finite = self.b.select(&is_subnormal, &subnormal, &normal);
        let ones = format.sign() - 1;
        let (infinity, nan) = match format.infinity {
            // The quiet NaN with the first mantissa bit set, as IEEE conversions give.
            Some(infinity) if format.prim == Prim::I16 => (infinity, infinity | infinity >> 1 & 0x200),
            Some(infinity) => (infinity, ones),
            None => (ones - 1, ones),
        };
        let [infinity, nan] = [infinity, nan].map(|value| self.word(&bits, value));
        let is_too_large = self.b.compare("icmp uge", &magnitude, &overflow);
        let result = self.b.select(&is_too_large, &infinity, &finite);
        let is_nan = self.b.compare("fcmp uno", value, value);
        let result = self.b.select(&is_nan, &nan, &result);

        let [down, sign] =
            [32 - i64::from(format.prim.bits()), format.sign()].map(|value| self.word(&bits, value));
        let top = self.b.binary("lshr", &bits, &down);
        let sign = self.b.binary("and", &top, &sign);
        let result = self.b.binary("or", &result, &sign);
        self.b.convert("trunc", &result, format.prim)
    }
}
