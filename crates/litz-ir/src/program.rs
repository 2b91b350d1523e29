//! Defines the program IR: the wrapper around kernels, as data.
//!
//! ```text
//! program @mlp on cpu {
//!   sym s0 in [2, 1024]
//!   param x: f32[s0, 768]
//!   const w: f32[3072, 768] = "fc1.weight"
//!   load {
//!     alloc wp: f32[2359296]
//!     launch @pack0(w, wp)
//!   }
//!   check s0 <= 1024 for "x: size 0"
//!   alloc p0: u8[12288*s0]
//!   view h: f32[3072*s0] = p0 + 0
//!   alloc y: f32[3072*s0]
//!   launch @k0(x, wp, h, y) sizes(s0)
//!   free p0
//!   return y: f32[s0, 3072]
//! }
//! ```

mod effects;
mod order;
mod partition;
mod sizes;

use crate::call::{CallArg, CallResult};
use crate::dtype::Dtype;
use crate::entity;
pub use crate::graph::Queue;
use crate::graph::{Device, OpName, Origin, TensorType};
use crate::ids::Table;
use crate::loops::Control;
use crate::scalar::Scalar;
pub use effects::{Access, Effects, KernelAccesses, Runs, Use, accesses, accesses_of, outward};
use std::sync::Arc;

use litz_sym::{Clause, Expr, Facts, Sym};
pub use order::{Order, Point, takes_made_number};
pub use partition::{Partition, Region, Uncaptured, partitions, regions};
pub use sizes::SizeSource;

entity!(
    /// A piece of memory a program names.
    Slot,
    "t"
);

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name, without the `@`.
    pub name: String,
    /// Where memory is whose text names no other device. The runtime is given this one.
    pub device: Device,
    /// Size symbols: ranges, hints and guards. Symbols get values from parameter sizes, or from steps.
    pub facts: Facts,
    /// Programs that steps call.
    pub functions: Vec<Program>,
    /// Every named memory.
    pub slots: Table<Slot, SlotData>,
    /// User inputs, in order.
    pub params: Vec<Param>,
    /// Bytes that come with the model.
    pub consts: Vec<Const>,
    /// Where the nodes come from that launches mention, for whoever asks what a launch is; nothing runs differently without.
    pub nodes: Vec<FromNode>,
    /// Run once, when the constants are there.
    pub load: Vec<ProgramStep>,
    /// Run at every call.
    pub steps: Vec<ProgramStep>,
    /// State written back, after all steps: (parameter or constant, source).
    pub updates: Vec<(Slot, Slot)>,
    /// What a call returns.
    pub outputs: Vec<Output>,
}

/// Name, type, length and place of a memory.
#[derive(Clone, PartialEq, Debug)]
pub struct SlotData {
    /// Text name, unique.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Elements.
    pub extent: Expr,
    /// Where it is. What a step touches is on one device.
    pub device: Device,
}

/// A user input.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Its memory.
    pub slot: Slot,
    /// What the user must pass. Other strides are copied to these.
    pub ty: TensorType,
    /// Whether the caller gives it up: slots may be placed inside of it, and written.
    pub is_donated: bool,
}

/// Bytes that come with the model.
#[derive(Clone, PartialEq, Debug)]
pub struct Const {
    /// Its memory.
    pub slot: Slot,
    /// Parameter name in the model.
    pub name: String,
    /// Shape and layout the kernels expect; the reader gathers other layouts into it.
    pub ty: TensorType,
}

/// A node of the graph that the program was made of: `node %linear_3 = aten.linear.default at "model.py:12" in "layers.3.mlp.up"`.
#[derive(Clone, PartialEq, Debug)]
pub struct FromNode {
    /// Its first result, without the `%`.
    pub name: String,
    /// Its operator.
    pub op: OpName,
    /// Where it comes from.
    pub origin: Option<Arc<Origin>>,
}

/// One step of a program, which the runtime executes.
#[derive(Clone, PartialEq, Debug)]
pub enum ProgramStep {
    /// Fails the call unless the clause holds.
    Check {
        /// What must hold.
        clause: Clause,
        /// Who asked, for the message.
        who: String,
    },
    /// Gives a slot its own memory.
    Alloc {
        /// The slot.
        slot: Slot,
    },
    /// Places a slot inside another, `offset` bytes in.
    View {
        /// Slot placed.
        slot: Slot,
        /// Slot it lies in.
        base: Slot,
        /// Bytes.
        offset: Expr,
    },
    /// Runs a kernel.
    Launch {
        /// Kernel name.
        kernel: String,
        /// One slot for each parameter.
        args: Vec<Slot>,
        /// One value for each size symbol.
        sizes: Vec<Expr>,
        /// The stream, on the device of the arguments.
        stream: u32,
        /// The nodes of the graph that it computes, without the `%`: see [`Program::nodes`].
        from: Vec<String>,
    },
    /// Copies a slot to another of its type and length, on the same device or another.
    Copy {
        /// Memory read.
        from: Slot,
        /// Memory written.
        to: Slot,
        /// Where it is enqueued: on one of the two devices.
        queue: Queue,
    },
    /// An event that happens when all that is enqueued so far on a queue has ended.
    Record {
        /// Number of the event; each is recorded once.
        event: u32,
        /// Where.
        queue: Queue,
    },
    /// What is enqueued on a queue from here on begins after an event.
    Wait {
        /// Number of the event.
        event: u32,
        /// Where.
        queue: Queue,
    },
    /// Runs a routine of the runtime.
    Extern {
        /// Routine name.
        routine: String,
        /// Memory read.
        reads: Vec<Slot>,
        /// Memory written.
        writes: Vec<Slot>,
        /// Integer parameters.
        ints: Vec<Expr>,
        /// What a failure is reported as.
        message: Option<String>,
    },
    /// Gives a size symbol its value: the integer or truth value that a slot begins with. Fails the call if that is not in the
    /// symbol's range. Steps behind it may use the symbol.
    Size {
        /// The symbol.
        sym: Sym,
        /// Memory read.
        slot: Slot,
        /// What a failure is reported as.
        message: Option<String>,
    },
    /// Calls functions: one, one of two, or one as long as another says; see [`Control`]. Memory is as large as that of the
    /// functions' own parameters and results.
    Control {
        /// How, and which.
        control: Control,
        /// Memory read.
        reads: Vec<Slot>,
        /// Memory written.
        writes: Vec<Slot>,
    },
    /// Calls an operator of the host: `call mylib.foo.default(x as f32[3, 4]{1, 3}, update out as f32[4], 7) -> (y as f32[4], _)`.
    Call {
        /// The operator.
        op: String,
        /// One argument for each of its schema's.
        args: Vec<CallArg<View>>,
        /// Where results go.
        results: Vec<CallResult<View>>,
        /// Memory of which arguments may have elements in common.
        sharing: Vec<Slot>,
        /// The user's source line, for errors.
        message: Option<String>,
    },
    /// Ends a slot's memory.
    Free {
        /// The slot.
        slot: Slot,
    },
}

/// A tensor in a slot.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// Memory.
    pub slot: Slot,
    /// Shape and strides.
    pub ty: TensorType,
    /// First element.
    pub offset: Expr,
}

/// One returned value.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// A strided view of a slot.
    View {
        /// Memory.
        slot: Slot,
        /// Shape and strides.
        ty: TensorType,
        /// First element.
        offset: Expr,
    },
    /// The first element of a slot, as a number.
    Number(Slot),
    /// An integer.
    Int(Expr),
    /// A literal.
    Literal(Scalar),
    /// A string.
    Text(String),
    /// None.
    Nothing,
}

impl Output {
    /// The slot that it is read from.
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Output::View { slot, .. } | Output::Number(slot) => Some(*slot),
            Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => None,
        }
    }
}

impl Program {
    /// An empty program.
    pub fn new(name: impl Into<String>, device: Device) -> Program {
        Program {
            name: name.into(),
            device,
            facts: Facts::new(),
            functions: Vec::new(),
            slots: Table::new(),
            params: Vec::new(),
            consts: Vec::new(),
            nodes: Vec::new(),
            load: Vec::new(),
            steps: Vec::new(),
            updates: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<&Program> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Symbols to which calls of the program, as a function, give values: those that it declares and no step defines.
    pub fn given_sizes(&self) -> Vec<Sym> {
        let late = self.late_sizes();
        self.facts.symbols().filter(|sym| !late.contains(sym)).collect()
    }

    /// The program and its functions, theirs too.
    pub fn all(&self) -> Vec<&Program> {
        std::iter::once(self).chain(self.functions.iter().flat_map(Program::all)).collect()
    }

    /// What a step says in terms of size symbols, the extents of slots to which it gives memory among that.
    pub fn exprs(&self, step: &ProgramStep) -> Vec<Expr> {
        let extent = |slot: &Slot| self.slots.get(*slot).map(|data| data.extent);
        match step {
            ProgramStep::Check { clause, who: _ } => {
                clause.alternatives().iter().flat_map(|rel| [rel.lhs, rel.rhs]).collect()
            }
            ProgramStep::Alloc { slot } => extent(slot).into_iter().collect(),
            ProgramStep::View { slot, base: _, offset } => {
                extent(slot).into_iter().chain([*offset]).collect()
            }
            ProgramStep::Launch { sizes, .. } => sizes.clone(),
            ProgramStep::Extern { ints, .. } => ints.clone(),
            ProgramStep::Call { args, results, .. } => {
                let mut exprs = Vec::new();
                let mut add = |view: &View| {
                    exprs.extend(view.ty.sizes.iter().chain(&view.ty.strides).copied());
                    exprs.push(view.offset);
                };
                results.iter().filter_map(CallResult::written).for_each(&mut add);
                args.iter().for_each(|arg| arg.each_tensor(&mut |view, _| add(view)));
                args.iter().for_each(|arg| arg.each_int(&mut |value| exprs.push(value)));
                exprs
            }
            ProgramStep::Control { control, .. } => {
                control.calls().iter().flat_map(|call| call.sizes.iter().map(|(_, value)| *value)).collect()
            }
            ProgramStep::Copy { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Free { .. } => Vec::new(),
        }
    }

    /// What is known of a node that launches mention: `%y = aten.log.default at model.py:12 in layers.3`.
    pub fn node(&self, name: &str) -> String {
        let Some(node) = self.nodes.iter().find(|node| node.name == name) else { return format!("%{name}") };
        let origin = node.origin.as_deref();
        let line = origin.and_then(|origin| origin.line.as_ref()).map(|line| format!(" at {line}"));
        let module = origin.and_then(|origin| origin.module.as_ref()).map(|module| format!(" in {module}"));
        format!("%{name} = {}{}{}", node.op, line.unwrap_or_default(), module.unwrap_or_default())
    }

    /// What a step is called in messages.
    pub fn place(&self, step: &ProgramStep) -> String {
        let name = |slot: &Slot| self.slots.get(*slot).map_or("?", |data| &data.name);
        match step {
            ProgramStep::Check { clause, who: _ } => format!("check {clause}"),
            ProgramStep::Alloc { slot } => format!("alloc `{}`", name(slot)),
            ProgramStep::View { slot, .. } => format!("view `{}`", name(slot)),
            ProgramStep::Launch { kernel, .. } => format!("launch of @{kernel}"),
            ProgramStep::Copy { from, to, .. } => format!("copy of `{}` to `{}`", name(from), name(to)),
            ProgramStep::Record { event, .. } => format!("record of event {event}"),
            ProgramStep::Wait { event, .. } => format!("wait for event {event}"),
            ProgramStep::Extern { routine, .. } => format!("call of {routine}"),
            ProgramStep::Call { op, .. } => format!("call of {op}"),
            ProgramStep::Control { control, .. } => format!("call of @{}", control.calls()[0].function),
            ProgramStep::Size { sym, .. } => format!("size {sym}"),
            ProgramStep::Free { slot } => format!("free of `{}`", name(slot)),
        }
    }
}
