//! Parses operator schemas in PyTorch's notation: argument names, types, defaults, aliasing and tags.
//!
//! `aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`
//!
//! PyTorch keeps an operator's tags apart from its schema. Here they follow it:
//! `aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor # nondeterministic_seeded`

use crate::dtype::Dtype;
use crate::graph::{Arg, Device, Float, MemoryFormat, OpDecl};
use crate::scalar::Scalar;
use crate::text::print::commas;
use litz_sym::Expr;
use std::fmt;

/// An operator's interface.
#[derive(Clone, PartialEq, Debug)]
pub struct OpSchema {
    /// `aten.add_.Tensor` (`.default` when the schema names no overload).
    pub name: String,
    /// Arguments in order.
    pub args: Vec<SchemaArg>,
    /// Results in order.
    pub returns: Vec<SchemaReturn>,
    /// What PyTorch says of it besides.
    pub tags: Vec<Tag>,
}

/// What PyTorch says of an operator besides its signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// Its results differ between equal calls, as far as the generator's seed lets them.
    NondeterministicSeeded,
    /// It may return or write to memory of its arguments where the signature does not say so.
    MaybeAliasingOrMutating,
}

/// What an operator does besides giving results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// States what type and layout its first argument has.
    States,
    /// Asserts what its first argument is.
    Asserts,
    /// Anything else, such as writing to its arguments.
    Other,
}

/// What PyTorch's autocast does to the floating operands of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Autocast {
    /// They become the narrow type that the user chose.
    Narrow,
    /// They become f32.
    Full,
    /// They become the widest type among them.
    Widest,
    /// Nothing.
    Leave,
    /// It calls operators of its own, to which autocast does something that no type tells of.
    Hidden,
}

/// One argument.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemaArg {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: ArgType,
    /// Value when not given.
    pub default: Option<Arg>,
    /// Alias set it belongs to.
    pub alias: Option<Alias>,
}

/// One result.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemaReturn {
    /// Its type.
    pub ty: ArgType,
    /// Alias set it belongs to.
    pub alias: Option<Alias>,
}

/// Membership in an alias set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    /// Name of the set: `a` in `Tensor(a!)`.
    pub set: String,
    /// Whether the operator writes through it.
    pub write: bool,
}

/// The type of an argument or result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgType {
    /// Element or scalar type.
    pub base: BaseType,
    /// A list of them.
    pub list: bool,
    /// Elements may be none.
    pub optional_items: bool,
    /// The whole may be none.
    pub optional: bool,
}

/// The element type of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseType {
    /// `Tensor`.
    Tensor,
    /// `int`, `SymInt`.
    Int,
    /// `float`.
    Float,
    /// `bool`.
    Bool,
    /// `Scalar`: a number of any kind.
    Scalar,
    /// `str`.
    Str,
    /// `ScalarType`.
    Dtype,
    /// `Device`.
    Device,
    /// `Layout`.
    Layout,
    /// `MemoryFormat`.
    MemoryFormat,
    /// Anything no model needs: `Generator`, `Storage`, `Any` ...
    Other,
}

/// Why a schema could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaError {
    /// The text at fault.
    pub schema: String,
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schema `{}`: expected {}", self.schema, self.expected)
    }
}

impl std::error::Error for SchemaError {}

impl OpSchema {
    /// Reads one schema.
    ///
    /// # Errors
    /// When `text` is not in PyTorch's notation.
    pub fn parse(text: &str) -> Result<OpSchema, SchemaError> {
        let fail = |expected| SchemaError { schema: text.to_owned(), expected };
        let (signature, tags) = text.split_once(" # ").unwrap_or((text, ""));
        let tags =
            tags.split_whitespace().map(|name| Tag::from_name(name).ok_or_else(|| fail("a known tag")));
        let tags = tags.collect::<Result<_, _>>()?;
        let (qualified, rest) = signature.split_once('(').ok_or_else(|| fail("`(`"))?;
        let (namespace, op) = qualified.split_once("::").ok_or_else(|| fail("`namespace::name`"))?;
        let name = match op.split_once('.') {
            Some((base, overload)) => format!("{namespace}.{base}.{overload}"),
            None => format!("{namespace}.{op}.default"),
        };
        let close = rest.rfind(") -> ").ok_or_else(|| fail("`) -> `"))?;
        OpSchema::of_signature(name, &rest[..close], rest[close + 5..].trim(), tags).map_err(fail)
    }

    /// Reads arguments and results, the latter in brackets or not, of an operator `mylib.foo.default`.
    ///
    /// # Errors
    /// What was expected where they are not in PyTorch's notation.
    pub fn of_signature(
        name: String,
        args: &str,
        returns: &str,
        tags: Vec<Tag>,
    ) -> Result<OpSchema, &'static str> {
        let args = split_top(args)
            .into_iter()
            .filter(|a| *a != "*")
            .map(|a| parse_arg(a).ok_or("`type name=default`"))
            .collect::<Result<_, _>>()?;
        let inner = match returns.strip_prefix('(') {
            Some(r) => r.strip_suffix(')').ok_or("`)` after results")?,
            None => returns,
        };
        let returns = split_top(inner)
            .into_iter()
            .map(|r| {
                let (ty, alias, _) = parse_type(r).ok_or("a result type")?;
                Ok(SchemaReturn { ty, alias })
            })
            .collect::<Result<_, &'static str>>()?;
        Ok(OpSchema { name, args, returns, tags })
    }

    /// Position of the argument of that name.
    pub fn position(&self, arg: &str) -> Option<usize> {
        self.args.iter().position(|a| a.name == arg)
    }

    /// The arguments that the operator writes to, by position.
    pub fn written(&self) -> impl Iterator<Item = usize> {
        let writes = |a: &SchemaArg| a.alias.as_ref().is_some_and(|alias| alias.write);
        self.args.iter().enumerate().filter(move |(_, a)| writes(a)).map(|(at, _)| at)
    }

    /// Whether the operator writes to any argument.
    pub fn is_mutating(&self) -> bool {
        self.written().next().is_some()
    }

    /// Whether results are memory of arguments.
    pub fn is_aliasing(&self) -> bool {
        self.returns.iter().any(|r| r.alias.is_some())
    }

    /// The argument whose memory a result is, if the operator writes to it: of all arguments that one alone is in the result's set.
    pub fn returned(&self, result: usize) -> Option<usize> {
        let result = self.returns.get(result)?;
        let alias = result.alias.as_ref().filter(|alias| alias.write)?;
        let is_in_set = |arg: &SchemaArg| arg.alias.as_ref().is_some_and(|other| other.set == alias.set);
        let mut args = self.args.iter().enumerate().filter(|(_, arg)| is_in_set(arg));
        match (args.next(), args.next()) {
            (Some((at, arg)), None) if arg.alias.as_ref() == Some(alias) && arg.ty == result.ty => Some(at),
            _ => None,
        }
    }

    /// The name of the operator that would do in place what this one does: `mylib.foo_.default` of `mylib.foo.default`.
    pub fn twin_name(&self) -> Option<String> {
        let (base, overload) = self.name.rsplit_once('.')?;
        Some(format!("{base}_.{overload}"))
    }

    /// Whether `twin` does in place what this operator does: it takes the same arguments, and its results are the memory of those that it
    /// writes to. `foo(Tensor x, int n) -> Tensor` has the twin `foo_(Tensor(a!) x, int n) -> Tensor(a!)`.
    pub fn is_twin(&self, twin: &OpSchema) -> bool {
        let is_same = |(own, other): (&SchemaArg, &SchemaArg)| {
            own.alias.is_none()
                && (&own.name, own.ty, &own.default) == (&other.name, other.ty, &other.default)
        };
        let mut returned: Vec<Option<usize>> = (0..twin.returns.len()).map(|at| twin.returned(at)).collect();
        returned.sort_unstable();
        self.twin_name().as_deref() == Some(&*twin.name)
            && self.args.len() == twin.args.len()
            && self.args.iter().zip(&twin.args).all(is_same)
            && self.returns.iter().all(|result| result.alias.is_none() && result.ty.base == BaseType::Tensor)
            && self.returns.iter().map(|result| result.ty).eq(twin.returns.iter().map(|result| result.ty))
            && returned.into_iter().eq(twin.written().map(Some))
            && twin.is_mutating()
            && self.tags.iter().chain(&twin.tags).all(|tag| *tag != Tag::MaybeAliasingOrMutating)
            && self.tags == twin.tags
    }

    /// Whether the operator measures its operands: all it returns is integers. What depends on elements is a
    /// `Scalar` in PyTorch's schemas.
    pub fn is_measure(&self) -> bool {
        let is_int = |r: &SchemaReturn| r.ty.base == BaseType::Int && !r.ty.list;
        !self.returns.is_empty() && self.returns.iter().all(is_int)
    }
}

/// `mylib.foo.default(Tensor x, Tensor(a!) out, int n=1) -> (Tensor, Tensor[])`, without tags. What PyTorch has several names for
/// is printed by one; names of results and marks of arguments by keyword are left out.
impl fmt::Display for OpSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        commas(f, &self.args, |f, arg| {
            write_type(f, arg.ty, arg.alias.as_ref())?;
            write!(f, " {}", arg.name)?;
            match &arg.default {
                Some(default) => {
                    f.write_str("=")?;
                    write_default(f, default)
                }
                None => Ok(()),
            }
        })?;
        f.write_str(") -> ")?;
        if let [one] = &self.returns[..] {
            return write_type(f, one.ty, one.alias.as_ref());
        }
        f.write_str("(")?;
        commas(f, &self.returns, |f, result| write_type(f, result.ty, result.alias.as_ref()))?;
        f.write_str(")")
    }
}

fn write_type(f: &mut fmt::Formatter<'_>, ty: ArgType, alias: Option<&Alias>) -> fmt::Result {
    f.write_str(match ty.base {
        BaseType::Tensor => "Tensor",
        BaseType::Int => "int",
        BaseType::Float => "float",
        BaseType::Bool => "bool",
        BaseType::Scalar => "Scalar",
        BaseType::Str => "str",
        BaseType::Dtype => "ScalarType",
        BaseType::Device => "Device",
        BaseType::Layout => "Layout",
        BaseType::MemoryFormat => "MemoryFormat",
        BaseType::Other => "Any",
    })?;
    if let Some(Alias { set, write }) = alias {
        write!(f, "({set}{})", if *write { "!" } else { "" })?;
    }
    if ty.list {
        f.write_str(if ty.optional_items { "?[]" } else { "[]" })?;
    }
    f.write_str(if ty.optional { "?" } else { "" })
}

/// What no schema has as a default is left out: the declaration does not read back, which its verifier says.
fn write_default(f: &mut fmt::Formatter<'_>, default: &Arg) -> fmt::Result {
    match default {
        Arg::None => f.write_str("None"),
        Arg::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
        Arg::Int(value) => write!(f, "{value}"),
        Arg::Float(value) => write!(f, "{}", Scalar::Float(value.0)),
        Arg::Str(text) => write!(f, "\"{text}\""),
        Arg::Dtype(dtype) => match TYPE_CODES.iter().position(|known| known == dtype) {
            Some(code) => write!(f, "{code}"),
            None => Ok(()),
        },
        Arg::Device(Device::Cpu) => f.write_str("cpu"),
        Arg::Strided => f.write_str("strided"),
        Arg::MemoryFormat(MemoryFormat::Contiguous) => f.write_str("contiguous_format"),
        Arg::List(items) => {
            f.write_str("[")?;
            commas(f, items, write_default)?;
            f.write_str("]")
        }
        Arg::MemoryFormat(
            MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d | MemoryFormat::Preserve,
        )
        | Arg::Device(Device::Cuda(_) | Device::Ref(_))
        | Arg::Value(_)
        | Arg::Complex(..)
        | Arg::Part(_)
        | Arg::Graph(_) => Ok(()),
    }
}

impl Tag {
    /// Every tag.
    pub const ALL: [Tag; 2] = [Tag::NondeterministicSeeded, Tag::MaybeAliasingOrMutating];

    /// What PyTorch calls it.
    pub fn name(self) -> &'static str {
        match self {
            Tag::NondeterministicSeeded => "nondeterministic_seeded",
            Tag::MaybeAliasingOrMutating => "maybe_aliasing_or_mutating",
        }
    }

    /// The tag that PyTorch calls so.
    pub fn from_name(name: &str) -> Option<Tag> {
        Tag::ALL.into_iter().find(|tag| tag.name() == name)
    }
}

/// Splits at commas outside brackets and quotes; trims; drops empty pieces.
fn split_top(text: &str) -> Vec<&str> {
    let (mut pieces, mut depth, mut start, mut quote) = (Vec::new(), 0i32, 0, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth -= 1,
            (None, ',') if depth == 0 => {
                pieces.push(text[start..i].trim());
                start = i + 1;
            }
            (None, _) => {}
        }
    }
    pieces.push(text[start..].trim());
    pieces.retain(|p| !p.is_empty());
    pieces
}

fn parse_arg(text: &str) -> Option<SchemaArg> {
    let (ty, alias, rest) = parse_type(text)?;
    let (name, default) = match rest.split_once('=') {
        Some((name, value)) => (name.trim(), Some(parse_default(value.trim(), ty)?)),
        None => (rest.trim(), None),
    };
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| SchemaArg { name: name.to_owned(), ty, default, alias })
}

/// Reads a type; returns it, its alias mark, and what follows.
fn parse_type(text: &str) -> Option<(ArgType, Option<Alias>, &str)> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let base = match &text[..end] {
        "Tensor" => BaseType::Tensor,
        "int" | "SymInt" => BaseType::Int,
        "float" => BaseType::Float,
        "bool" | "SymBool" => BaseType::Bool,
        "Scalar" | "number" | "complex" => BaseType::Scalar,
        "str" => BaseType::Str,
        "ScalarType" => BaseType::Dtype,
        "Device" => BaseType::Device,
        "Layout" => BaseType::Layout,
        "MemoryFormat" => BaseType::MemoryFormat,
        "" => return None,
        _ => BaseType::Other,
    };
    let mut rest = &text[end..];
    let mut ty = ArgType { base, list: false, optional_items: false, optional: false };
    let mut alias = None;
    loop {
        if rest.starts_with('(') {
            let close = rest.find(')')?;
            let inside = &rest[1..close];
            alias = Some(Alias {
                set: inside.chars().take_while(|c| c.is_alphanumeric()).collect(),
                write: inside.contains('!'),
            });
            rest = &rest[close + 1..];
        } else if rest.starts_with('[') {
            rest = &rest[rest.find(']')? + 1..];
            (ty.list, ty.optional_items, ty.optional) = (true, ty.optional, false);
        } else if let Some(r) = rest.strip_prefix('?') {
            ty.optional = true;
            rest = r;
        } else {
            return Some((ty, alias, rest.trim_start()));
        }
    }
}

/// Element types by the numbers that `c10::ScalarType` gives them, as far as defaults need them.
const TYPE_CODES: [Dtype; 8] =
    [Dtype::U8, Dtype::I8, Dtype::I16, Dtype::I32, Dtype::I64, Dtype::F16, Dtype::F32, Dtype::F64];

fn parse_default(text: &str, ty: ArgType) -> Option<Arg> {
    if let Some(items) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        let item = ArgType { list: false, ..ty };
        return split_top(items)
            .into_iter()
            .map(|i| parse_default(i, item))
            .collect::<Option<_>>()
            .map(Arg::List);
    }
    // Element types print as numbers of PyTorch's own.
    if ty.base == BaseType::Dtype
        && let Ok(code) = text.parse::<usize>()
    {
        return TYPE_CODES.get(code).map(|&dtype| Arg::Dtype(dtype));
    }
    Some(match text {
        "None" => Arg::None,
        "True" => Arg::Bool(true),
        "False" => Arg::Bool(false),
        "contiguous_format" => Arg::MemoryFormat(MemoryFormat::Contiguous),
        "Mean" => Arg::Int(Expr::one()),
        "strided" => Arg::Strided,
        "cpu" => Arg::Device(Device::Cpu),
        "long" => Arg::Dtype(Dtype::I64),
        "float" => Arg::Dtype(Dtype::F32),
        _ => {
            if let Some(quoted) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
                Arg::Str(quoted.to_owned())
            } else if let Some(quoted) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
                Arg::Str(quoted.to_owned())
            } else if ty.base == BaseType::Float {
                Arg::Float(Float(text.parse().ok()?))
            } else if let Ok(i) = text.parse::<i64>() {
                Arg::Int(Expr::int(i))
            } else {
                Arg::Float(Float(text.parse().ok()?))
            }
        }
    })
}

/// An operator that an importer writes where a file says something by other means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// `(self, memory format)`: a copy.
    Copy,
    /// `(self, sizes, strides, offset)`: what lies there in the memory of `self`.
    Strided,
    /// `(self, dimension, start, end, step)`: a range of one dimension.
    Slice,
    /// `(self, type, not blocking, copy)`: a tensor's elements in another type.
    Convert,
}

/// Where an importer looks operators up.
pub trait Schemas {
    /// The schema of `aten.add.Tensor`, or `None` when the operator is not known.
    fn lookup(&self, name: &str) -> Option<&OpSchema>;
    /// What an operator does besides giving results.
    fn effect(&self, name: &str) -> Effect;
    /// What autocast for CPUs does to an operator's operands.
    fn autocast(&self, name: &str) -> Autocast;
    /// The name of an operator that the importer writes.
    fn written(&self, what: Written) -> &'static str;
    /// What somebody else declares of an operator that is not known.
    ///
    /// # Errors
    /// What is wrong with the declaration.
    fn declaration(&self, _name: &str) -> Result<Option<OpDecl>, String> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_aliases_defaults_and_results() {
        let s = OpSchema::parse(
            "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
        );
        let s = s.expect("parses");
        assert_eq!(s.name, "aten.add_.Tensor");
        assert_eq!(s.args.len(), 3);
        assert!(s.is_mutating());
        assert_eq!(s.args[2].default, Some(Arg::Int(Expr::one())));
        assert_eq!(s.returns[0].alias, Some(Alias { set: "a".into(), write: true }));
    }

    #[test]
    fn reads_lists_and_options() {
        let s = OpSchema::parse(
            "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], str pad=\"a,b\") -> (Tensor, Tensor[])",
        )
        .expect("parses");
        assert_eq!(s.name, "aten.conv2d.default");
        assert!(s.args[2].ty.optional && !s.args[2].ty.list);
        assert_eq!(s.args[3].default, Some(Arg::ints([Expr::one(), Expr::one()])));
        assert_eq!(s.args[4].default, Some(Arg::Str("a,b".into())));
        assert!(s.returns[1].ty.list);
        let s =
            OpSchema::parse("aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor").expect("parses");
        assert!(s.args[1].ty.list && s.args[1].ty.optional_items && !s.args[1].ty.optional);
    }

    #[test]
    fn reads_element_types_by_number() {
        let s = OpSchema::parse("aten::tril_indices(int row, *, ScalarType? dtype=4, int n=4) -> Tensor")
            .expect("parses");
        assert_eq!(s.args[1].default, Some(Arg::Dtype(Dtype::I64)));
        assert_eq!(s.args[2].default, Some(Arg::Int(Expr::int(4))));
    }

    #[test]
    fn reads_tags() {
        let s = OpSchema::parse("aten::rand(SymInt[] size) -> Tensor # nondeterministic_seeded");
        let s = s.expect("parses");
        assert_eq!((s.tags, s.returns.len()), (vec![Tag::NondeterministicSeeded], 1));
        assert!(OpSchema::parse("aten::rand(SymInt[] size) -> Tensor # lucky").is_err());
    }

    #[test]
    fn integers_measure_operands_and_scalars_are_elements() {
        let is_measure = |text: &str| OpSchema::parse(text).expect("parses").is_measure();
        assert!(is_measure("aten::sym_size.int(Tensor self, int dim) -> SymInt"));
        assert!(!is_measure("aten::_local_scalar_dense(Tensor self) -> Scalar"));
        assert!(!is_measure("aten::size(Tensor self) -> int[]"));
        assert!(!is_measure("aten::sym_constrain_range(Scalar size, *, int? min=None, int? max=None) -> ()"));
    }

    #[test]
    fn twins_differ_by_marks_of_writes_alone() {
        let parse = |text: &str| OpSchema::parse(&format!("m::{text}")).expect("parses");
        let is_twin = |own: &str, twin: &str| parse(own).is_twin(&parse(twin));
        assert!(is_twin("f(Tensor x, int n=1) -> Tensor", "f_(Tensor(a!) x, int n=1) -> Tensor(a!)"));
        assert!(is_twin("f.o(Tensor[] xs) -> Tensor[]", "f_.o(Tensor(a!)[] xs) -> Tensor(a!)[]"));
        let swapped = "f_(Tensor(a!) x, Tensor(b!) y) -> (Tensor(b!), Tensor(a!))";
        assert!(is_twin("f(Tensor x, Tensor y) -> (Tensor, Tensor)", swapped));
        for twin in [
            "g_(Tensor(a!) x) -> Tensor(a!)",
            "f_.o(Tensor(a!) x) -> Tensor(a!)",
            "f_(Tensor(a!) y) -> Tensor(a!)",
            "f_(Tensor(a!) x, int n=1) -> Tensor(a!)",
            "f_(Tensor(a!) x) -> ()",
            "f_(Tensor(a!) x) -> Tensor",
            "f_(Tensor(a) x) -> Tensor(a)",
            "f_(Tensor(a!) x) -> Tensor(b!)",
            "f_(Tensor(a!)? x) -> Tensor(a!)?",
            "f_(Tensor(a!) x) -> Tensor(a!) # nondeterministic_seeded",
        ] {
            assert!(!is_twin("f(Tensor x) -> Tensor", twin), "{twin}");
        }
        assert!(!is_twin("f(Tensor x, Tensor y) -> Tensor", "f_(Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)"));
        let shared = "f_(Tensor(a!) x, Tensor(a!) y) -> Tensor(a!)";
        assert!(!is_twin("f(Tensor x, Tensor y) -> Tensor", shared));
        assert!(!is_twin("f(Tensor(a) x) -> Tensor(a)", "f_(Tensor(a!) x) -> Tensor(a!)"));
    }

    #[test]
    fn rejects_what_is_no_schema() {
        assert!(OpSchema::parse("aten::add").is_err());
        assert!(OpSchema::parse("add(Tensor a) -> Tensor").is_err());
    }
}
