//! Says which instructions of a nest run in which of its parts.

use litz_ir::ids::Id;
use litz_ir::loops::{InstOp, Nest, Val};
use litz_ir::schedule::Part;
use litz_sym::Sym;

/// For each instruction, the parts of the nest in which a leaf runs it.
pub fn parts_of(nest: &Nest) -> Vec<Vec<Part>> {
    if !nest.reduces() {
        return vec![vec![Part::Whole]; nest.body.len()];
    }
    let needed = [Part::Update, Part::Final].map(|part| (part, needed_in(nest, part)));
    let parts = |at: usize| needed.iter().filter(|(_, needed)| needed[at]).map(|part| part.0).collect();
    (0..nest.body.len()).map(parts).collect()
}

/// For each instruction, whether what a part of a nest does depends on it: what it combines and stores, and what it checks.
pub fn needed_in(nest: &Nest, part: Part) -> Vec<bool> {
    let after = nest.after_reduce();
    let mut needed = vec![false; nest.body.len()];
    for (at, inst) in nest.body.iter().enumerate().rev() {
        let is_root = match &inst.op {
            InstOp::Store { .. } => match part {
                Part::Whole => true,
                Part::Update => !after[at],
                Part::Final => nest.reduces() && after[at],
                Part::Init | Part::Merge => false,
            },
            // A check happens where the values it guards do.
            InstOp::Reduce(..) | InstOp::ArgReduce { .. } | InstOp::Bind { .. } => part != Part::Final,
            InstOp::Load { .. }
            | InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Scan { .. } => false,
        };
        needed[at] |= is_root;
        // What was reduced is in the accumulator.
        if needed[at] && !(part == Part::Final && inst.op.is_reduction()) {
            need(nest, at, &inst.op.operands(), &mut needed);
        }
    }
    needed
}

/// Which instructions say where a nest stores: those that the symbols in indices of stores are bound to, checks included.
pub fn placing(nest: &Nest) -> Vec<bool> {
    let stores = nest.body.iter().map(|inst| matches!(inst.op, InstOp::Store { .. }));
    let stores: Vec<bool> = stores.collect();
    let mut wanted = vec![false; nest.body.len()];
    for (i, inst) in nest.body.iter().enumerate().rev() {
        if wanted[i] || stores[i] {
            let operands = if stores[i] { Vec::new() } else { inst.op.operands() };
            need(nest, i, &operands, &mut wanted);
        }
    }
    wanted
}

/// Notes that `operands` are needed, and what binds the symbols of the index expressions of the instruction at position `at`.
pub fn need(nest: &Nest, at: usize, operands: &[Val], needed: &mut [bool]) {
    for val in operands {
        needed[val.index()] = true;
    }
    let mentioned: Vec<Sym> = nest.body[at].op.exprs().iter().flat_map(|e| e.syms()).collect();
    for (other, inst) in nest.body[..at].iter().enumerate() {
        if let InstOp::Bind { sym, .. } = inst.op
            && mentioned.contains(&sym)
        {
            needed[other] = true;
        }
    }
}
