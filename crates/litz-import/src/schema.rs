//! Declares the JSON of a program as typed structs: PyTorch's serialization schema, version 8.20.
//!
//! Field names and tags are the schema's own. Unknown fields are ignored and missing ones take the schema's default, so
//! that every 8.x file reads; an unknown union tag is an error. Strings borrow from the JSON where it has no escapes.
//! Deep nesting is bounded by serde_json's recursion limit.

#![allow(missing_docs, reason = "fields and tags are named by PyTorch's schema")]

mod codes;

pub use codes::{Layout, MemoryFormatCode, ScalarType};

use crate::error::ImportError;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The major schema version that is read.
pub const MAJOR: i64 = 8;

/// Reads a program.
///
/// # Errors
/// When `text` (the entry `path`, named in errors) is not JSON of this schema, or of another major version.
pub fn parse_program<'a>(path: &str, text: &'a str) -> Result<ExportedProgram<'a>, ImportError> {
    #[derive(Deserialize)]
    struct Versioned {
        schema_version: SchemaVersion,
    }
    let program = serde_json::from_str::<ExportedProgram>(text);
    // A later major version may fail to parse for any reason, so the version is looked at first.
    let version = match &program {
        Ok(program) => Some(program.schema_version),
        Err(_) => serde_json::from_str::<Versioned>(text).ok().map(|v| v.schema_version),
    };
    if let Some(SchemaVersion { major, minor }) = version.filter(|v| v.major != MAJOR) {
        return Err(ImportError::SchemaVersion { expected: MAJOR, major, minor });
    }
    program.map_err(|error| ImportError::json(path, &error))
}

/// Reads a table of weights or constants.
///
/// # Errors
/// When `text` (the entry `path`, named in errors) is not JSON of this schema.
pub fn parse_payloads<'a>(path: &str, text: &'a str) -> Result<PayloadConfig<'a>, ImportError> {
    serde_json::from_str(text).map_err(|error| ImportError::json(path, &error))
}

/// A string, borrowed from the JSON unless it has escapes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A float; the non-finite ones are the strings `Infinity`, `-Infinity` and `NaN`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Number(pub f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number, \"Infinity\", \"-Infinity\" or \"NaN\"")
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Number, E> {
                Ok(Number(value))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Number, E> {
                match value {
                    "Infinity" => Ok(Number(f64::INFINITY)),
                    "-Infinity" => Ok(Number(f64::NEG_INFINITY)),
                    "NaN" => Ok(Number(f64::NAN)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(NumberVisitor)
    }
}

/// A whole program.
#[derive(Clone, Debug, Deserialize)]
pub struct ExportedProgram<'a> {
    #[serde(borrow)]
    pub graph_module: GraphModule<'a>,
    #[serde(default)]
    pub range_constraints: BTreeMap<Text<'a>, RangeConstraint>,
    pub schema_version: SchemaVersion,
    #[serde(default)]
    pub verifiers: Vec<Text<'a>>,
    #[serde(default)]
    pub torch_version: Text<'a>,
    #[serde(default)]
    pub guards_code: Vec<Text<'a>>,
}

/// Version of the format.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct SchemaVersion {
    pub major: i64,
    pub minor: i64,
}

/// Inclusive bounds of an expression; `None` is unbounded.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct RangeConstraint {
    #[serde(default)]
    pub min_val: Option<i64>,
    #[serde(default)]
    pub max_val: Option<i64>,
}

/// The graph with its interface.
#[derive(Clone, Debug, Deserialize)]
pub struct GraphModule<'a> {
    #[serde(borrow)]
    pub graph: Graph<'a>,
    pub signature: GraphSignature<'a>,
    #[serde(default)]
    pub module_call_graph: Vec<ModuleCallEntry<'a>>,
    #[serde(default)]
    pub treespec_namedtuple_fields: HashMap<Text<'a>, NamedTupleDef<'a>>,
}

/// Field names of a named tuple.
#[derive(Clone, Debug, Deserialize)]
pub struct NamedTupleDef<'a> {
    #[serde(borrow)]
    pub field_names: Vec<Text<'a>>,
}

/// Nodes in a valid order, and the types of all values by name.
#[derive(Clone, Debug, Deserialize)]
pub struct Graph<'a> {
    #[serde(borrow)]
    pub inputs: Vec<Argument<'a>>,
    pub outputs: Vec<Argument<'a>>,
    pub nodes: Vec<Node<'a>>,
    pub tensor_values: HashMap<Text<'a>, TensorMeta<'a>>,
    pub sym_int_values: HashMap<Text<'a>, SymInt<'a>>,
    pub sym_bool_values: HashMap<Text<'a>, SymBool<'a>>,
    #[serde(default)]
    pub is_single_tensor_return: bool,
    #[serde(default)]
    pub custom_obj_values: HashMap<Text<'a>, CustomObjArgument<'a>>,
    #[serde(default)]
    pub sym_float_values: HashMap<Text<'a>, SymFloat<'a>>,
}

/// One operator application.
#[derive(Clone, Debug, Deserialize)]
pub struct Node<'a> {
    #[serde(borrow)]
    pub target: Text<'a>,
    pub inputs: Vec<NamedArgument<'a>>,
    pub outputs: Vec<Argument<'a>>,
    #[serde(default)]
    pub metadata: NodeMetadata<'a>,
    #[serde(default)]
    pub is_hop_single_tensor_return: Option<bool>,
}

/// The part of a node's metadata that diagnostics use.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeMetadata<'a> {
    #[serde(borrow, default)]
    pub stack_trace: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub nn_module_stack: Option<Text<'a>>,
}

/// An argument with the name the operator's schema gives it; empty for higher-order operators.
#[derive(Clone, Debug, Deserialize)]
pub struct NamedArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub arg: Argument<'a>,
}

/// Type of a tensor. Sizes, strides and offset count elements.
#[derive(Clone, Debug, Deserialize)]
pub struct TensorMeta<'a> {
    pub dtype: ScalarType,
    #[serde(borrow)]
    pub sizes: Vec<SymInt<'a>>,
    #[serde(default)]
    pub requires_grad: bool,
    pub device: Device<'a>,
    pub strides: Vec<SymInt<'a>>,
    pub storage_offset: SymInt<'a>,
    pub layout: Layout,
}

/// A device such as `cuda`, 0.
#[derive(Clone, Debug, Deserialize)]
pub struct Device<'a> {
    #[serde(borrow)]
    pub r#type: Text<'a>,
    #[serde(default)]
    pub index: Option<i64>,
}

/// An expression as `sympy.srepr` prints it.
#[derive(Clone, Debug, Deserialize)]
pub struct SymExpr<'a> {
    #[serde(borrow)]
    pub expr_str: Text<'a>,
    #[serde(default)]
    pub hint: Option<SymExprHint>,
}

/// Reference to a tensor.
#[derive(Clone, Debug, Deserialize)]
pub struct TensorArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
}

/// Reference to a token.
#[derive(Clone, Debug, Deserialize)]
pub struct TokenArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
}

/// A complex number.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct ComplexValue {
    pub real: Number,
    pub imag: Number,
}

/// A subgraph, written out in place.
#[derive(Clone, Debug, Deserialize)]
pub struct GraphArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub graph: Box<Graph<'a>>,
}

/// Reference to an object of a custom class.
#[derive(Clone, Debug, Deserialize)]
pub struct CustomObjArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub class_fqn: Text<'a>,
}

/// What an expression was when the program was traced.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub enum SymExprHint {
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_bool")]
    Bool(bool),
    #[serde(rename = "as_float")]
    Float(Number),
}

/// An integer, maybe symbolic.
#[derive(Clone, Debug, Deserialize)]
pub enum SymInt<'a> {
    #[serde(rename = "as_expr", borrow)]
    Expr(SymExpr<'a>),
    #[serde(rename = "as_int")]
    Int(i64),
}

/// A float, maybe symbolic.
#[derive(Clone, Debug, Deserialize)]
pub enum SymFloat<'a> {
    #[serde(rename = "as_expr", borrow)]
    Expr(SymExpr<'a>),
    #[serde(rename = "as_float")]
    Float(Number),
}

/// A truth value, maybe symbolic.
#[derive(Clone, Debug, Deserialize)]
pub enum SymBool<'a> {
    #[serde(rename = "as_expr", borrow)]
    Expr(SymExpr<'a>),
    #[serde(rename = "as_bool")]
    Bool(bool),
}

/// An integer operand.
#[derive(Clone, Debug, Deserialize)]
pub enum SymIntArgument<'a> {
    #[serde(rename = "as_name", borrow)]
    Name(Text<'a>),
    #[serde(rename = "as_int")]
    Int(i64),
}

/// A float operand.
#[derive(Clone, Debug, Deserialize)]
pub enum SymFloatArgument<'a> {
    #[serde(rename = "as_name", borrow)]
    Name(Text<'a>),
    #[serde(rename = "as_float")]
    Float(Number),
}

/// A truth value operand.
#[derive(Clone, Debug, Deserialize)]
pub enum SymBoolArgument<'a> {
    #[serde(rename = "as_name", borrow)]
    Name(Text<'a>),
    #[serde(rename = "as_bool")]
    Bool(bool),
}

/// A tensor or nothing.
#[derive(Clone, Debug, Deserialize)]
pub enum OptionalTensorArgument<'a> {
    #[serde(rename = "as_tensor", borrow)]
    Tensor(TensorArgument<'a>),
    #[serde(rename = "as_none")]
    None(bool),
}

/// Any operand or result.
#[derive(Clone, Debug, Deserialize)]
pub enum Argument<'a> {
    #[serde(rename = "as_none")]
    None(bool),
    #[serde(rename = "as_tensor", borrow)]
    Tensor(TensorArgument<'a>),
    #[serde(rename = "as_tensors")]
    Tensors(Vec<TensorArgument<'a>>),
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_ints")]
    Ints(Vec<i64>),
    #[serde(rename = "as_float")]
    Float(Number),
    #[serde(rename = "as_floats")]
    Floats(Vec<Number>),
    #[serde(rename = "as_string")]
    String(Text<'a>),
    #[serde(rename = "as_strings")]
    Strings(Vec<Text<'a>>),
    #[serde(rename = "as_bool")]
    Bool(bool),
    #[serde(rename = "as_bools")]
    Bools(Vec<bool>),
    #[serde(rename = "as_sym_int")]
    SymInt(SymIntArgument<'a>),
    #[serde(rename = "as_sym_ints")]
    SymInts(Vec<SymIntArgument<'a>>),
    #[serde(rename = "as_sym_float")]
    SymFloat(SymFloatArgument<'a>),
    #[serde(rename = "as_sym_floats")]
    SymFloats(Vec<SymFloatArgument<'a>>),
    #[serde(rename = "as_sym_bool")]
    SymBool(SymBoolArgument<'a>),
    #[serde(rename = "as_sym_bools")]
    SymBools(Vec<SymBoolArgument<'a>>),
    #[serde(rename = "as_scalar_type")]
    ScalarType(ScalarType),
    #[serde(rename = "as_memory_format")]
    MemoryFormat(MemoryFormatCode),
    #[serde(rename = "as_layout")]
    Layout(Layout),
    #[serde(rename = "as_device")]
    Device(Device<'a>),
    #[serde(rename = "as_graph")]
    Graph(GraphArgument<'a>),
    #[serde(rename = "as_optional_tensor")]
    OptionalTensor(OptionalTensorArgument<'a>),
    #[serde(rename = "as_optional_tensors")]
    OptionalTensors(Vec<OptionalTensorArgument<'a>>),
    #[serde(rename = "as_custom_obj")]
    CustomObj(CustomObjArgument<'a>),
    #[serde(rename = "as_operator")]
    Operator(Text<'a>),
    #[serde(rename = "as_complex")]
    Complex(ComplexValue),
    #[serde(rename = "as_int_lists")]
    IntLists(Vec<Vec<i64>>),
    #[serde(rename = "as_float_lists")]
    FloatLists(Vec<Vec<Number>>),
    #[serde(rename = "as_nested_tensors")]
    NestedTensors(Vec<Vec<TensorArgument<'a>>>),
    #[serde(rename = "as_string_to_argument")]
    StringToArgument(BTreeMap<Text<'a>, Argument<'a>>),
}

/// What the graph's inputs and outputs mean, pairwise.
#[derive(Clone, Debug, Deserialize)]
pub struct GraphSignature<'a> {
    #[serde(borrow)]
    pub input_specs: Vec<InputSpec<'a>>,
    pub output_specs: Vec<OutputSpec<'a>>,
}

/// What a graph input is.
#[derive(Clone, Debug, Deserialize)]
pub enum InputSpec<'a> {
    #[serde(rename = "user_input", borrow)]
    UserInput(UserInput<'a>),
    #[serde(rename = "parameter")]
    Parameter(ParameterInput<'a>),
    #[serde(rename = "buffer")]
    Buffer(BufferInput<'a>),
    #[serde(rename = "tensor_constant")]
    TensorConstant(TensorConstantInput<'a>),
    #[serde(rename = "custom_obj")]
    CustomObj(CustomObjInput<'a>),
    #[serde(rename = "constant_input")]
    ConstantInput(ConstantInput<'a>),
    #[serde(rename = "token")]
    Token(TokenSpec<'a>),
}

/// An argument of the caller.
#[derive(Clone, Debug, Deserialize)]
pub struct UserInput<'a> {
    #[serde(borrow)]
    pub arg: Argument<'a>,
}

/// A parameter, by its name in the state dict.
#[derive(Clone, Debug, Deserialize)]
pub struct ParameterInput<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    pub parameter_name: Text<'a>,
}

/// A buffer; one that is not persistent is stored with the constants.
#[derive(Clone, Debug, Deserialize)]
pub struct BufferInput<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    pub buffer_name: Text<'a>,
    pub persistent: bool,
}

/// A tensor attribute or literal.
#[derive(Clone, Debug, Deserialize)]
pub struct TensorConstantInput<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    pub tensor_constant_name: Text<'a>,
}

/// An object of a custom class.
#[derive(Clone, Debug, Deserialize)]
pub struct CustomObjInput<'a> {
    #[serde(borrow)]
    pub arg: CustomObjArgument<'a>,
    pub custom_obj_name: Text<'a>,
}

/// An argument of the caller whose value was fixed when the program was traced.
#[derive(Clone, Debug, Deserialize)]
pub struct ConstantInput<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub value: ConstantValue<'a>,
}

/// A token that orders effects.
#[derive(Clone, Debug, Deserialize)]
pub struct TokenSpec<'a> {
    #[serde(borrow)]
    pub arg: TokenArgument<'a>,
}

/// A fixed value.
#[derive(Clone, Debug, Deserialize)]
pub enum ConstantValue<'a> {
    #[serde(rename = "as_none")]
    None(bool),
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_float")]
    Float(Number),
    #[serde(rename = "as_string", borrow)]
    String(Text<'a>),
    #[serde(rename = "as_bool")]
    Bool(bool),
}

/// What a graph output is.
#[derive(Clone, Debug, Deserialize)]
pub enum OutputSpec<'a> {
    #[serde(rename = "user_output", borrow)]
    UserOutput(UserInput<'a>),
    #[serde(rename = "loss_output")]
    LossOutput(LossOutput<'a>),
    #[serde(rename = "buffer_mutation")]
    BufferMutation(BufferMutation<'a>),
    #[serde(rename = "parameter_mutation")]
    ParameterMutation(ParameterOutput<'a>),
    #[serde(rename = "user_input_mutation")]
    UserInputMutation(UserInputOutput<'a>),
    #[serde(rename = "token")]
    Token(TokenSpec<'a>),
    #[serde(rename = "gradient_to_parameter")]
    GradientToParameter(ParameterOutput<'a>),
    #[serde(rename = "gradient_to_user_input")]
    GradientToUserInput(UserInputOutput<'a>),
}

/// The loss of a joint graph.
#[derive(Clone, Debug, Deserialize)]
pub struct LossOutput<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
}

/// New contents of a buffer.
#[derive(Clone, Debug, Deserialize)]
pub struct BufferMutation<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    pub buffer_name: Text<'a>,
}

/// New contents, or the gradient, of a parameter.
#[derive(Clone, Debug, Deserialize)]
pub struct ParameterOutput<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    pub parameter_name: Text<'a>,
}

/// New contents, or the gradient, of a user input.
#[derive(Clone, Debug, Deserialize)]
pub struct UserInputOutput<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    pub user_input_name: Text<'a>,
}

/// Call of a module; the first is the whole program's.
#[derive(Clone, Debug, Deserialize)]
pub struct ModuleCallEntry<'a> {
    #[serde(borrow)]
    pub fqn: Text<'a>,
    #[serde(default)]
    pub signature: Option<ModuleCallSignature<'a>>,
}

/// Structure of the arguments and results, as pytree strings.
#[derive(Clone, Debug, Deserialize)]
pub struct ModuleCallSignature<'a> {
    #[serde(borrow)]
    pub in_spec: Text<'a>,
    pub out_spec: Text<'a>,
    #[serde(default)]
    pub forward_arg_names: Option<Vec<Text<'a>>>,
}

/// Weights or constants by name.
#[derive(Clone, Debug, Deserialize)]
pub struct PayloadConfig<'a> {
    #[serde(borrow)]
    pub config: BTreeMap<Text<'a>, PayloadMeta<'a>>,
}

/// Where one weight or constant is; `path_name` is relative to its folder.
#[derive(Clone, Debug, Deserialize)]
pub struct PayloadMeta<'a> {
    #[serde(borrow)]
    pub path_name: Text<'a>,
    #[serde(default)]
    pub is_param: bool,
    #[serde(default)]
    pub use_pickle: bool,
    #[serde(default)]
    pub tensor_meta: Option<TensorMeta<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ImportError> {
        serde_json::from_str(text).map_err(|error| ImportError::json("test", &error))
    }

    #[test]
    fn floats_may_be_strings_and_integers() {
        let text = r#"{"as_floats": ["Infinity", "-Infinity", "NaN", 1e-05, -0.0, 3]}"#;
        let Argument::Floats(found) = parse(text).expect("reads") else { panic!("other tag") };
        let bits: Vec<u64> = found.iter().map(|n| n.0.to_bits()).collect();
        let expected = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-5, -0.0, 3.0];
        assert_eq!(bits, expected.map(f64::to_bits));
        assert!(parse::<Argument>(r#"{"as_float": "inf"}"#).is_err());
    }

    #[test]
    fn an_unknown_tag_is_named() {
        let error = parse::<Argument>(r#"{"as_quaternion": 1}"#).expect_err("unknown tag");
        assert_eq!(error.slug(), "bad-json");
        assert_eq!(error.to_string(), "entry `test`, line 1, column 16: unknown variant `as_quaternion`");
    }

    #[test]
    fn integers_cover_i64_and_no_more() {
        let text = r#"{"as_ints": [9223372036854775807, -9223372036854775808]}"#;
        assert!(matches!(parse(text), Ok(Argument::Ints(v)) if v == [i64::MAX, i64::MIN]));
        assert!(parse::<Argument>(r#"{"as_int": 9223372036854775808}"#).is_err());
    }

    #[test]
    fn strings_borrow_unless_escaped() {
        let both: Vec<Text> = parse(r#"["plain", "a\nb"]"#).expect("reads");
        assert!(matches!(both[0].0, Cow::Borrowed("plain")));
        assert!(matches!(both[1].0, Cow::Owned(ref s) if s == "a\nb"));
    }

    #[test]
    fn another_major_version_is_reported_before_other_errors() {
        let error =
            parse_program("p", r#"{"schema_version": {"major": 9, "minor": 1}}"#).expect_err("version");
        assert_eq!(error, ImportError::SchemaVersion { expected: MAJOR, major: 9, minor: 1 });
        let error =
            parse_program("p", r#"{"schema_version": {"major": 8, "minor": 1}}"#).expect_err("no graph");
        assert_eq!(error.slug(), "bad-json");
    }
}
