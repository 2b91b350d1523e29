//! Provides the bytes of a model's parameters by name.

use std::collections::HashMap;

use litz_ir::Dtype;
use litz_ir::program::{Const, Program};
use litz_sym::Expr;

use crate::arena::{ALIGNMENT, AlignedBuf, GuardPages};
use crate::error::RunError;
use crate::tensor::{Tensor, TensorError, copy_strided, has_layout, span_bytes};

/// Where the constants of a program come from. Tensors may lie in a mapped file (see [`Tensor::from_shared`]), which
/// stays mapped as long as anything uses them.
pub trait Weights {
    /// The parameter of that name.
    fn get(&self, name: &str) -> Option<Tensor>;

    /// Takes note that what was computed of the parameter is read from now on, and not itself: pages of a mapped file may
    /// leave memory, and come back when they are read again.
    fn release(&self, _name: &str) {}
}

impl Weights for HashMap<String, Tensor> {
    fn get(&self, name: &str) -> Option<Tensor> {
        HashMap::get(self, name).cloned()
    }
}

/// The tensor with these strides: itself where it has them, else a copy.
///
/// # Errors
/// Strides that tensors of these sizes cannot have; out of memory.
pub fn in_layout(tensor: &Tensor, strides: &[usize]) -> Result<Tensor, TensorError> {
    if has_layout(tensor.sizes(), tensor.strides(), strides) {
        return Ok(tensor.clone());
    }
    let mut copy = Tensor::zeros(tensor.dtype(), tensor.sizes(), strides)?;
    let bytes = copy.bytes_mut().expect("invariant: nothing shares a fresh tensor");
    let from = (tensor.bytes(), tensor.strides());
    copy_strided(tensor.dtype().size(), tensor.sizes(), from, (bytes, strides));
    Ok(copy)
}

/// The memory of a constant.
pub(crate) enum ConstMemory {
    /// As the model has it.
    Borrowed(Tensor),
    /// A copy, in another layout, or to be written to.
    Owned(AlignedBuf),
}

impl ConstMemory {
    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            ConstMemory::Borrowed(tensor) => tensor.bytes().len(),
            ConstMemory::Owned(buffer) => buffer.len(),
        }
    }

    /// All bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            ConstMemory::Borrowed(tensor) => tensor.bytes(),
            ConstMemory::Owned(buffer) => buffer.as_slice(),
        }
    }

    /// The first byte. Only owned memory may be written through it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            ConstMemory::Borrowed(tensor) => tensor.bytes().as_ptr().cast_mut(),
            ConstMemory::Owned(buffer) => buffer.as_mut_ptr(),
        }
    }
}

/// What a program takes as a constant.
pub(crate) struct ConstType<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: Dtype,
    pub(crate) sizes: &'a [usize],
    pub(crate) strides: &'a [usize],
    pub(crate) is_written: bool,
}

/// Finds a constant and puts it in the expected layout: without a copy where it has that layout, begins at a multiple
/// of [`ALIGNMENT`] bytes, is never written, and needs no pages that cannot be accessed next to it.
pub(crate) fn load(
    weights: &dyn Weights,
    ty: &ConstType<'_>,
    pages: GuardPages,
) -> Result<ConstMemory, RunError> {
    let tensor = weights.get(ty.name).ok_or_else(|| RunError::MissingWeight { name: ty.name.into() })?;
    if tensor.dtype() != ty.dtype || tensor.sizes() != ty.sizes {
        let expected = format!("{}{:?}", ty.dtype, ty.sizes);
        let found = format!("{}{:?}", tensor.dtype(), tensor.sizes());
        return Err(RunError::WrongWeight { name: ty.name.into(), expected, found });
    }
    let is_aligned = tensor.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT);
    let may_borrow = is_aligned && !ty.is_written && pages == GuardPages::Off;
    if may_borrow && has_layout(ty.sizes, tensor.strides(), ty.strides) {
        return Ok(ConstMemory::Borrowed(tensor));
    }
    let bytes = span_bytes(ty.dtype, ty.sizes, ty.strides).unwrap_or(usize::MAX);
    let mut buffer = AlignedBuf::guarded(bytes, pages)?;
    let src = (tensor.bytes(), tensor.strides());
    copy_strided(ty.dtype.size(), ty.sizes, src, (buffer.as_mut_slice(), ty.strides));
    weights.release(ty.name);
    Ok(ConstMemory::Owned(buffer))
}

/// What a program takes as constants, in its order.
pub(crate) fn of_program(program: &Program, weights: &dyn Weights) -> Result<Vec<ConstMemory>, RunError> {
    let load = |constant: &Const| {
        let Const { name, ty, .. } = constant;
        let numbers = |exprs: &[Expr]| {
            let numbers = exprs.iter().map(|expr| usize::try_from(expr.as_int()?).ok());
            numbers.collect::<Option<Vec<usize>>>()
        };
        let (Some(sizes), Some(strides)) = (numbers(&ty.sizes), numbers(&ty.strides)) else {
            return Err(RunError::bug("weights", format!("constant \"{name}\" has no sizes")));
        };
        let ty = ConstType { name, dtype: ty.dtype, sizes: &sizes, strides: &strides, is_written: false };
        load(weights, &ty, GuardPages::Off)
    };
    program.consts.iter().map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn weights() -> HashMap<String, Tensor> {
        let tensor = Tensor::from_slice(&[2, 3], &[1i32, 2, 3, 4, 5, 6]).expect("lengths match");
        HashMap::from([("w".to_string(), tensor)])
    }

    fn ty<'a>(sizes: &'a [usize], strides: &'a [usize], is_written: bool) -> ConstType<'a> {
        ConstType { name: "w", dtype: Dtype::I32, sizes, strides, is_written }
    }

    #[test]
    fn the_same_layout_is_not_copied() {
        let weights = weights();
        let mut memory = load(&weights, &ty(&[2, 3], &[3, 1], false), GuardPages::Off).expect("it is there");
        assert!(std::ptr::eq(memory.as_mut_ptr(), weights["w"].bytes().as_ptr()));
        let mut memory = load(&weights, &ty(&[2, 3], &[3, 1], true), GuardPages::Off).expect("it is there");
        assert!(!std::ptr::eq(memory.as_mut_ptr(), weights["w"].bytes().as_ptr()));
    }

    #[test]
    fn another_layout_is_gathered() {
        let memory = load(&weights(), &ty(&[2, 3], &[1, 2], false), GuardPages::Off).expect("it is there");
        let ConstMemory::Owned(buffer) = memory else { panic!("it is a copy") };
        assert_eq!(bytemuck::cast_slice::<u8, i32>(buffer.as_slice()), [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn unaligned_bytes_are_copied() {
        let buffer = Arc::new(Aligned([7; 128]));
        for (offset, is_borrowed) in [(0, true), (64, true), (4, false)] {
            let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = buffer.clone();
            let tensor = Tensor::from_shared(Dtype::I32, &[2], &[1], owner, offset).expect("long enough");
            let weights = HashMap::from([("w".to_string(), tensor)]);
            let memory = load(&weights, &ty(&[2], &[1], false), GuardPages::Off).expect("it is there");
            assert_eq!(matches!(memory, ConstMemory::Borrowed(_)), is_borrowed, "{offset}");
        }
    }

    #[repr(align(64))]
    struct Aligned([u8; 128]);

    impl AsRef<[u8]> for Aligned {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    #[test]
    fn missing_and_wrong_weights_are_errors() {
        let error =
            load(&HashMap::new(), &ty(&[2], &[1], false), GuardPages::Off).err().expect("there is none");
        assert_eq!(error.to_string(), "missing weight \"w\"");
        let error =
            load(&weights(), &ty(&[3, 2], &[2, 1], false), GuardPages::Off).err().expect("sizes differ");
        assert_eq!(error.to_string(), "weight \"w\": expected i32[3, 2], found i32[2, 3]");
    }
}
