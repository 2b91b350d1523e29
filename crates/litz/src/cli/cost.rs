//! A kernel and its sizes to the bytes it must move and the operations it does.

use litz_ir::ScalarOp;
use litz_ir::kernel::{Kernel, Op, Stmt};
use litz_sym::{Expr, Rel, Sym};

/// What one launch of a kernel costs.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Cost {
    /// Bytes of all parameters: what must be moved once, however often it is used.
    pub bytes: f64,
    /// Floating or integer operations; a fused multiply-add counts as two.
    pub flops: f64,
}

/// Grid points looked at: of larger grids every n-th, as all but the last few points do the same.
const SAMPLES: i64 = 512;

/// Counts for one launch with these values of the kernel's size symbols.
pub fn cost(kernel: &Kernel, sizes: &[i64]) -> Cost {
    let size = |sym: Sym| kernel.sizes.iter().position(|s| *s == sym).and_then(|at| sizes.get(at).copied());
    let extent = |e: Expr| e.eval(&size).unwrap_or(0).max(0);
    let bytes = kernel
        .mems
        .values()
        .take(kernel.params)
        .map(|m| extent(m.extent) as f64 * m.dtype.size() as f64)
        .sum();
    let extents: Vec<i64> = kernel.grid.iter().map(|a| extent(a.extent)).collect();
    let points: i64 = extents.iter().product();
    let step = (points / SAMPLES).max(1);
    let (mut flops, mut looked_at) = (0.0, 0.0);
    for point in (0..points).step_by(usize::try_from(step).unwrap_or(1)) {
        let mut scope: Vec<(Sym, i64)> = kernel.sizes.iter().copied().zip(sizes.iter().copied()).collect();
        let mut rest = point;
        for (axis, &n) in kernel.grid.iter().zip(&extents).rev() {
            scope.push((axis.var, rest % n.max(1)));
            rest /= n.max(1);
        }
        flops += operations(&kernel.body, &mut scope);
        looked_at += 1.0;
    }
    Cost { bytes, flops: if looked_at > 0.0 { flops / looked_at * points as f64 } else { 0.0 } }
}

/// Operations of statements; loops count their body once, at the first iteration, times their extent.
fn operations(stmts: &[Stmt], scope: &mut Vec<(Sym, i64)>) -> f64 {
    let mut total = 0.0;
    for stmt in stmts {
        total += match stmt {
            Stmt::Loop(l) => {
                let extent = value(l.extent, scope).max(0);
                scope.push((l.var, 0));
                let body = operations(&l.body, scope);
                scope.pop();
                extent as f64 * body
            }
            Stmt::If { cond, then, other } => {
                operations(if holds(cond, scope) { then } else { other }, scope)
            }
            Stmt::Let { op: Op::Call(ScalarOp::Fma, _), .. } => 2.0,
            Stmt::Let { op: Op::Call(..), .. } => 1.0,
            Stmt::Store { combine: Some(_), .. } | Stmt::ArgStore { .. } => 1.0,
            Stmt::Let { .. } | Stmt::Store { combine: None, .. } | Stmt::Bind { .. } => 0.0,
        };
    }
    total
}

fn value(e: Expr, scope: &[(Sym, i64)]) -> i64 {
    e.eval(&|sym| scope.iter().rev().find(|s| s.0 == sym).map(|s| s.1)).unwrap_or(0)
}

fn holds(cond: &[Rel], scope: &[(Sym, i64)]) -> bool {
    let sym = |sym| scope.iter().rev().find(|s| s.0 == sym).map(|s| s.1);
    cond.iter().all(|rel| rel.eval(&sym).unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiled_product_counts_every_multiplication_once() {
        let text = "kernel @k {\n  read x: f32[30]\n  write y: f32[5]\n  grid io in 3\n  register acc: f32[2]\n  \
             if 2 <= 5 - 2*io {\n    for k in 6 {\n      unroll ii in 2 {\n        %0: f32 = load x[12*io + 6*ii + k]\n        \
             %1: f32 = mul %0, %0\n        acc[ii] sum= %1\n      }\n    }\n  } else {\n    for k in 6 {\n      \
             %2: f32 = load x[12*io + k]\n      %3: f32 = mul %2, %2\n      acc[0] sum= %3\n    }\n  }\n}\n";
        let kernel = litz_ir::text::kernel::parse(text).expect("parses");
        assert_eq!(cost(&kernel, &[]), Cost { bytes: 35.0 * 4.0, flops: 2.0 * 5.0 * 6.0 });
    }
}
