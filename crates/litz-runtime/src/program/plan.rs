//! Declares what a plan of a call is: commands in which every address is a base and a distance, and every size a number.
//!
//! A plan is made once for each set of values and used by every later call with the same ones.

use std::sync::Arc;

use litz_ir::Dtype;
use litz_ir::loops::Control;
use litz_ir::program::Access;
use litz_ir::scalar::Scalar;

use super::prepared::Prepared;
use crate::device::KernelId;
use crate::host::Call;
use crate::routines::Routine;

/// What a call does, for given sizes.
pub(super) struct Plan {
    /// Values of the size symbols.
    pub(super) values: Vec<i64>,
    /// Bytes of memory for intermediate results: of an arena on each device for what is placed before the first late size is known, and
    /// of one on each behind every late size.
    pub(super) arenas: Vec<usize>,
    /// Arenas of which nothing is in use behind the latest size that became known.
    pub(super) left: Vec<usize>,
    /// Bytes of each buffer that has memory of its own, where buffers have guard pages.
    pub(super) own: Vec<usize>,
    /// Statements that kernels execute, at most.
    pub(super) iterations: u64,
    /// Bytes of scratch memory of the point that needs most, by queue.
    pub(super) scratch_bytes: Vec<usize>,
    /// Layout in which kernels expect each input.
    pub(super) params: Vec<ParamPlan>,
    /// Ends with [`Command::Size`] where a value is missing: the rest is planned when it is there, behind the same commands.
    pub(super) commands: Vec<Command>,
    /// By position among the commands, where memory is watched.
    pub(super) watched: Vec<Option<WatchedCommand>>,
    pub(super) places: Vec<Address>,
    pub(super) ints: Vec<i64>,
    /// Outputs that steps compute in their own memory, in the order in which they are asked for.
    pub(super) direct: Vec<(usize, Shape, usize)>,
    pub(super) outputs: Vec<OutputPlan>,
    /// Copies made after all steps and outputs.
    pub(super) updates: Vec<UpdatePlan>,
    /// The first command that stores to a constant.
    pub(super) changes_state: Option<usize>,
    /// Memory that `load` keeps: the slot and its bytes, by position among the kept bases.
    pub(super) kept: Vec<(usize, usize)>,
}

impl Plan {
    /// Bytes of intermediate results behind the latest size that became known.
    pub(super) fn memory_bytes(&self) -> usize {
        let arenas = self.arenas.iter().enumerate().filter(|(at, _)| !self.left.contains(at));
        self.own.iter().chain(arenas.map(|(_, bytes)| bytes)).copied().fold(0, usize::saturating_add)
    }

    /// Bytes of intermediate results and outputs.
    pub(super) fn peak_bytes(&self) -> usize {
        let bytes = |output: &OutputPlan| match output {
            OutputPlan::Direct(shape, _) | OutputPlan::Copied { shape, .. } => shape.bytes,
            OutputPlan::Number(_) | OutputPlan::Scalar(_) | OutputPlan::Text(_) => 0,
        };
        self.outputs.iter().map(bytes).fold(self.memory_bytes(), usize::saturating_add)
    }

    /// The index of the extra output that an input's new contents are, if steps make them in the input's memory.
    pub(super) fn made_in_place(&self, param: usize) -> Option<usize> {
        let mut inputs = self.updates.iter().filter_map(|update| match update.to {
            Target::Input { param, .. } => Some((param, update.from)),
            Target::Const { .. } => None,
        });
        let found = inputs.position(|(of, from)| of == param && from.is_start_of(Base::Param(param)))?;
        Some(self.outputs.len() + found)
    }

    /// All bytes that a call takes, inputs that it copies because it writes them among them.
    pub(super) fn call_bytes(&self, prepared: &Prepared) -> u64 {
        let is_copied = |at: usize| prepared.slots[prepared.params[at].slot].is_stored;
        let copies = self.params.iter().enumerate().filter(|(at, _)| is_copied(*at)).map(|(_, p)| p.room);
        let extra = self.updates.iter().map(|update| match &update.to {
            Target::Input { shape, .. } => shape.bytes,
            Target::Const { .. } => 0,
        });
        let of_queue =
            |(bytes, &device): (&usize, &usize)| bytes.saturating_mul(prepared.concurrency[device]);
        let scratch = self.scratch_bytes.iter().zip(&prepared.queues).map(of_queue);
        let all = copies.chain(extra).chain(scratch).chain([self.peak_bytes()]);
        all.fold(0, |sum, bytes| sum.saturating_add(bytes as u64))
    }
}

/// An address: a base, and a distance from it in bytes; and the device that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) base: Base,
    pub(super) offset: usize,
    pub(super) device: usize,
}

impl Address {
    /// Whether it is where a base begins.
    pub(super) fn is_start_of(self, base: Base) -> bool {
        (self.base, self.offset) == (base, 0)
    }
}

/// Something of which the address is known during a call only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Arena(usize),
    Own(usize),
    Param(usize),
    Const(usize),
    Kept(usize),
    Output(usize),
}

/// Part of a list.
pub(super) type Span = std::ops::Range<usize>;

/// A tensor that a call of the host is given.
pub(super) struct HostOperand {
    /// Which of the call's buffers it is in.
    pub(super) buffer: usize,
    /// Bytes of the buffer before its first element.
    pub(super) skip: usize,
    pub(super) shape: Shape,
    pub(super) is_shared: bool,
}

pub(super) enum Command {
    Launch(LaunchPlan),
    Extern {
        routine: Routine,
        reads: Vec<Buffer>,
        writes: Vec<Buffer>,
        ints: Span,
        message: Arc<str>,
    },
    /// Calls functions, in the way that `control` says.
    Control {
        control: Control,
        calls: Vec<CallPlan>,
        reads: Vec<Buffer>,
        writes: Vec<Buffer>,
    },
    /// Reads the value of the late size at a position.
    Size {
        from: Buffer,
        late: usize,
        who: Arc<str>,
    },
    /// A call of the host: its tensors with the buffer that each is in, and where in that it begins; and buffers that it writes. Tensors that
    /// may have elements in common are in one buffer.
    Call {
        call: Arc<Call>,
        ints: Span,
        buffers: Vec<Buffer>,
        operands: Vec<HostOperand>,
        writes: Vec<usize>,
    },
    Copy {
        from: Address,
        to: Address,
        bytes: usize,
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
    /// Waits for all that is enqueued.
    Settle,
    /// Makes a device that of the thread, and ends that.
    Enter {
        device: usize,
    },
    Leave,
    /// The launches up to a command are captured once, and replayed from then on. Their arguments are these places.
    Capture {
        end: usize,
        number: usize,
        queue: usize,
        args: Span,
    },
    /// Says that nothing reads a constant from here on.
    Release {
        constant: usize,
    },
}

/// A launch of a kernel on a queue.
pub(super) struct LaunchPlan {
    pub(super) kernel: KernelId,
    pub(super) number: usize,
    pub(super) args: Span,
    pub(super) sizes: Span,
    pub(super) points: i64,
    pub(super) scratch_bytes: usize,
    pub(super) queue: usize,
    /// Arguments by position that are numbers of the host.
    pub(super) numbers: Vec<(usize, Buffer)>,
    /// Whether steps make any of these.
    pub(super) takes_made: bool,
}

/// A function by position, and the values of its sizes.
pub(super) struct CallPlan {
    pub(super) function: usize,
    pub(super) sizes: Span,
}

#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) place: Address,
    pub(super) bytes: usize,
    pub(super) dtype: Dtype,
}

/// Type and layout of a tensor.
pub(super) struct Shape {
    pub(super) dtype: Dtype,
    pub(super) sizes: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) bytes: usize,
}

pub(super) struct ParamPlan {
    pub(super) shape: Shape,
    /// Bytes that kernels take for granted; more than the shape's where it has no elements.
    pub(super) room: usize,
    /// Whether steps store to it.
    pub(super) is_stored: bool,
    /// Whether the caller gives it up: a result may stay there.
    pub(super) is_donated: bool,
    /// Where kernels find it.
    pub(super) device: usize,
}

pub(super) enum OutputPlan {
    /// Steps compute it in its own memory, on a device.
    Direct(Shape, usize),
    Copied {
        shape: Shape,
        from: Address,
    },
    /// One element, as a number.
    Number(Buffer),
    Scalar(Option<Scalar>),
    Text(Arc<str>),
}

pub(super) struct UpdatePlan {
    pub(super) from: Address,
    pub(super) to: Target,
}

pub(super) enum Target {
    /// A constant of the executable.
    Const { to: Address, bytes: usize },
    /// The new contents of an input: in its own memory where that was lent, else an extra output.
    Input { param: usize, shape: Shape },
}

/// What a command of a plan does with buffers.
pub(super) struct WatchedCommand {
    pub(super) label: String,
    /// Whether it names an infinite constant.
    pub(super) has_infinity: bool,
    pub(super) uses: Vec<WatchedUse>,
    pub(super) begins: Vec<Begin>,
    pub(super) ends: Vec<usize>,
}

/// That it uses a slot.
pub(super) struct WatchedUse {
    pub(super) slot: usize,
    /// The buffer that the slot is, or is a part of.
    pub(super) buffer: usize,
    pub(super) place: Address,
    pub(super) bytes: usize,
    /// Bytes of an element.
    pub(super) element: usize,
    pub(super) access: Access,
}

/// That the life of a buffer begins.
pub(super) struct Begin {
    pub(super) buffer: usize,
    pub(super) name: Arc<str>,
    pub(super) place: Address,
    pub(super) bytes: usize,
    /// Bytes of an element.
    pub(super) element: usize,
    /// Whether it holds something already.
    pub(super) is_given: bool,
}
