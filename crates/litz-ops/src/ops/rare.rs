//! Lowers special functions that routines of the runtime compute: those whose series are as long as their arguments ask for.

use crate::args::{Args, Operand};
use crate::body::Body;
use crate::def::{OpDef, elementwise};
use crate::error::OpError;
use crate::lower::Lower;
use crate::ops::special::{in_f64, trigamma};
use crate::promote::{Promote::Float, promote};
use crate::view::Access;
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    elementwise("aten.special_airy_ai.default", Float, |lw, args| call(lw, args, "airy_ai")),
    elementwise("aten.special_bessel_j0.default", Float, |lw, args| call(lw, args, "bessel_j0")),
    elementwise("aten.special_bessel_j1.default", Float, |lw, args| call(lw, args, "bessel_j1")),
    elementwise("aten.special_bessel_y0.default", Float, |lw, args| call(lw, args, "bessel_y0")),
    elementwise("aten.special_bessel_y1.default", Float, |lw, args| call(lw, args, "bessel_y1")),
    elementwise("aten.special_modified_bessel_k0.default", Float, |lw, args| call(lw, args, "bessel_k0")),
    elementwise("aten.special_modified_bessel_k1.default", Float, |lw, args| call(lw, args, "bessel_k1")),
    elementwise("aten.special_scaled_modified_bessel_k0.default", Float, |lw, args| {
        call(lw, args, "bessel_scaled_k0")
    }),
    elementwise("aten.special_scaled_modified_bessel_k1.default", Float, |lw, args| {
        call(lw, args, "bessel_scaled_k1")
    }),
    elementwise("aten.special_ndtri.default", Float, |lw, args| call(lw, args, "ndtri")),
    elementwise("aten.igamma.default", Float, |lw, args| call(lw, args, "gammainc")),
    elementwise("aten.igammac.default", Float, |lw, args| call(lw, args, "gammaincc")),
    elementwise("aten.special_gammainc.default", Float, |lw, args| call(lw, args, "gammainc")),
    elementwise("aten.special_gammaincc.default", Float, |lw, args| call(lw, args, "gammaincc")),
    elementwise("aten.special_zeta.default", Float, |lw, args| call(lw, args, "zeta")),
    elementwise("aten.special_zeta.self_scalar", Float, |lw, args| call(lw, args, "zeta")),
    elementwise("aten.special_zeta.other_scalar", Float, |lw, args| call(lw, args, "zeta")),
    elementwise("aten.polygamma.default", Float, polygamma),
    elementwise("aten.special_polygamma.default", Float, polygamma),
    polynomial("aten.special_hermite_polynomial_h.default"),
    polynomial("aten.special_hermite_polynomial_h.x_scalar"),
    polynomial("aten.special_hermite_polynomial_h.n_scalar"),
    polynomial("aten.special_hermite_polynomial_he.default"),
    polynomial("aten.special_hermite_polynomial_he.x_scalar"),
    polynomial("aten.special_hermite_polynomial_he.n_scalar"),
    polynomial("aten.special_laguerre_polynomial_l.default"),
    polynomial("aten.special_laguerre_polynomial_l.x_scalar"),
    polynomial("aten.special_laguerre_polynomial_l.n_scalar"),
    polynomial("aten.special_legendre_polynomial_p.default"),
    polynomial("aten.special_legendre_polynomial_p.x_scalar"),
    polynomial("aten.special_legendre_polynomial_p.n_scalar"),
];

/// `aten.special_hermite_polynomial_h.default`: the routine `hermite_h`.
const fn polynomial(name: &'static str) -> OpDef {
    elementwise(name, Float, |lw, args| {
        let name = args.op().trim_start_matches("aten.special_").replace("_polynomial", "");
        call(lw, args, name.split('.').next().unwrap_or(&name))
    })
}

/// The operands as whole buffers of the type that is computed in.
fn call(lw: &mut Lower<'_>, args: &Args<'_>, routine: &str) -> Result<(), OpError> {
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let operands = args.operands()?;
    let common = promote(Float, &operands).ok_or_else(|| args.invalid("no common element type"))?.common;
    let compute = common.compute();
    let mut buffers = Vec::with_capacity(operands.len());
    for operand in operands {
        let buffer = lw.temp("operand", compute, &out.sizes);
        let access = match operand {
            Operand::Tensor(tensor) => Some(lw.access(tensor)?),
            Operand::Number(_) => None,
            Operand::Late(..) => return Err(args.unsupported("a number that is known at run time only")),
        };
        lw.nest(&out.sizes, |b, at| {
            let v = match (&access, operand) {
                (Some(access), _) => b.read_as(&access.broadcast(&out.sizes), at, compute),
                (None, Operand::Number(n)) => b.rounded_number(n, common),
                (None, Operand::Tensor(_) | Operand::Late(..)) => {
                    b.literal(litz_ir::Scalar::zero(compute), compute)
                }
            };
            b.store(&buffer, at, v);
            Ok(())
        })?;
        buffers.push(buffer);
    }
    let results = run(lw, routine, &buffers, compute, &out);
    lw.nest(&out.sizes, |b, at| {
        let v = b.load(&results, at);
        b.store(&out, at, v);
        Ok(())
    })
}

/// What a routine gives for contiguous operands.
fn run(lw: &mut Lower<'_>, routine: &str, operands: &[Access], dtype: Dtype, out: &Access) -> Access {
    let results = lw.temp("values", dtype, &out.sizes);
    let count: Expr = out.sizes.iter().copied().product();
    let reads: Vec<&Access> = operands.iter().collect();
    lw.call(routine, &reads, &[&results], vec![count]);
    results
}

/// `(-1)^(n + 1) n! zeta(n + 1, x)`; digamma and trigamma as they are.
fn polygamma(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let n = args.literal("n")?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let x = lw.access(args.tensor("self")?)?;
    let compute = out.dtype.compute();
    if n < 0 {
        return Err(args.bad("n", "an integer that is not negative"));
    }
    if n < 2 {
        return lw.nest(&out.sizes, |mut b, at| {
            let v = b.read_as(&x, at, compute);
            let v: Val = if n == 0 { b.op(ScalarOp::Digamma, &[v]) } else { in_f64(&mut b, v, trigamma) };
            b.store(&out, at, v);
            Ok(())
        });
    }
    // In f64: the factorial of 35 is above all f32, though its product with a small number may not be.
    let order = lw.temp("order", Dtype::F64, &out.sizes);
    let argument = lw.temp("argument", Dtype::F64, &out.sizes);
    lw.nest(&out.sizes, |b: &mut Body<'_>, at| {
        let (v, first) = (b.read_as(&x, at, compute), b.index(Expr::int(n + 1), Dtype::F64));
        b.store(&argument, at, v);
        b.store(&order, at, first);
        Ok(())
    })?;
    let zeta = run(lw, "zeta", &[order, argument], Dtype::F64, &out);
    let factorial: f64 = (1..=n.min(200)).map(|i| i as f64).product();
    let factor = if n % 2 == 1 { factorial } else { -factorial };
    lw.nest(&out.sizes, |b, at| {
        let v = b.load(&zeta, at);
        let factor = b.lit(v, factor);
        let v = b.mul(v, factor);
        b.store(&out, at, v);
        Ok(())
    })
}
