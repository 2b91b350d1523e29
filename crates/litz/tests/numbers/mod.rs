//! Makes numbers up: the same for a seed.

use litz::Tensor;
use litz_ir::Dtype;

/// Numbers of bf16 between -1 and 1, or true three times of four.
pub fn tensor(dtype: Dtype, sizes: &[usize], seed: u32) -> Tensor {
    let mut state = seed;
    let count = sizes.iter().product::<usize>();
    let bytes: Vec<u8> = (0..count)
        .flat_map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 16) % 257;
            match dtype {
                Dtype::Bool => vec![u8::from(!number.is_multiple_of(4))],
                _ => ((number as f32 / 128.0 - 1.0).to_bits() >> 16).to_le_bytes()[..2].to_vec(),
            }
        })
        .collect();
    Tensor::from_bytes(dtype, sizes, &bytes).expect("it has so many bytes")
}
