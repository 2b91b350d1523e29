//! Pieces of a product's right operand that stay in the first-level cache while several tiles of rows use them.

use crate::TargetInfo;
use crate::axes::variable;
use crate::parts::{Pieces, pieces};
use crate::tree::rebind;
use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::{LoopKind, Tree};
use litz_sym::Expr;

/// Tiles of rows that take turns with every piece of the right operand. Their sums are in memory between turns.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// Tiles of rows.
    pub rows: Axis,
    /// Points of a piece of the sum, at most.
    depth: i64,
}

/// Tiles that share a piece at most. A piece then comes from further away than the first-level cache for every fourth tile,
/// and more would gain little: accumulators of four of 32 by 32 f32 are 16 KiB. On an Intel Xeon with tile
/// registers (2 MiB of second-level cache) products of 128 rows took 0.52 instead of 0.71 ms for 3072 columns and
/// sums of 768, 0.43 instead of 0.55 for 768 columns and sums of 3072. Without such registers the convolutions of 3x3 points
/// and 512 channels of ResNet-50 ran at 94 % of the peak of multiply-adds on one thread instead of 79 %, those of 256
/// channels at 93 % instead of 92 %.
const MOST_TILES: i64 = 4;

impl Blocks {
    /// Blocks for `tiles` tiles of rows, of a grid that has `all` points without them. The loops `sum` read `bytes` of the
    /// right operand for a tile's columns at each point.
    pub fn new(
        loops: &Loops,
        sum: &[Axis],
        bytes: i64,
        [tiles, all]: [i64; 2],
        target: &TargetInfo,
    ) -> Option<Blocks> {
        let depth = (target.l1_bytes / 2 / bytes.max(1)).max(1);
        pieces(sum, loops, depth)?;
        // Every thread gets two points at least.
        let wanted = 2 * i64::from(target.threads.max(1));
        let shared = (all / wanted).clamp(1, MOST_TILES);
        let groups = (tiles + shared - 1) / shared;
        let extent = Expr::int((tiles + groups - 1) / groups.max(1));
        let rows = Axis { var: variable(loops, "im"), extent };
        (!extent.is_one()).then_some(Blocks { rows, depth })
    }

    /// The loops of a sum around what `piece` makes of `body` and the loops over one piece, for one tile.
    pub fn around(
        &self,
        mut body: Vec<Tree>,
        sum: &[Axis],
        loops: &Loops,
        piece: impl Fn(Vec<Tree>, &[Axis]) -> Vec<Tree>,
    ) -> Vec<Tree> {
        let whole = || Pieces { outside: Vec::new(), inside: sum.to_vec(), value: None };
        let Pieces { outside, inside, value } = pieces(sum, loops, self.depth).unwrap_or_else(whole);
        if let Some((var, value)) = value {
            body = body.into_iter().map(|tree| rebind(tree, var, value)).collect();
        }
        nested(self.turns(piece(body, &inside)), &outside)
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
