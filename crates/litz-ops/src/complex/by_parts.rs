//! Applies operators that move, make or convert elements to the real and to the imaginary parts.

use super::{Found, is_nonzero, joined, number, parts_of};
use crate::decompose::Rewriter;
use crate::error::OpError;
use crate::promote::real_of;
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, TensorType};
use litz_ir::schema::BaseType;
use litz_sym::Expr;

/// A conversion from or to real numbers.
pub(super) fn convert(r: &mut Rewriter<'_>) -> Found {
    let node = r.args().node;
    let name = if node.op.as_str().starts_with("prims") { "a" } else { "self" };
    let x = r.args().tensor(name)?.value;
    let to = r.args().result(0).map(|ty| ty.dtype);
    let to = to.ok_or_else(|| r.args().unsupported("a conversion to what nothing uses"))?;
    let [re, im] = parts_of(r, x)?;
    if to == Dtype::C64 {
        return joined(r, [re, im]);
    }
    if to == Dtype::Bool {
        return Ok(vec![is_nonzero(r, [re, im])?]);
    }
    Ok(vec![r.call("aten._to_copy.default", [Arg::Value(re), Arg::Dtype(to)])?])
}

/// A tensor of one number, whose sizes and layout the arguments say.
pub(super) fn made(r: &mut Rewriter<'_>) -> Found {
    let is_complex = r.args().result(0).is_some_and(|ty| ty.dtype.kind() == Kind::Complex);
    let [re, im] = each_part(r)?;
    let (name, types) = (r.args().op().to_owned(), is_complex.then_some(Arg::Dtype(Dtype::F32)));
    let at = r.schema().position("dtype");
    let mut call = |mut args: Vec<Arg>| {
        if let (Some(at), Some(dtype)) = (at.filter(|&at| at < args.len()), &types) {
            args[at] = dtype.clone();
        }
        r.call(&name, args)
    };
    let real = call(re)?;
    if !is_complex {
        return Ok(vec![real]);
    }
    // Only a number that is given has an imaginary part.
    let is_given = ["full", "scalar_tensor", "linspace"].iter().any(|given| name.contains(given));
    let imaginary = if is_given { call(im)? } else { number(r, 0.0)? };
    joined(r, [real, imaginary])
}

/// The same operator on each part.
pub(super) fn by_parts(r: &mut Rewriter<'_>) -> Found {
    let (name, [re, im]) = (r.args().op().to_owned(), each_part(r)?);
    let (re, im) = (r.call_all(&name, re)?, r.call_all(&name, im)?);
    let mut results = Vec::new();
    for (at, pair) in re.into_iter().zip(im).enumerate() {
        let (Some(re), Some(im)) = pair else {
            return Err(r.args().unsupported("a result that is left out"));
        };
        // A size that data decides would be another one in each part.
        let sizes = r.ty(re)?.sizes;
        if r.args().result(at).is_some_and(|whole| whole.sizes != sizes) {
            return Err(r.args().unsupported("a size that data decides"));
        }
        results.extend(joined(r, [re, im])?);
    }
    Ok(results)
}

/// The arguments of a node for its real parts, and for its imaginary parts. Truth values and integers among the tensors choose, and are
/// arguments of both; numbers are elements, but for factors, which are real and those of both.
pub(super) fn each_part(r: &mut Rewriter<'_>) -> Result<[Vec<Arg>; 2], OpError> {
    let node = r.args().node.clone();
    let kinds = r.schema().args.iter().map(|arg| (arg.ty.base == BaseType::Scalar, arg.name == "alpha"));
    let kinds: Vec<(bool, bool)> = kinds.collect();
    let (mut real, mut imaginary) = (Vec::new(), Vec::new());
    for (at, arg) in node.args.iter().enumerate() {
        let (is_number, is_factor) = kinds.get(at).copied().unwrap_or_default();
        let [re, im] = if is_number && is_factor {
            match arg {
                Arg::Complex(..) | Arg::Value(_) => return Err(r.args().unsupported("such a factor")),
                factor => [factor.clone(), factor.clone()],
            }
        } else if is_number {
            match arg {
                Arg::Complex(re, im) => [Arg::Float(*re), Arg::Float(*im)],
                Arg::None => [Arg::None, Arg::None],
                Arg::Value(_) => return Err(r.args().unsupported("such a number among complex ones")),
                number => [number.clone(), Arg::Int(Expr::zero())],
            }
        } else {
            part_args(r, arg)?
        };
        real.push(re);
        imaginary.push(im);
    }
    Ok([real, imaginary])
}

fn part_args(r: &mut Rewriter<'_>, arg: &Arg) -> Result<[Arg; 2], OpError> {
    Ok(match arg {
        Arg::List(items) => {
            let pairs = items.iter().map(|item| part_args(r, item)).collect::<Result<Vec<_>, _>>()?;
            let (real, imaginary): (Vec<Arg>, Vec<Arg>) = pairs.into_iter().map(|[re, im]| (re, im)).unzip();
            [Arg::List(real), Arg::List(imaginary)]
        }
        Arg::Value(value) => match r.ty(*value).map(|TensorType { dtype, .. }| dtype) {
            Ok(dtype) if dtype.kind() == Kind::Complex => parts_of(r, *value)?.map(Arg::Value),
            Ok(dtype) if dtype.is_float() => {
                return Err(r.args().unsupported("a move of real numbers among complex ones"));
            }
            Ok(_) | Err(_) => [arg.clone(), arg.clone()],
        },
        Arg::Dtype(dtype) => [Arg::Dtype(real_of(*dtype)), Arg::Dtype(real_of(*dtype))],
        other => [other.clone(), other.clone()],
    })
}
