//! Chooses calls of operators: one function for each kind, which looks for operands that fit or makes them.

use litz_ir::graph::{Arg, TensorType, Value};
use litz_ir::{Dtype, dtype};
use litz_sym::Expr;

use super::Fill;
use super::writer::{Writer, int, ints, number, tensor};

/// `Writer::one`, arguments first: they draw choices, too.
macro_rules! one {
    ($w:expr, $op:expr, $args:expr) => {{
        let (op, args) = ($op, $args);
        $w.one(op, args)
    }};
}

/// `Writer::call`, arguments first.
macro_rules! call {
    ($w:expr, $op:expr, $args:expr, $named:expr) => {{
        let (op, args) = ($op, $args);
        let named = $named;
        $w.call(op, args, named)
    }};
}

mod index;
mod linear;
mod shape;

use index::{gather, scatter, sort};
use linear::{attention, matrix, norm, product, window};
use shape::{factory, join, pad, resize, view, write_through};

/// A kind of call: adds one or a few, or none where nothing fits.
type Kind = fn(&mut Writer<'_, '_>) -> Option<()>;

/// What models are made of; what is named more than once is more likely.
const KINDS: &[Kind] = &[
    binary,
    unary,
    view,
    reduction,
    product,
    cast,
    binary,
    window,
    write_through,
    view,
    softmax,
    norm,
    gather,
    scatter,
    join,
    scalar,
    scan,
    pad,
    sort,
    choice,
    resize,
    factory,
    attention,
    activation,
    reduction,
    product,
    logic,
    integer,
];

/// Writes a whole model: inputs, then calls.
pub(super) fn write(w: &mut Writer<'_, '_>) {
    for _ in 0..1 + w.choices.below(3) {
        fresh(w);
    }
    let count = 1 + w.choices.below(8);
    for _ in 0..count {
        // A kind may find nothing that fits.
        for _ in 0..4 {
            if w.choices.pick(KINDS)(w).is_some() {
                break;
            }
        }
    }
    // The simplest model: an input and its negation.
    if w.find(|_| true).is_none() {
        w.input(Dtype::F32, vec![Expr::int(3)], Fill::Small);
    }
}

/// An input of this model's types and sizes.
fn fresh(w: &mut Writer<'_, '_>) -> Option<Value> {
    let (dtype, rank) = (w.dtype(), w.choices.pick(&[2, 3, 1, 4, 2, 0, 3, 5]));
    let fill = w.choices.pick(&[Fill::Small, Fill::Small, Fill::Positive, Fill::Small, Fill::Special]);
    let mut sizes = w.sizes(rank);
    if rank >= 4 {
        // Images and the like: few in front.
        sizes[0] = Expr::int(w.choices.pick(&[2, 1, 3]));
        sizes[1] = Expr::int(w.choices.pick(&[4, 2, 1, 3, 8, 6]));
    }
    w.input(dtype, sizes, fill)
}

fn any(w: &mut Writer<'_, '_>) -> Option<Value> {
    match w.find(|_| true) {
        Some(value) if !w.choices.once_in(8) => Some(value),
        _ => fresh(w),
    }
}

fn float(w: &mut Writer<'_, '_>, rank: usize) -> Option<Value> {
    if let Some(value) = w.find_float(rank) {
        return Some(value);
    }
    let (dtype, sizes) = (w.float(), w.sizes(rank.max(2)));
    w.input(dtype, sizes, Fill::Small)
}

/// A tensor that broadcasts with `ty`: there already, or an input with some dimensions of 1 or none in front.
fn partner(w: &mut Writer<'_, '_>, ty: &TensorType) -> Option<Value> {
    if !w.choices.once_in(3) {
        let is_equal = |a: &Expr, b: &Expr| a == b || a.is_one() || b.is_one();
        let wanted = ty.clone();
        let fits = move |other: &TensorType| {
            other.sizes.iter().rev().zip(wanted.sizes.iter().rev()).all(|(a, b)| is_equal(a, b))
        };
        if let Some(value) = w.find(fits) {
            return Some(value);
        }
    }
    let mut sizes = ty.sizes.clone();
    sizes.drain(..w.choices.below(sizes.len() + 1));
    for size in &mut sizes {
        if w.choices.once_in(4) {
            *size = Expr::one();
        }
    }
    let dtype = if w.choices.once_in(4) { w.dtype() } else { ty.dtype };
    w.input(dtype, sizes, Fill::Small)
}

const BINARY: &[&str] = &[
    "add.Tensor",
    "mul.Tensor",
    "sub.Tensor",
    "maximum.default",
    "minimum.default",
    "div.Tensor",
    "add.Tensor",
    "mul.Tensor",
    "fmod.Tensor",
    "remainder.Tensor",
    "floor_divide.default",
    "eq.Tensor",
    "lt.Tensor",
    "ge.Tensor",
    "ne.Tensor",
    "atan2.default",
    "hypot.default",
    "fmax.default",
    "copysign.Tensor",
    "logaddexp.default",
    "pow.Tensor_Tensor",
    "heaviside.default",
];

fn binary(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let ty = w.ty(a);
    let b = partner(w, &ty)?;
    let op = aten(w.choices.pick(BINARY));
    let (mut a, mut b) = if w.choices.once_in(3) { (b, a) } else { (a, b) };
    if divides(&op) {
        (a, b) = (modest(w, a)?, divisor(w, b)?);
    }
    let named = if op.contains("add.") || op.contains("sub.") {
        vec![("alpha", int(w.choices.pick(&[1, 2, -1, 1])))]
    } else {
        Vec::new()
    };
    call!(w, &op, vec![tensor(a), tensor(b)], &named).map(drop)
}

/// Whether an operator keeps or drops what is left of a division.
fn divides(op: &str) -> bool {
    ["fmod", "remainder", "floor_divide"].iter().any(|name| op.contains(name))
}

/// The value in f16 where it is floating-point: PyTorch's vectors make NaN of quotients with more digits than an element
/// has, and of subnormal divisors.
fn modest(w: &mut Writer<'_, '_>, value: Value) -> Option<Value> {
    if !w.ty(value).dtype.is_float() {
        return Some(value);
    }
    let named = [("dtype", Arg::Dtype(Dtype::F16))];
    Some(call!(w, "aten._to_copy.default", vec![tensor(value)], &named)?[0])
}

/// As `modest`, and odd where it is an integer, but for a few: a call ends where an integer is divided by zero, and nothing is compared.
fn divisor(w: &mut Writer<'_, '_>, value: Value) -> Option<Value> {
    if w.ty(value).dtype.kind() != dtype::Kind::Int || w.choices.once_in(16) {
        return modest(w, value);
    }
    one!(w, "aten.bitwise_or.Scalar", vec![tensor(value), int(1)])
}

fn aten(name: &str) -> String {
    format!("aten.{name}")
}

const UNARY: &[&str] = &[
    "neg",
    "relu",
    "abs",
    "exp",
    "tanh",
    "sigmoid",
    "sqrt",
    "square",
    "reciprocal",
    "log",
    "rsqrt",
    "sin",
    "cos",
    "erf",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "expm1",
    "log1p",
    "exp2",
    "log2",
    "isnan",
    "isfinite",
    "erfc",
    "atan",
    "asinh",
    "frac",
    "tan",
    "sinh",
    "nan_to_num",
    "log10",
    "signbit",
    "digamma",
    "lgamma",
];

fn unary(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let op = format!("aten.{}.default", w.choices.pick(UNARY));
    one!(w, &op, vec![tensor(a)]).map(drop)
}

const ACTIVATIONS: &[&str] = &[
    "gelu",
    "silu",
    "hardswish",
    "elu",
    "leaky_relu",
    "mish",
    "softplus",
    "hardsigmoid",
    "relu6",
    "log_sigmoid",
    "selu",
    "celu",
    "hardshrink",
    "softshrink",
];

fn activation(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = float(w, 0)?;
    let name = w.choices.pick(ACTIVATIONS);
    let op = format!("aten.{name}.default");
    match name {
        // With AVX-512 PyTorch's vectors of f32 have NaN for infinities.
        "gelu" => {
            let finite =
                one!(w, "aten.nan_to_num.default", vec![tensor(a), number(0.0), number(4.0), number(-4.0)])?;
            one!(w, &op, vec![tensor(finite)])
        }
        // PyTorch's vectors have 0 where its remainders have -0.
        "softshrink" => {
            let shrunk = one!(w, &op, vec![tensor(a)])?;
            one!(w, "aten.add.Scalar", vec![tensor(shrunk), int(0)])
        }
        _ => one!(w, &op, vec![tensor(a)]),
    }
    .map(drop)
}

const SCALAR: &[&str] = &[
    "add.Scalar",
    "mul.Scalar",
    "sub.Scalar",
    "div.Scalar",
    "rsub.Scalar",
    "pow.Tensor_Scalar",
    "remainder.Scalar",
    "fmod.Scalar",
    "eq.Scalar",
    "gt.Scalar",
    "le.Scalar",
    "clamp_min.default",
    "clamp_max.default",
    "floor_divide.Scalar",
    "xlogy.Scalar_Other",
    "copysign.Scalar",
];

fn scalar(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let op = aten(w.choices.pick(SCALAR));
    let a = if divides(&op) { modest(w, a)? } else { a };
    let is_float = w.ty(a).dtype.is_float();
    let b = if is_float && w.choices.once_in(2) {
        number(w.choices.pick(&[0.5, 2.0, -1.5, 0.1, 3.0]))
    } else {
        int(w.choices.pick(&[2, 1, 3, -2, 5]))
    };
    one!(w, &op, vec![tensor(a), b]).map(drop)
}

fn logic(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let ty = w.ty(a);
    let b = partner(w, &ty)?;
    let op = w.choices.pick(&[
        "logical_and.default",
        "logical_or.default",
        "logical_xor.default",
        "logical_not.default",
    ]);
    let args = if op.contains("not") { vec![tensor(a)] } else { vec![tensor(a), tensor(b)] };
    one!(w, &aten(op), args).map(drop)
}

fn integer(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = w.find(|ty| !ty.dtype.is_float())?;
    let ty = w.ty(a);
    let b = partner(w, &ty)?;
    if w.ty(b).dtype.is_float() {
        return None;
    }
    let op = w.choices.pick(&[
        "bitwise_and.Tensor",
        "bitwise_or.Tensor",
        "bitwise_xor.Tensor",
        "bitwise_not.default",
        "bitwise_left_shift.Tensor",
        "bitwise_right_shift.Tensor",
    ]);
    if op.contains("shift") && (w.ty(a).dtype == Dtype::Bool || w.ty(b).dtype == Dtype::Bool) {
        return None;
    }
    let args = if op.contains("not") { vec![tensor(a)] } else { vec![tensor(a), tensor(b)] };
    one!(w, &aten(op), args).map(drop)
}

fn choice(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let ty = w.ty(a);
    let condition = match w.find(|other| other.dtype == Dtype::Bool && other.sizes == ty.sizes) {
        Some(found) => found,
        None => one!(w, "aten.gt.Scalar", vec![tensor(a), int(0)])?,
    };
    match w.choices.below(3) {
        0 => {
            let b = partner(w, &ty)?;
            one!(w, "aten.where.self", vec![tensor(condition), tensor(a), tensor(b)])
        }
        1 => one!(w, "aten.masked_fill.Scalar", vec![tensor(a), tensor(condition), int(1)]),
        _ => {
            let (lo, hi) = w.choices.pick(&[(-1, 2), (0, 1), (2, 1)]);
            one!(w, "aten.clamp.default", vec![tensor(a), int(lo), int(hi)])
        }
    }
    .map(drop)
}

const CASTS: &[Dtype] = &[
    Dtype::F32,
    Dtype::BF16,
    Dtype::I64,
    Dtype::F16,
    Dtype::F64,
    Dtype::I32,
    Dtype::Bool,
    Dtype::U8,
    Dtype::I8,
    Dtype::I16,
    Dtype::F32,
];

fn cast(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let dtype = w.choices.pick(CASTS);
    call!(w, "aten._to_copy.default", vec![tensor(a)], &[("dtype", Arg::Dtype(dtype))]).map(drop)
}

fn reduction(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let ty = w.ty(a);
    let (dim, keep) = (w.dim(&ty), Arg::Bool(w.choices.once_in(2)));
    let dims =
        if ty.rank() > 1 && w.choices.once_in(3) { ints(&[0, -1]) } else { Arg::List(vec![dim.clone()]) };
    let a = tensor(a);
    match w.choices.below(19) {
        0 => one!(w, "aten.sum.dim_IntList", vec![a, dims, keep]),
        1 => one!(w, "aten.mean.dim", vec![a, dims, keep]),
        2 => one!(w, "aten.amax.default", vec![a, dims, keep]),
        3 => one!(w, "aten.amin.default", vec![a, dims, keep]),
        4 => one!(w, "aten.sum.default", vec![a]),
        5 => one!(w, "aten.argmax.default", vec![a, dim, keep]),
        6 => one!(w, "aten.argmin.default", vec![a, dim, keep]),
        7 => call!(w, "aten.var.correction", vec![a, dims], &[("correction", int(0)), ("keepdim", keep)])
            .map(|v| v[0]),
        8 => one!(w, "aten.prod.dim_int", vec![a, dim, keep]),
        9 => one!(w, "aten.any.dim", vec![a, dim, keep]),
        10 => one!(w, "aten.all.dim", vec![a, dim, keep]),
        11 => call!(w, "aten.max.dim", vec![a, dim, keep], &[]).map(|v| v[0]),
        12 => one!(w, "aten.logsumexp.default", vec![a, dims, keep]),
        13 => one!(w, "aten.linalg_vector_norm.default", vec![a, number(2.0), dims, keep]),
        14 => one!(w, "aten.max.default", vec![a]),
        15 => one!(w, "aten.argmax.default", vec![a]),
        16 => call!(w, "aten.std.correction", vec![a, dims], &[("correction", int(1)), ("keepdim", keep)])
            .map(|v| v[0]),
        17 => {
            // The mean is a by-product of the variance, and in PyTorch NaN where that is, for infinities in some places.
            let finite = one!(w, "aten.nan_to_num.default", vec![a, number(0.0), number(4.0), number(-4.0)])?;
            let operands = vec![tensor(finite), dims];
            call!(w, "aten.var_mean.correction", operands, &[("correction", int(0))]).map(|v| v[0])
        }
        _ => call!(w, "aten.aminmax.default", vec![a], &[("dim", dim), ("keepdim", keep)]).map(|v| v[0]),
    }
    .map(drop)
}

fn scan(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let dim = w.dim(&w.ty(a));
    let op = w.choices.pick(&[
        "aten.cumsum.default",
        "aten.cumprod.default",
        "aten.cummax.default",
        "aten.cummin.default",
        "aten.logcumsumexp.default",
    ]);
    call!(w, op, vec![tensor(a), dim], &[]).map(drop)
}

fn softmax(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = float(w, 1)?;
    let dim = w.dim(&w.ty(a));
    let op = w.choices.pick(&["aten.softmax.int", "aten.log_softmax.int"]);
    one!(w, op, vec![tensor(a), dim]).map(drop)
}
