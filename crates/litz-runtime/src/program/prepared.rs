//! Declares what a program is once all that does not depend on sizes is resolved.

use std::sync::Arc;

use litz_ir::Dtype;
use litz_ir::loops::Control;
use litz_ir::program::{Access, KernelAccesses, Program};
use litz_ir::scalar::Scalar;
use litz_sym::{Facts, Range, Sym};

use super::bind::Guard;
use super::lives::{Watched, Watching};
use crate::arena::GuardPages;
use crate::device::KernelId;
use crate::error::RunError;
use crate::formula::Formula;
use crate::host::Call;
use crate::limits::Limits;
use crate::routines::Routine;

/// A program, resolved.
pub(super) struct Prepared {
    pub(super) name: String,
    pub(super) slots: Vec<Slot>,
    pub(super) params: Vec<Layout>,
    /// For each input whether the caller gives it up.
    pub(super) donated: Vec<bool>,
    pub(super) kernels: Arc<[KernelFacts]>,
    pub(super) limits: Limits,
    pub(super) guard_pages: GuardPages,
    /// When buffers are in use, where that is watched.
    pub(super) watched: Option<Watched>,
    /// Pieces of scratch memory that a launch needs, by device.
    pub(super) concurrency: Vec<usize>,
    /// The device of each queue: first each device, then those with further streams.
    pub(super) queues: Vec<usize>,
    /// Whether a call writes what load steps compute.
    pub(super) calls_write_kept: bool,
    /// Runs of steps that devices capture, with their queues; and for which steps devices are entered.
    pub(super) captured: Vec<(std::ops::Range<usize>, usize)>,
    pub(super) entered: Vec<(std::ops::Range<usize>, usize)>,
    pub(super) load: Vec<PreparedStep>,
    pub(super) steps: Vec<PreparedStep>,
    /// Sizes to which steps give values, in order: they stand behind those that inputs give.
    pub(super) late: Arc<[SizeFacts]>,
    /// How many sizes inputs give.
    pub(super) known: usize,
    /// (destination, source).
    pub(super) updates: Vec<(usize, usize)>,
    pub(super) outputs: Vec<Output>,
}

impl Prepared {
    /// The calls of the host.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        fn call(step: &PreparedStep) -> Option<&Call> {
            if let PreparedStep::Call { call, .. } = step { Some(call.as_ref()) } else { None }
        }
        self.load.iter().chain(&self.steps).filter_map(call)
    }
}

/// A named memory.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) extent: Formula,
    /// The device that it is on, by position.
    pub(super) device: usize,
    pub(super) origin: Origin,
    /// Whether any step or update writes to it or to a view of it.
    pub(super) is_written: bool,
    /// Whether any step of a call does.
    pub(super) is_stored: bool,
}

/// Where a slot's memory comes from.
pub(super) enum Origin {
    Param(usize),
    Const(usize),
    Alloc,
    View {
        base: usize,
        offset: Formula,
    },
    /// No step gives it memory.
    None,
}

/// Type and layout of a tensor.
pub(super) struct Layout {
    pub(super) slot: usize,
    pub(super) dtype: Dtype,
    pub(super) sizes: Vec<Formula>,
    pub(super) strides: Vec<Formula>,
}

pub(super) enum Output {
    View { layout: Layout, offset: Formula },
    Number(usize),
    Int(Formula),
    Literal(Scalar),
    Text(Arc<str>),
    Nothing,
}

/// A step of a program whose slots are positions and whose expressions are formulas.
pub(super) enum PreparedStep {
    Check(Guard),
    Alloc(usize),
    View(usize),
    Launch {
        kernel: usize,
        /// Which launch it is: see [`number_launches`](super::prepare::number_launches).
        number: usize,
        args: Vec<usize>,
        sizes: Vec<Formula>,
        queue: usize,
        /// Whether the host has to wait for numbers that it is given.
        takes_made: bool,
    },
    Copy {
        from: usize,
        to: usize,
        queue: usize,
    },
    Record {
        event: usize,
        queue: usize,
    },
    Wait {
        event: usize,
        queue: usize,
    },
    Extern {
        routine: Routine,
        reads: Vec<usize>,
        writes: Vec<usize>,
        ints: Vec<Formula>,
        message: Arc<str>,
    },
    Control {
        control: Control,
        /// Functions by position, with the values of their sizes, for each call.
        calls: Vec<(usize, Vec<Formula>)>,
        reads: Vec<usize>,
        writes: Vec<usize>,
    },
    /// Gives the next late size the value that the slot begins with.
    Size {
        slot: usize,
        who: Arc<str>,
    },
    /// A call of the host: what it is given by position, values of its integers, its tensors, which of them it writes, and slots of which
    /// several of them may have the same elements.
    Call {
        call: Arc<Call>,
        ints: Vec<Formula>,
        operands: Vec<(Layout, Formula)>,
        writes: Vec<usize>,
        sharing: Vec<usize>,
    },
    Free(usize),
}

impl PreparedStep {
    /// The slots whose memory it uses.
    pub(super) fn mentioned(&self) -> Vec<usize> {
        match self {
            PreparedStep::Launch { args, .. } => args.clone(),
            PreparedStep::Extern { reads, writes, .. } | PreparedStep::Control { reads, writes, .. } => {
                [reads.as_slice(), writes].concat()
            }
            PreparedStep::Call { operands, .. } => operands.iter().map(|(layout, _)| layout.slot).collect(),
            PreparedStep::Copy { from, to, queue: _ } => vec![*from, *to],
            PreparedStep::View(slot) | PreparedStep::Size { slot, .. } => vec![*slot],
            PreparedStep::Check(_)
            | PreparedStep::Alloc(_)
            | PreparedStep::Record { .. }
            | PreparedStep::Wait { .. }
            | PreparedStep::Free(_) => Vec::new(),
        }
    }
}

/// What a launch needs to know of a kernel; formulas are over the kernel's own sizes.
pub(super) struct KernelFacts {
    pub(super) name: String,
    /// What each device knows it by, where it is loaded.
    pub(super) ids: Vec<Option<KernelId>>,
    /// Size of an element and number of elements of each parameter.
    pub(super) params: Vec<(usize, Formula)>,
    pub(super) points: Formula,
    pub(super) scratch: Formula,
    /// Statements that a launch executes, at most.
    pub(super) iterations: Formula,
    /// What it takes for granted: each size in a range and a multiple, and relations between them.
    pub(super) sizes: Vec<SizeFacts>,
    pub(super) guards: Vec<Guard>,
    /// What the kernel does with each parameter.
    pub(super) accesses: Vec<Access>,
    /// Whether it names an infinite constant.
    pub(super) has_infinity: bool,
}

/// What is looked at while a program with these kernels runs.
pub(super) fn watched(program: &Program, kernels: &[KernelFacts], watching: Watching) -> Watched {
    let has_infinity = |name: &str| kernels.iter().any(|kernel| kernel.name == name && kernel.has_infinity);
    Watched::of(program, &accesses(kernels), &has_infinity, watching)
}

/// What kernels do with their parameters, by name.
pub(super) fn accesses(kernels: &[KernelFacts]) -> KernelAccesses<'_> {
    kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.accesses.clone())).collect()
}

impl KernelFacts {
    /// Checks the sizes of a launch.
    ///
    /// # Errors
    /// What is wrong with one of them, or a relation between them that does not hold.
    pub(super) fn check(&self, values: &[i64]) -> Result<(), Result<RunError, String>> {
        for (&value, SizeFacts { name, range, divisor }) in values.iter().zip(&self.sizes) {
            if !range.contains(value) || value % divisor != 0 {
                return Err(Err(format!(
                    "expected {name} in {range} and a multiple of {divisor}, found {value}"
                )));
            }
        }
        self.guards.iter().try_for_each(|guard| guard.check(values)).map_err(Ok)
    }
}

/// What a kernel takes for granted of one of its sizes.
pub(super) struct SizeFacts {
    pub(super) name: Sym,
    pub(super) range: Range,
    pub(super) divisor: i64,
}

impl SizeFacts {
    pub(super) fn of(facts: &Facts, name: Sym) -> SizeFacts {
        SizeFacts { name, range: facts.range_of(name), divisor: facts.divisor_of(name) }
    }

    /// Fails where a size may not have this value; `who` is whom the message names.
    pub(super) fn check(&self, value: i64, who: &str) -> Result<(), RunError> {
        let SizeFacts { name, range, divisor } = self;
        let who = || if who.is_empty() { format!("the range of {name}") } else { who.to_owned() };
        let (condition, sides) = match value {
            _ if value < range.lo => (format!("{name} >= {}", range.lo), [value, range.lo]),
            _ if value > range.hi => (format!("{name} <= {}", range.hi), [value, range.hi]),
            _ if value % divisor != 0 => (format!("mod({name}, {divisor}) == 0"), [value % divisor, 0]),
            _ => return Ok(()),
        };
        Err(RunError::CheckFailed { condition, who: who(), sides: vec![sides] })
    }
}
