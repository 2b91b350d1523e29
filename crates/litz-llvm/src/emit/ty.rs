//! Spells element types and literals as LLVM does.

use std::fmt;

use litz_ir::{Dtype, Scalar};

use super::EmitError;

/// A scalar type of LLVM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Prim {
    I1,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    Ptr,
}

impl Prim {
    /// Spelling in LLVM text, and in the suffix of an intrinsic's name.
    fn spelling(self) -> (&'static str, &'static str) {
        match self {
            Prim::I1 => ("i1", "i1"),
            Prim::I8 => ("i8", "i8"),
            Prim::I16 => ("i16", "i16"),
            Prim::I32 => ("i32", "i32"),
            Prim::I64 => ("i64", "i64"),
            Prim::F16 => ("half", "f16"),
            Prim::BF16 => ("bfloat", "bf16"),
            Prim::F32 => ("float", "f32"),
            Prim::F64 => ("double", "f64"),
            Prim::Ptr => ("ptr", "p0"),
        }
    }

    /// Width of the value.
    pub(super) fn bits(self) -> u32 {
        match self {
            Prim::I1 => 1,
            Prim::I8 => 8,
            Prim::I16 | Prim::F16 | Prim::BF16 => 16,
            Prim::I32 | Prim::F32 => 32,
            Prim::I64 | Prim::F64 | Prim::Ptr => 64,
        }
    }

    /// The integer type of that many bits.
    pub(super) fn int(bits: u32) -> Prim {
        match bits {
            1 => Prim::I1,
            8 => Prim::I8,
            16 => Prim::I16,
            32 => Prim::I32,
            64 => Prim::I64,
            _ => unreachable!("invariant: widths of element types only"),
        }
    }
}

/// A scalar type, or a vector of `lanes` of them where there is more than one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ty {
    pub(super) prim: Prim,
    pub(super) lanes: u32,
}

impl Ty {
    pub(super) const PTR: Ty = Ty::scalar(Prim::Ptr);
    pub(super) const I1: Ty = Ty::scalar(Prim::I1);
    pub(super) const I64: Ty = Ty::scalar(Prim::I64);

    pub(super) const fn scalar(prim: Prim) -> Ty {
        Ty { prim, lanes: 1 }
    }

    pub(super) fn with(self, prim: Prim) -> Ty {
        Ty { prim, lanes: self.lanes }
    }

    /// The suffix that overloaded intrinsics carry for this type: `v16f32`, `i64`.
    pub(super) fn suffix(self) -> String {
        let suffix = self.prim.spelling().1;
        if self.lanes == 1 { suffix.into() } else { format!("v{}{suffix}", self.lanes) }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.prim.spelling().0;
        if self.lanes == 1 { f.write_str(name) } else { write!(f, "<{} x {name}>", self.lanes) }
    }
}

/// The type that values of `dtype` have in registers: half types are held as f32, bool as i1.
pub(super) fn register_type(dtype: Dtype) -> Result<Prim, EmitError> {
    Ok(match dtype {
        Dtype::Bool => Prim::I1,
        Dtype::U8 | Dtype::I8 => Prim::I8,
        Dtype::U16 | Dtype::I16 => Prim::I16,
        Dtype::U32 | Dtype::I32 => Prim::I32,
        // Complex numbers of two f32 are moved, and taken apart by their bits.
        Dtype::U64 | Dtype::I64 | Dtype::C64 => Prim::I64,
        Dtype::F16 | Dtype::BF16 | Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F32 => Prim::F32,
        Dtype::F64 => Prim::F64,
        Dtype::C128 => return Err(EmitError::unsupported(format!("values of type {dtype}"))),
    })
}

/// The type that elements of `dtype` are loaded and stored as: small floats are bits.
pub(super) fn memory_type(dtype: Dtype) -> Result<Prim, EmitError> {
    Ok(match dtype {
        Dtype::Bool | Dtype::F8E4M3 | Dtype::F8E5M2 => Prim::I8,
        Dtype::F16 | Dtype::BF16 => Prim::I16,
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
        | Dtype::C128 => register_type(dtype)?,
    })
}

/// A literal as LLVM writes it.
pub(super) fn literal(prim: Prim, value: Scalar) -> String {
    match prim {
        Prim::I1 => (value.as_f64() != 0.0).to_string(),
        Prim::I8 | Prim::I16 | Prim::I32 | Prim::I64 => {
            let Scalar::Int(value) = value.to(Dtype::I64) else { unreachable!("invariant: cast to i64") };
            let shift = 64 - prim.bits();
            // Signed spelling of the low bits: literals of unsigned types come as any bit pattern.
            (value << shift >> shift).to_string()
        }
        // LLVM spells an f32 as the f64 of the same value.
        Prim::F32 => format!("0x{:016X}", f64::from(value.as_f64() as f32).to_bits()),
        Prim::F64 => format!("0x{:016X}", value.as_f64().to_bits()),
        Prim::F16 | Prim::BF16 | Prim::Ptr => unreachable!("invariant: no literals of memory-only types"),
    }
}
