//! Plans products, which are matrix products and convolutions: their tiles, blocks for caches, and packing.

mod blocks;
mod m_tile;
mod panel;
mod plan;
mod problem;
mod tiling;

pub use m_tile::MTile;
pub use panel::is_worth_it as is_packing_worth_it;
pub use plan::{phase, plan};
pub use problem::{Problem, outer_of, tiled_columns};
