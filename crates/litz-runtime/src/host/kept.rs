//! Keeps results of operators that decide their sizes, until the program that is running has memory of these sizes.

use super::Operand;
use crate::error::RunError;
use crate::tensor::{Tensor, copy_strided};

/// Results that the host has given in one call of a program, by the numbers that the program knows them by.
#[derive(Default)]
pub(crate) struct Kept(Vec<Option<Tensor>>);

impl Kept {
    /// Keeps a tensor; its number.
    pub(crate) fn keep(&mut self, tensor: Tensor) -> usize {
        self.0.push(Some(tensor));
        self.0.len() - 1
    }

    /// Moves the tensor whose number stands first in the operand `from` to the operand `to`: a call of
    /// [`TAKE`](litz_ir::call::TAKE).
    ///
    /// # Safety
    /// The memory of both operands is there, and nothing else reads or writes it.
    pub(crate) unsafe fn take(&mut self, from: &Operand, to: &Operand) -> Result<(), RunError> {
        let bug = |what: &str| RunError::bug("the host's results", what.to_owned());
        if from.bytes < size_of::<i64>() {
            return Err(bug("a result without a number"));
        }
        // SAFETY: the caller's promise; the memory has so many bytes.
        let number = unsafe { from.data.cast::<i64>().read_unaligned() };
        let slot = usize::try_from(number).ok().and_then(|at| self.0.get_mut(at));
        let tensor = slot
            .and_then(Option::take)
            .ok_or_else(|| bug("a number of no result, or of one that was taken"))?;
        if (tensor.dtype(), tensor.sizes()) != (to.dtype, &to.sizes[..]) {
            let (dtype, sizes) = (tensor.dtype(), tensor.sizes());
            return Err(bug(&format!("expected {}{:?}, found {dtype}{sizes:?}", to.dtype, to.sizes)));
        }
        if to.bytes > 0 {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts_mut(to.data, to.bytes) };
            let given = (tensor.bytes(), tensor.strides());
            copy_strided(to.dtype.size(), &to.sizes, given, (bytes, &to.strides));
        }
        Ok(())
    }

    /// Forgets what nobody has taken, as where a size was out of its range.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
