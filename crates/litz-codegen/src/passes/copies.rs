//! Widens copies: a run of a few adjacent elements is moved as one wider element, two of bf16 as 32 bits.
//!
//! ```text
//! unroll q in 2 { %0 = load x[8*j + 2*p + q]; y[2*j + q] = %0 }  =>  copy 2 x[4*j + p] to y[j]
//! ```
//!
//! Of a GPU the vector loops of threads are such runs, up to 16 bytes. Where a run begins and what guards its elements are multiples of its
//! length, there are all of them or none: `4*p + q < 4*n` for `q < 4` is `4*p < 4*n`.

use super::Pass;
use litz_ir::kernel::{Act, Element, Kernel, KernelLoopKind, Loop, MemorySpace, Op, Stmt, position};
use litz_ir::target::{Gpu, Target};
use litz_ir::{Diag, Scalar};
use litz_sym::{Cmp, Expr, Facts, Rel};

/// The pass.
pub const PASS: Pass = Pass { name: "copies", run };

/// Bytes that are moved at once: those of integers, and of a thread's vectors.
const WIDTHS: [usize; 4] = [2, 4, 8, Gpu::VECTOR_BYTES as usize];

/// Replaces loops that are written out, and vectors of threads.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let of_threads = match target {
        Target::Cpu(_) => false,
        Target::Gpu(_) => true,
    };
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let mut body = std::mem::take(&mut kernel.body);
    Copier { kernel, facts, of_threads }.block(&mut body);
    kernel.body = body;
    Ok(())
}

struct Copier<'a> {
    kernel: &'a Kernel,
    /// What is known of the loops around.
    facts: Facts,
    /// Whether threads have vectors, which are of one of them alone.
    of_threads: bool,
}

impl Copier<'_> {
    fn block(&mut self, stmts: &mut [Stmt]) {
        for stmt in stmts {
            if let Stmt::Loop(inner) = stmt {
                if let Some(copy) = self.copy(inner) {
                    *stmt = copy;
                    continue;
                }
                self.facts.declare_index(inner.var, inner.extent);
            }
            stmt.blocks_mut().into_iter().for_each(|block| self.block(block));
        }
    }

    /// A loop that is written out as one copy, if it moves a run of elements.
    fn copy(&self, inner: &Loop) -> Option<Stmt> {
        let [
            Stmt::Act(Act::Let { val, op: Op::Load { mem: from, index: source, guard, other } }),
            Stmt::Act(Act::Store {
                mem: to,
                index: target,
                value,
                combine: None,
                guard: kept,
                atomic: false,
            }),
        ] = &inner.body[..]
        else {
            return None;
        };
        let [read, written] = [from, to].map(|mem| &self.kernel.mems[*mem]);
        let count = u32::try_from(inner.extent.as_int()?).ok()?;
        let widths = if self.of_threads { &WIDTHS[..] } else { &WIDTHS[..3] };
        let is_wide = count > 1 && widths.contains(&read.dtype.size().checked_mul(count as usize)?);
        let is_zero =
            guard.is_empty() || *other == Scalar::zero(read.dtype.compute()) || *other == Scalar::Int(0);
        let in_memory = [read, written].iter().all(|data| self.has_addresses(data.space) && data.is_flat());
        let is_run = match inner.kind {
            KernelLoopKind::Unroll => true,
            KernelLoopKind::Vector { .. } => self.of_threads,
            KernelLoopKind::For
            | KernelLoopKind::Level(_)
            | KernelLoopKind::Chain
            | KernelLoopKind::Search
            | KernelLoopKind::Pipeline { .. }
            | KernelLoopKind::Mma { .. } => false,
        };
        let is_copy = is_run && val == value && from != to && read.dtype == written.dtype;
        if !(is_copy && is_wide && is_zero && in_memory) {
            return None;
        }
        let run = |mem, index: &[Expr], guard: &[Rel]| {
            let index = vec![self.run_of(position(index), inner, count)?];
            let guard = guard.iter().map(|rel| self.of_run(rel, inner, count)).collect::<Option<_>>()?;
            Some(Element { mem, index, guard })
        };
        let (from, to) = (run(*from, source, guard)?, run(*to, target, kept)?);
        Some(Stmt::Act(Act::Copy { count, from, along: None, to, is_async: false }))
    }

    /// Whether memory has addresses, and is not what the compiler of a kernel keeps in registers where it can.
    fn has_addresses(&self, space: MemorySpace) -> bool {
        match space {
            MemorySpace::Register | MemorySpace::Own => false,
            MemorySpace::Scratch => !self.of_threads,
            MemorySpace::Number
            | MemorySpace::Read
            | MemorySpace::Constant
            | MemorySpace::Write
            | MemorySpace::Update
            | MemorySpace::Shared
            | MemorySpace::Global
            | MemorySpace::Cluster => true,
        }
    }

    /// A relation that holds for all elements of a run or for none, of the last of them, from which it follows for the others.
    fn of_run(&self, rel: &Rel, inner: &Loop, count: u32) -> Option<Rel> {
        if !rel.lhs.has_sym(inner.var) && !rel.rhs.has_sym(inner.var) {
            return Some(*rel);
        }
        let (step, first) = rel.lhs.linear(inner.var)?;
        let is_multiple = |e: Expr| self.facts.simplify(e.modulo(i64::from(count))).is_zero();
        let is_whole = rel.cmp == Cmp::Lt && step.is_one() && is_multiple(first) && is_multiple(rel.rhs);
        is_whole.then_some(Rel { lhs: first + i64::from(count - 1), ..*rel })
    }

    /// The number of the run of `count` elements that the loop walks, if it walks one from its start.
    fn run_of(&self, index: Expr, inner: &Loop, count: u32) -> Option<Expr> {
        let (step, first) = index.linear(inner.var)?;
        let count = i64::from(count);
        let is_start = self.facts.simplify(first.modulo(count)).is_zero();
        (step.is_one() && is_start).then(|| self.facts.simplify(first.floordiv(count)))
    }
}
