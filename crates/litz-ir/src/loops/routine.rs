//! Describes which elements of its buffers a call of a runtime routine touches.

use litz_sym::Expr;

use super::Routine;

/// Routines that apply a function to each element of contiguous buffers of f32 or f64, of `gcd` of i64: name and number of operands. Each takes
/// the number of elements.
pub const ELEMENTWISE: &[(&str, usize)] = &[
    ("airy_ai", 1),
    ("bessel_j0", 1),
    ("bessel_j1", 1),
    ("bessel_k0", 1),
    ("bessel_k1", 1),
    ("bessel_scaled_k0", 1),
    ("bessel_scaled_k1", 1),
    ("bessel_y0", 1),
    ("bessel_y1", 1),
    ("gammainc", 2),
    ("gammaincc", 2),
    ("gcd", 2),
    ("hermite_h", 2),
    ("hermite_he", 2),
    ("laguerre_l", 2),
    ("legendre_p", 2),
    ("ndtri", 1),
    ("zeta", 2),
];

/// Routines of linear algebra; the runtime says what they take.
pub const LINEAR: [&str; 13] = [
    "cholesky",
    "eigen",
    "eigen_general",
    "householder",
    "ldl",
    "ldl_solve",
    "lu",
    "lu_solve",
    "matrix_exp",
    "permutation",
    "qr",
    "svd",
    "triangular",
];

/// Fourier transforms of rows; the runtime says what they take.
pub const FOURIER: [&str; 3] = ["fft", "irfft", "rfft"];

/// Routines on regions of images: name and number of results. They take the sizes of the images, then those of the results.
pub const REGIONS: &[(&str, usize)] = &[("ps_roi_pool", 1), ("roi_align", 1), ("roi_pool", 2)];

impl Routine {
    /// How many elements the call touches of each buffer that it reads and then of each that it writes. None for calls
    /// that no routine takes: the runtime refuses these by itself.
    ///
    /// Integers: `sort` takes outer, length, inner and direction, `topk`
    /// outer, length, inner, k and direction, `sort_rows` rows and elements of each, `nonzero` and those of [`ELEMENTWISE`] the number of elements, `nms` that of boxes, and those of regions eight sizes; see the table of routines in `litz-runtime`.
    pub fn touched(&self) -> Option<Vec<Expr>> {
        if let ("nonzero", &[elements]) = (&*self.name, &self.ints[..]) {
            let is_call = self.reads.len() == 1 && self.writes.len() == 2;
            return is_call.then(|| vec![elements, elements, Expr::one()]);
        }
        if let ("sort_rows", &[rows, width]) = (&*self.name, &self.ints[..]) {
            let is_call = self.reads.len() == 1 && self.writes.len() == 1;
            return is_call.then(|| vec![rows * width, rows]);
        }
        if let ("fresh", []) = (&*self.name, &self.ints[..]) {
            // What memory holds is not looked at.
            return (self.reads.is_empty() && self.writes.len() == 1).then(|| vec![Expr::zero()]);
        }
        if let ("nms", &[boxes]) = (&*self.name, &self.ints[..]) {
            let is_call = self.reads.len() == 3 && self.writes.len() == 2;
            return is_call.then(|| vec![boxes * 4, boxes, Expr::one(), boxes, Expr::one()]);
        }
        if let Some(&(_, operands)) = ELEMENTWISE.iter().find(|(name, _)| *name == self.name) {
            let is_call = self.reads.len() == operands && self.writes.len() == 1 && self.ints.len() == 1;
            return is_call.then(|| vec![self.ints[0]; operands + 1]);
        }
        if let Some(&(_, results)) = REGIONS.iter().find(|(name, _)| *name == self.name) {
            let (&[batch, channels, height, width, regions, kinds, rows, columns], _) =
                self.ints.split_first_chunk()?;
            let is_call = self.reads.len() == 4 && self.writes.len() == results;
            let mut touched = vec![batch * channels * height * width, regions, regions * 5, Expr::one()];
            touched.extend(vec![regions * kinds * rows * columns; results]);
            return is_call.then_some(touched);
        }
        if LINEAR.contains(&&*self.name) || FOURIER.contains(&&*self.name) {
            return self.touched_of_batch();
        }
        let (lines, length, kept) = match (&*self.name, &self.ints[..]) {
            ("sort", &[outer, length, inner, _]) => (outer * inner, length, length),
            ("topk", &[outer, length, inner, k, _]) => (outer * inner, length, k),
            _ => return None,
        };
        let is_call = self.reads.len() == 1 && self.writes.len() == 2;
        is_call.then(|| vec![lines * length, lines * kept, lines * kept])
    }

    /// Of routines of linear algebra and Fourier transforms, for each matrix or row of the batch, whose size is the first integer.
    fn touched_of_batch(&self) -> Option<Vec<Expr>> {
        let (&batch, sizes) = self.ints.split_first()?;
        let one = Expr::one();
        let (reads, writes) = match (&*self.name, sizes) {
            ("cholesky", &[n]) => (vec![n * n], vec![n * n, one]),
            ("eigen", &[n]) => (vec![n * n], vec![n, n * n]),
            ("eigen_general", &[n]) => (vec![n * n], vec![n, n, n * n, n * n]),
            ("fft", &[n, _, _]) => (vec![n], vec![n]),
            ("householder", &[m, k, t, n]) => (vec![m * k, t], vec![m * n]),
            ("irfft", &[n, _]) => (vec![n.floordiv(2) + 1], vec![n]),
            ("ldl", &[n]) => (vec![n * n], vec![n * n, n, one]),
            ("ldl_solve", &[n, k]) => (vec![n * n, n, n * k], vec![n * k]),
            ("lu", &[m, n]) => (vec![m * n], vec![m * n, m.min(n), one]),
            ("lu_solve", &[n, k, _]) => (vec![n * n, n, n * k], vec![n * k]),
            ("matrix_exp", &[n]) => (vec![n * n], vec![n * n]),
            ("permutation", &[m, k]) => (vec![k], vec![m]),
            ("qr", &[m, n]) => (vec![m * n], vec![m * n, m.min(n)]),
            ("rfft", &[n, kept, _]) => (vec![n], vec![kept]),
            ("svd", &[m, n, left, right]) => (vec![m * n], vec![m * left, m.min(n), n * right]),
            ("triangular", &[n, k, _, _]) => (vec![n * n, n * k], vec![n * k]),
            _ => return None,
        };
        let is_call = self.reads.len() == reads.len() && self.writes.len() == writes.len();
        is_call.then(|| reads.into_iter().chain(writes).map(|count| batch * count).collect())
    }
}
