//! Writes scalar functions as LLVM IR: values have operators, branches and loops are closures.
//!
//! ```text
//! let square = x * x;                                              // %t0 = fmul double %p0, %p0
//! x.lt(0.0).pick(-square, square)                                  // a comparison, a negation and a select
//! ```

use std::array;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Shl, Shr, Sub};

use super::super::emitter::{Scalar, is_float, type_suffix, type_text};

/// A function that can be called by others. Its text is the same wherever it is needed.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [Scalar],
    /// One value, or several as members of a struct.
    pub(super) results: &'static [Scalar],
    pub(super) body: for<'c> fn(&'c Code, &[Number<'c>]) -> Vec<Number<'c>>,
}

/// Words that functions load.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) words: &'static [u64],
}

impl Function {
    /// The text, functions that it calls, and tables.
    pub(super) fn write(&self) -> (String, Vec<&'static Function>, Vec<&'static Table>) {
        let code = Code { state: RefCell::default() };
        code.state.borrow_mut().block = "entry".into();
        let arguments: Vec<Number<'_>> = (0..)
            .zip(self.parameters)
            .map(|(index, &ty)| Number { code: &code, text: Text::Parameter(index), ty })
            .collect();
        let results = (self.body)(&code, &arguments);
        let ty = self.result_type();
        match results[..] {
            [result] => code.push(&format!("ret {ty} {result}")),
            _ => {
                let mut packed = "poison".to_string();
                for (index, result) in results.iter().enumerate() {
                    code.push(&format!(
                        "%r{index} = insertvalue {ty} {packed}, {} {result}, {index}",
                        result.keyword()
                    ));
                    packed = format!("%r{index}");
                }
                code.push(&format!("ret {ty} {packed}"));
            }
        }
        let parameters: Vec<String> = arguments.iter().map(|it| format!("{} {it}", it.keyword())).collect();
        let head = format!("define private {ty} @{}({}) nounwind {{", self.name, parameters.join(", "));
        drop(arguments);
        let state = code.state.into_inner();
        (format!("{head}\nentry:\n{}}}", state.lines.concat()), state.calls, state.tables)
    }

    fn result_type(&self) -> String {
        let types: Vec<String> = self.results.iter().map(|&ty| type_text(ty, 1)).collect();
        if let [ty] = &types[..] { ty.clone() } else { format!("{{ {} }}", types.join(", ")) }
    }
}

impl Table {
    /// The text. The memory is that of constants on a GPU, and ordinary memory on a CPU.
    pub(super) fn write(&self) -> String {
        let words: Vec<String> =
            self.words.iter().map(|word| format!("i64 {}", word.cast_signed())).collect();
        format!(
            "@{} = private unnamed_addr addrspace(4) constant [{} x i64] [{}]",
            self.name,
            words.len(),
            words.join(", ")
        )
    }
}

/// A function that is being written.
pub(super) struct Code {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    /// Names given out.
    count: u32,
    /// The block that lines go to.
    block: String,
    calls: Vec<&'static Function>,
    tables: Vec<&'static Table>,
}

impl Code {
    fn push(&self, line: &str) {
        self.state.borrow_mut().lines.push(format!("  {line}\n"));
    }

    fn fresh(&self) -> u32 {
        let mut state = self.state.borrow_mut();
        state.count += 1;
        state.count - 1
    }

    fn line(&self, ty: Scalar, instruction: &str) -> Number<'_> {
        let result = Number { code: self, text: Text::Local(self.fresh()), ty };
        self.push(&format!("{result} = {instruction}"));
        result
    }

    pub(super) fn f64(&self, value: f64) -> Number<'_> {
        Number { code: self, text: Text::Float(value), ty: Scalar::F64 }
    }

    pub(super) fn i64(&self, value: i64) -> Number<'_> {
        Number { code: self, text: Text::Int(value), ty: Scalar::I64 }
    }

    /// Begins a block that the last line does not fall into.
    fn start(&self, block: &str) {
        let mut state = self.state.borrow_mut();
        state.lines.push(format!("{block}:\n"));
        state.block = block.to_string();
    }

    /// Ends the block by a jump and gives its name.
    fn jump(&self, to: &str) -> String {
        self.push(&format!("br label %{to}"));
        self.state.borrow().block.clone()
    }

    fn labels(&self, names: [&str; 3]) -> [String; 3] {
        let number = self.fresh();
        names.map(|name| format!("{name}{number}"))
    }

    /// What one of two pieces of code gives.
    pub(super) fn branch<'c, const N: usize>(
        &'c self,
        condition: Number<'c>,
        yes: impl FnOnce() -> [Number<'c>; N],
        no: impl FnOnce() -> [Number<'c>; N],
    ) -> [Number<'c>; N] {
        let [yes_block, no_block, end] = self.labels(["yes", "no", "end"]);
        self.push(&format!("br i1 {condition}, label %{yes_block}, label %{no_block}"));
        self.start(&yes_block);
        let a = yes();
        let after_yes = self.jump(&end);
        self.start(&no_block);
        let b = no();
        let after_no = self.jump(&end);
        self.start(&end);
        array::from_fn(|i| {
            let ty = a[i].ty;
            let keyword = a[i].keyword();
            self.line(ty, &format!("phi {keyword} [ {}, %{after_yes} ], [ {}, %{after_no} ]", a[i], b[i]))
        })
    }

    /// Values that `step` changes for as long as `goes_on` says of them.
    pub(super) fn repeat<'c, const N: usize>(
        &'c self,
        first: [Number<'c>; N],
        goes_on: impl FnOnce([Number<'c>; N]) -> Number<'c>,
        step: impl FnOnce([Number<'c>; N]) -> [Number<'c>; N],
    ) -> [Number<'c>; N] {
        let [head, body, end] = self.labels(["head", "body", "after"]);
        let before = self.jump(&head);
        self.start(&head);
        let values = first.map(|it| Number { code: self, text: Text::Local(self.fresh()), ty: it.ty });
        // The lines of the values are known when what the loop does is written.
        let place = self.state.borrow().lines.len();
        self.state.borrow_mut().lines.resize(place + N, String::new());
        let condition = goes_on(values);
        self.push(&format!("br i1 {condition}, label %{body}, label %{end}"));
        self.start(&body);
        let next = step(values);
        let last = self.jump(&head);
        for i in 0..N {
            let (value, keyword) = (values[i], values[i].keyword());
            let line =
                format!("  {value} = phi {keyword} [ {}, %{before} ], [ {}, %{last} ]\n", first[i], next[i]);
            self.state.borrow_mut().lines[place + i] = line;
        }
        self.start(&end);
        values
    }

    pub(super) fn call<'c, const N: usize>(
        &'c self,
        function: &'static Function,
        arguments: &[Number<'c>],
    ) -> [Number<'c>; N] {
        self.state.borrow_mut().calls.push(function);
        let ty = function.result_type();
        let list: Vec<String> = arguments.iter().map(|it| format!("{} {it}", it.keyword())).collect();
        let call = format!("call {ty} @{}({})", function.name, list.join(", "));
        if N == 1 {
            return [self.line(function.results[0], &call); N];
        }
        let packed = format!("%s{}", self.fresh());
        self.push(&format!("{packed} = {call}"));
        array::from_fn(|i| self.line(function.results[i], &format!("extractvalue {ty} {packed}, {i}")))
    }

    /// A word of a table.
    pub(super) fn load<'c>(&'c self, table: &'static Table, index: Number<'c>) -> Number<'c> {
        self.state.borrow_mut().tables.push(table);
        let place = format!("%q{}", self.fresh());
        let name = table.name;
        self.push(&format!("{place} = getelementptr i64, ptr addrspace(4) @{name}, i64 {index}"));
        self.line(Scalar::I64, &format!("load i64, ptr addrspace(4) {place}, align 8"))
    }
}

/// A value of the function that is being written. Comparisons and shifts to the right are signed unless they say otherwise.
#[derive(Clone, Copy)]
pub(super) struct Number<'c> {
    code: &'c Code,
    text: Text,
    ty: Scalar,
}

#[derive(Clone, Copy)]
enum Text {
    Parameter(u32),
    Local(u32),
    Float(f64),
    Int(i64),
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text {
            Text::Parameter(index) => write!(f, "%p{index}"),
            Text::Local(index) => write!(f, "%t{index}"),
            Text::Float(value) if self.ty == Scalar::F32 => {
                write!(f, "0x{:016X}", f64::from(value as f32).to_bits())
            }
            Text::Float(value) => write!(f, "0x{:016X}", value.to_bits()),
            Text::Int(value) => write!(f, "{value}"),
        }
    }
}

/// What stands on the right of an operator: a number, or a constant of the left one's type.
pub(super) trait Operand<'c> {
    fn beside(self, left: Number<'c>) -> Number<'c>;
}

impl<'c> Operand<'c> for Number<'c> {
    fn beside(self, _: Number<'c>) -> Number<'c> {
        self
    }
}

impl<'c> Operand<'c> for f64 {
    fn beside(self, left: Number<'c>) -> Number<'c> {
        Number { text: Text::Float(self), ..left }
    }
}

impl<'c> Operand<'c> for i64 {
    fn beside(self, left: Number<'c>) -> Number<'c> {
        Number { text: Text::Int(self), ..left }
    }
}

/// Operators, by the instructions of floats and of integers.
macro_rules! operators {
    ($($trait:ident $method:ident $float:literal $int:literal;)*) => {$(
        impl<'c, O: Operand<'c>> $trait<O> for Number<'c> {
            type Output = Number<'c>;
            fn $method(self, other: O) -> Number<'c> {
                self.binary(if is_float(self.ty) { $float } else { $int }, other.beside(self))
            }
        }

        impl<'c> $trait<Number<'c>> for f64 {
            type Output = Number<'c>;
            fn $method(self, other: Number<'c>) -> Number<'c> {
                self.beside(other).$method(other)
            }
        }

        impl<'c> $trait<Number<'c>> for i64 {
            type Output = Number<'c>;
            fn $method(self, other: Number<'c>) -> Number<'c> {
                self.beside(other).$method(other)
            }
        }
    )*};
}

operators! {
    Add add "fadd" "add";
    Sub sub "fsub" "sub";
    Mul mul "fmul" "mul";
    Div div "fdiv" "sdiv";
    BitAnd bitand "and" "and";
    BitOr bitor "or" "or";
    BitXor bitxor "xor" "xor";
    Shl shl "shl" "shl";
    Shr shr "ashr" "ashr";
}

impl<'c> Neg for Number<'c> {
    type Output = Number<'c>;
    fn neg(self) -> Number<'c> {
        self.code.line(self.ty, &format!("fneg {} {self}", self.keyword()))
    }
}

impl<'c> Number<'c> {
    /// A constant of the same type.
    pub(super) fn constant(self, value: f64) -> Number<'c> {
        value.beside(self)
    }

    fn keyword(self) -> String {
        type_text(self.ty, 1)
    }

    fn binary(self, opcode: &str, other: Number<'c>) -> Number<'c> {
        self.code.line(self.ty, &format!("{opcode} {} {self}, {other}", self.keyword()))
    }

    /// A shift to the right that fills with zeros.
    pub(super) fn shift_down(self, places: impl Operand<'c>) -> Number<'c> {
        self.binary("lshr", places.beside(self))
    }

    fn intrinsic(self, name: &str, others: &[Number<'c>]) -> Number<'c> {
        let (ty, suffix) = (self.keyword(), type_suffix(self.ty, 1));
        let list: String = others.iter().map(|it| format!(", {ty} {it}")).collect();
        self.code.line(self.ty, &format!("call {ty} @llvm.{name}.{suffix}({ty} {self}{list})"))
    }

    /// `self * by + more`, rounded once.
    pub(super) fn fma(self, by: impl Operand<'c>, more: impl Operand<'c>) -> Number<'c> {
        self.intrinsic("fma", &[by.beside(self), more.beside(self)])
    }

    pub(super) fn sqrt(self) -> Number<'c> {
        self.intrinsic("sqrt", &[])
    }

    pub(super) fn abs(self) -> Number<'c> {
        self.intrinsic("fabs", &[])
    }

    pub(super) fn trunc(self) -> Number<'c> {
        self.intrinsic("trunc", &[])
    }

    /// To the nearest integer, ties to even.
    pub(super) fn round(self) -> Number<'c> {
        self.intrinsic("roundeven", &[])
    }

    pub(super) fn copysign(self, sign: Number<'c>) -> Number<'c> {
        self.intrinsic("copysign", &[sign])
    }

    /// How many bits above the highest one are zero; all for zero.
    pub(super) fn leading_zeros(self) -> Number<'c> {
        let ty = self.keyword();
        self.code.line(self.ty, &format!("call {ty} @llvm.ctlz.{ty}({ty} {self}, i1 false)"))
    }

    fn compare(self, float: &str, int: &str, other: Number<'c>) -> Number<'c> {
        let (opcode, predicate) = if is_float(self.ty) { ("fcmp", float) } else { ("icmp", int) };
        self.code.line(Scalar::I1, &format!("{opcode} {predicate} {} {self}, {other}", self.keyword()))
    }

    pub(super) fn lt(self, other: impl Operand<'c>) -> Number<'c> {
        self.compare("olt", "slt", other.beside(self))
    }

    pub(super) fn gt(self, other: impl Operand<'c>) -> Number<'c> {
        self.compare("ogt", "sgt", other.beside(self))
    }

    pub(super) fn ge(self, other: impl Operand<'c>) -> Number<'c> {
        self.compare("oge", "sge", other.beside(self))
    }

    pub(super) fn eq(self, other: impl Operand<'c>) -> Number<'c> {
        self.compare("oeq", "eq", other.beside(self))
    }

    pub(super) fn ne(self, other: impl Operand<'c>) -> Number<'c> {
        self.compare("une", "ne", other.beside(self))
    }

    /// `<` of integers without sign.
    pub(super) fn is_below(self, other: Number<'c>) -> Number<'c> {
        self.compare("olt", "ult", other)
    }

    /// Whether either is NaN.
    pub(super) fn is_unordered(self, other: Number<'c>) -> Number<'c> {
        self.compare("uno", "eq", other)
    }

    /// The negation of a condition.
    pub(super) fn not(self) -> Number<'c> {
        self ^ 1
    }

    /// Whether the sign bit is set, in zeros and NaN too.
    pub(super) fn is_signed(self) -> Number<'c> {
        self.bits().lt(0)
    }

    /// One of two values by a condition.
    pub(super) fn pick(self, yes: impl Operand<'c>, no: Number<'c>) -> Number<'c> {
        let (yes, ty) = (yes.beside(no), no.keyword());
        self.code.line(no.ty, &format!("select i1 {self}, {ty} {yes}, {ty} {no}"))
    }

    fn convert(self, opcode: &str, ty: Scalar) -> Number<'c> {
        self.code.line(ty, &format!("{opcode} {} {self} to {}", self.keyword(), type_text(ty, 1)))
    }

    /// The bits of a float as an integer.
    pub(super) fn bits(self) -> Number<'c> {
        self.convert("bitcast", if self.ty == Scalar::F32 { Scalar::I32 } else { Scalar::I64 })
    }

    /// The float of these bits.
    pub(super) fn as_float(self) -> Number<'c> {
        self.convert("bitcast", if self.ty == Scalar::I32 { Scalar::F32 } else { Scalar::F64 })
    }

    /// In double precision: a float or a signed integer.
    pub(super) fn to_f64(self) -> Number<'c> {
        self.convert(if self.ty == Scalar::F32 { "fpext" } else { "sitofp" }, Scalar::F64)
    }

    /// An integer without sign in double precision.
    pub(super) fn unsigned_to_f64(self) -> Number<'c> {
        self.convert("uitofp", Scalar::F64)
    }

    pub(super) fn to_f32(self) -> Number<'c> {
        self.convert("fptrunc", Scalar::F32)
    }

    /// The integer that a small integral number is, or 0 and 1 of a condition.
    pub(super) fn to_i64(self) -> Number<'c> {
        self.convert(if self.ty == Scalar::I1 { "zext" } else { "fptosi" }, Scalar::I64)
    }

    /// The polynomial with these coefficients, highest power first, by Horner's rule.
    pub(super) fn polynomial(self, coefficients: &[f64]) -> Number<'c> {
        let first = coefficients[0].beside(self);
        coefficients[1..].iter().fold(first, |sum, &next| sum.fma(self, next))
    }

    /// `2^self` as a double of an integer in -1022..=1023.
    pub(super) fn power_of_two(self) -> Number<'c> {
        ((self + 1023) << 52).as_float()
    }

    /// `self * 2^n` of an integer in -2044..=2046, rounded once where `self` is near 1.
    pub(super) fn scaled(self, n: Number<'c>) -> Number<'c> {
        let half = n >> 1;
        self * half.power_of_two() * (n - half).power_of_two()
    }
}
