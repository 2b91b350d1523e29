//! Register arrays that are indexed by what only a running kernel knows, to scratch memory: registers have no addresses.

use litz_ir::ids::Id;
use litz_ir::kernel::{Kernel, LoopKind, Mem, Op, Space, Stmt};
use litz_sym::{Expr, Sym};

/// Moves them.
pub fn demote(kernel: &mut Kernel) {
    let mut is_indexed = vec![false; kernel.mems.len()];
    visit(&kernel.body, &mut Vec::new(), &mut is_indexed);
    for (at, is_indexed) in is_indexed.into_iter().enumerate() {
        let mem = &mut kernel.mems[Mem::new(at)];
        if is_indexed && mem.space == Space::Register {
            mem.space = Space::Scratch;
        }
    }
}

/// Marks memories with an index that mentions more than the variables of loops that are written out.
fn visit(stmts: &[Stmt], written_out: &mut Vec<Sym>, is_indexed: &mut [bool]) {
    for stmt in stmts {
        let mut mark = |mem: Mem, index: Expr| {
            is_indexed[mem.index()] |= index.syms().iter().any(|sym| !written_out.contains(sym));
        };
        match stmt {
            Stmt::Loop(l) => {
                let depth = written_out.len();
                match l.kind {
                    LoopKind::Unroll | LoopKind::Vector { .. } if l.extent.as_int().is_some() => {
                        written_out.push(l.var)
                    }
                    LoopKind::Unroll | LoopKind::Vector { .. } | LoopKind::For | LoopKind::Mma => {}
                }
                visit(&l.body, written_out, is_indexed);
                written_out.truncate(depth);
            }
            Stmt::If { then, other, .. } => {
                visit(then, written_out, is_indexed);
                visit(other, written_out, is_indexed);
            }
            Stmt::Let { op: Op::Load { mem, index, .. }, .. } | Stmt::Store { mem, index, .. } => {
                mark(*mem, *index)
            }
            Stmt::ArgStore { best, at, index, .. } => {
                mark(*best, *index);
                mark(*at, *index);
            }
            Stmt::Let { .. } | Stmt::Bind { .. } => {}
        }
    }
}
