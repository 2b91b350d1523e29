//! Decomposes numerical gradients: quotients of differences of neighbours, along each dimension.

use crate::args::wrap_dim;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::ops::terms::int;
use crate::traits::Complex;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, TensorType, Value};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.gradient.scalarint", gradients).complex(Complex::Rewritten),
    decompose("aten.gradient.scalararray", gradients).complex(Complex::Rewritten),
    decompose("aten.gradient.array", gradients).complex(Complex::Rewritten),
    decompose("aten.gradient.scalarrayint", gradients).complex(Complex::Rewritten),
    decompose("aten.gradient.scalarrayarray", gradients).complex(Complex::Rewritten),
    decompose("aten.gradient.tensorarrayint", gradients).complex(Complex::Rewritten),
    decompose("aten.gradient.tensorarray", gradients).complex(Complex::Rewritten),
];

/// How far neighbours along a dimension are from each other.
enum Spacing {
    Even(f64),
    /// The coordinates.
    At(Value),
}

/// The dimensions: one, several or all.
fn dims(r: &Rewriter<'_>, ty: &TensorType) -> Result<Vec<usize>, OpError> {
    let args = r.args();
    let given = match args.get("dim") {
        Arg::None => return Ok((0..ty.rank()).collect()),
        Arg::List(_) => args.ints("dim")?,
        _ => vec![args.int("dim")?],
    };
    let wrap = |dim: Expr| dim.as_int().and_then(|d| wrap_dim(d, ty.rank())).filter(|&d| d < ty.rank());
    given.into_iter().map(|dim| wrap(dim).ok_or_else(|| args.bad("dim", "dimensions"))).collect()
}

fn spacings(r: &Rewriter<'_>, count: usize) -> Result<Vec<Spacing>, OpError> {
    let args = r.args();
    let one = |arg: &Arg| match arg {
        Arg::None => Ok(Spacing::Even(1.0)),
        Arg::Value(value) => Ok(Spacing::At(*value)),
        Arg::Float(x) => Ok(Spacing::Even(x.0)),
        Arg::Int(x) if x.as_int().is_some() => Ok(Spacing::Even(x.as_int().map_or(1.0, |x| x as f64))),
        _ => Err(args.bad("spacing", "numbers or vectors")),
    };
    match args.get("spacing") {
        Arg::List(items) if items.len() == count => items.iter().map(one).collect(),
        Arg::List(_) => Err(args.bad("spacing", "one for each dimension")),
        arg => (0..count).map(|_| one(arg)).collect(),
    }
}

fn gradients(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (value, ty) = (x.value, x.ty.clone());
    if ty.dtype.kind() == Kind::Bool {
        return Err(r.args().unsupported(&format!("a gradient of {}", ty.dtype)));
    }
    let order = r.args().literal("edge_order")?;
    if !matches!(order, 1 | 2) {
        return Err(r.args().bad("edge_order", "1 or 2"));
    }
    let dims = dims(r, &ty)?;
    let spacings = spacings(r, dims.len())?;
    r.require(|cx, args| {
        let few =
            |_| args.invalid(format!("expected more than {order} elements along each dimension of {ty}"));
        dims.iter().try_for_each(|&d| cx.require(Rel::gt(ty.sizes[d], order), args.op()).map_err(few))
    })?;
    let mut results = Vec::with_capacity(dims.len());
    for (&at, spacing) in dims.iter().zip(spacings) {
        let along = Along { x: value, at, size: ty.sizes[at], rank: ty.rank() };
        let [first, inner, last] = match spacing {
            Spacing::Even(step) => along.even(r, step, order)?,
            Spacing::At(coordinates) => along.uneven(r, coordinates, order)?,
        };
        let parts = [first, inner, last].map(Arg::Value).to_vec();
        results.push(r.call("aten.cat.default", [Arg::List(parts), int(at as i64)])?);
    }
    Ok(results)
}

/// One dimension of a tensor.
#[derive(Clone, Copy)]
struct Along {
    x: Value,
    at: usize,
    size: Expr,
    rank: usize,
}

/// Three neighbours, as how far the first is from the front, or from the end.
#[derive(Clone, Copy)]
enum Place {
    Front,
    End,
    /// All that have a neighbour on either side.
    Inner,
}

impl Along {
    /// The elements `offset` behind the first of a place.
    fn part(self, r: &mut Rewriter<'_>, place: Place, offset: i64) -> Result<Value, OpError> {
        let (start, end) = match place {
            Place::Front => (Expr::int(offset), Expr::int(offset + 1)),
            Place::End => (self.size - 3 + offset, self.size - 2 + offset),
            Place::Inner => (Expr::int(offset), self.size - 2 + offset),
        };
        r.slice(self.x, self.at, start, end)
    }

    /// `b - a`
    fn difference(self, r: &mut Rewriter<'_>, place: Place, [a, b]: [i64; 2]) -> Result<Value, OpError> {
        let (a, b) = (self.part(r, place, a)?, self.part(r, place, b)?);
        r.sub(b, a)
    }

    /// Front, inner part and end for neighbours at one distance.
    fn even(self, r: &mut Rewriter<'_>, step: f64, order: i64) -> Result<[Value; 3], OpError> {
        let inner = self.difference(r, Place::Inner, [0, 2])?;
        let inner = r.scalar("aten.div.Scalar", inner, step)?;
        let inner = r.scalar("aten.div.Scalar", inner, 2.0)?;
        if order == 1 {
            let (front, end) =
                (self.difference(r, Place::Front, [0, 1])?, self.difference(r, Place::End, [1, 2])?);
            return Ok([
                r.scalar("aten.div.Scalar", front, step)?,
                inner,
                r.scalar("aten.div.Scalar", end, step)?,
            ]);
        }
        let weighted = |r: &mut Rewriter<'_>, place: Place, weights: [f64; 3]| {
            let mut sum = None;
            for (offset, weight) in weights.into_iter().enumerate() {
                let part = self.part(r, place, offset as i64)?;
                let term = r.scalar("aten.mul.Scalar", part, weight / step)?;
                sum = Some(match sum {
                    Some(sum) => r.add(sum, term)?,
                    None => term,
                });
            }
            sum.ok_or_else(|| r.args().bad("edge_order", "1 or 2"))
        };
        let front = weighted(r, Place::Front, [-1.5, 2.0, -0.5])?;
        let end = weighted(r, Place::End, [0.5, -2.0, 1.5])?;
        Ok([front, inner, end])
    }

    /// As [`Along::even`] for neighbours at coordinates.
    fn uneven(self, r: &mut Rewriter<'_>, coordinates: Value, order: i64) -> Result<[Value; 3], OpError> {
        let dtype = r.ty(self.x)?.dtype;
        let ty = r.ty(coordinates)?;
        if ty.rank() != 1 {
            return Err(r.args().invalid(format!("expected a vector of coordinates, found {ty}")));
        }
        r.require(|cx, args| {
            let differs = |_| args.invalid(format!("expected {} coordinates, found {ty}", self.size));
            cx.require(Rel::eq(ty.sizes[0], self.size), args.op()).map_err(differs)
        })?;
        // Differences of integers are divided as numbers.
        let coordinates = if dtype.is_float() { r.convert(coordinates, dtype)? } else { coordinates };
        let mut sizes = vec![Expr::one(); self.rank];
        sizes[self.at] = self.size;
        let x = r.reshape(coordinates, sizes)?;
        let axis = Along { x, ..self };
        let inner = self.quadratic(r, axis, Place::Inner, 1)?;
        if order == 1 {
            let mut ends = Vec::new();
            for (place, pair) in [(Place::Front, [0, 1]), (Place::End, [1, 2])] {
                let (rise, run) = (self.difference(r, place, pair)?, axis.difference(r, place, pair)?);
                ends.push(r.div(rise, run)?);
            }
            return Ok([ends[0], inner, ends[1]]);
        }
        Ok([self.quadratic(r, axis, Place::Front, 0)?, inner, self.quadratic(r, axis, Place::End, 2)?])
    }

    /// The slope at the first, second or third of three points of the parabola through them.
    fn quadratic(
        self,
        r: &mut Rewriter<'_>,
        axis: Along,
        place: Place,
        point: i64,
    ) -> Result<Value, OpError> {
        let (h, k) = (axis.difference(r, place, [0, 1])?, axis.difference(r, place, [1, 2])?);
        let both = r.add(h, k)?;
        let (hb, hk, kb) = (r.mul(h, both)?, r.mul(h, k)?, r.mul(k, both)?);
        let twice = |r: &mut Rewriter<'_>, x: Value, y: Value| {
            let double = r.scalar("aten.mul.Scalar", x, 2.0)?;
            r.add(double, y)
        };
        let neg = |r: &mut Rewriter<'_>, x: Value| r.apply("aten.neg.default", &[x]);
        // Numerators over h (h + k), h k and k (h + k).
        let (a, b, c) = match point {
            0 => {
                let a = twice(r, h, k)?;
                (neg(r, a)?, both, neg(r, h)?)
            }
            1 => (neg(r, k)?, r.sub(k, h)?, h),
            _ => (k, neg(r, both)?, twice(r, k, h)?),
        };
        let mut sum = None;
        for (offset, (numerator, denominator)) in [(a, hb), (b, hk), (c, kb)].into_iter().enumerate() {
            let weight = r.div(numerator, denominator)?;
            let part = self.part(r, place, offset as i64)?;
            let term = r.mul(weight, part)?;
            sum = Some(match sum {
                Some(sum) => r.add(sum, term)?,
                None => term,
            });
        }
        sum.ok_or_else(|| r.args().bad("edge_order", "1 or 2"))
    }
}
