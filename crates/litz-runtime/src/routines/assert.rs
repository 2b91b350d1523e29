//! Checks conditions that a program has computed: an assertion of the user ends the call where it does not hold.

use litz_ir::Dtype;

use super::{Read, Write};
use crate::error::RunError;

/// Fails unless every element of the only buffer is true; a buffer without elements has none that is false.
pub(super) fn assert(reads: &[Read<'_>], writes: &mut [Write<'_>], _: &[i64]) -> Result<(), RunError> {
    let ([Read { bytes, dtype: Dtype::Bool }], []) = (reads, &writes[..]) else {
        let found = reads.iter().map(|read| read.dtype.to_string()).collect::<Vec<_>>().join(", ");
        let what = format!("expected to read one buffer of bool and to write none, found [{found}]");
        return Err(RunError::bug("call of assert", what));
    };
    match bytes.iter().all(|&holds| holds != 0) {
        true => Ok(()),
        false => Err(RunError::AssertionFailed { message: String::new() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(dtype: Dtype, bytes: &[u8]) -> Result<(), RunError> {
        assert(&[Read { bytes, dtype }], &mut [], &[]).map_err(|error| error.with_message("x must be small"))
    }

    #[test]
    fn all_elements_must_hold() {
        for bytes in [&[][..], &[1], &[1, 1, 1]] {
            assert!(call(Dtype::Bool, bytes).is_ok(), "{bytes:?}");
        }
        for bytes in [&[0][..], &[1, 0, 1]] {
            let error = call(Dtype::Bool, bytes).expect_err("one is false");
            assert_eq!(error.to_string(), "assertion failed: x must be small");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        assert!(matches!(call(Dtype::F32, &[0; 4]), Err(RunError::Bug { .. })));
        let nothing = assert(&[], &mut [], &[]);
        assert!(matches!(nothing, Err(RunError::Bug { .. })));
    }
}
