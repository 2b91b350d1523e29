//! Finds the step of a call that makes the first NaN, or the first infinite number.
//!
//! A step *makes* a NaN if it writes one and reads none. It makes an infinite number if it writes one, reads neither that nor a NaN, and its kernel names no
//! infinite constant: masks are made of these.

use litz_ir::Dtype;

/// What there is among some numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Kinds {
    pub(super) nan: bool,
    pub(super) infinite: bool,
}

impl Kinds {
    /// What there is among these or those.
    pub(super) fn and(self, other: Kinds) -> Kinds {
        Kinds { nan: self.nan || other.nan, infinite: self.infinite || other.infinite }
    }

    /// What there is among elements of a type, which may be followed by less than one.
    pub(super) fn of(bytes: &[u8], dtype: Dtype) -> Kinds {
        let mut found = Kinds::default();
        // Most buffers have neither, which whole blocks are seen to at once.
        for block in bytes.chunks(BLOCK) {
            if has_any(block, dtype) {
                for (_, kind) in each(block, dtype) {
                    found = found.and(Kinds { nan: kind == Kind::Nan, infinite: kind == Kind::Infinite });
                }
            }
        }
        found
    }
}

/// The first number among elements of a type that a step has made which has read these kinds: its position, and what it is. Elements that consist of
/// equal bytes of `unwritten` are none.
pub(super) fn first_made(
    bytes: &[u8],
    dtype: Dtype,
    read: Kinds,
    unwritten: &[u8],
) -> Option<(usize, &'static str)> {
    let size = dtype.size();
    let blocks = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| has_any(block, dtype));
    blocks
        .flat_map(|(at, block)| {
            each(block, dtype).map(move |(inner, kind)| (at * (BLOCK / size) + inner, kind))
        })
        .find_map(|(at, kind)| {
            let element = &bytes[at * size..(at + 1) * size];
            let is_left = unwritten.iter().any(|byte| element.iter().all(|other| other == byte));
            let (is_made, name) = match kind {
                Kind::Nan => (!read.nan, "NaN"),
                Kind::Infinite => (!read.nan && !read.infinite, "infinite"),
            };
            (is_made && !is_left).then_some((at, name))
        })
}

/// Bytes that are looked at together: a multiple of the size of any element.
const BLOCK: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Nan,
    Infinite,
}

/// How the numbers of a type are told apart.
struct Bits {
    /// Bytes of one.
    size: usize,
    /// All bits but the sign.
    magnitude: u64,
    /// The magnitude of infinity; what is above is NaN. Types without infinity have the magnitude below that of NaN here.
    infinity: u64,
    has_infinity: bool,
}

fn bits(dtype: Dtype) -> Option<Bits> {
    let of = |size: usize, infinity: u64| {
        let magnitude = (1 << (8 * size - 1)) - 1;
        Some(Bits { size, magnitude, infinity, has_infinity: true })
    };
    match dtype {
        Dtype::F16 => of(2, 0x7c00),
        Dtype::BF16 => of(2, 0x7f80),
        Dtype::F32 | Dtype::C64 => of(4, 0x7f80_0000),
        Dtype::F64 | Dtype::C128 => of(8, 0x7ff0_0000_0000_0000),
        Dtype::F8E5M2 => of(1, 0x7c),
        Dtype::F8E4M3 => Some(Bits { size: 1, magnitude: 0x7f, infinity: 0x7e, has_infinity: false }),
        Dtype::Bool
        | Dtype::U8
        | Dtype::U16
        | Dtype::U32
        | Dtype::U64
        | Dtype::I8
        | Dtype::I16
        | Dtype::I32
        | Dtype::I64 => None,
    }
}

/// Whether any of some elements is not finite. It goes through all of them, so that it becomes vector code.
fn has_any(block: &[u8], dtype: Dtype) -> bool {
    let Some(bits) = bits(dtype) else { return false };
    let limit = bits.infinity + u64::from(!bits.has_infinity);
    let narrow = |size: usize| u32::try_from(limit).is_ok() && bits.size == size;
    if narrow(4) {
        let (all, _) = block.as_chunks::<4>();
        let (mask, limit) = (bits.magnitude as u32, limit as u32);
        return all.iter().fold(false, |found, bytes| found | (u32::from_le_bytes(*bytes) & mask >= limit));
    }
    if narrow(2) {
        let (all, _) = block.as_chunks::<2>();
        let (mask, limit) = (bits.magnitude as u16, limit as u16);
        return all.iter().fold(false, |found, bytes| found | (u16::from_le_bytes(*bytes) & mask >= limit));
    }
    numbers(block, &bits).any(|magnitude| magnitude >= limit)
}

/// The elements that are not finite, with their positions.
fn each(block: &[u8], dtype: Dtype) -> impl Iterator<Item = (usize, Kind)> + '_ {
    let bits = bits(dtype);
    // A complex number is two.
    let parts = bits.as_ref().map_or(1, |bits| dtype.size() / bits.size);
    bits.into_iter().flat_map(move |bits| {
        let (infinity, has_infinity) = (bits.infinity, bits.has_infinity);
        let kinds = numbers(block, &bits).enumerate();
        kinds.filter_map(move |(at, magnitude)| {
            let kind = match magnitude.cmp(&infinity) {
                std::cmp::Ordering::Less => return None,
                std::cmp::Ordering::Equal => has_infinity.then_some(Kind::Infinite)?,
                std::cmp::Ordering::Greater => Kind::Nan,
            };
            Some((at / parts, kind))
        })
    })
}

fn numbers<'a>(block: &'a [u8], bits: &Bits) -> impl Iterator<Item = u64> + use<'a> {
    let (size, mask) = (bits.size, bits.magnitude);
    block.chunks_exact(size).map(move |bytes| {
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(bytes);
        u64::from_le_bytes(whole) & mask
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::{Number, read};

    const NOTHING: Kinds = Kinds { nan: false, infinite: false };

    fn float(element: &[u8], dtype: Dtype) -> f64 {
        Number::decode(dtype, read(element, 0, dtype.size())).double()
    }

    #[test]
    fn every_type_has_its_numbers_told_apart() {
        for dtype in Dtype::ALL {
            let size = dtype.size();
            // All numbers of one byte and two, and of the first two bytes of longer ones.
            for pattern in 0..=u16::MAX {
                let mut element = vec![0; size];
                let high = pattern.to_le_bytes();
                element[size.saturating_sub(2)..].copy_from_slice(&high[2 - size.min(2)..]);
                let value = match dtype {
                    Dtype::C64 => float(&element[4..], Dtype::F32),
                    Dtype::C128 => float(&element[8..], Dtype::F64),
                    _ => float(&element, dtype),
                };
                let expected = Kinds { nan: value.is_nan(), infinite: value.is_infinite() };
                assert_eq!(Kinds::of(&element, dtype), expected, "{dtype} {element:?}");
            }
        }
    }

    #[test]
    fn what_is_read_is_not_made() {
        let values =
            |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut many = vec![1f32; 3000];
        (many[2500], many[2900]) = (f32::NEG_INFINITY, f32::NAN);
        let bytes = values(&many);
        let first = |read| first_made(&bytes, Dtype::F32, read, &[]);
        assert_eq!(first(NOTHING), Some((2500, "infinite")));
        assert_eq!(first(Kinds { infinite: true, ..NOTHING }), Some((2900, "NaN")));
        assert_eq!(first(Kinds { nan: true, ..NOTHING }), None);
        let unwritten = [1f32.to_le_bytes(), [0xff; 4]].concat();
        assert_eq!(first_made(&unwritten, Dtype::F32, NOTHING, &[0xff]), None);
        assert_eq!(first_made(&unwritten, Dtype::F32, NOTHING, &[0x7f]), Some((1, "NaN")));
        let complex = values(&[1.0, 2.0, 3.0, f32::NAN]);
        assert_eq!(first_made(&complex, Dtype::C64, NOTHING, &[]), Some((1, "NaN")));
        assert_eq!(first_made(&[], Dtype::F32, NOTHING, &[]), None);
    }
}
