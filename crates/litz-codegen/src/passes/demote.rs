//! Moves register arrays with run-time indices to scratch memory: registers have no addresses.

use super::Pass;
use litz_ir::Diag;
use litz_ir::ids::Id;
use litz_ir::kernel::{Kernel, KernelLoopKind, Mem, MemorySpace, Stmt};
use litz_ir::target::Target;
use litz_sym::Sym;

/// The pass.
pub const PASS: Pass = Pass { name: "demote", run };

/// Moves them.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut is_indexed = vec![false; kernel.mems.len()];
    mark(&kernel.body, &mut Around::default(), &mut is_indexed);
    for (at, is_indexed) in is_indexed.into_iter().enumerate() {
        let mem = &mut kernel.mems[Mem::new(at)];
        if is_indexed && mem.space == MemorySpace::Register {
            mem.space = MemorySpace::Scratch;
        }
    }
    Ok(())
}

/// The loops around a statement.
#[derive(Clone, Default)]
struct Around {
    /// Variables that are numbers where an instruction or a thread is known.
    written_out: Vec<Sym>,
    /// One of the loops is over a level of the machine.
    is_threaded: bool,
}

/// Marks memories with an index that mentions more than the variables of loops that are written out.
fn mark(stmts: &[Stmt], around: &mut Around, is_indexed: &mut [bool]) {
    for stmt in stmts {
        for (mem, index) in stmt.accesses() {
            let mut syms = index.iter().flat_map(|at| at.syms());
            is_indexed[mem.index()] |= syms.any(|sym| !around.written_out.contains(&sym));
        }
        let outside = around.clone();
        if let Stmt::Loop(inner) = stmt {
            let is_number = match inner.kind {
                KernelLoopKind::Level(_) | KernelLoopKind::Chain => true,
                // The sums of a warp's instruction are spread over its lanes.
                KernelLoopKind::Mma { .. } => around.is_threaded,
                KernelLoopKind::Unroll | KernelLoopKind::Vector { .. } => inner.extent.as_int().is_some(),
                KernelLoopKind::For | KernelLoopKind::Search | KernelLoopKind::Pipeline { .. } => false,
            };
            around.written_out.extend(is_number.then_some(inner.var));
            if let KernelLoopKind::Vector { lane, .. } = inner.kind {
                around.written_out.extend(lane);
            }
            around.is_threaded |= inner.kind.level().is_some();
        }
        for block in stmt.blocks() {
            mark(block, around, is_indexed);
        }
        *around = outside;
    }
}
