//! Lets instructions round the operands of float32 products, where that is asked for.
//!
//! ```text
//! nest n2 [i, j | k] { .. mul .. reduce.sum }  =>  nest n2 [i, j | k] rounding { .. }
//! ```
//!
//! Instructions of GPUs take float32 numbers as tf32, with 10 bits behind the point where they have 23, and sum their products in float32. They do
//! so four to eight times as fast as threads multiply and add.

use super::Cx;
use litz_analysis::Contraction;
use litz_ir::Dtype;
use litz_ir::loops::{Loops, Stmt};
use litz_ir::target::{Rounds, Target};

/// Whether a target has instructions for tf32.
pub fn wants(target: &Target) -> bool {
    let Target::Gpu(gpu) = target else { return false };
    gpu.of_warp(Dtype::F32, Dtype::F32, Rounds::Always).next().is_some()
}

/// Marks the products of float32 numbers; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    if !cx.tf32 {
        return 0;
    }
    let of_floats = |stmt: &Stmt| {
        let Stmt::Nest(nest) = stmt else { return false };
        let Some([Contraction { lhs, rhs, m, n, .. }, _]) = Contraction::of(loops, nest) else {
            return false;
        };
        let dtype = |at: usize| nest.body[at].op.element().map(|(buf, _)| loops.bufs[buf].dtype);
        // A sum of squares has no rows and columns.
        let is_product = !m.is_empty() && !n.is_empty();
        let sums_floats = nest.body.iter().any(|inst| inst.op.is_reduction() && inst.ty == Dtype::F32);
        is_product && sums_floats && [lhs, rhs].into_iter().all(|at| dtype(at) == Some(Dtype::F32))
    };
    let found: Vec<usize> = (0..loops.stmts.len()).filter(|&at| of_floats(&loops.stmts[at])).collect();
    for &at in &found {
        if let Stmt::Nest(nest) = &mut loops.stmts[at] {
            nest.rounds = Rounds::Always;
        }
    }
    found.len()
}
