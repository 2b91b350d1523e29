//! Defines the acts of warps on fragments as they are interpreted: for each lane, which elements it has and where.

use litz_ir::kernel::{Fragment, FragmentProduct};
use litz_ir::target::{Instruction, Side};
use litz_ir::{Dtype, ScalarOp};
use litz_sym::Expr;

use super::scalar::{ScalarFn, function};
use crate::formula::Formula;

/// What a lane has of a matrix: row or column, column or reduced point, and where it is from the first element of the fragment.
type Piece = ([i64; 2], i64);

/// Rows of an operand in shared memory, resolved.
pub(super) struct OperandRows {
    pub(super) mem: usize,
    pub(super) dtype: Dtype,
    /// The symbol of the rows, and where each begins.
    pub(super) row: usize,
    pub(super) first: Formula,
    pub(super) is_transposed: bool,
    /// Elements of a row that lie side by side, and those from a panel of so many to the next.
    pub(super) panels: Option<[i64; 2]>,
    pub(super) side: Side,
}

/// An operand of a product, resolved.
pub(super) enum ProductOperand {
    Own(OwnFragment),
    Rows(OperandRows),
}

/// A fragment, resolved.
pub(super) struct OwnFragment {
    pub(super) mem: usize,
    pub(super) first: Formula,
    pub(super) dtype: Dtype,
    /// For each thread, its elements.
    pub(super) pieces: Vec<Vec<Piece>>,
}

/// A load of a fragment, resolved.
pub(super) struct LoadOfFragment {
    pub(super) into: OwnFragment,
    pub(super) rows: OperandRows,
}

/// A product of fragments, resolved.
pub(super) struct ProductOfFragments {
    pub(super) sum: OwnFragment,
    pub(super) left: ProductOperand,
    pub(super) right: ProductOperand,
    /// It goes on until it is waited for.
    pub(super) is_in_background: bool,
    /// Rows, columns and reduced points.
    pub(super) shape: [i64; 3],
    pub(super) multiply: ScalarFn,
    pub(super) add: ScalarFn,
}

impl OwnFragment {
    /// None where its pieces lie at distances that are no numbers.
    pub(super) fn new(
        (side, fragment): (Side, &Fragment),
        (by, columns): (&Instruction, i64),
        dtype: Dtype,
        first: Formula,
    ) -> Option<OwnFragment> {
        let [along, down, inner] = side.pieces(by, columns);
        let [s, t, u] = fragment.steps;
        let steps = [s.as_int()?, t.as_int()?, u.as_int()?];
        let mut pieces = Vec::new();
        for thread in 0..i64::from(by.threads()) {
            let mut own = Vec::new();
            for at in 0..along * down * inner {
                let [p, q, r] = [at / (down * inner), at / inner % down, at % inner];
                let place = side.of_thread(by, Expr::int(thread), [p, q, r].map(Expr::int));
                own.push((
                    [place[0].as_int()?, place[1].as_int()?],
                    steps[0] * p + steps[1] * q + steps[2] * r,
                ));
            }
            pieces.push(own);
        }
        Some(OwnFragment { mem: fragment.mem.0 as usize, first, dtype, pieces })
    }
}

impl ProductOfFragments {
    /// None where the sums are of a type without sums and products.
    pub(super) fn new(
        product: &FragmentProduct,
        sum: OwnFragment,
        [left, right]: [ProductOperand; 2],
    ) -> Option<Self> {
        let of = |op| function(op, product.by.sums);
        let (multiply, add) = (of(ScalarOp::Mul)?, of(ScalarOp::Add)?);
        let (shape, is_in_background) = (product.shape(), product.by.is_of_warpgroup());
        Some(ProductOfFragments { sum, left, right, is_in_background, shape, multiply, add })
    }
}
