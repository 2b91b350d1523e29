//! Lowers nodes that the host runs to calls of it, and says what is known of their operators.
//!
//! Operands go to the host where they are, as views of buffers. One that does not lie as the operator's declaration asks is
//! copied, and so is what the host writes to: the pass `in_place` drops the copies of what nobody reads any more.

use crate::args::Tensor;
use crate::error::OpError;
use crate::layout::{is_distinct, preserved_strides, same};
use crate::lower::Lower;
use crate::table::Table;
use crate::traits::Layout;
use crate::view::Access;
use litz_ir::call::CallArg;
use litz_ir::graph::{Arg, Constraint, Form, Node, OpName, TensorType, Type, Value, contiguous_strides};
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, Callee, Extern, HostCall, Stmt, View};
use litz_ir::schema::{OpSchema, Tag};
use litz_sym::{Expr, Facts, Rel};
use std::collections::BTreeMap;

/// What is known of the operator of a node that the host runs.
#[derive(Clone, Copy, Debug)]
pub struct Hosted<'a> {
    /// Its arguments and results.
    pub schema: &'a OpSchema,
    /// How its operands have to lie.
    pub constraint: Constraint,
    /// What calls of it have an order by.
    pub effect: Option<&'a str>,
    /// How the node applies it.
    pub form: Form,
}

impl<'a> Hosted<'a> {
    /// Whether the node's results follow from its arguments, and nothing else comes of it: equal nodes may become one, and unused
    /// ones none. An operator without an effect that is not tagged as random is taken at its word.
    pub fn is_pure(&self) -> bool {
        let is_random = self.schema.tags.contains(&Tag::NondeterministicSeeded);
        let may_write = self.schema.tags.contains(&Tag::MaybeAliasingOrMutating) || self.writes();
        self.effect.is_none() && !is_random && !may_write
    }

    /// Whether the node writes to its arguments.
    pub fn writes(&self) -> bool {
        self.form != Form::Functional && self.schema.is_mutating()
    }

    /// The arguments of a node that its operator writes to.
    pub fn written<'n>(&self, node: &'n Node) -> impl Iterator<Item = &'n Arg> + use<'a, 'n> {
        self.schema.written().filter_map(|at| node.args.get(at))
    }

    /// How the operator treats the layout of its operands.
    pub fn layout(&self) -> Layout {
        match self.constraint {
            Constraint::Exact | Constraint::Order => Layout::Reads,
            Constraint::Contiguous | Constraint::Any => Layout::Follows,
        }
    }
}

impl<'g> Lower<'g> {
    /// Appends a call of the host for a node: of the operator that does the same in place, where the host has one.
    pub(crate) fn host(&mut self, node: &Node, hosted: &Hosted<'_>) -> Result<(), OpError> {
        match self.twin(node, hosted) {
            Some((node, hosted)) => self.call_of_host(&node, &hosted),
            None => self.call_of_host(node, hosted),
        }
    }

    /// The functional form of the operator that does in place what a node's operator does, with the same results. In it the results
    /// are what the arguments hold then.
    fn twin<'h>(&self, node: &Node, hosted: &Hosted<'h>) -> Option<(Node, Hosted<'h>)>
    where
        'g: 'h,
    {
        let table: &'g Table = self.table;
        let name = hosted.schema.twin_name().filter(|name| table.op(name).is_none())?;
        if hosted.form != Form::Plain {
            return None;
        }
        let twin = Node { op: OpName::new(&*name), form: Form::Functional, ..node.clone() };
        let by_twin: Hosted<'h> = table.hosted(&twin)?;
        let is_ordered_alike = by_twin.effect.is_none() || by_twin.effect == hosted.effect;
        if !is_ordered_alike || !hosted.schema.is_twin(by_twin.schema) {
            return None;
        }
        let contents = self.contents(node, by_twin.schema)?;
        let own = vec![None; node.outputs.len()];
        let outputs = own.into_iter().chain(contents).collect();
        Some((Node { outputs, ..twin }, Hosted { effect: hosted.effect, ..by_twin }))
    }

    /// For each tensor that the twin of a node's operator writes to the node's result that it becomes. None where one has not the
    /// type of the result.
    fn contents(&self, node: &Node, twin: &OpSchema) -> Option<Vec<Option<Value>>> {
        let tensors = |at: usize| {
            let mut values = Vec::new();
            node.args[at].each_value(&mut |value| values.push(value));
            values
        };
        let (mut contents, mut results) = (BTreeMap::new(), node.outputs.iter());
        for at in (0..twin.returns.len()).filter_map(|at| twin.returned(at)) {
            let mut of_arg = Vec::new();
            for value in tensors(at) {
                let &result = results.next()?;
                let types = (self.graph.tensor(value)?, result.map(|result| self.graph.tensor(result)));
                if let (given, Some(result)) = types {
                    let result = result?;
                    let is_same = |(&a, &b)| same(&self.loops.facts, a, b);
                    let is_whole = given.rank() == result.rank()
                        && given.sizes.iter().zip(&result.sizes).all(is_same)
                        && (given.dtype, given.device) == (result.dtype, result.device);
                    is_whole.then_some(())?;
                }
                of_arg.push(result);
            }
            contents.insert(at, of_arg);
        }
        results.next().is_none().then(|| contents.into_values().flatten().collect())
    }

    fn call_of_host(&mut self, node: &Node, hosted: &Hosted<'_>) -> Result<(), OpError> {
        let first = self.loops.stmts.len();
        let writes = hosted.form == Form::Functional;
        let mut contents = Vec::new();
        let mut args = Vec::new();
        for (at, arg) in node.args.iter().enumerate() {
            let alias = hosted.schema.args.get(at).and_then(|arg| arg.alias.as_ref());
            let is_written = writes && alias.is_some_and(|alias| alias.write);
            args.push(self.host_arg(node, arg, hosted, is_written.then_some(&mut contents))?);
        }
        let own = node.outputs.len().checked_sub(contents.len()).ok_or_else(|| {
            OpError::new("bad-argument", format!("{}: expected a result for each tensor written", node.op))
        })?;
        let results = node.outputs[..own].iter().map(|&output| self.host_result(node, output));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        for (&output, access) in node.outputs[own..].iter().zip(contents) {
            if let Some(value) = output {
                self.places[value.index()] = Some(access);
            }
        }
        let call =
            HostCall { op: node.op.to_string(), args, results, effect: hosted.effect.map(str::to_owned) };
        self.loops.stmts.push(Stmt::Extern(Extern {
            name: format!("n{}", self.loops.stmts.len()),
            from: self.from.clone(),
            callee: Callee::Host(call),
            message: node.source.as_deref().map(str::to_owned),
        }));
        self.host_sizes(&node.outputs[..own])?;
        self.require_one_device(first)
    }

    /// An argument as the host gets it. What is written is a copy, which `contents` lists.
    fn host_arg(
        &mut self,
        node: &Node,
        arg: &Arg,
        hosted: &Hosted<'_>,
        mut contents: Option<&mut Vec<Access>>,
    ) -> Result<CallArg<View>, OpError> {
        let unsupported =
            |what: &str| Err(OpError::new("unsupported", format!("{}: {what} for the host", node.op)));
        Ok(match arg {
            Arg::None => CallArg::None,
            Arg::Int(value) => CallArg::Int(*value),
            Arg::Float(value) => CallArg::Float(*value),
            Arg::Bool(value) => CallArg::Bool(*value),
            Arg::Complex(re, im) => CallArg::Complex(*re, *im),
            Arg::Str(text) => CallArg::Str(text.clone()),
            Arg::Dtype(dtype) => CallArg::Dtype(*dtype),
            Arg::Device(device) => CallArg::Device(*device),
            Arg::Strided => CallArg::Strided,
            Arg::MemoryFormat(format) => CallArg::MemoryFormat(*format),
            Arg::List(items) => {
                let item = |item: &Arg| self.host_arg(node, item, hosted, contents.as_deref_mut());
                CallArg::List(items.iter().map(item).collect::<Result<_, _>>()?)
            }
            Arg::Value(value) => match &self.graph.values[*value].ty {
                Type::Int(value) => CallArg::Int(*value),
                Type::Tensor(ty) => {
                    let (view, access) =
                        self.host_tensor(*value, ty, hosted.constraint, contents.is_some())?;
                    match contents {
                        Some(contents) => {
                            contents.push(access);
                            CallArg::Update(view)
                        }
                        None => CallArg::Tensor(view),
                    }
                }
                // A number that the program computes is a tensor without dimensions.
                number @ (Type::Float | Type::Bool) => {
                    let ty = number.stored().into_owned();
                    CallArg::Tensor(self.host_tensor(*value, &ty, Constraint::Any, false)?.0)
                }
            },
            Arg::Graph(_) => return unsupported("a graph"),
        })
    }

    /// A tensor that lies as the host wants it: where it is, or a copy.
    fn host_tensor(
        &mut self,
        value: Value,
        ty: &TensorType,
        layout: Constraint,
        is_written: bool,
    ) -> Result<(View, Access), OpError> {
        let access = self.access(Tensor { value, ty })?;
        if !is_written
            && let Some((strides, offset)) = self.strides(&access)
            && fits(&self.loops.facts, ty, &strides, layout)
        {
            let sizes = ty.sizes.clone();
            return Ok((View { buf: access.buf, sizes, strides, offset }, access));
        }
        let facts = &self.loops.facts;
        let strides = match layout {
            Constraint::Contiguous => contiguous_strides(&ty.sizes),
            Constraint::Exact | Constraint::Order | Constraint::Any if is_distinct(facts, ty) => {
                ty.strides.clone()
            }
            Constraint::Exact | Constraint::Order | Constraint::Any => preserved_strides(facts, ty),
        };
        let name = format!("{}_for_host", self.graph.values[value].name);
        let ty = TensorType { strides, ..ty.clone() };
        let access = self.copy(&access, &name, &ty)?;
        let TensorType { sizes, strides, .. } = ty;
        Ok((View { buf: access.buf, sizes, strides, offset: Expr::zero() }, access))
    }

    /// The buffer of a result. A number is a tensor without dimensions; an integer is the value of a size.
    fn host_result(&mut self, node: &Node, output: Option<Value>) -> Result<Option<Buf>, OpError> {
        let Some(value) = output else { return Ok(None) };
        let data = &self.graph.values[value];
        let ty = data.ty.stored().into_owned();
        let mut symbols = ty.sizes.iter().chain(&ty.strides).flat_map(|size| size.syms());
        if let Some(sym) = symbols.find(|sym| !self.given.contains(sym)) {
            let message = format!("{}: %{}, whose size {sym} the host decides", node.op, data.name);
            return Err(OpError::new("unsupported", message));
        }
        let facts = &self.loops.facts;
        let strides =
            if is_distinct(facts, &ty) { ty.strides.clone() } else { preserved_strides(facts, &ty) };
        let access = self.buffer(&data.name, &TensorType { strides, ..ty });
        let buf = access.buf;
        self.places[value.index()] = Some(access);
        Ok(Some(buf))
    }

    /// Gives sizes the values that integers among the results have.
    fn host_sizes(&mut self, outputs: &[Option<Value>]) -> Result<(), OpError> {
        for value in outputs.iter().flatten() {
            if let (Type::Int(size), Some(number)) =
                (&self.graph.values[*value].ty, self.places[value.index()].clone())
            {
                self.size(*size, &number)?;
            }
        }
        Ok(())
    }
}

/// Whether a tensor of type `ty` that lies in memory by `strides` does so as an operator asks.
fn fits(facts: &Facts, ty: &TensorType, strides: &[Expr], layout: Constraint) -> bool {
    let dims = || (0..ty.rank()).filter(|&d| !ty.sizes[d].is_one());
    let is_as = |expected: &[Expr]| dims().all(|d| same(facts, strides[d], expected[d]));
    let is_le = |a: Expr, b: Expr| facts.known(&Rel::le(a, b)).is_yes();
    // PyTorch has no tensors with negative strides.
    let is_forward = dims().all(|d| is_le(Expr::zero(), strides[d]));
    match layout {
        Constraint::Any => is_forward,
        Constraint::Exact => is_as(&ty.strides) && is_forward,
        Constraint::Contiguous => is_as(&contiguous_strides(&ty.sizes)),
        // Whichever two dimensions are compared, the one that is outside by the type is outside in memory.
        Constraint::Order => {
            is_forward
                && dims().all(|a| {
                    dims().all(|b| !is_le(ty.strides[a], ty.strides[b]) || is_le(strides[a], strides[b]))
                })
                && dims().all(|a| {
                    let is_compared =
                        |b: usize| is_le(ty.strides[a], ty.strides[b]) || is_le(ty.strides[b], ty.strides[a]);
                    is_as(&ty.strides) || dims().all(is_compared)
                })
        }
    }
}
