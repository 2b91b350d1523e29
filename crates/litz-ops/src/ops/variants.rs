//! Decomposes variants of other operators: other names of them, numbers in place of tensors, masks besides indices.

use crate::args::wrap_dim;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::ops::seeded::{self, Dropped};
use crate::ops::terms::{float, int};
use crate::traits::Complex;
use crate::traits::Holds::{Always, When};
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, Value};
use litz_ir::schema::Effect;
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.scatter.value_reduce", |r| {
        let (x, index) = (r.args().tensor("self")?, r.args().tensor("index")?);
        let (x, dtype, index, sizes) = (x.value, x.ty.dtype, index.value, index.ty.sizes.clone());
        let [dim, value, reduce] = ["dim", "value", "reduce"].map(|name| r.args().get(name).clone());
        let source = r.call("aten.full.default", [Arg::ints(sizes), value, Arg::Dtype(dtype)])?;
        let args = [Arg::Value(x), dim, Arg::Value(index), Arg::Value(source), reduce];
        Ok(vec![r.call("aten.scatter.reduce", args)?])
    }),
    decompose("aten.searchsorted.Scalar", |r| {
        let sequence = r.args().tensor("sorted_sequence")?;
        if sequence.ty.rank() != 1 {
            return Err(r
                .args()
                .invalid(format!("expected a vector to find a number in, found {}", sequence.ty)));
        }
        let (dtype, sequence) = (sequence.ty.dtype, Arg::Value(sequence.value));
        let number = r.args().get("self").clone();
        // A fraction among integers keeps its place between them.
        let dtype = if matches!(number, Arg::Float(_)) && !dtype.is_float() { Dtype::F32 } else { dtype };
        let number = r.call("aten.scalar_tensor.default", [number, Arg::Dtype(dtype)])?;
        let rest = ["out_int32", "right", "side", "sorter"].map(|name| r.args().get(name).clone());
        Ok(vec![r.call("aten.searchsorted.Tensor", [sequence, Arg::Value(number)].into_iter().chain(rest))?])
    }),
    decompose("aten._unsafe_masked_index.default", |r| {
        let (x, mask) = (r.args().tensor("self")?.value, r.args().tensor("mask")?.value);
        let (indices, fill) = (clamped_indices(r)?, r.args().get("fill").clone());
        let picked = r.call("aten._unsafe_index.Tensor", [Arg::Value(x), indices])?;
        let outside = r.apply("aten.logical_not.default", &[mask])?;
        Ok(vec![r.call("aten.masked_fill.Scalar", [Arg::Value(picked), Arg::Value(outside), fill])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten._unsafe_masked_index_put_accumulate.default", |r| {
        let (x, mask) = (r.args().tensor("self")?.value, r.args().tensor("mask")?.value);
        let (indices, values) = (clamped_indices(r)?, r.args().tensor("values")?.value);
        let outside = r.apply("aten.logical_not.default", &[mask])?;
        let values = r.call("aten.masked_fill.Scalar", [Arg::Value(values), Arg::Value(outside), int(0)])?;
        let args = [Arg::Value(x), indices, Arg::Value(values), Arg::Bool(true)];
        Ok(vec![r.call("aten._unsafe_index_put.default", args)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.linalg_vander.default", |r| {
        let x = r.args().tensor("x")?;
        let (x, mut sizes, dtype) = (x.value, x.ty.sizes.clone(), x.ty.dtype);
        if sizes.is_empty() {
            sizes.push(Expr::one());
        }
        let own = sizes.last().copied().unwrap_or(Expr::one());
        let count = r.args().opt_int("N")?.unwrap_or(own);
        r.require(|cx, args| {
            let few = |_| args.bad("N", "a number above 1");
            cx.require(Rel::gt(count, 1), args.op()).map_err(few)
        })?;
        let dtype = if dtype.is_float() || dtype.kind() == Kind::Complex { dtype } else { Dtype::I64 };
        let x = r.convert(x, dtype)?;
        let x = r.reshape(x, sizes.clone())?;
        sizes.push(count - 1);
        let column = r.call("aten.unsqueeze.default", [Arg::Value(x), int(-1)])?;
        let copies = r.call("aten.expand.default", [Arg::Value(column), Arg::ints(sizes)])?;
        let powers = r.call("aten.cumprod.default", [Arg::Value(copies), int(-1)])?;
        let ones = r.apply("aten.ones_like.default", &[column])?;
        let parts = Arg::List(vec![Arg::Value(ones), Arg::Value(powers)]);
        Ok(vec![r.call("aten.cat.default", [parts, int(-1)])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.fft_fftshift.default", |r| shifted(r, |size| size.floordiv(2)))
        .complex(Complex::Rewritten),
    decompose("aten.fft_ifftshift.default", |r| shifted(r, |size| size.ceildiv(2)))
        .complex(Complex::Rewritten),
    decompose("aten.feature_alpha_dropout.default", unless_training)
        .complex(Complex::Rewritten)
        .alias(Always)
        .random(When(|_, args| Ok(args.flag("train")? && args.float("p")? != 0.0)))
        .seeded(|r| seeded::alpha_dropout(r, Dropped::Channels))
        .effect(Effect::None),
    decompose("aten.rrelu.default", |r| {
        if r.args().flag("training")? {
            return Err(r.args().unsupported("training without a seed"));
        }
        let (x, low, high) =
            (r.args().tensor("self")?.value, r.args().float("lower")?, r.args().float("upper")?);
        Ok(vec![r.call("aten.leaky_relu.default", [Arg::Value(x), float((low + high) / 2.0)])?])
    })
    .random(When(|_, args| args.flag("training")))
    .seeded(seeded::leaky),
    decompose("aten._chunk_cat.default", chunk_cat).complex(Complex::Rewritten),
    decompose("aten._is_all_true.default", |r| truths(r, "aten.all.default")),
    decompose("aten._is_any_true.default", |r| truths(r, "aten.any.default")),
    // Other names.
    renamed("aten.absolute.default"),
    renamed("aten.arccos.default"),
    renamed("aten.arccosh.default"),
    renamed("aten.arcsin.default"),
    renamed("aten.arcsinh.default"),
    renamed("aten.arctan.default"),
    renamed("aten.arctan2.default"),
    renamed("aten.arctanh.default"),
    renamed("aten.clip.default"),
    renamed("aten.clip.Tensor"),
    renamed("aten.concat.default"),
    renamed("aten.concatenate.default"),
    renamed("aten.divide.Scalar"),
    renamed("aten.divide.Scalar_mode"),
    renamed("aten.divide.Tensor"),
    renamed("aten.divide.Tensor_mode"),
    renamed("aten.greater.Scalar"),
    renamed("aten.greater.Tensor"),
    renamed("aten.greater_equal.Scalar"),
    renamed("aten.greater_equal.Tensor"),
    renamed("aten.less.Scalar"),
    renamed("aten.less.Tensor"),
    renamed("aten.less_equal.Scalar"),
    renamed("aten.less_equal.Tensor"),
    renamed("aten.multiply.Scalar"),
    renamed("aten.multiply.Tensor"),
    renamed("aten.negative.default"),
    renamed("aten.not_equal.Scalar"),
    renamed("aten.not_equal.Tensor"),
    renamed("aten.special_digamma.default"),
    renamed("aten.special_erf.default"),
    renamed("aten.special_erfc.default"),
    renamed("aten.special_erfinv.default"),
    renamed("aten.special_exp2.default"),
    renamed("aten.special_expit.default"),
    renamed("aten.special_expm1.default"),
    renamed("aten.special_gammaln.default"),
    renamed("aten.special_log1p.default"),
    renamed("aten.special_logit.default"),
    renamed("aten.special_logsumexp.default"),
    renamed("aten.special_multigammaln.default"),
    renamed("aten.special_psi.default"),
    renamed("aten.special_round.default"),
    renamed("aten.special_sinc.default"),
    renamed("aten.special_xlogy.default"),
    renamed("aten.special_xlogy.other_scalar"),
    renamed("aten.special_xlogy.self_scalar"),
    renamed("aten.subtract.Scalar"),
    renamed("aten.subtract.Tensor"),
    renamed("aten.true_divide.Scalar"),
];

/// Operators whose names are other ones for what stands behind them; overloads are called the same unless they are listed.
const NAMES: &[(&str, &str)] = &[
    ("absolute", "abs"),
    ("arccos", "acos"),
    ("arccosh", "acosh"),
    ("arcsin", "asin"),
    ("arcsinh", "asinh"),
    ("arctan", "atan"),
    ("arctan2", "atan2"),
    ("arctanh", "atanh"),
    ("clip", "clamp"),
    ("concat", "cat"),
    ("concatenate", "cat"),
    ("divide", "div"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("multiply", "mul"),
    ("negative", "neg"),
    ("not_equal", "ne"),
    ("special_digamma", "digamma"),
    ("special_erf", "erf"),
    ("special_erfc", "erfc"),
    ("special_erfinv", "erfinv"),
    ("special_exp2", "exp2"),
    ("special_expit", "sigmoid"),
    ("special_expm1", "expm1"),
    ("special_gammaln", "lgamma"),
    ("special_log1p", "log1p"),
    ("special_logit", "logit"),
    ("special_logsumexp", "logsumexp"),
    ("special_multigammaln", "mvlgamma"),
    ("special_psi", "digamma"),
    ("special_round", "round.decimals"),
    ("special_sinc", "sinc"),
    ("special_xlogy.default", "xlogy.Tensor"),
    ("special_xlogy.other_scalar", "xlogy.Scalar_Other"),
    ("special_xlogy.self_scalar", "xlogy.Scalar_Self"),
    ("subtract", "sub"),
    ("true_divide", "div"),
];

/// What an operator says of truth values.
fn truths(r: &mut Rewriter<'_>, op: &str) -> Result<Vec<Value>, OpError> {
    r.args().of_types("self", &[Dtype::Bool])?;
    let x = r.args().tensor("self")?.value;
    Ok(vec![r.apply(op, &[x])?])
}

/// `aten.multiply.Tensor`: what `aten.mul.Tensor` is.
const fn renamed(name: &'static str) -> OpDef {
    decompose(name, |r| {
        let (name, args) = (r.args().op().to_owned(), r.args().node.args.clone());
        let own = name.trim_start_matches("aten.");
        let (base, overload) = own.split_once('.').unwrap_or((own, "default"));
        let found = NAMES.iter().find(|(known, _)| *known == own || *known == base);
        let (_, target) = found.ok_or_else(|| OpError::missing(&name))?;
        let target =
            if target.contains('.') { format!("aten.{target}") } else { format!("aten.{target}.{overload}") };
        Ok(vec![r.call(&target, args)?])
    })
    .complex(Complex::Rewritten)
}

/// The argument `indices` kept inside of the tensor; negative ones count from its end.
fn clamped_indices(r: &mut Rewriter<'_>) -> Result<Arg, OpError> {
    let sizes = r.args().tensor("self")?.ty.sizes.clone();
    let indices: Vec<Option<Value>> =
        r.args().opt_tensors("indices")?.iter().map(|t| t.map(|t| t.value)).collect();
    if indices.len() > sizes.len() {
        return Err(r.args().bad("indices", "at most one for each dimension"));
    }
    let mut clamped = Vec::with_capacity(indices.len());
    for (index, size) in indices.into_iter().zip(sizes) {
        clamped.push(match index {
            Some(index) => {
                let args = [Arg::Value(index), Arg::Int(-size), Arg::Int(size - 1)];
                Arg::Value(r.call("aten.clamp.default", args)?)
            }
            None => Arg::None,
        });
    }
    Ok(Arg::List(clamped))
}

/// Each dimension rolled by half of it.
fn shifted(r: &mut Rewriter<'_>, by: fn(Expr) -> Expr) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (value, ty) = (x.value, x.ty.clone());
    if ty.rank() == 0 {
        return Ok(vec![r.apply("aten.clone.default", &[value])?]);
    }
    let dims = if r.args().has("dim") { r.args().dims("dim", ty.rank())? } else { (0..ty.rank()).collect() };
    let shifts = Arg::ints(dims.iter().map(|&d| by(ty.sizes[d])));
    Ok(vec![r.call("aten.roll.default", [Arg::Value(value), shifts, super::terms::dims_arg(&dims)])?])
}

/// The operand, where nothing is left out of it.
fn unless_training(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    if r.args().flag("train")? && r.args().float("p")? != 0.0 {
        return Err(r.args().unsupported("training"));
    }
    let x = r.args().tensor("input")?.value;
    Ok(vec![r.apply("aten.alias.default", &[x])?])
}

/// Tensors with a dimension filled up with zeros to a multiple of the number of chunks, and cut into these; joined behind it.
fn chunk_cat(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (dim, chunks) = (r.args().literal("dim")?, r.args().int("num_chunks")?);
    let tensors: Vec<_> = r.args().tensors("tensors")?.iter().map(|t| (t.value, t.ty.clone())).collect();
    r.require(|cx, args| {
        cx.require(Rel::ge(chunks, 1), args.op()).map_err(|_| args.bad("num_chunks", "a positive integer"))
    })?;
    let mut parts = Vec::with_capacity(tensors.len());
    for (value, ty) in tensors {
        let at = wrap_dim(dim, ty.rank()).filter(|&at| at < ty.rank());
        let at = at.ok_or_else(|| r.args().bad("dim", "a dimension"))?;
        let missing = ty.sizes[at].ceildiv(chunks) * chunks - ty.sizes[at];
        let mut amounts = vec![Expr::zero(); 2 * (ty.rank() - at)];
        if let Some(after) = amounts.last_mut() {
            *after = missing;
        }
        let padded = r.call("aten.constant_pad_nd.default", [Arg::Value(value), Arg::ints(amounts)])?;
        let sizes = ty.sizes[..at].iter().copied().chain([chunks, Expr::int(-1)]);
        parts.push(Arg::Value(r.reshape(padded, sizes)?));
    }
    let behind = if dim < 0 { dim } else { dim + 1 };
    Ok(vec![r.call("aten.cat.default", [Arg::List(parts), int(behind)])?])
}
