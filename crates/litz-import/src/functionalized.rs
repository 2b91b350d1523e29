//! Reads nodes that wrap an operator of others: `auto_functionalized`, of either version, `triton_kernel_wrapper_functional` and
//! `with_effects`.
//!
//! What a wrapper says is written without it: the operator writes to clones of the tensors that it changes, or to views of such
//! clones, and the names of the wrapper's results stand for the clones. Functionalisation takes it from there.

use crate::body::{Body, Scope};
use crate::cx::Cx;
use crate::declared::operator_of;
use crate::error::ImportError;
use crate::schema::{self, Argument, NamedArgument};
use litz_ir::graph::{Arg, Form, MemoryFormat, Node, OpName, TensorType, Type, Value};
use litz_ir::schema::{OpSchema, Written};
use litz_sym::Expr;
use std::collections::HashSet;

/// Converts `auto_functionalized(op, x=.., ..)`: results are the operator's, then each argument that it writes to.
pub(crate) fn first<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
) -> Result<(), ImportError> {
    let Some((op, schema)) = wrapped(cx, node, 0)? else {
        return unknown(body, cx, scope, node, 0);
    };
    let given: Vec<&NamedArgument> = node.inputs.iter().skip(1).collect();
    let mut args = body.fill_arguments(cx, scope, &given, schema)?;
    let mut contents = Vec::new();
    for at in schema.written() {
        body.clone_values(cx, node, &mut args[at])?;
        args[at].each_value(&mut |value| contents.push(value));
    }
    let (own, rest) = results(node, schema, 0)?;
    body.apply(cx, scope, (node, op), args, own)?;
    bind(scope, node, rest, &contents)
}

/// Converts `auto_functionalized_v2(op, _x_base_index=.., .., _all_bases=[..])`: what the operator writes to are views of bases, and
/// results are the operator's, then the bases.
pub(crate) fn second<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
) -> Result<(), ImportError> {
    let Some((op, schema)) = wrapped(cx, node, 0)? else {
        return unknown(body, cx, scope, node, 0);
    };
    let mut bases = match find(node, "_all_bases") {
        Some(bases) => body.argument(cx, scope, bases)?,
        None => Arg::List(Vec::new()),
    };
    // Where in its memory a base begins, from which offsets of views count.
    let mut starts = Vec::new();
    if let Some(Argument::Tensors(tensors)) = find(node, "_all_bases") {
        for tensor in tensors {
            starts.push(match scope.file.tensor_values.get(&*tensor.name) {
                Some(meta) => cx.int(&mut body.graph.facts, &meta.storage_offset)?,
                None => Expr::zero(),
            });
        }
    }
    body.clone_values(cx, node, &mut bases)?;
    let mut contents = Vec::new();
    bases.each_value(&mut |value| contents.push(value));
    let bases: Vec<(Value, Expr)> = contents.iter().copied().zip(starts).collect();
    let names: Vec<&str> = schema.written().map(|at| &*schema.args[at].name).collect();
    let is_own = |input: &&NamedArgument| schema.position(&input.name).is_some();
    let given: Vec<&NamedArgument> = node.inputs.iter().skip(1).filter(is_own).collect();
    let mut views = Vec::new();
    for name in names {
        let prefix = format!("_{name}");
        let arg = match find(node, &format!("{prefix}_length")) {
            Some(Argument::Int(length)) => {
                let items =
                    (0..*length).map(|at| view(body, cx, scope, (node, &bases), &format!("{prefix}_{at}")));
                Arg::List(items.collect::<Result<_, _>>()?)
            }
            Some(_) => Arg::None,
            None => view(body, cx, scope, (node, &bases), &prefix)?,
        };
        views.push((name, arg));
    }
    let args = body.fill_given(cx, scope, &given, schema, views)?;
    let (own, rest) = results(node, schema, 0)?;
    body.apply(cx, scope, (node, op), args, own)?;
    bind(scope, node, rest, &contents)
}

/// Converts `triton_kernel_wrapper_functional(x=.., .., name=.., grid=.., output_indices=[..], ..)`: what is given by position are the
/// kernel's arguments, and results are what those hold then that it writes to. The operator's declaration says which of the others it
/// takes: the compiled kernel's name, its grid, how many warps run it. What the kernel was compiled for is not in the file.
pub(crate) fn kernel<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
) -> Result<(), ImportError> {
    let wrong = |what: String| ImportError::program(format!("{}: {what}", node.target));
    let op = kernel_of(node).ok_or_else(|| wrong("expected the name of a kernel, found none".to_owned()))?;
    let Some(schema) = cx.schemas.lookup(&op) else {
        cx.report_unknown(&op, node);
        return body.apply(cx, scope, (node, &op), Vec::new(), &node.outputs);
    };
    let Some(Argument::Ints(written)) = find(node, "output_indices") else {
        return Err(wrong("expected the arguments that the kernel writes to".to_owned()));
    };
    let name_at = |&at: &i64| Some(&*node.inputs.get(usize::try_from(at).ok()?)?.name);
    let written: Option<Vec<&str>> = written.iter().map(name_at).collect();
    let written = written.ok_or_else(|| wrong("expected positions of arguments".to_owned()))?;
    let declared: Vec<&str> = schema.written().map(|at| &*schema.args[at].name).collect();
    if declared.len() != written.len() || !declared.iter().all(|name| written.contains(name)) {
        let (declared, written) = (declared.join(", "), written.join(", "));
        let why =
            format!("{op}: its declaration says that it writes to ({declared}), the file says ({written})");
        return Err(ImportError::program(why));
    }
    let first_option = node.inputs.iter().position(|input| &*input.name == "kernel_param_names");
    let names: &[_] = match first_option.map(|at| &node.inputs[at].arg) {
        Some(Argument::Strings(names)) => names,
        _ => &[],
    };
    let is_argument = |input: &NamedArgument| names.contains(&input.name);
    let is_taken = |input: &&NamedArgument| {
        let is_declared = schema.position(&input.name).is_some() && !AMD_OPTIONS.contains(&&*input.name);
        is_argument(input) || is_declared
    };
    // An option may have the name of an argument, which comes first.
    let mut seen = HashSet::new();
    let given = node.inputs.iter().filter(is_taken).filter(|input| seen.insert(&*input.name));
    let given: Vec<&NamedArgument> = given.collect();
    let mut args = body.fill_arguments(cx, scope, &given, schema)?;
    let mut contents = Vec::new();
    for name in written {
        if let Some(at) = schema.position(name) {
            body.clone_values(cx, node, &mut args[at])?;
            args[at].each_value(&mut |value| contents.push(value));
        }
    }
    body.apply(cx, scope, (node, &op), args, &[])?;
    bind(scope, node, &node.outputs, &contents)
}

/// Options that AMD's compiler alone knows: kernels compiled with different ones are one operator, with the same arguments.
const AMD_OPTIONS: [&str; 3] = ["waves_per_eu", "matrix_instr_nonkdim", "kpack"];

/// The operator that a kernel of Triton is: `triton.add.default` of `add_<hash>`, the name of the compiled one.
pub(crate) fn kernel_of(node: &schema::Node<'_>) -> Option<String> {
    if &*node.target != "torch.ops.higher_order.triton_kernel_wrapper_functional" {
        return None;
    }
    // The kernel may have an argument of that name.
    let mut named = node.inputs.iter().filter(|input| &*input.name == "name");
    let compiled = named.find_map(|input| match &input.arg {
        Argument::String(name) => Some(name),
        _ => None,
    })?;
    let kernel = compiled.rsplit_once('_').map_or(&**compiled, |(kernel, _)| kernel);
    Some(format!("triton.{kernel}.default"))
}

/// Converts `with_effects(token, op, ..)`: results are the next token, then the operator's. What tokens order, effects of
/// declarations order.
pub(crate) fn ordered<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
) -> Result<(), ImportError> {
    let Some((op, schema)) = wrapped(cx, node, 1)? else {
        return unknown(body, cx, scope, node, 1);
    };
    let given: Vec<&NamedArgument> = node.inputs.iter().skip(2).collect();
    let args = body.fill_arguments(cx, scope, &given, schema)?;
    let (own, rest) = results(node, schema, 1)?;
    body.apply(cx, scope, (node, op), args, own)?;
    bind(scope, node, rest, &[])
}

/// The operator that a wrapper names as its argument at a position, if that is known.
fn wrapped<'a>(
    cx: &Cx<'a>,
    node: &'a schema::Node<'a>,
    at: usize,
) -> Result<Option<(&'a str, &'a OpSchema)>, ImportError> {
    let Some(Argument::Operator(name)) = node.inputs.get(at).map(|input| &input.arg) else {
        return Err(ImportError::program(format!("{}: expected an operator, found none", node.target)));
    };
    Ok(operator_of(name).and_then(|op| Some((op, cx.schemas.lookup(op)?))))
}

/// Notes an operator that is not known, so that all of them are reported together.
fn unknown<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
    at: usize,
) -> Result<(), ImportError> {
    let name = match node.inputs.get(at).map(|input| &input.arg) {
        Some(Argument::Operator(name)) => operator_of(name).unwrap_or(name),
        _ => &node.target,
    };
    cx.report_unknown(name, node);
    // The token's name has no type.
    let outputs = &node.outputs[at.min(node.outputs.len())..];
    body.apply(cx, scope, (node, name), Vec::new(), outputs)
}

/// The results of a wrapper from the position `from` on: those of its operator, and the others.
fn results<'a>(
    node: &'a schema::Node<'a>,
    schema: &OpSchema,
    from: usize,
) -> Result<(&'a [Argument<'a>], &'a [Argument<'a>]), ImportError> {
    // An operator without results has one that is none.
    let end = from + schema.returns.len().max(1);
    let missing = || ImportError::program(format!("{}: expected {end} results or more", node.target));
    let own = node.outputs.get(from..end).ok_or_else(missing)?;
    let own = if schema.returns.is_empty() { &[] } else { own };
    Ok((own, &node.outputs[end..]))
}

/// Lets names of results stand for values.
fn bind<'a>(
    scope: &mut Scope<'a>,
    node: &schema::Node<'a>,
    results: &'a [Argument<'a>],
    values: &[Value],
) -> Result<(), ImportError> {
    let mut names: Vec<&'a str> = Vec::new();
    for result in results {
        match result {
            Argument::Tensor(tensor) => names.push(&tensor.name),
            Argument::Tensors(tensors) => names.extend(tensors.iter().map(|tensor| &*tensor.name)),
            Argument::None(_) => {}
            _ => return Err(ImportError::program(format!("{}: expected tensors as results", node.target))),
        }
    }
    if names.len() != values.len() {
        let (expected, found) = (values.len(), names.len());
        let why = format!("{}: expected {expected} changed tensors, found {found}", node.target);
        return Err(ImportError::program(why));
    }
    names.into_iter().zip(values).try_for_each(|(name, &value)| scope.bind(name, Arg::Value(value)))
}

fn find<'a>(node: &'a schema::Node<'a>, name: &str) -> Option<&'a Argument<'a>> {
    node.inputs.iter().find(|input| &*input.name == name).map(|input| &input.arg)
}

/// What an argument is that keys of this prefix describe: a base, or a view of one.
fn view<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &Scope<'a>,
    (node, bases): (&'a schema::Node<'a>, &[(Value, Expr)]),
    prefix: &str,
) -> Result<Arg, ImportError> {
    let key = |name: &str| find(node, &format!("{prefix}_{name}"));
    let wrong = |what: &str| ImportError::program(format!("{}: {what} of `{prefix}`", node.target));
    let at = match key("base_index") {
        Some(Argument::Int(at)) => usize::try_from(*at).map_err(|_| wrong("a negative base"))?,
        Some(Argument::None(_)) => return Ok(Arg::None),
        _ => return Err(wrong("no base")),
    };
    let &(base, start) = bases.get(at).ok_or_else(|| wrong("an unknown base"))?;
    let ty = match &body.graph.values[base].ty {
        Type::Tensor(ty) => ty.clone(),
        Type::Int(_) | Type::Float | Type::Bool => return Err(wrong("a base that is no tensor")),
    };
    let mut expr = |name: &str| match key(name) {
        Some(argument) => body.argument(cx, scope, argument).map(Some),
        None => Ok(None),
    };
    if let (Some(Arg::List(sizes)), Some(Arg::List(strides)), Some(Arg::Int(offset))) =
        (expr("size")?, expr("stride")?, expr("storage_offset")?)
    {
        let exprs = |list: &[Arg]| list.iter().filter_map(Arg::as_int).collect::<Vec<_>>();
        let view = TensorType { sizes: exprs(&sizes), strides: exprs(&strides), ..ty.clone() };
        if view.sizes.len() != sizes.len() || view.strides.len() != sizes.len() {
            return Err(wrong("sizes and strides"));
        }
        let offset = offset - start;
        // Where elements of a base lie that has gaps is not the clone's business.
        if !ty.is_contiguous() || offset.as_int().is_none_or(|offset| offset < 0) {
            let feature = "a view of memory that is not row major".to_owned();
            return Err(ImportError::UnsupportedType { name: prefix.to_owned(), feature });
        }
        let args = vec![Arg::Value(base), Arg::List(sizes), Arg::List(strides), Arg::Int(offset)];
        return Ok(Arg::Value(body.compute(cx, node, Written::Strided, args, view)));
    }
    if let (Some(Arg::Int(dim)), Some(first), Some(last)) =
        (expr("slice_dim")?, expr("slice_start")?, expr("slice_end")?)
    {
        let along = dim.as_int().and_then(|dim| usize::try_from(dim).ok()).filter(|&dim| dim < ty.rank());
        let along = along.ok_or_else(|| wrong("a dimension"))?;
        let first = first.as_int().unwrap_or(Expr::zero());
        let last = last.as_int().unwrap_or(ty.sizes[along]);
        let size = ty.sizes[along];
        let is_plain = [first, last].iter().all(|e| e.as_int().is_none_or(|value| value >= 0));
        if !is_plain {
            return Err(wrong("a negative position"));
        }
        let mut view = ty.clone();
        view.sizes[along] = body.graph.facts.simplify(last.min(size) - first.min(size));
        let args =
            vec![Arg::Value(base), Arg::Int(dim), Arg::Int(first), Arg::Int(last), Arg::Int(Expr::one())];
        return Ok(Arg::Value(body.compute(cx, node, Written::Slice, args, view)));
    }
    Ok(Arg::Value(base))
}

impl Body {
    /// Adds a node of an operator that a wrapper applies.
    fn apply<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        scope: &mut Scope<'a>,
        (node, op): (&'a schema::Node<'a>, &str),
        args: Vec<Arg>,
        results: &'a [Argument<'a>],
    ) -> Result<(), ImportError> {
        let mut outputs = Vec::new();
        for result in results {
            outputs.extend(self.define(cx, scope, result)?);
        }
        let origin = self.origin(cx, node, &outputs);
        self.graph.nodes.push(Node { op: OpName::new(op), form: Form::Plain, args, outputs, origin });
        Ok(())
    }

    /// Adds a node of one result of a type.
    pub fn compute<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        node: &'a schema::Node<'a>,
        op: Written,
        args: Vec<Arg>,
        ty: TensorType,
    ) -> Value {
        let value = self.fresh("written", Type::Tensor(ty));
        let outputs = vec![Some(value)];
        let origin = self.origin(cx, node, &outputs);
        let op = OpName::new(cx.schemas.written(op));
        self.graph.nodes.push(Node { op, form: Form::Plain, args, outputs, origin });
        value
    }

    /// Replaces each tensor of an argument by a clone of it.
    fn clone_values<'a>(
        &mut self,
        cx: &mut Cx<'a>,
        node: &'a schema::Node<'a>,
        arg: &mut Arg,
    ) -> Result<(), ImportError> {
        let mut failed = None;
        arg.map_values(&mut |value| {
            let Some(ty) = self.graph.tensor(value).cloned() else {
                failed = Some(value);
                return value;
            };
            let args = vec![Arg::Value(value), Arg::MemoryFormat(MemoryFormat::Preserve)];
            self.compute(cx, node, Written::Copy, args, ty)
        });
        match failed {
            Some(_) => Err(ImportError::program(format!("{}: expected tensors to write to", node.target))),
            None => Ok(()),
        }
    }
}
