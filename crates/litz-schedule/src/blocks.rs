//! Decides on cache blocking: how long a block of the right operand is that stays in the first-level cache while several register tiles of
//! rows use it.

use crate::axes::variable;
use crate::cost::points;
use crate::parts::{KBlocks, k_blocks};
use crate::row_block::balanced;
use crate::tree::rebind;
use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::{LoopKind, Tree};
use litz_ir::target::Cpu;
use litz_sym::Expr;

/// Tiles of rows that take turns with every K block of the right operand. Their sums are in memory between turns.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// Tiles of rows.
    pub rows: Axis,
    /// Points of a K block of the sum, at most.
    depth: i64,
    /// Points of a K block that are best.
    part: i64,
}

/// What may be a K block of the right operand.
#[derive(Clone, Copy)]
pub struct KBlock {
    /// Bytes that a tile's columns take of it at each point of a sum.
    pub step: i64,
    /// Points of the sum that should make a K block, if the cache has room.
    pub part: i64,
    /// Bytes of the first-level cache for a K block, and as many for the accumulators of the tiles.
    pub room: i64,
}

/// What may take turns.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// Bytes of a tile's accumulators.
    pub bytes: i64,
    /// Tiles of rows that could.
    pub count: i64,
    /// Points of the grid if none did.
    pub grid: i64,
    /// Tiles that may for every two K blocks of the sum.
    pub turns: i64,
}

/// Tiles that may take turns for every two K blocks. What follows the sums comes in one go for all tiles, and nothing is
/// computed while it waits for memory: the more K blocks the sum has, the less that matters. ResNet-50's product of 196 rows
/// with 1024 columns and sums of 256, two K blocks, ran at 93 % of the peak of multiply-adds of an Intel Xeon with four
/// tiles, at 84 % with 14 and at 87 % with one at a time.
pub const TURNS: i64 = 4;
/// The same where what follows has loops of its own: with four tiles for two K blocks 784 rows by 512 columns ran at 70 %
/// instead of 79 %.
pub const TURNS_BEFORE_LOOPS: i64 = 1;

impl Blocks {
    /// Blocks for a product whose sum runs over the loops `sum`, if it is long. On an Intel Xeon the convolutions of ResNet-50
    /// with 512 channels and 3x3 points ran at 95 % of the peak of multiply-adds of one thread instead of 70 %. With tile
    /// registers products of 128 rows took 0.52 instead of 0.71 ms for 3072 columns and sums of 768, 0.43 instead of 0.55
    /// for 768 columns and sums of 3072.
    pub fn new(loops: &Loops, sum: &[Axis], k_block: KBlock, tiles: Tiles, target: &Cpu) -> Option<Blocks> {
        let depth = (k_block.room / k_block.step.max(1)).max(1);
        let count = points(&loops.facts, &k_blocks(sum, loops, depth, k_block.part)?.outside);
        // Every thread gets two points at least.
        let wanted = 2 * i64::from(target.threads.max(1));
        let most = (k_block.room / tiles.bytes.max(1)).min(tiles.turns * count / 2);
        let shared = (tiles.grid / wanted).min(most).max(1);
        let extent = Expr::int(balanced(tiles.count, shared, true));
        let rows = Axis { var: variable(loops, "im"), extent };
        (!extent.is_one()).then_some(Blocks { rows, depth, part: k_block.part })
    }

    /// The loops of a sum around what `k_block` makes of `body` and the loops over one K block, for one tile.
    pub fn around(
        &self,
        mut body: Vec<Tree>,
        sum: &[Axis],
        loops: &Loops,
        k_block: impl Fn(Vec<Tree>, &[Axis]) -> Vec<Tree>,
    ) -> Vec<Tree> {
        let whole = || KBlocks { outside: Vec::new(), inside: sum.to_vec(), value: None };
        let KBlocks { outside, inside, value } =
            k_blocks(sum, loops, self.depth, self.part).unwrap_or_else(whole);
        if let Some((var, value)) = value {
            body = body.into_iter().map(|tree| rebind(tree, var, value)).collect();
        }
        nested(self.turns(k_block(body, &inside)), &outside)
    }

    /// What every tile does, one after another.
    pub fn turns(&self, body: Vec<Tree>) -> Vec<Tree> {
        nested(body, &[self.rows])
    }
}

/// Plain loops around `body`, outermost first.
pub fn nested(body: Vec<Tree>, axes: &[Axis]) -> Vec<Tree> {
    let wrap = |body, axis: &Axis| vec![Tree::Loop { kind: LoopKind::For, axis: *axis, body }];
    axes.iter().rev().fold(body, wrap)
}
