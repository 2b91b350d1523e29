//! Makes one axis of several that are the rows of a product, where a tile of a GPU would end with each of them.
//!
//! A tile goes along one axis. Of 16 sequences with 197 rows each tiles of 128 rows take 2 for each sequence, a quarter of which is past the end,
//! and images of 7x7 points have 7 rows for each. With one axis of 16*197 rows there are 25 tiles instead of 32:
//!
//! ```text
//! y[i, j, n] = sum over k of x[i, j, k] * w[n, k]       for i in 16, j in 197
//!   =>
//! y[floordiv(m, 197), mod(m, 197), n] = sum over k of x[floordiv(m, 197), mod(m, 197), k] * w[n, k]       for m in 3152
//! ```
//!
//! What goes through these rows one by one as well, such as what is added to the product, gets the axis, too, so that it can be computed
//! where the sums are. The pass `merge_dims` makes one dimension of two that all walk as digits.

use super::{Cx, names};
use litz_analysis::access::accesses;
use litz_analysis::{Contraction, Uses};
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Sym};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Rows of which a tile has whole ones.
const TILE: i64 = 64;

/// Rows, columns and terms of a product, by hints, below which it has no tiles.
const LEAST: i64 = 16;

/// Whether a target sums tiles that go along one axis.
pub fn wants(target: &Target) -> bool {
    target.gpu().is_some()
}

/// Merges axes; returns in how many nests.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let uses = Uses::of(loops);
    let mut chosen: HashMap<usize, Vec<Axis>> = HashMap::new();
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some((rows, is_gathered)) = rows_of_product(loops, nest) else { continue };
        if let Some(more) = with_neighbours(loops, &uses, at, rows, is_gathered) {
            chosen.extend(more);
        }
    }
    for at in 0..loops.stmts.len() {
        for (user, rows) in readers_by_digits(loops, &uses, at) {
            chosen.entry(user).or_insert(rows);
        }
    }
    let Loops { stmts, facts, .. } = loops;
    for (&at, rows) in &chosen {
        if let Stmt::Nest(nest) = &mut stmts[at] {
            merge(nest, rows, facts);
        }
    }
    chosen.len()
}

/// The rows of a product, outermost first, if tiles along the innermost go past its end, or its operand has them in one dimension or in windows.
/// Says whether it has.
fn rows_of_product(loops: &Loops, nest: &Nest) -> Option<(Vec<Axis>, bool)> {
    let both = Contraction::of(loops, nest)?;
    both.into_iter().filter(|of| of.is_plain).find_map(|of| {
        let (buf, index) =
            accesses(nest).find(|access| access.store).map(|store| (store.buf, store.index))?;
        let place = loops.place(nest, buf, index);
        let step = |axis: &Axis| place.linear(axis.var).and_then(|(step, _)| step.as_int());
        let mut rows: Vec<Axis> = of.m.iter().filter(|axis| !axis.extent.is_one()).copied().collect();
        rows.sort_by_key(|axis| Reverse(step(axis)));
        let last = rows.last()?.extent.as_int()?;
        let is_known = rows[1..].iter().all(|axis| axis.extent.as_int().is_some_and(|extent| extent > 0));
        let points = |axes: &[Axis]| {
            axes.iter().map(|axis| loops.facts.size_hint(axis.extent)).fold(1, i64::saturating_mul)
        };
        let is_large = [&rows, &of.n, &nest.reduced].iter().all(|axes| points(axes) >= LEAST);
        let is_gathered = !is_box(&nest.body[of.lhs], &rows);
        let is_worth_it = is_large && (last % TILE != 0 || is_gathered);
        let suits = stores_walk_as_one(loops, nest, &rows) && is_free(nest, &rows, Some(of.lhs));
        (rows.len() > 1 && is_known && is_worth_it && suits).then_some((rows, is_gathered))
    })
}

/// Whether a load goes along each of the axes in a dimension of its own.
fn is_box(load: &Inst, rows: &[Axis]) -> bool {
    load.op.element().is_some_and(|(_, index)| dims_along(index, rows).is_some())
}

/// The product and all nests that go through the rows it stores, and so on, each with its own axes of these. None where one that would be computed
/// with the product needs its axes apart.
fn with_neighbours(
    loops: &Loops,
    uses: &Uses,
    at: usize,
    rows: Vec<Axis>,
    is_gathered: bool,
) -> Option<HashMap<usize, Vec<Axis>>> {
    let mut found = HashMap::from([(at, rows)]);
    let mut next = vec![at];
    while let Some(of) = next.pop() {
        let Stmt::Nest(nest) = &loops.stmts[of] else { continue };
        for access in accesses(nest) {
            let Some(dims) = dims_along(access.index, &found[&of]) else { continue };
            if !loops.is_internal(access.buf) {
                continue;
            }
            let users = uses.readers(access.buf).iter().chain(uses.writers(access.buf));
            for &user in users {
                let Stmt::Nest(other) = &loops.stmts[user] else { continue };
                if found.contains_key(&user) {
                    continue;
                }
                match rows_along(loops, other, access.buf, &dims) {
                    Some(rows) => {
                        found.insert(user, rows);
                        next.push(user);
                    }
                    // It reads what the product stores, at its points. Windows are worth more than what it reads again.
                    None if !is_gathered && of == at && access.store && is_pointwise(other) => return None,
                    None => {}
                }
            }
        }
    }
    Some(found)
}

/// The nests that compute with what a product stores point by point and go through its rows, of which there is one axis, by several of their own, and those: where a
/// model has it as a matrix, and what is computed of it with more dimensions. `l[128*i + j, k]` for `i in 16, j in 128` is `l[m, k]` for `m in 2048`.
fn readers_by_digits(loops: &Loops, uses: &Uses, at: usize) -> Vec<(usize, Vec<Axis>)> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return Vec::new() };
    let Some(store) = accesses(nest).find(|access| access.store) else { return Vec::new() };
    let is_row = |of: Contraction| of.is_plain.then_some(of.m).filter(|rows| rows.len() == 1);
    let row = Contraction::of(loops, nest).and_then(|both| both.into_iter().find_map(is_row));
    let dim = row.and_then(|rows| dims_along(store.index, &rows));
    let (Some(dims), true) = (dim, loops.is_internal(store.buf)) else { return Vec::new() };
    let (dim, size) = (dims[0], loops.bufs[store.buf].sizes[dims[0]]);
    let rows = |&user: &usize| {
        let Stmt::Nest(other) = &loops.stmts[user] else { return None };
        let mut found = accesses(other).filter(|access| access.buf == store.buf);
        let rows = digits_in(other, found.next()?.index[dim], size)?;
        let is_same = found.all(|access| digits_in(other, access.index[dim], size).as_ref() == Some(&rows));
        let suits =
            is_pointwise(other) && stores_walk_as_one(loops, other, &rows) && is_free(other, &rows, None);
        (is_same && suits).then_some((user, rows))
    };
    uses.readers(store.buf).iter().filter_map(rows).collect()
}

/// The axes of a nest that are the digits of a coordinate, outermost first: at least two, which take each value below `size` once.
fn digits_in(nest: &Nest, coord: Expr, size: Expr) -> Option<Vec<Axis>> {
    let step = |axis: &Axis| coord.linear(axis.var).and_then(|(step, _)| step.as_int());
    let mut rows: Vec<Axis> = nest.axes.iter().filter(|axis| coord.has_sym(axis.var)).copied().collect();
    rows.sort_by_key(|axis| Reverse(step(axis)));
    let (mut unit, mut sum) = (Expr::one(), Expr::zero());
    for axis in rows.iter().rev() {
        sum = sum + Expr::sym(axis.var) * unit;
        unit = unit * axis.extent;
    }
    (rows.len() > 1 && unit == size && sum == coord).then_some(rows)
}

fn is_pointwise(nest: &Nest) -> bool {
    !nest.accumulates()
}

/// The dimensions that rows go along, one each. None where they do otherwise.
fn dims_along(index: &[Expr], rows: &[Axis]) -> Option<Vec<usize>> {
    rows.iter().map(|row| index.iter().position(|at| at.as_sym() == Some(row.var))).collect()
}

/// The axes of a nest along these dimensions of a buffer, if all its accesses have the same, it stores what they walk as one axis, and
/// nothing else depends on them.
fn rows_along(loops: &Loops, nest: &Nest, buf: Buf, dims: &[usize]) -> Option<Vec<Axis>> {
    let sizes = &loops.bufs[buf].sizes;
    let mut found: Option<Vec<Axis>> = None;
    for access in accesses(nest).filter(|access| access.buf == buf) {
        let axis = |&dim: &usize| {
            let var = access.index[dim].as_sym()?;
            nest.axes.iter().find(|axis| axis.var == var && axis.extent == sizes[dim]).copied()
        };
        let rows: Vec<Axis> = dims.iter().map(axis).collect::<Option<_>>()?;
        if found.as_ref().is_some_and(|found| *found != rows) {
            return None;
        }
        found = Some(rows);
    }
    let rows = found?;
    let is_apart = rows.iter().enumerate().all(|(i, row)| rows[..i].iter().all(|other| other.var != row.var));
    // Another product has rows of its own.
    let is_of_rows = |of: &Contraction| of.is_plain && !of.m.is_empty();
    let is_product = Contraction::of(loops, nest).is_some_and(|both| both.iter().all(is_of_rows));
    let suits =
        is_apart && !is_product && stores_walk_as_one(loops, nest, &rows) && is_free(nest, &rows, None);
    suits.then_some(rows)
}

/// Whether nothing but the places of elements depends on the rows, and each is computed by itself. Which elements of the product's operand are
/// there may depend on them.
fn is_free(nest: &Nest, rows: &[Axis], operand: Option<usize>) -> bool {
    let is_row = |sym: Sym| rows.iter().any(|row| row.var == sym);
    let is_place = |at: usize| {
        let op = &nest.body[at].op;
        let is_guarded = matches!(op, InstOp::Load { guard, .. } if !guard.is_empty());
        op.element().is_some() && (!is_guarded || operand == Some(at))
    };
    let beside = (0..nest.body.len()).filter(|&at| !is_place(at)).flat_map(|at| nest.body[at].op.exprs());
    nest.idle.is_none()
        && !nest.scanned().any(is_row)
        && beside.into_iter().flat_map(|e| e.syms()).all(|sym| !is_row(sym))
}

fn stores_walk_as_one(loops: &Loops, nest: &Nest, rows: &[Axis]) -> bool {
    let mut stores = accesses(nest).filter(|access| access.store);
    stores.all(|store| is_one_walk(store.place(loops, nest), rows))
}

/// Whether a step along each of the axes goes as far as all of the next one.
fn is_one_walk(place: Expr, rows: &[Axis]) -> bool {
    rows.windows(2).all(|pair| match (place.linear(pair[0].var), place.linear(pair[1].var)) {
        (Some((far, _)), Some((near, _))) => far == near * pair[1].extent,
        _ => false,
    })
}

/// Puts one axis where the first of the rows was.
fn merge(nest: &mut Nest, rows: &[Axis], facts: &Facts) {
    let var = names::symbol("m", facts, nest.all_axes());
    let (values, unit) = digits(rows, var);
    let is_row = |axis: &Axis| rows.iter().any(|row| row.var == axis.var);
    let first = nest.axes.iter().position(is_row).expect("invariant: the rows are axes");
    nest.axes[first] = Axis { var, extent: unit };
    nest.axes.retain(|axis| !is_row(axis));
    let facts = nest.facts(facts);
    for inst in &mut nest.body {
        let value = |sym: Sym| values.iter().find(|value| value.0 == sym).map(|value| value.1);
        inst.op.map_exprs(&mut |e| {
            let is_row = values.iter().any(|value| e.has_sym(value.0));
            if is_row { facts.simplify(e.subst(&value)) } else { e }
        });
    }
}

/// Axes, outermost first, as digits of one number, and how many numbers there are.
pub(super) fn digits(axes: &[Axis], number: Sym) -> (Vec<(Sym, Expr)>, Expr) {
    let (mut values, mut unit) = (Vec::new(), Expr::one());
    for (i, axis) in axes.iter().enumerate().rev() {
        let digit = Expr::sym(number).floordiv(unit);
        values.push((axis.var, if i == 0 { digit } else { digit.modulo(axis.extent) }));
        unit = unit * axis.extent;
    }
    (values, unit)
}
