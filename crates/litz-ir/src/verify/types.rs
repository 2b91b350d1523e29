//! Checks the types of scalar operations for loops and kernels.

use std::fmt::Display;

use crate::dtype::{Dtype, Kind};
use crate::scalar::{ReduceOp, Scalar, ScalarOp, Signature};
use crate::verify::Report;

impl Report {
    /// `op` on values of those types; `None` stands for a value that is already known to be wrong.
    pub(super) fn operation(&mut self, op: ScalarOp, args: &[Option<Dtype>], ty: Dtype, place: impl Display) {
        let name = op.name();
        if args.len() != op.arity() {
            let (expected, found) = (op.arity(), args.len());
            let message = format_args!("{place}: expected {expected} operands of `{name}`, found {found}");
            return self.fail("operand-count", message);
        }
        let operand = match op.signature() {
            Signature::Same | Signature::Float | Signature::Bits => Some(ty),
            Signature::Compare => args.iter().find_map(|&arg| arg),
            Signature::Select => Some(ty),
        };
        for (at, arg) in args.iter().enumerate() {
            let is_condition = at == 0 && op.signature() == Signature::Select;
            self.same_type(if is_condition { Some(Dtype::Bool) } else { operand }, *arg, &place);
        }
        if op.signature() == Signature::Compare {
            self.same_type(Some(Dtype::Bool), Some(ty), &place);
        }
        if let Some(operand) = operand {
            let message = format_args!("{place}: `{name}` is not defined for {operand}");
            self.check(op.is_defined_for(operand), "type-mismatch", message);
        }
    }

    /// A reduction, scan or combining store of values of type `ty`.
    pub(super) fn combination(&mut self, op: ReduceOp, ty: Dtype, place: impl Display) {
        let fits = match op {
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => true,
            ReduceOp::Any | ReduceOp::All => ty == Dtype::Bool,
            ReduceOp::Xor => matches!(ty.kind(), Kind::Bool | Kind::Int),
        };
        self.check(fits, "type-mismatch", format_args!("{place}: `{}` does not combine {ty}", op.name()));
    }

    pub(super) fn same_type(&mut self, expected: Option<Dtype>, found: Option<Dtype>, place: impl Display) {
        if let (Some(expected), Some(found)) = (expected, found) {
            let message = format_args!("{place}: expected {expected}, found {found}");
            self.check(expected == found, "type-mismatch", message);
        }
    }

    /// A conversion of bits.
    pub(super) fn bitcast(&mut self, from: Option<Dtype>, to: Dtype, place: impl Display) {
        if let Some(from) = from {
            let message = format_args!("{place}: {from} and {to} differ in size");
            self.check(from.size() == to.size(), "type-mismatch", message);
        }
    }

    /// A literal of type `ty`.
    pub(super) fn literal(&mut self, value: Scalar, ty: Dtype, place: impl Display) {
        let message = format_args!("{place}: `{value}` is no literal of type {ty}");
        self.check(value.is_literal_of(ty), "literal-type", message);
    }
}
