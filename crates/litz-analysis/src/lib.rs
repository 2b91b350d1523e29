//! Answers questions about loops programs, each in one place, and proves by the answers that a schedule keeps a program's results.
//!
//! Passes and the scheduler ask to decide; the verifier of schedules ([`legality`]) asks again, of the text of the schedule
//! alone, to prove. Nothing here changes a program, and no answer depends on a target; the verifier holds lanes and memories of a
//! schedule against the one that it names.
//!
//! | module | question |
//! |---|---|
//! | [`uses`] | which statements read and write a buffer? |
//! | [`access`] | where in memory does a nest load and store, and how fast does it move there? |
//! | [`constants`] | what depends on the model alone, so that it can run when the model is loaded? |
//! | [`dependences`] | which statements have to run before which? |
//! | [`inside`] | is a value below the extent of its axis? |
//! | [`collisions`] | along which axes may two points store to one element? |
//! | [`columns`] | what columns side by side are reduced, and how many does a lane of a GPU take at once? |
//! | [`apart`] | may two accesses meet in different iterations of the loops around both? |
//! | [`align`] | which axes of a consumer follow from the axes of its producer? |
//! | [`contraction`] | is a nest a sum of products of two operands, and which axes has each? |
//! | [`online`] | which reductions can be computed with each other's results so far, and corrected when these change? |
//! | [`parts`] | which instructions of a nest run in which of its parts? |
//! | [`rounded`] | what is rounded to half types in the end? |
//! | [`together`] | how many lanes side by side have one value? |
//! | [`copies`] | what are the copies that a schedule declares? |
//! | [`footprint`] | how many elements has memory that a schedule declares, and where in it is each? |
//! | [`legality`] | does a schedule keep all of this? |

#![forbid(unsafe_code)]
// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod access;
pub mod align;
pub mod alike;
pub mod apart;
pub mod collisions;
pub mod columns;
pub mod constants;
pub mod contraction;
pub mod copies;
mod defined;
pub mod dependences;
pub mod footprint;
pub mod inside;
pub mod legality;
pub mod online;
pub mod parts;
pub mod results;
pub mod rounded;
pub mod threads;
pub mod together;
pub mod uses;
pub mod windows;

pub use contraction::Contraction;
pub use dependences::Dependences;
pub use uses::Uses;
