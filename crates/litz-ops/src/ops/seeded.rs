//! Writes operators that make random numbers with those that make them of a seed: distributions, dropout, samples and permutations.

use crate::args::Args;
use crate::decompose::Rewriter;
use crate::def::{DecomposeFn, OpDef, inplace, lower};
use crate::error::OpError;
use crate::ops::order::CONTIGUOUS;
use crate::ops::terms::{float, int};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, TensorType, Value};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    random("aten.rand.default", |r| filled(r, "uniform")),
    random("aten.randn.default", |r| filled(r, "normal")),
    random("aten.rand_like.default", |r| like(r, "uniform")),
    random("aten.randn_like.default", |r| like(r, "normal")),
    random("aten.randint.default", |r| Ok(vec![integers(r, None)?])),
    random("aten.randint.low", |r| Ok(vec![integers(r, None)?])),
    random("aten.randint_like.default", integers_like),
    random("aten.randint_like.low_dtype", integers_like),
    random("aten.uniform.default", |r| {
        let (from, to) = (r.args().float("from")?, r.args().float("to")?);
        of_self(r, "uniform", |r, number| affine(r, number, to - from, from))
    }),
    inplace("aten.uniform_.default", "aten.uniform.default"),
    random("aten.normal_functional.default", |r| {
        let (mean, std) = (r.args().float("mean")?, r.args().float("std")?);
        of_self(r, "normal", |r, number| affine(r, number, std, mean))
    }),
    inplace("aten.normal_.default", "aten.normal_functional.default"),
    random("aten.normal.float_float", |r| {
        let (mean, std) = (r.args().float("mean")?, r.args().float("std")?);
        let number = filled(r, "normal")?[0];
        Ok(vec![affine(r, number, std, mean)?])
    }),
    random("aten.normal.Tensor_float", |r| normal_around(r, "mean")),
    random("aten.normal.float_Tensor", |r| normal_around(r, "std")),
    random("aten.normal.Tensor_Tensor", |r| normal_around(r, "mean")),
    random("aten.exponential.default", |r| {
        let rate = r.args().float("lambd")?;
        of_self(r, "uniform", |r, number| {
            let value = exponential(r, number)?;
            r.scalar("aten.mul.Scalar", value, 1.0 / rate)
        })
    }),
    inplace("aten.exponential_.default", "aten.exponential.default"),
    random("aten.log_normal.default", |r| {
        let (mean, std) = (r.args().float("mean")?, r.args().float("std")?);
        of_self(r, "normal", |r, number| {
            let value = affine(r, number, std, mean)?;
            r.apply("aten.exp.default", &[value])
        })
    }),
    inplace("aten.log_normal_.default", "aten.log_normal.default"),
    random("aten.cauchy.default", |r| {
        let (median, sigma) = (r.args().float("median")?, r.args().float("sigma")?);
        of_self(r, "uniform", |r, number| {
            let angle = affine(r, number, std::f64::consts::PI, -std::f64::consts::FRAC_PI_2)?;
            let value = r.apply("aten.tan.default", &[angle])?;
            affine(r, value, sigma, median)
        })
    }),
    inplace("aten.cauchy_.default", "aten.cauchy.default"),
    random("aten.geometric.default", |r| {
        let chance = r.args().float("p")?;
        if !(chance > 0.0 && chance < 1.0) {
            return Err(r.args().bad("p", "a number between 0 and 1"));
        }
        let ty = r.args().tensor("self")?.ty.clone();
        let compute = if ty.dtype == Dtype::F64 || ty.dtype.is_int() { Dtype::F64 } else { Dtype::F32 };
        let number = r.random("uniform", ty.sizes, compute)?;
        // How often one tries: an exponential number, counted in steps that each fail with the other chance.
        let wait = exponential(r, number)?;
        let tries = r.scalar("aten.mul.Scalar", wait, -1.0 / (-chance).ln_1p())?;
        let tries = r.apply("aten.ceil.default", &[tries])?;
        Ok(vec![r.convert(tries, ty.dtype)?])
    }),
    inplace("aten.geometric_.default", "aten.geometric.default"),
    random("aten.random.default", any_integers),
    random("aten.random.to", any_integers),
    inplace("aten.random_.default", "aten.random.default"),
    inplace("aten.random_.to", "aten.random.to"),
    random("aten.bernoulli.default", |r| {
        let x = r.args().tensor("self")?.value;
        let holds = below_each(r, x)?;
        let dtype = r.ty(x)?.dtype;
        Ok(vec![r.convert(holds, dtype)?])
    }),
    random("aten.bernoulli.p", |r| {
        let (x, chance) = (r.args().tensor("self")?, r.args().float("p")?);
        let (sizes, dtype) = (x.ty.sizes.clone(), x.ty.dtype);
        let holds = below(r, sizes, chance)?;
        Ok(vec![r.convert(holds, dtype)?])
    }),
    random("aten.bernoulli.Tensor", |r| {
        let (x, chances) = (r.args().tensor("self")?, r.args().tensor("p")?.value);
        let (sizes, dtype) = (x.ty.sizes.clone(), x.ty.dtype);
        let chances = r.call("aten.expand.default", [Arg::Value(chances), Arg::ints(sizes)])?;
        let holds = below_each(r, chances)?;
        Ok(vec![r.convert(holds, dtype)?])
    }),
    inplace("aten.bernoulli_.float", "aten.bernoulli.p"),
    inplace("aten.bernoulli_.Tensor", "aten.bernoulli.Tensor"),
    random("aten.randperm.default", |r| {
        // The order of numbers that are different but for a chance of 2^-53 a pair.
        let (count, dtype) = (r.args().int("n")?, r.args().dtype("dtype")?.unwrap_or(Dtype::I64));
        let numbers = r.random("uniform", vec![count], Dtype::F64)?;
        let order = r.call("aten.argsort.default", [Arg::Value(numbers)])?;
        Ok(vec![r.convert(order, dtype)?])
    }),
    random("aten.multinomial.default", samples),
];

/// An operator whose results are random, whatever its arguments are.
const fn random(name: &'static str, rewrite: DecomposeFn) -> OpDef {
    lower(name, |_, args| Err(no_seed(args)), |_, args| Err(no_seed(args))).seeded(rewrite)
}

fn no_seed(args: &Args<'_>) -> OpError {
    args.unsupported("a random number without a seed, as in a branch or a loop,")
}

/// Numbers of the sizes and the type that the arguments say.
fn filled(r: &mut Rewriter<'_>, kind: &str) -> Result<Vec<Value>, OpError> {
    let (sizes, dtype) = (r.args().ints("size")?, r.args().dtype("dtype")?.unwrap_or(Dtype::F32));
    Ok(vec![r.random(kind, sizes, dtype)?])
}

/// Numbers of the sizes of the operand and, where nothing else is said, of its type and layout.
fn like(r: &mut Rewriter<'_>, kind: &str) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (value, ty, dtype) = (x.value, x.ty.clone(), r.args().dtype("dtype")?.unwrap_or(x.ty.dtype));
    let numbers = r.random(kind, ty.sizes.clone(), dtype)?;
    Ok(vec![laid_out_like(r, numbers, value, &ty)?])
}

/// A new tensor in the layout that the argument `memory_format` says, which is that of the operand where it says nothing.
fn laid_out_like(
    r: &mut Rewriter<'_>,
    numbers: Value,
    like: Value,
    ty: &TensorType,
) -> Result<Value, OpError> {
    let (format, dtype) = (r.args().get("memory_format").clone(), r.ty(numbers)?.dtype);
    match format {
        Arg::None if ty.is_contiguous() => Ok(numbers),
        Arg::None => {
            let room = r.convert(like, dtype)?;
            r.apply("aten.copy.default", &[room, numbers])
        }
        format => r.call("aten.clone.default", [Arg::Value(numbers), format]),
    }
}

/// Integers of the sizes given, or of those that the argument `size` says.
fn integers(r: &mut Rewriter<'_>, sizes: Option<(Vec<Expr>, Dtype)>) -> Result<Value, OpError> {
    let args = r.args();
    let low = if args.has("low") { args.int("low")? } else { Expr::zero() };
    let high = args.int("high")?;
    let (sizes, dtype) = match sizes {
        Some(given) => given,
        None => (args.ints("size")?, args.dtype("dtype")?.unwrap_or(Dtype::I64)),
    };
    r.random_integers(low, high, sizes, dtype)
}

fn integers_like(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (value, ty, dtype) = (x.value, x.ty.clone(), r.args().dtype("dtype")?.unwrap_or(x.ty.dtype));
    let numbers = integers(r, Some((ty.sizes.clone(), dtype)))?;
    Ok(vec![laid_out_like(r, numbers, value, &ty)?])
}

/// Integers for each element of the operand: from 0 on, below the given one or up to the largest that its type holds, of floats the largest
/// up to which it has all. There is no export with a first one: its name is a word of Python's.
fn any_integers(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let ty = r.args().tensor("self")?.ty.clone();
    let most = match ty.dtype {
        Dtype::Bool => 1,
        Dtype::U8 => i64::from(u8::MAX),
        Dtype::I8 => i64::from(i8::MAX),
        Dtype::I16 => i64::from(i16::MAX),
        Dtype::I32 => i64::from(i32::MAX),
        // The largest one itself has no number above it.
        Dtype::I64 => i64::MAX - 1,
        Dtype::BF16 => 1 << 8,
        Dtype::F16 => 1 << 11,
        Dtype::F32 => 1 << 24,
        Dtype::F64 => 1 << 53,
        other => return Err(r.args().unsupported(&format!("random integers of type {other}"))),
    };
    let high = r.args().opt_int("to")?.unwrap_or(Expr::int(most + 1));
    Ok(vec![r.random_integers(Expr::zero(), high, ty.sizes, ty.dtype)?])
}

/// What `of` makes of numbers of the sizes of the operand, computed in the compute type of the operand's.
fn of_self(
    r: &mut Rewriter<'_>,
    kind: &str,
    of: impl FnOnce(&mut Rewriter<'_>, Value) -> Result<Value, OpError>,
) -> Result<Vec<Value>, OpError> {
    r.args().of_types("self", &[Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64])?;
    let ty = r.args().tensor("self")?.ty.clone();
    let number = r.random(kind, ty.sizes, ty.dtype.compute())?;
    let value = of(r, number)?;
    Ok(vec![r.convert(value, ty.dtype)?])
}

/// `x * factor + term`
fn affine(r: &mut Rewriter<'_>, x: Value, factor: f64, term: f64) -> Result<Value, OpError> {
    let scaled = r.scalar("aten.mul.Scalar", x, factor)?;
    r.scalar("aten.add.Scalar", scaled, term)
}

/// Of a number in [0, 1) one with the exponential distribution of rate 1. Never 0, whose logarithm nobody wants: half of the type's
/// epsilon at least, as in eager mode.
fn exponential(r: &mut Rewriter<'_>, number: Value) -> Result<Value, OpError> {
    let epsilon = if r.ty(number)?.dtype == Dtype::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let opposite = r.apply("aten.neg.default", &[number])?;
    let log = r.apply("aten.log1p.default", &[opposite])?;
    let value = r.apply("aten.neg.default", &[log])?;
    r.scalar("aten.clamp_min.default", value, epsilon / 2.0)
}

/// Normal numbers with a mean, a deviation, or both, for each element; `of` is the tensor that says the type.
fn normal_around(r: &mut Rewriter<'_>, of: &str) -> Result<Vec<Value>, OpError> {
    let of = r.args().tensor(of)?;
    let (mut sizes, dtype) = (of.ty.sizes.clone(), of.ty.dtype);
    let tensors = ["mean", "std"].map(|name| r.args().tensor(name).map(|tensor| tensor.ty.sizes.clone()));
    if let [Ok(mean), Ok(std)] = &tensors {
        r.require(|cx, args| {
            sizes = crate::layout::broadcast(cx, &[mean, std], args.op())?;
            Ok(())
        })?;
    }
    let mut value = r.random("normal", sizes, dtype)?;
    for (name, op) in [("std", "aten.mul"), ("mean", "aten.add")] {
        value = match r.args().tensor(name) {
            Ok(tensor) => {
                let tensor = tensor.value;
                r.apply(&format!("{op}.Tensor"), &[value, tensor])?
            }
            Err(_) => {
                let number = r.args().float(name)?;
                r.scalar(&format!("{op}.Scalar"), value, number)?
            }
        };
    }
    Ok(vec![value])
}

/// Truth values of which each holds with a chance.
fn below(r: &mut Rewriter<'_>, sizes: Vec<Expr>, chance: f64) -> Result<Value, OpError> {
    if !(0.0..=1.0).contains(&chance) {
        return Err(r.args().bad("p", "a number from 0 to 1"));
    }
    let number = r.random("uniform", sizes, Dtype::F32)?;
    r.scalar("aten.lt.Scalar", number, chance)
}

/// Truth values of which each holds with its chance.
fn below_each(r: &mut Rewriter<'_>, chances: Value) -> Result<Value, OpError> {
    let chances = r.call("litz.within.default", [Arg::Value(chances), float(0.0), float(1.0)])?;
    let sizes = r.ty(chances)?.sizes;
    let number = r.random("uniform", sizes, Dtype::F32)?;
    r.apply("aten.lt.Tensor", &[number, chances])
}

/// `count` samples of the distribution that each row is proportional to: the positions where chance over an exponential number is
/// largest, for each sample with numbers of its own where one may be taken twice.
fn samples(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.args().of_types("self", &[Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64])?;
    let (x, count, repeats) =
        (r.args().tensor("self")?, r.args().int("num_samples")?, r.args().flag("replacement")?);
    let (chances, ty) = (x.value, x.ty.clone());
    let Some((&kinds, rows)) = ty.sizes.split_last().filter(|_| ty.rank() <= 2) else {
        return Err(r.args().invalid(format!("expected one or two dimensions, found {ty}")));
    };
    r.require(|cx, args| {
        let few = |_| {
            args.bad(
                "num_samples",
                "a number above 0, and of kinds that are not taken twice no more than there are",
            )
        };
        cx.require(Rel::ge(count, 1), args.op()).map_err(few)?;
        if repeats { Ok(()) } else { cx.require(Rel::le(count, kinds), args.op()).map(drop).map_err(few) }
    })?;
    let compute = ty.dtype.compute();
    let mut chances = r.convert(chances, compute)?;
    chances = r.call("litz.within.default", [Arg::Value(chances), float(0.0), float(f64::MAX)])?;
    let total = r.call("aten.sum.dim_IntList", [Arg::Value(chances), Arg::List(vec![int(-1)])])?;
    let some = r.scalar("aten.gt.Scalar", total, 0.0)?;
    let some = r.apply("aten.all.default", &[some])?;
    let message = Arg::Str("multinomial: the sum of a row of chances is 0".to_owned());
    r.call_all("aten._assert_async.msg", [Arg::Value(some), message])?;
    if !repeats {
        let numbers = r.random("uniform", ty.sizes, compute)?;
        let waits = exponential(r, numbers)?;
        let weights = r.div(chances, waits)?;
        let best = r.call_all("aten.topk.default", [Arg::Value(weights), Arg::Int(count)])?;
        let [_, Some(places)] = best[..] else { return Err(OpError::missing("aten.topk.default")) };
        return Ok(vec![places]);
    }
    let numbers = r.random("uniform", [rows, &[count, kinds]].concat(), compute)?;
    let waits = exponential(r, numbers)?;
    let chances = r.call("aten.unsqueeze.default", [Arg::Value(chances), int(-2)])?;
    let weights = r.div(chances, waits)?;
    Ok(vec![r.call("aten.argmax.default", [Arg::Value(weights), int(-1)])?])
}

/// Which elements dropout leaves out together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    Elements,
    /// All of a channel of an image.
    Channels,
}

/// Dropout: what stays is as much larger as little stays.
pub(crate) fn dropout(r: &mut Rewriter<'_>, dropped: Dropped) -> Result<Vec<Value>, OpError> {
    let (x, noise, chance) = noise(r, dropped)?;
    let noise = r.scalar("aten.mul.Scalar", noise, scale_of(chance))?;
    Ok(vec![r.mul(x, noise)?])
}

/// Dropout to the value that a unit with negative input tends to, scaled so that mean and variance stay.
pub(crate) fn alpha_dropout(r: &mut Rewriter<'_>, dropped: Dropped) -> Result<Vec<Value>, OpError> {
    /// `scale * alpha` of the activation `selu`.
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    let (x, noise, chance) = noise(r, dropped)?;
    if chance == 1.0 {
        return Ok(vec![r.mul(x, noise)?]);
    }
    let factor = 1.0 / ((ALPHA * ALPHA * chance + 1.0) * (1.0 - chance)).sqrt();
    let scaled = r.scalar("aten.mul.Scalar", noise, factor)?;
    let dropped = r.scalar("aten.sub.Scalar", noise, 1.0)?;
    let moved = affine(r, dropped, ALPHA * factor, ALPHA * factor * chance)?;
    let product = r.mul(x, scaled)?;
    Ok(vec![r.add(product, moved)?])
}

/// What stays is multiplied by it.
fn scale_of(chance: f64) -> f64 {
    if chance == 1.0 { 0.0 } else { 1.0 / (1.0 - chance) }
}

/// The operand, ones where it stays and zeros elsewhere, and the chance of a zero.
fn noise(r: &mut Rewriter<'_>, dropped: Dropped) -> Result<(Value, Value, f64), OpError> {
    let (x, chance) = (r.args().tensor("input")?, r.args().float("p")?);
    let (x, ty) = (x.value, x.ty.clone());
    if !(0.0..=1.0).contains(&chance) {
        return Err(r.args().bad("p", "a number from 0 to 1"));
    }
    let mut sizes = ty.sizes;
    if dropped == Dropped::Channels {
        if sizes.len() < 2 {
            return Err(r.args().invalid("dropout of channels of what has less than two dimensions"));
        }
        sizes[2..].fill(Expr::one());
    }
    let stays = below(r, sizes, 1.0 - chance)?;
    let noise = r.convert(stays, ty.dtype)?;
    Ok((x, noise, chance))
}

/// Dropout, and which elements stay.
pub(crate) fn native_dropout(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, noise, chance) = noise(r, Dropped::Elements)?;
    let stays = r.convert(noise, Dtype::Bool)?;
    let kept = r.mul(x, noise)?;
    let copy = r.call("aten.clone.default", [Arg::Value(stays), CONTIGUOUS])?;
    Ok(vec![r.scalar("aten.mul.Scalar", kept, scale_of(chance))?, copy])
}

/// A leaky activation whose slope is random for each element.
pub(crate) fn leaky(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (value, ty) = (x.value, x.ty.clone());
    let (low, high) = (r.args().float("lower")?, r.args().float("upper")?);
    let number = r.random("uniform", ty.sizes, ty.dtype.compute())?;
    let slope = affine(r, number, high - low, low)?;
    let slope = r.convert(slope, ty.dtype)?;
    let (small, is_small) = (r.mul(value, slope)?, r.scalar("aten.le.Scalar", value, 0.0)?);
    Ok(vec![r.apply("aten.where.self", &[is_small, small, value])?])
}

/// Attention whose weights are dropped, written out.
pub(crate) fn attention(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let args = r.args();
    let (q, k, v) = (args.tensor("query")?, args.tensor("key")?, args.tensor("value")?);
    let chance = args.float("dropout_p")?;
    let (qt, kt) = (q.ty.clone(), k.ty.clone());
    let (mut q, mut k, mut v) = (q.value, k.value, v.value);
    let (mask, causal, scale) =
        (args.opt_tensor("attn_mask")?, args.flag("is_causal")?, args.opt_float("scale")?);
    let mask = mask.map(|mask| (mask.value, mask.ty.dtype));
    let grouped = args.flag("enable_gqa")?;
    let [.., heads, rows, features] = qt.sizes[..] else {
        return Err(r.args().invalid("expected operands of at least three dimensions"));
    };
    let [.., own, columns, _] = kt.sizes[..] else {
        return Err(r.args().invalid("expected operands of at least three dimensions"));
    };
    let scale = match (scale, features.as_int()) {
        (Some(scale), _) => scale,
        (None, Some(features)) => 1.0 / (features as f64).sqrt(),
        (None, None) => return Err(r.args().unsupported("a scale by a symbolic size")),
    };
    if grouped {
        let copies = r.infer_cx().simplify(heads.floordiv(own));
        for operand in [&mut k, &mut v] {
            let args = [Arg::Value(*operand), Arg::Int(copies), int(-3)];
            *operand = r.call("aten.repeat_interleave.self_int", args)?;
        }
    }
    q = r.scalar("aten.mul.Scalar", q, scale.sqrt())?;
    let turned = r.transpose(k, -2, -1)?;
    let turned = r.scalar("aten.mul.Scalar", turned, scale.sqrt())?;
    let mut scores = r.apply("aten.matmul.default", &[q, turned])?;
    if causal {
        let whole = r.filled(vec![rows, columns], 1.0, Dtype::Bool)?;
        let seen = r.apply("aten.tril.default", &[whole])?;
        scores = masked(r, scores, seen)?;
    }
    scores = match mask {
        Some((mask, Dtype::Bool)) => masked(r, scores, mask)?,
        Some((mask, _)) => r.add(scores, mask)?,
        None => scores,
    };
    let weights = r.call("aten._safe_softmax.default", [Arg::Value(scores), int(-1)])?;
    let ty = r.ty(weights)?;
    let stays = below(r, ty.sizes, 1.0 - chance)?;
    let noise = r.convert(stays, ty.dtype)?;
    let noise = r.scalar("aten.mul.Scalar", noise, scale_of(chance))?;
    let dropped = r.mul(weights, noise)?;
    Ok(vec![r.apply("aten.matmul.default", &[dropped, v])?])
}

/// Scores where a mask holds.
fn masked(r: &mut Rewriter<'_>, scores: Value, seen: Value) -> Result<Value, OpError> {
    let unseen = r.apply("aten.logical_not.default", &[seen])?;
    r.call("aten.masked_fill.Scalar", [Arg::Value(scores), Arg::Value(unseen), float(f64::NEG_INFINITY)])
}
