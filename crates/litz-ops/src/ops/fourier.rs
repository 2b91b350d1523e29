//! Lowers Fourier transforms to routines of the runtime, which take rows: one dimension after another is put last, and back.

use crate::args::Args;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::{InferCx, first_tensor};
use crate::layout::known;
use crate::lower::Lower;
use crate::traits::Complex;
use crate::view::{ValueAccess, View, dim};
use litz_ir::Dtype;
use litz_ir::graph::{TensorType, Type, contiguous_strides};
use litz_sym::{Expr, Facts, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten._fft_c2c.default", complex_type, complex).complex(Complex::Lowered).prefers_host(),
    lower("aten._fft_r2c.default", of_real_type, of_real).complex(Complex::Lowered).prefers_host(),
    lower("aten._fft_c2r.default", to_real_type, to_real).complex(Complex::Lowered).prefers_host(),
];

/// The dimensions that are transformed, of numbers of this type.
fn dims(args: &Args<'_>, dtype: Dtype) -> Result<Vec<usize>, OpError> {
    let ty = first_tensor(args)?;
    if ty.dtype != dtype {
        return Err(args.unsupported(&format!("a transform of {}", ty.dtype)));
    }
    if ty.rank() == 0 {
        return Err(args.invalid("expected a dimension"));
    }
    args.dims("dim", ty.rank())
}

/// The dimensions that are transformed of complex numbers, and that which is transformed between these and real numbers.
fn dims_and_last(args: &Args<'_>, dtype: Dtype) -> Result<(Vec<usize>, usize), OpError> {
    let mut dims = dims(args, dtype)?;
    let last = dims.pop().ok_or_else(|| args.invalid("expected dimensions"))?;
    Ok((dims, last))
}

/// What results are divided by along each dimension: 0 nothing, 1 the root of its size, 2 its size.
fn divisor(args: &Args<'_>) -> Result<Expr, OpError> {
    match args.literal("normalization")? {
        divisor @ 0..=2 => Ok(Expr::int(divisor)),
        _ => Err(args.bad("normalization", "0, 1 or 2")),
    }
}

/// Requires sizes of at least 1.
fn not_empty(cx: &mut InferCx<'_>, args: &Args<'_>, sizes: &[Expr]) -> Result<(), OpError> {
    for &size in sizes {
        let empty = |_| args.invalid(format!("a transform of {size} numbers"));
        cx.require(Rel::ge(size, 1), args.op()).map_err(empty)?;
    }
    Ok(())
}

/// Sorts dimensions by their strides, the largest first.
fn sort(facts: &Facts, args: &Args<'_>, dims: &mut [usize], strides: &[Expr]) -> Result<(), OpError> {
    for end in 1..dims.len() {
        for at in (1..=end).rev() {
            let (before, own) = (strides[dims[at - 1]], strides[dims[at]]);
            if known(facts, Rel::ge(before, own)) == Some(true) {
                break;
            }
            if known(facts, Rel::lt(before, own)) != Some(true) {
                return Err(args.unsupported("an order of dimensions that sizes decide"));
            }
            dims.swap(at - 1, at);
        }
    }
    Ok(())
}

/// The strides that PyTorch's transforms by MKL give to results of these sizes: `_exec_fft` of `aten/native/mkl/SpectralOps.cpp`. Other
/// dimensions come first in the order of the operand's strides, then transformed ones in the order in which they are.
fn strides(
    cx: &InferCx<'_>,
    args: &Args<'_>,
    operand: &[Expr],
    sizes: &[Expr],
    transformed: &[usize],
) -> Result<Vec<Expr>, OpError> {
    if sizes.iter().any(|size| size.is_zero()) {
        return Ok(contiguous_strides(sizes));
    }
    let mut order: Vec<usize> = (0..sizes.len()).filter(|d| !transformed.contains(d)).collect();
    sort(cx.facts, args, &mut order, operand)?;
    order.extend(transformed);
    let dense = contiguous_strides(&order.iter().map(|&d| sizes[d]).collect::<Vec<_>>());
    let mut strides = vec![Expr::one(); sizes.len()];
    order.iter().zip(dense).for_each(|(&d, stride)| strides[d] = stride);
    Ok(strides)
}

/// Of a transform of complex numbers along these dimensions.
fn transformed(cx: &mut InferCx<'_>, args: &Args<'_>, mut dims: Vec<usize>) -> Result<Vec<Expr>, OpError> {
    let ty = first_tensor(args)?;
    not_empty(cx, args, &dims.iter().map(|&d| ty.sizes[d]).collect::<Vec<_>>())?;
    sort(cx.facts, args, &mut dims, &ty.strides)?;
    strides(cx, args, &ty.strides, &ty.sizes, &dims)
}

fn complex_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (ty, dims) = (first_tensor(args)?, dims(args, Dtype::C64)?);
    let strides = if dims.is_empty() {
        crate::layout::preserved_strides(cx.facts, ty)
    } else {
        transformed(cx, args, dims)?
    };
    one(TensorType { strides, ..TensorType::contiguous(Dtype::C64, ty.sizes.clone()) })
}

fn of_real_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (ty, (mut dims, last)) = (first_tensor(args)?, dims_and_last(args, Dtype::F32)?);
    let mut sizes = ty.sizes.clone();
    not_empty(cx, args, &dims.iter().chain([&last]).map(|&d| sizes[d]).collect::<Vec<_>>())?;
    if args.flag("onesided")? {
        sizes[last] = cx.simplify(half(sizes[last]));
    }
    sort(cx.facts, args, &mut dims, &ty.strides)?;
    dims.push(last);
    let strides = strides(cx, args, &ty.strides, &sizes, &dims)?;
    one(TensorType { strides, ..TensorType::contiguous(Dtype::C64, sizes) })
}

fn to_real_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (ty, (dims, last)) = (first_tensor(args)?, dims_and_last(args, Dtype::C64)?);
    let (mut sizes, length) = (ty.sizes.clone(), args.int("last_dim_size")?);
    not_empty(cx, args, &[length])?;
    let (found, expected) = (sizes[last], half(length));
    let differs =
        |_| args.invalid(format!("expected {expected} numbers for {length} real ones, found {found}"));
    cx.require(Rel::eq(found, expected), args.op()).map_err(differs)?;
    let between = if dims.is_empty() { ty.strides.clone() } else { transformed(cx, args, dims)? };
    sizes[last] = length;
    let strides = strides(cx, args, &between, &sizes, &[last])?;
    one(TensorType { strides, ..TensorType::contiguous(Dtype::F32, sizes) })
}

/// How many of n results there are up to those that are conjugate to others.
fn half(n: Expr) -> Expr {
    n.floordiv(2) + 1
}

/// Dimensions in another order: where each was.
fn permuted(lw: &Lower<'_>, access: &ValueAccess, order: &[usize]) -> ValueAccess {
    let sizes = order.iter().map(|&d| access.sizes[d]).collect();
    let mut coords = vec![Expr::zero(); order.len()];
    order.iter().enumerate().for_each(|(to, &from)| coords[from] = dim(to));
    lw.view(access, &View::new(sizes, coords))
}

/// Calls a routine for the rows along a dimension, which become numbers of that type and count.
fn rows(
    lw: &mut Lower<'_>,
    routine: &str,
    x: &ValueAccess,
    d: usize,
    (dtype, count): (Dtype, Expr),
    ints: &[Expr],
) -> Result<ValueAccess, OpError> {
    let order: Vec<usize> = (0..x.rank()).filter(|&other| other != d).chain([d]).collect();
    let moved = permuted(lw, x, &order);
    let source = lw.contiguous(&moved, "rows")?;
    let others = &source.sizes[..x.rank() - 1];
    let batch: Expr = others.iter().copied().product();
    let result = lw.temp("transform", dtype, &[others, &[count]].concat());
    lw.call(routine, &[&source], &[&result], [&[batch], ints].concat());
    let back: Vec<usize> = (0..d).chain([x.rank() - 1]).chain(d..x.rank() - 1).collect();
    Ok(permuted(lw, &result, &back))
}

/// Transforms complex numbers along each of the dimensions.
fn along(
    lw: &mut Lower<'_>,
    mut x: ValueAccess,
    dims: &[usize],
    forward: bool,
    divisor: Expr,
) -> Result<ValueAccess, OpError> {
    for &d in dims {
        let n = x.sizes[d];
        let ints = [n, Expr::int(i64::from(forward)), divisor];
        x = rows(lw, "fft", &x, d, (Dtype::C64, n), &ints)?;
    }
    Ok(x)
}

/// The result has the elements of `from`, laid out as its type says.
fn deliver(lw: &mut Lower<'_>, args: &Args<'_>, from: &ValueAccess) -> Result<(), OpError> {
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes.clone(), |b, at| {
        let number = b.load(from, at);
        b.store(&out, at, number);
        Ok(())
    })
}

fn complex(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (dims, divisor, forward) = (dims(args, Dtype::C64)?, divisor(args)?, args.flag("forward")?);
    let x = lw.access(args.tensor("self")?)?;
    let x = along(lw, x, &dims, forward, divisor)?;
    deliver(lw, args, &x)
}

/// Last the dimension of real numbers, which comes first: what follows has half the numbers where they are half.
fn of_real(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let ((dims, last), divisor) = (dims_and_last(args, Dtype::F32)?, divisor(args)?);
    let x = lw.access(args.tensor("self")?)?;
    let n = x.sizes[last];
    let kept = if args.flag("onesided")? { lw.infer_cx().simplify(half(n)) } else { n };
    let x = rows(lw, "rfft", &x, last, (Dtype::C64, kept), &[n, kept, divisor])?;
    let x = along(lw, x, &dims, true, divisor)?;
    deliver(lw, args, &x)
}

fn to_real(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let ((dims, last), divisor) = (dims_and_last(args, Dtype::C64)?, divisor(args)?);
    let n = args.int("last_dim_size")?;
    let x = lw.access(args.tensor("self")?)?;
    let x = along(lw, x, &dims, false, divisor)?;
    let x = rows(lw, "irfft", &x, last, (Dtype::F32, n), &[n, divisor])?;
    deliver(lw, args, &x)
}
