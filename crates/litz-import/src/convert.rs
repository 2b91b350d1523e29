//! Converts a program of an archive to a graph, with the interface that callers see.
//!
//! The graph has every argument filled in from operator schemas, sizes as expressions, wrappers inlined and asserts on
//! sizes turned into guards. In-place operators stay as they are.

use crate::archive::Archive;
use crate::body::{Body, Scope};
use crate::cx::Cx;
use crate::declared::{Chained, declarations};
use crate::error::ImportError;
use crate::guards::{Query, parse_guard};
use crate::pytree::{self, KeyEntry, Path};
use crate::schema::{
    self, Argument, ConstantValue, ExportedProgram, InputSpec, OutputSpec, SymIntArgument, TensorArgument,
};
use crate::srepr;
use crate::weights::{Table, Weight};
use litz_ir::graph::{Arg, Float, Graph, TensorType, Type, Value, contiguous_strides};
use litz_ir::schema::Schemas;
use litz_sym::{Expr, Rel, Sym};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A program, ready for graph passes.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program.
    pub graph: Graph,
    /// Arguments of the caller in flattened order, fixed ones included.
    pub inputs: Vec<Input>,
    /// What each of the graph's outputs is, in the same order.
    pub outputs: Vec<Output>,
    /// Where the bytes of each of the graph's constants are, by its name.
    pub weights: BTreeMap<String, Weight>,
    /// Guards that were not understood. A caller who goes on regardless may run the program on sizes that it is wrong
    /// for.
    pub unknown_guards: Vec<ImportError>,
    /// The torch that wrote the program, such as `2.15.0`.
    pub torch_version: String,
    /// Whether operators may write to their arguments: the program was saved as exported, without
    /// `run_decompositions()`.
    pub has_inplace_ops: bool,
}

/// An argument of the caller.
#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    /// Where it is in the caller's arguments: `input_ids`, `d.u`, `lst[0]`.
    pub name: String,
    /// Tensor, number, or a value that was fixed.
    pub kind: InputKind,
}

/// What an argument is.
#[derive(Clone, PartialEq, Debug)]
pub enum InputKind {
    /// One of the graph's inputs.
    Value(Value),
    /// The program is right for this value only; the caller's must be equal to it.
    Fixed(Arg),
}

/// One of the graph's outputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Where a result is in what the program returns: `out`, `logits`, `out[1].x`; else the name of what `kind` says.
    pub name: String,
    /// What it is.
    pub kind: OutputKind,
}

/// What an output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputKind {
    /// Part of what the program returns.
    Result,
    /// The loss of a joint forward and backward program; also part of what it returns.
    Loss,
    /// Gradient of the parameter that the output is named after.
    ParameterGradient,
    /// Gradient of the input that the output is named after.
    InputGradient,
}

impl Imported {
    /// The program that a graph is by itself: its inputs are the caller's arguments, and its outputs what it returns, `out.0`,
    /// `out.1` and so on. There is no file that has the bytes of its constants.
    pub fn of_graph(graph: Graph) -> Imported {
        let input =
            |&value: &Value| Input { name: graph.values[value].name.clone(), kind: InputKind::Value(value) };
        let inputs = graph.inputs.iter().map(input).collect();
        let output = |at: usize| Output { name: format!("out.{at}"), kind: OutputKind::Result };
        let outputs = (0..graph.outputs.len()).map(output).collect();
        Imported {
            graph,
            inputs,
            outputs,
            weights: BTreeMap::new(),
            unknown_guards: Vec::new(),
            torch_version: String::new(),
            has_inplace_ops: true,
        }
    }
}

/// Imports the program called `model`.
///
/// # Errors
/// When anything in the program is damaged, or not supported; operators without schema are listed all at once.
pub fn import(archive: &Archive, model: &str, schemas: &dyn Schemas) -> Result<Imported, ImportError> {
    let path = format!("models/{model}.json");
    let program = schema::parse_program(&path, archive.text(&path)?)?;
    let mut weights = Table::Weights.read(archive, model)?;
    for (name, weight) in Table::Constants.read(archive, model)? {
        if weights.insert(name.clone(), weight).is_some() {
            return Err(ImportError::program(format!("`{name}` is both a weight and a constant")));
        }
    }
    let chained = Chained { schemas, declared: declarations(&program.graph_module.graph, schemas)? };
    let mut import = Import::new(&program, model, &chained)?;
    let inputs = import.inputs(weights)?;
    import.guards(&inputs)?;
    import.forget_free_strides();
    import.body.nodes(&mut import.cx, &mut import.scope)?;
    let outputs = import.outputs()?;
    import.body.graph.ops = chained.declared.values().cloned().collect();
    import.cx.refuse_unknown_ops()?;
    Ok(Imported {
        graph: import.body.graph,
        inputs: inputs.into_iter().map(|(_, input)| input).collect(),
        outputs,
        weights: import.weights,
        unknown_guards: import.cx.unknown_guards,
        torch_version: program.torch_version.to_string(),
        has_inplace_ops: program.verifiers.iter().any(|verifier| &**verifier == "TRAINING"),
    })
}

struct Import<'a> {
    program: &'a ExportedProgram<'a>,
    cx: Cx<'a>,
    scope: Scope<'a>,
    body: Body,
    /// Weights that are constants of the graph.
    weights: BTreeMap<String, Weight>,
    consts: HashMap<String, Value>,
}

impl<'a> Import<'a> {
    fn new(
        program: &'a ExportedProgram<'a>,
        name: &str,
        schemas: &'a dyn Schemas,
    ) -> Result<Self, ImportError> {
        let file = &program.graph_module.graph;
        let signature = &program.graph_module.signature;
        for (what, found, expected) in [
            ("input", signature.input_specs.len(), file.inputs.len()),
            ("output", signature.output_specs.len(), file.outputs.len()),
        ] {
            if found != expected {
                return Err(ImportError::program(format!("expected {expected} {what} specs, found {found}")));
            }
        }
        let cx = Cx::new(schemas, program)?;
        let body = Body::new(name, cx.device);
        Ok(Import {
            program,
            cx,
            scope: Scope::new(file),
            body,
            weights: BTreeMap::new(),
            consts: HashMap::new(),
        })
    }

    /// Makes the graph's inputs and constants; returns the caller's arguments and their paths.
    fn inputs(&mut self, mut weights: BTreeMap<String, Weight>) -> Result<Vec<(Path, Input)>, ImportError> {
        let mut kinds = Vec::new();
        let specs = &self.program.graph_module.signature.input_specs;
        for (argument, spec) in self.scope.file.inputs.iter().zip(specs) {
            match spec {
                InputSpec::UserInput(user) => {
                    kinds.push((input_name(&user.arg), self.user_input(&user.arg)?))
                }
                InputSpec::ConstantInput(fixed) => {
                    kinds.push((fixed.name.to_string(), InputKind::Fixed(fixed_value(&fixed.value))));
                }
                InputSpec::Parameter(spec) => self.constant(&spec.arg, &spec.parameter_name, &mut weights)?,
                InputSpec::Buffer(spec) => self.constant(&spec.arg, &spec.buffer_name, &mut weights)?,
                InputSpec::TensorConstant(spec) => {
                    self.constant(&spec.arg, &spec.tensor_constant_name, &mut weights)?
                }
                InputSpec::CustomObj(spec) => {
                    let feature = format!("an object of class {}", spec.arg.class_fqn);
                    return Err(ImportError::UnsupportedType {
                        name: spec.custom_obj_name.to_string(),
                        feature,
                    });
                }
                // What it orders, the effects of declarations order.
                InputSpec::Token(_) => {}
            }
            let InputSpec::UserInput(user) = spec else { continue };
            if input_name(argument) != input_name(&user.arg) {
                let why = format!("expected input {}, found {argument:?}", input_name(&user.arg));
                return Err(ImportError::program(why));
            }
        }
        self.name_inputs(kinds)
    }

    /// Pairs the caller's arguments with their paths; without a structure in the file, their names are the graph's.
    fn name_inputs(&self, kinds: Vec<(String, InputKind)>) -> Result<Vec<(Path, Input)>, ImportError> {
        let module = &self.program.graph_module;
        let Some(call) = module.module_call_graph.iter().find(|call| call.fqn.is_empty()) else {
            let input = |(name, kind): (String, InputKind)| {
                (vec![KeyEntry::Name(name.clone())], Input { name, kind })
            };
            return Ok(kinds.into_iter().map(input).collect());
        };
        let Some(signature) = &call.signature else {
            return Err(ImportError::program("expected a signature of the whole program, found none"));
        };
        let names = signature.forward_arg_names.as_deref().unwrap_or_default();
        let paths = pytree::input_paths(&signature.in_spec, names, &module.treespec_namedtuple_fields)?;
        if paths.len() != kinds.len() {
            let why = format!("expected {} leaves, found {}", kinds.len(), paths.len());
            return Err(ImportError::Pytree { of: "inputs", why });
        }
        let input = |(path, (_, kind)): (Path, _)| {
            let name = pytree::show("args", &path);
            (path, Input { name, kind })
        };
        Ok(paths.into_iter().zip(kinds).map(input).collect())
    }

    fn user_input(&mut self, argument: &'a Argument<'a>) -> Result<InputKind, ImportError> {
        let defined = self.body.define(&mut self.cx, &mut self.scope, argument)?;
        match defined.as_slice() {
            [Some(value)] => {
                self.body.graph.inputs.push(*value);
                Ok(InputKind::Value(*value))
            }
            _ => Ok(InputKind::Fixed(self.body.argument(&mut self.cx, &self.scope, argument)?)),
        }
    }

    fn constant(
        &mut self,
        argument: &'a TensorArgument<'a>,
        name: &str,
        weights: &mut BTreeMap<String, Weight>,
    ) -> Result<(), ImportError> {
        let fail = |why| ImportError::Weight { name: name.to_owned(), why };
        if self.consts.contains_key(name) {
            return Err(fail("expected one input of that name, found two".to_owned()));
        }
        let value = self.body.define_tensor(&mut self.cx, &mut self.scope, &argument.name)?;
        let weight = weights
            .remove(name)
            .ok_or_else(|| fail("expected its bytes in the archive, found none".to_owned()))?;
        let Type::Tensor(ty) = &mut self.body.graph.values[value].ty else { return Ok(()) };
        if ty.dtype != weight.dtype {
            return Err(fail(format!("expected {}, found {}", ty.dtype, weight.dtype)));
        }
        let exprs = |values: &[usize]| -> Vec<Expr> { values.iter().map(|&v| Expr::int(v as i64)).collect() };
        if ty.sizes != exprs(&weight.sizes) {
            return Err(fail(format!("expected sizes {:?}, found {:?}", ty.sizes, weight.sizes)));
        }
        // How the bytes lie is the file's word; the graph's may be that of a copy.
        ty.strides = exprs(&weight.strides);
        self.body.graph.consts.push((value, name.to_owned()));
        self.consts.insert(name.to_owned(), value);
        self.weights.insert(name.to_owned(), weight);
        Ok(())
    }

    /// Requires what the guards say of the inputs' sizes, and the ranges of derived sizes.
    fn guards(&mut self, inputs: &[(Path, Input)]) -> Result<(), ImportError> {
        let values = &self.body.graph.values;
        let paths: Vec<Path> = inputs.iter().map(|(path, _)| path.clone()).collect();
        let resolve = |path: &[KeyEntry], query: Query| -> Option<Expr> {
            if let (Query::Symbol, [KeyEntry::Name(name)]) = (query, path) {
                return litz_sym::Sym::is_identifier(name).then(|| Expr::sym(srepr::symbol(name)));
            }
            let InputKind::Value(value) = inputs[pytree::find(&paths, path)?].1.kind else { return None };
            match (&values[value].ty, query) {
                (Type::Int(expr), Query::Value) => Some(*expr),
                (Type::Tensor(ty), Query::Size(dimension)) => ty.sizes.get(dimension).copied(),
                (Type::Tensor(ty), Query::Stride(dimension)) => ty.strides.get(dimension).copied(),
                _ => None,
            }
        };
        let derived =
            self.program.range_constraints.iter().filter(|(of, _)| !litz_sym::Sym::is_identifier(of));
        let derived = derived.flat_map(|(of, range)| {
            let at_least = range.min_val.map(|min| format!("{min} <= {of}"));
            at_least.into_iter().chain(range.max_val.map(|max| format!("{of} <= {max}")))
        });
        let written = self.program.guards_code.iter().map(|guard| guard.to_string());
        let free = self.free_strides();
        let is_free =
            |rel: &Rel| [rel.lhs, rel.rhs].iter().any(|side| side.syms().iter().any(|s| free.contains(s)));
        for text in written.chain(derived) {
            match parse_guard(&text, &resolve) {
                Ok(mut clauses) => {
                    // How an input lies is the caller's business.
                    clauses.retain(|clause| !clause.alternatives().iter().any(is_free));
                    self.cx.require(&mut self.body.graph.facts, clauses, &text)?;
                }
                Err(error) => self.cx.unknown_guards.push(error),
            }
        }
        Ok(())
    }

    /// Symbols in strides of inputs that no size tells, as those of a slice of something larger.
    fn free_strides(&self) -> HashSet<Sym> {
        let graph = &self.body.graph;
        let symbols = |exprs: fn(&TensorType) -> &[Expr]| -> HashSet<Sym> {
            let types = graph.inputs.iter().filter_map(|&input| graph.tensor(input));
            types.flat_map(exprs).flat_map(|expr| expr.syms()).collect()
        };
        let told = symbols(|ty| &ty.sizes);
        symbols(|ty| &ty.strides).into_iter().filter(|sym| !told.contains(sym)).collect()
    }

    /// Takes inputs with free strides as contiguous ones: a call takes inputs of any strides.
    fn forget_free_strides(&mut self) {
        let free = self.free_strides();
        for &input in &self.body.graph.inputs {
            if let Type::Tensor(ty) = &mut self.body.graph.values[input].ty
                && ty.strides.iter().any(|stride| stride.syms().iter().any(|sym| free.contains(sym)))
            {
                ty.strides = contiguous_strides(&ty.sizes);
            }
        }
    }

    /// Fills in the graph's outputs and updates.
    fn outputs(&mut self) -> Result<Vec<Output>, ImportError> {
        let specs = &self.program.graph_module.signature.output_specs;
        let is_result =
            |spec: &&OutputSpec| matches!(spec, OutputSpec::UserOutput(_) | OutputSpec::LossOutput(_));
        let mut names = self.result_names(specs.iter().filter(is_result).count())?.into_iter();
        let mut outputs = Vec::new();
        for (argument, spec) in self.scope.file.outputs.iter().zip(specs) {
            if matches!(spec, OutputSpec::Token(_)) {
                continue;
            }
            let found = self.body.argument(&mut self.cx, &self.scope, argument)?;
            let (name, kind) = match spec {
                OutputSpec::UserOutput(_) => (names.next(), OutputKind::Result),
                OutputSpec::LossOutput(_) => (names.next(), OutputKind::Loss),
                OutputSpec::GradientToParameter(of) => {
                    (Some(of.parameter_name.to_string()), OutputKind::ParameterGradient)
                }
                OutputSpec::GradientToUserInput(of) => {
                    (Some(of.user_input_name.to_string()), OutputKind::InputGradient)
                }
                OutputSpec::BufferMutation(of) => {
                    self.update(self.constant_named(&of.buffer_name)?, &found, &of.buffer_name)?;
                    continue;
                }
                OutputSpec::ParameterMutation(of) => {
                    self.update(self.constant_named(&of.parameter_name)?, &found, &of.parameter_name)?;
                    continue;
                }
                OutputSpec::UserInputMutation(of) => {
                    let target = self.scope.bound(&of.user_input_name)?.as_value();
                    let target =
                        target.filter(|value| self.body.graph.inputs.contains(value)).ok_or_else(|| {
                            ImportError::program(format!(
                                "expected an input to write to, found `{}`",
                                of.user_input_name
                            ))
                        })?;
                    self.update(target, &found, &of.user_input_name)?;
                    continue;
                }
                OutputSpec::Token(_) => continue,
            };
            self.body.graph.outputs.push(found);
            outputs.push(Output { name: name.expect("invariant: one name for each result"), kind });
        }
        Ok(outputs)
    }

    /// Names of `count` results from the structure in the file, or by position where there is none.
    fn result_names(&self, count: usize) -> Result<Vec<String>, ImportError> {
        let module = &self.program.graph_module;
        let call = module.module_call_graph.iter().find(|call| call.fqn.is_empty());
        let Some(signature) = call.and_then(|call| call.signature.as_ref()) else {
            return Ok((0..count).map(|index| format!("out[{index}]")).collect());
        };
        let paths = pytree::output_paths(&signature.out_spec, &module.treespec_namedtuple_fields)?;
        if paths.len() != count {
            let why = format!("expected {count} leaves, found {}", paths.len());
            return Err(ImportError::Pytree { of: "outputs", why });
        }
        Ok(paths.iter().map(|path| pytree::show("out", path)).collect())
    }

    fn constant_named(&self, name: &str) -> Result<Value, ImportError> {
        self.consts
            .get(name)
            .copied()
            .ok_or_else(|| ImportError::program(format!("expected a buffer to write to, found no `{name}`")))
    }

    fn update(&mut self, target: Value, new: &Arg, name: &str) -> Result<(), ImportError> {
        let new = new.as_value().ok_or_else(|| {
            ImportError::program(format!("expected a tensor to write to `{name}`, found another value"))
        })?;
        let graph = &mut self.body.graph;
        let types = (&graph.values[target].ty, &graph.values[new].ty);
        if !graph.may_hold(types.0, types.1) {
            let message = format!("expected {} to write to `{name}`, found {}", types.0, types.1);
            return Err(ImportError::program(message));
        }
        graph.updates.push((target, new));
        Ok(())
    }
}

fn input_name(argument: &Argument) -> String {
    match argument {
        Argument::Tensor(tensor) => tensor.name.to_string(),
        Argument::SymInt(SymIntArgument::Name(name)) => name.to_string(),
        _ => "a literal".to_owned(),
    }
}

fn fixed_value(value: &ConstantValue) -> Arg {
    match value {
        ConstantValue::None(_) => Arg::None,
        ConstantValue::Int(value) => Arg::Int(Expr::int(*value)),
        ConstantValue::Float(value) => Arg::Float(Float(value.0)),
        ConstantValue::String(value) => Arg::Str(value.to_string()),
        ConstantValue::Bool(value) => Arg::Bool(*value),
    }
}
