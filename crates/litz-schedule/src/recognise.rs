//! Nests that are products of matrices, or convolutions: recognised by how their operands are indexed.
//!
//! A nest `sum over k of a[.., i, k] * b[.., j, k]` where `i` does not occur in `b` and `j` not in `a`, and where
//! neighbouring `j` are neighbours in `b`, at least within a tile's width (which the packing pass sees to). Where `b`
//! keeps groups of neighbouring `k` side by side as well, matrix instructions take them.

use crate::access::{Step, step};
use crate::cost::{points, size};
use crate::{Mma, TargetInfo};
use litz_ir::loops::{InstOp, Loops, Nest};
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

/// Reduced points below which a product is left to the generic loops: the tile would spend its time starting.
const MIN_REDUCED: i64 = 4;
/// Columns below which a product is left to the generic loops. Three in a vector of 16 lanes are worth it: a convolution of 64
/// channels of 112x112 points to 3 took 1.4 ms as tiles on two threads of an Intel Xeon, 8.6 ms as sums of one point each.
const MIN_COLUMNS: i64 = 2;

/// The product a nest is, if it is one that register tiles suit.
pub fn recognise(loops: &Loops, nest: &Nest, target: &TargetInfo) -> Option<Product> {
    let products = nest.products()?;
    if points(&loops.facts, &nest.reduced) < MIN_REDUCED {
        return None;
    }
    let facts = nest.facts(&loops.facts);
    for product in products {
        let (left, right) = (product.left, product.right);
        let InstOp::Load { buf, index, guard, .. } = &nest.body[right].op else { return None };
        let place = loops.place(nest, *buf, index);
        let is_guarded = |s: Sym| guard.iter().any(|r| r.lhs.has_sym(s) || r.rhs.has_sym(s));
        let column = product.columns.iter().find_map(|x| {
            let suits = !is_guarded(x.var) && size(&loops.facts, x.extent) >= MIN_COLUMNS;
            if suits && tile_step(place, x.var, target.tile_columns(), &facts) == Step::Unit {
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
    let place = |at: usize| nest.body[at].op.element().map(|(buf, index)| loops.place(nest, buf, index));
    let (a, b) = (place(left)?, place(right)?);
    let unit = target.isa.mma().find(|m| is_of_type(loops, nest, [left, right], m))?;
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
    let contiguous = nest.reduced.iter().map(|axis| axis.var).filter(|&axis| step(a, axis) == Step::Unit);
    contiguous.into_iter().find(|&axis| is_grouped(axis))
}

/// Whether both loads are of the type an instruction takes.
pub fn is_of_type(loops: &Loops, nest: &Nest, loads: [usize; 2], unit: &Mma) -> bool {
    loads.iter().all(|&at| match nest.body[at].op {
        InstOp::Load { buf, .. } => loops.bufs[buf].dtype == unit.dtype,
        _ => false,
    })
}

/// The step of `place` along `var` inside aligned runs of `width`.
fn tile_step(place: Expr, var: Sym, width: u32, facts: &Facts) -> Step {
    if step(place, var) == Step::Unit {
        return Step::Unit;
    }
    let (tile, lane) = (Sym::new("tile"), Sym::new("lane"));
    let mut facts = facts.clone();
    facts.declare_index(lane, Expr::int(i64::from(width)));
    facts.declare_index(tile, Expr::int(1 << 40));
    let split = Expr::sym(tile) * i64::from(width) + Expr::sym(lane);
    step(facts.simplify(place.replace(var, split)), lane)
}
