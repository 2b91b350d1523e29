//! Makes boxes of the loops by which one thread fills a buffer of a ring.
//!
//! ```text
//! for i in 128 { for j in 64 { copy async 1 x[64*k + 4096*(128*g + i) + j] if 128*g + i < n to s[64*i + j] } }
//!   =>  copy box x[64*k] to s[0] of 128 step 4096 from 128*g below n, 64 step 1
//! ```
//!
//! Each loop is a dimension. A guard says where it begins and ends in global memory: what is copied is apart from that by the same number of
//! elements in all of the box, which is its origin. Loops that the hardware has no box for stay as they are: dimensions that are too
//! long, pitches that are no multiple of 16 bytes, guards of two dimensions.

use super::Pass;
use litz_ir::kernel::{
    Act, BoxCopy, BoxDim, Element, Filling, Kernel, KernelLoopKind, Loop, Mem, MemorySpace, Op, Stmt, Sync,
};
use litz_ir::target::{Gpu, Level, Target};
use litz_ir::{Diag, Scalar};
use litz_sym::{Cmp, Expr, Facts, Rel};

/// The pass.
pub const PASS: Pass = Pass { name: "boxes", run };

/// Replaces loops of a target that has boxes.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let has_box = match target {
        Target::Cpu(_) => false,
        Target::Gpu(gpu) => gpu.isa.has_box(),
    };
    if !has_box || kernel.rings.is_empty() {
        return Ok(());
    }
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let mut body = std::mem::take(&mut kernel.body);
    Boxer { kernel, facts, is_of_threads: false }.block(&mut body, false);
    kernel.body = body;
    Ok(())
}

struct Boxer<'a> {
    kernel: &'a Kernel,
    /// What is known of the loops around.
    facts: Facts,
    /// A loop over threads is around.
    is_of_threads: bool,
}

impl Boxer<'_> {
    /// `is_filling`: a buffer of a ring is acquired to be filled.
    fn block(&mut self, stmts: &mut [Stmt], mut is_filling: bool) {
        for stmt in stmts {
            match stmt {
                Stmt::Act(Act::Sync(Sync::Acquire { filling: Filling::Empty, .. })) => is_filling = true,
                Stmt::Act(Act::Sync(Sync::Release { filling: Filling::Full, .. })) => is_filling = false,
                Stmt::Act(_) => {}
                Stmt::If { then, other, .. } => {
                    self.block(then, is_filling);
                    self.block(other, is_filling);
                }
                Stmt::Loop(inner) => {
                    if is_filling
                        && !self.is_of_threads
                        && let Some(copy) = self.copy(inner)
                    {
                        *stmt = Stmt::Act(Act::BoxCopy(copy));
                        continue;
                    }
                    self.facts.declare_index(inner.var, inner.extent);
                    let around = self.is_of_threads;
                    self.is_of_threads |= matches!(inner.kind.level(), Some(Level::Thread | Level::Lane));
                    self.block(&mut inner.body, is_filling);
                    self.is_of_threads = around;
                }
            }
        }
    }

    /// The box that loops copy.
    fn copy(&self, outermost: &Loop) -> Option<BoxCopy> {
        let (mut loops, mut innermost) = (vec![outermost], &outermost.body[..]);
        while let [Stmt::Loop(inner)] = innermost {
            loops.push(inner);
            innermost = &inner.body;
        }
        let (from, to) = self.copied(innermost)?;
        let (from, to) = (&from, &to);
        let is_counted = |inner: &&Loop| inner.kind == KernelLoopKind::For;
        let (source, target) = (&self.kernel.mems[from.mem], &self.kernel.mems[to.mem]);
        let is_between = target.space == MemorySpace::Shared && source.space != MemorySpace::Shared;
        if !(loops.iter().all(is_counted) && is_between && to.guard.is_empty()) || loops.len() > BoxCopy::DIMS
        {
            return None;
        }
        let (mut origin, mut first) = (only(from)?, only(to)?);
        let mut dims = Vec::new();
        // Elements of the box within the dimension: it is dense in shared memory.
        let mut within = 1_i64;
        for inner in loops.iter().rev() {
            let count =
                u32::try_from(inner.extent.as_int()?).ok().filter(|&count| count <= Gpu::BOX_ELEMENTS)?;
            let (place, rest) = first.linear(inner.var)?;
            (place.as_int()? == within).then_some(())?;
            first = rest;
            within = within.checked_mul(i64::from(count))?;
            let (step, rest) = origin.linear(inner.var)?;
            let range = self.range(inner, &from.guard)?;
            // Coordinates are counted from where the guard does.
            origin = range.map_or(rest, |[first, _]| rest - step * first);
            dims.push(BoxDim { count, step, range });
        }
        dims.reverse();
        let mut vars = loops.iter().map(|inner| inner.var);
        // Every guard is one of a dimension's ends.
        let is_used = |rel: &Rel| loops.iter().any(|inner| mentions(rel, inner));
        let is_left = vars.any(|var| origin.has_sym(var) || first.has_sym(var));
        let origin = self.facts.simplify(origin);
        let size = i64::try_from(source.dtype.size()).ok()?;
        let is_aligned = |elements: Expr| {
            let bytes = (elements * size).modulo(i64::from(Gpu::VECTOR_BYTES));
            self.facts.simplify(bytes).is_zero() || self.facts.proves(&Rel::le(bytes, 0))
        };
        let (row, outer) = dims.split_last()?;
        let bytes = i64::from(row.count) * size;
        let fits = row.step.is_one()
            && bytes % i64::from(Gpu::VECTOR_BYTES) == 0
            && target.swizzle.is_none_or(|swizzle| swizzle.is_of_boxes(source.dtype.size()))
            && outer.iter().all(|dim| is_aligned(dim.step))
            && is_aligned(origin);
        let is_box = fits && !is_left && from.guard.iter().all(is_used);
        is_box.then_some(BoxCopy {
            from: from.mem,
            origin,
            to: to.mem,
            first,
            points: None,
            dims,
            rounds: false,
        })
    }

    /// The element that statements copy, and where to: in the background, or from memory that the kernel does not change, at once.
    fn copied(&self, stmts: &[Stmt]) -> Option<(Element, Element)> {
        match stmts {
            [Stmt::Act(Act::Copy { count: 1, from, along: None, to, is_async: true })] => {
                Some((from.clone(), to.clone()))
            }
            [Stmt::Act(Act::Let { val, op: Op::Load { mem, index, guard, other } }), Stmt::Act(store)] => {
                let Act::Store { mem: to, index: at, value, combine: None, guard: asked, atomic: false } =
                    store
                else {
                    return None;
                };
                let [source, target] = [mem, to].map(|&mem| &self.kernel.mems[mem]);
                let is_zero = guard.is_empty() || *other == Scalar::zero(self.kernel.vals[*val]);
                let is_copy =
                    value == val && source.dtype == target.dtype && source.space.is_only_read() && is_zero;
                let element = |mem: Mem, index: &[Expr], guard: &[Rel]| Element {
                    mem,
                    index: index.to_vec(),
                    guard: guard.to_vec(),
                };
                is_copy.then(|| (element(*mem, index, guard), element(*to, at, asked)))
            }
            _ => None,
        }
    }

    /// Where a dimension begins and ends, if guards say so. None where they are not of that form.
    fn range(&self, inner: &Loop, guard: &[Rel]) -> Option<Option<[Expr; 2]>> {
        let (mut range, mut lowest) = (None, None);
        for rel in guard.iter().filter(|rel| mentions(rel, inner)) {
            let (step, first) = (rel.lhs - rel.rhs).linear(inner.var)?;
            match (rel.cmp, step.as_int()?) {
                (Cmp::Lt, 1) if range.is_none() => {
                    // `first + v < end`, however it is written.
                    let (_, first) = rel.lhs.linear(inner.var).filter(|(step, _)| step.is_one())?;
                    range = Some([first, rel.rhs]);
                }
                // `0 <= first + v`.
                (Cmp::Le, -1) if lowest.is_none() => lowest = Some(-first),
                _ => return None,
            }
        }
        let Some([first, end]) = range else { return Some(None) };
        let is_above = lowest.map_or_else(|| self.facts.proves(&Rel::le(0, first)), |lowest| lowest == first);
        is_above.then_some(Some([first, end]))
    }
}

/// The one coordinate of an element of flat memory.
fn only(element: &Element) -> Option<Expr> {
    if let [at] = element.index[..] { Some(at) } else { None }
}

/// Whether a relation is about a loop's variable.
fn mentions(rel: &Rel, inner: &Loop) -> bool {
    rel.lhs.has_sym(inner.var) || rel.rhs.has_sym(inner.var)
}
