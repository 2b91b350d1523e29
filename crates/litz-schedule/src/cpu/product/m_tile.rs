//! Splits the M axes of a contraction into blocks of the register tile's height.

use crate::axes::{Merged, merge_axes, order_axes, variable};
use crate::cost::size;
use crate::cut::{balanced, cut};
use crate::group::Group;
use crate::nest;
use litz_analysis::access::{bound_places, side_exprs, substitute};
use litz_ir::loops::{Axis, Loops};
use litz_ir::target::Cpu;
use litz_sym::{Expr, Sym};

/// How the M axes of a contraction are cut into register tiles.
#[derive(Clone)]
pub struct MTile {
    /// Value of each M axis at a point of a tile.
    pub value: Vec<(Sym, Expr)>,
    /// Axes that count tiles, and M axes that are not cut.
    pub grid: Vec<Axis>,
    /// Rows of a tile along the M axis that is cut.
    pub rows: Option<Axis>,
    /// Points of a second M axis that a tile spans, each with all of `rows`.
    pub outer_rows: Option<Axis>,
}

impl MTile {
    /// Merges M axes where every access walks them as one, and cuts the longest.
    pub fn new(loops: &Loops, group: &Group, rows: Vec<Axis>, target: &Cpu) -> MTile {
        MTile::cut(loops, group, rows, &mut |rows, is_known| {
            (balanced(rows, target.tile_rows(), is_known), None)
        })
    }

    /// Cuts the M axes as `new` does, into tiles of other heights: `height` gives, for a number of rows and whether it is
    /// known, the rows of a tile, and the axis of the tiles of an M block, if tiles are run in M blocks.
    pub fn cut(
        loops: &Loops,
        group: &Group,
        rows: Vec<Axis>,
        height: &mut dyn FnMut(i64, bool) -> (i64, Option<Axis>),
    ) -> MTile {
        let rows = merge_rows(loops, group, rows);
        let rows_of = |m: &Merged| size(&loops.facts, m.axis.extent);
        let tiled = (0..rows.len()).max_by_key(|&i| (rows_of(&rows[i]), i));
        let mut tile = MTile { value: Vec::new(), grid: Vec::new(), rows: None, outer_rows: None };
        for (i, m) in rows.iter().enumerate() {
            let at = if Some(i) == tiled {
                let is_known = m.axis.extent.as_int().is_some();
                let (height, tiles) = height(rows_of(m), is_known);
                let inside = Axis { var: variable(loops, "ii"), extent: Expr::int(height) };
                tile.rows = Some(inside);
                let (taken, place) = match tiles {
                    Some(tiles) => {
                        let place = Expr::sym(tiles.var) * height + Expr::sym(inside.var);
                        (height * size(&loops.facts, tiles.extent), place)
                    }
                    None => (height, Expr::sym(inside.var)),
                };
                if m.axis.extent.as_int() == Some(taken) {
                    place
                } else {
                    let (blocks, _, _) = cut(m.axis, taken, variable(loops, "io"), inside.var);
                    tile.grid.push(blocks);
                    Expr::sym(blocks.var) * taken + place
                }
            } else {
                tile.grid.push(m.axis);
                Expr::sym(m.axis.var)
            };
            tile.value.extend(m.parts.iter().map(|(s, e)| (*s, e.replace(m.axis.var, at))));
        }
        tile
    }

    /// Lets a tile span as many points of a second M axis as it has room for. The images of ResNet-50's last convolutions have
    /// 7x7 points: a tile of one line of 7 would load the weights more often than the processor can.
    pub fn add_outer_rows(&mut self, loops: &Loops, target: &Cpu) {
        let Some(height) = self.rows.and_then(|axis| axis.extent.as_int()) else { return };
        let room = target.tile_rows() / height.max(1);
        let is_whole = |a: &Axis| self.value.iter().any(|v| v.1 == Expr::sym(a.var));
        let Some(at) = self.grid.iter().rposition(is_whole) else { return };
        let Some(points) = self.grid[at].extent.as_int().filter(|&points| points.min(room) > 1) else {
            return;
        };
        let axis = self.grid[at];
        let count = balanced(points, room, true);
        let (blocks, inside, value) = cut(axis, count, variable(loops, "ib"), variable(loops, "il"));
        self.value.iter_mut().for_each(|v| v.1 = v.1.replace(axis.var, value));
        self.outer_rows = Some(inside);
        self.grid[at] = blocks;
    }
}

/// M axes in the order of memory, merged where every access of every member walks them as one.
fn merge_rows(loops: &Loops, group: &Group, mut rows: Vec<Axis>) -> Vec<Merged> {
    let facts = group.facts(&loops.facts);
    let (mut indices, mut others) = (Vec::new(), Vec::new());
    for member in &group.members {
        let n = nest(loops, member.stmt);
        indices.extend(bound_places(loops, n, &member.bind, &n.facts(&facts)).into_iter().map(|b| b.1));
        others.extend(side_exprs(n).into_iter().map(|e| substitute(e, &member.bind)));
    }
    order_axes(&mut rows, &indices, &facts);
    merge_axes(&rows, &indices, &others, &|i| variable(loops, &format!("m{i}")))
}
