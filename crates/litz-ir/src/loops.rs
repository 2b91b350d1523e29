//! Defines the loops IR: what each element of each buffer is.
//!
//! ```text
//! loops @mlp on cpu {
//!   sym s0 in [2, 1024]
//!   buf x: f32[s0, 768] = input
//!   buf w: f32[3072, 768] = const "fc1.weight"
//!   buf h: f32[s0, 3072]
//!   nest n0 from %h [i in s0, j in 3072 | k in 768] {
//!     %0: f32 = load x[i, k]
//!     %1: f32 = load w[j, k]
//!     %2: f32 = mul %0, %1
//!     %3: f32 = reduce.sum %2
//!     store h[i, j] = %3
//!   }
//!   return h
//! }
//! ```
//!
//! A nest runs its body once for every point of its axes; axes after `|` are reduced, and instructions that
//! depend on a `reduce` run once per outer point. Order of points is free but for points that store to one element:
//! these run in row-major order of the axes as written, so that the last plain store wins and combining stores combine in
//! that order. Statements run in order.
//!
//! A region is a sequential loop over nests, one iteration for each point of its axis; `carry` names the buffers through which an
//! iteration passes something on to the next:
//!
//! ```text
//! region total over block in ceildiv(s0, 64) carry sum {
//!   nest zero [] { %0: f32 = const 0.0 store sum[] = %0 }
//!   nest add [block in ceildiv(s0, 64) | i in 64] { .. store sum[] = %4 }
//! }
//! ```
//!
//! A size that no input determines is a symbol to which a statement gives a value; statements behind it may mention the symbol:
//!
//! ```text
//! extern n1 from %nonzero = nonzero(mask) -> (places, count)
//! size u0 from %nonzero = count
//! nest n2 from %nonzero [i in u0] { .. }
//! ```
//!
//! Functions are programs inside of a program, which statements call, choose from or repeat; see [`Control`].
//!
//! Where a relation of a nest's axes holds that is given as `idle`, as in `nest n [block in 8, i in 512] idle i < 64*block { .. }`,
//! iterations from that one on change nothing that is read elsewhere: all nests of the region may leave them out.

mod call;
mod nest;
mod routine;

pub use call::{Callee, Control, ControlCall, Extern, FunctionCall, HostCall, Routine, View};
pub use nest::{Axis, BindOf, Inst, InstOp, Nest};
pub use routine::{ELEMENTWISE, FOURIER, LINEAR};

use crate::dtype::Dtype;
use crate::entity;
use crate::graph::{Device, Queue, TensorType};
use crate::ids::Table;
use crate::scalar::Scalar;
use litz_sym::{Expr, Facts, Rel, Sym};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

entity!(
    /// A buffer. Its text name is [`BufData::name`].
    Buf,
    "b"
);
entity!(
    /// A value of a nest's body: the result of the instruction at that position.
    Val,
    "%"
);

/// A whole program as loops.
#[derive(Clone, Debug)]
pub struct Loops {
    /// Name, without the `@`.
    pub name: String,
    /// Where buffers are whose text names no other device.
    pub device: Device,
    /// Size symbols: ranges, hints and guards.
    pub facts: Facts,
    /// Programs that statements call. Their inputs and results are buffers of the caller's, they have no constants, and their size
    /// symbols have values that calls give.
    pub functions: Vec<Loops>,
    /// Every buffer; those that no statement mentions are dead.
    pub bufs: Table<Buf, BufData>,
    /// Inputs that callers give up: what a call leaves in their memory is anything. No statement stores to them, but other buffers
    /// may be put there.
    pub donated: Vec<Buf>,
    /// What to compute, in order.
    pub stmts: Vec<Stmt>,
    /// State written back at the end: (input or constant, new contents). Both sides are whole buffers of one layout. An input or
    /// constant that is both is stored to by statements; no others are.
    pub updates: Vec<(Buf, Buf)>,
    /// What is returned.
    pub outputs: Vec<Output>,
}

/// An array of elements: accesses name them by one coordinate for each dimension, strides say where they lie in the memory
/// of a device. All buffers that a statement touches are on one device, where it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct BufData {
    /// Text name, unique.
    pub name: String,
    /// Element type as stored.
    pub dtype: Dtype,
    /// Extent of each dimension.
    pub sizes: Vec<Expr>,
    /// Elements between neighbours along each dimension.
    pub strides: Vec<Expr>,
    /// Where its memory is.
    pub device: Device,
    /// The stream of the device on which it is made, from 0.
    pub stream: u32,
    /// Where its contents come from.
    pub kind: BufKind,
}

/// Where a buffer's contents come from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BufKind {
    /// The caller, by position among the buffers of this kind in table order.
    Input,
    /// The model, by parameter name.
    Const(String),
    /// Statements.
    Temp,
}

/// One returned value: a strided view of a buffer, or a literal.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Elements `offset + sum(index * stride)` of `buf`.
    View {
        /// Storage.
        buf: Buf,
        /// Extent of each dimension.
        sizes: Vec<Expr>,
        /// Elements between neighbours.
        strides: Vec<Expr>,
        /// First element.
        offset: Expr,
    },
    /// The one element of a buffer without dimensions, as a number.
    Number(Buf),
    /// An integer output.
    Int(Expr),
    /// A literal output.
    Literal(Scalar),
    /// A string.
    Text(String),
    /// None.
    Nothing,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// A loop nest.
    Nest(Nest),
    /// A call of code that is not given as loops: of a runtime routine, or of an operator of the host.
    Extern(Extern),
    /// Nests that are repeated in order.
    Recurrence(Recurrence),
}

/// A recurrence: a sequential loop over nests with buffers that it carries from one iteration to the next, `region` in texts. Nests
/// that have its axis run for its first point, in order, then for the second, and so on. Nests before them run once before, nests
/// behind them once after.
#[derive(Clone, PartialEq, Debug)]
pub struct Recurrence {
    /// Unique among statements.
    pub name: String,
    /// Graph values it came from, without the `%`.
    pub from: Vec<String>,
    /// The axis along which order matters; nests that are repeated have it among their outer axes.
    pub over: Axis,
    /// Buffers that an iteration reads as the one before left them.
    pub carry: Vec<Buf>,
    /// The nests, in order.
    pub nests: Vec<Nest>,
}

/// A recurrence of a program whose nests are statements of their own.
#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its axis.
    pub over: Axis,
    /// Positions of its nests.
    pub stmts: Range<usize>,
}

impl Loops {
    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<&Loops> {
        self.functions.iter().find(|function| function.name == name)
    }
    /// Whether the program, apart from what it knows of sizes, mentions the symbol.
    pub fn uses_symbol(&self, sym: Sym) -> bool {
        let in_output = |output: &Output| match output {
            Output::View { sizes, strides, offset, .. } => {
                sizes.iter().chain(strides).chain([offset]).any(|e| e.has_sym(sym))
            }
            Output::Int(e) => e.has_sym(sym),
            Output::Number(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => false,
        };
        self.bufs.values().any(|data| data.sizes.iter().chain(&data.strides).any(|e| e.has_sym(sym)))
            || self.stmts.iter().any(|stmt| self.mentions(stmt, sym) || stmt.defines() == Some(sym))
            || self.outputs.iter().any(in_output)
    }
    /// Does something to each function, and then to the program.
    pub fn each(&mut self, f: &mut impl FnMut(&mut Loops)) {
        self.functions.iter_mut().for_each(|function| function.each(f));
        f(self);
    }
    /// The buffers that the caller gives, in order.
    pub fn inputs(&self) -> impl Iterator<Item = Buf> {
        self.bufs.iter().filter(|(_, data)| data.kind == BufKind::Input).map(|(buf, _)| buf)
    }
    /// Symbols to which calls of the program, as a function, give values: those that it declares and no statement defines.
    pub fn given_sizes(&self) -> Vec<Sym> {
        let late = self.late_sizes();
        self.facts.symbols().filter(|sym| late.iter().all(|(late, _)| late != sym)).collect()
    }
    /// The program with the nests of regions as statements, each once, and where they are.
    pub fn flat(&self) -> (Cow<'_, Loops>, Vec<Span>) {
        if self.stmts.iter().all(|s| !matches!(s, Stmt::Recurrence(_))) {
            return (Cow::Borrowed(self), Vec::new());
        }
        let (mut stmts, mut spans) = (Vec::new(), Vec::new());
        for stmt in &self.stmts {
            let start = stmts.len();
            match stmt {
                Stmt::Nest(_) | Stmt::Extern(_) => stmts.push(stmt.clone()),
                Stmt::Recurrence(region) => {
                    stmts.extend(region.nests.iter().cloned().map(Stmt::Nest));
                    let name = region.name.clone();
                    spans.push(Span { name, over: region.over, stmts: start..stmts.len() });
                }
            }
        }
        (Cow::Owned(Loops { stmts, ..self.clone() }), spans)
    }
    /// Where in memory an access of the nest is, counted in elements from the first of the buffer, in the simplest form.
    pub fn place(&self, nest: &Nest, buf: Buf, index: &[Expr]) -> Expr {
        let place = self.bufs[buf].place(index);
        // Coordinates that count one position as digits add up to it: n*floordiv(x, n) + mod(x, n) => x
        if place.is_polynomial() { place } else { nest.facts(&self.facts).simplify(place) }
    }
    /// Where the instructions of a nest run, and on which stream: that of what they store.
    pub fn queue_of(&self, body: &[Inst]) -> Queue {
        let stored = body.iter().filter(|inst| matches!(inst.op, InstOp::Store { .. }));
        let stored = stored.filter_map(|inst| inst.op.element()).next();
        let stream = stored.and_then(|(buf, _)| self.bufs.get(buf)).map_or(0, |data| data.stream);
        Queue { device: self.device_of(body), stream }
    }
    /// Whether statements use a buffer, those at these positions, on another stream than the one that makes it.
    pub fn crosses_streams(&self, buf: Buf, users: &[usize]) -> bool {
        let stream = self.bufs[buf].stream;
        users.iter().any(|&user| self.runs_on(&self.stmts[user]).stream != stream)
    }
    /// Where the instructions of a nest run: on the device of the buffers that they touch, but for numbers of the host.
    pub fn device_of(&self, body: &[Inst]) -> Device {
        let touched = body.iter().filter_map(|inst| inst.op.element());
        self.common_device(touched.map(|(buf, _)| buf))
    }
    /// Where a statement runs that is no copy between devices: the device of what it touches, and the stream of what it writes.
    pub fn runs_on(&self, stmt: &Stmt) -> Queue {
        let device = self.common_device(stmt.writes().into_iter().chain(stmt.reads()));
        let written = stmt.writes().first().and_then(|&buf| self.bufs.get(buf));
        Queue { device, stream: written.map_or(0, |data| data.stream) }
    }
    /// The first device of these buffers that is not the host, where others may be numbers.
    pub fn common_device(&self, bufs: impl Iterator<Item = Buf>) -> Device {
        let mut first = None;
        for device in bufs.filter_map(|buf| self.bufs.get(buf)).map(|data| data.device) {
            if device != Device::Cpu {
                return device;
            }
            first = Some(device);
        }
        first.unwrap_or(self.device)
    }
    /// Says which two buffers of a statement are on different devices, if any are that may not be: a copy has two of them, and what a
    /// nest reads without dimensions on the CPU is a number, which goes anywhere.
    pub fn mixed_devices(&self, stmt: &Stmt) -> Option<String> {
        if let Stmt::Extern(Extern { callee: Callee::Copy { .. }, .. }) = stmt {
            return None;
        }
        let device = self.runs_on(stmt).device;
        let is_nest = !matches!(stmt, Stmt::Extern(_));
        let is_number = |data: &&BufData| is_nest && data.is_number_for(device);
        let written = stmt.writes().into_iter().filter_map(|buf| self.bufs.get(buf));
        let read = stmt.reads().into_iter().filter_map(|buf| self.bufs.get(buf));
        let touched = written.chain(read.filter(|data| !is_number(data)));
        Device::difference(touched.map(|data| (&*data.name, data.device)))
    }
    /// Buffers that are read when all statements are done: what is returned, and what states become.
    pub fn results(&self) -> impl Iterator<Item = Buf> {
        let outputs = self.outputs.iter().filter_map(|output| match output {
            Output::View { buf, .. } | Output::Number(buf) => Some(*buf),
            Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => None,
        });
        outputs.chain(self.updates.iter().map(|&(_, source)| source))
    }
    /// Whether a statement may end the call: an assertion, what the host does, and functions with such.
    pub fn may_fail(&self, stmt: &Stmt) -> bool {
        let in_functions = |control: &Control| {
            let functions = control.calls().into_iter().filter_map(|call| self.function(&call.function));
            functions.into_iter().any(|function| function.stmts.iter().any(|stmt| function.may_fail(stmt)))
        };
        match stmt {
            Stmt::Nest(_) | Stmt::Recurrence(_) => false,
            Stmt::Extern(call) => match &call.callee {
                Callee::Routine(routine) => routine.writes.is_empty(),
                Callee::Host(_) | Callee::Size { .. } => true,
                Callee::Copy { .. } => false,
                Callee::Control(call) => in_functions(&call.control),
            },
        }
    }
    /// The effects by which a statement keeps its order among others: that of the call of the host that it is, or those of calls in
    /// the functions that it calls.
    pub fn effects<'a>(&'a self, stmt: &'a Stmt) -> BTreeSet<&'a str> {
        match stmt {
            Stmt::Extern(Extern { callee: Callee::Host(call), .. }) => {
                call.effect.as_deref().into_iter().collect()
            }
            Stmt::Extern(Extern { callee: Callee::Control(call), .. }) => {
                let functions =
                    call.control.calls().into_iter().filter_map(|call| self.function(&call.function));
                functions.flat_map(|of| of.stmts.iter().flat_map(|stmt| of.effects(stmt))).collect()
            }
            Stmt::Extern(_) | Stmt::Nest(_) | Stmt::Recurrence(_) => BTreeSet::new(),
        }
    }
    /// The symbols that statements give values, with the positions of the statements.
    pub fn late_sizes(&self) -> Vec<(Sym, usize)> {
        let late = |(at, stmt): (usize, &Stmt)| Some((stmt.defines()?, at));
        self.stmts.iter().enumerate().filter_map(late).collect()
    }
    /// Whether a statement mentions the symbol, itself or in the shape of a buffer that it touches.
    pub fn mentions(&self, stmt: &Stmt, sym: Sym) -> bool {
        let in_shape = |buf: Buf| {
            let data = self.bufs.get(buf);
            data.is_some_and(|data| data.sizes.iter().chain(&data.strides).any(|e| e.has_sym(sym)))
        };
        let in_nest = |nest: &Nest| {
            nest.all_axes().any(|axis| axis.extent.has_sym(sym))
                || nest.body.iter().any(|inst| inst.op.exprs().iter().any(|e| e.has_sym(sym)))
        };
        let in_own = match stmt {
            Stmt::Nest(nest) => in_nest(nest),
            Stmt::Recurrence(region) => region.over.extent.has_sym(sym) || region.nests.iter().any(in_nest),
            Stmt::Extern(call) => call.exprs().iter().any(|e| e.has_sym(sym)),
        };
        in_own || stmt.reads().into_iter().chain(stmt.writes()).any(in_shape)
    }
    /// Whether other buffers may have the memory of an input when all that reads it has run: it is donated, and neither state nor a
    /// result.
    pub fn is_given_up(&self, buf: Buf) -> bool {
        let is_kept =
            || self.results().chain(self.updates.iter().map(|update| update.0)).any(|kept| kept == buf);
        self.donated.contains(&buf) && self.bufs[buf].kind == BufKind::Input && !is_kept()
    }
    /// Whether only statements read and write the buffer.
    pub fn is_internal(&self, buf: Buf) -> bool {
        self.bufs[buf].kind == BufKind::Temp && self.results().all(|result| result != buf)
    }
    /// For each statement, whether a result or a buffer from outside depends on it, or it has an effect.
    pub fn live_statements(&self) -> Vec<bool> {
        let mut wanted: HashSet<Buf> = self.results().collect();
        wanted.extend(self.bufs.iter().filter(|(_, data)| data.kind != BufKind::Temp).map(|(buf, _)| buf));
        let mut live = vec![false; self.stmts.len()];
        for (stmt, live) in self.stmts.iter().zip(&mut live).rev() {
            *live = stmt.has_effect()
                || self.may_fail(stmt) && stmt.host_call().is_none()
                || stmt.writes().iter().any(|buf| wanted.contains(buf));
            if *live {
                wanted.extend(stmt.reads());
            }
        }
        live
    }
    /// An empty program.
    pub fn new(name: impl Into<String>, device: Device) -> Loops {
        Loops {
            name: name.into(),
            device,
            facts: Facts::new(),
            functions: Vec::new(),
            bufs: Table::new(),
            donated: Vec::new(),
            stmts: Vec::new(),
            updates: Vec::new(),
            outputs: Vec::new(),
        }
    }
}

impl BufData {
    /// Whether it is a number in the host's memory for a kernel of that device, which is given it by value.
    pub fn is_number_for(&self, device: Device) -> bool {
        device != Device::Cpu && self.device == Device::Cpu && self.sizes.is_empty()
    }

    /// A buffer of a type.
    pub fn new(name: impl Into<String>, ty: TensorType, kind: BufKind) -> BufData {
        let TensorType { dtype, sizes, strides, device } = ty;
        BufData { name: name.into(), dtype, sizes, strides, device, stream: 0, kind }
    }

    /// Its type.
    pub fn ty(&self) -> TensorType {
        let (sizes, strides) = (self.sizes.clone(), self.strides.clone());
        TensorType { dtype: self.dtype, sizes, strides, device: self.device }
    }

    /// Elements spanned: one more than the largest reachable flat index; 0 when any size is 0.
    pub fn span(&self) -> Expr {
        span(&self.sizes, &self.strides)
    }

    /// Number of elements in memory: along a stride of 0 there is one, whatever the size.
    pub fn elements(&self) -> Expr {
        let strided = self.sizes.iter().zip(&self.strides).filter(|(_, stride)| !stride.is_zero());
        strided.map(|(&size, _)| size).product()
    }

    /// Whether its elements fill its span, in any order.
    pub fn is_dense(&self) -> bool {
        self.span() == self.sizes.iter().product()
    }

    /// Where in memory the element with these coordinates is, counted in elements from the first.
    pub fn place(&self, index: &[Expr]) -> Expr {
        index.iter().zip(&self.strides).map(|(&at, &stride)| at * stride).sum()
    }
}

/// Elements that no memory holds: processors have addresses of 48 bits.
const MOST_ELEMENTS: i64 = 1 << 48;

/// Whether a strided shape may be in memory, as far as its sizes and strides are numbers.
pub fn may_be_in_memory(sizes: &[Expr], strides: &[Expr]) -> bool {
    let is_small = |expr: Expr| expr.as_int().is_none_or(|value| value <= MOST_ELEMENTS);
    let is_empty = sizes.iter().any(|size| size.is_zero());
    is_empty || sizes.iter().chain(strides).copied().all(is_small) && is_small(span(sizes, strides))
}

/// Whether the memory of a strided shape, from its first element to its last, is known to be apart from that of another one, each with
/// where it begins in the same memory.
pub fn is_apart(facts: &Facts, one: (Expr, &[Expr], &[Expr]), other: (Expr, &[Expr], &[Expr])) -> bool {
    let ends_before = |(start, sizes, strides): (Expr, &[Expr], &[Expr]), next: Expr| {
        facts.holds(&Rel::le(start + span(sizes, strides), next))
    };
    ends_before(one, other.0) || ends_before(other, one.0)
}

/// Elements spanned by a strided shape: one more than its largest flat index, 0 when any size is literally 0, never less
/// than 0.
pub fn span(sizes: &[Expr], strides: &[Expr]) -> Expr {
    if sizes.iter().any(|s| s.is_zero()) {
        return Expr::zero();
    }
    let span = sizes.iter().zip(strides).fold(Expr::one(), |n, (&size, &stride)| n + (size - 1) * stride);
    // Where a size is 0 the sum says nothing, and may be below 0, unless it is the number of elements.
    let may_be_empty = sizes.iter().any(|size| size.as_int().is_none());
    if may_be_empty && span != sizes.iter().product() { span.max(Expr::zero()) } else { span }
}

impl Stmt {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Stmt::Nest(n) => &n.name,
            Stmt::Extern(e) => &e.name,
            Stmt::Recurrence(r) => &r.name,
        }
    }
    /// Graph values it came from.
    pub fn from(&self) -> &[String] {
        match self {
            Stmt::Nest(n) => &n.from,
            Stmt::Extern(e) => &e.from,
            Stmt::Recurrence(r) => &r.from,
        }
    }
    /// The size symbol that it gives a value.
    pub fn defines(&self) -> Option<Sym> {
        match self {
            Stmt::Nest(_) | Stmt::Recurrence(_) => None,
            Stmt::Extern(call) => match &call.callee {
                Callee::Routine(_) | Callee::Host(_) | Callee::Control(_) | Callee::Copy { .. } => None,
                Callee::Size { sym, number: _ } => Some(*sym),
            },
        }
    }
    /// Whether it runs for something else than what it writes.
    pub fn has_effect(&self) -> bool {
        match self {
            Stmt::Nest(_) | Stmt::Recurrence(_) => false,
            Stmt::Extern(call) => match &call.callee {
                Callee::Routine(routine) => routine.writes.is_empty(),
                Callee::Host(call) => call.effect.is_some(),
                Callee::Size { .. } => true,
                Callee::Control(_) | Callee::Copy { .. } => false,
            },
        }
    }
    /// The call of the host that the statement is.
    pub fn host_call(&self) -> Option<&HostCall> {
        match self {
            Stmt::Extern(Extern { callee: Callee::Host(call), .. }) => Some(call),
            Stmt::Extern(_) | Stmt::Nest(_) | Stmt::Recurrence(_) => None,
        }
    }
    /// The nests it consists of.
    pub fn nests(&self) -> &[Nest] {
        match self {
            Stmt::Nest(n) => std::slice::from_ref(n),
            Stmt::Extern(_) => &[],
            Stmt::Recurrence(r) => &r.nests,
        }
    }
    /// Buffers read, in order of first mention; combining stores read what they write.
    pub fn reads(&self) -> Vec<Buf> {
        let mut bufs = Vec::new();
        if let Stmt::Extern(e) = self {
            bufs.extend(e.reads());
        }
        bufs.extend(self.nests().iter().flat_map(Nest::reads));
        unique(bufs)
    }
    /// Buffers written, in order of first mention.
    pub fn writes(&self) -> Vec<Buf> {
        let mut bufs = Vec::new();
        if let Stmt::Extern(e) = self {
            bufs.extend(e.writes());
        }
        bufs.extend(self.nests().iter().flat_map(Nest::writes));
        unique(bufs)
    }
}

impl Recurrence {
    /// Whether a nest is repeated.
    pub fn repeats(&self, nest: &Nest) -> bool {
        nest.axes.iter().any(|a| a.var == self.over.var)
    }
}

fn unique(bufs: Vec<Buf>) -> Vec<Buf> {
    let mut seen = Vec::with_capacity(bufs.len());
    for buf in bufs {
        if !seen.contains(&buf) {
            seen.push(buf);
        }
    }
    seen
}
