//! Writes copies of a few adjacent elements as copies of one wider element, and stores to adjacent elements as one.

use litz_ir::kernel::{Act, Element, Loop, Mem, Stmt, position};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Sym};

use super::index::{Access, Condition};
use super::ty::{Prim, memory_type};
use super::{Bound, EmitError, Emitter, Form};

/// Bytes that are stored at once.
const WORD: i64 = 4;

impl Emitter<'_> {
    /// A loop that is written out, if what its iterations store in each lane is adjacent, and a word together: as one store of words, where
    /// lanes would scatter bytes. What comes from rows of a matrix is woven into groups.
    ///
    /// ```text
    /// vector j in 16 by 16 { unroll q in 4 { %0 = load x[64*q + j]; y[4*j + q] = %0 } }
    /// ```
    pub(super) fn store_words(&mut self, inner: &Loop, count: i64) -> Result<bool, EmitError> {
        let Some((Stmt::Act(Act::Store { mem, index, value, combine: None, guard, atomic: false }), lets)) =
            inner.body.split_last()
        else {
            return Ok(false);
        };
        let data = &self.mems[*mem];
        let is_word = count > 1 && data.dtype.size() as i64 * count == WORD && data.form == Form::Memory;
        let is_apart = |stmt: &Stmt| {
            matches!(stmt, Stmt::Act(Act::Let { .. })) && stmt.loaded().all(|(from, _)| from != *mem)
        };
        if self.lanes.is_none() || !is_word || !guard.is_empty() || !lets.iter().all(is_apart) {
            return Ok(false);
        }
        let places: Vec<Expr> =
            (0..count).map(|at| self.resolve(position(index).replace(inner.var, Expr::int(at)))).collect();
        let is_next =
            |(at, &place): (i64, &Expr)| self.facts.simplify(place - places[0]).as_int() == Some(at);
        let Access::Strided(first, step) = self.access(places[0]) else { return Ok(false) };
        if step != count || !(0..).zip(&places).all(is_next) {
            return Ok(false);
        }
        let mut parts = Vec::new();
        for at in 0..count {
            self.syms.insert(inner.var, Bound::Constant(at));
            lets.iter().try_for_each(|stmt| self.statement(stmt))?;
            let part = self.value(*value)?;
            let part = self.narrow(&part, self.mems[*mem].dtype);
            parts.push(self.b.convert("bitcast", &part, Prim::int(part.ty.prim.bits())));
        }
        self.syms.remove(&inner.var);
        let word = self.joined(parts)?;
        let word = self.b.splat(&word, self.lane_count());
        let address = self.address(*mem, first)?;
        self.store_vector(*mem, &address, &word, None);
        self.touch(&[*mem]);
        Ok(true)
    }

    pub(super) fn copy_run(
        &mut self,
        count: u32,
        from: &Element,
        along: Option<Sym>,
        to: &Element,
    ) -> Result<(), EmitError> {
        if self.thread.is_some() && along.is_none() {
            return self.copy_of_thread(count, from, to);
        }
        let mems = [from.mem, to.mem];
        let dtype = self.mems[from.mem].dtype;
        let wide = match dtype.size().saturating_mul(count as usize) {
            2 => Dtype::U16,
            4 => Dtype::U32,
            8 => Dtype::U64,
            bytes => return Err(EmitError::unsupported(format!("a copy of {bytes} bytes at once"))),
        };
        if mems.iter().any(|&mem| self.mems[mem].form != Form::Memory) {
            return Err(EmitError::malformed("a copy of registers"));
        }
        self.retype(mems, wide)?;
        let copied = self.copy_element(from, along, to);
        self.retype(mems, dtype)?;
        copied
    }

    fn copy_element(&mut self, from: &Element, along: Option<Sym>, to: &Element) -> Result<(), EmitError> {
        let value = match along {
            Some(along) => self.load_transposed(from.mem, position(&from.index), along)?,
            None => self.load(from.mem, position(&from.index), &from.guard, Scalar::Int(0))?,
        };
        let target = self.resolve(position(&to.index));
        match self.condition(&to.guard)? {
            Condition::Never => Ok(()),
            Condition::Always => self.store_if(to.mem, target, &value, None),
            Condition::When(condition) => self.store_if(to.mem, target, &value, Some(&condition)),
        }
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
