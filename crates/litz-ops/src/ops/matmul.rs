//! Lowers matrix products, batched products, linear layers and Einstein sums to one reducing nest each.

use crate::args::Args;
use crate::body::Body;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{broadcast, broadcasts_to};
use crate::lower::Lower;
use crate::traits::Role;
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, TensorType, Type, Value};
use litz_ir::loops::Val;
use litz_ir::target::Rounds;
use litz_ir::{Dtype, ReduceOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower(
        "aten.mm.default",
        |cx, args| ranked_type(cx, args, ("self", 2), ("mat2", 2)),
        |lw, args| matmul(lw, args, "self", "mat2"),
    ),
    lower(
        "aten.mm.dtype",
        |cx, args| type_of(cx, args, ("self", 2), ("mat2", 2)),
        |lw, args| matmul(lw, args, "self", "mat2"),
    ),
    lower(
        "aten.bmm.dtype",
        |cx, args| type_of(cx, args, ("self", 3), ("mat2", 3)),
        |lw, args| matmul(lw, args, "self", "mat2"),
    ),
    lower("aten._int_mm.default", wide_type, |lw, args| matmul(lw, args, "self", "mat2")),
    decompose("aten._scaled_mm.default", scaled),
    lower(
        "litz.mm_rounding.default",
        |cx, args| {
            let mut types = ranked_type(cx, args, ("self", 2), ("mat2", 2))?;
            if let [Type::Tensor(product)] = types.as_mut_slice() {
                product.dtype = Dtype::F32;
            }
            Ok(types)
        },
        |lw, args| {
            let (a, b) = (lw.access(args.tensor("self")?)?, lw.access(args.tensor("mat2")?)?);
            let Some(out) = lw.result(args, 0) else { return Ok(()) };
            // No constant number of them is none that may be rounded.
            let part = |terms: Expr| terms.as_int().and_then(|terms| u32::try_from(terms).ok()).unwrap_or(0);
            let rounds = args.opt_int("terms")?.map_or(Rounds::Always, |terms| Rounds::Parts(part(terms)));
            product(lw, &a, &b, &out, |body, _, sum| {
                body.round_sums(rounds);
                sum
            })
        },
    ),
    lower(
        "aten.bmm.default",
        |cx, args| ranked_type(cx, args, ("self", 3), ("mat2", 3)),
        |lw, args| matmul(lw, args, "self", "mat2"),
    ),
    lower(
        "aten.matmul.default",
        |cx, args| matmul_type(cx, args, "self", "other"),
        |lw, args| matmul(lw, args, "self", "other"),
    ),
    lower(
        "aten.mv.default",
        |cx, args| ranked_type(cx, args, ("self", 2), ("vec", 1)),
        |lw, args| matmul(lw, args, "self", "vec"),
    ),
    lower(
        "aten.dot.default",
        |cx, args| ranked_type(cx, args, ("self", 1), ("tensor", 1)),
        |lw, args| matmul(lw, args, "self", "tensor"),
    ),
    lower("aten.linear.default", linear_type, linear).role(Role::Layer),
    lower(
        "aten.addmm.default",
        |cx, args| added_type(cx, args, ("mat1", 2), ("mat2", 2)),
        |lw, args| added(lw, args, "mat1", "mat2"),
    ),
    lower(
        "aten.baddbmm.default",
        |cx, args| added_type(cx, args, ("batch1", 3), ("batch2", 3)),
        |lw, args| added(lw, args, "batch1", "batch2"),
    ),
    lower(
        "aten.addmv.default",
        |cx, args| added_type(cx, args, ("mat", 2), ("vec", 1)),
        |lw, args| added(lw, args, "mat", "vec"),
    ),
    lower("aten.einsum.default", einsum_type, einsum),
];

/// Rows and columns of an operand of `matmul`: a vector is one row on the left, one column on the right.
struct Shapes {
    batch: Vec<Expr>,
    rows: Option<Expr>,
    columns: Option<Expr>,
}

fn shapes(cx: &mut InferCx<'_>, args: &Args<'_>, left: &[Expr], right: &[Expr]) -> Result<Shapes, OpError> {
    let (Some(&inner), Some(&first)) = (left.last(), right.get(right.len().saturating_sub(2))) else {
        return Err(args.invalid("both operands need at least one dimension"));
    };
    let differs = |_| args.invalid(format!("cannot multiply {left:?} and {right:?}"));
    cx.require(Rel::eq(inner, first), args.op()).map_err(differs)?;
    let (a, b) = (left.len().saturating_sub(2), right.len().saturating_sub(2));
    Ok(Shapes {
        batch: broadcast(cx, &[&left[..a], &right[..b]], args.op())?,
        rows: (left.len() > 1).then(|| left[a]),
        columns: (right.len() > 1).then(|| right[b + 1]),
    })
}

fn matmul_type(cx: &mut InferCx<'_>, args: &Args<'_>, left: &str, right: &str) -> Result<Vec<Type>, OpError> {
    let (a, b) = (args.tensor(left)?.ty, args.tensor(right)?.ty);
    if a.dtype != b.dtype {
        return Err(
            args.invalid(format!("expected operands of one element type, found {} and {}", a.dtype, b.dtype))
        );
    }
    let shapes = shapes(cx, args, &a.sizes, &b.sizes)?;
    let sizes = shapes.batch.into_iter().chain(shapes.rows).chain(shapes.columns).collect();
    one(TensorType::contiguous(a.dtype, sizes))
}

/// As [`matmul_type`], of operands whose ranks the operator fixes; their batches are equal.
fn ranked_type(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    (left, left_rank): (&str, usize),
    (right, right_rank): (&str, usize),
) -> Result<Vec<Type>, OpError> {
    let (a, b) = (&args.tensor(left)?.ty.sizes, &args.tensor(right)?.ty.sizes);
    if (a.len(), b.len()) != (left_rank, right_rank) {
        let expected = format!("expected {left_rank} and {right_rank} dimensions");
        return Err(args.invalid(format!("{expected}, found {a:?} and {b:?}")));
    }
    if left_rank == 3 {
        let differs = |_| args.invalid(format!("cannot multiply {a:?} and {b:?}"));
        cx.require(Rel::eq(a[0], b[0]), args.op()).map_err(differs)?;
    }
    matmul_type(cx, args, left, right)
}

/// The type of a product that says what its sums are stored in: as operands are, or of halves in f32.
fn type_of(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    left: (&str, usize),
    right: (&str, usize),
) -> Result<Vec<Type>, OpError> {
    let mut types = ranked_type(cx, args, left, right)?;
    let wanted = args.dtype("out_dtype")?;
    if let ([Type::Tensor(product)], Some(wanted)) = (types.as_mut_slice(), wanted) {
        let is_wider = matches!(product.dtype, Dtype::F16 | Dtype::BF16) && wanted == Dtype::F32;
        if wanted != product.dtype && !is_wider {
            return Err(args.unsupported(&format!("a product of {} as {wanted}", product.dtype)));
        }
        product.dtype = wanted;
    }
    Ok(types)
}

/// The type of a product of bytes, which adds up in 32 bits.
fn wide_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    args.of_types("self", &[Dtype::I8])?;
    let mut types = ranked_type(cx, args, ("self", 2), ("mat2", 2))?;
    if let [Type::Tensor(product)] = types.as_mut_slice() {
        product.dtype = Dtype::I32;
    }
    Ok(types)
}

/// Products of 8-bit floats that instructions sum before these sums are added up in f32, as cuBLAS and others have it (DeepSeek-V3 technical report, 3.3.2).
const TERMS: i64 = 128;

/// `self @ mat2 * scale_a * scale_b + bias` in f32, of 8-bit floats with one scale for each operand, or each row of the left and column of the right one.
/// Sums may be rounded, as instructions for 8-bit floats do it: with `use_fast_accum` all of them, else those of [`TERMS`] products.
fn scaled(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let sides = [("self", "scale_a", 0), ("mat2", "scale_b", 1)];
    // One scale, or one of each row or column.
    let suits = |(operand, scale, side): (&str, &str, usize)| {
        let (operand, scale) = (r.args().tensor(operand).ok()?, r.args().tensor(scale).ok()?);
        let mut expected = [Expr::one(); 2];
        expected[side] = *operand.ty.sizes.get(side)?;
        Some(scale.ty.numel().is_one() || scale.ty.sizes[..] == expected)
    };
    if r.args().has("scale_result") || !sides.into_iter().all(|side| suits(side) == Some(true)) {
        return Err(r.args().unsupported("scales of blocks or results"));
    }
    let float8 = [Dtype::F8E4M3, Dtype::F8E5M2];
    r.args().of_types("self", &float8)?;
    r.args().of_types("mat2", &float8)?;
    let dtype = r.args().dtype("out_dtype")?.unwrap_or(r.args().tensor("self")?.ty.dtype);
    let bias = r.args().opt_tensor("bias")?.map(|bias| bias.value);
    let mut operands = Vec::new();
    for (operand, ..) in sides {
        let x = r.args().tensor(operand)?.value;
        // Halves have all numbers of eight bits, and instructions that sum their products in f32.
        operands.push(r.convert(x, Dtype::F16)?);
    }
    let operands = operands.into_iter().map(Arg::Value);
    let parts = if r.args().flag("use_fast_accum")? { Arg::None } else { Arg::Int(TERMS.into()) };
    let mut product = r.call("litz.mm_rounding.default", operands.chain([parts]))?;
    for (_, scale, _) in sides {
        let scale = r.args().tensor(scale)?;
        let (value, is_one) = (scale.value, scale.ty.numel().is_one());
        let scale = if is_one { r.reshape(value, [])? } else { value };
        product = r.mul(product, scale)?;
    }
    if let Some(bias) = bias {
        let bias = r.convert(bias, Dtype::F32)?;
        product = r.apply("aten.add.Tensor", &[product, bias])?;
    }
    Ok(vec![r.convert(product, dtype)?])
}

/// The product's type; what is added to it broadcasts to its sizes.
fn added_type(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    left: (&str, usize),
    right: (&str, usize),
) -> Result<Vec<Type>, OpError> {
    let types = ranked_type(cx, args, left, right)?;
    if let [Type::Tensor(product)] = types.as_slice() {
        args.of_types("self", &[product.dtype])?;
        broadcasts_to(cx, args, "self", &product.sizes)?;
    }
    Ok(types)
}

/// One product nest: `finish` makes the stored value from the sum.
fn product(
    lw: &mut Lower<'_>,
    a: &ValueAccess,
    b: &ValueAccess,
    out: &ValueAccess,
    finish: impl FnOnce(&mut Body<'_>, &[Expr], Val) -> Val,
) -> Result<(), OpError> {
    let (has_rows, has_columns) = (a.rank() > 1, b.rank() > 1);
    let batch = &out.sizes[..out.rank() - usize::from(has_rows) - usize::from(has_columns)];
    let own = |x: &ValueAccess, keep: usize| [batch, &x.sizes[x.rank() - keep..]].concat();
    let a = if has_rows { a.broadcast(&own(a, 2)) } else { a.clone() };
    let b = if has_columns { b.broadcast(&own(b, 2)) } else { b.clone() };
    let compute = out.dtype.compute();
    lw.nest(&out.sizes, |body, at| {
        let k = body.reduced_axis(a.sizes[a.rank() - 1]);
        let (batch, matrix) = at.split_at(batch.len());
        let row = has_rows.then(|| matrix[0]);
        let column = has_columns.then(|| matrix[matrix.len() - 1]);
        let batch_of = |given: bool| if given { batch } else { &[] };
        let a_at: Vec<Expr> = batch_of(has_rows).iter().copied().chain(row).chain([k]).collect();
        let b_at: Vec<Expr> = batch_of(has_columns).iter().copied().chain([k]).chain(column).collect();
        let (x, y) = (body.read_as(&a, &a_at, compute), body.read_as(&b, &b_at, compute));
        let term = body.mul(x, y);
        let sum = body.reduce(ReduceOp::Sum, term);
        let result = finish(body, at, sum);
        body.store(out, at, result);
        Ok(())
    })
}

fn matmul(lw: &mut Lower<'_>, args: &Args<'_>, left: &str, right: &str) -> Result<(), OpError> {
    let (a, b) = (lw.access(args.tensor(left)?)?, lw.access(args.tensor(right)?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    product(lw, &a, &b, &out, |_, _, sum| sum)
}

/// `beta * self + alpha * product`; a beta of 0 leaves `self` out, NaN and all.
fn added(lw: &mut Lower<'_>, args: &Args<'_>, left: &str, right: &str) -> Result<(), OpError> {
    let (beta, alpha) = (args.float("beta")?, args.float("alpha")?);
    let bias = lw.access(args.tensor("self")?)?;
    let (a, b) = (lw.access(args.tensor(left)?)?, lw.access(args.tensor(right)?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let bias = bias.broadcast(&out.sizes);
    product(lw, &a, &b, &out, |body, at, sum| {
        let sum = times_literal(body, sum, alpha);
        if beta == 0.0 {
            return sum;
        }
        let compute = body.ty(sum);
        let bias = body.read_as(&bias, at, compute);
        let bias = times_literal(body, bias, beta);
        body.add(sum, bias)
    })
}

fn times_literal(body: &mut Body<'_>, v: Val, by: f64) -> Val {
    if by == 1.0 {
        return v;
    }
    let by = body.lit(v, by);
    body.mul(v, by)
}

/// `input @ weight.T + bias` over the last dimension, which vanishes where the weight is a vector.
fn linear_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, w) = (args.tensor("input")?.ty, args.tensor("weight")?.ty);
    let (Some((&inner, lead)), [rows @ .., columns]) = (x.sizes.split_last(), w.sizes.as_slice()) else {
        return Err(args.invalid(format!("expected rows and a matrix or a vector, found {x} and {w}")));
    };
    if rows.len() > 1 {
        return Err(args.unsupported("a weight of more than two dimensions"));
    }
    if x.dtype != w.dtype {
        return Err(
            args.invalid(format!("expected operands of one element type, found {} and {}", x.dtype, w.dtype))
        );
    }
    let differs =
        |_| args.invalid(format!("cannot multiply {:?} and the transposition of {:?}", x.sizes, w.sizes));
    cx.require(Rel::eq(inner, *columns), args.op()).map_err(differs)?;
    let sizes: Vec<Expr> = lead.iter().chain(rows).copied().collect();
    args.of_types("bias", &[x.dtype])?;
    broadcasts_to(cx, args, "bias", &sizes)?;
    one(TensorType::contiguous(x.dtype, sizes))
}

fn linear(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, w) = (lw.access(args.tensor("input")?)?, lw.access(args.tensor("weight")?)?);
    let bias = args.opt_tensor("bias")?.map(|t| lw.access(t)).transpose()?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    lw.nest(&out.sizes, |b, at| {
        let k = b.reduced_axis(x.sizes[x.rank() - 1]);
        let (lead, column) = at.split_at(x.rank() - 1);
        let (u, v) = (b.read(&x, &[lead, &[k]].concat()), b.read(&w, &[column, &[k]].concat()));
        let term = b.mul(u, v);
        let mut sum = b.reduce(ReduceOp::Sum, term);
        if let Some(bias) = &bias {
            let bias = b.read_as(&bias.broadcast(&out.sizes), at, compute);
            sum = b.add(sum, bias);
        }
        b.store(&out, at, sum);
        Ok(())
    })
}

// Einstein sums.

/// A subscript: a letter, or a dimension that `...` stands for, counted from the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Letter(char),
    Rest(usize),
}

struct Equation {
    inputs: Vec<Vec<Label>>,
    output: Vec<Label>,
}

/// Reads `bij,bjk->bik`, with `...` and without an output part.
fn parse_equation(args: &Args<'_>, ranks: &[usize]) -> Result<Equation, OpError> {
    let text: String = args.str("equation")?.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text.as_str(), None),
    };
    let operands: Vec<&str> = left.split(',').collect();
    if operands.len() != ranks.len() {
        return Err(args.bad("equation", &format!("subscripts of {} operands", ranks.len())));
    }
    let labels = |text: &str, rest: usize| {
        let (before, after) = text.split_once("...").unwrap_or((text, ""));
        let rest = if text.contains("...") { rest } else { 0 };
        let letters = |t: &str| t.chars().map(Label::Letter).collect::<Vec<_>>();
        [letters(before), (0..rest).rev().map(Label::Rest).collect(), letters(after)].concat()
    };
    let mut inputs = Vec::new();
    let mut widest = 0;
    for (text, &rank) in operands.iter().zip(ranks) {
        let named = text.chars().filter(|&c| c != '.').count();
        let rest = rank.checked_sub(named).filter(|&rest| rest == 0 || text.contains("..."));
        let rest = rest.ok_or_else(|| args.bad("equation", "as many subscripts as dimensions"))?;
        widest = widest.max(rest);
        inputs.push(labels(text, rest));
    }
    let output = match right {
        Some(text) => labels(text, widest),
        None => implied_output(&inputs, widest),
    };
    let is_letter = |l: &Label| !matches!(l, Label::Letter(c) if !c.is_ascii_alphabetic());
    let is_new = |(i, l): (usize, &Label)| !output[..i].contains(l);
    let is_given = |l: &Label| inputs.iter().flatten().any(|m| m == l);
    if !inputs.iter().flatten().all(is_letter)
        || !output.iter().enumerate().all(is_new)
        || !output.iter().all(is_given)
    {
        return Err(args.bad("equation", "letters, each once in the result and among those of the operands"));
    }
    Ok(Equation { inputs, output })
}

/// Sizes of one subscript agree, or are 1 in operands that are expanded; those within an operand are equal.
fn subscripts_agree(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    labels: &[Vec<Label>],
    sizes: &[&[Expr]],
) -> Result<(), OpError> {
    let differs =
        |a: Expr, b: Expr| args.invalid(format!("sizes {a} and {b} have the same subscript in {sizes:?}"));
    for (own, of) in labels.iter().zip(sizes) {
        for (d, label) in own.iter().enumerate() {
            let size = label_size(labels, sizes, *label);
            if !of[d].is_one() {
                cx.require(Rel::eq(of[d], size), args.op()).map_err(|_| differs(of[d], size))?;
            }
            let first = own.iter().position(|l| l == label).unwrap_or(d);
            cx.require(Rel::eq(of[first], of[d]), args.op()).map_err(|_| differs(of[first], of[d]))?;
        }
    }
    Ok(())
}

/// What `...` stands for, then the letters that occur once, sorted.
fn implied_output(inputs: &[Vec<Label>], widest: usize) -> Vec<Label> {
    let all: Vec<Label> = inputs.iter().flatten().copied().collect();
    let mut letters: Vec<char> = all
        .iter()
        .filter(|&l| all.iter().filter(|&m| m == l).count() == 1)
        .filter_map(|l| if let Label::Letter(c) = l { Some(*c) } else { None })
        .collect();
    letters.sort_unstable();
    (0..widest).rev().map(Label::Rest).chain(letters.into_iter().map(Label::Letter)).collect()
}

/// The size of each label among operands; 1 where every operand has 1.
fn label_size(labels: &[Vec<Label>], sizes: &[&[Expr]], label: Label) -> Expr {
    let found = labels.iter().zip(sizes).flat_map(|(l, s)| l.iter().zip(s.iter()));
    let mut own = found.filter(|(l, _)| **l == label).map(|(_, &size)| size);
    own.find(|s| !s.is_one()).unwrap_or(Expr::one())
}

fn einsum_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let operands = args.tensors("tensors")?;
    let ranks: Vec<usize> = operands.iter().map(|t| t.ty.rank()).collect();
    let equation = parse_equation(args, &ranks)?;
    let sizes: Vec<&[Expr]> = operands.iter().map(|t| t.ty.sizes.as_slice()).collect();
    subscripts_agree(cx, args, &equation.inputs, &sizes)?;
    let dtype = operands.first().map_or(Dtype::F32, |t| t.ty.dtype);
    if let Some(other) = operands.iter().find(|t| t.ty.dtype != dtype) {
        let other = other.ty.dtype;
        return Err(args.invalid(format!("expected operands of one element type, found {dtype} and {other}")));
    }
    let out = equation.output.iter().map(|&l| label_size(&equation.inputs, &sizes, l)).collect();
    one(TensorType::contiguous(dtype, out))
}

/// Operands are combined from the left, each pair in one nest that sums the labels no later operand needs.
fn einsum(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let operands = args.tensors("tensors")?;
    let ranks: Vec<usize> = operands.iter().map(|t| t.ty.rank()).collect();
    let equation = parse_equation(args, &ranks)?;
    let accesses: Vec<ValueAccess> = operands.iter().map(|t| lw.access(*t)).collect::<Result<_, _>>()?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let mut left: Vec<(Vec<Label>, ValueAccess)> = equation.inputs.into_iter().zip(accesses).rev().collect();
    let mut group: Vec<(Vec<Label>, ValueAccess)> = left.pop().into_iter().collect();
    while let Some(next) = left.pop() {
        group.push(next);
        if left.is_empty() {
            break;
        }
        let labels: Vec<Vec<Label>> = group.iter().map(|(l, _)| l.clone()).collect();
        let sizes: Vec<&[Expr]> = group.iter().map(|(_, a)| a.sizes.as_slice()).collect();
        let needed =
            |l: &Label| equation.output.contains(l) || left.iter().any(|(later, _)| later.contains(l));
        let mut kept: Vec<Label> = Vec::new();
        for label in labels.iter().flatten().filter(|l| needed(l)) {
            if !kept.contains(label) {
                kept.push(*label);
            }
        }
        let kept_sizes: Vec<Expr> = kept.iter().map(|&l| label_size(&labels, &sizes, l)).collect();
        let partial = lw.temp("partial", out.dtype.compute(), &kept_sizes);
        contract(lw, &group, &kept, &partial)?;
        group = vec![(kept, partial)];
    }
    contract(lw, &group, &equation.output, &out)
}

/// One nest over the output's labels that sums products over all others.
fn contract(
    lw: &mut Lower<'_>,
    operands: &[(Vec<Label>, ValueAccess)],
    output: &[Label],
    out: &ValueAccess,
) -> Result<(), OpError> {
    let labels: Vec<Vec<Label>> = operands.iter().map(|(l, _)| l.clone()).collect();
    let sizes: Vec<&[Expr]> = operands.iter().map(|(_, a)| a.sizes.as_slice()).collect();
    lw.nest(&out.sizes, |b, at| {
        let mut coords: Vec<(Label, Expr)> = output.iter().copied().zip(at.iter().copied()).collect();
        for &label in labels.iter().flatten() {
            if !coords.iter().any(|(l, _)| *l == label) {
                let axis = b.reduced_axis(label_size(&labels, &sizes, label));
                coords.push((label, axis));
            }
        }
        let coord = |l: &Label| coords.iter().find(|(m, _)| m == l).map_or(Expr::zero(), |(_, c)| *c);
        let mut product = None;
        for (labels, access) in operands {
            let at: Vec<Expr> = labels
                .iter()
                .zip(&access.sizes)
                .map(|(l, size)| if size.is_one() { Expr::zero() } else { coord(l) })
                .collect();
            let v = b.read_as(access, &at, out.dtype.compute());
            product = Some(product.map_or(v, |p| b.mul(p, v)));
        }
        if let Some(product) = product {
            let sum = b.reduce(ReduceOp::Sum, product);
            b.store(out, at, sum);
        }
        Ok(())
    })
}
