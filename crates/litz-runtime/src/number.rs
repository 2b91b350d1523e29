//! Converts between the bits of an element and the number that they stand for: loads, stores and casts of every type.

use half::{bf16, f16};
use litz_ir::{Dtype, Scalar};

/// An element's bits in the low end, zero above: room for the widest type.
pub(crate) type Bits = u128;

/// The number that an element stands for, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Bool(bool),
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

impl Number {
    /// The number that bits of `dtype` stand for.
    pub(crate) fn decode(dtype: Dtype, bits: Bits) -> Number {
        match dtype {
            Dtype::Bool => Number::Bool(bits as u8 != 0),
            Dtype::U8 => Number::Int(i128::from(bits as u8)),
            Dtype::U16 => Number::Int(i128::from(bits as u16)),
            Dtype::U32 => Number::Int(i128::from(bits as u32)),
            Dtype::U64 => Number::Int(i128::from(bits as u64)),
            Dtype::I8 => Number::Int(i128::from(bits as i8)),
            Dtype::I16 => Number::Int(i128::from(bits as i16)),
            Dtype::I32 => Number::Int(i128::from(bits as i32)),
            Dtype::I64 => Number::Int(i128::from(bits as i64)),
            Dtype::F16 => Number::Float(f16::from_bits(bits as u16).to_f64()),
            Dtype::BF16 => Number::Float(bf16::from_bits(bits as u16).to_f64()),
            Dtype::F32 => Number::Float(f64::from(f32::from_bits(bits as u32))),
            Dtype::F64 => Number::Float(f64::from_bits(bits as u64)),
            Dtype::F8E4M3 => Number::Float(E4M3.decode(bits as u8)),
            Dtype::F8E5M2 => Number::Float(E5M2.decode(bits as u8)),
            Dtype::C64 => {
                let part = |bits| f64::from(f32::from_bits(bits));
                Number::Complex(part(bits as u32), part((bits >> 32) as u32))
            }
            Dtype::C128 => Number::Complex(f64::from_bits(bits as u64), f64::from_bits((bits >> 64) as u64)),
        }
    }

    /// The nearest element of `dtype`, as PyTorch casts on a CPU.
    ///
    /// Types narrower than f32 round from f32. Integers wrap. Floats truncate towards zero to integers; NaN and
    /// what is out of range become the smallest i64 or, for u16 and signed types of at most 32 bits, the smallest i32,
    /// before wrapping: what the conversion instructions of x86 give that PyTorch uses. Complex numbers lose their
    /// imaginary part.
    pub(crate) fn encode(self, dtype: Dtype) -> Bits {
        match dtype {
            Dtype::Bool => Bits::from(self.is_nonzero()),
            Dtype::U8 => Bits::from(self.integer(I64) as u8),
            Dtype::U16 => Bits::from(self.integer(I32) as u16),
            Dtype::U32 => Bits::from(self.integer(I64) as u32),
            Dtype::U64 => Bits::from(self.integer(U64) as u64),
            Dtype::I8 => Bits::from(self.integer(I32) as u8),
            Dtype::I16 => Bits::from(self.integer(I32) as u16),
            Dtype::I32 => Bits::from(self.integer(I32) as u32),
            Dtype::I64 => Bits::from(self.integer(I64) as u64),
            Dtype::F16 => Bits::from(f16::from_f32(self.single()).to_bits()),
            Dtype::BF16 => Bits::from(bf16::from_f32(self.single()).to_bits()),
            Dtype::F32 => Bits::from(self.single().to_bits()),
            Dtype::F64 => Bits::from(self.double().to_bits()),
            Dtype::F8E4M3 => Bits::from(E4M3.encode(self.single())),
            Dtype::F8E5M2 => Bits::from(E5M2.encode(self.single())),
            Dtype::C64 => {
                let imaginary = (self.imaginary() as f32).to_bits();
                Bits::from(self.single().to_bits()) | Bits::from(imaginary) << 32
            }
            Dtype::C128 => Bits::from(self.double().to_bits()) | Bits::from(self.imaginary().to_bits()) << 64,
        }
    }

    fn is_nonzero(self) -> bool {
        match self {
            Number::Bool(value) => value,
            Number::Int(value) => value != 0,
            Number::Float(value) => value != 0.0,
            Number::Complex(real, imaginary) => real != 0.0 || imaginary != 0.0,
        }
    }

    /// Truncated, with the lowest value of `range` for a float outside of it.
    fn integer(self, range: (i128, i128)) -> i128 {
        match self {
            Number::Bool(value) => i128::from(value),
            Number::Int(value) => value,
            Number::Float(value) | Number::Complex(value, _) => {
                let (lo, hi) = range;
                // Saturates far outside of every range; NaN is no value of any.
                let truncated = value as i128;
                if value.is_nan() || truncated < lo || truncated > hi { lo } else { truncated }
            }
        }
    }

    /// Rounded once.
    fn single(self) -> f32 {
        match self {
            Number::Int(value) => value as f32,
            Number::Bool(_) | Number::Float(_) | Number::Complex(..) => self.double() as f32,
        }
    }

    /// As a double; the real part of a complex number.
    pub(crate) fn double(self) -> f64 {
        match self {
            Number::Bool(value) => f64::from(u8::from(value)),
            Number::Int(value) => value as f64,
            Number::Float(value) | Number::Complex(value, _) => value,
        }
    }

    fn imaginary(self) -> f64 {
        match self {
            Number::Bool(_) | Number::Int(_) | Number::Float(_) => 0.0,
            Number::Complex(_, imaginary) => imaginary,
        }
    }
}

/// Ranges that floats convert to before they wrap. Negative floats become unsigned by wrapping an i64.
const I32: (i128, i128) = (i32::MIN as i128, i32::MAX as i128);
const I64: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);
const U64: (i128, i128) = (i64::MIN as i128, u64::MAX as i128);

/// The number that bits of `dtype` stand for, as a literal; complex numbers lose their imaginary part.
pub(crate) fn scalar(dtype: Dtype, bits: Bits) -> Scalar {
    match Number::decode(dtype, bits) {
        Number::Bool(value) => Scalar::Bool(value),
        Number::Int(value) => Scalar::Int(value as i64),
        Number::Float(value) | Number::Complex(value, _) => Scalar::Float(value),
    }
}

impl From<Scalar> for Number {
    fn from(scalar: Scalar) -> Number {
        match scalar {
            Scalar::Bool(value) => Number::Bool(value),
            Scalar::Int(value) => Number::Int(i128::from(value)),
            Scalar::Float(value) => Number::Float(value),
        }
    }
}

/// Conversion between element types, as PyTorch's `to` on a CPU.
#[inline]
pub(crate) fn cast(from: Dtype, to: Dtype, bits: Bits) -> Bits {
    if from == to { bits } else { Number::decode(from, bits).encode(to) }
}

/// Reads the element at byte `at`.
#[inline]
pub(crate) fn read(bytes: &[u8], at: usize, size: usize) -> Bits {
    let bytes = &bytes[at..at + size];
    // Copies of a known length are single instructions.
    match *bytes {
        [a] => Bits::from(a),
        [a, b] => Bits::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => Bits::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => Bits::from(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => {
            let mut raw = [0; size_of::<Bits>()];
            raw[..size].copy_from_slice(bytes);
            Bits::from_le_bytes(raw)
        }
    }
}

/// Writes the element at byte `at`.
#[inline]
pub(crate) fn write(bytes: &mut [u8], at: usize, size: usize, bits: Bits) {
    let bytes = &mut bytes[at..at + size];
    match size {
        4 => bytes.copy_from_slice(&(bits as u32).to_le_bytes()),
        8 => bytes.copy_from_slice(&(bits as u64).to_le_bytes()),
        _ => bytes.copy_from_slice(&bits.to_le_bytes()[..size]),
    }
}

/// An 8-bit float format.
struct Minifloat {
    mantissa_bits: u32,
    bias: u32,
    /// Bits of the f32 from which on numbers round to `largest`.
    limit: u32,
    /// What is too large: infinity, or the largest number where there is none.
    largest: u8,
    has_infinity: bool,
    nan: u8,
}

/// No infinities: what is above 464, half way to the number that would be next, becomes the largest, as in PyTorch from 2.15 on.
const E4M3: Minifloat = Minifloat {
    mantissa_bits: 3,
    bias: 7,
    limit: 0x43e8_0001,
    largest: 0x7e,
    has_infinity: false,
    nan: 0x7f,
};
const E5M2: Minifloat =
    Minifloat { mantissa_bits: 2, bias: 15, limit: 143 << 23, largest: 0x7c, has_infinity: true, nan: 0x7f };

impl Minifloat {
    fn decode(&self, bits: u8) -> f64 {
        let magnitude = bits & 0x7f;
        let exponent = i32::from(magnitude >> self.mantissa_bits);
        let mantissa = f64::from(magnitude & ((1 << self.mantissa_bits) - 1));
        let unit = 2f64.powi(exponent.max(1) - self.bias as i32 - self.mantissa_bits as i32);
        let hidden = if exponent == 0 { 0.0 } else { f64::from(1 << self.mantissa_bits) };
        let value = match magnitude {
            nan if nan > self.largest => f64::NAN,
            infinity if self.has_infinity && infinity == self.largest => f64::INFINITY,
            _ => (hidden + mantissa) * unit,
        };
        if bits < 0x80 { value } else { -value }
    }

    /// Rounds to the nearest, ties to even, as c10's `fp8*_from_fp32_value`.
    fn encode(&self, value: f32) -> u8 {
        let sign = (value.to_bits() >> 24) as u8 & 0x80;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        let dropped = 23 - self.mantissa_bits;
        let rounded = if value.is_nan() {
            self.nan
        } else if magnitude >= self.limit {
            self.largest
        } else if magnitude < (128 - self.bias) << 23 {
            // Below the smallest normal: adding a number whose last place is the smallest subnormal rounds.
            let anchor = (128 - self.bias + dropped) << 23;
            ((f32::from_bits(magnitude) + f32::from_bits(anchor)).to_bits() - anchor) as u8
        } else {
            let is_odd = magnitude >> dropped & 1;
            let half = (1 << (dropped - 1)) - 1;
            ((magnitude - ((127 - self.bias) << 23) + half + is_odd) >> dropped) as u8
        };
        sign | rounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(dtype: Dtype, number: Number) -> Bits {
        number.encode(dtype)
    }

    #[test]
    fn every_narrow_element_survives_a_round_trip() {
        for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.size() <= 2) {
            let count = if dtype == Dtype::Bool { 2 } else { 1u128 << (8 * dtype.size()) };
            for bits in 0..count {
                let number = Number::decode(dtype, bits);
                if !number.double().is_nan() {
                    assert_eq!(number.encode(dtype), bits, "{dtype} {bits:#x}");
                }
            }
        }
    }

    #[test]
    fn minifloats_round_to_the_nearest() {
        let e4m3 = [
            (448.0, 0x7e),
            (464.0, 0x7e),
            (465.0, 0x7e),
            (f32::NEG_INFINITY, 0xfe),
            (f32::NAN, 0x7f),
            (-1.0, 0xb8),
            (0.001_953_125, 0x01),
            (0.000_976_562_5, 0x00),
            (0.002_929_687_5, 0x02),
            (1.0625, 0x38),
            (1.1875, 0x3a),
        ];
        for (value, bits) in e4m3 {
            assert_eq!(E4M3.encode(value), bits, "{value}");
        }
        let e5m2 = [
            (57344.0, 0x7b),
            (61439.0, 0x7b),
            (61440.0, 0x7c),
            (1e9, 0x7c),
            (f32::INFINITY, 0x7c),
            (f32::NEG_INFINITY, 0xfc),
            (f32::NAN, 0x7f),
            (1.0, 0x3c),
            (1.125, 0x3c),
            (1.375, 0x3e),
        ];
        for (value, bits) in e5m2 {
            assert_eq!(E5M2.encode(value), bits, "{value}");
        }
        assert_eq!(E4M3.decode(0x7e), 448.0);
        assert_eq!(E5M2.decode(0xfc), f64::NEG_INFINITY);
        assert!(E5M2.decode(0x7d).is_nan() && E4M3.decode(0xff).is_nan());
    }

    #[test]
    fn floats_become_integers_as_on_x86() {
        let float = Number::Float;
        assert_eq!(to(Dtype::I64, float(-2.9)) as i64, -2);
        assert_eq!(to(Dtype::I64, float(f64::NAN)) as i64, i64::MIN);
        assert_eq!(to(Dtype::I64, float(1e30)) as i64, i64::MIN);
        assert_eq!(to(Dtype::I32, float(3e9)) as i32, i32::MIN);
        assert_eq!(to(Dtype::I16, float(100_000.0)) as i16, -31_072);
        assert_eq!(to(Dtype::I8, float(f64::INFINITY)) as i8, 0);
        assert_eq!(to(Dtype::U8, float(-1.0)), 255);
        assert_eq!(to(Dtype::U8, float(300.7)), 44);
        assert_eq!(to(Dtype::U32, float(3e9)), 3_000_000_000);
        assert_eq!(to(Dtype::U64, float(1e19)), 10_000_000_000_000_000_000);
        assert_eq!(to(Dtype::U64, float(-1.0)) as u64, u64::MAX);
    }

    #[test]
    fn integers_wrap_and_round_once() {
        assert_eq!(to(Dtype::U8, Number::Int(-1)), 255);
        assert_eq!(to(Dtype::I8, Number::Int(200)) as i8, -56);
        // Rounding by way of f64 would give 2^60.
        let odd = (1i128 << 60) + (1 << 36) + 1;
        assert_eq!(
            f32::from_bits(to(Dtype::F32, Number::Int(odd)) as u32),
            (1u64 << 60) as f32 + (1u64 << 37) as f32
        );
        // 1 + 2^-11 + 2^-24 - tiny is a tie for f16 only after rounding to f32.
        let near_tie = Number::Float(1.0 + 2f64.powi(-11) + 2f64.powi(-26));
        assert_eq!(f16::from_bits(to(Dtype::F16, near_tie) as u16).to_f32(), 1.0);
    }

    #[test]
    fn truth_and_complex() {
        assert_eq!(to(Dtype::Bool, Number::Float(f64::NAN)), 1);
        assert_eq!(to(Dtype::Bool, Number::Float(-0.0)), 0);
        assert_eq!(to(Dtype::Bool, Number::Complex(0.0, 2.0)), 1);
        assert_eq!(to(Dtype::F32, Number::Complex(1.5, 2.0)) as u32, 1.5f32.to_bits());
        let pair = to(Dtype::C64, Number::Complex(1.5, -2.0));
        assert_eq!(Number::decode(Dtype::C64, pair), Number::Complex(1.5, -2.0));
        assert_eq!(cast(Dtype::C64, Dtype::C128, pair), to(Dtype::C128, Number::Complex(1.5, -2.0)));
    }
}
