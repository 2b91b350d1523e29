//! Lowers special functions that routines of the runtime compute: those whose series are as long as their arguments ask for.

use crate::args::{Args, Operand};
use crate::body::Body;
use crate::def::{OpDef, elementwise};
use crate::error::OpError;
use crate::lower::Lower;
use crate::ops::special::{in_f64, trigamma};
use crate::promote::{Promote::Common, Promote::Float, promote};
use crate::view::ValueAccess;
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
    elementwise("aten.gcd.default", Common, |lw, args| divisors(lw, args, |_, _, divisor| divisor)),
    elementwise("aten.lcm.default", Common, |lw, args| {
        divisors(lw, args, |b, [x, y], divisor| {
            // Products of narrow types are those of `int`, whose size the type then wraps.
            let wide = if b.ty(x).size() < 4 { Dtype::I32 } else { b.ty(x) };
            let [x, y, divisor] = [x, y, divisor].map(|v| b.cast(v, wide));
            let (zero, one) = (b.lit(x, 0.0), b.lit(x, 1.0));
            let is_zero = b.eq(divisor, zero);
            let divisor = b.select(is_zero, one, divisor);
            let share = b.op(ScalarOp::Div, &[x, divisor]);
            let product = b.mul(share, y);
            b.abs(product)
        })
    }),
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

/// What is made of two integers and their greatest common divisor, all of their common type.
fn divisors(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    make: fn(&mut Body<'_>, [Val; 2], Val) -> Val,
) -> Result<(), OpError> {
    let operands = [lw.access(args.tensor("self")?)?, lw.access(args.tensor("other")?)?];
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let dtype = out.dtype;
    if !dtype.is_int() {
        return Err(args.invalid(format!("expected integers, found {dtype}")));
    }
    let operands = operands.map(|operand| operand.broadcast(&out.sizes));
    let buffers = [0, 1].map(|_| lw.temp("operand", Dtype::I64, &out.sizes));
    for (operand, buffer) in operands.iter().zip(&buffers) {
        lw.nest(&out.sizes, |b, at| {
            // A size that the type does not hold wraps, as in eager.
            let v = b.read_as(operand, at, dtype);
            let size = b.abs(v);
            b.store(buffer, at, size);
            Ok(())
        })?;
    }
    let found = run(lw, "gcd", &buffers, Dtype::I64, &out);
    lw.nest(&out.sizes, |b, at| {
        let both = [0, 1].map(|i: usize| b.read_as(&operands[i], at, dtype));
        let divisor = b.read_as(&found, at, dtype);
        let v = make(b, both, divisor);
        b.store(&out, at, v);
        Ok(())
    })
}

/// What a routine gives for contiguous operands.
fn run(
    lw: &mut Lower<'_>,
    routine: &str,
    operands: &[ValueAccess],
    dtype: Dtype,
    out: &ValueAccess,
) -> ValueAccess {
    let results = lw.temp("values", dtype, &out.sizes);
    let count: Expr = out.sizes.iter().copied().product();
    let reads: Vec<&ValueAccess> = operands.iter().collect();
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
