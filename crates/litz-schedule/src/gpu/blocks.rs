//! Cuts an axis into blocks of points that threads take.

use litz_ir::loops::Axis;
use litz_ir::schedule::{LoopKind, Tree};
use litz_ir::target::Level;
use litz_sym::{Expr, Sym};

/// Where the last block along an axis ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Like all others: points past the end are left out by masks, or are no points of the loop where all that is in it ends there.
    LikeOthers,
    /// With the axis.
    WithAxis,
}

impl Ends {
    /// That of one of `all` axes, of which nests count theirs by these `values`. Where one has several, points past the end of this axis are those
    /// of its neighbour, and no mask leaves them out: of `20*g0 + g1` for `g1` in blocks of 8, the point 20 of row 0 is the first one of row 1.
    pub fn of(axis: Axis, all: &[Axis], mut values: impl Iterator<Item = Expr>) -> Ends {
        let is_counted = |value: Expr| {
            value.has_sym(axis.var)
                && all.iter().any(|other| other.var != axis.var && value.has_sym(other.var))
        };
        if values.any(is_counted) { Ends::WithAxis } else { Ends::LikeOthers }
    }

    /// The points of the block that begins at `start`, of `width` at most.
    pub fn points(self, axis: Axis, start: Expr, width: i64) -> Expr {
        match self {
            Ends::WithAxis if !divides(width, axis) => (axis.extent - start).min(width),
            Ends::WithAxis | Ends::LikeOthers => Expr::int(width),
        }
    }
}

/// What the axes of all leaves are bound to.
pub fn values_of(body: &[Tree]) -> Vec<Expr> {
    let mut values = Vec::new();
    body.iter().for_each(|tree| {
        tree.each_leaf(&mut |leaf| values.extend(leaf.bind.iter().map(|bind| bind.1)));
    });
    values
}

/// Whether an axis has whole blocks of so many points alone.
pub fn divides(width: i64, axis: Axis) -> bool {
    axis.extent.as_int().is_some_and(|extent| extent.checked_rem(width) == Some(0))
}

/// Puts a loop over threads around `body`, of `width` points along an axis at most. Gives the loop over the blocks, if they are several.
pub fn by_blocks(
    level: Level,
    (axis, ends): (Axis, Ends),
    width: i64,
    [block, inside]: [Sym; 2],
    body: &mut Vec<Tree>,
) -> Option<Axis> {
    // Blocks that are all alike have no loop that ends early.
    let suits = |width: &i64| divides(*width, axis);
    let width = match ends {
        Ends::WithAxis => ((width / 2).max(1)..=width).rev().find(suits).unwrap_or(width),
        Ends::LikeOthers => width,
    };
    let is_cut = axis.extent.as_int().is_none_or(|extent| extent > width);
    let start = if is_cut { Expr::sym(block) * width } else { Expr::zero() };
    body.iter_mut().for_each(|tree| tree.replace(axis.var, start + Expr::sym(inside)));
    let extent = if is_cut { ends.points(axis, start, width) } else { axis.extent };
    let kind = LoopKind::Level(level.into());
    *body = vec![Tree::Loop { kind, axis: Axis { var: inside, extent }, body: std::mem::take(body) }];
    is_cut.then(|| Axis { var: block, extent: axis.extent.ceildiv(width) })
}
