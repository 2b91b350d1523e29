//! Cuts axes into blocks of points that threads take, and spreads the last ones over the threads of a block.

use crate::context::Cx;
use crate::cost::{ceil_div, size};
use litz_ir::loops::Axis;
use litz_ir::schedule::{LoopKind, Tree};
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Sym};

/// Threads of a block along one axis, at most: with 256 there are several blocks for a unit to hide what each waits for.
pub const THREADS: i64 = 256;

/// Warps of a block whose lanes go along a short axis.
const WARPS: i64 = 8;

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
            Ends::WithAxis if !axis.extent.modulo(width).is_zero() => (axis.extent - start).min(width),
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

/// Takes the last axes out of a grid and puts loops over threads around `body`, with blocks of these in the grid. Gives the variable
/// of the innermost loop.
pub fn spread(
    cx: &Cx<'_>,
    grid: &mut Vec<Axis>,
    body: &mut Vec<Tree>,
    name: &dyn Fn(&str) -> Sym,
) -> Option<Sym> {
    flatten(grid, body, name);
    let lane = grid.pop()?;
    let points = |axis: Axis| match axis.extent.as_int() {
        Some(points) => points,
        // Threads past the end of an axis cost less than blocks of few of them.
        None => size(&cx.loops.facts, axis.extent).max(THREADS),
    };
    let warp = i64::from(Gpu::LANES);
    let levels = match grid.last().copied() {
        Some(row) if points(lane) * 2 <= THREADS && points(row) > 1 => {
            grid.pop();
            vec![(Level::Warp, row, WARPS.min(points(row))), (Level::Lane, lane, warp)]
        }
        Some(_) | None => vec![(Level::Thread, lane, THREADS.min(ceil_div(points(lane), warp) * warp))],
    };
    let all: Vec<Axis> = grid.iter().copied().chain(levels.iter().map(|level| level.1)).collect();
    let values = values_of(body);
    // Vectors are whole: the last threads end with them, and not within one.
    let mut has_vectors = false;
    let mut look =
        |tree: &Tree| has_vectors |= matches!(tree, Tree::Loop { kind: LoopKind::Vector { .. }, .. });
    body.iter().for_each(|tree| tree.visit(&mut look));
    let ends = |axis: Axis| match has_vectors {
        true => Ends::WithAxis,
        false => Ends::of(axis, &all, values.iter().copied()),
    };
    let ends: Vec<Ends> = levels.iter().map(|level| ends(level.1)).collect();
    let mut scope = None;
    for ((level, axis, width), ends) in levels.into_iter().zip(ends).rev() {
        let [block, inside] = ["block", "in"].map(|what| name(&format!("{}_{what}", axis.var)));
        grid.extend(by_blocks(level, (axis, ends), width, [block, inside], body));
        scope = scope.or(Some(inside));
    }
    scope
}

/// Makes one axis of the last two, where the last one has too few points for the lanes of a warp and both together have enough.
fn flatten(grid: &mut Vec<Axis>, body: &mut [Tree], name: &dyn Fn(&str) -> Sym) {
    let &[.., row, lane] = &grid[..] else { return };
    let (Some(rows), Some(lanes)) = (row.extent.as_int(), lane.extent.as_int()) else { return };
    let warp = i64::from(Gpu::LANES);
    if rows < 1 || !(1..warp).contains(&lanes) || warp % lanes != 0 || rows * lanes % warp != 0 {
        return;
    }
    let both = name(&format!("{}_{}", row.var, lane.var));
    let values = [(row, Expr::sym(both).floordiv(lanes)), (lane, Expr::sym(both).modulo(lanes))];
    for (axis, value) in values {
        body.iter_mut().for_each(|tree| tree.replace(axis.var, value));
    }
    grid.truncate(grid.len() - 2);
    grid.push(Axis { var: both, extent: Expr::int(rows * lanes) });
}
