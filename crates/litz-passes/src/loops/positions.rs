//! Adds checks of the positions at which statements store to state, ahead of all such stores, so that a call which fails one leaves
//! the state as it was.
//!
//! A nest of its own binds the positions that a nest stores at, and an assertion waits for it: what outlives a call is stored after the
//! assertions that come before it. Layers that store at the same positions share the check.

use super::{Edits, Names};
use litz_analysis::Uses;
use litz_ir::Dtype;
use litz_ir::graph::TensorType;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, BufKind, Callee, Extern, Inst, InstOp, Loops, Nest, Routine, Stmt, Val};
use litz_ir::scalar::Scalar;
use litz_sym::Expr;

/// Adds a check for each nest that stores to an input or a constant at positions that are only known at run time.
pub fn check_first(loops: &mut Loops) {
    let uses = Uses::of(loops);
    let is_state = |buf: &Buf| loops.bufs[*buf].kind != BufKind::Temp;
    let stores: Vec<usize> =
        (0..loops.stmts.len()).filter(|&at| uses.writes_of(at).iter().any(is_state)).collect();
    let mut checks: Vec<(usize, Check)> = Vec::new();
    for at in stores {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some(check) = Check::of(nest) else { continue };
        // What positions are computed from is there behind its last writer; if that is another store to state, it is too late.
        let reads = check.body.iter().filter_map(|inst| inst.op.element());
        let written = reads.flat_map(|(buf, _)| uses.writers(buf)).filter(|&&writer| writer < at);
        let before = written.max().map_or(0, |&writer| writer + 1);
        if !checks.iter().any(|(_, other)| *other == check) {
            checks.push((before, check));
        }
    }
    let (mut edits, mut names) = (Edits::default(), Names::of(loops));
    for (before, check) in checks {
        let (nest, call) = check.statements(loops, &mut names);
        edits.insert(before, Stmt::Nest(nest));
        edits.insert(before, Stmt::Extern(call));
    }
    edits.apply(loops);
}

/// The positions of a nest, and the axes along which they differ.
#[derive(PartialEq)]
struct Check {
    axes: Vec<Axis>,
    body: Vec<Inst>,
}

impl Check {
    /// Those that a nest binds, if it does and nothing but indices and elements decides on them.
    fn of(nest: &Nest) -> Option<Check> {
        let mut needed = vec![false; nest.body.len()];
        for (at, inst) in nest.body.iter().enumerate().rev() {
            needed[at] |= matches!(inst.op, InstOp::Bind { .. });
            if needed[at] {
                inst.op.operands().iter().for_each(|val| needed[val.index()] = true);
            }
        }
        let is_simple = |inst: &Inst| inst.op.is_term() || matches!(inst.op, InstOp::Bind { .. });
        let mut kept = nest.body.iter().zip(&needed).filter(|(_, needed)| **needed).map(|(inst, _)| inst);
        if !needed.contains(&true) || !kept.all(is_simple) {
            return None;
        }
        let mut map: Vec<Val> = Vec::with_capacity(nest.body.len());
        let mut body: Vec<Inst> = Vec::new();
        for (inst, needed) in nest.body.iter().zip(needed) {
            map.push(Val::new(body.len()));
            if needed {
                let mut inst = inst.clone();
                inst.op.operands_mut().into_iter().for_each(|val| *val = map[val.index()]);
                body.push(inst);
            }
        }
        let is_used =
            |axis: &&Axis| body.iter().any(|inst| inst.op.exprs().iter().any(|e| e.has_sym(axis.var)));
        let axes: Vec<Axis> = nest.all_axes().filter(is_used).copied().collect();
        Some(Check { axes, body })
    }

    /// The nest that binds the positions, and the call that waits for it.
    fn statements(mut self, loops: &mut Loops, names: &mut Names) -> (Nest, Extern) {
        let sizes = self.axes.iter().map(|axis| axis.extent).collect();
        let ty = TensorType::contiguous(Dtype::Bool, sizes).on(loops.device_of(&self.body));
        let buf = names.add_buf(loops, "positions", ty);
        let value = Val::new(self.body.len());
        let index = self.axes.iter().map(|axis| Expr::sym(axis.var)).collect();
        self.body.push(Inst { op: InstOp::Const(Scalar::Bool(true)), ty: Dtype::Bool });
        let store = InstOp::Store { buf, index, value, combine: None };
        self.body.push(Inst { op: store, ty: Dtype::Bool });
        let (name, from) = (names.statement("positions"), Vec::new());
        let nest = Nest::new(name, from, self.axes, self.body);
        let call = Extern {
            name: names.statement("checked"),
            from: Vec::new(),
            callee: Callee::Routine(Routine {
                name: "assert".to_owned(),
                reads: vec![buf],
                writes: Vec::new(),
                ints: Vec::new(),
            }),
            message: None,
        };
        (nest, call)
    }
}
