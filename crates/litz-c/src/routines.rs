//! Lists the routines that there are in C, with how many buffers and integers each takes.

use litz_ir::loops::ELEMENTWISE;

/// Buffers read, buffers written, and integers.
pub(crate) type Shape = (usize, usize, usize);

/// Routines but those on elements.
const ROUTINES: &[(&str, Shape)] = &[
    ("assert", (1, 0, 0)),
    ("cholesky", (1, 2, 2)),
    ("fft", (1, 1, 4)),
    ("fresh", (0, 1, 0)),
    ("householder", (2, 1, 5)),
    ("irfft", (1, 1, 3)),
    ("lu", (1, 3, 3)),
    ("lu_solve", (3, 1, 4)),
    ("matrix_exp", (1, 1, 2)),
    ("nms", (3, 2, 1)),
    ("nonzero", (1, 2, 1)),
    ("permutation", (1, 1, 3)),
    ("ps_roi_pool", (4, 1, 8)),
    ("qr", (1, 2, 3)),
    ("rfft", (1, 1, 4)),
    ("roi_align", (4, 1, 10)),
    ("roi_pool", (4, 2, 8)),
    ("sort", (1, 2, 4)),
    ("sort_rows", (1, 1, 2)),
    ("topk", (1, 2, 5)),
    ("triangular", (2, 1, 5)),
];

/// What a routine takes; none of one that there is not in C.
pub(crate) fn shape(name: &str) -> Option<Shape> {
    let listed = ROUTINES.iter().find(|(known, _)| *known == name).map(|(_, shape)| *shape);
    let elementwise =
        || ELEMENTWISE.iter().find(|(known, _)| *known == name).map(|&(_, reads)| (reads, 1, 1));
    listed.or_else(elementwise)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SUPPORT;

    #[test]
    fn every_routine_is_declared() {
        let (_, text) =
            SUPPORT.iter().find(|(name, _)| *name == "litz_routines.h").expect("the file is there");
        let names = ROUTINES.iter().map(|(name, _)| *name).chain(ELEMENTWISE.iter().map(|(name, _)| *name));
        // One takes a message, and one does nothing.
        for name in names.filter(|name| !["assert", "fresh"].contains(name)) {
            assert!(text.contains(&format!("litz_routine litz_{name};")), "{name}");
        }
    }
}
