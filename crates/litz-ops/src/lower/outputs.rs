//! Gives the results of a graph, and new contents of what it updates, buffers of the layout that their types promise.

use super::Lower;
use crate::error::OpError;
use crate::layout::{is_distinct, is_overlapping, preserved_strides};
use litz_ir::graph::{Arg, TensorType, Type, Value};
use litz_ir::loops::{Buf, BufKind, Output};
use litz_ir::{Diag, Scalar};
use litz_sym::Expr;

impl Lower<'_> {
    pub(super) fn finish(&mut self) -> Result<(), Diag> {
        self.from.clear();
        for &(target, contents) in &self.graph.updates {
            let pair = self.update(target, contents)?;
            self.loops.updates.push(pair);
        }
        for output in &self.graph.outputs {
            let output = self.output(output)?;
            self.loops.outputs.push(output);
        }
        Ok(())
    }

    /// Both sides as whole buffers of one layout.
    fn update(&mut self, target: Value, contents: Value) -> Result<(Buf, Buf), OpError> {
        let (to, from) = (self.place_of(target)?, self.place_of(contents)?);
        let data = &self.loops.bufs[to.buf];
        let ty = data.ty();
        let name = &self.graph.values[target].name;
        if is_overlapping(&self.loops.facts, &ty) {
            // Which of several elements their common memory keeps is nobody's choice.
            let message = format!("update of %{name}: {ty}, whose elements share memory");
            return Err(OpError::new("unsupported", message));
        }
        let source = &self.loops.bufs[from.buf];
        if source.kind == BufKind::Temp
            && source.dtype == ty.dtype
            && from.is_strided_as(&ty, &self.loops.facts)
            && (&source.sizes, &source.strides) == (&ty.sizes, &ty.strides)
        {
            return Ok((to.buf, from.buf));
        }
        let name = format!("{name}_next");
        self.from = vec![self.graph.values[contents].name.clone()];
        Ok((to.buf, self.copy(&from.broadcast(&ty.sizes), &name, &ty)?.buf))
    }

    fn output(&mut self, arg: &Arg) -> Result<Output, OpError> {
        let unsupported = || OpError::new("unsupported", format!("returning {arg:?} is not supported"));
        match arg {
            Arg::None => Ok(Output::Nothing),
            Arg::Int(e) => Ok(Output::Int(*e)),
            Arg::Float(f) => Ok(Output::Literal(Scalar::Float(f.0))),
            Arg::Bool(b) => Ok(Output::Literal(Scalar::Bool(*b))),
            Arg::Str(text) => Ok(Output::Text(text.clone())),
            Arg::Value(value) => match &self.graph.values[*value].ty {
                Type::Tensor(ty) => self.output_tensor(*value, ty),
                Type::Int(e) => Ok(Output::Int(*e)),
                Type::Float | Type::Bool => self.output_number(*value),
            },
            Arg::List(_)
            | Arg::Complex(..)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_)
            | Arg::Part(_) => Err(unsupported()),
        }
    }

    /// The one element of a computed buffer.
    fn output_number(&mut self, value: Value) -> Result<Output, OpError> {
        let access = self.place_of(value)?;
        if self.loops.bufs[access.buf].kind == BufKind::Temp && access.rank() == 0 {
            return Ok(Output::Number(access.buf));
        }
        let name = &self.graph.values[value].name;
        self.from = vec![name.clone()];
        let ty = self.graph.values[value].ty.stored();
        Ok(Output::Number(self.copy(&access, &format!("{name}_out"), &ty)?.buf))
    }

    /// A view of a computed buffer with the strides that the type promises; anything else copied to such a buffer.
    fn output_tensor(&mut self, value: Value, ty: &TensorType) -> Result<Output, OpError> {
        let access = self.place_of(value)?;
        let promised =
            |strides: &[Expr]| (0..ty.rank()).all(|d| strides[d] == ty.strides[d] || ty.sizes[d].is_one());
        if let Some((strides, offset)) = self.strides(&access)
            && promised(&strides)
            && self.loops.bufs[access.buf].kind == BufKind::Temp
        {
            let (buf, sizes, strides) = (access.buf, ty.sizes.clone(), ty.strides.clone());
            return Ok(Output::View { buf, sizes, strides, offset });
        }
        let name = &self.graph.values[value].name;
        self.from = vec![name.clone()];
        // Elements that share memory in eager get memory of their own here.
        let facts = &self.loops.facts;
        let strides = if is_distinct(facts, ty) { ty.strides.clone() } else { preserved_strides(facts, ty) };
        let ty = TensorType { strides, ..ty.clone() };
        let buf = self.copy(&access, &format!("{name}_out"), &ty)?.buf;
        Ok(Output::View { buf, sizes: ty.sizes, strides: ty.strides, offset: Expr::zero() })
    }
}
