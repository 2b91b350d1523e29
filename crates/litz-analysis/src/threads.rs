//! Counts the threads that run parts of a schedule.

use crate::inside::longest;
use litz_ir::schedule::Tree;
use litz_ir::target::{Gpu, Level, Team};

/// Threads of a block that a tree needs, counted from its first.
pub fn threads_within(tree: &Tree) -> i64 {
    if let Tree::Loop { kind, axis, .. } = tree
        && let Some(Team { level, from, each }) = kind.team()
        && level != Level::Block
    {
        let count = longest(axis.extent).as_int().unwrap_or(1);
        let units = count.saturating_mul(i64::from(each)).saturating_add(i64::from(from));
        return units.saturating_mul(threads_of_level(level)).max(1);
    }
    tree.blocks().into_iter().flatten().map(threads_within).max().unwrap_or(1)
}

/// Threads that run an iteration of a loop.
pub fn threads_of(team: Team) -> i64 {
    threads_of_level(team.level).saturating_mul(i64::from(team.each))
}

fn threads_of_level(level: Level) -> i64 {
    match level {
        Level::Warpgroup => i64::from(Gpu::WARPGROUP),
        Level::Warp => i64::from(Gpu::LANES),
        Level::Grid | Level::Block | Level::Thread | Level::Lane => 1,
    }
}
