//! Matrix products and convolutions: recognised by how their operands are indexed, run as register tiles.
//!
//! A nest `sum over k of a[.., i, k] * b[.., j, k]` where `i` does not occur in `b` and `j` not in `a`, and where
//! neighbouring `j` are neighbours in `b`, at least within a tile's width (which the packing pass sees to).

use crate::access::{Step, accesses, bound_indices, side_exprs, step, substitute};
use crate::axes::{Merged, merge_axes, order_axes, variable};
use crate::cost::{points, size};
use crate::fuse::{Group, Member};
use crate::parts::sum_in_parts;
use crate::tree::{cut, grain};
use crate::{Heuristics, TargetInfo, nest};
use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_ir::{ReduceOp, ScalarOp};
use litz_sym::{Expr, Facts, Sym};

/// Roles of a product's axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Product {
    /// Axes that only the left operand has.
    pub rows: Vec<Sym>,
    /// The axis that only the right operand has, contiguous in it.
    pub column: Sym,
    /// Position of the load of the left operand.
    pub left: usize,
    /// Position of the load of the right operand.
    pub right: usize,
}

/// Reduced points below which a product is left to the generic loops: the tile would spend its time starting.
const MIN_REDUCED: i64 = 4;

/// The product a nest is, if it is one that register tiles suit.
pub fn recognise(loops: &Loops, nest: &Nest, target: &TargetInfo) -> Option<Product> {
    let reduces: Vec<usize> = (0..nest.body.len())
        .filter(|&i| matches!(nest.body[i].op, InstOp::Reduce(..) | InstOp::ArgReduce { .. }))
        .collect();
    let [reduce] = reduces.as_slice() else { return None };
    let InstOp::Reduce(ReduceOp::Sum, value) = nest.body[*reduce].op else { return None };
    let InstOp::Op(ScalarOp::Mul, factors) = &nest.body[value.0 as usize].op else { return None };
    let loads: Vec<usize> = factors.iter().map(|v| source_load(nest, v.0 as usize)).collect::<Option<_>>()?;
    if points(&loops.facts, &nest.reduced) < MIN_REDUCED {
        return None;
    }
    let facts = nest.facts(&loops.facts);
    let index = |at: usize| match &nest.body[at].op {
        InstOp::Load { index, guard, .. } => {
            let sides = guard.iter().flat_map(|r| [r.lhs, r.rhs]).collect::<Vec<_>>();
            Some((*index, sides))
        }
        _ => None,
    };
    for (left, right) in [(loads[0], loads[1]), (loads[1], loads[0])] {
        let ((a, a_sides), (b, b_sides)) = (index(left)?, index(right)?);
        let in_a = |s: Sym| a.has_sym(s) || a_sides.iter().any(|e| e.has_sym(s));
        let in_b = |s: Sym| b.has_sym(s) || b_sides.iter().any(|e| e.has_sym(s));
        let column = nest.axes.iter().find(|x| {
            in_b(x.var)
                && !in_a(x.var)
                && b_sides.is_empty()
                && size(&loops.facts, x.extent) >= i64::from(target.lanes()) / 2
                && tile_step(b, x.var, target.tile_columns(), &facts) == Step::Unit
        });
        let Some(column) = column else { continue };
        let rows = nest.axes.iter().filter(|x| in_a(x.var) && !in_b(x.var)).map(|x| x.var).collect();
        return Some(Product { rows, column: column.var, left, right });
    }
    None
}

/// The load a value comes from, through conversions.
fn source_load(nest: &Nest, at: usize) -> Option<usize> {
    match &nest.body[at].op {
        InstOp::Load { .. } => Some(at),
        InstOp::Cast(v) => source_load(nest, v.0 as usize),
        _ => None,
    }
}

/// The step of `index` along `var` inside aligned runs of `width`.
pub fn tile_step(index: Expr, var: Sym, width: u32, facts: &Facts) -> Step {
    if step(index, var) == Step::Unit {
        return Step::Unit;
    }
    let (tile, lane) = (Sym::new("tile"), Sym::new("lane"));
    let mut facts = facts.clone();
    facts.declare_index(lane, Expr::int(i64::from(width)));
    facts.declare_index(tile, Expr::int(1 << 40));
    let split = Expr::sym(tile) * i64::from(width) + Expr::sym(lane);
    step(facts.simplify(index.replace(var, split)), lane)
}

/// Plans the kernel of a product and its epilogue.
pub fn plan(
    loops: &Loops,
    group: &Group,
    product: &Product,
    target: &TargetInfo,
    heuristics: &Heuristics,
) -> KernelPlan {
    let facts = &loops.facts;
    let head = nest(loops, group.members[0].stmt);
    let tiling = Tiling::new(loops, group, product, target);
    let reduced = points(facts, &head.reduced);
    let (grid, inner_points) = tiling.grid(loops, reduced, target);
    let all = points(facts, &grid);
    let fair = all / (2 * i64::from(target.threads.max(1)));
    let grain = if inner_points <= fair.max(1) {
        inner_points as u64
    } else {
        grain(all, tiling.points(facts) * reduced, target, heuristics)
    };

    let body = tile_trees(loops, group, product, &tiling, target, heuristics);
    KernelPlan { name: String::new(), at_load: false, grid, grain, body, locals: Vec::new() }
}

/// The trees of a product that is one stage of a kernel for a block of rows. `around` are the loops it runs in.
pub fn stage(
    loops: &Loops,
    group: &Group,
    product: &Product,
    rows: RowBlock,
    around: &[Axis],
    target: &TargetInfo,
    heuristics: &Heuristics,
) -> Vec<Tree> {
    let tiling = Tiling::of_rows(group, product, rows, loops, target);
    let trees = tile_trees(loops, group, product, &tiling, target, heuristics);
    let own = tiling.batch.iter().filter(|a| !around.contains(a)).chain(&tiling.grid_column);
    let own: Vec<Axis> = own.copied().collect();
    let wrap = |body, axis: &Axis| vec![Tree::Loop { kind: LoopKind::For, axis: *axis, body }];
    own.iter().rev().fold(trees, wrap)
}

/// What runs for one tile: its sums, and what follows them.
fn tile_trees(
    loops: &Loops,
    group: &Group,
    product: &Product,
    tiling: &Tiling,
    target: &TargetInfo,
    heuristics: &Heuristics,
) -> Vec<Tree> {
    let facts = &loops.facts;
    let head = nest(loops, group.members[0].stmt);
    let mut reduce_axes = head.reduced.clone();
    let left_index: Vec<Expr> =
        accesses(head).into_iter().filter(|a| a.at == product.left).map(|a| a.index).collect();
    order_axes(&mut reduce_axes, &left_index, &group.facts(facts));
    let outer_bind = tiling.bind(&group.members[0]);
    let mut body_bind = outer_bind.clone();
    let mut reduce_loops = Vec::new();
    for (i, a) in reduce_axes.iter().enumerate() {
        let var = variable(loops, &format!("k{i}"));
        body_bind.push((a.var, Expr::sym(var)));
        reduce_loops.push(Axis { var, extent: a.extent });
    }
    let body = vec![leaf(head, Part::Body, body_bind)];
    let mut tile = sum_in_parts(body, &reduce_loops, loops, heuristics.partial_sum);
    tile.push(leaf(head, Part::Tail, outer_bind));
    let epilogue = &group.members[1..];
    let length: usize = epilogue.iter().map(|m| nest(loops, m.stmt).body.len()).sum();
    let epilogue: Vec<Tree> =
        epilogue.iter().map(|m| leaf(nest(loops, m.stmt), Part::Whole, tiling.bind(m))).collect();
    let lanes = target.lanes();
    if length <= heuristics.inline_epilogue {
        tile.extend(epilogue);
        tiling.loops(tile, LoopKind::Tile, LoopKind::TileVector { lanes })
    } else {
        let mut body = tiling.loops(tile, LoopKind::Tile, LoopKind::TileVector { lanes });
        // The vectors of a row take turns: what is long is a chain of dependent instructions.
        let copies = target.tile_columns() / lanes;
        body.extend(tiling.loops(epilogue, LoopKind::For, LoopKind::Vector { lanes, copies }));
        body
    }
}

fn leaf(nest: &Nest, part: Part, bind: Vec<(Sym, Expr)>) -> Tree {
    Tree::Leaf(Leaf { nest: nest.name.clone(), part, bind })
}

/// How a product's points are cut into tiles.
struct Tiling {
    /// Value of each variable of the group at a point of a tile.
    value: Vec<(Sym, Expr)>,
    /// Grid axes that are neither rows nor columns.
    batch: Vec<Axis>,
    /// Grid axes of rows.
    grid_rows: Vec<Axis>,
    /// The grid axis of columns, unless one tile has them all.
    grid_column: Option<Axis>,
    /// All columns.
    column: Axis,
    /// Rows of a tile; `None` where the left operand has no axis of its own.
    tile_rows: Option<Axis>,
    /// Columns of a tile.
    tile_columns: Axis,
}

/// How rows are cut into blocks as high as a tile.
#[derive(Clone)]
pub struct RowBlock {
    /// Value of each variable of rows at a point of a block.
    pub value: Vec<(Sym, Expr)>,
    /// Axes that count blocks, and rows that are not cut.
    pub grid: Vec<Axis>,
    /// Rows of a block.
    pub rows: Option<Axis>,
}

impl RowBlock {
    /// Rows are merged where every access walks them as one, and the longest is tiled.
    pub fn new(loops: &Loops, group: &Group, rows: Vec<Axis>, target: &TargetInfo) -> RowBlock {
        let rows = merge_rows(loops, group, rows);
        let rows_of = |m: &Merged| size(&loops.facts, m.axis.extent);
        let tiled = (0..rows.len()).max_by_key(|&i| (rows_of(&rows[i]), i));
        let mut block = RowBlock { value: Vec::new(), grid: Vec::new(), rows: None };
        for (i, m) in rows.iter().enumerate() {
            let at = if Some(i) == tiled {
                let is_known = m.axis.extent.as_int().is_some();
                let height = balanced(rows_of(m), most_rows(target), is_known);
                let (tiles, inside, at) = cut(m.axis, height, variable(loops, "io"), variable(loops, "ii"));
                block.rows = Some(inside);
                if m.axis.extent.as_int() == Some(height) {
                    Expr::sym(inside.var)
                } else {
                    block.grid.push(tiles);
                    at
                }
            } else {
                block.grid.push(m.axis);
                Expr::sym(m.axis.var)
            };
            block.value.extend(m.parts.iter().map(|(s, e)| (*s, e.replace(m.axis.var, at))));
        }
        block
    }
}

/// Rows of a tile at most: accumulators, the right operand's vectors and one broadcast of the left share the registers.
pub fn most_rows(target: &TargetInfo) -> i64 {
    let vectors = i64::from(target.tile_columns() / target.lanes());
    ((i64::from(target.vector_registers) - vectors - 2) / vectors).max(1)
}

/// The variable of the group that a product's axis is bound to.
pub fn outer_of(group: &Group, axis: Sym) -> Option<Axis> {
    let value = group.members[0].bind.iter().find(|b| b.0 == axis)?.1;
    group.outer.iter().find(|o| Some(o.var) == value.as_sym()).copied()
}

impl Tiling {
    fn new(loops: &Loops, group: &Group, product: &Product, target: &TargetInfo) -> Tiling {
        let rows = product.rows.iter().filter_map(|&r| outer_of(group, r)).collect();
        let rows = RowBlock::new(loops, group, rows, target);
        Tiling::of_rows(group, product, rows, loops, target)
    }

    /// Tiles as high as the blocks of `rows`.
    fn of_rows(
        group: &Group,
        product: &Product,
        rows: RowBlock,
        loops: &Loops,
        target: &TargetInfo,
    ) -> Tiling {
        let column = outer_of(group, product.column).expect("invariant: a product's axes are all shared");
        let RowBlock { mut value, grid: grid_rows, rows: tile_rows } = rows;
        let width = i64::from(target.tile_columns());
        let (tiles, inside, at) = cut(column, width, variable(loops, "jo"), variable(loops, "ji"));
        let (tile_columns, at, grid_column) = match column.extent.as_int() {
            Some(n) if n <= width => (Axis { extent: column.extent, ..inside }, Expr::sym(inside.var), None),
            _ => (inside, at, Some(tiles)),
        };
        value.push((column.var, at));
        let is_placed = |o: &Axis| value.iter().any(|v| v.0 == o.var);
        let batch = group.outer.iter().filter(|o| !is_placed(o)).copied().collect();
        Tiling { value, batch, grid_rows, grid_column, column, tile_rows, tile_columns }
    }

    /// Points of a tile.
    fn points(&self, facts: &Facts) -> i64 {
        points(facts, self.tile_rows.iter().chain([&self.tile_columns]))
    }

    /// The grid, and how many of its innermost points share an operand that should stay in the second-level cache: the
    /// one that costs most to read again and again.
    fn grid(&self, loops: &Loops, reduced: i64, target: &TargetInfo) -> (Vec<Axis>, i64) {
        let facts = &loops.facts;
        let row_tiles = points(facts, &self.grid_rows);
        let column_tiles = points(facts, &self.grid_column);
        let bytes = |n: i64| n.saturating_mul(reduced).saturating_mul(4);
        let left = bytes(row_tiles.saturating_mul(points(facts, &self.tile_rows)));
        let right = bytes(size(facts, self.column.extent));
        let again = |bytes: i64, times: i64| {
            if bytes > target.l2_bytes / 2 { bytes.saturating_mul(times) } else { bytes }
        };
        let columns_outside = again(left, column_tiles).saturating_add(right);
        let rows_outside = again(right, row_tiles).saturating_add(left);
        let mut grid = self.batch.clone();
        if columns_outside <= rows_outside {
            grid.extend(self.grid_column);
            grid.extend(&self.grid_rows);
            (grid, row_tiles)
        } else {
            grid.extend(&self.grid_rows);
            grid.extend(self.grid_column);
            (grid, column_tiles)
        }
    }

    /// The values of a member's axes at a point of a tile.
    fn bind(&self, member: &Member) -> Vec<(Sym, Expr)> {
        member.bind.iter().map(|(s, e)| (*s, substitute(*e, &self.value))).collect()
    }

    /// The points of a tile.
    fn loops(&self, body: Vec<Tree>, rows: LoopKind, columns: LoopKind) -> Vec<Tree> {
        let line = vec![Tree::Loop { kind: columns, axis: self.tile_columns, body }];
        match self.tile_rows {
            Some(axis) => vec![Tree::Loop { kind: rows, axis, body: line }],
            None => line,
        }
    }
}

/// Row axes in the order of memory, merged where every access of every member walks them as one.
fn merge_rows(loops: &Loops, group: &Group, mut rows: Vec<Axis>) -> Vec<Merged> {
    let facts = group.facts(&loops.facts);
    let (mut indices, mut others) = (Vec::new(), Vec::new());
    for member in &group.members {
        let n = nest(loops, member.stmt);
        indices.extend(bound_indices(n, &member.bind, &n.facts(&facts)).into_iter().map(|b| b.1));
        others.extend(side_exprs(n).into_iter().map(|e| substitute(e, &member.bind)));
    }
    order_axes(&mut rows, &indices, &facts);
    merge_axes(&rows, &indices, &others, &|i| variable(loops, &format!("m{i}")))
}

/// Rows of a tile: as many as fit, spread evenly over the tiles a known number of rows needs; fewer when the number is
/// only known at run time, where the rows that remain run one by one.
fn balanced(rows: i64, most: i64, known: bool) -> i64 {
    let most = if known { most } else { most.min(8) };
    let tiles = (rows + most - 1) / most;
    (rows + tiles - 1) / tiles.max(1)
}
