//! Decomposes the gradients of padding: what was put around the operand is folded back onto the elements that it repeats.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::{same_shape, suggested_format};
use crate::ops::terms::dims_arg;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.reflection_pad1d_backward.default", |r| pad_backward(r, 1, Repeats::Mirrored)),
    decompose("aten.reflection_pad2d_backward.default", |r| pad_backward(r, 2, Repeats::Mirrored)),
    decompose("aten.reflection_pad3d_backward.default", |r| pad_backward(r, 3, Repeats::Mirrored)),
    decompose("aten.replication_pad1d_backward.default", |r| pad_backward(r, 1, Repeats::Edge)),
    decompose("aten.replication_pad2d_backward.default", |r| pad_backward(r, 2, Repeats::Edge)),
    decompose("aten.replication_pad3d_backward.default", |r| pad_backward(r, 3, Repeats::Edge)),
];

/// What stands around the operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    /// Its elements from the second on, in reverse.
    Mirrored,
    /// The element at its edge.
    Edge,
}

fn pad_backward(r: &mut Rewriter<'_>, dims: usize, repeats: Repeats) -> Result<Vec<Value>, OpError> {
    let ty = r.args().tensor("self")?.ty.clone();
    let amounts = r.args().literals_of("padding", 2 * dims)?;
    if !matches!(ty.rank().checked_sub(dims), Some(1 | 2)) {
        return Err(r.args().bad("self", &format!("{} or {} dimensions", dims + 1, dims + 2)));
    }
    if amounts.iter().any(|&amount| amount < 0) {
        return Err(r.args().unsupported("padding that takes elements away"));
    }
    // Amounts come in pairs, those of the last dimension first.
    let padding = |d: usize| {
        let pair = 2 * (ty.rank() - 1 - d);
        (amounts[pair], amounts[pair + 1])
    };
    let lead = ty.rank() - dims;
    r.require(|cx, args| {
        let mut sizes = ty.sizes.clone();
        for (d, size) in sizes.iter_mut().enumerate().skip(lead) {
            let (before, after) = padding(d);
            let most = if repeats == Repeats::Mirrored { before.max(after) + 1 } else { 1 };
            let short =
                |_| args.invalid(format!("expected at least {most} elements along dimension {d} of {ty}"));
            cx.require(litz_sym::Rel::ge(*size, most), args.op()).map_err(short)?;
            *size = cx.simplify(*size + before + after);
        }
        args.of_types("grad_output", &[ty.dtype])?;
        same_shape(cx, args, "grad_output", &sizes)
    })?;
    let mut grad = r.wide("grad_output")?;
    for d in lead..ty.rank() {
        let (before, after) = padding(d);
        grad = folded(r, grad, d, ty.sizes[d], [before, after], repeats)?;
    }
    let grad = r.convert(grad, ty.dtype)?;
    let format = suggested_format(r.infer_cx().facts, &ty);
    Ok(vec![r.in_format(grad, format)?])
}

/// The middle `size` elements along a dimension and, added to them, those before and after.
fn folded(
    r: &mut Rewriter<'_>,
    grad: Value,
    d: usize,
    size: Expr,
    [before, after]: [i64; 2],
    repeats: Repeats,
) -> Result<Value, OpError> {
    let behind = size + before;
    let mut sum = r.slice(grad, d, Expr::int(before), behind)?;
    let sides = [(before, Expr::zero(), Expr::int(before)), (after, behind, behind + after)];
    for (side, (amount, start, end)) in sides.into_iter().enumerate() {
        if amount == 0 {
            continue;
        }
        let part = r.slice(grad, d, start, end)?;
        let (part, skipped, width) = match repeats {
            Repeats::Mirrored => {
                (r.call("aten.flip.default", [Arg::Value(part), dims_arg(&[d])])?, 1, amount)
            }
            Repeats::Edge => (r.sum(part, &[d])?, 0, 1),
        };
        let (near, far) = (Expr::int(skipped), size - skipped - width);
        let mut zeros = vec![Expr::zero(); 2 * (r.ty(part)?.rank() - d)];
        let last = zeros.len() - 2;
        (zeros[last], zeros[last + 1]) = if side == 0 { (near, far) } else { (far, near) };
        let part = r.call("aten.constant_pad_nd.default", [Arg::Value(part), Arg::ints(zeros)])?;
        sum = r.add(sum, part)?;
    }
    Ok(sum)
}
