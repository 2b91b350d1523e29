//! Lowers operators over groups: grouped matrix products, bags of embeddings, histograms.

use crate::args::{Args, Number, POSITIONS, Tensor};
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{not_negative, vector_of};
use crate::lower::Lower;
use crate::view::ValueAccess;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("transformers.grouped_mm_fallback.default", grouped_type, |lw, args| {
        grouped_product(lw, args, args.tensor("input")?, args.tensor("weight")?)
    }),
    lower("aten._grouped_mm.default", grouped_type, |lw, args| {
        grouped_product(lw, args, args.tensor("self")?, args.tensor("mat2")?)
    }),
    lower("aten.embedding_bag.padding_idx", bag_types, embedding_bag),
    lower("aten.embedding_bag.default", bag_types, embedding_bag),
    lower("aten._embedding_bag.default", bag_types, embedding_bag),
    lower("aten._embedding_bag_forward_only.default", bag_types, embedding_bag),
    lower("aten.histc.default", histogram_type, histogram),
];

// Products by group: rows are sorted by group, `offs` says where each group ends.

fn grouped_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("input").or_else(|_| args.tensor("self"))?.ty;
    let w = args.tensor("weight").or_else(|_| args.tensor("mat2"))?.ty;
    let (&[rows, inner], &[groups, depth, columns]) = (&x.sizes[..], &w.sizes[..]) else {
        return Err(args.unsupported("a product that is not of a matrix and one matrix for each group"));
    };
    if args.has("bias") {
        return Err(args.unsupported("a bias"));
    }
    let differs = |_| args.invalid(format!("cannot multiply rows of {inner} by matrices of {depth} rows"));
    cx.require(Rel::eq(inner, depth), args.op()).map_err(differs)?;
    let counts = if args.op().starts_with("aten.") { &[Dtype::I32] } else { POSITIONS };
    args.of_types("offs", counts)?;
    vector_of(cx, args, "offs", groups)?;
    if x.dtype != w.dtype {
        return Err(args.invalid(format!("expected operands of one type, found {} and {}", x.dtype, w.dtype)));
    }
    let dtype = args.dtype("out_dtype")?.unwrap_or(x.dtype);
    one(TensorType::contiguous(dtype, vec![rows, columns]))
}

/// Row `i` times the matrix of its group; rows after the last group are 0.
fn grouped_product(lw: &mut Lower<'_>, args: &Args<'_>, x: Tensor<'_>, w: Tensor<'_>) -> Result<(), OpError> {
    let (x, w, ends) = (lw.access(x)?, lw.access(w)?, lw.access(args.tensor("offs")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let (rows, groups, inner) = (x.sizes[0], w.sizes[0], x.sizes[1]);
    let group = lw.temp("group", Dtype::I64, &[rows]);
    // A group's number is how many groups end before the row.
    count_passed(lw, &ends, rows, &group)?;
    let compute = out.dtype.compute();
    lw.nest(&out.sizes, |b, at| {
        let g = b.load(&group, &at[..1]);
        let (count, last) = (b.index(groups, Dtype::I64), b.index(groups - 1, Dtype::I64));
        let (grouped, place) = (b.lt(g, count), b.min(g, last));
        let place = b.bind(place, groups);
        let k = b.reduced_axis(inner);
        let (a, c) = (b.read_as(&x, &[at[0], k], compute), b.read_as(&w, &[place, k, at[1]], compute));
        let product = b.mul(a, c);
        let sum = b.reduce(ReduceOp::Sum, product);
        let zero = b.lit(sum, 0.0);
        let v = b.select(grouped, sum, zero);
        b.store(&out, at, v);
        Ok(())
    })
}

/// For each of `count` positions, the number of `bounds` that are not above it.
fn count_passed(
    lw: &mut Lower<'_>,
    bounds: &ValueAccess,
    count: Expr,
    out: &ValueAccess,
) -> Result<(), OpError> {
    lw.nest(&[count], |b, at| {
        let place = b.index(at[0], Dtype::I64);
        let g = b.reduced_axis(bounds.sizes[0]);
        let bound = b.read_as(bounds, &[g], Dtype::I64);
        let passed = b.le(bound, place);
        let passed = b.cast(passed, Dtype::I64);
        let number = b.reduce(ReduceOp::Sum, passed);
        b.store(out, at, number);
        Ok(())
    })
}

// Bags of embeddings: `offsets` says where in `indices` each bag begins.

/// How the embeddings of a bag become one: PyTorch's numbers 0, 1 and 2.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bag {
    Sum,
    Mean,
    Max,
}

fn bag_mode(args: &Args<'_>) -> Result<Bag, OpError> {
    match args.literal("mode")? {
        0 => Ok(Bag::Sum),
        1 => Ok(Bag::Mean),
        2 => Ok(Bag::Max),
        _ => Err(args.bad("mode", "0, 1 or 2")),
    }
}

/// The bags, and three results that only the backward pass uses.
fn bag_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (w, indices) = (args.tensor("weight")?.ty, args.tensor("indices")?.ty);
    let (&[_, features], &[count], &[bags]) =
        (&w.sizes[..], &indices.sizes[..], &args.tensor("offsets")?.ty.sizes[..])
    else {
        return Err(args.unsupported("indices that are not a vector"));
    };
    let bags = if args.flag("include_last_offset")? { bags - 1 } else { bags };
    not_negative(cx, args, &[bags])?;
    if !w.dtype.is_float() {
        return Err(args.invalid(format!("expected floating-point embeddings, found {w}")));
    }
    args.of_types("indices", POSITIONS)?;
    args.of_types("offsets", POSITIONS)?;
    args.of_types("per_sample_weights", &[w.dtype])?;
    vector_of(cx, args, "per_sample_weights", count)?;
    if args.has("per_sample_weights") && bag_mode(args)? != Bag::Sum {
        return Err(args.invalid("weights of samples go with sums only"));
    }
    padding(cx, args, w.sizes[0])?;
    let vector = |size: Expr| Type::Tensor(TensorType::contiguous(Dtype::I64, vec![size]));
    let bag = TensorType::contiguous(w.dtype, vec![bags, features]);
    Ok(vec![Type::Tensor(bag), vector(count), vector(bags), vector(bags)])
}

fn embedding_bag(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    if (1..4).any(|i| args.result(i).is_some()) {
        return Err(args.unsupported("a use of the results for the backward pass"));
    }
    let mode = bag_mode(args)?;
    let (w, indices) = (lw.access(args.tensor("weight")?)?, lw.access(args.tensor("indices")?)?);
    let offsets = lw.access(args.tensor("offsets")?)?;
    let scales = args.opt_tensor("per_sample_weights")?.map(|t| lw.access(t)).transpose()?;
    let padding = padding(&mut lw.infer_cx(), args, w.sizes[0])?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let (count, bags) = (indices.sizes[0], out.sizes[0]);
    let bag = lw.temp("bag", Dtype::I64, &[count]);
    count_passed(lw, &offsets, count, &bag)?;
    let compute = w.dtype.compute();
    let (sums, sizes) = (lw.temp("sum", compute, &out.sizes), lw.temp("size", compute, &[bags]));
    let (start, op) = match mode {
        Bag::Sum | Bag::Mean => (0.0, ReduceOp::Sum),
        Bag::Max => (f64::NEG_INFINITY, ReduceOp::Max),
    };
    fill(lw, &sums, start)?;
    fill(lw, &sizes, 0.0)?;
    // The first offset is 0, so every element is in a bag; one too many offsets leave the last bag the rest.
    let place = |b: &mut Body<'_>, i: Expr| {
        let bag = b.load(&bag, &[i]);
        let (one, last) = (b.index(Expr::one(), Dtype::I64), b.index(bags - 1, Dtype::I64));
        let bag = b.sub(bag, one);
        let bag = b.min(bag, last);
        b.bind(bag, bags)
    };
    let counts = |b: &mut Body<'_>, index: Val| {
        padding.map(|padding| {
            let padding = b.index(padding, Dtype::I64);
            let index = b.cast(index, Dtype::I64);
            b.ne(index, padding)
        })
    };
    lw.nest(&[count], |b, at| {
        let index = b.load(&indices, at);
        let mut v = b.literal(Scalar::Float(1.0), compute);
        if let Some(counts) = counts(b, index) {
            v = b.cast(counts, compute);
        }
        let place = place(b, at[0]);
        b.store_combined(&sizes, &[place], v, Some(ReduceOp::Sum));
        Ok(())
    })?;
    lw.nest(&[count, out.sizes[1]], |b, at| {
        let index = b.load(&indices, &at[..1]);
        let row = b.bind(index, w.sizes[0]);
        let mut v = b.read(&w, &[row, at[1]]);
        if let Some(scales) = &scales {
            let scale = b.read(scales, &at[..1]);
            v = b.mul(v, scale);
        }
        if let Some(counts) = counts(b, index) {
            let none = b.lit(v, start);
            v = b.select(counts, v, none);
        }
        let place = place(b, at[0]);
        b.store_combined(&sums, &[place, at[1]], v, Some(op));
        Ok(())
    })?;
    lw.nest(&out.sizes, |b, at| {
        // PyTorch looks at the last offset alone, and reads what it finds where another one is outside. The check is in the nest that no
        // pass removes: sums need no sizes.
        for offset in [at[0], offsets.sizes[0] - 1] {
            let offset = b.read_as(&offsets, &[offset], Dtype::I64);
            let (zero, count) = (b.lit(offset, 0.0), b.index(count, Dtype::I64));
            let (starts, ends) = (b.ge(offset, zero), b.le(offset, count));
            let is_inside = b.and(starts, ends);
            b.check_value(is_inside);
        }
        let (sum, size) = (b.read(&sums, at), b.read(&sizes, &at[..1]));
        let (zero, one) = (b.lit(sum, 0.0), b.lit(sum, 1.0));
        let v = match mode {
            Bag::Sum => sum,
            Bag::Mean => {
                let size = b.max(size, one);
                b.div(sum, size)
            }
            Bag::Max => {
                let empty = b.eq(size, zero);
                b.select(empty, zero, sum)
            }
        };
        b.store(&out, at, v);
        Ok(())
    })
}

/// The row that does not count. Users count it from the end too; the operators below theirs mean none by a negative one.
fn padding(cx: &mut InferCx<'_>, args: &Args<'_>, rows: Expr) -> Result<Option<Expr>, OpError> {
    if !args.has("padding_idx") {
        return Ok(None);
    }
    let row = args.literal("padding_idx")?;
    if args.op() != "aten.embedding_bag.padding_idx" {
        return Ok((row >= 0).then(|| Expr::int(row)));
    }
    let outside = |_| args.invalid(format!("row {row} of padding is none of {rows} embeddings"));
    let rel = if row < 0 { Rel::ge(rows, row.saturating_neg()) } else { Rel::lt(Expr::int(row), rows) };
    cx.require(rel, args.op()).map_err(outside)?;
    Ok(Some(if row < 0 { rows + row } else { Expr::int(row) }))
}

fn fill(lw: &mut Lower<'_>, out: &ValueAccess, value: f64) -> Result<(), OpError> {
    lw.nest(&out.sizes, |b, at| {
        let v = b.literal(Scalar::Float(value), out.dtype);
        b.store(out, at, v);
        Ok(())
    })
}

// Histograms: as many bins of one width as asked for, the last one closed. Elements outside do not count.

fn histogram_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    if !x.dtype.is_float() {
        return Err(args.invalid(format!("expected floating point elements, found {}", x.dtype)));
    }
    histogram_range(args)?;
    one(TensorType::contiguous(x.dtype, vec![args.int("bins")?]))
}

/// The number of bins, and the ends that are asked for.
fn histogram_range(args: &Args<'_>) -> Result<(i64, f64, f64), OpError> {
    let (bins, low, high) = (args.literal("bins")?, args.float("min")?, args.float("max")?);
    if bins < 1 || low > high || !(high - low).is_finite() {
        return Err(
            args.invalid(format!("expected bins and a finite range, found {bins} from {low} to {high}"))
        );
    }
    Ok((bins, low, high))
}

/// The ends of a histogram.
enum Ends {
    Given(f64, f64),
    /// The smallest and the largest element, in buffers of one element.
    Found(ValueAccess, ValueAccess),
}

fn histogram(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let (bins, low, high) = histogram_range(args)?;
    let compute = x.dtype.compute();
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let ends = if low < high { Ends::Given(low, high) } else { found_ends(lw, &x)? };
    fill(lw, &out, 0.0)?;
    lw.nest(&x.sizes, |b, at| {
        let v = b.read(&x, at);
        let (low, high) = match &ends {
            Ends::Given(low, high) => (b.lit(v, *low), b.lit(v, *high)),
            Ends::Found(low, high) => {
                let (low, high) = (b.read(low, &[]), b.read(high, &[]));
                let (range, zero) = (b.sub(high, low), b.lit(v, 0.0));
                let nothing = b.sub(range, range);
                let is_finite = b.eq(nothing, zero);
                b.check_value(is_finite);
                (low, high)
            }
        };
        // A range of one value reaches one to both sides.
        let (one, zero, flat) = (b.lit(v, 1.0), b.lit(v, 0.0), b.eq(low, high));
        let widen = b.select(flat, one, zero);
        let (low, high) = (b.sub(low, widen), b.add(high, widen));
        let bin = bin_of(b, x.dtype, v, low, high, bins);
        let (above, below) = (b.ge(v, low), b.le(v, high));
        let inside = b.and(above, below);
        let first = b.index(Expr::zero(), Dtype::I64);
        let place = b.select(inside, bin, first);
        let place = b.bind(place, Expr::int(bins));
        let count = b.cast(inside, compute);
        b.store_combined(&out, &[place], count, Some(ReduceOp::Sum));
        Ok(())
    })
}

fn found_ends(lw: &mut Lower<'_>, x: &ValueAccess) -> Result<Ends, OpError> {
    let compute = x.dtype.compute();
    let mut end = |role: &str, op: ReduceOp| {
        let out = lw.temp(role, compute, &[]);
        lw.nest(&[], |b, _| {
            let coords: Vec<Expr> = x.sizes.iter().map(|&size| b.reduced_axis(size)).collect();
            let v = b.read(x, &coords);
            let v = b.reduce(op, v);
            b.store(&out, &[], v);
            Ok(())
        })?;
        Ok::<ValueAccess, OpError>(out)
    };
    Ok(Ends::Found(end("min", ReduceOp::Min)?, end("max", ReduceOp::Max)?))
}

/// The bin of an element within the range, rounded on the way as in eager, to the type of the elements: which bin an edge belongs to
/// depends on it.
fn bin_of(b: &mut Body<'_>, dtype: Dtype, v: Val, low: Val, high: Val, bins: i64) -> Val {
    let rounded = |b: &mut Body<'_>, v: Val| {
        let narrow = b.cast(v, dtype);
        b.cast(narrow, dtype.compute())
    };
    let (distance, range) = (b.sub(v, low), b.sub(high, low));
    let (distance, range) = (rounded(b, distance), rounded(b, range));
    let n = b.rounded_number(Number::Int(Expr::int(bins)), dtype);
    let scaled = b.mul(distance, n);
    let scaled = rounded(b, scaled);
    let place = b.div(scaled, range);
    let place = rounded(b, place);
    let (zero, last) = (b.lit(v, 0.0), b.lit(v, (bins - 1) as f64));
    let place = b.max(place, zero);
    let place = b.min(place, last);
    b.cast(place, Dtype::I64)
}
