//! Takes memory as it is: what an operator of the host fills need not be filled before.

use super::{Read, Write};
use crate::error::RunError;

/// Leaves in a buffer what is in it, which counts as its contents from then on.
pub(super) fn fresh(reads: &[Read<'_>], writes: &mut [Write<'_>], _: &[i64]) -> Result<(), RunError> {
    if !reads.is_empty() || writes.len() != 1 {
        return Err(RunError::bug("call of fresh", "expected one buffer, which is written".to_owned()));
    }
    Ok(())
}
