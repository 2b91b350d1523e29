//! Keeps what guards choose inside of its memory, where nobody proves that they do.
//!
//! A window of an image is read where its row and its column are inside. That the element is then inside of the memory follows, but not from the
//! flat index alone: of a kernel that copies two steps ahead, `64*k + 3392*floordiv(k + 2, 3)` has to be taken apart into rows and
//! columns again. An index that no proof is found for is clamped. Where the guards hold it is inside already, so that the element is
//! the same; elsewhere none is read.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, Mem, MemorySpace, Op, Stmt};
use litz_ir::target::Target;
use litz_ir::verify::reach::{Escape, escapes_of};
use litz_sym::{Expr, Rel, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "clamp", run };

/// Clamps indices of guarded reads of global memory.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if !reads_windows(&kernel.body) {
        return Ok(());
    }
    let escapes = escapes_of(kernel, |space| {
        matches!(space, MemorySpace::Read | MemorySpace::Write | MemorySpace::Update)
    });
    if escapes.is_empty() {
        return Ok(());
    }
    let mut body = std::mem::take(&mut kernel.body);
    Clamp { kernel, escapes }.block(&mut body);
    kernel.body = body;
    Ok(())
}

/// Whether there are reads with guards.
fn reads_windows(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match stmt {
        Stmt::Act(Act::Copy { from, .. }) => !from.guard.is_empty(),
        Stmt::Act(Act::Let { op: Op::Load { guard, .. }, .. }) => !guard.is_empty(),
        Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => stmt.blocks().into_iter().any(reads_windows),
    })
}

struct Clamp<'a> {
    kernel: &'a Kernel,
    escapes: Vec<Escape>,
}

impl Clamp<'_> {
    fn block(&self, stmts: &mut [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Act(Act::Copy { count, from, .. }) => {
                    let element = Expr::sym(Sym::new("copy.element"));
                    let count = i64::from(*count);
                    self.clamp(from.mem, &mut from.index, &from.guard, (count, element));
                }
                Stmt::Act(Act::Let { op: Op::Load { mem, index, guard, .. }, .. }) => {
                    self.clamp(*mem, index, guard, (1, Expr::zero()));
                }
                Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {
                    stmt.blocks_mut().into_iter().for_each(|block| self.block(block));
                }
            }
        }
    }

    /// Clamps the index of a run of so many elements, of which `element` counts one, if it may be outside.
    fn clamp(&self, mem: Mem, index: &mut [Expr], guard: &[Rel], (count, element): (i64, Expr)) {
        let data = &self.kernel.mems[mem];
        let ([at], [extent]) = (&mut *index, &data.sizes[..]) else { return };
        let reached = *at * count + element;
        let is_it = |escape: &Escape| {
            escape.mem == data.name && escape.index == reached && escape.guard == guard && !guard.is_empty()
        };
        if self.escapes.iter().any(is_it) {
            *at = Expr::max(Expr::min(*at, extent.floordiv(count) - 1), 0);
        }
    }
}
