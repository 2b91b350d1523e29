//! Finds code of this runtime by name: routines on whole buffers, and scalar functions that compiled code calls.

mod assert;
mod bessel;
mod elementwise;
#[cfg(feature = "fourier")]
mod fourier;
mod fresh;
mod gamma;
#[cfg(feature = "linalg")]
mod linear;
mod nms;
mod nonzero;
mod regions;
mod sort;
pub mod special;

use litz_ir::Dtype;

use crate::error::RunError;
use crate::symbols::c_library_symbol;

/// A contiguous buffer that a routine reads.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Its elements.
    pub bytes: &'a [u8],
    /// Their type.
    pub dtype: Dtype,
}

/// A contiguous buffer that a routine writes whole.
#[derive(Debug)]
pub struct Write<'a> {
    /// Its elements.
    pub bytes: &'a mut [u8],
    /// Their type.
    pub dtype: Dtype,
}

/// A routine: buffers read, buffers written, integer parameters.
pub type Routine = fn(&[Read<'_>], &mut [Write<'_>], &[i64]) -> Result<(), RunError>;

/// Every routine by name.
///
/// | name | reads | writes | integers |
/// |---|---|---|---|
/// | `assert` | bool holds | | |
/// | `fresh` | | x, with anything in it | |
/// | `nms` | boxes, i64 order, f64 threshold | i64 places, i64 count | boxes |
/// | `nonzero` | bool mask | i64 places, i64 count | elements |
/// | `ps_roi_pool` | images, i64 numbers, regions, f64 scale | means | images, channels, height, width, regions, channels, rows, columns |
/// | `roi_align` | the same | means | the same, aligned, apart |
/// | `roi_pool` | the same | largest, i32 places | as for `ps_roi_pool` |
/// | `sort` | x | sorted values, i64 positions | outer, length, inner, descending |
/// | `sort_rows` | x | i64 rows in order | rows, elements of each |
/// | `topk` | x | k values, i64 positions | outer, length, inner, k, largest |
///
/// Buffers have shape `[outer, length, inner]` (`[outer, k, inner]`); the middle dimension is sorted, stably, NaN
/// above every number. `topk` gives the largest (smallest) elements in order, of equals the first. `assert` fails where an
/// element is false; its caller knows the message. `elementwise` lists routines that apply a function to each
/// element, `linear` those on matrices, which are there with the feature `linalg`, and `fourier` transforms of rows, with the
/// feature of that name.
const ROUTINES: &[(&str, Routine)] = &[
    ("assert", assert::assert),
    ("fresh", fresh::fresh),
    ("nms", nms::nms),
    ("nonzero", nonzero::nonzero),
    ("ps_roi_pool", regions::ps_roi_pool),
    ("roi_align", regions::roi_align),
    ("roi_pool", regions::roi_pool),
    ("sort", sort::sort),
    ("sort_rows", sort::sort_rows),
    ("topk", sort::topk),
];

/// The routine of that name.
pub fn routine(name: &str) -> Option<Routine> {
    let found = ROUTINES.iter().find(|(known, _)| *known == name).map(|(_, routine)| *routine);
    let found = found.or_else(|| elementwise::routine(name));
    #[cfg(feature = "linalg")]
    let found = found.or_else(|| linear::routine(name));
    #[cfg(feature = "fourier")]
    let found = found.or_else(|| fourier::routine(name));
    found
}

/// Address of a function that compiled code may call: the scalar functions `lz_<op>_<dtype>` and those of the C
/// library.
pub fn symbol(name: &str) -> Option<usize> {
    special::symbol(name).or_else(|| c_library_symbol(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert!(routine("sort").is_some() && routine("topk").is_some() && routine("Sort").is_none());
        assert!(symbol("lz_digamma_f64").is_some() && symbol("memset").is_some());
        assert!(symbol("nextafterf") == symbol("lz_nextafter_f32") && symbol("system").is_none());
    }
}
