//! Begins the sums of instructions with what is added to them.
//!
//! ```text
//! lane l in 32 { vector c in 2 by 2 { %0 = const 0.0; acc[c] = %0 } }
//! acc[0 step 0, 2, 1] mma.m16n8k16.bf16= ..
//! lane l in 32 { vector c in 2 by 2 { %1 = load acc[c]; %2 = load out[c]; %3 = mul %2, %2; %4 = add %3, %1; out[c] = %4 } }
//!   =>  lane l in 32 { vector c in 2 by 2 { %2 = load out[c]; %3 = mul %2, %2; acc[c] = %3 } }
//!       acc[0 step 0, 2, 1] mma.m16n8k16.bf16= ..
//!       lane l in 32 { vector c in 2 by 2 { %1 = load acc[c]; out[c] = %1 } }
//! ```
//!
//! So what goes on from one iteration of a loop to the next, as attention's result does, takes the registers of the sum, and no addition.
//! What is added is computed from registers of threads that hold it when the sum begins.

use super::Pass;
use super::clean::drop_unused;
use litz_ir::kernel::{
    Act, FragmentProduct, Kernel, KernelLoopKind, Loop, Mem, MemorySpace, Op, PartMut, Stmt, Val, visit,
};
use litz_ir::loops::Axis;
use litz_ir::target::Target;
use litz_ir::{Diag, Scalar, ScalarOp};
use litz_sym::Expr;
use std::collections::{HashMap, HashSet};

/// The pass.
pub const PASS: Pass = Pass { name: "resume", run };

/// Moves what is added to sums ahead of them.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut body = std::mem::take(&mut kernel.body);
    let alone = alone(&body);
    block(kernel, &alone, &mut body);
    kernel.body = body;
    Ok(())
}

/// Sums of instructions that one statement sets, and one loads.
fn alone(body: &[Stmt]) -> HashSet<Mem> {
    let (mut sums, mut others) = (HashSet::new(), HashMap::new());
    visit(body, &mut |stmt| {
        if let Stmt::Act(Act::FragmentProduct(FragmentProduct { sum, .. })) = stmt {
            sums.insert(sum.mem);
            return;
        }
        stmt.accesses().for_each(|(mem, _)| *others.entry(mem).or_insert(0) += 1);
    });
    sums.retain(|mem| others.get(mem) == Some(&2));
    sums
}

fn block(kernel: &mut Kernel, alone: &HashSet<Mem>, stmts: &mut [Stmt]) {
    for at in 0..stmts.len() {
        for inner in stmts[at].blocks_mut() {
            block(kernel, alone, inner);
        }
        if let Some(mem) = begun(&stmts[at]).filter(|mem| alone.contains(mem)) {
            resume(kernel, mem, &mut stmts[at..]);
        }
    }
}

/// Loops that are around nothing else, and what is in them.
fn unnested(mut stmts: &[Stmt]) -> (Vec<(KernelLoopKind, Axis)>, &[Stmt]) {
    let mut loops = Vec::new();
    while let [Stmt::Loop(Loop { kind, var, extent, body })] = stmts {
        loops.push((*kind, Axis { var: *var, extent: *extent }));
        stmts = body;
    }
    (loops, stmts)
}

/// The statements in the innermost of loops that are around nothing else.
fn innermost(stmt: &mut Stmt) -> Option<&mut Vec<Stmt>> {
    let Stmt::Loop(Loop { body, .. }) = stmt else { return None };
    match &body[..] {
        [Stmt::Loop(_)] => innermost(&mut body[0]),
        _ => Some(body),
    }
}

/// The memory of the sums that loops begin at zero.
fn begun(stmt: &Stmt) -> Option<Mem> {
    let (_, body) = unnested(std::slice::from_ref(stmt));
    let [Stmt::Act(Act::Let { val, op: Op::Const(zero) }), Stmt::Act(store)] = body else { return None };
    let Act::Store { mem, value, combine: None, guard, atomic: false, .. } = store else { return None };
    (*zero == Scalar::Float(0.0) && val == value && guard.is_empty()).then_some(*mem)
}

/// What is added to a sum where it is loaded.
struct Added {
    /// The sum and what is added, the result, and what is computed of registers.
    sum: Val,
    result: Val,
    addend: Val,
    lets: Vec<(Val, Op)>,
}

/// Begins the sums of a memory with what is added to them, if registers have that: the first of some statements begins them.
fn resume(kernel: &mut Kernel, mem: Mem, stmts: &mut [Stmt]) {
    let loads = |stmt: &Stmt| {
        let mut found = false;
        visit(std::slice::from_ref(stmt), &mut |stmt| {
            let is_product = matches!(stmt, Stmt::Act(Act::FragmentProduct(_)));
            found |= !is_product && stmt.loaded().any(|(loaded, _)| loaded == mem);
        });
        found
    };
    let Some(end) = stmts.iter().skip(1).position(loads).map(|at| at + 1) else { return };
    let (loops, first) = unnested(&stmts[..1]);
    let (others, last) = unnested(&stmts[end..=end]);
    let Some(Stmt::Act(Act::Store { index, .. })) = first.last() else { return };
    if loops != others {
        return;
    }
    let Some(added) = added(kernel, (mem, index), last) else { return };
    // Registers that are changed on the way have something else when the sum begins.
    let mut changed = HashSet::new();
    visit(&stmts[1..end], &mut |stmt| changed.extend(stmt.stored().map(|(mem, _)| mem)));
    if added.lets.iter().any(|(_, op)| matches!(op, Op::Load { mem, .. } if changed.contains(mem))) {
        return;
    }
    let begin = begin(kernel, &added, (mem, index.clone()));
    let end = innermost(&mut stmts[end]).expect("invariant: the sum is loaded in loops");
    end.retain(|stmt| !matches!(stmt, Stmt::Act(Act::Let { val, .. }) if *val == added.result));
    for stmt in &mut *end {
        stmt.each_part_mut(&mut |part| {
            if let PartMut::Val(val) = part
                && *val == added.result
            {
                *val = added.sum;
            }
        });
    }
    drop_unused(end);
    *innermost(&mut stmts[0]).expect("invariant: the sum begins in loops") = begin;
}

/// What some statements add to a sum that they load at an index. None where they use the sum otherwise, or what is added is not in registers, or
/// in elements that another iteration stores to.
fn added(kernel: &Kernel, (mem, place): (Mem, &[Expr]), body: &[Stmt]) -> Option<Added> {
    let mut lets: HashMap<Val, &Op> = HashMap::new();
    let mut uses: HashMap<Val, usize> = HashMap::new();
    for stmt in body {
        let Stmt::Act(act) = stmt else { return None };
        if let Act::Let { val, op } = act {
            lets.insert(*val, op);
        }
        stmt.each_value(&mut |val| *uses.entry(val).or_default() += 1);
    }
    let is_sum = |op: &Op| matches!(op, Op::Load { mem: of, index, guard, .. } if *of == mem && index == place && guard.is_empty());
    let sum = lets.iter().find(|(_, op)| is_sum(op)).map(|(val, _)| *val)?;
    let of_sum = |op: &Op| {
        let Op::Call(ScalarOp::Add, of) = op else { return None };
        let [a, b] = of[..] else { return None };
        [(a, b), (b, a)].into_iter().find(|of| of.0 == sum).map(|of| of.1)
    };
    let (result, addend) = lets.iter().find_map(|(val, op)| Some((*val, of_sum(op)?)))?;
    if uses.get(&sum) != Some(&1) {
        return None;
    }
    let stored: Vec<(Mem, &[Expr])> = body.iter().flat_map(Stmt::stored).collect();
    let is_free = |op: &Op| match op {
        Op::Load { mem, index, .. } => {
            let mut stores = stored.iter().filter(|store| store.0 == *mem);
            kernel.mems[*mem].space == MemorySpace::Own
                && stores.all(|(_, at)| *at == &index[..] && &index[..] == place)
        }
        Op::Const(_) | Op::Call(..) | Op::Cast(_) | Op::Round(..) | Op::Bitcast(_) => true,
        Op::Transposed { .. } | Op::Lookup { .. } | Op::Index(_) | Op::Cond(_) => false,
    };
    let mut needed = HashSet::from([addend]);
    let mut own = Vec::new();
    for stmt in body.iter().rev() {
        let Stmt::Act(Act::Let { val, op }) = stmt else { continue };
        if needed.contains(val) {
            if !is_free(op) {
                return None;
            }
            stmt.each_value(&mut |from| _ = needed.insert(from));
            own.push((*val, op.clone()));
        }
    }
    own.reverse();
    // What is computed elsewhere is not there yet.
    let has_all = needed.iter().all(|val| own.iter().any(|own| own.0 == *val));
    has_all.then_some(Added { sum, result, addend, lets: own })
}

/// The statements that begin a sum with what is added to it.
fn begin(kernel: &mut Kernel, added: &Added, (mem, index): (Mem, Vec<Expr>)) -> Vec<Stmt> {
    let mut copies: HashMap<Val, Val> = HashMap::new();
    let mut out = Vec::new();
    for (val, op) in &added.lets {
        let mut op = op.clone();
        op.each_part_mut(&mut |part| {
            if let PartMut::Val(from) = part {
                *from = copies[from];
            }
        });
        let copy = kernel.vals.push(kernel.vals[*val]);
        copies.insert(*val, copy);
        out.push(Stmt::Act(Act::Let { val: copy, op }));
    }
    let value = copies[&added.addend];
    let store = Act::Store { mem, index, value, combine: None, guard: Vec::new(), atomic: false };
    out.push(Stmt::Act(store));
    out
}
