//! Reads tensors as written in test files, and compares results with them.

use half::{bf16, f16};
use litz::Tensor;
use litz_ir::Dtype;

/// A tensor such as `f32[2, 3] 1 2 3 nan inf -0.5`: type, sizes, elements in row-major order.
pub fn parse(text: &str) -> Result<Tensor, String> {
    let malformed = || format!("expected a tensor such as `f32[2] 1 2`, found `{text}`");
    let (dtype, rest) = text.split_once('[').ok_or_else(malformed)?;
    let (sizes, elements) = rest.split_once(']').ok_or_else(malformed)?;
    let dtype = Dtype::from_name(dtype).ok_or_else(malformed)?;
    let sizes: Result<Vec<usize>, _> =
        sizes.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse).collect();
    let bytes: Option<Vec<Vec<u8>>> = elements.split_whitespace().map(|word| bytes(dtype, word)).collect();
    let bytes = bytes.ok_or_else(malformed)?.concat();
    Tensor::from_bytes(dtype, &sizes.map_err(|_| malformed())?, &bytes).map_err(|e| format!("{e}: {text}"))
}

/// The bytes of one element; `None` when it is no number of that type.
fn bytes(dtype: Dtype, word: &str) -> Option<Vec<u8>> {
    macro_rules! number {
        ($ty:ty) => {
            word.parse::<$ty>().ok()?.to_ne_bytes().to_vec()
        };
    }
    Some(match dtype {
        Dtype::Bool => vec![u8::from(word.parse::<bool>().ok()?)],
        Dtype::U8 => number!(u8),
        Dtype::U16 => number!(u16),
        Dtype::U32 => number!(u32),
        Dtype::U64 => number!(u64),
        Dtype::I8 => number!(i8),
        Dtype::I16 => number!(i16),
        Dtype::I32 => number!(i32),
        Dtype::I64 => number!(i64),
        Dtype::F16 => f16::from_f64(word.parse().ok()?).to_ne_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f64(word.parse().ok()?).to_ne_bytes().to_vec(),
        Dtype::F32 => number!(f32),
        Dtype::F64 => number!(f64),
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::C64 | Dtype::C128 => return None,
    })
}

/// Compares type, sizes and elements. NaN and infinities must be where they are expected.
pub fn compare(found: &Tensor, expected: &Tensor) -> Result<(), String> {
    let shape = |tensor: &Tensor| format!("{}{:?}", tensor.dtype().name(), tensor.sizes());
    let differs = |found: String, expected: String| Err(format!("expected {expected}\n   found {found}"));
    if shape(found) != shape(expected) {
        return differs(shape(found), shape(expected));
    }
    let (relative, absolute) = tolerance(expected.dtype());
    let is_near = |(&found, &expected): (&f64, &f64)| {
        let is_same = found == expected || found.is_nan() && expected.is_nan();
        is_same || (found - expected).abs() <= relative * expected.abs() + absolute && expected.is_finite()
    };
    let (found, expected) = (found.to_f64(), expected.to_f64());
    if found.iter().zip(&expected).all(is_near) {
        Ok(())
    } else {
        differs(format!("{found:?}"), format!("{expected:?}"))
    }
}

/// Relative and absolute distance that a short computation in a type may end up with. Half types hold results that were
/// computed in f32 and rounded once.
fn tolerance(dtype: Dtype) -> (f64, f64) {
    match dtype {
        Dtype::F64 => (1e-13, 1e-14),
        Dtype::F32 => (2e-6, 1e-7),
        // The conversion instruction of AVX-512 (vcvtneps2bf16) gives zero for subnormal numbers.
        Dtype::BF16 => (0.0, f64::from(f32::MIN_POSITIVE)),
        _ => (0.0, 0.0),
    }
}
