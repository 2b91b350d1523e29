//! Copies operands of large products into rows that begin at multiples of 16 bytes, where theirs do not, for GPUs.
//!
//! Threads and boxes copy 16 bytes at once from such rows alone; elements one by one take several times as long as the product itself.
//!
//! ```text
//! c[i, j] = sum over k in 4099 of a[i, k] * b[k, j]                      a: bf16[4095, 4099], b: bf16[4099, 4097]
//!   =>
//! a_rows[i, k] = a[i, k] if k < 4099 else 0                              i in 4095, k in 4104
//! b_rows[k, j] = b[k, j] if k < 4099, j < 4097 else 0                    k in 4104, j in 4104
//! c[i, j] = sum over k in 4104 of a_rows[i, k] * b_rows[k, j]
//! ```
//!
//! The sum goes on over the zeros, so that all of its rows end with whole units. An operand that does not have them in memory is guarded at its end.
//! Constants are copied once, when the model is loaded.

use super::{Cx, Edits, Names, patches};
use litz_analysis::constants::Constants;
use litz_analysis::{Contraction, Uses};
use litz_ir::Scalar;
use litz_ir::loops::{Axis, Buf, BufKind, InstOp, Loops, Nest, Stmt};
use litz_ir::target::{Gpu, Target};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashMap;

/// Points of the result that use each element of an operand, from which on copying it pays: that reads and writes it once, and each use of elements
/// that are loaded one by one costs about a sixteenth of that (4096^3 of bf16 in 3.2 ms and in 0.2 ms, a copy of 34 MB in 20 us; H200).
const LEAST_USES: i64 = 64;

/// Products of two numbers below which a launch more takes as long as is gained: two microseconds.
const LEAST_PRODUCTS: i64 = 1 << 25;

/// Whether a target copies units of 16 bytes.
pub fn wants(target: &Target) -> bool {
    target.gpu().is_some()
}

/// Copies operands; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let (uses, mut edits, mut names) = (Uses::of(loops), Edits::default(), Names::of(loops));
    let constants = Constants::of(loops, &[], &uses);
    let mut made: HashMap<Key, Buf> = HashMap::new();
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some(product) = Product::of(loops, nest, &uses, &constants) else { continue };
        let mut nest = nest.clone();
        for operand in &product.copied {
            let key = product.key(&nest, operand);
            let buf = *made.entry(key).or_insert_with(|| {
                let (buf, copy) = product.copy(loops, &nest, operand, &mut names);
                edits.insert(at, Stmt::Nest(copy));
                buf
            });
            let InstOp::Load { buf: source, index, .. } = &mut nest.body[operand.at].op else { continue };
            (*source, *index) = (buf, operand.axes.iter().map(|axis| Expr::sym(axis.var)).collect());
        }
        product.end_others(loops, &mut nest);
        nest.reduced.iter_mut().for_each(|axis| axis.extent = product.extent(*axis));
        loops.stmts[at] = Stmt::Nest(nest);
    }
    let count = made.len();
    edits.apply(loops);
    count
}

/// What is copied, in terms of the numbers of its axes, and how many elements are along each.
type Key = (Buf, Vec<Expr>, Vec<Expr>);

/// A product of which operands are copied.
struct Product {
    copied: Vec<Operand>,
    /// The loads of the others.
    others: Vec<usize>,
    /// Axes of the sum that go on over zeros, and how far.
    longer: Vec<(Sym, Expr)>,
}

/// An operand of a product.
struct Operand {
    /// Its load.
    at: usize,
    /// Its axes, in the order of memory: along the last one elements are neighbours.
    axes: Vec<Axis>,
    /// Elements of 16 bytes.
    unit: i64,
    /// Whether its rows begin elsewhere than at these.
    is_odd: bool,
}

impl Product {
    /// One that is large enough, and has an operand with odd rows.
    fn of(loops: &Loops, nest: &Nest, uses: &Uses, constants: &Constants) -> Option<Product> {
        if nest.idle.is_some() || nest.scanned().next().is_some() {
            return None;
        }
        let [of, _] = Contraction::of(loops, nest)?;
        let is_known = nest.all_axes().all(|axis| !axis.extent.is_zero());
        if !of.is_plain || !is_known || product(loops, nest.all_axes()) < LEAST_PRODUCTS {
            return None;
        }
        let sides = [(of.lhs, &of.n), (of.rhs, &of.m)];
        let operands = sides.map(|(at, _)| Operand::of(loops, nest, at, uses));
        let pays = |(operand, (_, others)): &(&Operand, (usize, &Vec<Axis>))| {
            let is_constant =
                nest.body[operand.at].op.element().is_some_and(|(buf, _)| constants.is_buffer(buf));
            operand.is_odd && (is_constant || product(loops, others.iter()) >= LEAST_USES)
        };
        let odd = operands.iter().flatten().zip(sides).filter(pays).map(|(operand, _)| operand.at);
        let mut copied: Vec<usize> = odd.collect();
        let longer: Vec<(Sym, Expr)> = operands
            .iter()
            .flatten()
            .filter(|operand| copied.contains(&operand.at))
            .filter_map(|operand| {
                operand.row().filter(|row| nest.reduced.contains(row)).map(|row| (operand, row))
            })
            .map(|(operand, row)| (row.var, operand.whole(row.extent)))
            .collect();
        // What cannot be guarded where it ends is copied, too.
        for (at, _) in sides {
            if !copied.contains(&at) && !longer.iter().all(|of| ends(loops, nest, at, of.0)) {
                copied.push(at);
            }
        }
        let others = sides.iter().map(|side| side.0).filter(|at| !copied.contains(at)).collect();
        let all = copied.len();
        let copied: Vec<Operand> =
            operands.into_iter().flatten().filter(|operand| copied.contains(&operand.at)).collect();
        // Nothing else may depend on the terms that there are more of, and both factors are zero there.
        let is_longer = |sym: Sym| longer.iter().any(|of| of.0 == sym);
        let goes_on = |at: usize| {
            let syms: Vec<Sym> = nest.body[at].op.exprs().into_iter().flat_map(Expr::syms).collect();
            longer.iter().all(|of| syms.contains(&of.0))
        };
        let mut rest = (0..nest.body.len()).filter(|at| ![of.lhs, of.rhs].contains(at));
        let is_plain =
            rest.all(|at| !nest.body[at].op.exprs().into_iter().flat_map(Expr::syms).any(is_longer));
        (all > 0 && copied.len() == all && is_plain && goes_on(of.lhs) && goes_on(of.rhs))
            .then_some(Product { copied, others, longer })
    }

    /// How many points of the sum there are along an axis.
    fn extent(&self, axis: Axis) -> Expr {
        self.longer.iter().find(|of| of.0 == axis.var).map_or(axis.extent, |of| of.1)
    }

    /// How many elements a copy has along an axis.
    fn count(&self, operand: &Operand, axis: Axis) -> Expr {
        if operand.row() == Some(axis) { operand.whole(axis.extent) } else { self.extent(axis) }
    }

    /// What is copied, under any names of its axes.
    fn key(&self, nest: &Nest, operand: &Operand) -> Key {
        let element = nest.body[operand.at].op.element();
        let (buf, index) = element.expect("invariant: operands are loads");
        let number = |sym: Sym| {
            let at = operand.axes.iter().position(|axis| axis.var == sym)?;
            Some(Expr::sym(Sym::new(&format!("axis.{at}"))))
        };
        let counts = operand.axes.iter().map(|&axis| self.count(operand, axis));
        (buf, index.iter().map(|at| at.subst(&number)).collect(), counts.collect())
    }

    /// A buffer for an operand, and the nest that fills it.
    fn copy(&self, loops: &mut Loops, nest: &Nest, operand: &Operand, names: &mut Names) -> (Buf, Nest) {
        let counted = |axis: &Axis| Axis { extent: self.count(operand, *axis), ..*axis };
        let axes: Vec<Axis> = operand.axes.iter().map(counted).collect();
        let mut facts = nest.facts(&loops.facts);
        axes.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        let (buf, mut copy) =
            patches::copy(loops, nest, (operand.at, "rows"), axes.clone(), &[], &facts, names);
        let longer = axes.iter().zip(&operand.axes).filter(|(all, own)| all.extent != own.extent);
        let ends: Vec<Rel> = longer.map(|(all, own)| Rel::lt(Expr::sym(all.var), own.extent)).collect();
        let zero = Scalar::zero(loops.bufs[buf].dtype);
        if let InstOp::Load { guard, other, .. } = &mut copy.body[0].op {
            (*guard, *other) = (ends, zero);
        }
        (buf, copy)
    }

    /// Has what is not copied end where it does, with zeros behind.
    fn end_others(&self, loops: &Loops, nest: &mut Nest) {
        for &at in &self.others {
            let InstOp::Load { buf, index, guard, other } = &mut nest.body[at].op else { continue };
            let data = &loops.bufs[*buf];
            for (&at, &size) in index.iter().zip(&data.sizes) {
                if self.longer.iter().any(|of| at.has_sym(of.0)) {
                    guard.push(Rel::lt(at, size));
                    *other = Scalar::zero(data.dtype);
                }
            }
        }
    }
}

impl Operand {
    /// The operand that a load reads, if that is a box of a buffer with one content.
    fn of(loops: &Loops, nest: &Nest, at: usize, uses: &Uses) -> Option<Operand> {
        let InstOp::Load { buf, index, guard, .. } = &nest.body[at].op else { return None };
        let data = &loops.bufs[*buf];
        let writers = uses.writers(*buf);
        if writers.len() + usize::from(data.kind != BufKind::Temp) != 1 || !guard.is_empty() {
            return None;
        }
        // What gathers an operand is a part of the product's kernel, or could as well fill such rows.
        let is_copy = |&at: &usize| matches!(&loops.stmts[at], Stmt::Nest(nest) if nest.body.len() == 2);
        if writers.iter().any(is_copy) {
            return None;
        }
        let dim_of = |axis: &Axis| index.iter().position(|at| at.has_sym(axis.var));
        let mut axes: Vec<Axis> = nest.all_axes().filter(|axis| dim_of(axis).is_some()).copied().collect();
        let is_known = index
            .iter()
            .flat_map(|at| at.syms())
            .all(|sym| axes.iter().any(|axis| axis.var == sym) || loops.facts.is_symbol_declared(sym));
        let (first, rest) = axes.split_first()?;
        if !is_known || !patches::is_box(&nest.body[at], *first, rest) {
            return None;
        }
        let is_row = |axis: &Axis| dim_of(axis).is_some_and(|dim| data.strides[dim].is_one());
        axes.sort_by_key(|axis| (is_row(axis), dim_of(axis)));
        let unit = i64::from(Gpu::VECTOR_BYTES) / data.dtype.size() as i64;
        let row = axes.last().filter(|axis| is_row(axis)).and_then(dim_of)?;
        let facts = nest.facts(&loops.facts);
        let start = axes.iter().fold(index[row], |at, axis| at.replace(axis.var, Expr::zero()));
        let steps = data.strides.iter().enumerate().filter(|(dim, _)| *dim != row).map(|(_, &step)| step);
        let is_odd = steps.chain([start]).any(|at| !facts.simplify(at.modulo(unit)).is_zero());
        Some(Operand { at, axes, unit, is_odd })
    }

    /// The axis along which elements are neighbours.
    fn row(&self) -> Option<Axis> {
        self.axes.last().copied()
    }

    /// The least number of whole units that so many elements are in, as elements.
    fn whole(&self, count: Expr) -> Expr {
        count.ceildiv(self.unit) * self.unit
    }
}

/// Whether a load goes along an axis to the end of its buffer, and has no guards: one there says no more than that elements are there.
fn ends(loops: &Loops, nest: &Nest, at: usize, axis: Sym) -> bool {
    let InstOp::Load { buf, index, guard, .. } = &nest.body[at].op else { return false };
    let extent = nest.reduced.iter().find(|own| own.var == axis).map(|own| own.extent);
    let mut along = index.iter().zip(&loops.bufs[*buf].sizes).filter(|(at, _)| at.has_sym(axis));
    guard.is_empty() && along.all(|(at, &size)| at.as_sym() == Some(axis) && Some(size) == extent)
}

/// Points along axes, by hints.
fn product<'a>(loops: &Loops, axes: impl Iterator<Item = &'a Axis>) -> i64 {
    axes.map(|axis| loops.facts.size_hint(axis.extent)).fold(1, i64::saturating_mul)
}
