//! Reads the nodes of a program, or of one of its subgraphs, as nodes of the graph IR.

use crate::cx::Cx;
use crate::error::ImportError;
use crate::hops;
use crate::schema::{
    self, Argument, NamedArgument, OptionalTensorArgument, SymBool, SymBoolArgument, SymFloat,
    SymFloatArgument, SymIntArgument,
};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Device, Float, Form, Graph, Node, OpName, Origin, Type, Value};
use litz_ir::schema::{ArgType, BaseType, Effect, OpSchema, SchemaArg, Schemas};
use litz_sym::{Clause, Expr, Known, Rel};
use std::collections::HashMap;
use std::sync::Arc;

/// What the names of functions of Python's numbers begin with.
const NUMBER_FUNCTIONS: [&str; 5] = ["_operator.", "builtins.", "math.", "torch.sym_", "torch._sym_"];
/// Most conditions that one is made of by way of others.
const MAX_DEPTH: usize = 64;

/// The names of one graph of the file.
pub(crate) struct Scope<'a> {
    pub file: &'a schema::Graph<'a>,
    /// What each name stands for. Symbolic integers are absent: the file says what expression each is.
    bound: HashMap<&'a str, Arg>,
    /// Nodes that compute truth values of sizes.
    skipped: HashMap<&'a str, &'a schema::Node<'a>>,
}

/// A graph in the making.
pub(crate) struct Body {
    pub graph: Graph,
    values: Names,
    pub subgraphs: Names,
    /// Of how many conditions one is being made of another.
    depth: usize,
    /// The narrow type of autocast for CPUs, where nodes were traced under it.
    pub autocast: Option<Dtype>,
}

/// Names in use, each with the last number appended to make others.
#[derive(Default)]
pub(crate) struct Names(HashMap<String, u32>);

impl Names {
    /// `name`, or `name_1` and so on where it is taken.
    pub fn fresh(&mut self, name: &str) -> String {
        let mut candidate = name.to_owned();
        while self.0.contains_key(&candidate) {
            let number = self.0.entry(name.to_owned()).or_default();
            *number += 1;
            candidate = format!("{name}_{number}");
        }
        self.0.insert(candidate.clone(), 0);
        candidate
    }
}

impl<'a> Scope<'a> {
    pub fn new(file: &'a schema::Graph<'a>) -> Scope<'a> {
        Scope { file, bound: HashMap::new(), skipped: HashMap::new() }
    }

    /// What a name stands for.
    pub fn bound(&self, name: &str) -> Result<&Arg, ImportError> {
        self.bound
            .get(name)
            .ok_or_else(|| ImportError::program(format!("expected a value, found undefined `{name}`")))
    }

    pub fn bind(&mut self, name: &'a str, arg: Arg) -> Result<(), ImportError> {
        match self.bound.insert(name, arg) {
            None => Ok(()),
            Some(_) => Err(ImportError::program(format!("expected one value `{name}`, found two"))),
        }
    }
}

impl Body {
    pub fn new(name: &str, device: Device) -> Body {
        Body {
            graph: Graph::new(name, device),
            values: Names::default(),
            subgraphs: Names::default(),
            depth: 0,
            autocast: None,
        }
    }

    /// Converts all nodes.
    pub fn nodes<'a>(&mut self, cx: &mut Cx<'a>, scope: &mut Scope<'a>) -> Result<(), ImportError> {
        let file = scope.file;
        file.nodes.iter().try_for_each(|node| self.node(cx, scope, node))
    }

    fn node<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        node: &'a schema::Node<'a>,
    ) -> Result<(), ImportError> {
        if let Some(hop) = node.target.strip_prefix("torch.ops.higher_order.") {
            return hops::convert(self, cx, scope, node, hop);
        }
        if is_measure(cx.schemas, node) {
            return Ok(());
        }
        if NUMBER_FUNCTIONS.iter().any(|of| node.target.starts_with(of)) {
            return self.number(cx, scope, node);
        }
        let op = operator_name(node);
        match cx.schemas.effect(op) {
            Effect::Asserts if self.assert_sizes(cx, scope, node)? => Ok(()),
            Effect::States => {
                self.operator(cx, scope, node, op)?;
                self.expect_layout(cx)
            }
            Effect::None | Effect::Asserts | Effect::Other => self.operator(cx, scope, node, op),
        }
    }

    /// A function of Python's numbers. Where the file says what expression of sizes the result is, the node itself is not needed:
    /// truth values that nothing decides are computed where something uses them.
    fn number<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        node: &'a schema::Node<'a>,
    ) -> Result<(), ImportError> {
        let [output] = node.outputs.as_slice() else {
            return Err(ImportError::program(format!("{}: expected one result", node.target)));
        };
        let is_known = match output {
            Argument::Int(_) | Argument::Float(_) | Argument::Bool(_) => true,
            Argument::SymInt(SymIntArgument::Name(name)) => {
                let Some(value) = scope.file.sym_int_values.get(name) else {
                    return Err(ImportError::program(format!("{name}: expected an integer, found none")));
                };
                match cx.int(&mut self.graph.facts, value) {
                    Err(ImportError::UnsupportedExpression { .. }) => {
                        cx.late_int(&mut self.graph.facts, name, value)?;
                        false
                    }
                    known => known.map(|_| true)?,
                }
            }
            Argument::SymFloat(SymFloatArgument::Name(name)) => {
                matches!(scope.file.sym_float_values.get(name), Some(SymFloat::Float(_)))
            }
            Argument::SymBool(SymBoolArgument::Name(name)) => match scope.file.sym_bool_values.get(name) {
                Some(SymBool::Bool(_)) => true,
                Some(SymBool::Expr(expr)) => {
                    let is_known = cx.condition(&expr.expr_str).is_ok();
                    if is_known {
                        scope.skipped.insert(name, node);
                    }
                    is_known
                }
                None => false,
            },
            _ => false,
        };
        if is_known {
            return Ok(());
        }
        let args = self.number_arguments(cx, scope, node)?;
        self.push_node(cx, scope, node, &node.target, args)
    }

    fn number_arguments<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        node: &'a schema::Node<'a>,
    ) -> Result<Vec<Arg>, ImportError> {
        let mut args = Vec::new();
        for input in &node.inputs {
            args.push(self.argument(cx, scope, &input.arg)?);
        }
        let Some(schema) = cx.schemas.lookup(&node.target) else {
            cx.report_unknown(&node.target, node);
            return Ok(args);
        };
        let left = schema.args.get(args.len()..).unwrap_or_default();
        if args.len() > schema.args.len() || left.iter().any(|arg| !arg.ty.optional) {
            return Err(ImportError::program(format!("{}: expected other arguments", node.target)));
        }
        args.extend(left.iter().map(|_| Arg::None));
        Ok(args)
    }

    /// Makes guards of an assert on symbolic sizes. Answers whether it was one.
    fn assert_sizes<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        node: &'a schema::Node<'a>,
    ) -> Result<bool, ImportError> {
        let Some(Argument::SymBool(SymBoolArgument::Name(name))) =
            node.inputs.first().map(|input| &input.arg)
        else {
            return Ok(false);
        };
        if scope.bound.contains_key(&**name) {
            return Ok(false);
        }
        let message = node.inputs.iter().find_map(|input| match &input.arg {
            Argument::String(message) if &*input.name == "assert_msg" => Some(&**message),
            _ => None,
        });
        let message = message.unwrap_or("a runtime assertion");
        let who =
            cx.source(node).map_or_else(|| message.to_owned(), |source| format!("{message} ({source})"));
        match scope.file.sym_bool_values.get(&**name) {
            Some(SymBool::Bool(true)) => {}
            Some(SymBool::Bool(false)) => cx.require(&mut self.graph.facts, [Rel::eq(0, 1).into()], &who)?,
            Some(SymBool::Expr(expr)) => match cx.condition(&expr.expr_str) {
                Ok(clauses) => cx.require(&mut self.graph.facts, clauses, &who)?,
                Err(error) => cx.unknown_guards.push(error),
            },
            None => return Err(ImportError::program(format!("expected a value, found undefined `{name}`"))),
        }
        Ok(true)
    }

    /// Compares the strides that an assertion just added asks for with those that the file says. Later stages may lay values
    /// out as they like.
    fn expect_layout(&self, cx: &Cx) -> Result<(), ImportError> {
        let Some(Node { op, args, .. }) = self.graph.nodes.last() else { return Ok(()) };
        let Some(schema) = cx.schemas.lookup(op.as_str()) else { return Ok(()) };
        let named = |name: &str| args.get(schema.position(name)?);
        let (Some(Arg::Value(value)), Some(Arg::List(expected))) = (args.first(), named("stride")) else {
            return Ok(());
        };
        let Some(ty) = self.graph.tensor(*value) else { return Ok(()) };
        let expected: Vec<Expr> = expected.iter().filter_map(Arg::as_int).collect();
        let differs = |(&a, &b): (&Expr, &Expr)| self.graph.facts.known(&Rel::eq(a, b)) == Known::No;
        if expected.len() != ty.rank() || expected.iter().zip(&ty.strides).any(differs) {
            let name = &self.graph.values[*value].name;
            return Err(ImportError::program(format!("{op}: `{name}` has other strides than asserted")));
        }
        Ok(())
    }

    fn operator<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        node: &'a schema::Node<'a>,
        op: &str,
    ) -> Result<(), ImportError> {
        let schemas = cx.schemas;
        let args = match schemas.lookup(op) {
            Some(schema) => {
                let given: Vec<&NamedArgument> = node.inputs.iter().collect();
                let mut args = self.fill_arguments(cx, scope, &given, schema)?;
                self.count_from_operand(cx, scope, node, schema, &mut args)?;
                if let Some(narrow) = self.autocast {
                    self.cast(cx, node, narrow, &mut args)?;
                }
                args
            }
            None => {
                cx.report_unknown(op, node);
                Vec::new()
            }
        };
        self.push_node(cx, scope, node, op, args)
    }

    /// Offsets that `as_strided` is given count from the start of the storage. An input or a constant may be a part of
    /// one, which begins later, and then they count from its first element here.
    fn count_from_operand<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        node: &'a schema::Node<'a>,
        schema: &OpSchema,
        args: &mut [Arg],
    ) -> Result<(), ImportError> {
        let Some(at) = schema.position("storage_offset") else { return Ok(()) };
        let Some(given) = args.get(at).and_then(Arg::as_int) else { return Ok(()) };
        let Some(Argument::Tensor(operand)) = node.inputs.first().map(|input| &input.arg) else {
            return Ok(());
        };
        let mut start = |cx: &mut Cx<'a>, name: &str| match scope.file.tensor_values.get(name) {
            Some(meta) => cx.int(&mut self.graph.facts, &meta.storage_offset),
            None => Ok(Expr::zero()),
        };
        let is_part = |argument: &Argument| match argument {
            Argument::Tensor(tensor) => tensor.name == operand.name,
            _ => false,
        };
        let first = start(cx, &operand.name)?;
        if first.is_zero() {
            return Ok(());
        }
        let unsupported = |what: &str| {
            let feature = format!("`as_strided` of {what}");
            Err(ImportError::UnsupportedType { name: operand.name.to_string(), feature })
        };
        if scope.file.inputs.iter().any(is_part) {
            let place = given - first;
            if place.as_int().is_none_or(|place| place < 0) {
                return unsupported("memory before the tensor");
            }
            args[at] = Arg::Int(place);
            return Ok(());
        }
        for argument in &scope.file.inputs {
            if let Argument::Tensor(tensor) = argument
                && !start(cx, &tensor.name)?.is_zero()
            {
                return unsupported("a view of what may be a part of a larger tensor");
            }
        }
        Ok(())
    }

    /// Where a node with these results comes from.
    pub fn origin<'a>(
        &self,
        cx: &mut Cx<'a>,
        node: &'a schema::Node<'a>,
        outputs: &[Option<Value>],
    ) -> Option<Arc<Origin>> {
        let first = outputs.iter().flatten().next();
        let name = first.map(|&value| Arc::from(self.graph.values[value].name.as_str()));
        let origin = Origin { name, ..cx.origin(node) };
        (origin != Origin::default()).then(|| Arc::new(origin))
    }

    /// Adds a node, defining its outputs.
    pub fn push_node<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        node: &'a schema::Node<'a>,
        op: &str,
        args: Vec<Arg>,
    ) -> Result<(), ImportError> {
        let mut outputs = Vec::new();
        for output in &node.outputs {
            outputs.extend(self.define(cx, scope, output)?);
        }
        let origin = self.origin(cx, node, &outputs);
        self.graph.nodes.push(Node { op: OpName::new(op), form: Form::Plain, args, outputs, origin });
        Ok(())
    }

    /// One argument for each of the schema's.
    pub fn fill_arguments<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        given: &[&'a NamedArgument<'a>],
        schema: &OpSchema,
    ) -> Result<Vec<Arg>, ImportError> {
        self.fill_given(cx, scope, given, schema, Vec::new())
    }

    /// As [`Body::fill_arguments`], where some are known by name. Those given without a name are the first ones.
    pub fn fill_given<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        given: &[&'a NamedArgument<'a>],
        schema: &OpSchema,
        known: Vec<(&str, Arg)>,
    ) -> Result<Vec<Arg>, ImportError> {
        let mut args: Vec<Option<Arg>> = schema.args.iter().map(|arg| arg.default.clone()).collect();
        for (name, arg) in known {
            if let Some(position) = schema.position(name) {
                args[position] = Some(arg);
            }
        }
        for (at, NamedArgument { name, arg }) in given.iter().enumerate() {
            let unnamed = Some(at).filter(|&at| name.is_empty() && at < args.len());
            let position = unnamed.or_else(|| schema.position(name)).ok_or_else(|| {
                ImportError::program(format!(
                    "{}: expected an argument of its schema, found `{name}`",
                    schema.name
                ))
            })?;
            let found = self.argument(cx, scope, arg)?;
            args[position] = Some(adapt(found, schema.args[position].ty));
        }
        let fill = |(given, expected): (Option<Arg>, &SchemaArg)| match given {
            Some(arg) => Ok(arg),
            None if expected.ty.optional => Ok(Arg::None),
            None => {
                let why = format!("{}: expected argument `{}`, found none", schema.name, expected.name);
                Err(ImportError::program(why))
            }
        };
        args.into_iter().zip(&schema.args).map(fill).collect()
    }

    /// Makes values for the names in `output`; `None` for what an operator did not return, and for literals.
    pub fn define<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        output: &'a Argument<'a>,
    ) -> Result<Vec<Option<Value>>, ImportError> {
        let (name, ty) = match output {
            Argument::Tensor(tensor) => {
                return Ok(vec![Some(self.define_tensor(cx, scope, &tensor.name)?)]);
            }
            Argument::Tensors(tensors) => {
                return tensors.iter().map(|t| self.define_tensor(cx, scope, &t.name).map(Some)).collect();
            }
            Argument::OptionalTensor(tensor) => return Ok(vec![self.define_optional(cx, scope, tensor)?]),
            Argument::OptionalTensors(tensors) => {
                return tensors.iter().map(|tensor| self.define_optional(cx, scope, tensor)).collect();
            }
            Argument::None(_) => return Ok(vec![None]),
            Argument::SymInt(SymIntArgument::Name(name)) => {
                let expr = self.int_named(cx, scope, name)?;
                return Ok(vec![Some(self.fresh(name, Type::Int(expr)))]);
            }
            Argument::SymFloat(SymFloatArgument::Name(name)) => (name, Type::Float),
            Argument::SymBool(SymBoolArgument::Name(name)) => (name, Type::Bool),
            // Literals.
            _ => return Ok(vec![None]),
        };
        let value = self.fresh(name, ty);
        scope.bind(name, Arg::Value(value))?;
        Ok(vec![Some(value)])
    }

    fn define_optional<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        tensor: &'a OptionalTensorArgument<'a>,
    ) -> Result<Option<Value>, ImportError> {
        match tensor {
            OptionalTensorArgument::Tensor(tensor) => self.define_tensor(cx, scope, &tensor.name).map(Some),
            OptionalTensorArgument::None(_) => Ok(None),
        }
    }

    pub fn define_tensor<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        name: &'a str,
    ) -> Result<Value, ImportError> {
        let meta = scope.file.tensor_values.get(name);
        let meta = meta
            .ok_or_else(|| ImportError::program(format!("expected a tensor type of `{name}`, found none")))?;
        let ty = cx.tensor_type(&mut self.graph.facts, name, meta)?;
        let value = self.fresh(name, Type::Tensor(ty));
        scope.bind(name, Arg::Value(value))?;
        Ok(value)
    }

    /// A value named `name`, numbered where an inlined graph took the name.
    pub fn fresh(&mut self, name: &str, ty: Type) -> Value {
        self.graph.value(self.values.fresh(name), ty)
    }

    /// An operand or output.
    pub fn argument<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        argument: &'a Argument<'a>,
    ) -> Result<Arg, ImportError> {
        let unsupported = |feature| ImportError::UnsupportedType { name: "an argument".to_owned(), feature };
        let float = |value: schema::Number| Arg::Float(Float(value.0));
        Ok(match argument {
            Argument::None(_) => Arg::None,
            Argument::Tensor(tensor) => self.named(cx, scope, &tensor.name)?,
            Argument::Tensors(tensors) => list(tensors, |tensor| self.named(cx, scope, &tensor.name))?,
            Argument::NestedTensors(lists) => {
                list(lists, |tensors| list(tensors, |tensor| self.named(cx, scope, &tensor.name)))?
            }
            Argument::OptionalTensor(tensor) => self.optional(cx, scope, tensor)?,
            Argument::OptionalTensors(tensors) => list(tensors, |tensor| self.optional(cx, scope, tensor))?,
            Argument::Int(value) => Arg::Int(Expr::int(*value)),
            Argument::Ints(values) => Arg::ints(values.iter().map(|&value| Expr::int(value))),
            Argument::IntLists(lists) => {
                list(lists, |values| Ok(Arg::ints(values.iter().map(|&value| Expr::int(value)))))?
            }
            Argument::Float(value) => float(*value),
            Argument::Floats(values) => list(values, |value| Ok(float(*value)))?,
            Argument::FloatLists(lists) => list(lists, |values| list(values, |value| Ok(float(*value))))?,
            Argument::Bool(value) => Arg::Bool(*value),
            Argument::Bools(values) => list(values, |value| Ok(Arg::Bool(*value)))?,
            Argument::String(value) => Arg::Str(value.to_string()),
            Argument::Strings(values) => list(values, |value| Ok(Arg::Str(value.to_string())))?,
            Argument::Complex(value) => Arg::Complex(Float(value.real.0), Float(value.imag.0)),
            Argument::SymInt(value) => self.sym_int(cx, scope, value)?,
            Argument::SymInts(values) => list(values, |value| self.sym_int(cx, scope, value))?,
            Argument::SymFloat(value) => self.sym_float(scope, value)?,
            Argument::SymFloats(values) => list(values, |value| self.sym_float(scope, value))?,
            Argument::SymBool(value) => self.sym_bool(cx, scope, value)?,
            Argument::SymBools(values) => list(values, |value| self.sym_bool(cx, scope, value))?,
            Argument::ScalarType(value) => Arg::Dtype(value.dtype().map_err(unsupported)?),
            Argument::MemoryFormat(value) => Arg::MemoryFormat(value.memory_format().map_err(unsupported)?),
            Argument::Layout(value) => value.expect_strided().map(|()| Arg::Strided).map_err(unsupported)?,
            Argument::Device(value) => Arg::Device(value.device().map_err(unsupported)?),
            Argument::Graph(graph) => return Err(unsupported(format!("subgraph `{}`", graph.name))),
            Argument::CustomObj(object) => {
                return Err(unsupported(format!("an object of class {}", object.class_fqn)));
            }
            Argument::Operator(name) => return Err(unsupported(format!("operator `{name}` as an argument"))),
            Argument::StringToArgument(_) => return Err(unsupported("a dictionary".to_owned())),
        })
    }

    /// What a name stands for. Operands of control flow mix tensors and symbolic integers under the tensors' tag.
    pub fn named<'a>(&mut self, cx: &mut Cx<'a>, scope: &Scope<'a>, name: &str) -> Result<Arg, ImportError> {
        match scope.bound.get(name) {
            Some(arg) => Ok(arg.clone()),
            None if scope.file.sym_int_values.contains_key(name) => {
                Ok(Arg::Int(self.int_named(cx, scope, name)?))
            }
            None => Err(ImportError::program(format!("expected a value, found undefined `{name}`"))),
        }
    }

    fn optional<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        tensor: &OptionalTensorArgument,
    ) -> Result<Arg, ImportError> {
        match tensor {
            OptionalTensorArgument::Tensor(tensor) => self.named(cx, scope, &tensor.name),
            OptionalTensorArgument::None(_) => Ok(Arg::None),
        }
    }

    fn sym_int<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        value: &SymIntArgument,
    ) -> Result<Arg, ImportError> {
        match value {
            SymIntArgument::Int(value) => Ok(Arg::Int(Expr::int(*value))),
            SymIntArgument::Name(name) => self.int_named(cx, scope, name).map(Arg::Int),
        }
    }

    fn int_named<'a>(&mut self, cx: &mut Cx<'a>, scope: &Scope<'a>, name: &str) -> Result<Expr, ImportError> {
        match scope.file.sym_int_values.get(name) {
            Some(value) => cx.int(&mut self.graph.facts, value),
            None => {
                Err(ImportError::program(format!("expected a symbolic integer, found undefined `{name}`")))
            }
        }
    }

    fn sym_float(&self, scope: &Scope, value: &SymFloatArgument) -> Result<Arg, ImportError> {
        let name = match value {
            SymFloatArgument::Float(value) => return Ok(Arg::Float(Float(value.0))),
            SymFloatArgument::Name(name) => name,
        };
        match scope.file.sym_float_values.get(&**name) {
            Some(SymFloat::Float(value)) => Ok(Arg::Float(Float(value.0))),
            _ => scope.bound(name).cloned(),
        }
    }

    fn sym_bool<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        value: &SymBoolArgument,
    ) -> Result<Arg, ImportError> {
        let name = match value {
            SymBoolArgument::Bool(value) => return Ok(Arg::Bool(*value)),
            SymBoolArgument::Name(name) => name,
        };
        if let Some(arg) = scope.bound.get(&**name) {
            return Ok(arg.clone());
        }
        match scope.file.sym_bool_values.get(&**name) {
            Some(SymBool::Bool(value)) => Ok(Arg::Bool(*value)),
            Some(SymBool::Expr(expr)) => self.decide(cx, scope, name, &expr.expr_str),
            None => Err(ImportError::program(format!("expected a truth value, found undefined `{name}`"))),
        }
    }

    /// A condition on sizes: a literal where the facts decide it, else what a node computes.
    fn decide<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &Scope<'a>,
        name: &str,
        text: &str,
    ) -> Result<Arg, ImportError> {
        let clauses = cx.condition(text)?;
        let rels = clauses.iter().flat_map(Clause::alternatives);
        for sym in rels.flat_map(|rel| [rel.lhs, rel.rhs]).flat_map(Expr::syms) {
            cx.declare(&mut self.graph.facts, sym);
        }
        let known: Vec<Known> = clauses.iter().map(|clause| self.graph.facts.known_clause(clause)).collect();
        if known.contains(&Known::No) {
            return Ok(Arg::Bool(false));
        }
        if known.contains(&Known::Unknown) {
            let Some(&node) = scope.skipped.get(name).filter(|_| self.depth < MAX_DEPTH) else {
                let (text, head) =
                    (crate::error::shorten(text), "a condition on sizes as an argument".to_owned());
                return Err(ImportError::UnsupportedExpression { text, head });
            };
            self.depth += 1;
            let args = self.number_arguments(cx, scope, node);
            self.depth -= 1;
            let value = self.fresh(name, Type::Bool);
            let (op, outputs) = (OpName::new(&*node.target), vec![Some(value)]);
            let origin = self.origin(cx, node, &outputs);
            self.graph.nodes.push(Node { op, form: Form::Plain, args: args?, outputs, origin });
            return Ok(Arg::Value(value));
        }
        Ok(Arg::Bool(true))
    }
}

/// `aten.add.Tensor` of a node that applies `torch.ops.aten.add.Tensor`.
pub(crate) fn operator_name<'a>(node: &'a schema::Node) -> &'a str {
    node.target.strip_prefix("torch.ops.").unwrap_or(&node.target)
}

/// Whether a node measures tensors: the file says what expression each result is, so the node itself is not needed.
fn is_measure(schemas: &dyn Schemas, node: &schema::Node) -> bool {
    let is_number =
        |output: &Argument| matches!(output, Argument::SymInt(_) | Argument::SymBool(_) | Argument::Int(_));
    let is_measure = || schemas.lookup(operator_name(node)).is_some_and(OpSchema::is_measure);
    !node.outputs.is_empty() && node.outputs.iter().all(is_number) && is_measure()
}

/// An integer literal given for a float is that float.
fn adapt(arg: Arg, ty: ArgType) -> Arg {
    match arg {
        Arg::Int(value) if ty.base == BaseType::Float => match value.as_int() {
            Some(value) => Arg::Float(Float(value as f64)),
            None => Arg::Int(value),
        },
        Arg::List(items) if ty.list => Arg::List(items.into_iter().map(|item| adapt(item, ty)).collect()),
        other => other,
    }
}

fn list<T>(items: &[T], convert: impl FnMut(&T) -> Result<Arg, ImportError>) -> Result<Arg, ImportError> {
    items.iter().map(convert).collect::<Result<Vec<_>, _>>().map(Arg::List)
}
