//! Defines what can go wrong when a program is prepared or run, with the facts in fields.

use litz_ir::Dtype;
use litz_ir::graph::Device;

use crate::arena::OutOfMemory;
use crate::limits::LimitExceeded;

/// Why a call failed. Messages are lower case, "expected X, found Y".
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A call failed after it had begun to store to the program's state in place: the state is neither the old nor the new one.
    #[error(
        "an earlier call failed while it changed the program's state, which is lost: load the program again"
    )]
    StateLost,
    /// A call with too many or too few inputs.
    #[error("number of inputs: expected {expected}, found {found}")]
    WrongCount {
        /// Inputs of the program.
        expected: usize,
        /// Inputs given.
        found: usize,
    },
    /// An input of another element type.
    #[error("input `{input}`: expected {expected}, found {found}")]
    WrongDtype {
        /// Name of the input.
        input: String,
        /// What the program takes.
        expected: Dtype,
        /// What was given.
        found: Dtype,
    },
    /// An input with another number of dimensions.
    #[error("input `{input}`: expected {expected} dimensions, found {found}")]
    WrongRank {
        /// Name of the input.
        input: String,
        /// What the program takes.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// An input whose size along one dimension is not what the program needs.
    #[error("input `{input}`, dimension {dim}: expected size {expected}, found {found}")]
    WrongSize {
        /// Name of the input.
        input: String,
        /// Which dimension, from 0.
        dim: usize,
        /// The size, or the expression of other sizes that it must equal.
        expected: String,
        /// What was given.
        found: i64,
    },
    /// An input whose size is outside what the program was compiled for.
    #[error("input `{input}`, dimension {dim}: expected {symbol} in [{lo}, {hi}], found {found}")]
    SizeOutOfRange {
        /// Name of the input.
        input: String,
        /// Which dimension, from 0.
        dim: usize,
        /// The size symbol.
        symbol: String,
        /// Smallest value.
        lo: i64,
        /// Largest value.
        hi: i64,
        /// Value of the symbol in this call.
        found: i64,
    },
    /// A condition on sizes that the program rests on does not hold in this call.
    #[error("expected {condition} (asked for by {who}), found {}", pairs(sides))]
    CheckFailed {
        /// The condition: a relation, or several with `or` between them.
        condition: String,
        /// Who asked for it.
        who: String,
        /// Values of the left and the right side of each relation of which both have one: they may overflow, or divide by zero.
        sides: Vec<[i64; 2]>,
    },
    /// An assertion of the user does not hold for what the program has computed. No state has been updated.
    #[error("assertion failed: {message}")]
    AssertionFailed {
        /// The user's message, and the source line.
        message: String,
    },
    /// A value computed by a kernel is no valid index.
    #[error("kernel @{kernel}: {check}")]
    BadIndex {
        /// Name of the kernel.
        kernel: String,
        /// What the kernel says of the check.
        check: String,
    },
    /// A program with memory on another device than the one it was given.
    #[error("`{slot}` is on {found}, and the program was given {given} alone")]
    MissingDevice {
        /// Name of the memory.
        slot: String,
        /// Where the program wants it.
        found: Device,
        /// The program's own device.
        given: Device,
    },
    /// A constant that the weights do not have.
    #[error("missing weight \"{name}\"")]
    MissingWeight {
        /// Parameter name in the model.
        name: String,
    },
    /// A constant of another type or shape.
    #[error("weight \"{name}\": expected {expected}, found {found}")]
    WrongWeight {
        /// Parameter name in the model.
        name: String,
        /// Type and sizes that the program takes.
        expected: String,
        /// Type and sizes of the weight.
        found: String,
    },
    /// Constants that cannot be given new contents.
    #[error(transparent)]
    Constants(#[from] ConstantError),
    /// A routine that this runtime does not have.
    #[error("unknown routine `{name}`")]
    UnknownRoutine {
        /// Name of the routine.
        name: String,
    },
    /// Operators that a program calls, and the host does not have.
    #[error("no host has {}", ops.join(", "))]
    MissingHost {
        /// Their names.
        ops: Vec<String>,
    },
    /// An operator that the host did not run as it should. Where it may have written to the program's state, that is lost.
    #[error("operator {op}{}: {why}", at(source_line.as_deref()))]
    Host {
        /// The operator.
        op: String,
        /// The user's source line, where it is known.
        source_line: Option<String>,
        /// What the host says, or what it left out.
        why: String,
    },
    /// More than the caller's [`Limits`](crate::Limits) allow.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The system had no memory to give.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A program or kernel that breaks the rules of its IR: an error of whoever made it, not of the caller.
    #[error("bug in {item}: {what}")]
    Bug {
        /// The program or kernel.
        item: String,
        /// Which rule, with the facts.
        what: String,
    },
    /// What was found while the memory of a call was watched: see `RunOptions::verify_memory`.
    #[error("memory of {step}: {what}")]
    Memory {
        /// The step of the program.
        step: String,
        /// What is wrong there.
        what: String,
    },
    /// A step that made a NaN or an infinite number: see `RunOptions::check_nan`.
    #[error("{step}: `{buffer}`[{element}] is {kind}, and nothing that the step reads is")]
    NotFinite {
        /// The step of the program, and the nodes of the graph that it computes.
        step: String,
        /// What it writes.
        buffer: String,
        /// The first such element, counted from the buffer's start.
        element: usize,
        /// `NaN` or `infinite`.
        kind: &'static str,
    },
    /// A program that puts a buffer or output where there is no room for it, found before anything runs.
    #[error("bug in {item}: {inner} needs {bytes} bytes at {offset}, and {outer} has {room}")]
    NoRoom {
        /// The program.
        item: String,
        /// What has no room.
        inner: String,
        /// Its size.
        bytes: usize,
        /// Where it begins, in bytes.
        offset: usize,
        /// The memory that it is put into.
        outer: String,
        /// The size of that in bytes.
        room: usize,
    },
}

/// Why a constant cannot be read, or given new contents.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConstantError {
    /// The program has none of that name: nobody uses it, or there is none in the model.
    #[error("no constant \"{name}\" in the program: it uses those that it lists")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// Calls write it.
    #[error("constant \"{name}\" is state that calls write: it cannot be given new contents")]
    State {
        /// The constant.
        name: String,
    },
    /// The file holds what load steps made of the model's constants.
    #[error(
        "the program was saved without its original constants: save it again with `litz compile --updatable`"
    )]
    Folded,
    /// Load steps have to do with what calls write.
    #[error(
        "load steps of the program read or write what its calls write: no constant can be given new contents"
    )]
    Entangled,
    /// Constants that were made for another program.
    #[error("the constants were folded for another program")]
    Foreign,
    /// Executables of one program alone, in the host's memory or that of one GPU, share constants.
    #[error("constants are shared by one program on threads of the host or one GPU: load this one by itself")]
    Unlike,
}

/// ` at model.py:3` where a source line is known.
fn at(source: Option<&str>) -> String {
    source.map_or_else(String::new, |source| format!(" at {source}"))
}

/// `3 and 4`, with commas between several pairs.
fn pairs(sides: &[[i64; 2]]) -> String {
    if sides.is_empty() {
        return "what has no value".to_owned();
    }
    sides.iter().map(|[left, right]| format!("{left} and {right}")).collect::<Vec<_>>().join(", ")
}

impl RunError {
    /// A failed assertion with what the program says of it; anything else as it is.
    pub fn with_message(self, message: &str) -> RunError {
        match self {
            RunError::AssertionFailed { .. } => RunError::AssertionFailed { message: message.to_owned() },
            other => other,
        }
    }

    /// A broken rule of a kernel or program.
    pub(crate) fn bug(item: impl Into<String>, what: impl Into<String>) -> RunError {
        RunError::Bug { item: item.into(), what: what.into() }
    }
}
