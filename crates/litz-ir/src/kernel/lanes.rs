//! Defines the statement that reduces the accumulators of all lanes and combines the result with an element.

use litz_sym::Expr;

use super::Mem;
use crate::scalar::ReduceOp;

/// Combines elements that lie side by side, `lanes` for each copy of a vector loop's body, and then the result with an
/// element of another memory.
///
/// ```text
/// acc[0] sum= lanes of part[0] by 16 copies 4
/// best[0], at[0] argmax= lanes of bests[0], places[0] by 16 copies 4
/// ```
///
/// The order is fixed. Neighbouring copies are combined lane by lane, in pairs, until one is left; then its halves, until
/// one element is left; that one is combined with the element. Which value is best does not depend on an order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LaneReduction {
    /// How two elements are combined. Of values with positions it says whether the largest or the smallest is kept.
    pub op: ReduceOp,
    /// Memory of the element.
    pub into: Mem,
    /// Memory that lanes have combined into, of the type that arithmetic is done in.
    pub from: Mem,
    /// Positions of best values: memory of the element's, and of those of the lanes.
    pub positions: Option<[Mem; 2]>,
    /// Coordinates of the element.
    pub index: Vec<Expr>,
    /// Coordinates of the first lane's element.
    pub first: Vec<Expr>,
    /// Lanes of each copy, a power of two.
    pub lanes: u32,
    /// Number of copies.
    pub copies: u32,
    /// True when other grid points may combine into the same element at once.
    pub atomic: bool,
}
