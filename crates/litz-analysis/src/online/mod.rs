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
