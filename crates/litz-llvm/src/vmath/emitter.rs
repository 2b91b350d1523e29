//! Offers vector operations as methods that write lines of LLVM IR.

use crate::processor::Isa;

/// Element type of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    I1,
    I32,
    I64,
    F32,
    F64,
}

impl Scalar {
    fn keyword(self) -> &'static str {
        match self {
            Scalar::I1 => "i1",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::F32 => "float",
            Scalar::F64 => "double",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Scalar::I1 => "i1",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }
}

/// The LLVM type of `lanes` elements; one lane is a scalar.
pub(super) fn type_text(scalar: Scalar, lanes: u32) -> String {
    match lanes {
        1 => scalar.keyword().to_string(),
        _ => format!("<{lanes} x {}>", scalar.keyword()),
    }
}

/// The part of an intrinsic's name that gives its type.
pub(super) fn type_suffix(scalar: Scalar, lanes: u32) -> String {
    match lanes {
        1 => scalar.suffix().to_string(),
        _ => format!("v{lanes}{}", scalar.suffix()),
    }
}

/// An operand: the name of an earlier result, or a constant in every lane.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) text: String,
    pub(super) scalar: Scalar,
}

/// Appends instructions on vectors of one number of lanes.
pub(super) struct Emitter<'a> {
    pub(super) lanes: u32,
    /// What the instructions are for; it decides which are used, never what they give.
    pub(super) isa: Isa,
    pub(super) fresh: &'a mut dyn FnMut() -> String,
    /// Lines, each with its end; the result of straight-line code is on the last one.
    pub(super) out: &'a mut Vec<String>,
}

impl Emitter<'_> {
    pub(super) fn type_of(&self, value: &Value) -> String {
        type_text(value.scalar, self.lanes)
    }

    /// A floating-point constant, rounded to the element type.
    pub(super) fn float(&self, scalar: Scalar, value: f64) -> Value {
        let rounded = if scalar == Scalar::F32 { f64::from(value as f32) } else { value };
        self.constant(scalar, &format!("0x{:016X}", rounded.to_bits()))
    }

    pub(super) fn int(&self, scalar: Scalar, value: i64) -> Value {
        self.constant(scalar, &value.to_string())
    }

    fn constant(&self, scalar: Scalar, text: &str) -> Value {
        let text = match self.lanes {
            1 => text.to_string(),
            _ => format!("splat ({} {text})", scalar.keyword()),
        };
        Value { text, scalar }
    }

    /// Appends `name = instruction` and gives the name.
    pub(super) fn line(&mut self, scalar: Scalar, instruction: &str) -> Value {
        let text = (self.fresh)();
        self.push(format!("  {text} = {instruction}"));
        Value { text, scalar }
    }

    /// Appends a line, or several.
    pub(super) fn push(&mut self, mut line: String) {
        line.push('\n');
        self.out.push(line);
    }

    /// A binary instruction such as `fadd`, of operands of one type.
    pub(super) fn binary(&mut self, opcode: &str, a: &Value, b: &Value) -> Value {
        let ty = self.type_of(a);
        self.line(a.scalar, &format!("{opcode} {ty} {}, {}", a.text, b.text))
    }

    pub(super) fn add(&mut self, a: &Value, b: &Value) -> Value {
        self.binary("fadd", a, b)
    }

    pub(super) fn sub(&mut self, a: &Value, b: &Value) -> Value {
        self.binary("fsub", a, b)
    }

    pub(super) fn mul(&mut self, a: &Value, b: &Value) -> Value {
        self.binary("fmul", a, b)
    }

    pub(super) fn div(&mut self, a: &Value, b: &Value) -> Value {
        self.binary("fdiv", a, b)
    }

    /// `a + constant`.
    pub(super) fn add_const(&mut self, a: &Value, b: f64) -> Value {
        let b = self.float(a.scalar, b);
        self.add(a, &b)
    }

    /// `a * constant`.
    pub(super) fn mul_const(&mut self, a: &Value, b: f64) -> Value {
        let b = self.float(a.scalar, b);
        self.mul(a, &b)
    }

    /// `constant - a`.
    pub(super) fn sub_from(&mut self, a: f64, b: &Value) -> Value {
        let a = self.float(b.scalar, a);
        self.sub(&a, b)
    }

    /// An intrinsic whose operands and result have one type.
    fn intrinsic(&mut self, name: &str, operands: &[&Value]) -> Value {
        let scalar = operands[0].scalar;
        let (ty, suffix) = (self.type_of(operands[0]), type_suffix(scalar, self.lanes));
        let operands: Vec<_> = operands.iter().map(|value| format!("{ty} {}", value.text)).collect();
        self.line(scalar, &format!("call {ty} @llvm.{name}.{suffix}({})", operands.join(", ")))
    }

    /// `a*b + c`, rounded once.
    pub(super) fn fma(&mut self, a: &Value, b: &Value, c: &Value) -> Value {
        self.intrinsic("fma", &[a, b, c])
    }

    /// `a * constant + c`, rounded once.
    pub(super) fn fma_const(&mut self, a: &Value, b: f64, c: &Value) -> Value {
        let b = self.float(a.scalar, b);
        self.fma(a, &b, c)
    }

    pub(super) fn sqrt(&mut self, a: &Value) -> Value {
        self.intrinsic("sqrt", &[a])
    }

    pub(super) fn abs(&mut self, a: &Value) -> Value {
        self.intrinsic("fabs", &[a])
    }

    pub(super) fn neg(&mut self, a: &Value) -> Value {
        let ty = self.type_of(a);
        self.line(a.scalar, &format!("fneg {ty} {}", a.text))
    }

    pub(super) fn copysign(&mut self, magnitude: &Value, sign: &Value) -> Value {
        self.intrinsic("copysign", &[magnitude, sign])
    }

    /// The polynomial with these coefficients, highest power first, by Horner's rule.
    pub(super) fn polynomial(&mut self, coefficients: &[f64], x: &Value) -> Value {
        let mut coefficients = coefficients.iter().map(|&it| self.float(x.scalar, it)).collect::<Vec<_>>();
        let first = coefficients.remove(0);
        coefficients.iter().fold(first, |sum, next| self.fma(&sum, x, next))
    }

    /// A comparison by an LLVM predicate: `o..` is false and `u..` true when an operand is NaN.
    pub(super) fn compare(&mut self, predicate: &str, a: &Value, b: &Value) -> Value {
        let (ty, opcode) = (self.type_of(a), if is_float(a.scalar) { "fcmp" } else { "icmp" });
        self.line(Scalar::I1, &format!("{opcode} {predicate} {ty} {}, {}", a.text, b.text))
    }

    pub(super) fn compare_const(&mut self, predicate: &str, a: &Value, b: f64) -> Value {
        let b = self.float(a.scalar, b);
        self.compare(predicate, a, &b)
    }

    pub(super) fn select(&mut self, condition: &Value, yes: &Value, no: &Value) -> Value {
        let (condition_ty, ty) = (self.type_of(condition), self.type_of(yes));
        let instruction =
            format!("select {condition_ty} {}, {ty} {}, {ty} {}", condition.text, yes.text, no.text);
        self.line(yes.scalar, &instruction)
    }

    /// `select` with a constant where the condition holds.
    pub(super) fn replace_where(&mut self, condition: &Value, constant: f64, value: &Value) -> Value {
        let constant = self.float(value.scalar, constant);
        self.select(condition, &constant, value)
    }

    /// `x` within bounds; NaN stays.
    pub(super) fn clamp(&mut self, x: &Value, low: f64, high: f64) -> Value {
        let x = self.at_most(x, high);
        self.at_least(&x, low)
    }

    /// The greater of `x` and a bound; NaN stays.
    pub(super) fn at_least(&mut self, x: &Value, low: f64) -> Value {
        let is_low = self.compare_const("olt", x, low);
        self.replace_where(&is_low, low, x)
    }

    /// The lesser of `x` and a bound; NaN stays.
    pub(super) fn at_most(&mut self, x: &Value, high: f64) -> Value {
        let is_high = self.compare_const("ogt", x, high);
        self.replace_where(&is_high, high, x)
    }

    /// `x * 2^n` of an integral `n`, rounded once, by AVX-512's instruction; None where there is none for the type.
    pub(super) fn scalef(&mut self, x: &Value, n: &Value) -> Option<Value> {
        let letter = match x.scalar {
            Scalar::F32 => 's',
            Scalar::F64 => 'd',
            Scalar::I1 | Scalar::I32 | Scalar::I64 => return None,
        };
        let bits = self.lanes * if x.scalar == Scalar::F32 { 32 } else { 64 };
        if self.isa != Isa::Avx512 || !matches!(bits, 128 | 256 | 512) {
            return None;
        }
        // All lanes of a mask of at least 8 bits; the widest form takes a rounding mode, here the current one.
        let mask = if self.lanes == 16 { "i16 -1" } else { "i8 -1" };
        let rounding = if bits == 512 { ", i32 4" } else { "" };
        let ty = self.type_of(x);
        Some(self.line(
            x.scalar,
            &format!(
                "call {ty} @llvm.x86.avx512.mask.scalef.p{letter}.{bits}({ty} {}, {ty} {}, {ty} zeroinitializer, \
                 {mask}{rounding})",
                x.text, n.text
            ),
        ))
    }

    /// A conversion such as `bitcast` or `sitofp`.
    pub(super) fn convert(&mut self, opcode: &str, a: &Value, to: Scalar) -> Value {
        let (from, to_text) = (self.type_of(a), type_text(to, self.lanes));
        self.line(to, &format!("{opcode} {from} {} to {to_text}", a.text))
    }
}

pub(super) fn is_float(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::F32 | Scalar::F64)
}
