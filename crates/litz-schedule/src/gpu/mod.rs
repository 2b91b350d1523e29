//! Lists the families of kernels for GPUs.
//!
//! Threads take points each, warps or blocks take rows that are reduced, and blocks take tiles of contractions. Nests whose points depend on each other along every axis, scatters and regions run in order on one thread.

mod product;
mod region;
mod rows;
mod threads;

use litz_analysis::contraction::Columns;
use litz_ir::loops::{Nest, Span};

use crate::context::Cx;
use crate::draft::{Draft, Machine};
use crate::in_order::InOrder;
use crate::join::alone;
use product::Product;
use rows::Rows;
use threads::Threads;

/// The families for GPUs.
pub struct Gpus;

impl Machine for Gpus {
    fn contraction(&self, cx: &Cx<'_>, nest: &Nest) -> Option<Columns> {
        product::columns_of(cx, nest)
    }

    fn alone(&self, cx: &Cx<'_>, s: usize) -> Draft {
        let info = &cx.deps.stmts[s];
        let group = alone(cx, s);
        if let Some(columns) = &cx.contractions[s] {
            return Draft::new(group, info.at_load, Product::new(columns.clone()));
        }
        if rows::reduces_rows(cx, s, &group) {
            return Draft::new(group, info.at_load, Rows);
        }
        match group.outer.iter().any(|axis| !axis.extent.is_one()) {
            true => Draft::new(group, info.at_load, Threads),
            false => InOrder::nest(cx, s),
        }
    }

    fn region(&self, cx: &Cx<'_>, region: &Span) -> Draft {
        region::form(cx, region)
    }
}
