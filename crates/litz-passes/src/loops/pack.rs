//! Lays out the right operand of a product in panels as wide as a register tile: `[column tile, reduced.., column]`.
//!
//! Operands whose type has matrix instructions are grouped for them: `[column tile, reduced.., reduced / group, column,
//! group]`, where the last group is filled up with zeros.
//!
//! A panel is read front to back while the tile's accumulators stay in registers, whatever layout the operand had.
//! Constant operands are packed once, when the model is loaded; others at every call, when enough rows use them and
//! their columns are not adjacent, or their rows far apart.

use super::{Edits, Names, Settings, Uses, cse, names};
use litz_ir::graph::contiguous_strides;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Product, Stmt, Val};
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel};
use std::collections::HashMap;

/// Rows that must use an operand before packing it at every call pays: packing reads and writes it once, which costs
/// about as much as four rows of the product.
const MIN_ROWS: i64 = 16;
/// Elements between neighbours along the reduced axis from which on an operand is packed at every call although its
/// columns are adjacent: rows so far apart share few sets of the first-level cache, and none of the pages near by.
const FAR_ROWS: i64 = 256;
/// Reduced points below which products are not tiled.
const MIN_REDUCED: i64 = 4;

/// Operands of a product nest.
#[derive(Clone, Debug)]
pub struct Operands {
    /// Position of the left operand's load.
    pub left: usize,
    /// Position of the right operand's load.
    pub right: usize,
    /// Outer axes that only the left operand has.
    pub rows: Vec<Axis>,
    /// The axis that only the right operand has and that tiles' columns run along.
    pub column: Axis,
}

/// Packs operands; returns how many.
pub fn run(loops: &mut Loops, settings: &Settings) -> usize {
    let mut packed: HashMap<Buf, HashMap<Vec<Expr>, Buf>> = HashMap::new();
    let constant = super::constants(loops);
    let (uses, mut edits, mut names) = (Uses::of(loops), Edits::default(), Names::of(loops));
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        if let Some((key, panel)) = wanted(loops, at, &constant, settings) {
            let buf = *packed.entry(panel.source).or_default().entry(key).or_insert_with(|| {
                let (buf, nest) = add_panel(loops, &panel, &mut names);
                let is_constant = constant[panel.source.index()];
                let before = if is_constant { at } else { earliest(&uses, at, panel.source) };
                edits.insert(before, Stmt::Nest(nest));
                count += 1;
                buf
            });
            redirect(loops, at, &panel, buf);
        }
        // Panels of what is written again are old.
        uses.writes_of(at).iter().for_each(|buf| drop(packed.remove(buf)));
    }
    edits.apply(loops);
    count
}

/// The first place before statement `at` where the operand is there: what stands between the product and those it
/// depends on could keep them from sharing a kernel.
fn earliest(uses: &Uses, at: usize, operand: Buf) -> usize {
    uses.writers(operand).iter().rev().find(|&&writer| writer < at).map_or(0, |writer| writer + 1)
}

/// How an operand is packed.
struct Panel {
    operands: Operands,
    source: Buf,
    /// Coordinates of the element that the product reads.
    index: Vec<Expr>,
    /// Axes of the panel outside the column tile, then those inside, in storage order.
    outer: Vec<Axis>,
    inner: Vec<Axis>,
    width: i64,
    /// Neighbouring points of the last inner axis that are side by side within each column; 1: none.
    group: i64,
    name: String,
}

/// The operands of a nest that sums products of two loads, with a column axis that only the right one has.
pub fn operands(loops: &Loops, nest: &Nest) -> Option<Operands> {
    let products = nest.products()?;
    // Elements chosen by data differ from row to row: such products have no operand that rows share.
    let is_chosen = |at: usize| {
        nest.body.iter().any(|i| matches!(i.op, InstOp::Bind { sym, .. } if nest.mentions(at, sym)))
    };
    if is_chosen(products[0].left) || is_chosen(products[0].right) {
        return None;
    }
    let is_guarded = |at: usize| matches!(&nest.body[at].op, InstOp::Load { guard, .. } if !guard.is_empty());
    let is_unit = |column: &Axis| {
        nest.body.iter().any(|i| match &i.op {
            InstOp::Store { buf, index, .. } => {
                loops.place(nest, *buf, index).linear(column.var).is_some_and(|(c, _)| c.is_one())
            }
            _ => false,
        })
    };
    // A guarded operand is a padded image: it stays on the left. Of the axes only the right one has, the one with the
    // smallest steps in the result becomes the column.
    let mut best: Option<(bool, Operands)> = None;
    for Product { left, right, rows, columns } in products.into_iter().filter(|p| !is_guarded(p.right)) {
        for column in columns {
            let is_unit = is_unit(&column);
            if best.as_ref().is_none_or(|b| is_unit && !b.0) {
                best = Some((is_unit, Operands { left, right, rows: rows.clone(), column }));
            }
        }
    }
    best.map(|b| b.1)
}

/// How the right operand of the statement at a position is to be packed, and what makes two panels of a buffer the same.
fn wanted(loops: &Loops, at: usize, constant: &[bool], settings: &Settings) -> Option<(Vec<Expr>, Panel)> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let operands = operands(loops, nest)?;
    let hint = |e: Expr| loops.facts.hint(e).unwrap_or(64);
    let (buf, index) = nest.body[operands.right].op.element()?;
    let (left, left_index) = nest.body[operands.left].op.element()?;
    let [place, left_place] = [loops.place(nest, buf, index), loops.place(nest, left, left_index)];
    let has = |a: &&Axis| index.iter().any(|at| at.has_sym(a.var));
    let reduced: i64 = nest.reduced.iter().map(|a| hint(a.extent)).product();
    if reduced < MIN_REDUCED {
        return None;
    }
    let rows: i64 = nest.axes.iter().filter(|a| !has(a)).map(|a| hint(a.extent)).product();
    let constant = constant[buf.index()];
    let unit = place.linear(operands.column.var).is_some_and(|(c, _)| c.is_one());
    let mut inner: Vec<Axis> = nest.reduced.iter().filter(has).copied().collect();
    // In the order the left operand is walked: its largest steps first.
    inner.sort_by_key(|a| {
        std::cmp::Reverse(left_place.linear(a.var).map_or(0, |(c, _)| loops.facts.hint(c).unwrap_or(1 << 20)))
    });
    let group = group(loops, nest, &operands, inner.last(), settings);
    let is_far = |a: &Axis| place.linear(a.var).is_some_and(|(step, _)| hint(step).abs() >= FAR_ROWS);
    let is_near = unit && group == 1 && !nest.reduced.iter().any(is_far);
    if !constant && (rows < MIN_ROWS || is_near) {
        return None;
    }
    let outer: Vec<Axis> =
        nest.axes.iter().filter(|a| has(a) && a.var != operands.column.var).copied().collect();
    let width = i64::from(settings.tile_columns);
    let mut key = vec![operands.column.extent, Expr::int(outer.len() as i64), Expr::int(group)];
    let numbered = |at: Expr| {
        let at = at.replace(operands.column.var, Expr::named("column"));
        let axes = outer.iter().chain(&inner).enumerate();
        axes.fold(at, |at, (i, a)| at.replace(a.var, Expr::named(&format!("axis{i}"))))
    };
    key.extend(index.iter().map(|&at| numbered(at)));
    key.extend(outer.iter().chain(&inner).map(|a| a.extent));
    let name = format!("{}_pack", loops.bufs[buf].name);
    let index = index.to_vec();
    Some((key, Panel { operands, source: buf, index, outer, inner, width, group, name }))
}

/// How many points of the reduced axis `last` a matrix instruction takes together: of products that are exact and of
/// operands that both have that type, where the left one is contiguous along the axis.
fn group(loops: &Loops, nest: &Nest, operands: &Operands, last: Option<&Axis>, settings: &Settings) -> i64 {
    let operand = |at: usize| nest.body[at].op.element();
    let (Some((left, index)), Some((right, _))) = (operand(operands.left), operand(operands.right)) else {
        return 1;
    };
    let is_of = |dtype: Dtype| [left, right].iter().all(|&buf| loops.bufs[buf].dtype == dtype);
    let Some(&(_, group)) = settings.groups.iter().find(|group| is_of(group.0)) else { return 1 };
    let place = loops.place(nest, left, index);
    let is_contiguous = last.is_some_and(|a| place.linear(a.var).is_some_and(|(step, _)| step.is_one()));
    // Conversions on the way widen: their results and the sum are f32.
    let is_wide = |inst: &Inst| match inst.op {
        InstOp::Cast(_) | InstOp::Op(ScalarOp::Mul, _) | InstOp::Reduce(..) => inst.ty == Dtype::F32,
        _ => true,
    };
    let end = nest.body.iter().position(|i| matches!(i.op, InstOp::Reduce(..))).unwrap_or(0);
    if is_contiguous && nest.body[..=end].iter().all(is_wide) { i64::from(group) } else { 1 }
}

/// Extents of a panel's dimensions and the coordinates of an element, `tile` and `lane` being its column's parts, and
/// `last` the value of the last inner axis.
fn panel_index(panel: &Panel, tile: Expr, lane: Expr, last: Option<Expr>) -> (Vec<Expr>, Vec<Expr>) {
    let tiles = panel.operands.column.extent.ceildiv(panel.width);
    let mut sizes: Vec<Expr> = panel.outer.iter().map(|a| a.extent).collect();
    let mut coords: Vec<Expr> = panel.outer.iter().map(|a| Expr::sym(a.var)).collect();
    sizes.push(tiles);
    coords.push(tile);
    sizes.extend(panel.inner.iter().map(|a| a.extent));
    coords.extend(panel.inner.iter().map(|a| Expr::sym(a.var)));
    if let (Some(size), Some(coord), Some(last)) = (sizes.last_mut(), coords.last_mut(), last) {
        *size = size.ceildiv(panel.group);
        *coord = last.floordiv(panel.group);
    }
    sizes.push(Expr::int(panel.width));
    coords.push(lane);
    if let (Some(last), 2..) = (last, panel.group) {
        sizes.push(Expr::int(panel.group));
        coords.push(last.modulo(panel.group));
    }
    (sizes, coords)
}

/// Adds a buffer for the panels; returns it with the nest that fills it.
fn add_panel(loops: &mut Loops, panel: &Panel, names: &mut Names) -> (Buf, Nest) {
    let of_panel = panel.outer.iter().chain(&panel.inner);
    let facts = loops.facts.clone();
    let unused = |name: &str| names::symbol(name, &facts, of_panel.clone());
    let (tile, lane) = (unused("jo"), unused("ji"));
    let source = &loops.bufs[panel.source];
    let dtype = source.dtype;
    let column = Expr::sym(tile) * panel.width + Expr::sym(lane);
    let extent = panel.operands.column.extent;
    let whole = extent.as_int().is_some_and(|n| n % panel.width == 0);
    let mut guard = if whole { Vec::new() } else { vec![Rel::lt(column, extent)] };
    let of_source = |var, value| move |at: &Expr| at.replace(var, value);
    let mut source_index: Vec<Expr> =
        panel.index.iter().map(of_source(panel.operands.column.var, column)).collect();
    let mut axes = panel.outer.clone();
    axes.push(Axis { var: tile, extent: extent.ceildiv(panel.width) });
    axes.extend(&panel.inner);
    axes.push(Axis { var: lane, extent: Expr::int(panel.width) });
    let last = panel.inner.last().filter(|_| panel.group > 1).copied();
    let (sizes, mut index) =
        panel_index(panel, Expr::sym(tile), Expr::sym(lane), last.map(|a| Expr::sym(a.var)));
    if let Some(last) = last {
        // The copy walks groups, and the elements of a group innermost.
        let (group, element) = (unused("ko"), unused("ki"));
        let value = Expr::sym(group) * panel.group + Expr::sym(element);
        let at = axes.len() - 2;
        axes[at] = Axis { var: group, extent: last.extent.ceildiv(panel.group) };
        axes.push(Axis { var: element, extent: Expr::int(panel.group) });
        if !is_multiple(last.extent, panel.group, &loops.facts) {
            guard.push(Rel::lt(value, last.extent));
        }
        source_index = source_index.iter().map(of_source(last.var, value)).collect();
        let mut facts = loops.facts.clone();
        axes.iter().for_each(|a| facts.declare_index(a.var, a.extent));
        index.iter_mut().for_each(|at| *at = facts.simplify(at.replace(last.var, value)));
    }
    let strides = contiguous_strides(&sizes);
    let from = vec![loops.bufs[panel.source].name.clone()];
    let buf = names.add_buf(loops, &panel.name, dtype, sizes, strides);
    let name = names.statement(&loops.bufs[buf].name);
    let load = InstOp::Load { buf: panel.source, index: source_index, guard, other: Scalar::zero(dtype) };
    let store = InstOp::Store { buf, index, value: Val(0), combine: None };
    let body = vec![Inst { op: load, ty: dtype }, Inst { op: store, ty: dtype }];
    (buf, Nest { name, from, axes, reduced: Vec::new(), body })
}

fn is_multiple(extent: Expr, group: i64, facts: &Facts) -> bool {
    facts.simplify(extent.modulo(group)).is_zero()
}

/// Makes the product at position `at` read the panels.
fn redirect(loops: &mut Loops, at: usize, panel: &Panel, packed: Buf) {
    let facts: Facts = loops.facts.clone();
    let Stmt::Nest(nest) = &mut loops.stmts[at] else { return };
    let column = Expr::sym(panel.operands.column.var);
    let last = panel.inner.last().filter(|_| panel.group > 1).copied();
    let (tile, lane) = (column.floordiv(panel.width), column.modulo(panel.width));
    let (_, index) = panel_index(panel, tile, lane, last.map(|a| Expr::sym(a.var)));
    if let Some(last) = last
        && !is_multiple(last.extent, panel.group, &facts)
    {
        // The last group is whole: beyond the end both operands are zero.
        for axis in nest.reduced.iter_mut().filter(|a| a.var == last.var) {
            axis.extent = last.extent.ceildiv(panel.group) * panel.group;
        }
        if let InstOp::Load { guard, .. } = &mut nest.body[panel.operands.left].op {
            guard.push(Rel::lt(Expr::sym(last.var), last.extent));
        }
    }
    let facts = nest.facts(&facts);
    if let InstOp::Load { buf, index: old, .. } = &mut nest.body[panel.operands.right].op {
        *buf = packed;
        *old = index.into_iter().map(|at| facts.simplify(at)).collect();
    }
    cse::clean(nest);
}
