//! Finds dependent reductions that can run in one pass, as an online softmax does, because partial results can be corrected.
//!
//! The maximum of a row has to be known before the sum of exponentials of distances from it, and that before the sum that these
//! weight. But a sum of exponentials of distances from another number is off by a factor alone, so that all three can
//! go through the row together, block by block, corrected by how much the maximum has grown. Which sums can is
//! derived from what their terms are ([`forms`]), expanded over the nests that compute them ([`terms`]); [`chain`] finds
//! all that goes through the same columns.

pub mod chain;
pub mod forms;
pub mod terms;

pub use chain::{Chain, Correction, Member, Pointwise, Reduction, Reference, Role, Shift, find, point_of};

/// Columns of a block that warps of a GPU take, whose scores and weights the registers of a thread hold.
pub const WARP_WIDTH: i64 = 64;
/// Columns of a result that warps of a GPU sum, at most. Wider ones, and wider blocks, are for warpgroups.
pub const WARP_COLUMNS: i64 = 128;
