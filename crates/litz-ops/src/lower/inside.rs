//! Makes accesses of nests stay inside of their buffers: by guards on sizes, by guards of loads, or by checks at each point.

use super::Lower;
use crate::error::OpError;
use litz_ir::ids::Id;
use litz_ir::loops::{BindOf, Inst, InstOp, Nest, Val};
use litz_ir::verify::loops::{Coordinate, Unproved};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Rel, Sym};

impl Lower<'_> {
    /// Makes accesses inside of their buffers that are not known to be: by a guard on the sizes, where the load has a
    /// guard of its own by more of that, and what neither proves by a check at each point.
    pub(super) fn require_inside(&mut self, nest: &mut Nest) -> Result<(), OpError> {
        let mut unproved = self.inside.unproved(nest, &self.loops.bufs, &self.loops.facts);
        if unproved.is_empty() {
            return Ok(());
        }
        self.guard_where_empty(nest, &mut unproved);
        for Unproved { at, coordinates, axes } in unproved {
            for Coordinate { index, size, .. } in coordinates {
                if let InstOp::Load { guard, .. } = &mut nest.body[at].op
                    && !guard.is_empty()
                {
                    guard.extend([Rel::le(0, index), Rel::lt(index, size)]);
                    continue;
                }
                let mut facts = self.loops.facts.clone();
                axes.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
                let vars: Vec<Sym> = axes.iter().map(|axis| axis.var).collect();
                let [first, last] = [-facts.largest(-index, &vars), facts.largest(index, &vars)];
                for needed in [Rel::ge(first, 0), Rel::lt(last, size)] {
                    if !vars.iter().any(|&var| needed.lhs.has_sym(var) || needed.rhs.has_sym(var)) {
                        let required = self.loops.facts.require(needed, &self.who);
                        required.map_err(|never| OpError::new("invalid-operator", never.to_string()))?;
                    }
                }
            }
        }
        // Later ones first: what is inserted moves what stands behind.
        let unproved = self.inside.unproved(nest, &self.loops.bufs, &self.loops.facts);
        for Unproved { at, coordinates, .. } in unproved.into_iter().rev() {
            check_index(nest, at, &coordinates);
        }
        Ok(())
    }

    /// Code may move a load out of loops that its index does not mention. Where these may have no points, and it is inside
    /// only because they have some, it gets that as its guard; other loads stay in `unproved`.
    fn guard_where_empty(&mut self, nest: &mut Nest, unproved: &mut Vec<Unproved>) {
        let facts = &self.loops.facts;
        let some = nest.all_axes().map(|axis| Rel::le(1, axis.extent));
        let some: Vec<Rel> = some.filter(|some| !facts.holds(some)).collect();
        if some.is_empty() {
            return;
        }
        let mut guarded = nest.clone();
        for access in unproved.iter() {
            if let Inst { op: InstOp::Load { guard, other, .. }, ty } = &mut guarded.body[access.at]
                && guard.is_empty()
            {
                guard.clone_from(&some);
                *other = Scalar::zero(*ty);
            }
        }
        let left = self.inside.unproved(&guarded, &self.loops.bufs, facts);
        let is_left = |access: &Unproved| left.iter().any(|left| left.at == access.at);
        for access in unproved.extract_if(.., |access| !is_left(access)) {
            nest.body[access.at] = guarded.body[access.at].clone();
        }
    }
}

/// Lets a load or store check at each point that these of its coordinates are inside of their dimensions.
fn check_index(nest: &mut Nest, at: usize, coordinates: &[Coordinate]) {
    let mut checks = Vec::new();
    for &Coordinate { dim, index: coordinate, size } in coordinates {
        let sym = Sym::new(&format!("checked{at}_{dim}"));
        let (InstOp::Load { index, .. } | InstOp::Store { index, .. }) = &mut nest.body[at].op else {
            return;
        };
        index[dim] = Expr::sym(sym);
        let value = Val::new(at + checks.len());
        checks.extend([
            InstOp::Index(coordinate),
            InstOp::Bind { sym, value, extent: size, of: BindOf::Index },
        ]);
    }
    let moved = checks.len() as u32;
    for inst in &mut nest.body[at..] {
        for operand in inst.op.operands_mut() {
            operand.0 += if operand.index() >= at { moved } else { 0 };
        }
    }
    nest.body.splice(at..at, checks.into_iter().map(|op| Inst { op, ty: Dtype::I64 }));
}
