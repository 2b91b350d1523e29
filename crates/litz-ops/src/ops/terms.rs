//! Writes the operators that gradients are mostly made of.

use crate::decompose::Rewriter;
use crate::error::OpError;
use crate::layout::format_strides;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Float, MemoryFormat, Value};
use litz_sym::Expr;

/// A float argument.
pub(crate) fn float(x: f64) -> Arg {
    Arg::Float(Float(x))
}

/// An integer argument.
pub(crate) fn int(i: i64) -> Arg {
    Arg::Int(Expr::int(i))
}

/// Dimensions as an argument.
pub(crate) fn dims_arg(dims: &[usize]) -> Arg {
    Arg::ints(dims.iter().map(|&d| Expr::int(d as i64)))
}

impl Rewriter<'_> {
    /// `a + b`
    pub(crate) fn add(&mut self, a: Value, b: Value) -> Result<Value, OpError> {
        self.apply("aten.add.Tensor", &[a, b])
    }

    /// `a - b`
    pub(crate) fn sub(&mut self, a: Value, b: Value) -> Result<Value, OpError> {
        self.apply("aten.sub.Tensor", &[a, b])
    }

    /// `a * b`
    pub(crate) fn mul(&mut self, a: Value, b: Value) -> Result<Value, OpError> {
        self.apply("aten.mul.Tensor", &[a, b])
    }

    /// `a * b` where `b` is given, else `a`.
    pub(crate) fn mul_opt(&mut self, a: Value, b: Option<Value>) -> Result<Value, OpError> {
        match b {
            Some(b) => self.mul(a, b),
            None => Ok(a),
        }
    }

    /// `a / b`
    pub(crate) fn div(&mut self, a: Value, b: Value) -> Result<Value, OpError> {
        self.apply("aten.div.Tensor", &[a, b])
    }

    /// The tensor argument in its compute type.
    pub(crate) fn wide(&mut self, name: &str) -> Result<Value, OpError> {
        let x = self.args().tensor(name)?.value;
        self.widened(x)
    }

    /// The tensor in its compute type: half types as f32.
    pub(crate) fn widened(&mut self, x: Value) -> Result<Value, OpError> {
        let dtype = self.ty(x)?.dtype;
        self.convert(x, dtype.compute())
    }

    /// The tensor in another element type; itself where it has that type.
    pub(crate) fn convert(&mut self, x: Value, dtype: Dtype) -> Result<Value, OpError> {
        if self.ty(x)?.dtype == dtype {
            return Ok(x);
        }
        self.call("aten._to_copy.default", [Arg::Value(x), Arg::Dtype(dtype)])
    }

    /// What the tensor is when it was stored as `dtype`.
    pub(crate) fn rounded(&mut self, x: Value, dtype: Dtype) -> Result<Value, OpError> {
        let (own, stored) = (self.ty(x)?.dtype, self.convert(x, dtype)?);
        self.convert(stored, own)
    }

    /// The sum over dimensions, which stay with size 1; over none, the tensor itself.
    pub(crate) fn sum(&mut self, x: Value, dims: &[usize]) -> Result<Value, OpError> {
        if dims.is_empty() {
            return Ok(x);
        }
        self.call("aten.sum.dim_IntList", [Arg::Value(x), dims_arg(dims), Arg::Bool(true)])
    }

    /// The mean over dimensions, which stay with size 1; over none, the tensor itself.
    pub(crate) fn mean(&mut self, x: Value, dims: &[usize]) -> Result<Value, OpError> {
        if dims.is_empty() {
            return Ok(x);
        }
        self.call("aten.mean.dim", [Arg::Value(x), dims_arg(dims), Arg::Bool(true)])
    }

    /// The elements in row-major order with other sizes.
    pub(crate) fn reshape(
        &mut self,
        x: Value,
        sizes: impl IntoIterator<Item = Expr>,
    ) -> Result<Value, OpError> {
        self.call("aten.reshape.default", [Arg::Value(x), Arg::ints(sizes)])
    }

    /// The dimensions in another order: that of the result's dimensions in `x`.
    pub(crate) fn permute(&mut self, x: Value, order: &[usize]) -> Result<Value, OpError> {
        self.call("aten.permute.default", [Arg::Value(x), dims_arg(order)])
    }

    /// Two dimensions swapped.
    pub(crate) fn transpose(&mut self, x: Value, a: i64, b: i64) -> Result<Value, OpError> {
        self.call("aten.transpose.int", [Arg::Value(x), int(a), int(b)])
    }

    /// The coordinates from `start` up to `end` of a dimension.
    pub(crate) fn slice(&mut self, x: Value, dim: usize, start: Expr, end: Expr) -> Result<Value, OpError> {
        if start.is_zero() && self.ty(x)?.sizes.get(dim) == Some(&end) {
            return Ok(x);
        }
        let args = [Arg::Value(x), int(dim as i64), Arg::Int(start), Arg::Int(end)];
        self.call("aten.slice.Tensor", args)
    }

    /// A contiguous tensor of one value.
    pub(crate) fn filled(
        &mut self,
        sizes: impl IntoIterator<Item = Expr>,
        value: f64,
        dtype: Dtype,
    ) -> Result<Value, OpError> {
        let value = if dtype.is_float() { float(value) } else { int(value as i64) };
        self.call("aten.full.default", [Arg::ints(sizes), value, Arg::Dtype(dtype)])
    }

    /// What stands for a result that was not asked for: a tensor without elements.
    pub(crate) fn nothing(&mut self, dtype: Dtype) -> Result<Value, OpError> {
        self.filled([Expr::zero()], 0.0, dtype)
    }

    /// The tensor with the strides of a format.
    pub(crate) fn in_format(&mut self, x: Value, format: MemoryFormat) -> Result<Value, OpError> {
        let ty = self.ty(x)?;
        if ty.strides == format_strides(format, &ty.sizes) {
            return Ok(x);
        }
        self.call("aten.clone.default", [Arg::Value(x), Arg::MemoryFormat(format)])
    }

    /// The tensor with strides as if its dimensions were stored in this order, the slowest first.
    pub(crate) fn stored_in_order(&mut self, x: Value, order: &[usize]) -> Result<Value, OpError> {
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &d)| back[d] = at);
        let turned = self.permute(x, order)?;
        let turned = self.in_format(turned, MemoryFormat::Contiguous)?;
        self.permute(turned, &back)
    }

    /// Which of `n` results are asked for.
    pub(crate) fn asked<const N: usize>(&self) -> Result<[bool; N], OpError> {
        let args = self.args();
        let flag = |arg: &Arg| match arg {
            Arg::Bool(b) => Some(*b),
            _ => None,
        };
        let flags: Option<Vec<bool>> =
            args.get("output_mask").as_list().and_then(|items| items.iter().map(flag).collect());
        flags
            .and_then(|flags| flags.try_into().ok())
            .ok_or_else(|| args.bad("output_mask", &format!("{N} truth values")))
    }
}
