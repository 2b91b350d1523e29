//! Finds how many threads the blocks of a grid point have.

use litz_ir::target::{Gpu, Level};

use super::code::Node;
use super::threads::threads_of;
use crate::formula::{Bounds, Formula};

/// The threads of each block: as many as its loops over levels have at most, and at least one. `symbols` has the values of sizes and of the
/// axes of the grid; loops set theirs.
pub(super) fn threads(body: &[Node], symbols: &[i64]) -> u32 {
    let mut bounds: Vec<Bounds> = symbols.iter().map(|&value| [value; 2]).collect();
    let last = last_of(body, &mut bounds).clamp(1, i64::from(Gpu::THREADS));
    u32::try_from(last).unwrap_or(Gpu::THREADS)
}

/// One behind the last thread of a block that statements name.
fn last_of(nodes: &[Node], bounds: &mut [Bounds]) -> i64 {
    let mut last = 0;
    for node in nodes {
        last = last.max(match node {
            Node::Loop { var, extent, body, .. } | Node::Instruction { var, extent, body, .. } => {
                count(*var, extent, bounds);
                last_of(body, bounds)
            }
            Node::Level { team, var, extent, body } => {
                let count = count(*var, extent, bounds);
                match team.level {
                    Level::Grid | Level::Block => last_of(body, bounds),
                    level @ (Level::Warpgroup | Level::Warp | Level::Thread | Level::Lane) => {
                        let units = if count > 0 { i64::from(team.from).saturating_add(count) } else { 0 };
                        units.saturating_mul(i64::from(threads_of(level)))
                    }
                }
            }
            Node::If { then, other, .. } => last_of(then, bounds).max(last_of(other, bounds)),
            Node::Bind { sym, extent, .. } => {
                count(*sym, extent, bounds);
                0
            }
            _ => 0,
        });
    }
    last
}

/// The most that an extent can be. Its variable is below that.
fn count(var: usize, extent: &Formula, bounds: &mut [Bounds]) -> i64 {
    let most = extent.bounds(bounds).map_or(i64::MAX, |[_, most]| most);
    bounds[var] = [0, most.saturating_sub(1).max(0)];
    most
}
