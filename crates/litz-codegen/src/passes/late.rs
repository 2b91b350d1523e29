//! Lets a kernel load constants before it waits for the kernels in front of it.
//!
//! ```text
//! thread t in 256 { copy 8 w[8*t] to w_row }          thread t in 256 { copy 8 w[8*t] to w_row }
//! thread t in 256 { %0 = load x[t] .. }         =>    wait kernels
//!                                                     thread t in 256 { %0 = load x[t] .. }
//! ```
//!
//! GPUs that start a kernel early have its weights under way while the one in front, which makes `x`, still runs. What reads constants alone waits for
//! nothing, and has more of an assembler that may put their loads where it likes. The wait stands ahead of the first
//! statement that touches anything else, where no loop is around; in the branches of a launch that several kernels share, each has its own.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, MemorySpace, Stmt, Sync, visit};
use litz_ir::target::Target;

/// The pass.
pub const PASS: Pass = Pass { name: "late", run };

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let reads = |space| kernel.mems.values().any(|data| data.space == space);
    if !reads(MemorySpace::Constant) || !reads(MemorySpace::Read) && !reads(MemorySpace::Update) {
        return Ok(());
    }
    let body = without_waits(std::mem::take(&mut kernel.body));
    let (waiting, is_late) = waiting(kernel, &body);
    kernel.body = if is_late { waiting } else { body };
    Ok(())
}

/// The wait is put where it belongs anew, so that the pass changes nothing when it runs again.
fn without_waits(mut stmts: Vec<Stmt>) -> Vec<Stmt> {
    stmts.retain(|stmt| !matches!(stmt, Stmt::Act(Act::Sync(Sync::Kernels))));
    for stmt in &mut stmts {
        if let Stmt::If { then, other, .. } = stmt {
            [then, other].into_iter().for_each(|block| *block = without_waits(std::mem::take(block)));
        }
    }
    stmts
}

/// Statements with a wait as late as can be, and whether constants are loaded ahead of it.
fn waiting(kernel: &Kernel, stmts: &[Stmt]) -> (Vec<Stmt>, bool) {
    let is_early = |stmt: &Stmt| holds(stmt, &mut |stmt| kernel.touched_early(stmt).is_some());
    let at = stmts.iter().position(is_early).unwrap_or(stmts.len());
    let (ahead, behind) = stmts.split_at(at);
    let is_constant =
        |stmt: &Stmt| stmt.loaded().any(|(mem, _)| kernel.mems[mem].space == MemorySpace::Constant);
    let has_loads = ahead.iter().any(|stmt| holds(stmt, &mut |stmt| is_constant(stmt)));
    if let Some((Stmt::If { cond, then, other }, rest)) = behind.split_first()
        && !has_loads
    {
        let [then, other] = [then, other].map(|block| waiting(kernel, block));
        if then.1 || other.1 {
            let branches = Stmt::If { cond: cond.clone(), then: then.0, other: other.0 };
            return ([ahead, &[branches], rest].concat(), true);
        }
    }
    let wait = Stmt::Act(Act::Sync(Sync::Kernels));
    ([ahead, &[wait], behind].concat(), has_loads)
}

/// Whether something is true of a statement or of one within it.
fn holds(stmt: &Stmt, is: &mut dyn FnMut(&Stmt) -> bool) -> bool {
    let mut found = false;
    visit(std::slice::from_ref(stmt), &mut |stmt| found |= is(stmt));
    found
}
