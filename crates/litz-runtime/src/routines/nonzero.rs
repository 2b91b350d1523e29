//! Finds the elements of a mask that hold.

use litz_ir::Dtype;

use super::{Read, Write};
use crate::error::RunError;

/// `nonzero(mask) -> places, count`: positions of the elements that are true, ascending, and how many there are. Places
/// behind those are 0.
pub(super) fn nonzero(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let ([mask], [places, count], &[elements]) = (reads, writes, ints) else {
        return Err(RunError::bug("nonzero", "expected a mask, places, a count and the number of elements"));
    };
    let elements = usize::try_from(elements).unwrap_or(usize::MAX);
    let has_room = places.bytes.len() / 8 >= elements && count.bytes.len() >= 8;
    if (mask.dtype, places.dtype, count.dtype) != (Dtype::Bool, Dtype::I64, Dtype::I64) || !has_room {
        return Err(RunError::bug("nonzero", format!("no room for {elements} places")));
    }
    let Some(mask) = mask.bytes.get(..elements) else {
        return Err(RunError::bug("nonzero", format!("the mask has no {elements} elements")));
    };
    let mut found: usize = 0;
    let (places, _) = places.bytes.as_chunks_mut::<8>();
    for (at, &holds) in mask.iter().enumerate() {
        // Stored in any case and kept where it holds: there is nothing to guess for the processor.
        places[found] = (at as i64).to_le_bytes();
        found += usize::from(holds != 0);
    }
    places[found..].fill([0; 8]);
    count.bytes[..8].copy_from_slice(&(found as i64).to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places_of(mask: &[u8], ints: &[i64]) -> Result<(Vec<i64>, i64), RunError> {
        let (mut places, mut count) = (vec![0xff; 8 * mask.len()], vec![0xff; 8]);
        let mut writes =
            [Write { bytes: &mut places, dtype: Dtype::I64 }, Write { bytes: &mut count, dtype: Dtype::I64 }];
        nonzero(&[Read { bytes: mask, dtype: Dtype::Bool }], &mut writes, ints)?;
        let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Ok((places.chunks(8).map(number).collect(), number(&count)))
    }

    #[test]
    fn places_come_in_order() {
        assert_eq!(places_of(&[0, 1, 0, 1, 1], &[5]).expect("it fits"), (vec![1, 3, 4, 0, 0], 3));
        assert_eq!(places_of(&[1, 1], &[2]).expect("it fits"), (vec![0, 1], 2));
        assert_eq!(places_of(&[0, 0], &[2]).expect("it fits"), (vec![0, 0], 0));
        assert_eq!(places_of(&[], &[0]).expect("it fits"), (vec![], 0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for elements in [3, i64::MAX, -1] {
            assert!(places_of(&[1, 1], &[elements]).is_err(), "{elements}");
        }
    }
}
