//! Flattens the memories of a kernel to one dimension, and linearizes the coordinates of accesses.
//!
//! Backends address memory by one index. Here it is put together from the coordinates and the strides, where ranges of loop
//! variables are known: coordinates that are digits of one position add up to that position again.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, MemData, Op, Stmt, Sync};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts};
use std::collections::HashMap;

/// The pass.
pub const PASS: Pass = Pass { name: "flatten", run };

/// Flattens the memories.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if kernel.mems.values().all(MemData::is_flat) {
        return Ok(());
    }
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let mut body = std::mem::take(&mut kernel.body);
    Flattener { kernel, places: HashMap::new() }.block(&mut body, &facts);
    kernel.body = body;
    for mem in kernel.mems.values_mut().filter(|mem| !mem.is_flat()) {
        let swizzle = mem.swizzle;
        let flat = MemData::flat(std::mem::take(&mut mem.name), mem.dtype, mem.span(), mem.space);
        *mem = MemData { swizzle, ..flat };
    }
    Ok(())
}

struct Flattener<'a> {
    kernel: &'a Kernel,
    /// Places already simplified in the scope that is visited.
    places: HashMap<Expr, Expr>,
}

impl Flattener<'_> {
    /// Flattens the accesses of a block, of whose symbols `facts` says what is known.
    fn block(&mut self, stmts: &mut [Stmt], facts: &Facts) {
        let around = std::mem::take(&mut self.places);
        let mut facts = std::borrow::Cow::Borrowed(facts);
        for stmt in stmts {
            match stmt {
                Stmt::Loop(inner) => {
                    let mut inside = facts.clone().into_owned();
                    inside.declare_index(inner.var, inner.extent);
                    if let KernelLoopKind::Vector { lanes, copies, lane: Some(lane), .. } = inner.kind {
                        inside.declare_index(lane, Expr::int(i64::from(lanes) * i64::from(copies)));
                    }
                    self.block(&mut inner.body, &inside);
                }
                Stmt::If { then, other, .. } => {
                    self.block(then, &facts);
                    self.block(other, &facts);
                }
                Stmt::Act(Act::Bind { sym, extent, .. }) => facts.to_mut().declare_index(*sym, *extent),
                Stmt::Act(Act::Sync(Sync::Acquire { ring, buffer, .. })) => {
                    let buffers = Expr::int(i64::from(self.kernel.rings[*ring].buffers));
                    facts.to_mut().declare_index(*buffer, buffers);
                }
                // A table is flat.
                Stmt::Act(
                    Act::Let { op: Op::Load { mem, index, .. } | Op::Transposed { mem, index, .. }, .. }
                    | Act::Store { mem, index, .. }
                    | Act::MulAdd { mem, index, .. }
                    | Act::Prefetch { mem, index, .. },
                ) => {
                    let data = &self.kernel.mems[*mem];
                    self.index(data, index, &facts);
                }
                Stmt::Act(Act::Dot(dot)) => {
                    self.index(&self.kernel.mems[dot.mem], &mut dot.index, &facts);
                    for factor in dot.terms.iter_mut().flatten() {
                        self.index(&self.kernel.mems[factor.mem], &mut factor.index, &facts);
                    }
                }
                Stmt::Act(Act::Lanes(reduction)) => {
                    self.index(&self.kernel.mems[reduction.into], &mut reduction.index, &facts);
                    self.index(&self.kernel.mems[reduction.from], &mut reduction.first, &facts);
                }
                Stmt::Act(Act::ArgStore { best, index, .. }) => {
                    let data = &self.kernel.mems[*best];
                    self.index(data, index, &facts);
                }
                // Memories of the others are flat.
                Stmt::Act(_) => {}
            }
        }
        self.places = around;
    }

    fn index(&mut self, data: &MemData, index: &mut Vec<Expr>, facts: &Facts) {
        if data.is_flat() {
            return;
        }
        let place = data.place(index);
        let simple = *self.places.entry(place).or_insert_with(|| {
            // n*floordiv(x, n) + mod(x, n) => x
            if place.is_polynomial() { place } else { facts.simplify(place) }
        });
        *index = vec![simple];
    }
}
