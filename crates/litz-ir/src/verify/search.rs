//! Decides whether iterations of a loop that have something to do may be looked for many at once, and says what prevents it.

use crate::kernel::{Act, Kernel, Loop, Op, Stmt};

/// What a searching loop does: acts that say whether an iteration has anything to do, and the branch with it.
pub fn parts(inner: &Loop) -> Option<(&[Stmt], &Stmt)> {
    let (last, ahead) = inner.body.split_last()?;
    matches!(last, Stmt::If { other, .. } if other.is_empty()).then_some((ahead, last))
}

/// Says what prevents the search, if anything does.
///
/// Whether an iteration has anything to do must not depend on those before it: it follows from what the kernel only reads.
pub fn obstacle(kernel: &Kernel, inner: &Loop) -> Option<String> {
    let Some((ahead, _)) = parts(inner) else {
        return Some("expected acts and a branch of one arm behind them".into());
    };
    for stmt in ahead {
        let is_loaded = match stmt {
            Stmt::Act(Act::Let { op: Op::Transposed { .. } | Op::Lookup { .. }, .. }) => false,
            Stmt::Act(Act::Let { .. } | Act::Bind { .. }) => true,
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => false,
        };
        if !is_loaded {
            return Some("there is more ahead of its branch than loads, operations and checks".into());
        }
        for (mem, _) in stmt.loaded() {
            if let Some(data) = kernel.mems.get(mem).filter(|data| !data.space.is_only_read()) {
                return Some(format!("what it looks for is in `{}`, which is not only read", data.name));
            }
        }
    }
    None
}
