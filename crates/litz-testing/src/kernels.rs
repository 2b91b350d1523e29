//! Makes programs of single kernels of models, with few points: the nests of one kernel, their axes cut short.
//!
//! What nests outside of the kernel write becomes an input, and what those read becomes an output. Axes are cut from the last
//! nest to the first, so that each nest still stores what later ones read; then dimensions of buffers to what is accessed.
//! Whether all of that was right, the verifier of loops and the interpreter say.

use std::collections::{BTreeSet, HashMap, HashSet};

use litz_analysis::Contraction;
use litz_ir::graph::contiguous_strides;
use litz_ir::ids::Table;
use litz_ir::loops::{Axis, Buf, BufKind, InstOp, Loops, Nest, Output, Stmt};
use litz_ir::schedule::{KernelPlan, Tree};
use litz_ir::{Dtype, ReduceOp};
use litz_sym::{Expr, Facts, Sym};

/// Extents up to this stay as they are.
const SHORT: i64 = 12;

/// The statements of a kernel as a program of their own. None where it has none.
pub fn alone(loops: &Loops, plan: &KernelPlan) -> Option<Loops> {
    let mut names: HashSet<&str> = HashSet::new();
    plan.body.iter().for_each(|tree: &Tree| {
        tree.each_leaf(&mut |leaf| {
            names.insert(&leaf.nest);
        });
    });
    let is_of_kernel = |stmt: &&Stmt| stmt.nests().iter().any(|nest| names.contains(&*nest.name));
    let own: Vec<Stmt> = loops.stmts.iter().filter(is_of_kernel).cloned().collect();
    let others: Vec<&Stmt> = loops.stmts.iter().filter(|stmt| !is_of_kernel(stmt)).collect();
    let results: HashSet<Buf> = loops.results().collect();
    let mut alone =
        Loops { stmts: own, bufs: Table::new(), updates: Vec::new(), outputs: Vec::new(), ..loops.clone() };
    alone.name = "kernel".to_owned();
    let mut at: HashMap<Buf, Buf> = HashMap::new();
    for (buf, data) in loops.bufs.iter() {
        let is_written = alone.stmts.iter().any(|stmt| stmt.writes().contains(&buf));
        let is_read = alone.stmts.iter().any(|stmt| stmt.reads().contains(&buf));
        if !is_written && !is_read {
            continue;
        }
        let mut data = data.clone();
        let is_seen = results.contains(&buf) || others.iter().any(|stmt| stmt.reads().contains(&buf));
        if !is_written && data.kind == BufKind::Temp || data.kind == BufKind::Input {
            data.kind = BufKind::Input;
        }
        let is_output = is_written && (is_seen || data.kind != BufKind::Temp);
        if is_output {
            data.kind = BufKind::Temp;
        }
        let (sizes, strides) = (data.sizes.clone(), data.strides.clone());
        let new = alone.bufs.push(data);
        at.insert(buf, new);
        if is_output {
            alone.outputs.push(Output::View { buf: new, sizes, strides, offset: Expr::zero() });
        }
    }
    for stmt in &mut alone.stmts {
        let nests: &mut [Nest] = match stmt {
            Stmt::Nest(nest) => std::slice::from_mut(nest),
            Stmt::Recurrence(region) => {
                region.carry.iter_mut().for_each(|buf| *buf = at[buf]);
                &mut region.nests
            }
            Stmt::Extern(_) => return None,
        };
        for inst in nests.iter_mut().flat_map(|nest| &mut nest.body) {
            match &mut inst.op {
                InstOp::Load { buf, .. } | InstOp::Store { buf, .. } => *buf = at[buf],
                InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. }
                | InstOp::Reduce(..)
                | InstOp::ArgReduce { .. }
                | InstOp::Scan { .. } => {}
            }
        }
    }
    (!alone.outputs.is_empty()).then_some(alone)
}

/// An extent cut short, with the remainder by 16 that it has; one without a remainder gets one.
fn cut(extent: i64) -> i64 {
    match (extent, extent % 16) {
        (..=SHORT, _) => extent,
        (_, 0) => 19.min(extent),
        (_, rest) if rest < 4 => (16 + rest).min(extent),
        (_, rest) => rest,
    }
}

/// The program with axes and buffers cut short.
pub fn shortened(loops: &Loops) -> Loops {
    let mut short = loops.clone();
    // How many elements of each dimension later nests read.
    let mut read: HashMap<(Buf, usize), i64> = HashMap::new();
    let facts = short.facts.clone();
    let mut stmts = std::mem::take(&mut short.stmts);
    for stmt in stmts.iter_mut().rev() {
        match stmt {
            Stmt::Nest(nest) => shorten(nest, None, &facts, &mut read),
            Stmt::Recurrence(region) => {
                let over = Axis {
                    extent: region.over.extent.as_int().map_or(region.over.extent, |n| Expr::int(cut(n))),
                    ..region.over
                };
                // Twice: what an iteration reads the one before writes.
                for _ in 0..2 {
                    region
                        .nests
                        .iter_mut()
                        .rev()
                        .for_each(|nest| shorten(nest, Some(over), &facts, &mut read));
                }
                region.over = over;
            }
            Stmt::Extern(_) => {}
        }
    }
    short.stmts = stmts;
    let bufs: Vec<Buf> = short.bufs.iter().map(|(buf, _)| buf).collect();
    for buf in bufs {
        let data = &short.bufs[buf];
        if data.strides != contiguous_strides(&data.sizes) {
            continue;
        }
        let mut sizes = data.sizes.clone();
        for (dim, size) in sizes.iter_mut().enumerate() {
            let accesses = short.stmts.iter().flat_map(Stmt::nests).flat_map(|nest| {
                let facts = nest.facts(&facts);
                let reached = nest.body.iter().filter_map(move |inst| {
                    let (accessed, index) = inst.op.element()?;
                    (accessed == buf).then(|| facts.bounds(index[dim]).hi.saturating_add(1))
                });
                reached.collect::<Vec<_>>()
            });
            if let (Some(full), Some(reached)) = (size.as_int(), accesses.max()) {
                *size = Expr::int(reached.clamp(1.min(full), full));
            }
        }
        let data = &mut short.bufs[buf];
        data.strides = contiguous_strides(&sizes);
        data.sizes = sizes;
    }
    for output in &mut short.outputs {
        if let Output::View { buf, sizes, strides, .. } = output {
            (*sizes, *strides) = (short.bufs[*buf].sizes.clone(), short.bufs[*buf].strides.clone());
        }
    }
    short
}

/// Cuts the axes of a nest: those that stores count directly to what is read of it, others that no such store has as they
/// please.
fn shorten(nest: &mut Nest, over: Option<Axis>, facts: &Facts, read: &mut HashMap<(Buf, usize), i64>) {
    let mut least: HashMap<Sym, i64> = HashMap::new();
    let mut kept: HashSet<Sym> = HashSet::new();
    for inst in &nest.body {
        let InstOp::Store { buf, index, .. } = &inst.op else { continue };
        for (dim, &at) in index.iter().enumerate() {
            let Some(&needed) = read.get(&(*buf, dim)) else { continue };
            match at.as_sym() {
                Some(sym) => drop(least.entry(sym).and_modify(|n| *n = needed.max(*n)).or_insert(needed)),
                None => kept.extend(at.syms()),
            }
        }
    }
    for axis in nest.axes.iter_mut().chain(&mut nest.reduced) {
        let Some(extent) = axis.extent.as_int() else { continue };
        axis.extent = Expr::int(match (over, least.get(&axis.var)) {
            (Some(over), _) if over.var == axis.var => over.extent.as_int().unwrap_or(extent),
            _ if kept.contains(&axis.var) => extent,
            (_, Some(&needed)) => extent.min(needed),
            (_, None) => cut(extent),
        });
    }
    for inst in &mut nest.body {
        if let InstOp::Bind { extent, .. } = &mut inst.op
            && let Some(number) = extent.as_int()
        {
            *extent = Expr::int(cut(number));
        }
    }
    let here = nest.facts(facts);
    for inst in &nest.body {
        let InstOp::Load { buf, index, .. } = &inst.op else { continue };
        for (dim, &at) in index.iter().enumerate() {
            let reached = here.bounds(at).hi.saturating_add(1);
            let needed = read.entry((*buf, dim)).or_insert(reached);
            *needed = reached.max(*needed);
        }
    }
}

/// What a program has that matters to schedules, so that two programs which have the same are told.
pub fn features(loops: &Loops) -> String {
    let mut features: BTreeSet<String> = BTreeSet::new();
    let nests: Vec<&Nest> = loops.stmts.iter().flat_map(Stmt::nests).collect();
    features.insert(match nests.len() {
        count @ 1..=3 => format!("nests {count}"),
        _ => "many nests".to_owned(),
    });
    let mut has = |name: &str, is_there: bool| {
        if is_there {
            features.insert(name.to_owned());
        }
    };
    has("region", loops.stmts.iter().any(|stmt| matches!(stmt, Stmt::Recurrence(_))));
    has("symbolic", loops.facts.symbols().next().is_some());
    has("halves", loops.bufs.values().any(|data| matches!(data.dtype, Dtype::BF16 | Dtype::F16)));
    has("integers", loops.bufs.values().any(|data| data.dtype.is_int()));
    for nest in nests {
        has("contraction", Contraction::of(loops, nest).is_some());
        has("windows", nest.reduced.len() > 1);
        has("many axes", nest.axes.len() > 3);
        has("divisions", nest.body.iter().flat_map(|inst| inst.op.exprs()).any(|e| !e.is_polynomial()));
        for inst in &nest.body {
            match &inst.op {
                InstOp::Load { guard, .. } => has("guard", !guard.is_empty()),
                InstOp::Store { combine, .. } => has("scatter", combine.is_some()),
                InstOp::Bind { .. } => has("gather", true),
                InstOp::Reduce(ReduceOp::Sum, _) => has("sum", true),
                InstOp::Reduce(..) => has("reduction", true),
                InstOp::ArgReduce { .. } => has("argmax", true),
                InstOp::Scan { .. } => has("scan", true),
                InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_) => {}
            }
        }
    }
    features.into_iter().collect::<Vec<_>>().join(", ")
}
