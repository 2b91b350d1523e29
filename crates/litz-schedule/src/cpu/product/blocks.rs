//! Decides on cache blocking: how long the K blocks of the right operand are that stay in a cache, and how many tiles use each.

use crate::cost::{POINTS_PER_THREAD, points};
use crate::cpu::k_blocks::{KBlocks, k_blocks};
use crate::cut::{balanced, nested, rebind};
use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::Tree;
use litz_ir::target::Cpu;
use litz_sym::{Expr, Sym};

/// Tiles that all use a K block of the right operand before the next one is loaded. Their sums are in memory in between.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// The tiles: M tiles, which use all of it, or N tiles, which use parts of the same lines.
    pub tiles: Axis,
    /// Where these are M tiles, the N tiles which they are run for one after another in each K block, so that the K block of the left
    /// operand stays in the second-level cache.
    pub columns: Option<Axis>,
    /// Points of a K block, at most.
    depth: i64,
    /// Points that a K block should have.
    wanted: i64,
}

/// What may be a K block of the right operand.
#[derive(Clone, Copy)]
pub struct KBlock {
    /// Bytes that the columns of the tiles take of it at each point of a sum.
    pub step: i64,
    /// Points that a K block should have, if the cache has room.
    pub wanted: i64,
    /// Bytes of a cache for a K block, and as many for the accumulators of the tiles.
    pub room: i64,
}

/// The tiles that may share K blocks.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// The variable that counts them.
    pub var: Sym,
    /// Bytes of a tile's accumulators.
    pub bytes: i64,
    /// How many there are.
    pub count: i64,
    /// Points of the grid if none shared any.
    pub grid: i64,
    /// Tiles that may share, for every two K blocks of the sum.
    pub per_two_k_blocks: i64,
}

/// M tiles that may share K blocks, for every two K blocks of the sum. What follows the sums comes in one go for all tiles,
/// and nothing is computed while it waits for memory: the more K blocks the sum has, the less that matters. ResNet-50's
/// product of 196 rows with 1024 columns and sums of 256, two K blocks, ran at 93 % of the peak of multiply-adds of an
/// Intel Xeon with four tiles, at 84 % with 14 and at 87 % with one at a time.
pub const PER_TWO_K_BLOCKS: i64 = 4;
/// The same where what follows has loops of its own: with four tiles for two K blocks 784 rows by 512 columns ran at 70 %
/// instead of 79 %.
pub const PER_TWO_K_BLOCKS_BEFORE_LOOPS: i64 = 1;

impl Blocks {
    /// Blocks for a product whose sum runs over the loops `sum`, if it is long. On an Intel Xeon the convolutions of ResNet-50
    /// with 512 channels and 3x3 points ran at 95 % of the peak of multiply-adds of one thread instead of 70 %. With tile
    /// registers products of 128 rows took 0.52 instead of 0.71 ms for 3072 columns and sums of 768, 0.43 instead of 0.55
    /// for 768 columns and sums of 3072.
    pub fn new(loops: &Loops, sum: &[Axis], k_block: KBlock, tiles: Tiles, target: &Cpu) -> Option<Blocks> {
        let depth = (k_block.room / k_block.step.max(1)).max(1);
        let count = points(&loops.facts, &k_blocks(sum, loops, depth, k_block.wanted)?.outside);
        let wanted = POINTS_PER_THREAD * i64::from(target.threads.max(1));
        let most = (k_block.room / tiles.bytes.max(1)).min(tiles.per_two_k_blocks * count / 2);
        let shared = (tiles.grid / wanted).min(most).max(1);
        let extent = Expr::int(balanced(tiles.count, shared, true));
        let tiles = Axis { var: tiles.var, extent };
        (!extent.is_one()).then_some(Blocks { tiles, columns: None, depth, wanted: k_block.wanted })
    }

    /// The loops of a sum around what `k_block` makes of `body` and the loops over one K block, for one tile. What the tiles of a K
    /// block share is computed by `first`.
    pub fn around(
        &self,
        mut body: Vec<Tree>,
        mut first: Vec<Tree>,
        sum: &[Axis],
        loops: &Loops,
        k_block: impl Fn(Vec<Tree>, &[Axis]) -> Vec<Tree>,
    ) -> Vec<Tree> {
        let KBlocks { outside, inside, value } = self.k_blocks(sum, loops);
        if let Some((var, value)) = value {
            body = body.into_iter().map(|tree| rebind(tree, var, value)).collect();
        }
        first.extend(nested(k_block(body, &inside), &[self.tiles]));
        nested(nested(first, self.columns.as_slice()), &outside)
    }

    /// The loops of a sum, cut into its K blocks.
    pub fn k_blocks(&self, sum: &[Axis], loops: &Loops) -> KBlocks {
        let whole = || KBlocks { outside: Vec::new(), inside: sum.to_vec(), value: None };
        k_blocks(sum, loops, self.depth, self.wanted).unwrap_or_else(whole)
    }

    /// A loop that runs `body` for one tile after another.
    pub fn for_each_tile(&self, body: Vec<Tree>) -> Vec<Tree> {
        nested(nested(body, &[self.tiles]), self.columns.as_slice())
    }
}
