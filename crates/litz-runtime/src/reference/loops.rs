//! Runs loops as they are defined, point after point and instruction after instruction: the definition of what every
//! schedule, kernel and machine code of them has to compute.
//!
//! Elements are bits of their buffer's type, and scalar operations are those of the reference device. Each instruction
//! rounds its result once to its own type; `+ - * / fma` of types narrower than f32 compute in f32. Reductions and scans
//! of such types accumulate in f32 and are rounded when they are read. Reduced points are combined in row-major order,
//! one by one; a combining store rounds to the buffer's type each time. Other orders are as right, so that sums of
//! floats agree with these up to rounding only.
//!
//! Points of a nest run in row-major order. The definition leaves the order free, as no two points store to one element;
//! the interpreter reports those that do, unless the position was computed (`bind`): then the last point's value stays.
//!
//! Beside each element goes its *doubt*: a bound on how far other orders of summation, fused multiply-add and the errors
//! of mathematical functions may take a right value from this one.
//!
//! Every index is compared with its buffer, and an element that nothing has written is reported when it is read.

mod doubt;
mod memory;
mod nest;

use std::collections::{HashMap, HashSet};

use litz_ir::Dtype;
use litz_ir::graph;
use litz_ir::ids::Id;
use litz_ir::loops::{
    Buf, BufData, BufKind, Callee, Control, ControlCall, Extern, FunctionCall, HostCall, Loops, Nest, Output,
    Recurrence, Routine, Stmt, View,
};
use litz_sym::{Expr, Facts, Rel, Sym};

use crate::error::RunError;
use crate::host::{self, Call, Host, Kept, Operand, invoke};
use crate::number::{cast, read, scalar, write};
use crate::program::Value;
use crate::routines::{Read, Write, routine};
use crate::tensor::{Tensor, contiguous_strides, places, span_bytes};
use crate::weights::Weights;
use memory::{Fault, Memory, NOBODY, OUTSIDE, points};
use nest::Walk;

/// What a program gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What it returns. Tensors are contiguous.
    pub outputs: Vec<Value>,
    /// New contents of updated inputs and constants, in the order of [`Loops::updates`]; contiguous.
    pub updates: Vec<Tensor>,
    /// For each tensor and each number of a buffer among the outputs, then for each of the updates: how far right values of
    /// its elements may be from these, row-major; infinite where every value is right.
    pub doubts: Vec<Vec<f64>>,
}

/// Runs a program with the values of its size symbols, inputs in order and constants by name. Layouts of tensors are
/// free.
///
/// # Errors
/// What does not fit the program is the error that a call of the compiled program ends with; a value that `bind` refuses
/// is [`RunError::BadIndex`]. A program that breaks the rules of loops is [`RunError::Bug`].
pub fn run(
    loops: &Loops,
    sizes: &HashMap<Sym, i64>,
    inputs: &[Tensor],
    weights: &dyn Weights,
) -> Result<Results, RunError> {
    run_with(loops, sizes, inputs, weights, None)
}

/// As [`run`], of a program that calls operators of a host.
///
/// # Errors
/// As [`run`], and where the host fails or does not have an operator.
pub fn run_with(
    loops: &Loops,
    sizes: &HashMap<Sym, i64>,
    inputs: &[Tensor],
    weights: &dyn Weights,
    host: Option<&dyn Host>,
) -> Result<Results, RunError> {
    let late: HashSet<Sym> = loops.late_sizes().into_iter().map(|(sym, _)| sym).collect();
    check_sizes(loops, sizes, &late, None)?;
    let sizes = sizes.clone();
    let (memories, kept) = (Vec::new(), Kept::default());
    let mut machine = Machine { loops, sizes, late, memories, runs: 1, is_lost: false, host, kept };
    machine.allocate(inputs, weights)?;
    for stmt in &loops.stmts {
        match stmt {
            Stmt::Nest(nest) => machine.nest(nest)?,
            Stmt::Extern(call) => machine.call(call)?,
            Stmt::Recurrence(region) => machine.region(region)?,
        }
    }
    let mut doubts = Vec::new();
    let outputs = loops.outputs.iter().map(|output| machine.output(output, &mut doubts));
    let outputs = outputs.collect::<Result<_, _>>()?;
    let update = |&(_, source): &(Buf, Buf)| {
        let data = &loops.bufs[source];
        machine.view(source, &data.sizes, &data.strides, Expr::zero(), &mut doubts)
    };
    let updates = loops.updates.iter().map(update).collect::<Result<_, _>>()?;
    if machine.is_lost {
        doubts.iter_mut().for_each(|doubts| doubts.fill(f64::INFINITY));
    }
    Ok(Results { outputs, updates, doubts })
}

/// Ranges and guards of size symbols, which calls of compiled programs check, too: of all that have values, or of those that
/// mention the one that has become known. Symbols in `late` have no values yet.
fn check_sizes(
    loops: &Loops,
    sizes: &HashMap<Sym, i64>,
    late: &HashSet<Sym>,
    new: Option<(Sym, &str)>,
) -> Result<(), RunError> {
    let facts: &Facts = &loops.facts;
    let is_asked = |sym: Sym| !late.contains(&sym) && new.is_none_or(|(new, _)| new == sym);
    for sym in facts.symbols().filter(|&sym| is_asked(sym)) {
        let found = *sizes.get(&sym).ok_or_else(|| bug(loops, format!("size symbol {sym} has no value")))?;
        let range = facts.range_of(sym);
        if found < range.lo || found > range.hi {
            return Err(RunError::CheckFailed {
                condition: format!("{sym} in [{}, {}]", range.lo, range.hi),
                who: new.map_or("the range of the symbol", |(_, who)| who).to_owned(),
                sides: vec![[found, if found < range.lo { range.lo } else { range.hi }]],
            });
        }
    }
    let value = |e: Expr| size(loops, sizes, e);
    for guard in facts.guards() {
        let exprs = guard.clause.alternatives().iter().flat_map(|rel| [rel.lhs, rel.rhs]);
        let syms: Vec<Sym> = exprs.flat_map(Expr::syms).collect();
        let is_new = new.is_none_or(|(new, _)| syms.contains(&new));
        if !is_new || syms.iter().any(|sym| late.contains(sym)) {
            continue;
        }
        if guard.clause.eval(&|sym| sizes.get(&sym).copied()) != Some(true) {
            let sides = |rel: &Rel| Some([value(rel.lhs).ok()?, value(rel.rhs).ok()?]);
            return Err(RunError::CheckFailed {
                condition: guard.clause.to_string(),
                who: guard.who.to_string(),
                sides: guard.clause.alternatives().iter().filter_map(sides).collect(),
            });
        }
    }
    Ok(())
}

fn bug(loops: &Loops, what: impl Into<String>) -> RunError {
    RunError::bug(format!("loops @{}", loops.name), what)
}

fn size(loops: &Loops, sizes: &HashMap<Sym, i64>, expr: Expr) -> Result<i64, RunError> {
    let value = expr.eval(&|sym| sizes.get(&sym).copied());
    value.ok_or_else(|| bug(loops, format!("`{expr}` has no value: an unknown symbol, or an overflow")))
}

/// What bytes hold that nobody has written.
const ANYTHING: u8 = 0xa5;

struct Machine<'a> {
    loops: &'a Loops,
    sizes: HashMap<Sym, i64>,
    /// Size symbols without a value so far.
    late: HashSet<Sym>,
    /// By buffer; empty where a size is not known yet.
    memories: Vec<Memory>,
    /// Number of the latest run of a statement.
    runs: u32,
    /// Whether a position was used that is in doubt.
    is_lost: bool,
    /// Who runs operators of others.
    host: Option<&'a dyn Host>,
    /// Results of these that the program has no memory for yet.
    kept: Kept,
}

impl Machine<'_> {
    fn bug(&self, what: impl Into<String>) -> RunError {
        bug(self.loops, what)
    }

    fn size(&self, expr: Expr) -> Result<i64, RunError> {
        size(self.loops, &self.sizes, expr)
    }

    /// Extents that are counts.
    fn extents(&self, exprs: &[Expr]) -> Result<Vec<usize>, RunError> {
        let extent = |&expr: &Expr| {
            let value = self.size(expr)?;
            usize::try_from(value)
                .map_err(|_| self.bug(format!("`{expr}` is {value}, expected no less than 0")))
        };
        exprs.iter().map(extent).collect()
    }

    fn allocate(&mut self, inputs: &[Tensor], weights: &dyn Weights) -> Result<(), RunError> {
        let loops = self.loops;
        let expected = loops.bufs.values().filter(|data| data.kind == BufKind::Input).count();
        if inputs.len() != expected {
            return Err(RunError::WrongCount { expected, found: inputs.len() });
        }
        let mut inputs = inputs.iter();
        for data in loops.bufs.values() {
            if !self.is_known(data) {
                self.memories.push(Memory::new(data.dtype, Vec::new(), 0)?);
                continue;
            }
            let (mut memory, sizes, strides) = self.memory(data)?;
            match &data.kind {
                BufKind::Temp => {}
                BufKind::Input => {
                    let tensor = inputs.next().expect("invariant: there is an input for each");
                    fits_input(&data.name, tensor, data.dtype, &sizes)?;
                    memory.take(tensor, &strides);
                }
                BufKind::Const(name) => {
                    let missing = || RunError::MissingWeight { name: name.clone() };
                    let tensor = weights.get(name).ok_or_else(missing)?;
                    if (tensor.dtype(), tensor.sizes()) != (data.dtype, &*sizes) {
                        return Err(RunError::WrongWeight {
                            name: name.clone(),
                            expected: format!("{}{sizes:?}", data.dtype),
                            found: format!("{}{:?}", tensor.dtype(), tensor.sizes()),
                        });
                    }
                    memory.take(&tensor, &strides);
                }
            }
            self.memories.push(memory);
        }
        Ok(())
    }

    fn is_known(&self, data: &BufData) -> bool {
        let mut late = self.late.iter();
        !late.any(|&sym| data.sizes.iter().chain(&data.strides).any(|e| e.has_sym(sym)))
    }

    /// Memory for a buffer, with the sizes and strides that it has.
    fn memory(&self, data: &BufData) -> Result<(Memory, Vec<usize>, Vec<usize>), RunError> {
        let (sizes, strides) = (self.extents(&data.sizes)?, self.extents(&data.strides)?);
        let span = if sizes.contains(&0) {
            Some(0)
        } else {
            sizes
                .iter()
                .zip(&strides)
                .try_fold(1usize, |span, (size, stride)| span.checked_add((size - 1).checked_mul(*stride)?))
        };
        let span = span.ok_or_else(|| self.bug(format!("`{}` is larger than memory", data.name)))?;
        let dims = sizes.iter().copied().zip(strides.iter().copied()).collect();
        Ok((Memory::new(data.dtype, dims, span)?, sizes, strides))
    }

    /// Gives a size symbol its value, and memory to the buffers that waited for it.
    fn learn(&mut self, sym: Sym, number: Buf, who: Option<&str>) -> Result<(), RunError> {
        let memory = Some(&self.memories[number.index()])
            .filter(|memory| memory.writers.first().is_some_and(|&writer| writer != NOBODY));
        let Some(memory) = memory else {
            return Err(self.bug(format!("size {sym}: nothing wrote it")));
        };
        let dtype = memory.dtype;
        let bits = cast(dtype, Dtype::I64, read(memory.bytes.as_slice(), 0, dtype.size()));
        // What depends on a size that may be another is in doubt altogether.
        self.is_lost |= memory.doubts[0] > 0.0;
        let waiting: Vec<usize> =
            (0..self.memories.len()).filter(|&at| !self.is_known(&self.loops.bufs[Buf::new(at)])).collect();
        self.sizes.insert(sym, (bits as u64).cast_signed());
        self.late.remove(&sym);
        let who = who.unwrap_or("the range of the symbol");
        check_sizes(self.loops, &self.sizes, &self.late, Some((sym, who)))?;
        for at in waiting {
            let data = &self.loops.bufs[Buf::new(at)];
            if self.is_known(data) {
                self.memories[at] = self.memory(data)?.0;
            }
        }
        Ok(())
    }

    fn nest(&mut self, nest: &Nest) -> Result<(), RunError> {
        let mut walk = Walk::new(self.loops, &self.sizes, nest)?;
        self.runs += 1;
        walk.run(&mut self.memories, self.runs, None)?;
        self.is_lost |= walk.is_lost;
        Ok(())
    }

    /// Nests before those that repeat, these for one point of the axis after another, then the others.
    fn region(&mut self, region: &Recurrence) -> Result<(), RunError> {
        let repeats = |nest: &Nest| region.repeats(nest);
        let start = region.nests.iter().position(repeats).unwrap_or(region.nests.len());
        let end = region.nests.iter().rposition(repeats).map_or(start, |last| last + 1);
        for nest in &region.nests[..start] {
            self.nest(nest)?;
        }
        let walks = region.nests[start..end].iter().map(|nest| Walk::new(self.loops, &self.sizes, nest));
        let mut walks = walks.collect::<Result<Vec<_>, _>>()?;
        for point in 0..self.size(region.over.extent)? {
            for walk in &mut walks {
                self.runs += 1;
                walk.run(&mut self.memories, self.runs, Some((region.over.var, point)))?;
                self.is_lost |= walk.is_lost;
            }
        }
        region.nests[end..].iter().try_for_each(|nest| self.nest(nest))
    }

    /// Calls functions, in the way that `control` says.
    fn control(&mut self, call: &ControlCall) -> Result<(), RunError> {
        let ControlCall { control, reads, writes } = call;
        let operands = control.operands(reads, writes);
        let truth = |machine: &Machine<'_>, buf: Option<&Buf>| {
            let memory = buf.and_then(|buf| machine.memories.get(buf.index()));
            let first = memory.and_then(|memory| memory.bytes.as_slice().first().copied());
            first.map(|byte| byte != 0).ok_or_else(|| machine.bug("a truth value is missing"))
        };
        match control {
            Control::Call(_) => self.function(operands[0]),
            Control::Branch { .. } => {
                let holds = truth(self, reads.first())?;
                self.function(operands[usize::from(!holds)])
            }
            Control::While { .. } => loop {
                self.function(operands[0])?;
                if !truth(self, writes.first())? {
                    return Ok(());
                }
                self.function(operands[1])?;
            },
        }
    }

    /// Runs a function on copies of its arguments, and stores what it gives.
    fn function(&mut self, (call, args, writes): (&FunctionCall, &[Buf], &[Buf])) -> Result<(), RunError> {
        let loops = self.loops;
        let missing = || self.bug(format!("there is no function @{}", call.function));
        let function = loops.function(&call.function).ok_or_else(missing)?;
        let sizes = call.sizes.iter().map(|&(sym, value)| Ok((sym, self.size(value)?)));
        let sizes = sizes.collect::<Result<HashMap<Sym, i64>, RunError>>()?;
        let mut doubts = Vec::new();
        let whole = |&buf: &Buf, doubts: &mut Vec<Vec<f64>>| {
            let data = &loops.bufs[buf];
            self.view(buf, &data.sizes, &data.strides, Expr::zero(), doubts)
        };
        let inputs = args.iter().map(|buf| whole(buf, &mut doubts)).collect::<Result<Vec<_>, _>>()?;
        // What a function makes of what is in doubt is not known.
        self.is_lost |= doubts.iter().flatten().any(|&doubt| doubt > 0.0);
        let results = run_with(function, &sizes, &inputs, &HashMap::<String, Tensor>::new(), self.host)?;
        let outputs = results.outputs.iter().map(|output| match output {
            Value::Tensor(tensor) => Ok(tensor),
            Value::Scalar(_) | Value::Text(_) | Value::Nothing => {
                Err(self.bug(format!("@{} gives no tensor", call.function)))
            }
        });
        let given = outputs.chain(results.updates.iter().map(Ok)).collect::<Result<Vec<_>, _>>()?;
        if given.len() != writes.len() {
            return Err(self.bug(format!("@{} gives {} tensors", call.function, given.len())));
        }
        let strides = writes.iter().map(|buf| self.extents(&loops.bufs[*buf].strides));
        let strides = strides.collect::<Result<Vec<_>, _>>()?;
        for ((buf, tensor), strides) in writes.iter().zip(given).zip(strides) {
            self.memories[buf.index()].take(tensor, &strides);
        }
        Ok(())
    }

    fn call(&mut self, call: &Extern) -> Result<(), RunError> {
        for buf in call.reads().into_iter().chain(call.writes()) {
            if self.memories.get(buf.index()).is_none() {
                return Err(self.bug(format!("{}: {buf} is no buffer", call.name)));
            }
        }
        match &call.callee {
            Callee::Routine(routine) => self.routine(&call.name, routine, call.message.as_deref()),
            Callee::Host(host) => self.host_call(&call.name, host, call.message.as_ref()),
            Callee::Copy { from, to } => self.copy(&call.name, *from, *to),
            Callee::Size { sym, number } => self.learn(*sym, *number, call.message.as_deref()),
            Callee::Control(control) => self.control(control),
        }
    }

    /// Calls the host. What it gives is certain where all that it reads is.
    fn host_call(&mut self, name: &str, call: &HostCall, source: Option<&String>) -> Result<(), RunError> {
        let Some(host) = host::of(&call.op, self.host) else {
            return Err(RunError::MissingHost { ops: vec![call.op.clone()] });
        };
        let (mut operands, mut written, mut doubt, mut ints) = (Vec::new(), Vec::new(), 0.0f64, Vec::new());
        // Of each operand the buffer, and where in it its first element is.
        let mut firsts: Vec<(Buf, usize)> = Vec::new();
        let mut read = |view: &View| -> Result<usize, RunError> {
            let operand = self.operand(name, view)?;
            let memory = &self.memories[view.buf.index()];
            let size = memory.dtype.size();
            // SAFETY: the operand was found inside of the buffer.
            let first = unsafe { operand.data.offset_from(memory.bytes.as_ptr()) }.unsigned_abs() / size;
            for at in places(&operand.sizes, &operand.strides) {
                if memory.writers[first + at] == NOBODY {
                    let buf = &self.loops.bufs[view.buf].name;
                    return Err(self.bug(format!("{name}: nothing wrote element {} of `{buf}`", first + at)));
                }
                doubt = doubt.max(memory.doubts[first + at]);
            }
            firsts.push((view.buf, first));
            operands.push(Operand { is_shared: call.sharing.contains(&view.buf), ..operand });
            Ok(operands.len() - 1)
        };
        let args = call.args.iter().map(|arg| arg.try_map(&mut read)).collect::<Result<Vec<_>, _>>()?;
        for arg in &args {
            let mut change = |&at: &usize, is_written: bool| {
                written.extend(is_written.then(|| (firsts[at].0, firsts[at].1, Some(at))));
            };
            arg.each_tensor(&mut change);
        }
        for arg in &call.args {
            arg.each_int(&mut |value| ints.push(value));
        }
        let ints = ints.into_iter().map(|value| self.size(value)).collect::<Result<Vec<_>, _>>()?;
        let mut results = Vec::new();
        for result in &call.results {
            results.push(result.try_map(&mut |&buf| {
                let data = &self.loops.bufs[buf];
                let (sizes, strides) = (data.sizes.clone(), data.strides.clone());
                operands.push(self.operand(name, &View { buf, sizes, strides, offset: Expr::zero() })?);
                written.push((buf, 0, None));
                Ok::<_, RunError>(operands.len() - 1)
            })?);
        }
        let call = Call { op: call.op.clone(), args, results, source: source.cloned() };
        // SAFETY: operands are inside of their buffers, and the verifier wants what is written apart from the others, unless it is shared.
        unsafe { invoke(host, &call, &ints, &operands, &mut self.kept)? };
        let doubt = if doubt == 0.0 { 0.0 } else { f64::INFINITY };
        for (buf, first, part) in written {
            let memory = &mut self.memories[buf.index()];
            let Some(operand) = part.map(|at: usize| &operands[at]) else {
                memory.writers.fill(OUTSIDE);
                memory.doubts.fill(doubt);
                continue;
            };
            for at in places(&operand.sizes, &operand.strides) {
                (memory.writers[first + at], memory.doubts[first + at]) = (OUTSIDE, doubt);
            }
        }
        Ok(())
    }

    /// A copy: elements, and how far each may be from a right one.
    fn copy(&mut self, name: &str, from: Buf, to: Buf) -> Result<(), RunError> {
        let source = &self.memories[from.index()];
        if let Some(at) = source.writers.iter().position(|&writer| writer == NOBODY) {
            let buf = &self.loops.bufs[from].name;
            return Err(self.bug(format!("{name}: nothing wrote element {at} of `{buf}`")));
        }
        let (bytes, doubts) = (source.bytes.as_slice().to_vec(), source.doubts.clone());
        let memory = &mut self.memories[to.index()];
        if memory.bytes.as_slice().len() != bytes.len() {
            return Err(self.bug(format!("{name}: it copies to another number of elements")));
        }
        memory.bytes.as_mut_slice().copy_from_slice(&bytes);
        memory.writers.fill(OUTSIDE);
        memory.doubts = doubts;
        Ok(())
    }

    /// A part of a buffer as the host gets it.
    fn operand(&mut self, name: &str, view: &View) -> Result<Operand, RunError> {
        let number =
            |value: i64| usize::try_from(value).map_err(|_| self.bug(format!("{name}: {value} is no size")));
        let numbers = |exprs: &[Expr]| -> Result<Vec<usize>, RunError> {
            exprs.iter().map(|&e| number(self.size(e)?)).collect()
        };
        let (sizes, strides) = (numbers(&view.sizes)?, numbers(&view.strides)?);
        let offset = number(self.size(view.offset)?)?;
        let dtype = self.memories[view.buf.index()].dtype;
        let bytes = span_bytes(dtype, &sizes, &strides);
        let first = offset.checked_mul(dtype.size());
        let end = first.zip(bytes).and_then(|(first, bytes)| first.checked_add(bytes));
        let room = self.memories[view.buf.index()].bytes.len();
        let (Some(bytes), Some(first), true) = (bytes, first, end.is_some_and(|end| end <= room)) else {
            let buf = &self.loops.bufs[view.buf].name;
            return Err(self.bug(format!("{name}: expected a part of `{buf}`, which has {room} bytes")));
        };
        let data = self.memories[view.buf.index()].bytes.as_mut_ptr().wrapping_add(first);
        Ok(Operand { data, bytes, dtype, sizes, strides, is_shared: false, device: graph::Device::Cpu })
    }

    fn routine(&mut self, name: &str, call: &Routine, message: Option<&str>) -> Result<(), RunError> {
        let routine =
            routine(&call.name).ok_or_else(|| RunError::UnknownRoutine { name: call.name.clone() })?;
        let ints = call.ints.iter().map(|&e| self.size(e)).collect::<Result<Vec<_>, _>>()?;
        for buf in &call.reads {
            if let Some(at) = self.memories[buf.index()].writers.iter().position(|&writer| writer == NOBODY) {
                let buf = &self.loops.bufs[*buf].name;
                return Err(self.bug(format!("{name}: nothing wrote element {at} of `{buf}`")));
            }
        }
        // Moved out for the call: what is written is none of what is read.
        let read = call.reads.iter().flat_map(|buf| &self.memories[buf.index()].doubts);
        let doubt = read.copied().fold(0.0, f64::max);
        let mut written = Vec::new();
        for buf in &call.writes {
            let memory = &mut self.memories[buf.index()];
            memory.writers.fill(OUTSIDE);
            // Elements in order move no further than the elements do, but others may come first.
            let is_certain = doubt == 0.0 || memory.dtype.is_float();
            memory.doubts.fill(if is_certain { doubt } else { f64::INFINITY });
            let mut bytes = std::mem::take(&mut memory.bytes);
            // What a routine leaves as it is may be anything.
            bytes.as_mut_slice().fill(ANYTHING);
            written.push((memory.dtype, bytes));
        }
        let reads = call.reads.iter().map(|buf| {
            let memory = &self.memories[buf.index()];
            Read { bytes: memory.bytes.as_slice(), dtype: memory.dtype }
        });
        let reads: Vec<Read<'_>> = reads.collect();
        let mut writes: Vec<Write<'_>> = written
            .iter_mut()
            .map(|(dtype, bytes)| Write { bytes: bytes.as_mut_slice(), dtype: *dtype })
            .collect();
        let message = message.unwrap_or_default();
        routine(&reads, &mut writes, &ints).map_err(|error| error.with_message(message))?;
        for (buf, (_, bytes)) in call.writes.iter().zip(written) {
            self.memories[buf.index()].bytes = bytes;
        }
        Ok(())
    }

    fn output(&self, output: &Output, doubts: &mut Vec<Vec<f64>>) -> Result<Value, RunError> {
        Ok(match output {
            Output::View { buf, sizes, strides, offset } => {
                Value::Tensor(self.view(*buf, sizes, strides, *offset, doubts)?)
            }
            Output::Number(buf) => {
                let tensor = self.view(*buf, &[], &[], Expr::zero(), doubts)?;
                let bits = read(tensor.bytes(), 0, tensor.dtype().size());
                Value::Scalar(scalar(tensor.dtype(), bits))
            }
            Output::Int(expr) => Value::Scalar(litz_ir::Scalar::Int(self.size(*expr)?)),
            Output::Literal(scalar) => Value::Scalar(*scalar),
            Output::Text(text) => Value::Text(text.as_str().into()),
            Output::Nothing => Value::Nothing,
        })
    }

    /// The elements as a tensor; their doubts join the others.
    fn view(
        &self,
        buf: Buf,
        sizes: &[Expr],
        strides: &[Expr],
        offset: Expr,
        doubts: &mut Vec<Vec<f64>>,
    ) -> Result<Tensor, RunError> {
        let sizes = self.extents(sizes)?;
        let strides = strides.iter().map(|&e| self.size(e)).collect::<Result<Vec<_>, _>>()?;
        let offset = self.size(offset)?;
        let memory =
            self.memories.get(buf.index()).ok_or_else(|| self.bug(format!("return: {buf} is no buffer")))?;
        let mut tensor = Tensor::zeros(memory.dtype, &sizes, &contiguous_strides(&sizes))
            .map_err(|error| self.bug(format!("return: {error}")))?;
        let bytes = tensor.bytes_mut().expect("invariant: nothing shares a fresh tensor");
        let mut found = Vec::with_capacity(sizes.iter().product());
        let size = memory.dtype.size();
        for (at, point) in points(&sizes).enumerate() {
            let place =
                point.iter().zip(&strides).fold(offset, |place, (i, stride)| place + *i as i64 * stride);
            let outside = |_| Fault::Outside { place, elements: memory.writers.len() };
            let element = usize::try_from(place).map_err(outside).and_then(|place| memory.load(place));
            let name = &self.loops.bufs[buf].name;
            let element = element.map_err(|fault| self.bug(format!("return: {}", fault.of(name))))?;
            write(bytes, at * size, size, element.0);
            found.push(element.1);
        }
        doubts.push(found);
        Ok(tensor)
    }
}

fn fits_input(name: &str, tensor: &Tensor, dtype: Dtype, sizes: &[usize]) -> Result<(), RunError> {
    let input = name.to_owned();
    if tensor.dtype() != dtype {
        return Err(RunError::WrongDtype { input, expected: dtype, found: tensor.dtype() });
    }
    if tensor.sizes().len() != sizes.len() {
        return Err(RunError::WrongRank { input, expected: sizes.len(), found: tensor.sizes().len() });
    }
    match sizes.iter().zip(tensor.sizes()).position(|(expected, found)| expected != found) {
        None => Ok(()),
        Some(dim) => {
            let (expected, found) = (sizes[dim].to_string(), tensor.sizes()[dim] as i64);
            Err(RunError::WrongSize { input, dim, expected, found })
        }
    }
}

#[cfg(test)]
mod tests;
