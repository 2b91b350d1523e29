//! What each statement reads and writes, and which statements run when the model is loaded.

use litz_ir::loops::{Buf, BufKind, Loops, Output};
use std::collections::HashSet;

/// Reads and writes of a statement.
#[derive(Clone, Debug)]
pub struct StmtInfo {
    /// Buffers read.
    pub reads: Vec<Buf>,
    /// Buffers written.
    pub writes: Vec<Buf>,
    /// Earlier statements that must run before it.
    pub after: Vec<usize>,
    /// Depends on constants alone, so it runs once, when the model is loaded.
    pub at_load: bool,
}

/// Analyses every statement.
pub fn analyse(loops: &Loops) -> Vec<StmtInfo> {
    let updated: HashSet<Buf> = loops.updates.iter().map(|u| u.0).collect();
    let mut writers: Vec<Vec<usize>> = vec![Vec::new(); loops.bufs.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); loops.bufs.len()];
    let mut infos: Vec<StmtInfo> = Vec::with_capacity(loops.stmts.len());
    for (i, stmt) in loops.stmts.iter().enumerate() {
        let (reads, writes) = (stmt.reads(), stmt.writes());
        let mut after = Vec::new();
        for b in &reads {
            after.extend(&writers[b.0 as usize]);
        }
        for b in &writes {
            after.extend(&writers[b.0 as usize]);
            after.extend(&readers[b.0 as usize]);
        }
        after.sort_unstable();
        after.dedup();
        after.retain(|&j| j != i);
        let constant = |b: &Buf| match loops.bufs[*b].kind {
            BufKind::Input => false,
            BufKind::Const(_) => !updated.contains(b),
            BufKind::Temp => {
                let w = &writers[b.0 as usize];
                w.iter().all(|&j| infos[j].at_load) && !(w.is_empty() && reads.contains(b) && !writes.contains(b))
            }
        };
        let symbolic = writes.iter().any(|&b| loops.bufs[b].sizes.iter().any(|s| s.as_int().is_none()));
        let at_load =
            !symbolic && reads.iter().all(constant) && !mentions_sizes(loops, i) && !reads.is_empty()
                && writes.iter().all(|b| writers[b.0 as usize].iter().all(|&j| infos[j].at_load));
        for b in &reads {
            readers[b.0 as usize].push(i);
        }
        for b in &writes {
            writers[b.0 as usize].push(i);
        }
        infos.push(StmtInfo { reads, writes, after, at_load });
    }
    settle(loops, &mut infos, &writers);
    infos
}

/// A buffer written by a statement at load must have all its writers there: others pull it into the call.
fn settle(loops: &Loops, infos: &mut [StmtInfo], writers: &[Vec<usize>]) {
    loop {
        let mut changed = false;
        for i in 0..infos.len() {
            let bad = infos[i].at_load
                && infos[i].writes.iter().chain(&infos[i].reads).any(|b| {
                    loops.bufs[*b].kind == BufKind::Temp && writers[b.0 as usize].iter().any(|&j| !infos[j].at_load)
                });
            if bad {
                infos[i].at_load = false;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

fn mentions_sizes(loops: &Loops, stmt: usize) -> bool {
    let nest = match &loops.stmts[stmt] {
        litz_ir::loops::Stmt::Nest(n) => n,
        litz_ir::loops::Stmt::Extern(e) => return e.ints.iter().any(|i| i.as_int().is_none()),
    };
    let size = |e: litz_sym::Expr| e.syms().into_iter().any(|s| loops.facts.is_symbol_declared(s));
    nest.all_axes().any(|a| size(a.extent)) || nest.body.iter().any(|i| i.op.exprs().into_iter().any(size))
}

/// Whether a buffer is needed after all statements have run.
pub fn escapes(loops: &Loops, buf: Buf) -> bool {
    loops.bufs[buf].kind != BufKind::Temp
        || loops.updates.iter().any(|u| u.0 == buf || u.1 == buf)
        || loops.outputs.iter().any(|o| matches!(o, Output::View { buf: b, .. } if *b == buf))
}
