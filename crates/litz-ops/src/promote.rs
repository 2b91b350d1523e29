//! Promotes operand element types to the type that an operator computes in and returns, by PyTorch's rules.
//!
//! Operands count in three classes: tensors with dimensions, zero-dimensional tensors, and Python numbers. A lower
//! class changes the result only when its family (bool < int < float < complex) is higher. The source is
//! `at::native::result_type` and `c10::promoteTypes`.

use crate::args::{Args, Number, Operand};
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_sym::Expr;

/// How a pointwise operator's operand types make its compute and result types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promote {
    /// The common type, both to compute and to return.
    Common,
    /// The common type, integers and bool becoming the default float.
    Float,
    /// Computes in the common type, returns bool.
    Compare,
    /// The type of the first operand; the others are converted to it.
    First,
    /// As `Common`. A second operand that is a number or has no dimensions is not rounded to the common type.
    Product,
    /// True division: `Float`, but `Common` when the node gives a rounding mode. The second operand is as of `Product`.
    Division,
    /// As `Common`, but a complex operand gives a real result.
    Real,
    /// As `Float`, but a complex operand gives a real result.
    RealFloat,
    /// As `Common`. Numbers are bounds: beyond what an integer type holds they are its last value, which bounds as much.
    Bounds,
}

/// What a pointwise operator computes in and what it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promoted {
    /// Common type of the operands.
    pub common: Dtype,
    /// Type of the result.
    pub result: Dtype,
}

impl Promote {
    /// The rule for these arguments: division without a rounding mode is true division.
    pub(crate) fn resolve(self, args: &Args<'_>) -> Promote {
        match self {
            Promote::Division if args.has("rounding_mode") => Promote::Common,
            Promote::Division => Promote::Float,
            Promote::Product | Promote::Bounds => Promote::Common,
            Promote::Common
            | Promote::Float
            | Promote::Compare
            | Promote::First
            | Promote::Real
            | Promote::RealFloat => self,
        }
    }

    /// The type that an operand is converted to before it is computed with in the compute type of the common type. In
    /// half types that is a rounding, which comparisons show; of PyTorch's kernels only products and quotients leave it
    /// out.
    pub(crate) fn operand(self, at: usize, operand: &Operand<'_>, common: Dtype) -> Dtype {
        let is_scalar = match operand {
            Operand::Tensor(t) => t.ty.rank() == 0,
            Operand::Number(_) | Operand::Late(..) => true,
        };
        let keeps = matches!(self, Promote::Product | Promote::Division) && at == 1 && is_scalar;
        if keeps { common.compute() } else { common }
    }

    /// A number as it counts among operands of a common type.
    pub(crate) fn number(self, number: Number, common: Dtype) -> Number {
        match number {
            Number::Int(bound) if self == Promote::Bounds && common.is_int() => {
                Number::Int(nearest(bound, common))
            }
            Number::Bool(_) | Number::Int(_) | Number::Float(_) | Number::Complex(..) => number,
        }
    }
}

/// The integer of a type that is nearest to one; where the type has 64 bits, that is an i64.
fn nearest(e: Expr, dtype: Dtype) -> Expr {
    let bits = 8 * dtype.size() as u32 - u32::from(!dtype.is_unsigned());
    let e = if dtype.is_unsigned() { e.max(0) } else { e };
    if bits >= 63 {
        return e;
    }
    let end = 1i64 << bits;
    let e = e.min(end - 1);
    if dtype.is_unsigned() { e } else { e.max(-end) }
}

/// Applies a rule to operands. `None` when the types have no common type.
pub fn promote(rule: Promote, operands: &[Operand<'_>]) -> Option<Promoted> {
    let common = match rule {
        Promote::First => match operands.first()? {
            Operand::Tensor(t) => t.ty.dtype,
            Operand::Number(n) => n.dtype(),
            Operand::Late(_, kind) => kind.dtype(),
        },
        Promote::Common
        | Promote::Product
        | Promote::Bounds
        | Promote::Float
        | Promote::Division
        | Promote::Compare
        | Promote::Real
        | Promote::RealFloat => result_type(operands)?,
    };
    Some(match rule {
        Promote::Common | Promote::Product | Promote::Bounds | Promote::First => {
            Promoted { common, result: common }
        }
        Promote::Float | Promote::Division | Promote::RealFloat => {
            let float = if matches!(common.kind(), Kind::Bool | Kind::Int) { Dtype::F32 } else { common };
            Promoted {
                common: float,
                result: if rule == Promote::RealFloat { real_of(float) } else { float },
            }
        }
        Promote::Compare => Promoted { common, result: Dtype::Bool },
        Promote::Real => Promoted { common, result: real_of(common) },
    })
}

/// The common type of operands of all three classes; conditions must not be among them.
pub fn result_type(operands: &[Operand<'_>]) -> Option<Dtype> {
    let (mut dims, mut zero, mut wrapped) = (None, None, None);
    for operand in operands {
        let (class, dtype) = match operand {
            Operand::Tensor(t) if t.ty.rank() > 0 => (&mut dims, t.ty.dtype),
            Operand::Tensor(t) => (&mut zero, t.ty.dtype),
            Operand::Number(n) => (&mut wrapped, n.dtype()),
            Operand::Late(_, kind) => (&mut wrapped, kind.dtype()),
        };
        *class = Some(match *class {
            Some(found) => promote_types(found, dtype)?,
            None => dtype,
        });
    }
    combine(dims, combine(zero, wrapped)?)?
}

/// `higher` unless the family of `lower` is the higher one.
fn combine(higher: Option<Dtype>, lower: Option<Dtype>) -> Option<Option<Dtype>> {
    let (Some(high), Some(low)) = (higher, lower) else { return Some(higher.or(lower)) };
    Some(Some(match (high.kind(), low.kind()) {
        (Kind::Complex, _) => high,
        (Kind::Float, Kind::Complex) => complex_of(high),
        (Kind::Float, _) => high,
        (Kind::Bool, _) | (Kind::Int, Kind::Float | Kind::Complex) => promote_types(high, low)?,
        (Kind::Int, Kind::Bool | Kind::Int) => high,
    }))
}

/// The smallest type that holds both, by PyTorch's table. `None` for pairs it refuses.
pub fn promote_types(a: Dtype, b: Dtype) -> Option<Dtype> {
    if a == b {
        return Some(a);
    }
    let (low, high) = if a.kind() <= b.kind() { (a, b) } else { (b, a) };
    let float8 = |d| matches!(d, Dtype::F8E4M3 | Dtype::F8E5M2);
    if float8(low) || float8(high) {
        return None;
    }
    match (low.kind(), high.kind()) {
        (Kind::Bool, _) | (Kind::Int, Kind::Float | Kind::Complex) => Some(high),
        (Kind::Int, _) => promote_ints(low, high),
        (Kind::Float, Kind::Float) => Some(match (low, high) {
            (Dtype::F64, _) | (_, Dtype::F64) => Dtype::F64,
            _ => Dtype::F32,
        }),
        (Kind::Float | Kind::Complex, _) => Some(match (low, high) {
            (Dtype::F64 | Dtype::C128, _) | (_, Dtype::C128) => Dtype::C128,
            _ => Dtype::C64,
        }),
    }
}

fn promote_ints(a: Dtype, b: Dtype) -> Option<Dtype> {
    let wider = if a.size() >= b.size() { a } else { b };
    match (a.is_unsigned(), b.is_unsigned()) {
        (false, false) | (true, true) => Some(wider),
        (unsigned_first, _) => {
            let (unsigned, signed) = if unsigned_first { (a, b) } else { (b, a) };
            match (unsigned, signed) {
                (Dtype::U8, Dtype::I8) => Some(Dtype::I16),
                (Dtype::U8, _) => Some(signed),
                _ => None,
            }
        }
    }
}

pub(crate) fn complex_of(float: Dtype) -> Dtype {
    if float == Dtype::F64 { Dtype::C128 } else { Dtype::C64 }
}

/// The type of the parts of a complex type; any other type itself.
pub fn real_of(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::C64 => Dtype::F32,
        Dtype::C128 => Dtype::F64,
        _ => dtype,
    }
}

impl Number {
    /// The type a Python number counts as: bool, i64, and the default float.
    pub fn dtype(&self) -> Dtype {
        match self {
            Number::Bool(_) => Dtype::Bool,
            Number::Int(_) => Dtype::I64,
            Number::Float(_) => Dtype::F32,
            Number::Complex(..) => Dtype::C64,
        }
    }
}
