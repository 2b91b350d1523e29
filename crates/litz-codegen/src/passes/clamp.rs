//! Keeps what guards choose inside of its memory, where nobody proves that they do.
//!
//! A window of an image is read where its row and its column are inside. That the element is then inside of the memory follows, but not from the
//! flat index alone: of a kernel that copies two steps ahead, `64*k + 3392*floordiv(k + 2, 3)` has to be taken apart into rows and
//! columns again. An index that no proof is found for is clamped. Where the guards hold it is inside already, so that the element is
//! the same; elsewhere none is read. Loads that nobody proves are `checked` as the kernel runs, which copies in the background cannot be.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Element, Kernel, MemorySpace, Stmt};
use litz_ir::target::Target;
use litz_ir::verify::reach::{Escape, escapes_of};
use litz_sym::{Expr, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "clamp", run };

/// Clamps indices of guarded copies from global memory.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if !copies_windows(&kernel.body) {
        return Ok(());
    }
    let escapes = escapes_of(kernel, |space| {
        matches!(space, MemorySpace::Read | MemorySpace::Constant | MemorySpace::Write | MemorySpace::Update)
    });
    if escapes.is_empty() {
        return Ok(());
    }
    let mut body = std::mem::take(&mut kernel.body);
    Clamp { kernel, escapes }.block(&mut body);
    kernel.body = body;
    Ok(())
}

/// Whether there are copies with guards.
fn copies_windows(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match stmt {
        Stmt::Act(Act::Copy { from, .. }) => !from.guard.is_empty(),
        Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => stmt.blocks().into_iter().any(copies_windows),
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
                    self.clamp(from, i64::from(*count));
                }
                Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {
                    stmt.blocks_mut().into_iter().for_each(|block| self.block(block));
                }
            }
        }
    }

    /// Clamps the index of a run of so many elements, if it may be outside.
    fn clamp(&self, from: &mut Element, count: i64) {
        let data = &self.kernel.mems[from.mem];
        let ([at], [extent]) = (&mut from.index[..], &data.sizes[..]) else { return };
        let reached = *at * count + Expr::sym(Sym::new("copy.element"));
        let is_it = |escape: &Escape| {
            (&escape.mem, escape.index, &escape.guard) == (&data.name, reached, &from.guard)
                && !from.guard.is_empty()
        };
        if self.escapes.iter().any(is_it) {
            *at = Expr::max(Expr::min(*at, extent.floordiv(count) - 1), 0);
        }
    }
}
