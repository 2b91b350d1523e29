//! Lists the families of kernels for CPUs.
//!
//! Loops (pointwise nests, reductions and scans), contractions, which take what runs at the points of their tiles, chains of these for
//! blocks of rows, sums of rows beside what goes over them, scatters, and regions.

mod contraction;
mod k_blocks;
mod loops;
mod pays;
mod product;
mod region;
mod rows;
mod scatter;
mod sweep;
mod tiles;

use litz_analysis::contraction::Columns;
use litz_ir::loops::{Nest, Span};
use litz_ir::target::Cpu;

use crate::context::Cx;
use crate::draft::{Draft, Machine};
use crate::group::Group;
use crate::join::alone;
use crate::no_fuse::NoFuse;
use crate::scatter::is_scatter;
use contraction::Product;
use loops::Loops;
use scatter::Scatter;

/// The families for CPUs.
pub struct Cpus;

/// The CPU that kernels are planned for.
fn cpu<'a>(cx: &Cx<'a>) -> &'a Cpu {
    cx.target.cpu().expect("invariant: these families are those of CPUs")
}

impl Machine for Cpus {
    fn contraction(&self, cx: &Cx<'_>, nest: &Nest) -> Option<Columns> {
        product::tiled_columns(cx.loops, nest, cpu(cx))
    }

    fn alone(&self, cx: &Cx<'_>, s: usize) -> Draft {
        let info = &cx.deps.stmts[s];
        if is_scatter(cx, s) {
            return Draft::new(Group::of(s), info.at_load, Scatter);
        }
        let group = alone(cx, s);
        match &cx.contractions[s] {
            Some(columns) => Draft::new(group, info.at_load, Product::new(columns.clone())),
            None => Draft::new(group, info.at_load, Loops),
        }
    }

    fn region(&self, cx: &Cx<'_>, region: &Span) -> Draft {
        region::form(cx, region)
    }

    fn adds_up(&self, cx: &Cx<'_>, s: usize) -> bool {
        sweep::adds_up(cx, s)
    }

    fn sweep(&self, cx: &Cx<'_>, rows: &Draft, sums: &Draft, bytes: i64) -> Result<Draft, NoFuse> {
        sweep::form(cx, rows, sums, bytes)
    }

    fn pack(&self, cx: &Cx<'_>, packing: &Draft, product: &Draft) -> Option<Draft> {
        contraction::pack(cx, packing, product)
    }
}
