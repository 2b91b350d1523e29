//! Contracts products that nothing but sums use into fused multiply-adds.
//!
//! ```text
//! %p = mul %a, %b; m[i] sum= %p  =>  m[i] fma= %a, %b
//! ```
//!
//! A product that anything else uses as well stays: it would be computed twice, and rounded in one of its uses only. Atomic
//! sums, and sums in memory of another type than the product's, are rounded between the two operations.

use super::Pass;
use litz_ir::kernel::{Act, Kernel, Op, Stmt, Val, visit, visit_mut};
use litz_ir::target::Target;
use litz_ir::{Diag, Dtype, ReduceOp, ScalarOp};
use std::collections::HashMap;

/// The pass.
pub const PASS: Pass = Pass { name: "contract", run };

/// Contracts products, where the target has the instruction.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let has_instruction = match target {
        Target::Cpu(_) => target.instruction("fma").is_some(),
        Target::Gpu(_) => true,
    };
    if !has_instruction {
        return Ok(());
    }
    let products = products(kernel);
    visit_mut(&mut kernel.body, &mut |stmt| {
        for block in stmt.blocks_mut() {
            contract(block, &products);
        }
    });
    contract(&mut kernel.body, &products);
    Ok(())
}

/// Products that nothing but sums use, with their factors.
fn products(kernel: &Kernel) -> HashMap<Val, [Val; 2]> {
    let mut products = HashMap::new();
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Let { val, op: Op::Call(ScalarOp::Mul, factors) }) = stmt
            && let [a, b] = factors[..]
            && matches!(kernel.vals[*val], Dtype::F32 | Dtype::F64)
        {
            products.insert(*val, [a, b]);
        }
    });
    visit(&kernel.body, &mut |stmt| {
        let is_sum = match stmt {
            Stmt::Act(Act::Store { mem, value, combine: Some(ReduceOp::Sum), atomic: false, .. }) => {
                kernel.mems[*mem].dtype == kernel.vals[*value]
            }
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => false,
        };
        if !is_sum {
            stmt.each_value(&mut |val| _ = products.remove(&val));
        }
    });
    products
}

/// Contracts what a block says itself.
fn contract(stmts: &mut Vec<Stmt>, products: &HashMap<Val, [Val; 2]>) {
    stmts.retain(|stmt| !matches!(stmt, Stmt::Act(Act::Let { val, .. }) if products.contains_key(val)));
    for stmt in stmts {
        if let Stmt::Act(Act::Store { mem, index, value, guard, .. }) = stmt
            && let Some(&factors) = products.get(value)
        {
            let (index, guard) = (std::mem::take(index), std::mem::take(guard));
            *stmt = Stmt::Act(Act::MulAdd { mem: *mem, index, factors, guard });
        }
    }
}
