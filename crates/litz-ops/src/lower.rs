//! Lowers a functional graph to loops: one nest for each computed operator, views as index functions.

mod bring;
pub mod function;
mod inside;
mod outputs;
mod pointwise;
pub mod results;

use crate::args::{Args, Tensor};
use crate::body::Body;
use crate::complex;
use crate::def::{OpDef, ResultRule, Rule, unsupported_type};
use crate::device::device_of;
use crate::error::OpError;
use crate::infer::{InferCx, first_operand};
use crate::layout::{is_overlapping, storage_holds};
use crate::sizes;
use crate::table::Table;
use crate::traits::{Layout, Op, syms_of};
use crate::view::{ValueAccess, View};
use litz_ir::graph::{Arg, Device, Form, Graph, Node, TensorType, Type, Value, contiguous_strides};
use litz_ir::ids::Id;
use litz_ir::loops::{
    Buf, BufData, BufKind, Callee, Extern, Inst, InstOp, Loops, Nest, Output, Routine, Stmt,
};
use litz_ir::verify::loops::Inside;
use litz_ir::{Diag, Diags, Dtype, Scalar};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashSet;

/// The loops that compute a graph. The graph is functional: no in-place operators, decompositions done.
///
/// # Errors
/// Every node that is not supported, with its source line.
pub fn lower(graph: &Graph) -> Result<Loops, Diags> {
    lower_with(graph, &|_| false)
}

/// Whether the host has an operator.
pub type Provides<'a> = dyn Fn(&str) -> bool + 'a;

/// As [`lower`]; what is not supported of an operator that the host has as well, such as complex numbers, goes to the host.
///
/// # Errors
/// As [`lower`].
pub fn lower_with(graph: &Graph, provides: &Provides<'_>) -> Result<Loops, Diags> {
    let table = Table::of(graph);
    let missing = check_with(&table, graph);
    if !missing.is_empty() {
        return Err(missing);
    }
    let undefined = undefined_arguments(graph);
    if !undefined.is_empty() {
        return Err(undefined);
    }
    let simplified = sizes::simplified(graph);
    let mut lower = Lower::new(&simplified, &table, provides);
    let mut diags = Diags::new();
    if let Err(error) = lower.declare_inputs(graph) {
        diags.push(error);
    }
    for node in &simplified.nodes {
        if let Err(error) = lower.node(node) {
            diags.push(error.at(node, &simplified.values));
            lower.stand_in(node);
        }
    }
    if let Err(error) = lower.finish() {
        diags.push(error);
    }
    if diags.is_empty() {
        diags = unknown_sizes(&lower);
    }
    if diags.is_empty() { Ok(lower.loops) } else { Err(diags) }
}

/// Every operator of the graph and its subgraphs that has no entry, once for each use.
pub fn check(graph: &Graph) -> Diags {
    check_with(&Table::of(graph), graph)
}

fn check_with(table: &Table, graph: &Graph) -> Diags {
    let missing = |node: &&Node| table.op_of(node).is_none() && table.hosted(node).is_none();
    let diag = |node: &Node| OpError::missing(node.op.as_str()).at(node, &graph.values);
    let own = graph.nodes.iter().filter(missing).map(diag);
    own.chain(graph.subgraphs.iter().flat_map(|g| check_with(table, g))).collect()
}

/// Symbols that a node's arguments mention before an input or a result gives them values. Facts may say that such a symbol equals
/// one that has a value, but a graph that relies on it is one whose types somebody changed.
fn undefined_arguments(graph: &Graph) -> Diags {
    let mut given: HashSet<Sym> =
        graph.facts.symbols().filter(|&sym| graph.facts.range_of(sym).single().is_some()).collect();
    let inputs = graph.inputs.iter().chain(graph.consts.iter().map(|(value, _)| value));
    given.extend(inputs.flat_map(|&value| syms_of(&graph.values[value].ty)));
    let mut diags = Diags::new();
    for node in &graph.nodes {
        let mut mentioned = Vec::new();
        node.args.iter().for_each(|arg| arg.each_int(&mut |size| mentioned.extend(size.syms())));
        if let Some(sym) = mentioned.into_iter().find(|sym| !given.contains(sym)) {
            let message = format!("{}: neither an input nor an earlier node gives {sym} a value", node.op);
            diags.push(OpError::new("undefined-symbol", message).at(node, &graph.values));
        }
        let results = node.outputs.iter().flatten();
        given.extend(results.flat_map(|&value| syms_of(&graph.values[value].ty)));
    }
    diags
}

/// Sizes that are mentioned and that nothing gives a value.
fn unknown_sizes(lower: &Lower<'_>) -> Diags {
    let loops = &lower.loops;
    let mut diags = Diags::new();
    for sym in loops.facts.symbols().filter(|sym| !lower.given.contains(sym)) {
        let mut fail = |what: String| {
            let message = format!("{what}: neither an input nor a computed value gives {sym}");
            diags.push(Diag::new("undefined-symbol", message));
        };
        let guard = loops.facts.guards().iter().find(|guard| {
            guard.clause.alternatives().iter().any(|rel| rel.lhs.has_sym(sym) || rel.rhs.has_sym(sym))
        });
        let stmt = loops.stmts.iter().find(|stmt| loops.mentions(stmt, sym));
        let output = loops.outputs.iter().position(|output| match output {
            Output::View { buf: _, sizes, strides, offset } => {
                sizes.iter().chain(strides).chain([offset]).any(|e| e.has_sym(sym))
            }
            Output::Int(value) => value.has_sym(sym),
            Output::Number(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => false,
        });
        if let Some(guard) = guard {
            fail(format!("{}: `{}`", guard.who, guard.clause));
        } else if let Some(stmt) = stmt {
            fail(format!("%{}", stmt.from().first().map_or(stmt.name(), String::as_str)));
        } else if let Some(at) = output {
            fail(format!("result {at}"));
        }
    }
    diags
}

/// A graph being lowered.
pub struct Lower<'a> {
    pub(crate) graph: &'a Graph,
    /// What the host has.
    provides: &'a Provides<'a>,
    pub(crate) table: &'a Table,
    pub(crate) loops: Loops,
    /// Where the elements of each value are.
    pub(crate) places: Vec<Option<ValueAccess>>,
    names: HashSet<String>,
    /// Size symbols that inputs or statements give values.
    pub(crate) given: HashSet<Sym>,
    /// Values that the host is given copies of to write to.
    written_by_host: HashSet<Value>,
    /// Names of the values that the current node defines; of those it takes, where it defines none.
    pub(crate) from: Vec<String>,
    inside: Inside,
    /// Where the current node's results are.
    device: Device,
    /// The current node's operator, and the user's line where it is known.
    who: String,
}

impl<'a> Lower<'a> {
    fn new(graph: &'a Graph, table: &'a Table, provides: &'a Provides<'a>) -> Lower<'a> {
        let mut loops = Loops::new(graph.name.clone(), graph.device);
        loops.facts = graph.facts.clone();
        let places = vec![None; graph.values.len()];
        Lower {
            graph,
            table,
            provides,
            loops,
            places,
            names: HashSet::new(),
            given: HashSet::new(),
            written_by_host: crate::hosted::written(graph, table),
            from: Vec::new(),
            inside: Inside::default(),
            device: graph.device,
            who: String::new(),
        }
    }

    // What rules use.

    /// Where the elements of a tensor argument are.
    pub fn access(&self, tensor: Tensor<'_>) -> Result<ValueAccess, OpError> {
        self.place_of(tensor.value)
    }

    /// A buffer for the `i`-th result, laid out as its type says; `None` when nothing uses the result.
    pub fn result(&mut self, args: &Args<'_>, i: usize) -> Option<ValueAccess> {
        let value = args.node.outputs.get(i).copied().flatten()?;
        let ty = self.graph.tensor(value)?;
        let access = self.buffer(&self.graph.values[value].name, ty);
        self.places[value.index()] = Some(access.clone());
        Some(access)
    }

    /// Whether the host is given a copy of a value to write to.
    pub(crate) fn is_written_by_host(&self, value: Value) -> bool {
        self.written_by_host.contains(&value)
    }

    /// Says where the elements of the `i`-th result are.
    pub fn set_result(&mut self, args: &Args<'_>, i: usize, access: ValueAccess) {
        if let Some(value) = args.node.outputs.get(i).copied().flatten() {
            self.places[value.index()] = Some(access);
        }
    }

    /// A result without elements, as those have that were not asked for.
    pub(crate) fn nothing(&mut self, args: &Args<'_>, i: usize) -> Result<(), OpError> {
        let Some(out) = self.result(args, i) else { return Ok(()) };
        self.nest(&out.sizes, |b, at| {
            let zero = b.literal(Scalar::zero(out.dtype), out.dtype);
            b.store(&out, at, zero);
            Ok(())
        })
    }

    /// A contiguous intermediate buffer, named after the node's first result and `role`.
    pub fn temp(&mut self, role: &str, dtype: Dtype, sizes: &[Expr]) -> ValueAccess {
        let base = self.from.first().map_or("", String::as_str);
        let name = format!("{base}_{role}");
        self.buffer(&name, &TensorType::contiguous(dtype, sizes.to_vec()).on(self.device))
    }

    /// Appends a nest over `sizes`; `build` gets the coordinates, 0 where a size is 1.
    pub fn nest(
        &mut self,
        sizes: &[Expr],
        build: impl FnOnce(&mut Body<'_>, &[Expr]) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let mut body = Body::new(&self.loops.facts);
        let at = body.axes(sizes);
        build(&mut body, &at)?;
        let mut nest = body.finish(format!("n{}", self.loops.stmts.len()), self.from.clone());
        self.require_operations(&nest)?;
        self.require_inside(&mut nest)?;
        self.loops.stmts.push(Stmt::Nest(nest));
        Ok(())
    }

    /// Operations that a type does not have, and numbers that it cannot hold, are what PyTorch refuses.
    fn require_operations(&self, nest: &Nest) -> Result<(), OpError> {
        let refused = |what: String| OpError::new("unsupported", format!("{}: {what}", self.who));
        for Inst { op, ty, .. } in &nest.body {
            match op {
                InstOp::Op(op, operands) => {
                    let operand = operands.last().map_or(*ty, |&operand| nest.body[operand.index()].ty);
                    if !op.is_defined_for(operand) {
                        return Err(refused(format!("`{}` of {operand} is not defined", op.name())));
                    }
                }
                InstOp::Const(value) if ty.is_int() && !value.is_literal_of(*ty) => {
                    return Err(refused(format!("{value} is no {ty}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends a call of a runtime routine, which takes buffers as the vectors that they are in memory.
    pub fn call(&mut self, routine: &str, reads: &[&ValueAccess], writes: &[&ValueAccess], ints: Vec<Expr>) {
        self.call_or_report(routine, reads, writes, ints, None);
    }

    /// Appends a check that all elements of a whole contiguous buffer of bool are true; a call of the program in which
    /// one is not fails with the message.
    pub fn check(&mut self, holds: &ValueAccess, message: String) {
        self.call_or_report("assert", &[holds], &[], Vec::new(), Some(message));
    }

    /// Lets a size be what the one element of a buffer of i64 is. A symbol that has no value yet gets it; any other expression
    /// has to be equal, else the call of the program fails.
    pub fn size(&mut self, size: Expr, number: &ValueAccess) -> Result<(), OpError> {
        if let Some(sym) = size.as_sym()
            && self.given.insert(sym)
        {
            let (name, message) = (sym.name().to_owned(), Some(self.who.clone()));
            let (from, callee) = (self.from.clone(), Callee::Size { sym, number: number.buf });
            self.loops.stmts.push(Stmt::Extern(Extern { name, from, callee, message }));
            return Ok(());
        }
        let holds = self.temp("agrees", Dtype::Bool, &[]);
        self.nest(&[], |b, at| {
            let (found, expected) = (b.load(number, at), b.index(size, Dtype::I64));
            let equal = b.eq(found, expected);
            b.store(&holds, at, equal);
            Ok(())
        })?;
        self.check(&holds, format!("{}: expected {size}", self.who));
        Ok(())
    }

    /// As [`Lower::size`], of a number that is at most `most`.
    pub fn count(&mut self, count: Expr, number: &ValueAccess, most: Expr) -> Result<(), OpError> {
        self.size(count, number)?;
        let required = self.loops.facts.require(Rel::le(count, most), &self.who);
        required.map_err(|never| OpError::new("invalid-operator", never.to_string()))
    }

    /// The places of the elements that are not zero, in row-major order: for each dimension a vector of `count` coordinates.
    pub fn places(&mut self, of: &ValueAccess, count: Expr) -> Result<Vec<ValueAccess>, OpError> {
        let mask = self.temp("mask", Dtype::Bool, &of.sizes);
        self.nest(&of.sizes, |b, at| {
            let value = b.read_as(of, at, Dtype::Bool);
            b.store(&mask, at, value);
            Ok(())
        })?;
        let elements: Expr = of.sizes.iter().copied().product();
        let found = self.temp("places", Dtype::I64, &[elements]);
        let number = self.temp("count", Dtype::I64, &[]);
        self.call("nonzero", &[&mask], &[&found, &number], vec![elements]);
        self.count(count, &number, elements)?;
        let digits = contiguous_strides(&of.sizes);
        let coordinates = |lw: &mut Self, dim: usize| {
            let to = lw.temp("coordinates", Dtype::I64, &[count]);
            lw.nest(&[count], |b, at| {
                let place = b.load(&found, at);
                let place = b.bind(place, elements);
                let coordinate = place.floordiv(digits[dim]).modulo(of.sizes[dim]);
                let coordinate = b.index(coordinate, Dtype::I64);
                b.store(&to, at, coordinate);
                Ok(())
            })?;
            Ok(to)
        };
        (0..of.rank()).map(|dim| coordinates(self, dim)).collect()
    }

    fn call_or_report(
        &mut self,
        routine: &str,
        reads: &[&ValueAccess],
        writes: &[&ValueAccess],
        ints: Vec<Expr>,
        message: Option<String>,
    ) {
        let bufs = |list: &[&ValueAccess]| list.iter().map(|a| a.buf).collect();
        self.loops.stmts.push(Stmt::Extern(Extern {
            name: format!("n{}", self.loops.stmts.len()),
            from: self.from.clone(),
            callee: Callee::Routine(Routine {
                name: routine.to_owned(),
                reads: bufs(reads),
                writes: bufs(writes),
                ints,
            }),
            message,
        }));
    }

    /// Copies a value to a new buffer with the layout of `ty`, converting to its element type. Elements that share memory there, as
    /// those of an expanded tensor do, have to share it in the value, too, and are stored once.
    pub fn copy(&mut self, from: &ValueAccess, name: &str, ty: &TensorType) -> Result<ValueAccess, OpError> {
        let mut stored = ty.clone();
        let strides = self.strides(from).map(|(strides, _)| strides);
        for (d, size) in stored.sizes.iter_mut().enumerate() {
            let is_expanded = strides.as_ref().is_some_and(|strides| strides[d].is_zero());
            if ty.strides[d].is_zero() && is_expanded {
                *size = (*size).min(1);
            }
        }
        if is_overlapping(&self.loops.facts, &stored) {
            let message = format!("{}: a copy to {ty}, whose elements share memory", self.who);
            return Err(OpError::new("unsupported", message));
        }
        if ty.dtype == Dtype::C128 {
            let message = format!("%{name}: a copy of element type {}", ty.dtype);
            return Err(OpError::new("unsupported", message));
        }
        let to = self.buffer(name, ty);
        self.nest(&stored.sizes, |b, at| {
            let v = b.load(from, at);
            b.store(&to, at, v);
            Ok(())
        })?;
        Ok(to)
    }

    /// The value as a whole contiguous buffer: itself if it is one, else a copy.
    pub fn contiguous(&mut self, access: &ValueAccess, role: &str) -> Result<ValueAccess, OpError> {
        let data = &self.loops.bufs[access.buf];
        let ty = TensorType::contiguous(access.dtype, access.sizes.clone()).on(data.device);
        // Elements of an expanded buffer that are apart may fill its memory, but a routine takes all that it has.
        if access.is_strided_as(&ty, &self.loops.facts) && data.span() == ty.numel() && data.is_dense() {
            return Ok(access.clone());
        }
        let base = self.from.first().map_or("", String::as_str);
        self.copy(access, &format!("{base}_{role}"), &ty)
    }

    /// The access of a view of a value.
    pub fn view(&self, access: &ValueAccess, view: &View) -> ValueAccess {
        access.view(view, &self.loops.facts)
    }

    /// Strides and offset of a value in memory, when these say where its elements are.
    pub fn strides(&self, access: &ValueAccess) -> Option<(Vec<Expr>, Expr)> {
        access.strides(&self.loops.facts)
    }

    /// What type functions take.
    pub fn infer_cx(&mut self) -> InferCx<'_> {
        let (table, device) = (self.table, self.device);
        InferCx { table, values: &self.graph.values, facts: &mut self.loops.facts, device }
    }

    /// What an operator of [`Layout::Reads`] sees of a tensor: the buffer behind it and the first element's place there. The tensor is
    /// copied first when its elements do not lie where its type's strides say.
    pub fn storage(&mut self, tensor: Tensor<'_>) -> Result<(Buf, Expr), OpError> {
        let access = self.access(tensor)?;
        if let Some((strides, offset)) = self.strides(&access)
            && (0..access.rank()).all(|d| strides[d] == tensor.ty.strides[d] || tensor.ty.sizes[d].is_one())
        {
            return Ok((access.buf, offset));
        }
        let name = self.graph.values[tensor.value].name.clone();
        Ok((self.copy(&access, &name, tensor.ty)?.buf, Expr::zero()))
    }

    /// What a tensor of these sizes and strides at `offset` sees of the memory that a buffer takes.
    pub fn strided(
        &mut self,
        args: &Args<'_>,
        buf: Buf,
        (sizes, strides): (Vec<Expr>, &[Expr]),
        offset: Expr,
    ) -> Result<ValueAccess, OpError> {
        let data = self.loops.bufs[buf].clone();
        // How far the memory reaches is known here only: the operand may view a part of it. What lies between the elements
        // of an input is not part of it: a call may copy the elements together.
        let access = ValueAccess::strided((buf, &data), sizes.clone(), strides, offset, &self.loops.facts)
            .ok_or_else(|| args.unsupported("a tensor with gaps between its elements"))?;
        storage_holds(&mut self.infer_cx(), args, (&sizes, strides), offset, data.span())?;
        Ok(access)
    }

    // Walking the graph.

    /// Buffers of inputs have the sizes that `declared` gives them, since calls are checked against these: where a guard
    /// makes a symbol a number, they still bind the symbol.
    ///
    /// # Errors
    /// Where a number is expected that another input contradicts.
    fn declare_inputs(&mut self, declared: &Graph) -> Result<(), Diag> {
        let facts = &declared.facts;
        self.given.extend(facts.symbols().filter(|&sym| facts.range_of(sym).single().is_some()));
        let tensors = declared.inputs.iter().filter_map(|&value| declared.tensor(value));
        self.given.extend(tensors.flat_map(|ty| &ty.sizes).flat_map(|size| size.syms()));
        let mut numbers = Vec::new();
        for &value in &self.graph.inputs {
            self.declare(value, BufKind::Input);
            if let (Some(place), Some(ty)) = (&self.places[value.index()], declared.tensor(value)) {
                if self.graph.donated.contains(&value) {
                    self.loops.donated.push(place.buf);
                }
                let data = &mut self.loops.bufs[place.buf];
                (data.sizes, data.strides) = (ty.sizes.clone(), ty.strides.clone());
            }
            // Numbers come as tensors without dimensions. They give values to the symbols of the declaration, of which simplifying by facts
            // may have left none.
            let data = &declared.values[value];
            let mut place = || self.buffer_of(&data.name, &data.ty.stored(), BufKind::Input);
            match data.ty {
                Type::Tensor(_) => {}
                Type::Int(size) => numbers.push((value, size, place())),
                Type::Float | Type::Bool => self.places[value.index()] = Some(place()),
            }
        }
        for (value, size, access) in numbers {
            let name = &self.graph.values[value].name;
            (self.from, self.who) = (vec![name.clone()], format!("input %{name}"));
            self.size(size, &access)?;
        }
        for (value, name) in &self.graph.consts {
            self.declare(*value, BufKind::Const(name.clone()));
        }
        Ok(())
    }

    fn declare(&mut self, value: Value, kind: BufKind) {
        if let Some(ty) = self.graph.tensor(value) {
            let name = &self.graph.values[value].name;
            for &stride in &ty.strides {
                // A negative number is no stride; a contradiction is found by the verifier, where something is read.
                let _ = self.loops.facts.require(Rel::ge(stride, 0), &format!("a stride of %{name}"));
            }
            self.places[value.index()] = Some(self.buffer_of(name, ty, kind));
        }
    }

    pub(crate) fn buffer(&mut self, name: &str, ty: &TensorType) -> ValueAccess {
        self.buffer_of(name, ty, BufKind::Temp)
    }

    fn buffer_of(&mut self, name: &str, ty: &TensorType, kind: BufKind) -> ValueAccess {
        let mut unique = name.to_owned();
        let mut count = 1;
        while !self.names.insert(unique.clone()) {
            count += 1;
            unique = format!("{name}_{count}");
        }
        let buf = self.loops.bufs.push(BufData::new(unique, ty.clone(), kind));
        ValueAccess::whole(buf, &self.loops.bufs[buf])
    }

    fn place_of(&self, value: Value) -> Result<ValueAccess, OpError> {
        self.places[value.index()].clone().ok_or_else(|| {
            OpError::new(
                "undefined-value",
                format!("%{} is used but never defined", self.graph.values[value].name),
            )
        })
    }

    fn node(&mut self, node: &'a Node) -> Result<(), OpError> {
        let name = node.op.as_str();
        self.who = node.source().map_or_else(|| name.to_owned(), |source| format!("{name} at {source}"));
        let mut values: Vec<Value> = node.outputs.iter().flatten().copied().collect();
        if node.outputs.is_empty() {
            node.args.iter().for_each(|arg| arg.each_value(&mut |value| values.push(value)));
        }
        self.from = values.into_iter().map(|value| self.graph.values[value].name.clone()).collect();
        let table = self.table;
        if let Some(hosted) = table.hosted(node) {
            return self.host(node, &hosted);
        }
        if !(self.provides)(name) {
            return self.apply(node);
        }
        let by_host = Node { form: Form::Host, ..node.clone() };
        let is_theirs = table.op(name).is_some_and(|op| op.def.traits.prefers_host);
        if let Some(hosted) = table.hosted(&by_host).filter(|_| is_theirs) {
            return self.host(node, &hosted);
        }
        let (stmts, facts) = (self.loops.stmts.len(), self.loops.facts.clone());
        match self.apply(node) {
            Err(error) if error.slug == "unsupported" && !self.counts_from_elsewhere(node) => {
                self.loops.stmts.truncate(stmts);
                self.loops.facts = facts;
                node.outputs.iter().flatten().for_each(|value| self.places[value.index()] = None);
                let hosted = table.hosted(&by_host).ok_or(error)?;
                self.host(node, &hosted)
            }
            outcome => outcome,
        }
    }

    /// Whether a node's operator counts elements from where memory begins, and its operand begins elsewhere. The host sees no
    /// more of the memory than the operand.
    fn counts_from_elsewhere(&self, node: &Node) -> bool {
        let reads = |op: Op<'_>| op.def.traits.layout == Layout::Reads;
        let begins =
            |value: Value| self.strides(self.places[value.index()].as_ref()?).map(|(_, first)| first);
        let operand = node.args.first().and_then(Arg::as_value);
        self.table.op(node.op.as_str()).is_some_and(reads)
            && !operand.and_then(begins).is_some_and(|first| first.is_zero())
    }

    /// Names the nests of the current node after its first result alone.
    pub fn name_after_first(&mut self) {
        self.from.truncate(1);
    }

    /// Lowers the application of an operator as a part of the current node.
    pub fn apply(&mut self, node: &Node) -> Result<(), OpError> {
        let name = node.op.as_str();
        let op = self.table.op(name).ok_or_else(|| OpError::missing(name))?;
        let (def, args) = (op.def, op.args(node, &self.graph.values));
        if let Some(dtype) = unsupported_type(node, &self.graph.values)
            && !complex::is_lowered(def, node, &self.graph.values)
        {
            return Err(args.unsupported(&format!("element type {dtype}")));
        }
        self.device = device_of(self.table, &op, &args, self.graph.device)?;
        let first = self.loops.stmts.len();
        let elsewhere = self.bring_operands(&args)?;
        let lowered = match def.rule {
            Rule::Op(op) => self.pointwise(&args, def, |p, operands| Ok(p.op(op, operands))),
            Rule::Pointwise(body) => self.pointwise(&args, def, body),
            Rule::Lower(lower) => lower(self, &args),
            Rule::View => self.views(&args, def),
            Rule::Drop => self.identity(&args),
            Rule::Decompose(_) => Err(args.unsupported("lowering before decomposition")),
            Rule::Inplace(_) => Err(args.unsupported("lowering before functionalisation")),
        };
        elsewhere.into_iter().for_each(|(value, access)| self.places[value.index()] = Some(access));
        lowered?;
        self.require_one_device(first)
    }

    /// Statements from that one on, which a node is lowered to, each run on one device.
    pub(crate) fn require_one_device(&self, first: usize) -> Result<(), OpError> {
        for stmt in &self.loops.stmts[first..] {
            if let Some(difference) = self.loops.mixed_devices(stmt) {
                let message = format!("{}: {difference}: it runs on one device", self.who);
                return Err(OpError::new("unsupported", message));
            }
        }
        Ok(())
    }

    /// After an error: results that later nodes can use, so that their errors are found too.
    fn stand_in(&mut self, node: &Node) {
        for &value in node.outputs.iter().flatten() {
            if self.places[value.index()].is_some() {
                continue;
            }
            let data = &self.graph.values[value];
            match data.ty {
                Type::Tensor(_) => self.declare(value, BufKind::Temp),
                Type::Int(size) => self.given.extend(size.syms()),
                Type::Float | Type::Bool => {
                    let place = self.buffer_of(&data.name, &data.ty.stored(), BufKind::Temp);
                    self.places[value.index()] = Some(place);
                }
            }
        }
    }

    fn views(&mut self, args: &Args<'_>, def: &OpDef) -> Result<(), OpError> {
        let ResultRule::View(views) = def.result else {
            return Err(args.unsupported("a view rule without a view result"));
        };
        let base = self.access(first_operand(args)?)?;
        for (i, view) in views(&mut self.infer_cx(), args)?.iter().enumerate() {
            let access = self.view(&base, view);
            self.set_result(args, i, access);
        }
        Ok(())
    }

    fn identity(&mut self, args: &Args<'_>) -> Result<(), OpError> {
        let Some(result) = args.node.outputs.first().copied().flatten() else { return Ok(()) };
        if self.graph.tensor(result).is_none() {
            return Ok(());
        }
        let source = args.node.args.first().and_then(Arg::as_value);
        let access =
            self.place_of(source.ok_or_else(|| args.invalid("expected a tensor as first argument"))?)?;
        self.set_result(args, 0, access);
        Ok(())
    }
}
