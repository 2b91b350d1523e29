//! What each statement reads and writes, and which statements run when the model is loaded.

use litz_ir::ids::Table;
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Nest, Span, Stmt};
use litz_sym::{Expr, Sym};
use std::collections::HashSet;

/// What depends on what.
#[derive(Clone, Debug)]
pub struct Deps {
    /// For each statement.
    pub stmts: Vec<StmtInfo>,
    /// Statements that read or write the buffer, in order.
    pub users: Table<Buf, Vec<usize>>,
    /// Whether the buffer is needed after all statements have run.
    pub escapes: Table<Buf, bool>,
}

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
    /// Axes of a nest whose points depend on each other, but for that of its region: a scan runs along them, or stores
    /// along them may meet.
    pub ordered: Vec<Sym>,
    /// Whether a nest combines with what is in memory, or stores along some axis may meet.
    pub is_scatter: bool,
}

/// Analyses every statement. `regions` are where nests of regions stand: these run at every call.
pub fn analyse(loops: &Loops, regions: &[Span]) -> Deps {
    let updated: HashSet<Buf> = loops.updates.iter().map(|u| u.0).collect();
    let mut writers: Table<Buf, Vec<usize>> = of_each_buf(loops, Vec::new());
    let mut users: Table<Buf, Vec<usize>> = of_each_buf(loops, Vec::new());
    let mut stmts: Vec<StmtInfo> = Vec::with_capacity(loops.stmts.len());
    for (i, stmt) in loops.stmts.iter().enumerate() {
        let (reads, writes) = (stmt.reads(), stmt.writes());
        let mut after: Vec<usize> = reads.iter().flat_map(|&b| &writers[b]).copied().collect();
        after.extend(writes.iter().flat_map(|&b| &users[b]));
        after.sort_unstable();
        after.dedup();
        let all_at_load = |b: Buf| writers[b].iter().all(|&j| stmts[j].at_load);
        let is_constant = |&b: &Buf| match loops.bufs[b].kind {
            BufKind::Input => false,
            BufKind::Const(_) => !updated.contains(&b),
            BufKind::Temp => all_at_load(b) && (!writers[b].is_empty() || writes.contains(&b)),
        };
        let at_load = !reads.is_empty()
            && !regions.iter().any(|region| region.stmts.contains(&i))
            && !mentions_sizes(loops, stmt)
            && reads.iter().all(is_constant)
            && writes
                .iter()
                .all(|&b| all_at_load(b) && loops.bufs[b].sizes.iter().all(|s| s.as_int().is_some()));
        for &b in &writes {
            writers[b].push(i);
        }
        for &b in reads.iter().chain(writes.iter().filter(|b| !reads.contains(b))) {
            users[b].push(i);
        }
        let over = regions.iter().find(|region| region.stmts.contains(&i)).map(|region| region.over.var);
        let (ordered, is_scatter) = match stmt {
            Stmt::Nest(nest) => order_of(loops, nest, over),
            Stmt::Extern(_) | Stmt::Region(_) => (Vec::new(), false),
        };
        stmts.push(StmtInfo { reads, writes, after, at_load, ordered, is_scatter });
    }
    settle(loops, &mut stmts, &writers);
    let mut escapes = of_each_buf(loops, false);
    loops.bufs.iter().for_each(|(buf, data)| escapes[buf] = data.kind != BufKind::Temp);
    loops.results().for_each(|buf| escapes[buf] = true);
    Deps { stmts, users, escapes }
}

/// The axes of a nest whose points must be taken in order, as the nest has them, and whether it is a scatter. `over` is the
/// axis of its region.
fn order_of(loops: &Loops, nest: &Nest, over: Option<Sym>) -> (Vec<Sym>, bool) {
    let mut ordered = nest.colliding_axes(loops);
    ordered.retain(|&axis| Some(axis) != over);
    let combines = |inst: &Inst| matches!(inst.op, InstOp::Store { combine: Some(_), .. });
    let is_scatter = !ordered.is_empty() || nest.body.iter().any(combines);
    let scanned = nest.body.iter().filter_map(|inst| match inst.op {
        InstOp::Scan { axis, .. } => Some(axis),
        _ => None,
    });
    ordered.extend(scanned);
    let axes = nest.all_axes().map(|axis| axis.var);
    (axes.filter(|axis| ordered.contains(axis)).collect(), is_scatter)
}

/// A buffer written by a statement at load must have all its writers there: others pull it into the call.
fn settle(loops: &Loops, stmts: &mut [StmtInfo], writers: &Table<Buf, Vec<usize>>) {
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for i in 0..stmts.len() {
            let is_late = |&b: &Buf| {
                loops.bufs[b].kind == BufKind::Temp && writers[b].iter().any(|&j| !stmts[j].at_load)
            };
            if stmts[i].at_load && stmts[i].writes.iter().chain(&stmts[i].reads).any(is_late) {
                stmts[i].at_load = false;
                has_changed = true;
            }
        }
    }
}

fn mentions_sizes(loops: &Loops, stmt: &Stmt) -> bool {
    let is_size = |e: Expr| e.syms().into_iter().any(|s| loops.facts.is_symbol_declared(s));
    let in_nest = |n: &Nest| {
        n.all_axes().any(|a| is_size(a.extent))
            || n.body.iter().any(|i| i.op.exprs().into_iter().any(is_size))
    };
    match stmt {
        Stmt::Nest(_) | Stmt::Region(_) => stmt.nests().iter().any(in_nest),
        Stmt::Extern(e) => e.ints.iter().any(|i| i.as_int().is_none()),
    }
}

fn of_each_buf<T: Clone>(loops: &Loops, item: T) -> Table<Buf, T> {
    let mut table = Table::new();
    for _ in loops.bufs.ids() {
        table.push(item.clone());
    }
    table
}
