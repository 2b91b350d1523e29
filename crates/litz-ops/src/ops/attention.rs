//! Lowers scaled dot-product attention: scores, mask, softmax and weighted sum, in the compute type but for the weights, which
//! eager rounds to the type of the values.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{broadcast, broadcasts_to, preserved_strides};
use crate::lower::Lower;
use crate::ops::reduce::{kept_sizes, pinned, reduce_into};
use crate::ops::softmax::{EmptyRow, largest, total};
use crate::traits::Holds;
use crate::view::{ValueAccess, View, dim};
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp};
use litz_sym::{Expr, Facts, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower(
        "aten.scaled_dot_product_attention.default",
        |cx, args| Ok(types(cx, args)?[..1].to_vec()),
        attention,
    )
    .random(IF_DROPPING)
    .seeded(crate::ops::seeded::attention),
    lower("aten._scaled_dot_product_flash_attention_for_cpu.default", types, attention).random(IF_DROPPING),
];

/// Whether weights are dropped.
fn drops(args: &Args<'_>) -> Result<bool, OpError> {
    Ok(args.opt_float("dropout_p")?.unwrap_or(0.0) != 0.0)
}

const IF_DROPPING: Holds = Holds::When(|_, args| drops(args));

/// The output, laid out like the query when eager's fused kernel would run, and the logarithm of each row's sum.
pub(crate) fn types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (q, k, v) = (args.tensor("query")?.ty, args.tensor("key")?.ty, args.tensor("value")?.ty);
    let rank = q.rank();
    if rank < 2 || k.rank() < 2 || v.rank() < 2 {
        return Err(args.invalid("expected operands of at least two dimensions"));
    }
    let batch = batch_sizes(cx, args, q, k, v)?;
    let differs = |_| {
        let sizes = [&q.sizes, &k.sizes, &v.sizes];
        args.invalid(format!("queries, keys and values of sizes {sizes:?} do not go together"))
    };
    let columns = k.sizes[k.rank() - 2];
    cx.require(Rel::eq(q.sizes[rank - 1], k.sizes[k.rank() - 1]), args.op()).map_err(differs)?;
    cx.require(Rel::eq(columns, v.sizes[v.rank() - 2]), args.op()).map_err(differs)?;
    let (rows, features) = (q.sizes[rank - 2], v.sizes[v.rank() - 1]);
    args.of_types("key", &[q.dtype])?;
    args.of_types("value", &[q.dtype])?;
    args.of_types("attn_mask", &[q.dtype, Dtype::Bool, Dtype::F32])?;
    broadcasts_to(cx, args, "attn_mask", &[&batch[..], &[rows, columns]].concat())?;
    if args.has("attn_mask") && args.flag("is_causal")? {
        return Err(args.invalid("expected a mask or a causal one, found both"));
    }
    let sizes = [&batch[..], &[rows, features]].concat();
    let mut out = TensorType::contiguous(q.dtype, sizes);
    if is_fused(cx, args, q, k, v) {
        out.strides = preserved_strides(cx.facts, q);
    }
    let sums_dtype = if q.dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    let mut sums = TensorType::contiguous(sums_dtype, [&batch[..], &[rows]].concat());
    if let [_, heads] = batch[..] {
        sums.strides = vec![rows * heads, Expr::one(), heads];
    }
    Ok(vec![Type::Tensor(out), Type::Tensor(sums)])
}

/// Whether eager takes its fused kernel on the CPU: nothing to broadcast, equal feature sizes, unit strides along features.
fn is_fused(cx: &InferCx<'_>, args: &Args<'_>, q: &TensorType, k: &TensorType, v: &TensorType) -> bool {
    let last = |ty: &TensorType| ty.strides.last().is_some_and(|s| s.is_one());
    let features = |ty: &TensorType| ty.sizes.last().copied().unwrap_or(Expr::one());
    let four = [q, k, v].iter().all(|ty| ty.rank() == 4 && last(ty));
    let batch = [k, v].iter().all(|ty| ty.sizes.iter().zip(&q.sizes).take(2).all(|(&a, &b)| cx.same(a, b)));
    four && batch
        && cx.same(features(q), features(v))
        && !args.flag("enable_gqa").unwrap_or(false)
        && q.dtype.is_float()
}

/// Sizes before rows and features. With grouped heads the query's head count is the result's.
fn batch_sizes(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    q: &TensorType,
    k: &TensorType,
    v: &TensorType,
) -> Result<Vec<Expr>, OpError> {
    let lead = |ty: &TensorType, off: usize| ty.sizes[..ty.rank().saturating_sub(off)].to_vec();
    if !args.flag("enable_gqa")? {
        return broadcast(cx, &[&lead(q, 2), &lead(k, 2), &lead(v, 2)], args.op());
    }
    let mut batch = broadcast(cx, &[&lead(q, 3), &lead(k, 3), &lead(v, 3)], args.op())?;
    // Every key and value serves a group of queries' heads.
    let heads = |ty: &TensorType| ty.rank().checked_sub(3).map(|d| ty.sizes[d]);
    let (Some(own), Some(keys), Some(values)) = (heads(q), heads(k), heads(v)) else {
        return Err(args.invalid("expected operands of at least three dimensions"));
    };
    let uneven =
        |_| args.invalid(format!("{own} heads are not groups of those of {keys} keys and {values} values"));
    for shared in [keys, values] {
        cx.require(Rel::ge(shared, 1), args.op()).map_err(uneven)?;
        cx.require(Rel::eq(own.modulo(shared), 0), args.op()).map_err(uneven)?;
    }
    batch.push(own);
    Ok(batch)
}

/// Coordinates of a key or value: the head of the result's, in groups, and the batch's where the operand has one.
fn operand_coords(x: &ValueAccess, batch_sizes: &[Expr], batch: &[Expr], inner: [Expr; 2]) -> Vec<Expr> {
    let lead = x.rank() - 2;
    let skip = batch.len() - lead;
    let coord = |d: usize| {
        let (own, all, at) = (x.sizes[d], batch_sizes[skip + d], batch[skip + d]);
        match () {
            _ if own == all => at,
            _ if own.is_one() => Expr::zero(),
            _ => at.floordiv(all.floordiv(own)),
        }
    };
    (0..lead).map(coord).chain(inner).collect()
}

/// Heads of queries that share keys and values, where each has one query, as one new token of a decoder has: they are the rows of one product. By
/// themselves they would be products of one row each, which read keys and values as often as there are heads in a group.
struct Groups {
    /// How many there are.
    count: Expr,
    /// Heads of a group.
    heads: Expr,
}

impl Groups {
    fn of(batch: &[Expr], q: &ValueAccess, k: &ValueAccess, v: &ValueAccess) -> Option<Groups> {
        let head = |x: &ValueAccess| x.rank().checked_sub(3).and_then(|d| x.sizes[d].as_int());
        let (own, count) = (batch.last()?.as_int()?, head(k)?);
        let is_shared = head(q) == Some(own) && head(v) == Some(count) && count >= 1 && own > count;
        let is_one_query = q.sizes[q.rank() - 2].is_one();
        (is_shared && is_one_query).then(|| Groups { count: Expr::int(count), heads: Expr::int(own / count) })
    }

    /// What is indexed by heads, a row and so many dimensions behind, `[.., 32, 1, n]`, as groups and their heads: `[.., 8, 4, n]`.
    fn as_rows(&self, x: &ValueAccess, behind: usize, facts: &Facts) -> ValueAccess {
        let head = x.rank() - 2 - behind;
        let (mut sizes, mut coords) = (x.sizes.clone(), (0..x.rank()).map(dim).collect::<Vec<_>>());
        sizes[head] = self.count;
        sizes[head + 1] = self.heads;
        coords[head] = dim(head) * self.heads + dim(head + 1);
        coords[head + 1] = Expr::zero();
        x.view(&View::new(sizes, coords), facts)
    }
}

fn attention(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    if drops(args)? {
        return Err(args.unsupported("dropout"));
    }
    let (query, key, value) = (args.tensor("query")?, args.tensor("key")?, args.tensor("value")?);
    let batch = batch_sizes(&mut lw.infer_cx(), args, query.ty, key.ty, value.ty)?;
    let (q, k, v) = (lw.access(query)?, lw.access(key)?, lw.access(value)?);
    let mask = args.opt_tensor("attn_mask")?.map(|t| lw.access(t)).transpose()?;
    let (rows, columns, features) = (q.sizes[q.rank() - 2], k.sizes[k.rank() - 2], q.sizes[q.rank() - 1]);
    let sizes = [&batch[..], &[rows, columns]].concat();
    let mask = mask.map(|mask| mask.broadcast(&sizes));
    let groups = Groups::of(&batch, &q, &k, &v);
    // With so many dimensions behind that of rows.
    let grouped = |x: ValueAccess, behind: usize, lw: &Lower<'_>| match &groups {
        Some(groups) => groups.as_rows(&x, behind, &lw.loops.facts),
        None => x,
    };
    let (q, mask) = (grouped(q, 1, lw), mask.map(|mask| grouped(mask, 1, lw)));
    let compute = q.dtype.compute();
    let causal = args.flag("is_causal")?;
    let scale = args.opt_float("scale")?;

    let (batch, sizes) = match &groups {
        Some(groups) => {
            let batch = [&batch[..batch.len() - 1], &[groups.count]].concat();
            let sizes = [&batch[..], &[groups.heads, columns]].concat();
            (batch, sizes)
        }
        None => (batch.clone(), sizes),
    };
    let scores = lw.temp("scores", compute, &sizes);
    lw.nest(&sizes, |b, at| {
        let (outer, inner) = at.split_at(batch.len());
        let r = b.reduced_axis(features);
        let x = b.read(&q, &operand_coords(&q, &batch, outer, [inner[0], r]));
        let y = b.read(&k, &operand_coords(&k, &batch, outer, [inner[1], r]));
        let term = b.mul(x, y);
        let sum = b.reduce(ReduceOp::Sum, term);
        let score = scaled(b, sum, scale, features);
        let score = masked(b, score, mask.as_ref(), at);
        // All rows of a group are of the first query.
        let row = if groups.is_some() { Expr::zero() } else { inner[0] };
        let score = if causal { above_diagonal_removed(b, score, row, inner[1]) } else { score };
        b.store(&scores, at, score);
        Ok(())
    })?;

    let last = [sizes.len() - 1];
    let kept = kept_sizes(&sizes, &last);
    // A row that the mask removes whole has a maximum of -inf and a sum of 0; its result is 0, as eager's.
    let empty = if mask.is_some() { EmptyRow::Zero } else { EmptyRow::Nan };
    let max = lw.temp("max", compute, &kept);
    reduce_into(lw, &scores, &last, &max, compute, |b, v| {
        let m = b.reduce(ReduceOp::Max, v);
        largest(b, m, empty)
    })?;
    let exps = lw.temp("exp", compute, &sizes);
    lw.nest(&sizes, |b, at| {
        let (s, m) = (b.read(&scores, at), b.read(&max, &pinned(at, &last)));
        let shifted = b.sub(s, m);
        let e = b.exp(shifted);
        b.store(&exps, at, e);
        Ok(())
    })?;
    let sum = lw.temp("sum", compute, &kept);
    reduce_into(lw, &exps, &last, &sum, compute, |b, v| {
        let sum = b.reduce(ReduceOp::Sum, v);
        total(b, sum, empty)
    })?;
    if let Some(logs) = lw.result(args, 1) {
        let logs = grouped(logs, 0, lw);
        lw.nest(&logs.sizes, |b, at| {
            let row = [at, &[Expr::zero()]].concat();
            let (m, s) = (b.read(&max, &row), b.read(&sum, &row));
            let log = b.log(s);
            let total = b.add(m, log);
            b.store(&logs, at, total);
            Ok(())
        })?;
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let out = grouped(out, 1, lw);
    // Eager's fused kernels add up exponentials as they are, and round those that they multiply; where it has none, it rounds scores and weights.
    let weights = if q.dtype != compute {
        let weights = lw.temp("weights", compute, &sizes);
        lw.nest(&sizes, |b, at| {
            let e = b.read(&exps, at);
            let rounded = b.cast(e, q.dtype);
            b.store(&weights, at, rounded);
            Ok(())
        })?;
        weights
    } else {
        exps
    };
    lw.nest(&out.sizes, |b, at| {
        let (outer, inner) = at.split_at(batch.len());
        let r = b.reduced_axis(columns);
        let e = b.read(&weights, &[outer, &[inner[0], r]].concat());
        let y = b.read(&v, &operand_coords(&v, &batch, outer, [r, inner[1]]));
        let term = b.mul(e, y);
        let weighted = b.reduce(ReduceOp::Sum, term);
        let s = b.read(&sum, &[outer, &[inner[0], Expr::zero()]].concat());
        let result = b.div(weighted, s);
        b.store(&out, at, result);
        Ok(())
    })
}

/// Times the scale asked for, or one over the root of the number of features.
fn scaled(b: &mut Body<'_>, v: Val, scale: Option<f64>, features: Expr) -> Val {
    let dtype = b.ty(v);
    let factor = match (scale, features.as_int()) {
        (Some(scale), _) => b.lit(v, scale),
        (None, Some(n)) => b.lit(v, 1.0 / (n as f64).sqrt()),
        (None, None) => {
            let n = b.index(features, dtype);
            b.op(litz_ir::ScalarOp::Rsqrt, &[n])
        }
    };
    b.mul(v, factor)
}

/// A bool mask keeps where true, any other is added.
fn masked(b: &mut Body<'_>, score: Val, mask: Option<&ValueAccess>, at: &[Expr]) -> Val {
    let Some(mask) = mask else { return score };
    if mask.dtype == Dtype::Bool {
        let (keep, removed) = (b.load(mask, at), b.lit(score, f64::NEG_INFINITY));
        return b.select(keep, score, removed);
    }
    let dtype = b.ty(score);
    let bias = b.read_as(mask, at, dtype);
    b.add(score, bias)
}

fn above_diagonal_removed(b: &mut Body<'_>, score: Val, row: Expr, column: Expr) -> Val {
    let (keep, removed) = (b.cond(Rel::le(column, row)), b.lit(score, f64::NEG_INFINITY));
    b.select(keep, score, removed)
}
