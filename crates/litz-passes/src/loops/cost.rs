//! Estimates what the body of a nest costs.

use litz_ir::ScalarOp;
use litz_ir::loops::{InstOp, Nest};

/// Rough cost of a body in additions. Transcendental functions were measured at 3 to 12 times a load and store of a
/// vector; divisions and roots at about 8 additions.
pub fn cost(nest: &Nest) -> u32 {
    nest.body
        .iter()
        .map(|i| match &i.op {
            InstOp::Op(ScalarOp::Div | ScalarOp::Sqrt | ScalarOp::Rsqrt, _) => 8,
            InstOp::Op(op, _) if op.is_function() => 16,
            InstOp::Op(ScalarOp::FloorDiv | ScalarOp::Mod | ScalarOp::Rem | ScalarOp::Nextafter, _) => 16,
            InstOp::Op(..) => 1,
            InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Cond(_)
            | InstOp::Index(_)
            | InstOp::Bind { .. } => 1,
            InstOp::Load { .. }
            | InstOp::Const(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => 0,
        })
        .sum()
}
