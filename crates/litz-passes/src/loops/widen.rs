//! Widens narrow integers where a product loads them, before their bits are taken apart.
//!
//! A byte of two integers becomes a vector of 32-bit lanes once, and not once for each of the two: `f32(w & 15)` and `f32(w >>
//! 4)` become `f32(i32(w) & 15)` and `f32(i32(w) >> 4)`. Shuffles that widen are what such a product has most of.

use super::{Cx, cse};
use litz_analysis::Contraction;
use litz_ir::ids::Id;
use litz_ir::loops::{Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::{Dtype, ScalarOp};

/// Widens what products take apart; returns how many numbers are made of wide integers.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        if Contraction::of(loops, nest).is_none_or(|both| both[0].is_plain) {
            continue;
        }
        let mut nest = nest.clone();
        while let Some(cast) = (0..nest.body.len()).find(|&at| is_taken_apart(&nest, at)) {
            widen(&mut nest, cast);
            count += 1;
        }
        loops.stmts[at] = Stmt::Nest(nest);
    }
    count
}

/// Whether an instruction converts bits of narrow integers to a float.
fn is_taken_apart(nest: &Nest, at: usize) -> bool {
    let inst = &nest.body[at];
    let InstOp::Cast(from) = inst.op else { return false };
    let is_operation = matches!(nest.body[from.index()].op, InstOp::Op(..));
    inst.ty.is_float() && is_operation && is_same_in_wide(nest, from.index())
}

/// Whether a narrow integer is the same number if all operations that it comes from are done in 32 bits.
fn is_same_in_wide(nest: &Nest, at: usize) -> bool {
    let inst = &nest.body[at];
    let is_narrow = matches!(inst.ty, Dtype::U8 | Dtype::I8 | Dtype::U16 | Dtype::I16);
    is_narrow
        && match &inst.op {
            InstOp::Load { .. } | InstOp::Const(_) => true,
            InstOp::Op(ScalarOp::And | ScalarOp::Or | ScalarOp::Xor | ScalarOp::Shr, args) => {
                args.iter().all(|arg| is_same_in_wide(nest, arg.index()))
            }
            InstOp::Op(ScalarOp::Select, args) => {
                args[1..].iter().all(|arg| is_same_in_wide(nest, arg.index()))
            }
            InstOp::Op(..)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Bind { .. }
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => false,
        }
}

/// Makes the operations that a conversion takes its value from 32 bits wide.
fn widen(nest: &mut Nest, cast: usize) {
    let InstOp::Cast(from) = nest.body[cast].op else { return };
    let mut body: Vec<Inst> = nest.body[..cast].to_vec();
    let value = widened(nest, from, &mut body);
    let at = body.len();
    let moved = |val: Val| if val.index() >= cast { Val::new(val.index() + at - cast) } else { val };
    for (position, mut inst) in nest.body.drain(cast..).enumerate() {
        if let (0, InstOp::Cast(from)) = (position, &mut inst.op) {
            *from = value;
        } else {
            inst.op.operands_mut().into_iter().for_each(|val| *val = moved(*val));
        }
        body.push(inst);
    }
    nest.body = body;
    cse::clean(nest);
}

/// Appends what computes the same integer in 32 bits.
fn widened(nest: &Nest, at: Val, body: &mut Vec<Inst>) -> Val {
    let op = match &nest.body[at.index()].op {
        InstOp::Const(scalar) => InstOp::Const(*scalar),
        InstOp::Op(ScalarOp::Select, args) => {
            let arms = [args[1], args[2]].map(|arg| widened(nest, arg, body));
            InstOp::Op(ScalarOp::Select, vec![args[0], arms[0], arms[1]])
        }
        InstOp::Op(op, args) => InstOp::Op(*op, args.iter().map(|&arg| widened(nest, arg, body)).collect()),
        InstOp::Load { .. }
        | InstOp::Index(_)
        | InstOp::Cond(_)
        | InstOp::Cast(_)
        | InstOp::Bitcast(_)
        | InstOp::Bind { .. }
        | InstOp::Reduce(..)
        | InstOp::ArgReduce { .. }
        | InstOp::Scan { .. }
        | InstOp::Store { .. } => InstOp::Cast(at),
    };
    body.push(Inst { op, ty: Dtype::I32 });
    Val::new(body.len() - 1)
}
