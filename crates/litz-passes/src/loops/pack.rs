//! Lays out the right operand of a product in panels as wide as a register tile: `[column tile, reduced.., column]`.
//!
//! Operands whose type has matrix instructions are grouped for them: `[column tile, reduced.., reduced / group, column,
//! group]`, where the last group is filled up with zeros.
//!
//! A panel is read front to back while the tile's accumulators stay in registers, whatever layout the operand had.
//! Constant operands are packed once, when the model is loaded; others at every call, when enough rows use them and
//! their columns are not adjacent, or their rows far apart.
//!
//! The left operand is laid out like this, too, where its rows are adjacent and its columns far apart, as in `a^T b`: each of
//! them then is in a line of its own, few of which the first-level cache holds at such distances. A product of 512^3
//! numbers went from 74 % of the multiply-adds that a core can do to all of them (AMD Zen 3).

use super::{Cx, Edits, Names, cse, names, words};
use litz_analysis::constants::Constants;
use litz_analysis::contraction::{Columns, MIN_TERMS};
use litz_analysis::{Contraction, Uses};
use litz_ir::Scalar;
use litz_ir::graph::TensorType;
use litz_ir::loops::{Axis, Buf, BufData, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::HashMap;

/// Rows that must use an operand before packing it at every call pays: packing reads and writes it once, which costs
/// about as much as four rows of the product.
const MIN_ROWS: i64 = 16;
/// Elements between neighbours along the reduced axis from which on an operand is packed at every call although its
/// columns are adjacent: rows so far apart share few sets of the first-level cache, and none of the pages near by.
const FAR_ROWS: i64 = 256;

/// Whether a target's products read panels.
pub fn wants(target: &Target) -> bool {
    target.tile_columns().is_some()
}

/// Packs operands; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let mut packed: HashMap<Buf, HashMap<Vec<Expr>, Buf>> = HashMap::new();
    let (uses, mut edits, mut names) = (Uses::of(loops), Edits::default(), Names::of(loops));
    let constants = Constants::of(loops, &[], &uses);
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        for wanted in [wanted_right, wanted_left] {
            let Some((key, panel)) = wanted(loops, at, &constants, cx) else { continue };
            let buf = *packed.entry(panel.source).or_default().entry(key).or_insert_with(|| {
                let (buf, nest) = add_panel(loops, &panel, &mut names);
                let is_constant = constants.is_buffer(panel.source);
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
    /// Position of the load that goes through the operand, and of that through the other one.
    load: usize,
    other: usize,
    /// The axis whose points are side by side.
    column: Axis,
    source: Buf,
    /// Coordinates of the element that the product reads.
    index: Vec<Expr>,
    /// Axes of the panel outside the column tile, then those inside, in storage order.
    outer: Vec<Axis>,
    inner: Vec<Axis>,
    width: i64,
    /// Neighbouring points of the last inner axis that are side by side within each column; 1: none.
    group: i64,
}

/// How the right operand of the statement at a position is to be packed, and what makes two panels of a buffer the same.
fn wanted_right(loops: &Loops, at: usize, constants: &Constants, cx: &Cx<'_>) -> Option<(Vec<Expr>, Panel)> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let tile = cx.target.tile_columns()?;
    let columns = Contraction::by_result(loops, nest)?;
    let Contraction { lhs, rhs, .. } = columns.contraction;
    let hint = |e: Expr| loops.facts.size_hint(e);
    let (buf, index) = nest.body[rhs].op.element()?;
    let (left, left_index) = nest.body[lhs].op.element()?;
    let [place, left_place] = [loops.place(nest, buf, index), loops.place(nest, left, left_index)];
    let has = |a: &&Axis| index.iter().any(|at| at.has_sym(a.var));
    let reduced: i64 = nest.reduced.iter().map(|a| hint(a.extent)).product();
    if reduced < MIN_TERMS || words::is_of_words(loops, nest, cx.target) {
        return None;
    }
    let rows: i64 = nest.axes.iter().filter(|a| !has(a)).map(|a| hint(a.extent)).product();
    let constant = constants.is_buffer(buf);
    let unit = place.linear(columns.column.var).is_some_and(|(c, _)| c.is_one());
    let mut inner: Vec<Axis> = nest.reduced.iter().filter(has).copied().collect();
    // In the order the left operand is walked: its largest steps first.
    inner.sort_by_key(|a| {
        std::cmp::Reverse(left_place.linear(a.var).map_or(0, |(c, _)| loops.facts.hint(c).unwrap_or(1 << 20)))
    });
    let group = group(loops, nest, &columns, inner.last(), cx);
    let is_far = |a: &Axis| place.linear(a.var).is_some_and(|(step, _)| hint(step).abs() >= FAR_ROWS);
    let is_near = unit && group == 1 && !nest.reduced.iter().any(is_far);
    if !constant && (rows < MIN_ROWS || is_near)
        || group == 1 && is_packed(loops, nest, place, &columns, inner.last(), tile)
    {
        return None;
    }
    let outer: Vec<Axis> =
        nest.axes.iter().filter(|a| has(a) && a.var != columns.column.var).copied().collect();
    let width = width(columns.column, tile, group);
    let index = index.to_vec();
    Some(keyed(Panel {
        load: rhs,
        other: lhs,
        column: columns.column,
        source: buf,
        index,
        outer,
        inner,
        width,
        group,
    }))
}

/// How the left operand is to be packed: one whose rows are side by side, and whose columns are far apart.
fn wanted_left(loops: &Loops, at: usize, _: &Constants, cx: &Cx<'_>) -> Option<(Vec<Expr>, Panel)> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let tile = cx.target.tile_columns()?;
    let Contraction { lhs, rhs, m, .. } = Contraction::by_result(loops, nest)?.contraction;
    let hint = |e: Expr| loops.facts.size_hint(e);
    let (source, index) = nest.body[lhs].op.element()?;
    let place = loops.place(nest, source, index);
    let step = |a: &Axis| place.linear(a.var).map(|(step, _)| step);
    let column = *m.iter().find(|a| step(a).is_some_and(|step| step.is_one()))?;
    let has = |a: &&Axis| index.iter().any(|at| at.has_sym(a.var));
    let points = |axes: &mut dyn Iterator<Item = &Axis>| axes.map(|a| hint(a.extent)).product::<i64>();
    let inner: Vec<Axis> = nest.reduced.iter().filter(has).copied().collect();
    let outer: Vec<Axis> = nest.axes.iter().filter(|a| has(a) && a.var != column.var).copied().collect();
    let is_far = |a: &Axis| step(a).is_some_and(|step| hint(step).abs() >= FAR_ROWS);
    // The windows of a convolution have elements many times.
    let held: i64 = loops.bufs[source].sizes.iter().map(|&size| hint(size)).product();
    let is_once = points(&mut outer.iter().chain(&inner).chain([&column])) <= held;
    let uses = points(&mut nest.axes.iter().filter(|a| !has(a)));
    let is_short = points(&mut nest.reduced.iter()) < MIN_TERMS || uses < MIN_ROWS;
    if is_short || !inner.iter().any(is_far) || !is_once || words::is_of_words(loops, nest, cx.target) {
        return None;
    }
    let (index, width) = (index.to_vec(), width(column, tile, 1));
    Some(keyed(Panel { load: lhs, other: rhs, column, source, index, outer, inner, width, group: 1 }))
}

/// Columns of a panel. One of few columns is no wider than the vector that holds them: more of it is in a line of the cache.
fn width(column: Axis, tile: u32, group: i64) -> i64 {
    let few = column.extent.as_int().and_then(|n| u32::try_from(n).ok()).filter(|_| group == 1);
    tile.min(few.map_or(u32::MAX, u32::next_power_of_two)).into()
}

/// A panel behind what makes two panels of a buffer the same.
fn keyed(panel: Panel) -> (Vec<Expr>, Panel) {
    let mut key = vec![panel.column.extent, Expr::int(panel.outer.len() as i64), Expr::int(panel.group)];
    let numbered = |at: Expr| {
        let at = at.replace(panel.column.var, Expr::named("column"));
        let axes = panel.outer.iter().chain(&panel.inner).enumerate();
        axes.fold(at, |at, (i, a)| at.replace(a.var, Expr::named(&format!("axis{i}"))))
    };
    key.extend(panel.index.iter().map(|&at| numbered(at)));
    key.extend(panel.outer.iter().chain(&panel.inner).map(|a| a.extent));
    (key, panel)
}

/// Whether an operand has the columns of a tile side by side, and those of the next point of the reduced axis `last` behind them:
/// files have weights in panels, too.
fn is_packed(
    loops: &Loops,
    nest: &Nest,
    place: Expr,
    columns: &Columns,
    last: Option<&Axis>,
    width: u32,
) -> bool {
    let width = i64::from(width);
    let (Some(last), Some(extent)) = (last, columns.column.extent.as_int()) else { return false };
    let (tile, lane) = (Sym::new("tile"), Sym::new("lane"));
    let mut facts = nest.facts(&loops.facts);
    facts.declare_index(lane, Expr::int(width));
    facts.declare_index(tile, Expr::int(extent / width));
    let split = place.replace(columns.column.var, Expr::sym(tile) * width + Expr::sym(lane));
    let split = facts.simplify(split);
    let step = |var: Sym| split.linear(var).and_then(|(step, _)| step.as_int());
    // Where a single tile has all columns, rows of the operand are such panels.
    extent > width && extent % width == 0 && step(lane) == Some(1) && step(last.var) == Some(width)
}

/// How many points of the reduced axis `last` a matrix instruction takes together, where the left operand is contiguous along
/// it.
fn group(loops: &Loops, nest: &Nest, columns: &Columns, last: Option<&Axis>, cx: &Cx<'_>) -> i64 {
    let operand = |at: usize| nest.body[at].op.element();
    let (Some((left, index)), Some((right, _))) =
        (operand(columns.contraction.lhs), operand(columns.contraction.rhs))
    else {
        return 1;
    };
    let dtype = loops.bufs[right].dtype;
    let by = cx.target.mma(dtype).filter(|by| columns.contraction.is_of(loops, nest, by));
    let Some(by) = by else { return 1 };
    let place = loops.place(nest, left, index);
    let is_contiguous = last.is_some_and(|a| place.linear(a.var).is_some_and(|(step, _)| step.is_one()));
    if is_contiguous { i64::from(by.group) } else { 1 }
}

/// Extents of a panel's dimensions and the coordinates of an element, `tile` and `lane` being its column's parts, and
/// `last` the value of the last inner axis.
fn panel_index(panel: &Panel, tile: Expr, lane: Expr, last: Option<Expr>) -> (Vec<Expr>, Vec<Expr>) {
    let tiles = panel.column.extent.ceildiv(panel.width);
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
    let extent = panel.column.extent;
    let whole = extent.as_int().is_some_and(|n| n % panel.width == 0);
    let mut guard = if whole { Vec::new() } else { vec![Rel::lt(column, extent)] };
    let of_source = |var, value| move |at: &Expr| at.replace(var, value);
    let mut source_index: Vec<Expr> = panel.index.iter().map(of_source(panel.column.var, column)).collect();
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
    let BufData { name, device, .. } = &loops.bufs[panel.source];
    let (from, ty) = (vec![name.clone()], TensorType::contiguous(dtype, sizes).on(*device));
    let buf = names.add_buf(loops, &format!("{}_pack", from[0]), ty);
    let name = names.statement(&loops.bufs[buf].name);
    let load = InstOp::Load { buf: panel.source, index: source_index, guard, other: Scalar::zero(dtype) };
    let store = InstOp::Store { buf, index, value: Val(0), combine: None };
    let body = vec![Inst { op: load, ty: dtype }, Inst { op: store, ty: dtype }];
    (buf, Nest::new(name, from, axes, body))
}

fn is_multiple(extent: Expr, group: i64, facts: &Facts) -> bool {
    facts.simplify(extent.modulo(group)).is_zero()
}

/// Makes the product at position `at` read the panels.
fn redirect(loops: &mut Loops, at: usize, panel: &Panel, packed: Buf) {
    let facts: Facts = loops.facts.clone();
    let Stmt::Nest(nest) = &mut loops.stmts[at] else { return };
    let column = Expr::sym(panel.column.var);
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
        if let InstOp::Load { guard, .. } = &mut nest.body[panel.other].op {
            guard.push(Rel::lt(Expr::sym(last.var), last.extent));
        }
    }
    let facts = nest.facts(&facts);
    if let InstOp::Load { buf, index: old, .. } = &mut nest.body[panel.load].op {
        *buf = packed;
        *old = index.into_iter().map(|at| facts.simplify(at)).collect();
    }
    cse::clean(nest);
}
