//! Makes graphs that operators call functions of the loops, and loops that go over the slices of tensors.

use super::Lower;
use crate::args::Args;
use crate::error::OpError;
use crate::layout::is_overlapping;
use crate::sizes;
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, Graph, TensorType, Type, contiguous_strides};
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, BufKind, Callee, Control, ControlCall, Extern, FunctionCall, Loops, Output, Stmt};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Rel, Sym};

/// A function that loops can call.
#[derive(Clone, Debug)]
pub struct Function {
    name: String,
    /// What it takes.
    pub inputs: Vec<TensorType>,
    /// Size symbols that calls give values.
    sizes: Vec<Sym>,
}

/// A result of a graph that its caller wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Which one it is.
    pub at: usize,
    /// Its type for the caller.
    pub ty: TensorType,
    /// Whether the graph's own is the first part of that along each dimension.
    pub is_part: bool,
}

/// What becomes of a graph's results.
#[derive(Clone, Copy)]
pub enum Gives<'a> {
    /// Results of the function; behind them, sizes of these along dimensions.
    Results(&'a [Wanted], &'a [(usize, usize)]),
    /// New contents of so many first inputs.
    Updates(usize),
}

/// What a loop over slices of tensors calls a function with: what it carries, the slices, and others.
pub struct Repeat<'a> {
    /// Tensors of which a slice along the first dimension is given each time.
    pub slices: &'a [Arg],
    /// Tensors that are the same each time.
    pub others: &'a [Arg],
    /// The first slice that counts.
    pub first: i64,
    /// Which results of the graph are rows, with a slice for each time.
    pub rows: &'a [usize],
}

impl Function {
    /// A call of it. Its sizes are called as the caller's.
    pub fn call(&self) -> FunctionCall {
        let sizes = self.sizes.iter().map(|&sym| (sym, Expr::sym(sym))).collect();
        FunctionCall { function: self.name.clone(), args: self.inputs.len(), sizes }
    }
}

impl<'a> Lower<'a> {
    /// The graph of that name as a function.
    pub fn function(&mut self, name: &str, gives: Gives<'_>) -> Result<Function, OpError> {
        let graph = self.subgraph(name)?;
        let unsupported =
            |what: &str| OpError::new("unsupported", format!("@{name}: {what} is not supported"));
        if !graph.updates.is_empty() {
            return Err(unsupported("a graph that changes its operands"));
        }
        if !graph.consts.is_empty() {
            return Err(unsupported("a graph with constants"));
        }
        let simplified = sizes::simplified(graph);
        let mut inner = Lower::new(&simplified, self.table, self.provides);
        let inherited = inner.loops.facts.guards().len();
        inner.given.clone_from(&self.given);
        inner.declare_inputs(graph).map_err(|diag| OpError::new(diag.slug, diag.message))?;
        inner.part_inputs();
        for node in &simplified.nodes {
            inner.node(node)?;
        }
        inner.from.clear();
        match gives {
            Gives::Results(wanted, sizes) => {
                let output_of = |wanted: &Wanted| {
                    simplified.outputs.get(wanted.at).ok_or_else(|| unsupported("another number of results"))
                };
                for wanted in wanted {
                    let output = inner.output_as(output_of(wanted)?, wanted)?;
                    inner.loops.outputs.push(output);
                }
                for &(of, dim) in sizes {
                    let access = inner.operand(output_of(&wanted[of])?)?;
                    let size =
                        access.sizes.get(dim).ok_or_else(|| unsupported("a result of another rank"))?;
                    let number = inner.operand(&Arg::Int(*size))?;
                    inner.loops.outputs.push(whole_output(&number, Vec::new()));
                }
            }
            Gives::Updates(count) => {
                if count != simplified.outputs.len() || count > simplified.inputs.len() {
                    return Err(unsupported("another number of results"));
                }
                let inputs: Vec<Buf> = inner.loops.inputs().collect();
                for (output, &target) in simplified.outputs.iter().zip(&inputs) {
                    let ty = inner.loops.bufs[target].ty();
                    let source = inner.computed(output, "next", &ty)?;
                    inner.loops.updates.push((target, source));
                }
            }
        }
        let loops = inner.loops;
        self.add_function(name, loops, inherited)
    }

    /// Has inputs of which elements share memory lie row after row, but for what is expanded: callers copy what does not lie as a
    /// function wants it.
    fn part_inputs(&mut self) {
        for &value in &self.graph.inputs {
            let Some(buf) = self.places[value.index()].as_ref().map(|place| place.buf) else { continue };
            let data = &mut self.loops.bufs[buf];
            let mut once = data.ty();
            let is_expanded: Vec<bool> = data.strides.iter().map(|stride| stride.is_zero()).collect();
            for (size, _) in once.sizes.iter_mut().zip(&is_expanded).filter(|(_, is)| **is) {
                *size = Expr::one();
            }
            if is_overlapping(&self.loops.facts, &once) {
                let apart = contiguous_strides(&once.sizes).into_iter().zip(is_expanded);
                data.strides = apart.map(|(stride, is)| if is { Expr::zero() } else { stride }).collect();
                self.places[value.index()] = Some(ValueAccess::whole(buf, data));
            }
        }
    }

    /// Adds a function. Of the first guards, which were there before it was made, those stay that are about its own sizes.
    fn add_function(&mut self, name: &str, mut loops: Loops, inherited: usize) -> Result<Function, OpError> {
        let of_guards: Vec<Sym> = loops.facts.guards()[inherited..]
            .iter()
            .flat_map(|guard| guard.clause.alternatives())
            .flat_map(|rel| [rel.lhs, rel.rhs])
            .flat_map(Expr::syms)
            .collect();
        let is_wanted = |sym: Sym| of_guards.contains(&sym) || loops.uses_symbol(sym);
        loops.facts = loops.facts.only(is_wanted);
        let names: Vec<&str> = self.loops.functions.iter().map(|function| &*function.name).collect();
        let numbers = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.to_owned()).chain(numbers).find(|name| !names.contains(&&**name));
        loops.name = free.unwrap_or_else(|| name.to_owned());
        let inputs = loops.inputs().map(|buf| loops.bufs[buf].ty()).collect();
        let function = Function { name: loops.name.clone(), inputs, sizes: loops.given_sizes() };
        if let Some(sym) = function.sizes.iter().find(|sym| !self.given.contains(sym)) {
            let message = format!("{}: @{name} takes the size {sym}, which nothing gives", self.who);
            return Err(OpError::new("unsupported", message));
        }
        self.loops.functions.push(loops);
        Ok(function)
    }

    /// Whether an expression has a value here.
    pub fn is_given(&self, e: Expr) -> bool {
        e.syms().iter().all(|sym| self.given.contains(sym))
    }

    /// A tensor, or a number as a tensor without dimensions.
    pub fn operand(&mut self, arg: &Arg) -> Result<ValueAccess, OpError> {
        let number = match arg {
            Arg::Value(value) => match self.graph.values[*value].ty {
                Type::Tensor(_) | Type::Float | Type::Bool => return self.place_of(*value),
                Type::Int(size) => {
                    let number = self.temp("number", Dtype::I64, &[]);
                    self.nest(&[], |b, at| {
                        let value = b.index(size, Dtype::I64);
                        b.store(&number, at, value);
                        Ok(())
                    })?;
                    return Ok(number);
                }
            },
            Arg::Int(size) => {
                let (size, number) = (*size, self.temp("number", Dtype::I64, &[]));
                self.nest(&[], |b, at| {
                    let value = b.index(size, Dtype::I64);
                    b.store(&number, at, value);
                    Ok(())
                })?;
                return Ok(number);
            }
            Arg::Float(float) => Scalar::Float(float.0),
            Arg::Bool(truth) => Scalar::Bool(*truth),
            Arg::None
            | Arg::List(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_)
            | Arg::Part(_) => {
                let message = format!("{}: expected a tensor or a number, found {arg:?}", self.who);
                return Err(OpError::new("bad-argument", message));
            }
        };
        let dtype = if matches!(number, Scalar::Bool(_)) { Dtype::Bool } else { Dtype::F64 };
        let access = self.temp("number", dtype, &[]);
        self.fill(&access, number)?;
        Ok(access)
    }

    /// A buffer with one truth value.
    pub fn truth(&mut self, arg: &Arg) -> Result<Buf, OpError> {
        let from = self.operand(arg)?;
        if !self.is_same(from.sizes.iter().copied().product(), Expr::one()) {
            return Err(OpError::new("invalid-operator", format!("{}: expected one truth value", self.who)));
        }
        let holds = self.temp("holds", Dtype::Bool, &[]);
        self.nest(&[], |b, at| {
            let value = b.read_as(&from, &vec![Expr::zero(); from.rank()], Dtype::Bool);
            b.store(&holds, at, value);
            Ok(())
        })?;
        Ok(holds.buf)
    }

    /// A value as a whole buffer of a type: its own where that is one, else a copy.
    fn whole(&mut self, from: &ValueAccess, ty: &TensorType) -> Result<Buf, OpError> {
        let data = &self.loops.bufs[from.buf];
        if data.ty() == *ty && from.is_strided_as(ty, &self.loops.facts) {
            return Ok(from.buf);
        }
        self.own(from, "argument", ty)
    }

    /// A copy of a value in a buffer of a type.
    fn own(&mut self, from: &ValueAccess, role: &str, ty: &TensorType) -> Result<Buf, OpError> {
        let agrees = from.rank() == ty.rank()
            && from.dtype == ty.dtype
            && from.sizes.iter().zip(&ty.sizes).all(|(&own, &other)| self.is_same(own, other));
        if !agrees {
            let found = TensorType::contiguous(from.dtype, from.sizes.clone());
            let message = format!("{}: {found} where {ty} is expected is not supported", self.who);
            return Err(OpError::new("unsupported", message));
        }
        let base = self.from.first().map_or("", String::as_str);
        Ok(self.copy(from, &format!("{base}_{role}"), ty)?.buf)
    }

    /// As `Lower::own`, as an access.
    pub fn own_copy(
        &mut self,
        from: &ValueAccess,
        role: &str,
        ty: &TensorType,
    ) -> Result<ValueAccess, OpError> {
        let buf = self.own(from, role, ty)?;
        Ok(ValueAccess::whole(buf, &self.loops.bufs[buf]))
    }

    fn is_same(&self, a: Expr, b: Expr) -> bool {
        a == b || self.loops.facts.holds(&Rel::eq(a, b))
    }

    /// A value as a whole buffer of a type that comes from nowhere else.
    fn computed(&mut self, arg: &Arg, role: &str, ty: &TensorType) -> Result<Buf, OpError> {
        let from = self.operand(arg)?;
        match self.loops.bufs[from.buf].kind {
            BufKind::Temp => self.whole(&from, ty),
            BufKind::Input | BufKind::Const(_) => self.own(&from, role, ty),
        }
    }

    /// A result of a function, of the type that its callers expect.
    fn output_as(&mut self, arg: &Arg, wanted: &Wanted) -> Result<Output, OpError> {
        let ty = &wanted.ty;
        let buf = if wanted.is_part { self.padded(arg, ty)? } else { self.computed(arg, "out", ty)? };
        let (sizes, strides) = (ty.sizes.clone(), ty.strides.clone());
        Ok(Output::View { buf, sizes, strides, offset: Expr::zero() })
    }

    /// A copy of a value in the first part of a buffer along each dimension, zeros behind.
    fn padded(&mut self, arg: &Arg, ty: &TensorType) -> Result<Buf, OpError> {
        let from = self.operand(arg)?;
        if (from.rank(), from.dtype) != (ty.rank(), ty.dtype) {
            let message = format!("{}: another type where {ty} is expected is not supported", self.who);
            return Err(OpError::new("unsupported", message));
        }
        let out = self.temp_of("out", ty);
        self.nest(&ty.sizes, |b, at| {
            let inside = at.iter().zip(&from.sizes).map(|(&at, &size)| Rel::lt(at, size)).collect();
            let value = b.load_if(&from, at, inside, Scalar::zero(ty.dtype));
            b.store(&out, at, value);
            Ok(())
        })?;
        Ok(out.buf)
    }

    /// The graph of that name.
    pub fn subgraph(&self, name: &str) -> Result<&'a Graph, OpError> {
        let unknown = || OpError::new("unknown-graph", format!("{}: no graph is called @{name}", self.who));
        self.graph.subgraphs.iter().find(|graph| graph.name == name).ok_or_else(unknown)
    }

    /// Buffers for a call of a function with these operands.
    pub fn arguments(&mut self, inputs: &[TensorType], operands: &[Arg]) -> Result<Vec<Buf>, OpError> {
        if inputs.len() != operands.len() {
            let message = format!("{}: expected {} operands", self.who, inputs.len());
            return Err(OpError::new("invalid-operator", message));
        }
        let argument = |lw: &mut Self, (arg, ty): (&Arg, &TensorType)| {
            let from = lw.operand(arg)?;
            lw.whole(&from, ty)
        };
        operands.iter().zip(inputs).map(|pair| argument(self, pair)).collect()
    }

    /// A buffer of a type, named after the node's first result and `role`.
    pub fn temp_of(&mut self, role: &str, ty: &TensorType) -> ValueAccess {
        let base = self.from.first().map_or("", String::as_str);
        let name = format!("{base}_{role}");
        self.buffer(&name, ty)
    }

    /// Makes all elements one number.
    pub fn fill(&mut self, access: &ValueAccess, number: Scalar) -> Result<(), OpError> {
        let sizes = access.sizes.clone();
        self.nest(&sizes, |b, at| {
            let value = b.literal(number, access.dtype);
            b.store(access, at, value);
            Ok(())
        })
    }

    /// Gives the node's results from the `first` on, as far as something uses them, their places, and sizes among them their values.
    pub fn give(&mut self, args: &Args<'_>, first: usize, given: Vec<ValueAccess>) -> Result<(), OpError> {
        for (at, access) in (first..).zip(given) {
            let Some(ty) = args.stated(at) else { continue };
            let stated = ty.stored();
            let is_same = |(&a, &b): (&Expr, &Expr)| self.is_same(a, b);
            if stated.dtype != access.dtype
                || stated.rank() != access.rank()
                || !stated.sizes.iter().zip(&access.sizes).all(is_same)
            {
                let found = format!("{}{:?}", access.dtype, access.sizes);
                return Err(args.invalid(format!("result {at}: expected {stated}, found {found}")));
            }
            match ty {
                Type::Int(size) => self.size(*size, &access)?,
                Type::Tensor(_) | Type::Float | Type::Bool => self.set_result(args, at, access),
            }
        }
        Ok(())
    }

    /// Appends a call of functions.
    pub fn control(&mut self, control: Control, reads: Vec<Buf>, writes: Vec<Buf>) {
        let (name, from) = (format!("n{}", self.loops.stmts.len()), self.from.clone());
        let callee = Callee::Control(ControlCall { control, reads, writes });
        self.loops.stmts.push(Stmt::Extern(Extern { name, from, callee, message: None }));
    }

    /// Calls the graph of that name for each slice. It takes what it carries, the slices and the others. `given` is where
    /// results go: what is carried, with its contents, then tensors with a row for each slice. Where the graph gives no rows of
    /// their own, they are what it carries.
    pub fn repeat(&mut self, name: &str, repeat: &Repeat<'_>, given: &[ValueAccess]) -> Result<(), OpError> {
        let invalid = |what: &str| OpError::new("invalid-operator", format!("@{name}: {what}"));
        let slices = repeat.slices.iter().map(|arg| self.operand(arg)).collect::<Result<Vec<_>, _>>()?;
        let length = slices.first().and_then(|access| access.sizes.first().copied());
        let length = length.ok_or_else(|| invalid("expected slices"))?;
        if slices.iter().any(|slice| slice.rank() == 0 || !self.is_same(slice.sizes[0], length)) {
            return Err(invalid("expected as many slices of each operand"));
        }
        let more = self.is_below(&format!("{name}_more"), length)?;
        let (states, rows) = given.split_at(given.len() - repeat.rows.len());

        // One time: the step that it is, the results, and the operands.
        let graph = self.graph;
        let mut once = Lower::new(graph, self.table, self.provides);
        let inherited = once.loops.facts.guards().len();
        once.given.clone_from(&self.given);
        once.who.clone_from(&self.who);
        let step = once.input("step", TensorType::contiguous(Dtype::I64, Vec::new()));
        let results: Vec<ValueAccess> =
            given.iter().map(|access| once.input("result", self.loops.bufs[access.buf].ty())).collect();
        let (own_states, own_rows) = results.split_at(states.len());
        let mut wanted = Vec::new();
        for (at, state) in own_states.iter().enumerate() {
            wanted.push(Wanted { at, ty: once.loops.bufs[state.buf].ty(), is_part: false });
        }
        for (access, &at) in rows.iter().zip(repeat.rows) {
            let sizes = access.sizes.get(1..).ok_or_else(|| invalid("expected results with rows"))?;
            if at >= states.len() {
                let ty = TensorType::contiguous(access.dtype, sizes.to_vec());
                wanted.push(Wanted { at, ty, is_part: false });
            }
        }
        let called = once.function(name, Gives::Results(&wanted, &[]))?;
        let others_from = states.len() + slices.len();
        if called.inputs.len() != others_from + repeat.others.len() {
            return Err(invalid("expected another number of operands"));
        }
        let mut arguments = Vec::new();
        for (state, ty) in own_states.iter().zip(&called.inputs) {
            arguments.push(once.whole(state, ty)?);
        }
        let mut taken = Vec::new();
        for (slice, ty) in slices.iter().zip(&called.inputs[states.len()..]) {
            let whole = TensorType::contiguous(slice.dtype, slice.sizes.clone());
            taken.push(self.whole(slice, &whole)?);
            let (slice, current) = (once.input("slices", whole), once.temp_of("slice", ty));
            once.nest(&ty.sizes, |b, at| {
                let place = b.load(&step, &[]);
                let place = b.bind(place, length);
                let value = b.load(&slice, &[&[place], at].concat());
                b.store(&current, at, value);
                Ok(())
            })?;
            arguments.push(current.buf);
        }
        for (arg, ty) in repeat.others.iter().zip(&called.inputs[others_from..]) {
            let from = self.operand(arg)?;
            taken.push(self.whole(&from, ty)?);
            arguments.push(once.input("other", ty.clone()).buf);
        }
        let found: Vec<ValueAccess> = wanted.iter().map(|wanted| once.temp_of("found", &wanted.ty)).collect();
        let writes = found.iter().map(|access| access.buf).collect();
        once.control(Control::Call(called.call()), arguments, writes);
        for (to, &row) in own_rows.iter().zip(repeat.rows) {
            let from = wanted.iter().zip(&found).find(|(wanted, _)| wanted.at == row);
            let (_, from) = from.ok_or_else(|| invalid("expected another number of results"))?;
            let sizes = from.sizes.clone();
            once.nest(&sizes, |b, at| {
                let place = b.load(&step, &[]);
                let place = b.bind(place, length);
                let value = b.load(from, at);
                b.store(to, &[&[place], at].concat(), value);
                Ok(())
            })?;
        }
        let next = once.temp("next", Dtype::I64, &[]);
        once.nest(&[], |b, at| {
            let (now, one) = (b.load(&step, at), b.literal(Scalar::Int(1), Dtype::I64));
            let then = b.add(now, one);
            b.store(&next, at, then);
            Ok(())
        })?;
        once.loops.updates.push((step.buf, next.buf));
        once.loops.updates.extend(own_states.iter().zip(&found).map(|(state, new)| (state.buf, new.buf)));
        once.loops.updates.extend(own_rows.iter().map(|rows| (rows.buf, rows.buf)));
        let loops = once.loops;
        let once = self.add_function(&format!("{name}_each"), loops, inherited)?;

        let start = self.temp("step", Dtype::I64, &[]);
        self.fill(&start, Scalar::Int(repeat.first))?;
        let holds = self.temp("more", Dtype::Bool, &[]);
        let state = [&[start][..], given].concat();
        let state = state.iter().map(|access| access.buf);
        let reads = [state.clone().take(1).chain(state.clone()).collect(), taken].concat();
        let writes = std::iter::once(holds.buf).chain(state).collect();
        self.control(Control::While { cond: more.call(), body: once.call() }, reads, writes);
        Ok(())
    }

    /// A function that says whether the integer that it is given is below a size.
    fn is_below(&mut self, name: &str, size: Expr) -> Result<Function, OpError> {
        let mut inner = Lower::new(self.graph, self.table, self.provides);
        let inherited = inner.loops.facts.guards().len();
        inner.given.clone_from(&self.given);
        let step = inner.input("step", TensorType::contiguous(Dtype::I64, Vec::new()));
        let holds = inner.temp("holds", Dtype::Bool, &[]);
        inner.nest(&[], |b, at| {
            let (step, size) = (b.load(&step, at), b.index(size, Dtype::I64));
            let below = b.lt(step, size);
            b.store(&holds, at, below);
            Ok(())
        })?;
        inner.loops.outputs.push(whole_output(&holds, Vec::new()));
        let loops = inner.loops;
        self.add_function(name, loops, inherited)
    }

    /// A buffer that the caller of a function gives.
    fn input(&mut self, name: &str, ty: TensorType) -> ValueAccess {
        self.buffer_of(name, &ty, BufKind::Input)
    }
}

/// A whole contiguous buffer as a result.
fn whole_output(access: &ValueAccess, sizes: Vec<Expr>) -> Output {
    let strides = contiguous_strides(&sizes);
    Output::View { buf: access.buf, sizes, strides, offset: Expr::zero() }
}
