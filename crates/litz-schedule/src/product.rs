//! Matrix products and convolutions: recognised by how their operands are indexed, run as register tiles.
//!
//! A nest `sum over k of a[.., i, k] * b[.., j, k]` where `i` does not occur in `b` and `j` not in `a`, and where
//! neighbouring `j` are neighbours in `b`, at least within a tile's width (which the packing pass sees to). Where `b`
//! keeps groups of neighbouring `k` side by side as well, matrix instructions take them.

use crate::access::{Step, accesses, step};
use crate::axes::{order_axes, variable};
use crate::blocks::nested;
use crate::cost::{points, size};
use crate::fuse::Group;
use crate::parts::{sum_in_parts, sum_of_piece};
use crate::row_block::RowBlock;
use crate::tiling::Tiling;
use crate::tree::{cut, grain};
use crate::{Heuristics, Mma, TargetInfo, nest};
use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
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
    /// The reduced axis whose neighbours are side by side in the right operand, in groups that matrix instructions for
    /// the operands' type take.
    pub grouped: Option<Sym>,
}

/// Rows from which on a product of matrices pays: dot products in the lanes of vectors use what they load of the right
/// operand once for each row as well, but a matrix instruction takes as long for one row as for a few.
const MIN_MATRIX_ROWS: i64 = 4;
/// Tiles of so many rows take as long to load the right operand's two vectors, from the second-level cache at best, as to
/// multiply them: adding up parts costs them nothing.
const FEW_ROWS: i64 = 4;
/// Terms below which a part spends its time starting.
const LEAST_PART: i64 = 16;
/// Reduced points below which a product is left to the generic loops: the tile would spend its time starting.
const MIN_REDUCED: i64 = 4;

/// The product a nest is, if it is one that register tiles suit.
pub fn recognise(loops: &Loops, nest: &Nest, target: &TargetInfo) -> Option<Product> {
    let products = nest.products()?;
    if points(&loops.facts, &nest.reduced) < MIN_REDUCED {
        return None;
    }
    let facts = nest.facts(&loops.facts);
    for product in products {
        let (left, right) = (product.left, product.right);
        let InstOp::Load { index, guard, .. } = &nest.body[right].op else { return None };
        let is_guarded = |s: Sym| guard.iter().any(|r| r.lhs.has_sym(s) || r.rhs.has_sym(s));
        let column = product.columns.iter().find_map(|x| {
            let suits = !is_guarded(x.var) && size(&loops.facts, x.extent) >= i64::from(target.lanes()) / 2;
            if suits && tile_step(*index, x.var, target.tile_columns(), &facts) == Step::Unit {
                return Some((x.var, None));
            }
            let grouped =
                suits.then(|| grouped(loops, nest, [left, right], x.var, target, &facts)).flatten()?;
            Some((x.var, Some(grouped)))
        });
        let Some((column, grouped)) = column else { continue };
        let rows = product.rows.iter().map(|x| x.var).collect();
        return Some(Product { rows, column, left, right, grouped });
    }
    None
}

/// The reduced axis of which each column within a tile holds a group of neighbours, as large as the matrix instructions
/// for the operands' type want it. The left operand is contiguous along it.
fn grouped(
    loops: &Loops,
    nest: &Nest,
    [left, right]: [usize; 2],
    column: Sym,
    target: &TargetInfo,
    facts: &Facts,
) -> Option<Sym> {
    let (InstOp::Load { index: a, .. }, InstOp::Load { index: b, .. }) =
        (&nest.body[left].op, &nest.body[right].op)
    else {
        return None;
    };
    let unit = target.mma.iter().find(|m| is_of_type(loops, nest, [left, right], m))?;
    let (width, group) = (i64::from(target.tile_columns()), i64::from(unit.group));
    let [tile, lane, number, element] = ["tile", "lane", "group", "element"].map(Sym::new);
    let mut facts = facts.clone();
    facts.declare_index(lane, Expr::int(width));
    facts.declare_index(element, Expr::int(group));
    facts.declare_index(tile, Expr::int(1 << 40));
    facts.declare_index(number, Expr::int(1 << 40));
    let b = b.replace(column, Expr::sym(tile) * width + Expr::sym(lane));
    let is_grouped = |axis: Sym| {
        let split = facts.simplify(b.replace(axis, Expr::sym(number) * group + Expr::sym(element)));
        step(split, element) == Step::Unit && step(split, lane) == Step::Far(Expr::int(group))
    };
    let contiguous = nest.reduced.iter().map(|axis| axis.var).filter(|&axis| step(*a, axis) == Step::Unit);
    contiguous.into_iter().find(|&axis| is_grouped(axis))
}

/// Whether both loads are of the type an instruction takes.
fn is_of_type(loops: &Loops, nest: &Nest, loads: [usize; 2], unit: &Mma) -> bool {
    loads.iter().all(|&at| match nest.body[at].op {
        InstOp::Load { buf, .. } => loops.bufs[buf].dtype == unit.dtype,
        _ => false,
    })
}

/// The matrix instruction that suits a product of which `terms` may be added up one after another, and how many reduced
/// points it is given at a time.
fn instruction(
    loops: &Loops,
    head: &Nest,
    product: &Product,
    target: &TargetInfo,
    terms: i64,
) -> Option<(Mma, i64)> {
    let facts = &loops.facts;
    let depth = head.reduced.iter().find(|a| Some(a.var) == product.grouped)?;
    let InstOp::Load { index: left, guard, .. } = &head.body[product.left].op else { return None };
    let rows = points(facts, head.axes.iter().filter(|a| product.rows.contains(&a.var)));
    let is_regular = |row: &Sym| matches!(step(*left, *row), Step::Unit | Step::Far(_));
    let has_rows = guard.is_empty() && rows >= MIN_MATRIX_ROWS && product.rows.iter().all(is_regular);
    let is_short = points(facts, &head.reduced) <= 2 * terms;
    let divides = |d: &i64| facts.simplify(depth.extent.modulo(*d)).is_zero();
    target
        .mma
        .iter()
        .filter(|m| is_of_type(loops, head, [product.left, product.right], m))
        .filter(|m| m.rows == 1 || (has_rows && is_short))
        .find_map(|m| {
            let (most, group) = (i64::from(m.depth), i64::from(m.group));
            // At least half of what it can take.
            let mut depths = (1..=most / group).rev().map(|n| n * group).filter(|d| d * 2 >= most);
            depths.find(divides).map(|d| (*m, d))
        })
}

/// Whether a product is rounded to a half type.
fn is_rounded(loops: &Loops, head: &Nest) -> bool {
    let is_half = |a: crate::access::Access| {
        let dtype = loops.bufs[a.buf].dtype;
        dtype.compute() != dtype
    };
    accesses(head).into_iter().filter(|a| a.store).all(is_half)
}

/// Terms of a product that are added up one after another.
pub fn chain(loops: &Loops, head: &Nest, heuristics: &Heuristics) -> i64 {
    if is_rounded(loops, head) { heuristics.partial_half } else { heuristics.partial_sum }
}

/// The length of parts that gives a sum of `terms` the smallest rounding error, with which the number of parts grows as
/// well as their length.
fn best_part(terms: i64) -> i64 {
    terms.isqrt().max(LEAST_PART)
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

/// Plans the kernel of a product and its epilogue. Also gives the loop in which its local buffers live, if not for a whole
/// point of the grid.
pub fn plan(
    loops: &Loops,
    group: &Group,
    product: &Product,
    target: &TargetInfo,
    heuristics: &Heuristics,
) -> (KernelPlan, Option<Sym>) {
    let facts = &loops.facts;
    let head = nest(loops, group.members[0].stmt);
    let unit = instruction(loops, head, product, target, chain(loops, head, heuristics));
    let tiling = Tiling::new(loops, group, product, target, unit, heuristics);
    let reduced = points(facts, &head.reduced);
    let grid = tiling.grid(loops, reduced, left_bytes(loops, head, product), target);
    let grain = grain(points(facts, &grid), tiling.points(facts) * reduced, target, heuristics);

    let mut body = tile_trees(loops, group, product, &tiling, unit, target, heuristics);
    if let Some(axis) = tiling.in_turn {
        body = nested(body, &[axis]);
    }
    let plan = KernelPlan { name: String::new(), at_load: false, grid, grain, body, locals: Vec::new() };
    (plan, tiling.turns().map(|axis| axis.var))
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
    let head = nest(loops, group.members[0].stmt);
    let unit = instruction(loops, head, product, target, chain(loops, head, heuristics));
    let tiling = Tiling::of_rows(group, product, rows, loops, target);
    let trees = tile_trees(loops, group, product, &tiling, unit, target, heuristics);
    let own = tiling.batch.iter().filter(|a| !around.contains(a)).chain(&tiling.grid_column);
    let own: Vec<Axis> = own.copied().collect();
    nested(trees, &own)
}

/// What runs for one tile: its sums, and what follows them.
fn tile_trees(
    loops: &Loops,
    group: &Group,
    product: &Product,
    tiling: &Tiling,
    unit: Option<(Mma, i64)>,
    target: &TargetInfo,
    heuristics: &Heuristics,
) -> Vec<Tree> {
    let facts = &loops.facts;
    let head = nest(loops, group.members[0].stmt);
    let outer_bind = tiling.bind(&group.members[0]);
    let sum = Sum::new(loops, group, product, unit);
    let bind = outer_bind.iter().chain(&sum.bind).copied().collect();
    let mut body = vec![leaf(head, Part::Body, bind)];
    let mut terms = chain(loops, head, heuristics);
    if unit.is_none() && tiling.rows(facts) <= FEW_ROWS && !is_rounded(loops, head) {
        terms = terms.min(best_part(points(facts, &head.reduced)));
    }
    if let Some(axis) = sum.together {
        body = vec![Tree::Loop { kind: LoopKind::Mma, axis, body }];
        terms /= size(facts, axis.extent);
    }
    let lanes = target.lanes();
    let is_matrix = unit.is_some_and(|(m, _)| m.rows > 1);
    let in_tile = |trees: Vec<Tree>| tiling.loops(trees, LoopKind::Tile, LoopKind::TileVector { lanes });
    if is_matrix {
        body = tiling.loops(body, LoopKind::Mma, LoopKind::Mma);
    }
    // What tiles add up in turns, and what one does alone before its tail.
    let (mut apart, mut tile) = (Vec::new(), Vec::new());
    match tiling.blocks {
        Some(blocks) if is_matrix => apart = blocks.around(body, &sum.loops, loops, nested),
        Some(blocks) => {
            let piece = |body, axes: &[Axis]| in_tile(sum_of_piece(body, axes, loops, terms));
            apart = blocks.around(body, &sum.loops, loops, piece);
        }
        None => tile = sum_in_parts(body, &sum.loops, loops, terms),
    }
    let tail = leaf(head, Part::Tail, outer_bind);
    let mut epilogue: Vec<Tree> =
        group.members[1..].iter().map(|m| leaf(nest(loops, m.stmt), Part::Whole, tiling.bind(m))).collect();
    let for_each = |trees: Vec<Tree>, copies| {
        tiling.ending_with(&trees, facts).loops(trees, LoopKind::For, LoopKind::Vector { lanes, copies })
    };
    let mut end = if is_matrix {
        epilogue.insert(0, tail);
        tile.extend(for_each(epilogue, 1));
        tile
    } else if is_inlined(loops, group, heuristics) {
        tile.push(tail);
        tile.extend(epilogue);
        in_tile(tile)
    } else {
        tile.push(tail);
        let mut body = in_tile(tile);
        // The vectors of a row take turns: what is long is a chain of dependent instructions.
        body.extend(for_each(epilogue, target.tile_columns() / lanes));
        body
    };
    if let Some(blocks) = tiling.blocks {
        end = blocks.turns(end);
    }
    apart.extend(end);
    apart
}

/// Whether what follows a product's sums is written out for every vector of a tile.
pub fn is_inlined(loops: &Loops, group: &Group, heuristics: &Heuristics) -> bool {
    let length: usize = group.members[1..].iter().map(|m| nest(loops, m.stmt).body.len()).sum();
    length <= heuristics.inline_epilogue
}

/// The loops of a product's sum.
pub struct Sum {
    /// Outermost first.
    pub loops: Vec<Axis>,
    /// Points that one matrix instruction takes, inside.
    together: Option<Axis>,
    /// Values of the reduced axes.
    bind: Vec<(Sym, Expr)>,
}

impl Sum {
    /// The left operand is walked in the order of its memory.
    pub fn new(loops: &Loops, group: &Group, product: &Product, unit: Option<(Mma, i64)>) -> Sum {
        let head = nest(loops, group.members[0].stmt);
        let mut axes = head.reduced.clone();
        let left: Vec<Expr> =
            accesses(head).into_iter().filter(|a| a.at == product.left).map(|a| a.index).collect();
        order_axes(&mut axes, &left, &group.facts(&loops.facts));
        let mut sum = Sum { loops: Vec::new(), together: None, bind: Vec::new() };
        for (i, a) in axes.iter().enumerate() {
            let var = variable(loops, &format!("k{i}"));
            let mut axis = Axis { var, extent: a.extent };
            let mut value = Expr::sym(var);
            if let (Some((_, depth)), true) = (unit, Some(a.var) == product.grouped) {
                let (outside, inside, at) = cut(axis, depth, var, variable(loops, "kk"));
                (axis, value, sum.together) = (outside, at, Some(inside));
            }
            sum.bind.push((a.var, value));
            sum.loops.push(axis);
        }
        sum
    }

    /// Bytes of the right operand that a tile of columns takes at each point of the loops.
    pub fn bytes(&self, loops: &Loops, group: &Group, product: &Product, target: &TargetInfo) -> i64 {
        let InstOp::Load { buf, .. } = nest(loops, group.members[0].stmt).body[product.right].op else {
            return 0;
        };
        let together = self.together.map_or(1, |axis| size(&loops.facts, axis.extent));
        i64::from(target.tile_columns()) * together * loops.bufs[buf].dtype.size() as i64
    }
}

/// Bytes of the left operand's buffer: rows of a convolution have most of their elements in common.
fn left_bytes(loops: &Loops, head: &Nest, product: &Product) -> i64 {
    let InstOp::Load { buf, .. } = head.body[product.left].op else { return i64::MAX };
    let data = &loops.bufs[buf];
    loops.facts.hint(data.span()).map_or(i64::MAX, |n| n.saturating_mul(data.dtype.size() as i64))
}

fn leaf(nest: &Nest, part: Part, bind: Vec<(Sym, Expr)>) -> Tree {
    Tree::Leaf(Leaf { nest: nest.name.clone(), part, bind })
}
