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
use crate::view::ValueAccess;
use litz_ir::Dtype;
use litz_ir::call::{CallArg, CallResult, TAKE};
use litz_ir::graph::{
    Arg, Constraint, Form, Graph, Node, OpName, Part, TensorType, Type, Value, contiguous_strides,
};
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, Callee, Extern, HostCall, Stmt, View, span};
use litz_ir::schema::{OpSchema, Tag};
use litz_sym::{Expr, Facts, Rel};
use std::collections::{BTreeMap, HashSet};

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

/// Values of a graph that calls of the host get copies of, and of copies of which, to write to.
pub(crate) fn written(graph: &Graph, table: &Table) -> HashSet<Value> {
    let mut written = HashSet::new();
    for node in graph.nodes.iter().rev() {
        if let Some(hosted) = table.hosted(node).filter(|hosted| hosted.form == Form::Functional) {
            let memory = node.args.get(hosted.schema.args.len());
            for arg in hosted.written(node).chain(memory) {
                arg.each_value(&mut |value| _ = written.insert(value));
            }
        } else if node.op.as_str() == "aten.clone.default"
            && node.outputs.iter().flatten().any(|output| written.contains(output))
        {
            written.extend(node.args.first().and_then(Arg::as_value));
        }
    }
    written
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
        let (own_args, memory) = node.args.split_at(node.args.len().min(hosted.schema.args.len()));
        let memory = self.host_memory(node, memory)?;
        let mut args = Vec::new();
        for (at, arg) in own_args.iter().enumerate() {
            let alias = hosted.schema.args.get(at).and_then(|arg| arg.alias.as_ref());
            let is_written = writes && alias.is_some_and(|alias| alias.write);
            args.push(self.host_arg(node, arg, hosted, &memory, is_written.then_some(&mut contents))?);
        }
        let sharing = self.sharing(&args, &memory);
        contents.extend(memory);
        let own = node.outputs.len().checked_sub(contents.len()).ok_or_else(|| {
            OpError::new("bad-argument", format!("{}: expected a result for each tensor written", node.op))
        })?;
        let results = node.outputs[..own].iter().map(|&output| self.host_result(node, output));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let decided: Vec<(Value, Buf)> = node.outputs[..own]
            .iter()
            .zip(&results)
            .filter_map(|(output, result)| match result {
                CallResult::Sizes(numbers, _) => Some(((*output)?, *numbers)),
                CallResult::Nothing | CallResult::Whole(_) => None,
            })
            .collect();
        for (&output, access) in node.outputs[own..].iter().zip(contents) {
            if let Some(value) = output {
                self.places[value.index()] = Some(access);
            }
        }
        let (op, effect) = (node.op.to_string(), hosted.effect.map(str::to_owned));
        self.push_call(node, HostCall { op, args, results, sharing, effect });
        self.host_sizes(&node.outputs[..own])?;
        decided.into_iter().try_for_each(|(value, numbers)| self.decided(node, value, numbers))?;
        self.require_one_device(first)
    }

    fn push_call(&mut self, node: &Node, call: HostCall) {
        self.loops.stmts.push(Stmt::Extern(Extern {
            name: format!("n{}", self.loops.stmts.len()),
            from: self.from.clone(),
            callee: Callee::Host(call),
            message: node.source().map(|line| &**line).map(str::to_owned),
        }));
    }

    /// Copies of the values whose memory a functional node is given parts of, with the strides of their types, which parts count in.
    fn host_memory(&mut self, node: &Node, list: &[Arg]) -> Result<Vec<ValueAccess>, OpError> {
        let mut values = Vec::new();
        list.iter().for_each(|arg| arg.each_value(&mut |value| values.push(value)));
        let mut memory = Vec::new();
        for value in values {
            let ty = self.graph.tensor(value).cloned();
            let ty = ty.filter(|ty| is_distinct(&self.loops.facts, ty)).ok_or_else(|| {
                OpError::new("unsupported", format!("{}: parts of memory whose elements coincide", node.op))
            })?;
            let access = self.access(Tensor { value, ty: &ty })?;
            let name = format!("{}_for_host", self.graph.values[value].name);
            memory.push(self.copy(&access, &name, &ty)?);
        }
        Ok(memory)
    }

    /// Buffers of which arguments are parts that are not known to be apart, where one of them is written.
    fn sharing(&self, args: &[CallArg<View>], memory: &[ValueAccess]) -> Vec<Buf> {
        let mut parts = Vec::new();
        args.iter().for_each(|arg| arg.each_tensor(&mut |view, is_written| parts.push((view, is_written))));
        let facts = &self.loops.facts;
        let may_meet = |buf: Buf| {
            let parts: Vec<_> = parts.iter().filter(|(view, _)| view.buf == buf).collect();
            parts.iter().enumerate().any(|(at, (one, is_written))| {
                parts[..at]
                    .iter()
                    .any(|(other, is_other)| (*is_written || *is_other) && !one.is_apart(other, facts))
            })
        };
        memory.iter().map(|access| access.buf).filter(|&buf| may_meet(buf)).collect()
    }

    /// An argument as the host gets it. What is written is a copy, which `contents` lists.
    fn host_arg(
        &mut self,
        node: &Node,
        arg: &Arg,
        hosted: &Hosted<'_>,
        memory: &[ValueAccess],
        mut contents: Option<&mut Vec<ValueAccess>>,
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
                let item = |item: &Arg| self.host_arg(node, item, hosted, memory, contents.as_deref_mut());
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
            Arg::Part(Part { of, sizes, strides, offset }) => {
                let Some(memory) = memory.get(*of) else { return unsupported("a part of no tensor") };
                let (sizes, strides, offset) = (sizes.clone(), strides.clone(), *offset);
                // Of a part of symbolic sizes it is a condition of calls that it is there, as eager mode has it.
                let (end, room) = (offset + span(&sizes, &strides), self.loops.bufs[memory.buf].span());
                for inside in [Rel::le(0, offset), Rel::le(end, room)] {
                    let required = self.loops.facts.require(inside, node.op.as_str());
                    required.map_err(|never| OpError::new("invalid-operator", never.to_string()))?;
                }
                let view = View { buf: memory.buf, sizes, strides, offset };
                if contents.is_some() { CallArg::Update(view) } else { CallArg::Tensor(view) }
            }
        })
    }

    /// A tensor that lies as the host wants it: where it is, or a copy.
    fn host_tensor(
        &mut self,
        value: Value,
        ty: &TensorType,
        layout: Constraint,
        is_written: bool,
    ) -> Result<(View, ValueAccess), OpError> {
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

    /// Where a result goes. A number is a tensor without dimensions; an integer is the value of a size. Of a tensor whose sizes nothing has given
    /// so far the sizes come first.
    fn host_result(&mut self, node: &Node, output: Option<Value>) -> Result<CallResult<Buf>, OpError> {
        let Some(value) = output else { return Ok(CallResult::Nothing) };
        if let Some(ty) = self.graph.tensor(value).cloned()
            && ty.sizes.iter().any(|size| self.is_decided(*size))
        {
            let name = format!("{}_sizes", self.graph.values[value].name);
            let numbers = self.temp(&name, Dtype::I64, &[Expr::int(ty.rank() as i64 + 1)]);
            return Ok(CallResult::Sizes(numbers.buf, ty.dtype));
        }
        self.host_buffer(node, value).map(CallResult::Whole)
    }

    /// Whether nothing has given a size a value so far.
    fn is_decided(&self, size: Expr) -> bool {
        size.syms().iter().any(|sym| !self.given.contains(sym))
    }

    /// The buffer of a result whose sizes are known.
    fn host_buffer(&mut self, node: &Node, value: Value) -> Result<Buf, OpError> {
        let data = &self.graph.values[value];
        let ty = data.ty.stored().into_owned();
        if let Some(size) = ty.sizes.iter().chain(&ty.strides).find(|size| self.is_decided(**size)) {
            let message = format!("{}: %{}, whose size {size} the host decides", node.op, data.name);
            return Err(OpError::new("unsupported", message));
        }
        let facts = &self.loops.facts;
        let strides =
            if is_distinct(facts, &ty) { ty.strides.clone() } else { preserved_strides(facts, &ty) };
        let access = self.buffer(&data.name, &TensorType { strides, ..ty });
        let buf = access.buf;
        self.places[value.index()] = Some(access);
        Ok(buf)
    }

    /// Gives symbols the sizes that a result has, which `numbers` has behind the number of the result, compares those that are known, and takes the
    /// result.
    fn decided(&mut self, node: &Node, value: Value, numbers: Buf) -> Result<(), OpError> {
        let sizes = self.graph.tensor(value).map(|ty| ty.sizes.clone()).unwrap_or_default();
        let (vector, rank) = (ValueAccess::whole(numbers, &self.loops.bufs[numbers]), sizes.len());
        // Sizes that are a symbol give it its value before others mention it.
        let (alone, others): (Vec<usize>, Vec<usize>) = (0..rank).partition(|&d| sizes[d].as_sym().is_some());
        for d in alone.into_iter().chain(others) {
            if sizes[d].as_sym().is_none() && self.is_decided(sizes[d]) {
                continue;
            }
            let number = self.temp("decided", Dtype::I64, &[]);
            self.nest(&[], |b, at| {
                let found = b.load(&vector, &[Expr::int(d as i64 + 1)]);
                b.store(&number, at, found);
                Ok(())
            })?;
            self.size(sizes[d], &number)?;
        }
        let buf = self.host_buffer(node, value)?;
        let whole = View {
            buf: numbers,
            sizes: vec![Expr::int(rank as i64 + 1)],
            strides: vec![Expr::one()],
            offset: Expr::zero(),
        };
        let (args, results) = (vec![CallArg::Tensor(whole)], vec![CallResult::Whole(buf)]);
        self.push_call(
            node,
            HostCall { op: TAKE.to_owned(), args, results, sharing: Vec::new(), effect: None },
        );
        Ok(())
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
    let is_le = |a: Expr, b: Expr| facts.holds(&Rel::le(a, b));
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
