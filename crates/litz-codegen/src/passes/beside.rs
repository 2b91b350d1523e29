//! Loads at once what loops that are written out load side by side of inputs, of types of one and two bytes.
//!
//! ```text
//! unroll v in 4 { unroll q in 2 { %0 = load x[8*t + 2*v + q]; .. } }
//!   =>  vector z in 8 by 8 { %1 = load x[8*t + z]; x_run[z] = %1 }
//!       unroll v in 4 { unroll q in 2 { %0 = load x_run[2*v + q]; .. } }
//! ```
//!
//! So of two integers that share a byte the numbers that they are multiplied with come as 16 bytes: lanes that load two bytes each, of which those of
//! the next lane are far away, take as long for each as for all of them.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Stmt};
use litz_ir::loops::Axis;
use litz_ir::target::{Gpu, Target};
use litz_sym::{Expr, Facts, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "beside", run };

/// Bytes of an element, at most: of wider ones a load for each takes no longer.
const WIDEST: usize = 2;

/// Elements that a thread has of a run, at most.
const MOST: i64 = 32;

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(kernel, body, &facts);
    Ok(())
}

/// The statements, with what is loaded ahead of loops that are written out.
fn block(kernel: &mut Kernel, stmts: Vec<Stmt>, facts: &Facts) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for mut stmt in stmts {
        let mut inside = facts.clone();
        if let Stmt::Loop(inner) = &mut stmt {
            if written_out(inner).is_some() {
                let mut runs = Runs { kernel, facts, loads: Vec::new(), found: Vec::new() };
                runs.within(inner, &mut Vec::new());
                out.append(&mut runs.loads);
            }
            inside.declare_index(inner.var, inner.extent);
        }
        // Lanes of a vector share what a thread has of its own.
        let is_of_lanes = |kind| {
            matches!(
                kind,
                KernelLoopKind::Vector { .. } | KernelLoopKind::Mma { .. } | KernelLoopKind::Search
            )
        };
        if !matches!(&stmt, Stmt::Loop(inner) if is_of_lanes(inner.kind)) {
            for inner in stmt.blocks_mut() {
                *inner = block(kernel, std::mem::take(inner), &inside);
            }
        }
        out.push(stmt);
    }
    out
}

/// The iterations of a loop that is written out.
fn written_out(inner: &Loop) -> Option<i64> {
    (inner.kind == KernelLoopKind::Unroll).then(|| inner.extent.as_int()).flatten()
}

/// What the loops of a nest that are written out load side by side.
struct Runs<'k> {
    kernel: &'k mut Kernel,
    /// What is known around the outermost one.
    facts: &'k Facts,
    /// What loads.
    loads: Vec<Stmt>,
    /// The registers of each run, with its memory and its first element.
    found: Vec<(Mem, Expr, i64, Mem)>,
}

impl Runs<'_> {
    /// Lets loads in a loop take what has been loaded at once. `around` are the loops outside of it up to the outermost one that is written out.
    fn within(&mut self, inner: &mut Loop, around: &mut Vec<Axis>) {
        around.push(Axis { var: inner.var, extent: inner.extent });
        for stmt in &mut inner.body {
            match stmt {
                Stmt::Loop(inner) if written_out(inner).is_some() => self.within(inner, around),
                Stmt::Act(Act::Let { op: Op::Load { mem, index, guard, .. }, .. }) if guard.is_empty() => {
                    if let Some((run, at)) = self.run(*mem, index, around) {
                        (*mem, *index) = (run, vec![at]);
                    }
                }
                Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {}
            }
        }
        around.pop();
    }

    /// The registers that an element is in, and where. None of what is loaded by itself.
    fn run(&mut self, mem: Mem, index: &[Expr], around: &[Axis]) -> Option<(Mem, Expr)> {
        let data = &self.kernel.mems[mem];
        let (&[at], size) = (index, data.dtype.size()) else { return None };
        if !data.space.is_only_read() || data.space == MemorySpace::Number || size > WIDEST {
            return None;
        }
        let mut steps: Vec<(i64, i64)> = Vec::new();
        let mut first = at;
        for axis in around {
            let (step, rest) = first.linear(axis.var)?;
            let step = step.as_int()?;
            first = rest;
            if step != 0 {
                steps.push((step, axis.extent.as_int()?));
            }
        }
        // Each loop goes on where those of shorter steps end.
        steps.sort_unstable();
        let mut count = 1;
        for (step, extent) in steps {
            if step != count {
                return None;
            }
            count = count.checked_mul(extent)?;
        }
        let at_once = (i64::from(Gpu::VECTOR_BYTES) / size as i64).min(count);
        let is_defined = |sym: Sym| self.facts.is_symbol_declared(sym);
        let is_run = (2..=MOST).contains(&count)
            && at_once.count_ones() == 1
            && count % at_once == 0
            && first.syms().into_iter().all(is_defined)
            && self.facts.simplify(first.modulo(at_once)).is_zero();
        if !is_run {
            return None;
        }
        let known = self.found.iter().find(|found| (found.0, found.1, found.2) == (mem, first, count));
        let run = match known {
            Some(found) => found.3,
            None => {
                let run = self.loaded(mem, first, [count, at_once]);
                self.found.push((mem, first, count, run));
                run
            }
        };
        Some((run, at - first))
    }

    /// Registers for so many elements of a memory, which are loaded so many at once.
    fn loaded(&mut self, mem: Mem, first: Expr, [count, at_once]: [i64; 2]) -> Mem {
        let data = &self.kernel.mems[mem];
        let (dtype, name) = (data.dtype, self.kernel.free_memory_name(&format!("{}_run", data.name)));
        let run = self.kernel.mems.push(MemData::flat(name, dtype, Expr::int(count), MemorySpace::Own));
        let [turn, element] = ["run_turn", "run_element"].map(Sym::new);
        let at = match count / at_once {
            1 => Expr::sym(element),
            _ => Expr::sym(turn) * at_once + Expr::sym(element),
        };
        let ty = dtype.compute();
        let val = self.kernel.vals.push(ty);
        let (guard, other) = (Vec::new(), litz_ir::Scalar::zero(ty));
        let op = Op::Load { mem, index: vec![first + at], guard: guard.clone(), other };
        let store = Act::Store { mem: run, index: vec![at], value: val, combine: None, guard, atomic: false };
        let body = vec![Stmt::Act(Act::Let { val, op }), Stmt::Act(store)];
        let kind = KernelLoopKind::vector(at_once as u32, 1);
        let all = Stmt::Loop(Loop { kind, var: element, extent: Expr::int(at_once), body });
        self.loads.push(match count / at_once {
            1 => all,
            turns => Stmt::Loop(Loop {
                kind: KernelLoopKind::Unroll,
                var: turn,
                extent: Expr::int(turns),
                body: vec![all],
            }),
        });
        run
    }
}
