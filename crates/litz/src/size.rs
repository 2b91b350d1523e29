//! Counts what the compiler has before it, and compares it with the limits of the user.
//!
//! Every stage takes time and memory in proportion to what it is given, so that what a file can make a compilation take is
//! bounded by what the stages give.

use crate::error::Error;
use litz_codegen::Realized;
use litz_ir::graph::Graph;
use litz_ir::kernel::{Kernel, KernelLoopKind, Loop, Stmt, visit};
use litz_ir::loops::{self, Loops};
use litz_runtime::limits::{Limit, Limits};

/// Fails where a graph has more nodes than allowed.
pub fn check_graph(graph: &Graph, limits: &Limits) -> Result<(), Error> {
    Ok(limits.check(Limit::Statements, nodes(graph))?)
}

fn nodes(graph: &Graph) -> u64 {
    graph.nodes.len() as u64 + graph.subgraphs.iter().map(nodes).sum::<u64>()
}

/// Fails where loops have more statements and instructions than allowed.
pub fn check_loops(loops: &Loops, limits: &Limits) -> Result<(), Error> {
    let body = |stmt: &loops::Stmt| 1 + stmt.nests().iter().map(|nest| nest.body.len()).sum::<usize>();
    Ok(limits.check(Limit::Statements, loops.stmts.iter().map(body).sum::<usize>() as u64)?)
}

/// Fails where kernels have more statements than allowed, as written or with loops written out.
pub fn check_kernels(realized: &Realized, limits: &Limits) -> Result<(), Error> {
    let total = |count: fn(&[Stmt]) -> u64| {
        realized.kernels.iter().map(|kernel: &Kernel| count(&kernel.body)).fold(0, u64::saturating_add)
    };
    limits.check(Limit::Statements, total(statements))?;
    Ok(limits.check(Limit::WrittenOut, total(written_out))?)
}

fn statements(stmts: &[Stmt]) -> u64 {
    let mut count = 0;
    visit(stmts, &mut |_| count += 1);
    count
}

fn written_out(stmts: &[Stmt]) -> u64 {
    let inside = |stmt: &Stmt| match stmt {
        Stmt::Loop(Loop { kind, extent, body, .. }) => {
            let copies = match kind {
                KernelLoopKind::Unroll => {
                    extent.as_int().map_or(u64::MAX, |extent| u64::try_from(extent).unwrap_or(0))
                }
                KernelLoopKind::Vector { copies, .. } => u64::from(*copies),
                KernelLoopKind::For
                | KernelLoopKind::Pipeline { .. }
                | KernelLoopKind::Level(_)
                | KernelLoopKind::Chain
                | KernelLoopKind::Search
                | KernelLoopKind::Mma { .. } => 1,
            };
            written_out(body).saturating_mul(copies)
        }
        Stmt::If { then, other, .. } => written_out(then).saturating_add(written_out(other)),
        Stmt::Act(_) => 1,
    };
    stmts.iter().map(inside).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_that_are_written_out_count_each_time() {
        let text = "kernel @k {
          read x: f32[64]
          write y: f32[64]
          for i in 4 { unroll j in 3 { unroll k in 5 { %0: f32 = load x[15*i + 5*j + k] y[15*i + 5*j + k] = %0 } } }
          vector i in 64 by 8 copies 2 { %1: f32 = load x[i] y[i] = %1 }
        }";
        let kernel = litz_ir::text::kernel::parse(text).expect("valid");
        assert_eq!((statements(&kernel.body), written_out(&kernel.body)), (8, 2 * 15 + 2 * 2));
    }
}
