//! Defines scalar operations: what an instruction of a loops or kernel body computes.

use crate::dtype::{Dtype, Kind};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A literal. Floats compare by bits, so that NaN equals itself and `-0.0` differs from `0.0`.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float of any width.
    Float(f64),
}

impl Scalar {
    /// Whether a type has it; unsigned 64-bit values are given by their bit pattern.
    pub fn is_literal_of(self, ty: Dtype) -> bool {
        match (self, ty.kind()) {
            (Scalar::Bool(_), kind) => kind == Kind::Bool,
            (Scalar::Float(_), kind) => matches!(kind, Kind::Float | Kind::Complex),
            (Scalar::Int(value), Kind::Int) => {
                let bits = 8 * ty.size() as u32;
                match (bits, ty.is_unsigned()) {
                    (64, _) => true,
                    (_, true) => (0..1i64 << bits).contains(&value),
                    (_, false) => (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&value),
                }
            }
            (Scalar::Int(_), _) => false,
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_), _) => false,
        }
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Scalar::Bool(value) => value.hash(state),
            Scalar::Int(value) => value.hash(state),
            Scalar::Float(value) => value.to_bits().hash(state),
        }
    }
}

impl Scalar {
    /// Zero of the family of `dtype`.
    pub fn zero(dtype: Dtype) -> Scalar {
        Scalar::Int(0).to(dtype)
    }
    /// The value as a literal of the family of `dtype` (truncating towards zero, like a cast).
    pub fn to(self, dtype: Dtype) -> Scalar {
        use crate::dtype::Kind;
        match dtype.kind() {
            Kind::Bool => Scalar::Bool(self.as_f64() != 0.0),
            Kind::Int => match self {
                Scalar::Bool(b) => Scalar::Int(i64::from(b)),
                Scalar::Int(i) => Scalar::Int(i),
                Scalar::Float(f) => Scalar::Int(f as i64),
            },
            Kind::Float | Kind::Complex => Scalar::Float(self.as_f64()),
        }
    }
    /// The value that an element of `dtype` has of it where that is a half type, and the value itself elsewhere.
    pub fn rounded(self, dtype: Dtype) -> Scalar {
        // By way of f32, as PyTorch converts numbers.
        let single = self.as_f64() as f32;
        if dtype == Dtype::F16 {
            Scalar::Float(half::f16::from_f32(single).to_f64())
        } else if dtype == Dtype::BF16 {
            Scalar::Float(half::bf16::from_f32(single).to_f64())
        } else {
            self
        }
    }
    /// The value as a float.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) => f,
        }
    }
}

/// Prints `true`, `3`, `0.5`, `1e-5`, `inf`, `nan`: a float always shows a point, an exponent or a name.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => write!(f, "{b}"),
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::Float(x) if x.is_nan() => f.write_str("nan"),
            Scalar::Float(x) if x.is_infinite() => f.write_str(if *x > 0.0 { "inf" } else { "-inf" }),
            Scalar::Float(x) => write!(f, "{x:?}"),
        }
    }
}

macro_rules! scalar_ops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal / $arity:literal $kind:ident,)*) => {
        /// An operation on scalars of one type. Semantics are PyTorch's: see each variant.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum ScalarOp { $($(#[$doc])* $variant,)* }
        impl ScalarOp {
            /// Every operation.
            pub const ALL: &[ScalarOp] = &[$(ScalarOp::$variant,)*];
            /// The name in text.
            pub fn name(self) -> &'static str { match self { $(ScalarOp::$variant => $name,)* } }
            /// Number of operands.
            pub fn arity(self) -> usize { match self { $(ScalarOp::$variant => $arity,)* } }
            /// How operand and result types relate.
            pub fn signature(self) -> Signature { match self { $(ScalarOp::$variant => Signature::$kind,)* } }
        }
    };
}

/// How operand and result types of a [`ScalarOp`] relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// Operands and result share one type.
    Same,
    /// As `Same`, real floating point only.
    Float,
    /// As `Same`, integers and bool only.
    Bits,
    /// Operands share one type, the result is bool.
    Compare,
    /// `select`: bool, then two operands of the result's type.
    Select,
}

scalar_ops! {
    /// Sum; integers wrap.
    Add = "add" / 2 Same,
    /// Difference; integers wrap.
    Sub = "sub" / 2 Same,
    /// Product; integers wrap.
    Mul = "mul" / 2 Same,
    /// Quotient; integers truncate towards zero, division by zero yields 0.
    Div = "div" / 2 Same,
    /// Quotient rounded down, as Python's `//`; floats as `torch.floor_divide`.
    FloorDiv = "floordiv" / 2 Same,
    /// Remainder with the divisor's sign, as `torch.remainder`.
    Mod = "mod" / 2 Same,
    /// Remainder with the dividend's sign, as `torch.fmod`.
    Rem = "rem" / 2 Same,
    /// Maximum; NaN wins; the first of zeros of either sign.
    Max = "max" / 2 Same,
    /// Minimum; NaN wins; the first of zeros of either sign.
    Min = "min" / 2 Same,
    /// Negation.
    Neg = "neg" / 1 Same,
    /// Absolute value.
    Abs = "abs" / 1 Same,
    /// -1, 0 or 1; NaN gives NaN... as `torch.sign`: 0 for NaN.
    Sign = "sign" / 1 Same,
    /// `a * b + c` with one rounding for floats.
    Fma = "fma" / 3 Same,
    /// Power; integer exponents of integers multiply.
    Pow = "pow" / 2 Same,
    /// Square root.
    Sqrt = "sqrt" / 1 Float,
    /// Reciprocal square root.
    Rsqrt = "rsqrt" / 1 Float,
    /// Natural exponential.
    Exp = "exp" / 1 Float,
    /// Power of two.
    Exp2 = "exp2" / 1 Float,
    /// `exp(x) - 1`.
    Expm1 = "expm1" / 1 Float,
    /// Natural logarithm.
    Log = "log" / 1 Float,
    /// Binary logarithm.
    Log2 = "log2" / 1 Float,
    /// Decimal logarithm.
    Log10 = "log10" / 1 Float,
    /// `log(1 + x)`.
    Log1p = "log1p" / 1 Float,
    /// Sine.
    Sin = "sin" / 1 Float,
    /// Cosine.
    Cos = "cos" / 1 Float,
    /// Tangent.
    Tan = "tan" / 1 Float,
    /// Arc sine.
    Asin = "asin" / 1 Float,
    /// Arc cosine.
    Acos = "acos" / 1 Float,
    /// Arc tangent.
    Atan = "atan" / 1 Float,
    /// Arc tangent of `a / b` by quadrant.
    Atan2 = "atan2" / 2 Float,
    /// Hyperbolic sine.
    Sinh = "sinh" / 1 Float,
    /// Hyperbolic cosine.
    Cosh = "cosh" / 1 Float,
    /// Hyperbolic tangent.
    Tanh = "tanh" / 1 Float,
    /// Inverse hyperbolic sine.
    Asinh = "asinh" / 1 Float,
    /// Inverse hyperbolic cosine.
    Acosh = "acosh" / 1 Float,
    /// Inverse hyperbolic tangent.
    Atanh = "atanh" / 1 Float,
    /// Error function.
    Erf = "erf" / 1 Float,
    /// `1 - erf(x)`.
    Erfc = "erfc" / 1 Float,
    /// Inverse error function.
    Erfinv = "erfinv" / 1 Float,
    /// Logarithm of the absolute gamma function.
    Lgamma = "lgamma" / 1 Float,
    /// Derivative of `lgamma`.
    Digamma = "digamma" / 1 Float,
    /// Largest integer not above.
    Floor = "floor" / 1 Float,
    /// Smallest integer not below.
    Ceil = "ceil" / 1 Float,
    /// Nearest integer, ties to even.
    Round = "round" / 1 Float,
    /// Integer part.
    Trunc = "trunc" / 1 Float,
    /// Magnitude of `a`, sign of `b`.
    Copysign = "copysign" / 2 Float,
    /// Next representable after `a` towards `b`.
    Nextafter = "nextafter" / 2 Float,
    /// Bitwise (logical for bool) and.
    And = "and" / 2 Bits,
    /// Bitwise (logical for bool) or.
    Or = "or" / 2 Bits,
    /// Bitwise (logical for bool) exclusive or.
    Xor = "xor" / 2 Bits,
    /// Bitwise (logical for bool) complement.
    Not = "not" / 1 Bits,
    /// Left shift; amounts of the width or more, and negative ones, give 0.
    Shl = "shl" / 2 Bits,
    /// Arithmetic (logical when unsigned) right shift; too large amounts give the sign.
    Shr = "shr" / 2 Bits,
    /// Equal.
    Eq = "eq" / 2 Compare,
    /// Not equal; true when either is NaN.
    Ne = "ne" / 2 Compare,
    /// Less.
    Lt = "lt" / 2 Compare,
    /// Less or equal.
    Le = "le" / 2 Compare,
    /// Greater.
    Gt = "gt" / 2 Compare,
    /// Greater or equal.
    Ge = "ge" / 2 Compare,
    /// Is NaN.
    Isnan = "isnan" / 1 Compare,
    /// Is an infinity.
    Isinf = "isinf" / 1 Compare,
    /// `if a then b else c`.
    Select = "select" / 3 Select,
}

impl ScalarOp {
    /// Whether it is a mathematical function, which takes processors a chain of instructions.
    pub fn is_function(self) -> bool {
        let is_short = matches!(
            self,
            ScalarOp::Sqrt
                | ScalarOp::Rsqrt
                | ScalarOp::Floor
                | ScalarOp::Ceil
                | ScalarOp::Round
                | ScalarOp::Trunc
                | ScalarOp::Copysign
                | ScalarOp::Nextafter
        );
        self == ScalarOp::Pow || self.signature() == Signature::Float && !is_short
    }
    /// The operation of that name.
    pub fn from_name(name: &str) -> Option<ScalarOp> {
        ScalarOp::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Whether it has a meaning for operands of that type; the condition of `select` aside.
    pub fn is_defined_for(self, ty: Dtype) -> bool {
        use ScalarOp::{Abs, Add, Div, Eq, Fma, Isinf, Isnan, Max, Min, Mul, Ne, Neg, Shl, Shr, Sign, Sub};
        match (self.signature(), ty.kind()) {
            (Signature::Select, _) => true,
            (Signature::Same, Kind::Bool) => matches!(self, Add | Mul | Max | Min | Abs | Sign | Fma),
            (Signature::Same, Kind::Complex) => matches!(self, Add | Sub | Mul | Div | Neg | Fma),
            (Signature::Compare, Kind::Complex) => matches!(self, Eq | Ne | Isnan | Isinf),
            (Signature::Same | Signature::Compare, _) => true,
            (Signature::Float, kind) => kind == Kind::Float,
            (Signature::Bits, Kind::Bool) => !matches!(self, Shl | Shr),
            (Signature::Bits, kind) => kind == Kind::Int,
        }
    }
}

/// How the values along reduced axes combine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ReduceOp {
    /// Sum, from 0.
    Sum,
    /// Product, from 1.
    Prod,
    /// Maximum, NaN wins, from -inf or the smallest integer.
    Max,
    /// Minimum, NaN wins, from inf or the largest integer.
    Min,
    /// Logical or, from false.
    Any,
    /// Logical and, from true.
    All,
    /// Exclusive or, from 0.
    Xor,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [ReduceOp; 7] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Any,
        ReduceOp::All,
        ReduceOp::Xor,
    ];
    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Any => "any",
            ReduceOp::All => "all",
            ReduceOp::Xor => "xor",
        }
    }
    /// The reduction of that name.
    pub fn from_name(name: &str) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| op.name() == name)
    }
    /// The value that combines with x to x, for elements of `dtype`.
    pub fn identity(self, dtype: Dtype) -> Scalar {
        match self {
            ReduceOp::Sum | ReduceOp::Any | ReduceOp::Xor => Scalar::zero(dtype),
            ReduceOp::Prod | ReduceOp::All => Scalar::Int(1).to(dtype),
            ReduceOp::Max => extreme(dtype, false),
            ReduceOp::Min => extreme(dtype, true),
        }
    }
    /// The two-operand operation that combines partial results.
    pub fn combine(self) -> ScalarOp {
        match self {
            ReduceOp::Sum => ScalarOp::Add,
            ReduceOp::Prod => ScalarOp::Mul,
            ReduceOp::Max => ScalarOp::Max,
            ReduceOp::Min => ScalarOp::Min,
            ReduceOp::Any => ScalarOp::Or,
            ReduceOp::All => ScalarOp::And,
            ReduceOp::Xor => ScalarOp::Xor,
        }
    }
}

/// The largest (or smallest) value of `dtype`; unsigned 64-bit values are given by their bit pattern.
fn extreme(dtype: Dtype, largest: bool) -> Scalar {
    let (min, max) = match dtype {
        Dtype::Bool => return Scalar::Bool(largest),
        Dtype::U8 => (0, i64::from(u8::MAX)),
        Dtype::U16 => (0, i64::from(u16::MAX)),
        Dtype::U32 => (0, i64::from(u32::MAX)),
        Dtype::U64 => (0, -1),
        Dtype::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        Dtype::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Dtype::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        Dtype::I64 => (i64::MIN, i64::MAX),
        Dtype::F16
        | Dtype::BF16
        | Dtype::F32
        | Dtype::F64
        | Dtype::F8E4M3
        | Dtype::F8E5M2
        | Dtype::C64
        | Dtype::C128 => {
            return Scalar::Float(if largest { f64::INFINITY } else { f64::NEG_INFINITY });
        }
    };
    Scalar::Int(if largest { max } else { min })
}
