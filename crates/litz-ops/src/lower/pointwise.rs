//! Lowers operators whose rule makes an element of one element of each operand.

use super::Lower;
use crate::args::{Args, Number, Operand};
use crate::body::Point;
use crate::def::{OpDef, ResultRule};
use crate::error::OpError;
use crate::infer::no_common_type;
use crate::promote::promote;
use crate::view::ValueAccess;
use litz_ir::Dtype;
use litz_ir::loops::Val;

/// Where an operand of a pointwise operator comes from, and the type that it is converted to first.
enum Source {
    Element(ValueAccess, Dtype),
    Number(Number, Dtype),
}

/// Whether the compute type of `to` holds what `from` converted to `to` is: then nothing is rounded on the way.
fn is_exact(from: Dtype, to: Dtype) -> bool {
    from == to || to == to.compute() || matches!(from, Dtype::Bool | Dtype::U8 | Dtype::I8)
}

impl Lower<'_> {
    pub(super) fn pointwise(
        &mut self,
        args: &Args<'_>,
        def: &OpDef,
        body: impl Fn(&mut Point<'_, '_>, &[Val]) -> Result<Val, OpError>,
    ) -> Result<(), OpError> {
        let ResultRule::Pointwise(rule) = def.result else {
            return Err(args.unsupported("a pointwise rule without a pointwise result"));
        };
        let operands = args.operands()?;
        let Some(out) = self.result(args, 0) else { return Ok(()) };
        let promoted =
            promote(rule.resolve(args), &operands).ok_or_else(|| no_common_type(args, &operands))?;
        let compute = promoted.common.compute();
        let source = |(at, operand): (usize, &Operand<'_>)| {
            let dtype = rule.operand(at, operand, promoted.common);
            Ok(match operand {
                Operand::Tensor(t) => Source::Element(self.access(*t)?, dtype),
                Operand::Number(n) => Source::Number(rule.number(*n, promoted.common), dtype),
                Operand::Late(value, _) => Source::Element(self.place_of(*value)?, dtype),
            })
        };
        let condition = args.condition()?.map(|t| self.access(t)).transpose()?;
        let sources: Vec<Source> = operands.iter().enumerate().map(source).collect::<Result<_, OpError>>()?;
        let sizes = out.sizes.clone();
        self.nest(&sizes, |b, at| {
            let condition = condition.map(|c| b.read_as(&c.broadcast(&sizes), at, Dtype::Bool));
            let value = |source: &Source| match source {
                Source::Element(access, dtype) if is_exact(access.dtype, *dtype) => {
                    b.read_as(&access.broadcast(&sizes), at, compute)
                }
                Source::Element(access, dtype) => {
                    let rounded = b.read_as(&access.broadcast(&sizes), at, *dtype);
                    b.cast(rounded, compute)
                }
                Source::Number(n, dtype) => b.rounded_number(*n, *dtype),
            };
            let values: Vec<Val> = sources.iter().map(value).collect();
            let v = body(&mut Point::new(b, args, condition, promoted.common), &values)?;
            b.store(&out, at, v);
            Ok(())
        })
    }
}
