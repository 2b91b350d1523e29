//! Writes arithmetic on complex numbers of two f32 with arithmetic on their parts, by the name of the operator.
//!
//! A rule gets the real and the imaginary part of each operand as real tensors of its sizes. Where the operand was made of
//! parts they are those, else `real` and `imag` of it, so that between two operators nothing is put together. What only moves
//! elements moves complex numbers as they are: a view of them is a view. An operator without a rule stays as it is and is
//! lowering's, or the host's.

use crate::decompose::Rewriter;
use crate::def::{DecomposeFn, OpDef, Rule};
use crate::error::OpError;
use crate::layout::is_overlapping;
use crate::promote::real_of;
use crate::traits::Complex;
use by_parts::{by_parts, convert, made};
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, Float, Graph, Node, Type, Value, ValueData};
use litz_ir::ids::Table as IdTable;
use litz_sym::Expr;
use std::collections::HashMap;

mod by_parts;
mod composed;
mod functions;

/// The parts of values that a graph makes of parts: real, imaginary.
pub(crate) type Parts = HashMap<Value, Pair>;
type Pair = [Value; 2];
type Found = Result<Vec<Value>, OpError>;

/// Makes a complex tensor of its parts.
const COMPLEX: &str = "aten.complex.default";

/// The element types of the tensors of a node.
fn dtypes<'a>(
    node: &'a Node,
    values: &'a IdTable<Value, ValueData>,
) -> impl Iterator<Item = Dtype> + use<'a> {
    let mut used: Vec<Value> = node.outputs.iter().flatten().copied().collect();
    node.args.iter().for_each(|arg| arg.each_value(&mut |value| used.push(value)));
    used.into_iter().filter_map(|value| match &values[value].ty {
        Type::Tensor(ty) => Some(ty.dtype),
        Type::Int(_) | Type::Float | Type::Bool => None,
    })
}

/// Whether a node has complex operands, numbers or results.
pub(crate) fn is_complex(node: &Node, values: &IdTable<Value, ValueData>) -> bool {
    let has_number = node.args.iter().any(|arg| matches!(arg, Arg::Complex(..)));
    has_number || dtypes(node, values).any(|dtype| dtype.kind() == Kind::Complex)
}

/// Whether lowering takes the complex operands and results of a node: it moves numbers, takes them apart or calls a routine.
pub(crate) fn is_lowered(def: &OpDef, node: &Node, values: &IdTable<Value, ValueData>) -> bool {
    let is_held = |dtype: Dtype| dtype != Dtype::C128;
    let takes = match def.traits.complex {
        Complex::Lowered => true,
        Complex::Copied => dtypes(node, values).all(|dtype| dtype == Dtype::C64),
        Complex::ByRule | Complex::Rewritten => matches!(def.rule, Rule::View | Rule::Drop),
    };
    takes && dtypes(node, values).all(is_held)
}

/// How a node of complex numbers is written with their parts, if there is a rule.
pub(crate) fn rule(def: &OpDef, node: &Node, graph: &Graph, parts: &Parts) -> Option<DecomposeFn> {
    let (values, facts) = (&graph.values, &graph.facts);
    if dtypes(node, values).any(|dtype| dtype == Dtype::C128) {
        return None;
    }
    let rewritten = match def.rule {
        Rule::Decompose(rewrite) if def.traits.complex == Complex::Rewritten => Some(rewrite),
        _ => None,
    };
    // Strides of a view are those of its operand's memory; where elements share it, nothing made of parts lies so.
    let overlaps = |value: Value| matches!(&values[value].ty, Type::Tensor(ty) if is_overlapping(facts, ty));
    if node.outputs.iter().flatten().any(|&value| overlaps(value)) {
        return rewritten;
    }
    if matches!(def.rule, Rule::View) {
        let is_made = node.args.first().and_then(Arg::as_value).is_some_and(|x| parts.contains_key(&x));
        return is_made.then_some(by_parts as DecomposeFn);
    }
    if def.traits.complex == Complex::Copied {
        return dtypes(node, values).any(|dtype| dtype != Dtype::C64).then_some(convert as DecomposeFn);
    }
    let mut rules = RULES.iter().chain(functions::RULES).chain(composed::RULES);
    rules.find(|(name, _)| *name == def.name).map(|(_, rule)| *rule).or(rewritten)
}

/// What a node adds to the parts that are known.
pub(crate) fn learn(parts: &mut Parts, node: &Node, values: &IdTable<Value, ValueData>) {
    let tensor = |value: Value| match &values[value].ty {
        Type::Tensor(ty) => Some(ty),
        Type::Int(_) | Type::Float | Type::Bool => None,
    };
    if let (COMPLEX, [re, im], [Some(out)]) =
        (node.op.as_str(), node.args.as_slice(), node.outputs.as_slice())
        && let (Some(re), Some(im), Some(ty)) = (re.as_value(), im.as_value(), tensor(*out))
        && [re, im].into_iter().all(|part| tensor(part).is_some_and(|part| part.sizes == ty.sizes))
    {
        parts.insert(*out, [re, im]);
    }
}

/// Rules by operator.
const RULES: &[(&str, DecomposeFn)] = &[
    ("aten.add.Tensor", |r| sum(r, "other", "alpha", "aten.add.Tensor")),
    ("aten.add.Scalar", |r| sum(r, "other", "alpha", "aten.add.Tensor")),
    ("aten.sub.Tensor", |r| sum(r, "other", "alpha", "aten.sub.Tensor")),
    ("aten.sub.Scalar", |r| sum(r, "other", "alpha", "aten.sub.Tensor")),
    ("aten.rsub.Tensor", difference_from),
    ("aten.rsub.Scalar", difference_from),
    ("aten.mul.Tensor", |r| binary(r, mul)),
    ("aten.mul.Scalar", |r| binary(r, mul)),
    ("aten.div.Tensor", |r| binary(r, div)),
    ("aten.div.Scalar", |r| binary(r, div)),
    ("aten.true_divide.Tensor", |r| binary(r, div)),
    ("aten.reciprocal.default", |r| {
        unary(r, |r, z| {
            let one = [number(r, 1.0)?, number(r, 0.0)?];
            div(r, one, z)
        })
    }),
    ("aten.neg.default", by_parts),
    ("aten._conj.default", conjugate),
    ("aten.conj.default", conjugate),
    ("aten._conj_physical.default", conjugate),
    ("aten.conj_physical.default", conjugate),
    ("aten.resolve_conj.default", |r| unary(r, |_, z| Ok(z))),
    ("aten.resolve_neg.default", |r| unary(r, |_, z| Ok(z))),
    ("aten.square.default", |r| unary(r, |r, z| mul(r, z, z))),
    ("aten.abs.default", |r| {
        let z = operand(r, "self")?;
        Ok(vec![size(r, z)?])
    }),
    ("aten.sgn.default", |r| {
        unary(r, |r, z| {
            let size = size(r, z)?;
            let is_zero = r.scalar("aten.eq.Scalar", size, 0.0)?;
            let zero = number(r, 0.0)?;
            each(r, z, |r, part| {
                let share = r.apply("aten.div.Tensor", &[part, size])?;
                r.apply("aten.where.self", &[is_zero, zero, share])
            })
        })
    }),
    ("aten.exp.default", |r| unary(r, exp)),
    ("aten.sigmoid.default", |r| {
        unary(r, |r, z| {
            let opposite = each(r, z, |r, part| r.apply("aten.neg.default", &[part]))?;
            let [re, im] = exp(r, opposite)?;
            let one = number(r, 1.0)?;
            let divisor = [r.apply("aten.add.Tensor", &[one, re])?, im];
            let dividend = [one, number(r, 0.0)?];
            div(r, dividend, divisor)
        })
    }),
    ("aten.log.default", |r| {
        unary(r, |r, [re, im]| {
            let size = size(r, [re, im])?;
            Ok([r.apply("aten.log.default", &[size])?, r.apply("aten.atan2.default", &[im, re])?])
        })
    }),
    ("aten.sin.default", |r| {
        unary(r, |r, [re, im]| {
            let [sin, cos, sinh, cosh] = waves(r, re, im)?;
            Ok([r.apply("aten.mul.Tensor", &[sin, cosh])?, r.apply("aten.mul.Tensor", &[cos, sinh])?])
        })
    }),
    ("aten.cos.default", |r| {
        unary(r, |r, [re, im]| {
            let [sin, cos, sinh, cosh] = waves(r, re, im)?;
            let product = r.apply("aten.mul.Tensor", &[sin, sinh])?;
            Ok([r.apply("aten.mul.Tensor", &[cos, cosh])?, r.apply("aten.neg.default", &[product])?])
        })
    }),
    ("aten.sinh.default", |r| {
        unary(r, |r, [re, im]| {
            let [sin, cos, sinh, cosh] = waves(r, im, re)?;
            Ok([r.apply("aten.mul.Tensor", &[sinh, cos])?, r.apply("aten.mul.Tensor", &[cosh, sin])?])
        })
    }),
    ("aten.cosh.default", |r| {
        unary(r, |r, [re, im]| {
            let [sin, cos, sinh, cosh] = waves(r, im, re)?;
            Ok([r.apply("aten.mul.Tensor", &[cosh, cos])?, r.apply("aten.mul.Tensor", &[sinh, sin])?])
        })
    }),
    ("aten.eq.Tensor", |r| compare(r, "aten.eq.Tensor", "aten.logical_and.default")),
    ("aten.eq.Scalar", |r| compare(r, "aten.eq.Tensor", "aten.logical_and.default")),
    ("aten.ne.Tensor", |r| compare(r, "aten.ne.Tensor", "aten.logical_or.default")),
    ("aten.ne.Scalar", |r| compare(r, "aten.ne.Tensor", "aten.logical_or.default")),
    ("aten.isnan.default", |r| test(r, "aten.isnan.default", "aten.logical_or.default")),
    ("aten.isinf.default", |r| test(r, "aten.isinf.default", "aten.logical_or.default")),
    ("aten.isfinite.default", |r| test(r, "aten.isfinite.default", "aten.logical_and.default")),
    ("aten.logical_not.default", |r| {
        let z = operand(r, "self")?;
        let holds = is_nonzero(r, z)?;
        Ok(vec![r.apply("aten.logical_not.default", &[holds])?])
    }),
    ("aten.logical_and.default", logical),
    ("aten.logical_or.default", logical),
    ("aten.logical_xor.default", logical),
    ("aten.all.default", of_truth),
    ("aten.all.dim", of_truth),
    ("aten.all.dims", of_truth),
    ("aten.any.default", of_truth),
    ("aten.any.dim", of_truth),
    ("aten.any.dims", of_truth),
    ("aten.isreal.default", |r| {
        let [_, im] = operand(r, "self")?;
        Ok(vec![r.scalar("aten.eq.Scalar", im, 0.0)?])
    }),
    ("aten.linalg_vector_norm.default", |r| {
        let size = operand(r, "self").and_then(|z| size(r, z))?;
        let mut args = r.args().node.args.clone();
        args[0] = Arg::Value(size);
        args.iter_mut().for_each(|arg| {
            if let Arg::Dtype(dtype) = arg {
                *dtype = real_of(*dtype);
            }
        });
        Ok(vec![r.call("aten.linalg_vector_norm.default", args)?])
    }),
    ("aten.addcmul.default", |r| {
        let factors = [operand(r, "tensor1")?, operand(r, "tensor2")?];
        let product = mul(r, factors[0], factors[1])?;
        plus_share(r, product)
    }),
    ("aten.addcdiv.default", |r| {
        let factors = [operand(r, "tensor1")?, operand(r, "tensor2")?];
        let ratio = div(r, factors[0], factors[1])?;
        plus_share(r, ratio)
    }),
    ("aten.lerp.Scalar", between),
    ("aten.lerp.Tensor", between),
    ("aten.linalg_vecdot.default", |r| {
        let (x, y) = (r.args().get("x").clone(), r.args().get("y").clone());
        let conjugated = r.call("aten._conj.default", [x])?;
        let products = r.call("aten.mul.Tensor", [Arg::Value(conjugated), y])?;
        let dims = Arg::List(vec![r.args().get("dim").clone()]);
        Ok(vec![r.call("aten.sum.dim_IntList", [Arg::Value(products), dims])?])
    }),
    ("aten.masked_fill.Tensor", |r| {
        let [x, mask, value] = ["self", "mask", "value"].map(|name| r.args().get(name).clone());
        Ok(vec![r.call("aten.where.self", [mask, value, x])?])
    }),
    ("aten.linear.default", |r| {
        let (x, weight) = (r.args().get("input").clone(), r.args().tensor("weight")?);
        let (weight, rank, bias) = (weight.value, weight.ty.rank(), r.args().get("bias").clone());
        let weight = if rank < 2 { weight } else { r.apply("aten.t.default", &[weight])? };
        let product = r.call("aten.matmul.default", [x, Arg::Value(weight)])?;
        Ok(vec![match bias {
            Arg::None => product,
            bias => r.call("aten.add.Tensor", [Arg::Value(product), bias])?,
        }])
    }),
    ("aten.einsum.default", |r| match r.args().tensors("tensors")?.len() {
        1 => by_parts(r),
        2 => of_two(r),
        _ => Err(r.args().unsupported("more than two complex operands")),
    }),
    ("aten.conv1d.default", convolution),
    ("aten.conv1d.padding", convolution),
    ("aten.conv2d.default", convolution),
    ("aten.conv2d.padding", convolution),
    ("aten.conv3d.default", convolution),
    ("aten.conv3d.padding", convolution),
    ("aten.conv_transpose1d.default", convolution),
    ("aten.conv_transpose2d.input", convolution),
    ("aten.conv_transpose3d.input", convolution),
    ("aten.convolution.default", convolution),
    ("aten.mm.default", |r| product(r, "self", "mat2", "aten.mm.default")),
    ("aten.bmm.default", |r| product(r, "self", "mat2", "aten.bmm.default")),
    ("aten.mv.default", |r| product(r, "self", "vec", "aten.mv.default")),
    ("aten.dot.default", |r| product(r, "self", "tensor", "aten.dot.default")),
    ("aten.matmul.default", |r| product(r, "self", "other", "aten.matmul.default")),
    ("aten.vdot.default", |r| {
        let conjugated = r.call("aten._conj.default", [r.args().get("self").clone()])?;
        let other = r.args().get("other").clone();
        Ok(vec![r.call("aten.dot.default", [Arg::Value(conjugated), other])?])
    }),
    ("aten.addmm.default", |r| added(r, "mat1", "mat2", "aten.mm.default")),
    ("aten.baddbmm.default", |r| added(r, "batch1", "batch2", "aten.bmm.default")),
    ("aten.addmv.default", |r| added(r, "mat", "vec", "aten.mv.default")),
    ("aten.zeros.default", made),
    ("aten.ones.default", made),
    ("aten.full.default", made),
    ("aten.linspace.default", made),
    ("aten.zeros_like.default", made),
    ("aten.ones_like.default", made),
    ("aten.full_like.default", made),
    ("aten.new_zeros.default", made),
    ("aten.new_ones.default", made),
    ("aten.new_full.default", made),
    ("aten.eye.default", made),
    ("aten.eye.m", made),
    ("aten.scalar_tensor.default", made),
    ("aten.zero.default", by_parts),
    ("aten.tile.default", by_parts),
    ("aten.repeat_interleave.self_int", by_parts),
    ("aten.channel_shuffle.default", by_parts),
    ("aten.pixel_unshuffle.default", by_parts),
    ("aten.im2col.default", by_parts),
    ("aten.diag_embed.default", by_parts),
    ("aten.index_copy.default", by_parts),
    ("aten.index_fill.int_Scalar", by_parts),
    ("aten.index_fill.int_Tensor", by_parts),
    ("aten.scatter.value", by_parts),
    ("aten.sum.default", by_parts),
    ("aten.sum.dim_IntList", by_parts),
    ("aten.mean.default", by_parts),
    ("aten.mean.dim", by_parts),
    ("aten.cumsum.default", by_parts),
    ("aten.cat.default", by_parts),
    ("aten.stack.default", by_parts),
    ("aten.where.self", by_parts),
    ("aten.where.Scalar", by_parts),
    ("aten.where.ScalarOther", by_parts),
    ("aten.where.ScalarSelf", by_parts),
    ("aten.masked_fill.Scalar", by_parts),
    ("aten.index.Tensor", by_parts),
    ("aten._unsafe_index.Tensor", by_parts),
    ("aten.index_select.default", by_parts),
    ("aten.index_put.default", by_parts),
    ("aten._unsafe_index_put.default", by_parts),
    ("aten.index_add.default", by_parts),
    ("aten.gather.default", by_parts),
    ("aten.scatter.src", by_parts),
    ("aten.scatter_add.default", by_parts),
    ("aten.slice_scatter.default", by_parts),
    ("aten.select_scatter.default", by_parts),
    ("aten.diagonal_scatter.default", by_parts),
    ("aten.slice_backward.default", by_parts),
    ("aten.select_backward.default", by_parts),
    ("aten.diagonal_backward.default", by_parts),
    ("aten.copy.default", by_parts),
    ("aten.fill.Scalar", by_parts),
    ("aten.flip.default", by_parts),
    ("aten.roll.default", by_parts),
    ("aten.repeat.default", by_parts),
    ("aten.constant_pad_nd.default", by_parts),
    ("aten.tril.default", by_parts),
    ("aten.triu.default", by_parts),
    ("aten.nan_to_num.default", by_parts),
];

/// A real number as a tensor.
fn number(r: &mut Rewriter<'_>, number: f64) -> Result<Value, OpError> {
    let sizes = Arg::ints(Vec::<Expr>::new());
    r.call("aten.full.default", [sizes, Arg::Float(Float(number)), Arg::Dtype(Dtype::F32)])
}

/// The parts of a tensor; the imaginary part of real numbers is 0, as eager mode converts them.
fn parts_of(r: &mut Rewriter<'_>, value: Value) -> Result<Pair, OpError> {
    if let Some(parts) = r.known_parts(value) {
        return Ok(parts);
    }
    match r.ty(value)?.dtype {
        Dtype::C64 => Ok([r.apply("aten.real.default", &[value])?, r.apply("aten.imag.default", &[value])?]),
        Dtype::F32 => Ok([value, number(r, 0.0)?]),
        Dtype::C128 => Err(r.args().unsupported("element type c128")),
        _ => {
            let converted = r.call("aten._to_copy.default", [Arg::Value(value), Arg::Dtype(Dtype::F32)])?;
            Ok([converted, number(r, 0.0)?])
        }
    }
}

/// The parts of an argument that is a tensor or a number.
fn operand(r: &mut Rewriter<'_>, name: &str) -> Result<Pair, OpError> {
    let arg = r.args().get(name).clone();
    if let Arg::Complex(re, im) = arg {
        return Ok([number(r, re.0)?, number(r, im.0)?]);
    }
    if let Ok(tensor) = r.args().tensor(name).map(|tensor| tensor.value) {
        return parts_of(r, tensor);
    }
    let literal = r.args().opt_float(name).ok().flatten();
    let literal = literal.ok_or_else(|| r.args().unsupported("a complex operation with such a number"))?;
    Ok([number(r, literal)?, number(r, 0.0)?])
}

/// A tensor of these parts, which are broadcast.
fn joined(r: &mut Rewriter<'_>, parts: Pair) -> Found {
    Ok(vec![r.apply(COMPLEX, &parts)?])
}

fn each(
    r: &mut Rewriter<'_>,
    parts: Pair,
    mut apply: impl FnMut(&mut Rewriter<'_>, Value) -> Result<Value, OpError>,
) -> Result<Pair, OpError> {
    Ok([apply(r, parts[0])?, apply(r, parts[1])?])
}

fn unary(
    r: &mut Rewriter<'_>,
    apply: impl FnOnce(&mut Rewriter<'_>, Pair) -> Result<Pair, OpError>,
) -> Found {
    let z = operand(r, "self")?;
    let parts = apply(r, z)?;
    joined(r, parts)
}

fn binary(r: &mut Rewriter<'_>, apply: fn(&mut Rewriter<'_>, Pair, Pair) -> Result<Pair, OpError>) -> Found {
    let (a, b) = (operand(r, "self")?, operand(r, "other")?);
    let parts = apply(r, a, b)?;
    joined(r, parts)
}

/// `self + alpha * other`, or the difference.
fn sum(r: &mut Rewriter<'_>, other: &str, alpha: &str, op: &str) -> Found {
    let (a, mut b) = (operand(r, "self")?, operand(r, other)?);
    if !matches!(r.args().opt_float(alpha), Ok(None | Some(1.0))) {
        let by = operand(r, alpha)?;
        b = mul(r, by, b)?;
    }
    let parts = [r.apply(op, &[a[0], b[0]])?, r.apply(op, &[a[1], b[1]])?];
    joined(r, parts)
}

/// `other - alpha * self`.
fn difference_from(r: &mut Rewriter<'_>) -> Found {
    let args = ["other", "self", "alpha"].map(|name| r.args().get(name).clone());
    let [other, own, alpha] = args;
    let other = match other {
        Arg::Value(_) => other,
        _ => {
            let parts = operand(r, "other")?;
            Arg::Value(r.apply(COMPLEX, &parts)?)
        }
    };
    Ok(vec![r.call("aten.sub.Tensor", [other, own, alpha])?])
}

fn mul(r: &mut Rewriter<'_>, [a, b]: Pair, [c, d]: Pair) -> Result<Pair, OpError> {
    let [ac, bd, ad, bc] = [[a, c], [b, d], [a, d], [b, c]];
    let (ac, bd) = (r.apply("aten.mul.Tensor", &ac)?, r.apply("aten.mul.Tensor", &bd)?);
    let (ad, bc) = (r.apply("aten.mul.Tensor", &ad)?, r.apply("aten.mul.Tensor", &bc)?);
    Ok([r.apply("aten.sub.Tensor", &[ac, bd])?, r.apply("aten.add.Tensor", &[ad, bc])?])
}

/// Smith's quotient, which `c10::complex` has: by the larger part of the divisor, so that no square overflows.
fn div(r: &mut Rewriter<'_>, [a, b]: Pair, [c, d]: Pair) -> Result<Pair, OpError> {
    let (abs_c, abs_d) = (r.apply("aten.abs.default", &[c])?, r.apply("aten.abs.default", &[d])?);
    let is_wide = r.apply("aten.ge.Tensor", &[abs_c, abs_d])?;
    let mut choose = |yes, no| r.apply("aten.where.self", &[is_wide, yes, no]);
    let (large, small, first, second) = (choose(c, d)?, choose(d, c)?, choose(a, b)?, choose(b, a)?);
    // Of c + di with |c| >= |d|: t = d/c, s = 1/(c + d t), (a + b t) s and (b - a t) s; else with the parts exchanged.
    let ratio = r.apply("aten.div.Tensor", &[small, large])?;
    let rest = r.apply("aten.mul.Tensor", &[small, ratio])?;
    let divisor = r.apply("aten.add.Tensor", &[large, rest])?;
    let scale = r.apply("aten.reciprocal.default", &[divisor])?;
    let (p, q) =
        (r.apply("aten.mul.Tensor", &[second, ratio])?, r.apply("aten.mul.Tensor", &[first, ratio])?);
    let (re, im) = (r.apply("aten.add.Tensor", &[first, p])?, r.apply("aten.sub.Tensor", &[second, q])?);
    let (re, im) = (r.apply("aten.mul.Tensor", &[re, scale])?, r.apply("aten.mul.Tensor", &[im, scale])?);
    let turned = r.apply("aten.neg.default", &[im])?;
    let im = r.apply("aten.where.self", &[is_wide, im, turned])?;
    // By zero each part is divided.
    let magnitude = r.apply("aten.abs.default", &[large])?;
    let is_zero = r.scalar("aten.eq.Scalar", magnitude, 0.0)?;
    let mut divided = |part, quotient| {
        let by_zero = r.apply("aten.div.Tensor", &[part, magnitude])?;
        r.apply("aten.where.self", &[is_zero, by_zero, quotient])
    };
    Ok([divided(a, re)?, divided(b, im)?])
}

fn conjugate(r: &mut Rewriter<'_>) -> Found {
    unary(r, |r, [re, im]| Ok([re, r.apply("aten.neg.default", &[im])?]))
}

/// The distance from zero.
fn size(r: &mut Rewriter<'_>, z: Pair) -> Result<Value, OpError> {
    r.apply("aten.hypot.default", &z)
}

fn exp(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let size = r.apply("aten.exp.default", &[re])?;
    let (cos, sin) = (r.apply("aten.cos.default", &[im])?, r.apply("aten.sin.default", &[im])?);
    Ok([r.apply("aten.mul.Tensor", &[size, cos])?, r.apply("aten.mul.Tensor", &[size, sin])?])
}

/// Sine and cosine of the one, hyperbolic sine and cosine of the other.
fn waves(r: &mut Rewriter<'_>, of: Value, hyperbolic: Value) -> Result<[Value; 4], OpError> {
    Ok([
        r.apply("aten.sin.default", &[of])?,
        r.apply("aten.cos.default", &[of])?,
        r.apply("aten.sinh.default", &[hyperbolic])?,
        r.apply("aten.cosh.default", &[hyperbolic])?,
    ])
}

fn compare(r: &mut Rewriter<'_>, op: &str, combine: &str) -> Found {
    let (a, b) = (operand(r, "self")?, operand(r, "other")?);
    let both = [r.apply(op, &[a[0], b[0]])?, r.apply(op, &[a[1], b[1]])?];
    Ok(vec![r.apply(combine, &both)?])
}

fn test(r: &mut Rewriter<'_>, op: &str, combine: &str) -> Found {
    let z = operand(r, "self")?;
    let both = each(r, z, |r, part| r.apply(op, &[part]))?;
    Ok(vec![r.apply(combine, &both)?])
}

/// Four real products.
fn product(r: &mut Rewriter<'_>, left: &str, right: &str, op: &str) -> Found {
    let both = [r.args().tensor(left)?, r.args().tensor(right)?];
    if both.iter().any(|operand| operand.ty.dtype != Dtype::C64) {
        return Err(r.args().unsupported("a product of complex and real numbers"));
    }
    let ([a, b], [c, d]) = (operand(r, left)?, operand(r, right)?);
    let (ac, bd) = (r.apply(op, &[a, c])?, r.apply(op, &[b, d])?);
    let (ad, bc) = (r.apply(op, &[a, d])?, r.apply(op, &[b, c])?);
    let parts = [r.apply("aten.sub.Tensor", &[ac, bd])?, r.apply("aten.add.Tensor", &[ad, bc])?];
    joined(r, parts)
}

/// `beta * self + alpha * product`.
fn added(r: &mut Rewriter<'_>, left: &str, right: &str, op: &str) -> Found {
    let args = [left, right, "beta", "alpha"].map(|name| r.args().get(name).clone());
    let (to, [left, right, beta, alpha]) = (r.args().tensor("self")?.value, args);
    let product = r.call(op, [left, right])?;
    Ok(vec![weighted(r, [to, product], [beta, alpha])?])
}

/// The sum of two terms times numbers. A first one times 0 is left out, and may be none.
pub(crate) fn weighted(r: &mut Rewriter<'_>, terms: [Value; 2], factors: [Arg; 2]) -> Result<Value, OpError> {
    let mut kept = Vec::with_capacity(2);
    for (at, (term, factor)) in terms.into_iter().zip(factors).enumerate() {
        let literal = match &factor {
            Arg::Int(number) => number.as_int().map(|number| number as f64),
            Arg::Float(number) => Some(number.0),
            _ => None,
        };
        match literal {
            Some(0.0) if at == 0 => {}
            Some(1.0) => kept.push(term),
            _ => kept.push(r.call("aten.mul.Scalar", [Arg::Value(term), factor])?),
        }
    }
    match kept[..] {
        [first, second] => r.apply("aten.add.Tensor", &[first, second]),
        [only, ..] => r.apply("aten.clone.default", &[only]),
        [] => Err(r.args().invalid("expected a term")),
    }
}

/// `self + value * term`.
fn plus_share(r: &mut Rewriter<'_>, term: Pair) -> Found {
    let (to, by) = (operand(r, "self")?, operand(r, "value")?);
    let [a, b] = mul(r, by, term)?;
    let parts = [r.apply("aten.add.Tensor", &[to[0], a])?, r.apply("aten.add.Tensor", &[to[1], b])?];
    joined(r, parts)
}

/// `self + weight * (end - self)`.
fn between(r: &mut Rewriter<'_>) -> Found {
    let (start, end, weight) = (operand(r, "self")?, operand(r, "end")?, operand(r, "weight")?);
    let way =
        [r.apply("aten.sub.Tensor", &[end[0], start[0]])?, r.apply("aten.sub.Tensor", &[end[1], start[1]])?];
    let [a, b] = mul(r, weight, way)?;
    let parts = [r.apply("aten.add.Tensor", &[start[0], a])?, r.apply("aten.add.Tensor", &[start[1], b])?];
    joined(r, parts)
}

/// Whether numbers are other ones than 0.
fn is_nonzero(r: &mut Rewriter<'_>, z: Pair) -> Result<Value, OpError> {
    let parts = each(r, z, |r, part| r.scalar("aten.ne.Scalar", part, 0.0))?;
    r.apply("aten.logical_or.default", &parts)
}

fn logical(r: &mut Rewriter<'_>) -> Found {
    let name = r.args().op().to_owned();
    let (a, b) = (operand(r, "self")?, operand(r, "other")?);
    let both = [is_nonzero(r, a)?, is_nonzero(r, b)?];
    Ok(vec![r.apply(&name, &both)?])
}

/// The operator on whether its operand is other than 0.
fn of_truth(r: &mut Rewriter<'_>) -> Found {
    let (name, mut args) = (r.args().op().to_owned(), r.args().node.args.clone());
    let z = operand(r, "self")?;
    args[0] = Arg::Value(is_nonzero(r, z)?);
    Ok(vec![r.call(&name, args)?])
}

/// An operator that is linear in each of two tensors, by four of real ones.
fn of_two(r: &mut Rewriter<'_>) -> Found {
    let (name, node) = (r.args().op().to_owned(), r.args().node.clone());
    let mut operands = Vec::new();
    node.args.iter().for_each(|arg| arg.each_value(&mut |value| operands.push(value)));
    let &[first, second] = operands.as_slice() else {
        return Err(r.args().unsupported("another number of complex operands than two"));
    };
    if first == second {
        return Err(r.args().unsupported("an operator of one complex operand, twice"));
    }
    let (a, b) = (parts_of(r, first)?, parts_of(r, second)?);
    let of = |r: &mut Rewriter<'_>, x: Value, y: Value| {
        let mut args = node.args.clone();
        let place = |value: Value| if value == first { x } else { y };
        args.iter_mut().for_each(|arg| arg.map_values(&mut |value| place(value)));
        r.call(&name, args)
    };
    let (ac, bd, ad, bc) = (of(r, a[0], b[0])?, of(r, a[1], b[1])?, of(r, a[0], b[1])?, of(r, a[1], b[0])?);
    let parts = [r.apply("aten.sub.Tensor", &[ac, bd])?, r.apply("aten.add.Tensor", &[ad, bc])?];
    joined(r, parts)
}

/// A convolution without its bias, which is added.
fn convolution(r: &mut Rewriter<'_>) -> Found {
    let bias = r.args().opt_tensor("bias")?.map(|bias| (bias.value, bias.ty.numel()));
    let Some((bias, channels)) = bias else { return of_two(r) };
    let (name, mut args) = (r.args().op().to_owned(), r.args().node.args.clone());
    if let Some(at) = r.schema().position("bias") {
        args[at] = Arg::None;
    }
    let product = r.call(&name, args)?;
    let rank = r.args().tensor("weight")?.ty.rank();
    let sizes = [vec![channels], vec![Expr::one(); rank - 2]].concat();
    let bias = r.reshape(bias, sizes)?;
    Ok(vec![r.apply("aten.add.Tensor", &[product, bias])?])
}
