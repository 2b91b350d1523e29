//! Lists the families of kernels for GPUs: so far every nest runs its points in order.

use litz_analysis::contraction::Columns;
use litz_ir::loops::{Nest, Span};

use crate::context::Cx;
use crate::draft::{Draft, Machine};
use crate::group::{Group, Member};
use crate::in_order::InOrder;

/// The families for GPUs.
pub struct Gpus;

impl Machine for Gpus {
    fn contraction(&self, _: &Cx<'_>, _: &Nest) -> Option<Columns> {
        None
    }

    fn alone(&self, cx: &Cx<'_>, s: usize) -> Draft {
        Draft::new(Group::of(s), cx.deps.stmts[s].at_load, InOrder(None))
    }

    fn region(&self, _: &Cx<'_>, region: &Span) -> Draft {
        let members = region.stmts.clone().map(|stmt| Member { stmt, bind: Vec::new() }).collect();
        Draft::new(Group { members, outer: Vec::new() }, false, InOrder(Some(region.over)))
    }
}
