//! Says what of all that a call computes takes most, where there is no memory for a call.

use std::collections::HashSet;

use super::prepared::{Origin, Prepared, Slot};
use crate::arena::Largest;
use crate::error::RunError;

/// An error with the largest result of a program's steps, for these values of its size symbols, where it is one of memory.
pub(super) fn explain(error: RunError, prepared: &Prepared, values: &[i64]) -> RunError {
    let RunError::OutOfMemory(mut error) = error else { return error };
    error.largest = error.largest.or_else(|| largest(prepared, values).map(Box::new));
    RunError::OutOfMemory(error)
}

fn largest(prepared: &Prepared, values: &[i64]) -> Option<Largest> {
    // Of a pool its parts have names that say something.
    let shared: HashSet<usize> = prepared.slots.iter().filter_map(|slot| base_of(slot).ok()?).collect();
    let is_own = |&(at, slot): &(usize, &Slot)| !shared.contains(&at) && is_made(prepared, slot);
    let with_bytes = |(_, slot): (usize, &Slot)| {
        let elements = usize::try_from(slot.extent.eval(values)?).ok()?;
        Some(Largest { name: slot.name.clone(), bytes: elements.checked_mul(slot.dtype.size())? })
    };
    let slots = prepared.slots.iter().enumerate().filter(is_own);
    // Of equal ones the first.
    slots.filter_map(with_bytes).reduce(|one, other| if other.bytes > one.bytes { other } else { one })
}

/// What a slot is a part of; an error where it is no memory of a call's.
fn base_of(slot: &Slot) -> Result<Option<usize>, ()> {
    match &slot.origin {
        Origin::Alloc => Ok(None),
        Origin::View { base, .. } => Ok(Some(*base)),
        Origin::Param(_) | Origin::Const(_) | Origin::None => Err(()),
    }
}

/// Whether a slot's memory is made by a call.
fn is_made(prepared: &Prepared, slot: &Slot) -> bool {
    match base_of(slot) {
        Ok(Some(base)) => is_made(prepared, &prepared.slots[base]),
        Ok(None) => true,
        Err(()) => false,
    }
}
