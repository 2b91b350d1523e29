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
//! these take turns in row-major order of the axes as written, so that the last plain store wins and combining stores
//! combine in that order. Statements run in order.
//!
//! A region repeats nests one after another, as long as its axis says; `carry` names the buffers through which an
//! iteration passes something on to the next:
//!
//! ```text
//! region total over block in ceildiv(s0, 64) carry sum {
//!   nest zero [] { %0: f32 = const 0.0 store sum[] = %0 }
//!   nest add [block in ceildiv(s0, 64) | i in 64] { .. store sum[] = %4 }
//! }
//! ```
//!
//! A size that no input tells is a symbol to which a statement gives a value; statements behind it may mention the symbol:
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

mod routine;

use crate::call::CallArg;
use crate::dtype::Dtype;
use crate::entity;
use crate::graph::{Device, TensorType};
use crate::ids::{Id, Table};
use crate::scalar::{ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::borrow::Cow;
use std::collections::HashSet;
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
    /// An integer output.
    Int(Expr),
    /// A literal output.
    Literal(Scalar),
    /// None.
    Nothing,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// A loop nest.
    Nest(Nest),
    /// A call of what is no loop: a routine of the runtime, or an operator of the host.
    Extern(Extern),
    /// Nests that are repeated in order.
    Region(Region),
}

/// A sequential loop over nests. Those that have its axis run for its first point, in order, then for the second, and so
/// on. Nests before them run once before, nests behind them once after.
#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    /// Unique among statements.
    pub name: String,
    /// Graph values it came from, without the `%`.
    pub from: Vec<String>,
    /// The axis along which order matters; nests that are repeated have it among their outer axes.
    pub over: Axis,
    /// Buffers that an iteration reads as the one before left them.
    pub carry: Vec<Buf>,
    /// What runs.
    pub nests: Vec<Nest>,
}

/// A call of what is no loop.
#[derive(Clone, PartialEq, Debug)]
pub struct Extern {
    /// Unique among statements.
    pub name: String,
    /// Graph values it came from.
    pub from: Vec<String>,
    /// What is called, with what.
    pub callee: Callee,
    /// What a failure is reported as: the message and the source line of an assertion, the source line of an operator.
    pub message: Option<String>,
}

/// What an extern calls.
#[derive(Clone, PartialEq, Debug)]
pub enum Callee {
    /// A routine of the runtime.
    Routine(Routine),
    /// An operator of the host.
    Host(HostCall),
    /// `size u0 = n`: gives a size symbol its value. A value outside of the symbol's range ends the call. Statements behind it may
    /// mention the symbol, others may not.
    Size {
        /// The symbol.
        sym: Sym,
        /// A buffer of one element, an integer or a truth value (0 or 1).
        number: Buf,
    },
    /// Functions of the program: calls, branches and loops whose conditions data decides.
    Control(ControlCall),
}

/// A call of a runtime routine, such as `sort`: its meaning is fixed by its name. One that writes nothing is called for
/// its effect, such as `assert`, which ends the call of the program where what it reads does not hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Routine {
    /// Name of the routine.
    pub name: String,
    /// Buffers read: dense, taken as the vectors that they are in memory.
    pub reads: Vec<Buf>,
    /// Buffers written whole: dense, as those read.
    pub writes: Vec<Buf>,
    /// Integer parameters, such as the sizes that a routine needs.
    pub ints: Vec<Expr>,
}

/// A call of an operator of which nothing is known but its declaration.
///
/// `extern n1 from %y = host mylib.foo.default(x as [3, 4]{1, 3}, update out as [4], 7) -> (y, _) effect log for "model.py:3"`
#[derive(Clone, PartialEq, Debug)]
pub struct HostCall {
    /// The operator: `mylib.foo.default`.
    pub op: String,
    /// One argument for each of its schema's. No memory that is written is another argument's as well.
    pub args: Vec<CallArg<View>>,
    /// Buffers that its results are, written whole; none for a result that nobody reads or that it does not give.
    pub results: Vec<Option<Buf>>,
    /// Calls with one effect keep their order, and no pass removes one.
    pub effect: Option<String>,
}

/// A part of a buffer: elements `offset + sum(index * stride)` of its memory.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// Storage.
    pub buf: Buf,
    /// Extent of each dimension.
    pub sizes: Vec<Expr>,
    /// Elements between neighbours.
    pub strides: Vec<Expr>,
    /// First element.
    pub offset: Expr,
}

/// A call of functions, with the buffers that they are given.
#[derive(Clone, PartialEq, Debug)]
pub struct ControlCall {
    /// How they are called.
    pub control: Control,
    /// Buffers read.
    pub reads: Vec<Buf>,
    /// Buffers written.
    pub writes: Vec<Buf>,
}

/// How functions are called.
///
/// What a call reads are its arguments, one for each input of the function, of its type. What it writes is a buffer for each result
/// of the function, then those arguments that the function updates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// `call c0 = @layer(x, w) -> (y)`: the function once.
    Call(FunctionCall),
    /// `branch b0 on p then @yes(x) else @no(x, w) -> (y)`: the one where the truth value in `p`, the first buffer that is read,
    /// holds, else the other. Both write the same.
    Branch {
        /// Where it holds.
        then: FunctionCall,
        /// Where it does not.
        other: FunctionCall,
    },
    /// `while w0 on p by @cond(i, x) do @body(i, x) -> (i, x)`: as long as the truth value holds that the condition gives, which
    /// goes to `p`, the first buffer that is written, the body, which gives nothing and updates arguments.
    While {
        /// Gives one truth value.
        cond: FunctionCall,
        /// What is repeated.
        body: FunctionCall,
    },
}

/// A call of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionCall {
    /// Its name, among those of the program.
    pub function: String,
    /// Arguments.
    pub args: usize,
    /// Values of the function's size symbols, but for those to which it gives values itself.
    pub sizes: Vec<(Sym, Expr)>,
}

impl FunctionCall {
    /// The value of an expression of the function, in terms of the caller.
    pub fn outside(&self, inside: Expr) -> Expr {
        inside.subst(&|sym| self.sizes.iter().find(|(name, _)| *name == sym).map(|(_, value)| *value))
    }
}

impl Control {
    /// The calls that may be made, in order.
    pub fn calls(&self) -> Vec<&FunctionCall> {
        match self {
            Control::Call(call) => vec![call],
            Control::Branch { then, other } => vec![then, other],
            Control::While { cond, body } => vec![cond, body],
        }
    }
    /// The calls, to be changed.
    pub fn calls_mut(&mut self) -> Vec<&mut FunctionCall> {
        match self {
            Control::Call(call) => vec![call],
            Control::Branch { then, other } => vec![then, other],
            Control::While { cond, body } => vec![cond, body],
        }
    }
    /// What is read before the arguments of the calls, and what is written before what the last call writes.
    pub fn own(&self) -> (usize, usize) {
        match self {
            Control::Call(_) => (0, 0),
            Control::Branch { .. } => (1, 0),
            Control::While { .. } => (0, 1),
        }
    }
    /// The calls with their arguments and what they write, of all that is read and written.
    pub fn operands<'a, T>(
        &'a self,
        reads: &'a [T],
        writes: &'a [T],
    ) -> Vec<(&'a FunctionCall, &'a [T], &'a [T])> {
        let (mut at, own) = self.own();
        let count = self.calls().len();
        let operands = |(i, call): (usize, &'a FunctionCall)| {
            let args = reads.get(at..at + call.args).unwrap_or(&[]);
            at += call.args;
            // Of a loop, the condition writes the truth value, and the body the rest.
            let writes = match own {
                0 => writes,
                own if i + 1 < count => writes.get(..own).unwrap_or(&[]),
                own => writes.get(own..).unwrap_or(&[]),
            };
            (call, args, writes)
        };
        self.calls().into_iter().enumerate().map(operands).collect()
    }
    /// How many buffers are read.
    pub fn reads(&self) -> usize {
        self.own().0 + self.calls().iter().map(|call| call.args).sum::<usize>()
    }
}

/// A loop nest: a body and the axes it runs over.
#[derive(Clone, PartialEq, Debug)]
pub struct Nest {
    /// Unique among statements.
    pub name: String,
    /// Graph values it came from, without the `%`.
    pub from: Vec<String>,
    /// Outer axes, outermost first as written; order matters between points that store to one element alone.
    pub axes: Vec<Axis>,
    /// Reduced axes.
    pub reduced: Vec<Axis>,
    /// Points that may be left out, those where this holds, of a nest that a region repeats: with them an iteration changes
    /// nothing that is read where it does not hold, nor does any later one.
    pub idle: Option<Rel>,
    /// Instructions in order; [`Val`] is a position here.
    pub body: Vec<Inst>,
}

/// An axis: `var` takes 0, 1, ... `extent - 1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Axis {
    /// The index variable.
    pub var: Sym,
    /// Number of points; may be 0, never negative.
    pub extent: Expr,
}

/// An instruction and the type of its result (for a store: of the value stored).
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// What it does.
    pub op: InstOp,
    /// Result type. Loads of half types may name a wider type: the conversion is part of the load.
    pub ty: Dtype,
}

/// What an instruction does.
#[derive(Clone, PartialEq, Debug)]
pub enum InstOp {
    /// `load x[i, k]`, or `load x[i, k] if a < b, ... else 0.0`: the element, or `other` where a guard fails.
    /// The element is read in the buffer's type; no conversion.
    Load {
        /// Buffer read.
        buf: Buf,
        /// The element's coordinate along each dimension of the buffer.
        index: Vec<Expr>,
        /// All must hold for the load to happen.
        guard: Vec<Rel>,
        /// Result where a guard fails.
        other: Scalar,
    },
    /// A literal.
    Const(Scalar),
    /// The value of an index expression, as i64.
    Index(Expr),
    /// Whether a relation of index expressions holds.
    Cond(Rel),
    /// An operation on values.
    Op(ScalarOp, Vec<Val>),
    /// Conversion of numbers to the instruction's type, as PyTorch's `to`.
    Cast(Val),
    /// Reinterpretation of the bits as the instruction's type, of equal size.
    Bitcast(Val),
    /// `bind t = %v in n`: checks 0 <= %v < n at run time (a failure is an error of the call) and lets index
    /// expressions of later instructions use the symbol `t` for it.
    Bind {
        /// Symbol defined.
        sym: Sym,
        /// An i64 value.
        value: Val,
        /// Exclusive upper bound.
        extent: Expr,
    },
    /// Combines the values over all points of the reduced axes.
    Reduce(ReduceOp, Val),
    /// Position, along the reduced axes flattened row-major, of the largest (`max`) or smallest value: first of
    /// equals, NaN above (below) all; 0 where there are no points. Result i64.
    ArgReduce {
        /// True for argmax.
        max: bool,
        /// Value compared.
        value: Val,
    },
    /// Inclusive running combination along the single axis `axis`, in increasing order of it.
    Scan {
        /// Combination.
        op: ReduceOp,
        /// Value combined.
        value: Val,
        /// One of the nest's outer axes.
        axis: Sym,
    },
    /// `store x[i, j] = %v`, or `store.sum`: writes one element of the buffer, combining when `combine` is given.
    /// A store depending on a reduce (or not on a reduced axis) runs once per outer point.
    Store {
        /// Buffer written.
        buf: Buf,
        /// The element's coordinate along each dimension of the buffer.
        index: Vec<Expr>,
        /// Value, of the buffer's type.
        value: Val,
        /// How to combine with what is there.
        combine: Option<ReduceOp>,
    },
}

/// A region of a program whose nests are statements of their own.
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
            Output::Literal(_) | Output::Nothing => false,
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
        if self.stmts.iter().all(|s| !matches!(s, Stmt::Region(_))) {
            return (Cow::Borrowed(self), Vec::new());
        }
        let (mut stmts, mut spans) = (Vec::new(), Vec::new());
        for stmt in &self.stmts {
            let start = stmts.len();
            match stmt {
                Stmt::Nest(_) | Stmt::Extern(_) => stmts.push(stmt.clone()),
                Stmt::Region(region) => {
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
    /// Where the instructions of a nest run: on the device of the buffers that they touch.
    pub fn device_of(&self, body: &[Inst]) -> Device {
        let touched = body.iter().find_map(|inst| inst.op.element());
        touched.map_or(self.device, |(buf, _)| self.bufs[buf].device)
    }
    /// Buffers that are read when all statements are done: what is returned, and what states become.
    pub fn results(&self) -> impl Iterator<Item = Buf> {
        let outputs = self.outputs.iter().filter_map(|output| match output {
            Output::View { buf, .. } => Some(*buf),
            Output::Int(_) | Output::Literal(_) | Output::Nothing => None,
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
            Stmt::Nest(_) | Stmt::Region(_) => false,
            Stmt::Extern(call) => match &call.callee {
                Callee::Routine(routine) => routine.writes.is_empty(),
                Callee::Host(_) | Callee::Size { .. } => true,
                Callee::Control(call) => in_functions(&call.control),
            },
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
            Stmt::Region(region) => region.over.extent.has_sym(sym) || region.nests.iter().any(in_nest),
            Stmt::Extern(call) => call.exprs().iter().any(|e| e.has_sym(sym)),
        };
        in_own || stmt.reads().into_iter().chain(stmt.writes()).any(in_shape)
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
            stmts: Vec::new(),
            updates: Vec::new(),
            outputs: Vec::new(),
        }
    }
}

impl BufData {
    /// A buffer of a type.
    pub fn new(name: impl Into<String>, ty: TensorType, kind: BufKind) -> BufData {
        let TensorType { dtype, sizes, strides, device } = ty;
        BufData { name: name.into(), dtype, sizes, strides, device, kind }
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
            Stmt::Region(r) => &r.name,
        }
    }
    /// Graph values it came from.
    pub fn from(&self) -> &[String] {
        match self {
            Stmt::Nest(n) => &n.from,
            Stmt::Extern(e) => &e.from,
            Stmt::Region(r) => &r.from,
        }
    }
    /// The size symbol that it gives a value.
    pub fn defines(&self) -> Option<Sym> {
        match self {
            Stmt::Nest(_) | Stmt::Region(_) => None,
            Stmt::Extern(call) => match &call.callee {
                Callee::Routine(_) | Callee::Host(_) | Callee::Control(_) => None,
                Callee::Size { sym, number: _ } => Some(*sym),
            },
        }
    }
    /// Whether it runs for something else than what it writes.
    pub fn has_effect(&self) -> bool {
        match self {
            Stmt::Nest(_) | Stmt::Region(_) => false,
            Stmt::Extern(call) => match &call.callee {
                Callee::Routine(routine) => routine.writes.is_empty(),
                Callee::Host(call) => call.effect.is_some(),
                Callee::Size { .. } => true,
                Callee::Control(_) => false,
            },
        }
    }
    /// The effect by which calls of the host have an order.
    pub fn effect(&self) -> Option<&str> {
        self.host_call().and_then(|call| call.effect.as_deref())
    }
    /// The call of the host that the statement is.
    pub fn host_call(&self) -> Option<&HostCall> {
        match self {
            Stmt::Extern(Extern { callee: Callee::Host(call), .. }) => Some(call),
            Stmt::Extern(_) | Stmt::Nest(_) | Stmt::Region(_) => None,
        }
    }
    /// The nests it consists of.
    pub fn nests(&self) -> &[Nest] {
        match self {
            Stmt::Nest(n) => std::slice::from_ref(n),
            Stmt::Extern(_) => &[],
            Stmt::Region(r) => &r.nests,
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

impl Extern {
    /// Buffers read, in order of the arguments. What a call of the host's changes, it reads, too.
    pub fn reads(&self) -> Vec<Buf> {
        match &self.callee {
            Callee::Routine(routine) => routine.reads.clone(),
            Callee::Size { sym: _, number } => vec![*number],
            Callee::Control(call) => call.reads.clone(),
            Callee::Host(call) => {
                let mut bufs = Vec::new();
                call.args.iter().for_each(|arg| arg.each_tensor(&mut |view, _| bufs.push(view.buf)));
                bufs
            }
        }
    }
    /// Buffers written: results, then those that a call of the host's changes.
    pub fn writes(&self) -> Vec<Buf> {
        match &self.callee {
            Callee::Routine(routine) => routine.writes.clone(),
            Callee::Size { .. } => Vec::new(),
            Callee::Control(call) => call.writes.clone(),
            Callee::Host(call) => {
                let mut bufs: Vec<Buf> = call.results.iter().flatten().copied().collect();
                let mut add = |view: &View, is_written: bool| bufs.extend(is_written.then_some(view.buf));
                call.args.iter().for_each(|arg| arg.each_tensor(&mut add));
                bufs
            }
        }
    }
    /// Calls `f` on each buffer that is mentioned, to be changed.
    pub fn each_buf_mut(&mut self, mut f: impl FnMut(&mut Buf)) {
        match &mut self.callee {
            Callee::Routine(routine) => routine.reads.iter_mut().chain(&mut routine.writes).for_each(f),
            Callee::Size { sym: _, number } => f(number),
            Callee::Control(call) => call.reads.iter_mut().chain(&mut call.writes).for_each(f),
            Callee::Host(call) => {
                call.args
                    .iter_mut()
                    .for_each(|arg| arg.each_tensor_mut(&mut |view: &mut View| f(&mut view.buf)));
                call.results.iter_mut().flatten().for_each(f);
            }
        }
    }
    /// Integers and sizes that the call is given.
    pub fn exprs(&self) -> Vec<Expr> {
        match &self.callee {
            Callee::Routine(routine) => routine.ints.clone(),
            Callee::Size { .. } => Vec::new(),
            Callee::Control(call) => {
                let calls = call.control.calls();
                calls.iter().flat_map(|call| call.sizes.iter().map(|(_, value)| *value)).collect()
            }
            Callee::Host(call) => {
                let mut exprs = Vec::new();
                for arg in &call.args {
                    arg.each_int(&mut |value| exprs.push(value));
                    arg.each_tensor(&mut |view: &View, _| {
                        exprs.extend(view.sizes.iter().chain(&view.strides).copied());
                        exprs.push(view.offset);
                    });
                }
                exprs
            }
        }
    }
}

impl Region {
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

impl Nest {
    /// Buffers read, in order of first mention; combining stores read what they write.
    pub fn reads(&self) -> Vec<Buf> {
        let read = |inst: &Inst| {
            let is_read = !matches!(inst.op, InstOp::Store { combine: None, .. });
            inst.op.element().filter(|_| is_read).map(|(buf, _)| buf)
        };
        unique(self.body.iter().filter_map(read).collect())
    }
    /// Buffers written, in order of first mention.
    pub fn writes(&self) -> Vec<Buf> {
        let written = |inst: &Inst| if let InstOp::Store { buf, .. } = inst.op { Some(buf) } else { None };
        unique(self.body.iter().filter_map(written).collect())
    }
    /// The axes, and the symbols that the body binds.
    pub fn indices(&self) -> impl Iterator<Item = Axis> {
        let bound = self.body.iter().filter_map(|inst| {
            if let InstOp::Bind { sym, extent, .. } = inst.op {
                Some(Axis { var: sym, extent })
            } else {
                None
            }
        });
        self.all_axes().copied().chain(bound)
    }
    /// Declares the axes, and the symbols the body binds, as indices.
    pub fn declare(&self, facts: &mut Facts) {
        self.indices().for_each(|index| facts.declare_index(index.var, index.extent));
    }
    /// `facts` with what [`Nest::declare`] declares.
    pub fn facts(&self, facts: &Facts) -> Facts {
        let mut facts = facts.clone();
        self.declare(&mut facts);
        facts
    }
    /// All axes, outer ones first.
    pub fn all_axes(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().chain(&self.reduced)
    }
    /// Whether the nest has a part that runs once per outer point.
    pub fn reduces(&self) -> bool {
        self.body.iter().any(|inst| inst.op.is_reduction())
    }
    /// Whether the nest keeps running values: it reduces or scans.
    pub fn accumulates(&self) -> bool {
        self.reduces() || self.scanned().next().is_some()
    }
    /// Axes that scans run along.
    pub fn scanned(&self) -> impl Iterator<Item = Sym> {
        let along = |inst: &Inst| if let InstOp::Scan { axis, .. } = inst.op { Some(axis) } else { None };
        self.body.iter().filter_map(along)
    }
    /// Whether running values are combined along an axis: a reduced one, or that of a scan.
    pub fn is_running(&self, axis: Sym) -> bool {
        self.reduced.iter().any(|reduced| reduced.var == axis)
            || self.scanned().any(|scanned| scanned == axis)
    }
    /// Axes at each of whose points there is a running value of its own.
    pub fn kept_apart(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().filter(|axis| !self.scanned().any(|scanned| scanned == axis.var))
    }
    /// For each instruction, whether it differs from one reduced point to another.
    pub fn varying(&self) -> Vec<bool> {
        let mut symbols: Vec<Sym> = self.reduced.iter().map(|axis| axis.var).collect();
        let mut varies: Vec<bool> = Vec::with_capacity(self.body.len());
        for inst in &self.body {
            let by_operand = inst.op.operands().iter().any(|val| varies.get(val.index()) == Some(&true));
            let by_symbol = inst.op.exprs().iter().any(|e| symbols.iter().any(|&sym| e.has_sym(sym)));
            let own = !inst.op.is_reduction() && (by_operand || by_symbol);
            if let (InstOp::Bind { sym, .. }, true) = (&inst.op, own) {
                symbols.push(*sym);
            }
            varies.push(own);
        }
        varies
    }
    /// For each instruction, whether it runs once per outer point after the reduction (true), that is, whether it
    /// depends on a `reduce`; stores of values that depend on no reduce and on no reduced axis count as such too.
    pub fn after_reduce(&self) -> Vec<bool> {
        let varies = self.varying();
        let mut after: Vec<bool> = Vec::with_capacity(self.body.len());
        for (inst, varies) in self.body.iter().zip(varies) {
            after.push(match &inst.op {
                InstOp::Reduce(..) | InstOp::ArgReduce { .. } => true,
                InstOp::Store { .. } => !varies,
                InstOp::Load { .. }
                | InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. }
                | InstOp::Scan { .. } => {
                    inst.op.operands().iter().any(|val| after.get(val.index()) == Some(&true))
                }
            });
        }
        after
    }
}

impl InstOp {
    /// Whether it gives a value that is a function of loaded elements, indices and other values at its point alone.
    pub fn is_term(&self) -> bool {
        match self {
            InstOp::Load { .. }
            | InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_) => true,
            InstOp::Bind { .. }
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => false,
        }
    }
    /// The element that a load or store accesses: its buffer and coordinates.
    pub fn element(&self) -> Option<(Buf, &[Expr])> {
        match self {
            InstOp::Load { buf, index, .. } | InstOp::Store { buf, index, .. } => Some((*buf, index)),
            InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Bind { .. }
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. } => None,
        }
    }
    /// Values used.
    pub fn operands(&self) -> Vec<Val> {
        match self {
            InstOp::Load { .. } | InstOp::Const(_) | InstOp::Index(_) | InstOp::Cond(_) => Vec::new(),
            InstOp::Op(_, args) => args.clone(),
            InstOp::Cast(v)
            | InstOp::Bitcast(v)
            | InstOp::Bind { value: v, .. }
            | InstOp::Reduce(_, v)
            | InstOp::ArgReduce { value: v, .. }
            | InstOp::Scan { value: v, .. }
            | InstOp::Store { value: v, .. } => vec![*v],
        }
    }
    /// Whether it gives one value for all points along the reduced axes.
    pub fn is_reduction(&self) -> bool {
        matches!(self, InstOp::Reduce(..) | InstOp::ArgReduce { .. })
    }
    /// Values used, to be changed.
    pub fn operands_mut(&mut self) -> Vec<&mut Val> {
        match self {
            InstOp::Load { .. } | InstOp::Const(_) | InstOp::Index(_) | InstOp::Cond(_) => Vec::new(),
            InstOp::Op(_, args) => args.iter_mut().collect(),
            InstOp::Cast(v)
            | InstOp::Bitcast(v)
            | InstOp::Bind { value: v, .. }
            | InstOp::Reduce(_, v)
            | InstOp::ArgReduce { value: v, .. }
            | InstOp::Scan { value: v, .. }
            | InstOp::Store { value: v, .. } => vec![v],
        }
    }
    /// Index expressions mentioned, both sides of relations included.
    pub fn exprs(&self) -> Vec<Expr> {
        match self {
            InstOp::Load { index, guard, .. } => {
                let mut all = index.clone();
                all.extend(guard.iter().flat_map(|r| [r.lhs, r.rhs]));
                all
            }
            InstOp::Index(e) => vec![*e],
            InstOp::Cond(r) => vec![r.lhs, r.rhs],
            InstOp::Store { index, .. } => index.clone(),
            InstOp::Bind { extent, .. } => vec![*extent],
            InstOp::Const(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. } => Vec::new(),
        }
    }
    /// Rewrites every index expression.
    pub fn map_exprs(&mut self, f: &mut impl FnMut(Expr) -> Expr) {
        match self {
            InstOp::Load { index, guard, .. } => {
                index.iter_mut().for_each(|at| *at = f(*at));
                for r in guard {
                    r.lhs = f(r.lhs);
                    r.rhs = f(r.rhs);
                }
            }
            InstOp::Index(e) => *e = f(*e),
            InstOp::Cond(r) => {
                r.lhs = f(r.lhs);
                r.rhs = f(r.rhs);
            }
            InstOp::Store { index, .. } => index.iter_mut().for_each(|at| *at = f(*at)),
            InstOp::Bind { extent, .. } => *extent = f(*extent),
            InstOp::Const(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. } => {}
        }
    }
}
