//! Turns words into elements of a type, and elements into tensors of a layout.

use half::{bf16, f16};
use litz_ir::Dtype;
use litz_runtime::Tensor;

/// The bytes of the element that a word such as `-0.5`, `nan`, `7` or `true` spells; `None` when it is none of that type.
pub fn parse(dtype: Dtype, word: &str) -> Option<Vec<u8>> {
    macro_rules! number {
        ($ty:ty) => {
            word.parse::<$ty>().ok()?.to_le_bytes().to_vec()
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
        Dtype::F16 => f16::from_f64(word.parse().ok()?).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f64(word.parse().ok()?).to_le_bytes().to_vec(),
        Dtype::F32 => number!(f32),
        Dtype::F64 => number!(f64),
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::C64 | Dtype::C128 => return None,
    })
}

/// A tensor of that layout with the elements, which come row-major; `None` where their number or size does not fit.
pub fn tensor(dtype: Dtype, sizes: &[usize], strides: &[usize], elements: &[Vec<u8>]) -> Option<Tensor> {
    let mut tensor = Tensor::zeros(dtype, sizes, strides).ok()?;
    if elements.len() != tensor.numel() || elements.iter().any(|element| element.len() != dtype.size()) {
        return None;
    }
    let bytes = tensor.bytes_mut()?;
    for (at, element) in elements.iter().enumerate() {
        let (mut left, mut place) = (at, 0);
        for (&size, &stride) in sizes.iter().zip(strides).rev() {
            place += left % size * stride;
            left /= size;
        }
        bytes[place * element.len()..][..element.len()].copy_from_slice(element);
    }
    Some(tensor)
}
