//! Defines the element types of tensors and of scalar values.

use std::fmt;

/// An element type. The text name is [`Dtype::name`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 16 bits.
    U16,
    /// Unsigned 32 bits.
    U32,
    /// Unsigned 64 bits.
    U64,
    /// Signed 8 bits.
    I8,
    /// Signed 16 bits.
    I16,
    /// Signed 32 bits.
    I32,
    /// Signed 64 bits.
    I64,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// 8-bit float, 4 exponent bits, no infinities.
    F8E4M3,
    /// 8-bit float, 5 exponent bits.
    F8E5M2,
    /// Complex of two f32.
    C64,
    /// Complex of two f64.
    C128,
}

/// What family an element type belongs to, from the weakest in promotion to the strongest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Truth values.
    Bool,
    /// Signed and unsigned integers.
    Int,
    /// Real floating point.
    Float,
    /// Complex floating point.
    Complex,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Dtype; 17] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::U16,
        Dtype::U32,
        Dtype::U64,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::F16,
        Dtype::BF16,
        Dtype::F32,
        Dtype::F64,
        Dtype::F8E4M3,
        Dtype::F8E5M2,
        Dtype::C64,
        Dtype::C128,
    ];

    /// The name in text: `f32`, `bf16`, `i64`, `bool`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::U8 => "u8",
            Dtype::U16 => "u16",
            Dtype::U32 => "u32",
            Dtype::U64 => "u64",
            Dtype::I8 => "i8",
            Dtype::I16 => "i16",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::F16 => "f16",
            Dtype::BF16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
            Dtype::F8E4M3 => "f8e4m3",
            Dtype::F8E5M2 => "f8e5m2",
            Dtype::C64 => "c64",
            Dtype::C128 => "c128",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 | Dtype::F8E4M3 | Dtype::F8E5M2 => 1,
            Dtype::U16 | Dtype::I16 | Dtype::F16 | Dtype::BF16 => 2,
            Dtype::U32 | Dtype::I32 | Dtype::F32 => 4,
            Dtype::U64 | Dtype::I64 | Dtype::F64 | Dtype::C64 => 8,
            Dtype::C128 => 16,
        }
    }

    /// The family.
    pub fn kind(self) -> Kind {
        match self {
            Dtype::Bool => Kind::Bool,
            Dtype::U8
            | Dtype::U16
            | Dtype::U32
            | Dtype::U64
            | Dtype::I8
            | Dtype::I16
            | Dtype::I32
            | Dtype::I64 => Kind::Int,
            Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 | Dtype::F8E4M3 | Dtype::F8E5M2 => Kind::Float,
            Dtype::C64 | Dtype::C128 => Kind::Complex,
        }
    }

    /// Real floating point.
    pub fn is_float(self) -> bool {
        self.kind() == Kind::Float
    }

    /// Integer, bool excluded.
    pub fn is_int(self) -> bool {
        self.kind() == Kind::Int
    }

    /// Unsigned integer, bool excluded.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64)
    }

    /// The distance from 1 to the next value of the type, of complex types that of their parts; 0 for exact types.
    pub fn epsilon(self) -> f64 {
        match self {
            Dtype::F64 | Dtype::C128 => f64::EPSILON,
            Dtype::F32 | Dtype::C64 => f64::from(f32::EPSILON),
            Dtype::F16 => 2f64.powi(-10),
            Dtype::BF16 => 2f64.powi(-7),
            Dtype::F8E4M3 => 2f64.powi(-3),
            Dtype::F8E5M2 => 2f64.powi(-2),
            Dtype::Bool
            | Dtype::U8
            | Dtype::U16
            | Dtype::U32
            | Dtype::U64
            | Dtype::I8
            | Dtype::I16
            | Dtype::I32
            | Dtype::I64 => 0.0,
        }
    }

    /// The type arithmetic is done in: types narrower than f32 compute in f32, every other in itself.
    pub fn compute(self) -> Dtype {
        match self {
            Dtype::F16 | Dtype::BF16 | Dtype::F8E4M3 | Dtype::F8E5M2 => Dtype::F32,
            Dtype::Bool
            | Dtype::U8
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
            | Dtype::C128 => self,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
