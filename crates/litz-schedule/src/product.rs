//! Matrix products and convolutions: recognised by how their operands are indexed, run as register tiles.
//!
//! A nest `sum over k of a[.., i, k] * b[.., j, k]` where `i` does not occur in `b` and `j` not in `a`, and where
//! neighbouring `j` are neighbours in `b`, at least within a tile's width (which the packing pass sees to).

use crate::access::{Step, accesses, bound_indices, step};
use crate::fuse::Group;
use crate::tree::{grain, merge_axes, order_axes, side_exprs, sum_in_parts};
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
    let hint = |e: Expr| loops.facts.hint(e).unwrap_or(64);
    let reduced: i64 = nest.reduced.iter().map(|a| hint(a.extent)).product();
    if reduced < MIN_REDUCED {
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
                && hint(x.extent) >= i64::from(target.lanes()) / 2
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
    let hint = |e: Expr| loops.facts.hint(e).unwrap_or(64).max(1);
    let head = nest(loops, group.members[0].stmt);
    let facts = group.facts(&loops.facts);
    let outer_of = |axis: Sym| {
        let value = group.members[0].bind.iter().find(|b| b.0 == axis)?.1;
        group.outer.iter().find(|o| Some(o.var) == value.as_sym()).copied()
    };
    let column = outer_of(product.column).expect("invariant: a product's axes are all shared");

    // Rows: merged where every access walks them as one; the longest is tiled.
    let mut rows: Vec<Axis> = product.rows.iter().filter_map(|&r| outer_of(r)).collect();
    let (mut indices, mut others) = (Vec::new(), Vec::new());
    for member in &group.members {
        let n = nest(loops, member.stmt);
        let facts = n.facts(&facts);
        indices.extend(bound_indices(n, &member.bind, &facts).into_iter().map(|b| b.1));
        let bound = |e: Expr| e.subst(&|s| member.bind.iter().find(|b| b.0 == s).map(|b| b.1));
        others.extend(side_exprs(n).into_iter().map(bound));
    }
    order_axes(&mut rows, &indices, &facts);
    let merged = merge_axes(&rows, &indices, &others, &|i| Sym::new(&format!("m{i}")));
    let tiled = (0..merged.len()).max_by_key(|&i| (hint(merged[i].axis.extent), i));

    let lanes = target.lanes();
    let width = i64::from(target.tile_columns());
    let vectors = i64::from(target.tile_columns() / lanes);
    // Accumulators, the right operand's vectors and one broadcast of the left share the registers.
    let most_rows = ((i64::from(target.vector_registers) - vectors - 2) / vectors).max(1);
    let mut value: Vec<(Sym, Expr)> = Vec::new();
    let mut grid_rows: Vec<Axis> = Vec::new();
    let (io, ii, jo, ji) = (Sym::new("io"), Sym::new("ii"), Sym::new("jo"), Sym::new("ji"));
    let mut tile_rows = 1;
    for (i, m) in merged.iter().enumerate() {
        let at = if Some(i) == tiled {
            tile_rows = balanced(hint(m.axis.extent), most_rows, m.axis.extent.as_int().is_some());
            if m.axis.extent.as_int() == Some(tile_rows) {
                Expr::sym(ii)
            } else {
                grid_rows.push(Axis { var: io, extent: m.axis.extent.ceildiv(tile_rows) });
                Expr::sym(io) * tile_rows + Expr::sym(ii)
            }
        } else {
            grid_rows.push(m.axis);
            Expr::sym(m.axis.var)
        };
        value.extend(m.parts.iter().map(|(s, e)| (*s, e.replace(m.axis.var, at))));
    }
    let (columns, column_value, grid_column) = match column.extent.as_int() {
        Some(n) if n <= width => (n, Expr::sym(ji), None),
        _ => {
            let tiles = Axis { var: jo, extent: column.extent.ceildiv(width) };
            (width, Expr::sym(jo) * width + Expr::sym(ji), Some(tiles))
        }
    };
    value.push((column.var, column_value));
    let batch: Vec<Axis> = group
        .outer
        .iter()
        .filter(|o| !value.iter().any(|v| v.0 == o.var))
        .copied()
        .collect();

    // Grid order: the operand that is read again and again should stay in the second-level cache.
    let reduced: i64 = head.reduced.iter().map(|a| hint(a.extent)).product();
    let points = |axes: &[Axis]| axes.iter().map(|a| hint(a.extent)).fold(1, i64::saturating_mul);
    let left_bytes = points(&grid_rows) * tile_rows * reduced * 4;
    let right_bytes = hint(column.extent) * reduced * 4;
    let column_tiles = grid_column.map_or(1, |c| hint(c.extent));
    let again = |bytes: i64, times: i64| if bytes > target.l2_bytes / 2 { bytes.saturating_mul(times) } else { bytes };
    let columns_outside =
        again(left_bytes, column_tiles) + right_bytes <= again(right_bytes, points(&grid_rows)) + left_bytes;
    let mut grid = batch.clone();
    let inner_points = if columns_outside {
        grid.extend(grid_column);
        grid.extend(&grid_rows);
        points(&grid_rows)
    } else {
        grid.extend(&grid_rows);
        grid.extend(grid_column);
        column_tiles
    };
    let work = tile_rows * columns * reduced;

    let bind_outer = |bind: &[(Sym, Expr)]| -> Vec<(Sym, Expr)> {
        bind.iter()
            .map(|(s, e)| (*s, e.subst(&|o| value.iter().find(|v| v.0 == o).map(|v| v.1))))
            .collect()
    };
    let mut reduce_axes = head.reduced.clone();
    let left_index = accesses(head).iter().filter(|a| a.at == product.left).map(|a| a.index).collect::<Vec<_>>();
    order_axes(&mut reduce_axes, &left_index, &facts);
    let outer_bind = bind_outer(&group.members[0].bind);
    let mut body_bind = outer_bind.clone();
    let loops_k: Vec<Axis> = reduce_axes
        .iter()
        .enumerate()
        .map(|(i, a)| {
            let var = Sym::new(&format!("k{i}"));
            body_bind.push((a.var, Expr::sym(var)));
            Axis { var, extent: a.extent }
        })
        .collect();
    let leaf = |nest: &Nest, part, bind| Tree::Leaf(Leaf { nest: nest.name.clone(), part, bind });
    let mut tile_body = sum_in_parts(vec![leaf(head, Part::Body, body_bind)], &loops_k, heuristics, &hint);
    tile_body.push(leaf(head, Part::Tail, outer_bind));
    let mut after = Vec::new();
    let epilogue: usize = group.members[1..].iter().map(|m| nest(loops, m.stmt).body.len()).sum();
    for member in &group.members[1..] {
        let n = nest(loops, member.stmt);
        let bind = bind_outer(&member.bind);
        if epilogue <= heuristics.inline_epilogue {
            tile_body.push(leaf(n, Part::Whole, bind));
        } else {
            let (row, col) = (Sym::new("ei"), Sym::new("ej"));
            let bind = bind
                .into_iter()
                .map(|(s, e)| (s, e.replace(ii, Expr::sym(row)).replace(ji, Expr::sym(col))))
                .collect();
            after.push(leaf(n, Part::Whole, bind));
        }
    }
    let tile_j = LoopKind::TileVector { lanes };
    let mut body = vec![Tree::Loop {
        kind: tile_j,
        axis: Axis { var: ji, extent: Expr::int(columns) },
        body: tile_body,
    }];
    if tiled.is_some() {
        body = vec![Tree::Loop { kind: LoopKind::Tile, axis: Axis { var: ii, extent: Expr::int(tile_rows) }, body }];
    }
    if !after.is_empty() {
        let vector = LoopKind::Vector { lanes, copies: 1 };
        let mut tree = vec![Tree::Loop {
            kind: vector,
            axis: Axis { var: Sym::new("ej"), extent: Expr::int(columns) },
            body: after,
        }];
        if tiled.is_some() {
            let axis = Axis { var: Sym::new("ei"), extent: Expr::int(tile_rows) };
            tree = vec![Tree::Loop { kind: LoopKind::For, axis, body: tree }];
        }
        body.extend(tree);
    }
    let all = points(&grid);
    let fair = all / (2 * i64::from(target.threads.max(1)));
    let grain = if inner_points <= fair.max(1) {
        inner_points.max(1) as u64
    } else {
        grain(all, work, target, heuristics)
    };
    KernelPlan { name: String::new(), at_load: false, grid, grain, body, locals: Vec::new() }
}

/// Rows of a tile: as many as fit, spread evenly over the tiles a known number of rows needs; fewer when the number is
/// only known at run time, where the rows that remain run one by one.
fn balanced(rows: i64, most: i64, known: bool) -> i64 {
    let most = if known { most } else { most.min(8) };
    let tiles = (rows + most - 1) / most;
    (rows + tiles - 1) / tiles.max(1)
}
