//! Lays out the file of a model's weights: a header, then each constant as kernels expect it.

use litz_ir::program::Program;
use litz_sym::Expr;

use crate::Unsupported;

/// Bytes before the first constant.
pub const HEADER_BYTES: u64 = 64;

/// Of where constants begin.
const ALIGNMENT: u64 = 64;

/// Where a constant is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constant {
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// From its first element to its last.
    pub bytes: u64,
}

/// What a file of weights holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// In the program's order.
    pub constants: Vec<Constant>,
    /// Of the file, which is padded to a multiple of 64.
    pub bytes: u64,
}

/// Places the constants of a program one after another.
///
/// # Errors
/// Where they have no bytes that can be counted.
pub fn layout(program: &Program) -> Result<Layout, Unsupported> {
    let mut end = HEADER_BYTES;
    let mut constants = Vec::with_capacity(program.consts.len());
    for constant in &program.consts {
        let numbers = |exprs: &[Expr]| {
            exprs.iter().map(|expr| u64::try_from(expr.as_int()?).ok()).collect::<Option<Vec<u64>>>()
        };
        let bytes = numbers(&constant.ty.sizes)
            .zip(numbers(&constant.ty.strides))
            .and_then(|(sizes, strides)| span(constant.ty.dtype.size() as u64, &sizes, &strides));
        let next = bytes.and_then(|bytes| end.checked_add(bytes)?.checked_next_multiple_of(ALIGNMENT));
        let (Some(bytes), Some(next)) = (bytes, next.filter(|&next| i64::try_from(next).is_ok())) else {
            return Err(Unsupported(format!("the weight \"{}\" has no size in bytes", constant.name)));
        };
        constants.push(Constant { offset: end, bytes });
        end = next;
    }
    Ok(Layout { constants, bytes: end })
}

/// Bytes from the first element to the last.
fn span(size: u64, sizes: &[u64], strides: &[u64]) -> Option<u64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let mut dims = sizes.iter().zip(strides);
    let last =
        dims.try_fold(0u64, |sum, (&size, &stride)| sum.checked_add((size - 1).checked_mul(stride)?))?;
    last.checked_add(1)?.checked_mul(size)
}

/// The header of a file of so many bytes, whose contents have the number `id`.
pub fn header(id: u64, bytes: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..14].copy_from_slice(b"litz-weights-1");
    header[16..24].copy_from_slice(&id.to_le_bytes());
    header[24..32].copy_from_slice(&bytes.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::Dtype;
    use litz_ir::graph::{Device, TensorType};
    use litz_ir::program::{Const, SlotData};

    fn program(sizes: &[&[i64]]) -> Program {
        let mut program = Program::new("p", Device::Cpu);
        for (at, sizes) in sizes.iter().enumerate() {
            let sizes: Vec<Expr> = sizes.iter().map(|&size| Expr::int(size)).collect();
            let ty = TensorType::contiguous(Dtype::F32, sizes);
            let (name, extent, device) = (format!("w{at}"), Expr::one(), Device::Cpu);
            let slot = program.slots.push(SlotData { name: name.clone(), dtype: Dtype::F32, extent, device });
            program.consts.push(Const { slot, name, ty });
        }
        program
    }

    #[test]
    fn constants_begin_at_multiples() {
        let Layout { constants, bytes } =
            layout(&program(&[&[3, 5], &[0, 7], &[], &[1 << 31, 4]])).expect("they fit");
        let places: Vec<_> = constants.iter().map(|constant| (constant.offset, constant.bytes)).collect();
        assert_eq!(places, [(64, 60), (128, 0), (128, 4), (192, 1 << 35)]);
        assert_eq!(bytes, 192 + (1 << 35));
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        assert!(layout(&program(&[&[1 << 40, 1 << 40]])).is_err());
        assert!(layout(&program(&[&[1 << 60], &[1 << 60], &[1 << 60]])).is_err());
    }
}
