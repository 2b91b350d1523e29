//! Writes mathematical functions of vectors as LLVM IR text, with stated error bounds.
//!
//! Nearly everything is straight-line code without tables: a reduction of the argument, a polynomial,
//! and selects for the special cases, which follow C's Annex F. Only the angle functions branch, to the
//! C library, for arguments too big to reduce. What a lane computes is the same at every width and on
//! every CPU. Rare functions of `f32` compute in `f64`; those of `f64` call the C library lane by lane.
//!
//! All of it wants fused multiply-add; where the CPU has none LLVM calls `fma`, which is right but slow.

mod emitter;
mod functions;
pub mod library;
mod rough;
mod tables;

use std::fmt::Write;

use crate::processor::Isa;
use emitter::{Emitter, Scalar, Value, type_suffix, type_text};
use functions::{Angle, Base};
use tables::{DOUBLE, Format, SINGLE};

/// A function that vector code can be had for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of C")]
pub enum MathFn {
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Tanh,
    Erf,
    Erfc,
    Sin,
    Cos,
    Tan,
    Pow,
    /// `1 / sqrt(x)`
    Rsqrt,
    Asin,
    Acos,
    Atan,
    Atan2,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
}

/// Element type of an operand and of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Elem {
    /// Single precision, LLVM's `float`.
    F32,
    /// Double precision, LLVM's `double`.
    F64,
}

/// Bounds of the error of each function in units in the last place of the exact result. Those of
/// functions that call the C library are what glibc keeps to.
pub const ULP: &[(MathFn, Elem, f64)] = &[
    (MathFn::Exp, Elem::F32, 1.0),
    (MathFn::Exp2, Elem::F32, 1.0),
    (MathFn::Expm1, Elem::F32, 1.5),
    (MathFn::Log, Elem::F32, 1.0),
    (MathFn::Log2, Elem::F32, 2.0),
    (MathFn::Log10, Elem::F32, 2.0),
    (MathFn::Log1p, Elem::F32, 1.5),
    (MathFn::Tanh, Elem::F32, 1.5),
    (MathFn::Erf, Elem::F32, 1.75),
    (MathFn::Erfc, Elem::F32, 0.6),
    (MathFn::Sin, Elem::F32, 1.5),
    (MathFn::Cos, Elem::F32, 1.5),
    (MathFn::Tan, Elem::F32, 3.0),
    (MathFn::Pow, Elem::F32, 0.6),
    (MathFn::Rsqrt, Elem::F32, 1.5),
    (MathFn::Asin, Elem::F32, 0.6),
    (MathFn::Acos, Elem::F32, 0.6),
    (MathFn::Atan, Elem::F32, 0.6),
    (MathFn::Atan2, Elem::F32, 0.6),
    (MathFn::Sinh, Elem::F32, 0.6),
    (MathFn::Cosh, Elem::F32, 0.6),
    (MathFn::Asinh, Elem::F32, 0.6),
    (MathFn::Acosh, Elem::F32, 0.6),
    (MathFn::Atanh, Elem::F32, 0.6),
    (MathFn::Exp, Elem::F64, 1.0),
    (MathFn::Exp2, Elem::F64, 1.0),
    (MathFn::Expm1, Elem::F64, 2.0),
    (MathFn::Log, Elem::F64, 1.0),
    (MathFn::Log2, Elem::F64, 2.0),
    (MathFn::Log10, Elem::F64, 2.0),
    (MathFn::Log1p, Elem::F64, 1.5),
    (MathFn::Tanh, Elem::F64, 1.5),
    (MathFn::Erf, Elem::F64, 1.5),
    (MathFn::Erfc, Elem::F64, 5.0),
    (MathFn::Sin, Elem::F64, 1.5),
    (MathFn::Cos, Elem::F64, 1.5),
    (MathFn::Tan, Elem::F64, 3.0),
    (MathFn::Pow, Elem::F64, 1.0),
    (MathFn::Rsqrt, Elem::F64, 1.5),
    (MathFn::Asin, Elem::F64, 1.0),
    (MathFn::Acos, Elem::F64, 1.0),
    (MathFn::Atan, Elem::F64, 1.0),
    (MathFn::Atan2, Elem::F64, 1.0),
    (MathFn::Sinh, Elem::F64, 2.0),
    (MathFn::Cosh, Elem::F64, 2.0),
    (MathFn::Asinh, Elem::F64, 2.0),
    (MathFn::Acosh, Elem::F64, 3.0),
    (MathFn::Atanh, Elem::F64, 2.0),
];

impl MathFn {
    /// C's name of the function in double precision.
    pub fn name(self) -> &'static str {
        match self {
            MathFn::Exp => "exp",
            MathFn::Exp2 => "exp2",
            MathFn::Expm1 => "expm1",
            MathFn::Log => "log",
            MathFn::Log2 => "log2",
            MathFn::Log10 => "log10",
            MathFn::Log1p => "log1p",
            MathFn::Tanh => "tanh",
            MathFn::Erf => "erf",
            MathFn::Erfc => "erfc",
            MathFn::Sin => "sin",
            MathFn::Cos => "cos",
            MathFn::Tan => "tan",
            MathFn::Pow => "pow",
            MathFn::Rsqrt => "rsqrt",
            MathFn::Asin => "asin",
            MathFn::Acos => "acos",
            MathFn::Atan => "atan",
            MathFn::Atan2 => "atan2",
            MathFn::Sinh => "sinh",
            MathFn::Cosh => "cosh",
            MathFn::Asinh => "asinh",
            MathFn::Acosh => "acosh",
            MathFn::Atanh => "atanh",
        }
    }

    /// How many operands the function takes.
    pub fn arity(self) -> usize {
        if matches!(self, MathFn::Pow | MathFn::Atan2) { 2 } else { 1 }
    }

    /// The bound of [`ULP`].
    pub fn ulp(self, elem: Elem) -> f64 {
        let entry = ULP.iter().find(|entry| (entry.0, entry.1) == (self, elem));
        entry.expect("invariant: the table has every function").2
    }
}

impl Elem {
    fn scalar(self) -> Scalar {
        match self {
            Elem::F32 => Scalar::F32,
            Elem::F64 => Scalar::F64,
        }
    }

    fn format(self) -> &'static Format {
        match self {
            Elem::F32 => &SINGLE,
            Elem::F64 => &DOUBLE,
        }
    }
}

/// How a function is computed.
enum Method {
    /// A few instructions in the operand's own precision.
    Direct(fn(&mut Emitter<'_>, &Format, &Value) -> Value),
    /// Instructions that are right for small angles, and the C library for others.
    Angle(Angle),
    /// `f32` by way of `f64`.
    Wide(fn(&mut Emitter<'_>, &Value) -> Value),
    /// As `Wide`, of two operands.
    Wide2(fn(&mut Emitter<'_>, &Value, &Value) -> Value),
    /// The C library, lane by lane.
    Library,
}

fn method(op: MathFn, elem: Elem) -> Method {
    let wide = |function| if elem == Elem::F32 { Method::Wide(function) } else { Method::Library };
    let wide2 = |function| if elem == Elem::F32 { Method::Wide2(function) } else { Method::Library };
    match op {
        MathFn::Exp => Method::Direct(functions::exp),
        MathFn::Exp2 => Method::Direct(functions::exp2),
        MathFn::Expm1 => Method::Direct(functions::expm1),
        MathFn::Log => Method::Direct(|e, format, x| functions::log(e, format, Base::E, x)),
        MathFn::Log2 => Method::Direct(|e, format, x| functions::log(e, format, Base::Two, x)),
        MathFn::Log10 => Method::Direct(|e, format, x| functions::log(e, format, Base::Ten, x)),
        MathFn::Log1p => Method::Direct(functions::log1p),
        MathFn::Tanh => Method::Direct(functions::tanh),
        MathFn::Rsqrt => Method::Direct(|e, _, x| functions::rsqrt(e, x)),
        MathFn::Erf if elem == Elem::F32 => Method::Direct(|e, _, x| functions::erf(e, x)),
        MathFn::Erf => Method::Library,
        MathFn::Sin => Method::Angle(Angle::Sin),
        MathFn::Cos => Method::Angle(Angle::Cos),
        MathFn::Tan => Method::Angle(Angle::Tan),
        MathFn::Erfc => wide(functions::erfc),
        MathFn::Asin => wide(functions::asin),
        MathFn::Acos => wide(functions::acos),
        MathFn::Atan => wide(functions::atan),
        MathFn::Sinh => wide(functions::sinh),
        MathFn::Cosh => wide(functions::cosh),
        MathFn::Asinh => wide(functions::asinh),
        MathFn::Acosh => wide(functions::acosh),
        MathFn::Atanh => wide(functions::atanh),
        MathFn::Pow => wide2(functions::pow),
        MathFn::Atan2 => wide2(functions::atan2),
    }
}

/// Appends the instructions that compute `op` of `operand`, a line each, and gives the result's name.
///
/// `None`, and nothing appended, for what is too long for that or branches: [`define`] it and call it.
/// `fresh` makes local names, `%` included.
pub fn inline(
    op: MathFn,
    elem: Elem,
    lanes: u32,
    isa: Isa,
    operand: &str,
    fresh: &mut dyn FnMut() -> String,
    out: &mut Vec<String>,
) -> Option<String> {
    let Method::Direct(function) = method(op, elem) else { return None };
    let operand = Value { text: operand.to_string(), scalar: elem.scalar() };
    Some(function(&mut Emitter { lanes, isa, fresh, out }, elem.format(), &operand).text)
}

/// As [`inline`], of a number of single precision on a GPU, by its approximations: for results that are rounded to a half type. `None` for functions
/// that have none.
pub fn rough(
    op: MathFn,
    operand: &str,
    fresh: &mut dyn FnMut() -> String,
    out: &mut Vec<String>,
) -> Option<String> {
    let function = rough::function(op)?;
    let operand = Value { text: operand.to_string(), scalar: Scalar::F32 };
    Some(function(&mut Emitter { lanes: 1, isa: Isa::Ptx, fresh, out }, &operand).text)
}

/// Appends the definition of `op` for `isa` on vectors of `lanes` elements (on scalars for 1) to the module text
/// `out`, unless it is there already, and gives the function's name, `@` included. To be called as
/// `call fastcc <lanes x elem> @name(<lanes x elem> %x)`.
///
/// The definition may refer to a function of the C library, which it declares.
pub fn define(op: MathFn, elem: Elem, lanes: u32, isa: Isa, out: &mut String) -> String {
    let name = format!("@lz.{}.{}", op.name(), type_suffix(elem.scalar(), lanes));
    let ty = type_text(elem.scalar(), lanes);
    let parameters = if op.arity() == 2 { format!("{ty} %x, {ty} %y") } else { format!("{ty} %x") };
    let head = format!("define private fastcc {ty} {name}({parameters}) nounwind {{\n");
    if !out.contains(&head) {
        let body = body(op, elem, lanes, isa);
        if let Some(library) = &body.library {
            let parameters = vec![type_text(elem.scalar(), 1); op.arity()].join(", ");
            let declaration =
                format!("declare {} @{library}({parameters}) nounwind\n", type_text(elem.scalar(), 1));
            if !out.contains(&declaration) {
                out.push_str(&declaration);
            }
        }
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{head}{}  ret {ty} {}\n}}", body.text, body.result);
    }
    name
}

/// The lines of a function, the name of its result and the function of the C library that it calls.
struct Body {
    text: String,
    result: String,
    library: Option<String>,
}

fn body(op: MathFn, elem: Elem, lanes: u32, isa: Isa) -> Body {
    let mut lines = Vec::new();
    let mut count = 0;
    let mut fresh = || {
        count += 1;
        format!("%t{count}")
    };
    let mut e = Emitter { lanes, isa, fresh: &mut fresh, out: &mut lines };
    let [x, y] = ["%x", "%y"].map(|name| Value { text: name.to_string(), scalar: elem.scalar() });
    let mut library = None;
    let result = match method(op, elem) {
        Method::Direct(function) => function(&mut e, elem.format(), &x),
        Method::Wide(function) => {
            let x = e.convert("fpext", &x, Scalar::F64);
            let result = function(&mut e, &x);
            e.convert("fptrunc", &result, Scalar::F32)
        }
        Method::Wide2(function) => {
            let [x, y] = [x, y].map(|it| e.convert("fpext", &it, Scalar::F64));
            let result = function(&mut e, &x, &y);
            e.convert("fptrunc", &result, Scalar::F32)
        }
        Method::Angle(which) => {
            library = Some(library_name(op, elem));
            angle_of_any_size(&mut e, op, elem, which, &x)
        }
        Method::Library => {
            library = Some(library_name(op, elem));
            let operands = if op.arity() == 2 { vec![x, y] } else { vec![x] };
            let slots = library_slots(&mut e, &operands);
            library_calls(&mut e, op, elem, &operands, &slots, "entry")
        }
    };
    Body { text: format!("entry:\n{}", lines.concat()), result: result.text, library }
}

/// Names of the functions of the C library that definitions refer to.
pub fn externals() -> impl Iterator<Item = String> {
    ULP.iter().filter_map(|&(op, elem, _)| match method(op, elem) {
        Method::Angle(_) | Method::Library => Some(library_name(op, elem)),
        Method::Direct(_) | Method::Wide(_) | Method::Wide2(_) => None,
    })
}

fn library_name(op: MathFn, elem: Elem) -> String {
    let suffix = if elem == Elem::F32 { "f" } else { "" };
    format!("{}{suffix}", op.name())
}

/// The short way for all lanes; where one has a big angle the C library for those that have.
fn angle_of_any_size(e: &mut Emitter<'_>, op: MathFn, elem: Elem, which: Angle, x: &Value) -> Value {
    let format = elem.format();
    let slots = library_slots(e, std::slice::from_ref(x));
    let near = functions::angle(e, format, which, x);
    let magnitude = e.abs(x);
    let is_big = e.compare_const("ogt", &magnitude, format.angle_limit);
    let ty = e.type_of(x);
    let any = match e.lanes {
        1 => is_big.text.clone(),
        lanes => {
            let any = (e.fresh)();
            let (bits, suffix) = (e.type_of(&is_big), type_suffix(Scalar::I1, lanes));
            e.push(format!("  {any} = call i1 @llvm.vector.reduce.or.{suffix}({bits} {})", is_big.text));
            any
        }
    };
    e.push(format!("  br i1 {any}, label %big, label %done\nbig:"));
    let zero = e.float(x.scalar, 0.0);
    let big = e.select(&is_big, x, &zero);
    let far = library_calls(e, op, elem, &[big], &slots, "big");
    let mixed = e.select(&is_big, &far, &near);
    let from = if e.lanes == 1 { "big" } else { "called" };
    let result = (e.fresh)();
    e.push(format!(
        "  br label %done\ndone:\n  {result} = phi {ty} [ {}, %entry ], [ {}, %{from} ]",
        near.text, mixed.text
    ));
    Value { text: result, scalar: x.scalar }
}

/// Memory for the lanes of each operand, reserved in the entry block; none is needed for scalars.
fn library_slots(e: &mut Emitter<'_>, operands: &[Value]) -> Vec<String> {
    if e.lanes == 1 {
        return Vec::new();
    }
    let mut slots = Vec::new();
    for operand in operands {
        let (slot, ty) = ((e.fresh)(), e.type_of(operand));
        e.push(format!("  {slot} = alloca {ty}"));
        slots.push(slot);
    }
    slots
}

/// Calls the C library once for each lane, in a loop that begins in `block` and ends in block `called`.
fn library_calls(
    e: &mut Emitter<'_>,
    op: MathFn,
    elem: Elem,
    operands: &[Value],
    slots: &[String],
    block: &str,
) -> Value {
    let (lane_ty, library) = (type_text(elem.scalar(), 1), library_name(op, elem));
    let result = (e.fresh)();
    if e.lanes == 1 {
        let operands: Vec<_> = operands.iter().map(|it| format!("{lane_ty} {}", it.text)).collect();
        e.push(format!("  {result} = call {lane_ty} @{library}({})", operands.join(", ")));
        return Value { text: result, scalar: elem.scalar() };
    }
    let ty = e.type_of(&operands[0]);
    for (operand, slot) in operands.iter().zip(slots) {
        e.push(format!("  store {ty} {}, ptr {slot}", operand.text));
    }
    e.push(format!("  br label %lane\nlane:\n  %i = phi i32 [ 0, %{block} ], [ %next, %lane ]"));
    let mut arguments = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        e.push(format!("  %p{index} = getelementptr {lane_ty}, ptr {slot}, i32 %i"));
        e.push(format!("  %a{index} = load {lane_ty}, ptr %p{index}"));
        arguments.push(format!("{lane_ty} %a{index}"));
    }
    e.push(format!(
        "  %r = call {lane_ty} @{library}({})
  store {lane_ty} %r, ptr %p0
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, {}
  br i1 %more, label %lane, label %called
called:
  {result} = load {ty}, ptr {}",
        arguments.join(", "),
        e.lanes,
        slots[0]
    ));
    Value { text: result, scalar: elem.scalar() }
}
