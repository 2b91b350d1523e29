//! Matrix products and convolutions: recognised by how their operands are indexed, run as register tiles.
//!
//! A nest `sum over k of a[.., i, k] * b[.., j, k]` where `i` does not occur in `b` and `j` not in `a`, and where
//! neighbouring `j` are neighbours in `b`, at least within a tile's width (which the packing pass sees to). Where `b`
//! keeps groups of neighbouring `k` side by side as well, matrix instructions take them.

use crate::access::{Step, accesses, bound_indices, side_exprs, step, substitute};
use crate::axes::{Merged, merge_axes, order_axes, variable};
use crate::blocks::{Blocks, Piece, TURNS, TURNS_BEFORE_LOOPS, Tiles, nested};
use crate::cost::{points, size};
use crate::fuse::{Group, Member};
use crate::parts::{sum_in_parts, sum_of_piece};
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
fn chain(loops: &Loops, head: &Nest, heuristics: &Heuristics) -> i64 {
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
fn is_inlined(loops: &Loops, group: &Group, heuristics: &Heuristics) -> bool {
    let length: usize = group.members[1..].iter().map(|m| nest(loops, m.stmt).body.len()).sum();
    length <= heuristics.inline_epilogue
}

/// The loops of a product's sum.
struct Sum {
    /// Outermost first.
    loops: Vec<Axis>,
    /// Points that one matrix instruction takes, inside.
    together: Option<Axis>,
    /// Values of the reduced axes.
    bind: Vec<(Sym, Expr)>,
}

impl Sum {
    /// The left operand is walked in the order of its memory.
    fn new(loops: &Loops, group: &Group, product: &Product, unit: Option<(Mma, i64)>) -> Sum {
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
    fn bytes(&self, loops: &Loops, group: &Group, product: &Product, target: &TargetInfo) -> i64 {
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

/// How a product's points are cut into tiles.
#[derive(Clone)]
struct Tiling {
    /// Axes that are cut where their extent is no multiple of the tile's, with their values at a point of it.
    ends: Vec<(Axis, Expr)>,
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
    /// Lines of a tile, each of so many rows.
    tile_lines: Option<Axis>,
    /// Columns of a tile.
    tile_columns: Axis,
    /// Tiles that take turns with pieces of the sum.
    blocks: Option<Blocks>,
    /// Tiles of a block of rows that stays in the second-level cache while the columns pass by.
    in_turn: Option<Axis>,
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
    /// How many such rows of another axis a block has.
    pub lines: Option<Axis>,
}

impl RowBlock {
    /// Rows are merged where every access walks them as one, and the longest is tiled.
    pub fn new(loops: &Loops, group: &Group, rows: Vec<Axis>, target: &TargetInfo) -> RowBlock {
        RowBlock::cut(loops, group, rows, &mut |rows, is_known| {
            (balanced(rows, most_rows(target), is_known), None)
        })
    }

    /// `height` gives, for a number of rows and whether it is known, the rows of a tile, and an axis of tiles that are in
    /// one block.
    fn cut(
        loops: &Loops,
        group: &Group,
        rows: Vec<Axis>,
        height: &mut dyn FnMut(i64, bool) -> (i64, Option<Axis>),
    ) -> RowBlock {
        let rows = merge_rows(loops, group, rows);
        let rows_of = |m: &Merged| size(&loops.facts, m.axis.extent);
        let tiled = (0..rows.len()).max_by_key(|&i| (rows_of(&rows[i]), i));
        let mut block = RowBlock { value: Vec::new(), grid: Vec::new(), rows: None, lines: None };
        for (i, m) in rows.iter().enumerate() {
            let at = if Some(i) == tiled {
                let is_known = m.axis.extent.as_int().is_some();
                let (height, tiles) = height(rows_of(m), is_known);
                let inside = Axis { var: variable(loops, "ii"), extent: Expr::int(height) };
                block.rows = Some(inside);
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
                    block.grid.push(blocks);
                    Expr::sym(blocks.var) * taken + place
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

impl RowBlock {
    /// Takes as many lines of another axis as a tile has room for. The 7x7 images of ResNet-50 have 7 rows in a line: with one
    /// line at a time, the weights come too slowly for the processor.
    fn add_lines(&mut self, loops: &Loops, target: &TargetInfo) {
        let Some(height) = self.rows.and_then(|axis| axis.extent.as_int()) else { return };
        let room = most_rows(target) / height.max(1);
        let is_line = |a: &Axis| self.value.iter().any(|v| v.1 == Expr::sym(a.var));
        let Some(at) = self.grid.iter().rposition(is_line) else { return };
        let Some(lines) = self.grid[at].extent.as_int().filter(|&lines| lines.min(room) > 1) else { return };
        let axis = self.grid[at];
        let count = balanced(lines, room, true);
        let (blocks, inside, value) = cut(axis, count, variable(loops, "ib"), variable(loops, "il"));
        self.value.iter_mut().for_each(|v| v.1 = v.1.replace(axis.var, value));
        self.lines = Some(inside);
        self.grid[at] = blocks;
    }
}

/// Rows of a tile at most: accumulators, the right operand's vectors and one broadcast of the left share the registers.
pub fn most_rows(target: &TargetInfo) -> i64 {
    let vectors = i64::from(target.tile_columns() / target.lanes());
    ((i64::from(target.vector_registers) - vectors - 2) / vectors).max(1)
}

/// How much more it takes to read a byte of the left operand than one of the right: other threads wrote it last, and nothing
/// fetches it ahead. On two threads of an Intel Xeon 196 rows by 256 columns with sums of 1024 took 1.67 instead of 1.83 ms,
/// and 128 rows by 384 columns with sums of 1536 took 0.45 instead of 0.57 ms, where each thread kept its rows.
const LEFT_COST: i64 = 4;

/// The variable of the group that a product's axis is bound to.
pub fn outer_of(group: &Group, axis: Sym) -> Option<Axis> {
    let value = group.members[0].bind.iter().find(|b| b.0 == axis)?.1;
    group.outer.iter().find(|o| Some(o.var) == value.as_sym()).copied()
}

impl Tiling {
    fn new(
        loops: &Loops,
        group: &Group,
        product: &Product,
        target: &TargetInfo,
        unit: Option<(Mma, i64)>,
        heuristics: &Heuristics,
    ) -> Tiling {
        let rows = product.rows.iter().filter_map(|&r| outer_of(group, r)).collect();
        let sum = Sum::new(loops, group, product, unit);
        let step = sum.bytes(loops, group, product, target);
        let columns = outer_of(group, product.column).map_or(1, |column| size(&loops.facts, column.extent));
        let columns = (columns as u64).div_ceil(u64::from(target.tile_columns())) as i64;
        let Some((unit, _)) = unit.filter(|(m, _)| m.rows > 1) else {
            let mut in_turn = None;
            let mut rows = RowBlock::cut(loops, group, rows, &mut |rows, is_known| {
                let height = balanced(rows, most_rows(target), is_known);
                in_turn = tiles_in_turn(loops, group, product, target, (rows, height)).filter(|_| is_known);
                (height, in_turn)
            });
            rows.add_lines(loops, target);
            let mut tiling = Tiling::of_rows(group, product, rows, loops, target);
            tiling.in_turn = in_turn;
            if in_turn.is_none() {
                let turns = if is_inlined(loops, group, heuristics) { TURNS } else { TURNS_BEFORE_LOOPS };
                let part = chain(loops, nest(loops, group.members[0].stmt), heuristics);
                let piece = Piece { step, part, room: target.l1_bytes / 2 };
                tiling.add_blocks(loops, &sum, piece, turns, target);
            }
            return tiling;
        };
        // Accumulators of a matrix instruction are two by two: each operand loaded is used twice.
        let most = 2 * i64::from(unit.rows);
        let mut blocks = None;
        let rows = RowBlock::cut(loops, group, rows, &mut |rows, is_known| {
            // What is left of an unknown number takes part of the instruction.
            let height = if is_known { balanced(rows, most, true) } else { most };
            let count = (rows + height - 1) / height;
            let bytes = 4 * height * i64::from(target.tile_columns());
            // The left operand passes through the first-level cache too.
            let piece = Piece { step, part: i64::from(i32::MAX), room: target.l1_bytes / 3 };
            let tiles = Tiles { bytes, count, grid: count * columns, turns: TURNS };
            blocks = match sum.loops[..] {
                [_] => Blocks::new(loops, &sum.loops, piece, tiles, target),
                _ => None,
            };
            (height, blocks.map(|b| b.rows))
        });
        Tiling { blocks, ..Tiling::of_rows(group, product, rows, loops, target) }
    }

    /// Lets tiles along one axis of the grid take turns with pieces of the right operand, `turns` for every two pieces.
    fn add_blocks(&mut self, loops: &Loops, sum: &Sum, piece: Piece, turns: i64, target: &TargetInfo) {
        let facts = &loops.facts;
        let grid = points(facts, self.batch.iter().chain(&self.grid_rows).chain(&self.grid_column));
        let bytes = 4 * self.points(facts);
        let blocks = |axis: &Axis| {
            let tiles = Tiles { bytes, count: axis.extent.as_int()?, grid, turns };
            Blocks::new(loops, &sum.loops, piece, tiles, target)
        };
        // Of axes along which equally many tiles take turns the innermost: they lie closest together.
        let found =
            self.grid_rows.iter().enumerate().filter_map(|(at, axis)| Some((at, *axis, blocks(axis)?)));
        let found = found.max_by_key(|found| found.2.rows.extent.as_int());
        self.blocks = found.map(|found| found.2);
        let Some((at, axis, blocks)) = found else { return };
        let (groups, _, place) =
            cut(axis, size(facts, blocks.rows.extent), variable(loops, "ig"), blocks.rows.var);
        if groups.extent.is_one() {
            self.grid_rows.remove(at);
        } else {
            self.grid_rows[at] = groups;
        }
        let place = if groups.extent.is_one() { Expr::sym(blocks.rows.var) } else { place };
        let values =
            self.value.iter_mut().map(|v| &mut v.1).chain(self.ends.iter_mut().map(|end| &mut end.1));
        values.for_each(|value| *value = value.replace(axis.var, place));
    }

    /// Tiles that one point of the grid runs one after another.
    fn turns(&self) -> Option<Axis> {
        self.in_turn.or(self.blocks.map(|blocks| blocks.rows))
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
        let RowBlock { mut value, grid: grid_rows, rows: tile_rows, lines: tile_lines } = rows;
        let width = i64::from(target.tile_columns());
        let (tiles, inside, at) = cut(column, width, variable(loops, "jo"), variable(loops, "ji"));
        let (tile_columns, at, grid_column) = match column.extent.as_int() {
            Some(n) if n <= width => (Axis { extent: column.extent, ..inside }, Expr::sym(inside.var), None),
            _ => (inside, at, Some(tiles)),
        };
        value.push((column.var, at));
        let is_cut = |axis: &Axis, at: Expr, inside: Axis| {
            let whole =
                axis.extent.as_int().zip(inside.extent.as_int()).is_some_and(|(n, part)| n % part == 0);
            at != Expr::sym(inside.var) && !whole
        };
        let mut ends = Vec::new();
        for inside in tile_rows.iter().chain(&tile_lines).chain([&tile_columns]) {
            let bound = group.outer.iter().filter_map(|axis| {
                let value = value.iter().find(|v| v.0 == axis.var)?.1;
                let is_linear = value.linear(inside.var).is_some_and(|(factor, _)| factor.is_one());
                (is_linear && is_cut(axis, value, *inside)).then_some((*axis, value))
            });
            ends.extend(bound);
        }
        let is_placed = |o: &Axis| value.iter().any(|v| v.0 == o.var);
        let batch = group.outer.iter().filter(|o| !is_placed(o)).copied().collect();
        let (blocks, in_turn) = (None, None);
        Tiling {
            ends,
            value,
            batch,
            grid_rows,
            grid_column,
            column,
            tile_rows,
            tile_lines,
            tile_columns,
            blocks,
            in_turn,
        }
    }

    /// Rows of a tile.
    fn rows(&self, facts: &Facts) -> i64 {
        points(facts, self.tile_lines.iter().chain(&self.tile_rows))
    }

    /// Points of a tile.
    fn points(&self, facts: &Facts) -> i64 {
        let turns = self.turns();
        let rows = self.tile_lines.iter().chain(&self.tile_rows).chain(&turns);
        points(facts, rows.chain([&self.tile_columns]))
    }

    /// The grid, in the order in which one thread reads least: its outermost points are divided among the threads, and each of
    /// them needs the other operand again where that is too large for the second-level cache. The left operand has no more
    /// than `most` bytes.
    fn grid(&self, loops: &Loops, reduced: i64, most: i64, target: &TargetInfo) -> Vec<Axis> {
        let facts = &loops.facts;
        let row_tiles = points(facts, &self.grid_rows);
        let column_tiles = points(facts, &self.grid_column);
        let bytes = |n: i64| n.saturating_mul(reduced).saturating_mul(4);
        let rows = self.tile_lines.iter().chain(&self.tile_rows).chain(self.blocks.as_ref().map(|b| &b.rows));
        let left = bytes(row_tiles.saturating_mul(points(facts, rows))).min(most);
        let right = bytes(size(facts, self.column.extent));
        let threads = (i64::from(target.threads) / points(facts, &self.batch).max(1)).max(1);
        // The bytes that a thread reads of the operand of the outer tiles, and of that of the inner ones.
        let reads = |outer: i64, tiles: i64, inner: i64| {
            let outer_share = threads.min(tiles).max(1);
            let inner_share = (threads / outer_share).max(1);
            let again = if inner > target.l2_bytes / 2 { tiles.div_euclid(outer_share).max(1) } else { 1 };
            (outer / outer_share, (inner / inner_share).saturating_mul(again))
        };
        let (of_right, of_left) = reads(right, column_tiles, left);
        let columns_outside = of_left.saturating_mul(LEFT_COST).saturating_add(of_right);
        let (of_left, of_right) = reads(left, row_tiles, right);
        let rows_outside = of_left.saturating_mul(LEFT_COST).saturating_add(of_right);
        let mut grid = self.batch.clone();
        if columns_outside <= rows_outside && self.in_turn.is_none() {
            grid.extend(self.grid_column);
            grid.extend(&self.grid_rows);
        } else {
            grid.extend(&self.grid_rows);
            grid.extend(self.grid_column);
        }
        grid
    }

    /// The values of a member's axes at a point of a tile.
    fn bind(&self, member: &Member) -> Vec<(Sym, Expr)> {
        member.bind.iter().map(|(s, e)| (*s, substitute(*e, &self.value))).collect()
    }

    /// With loops that end where the product's axes do, for leaves that do not know: in a grouped convolution's epilogue the
    /// channel is that of the group and an offset, and what is past the end of one group is the next group's.
    fn ending_with(&self, leaves: &[Tree], facts: &Facts) -> Tiling {
        let mut ending = self.clone();
        let loops = [&mut ending.tile_rows, &mut ending.tile_lines].into_iter().flatten();
        for inside in loops.chain([&mut ending.tile_columns]) {
            for (axis, value) in &self.ends {
                let is_offset =
                    |e: Expr| e != *value && e.linear(inside.var).is_some_and(|(factor, _)| factor.is_one());
                let mut has_offset = false;
                for tree in leaves {
                    tree.each_leaf(&mut |leaf| has_offset |= leaf.bind.iter().any(|b| is_offset(b.1)));
                }
                if has_offset && value.has_sym(inside.var) {
                    let left = axis.extent - value.replace(inside.var, Expr::zero());
                    inside.extent = facts.simplify(inside.extent.min(left));
                }
            }
        }
        ending
    }

    /// The points of a tile.
    fn loops(&self, body: Vec<Tree>, rows: LoopKind, columns: LoopKind) -> Vec<Tree> {
        let line = vec![Tree::Loop { kind: columns, axis: self.tile_columns, body }];
        let wrap = |body, axis: &Axis| vec![Tree::Loop { kind: rows, axis: *axis, body }];
        self.tile_rows.iter().chain(&self.tile_lines).fold(line, wrap)
    }
}

/// As many tiles of a known number of rows as fit into half of the second-level cache, if neither operand does: then the left
/// one would be read from further away for every tile of columns. Products of 2048 rows with sums of 768 ran at about half of
/// an Intel Xeon's peak that way.
fn tiles_in_turn(
    loops: &Loops,
    group: &Group,
    product: &Product,
    target: &TargetInfo,
    (rows, height): (i64, i64),
) -> Option<Axis> {
    let facts = &loops.facts;
    let head = nest(loops, group.members[0].stmt);
    let reduced = points(facts, &head.reduced);
    let bytes = |n: i64| n.saturating_mul(reduced).saturating_mul(4);
    let cache = target.l2_bytes / 2;
    let columns = size(facts, outer_of(group, product.column)?.extent);
    // Beside the left operand are the panel of the right one that is read, and the next.
    let panels = bytes(2 * i64::from(target.tile_columns()));
    if bytes(rows).saturating_add(panels) <= cache || bytes(columns) <= cache {
        return None;
    }
    let tiles = (rows + height - 1) / height;
    let each = (tiles / i64::from(target.threads.max(1))).max(1);
    let most = (cache / bytes(height).max(1)).min(each);
    (most > 1).then(|| Axis { var: variable(loops, "im"), extent: Expr::int(balanced(tiles, most, true)) })
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
pub fn balanced(rows: i64, most: i64, known: bool) -> i64 {
    let most = if known { most } else { most.min(8) };
    let tiles = (rows + most - 1) / most;
    (rows + tiles - 1) / tiles.max(1)
}
