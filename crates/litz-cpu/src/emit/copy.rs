//! Writes copies of a few adjacent elements as copies of one wider element.

use litz_ir::kernel::{Element, Mem, position};
use litz_ir::{Dtype, Scalar};
use litz_sym::Sym;

use super::index::Condition;
use super::ty::memory_type;
use super::{EmitError, Emitter, Form};

impl Emitter<'_> {
    pub(super) fn copy_run(
        &mut self,
        count: u32,
        from: &Element,
        along: Option<Sym>,
        to: &Element,
    ) -> Result<(), EmitError> {
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
