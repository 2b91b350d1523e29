//! Copies operands that are on another device than a node's results to theirs.

use super::Lower;
use crate::args::Args;
use crate::error::OpError;
use crate::view::ValueAccess;
use litz_ir::graph::Value;
use litz_ir::ids::Id;
use litz_ir::loops::{Callee, Extern, Stmt};
use litz_sym::{Expr, Rel};

impl Lower<'_> {
    /// Whether a value is on the device where results of the current node are.
    pub fn is_there(&self, access: &ValueAccess) -> bool {
        self.loops.bufs[access.buf].device == self.device
    }

    /// Copies operands that are on another device to that of the node's results, where the node finds them; but for numbers of the host,
    /// which nests are given. Returns where they were.
    pub(super) fn bring_operands(&mut self, args: &Args<'_>) -> Result<Vec<(Value, ValueAccess)>, OpError> {
        let mut elsewhere: Vec<(Value, ValueAccess)> = Vec::new();
        for tensor in args.all_tensors() {
            if tensor.ty.device == self.device || elsewhere.iter().any(|(value, _)| *value == tensor.value) {
                continue;
            }
            let access = self.access(tensor)?;
            if self.loops.bufs[access.buf].is_number_for(self.device) {
                continue;
            }
            self.places[tensor.value.index()] = Some(self.bring(&access, tensor.value)?);
            elsewhere.push((tensor.value, access));
        }
        Ok(elsewhere)
    }

    /// The value on the current device: a copy of its buffer, where that has nothing else, or of its elements.
    fn bring(&mut self, access: &ValueAccess, value: Value) -> Result<ValueAccess, OpError> {
        let data = &self.loops.bufs[access.buf];
        let elements: Expr = access.sizes.iter().product();
        let is_all = data.is_dense() && self.loops.facts.proves(&Rel::le(data.elements(), elements));
        let access = if is_all { access.clone() } else { self.contiguous(access, "whole")? };
        let ty = self.loops.bufs[access.buf].ty().on(self.device);
        let name = format!("{}_on_{}", self.graph.values[value].name, self.device).replace(':', "_");
        let copy = self.buffer(&name, &ty);
        self.loops.stmts.push(Stmt::Extern(Extern {
            name: format!("n{}", self.loops.stmts.len()),
            from: self.from.clone(),
            callee: Callee::Copy { from: access.buf, to: copy.buf },
            message: None,
        }));
        Ok(access.in_copy(copy.buf))
    }
}
