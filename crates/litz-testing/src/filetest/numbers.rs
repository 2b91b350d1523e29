//! Reads tensors as written in test files, and compares results with them.

use crate::elements;
use litz::Tensor;
use litz_ir::Dtype;

/// A tensor such as `f32[2, 3] 1 2 3 nan inf -0.5`: type, sizes, elements in row-major order.
pub fn parse(text: &str) -> Result<Tensor, String> {
    let malformed = || format!("expected a tensor such as `f32[2] 1 2`, found `{text}`");
    let (dtype, rest) = text.split_once('[').ok_or_else(malformed)?;
    let (sizes, words) = rest.split_once(']').ok_or_else(malformed)?;
    let dtype = Dtype::from_name(dtype).ok_or_else(malformed)?;
    let sizes: Result<Vec<usize>, _> =
        sizes.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse).collect();
    let bytes: Option<Vec<Vec<u8>>> =
        words.split_whitespace().map(|word| elements::parse(dtype, word)).collect();
    let bytes = bytes.ok_or_else(malformed)?.concat();
    Tensor::from_bytes(dtype, &sizes.map_err(|_| malformed())?, &bytes).map_err(|e| format!("{e}: {text}"))
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
