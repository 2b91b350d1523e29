//! Defines extern statements: calls of runtime routines, of the host and of functions, copies, and sizes that data decides.

use litz_sym::{Expr, Facts, Sym};

use super::{Buf, is_apart};
use crate::call::{CallArg, CallResult};

/// A call of code that is not given as loops.
#[derive(Clone, PartialEq, Debug)]
pub struct Extern {
    /// Unique among statements.
    pub name: String,
    /// Graph values it came from.
    pub from: Vec<String>,
    /// What is called, and its arguments.
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
    /// `copy c0 from %y = x -> y`: a buffer whole, to one of its type and layout that may be on another device.
    Copy {
        /// Buffer read.
        from: Buf,
        /// Buffer written.
        to: Buf,
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
///
/// Where the operator decides the sizes of a result, `-> (sizes n of f32)`, the runtime keeps the result until a call of [`TAKE`](crate::call::TAKE) copies it to
/// a buffer of these sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct HostCall {
    /// The operator: `mylib.foo.default`.
    pub op: String,
    /// One argument for each of its schema's. No memory that is written is another argument's as well, unless it is of `sharing`: where
    /// two of them are parts of one buffer, one is known to end before the other begins.
    pub args: Vec<CallArg<View>>,
    /// Buffers that its results are, written whole; none for a result that nobody reads or that it does not give.
    pub results: Vec<CallResult<Buf>>,
    /// Buffers of which arguments may have elements in common, `sharing y`: the operator sees what it writes to one of them in the others.
    pub sharing: Vec<Buf>,
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

impl View {
    /// Whether the memory from its first element to its last is known to be apart from that of another view of the buffer.
    pub fn is_apart(&self, other: &View, facts: &Facts) -> bool {
        let own = (self.offset, &self.sizes[..], &self.strides[..]);
        is_apart(facts, own, (other.offset, &other.sizes, &other.strides))
    }
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

impl Extern {
    /// Buffers read, in order of the arguments. What a call of the host's changes, it reads, too; it may read parts of one buffer,
    /// which is here once then.
    pub fn reads(&self) -> Vec<Buf> {
        match &self.callee {
            Callee::Routine(routine) => routine.reads.clone(),
            Callee::Size { sym: _, number } => vec![*number],
            Callee::Copy { from, to: _ } => vec![*from],
            Callee::Control(call) => call.reads.clone(),
            Callee::Host(call) => {
                let mut bufs = Vec::new();
                call.args.iter().for_each(|arg| arg.each_tensor(&mut |view, _| add(&mut bufs, view.buf)));
                bufs
            }
        }
    }
    /// Buffers written: results, then those that a call of the host's changes, each once.
    pub fn writes(&self) -> Vec<Buf> {
        match &self.callee {
            Callee::Routine(routine) => routine.writes.clone(),
            Callee::Size { .. } => Vec::new(),
            Callee::Copy { from: _, to } => vec![*to],
            Callee::Control(call) => call.writes.clone(),
            Callee::Host(call) => {
                let mut bufs: Vec<Buf> =
                    call.results.iter().filter_map(CallResult::written).copied().collect();
                let mut change = |view: &View, is_written: bool| {
                    if is_written {
                        add(&mut bufs, view.buf);
                    }
                };
                call.args.iter().for_each(|arg| arg.each_tensor(&mut change));
                bufs
            }
        }
    }
    /// Calls `f` on each buffer that is mentioned, to be changed.
    pub fn each_buf_mut(&mut self, mut f: impl FnMut(&mut Buf)) {
        match &mut self.callee {
            Callee::Routine(routine) => routine.reads.iter_mut().chain(&mut routine.writes).for_each(f),
            Callee::Size { sym: _, number } => f(number),
            Callee::Copy { from, to } => [from, to].into_iter().for_each(f),
            Callee::Control(call) => call.reads.iter_mut().chain(&mut call.writes).for_each(f),
            Callee::Host(call) => {
                call.args
                    .iter_mut()
                    .for_each(|arg| arg.each_tensor_mut(&mut |view: &mut View| f(&mut view.buf)));
                let results = call.results.iter_mut().filter_map(CallResult::written_mut);
                results.chain(&mut call.sharing).for_each(f);
            }
        }
    }
    /// Integers and sizes that the call is given.
    pub fn exprs(&self) -> Vec<Expr> {
        match &self.callee {
            Callee::Routine(routine) => routine.ints.clone(),
            Callee::Size { .. } | Callee::Copy { .. } => Vec::new(),
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

fn add(bufs: &mut Vec<Buf>, buf: Buf) {
    if !bufs.contains(&buf) {
        bufs.push(buf);
    }
}
