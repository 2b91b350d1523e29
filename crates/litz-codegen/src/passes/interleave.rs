//! Interleaves the instructions of the unrolled copies of a vector loop's body, where that changes no result.
//!
//! ```text
//! vector i in n by 16 copies 4 { .. }  =>  vector i in n by 16 copies 4 in turns { .. }
//! ```
//!
//! Copies that follow each other are chains of dependent instructions one after the other, of which a processor holds a few
//! at a time. Interleaved, the next instructions of all chains stand side by side.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Kernel, KernelLoopKind, Stmt};
use litz_ir::target::Target;
use litz_ir::verify::interleave;

/// The pass.
pub const PASS: Pass = Pass { name: "interleave", run };

/// Marks the loops.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut body = std::mem::take(&mut kernel.body);
    block(kernel, &mut body);
    kernel.body = body;
    Ok(())
}

/// Marks loops in a block, outer ones alone: vector loops in others have no lanes.
fn block(kernel: &Kernel, stmts: &mut [Stmt]) {
    for stmt in stmts {
        if let Stmt::Loop(inner) = stmt
            && let KernelLoopKind::Vector { lanes: 2.., copies, .. } = inner.kind
        {
            let is_free = copies > 1 && interleave::obstacle(kernel, inner).is_none();
            if let KernelLoopKind::Vector { interleaved, .. } = &mut inner.kind {
                *interleaved = is_free;
            }
            continue;
        }
        stmt.blocks_mut().into_iter().for_each(|stmts| block(kernel, stmts));
    }
}
