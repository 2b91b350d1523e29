//! Flat indices of local arrays.

use litz_sym::Expr;

/// Row-major flat index of `coords` in an array of `extents`.
pub fn flatten(coords: &[Expr], extents: &[Expr]) -> Expr {
    coords.iter().zip(extents).fold(Expr::zero(), |flat, (&c, &n)| flat * n + c)
}
