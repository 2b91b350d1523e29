//! Moves register arrays with run-time indices to scratch memory: registers have no addresses.

use super::Pass;
use litz_ir::Diag;
use litz_ir::ids::Id;
use litz_ir::kernel::{Kernel, LoopKind, Mem, Space, Stmt};
use litz_ir::target::Target;
use litz_sym::Sym;

/// The pass.
pub const PASS: Pass = Pass { name: "demote", run };

/// Moves them.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut is_indexed = vec![false; kernel.mems.len()];
    mark(&kernel.body, &mut Vec::new(), &mut is_indexed);
    for (at, is_indexed) in is_indexed.into_iter().enumerate() {
        let mem = &mut kernel.mems[Mem::new(at)];
        if is_indexed && mem.space == Space::Register {
            mem.space = Space::Scratch;
        }
    }
    Ok(())
}

/// Marks memories with an index that mentions more than the variables of loops that are written out.
fn mark(stmts: &[Stmt], written_out: &mut Vec<Sym>, is_indexed: &mut [bool]) {
    for stmt in stmts {
        for (mem, index) in stmt.accesses() {
            let mut syms = index.iter().flat_map(|at| at.syms());
            is_indexed[mem.index()] |= syms.any(|sym| !written_out.contains(&sym));
        }
        let depth = written_out.len();
        if let Stmt::Loop(inner) = stmt {
            match inner.kind {
                LoopKind::Unroll | LoopKind::Vector { .. } if inner.extent.as_int().is_some() => {
                    written_out.push(inner.var);
                }
                LoopKind::Unroll | LoopKind::Vector { .. } | LoopKind::For | LoopKind::Mma => {}
            }
        }
        for block in stmt.blocks() {
            mark(block, written_out, is_indexed);
        }
        written_out.truncate(depth);
    }
}
