//! Suppresses boxes that overlap with boxes of a higher score.

use litz_ir::Dtype;

use super::{Read, Write};
use crate::error::RunError;

/// `nms(boxes, order, threshold) -> kept, count`: positions of the boxes that are kept, in the order given, and how many there
/// are. Places behind those are 0.
///
/// A box is left, top, right and bottom. In order, each box that is left is kept and suppresses those behind it with which its
/// intersection over union is above the threshold. All is computed in the type of the boxes, operation by operation as
/// torchvision's kernel for CPUs does it, so that no box is kept here and suppressed there; what is no number suppresses nothing.
pub(super) fn nms(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let ([boxes, order, threshold], [kept, count], &[number]) = (reads, writes, ints) else {
        return Err(bug("expected boxes, an order, a threshold and the number of boxes".to_owned()));
    };
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let room = number.saturating_mul(8);
    let types = [order.dtype, threshold.dtype, kept.dtype, count.dtype];
    let is_sound = types == [Dtype::I64, Dtype::F64, Dtype::I64, Dtype::I64]
        && boxes.bytes.len() >= number.saturating_mul(boxes.dtype.size()).saturating_mul(4)
        && order.bytes.len() >= room
        && kept.bytes.len() >= room
        && count.bytes.len() >= 8;
    let (Some(threshold), true) = (threshold.bytes.first_chunk(), is_sound) else {
        return Err(bug(format!("buffers do not fit {number} boxes")));
    };
    let (order, _) = order.bytes[..room].as_chunks();
    let (kept_places, _) = kept.bytes.as_chunks_mut();
    let call = Call { order, threshold: f64::from_le_bytes(*threshold) };
    let found = match boxes.dtype {
        Dtype::F32 => call.suppress(boxes.bytes, kept_places, f32::from_le_bytes)?,
        Dtype::F64 => call.suppress(boxes.bytes, kept_places, f64::from_le_bytes)?,
        other => return Err(bug(format!("boxes of {other}"))),
    };
    kept_places[found..].fill([0; 8]);
    count.bytes[..8].copy_from_slice(&(found as i64).to_le_bytes());
    Ok(())
}

fn bug(what: String) -> RunError {
    RunError::bug("nms", what)
}

/// What does not depend on the type of the boxes.
struct Call<'a> {
    order: &'a [[u8; 8]],
    threshold: f64,
}

/// A type of coordinates.
trait Coordinate: Copy + PartialOrd + Into<f64> + std::ops::Sub<Output = Self> {
    const ZERO: Self;
    /// `x * y`
    fn times(self, other: Self) -> Self;
    /// `inter / (mine + other - inter)`
    fn ratio(inter: Self, mine: Self, other: Self) -> Self;
}

macro_rules! coordinate {
    ($ty:ty) => {
        impl Coordinate for $ty {
            const ZERO: $ty = 0.0;
            fn times(self, other: $ty) -> $ty {
                self * other
            }
            fn ratio(inter: $ty, mine: $ty, other: $ty) -> $ty {
                inter / (mine + other - inter)
            }
        }
    };
}

coordinate!(f32);
coordinate!(f64);

/// The larger number; the first where they are not ordered, which is what `std::max` gives, and `f32::max` does not.
fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if a < b { b } else { a }
}

/// The smaller number; the first where they are not ordered.
fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// A box that nothing has suppressed so far.
#[derive(Clone, Copy)]
struct Candidate<T> {
    position: usize,
    corners: [T; 4],
    area: T,
}

impl Call<'_> {
    /// Writes the positions of the boxes that are kept and says how many there are.
    fn suppress<T: Coordinate, const SIZE: usize>(
        &self,
        bytes: &[u8],
        kept: &mut [[u8; 8]],
        decode: fn([u8; SIZE]) -> T,
    ) -> Result<usize, RunError> {
        let (numbers, _) = bytes.as_chunks::<SIZE>();
        let candidate = |position: &[u8; 8]| {
            let position = usize::try_from(i64::from_le_bytes(*position)).ok()?;
            let corners = numbers.get(position.checked_mul(4)?..)?.first_chunk::<4>()?.map(decode);
            let [left, top, right, bottom] = corners;
            Some(Candidate { position, corners, area: (right - left).times(bottom - top) })
        };
        let candidates: Option<Vec<Candidate<T>>> = self.order.iter().map(candidate).collect();
        let Some(mut candidates) = candidates else {
            return Err(bug("the order has a place outside of the boxes".to_owned()));
        };
        let mut found = 0;
        // Those that are left stay together and in order, so that each is looked at once for each box that is kept before it.
        while let Some(&best) = candidates.get(found) {
            kept[found] = (best.position as i64).to_le_bytes();
            found += 1;
            let mut left = found;
            for at in found..candidates.len() {
                let other = candidates[at];
                candidates[left] = other;
                left += usize::from(!self.is_suppressed(&best, &other));
            }
            candidates.truncate(left);
        }
        Ok(found)
    }

    fn is_suppressed<T: Coordinate>(&self, best: &Candidate<T>, other: &Candidate<T>) -> bool {
        let [left, top] = [0, 1].map(|side| larger(best.corners[side], other.corners[side]));
        let [right, bottom] = [2, 3].map(|side| smaller(best.corners[side], other.corners[side]));
        let (width, height) = (larger(T::ZERO, right - left), larger(T::ZERO, bottom - top));
        let ratio = T::ratio(width.times(height), best.area, other.area);
        ratio.into() > self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<T, const SIZE: usize>(numbers: &[T], encode: fn(&T) -> [u8; SIZE]) -> Vec<u8> {
        numbers.iter().flat_map(encode).collect()
    }

    /// The boxes that are kept, of those in `order`.
    fn kept_of(boxes: &[[f32; 4]], order: &[i64], threshold: f64, number: i64) -> Result<Vec<i64>, RunError> {
        let boxes = bytes_of(boxes.as_flattened(), |x| x.to_le_bytes());
        let (order, threshold) = (bytes_of(order, |x| x.to_le_bytes()), threshold.to_le_bytes());
        let (mut kept, mut count) = (vec![0xff; order.len()], vec![0xff; 8]);
        let reads = [(&boxes[..], Dtype::F32), (&order[..], Dtype::I64), (&threshold[..], Dtype::F64)];
        let reads = reads.map(|(bytes, dtype)| Read { bytes, dtype });
        let mut writes = [&mut kept, &mut count].map(|bytes| Write { bytes, dtype: Dtype::I64 });
        nms(&reads, &mut writes, &[number])?;
        let (places, _) = kept.as_chunks();
        let found = i64::from_le_bytes(count.try_into().expect("eight bytes")) as usize;
        assert!(places[found..].iter().all(|place| *place == [0; 8]), "places behind those kept are 0");
        Ok(places[..found].iter().map(|place| i64::from_le_bytes(*place)).collect())
    }

    fn kept(boxes: &[[f32; 4]], order: &[i64], threshold: f64) -> Vec<i64> {
        kept_of(boxes, order, threshold, order.len() as i64).expect("buffers fit")
    }

    #[test]
    fn a_ratio_above_the_threshold_suppresses() {
        // Unit squares that are shifted by half share 1/3 of their union.
        let third = 0.5 / 1.5;
        let boxes = [[0.0, 0.0, 1.0, 1.0], [0.5, 0.0, 1.5, 1.0], [1.0, 0.0, 2.0, 1.0]];
        assert_eq!(kept(&boxes, &[0, 1, 2], f64::from(third as f32)), [0, 1, 2], "an equal ratio does not");
        assert_eq!(kept(&boxes, &[0, 1, 2], 0.33), [0, 2], "what is suppressed suppresses nothing");
        assert_eq!(kept(&boxes, &[1, 2, 0], 0.33), [1]);
        assert_eq!(kept(&boxes, &[2, 0, 1], 0.0), [2, 0], "boxes that touch share nothing");
        assert_eq!(kept(&boxes, &[2, 0, 1], -1.0), [2], "every ratio is above a threshold below zero");
        assert_eq!(kept(&boxes, &[2, 0, 1], f64::NAN), [2, 0, 1]);
        assert_eq!(kept(&[], &[], 0.5), []);
    }

    #[test]
    fn ratios_are_rounded_to_the_type_of_the_boxes() {
        // The ratio 1/3 of f32 is above that of f64.
        let boxes = [[0.0, 0.0, 1.0, 1.0], [0.5, 0.0, 1.5, 1.0]];
        assert_eq!(kept(&boxes, &[0, 1], 1.0 / 3.0), [0]);
    }

    #[test]
    fn boxes_of_no_area_and_no_numbers() {
        // 0 / 0 suppresses nothing, and inside of another box the ratio is 0.
        let boxes = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 2.0, 2.0]];
        assert_eq!(kept(&boxes, &[0, 1, 2], 0.0), [0, 1, 2]);
        let not_a_number = [[f32::NAN, 0.0, 1.0, 1.0], [f32::NAN, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]];
        assert_eq!(kept(&not_a_number, &[0, 1, 2], 0.0), [0, 1, 2]);
        // Both areas are positive, though corners are swapped; no point is in both.
        let swapped = [[2.0, 2.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0]];
        assert_eq!(kept(&swapped, &[1, 0], 0.0), [1, 0]);
        // An area of -1 and one of 1 with nothing shared: 0 / 0.
        let negative = [[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]];
        assert_eq!(kept(&negative, &[0, 1], 0.0), [0, 1]);
        // Endless boxes: inf / NaN.
        let endless = [[f32::NEG_INFINITY, 0.0, f32::INFINITY, 1.0]; 2];
        assert_eq!(kept(&endless, &[0, 1], 0.0), [0, 1]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let boxes = [[0.0, 0.0, 1.0, 1.0]; 2];
        for number in [3, -1, i64::MAX] {
            assert!(kept_of(&boxes, &[0, 1], 0.5, number).is_err(), "{number}");
        }
        for place in [2, -1, i64::MAX, i64::MIN] {
            assert!(kept_of(&boxes, &[0, place], 0.5, 2).is_err(), "{place}");
        }
    }
}
