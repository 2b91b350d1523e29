//! Loads elements that are far apart from lane to lane, but adjacent along an unrolled loop, by rows that are transposed in registers.
//!
//! ```text
//! unroll u in 8 { vector v in n by 8 { %0 = load x[u + 100*v] } }
//!   =>  unroll u in 8 { vector v in n by 8 { %0 = load x[u + 100*v] transposed along u } }
//! ```
//!
//! Without it each lane loads its element by itself: eight loads for a vector, where three shuffles and one load do. What the
//! kernel writes stays: it may change from one iteration to the next.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, Op, Stmt, Sync, position};
use litz_ir::target::Target;
use litz_ir::verify::transpose::TransposeLoops;

/// The pass.
pub const PASS: Pass = Pass { name: "transpose_loads", run };

/// Marks the loads.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut body = std::mem::take(&mut kernel.body);
    block(kernel, &mut body, TransposeLoops::default());
    kernel.body = body;
    Ok(())
}

/// Marks the loads of a block in loops that `rows` describes.
fn block(kernel: &Kernel, stmts: &mut [Stmt], mut rows: TransposeLoops) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(inner) => {
                let inside = rows.inside(inner);
                block(kernel, &mut inner.body, inside);
            }
            Stmt::If { then, other, .. } => {
                block(kernel, then, rows.in_branch());
                block(kernel, other, rows.in_branch());
            }
            Stmt::Act(Act::Bind { sym, .. } | Act::Sync(Sync::Acquire { buffer: sym, .. })) => {
                rows.bind(*sym)
            }
            Stmt::Act(Act::Let { op, .. }) => {
                if let Op::Load { mem, index, guard, .. } = op
                    && guard.is_empty()
                    && kernel.mems[*mem].space.is_only_read()
                    && let Some(along) = rows.along(kernel.mems[*mem].place(index))
                {
                    *op = Op::Transposed { mem: *mem, index: std::mem::take(index), along };
                }
            }
            Stmt::Act(Act::Copy { from, along, .. }) => {
                let is_read = from.guard.is_empty() && kernel.mems[from.mem].space.is_only_read();
                *along = if is_read { rows.along(position(&from.index)) } else { None };
            }
            Stmt::Act(_) => {}
        }
    }
}
