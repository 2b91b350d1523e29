//! Converts operands as PyTorch's autocast for CPUs does: a graph that was traced under it has the operators as the user called
//! them, and only the types of results tell of the conversions.

use crate::body::{Body, operator_name};
use crate::cx::Cx;
use crate::error::ImportError;
use crate::schema;
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, TensorType, Value};
use litz_ir::schema::{Autocast, Written};

/// What the operands of these types become, where it is one type; those of f64 and what is no float stay.
fn target(rule: Autocast, narrow: Dtype, operands: impl IntoIterator<Item = Dtype>) -> Option<Dtype> {
    match rule {
        Autocast::Narrow => Some(narrow),
        Autocast::Full => Some(Dtype::F32),
        // Among narrow types of which neither holds the other, f32 holds both.
        Autocast::Widest => {
            let mut types = operands.into_iter().filter(|&dtype| is_converted(dtype));
            let first = types.next()?;
            Some(types.fold(first, |a, b| if a == b { a } else { Dtype::F32 }))
        }
        Autocast::Leave | Autocast::Hidden => None,
    }
}

/// Whether autocast converts tensors of a type at all.
fn is_converted(dtype: Dtype) -> bool {
    dtype.kind() == Kind::Float && dtype != Dtype::F64
}

impl Body {
    /// Converts operands as autocast does.
    ///
    /// # Errors
    /// Where the conversions are inside of the operator.
    pub fn cast<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        node: &'a schema::Node<'a>,
        narrow: Dtype,
        args: &mut [Arg],
    ) -> Result<(), ImportError> {
        let op = operator_name(node);
        let rule = cx.schemas.autocast(op);
        if rule == Autocast::Hidden {
            return Err(ImportError::UnsupportedType { name: op.to_owned(), feature: "autocast".to_owned() });
        }
        let mut types = Vec::new();
        let mut add = |value: Value| types.extend(self.graph.tensor(value).map(|ty| ty.dtype));
        args.iter().for_each(|arg| arg.each_value(&mut add));
        if let Some(target) = target(rule, narrow, types) {
            args.iter_mut().for_each(|arg| self.cast_one(cx, node, arg, target));
        }
        Ok(())
    }

    /// Replaces each tensor that autocast converts by one of the type. Strides are what inference makes of them.
    fn cast_one<'a>(&mut self, cx: &mut Cx<'a>, node: &'a schema::Node<'a>, arg: &mut Arg, target: Dtype) {
        match arg {
            Arg::List(items) => items.iter_mut().for_each(|item| self.cast_one(cx, node, item, target)),
            Arg::Value(value) => {
                let Some(ty) = self.graph.tensor(*value) else { return };
                if ty.dtype == target || !is_converted(ty.dtype) {
                    return;
                }
                let ty = TensorType { dtype: target, ..ty.clone() };
                let args = vec![
                    Arg::Value(*value),
                    Arg::Dtype(target),
                    Arg::Bool(false),
                    Arg::Bool(false),
                    Arg::None,
                ];
                *value = self.compute(cx, node, Written::Convert, args, ty);
            }
            Arg::None
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_)
            | Arg::Part(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_of_two_types_become_the_wider_one() {
        let widest = |types: &[Dtype]| target(Autocast::Widest, Dtype::BF16, types.iter().copied());
        assert_eq!(widest(&[Dtype::BF16, Dtype::BF16, Dtype::I64]), Some(Dtype::BF16));
        assert_eq!(widest(&[Dtype::BF16, Dtype::F32]), Some(Dtype::F32));
        assert_eq!(widest(&[Dtype::I64]), None);
    }
}
