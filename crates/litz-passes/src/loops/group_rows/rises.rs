//! Says whether a value of a nest never falls along an axis.
//!
//! Of offsets of groups the number that are not above a row does not fall from row to row, whatever the offsets are: each of them stays counted.

use litz_analysis::Uses;
use litz_ir::Dtype;
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::{ReduceOp, ScalarOp};
use litz_sym::{Expr, Sym};

/// A nest, and an axis of it.
pub struct Rises<'a> {
    pub loops: &'a Loops,
    pub uses: &'a Uses,
    pub nest: &'a Nest,
    pub axis: Sym,
}

impl Rises<'_> {
    /// Whether a value is known not to fall from one point of the axis to the next, where all else stays the same; false is before true.
    pub fn has(&self, val: Val) -> bool {
        let inst = &self.nest.body[val.index()];
        if self.is_fixed(val) {
            return true;
        }
        match &inst.op {
            InstOp::Index(e) => {
                let step = e.linear(self.axis).filter(|(_, rest)| !rest.has_sym(self.axis));
                step.and_then(|(step, _)| step.as_int()).is_some_and(|step| step >= 0)
            }
            InstOp::Cast(from) => self.is_exact(*from, inst.ty) && self.has(*from),
            InstOp::Op(op, of) => match (op, &of[..]) {
                (ScalarOp::Min | ScalarOp::Max, &[a, b]) => self.has(a) && self.has(b),
                (ScalarOp::Le | ScalarOp::Lt, &[a, b]) => self.is_fixed(a) && self.has(b),
                (ScalarOp::Ge | ScalarOp::Gt, &[a, b]) => self.has(a) && self.is_fixed(b),
                _ => false,
            },
            // What is counted is no more than there are elements, so that the sum does not wrap.
            InstOp::Reduce(ReduceOp::Sum, of) => {
                let is_counted = |val: Val| matches!(self.nest.body[val.index()].op, InstOp::Cast(from) if self.ty(from) == Dtype::Bool);
                inst.ty == Dtype::I64 && is_counted(*of) && self.has(*of)
            }
            InstOp::Load { buf, index, guard, .. } => {
                guard.is_empty() && index[..] == [Expr::sym(self.axis)] && self.has_stored(*buf)
            }
            InstOp::Const(_)
            | InstOp::Cond(_)
            | InstOp::Bitcast(_)
            | InstOp::Bind { .. }
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => false,
        }
    }

    /// Whether a value is the same at all points of the axis.
    pub fn is_fixed(&self, val: Val) -> bool {
        let inst = &self.nest.body[val.index()];
        let is_bound = |sym: Sym| {
            self.nest.body.iter().any(|inst| matches!(inst.op, InstOp::Bind { sym: own, .. } if own == sym))
        };
        let stored = self.nest.writes();
        let is_stored = inst.op.element().is_some_and(|(buf, _)| stored.contains(&buf));
        let mut syms = inst.op.exprs().into_iter().flat_map(Expr::syms);
        !is_stored
            && syms.all(|sym| sym != self.axis && !is_bound(sym))
            && inst.op.operands().iter().all(|&val| self.is_fixed(val))
    }

    /// Whether the elements of a buffer do not fall: one nest stores them all.
    fn has_stored(&self, buf: Buf) -> bool {
        let (data, uses) = (&self.loops.bufs[buf], self.uses);
        let (&[writer], true) = (uses.writers(buf), self.loops.is_internal(buf)) else { return false };
        let Stmt::Nest(nest) = &self.loops.stmts[writer] else { return false };
        let mut stores = nest.body.iter().filter_map(|inst| {
            let InstOp::Store { buf: to, index, value, combine } = &inst.op else { return None };
            (*to == buf).then_some((index, *value, combine))
        });
        let (Some((index, value, None)), None, [axis]) = (stores.next(), stores.next(), &nest.axes[..])
        else {
            return false;
        };
        let is_whole = nest.idle.is_none()
            && index[..] == [Expr::sym(axis.var)]
            && data.sizes[..] == [axis.extent]
            && nest.scanned().next().is_none();
        let of_nest = Rises { nest, axis: axis.var, ..*self };
        is_whole && of_nest.is_exact(value, data.dtype) && of_nest.has(value)
    }

    /// Whether all numbers of a value are numbers of a type.
    fn is_exact(&self, val: Val, ty: Dtype) -> bool {
        let from = self.ty(val);
        from == ty || ty == Dtype::I64 && matches!(from, Dtype::Bool | Dtype::I32)
    }

    fn ty(&self, val: Val) -> Dtype {
        self.nest.body[val.index()].ty
    }
}
