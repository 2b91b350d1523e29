//! Decomposes what programs ask of Fourier transforms: operands of a given length, names of divisors, windows that move over a
//! signal. Follows `aten/native/SpectralOps.cpp`.

use crate::decompose::Rewriter;
use crate::def::{DecomposeFn, OpDef, decompose};
use crate::error::OpError;
use crate::layout::{known, same};
use crate::ops::terms::{dims_arg, int};
use crate::traits::Complex;
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, Value};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    of_numbers("aten.fft_fft.default", |r| of_one(r, Way::Forward)),
    of_numbers("aten.fft_ifft.default", |r| of_one(r, Way::Backward)),
    of_numbers("aten.fft_rfft.default", |r| of_real(r, Way::Forward, true)),
    of_numbers("aten.fft_ihfft.default", |r| of_real(r, Way::Backward, true)),
    of_numbers("aten.fft_irfft.default", |r| to_real(r, Way::Backward)),
    of_numbers("aten.fft_hfft.default", |r| to_real(r, Way::Forward)),
    of_numbers("aten.fft_fft2.default", |r| of_several(r, Way::Forward)),
    of_numbers("aten.fft_ifft2.default", |r| of_several(r, Way::Backward)),
    of_numbers("aten.fft_fftn.default", |r| of_several(r, Way::Forward)),
    of_numbers("aten.fft_ifftn.default", |r| of_several(r, Way::Backward)),
    of_numbers("aten.fft_rfft2.default", |r| several_of_real(r, Way::Forward)),
    of_numbers("aten.fft_rfftn.default", |r| several_of_real(r, Way::Forward)),
    of_numbers("aten.fft_ihfft2.default", |r| several_of_real(r, Way::Backward)),
    of_numbers("aten.fft_ihfftn.default", |r| several_of_real(r, Way::Backward)),
    of_numbers("aten.fft_irfft2.default", |r| several_to_real(r, Way::Backward)),
    of_numbers("aten.fft_irfftn.default", |r| several_to_real(r, Way::Backward)),
    of_numbers("aten.fft_hfft2.default", |r| several_to_real(r, Way::Forward)),
    of_numbers("aten.fft_hfftn.default", |r| several_to_real(r, Way::Forward)),
    of_numbers("aten.stft.default", of_windows),
];

/// A decomposition that holds for complex numbers.
const fn of_numbers(name: &'static str, rewrite: DecomposeFn) -> OpDef {
    decompose(name, rewrite).complex(Complex::Rewritten)
}

/// The sign of the exponent, negative forward.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// The number that the transform takes for the name of a divisor.
fn divisor(r: &Rewriter<'_>, way: Way) -> Result<Arg, OpError> {
    match (r.args().str("norm")?, way) {
        ("" | "backward", Way::Forward) | ("forward", Way::Backward) => Ok(int(0)),
        ("ortho", _) => Ok(int(1)),
        ("" | "backward", Way::Backward) | ("forward", Way::Forward) => Ok(int(2)),
        _ => Err(r.args().bad("norm", "backward, ortho or forward")),
    }
}

/// The operand, integers as f32.
fn operand(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let (x, dtype) = {
        let args = r.args();
        let x = args.tensor("self")?;
        (x.value, x.ty.dtype)
    };
    match dtype.kind() {
        Kind::Float | Kind::Complex => Ok(x),
        _ => r.convert(x, Dtype::F32),
    }
}

fn real_operand(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let x = operand(r)?;
    match r.ty(x)?.dtype.kind() {
        Kind::Complex => Err(r.args().invalid("expected real numbers")),
        _ => Ok(x),
    }
}

/// The operand, real numbers with imaginary parts of 0.
fn complex_operand(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let x = operand(r)?;
    let ty = r.ty(x)?;
    if ty.dtype.kind() == Kind::Complex {
        return Ok(x);
    }
    let zeros = r.apply("aten.zeros_like.default", &[x])?;
    r.apply("aten.complex.default", &[x, zeros])
}

/// The dimension of a transform of one.
fn one_dim(r: &Rewriter<'_>, x: Value) -> Result<usize, OpError> {
    let rank = r.ty(x)?.rank();
    if rank == 0 {
        return Err(r.args().invalid("expected a dimension"));
    }
    r.args().dim("dim", rank)
}

/// Cuts a dimension, or adds zeros at its end.
fn resized(r: &mut Rewriter<'_>, x: Value, d: usize, length: Expr) -> Result<Value, OpError> {
    let ty = r.ty(x)?;
    let own = ty.sizes[d];
    let cx = r.infer_cx();
    if same(cx.facts, own, length) {
        return Ok(x);
    }
    match known(cx.facts, Rel::lt(length, own)) {
        Some(true) => r.slice(x, d, Expr::zero(), length),
        Some(false) => {
            let mut padding = vec![Expr::zero(); 2 * (ty.rank() - d)];
            padding[2 * (ty.rank() - d) - 1] = length - own;
            r.call("aten.constant_pad_nd.default", [Arg::Value(x), Arg::ints(padding)])
        }
        None => Err(r.args().unsupported("a length that is below or above that of the operand")),
    }
}

/// As [`resized`], where a length is asked for.
fn of_length(r: &mut Rewriter<'_>, x: Value, d: usize) -> Result<Value, OpError> {
    match r.args().opt_int("n")? {
        Some(length) => resized(r, x, d, length),
        None => Ok(x),
    }
}

fn complex_along(r: &mut Rewriter<'_>, x: Value, dims: &[usize], way: Way) -> Result<Value, OpError> {
    let divisor = divisor(r, way)?;
    let args = [Arg::Value(x), dims_arg(dims), divisor, Arg::Bool(way == Way::Forward)];
    r.call("aten._fft_c2c.default", args)
}

fn of_one(r: &mut Rewriter<'_>, way: Way) -> Result<Vec<Value>, OpError> {
    let x = operand(r)?;
    if r.ty(x)?.dtype.kind() != Kind::Complex {
        return of_real(r, way, false);
    }
    let d = one_dim(r, x)?;
    let x = of_length(r, x, d)?;
    Ok(vec![complex_along(r, x, &[d], way)?])
}

/// Backward, the conjugates of forward.
fn of_real(r: &mut Rewriter<'_>, way: Way, is_half: bool) -> Result<Vec<Value>, OpError> {
    let x = real_operand(r)?;
    let d = one_dim(r, x)?;
    let x = of_length(r, x, d)?;
    let divisor = divisor(r, way)?;
    let args = [Arg::Value(x), dims_arg(&[d]), divisor, Arg::Bool(is_half)];
    let result = r.call("aten._fft_r2c.default", args)?;
    match way {
        Way::Forward => Ok(vec![result]),
        Way::Backward => Ok(vec![r.apply("aten.conj_physical.default", &[result])?]),
    }
}

/// How many real numbers there are where so many complex ones are given, if it is not said.
fn whole(half: Expr) -> Expr {
    (half - 1) * 2
}

fn to_real(r: &mut Rewriter<'_>, way: Way) -> Result<Vec<Value>, OpError> {
    let x = complex_operand(r)?;
    let d = one_dim(r, x)?;
    let own = r.ty(x)?.sizes[d];
    let length = r.args().opt_int("n")?.unwrap_or_else(|| whole(own));
    let half = r.infer_cx().simplify(length.floordiv(2) + 1);
    let mut x = resized(r, x, d, half)?;
    if way == Way::Forward {
        x = r.apply("aten._conj.default", &[x])?;
    }
    let divisor = divisor(r, way)?;
    let args = [Arg::Value(x), dims_arg(&[d]), divisor, Arg::Int(length)];
    Ok(vec![r.call("aten._fft_c2r.default", args)?])
}

/// Dimensions, and the lengths that are asked for along them.
fn dims_and_lengths(r: &Rewriter<'_>, x: Value) -> Result<(Vec<usize>, Option<Vec<Expr>>), OpError> {
    let (ty, args) = (r.ty(x)?, r.args());
    let rank = ty.rank();
    let lengths = if args.has("s") { Some(args.ints("s")?) } else { None };
    let dims = match &lengths {
        _ if args.has("dim") => args.dims("dim", rank)?,
        Some(lengths) if lengths.len() > rank => return Err(args.bad("s", "a length for each dimension")),
        Some(lengths) => (rank - lengths.len()..rank).collect(),
        None => (0..rank).collect(),
    };
    if lengths.as_ref().is_some_and(|lengths| lengths.len() != dims.len()) {
        return Err(args.bad("s", "a length for each dimension"));
    }
    let own = |(length, &d): (Expr, &usize)| if length == Expr::int(-1) { ty.sizes[d] } else { length };
    let lengths = lengths.map(|lengths| lengths.into_iter().zip(&dims).map(own).collect());
    Ok((dims, lengths))
}

fn of_lengths(
    r: &mut Rewriter<'_>,
    mut x: Value,
    dims: &[usize],
    lengths: &[Expr],
) -> Result<Value, OpError> {
    for (&d, &length) in dims.iter().zip(lengths) {
        x = resized(r, x, d, length)?;
    }
    Ok(x)
}

fn of_several(r: &mut Rewriter<'_>, way: Way) -> Result<Vec<Value>, OpError> {
    let x = complex_operand(r)?;
    let (dims, lengths) = dims_and_lengths(r, x)?;
    let x = of_lengths(r, x, &dims, &lengths.unwrap_or_default())?;
    Ok(vec![complex_along(r, x, &dims, way)?])
}

/// Backward, the conjugates of forward along the last dimension, then backward along the others.
fn several_of_real(r: &mut Rewriter<'_>, way: Way) -> Result<Vec<Value>, OpError> {
    let x = real_operand(r)?;
    let (dims, lengths) = dims_and_lengths(r, x)?;
    let x = of_lengths(r, x, &dims, &lengths.unwrap_or_default())?;
    let divisor = divisor(r, way)?;
    let Some((&last, others)) = dims.split_last() else { return Err(r.args().bad("dim", "dimensions")) };
    let at_once = if way == Way::Forward { &dims[..] } else { &[last] };
    let args = [Arg::Value(x), dims_arg(at_once), divisor, Arg::Bool(true)];
    let result = r.call("aten._fft_r2c.default", args)?;
    if way == Way::Forward {
        return Ok(vec![result]);
    }
    let result = r.apply("aten.conj_physical.default", &[result])?;
    Ok(vec![if others.is_empty() { result } else { complex_along(r, result, others, way)? }])
}

/// Forward, the others' transforms come first, and what follows is of the conjugates.
fn several_to_real(r: &mut Rewriter<'_>, way: Way) -> Result<Vec<Value>, OpError> {
    let x = complex_operand(r)?;
    let (dims, lengths) = dims_and_lengths(r, x)?;
    let own = r.ty(x)?.sizes;
    let Some((&last, others)) = dims.split_last() else { return Err(r.args().bad("dim", "dimensions")) };
    // -1 stands for what follows from the operand's size here, too.
    let is_given = r.args().has("s") && r.args().ints("s")?.last() != Some(&Expr::int(-1));
    let mut lengths = lengths.unwrap_or_else(|| dims.iter().map(|&d| own[d]).collect());
    let Some(end) = lengths.last_mut() else { return Err(r.args().bad("s", "lengths")) };
    let length = if is_given { *end } else { whole(own[last]) };
    *end = r.infer_cx().simplify(length.floordiv(2) + 1);
    let mut x = of_lengths(r, x, &dims, &lengths)?;
    let divisor = divisor(r, way)?;
    let mut at_once = &dims[..];
    if way == Way::Forward {
        if !others.is_empty() {
            x = complex_along(r, x, others, way)?;
        }
        x = r.apply("aten._conj.default", &[x])?;
        at_once = &dims[dims.len() - 1..];
    }
    let args = [Arg::Value(x), dims_arg(at_once), divisor, Arg::Int(length)];
    Ok(vec![r.call("aten._fft_c2r.default", args)?])
}

/// Transforms of pieces of a signal, each times a window: `[batch, frequencies, pieces]`.
fn of_windows(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let args = r.args();
    let signal = args.tensor("self")?;
    let (mut x, rank, dtype) = (signal.value, signal.ty.rank(), signal.ty.dtype);
    if args.flag("align_to_window")? {
        return Err(args.unsupported("windows that are aligned"));
    }
    if dtype != Dtype::F32 {
        return Err(args.unsupported(&format!("windows over {dtype}")));
    }
    let size = args.int("n_fft")?;
    let hop = args.opt_int("hop_length")?.unwrap_or_else(|| size.floordiv(4));
    let width = args.opt_int("win_length")?.unwrap_or(size);
    let (window, is_half) =
        (args.opt_tensor("window")?.map(|w| w.value), !args.has("onesided") || args.flag("onesided")?);
    let (divisor, is_complex) = (int(i64::from(args.flag("normalized")?)), args.flag("return_complex")?);
    if rank == 1 {
        x = r.call("aten.unsqueeze.default", [Arg::Value(x), int(0)])?;
    }
    let mut pieces =
        r.call("aten.unfold.default", [Arg::Value(x), int(-1), Arg::Int(size), Arg::Int(hop)])?;
    let is_narrow = !same(r.infer_cx().facts, width, size);
    let window = match window {
        None if is_narrow => Some(r.filled([width], 1.0, dtype)?),
        window => window,
    };
    if let Some(mut window) = window {
        if is_narrow {
            let left = (size - width).floordiv(2);
            let padding = Arg::ints([left, size - width - left]);
            window = r.call("aten.constant_pad_nd.default", [Arg::Value(window), padding])?;
        }
        pieces = r.mul(pieces, window)?;
    }
    let args = [Arg::Value(pieces), dims_arg(&[2]), divisor, Arg::Bool(is_half)];
    let found = r.call("aten._fft_r2c.default", args)?;
    let mut found = r.transpose(found, 1, 2)?;
    if rank == 1 {
        found = r.call("aten.squeeze.dim", [Arg::Value(found), int(0)])?;
    }
    Ok(vec![if is_complex { found } else { r.apply("aten.view_as_real.default", &[found])? }])
}
