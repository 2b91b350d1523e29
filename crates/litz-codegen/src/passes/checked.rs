//! Turns accesses that cannot be proved to stay inside of their memory into checked ones.
//!
//! Native code does not check its accesses, so that the verifier of kernels wants each of them proved. What ranges of sizes
//! do not prove, guards may, which the kernel then names and each launch checks. What neither proves is checked while the
//! kernel runs, as indices that come from data are: a failure ends the call.
//!
//! Realization ends with it, by what is known of the program. What spreads accesses over threads does it again.

use super::Pass;
use litz_ir::kernel::{Act, Kernel, Mem, MemorySpace, Op, Stmt, Val};
use litz_ir::target::Target;
use litz_ir::verify::reach::{Escape, escapes_of};
use litz_ir::{Diag, Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "checked", run };

/// As [`check`], by what the kernel itself knows.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let facts = kernel.facts.clone();
    check(kernel, &facts);
    Ok(())
}

/// Makes the kernel one of which the verifier knows that it stays inside of its memory; `facts` are those of the program.
pub fn check(kernel: &mut Kernel, facts: &Facts) {
    let found = escapes_of(kernel, has_addresses);
    if found.is_empty() {
        return;
    }
    let before = kernel.facts.clone();
    take_guards(kernel, facts);
    let escapes = if kernel.facts == before { found } else { escapes_of(kernel, has_addresses) };
    if escapes.is_empty() {
        return;
    }
    let body = std::mem::take(&mut kernel.body);
    kernel.body = Checker { kernel, escapes }.block(body);
}

/// Whether a memory has addresses that accesses may miss. Registers have none, and the verifier says what is wrong with them.
fn has_addresses(space: MemorySpace) -> bool {
    !matches!(space, MemorySpace::Register | MemorySpace::Own)
}

/// Lets the kernel rest on what the program knows of its sizes besides their ranges.
fn take_guards(kernel: &mut Kernel, facts: &Facts) {
    for &size in &kernel.sizes {
        kernel.facts.declare_divisor(size, facts.divisor_of(size));
    }
    for guard in facts.guards() {
        let is_own = |e: Expr| e.syms().iter().all(|sym| kernel.sizes.contains(sym));
        if guard.clause.alternatives().iter().all(|rel| is_own(rel.lhs) && is_own(rel.rhs)) {
            // What a program rests on does not contradict itself; without a guard, less is proved.
            let _ = kernel.facts.require(guard.clause.clone(), &guard.who);
        }
    }
}

struct Checker<'a> {
    kernel: &'a mut Kernel,
    escapes: Vec<Escape>,
}

impl Checker<'_> {
    fn block(&mut self, stmts: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(stmts.len());
        for mut stmt in stmts {
            for block in stmt.blocks_mut() {
                *block = self.block(std::mem::take(block));
            }
            match &mut stmt {
                Stmt::Act(
                    Act::Let { op: Op::Load { mem, index, guard, .. }, .. }
                    | Act::Store { mem, index, guard, .. }
                    | Act::MulAdd { mem, index, guard, .. },
                ) => self.check(*mem, index, guard, &mut out),
                Stmt::Act(Act::ArgStore { best, index, .. }) => {
                    self.check(*best, index, &mut Vec::new(), &mut out)
                }
                Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {}
            }
            out.push(stmt);
        }
        out
    }

    /// Checks the coordinates of an access that may be outside.
    fn check(&mut self, mem: Mem, index: &mut [Expr], guard: &mut Vec<Rel>, out: &mut Vec<Stmt>) {
        if !has_addresses(self.kernel.mems[mem].space) {
            return;
        }
        let happens = guard.clone();
        for (dim, at) in index.iter_mut().enumerate() {
            let data = &self.kernel.mems[mem];
            let is_this = |escape: &Escape| {
                (&escape.mem, escape.dim, escape.index, &escape.guard[..]) == (&data.name, dim, *at, &happens)
            };
            if self.escapes.iter().any(is_this) {
                *at = self.checked(mem, dim, *at, &happens, guard, out);
            }
        }
    }

    /// The coordinate to use for `index`, where the access happens if `happens`.
    fn checked(
        &mut self,
        mem: Mem,
        dim: usize,
        index: Expr,
        happens: &[Rel],
        guard: &mut Vec<Rel>,
        out: &mut Vec<Stmt>,
    ) -> Expr {
        let data = &self.kernel.mems[mem];
        let (extent, message) = (data.sizes[dim], format!("index of `{}` is out of range", data.name));
        let mut value = self.define(Dtype::I64, Op::Index(index), out);
        // Where the access does not happen, there is nothing to check.
        for &rel in happens {
            let holds = self.define(Dtype::Bool, Op::Cond(rel), out);
            let zero = self.define(Dtype::I64, Op::Const(Scalar::Int(0)), out);
            value = self.define(Dtype::I64, Op::Call(ScalarOp::Select, vec![holds, value, zero]), out);
        }
        let check = self.kernel.checks.len();
        self.kernel.checks.push(message);
        let sym = Sym::new(&format!("checked_{check}"));
        // The index of an access that does not happen is 0, which memory without elements does not have either.
        let may_be_empty = !happens.is_empty() && !self.kernel.facts.holds(&Rel::le(1, extent));
        if may_be_empty {
            guard.push(Rel::lt(Expr::sym(sym), extent));
        }
        let extent = if may_be_empty { extent.max(Expr::one()) } else { extent };
        out.push(Stmt::Act(Act::Bind { sym, value, extent, check: check as u32 }));
        Expr::sym(sym)
    }

    fn define(&mut self, ty: Dtype, op: Op, out: &mut Vec<Stmt>) -> Val {
        let val = self.kernel.vals.push(ty);
        out.push(Stmt::Act(Act::Let { val, op }));
        val
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::text::kernel::parse;
    use litz_ir::verify::kernel::verify;
    use litz_sym::{Range, parse_rel};

    #[test]
    fn what_sizes_do_not_prove_guards_of_the_program_do() {
        let text = "kernel @k { size s0 size s1 read x: f32[s1] write z: f32[s0]
          grid i in s0 %0: f32 = load x[i] z[i] = %0 }";
        let mut kernel = parse(text).expect("parses");
        let mut facts = Facts::new();
        for size in ["s0", "s1"] {
            facts.declare(Sym::new(size), Range::at_least(1), None);
        }
        facts.require(parse_rel("s0 <= s1").expect("parses"), "aten.narrow.default").expect("possible");
        assert!(!verify(&kernel).is_empty());
        check(&mut kernel, &facts);
        assert_eq!(verify(&kernel), []);
        assert!(kernel.checks.is_empty() && kernel.to_string().contains("guard s0 <= s1"), "{kernel}");
    }

    #[test]
    fn what_nothing_proves_is_checked_where_it_happens() {
        let text = "kernel @k { read x: f32[8] write z: f32[100000]
          grid i in 100000 %0: f32 = load x[mod(i*i, 9)] if 1 <= i else 0.0 z[i] = %0 }";
        let mut kernel = parse(text).expect("parses");
        assert_eq!(verify(&kernel).len(), 1);
        check(&mut kernel, &Facts::new());
        assert_eq!(verify(&kernel), []);
        let text = kernel.to_string();
        assert!(text.contains("check 0 = \"index of `x` is out of range\""), "{text}");
        assert!(text.contains("select"), "an access that does not happen is not checked: {text}");
        assert_eq!(kernel.checks.len(), 1, "the store is proved");
    }
}
