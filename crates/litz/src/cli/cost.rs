//! Counts the bytes that a kernel must move and the operations that it does for given sizes.

use litz_ir::ScalarOp;
use litz_ir::kernel::{Kernel, Mem, Op, Stmt, visit};
use litz_sym::{Expr, Rel, Sym};
use std::collections::{BTreeMap, BTreeSet};

/// What one launch of a kernel costs.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Cost {
    /// Bytes of all parameters: what must be moved once, however often it is used. Of those that are only accessed at
    /// positions that data chooses, as an embedding's table is, the elements accessed.
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
    let extents: Vec<i64> = kernel.grid.iter().map(|a| extent(a.extent)).collect();
    let points: i64 = extents.iter().product();
    let step = (points / SAMPLES).max(1);
    let mut count = Count::default();
    let mut looked_at = 0.0;
    for point in (0..points).step_by(usize::try_from(step).unwrap_or(1)) {
        let mut scope: Vec<(Sym, i64)> = kernel.sizes.iter().copied().zip(sizes.iter().copied()).collect();
        let mut rest = point;
        for (axis, &n) in kernel.grid.iter().zip(&extents).rev() {
            scope.push((axis.var, rest % n.max(1)));
            rest /= n.max(1);
        }
        count.statements(&kernel.body, &mut scope, 1.0);
        looked_at += 1.0;
    }
    let scale = if looked_at > 0.0 { points as f64 / looked_at } else { 0.0 };
    let params = kernel.mems.iter().take(kernel.params);
    let bytes = params.map(|(mem, data)| {
        let all = extent(data.span()) as f64;
        let chosen = count.chosen.get(&mem).filter(|_| !count.direct.contains(&mem));
        chosen.map_or(all, |&n| all.min(n * scale)) * data.dtype.size() as f64
    });
    Cost { bytes: bytes.sum(), flops: count.flops * scale }
}

/// Whether instructions for products of matrices, or dot products, do part of the work.
pub fn has_matrix(kernel: &Kernel) -> bool {
    let mut has_matrix = false;
    visit(&kernel.body, &mut |stmt| {
        has_matrix |= matches!(stmt, Stmt::Dot(_) | Stmt::MatrixProduct(_));
    });
    has_matrix
}

/// What grid points do.
#[derive(Default)]
struct Count {
    flops: f64,
    /// Symbols that data gives a value.
    bound: BTreeSet<Sym>,
    /// Accesses at positions that depend on such symbols.
    chosen: BTreeMap<Mem, f64>,
    /// Memory with other accesses.
    direct: BTreeSet<Mem>,
}

impl Count {
    /// Counts statements that run so many `times`; a loop's first iteration stands for all of them.
    fn statements(&mut self, stmts: &[Stmt], scope: &mut Vec<(Sym, i64)>, times: f64) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => {
                    let extent = value(l.extent, scope).max(0);
                    scope.push((l.var, 0));
                    self.statements(&l.body, scope, times * extent as f64);
                    scope.pop();
                }
                Stmt::If { cond, then, other } => {
                    self.statements(if holds(cond, scope) { then } else { other }, scope, times);
                }
                Stmt::Let { op, .. } => match op {
                    Op::Call(ScalarOp::Fma, _) => self.flops += 2.0 * times,
                    Op::Call(..) => self.flops += times,
                    Op::Load { mem, index, .. } => self.access(*mem, index, times),
                    Op::Const(_)
                    | Op::Index(_)
                    | Op::Cond(_)
                    | Op::Cast(_)
                    | Op::Round(..)
                    | Op::Bitcast(_) => {}
                },
                Stmt::Store { mem, index, combine, .. } => {
                    self.access(*mem, index, times);
                    self.flops += if combine.is_some() { times } else { 0.0 };
                }
                Stmt::Dot(dot) => {
                    stmt.accesses().for_each(|(mem, index)| self.access(mem, index, times));
                    self.flops += 2.0 * dot.terms.len() as f64 * times;
                }
                Stmt::MatrixProduct(product) => {
                    stmt.accesses().for_each(|(mem, index)| self.access(mem, index, times));
                    let extents = product.over.iter().map(|axis| axis.extent);
                    let extents = extents.chain([product.rows, product.columns]);
                    let points: f64 = extents.map(|extent| value(extent, scope).max(0) as f64).product();
                    self.flops += 2.0 * f64::from(product.depth) * points * times;
                }
                Stmt::Copy { .. } => {
                    stmt.accesses().for_each(|(mem, index)| self.access(mem, index, times));
                }
                Stmt::Prefetch { .. } => {}
                Stmt::MulAdd { mem, index, .. } => {
                    self.access(*mem, index, times);
                    self.flops += 2.0 * times;
                }
                Stmt::ArgStore { best, at, index, .. } => {
                    self.access(*best, index, times);
                    self.access(*at, index, times);
                    self.flops += times;
                }
                Stmt::Bind { sym, .. } => {
                    self.bound.insert(*sym);
                }
            }
        }
    }

    fn access(&mut self, mem: Mem, index: &[Expr], times: f64) {
        if self.bound.iter().any(|&sym| index.iter().any(|at| at.has_sym(sym))) {
            *self.chosen.entry(mem).or_default() += times;
        } else {
            self.direct.insert(mem);
        }
    }
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

    #[test]
    fn rows_that_data_chooses_count_as_they_are_read() {
        let text = "kernel @k {
  read at: i64[3]
  read table: f32[400]
  write y: f32[12]
  grid i in 3
  check 0 = \"index out of range\"
  \
             %0: i64 = load at[i]
  bind t = %0 in 100, check 0
  for j in 4 {
    %1: f32 = load table[4*t + j]
    \
             y[4*i + j] = %1
  }
}
";
        let kernel = litz_ir::text::kernel::parse(text).expect("parses");
        assert_eq!(cost(&kernel, &[]), Cost { bytes: 3.0 * 8.0 + 12.0 * 4.0 + 12.0 * 4.0, flops: 0.0 });
    }
}
