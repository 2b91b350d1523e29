//! Copies of a few adjacent elements as copies of one wider element: two of bf16 are moved as 32 bits.

use litz_ir::kernel::{Loop, Mem, Op, Stmt, position};
use litz_ir::{Dtype, Scalar};
use litz_sym::Expr;

use super::index::Condition;
use super::ty::memory_type;
use super::{EmitError, Emitter, Form};

impl Emitter<'_> {
    /// Writes a loop that is written out as the copy of a wider element; false where it is none.
    pub(super) fn copy_run(&mut self, inner: &Loop) -> Result<bool, EmitError> {
        let [
            Stmt::Let { val, op: Op::Load { mem: from, index: source, guard, other } },
            Stmt::Store { mem: to, index: target, value, combine: None, guard: kept, atomic: false },
        ] = &inner.body[..]
        else {
            return Ok(false);
        };
        let dtype = self.mems[*from].dtype;
        let count = self.resolve(inner.extent).as_int().unwrap_or(0);
        let wide = match count.checked_mul(dtype.size() as i64) {
            Some(2) => Dtype::U16,
            Some(4) => Dtype::U32,
            Some(8) => Dtype::U64,
            _ => return Ok(false),
        };
        let is_fixed = |e: Expr| !e.has_sym(inner.var);
        let are_fixed = guard.iter().chain(kept).all(|rel| is_fixed(rel.lhs) && is_fixed(rel.rhs));
        let in_memory = [from, to].iter().all(|mem| {
            let state = &self.mems[**mem];
            state.form == Form::Memory && state.dtype == dtype
        });
        let is_zero = guard.is_empty() || *other == Scalar::zero(dtype.compute()) || *other == Scalar::Int(0);
        if val != value || count < 2 || !are_fixed || !in_memory || !is_zero || from == to {
            return Ok(false);
        }
        let (Some(source), Some(target)) =
            (self.in_runs(position(source), inner, count), self.in_runs(position(target), inner, count))
        else {
            return Ok(false);
        };
        self.retype([*from, *to], wide)?;
        let copied =
            self.load(*from, source, guard, Scalar::Int(0)).and_then(|value| match self.condition(kept)? {
                Condition::Never => Ok(()),
                Condition::Always => self.store_if(*to, target, &value, None),
                Condition::When(condition) => self.store_if(*to, target, &value, Some(&condition)),
            });
        self.retype([*from, *to], dtype)?;
        copied.map(|()| true)
    }

    /// The number of the run of `count` elements that the loop walks, if it walks one from its start.
    fn in_runs(&self, index: Expr, inner: &Loop, count: i64) -> Option<Expr> {
        let (step, first) = self.resolve(index).linear(inner.var)?;
        let is_start = self.facts.simplify(first.modulo(count)).is_zero();
        (step.is_one() && is_start).then(|| self.facts.simplify(first.floordiv(count)))
    }

    /// Takes memories for arrays of another element type.
    fn retype(&mut self, mems: [Mem; 2], dtype: Dtype) -> Result<(), EmitError> {
        let prim = memory_type(dtype)?;
        for mem in mems {
            (self.mems[mem].dtype, self.mems[mem].prim) = (dtype, prim);
        }
        Ok(())
    }
}
