//! Reads a node's arguments by name as the type that an operator wants, or reports operator and argument.

use crate::error::OpError;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Device, MemoryFormat, Node, TensorType, Type, Value, ValueData};
use litz_ir::ids::Table as IdTable;
use litz_ir::schema::{BaseType, OpSchema};
use litz_sym::Expr;

/// The arguments of one node. An argument that the operator's schema lacks reads as not given, so that overloads
/// can share one function.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    /// The node.
    pub node: &'a Node,
    schema: &'a OpSchema,
    values: &'a IdTable<Value, ValueData>,
}

/// A tensor argument: the value and its type.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// The value.
    pub value: Value,
    /// Its type.
    pub ty: &'a TensorType,
}

/// A number given where the operator takes a number or, PyTorch being lenient, a tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(Expr),
    /// A float.
    Float(f64),
    /// A complex number, by its parts. Only rules for complex numbers take it.
    Complex(f64, f64),
}

/// An operand of a pointwise operator.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(Tensor<'a>),
    /// A Python number.
    Number(Number),
    /// A Python number that is known at run time only: it lies in memory.
    Late(Value, Kind),
}

/// A kind of Python numbers that are known at run time only; integers are symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A truth value.
    Bool,
    /// A float.
    Float,
}

impl Kind {
    /// The type that such a number counts as among operands: bool, and the default float.
    pub fn dtype(self) -> Dtype {
        match self {
            Kind::Bool => Dtype::Bool,
            Kind::Float => Dtype::F32,
        }
    }

    /// That of a value.
    pub fn of(ty: &Type) -> Option<Kind> {
        match ty {
            Type::Float => Some(Kind::Float),
            Type::Bool => Some(Kind::Bool),
            Type::Tensor(_) | Type::Int(_) => None,
        }
    }
}

/// `Scalar` arguments that are operands of their own: they take part in type promotion and are converted to the
/// common type. Every other `Scalar` argument only shapes the function.
const OPERAND_SCALARS: [&str; 7] = ["self", "other", "exponent", "min", "max", "x", "n"];
/// The element types of tensors of positions.
pub const POSITIONS: &[Dtype] = &[Dtype::I64, Dtype::I32];
/// Tensor arguments that choose: bool, without part in promotion.
const CONDITIONS: [&str; 2] = ["condition", "mask"];

static ABSENT: Arg = Arg::None;

impl<'a> Args<'a> {
    /// The arguments of `node`, whose operator has `schema`.
    pub fn new(node: &'a Node, schema: &'a OpSchema, values: &'a IdTable<Value, ValueData>) -> Args<'a> {
        Args { node, schema, values }
    }

    /// The operator's name.
    pub fn op(&self) -> &'a str {
        self.node.op.as_str()
    }

    /// The argument as it is; its default where the node has fewer arguments than the schema.
    pub fn get(&self, name: &str) -> &'a Arg {
        let Some(at) = self.schema.position(name) else { return &ABSENT };
        self.node.args.get(at).or(self.schema.args[at].default.as_ref()).unwrap_or(&ABSENT)
    }

    /// Whether the argument was given.
    pub fn has(&self, name: &str) -> bool {
        !matches!(self.get(name), Arg::None)
    }

    /// Every argument without a default has a value, unless it may be none.
    ///
    /// # Errors
    /// The first one that has none.
    pub fn given(&self) -> Result<(), OpError> {
        for (arg, found) in self.schema.args.iter().zip(&self.node.args) {
            let may_be_none = arg.ty.optional || matches!(arg.default, Some(Arg::None));
            if matches!(found, Arg::None) && !may_be_none {
                return Err(self.bad(&arg.name, "a value"));
            }
        }
        Ok(())
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'a>, OpError> {
        self.to_tensor(self.get(name)).ok_or_else(|| self.bad(name, "a tensor"))
    }

    /// A tensor that may be left out.
    pub fn opt_tensor(&self, name: &str) -> Result<Option<Tensor<'a>>, OpError> {
        if self.has(name) { self.tensor(name).map(Some) } else { Ok(None) }
    }

    /// Requires a tensor, if it is given, to be of one of these element types.
    pub fn of_types(&self, name: &str, allowed: &[Dtype]) -> Result<(), OpError> {
        match self.opt_tensor(name)? {
            Some(t) if !allowed.contains(&t.ty.dtype) => {
                let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
                let allowed = allowed.join(" or ");
                Err(self.invalid(format!("argument `{name}`: expected {allowed}, found {}", t.ty.dtype)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Requires the tensors to be of one element type.
    pub fn of_one_type(&self, names: &[&str]) -> Result<(), OpError> {
        let types = names.iter().map(|name| Ok(self.tensor(name)?.ty.dtype));
        let types = types.collect::<Result<Vec<Dtype>, OpError>>()?;
        if types.iter().all(|&dtype| dtype == types[0]) {
            return Ok(());
        }
        Err(self.invalid(format!("expected operands of one element type, found {types:?}")))
    }

    /// Every tensor that is given, those in lists included.
    pub fn all_tensors(&self) -> Vec<Tensor<'a>> {
        let mut tensors = Vec::new();
        for arg in &self.node.args {
            arg.each_value(&mut |value| tensors.extend(self.to_tensor(&Arg::Value(value))));
        }
        tensors
    }

    /// A list of tensors.
    pub fn tensors(&self, name: &str) -> Result<Vec<Tensor<'a>>, OpError> {
        let items = self.get(name).as_list().ok_or_else(|| self.bad(name, "a list of tensors"))?;
        items.iter().map(|a| self.to_tensor(a).ok_or_else(|| self.bad(name, "a list of tensors"))).collect()
    }

    /// A list of tensors, some of which may be left out.
    pub fn opt_tensors(&self, name: &str) -> Result<Vec<Option<Tensor<'a>>>, OpError> {
        let items = self.get(name).as_list().ok_or_else(|| self.bad(name, "a list of tensors"))?;
        let read = |a: &'a Arg| match a {
            Arg::None => Ok(None),
            _ => self.to_tensor(a).map(Some).ok_or_else(|| self.bad(name, "a list of tensors")),
        };
        items.iter().map(read).collect()
    }

    /// A symbolic integer.
    pub fn int(&self, name: &str) -> Result<Expr, OpError> {
        self.to_int(self.get(name)).ok_or_else(|| self.bad(name, "an integer"))
    }

    /// A symbolic integer that may be left out.
    pub fn opt_int(&self, name: &str) -> Result<Option<Expr>, OpError> {
        if self.has(name) { self.int(name).map(Some) } else { Ok(None) }
    }

    /// An integer that must be a literal, such as a dimension.
    pub fn literal(&self, name: &str) -> Result<i64, OpError> {
        self.int(name)?.as_int().ok_or_else(|| self.bad(name, "a literal integer"))
    }

    /// A list of symbolic integers; one integer counts as a list of it.
    pub fn ints(&self, name: &str) -> Result<Vec<Expr>, OpError> {
        let arg = self.get(name);
        if let Some(items) = arg.as_list() {
            let read = |a| self.to_int(a).ok_or_else(|| self.bad(name, "a list of integers"));
            return items.iter().map(read).collect();
        }
        self.int(name).map(|e| vec![e])
    }

    /// `n` symbolic integers; a single one stands for all.
    pub fn ints_of(&self, name: &str, n: usize) -> Result<Vec<Expr>, OpError> {
        let items = self.ints(name)?;
        match items.len() {
            1 => Ok(vec![items[0]; n]),
            len if len == n => Ok(items),
            _ => Err(self.bad(name, &format!("{n} integers"))),
        }
    }

    /// `n` literal integers; a single one stands for all.
    pub fn literals_of(&self, name: &str, n: usize) -> Result<Vec<i64>, OpError> {
        let literal = |e: Expr| e.as_int().ok_or_else(|| self.bad(name, "literal integers"));
        self.ints_of(name, n)?.into_iter().map(literal).collect()
    }

    /// A truth value; one that was not given is false.
    pub fn flag(&self, name: &str) -> Result<bool, OpError> {
        match self.get(name) {
            Arg::None => Ok(false),
            Arg::Bool(b) => Ok(*b),
            _ => Err(self.bad(name, "true or false")),
        }
    }

    /// A number as a float literal.
    pub fn float(&self, name: &str) -> Result<f64, OpError> {
        self.opt_float(name)?.ok_or_else(|| self.bad(name, "a number"))
    }

    /// A number as a float literal, which may be left out.
    pub fn opt_float(&self, name: &str) -> Result<Option<f64>, OpError> {
        match self.get(name) {
            Arg::None => Ok(None),
            Arg::Float(f) => Ok(Some(f.0)),
            Arg::Bool(b) => Ok(Some(f64::from(u8::from(*b)))),
            arg => match self.to_int(arg).and_then(Expr::as_int) {
                Some(i) => Ok(Some(i as f64)),
                None => Err(self.bad(name, "a literal number")),
            },
        }
    }

    /// A number.
    pub fn number(&self, name: &str) -> Result<Number, OpError> {
        self.to_number(self.get(name)).ok_or_else(|| self.bad(name, "a number"))
    }

    /// A number that is known at run time only, and its kind.
    pub fn late(&self, name: &str) -> Option<(Value, Kind)> {
        self.to_late(self.get(name))
    }

    /// A string; one that was not given is empty.
    pub fn str(&self, name: &str) -> Result<&'a str, OpError> {
        match self.get(name) {
            Arg::None => Ok(""),
            Arg::Str(s) => Ok(s),
            _ => Err(self.bad(name, "a string")),
        }
    }

    /// An element type, which may be left out.
    pub fn dtype(&self, name: &str) -> Result<Option<Dtype>, OpError> {
        match self.get(name) {
            Arg::None => Ok(None),
            Arg::Dtype(d) => Ok(Some(*d)),
            _ => Err(self.bad(name, "an element type")),
        }
    }

    /// A device, which may be left out.
    pub fn device(&self, name: &str) -> Result<Option<Device>, OpError> {
        match self.get(name) {
            Arg::None => Ok(None),
            Arg::Device(d) => Ok(Some(*d)),
            _ => Err(self.bad(name, "a device")),
        }
    }

    /// A memory format, which may be left out.
    pub fn memory_format(&self, name: &str) -> Result<Option<MemoryFormat>, OpError> {
        match self.get(name) {
            Arg::None => Ok(None),
            Arg::MemoryFormat(m) => Ok(Some(*m)),
            _ => Err(self.bad(name, "a memory format")),
        }
    }

    /// A dimension of a tensor of that rank, negative ones counted from the end. Rank 0 counts as 1.
    pub fn dim(&self, name: &str, rank: usize) -> Result<usize, OpError> {
        let dim = self.literal(name)?;
        wrap_dim(dim, rank).ok_or_else(|| self.bad(name, &format!("a dimension of {rank}")))
    }

    /// Dimensions of a tensor of that rank; all when none are given or, as PyTorch has it, the list is empty.
    pub fn dims_or_all(&self, name: &str, rank: usize) -> Result<Vec<usize>, OpError> {
        let dims = if self.has(name) { self.dims(name, rank)? } else { Vec::new() };
        Ok(if dims.is_empty() { (0..rank).collect() } else { dims })
    }

    /// Dimensions of a tensor of that rank, in the order given.
    pub fn dims(&self, name: &str, rank: usize) -> Result<Vec<usize>, OpError> {
        let mut dims = Vec::new();
        for e in self.ints(name)? {
            let dim = e.as_int().and_then(|d| wrap_dim(d, rank));
            let dim = dim.ok_or_else(|| self.bad(name, &format!("dimensions of {rank}")))?;
            // Both dimensions of a scalar, 0 and -1, name nothing.
            if rank > 0 {
                if dims.contains(&dim) {
                    return Err(self.bad(name, "different dimensions"));
                }
                dims.push(dim);
            }
        }
        Ok(dims)
    }

    /// The operands of a pointwise operator in order; those not given are left out.
    pub fn operands(&self) -> Result<Vec<Operand<'a>>, OpError> {
        let mut operands = Vec::new();
        for (slot, arg) in self.schema.args.iter().zip(&self.node.args) {
            let name = slot.name.as_str();
            let tensor = slot.ty.base == BaseType::Tensor && !CONDITIONS.contains(&name);
            // What a mask lets in is converted to the type of the other elements; a number that is known is a literal there.
            let is_let_in = name == "value" && self.has("mask") && self.late(name).is_some();
            let scalar = slot.ty.base == BaseType::Scalar && (OPERAND_SCALARS.contains(&name) || is_let_in);
            if !(tensor || scalar) || matches!(arg, Arg::None) {
                continue;
            }
            let operand = match (self.to_tensor(arg), self.to_late(arg)) {
                (Some(tensor), _) => Operand::Tensor(tensor),
                (None, Some((value, kind))) => Operand::Late(value, kind),
                (None, None) => Operand::Number(
                    self.to_number(arg).ok_or_else(|| self.bad(name, "a tensor or a number"))?,
                ),
            };
            operands.push(operand);
        }
        Ok(operands)
    }

    /// The condition of a pointwise operator, when it has one.
    pub fn condition(&self) -> Result<Option<Tensor<'a>>, OpError> {
        let slot =
            self.schema.args.iter().find(|a| a.ty.base == BaseType::Tensor && CONDITIONS.contains(&&*a.name));
        let Some(slot) = slot else { return Ok(None) };
        // Bytes were truth values before there were any, and still choose for `where`.
        let allowed = if slot.name == "condition" { &[Dtype::Bool, Dtype::U8][..] } else { &[Dtype::Bool] };
        self.of_types(&slot.name, allowed)?;
        self.tensor(&slot.name).map(Some)
    }

    /// The type of the `i`-th result, when something uses it and it is a tensor.
    pub fn result(&self, i: usize) -> Option<&'a TensorType> {
        let value = self.node.outputs.get(i).copied().flatten()?;
        tensor_type(&self.values[value].ty)
    }

    /// The type of a value.
    pub fn type_of(&self, value: Value) -> &'a Type {
        &self.values[value].ty
    }

    /// The type of the `i`-th result, when something uses it.
    pub fn stated(&self, i: usize) -> Option<&'a Type> {
        let value = self.node.outputs.get(i).copied().flatten()?;
        self.values.get(value).map(|data| &data.ty)
    }

    /// Requires the node to have no more results than something gives.
    pub fn at_most(&self, given: usize) -> Result<(), OpError> {
        match self.node.outputs.len() {
            stated if stated > given => {
                Err(self.invalid(format!("expected {given} results, found {stated}")))
            }
            _ => Ok(()),
        }
    }

    /// An error: the argument is not what the operator takes.
    pub fn bad(&self, name: &str, expected: &str) -> OpError {
        if self.late(name).is_some() {
            return self.unsupported(&format!("`{name}` that is known at run time only"));
        }
        OpError::new(
            "bad-argument",
            format!("{}: argument `{name}`: expected {expected}, found {:?}", self.op(), self.get(name)),
        )
    }

    /// An error: the operator is known, this use of it is not supported.
    pub fn unsupported(&self, what: &str) -> OpError {
        OpError::new("unsupported", format!("{}: {what} is not supported", self.op()))
    }

    /// An error: PyTorch rejects this too.
    pub fn invalid(&self, what: impl std::fmt::Display) -> OpError {
        OpError::new("invalid-operator", format!("{}: {what}", self.op()))
    }

    fn to_tensor(self, arg: &Arg) -> Option<Tensor<'a>> {
        let value = arg.as_value()?;
        tensor_type(&self.values.get(value)?.ty).map(|ty| Tensor { value, ty })
    }

    fn to_late(self, arg: &Arg) -> Option<(Value, Kind)> {
        let value = arg.as_value()?;
        Some((value, Kind::of(&self.values.get(value)?.ty)?))
    }

    fn to_int(self, arg: &Arg) -> Option<Expr> {
        match arg {
            Arg::Int(e) => Some(*e),
            Arg::Value(v) => match self.values.get(*v)?.ty {
                Type::Int(e) => Some(e),
                Type::Tensor(_) | Type::Float | Type::Bool => None,
            },
            _ => None,
        }
    }

    fn to_number(self, arg: &Arg) -> Option<Number> {
        match arg {
            Arg::Bool(b) => Some(Number::Bool(*b)),
            Arg::Float(f) => Some(Number::Float(f.0)),
            Arg::Complex(re, im) => Some(Number::Complex(re.0, im.0)),
            _ => self.to_int(arg).map(Number::Int),
        }
    }
}

fn tensor_type(ty: &Type) -> Option<&TensorType> {
    match ty {
        Type::Tensor(t) => Some(t),
        Type::Int(_) | Type::Float | Type::Bool => None,
    }
}

/// `dim` counted from the front, or `None` when out of range. Rank 0 counts as 1.
pub fn wrap_dim(dim: i64, rank: usize) -> Option<usize> {
    let rank = rank.max(1) as i64;
    let dim = if dim < 0 { dim + rank } else { dim };
    (0..rank).contains(&dim).then_some(dim as usize)
}
