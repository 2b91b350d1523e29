//! Splits a scatter to few elements: slabs of its points combine in buffers of their own, then what all slabs have is combined in their order.
//!
//! ```text
//! nest y [i in n] { bind t = %k in 10 .. store.sum y[t] = %v }
//!   =>  nest y_identity [s in 64, d0 in 10] { store y_slabs[s, d0] = 0.0 }
//!       nest y_slabs [s in 64, i in 128] { bind t = %k in 10 .. store.sum y_slabs[s, t] = %v }
//!       nest y [d0 in 10 | s in 64] { %1 = reduce.sum y_slabs[s, d0] .. store.sum y[d0] = %1 }
//! ```
//!
//! Points that store to one element run in order. With few elements to store to that is little at once: of a histogram of 1000 classes a
//! thousand sums. Slabs are independent, and the points of each in their order. How many there are depends on sizes, and on the units of the GPU.

use super::split_reduce::{add_buf, element, hint, load, masked, push};
use super::{Cx, Edits, Names, names};
use litz_analysis::collisions::colliding_axes;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::{Gpu, Target};
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel, Sym};

/// Points of a thread in a slab, at least.
const LEAST: i64 = 16;

/// Parts of what is stored to for each unit, with which its warps look for the points of their part without waiting more than they look
/// (`litz-schedule/src/gpu/scatter.rs`): with fewer slabs than parts, slabs win nothing.
const PARTS: i64 = 8;

/// Only a GPU has more threads than these scatters have elements to store to.
pub fn wants(target: &Target) -> bool {
    matches!(target, Target::Gpu(_))
}

/// Splits scatters; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let Target::Gpu(gpu) = cx.target else { return 0 };
    let (mut edits, mut names) = (Edits::default(), Names::of(loops));
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let nest = nest.clone();
        let Some(scatter) = Scatter::of(loops, &nest, gpu) else { continue };
        scatter.split(loops, &mut names).into_iter().for_each(|nest| edits.insert(at, Stmt::Nest(nest)));
        edits.remove(at);
        count += 1;
    }
    edits.apply(loops);
    count
}

/// A scatter to be split.
struct Scatter<'a> {
    nest: &'a Nest,
    /// What it stores to, and how it combines.
    stored: Buf,
    op: ReduceOp,
    /// The axis that slabs divide, and so many points of a slab.
    axis: Axis,
    length: i64,
}

impl<'a> Scatter<'a> {
    /// None where a nest is none, or slabs win nothing. Sums and extremes of integers of 4 and 8 bytes are combined with at once.
    fn of(loops: &Loops, nest: &'a Nest, gpu: &Gpu) -> Option<Scatter<'a>> {
        if nest.accumulates() || !nest.reduced.is_empty() {
            return None;
        }
        let mut stores = nest.body.iter().filter_map(|inst| {
            let InstOp::Store { buf, combine, .. } = &inst.op else { return None };
            Some((*buf, *combine))
        });
        let ((stored, combine), None) = (stores.next()?, stores.next()) else { return None };
        let op = combine.filter(|op| matches!(op, ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min))?;
        let dtype = loops.bufs[stored].dtype;
        let is_loaded = |inst: &Inst| matches!(inst.op, InstOp::Load { buf, .. } if buf == stored);
        let is_number = dtype.is_float() || dtype.is_int() && dtype.size() < 4;
        if !is_number || nest.body.iter().any(is_loaded) {
            return None;
        }
        let colliding = colliding_axes(loops, nest);
        let extent = |axis: &Axis| hint(loops, axis.extent);
        let is_divided = |axis: &&Axis| colliding.contains(&axis.var);
        let axis = *nest.axes.iter().filter(is_divided).max_by_key(|axis| extent(axis))?;
        let product = |axes: &mut dyn Iterator<Item = &Axis>| axes.map(extent).fold(1, i64::saturating_mul);
        let points = product(&mut nest.axes.iter());
        let free = product(&mut nest.axes.iter().filter(|axis| !is_divided(axis)));
        let sizes = loops.bufs[stored].sizes.iter().map(|&size| hint(loops, size));
        let elements = sizes.fold(1, i64::saturating_mul);
        let threads = i64::from(gpu.units) * i64::from(gpu.unit.threads);
        // All slabs have no more elements than there are points, each of which moves a sector of memory there and back.
        let most = (points / elements).min(threads / free).min(extent(&axis) / LEAST);
        let parts = (elements / free).min(PARTS * i64::from(gpu.units));
        if most < 2 || most <= parts {
            return None;
        }
        Some(Scatter { nest, stored, op, axis, length: (extent(&axis) + most - 1) / most })
    }

    /// A symbol that the nest does not have.
    fn symbol(&self, loops: &Loops, name: &str) -> Sym {
        let own: Vec<Axis> = self.nest.indices().collect();
        names::symbol(name, &loops.facts, own.iter())
    }

    /// The nests that replace it.
    fn split(&self, loops: &mut Loops, names: &mut Names) -> [Nest; 3] {
        let nest = self.nest;
        let count = loops.facts.simplify(self.axis.extent.ceildiv(self.length));
        let slab = Axis { var: self.symbol(loops, "s"), extent: count };
        let sizes = loops.bufs[self.stored].sizes.iter().enumerate();
        let dims: Vec<Axis> =
            sizes.map(|(at, &extent)| Axis { var: self.symbol(loops, &format!("d{at}")), extent }).collect();
        let of_slabs = [&[slab], &dims[..]].concat();
        let (dtype, ty) = (loops.bufs[self.stored].dtype, loops.bufs[self.stored].dtype.compute());
        let slabs = add_buf(loops, names, nest, "slabs", ty, &of_slabs);

        let mut identity = Nest { axes: of_slabs.clone(), body: Vec::new(), ..nest.clone() };
        identity.name = names.statement(&format!("{}_identity", nest.name));
        let value = push(&mut identity.body, InstOp::Const(self.op.identity(ty)), ty);
        let store = InstOp::Store { buf: slabs, index: element(&of_slabs), value, combine: None };
        push(&mut identity.body, store, ty);

        let scattered = self.scattered(loops, names, (slab, slabs, ty));

        let mut combined = Nest { axes: dims.clone(), reduced: vec![slab], body: Vec::new(), ..nest.clone() };
        let body = &mut combined.body;
        let value = push(body, load(slabs, element(&of_slabs), ty), ty);
        let value = push(body, InstOp::Reduce(self.op, value), ty);
        let value = if ty == dtype { value } else { push(body, InstOp::Cast(value), dtype) };
        let store = InstOp::Store { buf: self.stored, index: element(&dims), value, combine: Some(self.op) };
        push(body, store, dtype);
        [identity, scattered, combined]
    }

    /// The scatter to what slabs have. Past the end of the divided axis nothing is loaded, and what changes nothing is combined with the first
    /// element.
    fn scattered(&self, loops: &Loops, names: &mut Names, (slab, slabs, ty): (Axis, Buf, Dtype)) -> Nest {
        let (nest, axis) = (self.nest, self.axis);
        let inside =
            Axis { var: self.symbol(loops, &format!("{}_i", axis.var)), extent: Expr::int(self.length) };
        let point = Expr::sym(slab.var) * self.length + Expr::sym(inside.var);
        let exists = (!loops.facts.divides(self.length, axis.extent)).then(|| Rel::lt(point, axis.extent));
        let own = nest.axes.iter().map(|own| if own.var == axis.var { inside } else { *own });
        let axes = [slab].into_iter().chain(own).collect();
        let name = names.statement(&format!("{}_slabs", nest.name));
        let mut made = Nest { name, axes, body: Vec::new(), ..nest.clone() };
        let facts = made.facts(&loops.facts);
        let mut map: Vec<Val> = Vec::with_capacity(nest.body.len());
        for inst in &nest.body {
            let mut inst = inst.clone();
            inst.op.operands_mut().into_iter().for_each(|operand| *operand = map[operand.index()]);
            if let (InstOp::Load { index, guard, other, .. }, Some(exists)) = (&mut inst.op, exists)
                && index.iter().any(|at| at.has_sym(axis.var))
            {
                if guard.is_empty() {
                    *other = Scalar::zero(inst.ty);
                }
                guard.push(exists);
            }
            inst.op.map_exprs(&mut |e| match e.has_sym(axis.var) {
                true => facts.simplify(e.replace(axis.var, point)),
                false => e,
            });
            if let InstOp::Bind { value, .. } = &mut inst.op {
                *value = masked(&mut made.body, exists, *value, (Scalar::Int(0), Dtype::I64));
            }
            if let InstOp::Store { buf, index, value, .. } = &mut inst.op {
                if inst.ty != ty {
                    *value = push(&mut made.body, InstOp::Cast(*value), ty);
                }
                *value = masked(&mut made.body, exists, *value, (self.op.identity(ty), ty));
                (*buf, inst.ty) = (slabs, ty);
                index.insert(0, Expr::sym(slab.var));
            }
            map.push(push(&mut made.body, inst.op, inst.ty));
        }
        made
    }
}
