//! Reads operands of products that may be rounded as the 8-bit floats that they were widened from.
//!
//! ```text
//! nest n0 [i, k] { %0: f8e4m3 = load a[i, k]  %1: f16 = cast %0  store x[i, k] = %1 }
//! nest n2 [i, j | k] rounding { %0: f16 = load x[i, k]  %1: f32 = cast %0  .. }
//!   =>
//! nest n2 [i, j | k] rounding { %0: f8e4m3 = load a[i, k]  %1: f32 = cast %0  .. }
//! ```
//!
//! Halves have all numbers of eight bits, and an instruction that sums products of them in f32. Those for the bytes themselves take twice as many
//! in a clock, and add up in about 14 bits: only products that allow it are made theirs, of operands that both lie along the sum, as these
//! instructions want them.

use super::{Cx, cse};
use litz_analysis::access::{Stride, stride, substitute};
use litz_analysis::{Contraction, Uses};
use litz_ir::Dtype;
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Stmt};
use litz_ir::target::{Gpu, Rounds, Target};
use litz_sym::{Expr, Sym};

/// Whether a target has instructions for 8-bit floats.
pub fn wants(target: &Target) -> bool {
    let Target::Gpu(gpu) = target else { return false };
    of_bytes(gpu, Dtype::F8E4M3, Rounds::Always)
}

/// Whether an instruction sums products of these bytes as exactly as is wanted.
fn of_bytes(gpu: &Gpu, dtype: Dtype, rounds: Rounds) -> bool {
    gpu.of_warp(dtype, Dtype::F32, rounds).next().is_some()
}

/// Reads operands as they are; returns those of how many products.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let Target::Gpu(gpu) = cx.target else { return 0 };
    let mut uses = Uses::of(loops);
    (0..loops.stmts.len()).filter(|&at| narrowed(loops, at, &mut uses, gpu).is_some()).count()
}

/// Reads both operands of the product at a position as bytes, if there are such.
fn narrowed(loops: &mut Loops, at: usize, uses: &mut Uses, gpu: &Gpu) -> Option<()> {
    let Stmt::Nest(product) = &loops.stmts[at] else { return None };
    let [Contraction { lhs, rhs, .. }, _] = Contraction::of(loops, product)?;
    let found = [lhs, rhs].map(|load| Some((load, source(loops, product, load, at, uses)?)));
    let [Some(left), Some(right)] = found else { return None };
    let dtype = |(_, (buf, _)): &(usize, (Buf, Vec<Expr>))| loops.bufs[*buf].dtype;
    let (own, other) = (dtype(&left), dtype(&right));
    if own != other || !of_bytes(gpu, own, product.rounds) {
        return None;
    }
    let mut product = product.clone();
    for (load, (from, place)) in [left, right] {
        let inst = &mut product.body[load];
        inst.ty = own;
        if let InstOp::Load { buf, index, .. } = &mut inst.op {
            (*buf, *index) = (from, place);
        }
    }
    cse::clean(&mut product);
    loops.stmts[at] = Stmt::Nest(product);
    uses.update(at, Some(&loops.stmts[at]));
    Some(())
}

/// The 8-bit floats that a load's buffer has been widened from, and where its element is among them: neighbours along the sum lie side by side.
fn source(loops: &Loops, product: &Nest, load: usize, at: usize, uses: &Uses) -> Option<(Buf, Vec<Expr>)> {
    let InstOp::Load { buf: wide, index: read, guard, .. } = &product.body[load].op else { return None };
    let &[writer] = uses.writers(*wide) else { return None };
    let Stmt::Nest(widening) = &loops.stmts[writer] else { return None };
    let [from, cast, store] = &widening.body[..] else { return None };
    let (
        InstOp::Load { buf, index, guard: narrow_guard, .. },
        InstOp::Cast(_),
        InstOp::Store { index: written, combine: None, .. },
    ) = (&from.op, &cast.op, &store.op)
    else {
        return None;
    };
    let is_byte = matches!(loops.bufs[*buf].dtype, Dtype::F8E4M3 | Dtype::F8E5M2);
    let is_plain = guard.is_empty() && narrow_guard.is_empty() && widening.reduced.is_empty();
    // What has the bytes has them still where the product runs.
    let is_kept = writer < at && uses.writers(*buf).iter().all(|&other| other < writer);
    let is_whole = loops.is_internal(*wide) && written.len() == widening.axes.len();
    if !(is_byte && is_plain && is_kept && is_whole) {
        return None;
    }
    // Each element is written where its coordinates are the nest's axes, in whatever order. The product's axes may have the same names.
    let value = |axis: &Axis| {
        let at = written.iter().position(|written| *written == Expr::sym(axis.var))?;
        Some((axis.var, read[at]))
    };
    let values: Vec<(Sym, Expr)> = widening.axes.iter().map(value).collect::<Option<_>>()?;
    let place: Vec<Expr> = index.iter().map(|&part| substitute(part, &values)).collect();
    let flat = loops.place(product, *buf, &place);
    let is_along = product.reduced.iter().any(|axis| stride(flat, axis.var) == Stride::Unit);
    is_along.then_some((*buf, place))
}
