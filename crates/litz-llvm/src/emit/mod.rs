//! Prints kernels as LLVM IR text.
//!
//! The text is final: no LLVM pass improves it, so vectors, masks, hoisting and register tiles are spelled out here.
//! Emission is one walk over the kernel; `block.rs` has the idea that makes one walk enough.
//!
//! `points.rs` has the functions of CPUs, `gpu/` those of GPUs; what they do with statements is one.

mod block;
mod body;
mod cast;
mod copy;
mod dot;
mod gpu;
mod index;
mod interleave;
mod math;
mod matrix;
mod memory;
mod points;
mod reduce;
mod register;
mod scalar;
mod small;
mod transpose;
mod ty;
mod vector;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;

use litz_ir::Dtype;
use litz_ir::ids::Table;
use litz_ir::kernel::{Kernel, Mem, Part, Stmt, Val, visit};
use litz_sym::{Expr, Facts, Sym};

use crate::processor::{Isa, Processor};
use block::{Builder, Value};
use gpu::Products;
use ty::Prim;

pub use math::externals;

/// Why a kernel has no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmitError {
    /// Name of the kernel.
    pub kernel: String,
    /// What is the matter with it.
    pub what: String,
    /// True when the kernel breaks a rule of the IR, false when it is beyond this emitter.
    pub is_malformed: bool,
}

impl EmitError {
    fn unsupported(what: impl Into<String>) -> EmitError {
        EmitError { kernel: String::new(), what: what.into(), is_malformed: false }
    }

    fn malformed(what: impl Into<String>) -> EmitError {
        EmitError { kernel: String::new(), what: what.into(), is_malformed: true }
    }
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_malformed { "malformed" } else { "unsupported" };
        write!(f, "kernel @{}: {verdict}: {}", self.kernel, self.what)
    }
}

impl std::error::Error for EmitError {}

/// A kernel as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The function and the constants that it alone uses.
    pub text: String,
    /// What it calls: declarations and helper functions, one an entry, to be written once in a module.
    pub declarations: BTreeSet<String>,
}

/// Emits one kernel, which has the form that the backend's passes give.
pub fn emit(kernel: &Kernel, target: &Processor) -> Result<Function, EmitError> {
    let function = match target.isa {
        Isa::Ptx => gpu::function,
        Isa::Baseline | Isa::Avx2 | Isa::Avx512 | Isa::Neon => points::function,
    };
    let emitted = check_ranks(kernel).and_then(|()| function(kernel, target));
    emitted.map_err(|error| EmitError { kernel: kernel.name.clone(), ..error })
}

/// Checks that memories are flat, and that accesses give one index.
fn check_ranks(kernel: &Kernel) -> Result<(), EmitError> {
    if let Some(data) = kernel.mems.values().find(|data| !data.is_flat()) {
        return Err(EmitError::malformed(format!("`{}` is not flat", data.name)));
    }
    let mut misfit = None;
    visit(&kernel.body, &mut |stmt| {
        stmt.each_part(&mut |part| {
            if let Part::Access { mem, index, .. } = part
                && (kernel.mems.get(*mem).is_none() || index.len() != 1)
            {
                misfit = Some(format!("{} coordinates for {mem}", index.len()));
            }
        });
    });
    misfit.map_or(Ok(()), |what| Err(EmitError::malformed(what)))
}

/// Emits a module of several kernels of different names: the text that [`crate::llvm::compile`] takes.
pub fn emit_module(kernels: &[Kernel], target: &Processor) -> Result<String, EmitError> {
    let mut text = String::new();
    let mut declarations = BTreeSet::new();
    for kernel in kernels {
        let function = emit(kernel, target)?;
        text.push_str(&function.text);
        declarations.extend(function.declarations);
    }
    for declaration in declarations {
        text.push_str(&declaration);
        text.push('\n');
    }
    text.push_str(&attributes(target));
    Ok(text)
}

/// The attribute group that every function of a module refers to as `#0`.
pub fn attributes(target: &Processor) -> String {
    let Processor { cpu, features, vector_bits, .. } = target;
    if target.isa == Isa::Ptx {
        return format!(
            "attributes #0 = {{ nounwind \"target-cpu\"=\"{cpu}\" \"target-features\"=\"{features}\" }}\n\
             attributes #1 = {{ convergent nounwind }}\n"
        );
    }
    format!(
        "attributes #0 = {{ nounwind \"target-cpu\"=\"{cpu}\" \"target-features\"=\"{features}\" \
         \"prefer-vector-width\"=\"{vector_bits}\" \"min-legal-vector-width\"=\"{vector_bits}\" }}\n"
    )
}

/// What a symbol stands for.
#[derive(Clone, Debug)]
enum Bound {
    /// Variable of an unrolled loop.
    Constant(i64),
    /// The same in every lane.
    Scalar(Value),
    /// One value a lane.
    Vector(Value),
    /// The variable of the vector loop being emitted.
    Lane,
    /// So much more than the variable of the vector loop being emitted.
    Shifted(Expr),
}

/// A group of iterations of a vector loop that run at once.
#[derive(Clone, Debug)]
struct Lanes {
    /// The loop's variable.
    var: Sym,
    /// Its value in lane 0: a multiple of `count`.
    first: Expr,
    /// A symbol for the number of the group.
    group: Sym,
    /// A symbol for the number of the lane.
    lane: Sym,
    /// Number of lanes.
    count: u32,
    /// Which of the copies in flight the group is.
    copy: u32,
    /// Lanes that run; all where there is none.
    mask: Option<Value>,
    /// Whether `mask` may be false in every lane.
    may_be_empty: bool,
    /// Registers of which each lane has its own, because each iteration writes them before it reads them.
    private: Vec<Mem>,
    /// What iterations load, so that they cannot combine with it all at once.
    loaded: Vec<Mem>,
}

/// How a piece of memory is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// At an address.
    Memory,
    /// In SSA values of `width` elements.
    Slots { width: u32 },
    /// As operands of a warp's instructions: in SSA values of 32 bits, of neighbours each.
    Packed,
}

/// The state of a piece of memory.
#[derive(Clone, Debug)]
struct MemState {
    dtype: Dtype,
    /// Element type in memory.
    prim: Prim,
    form: Form,
    /// First element.
    base: Value,
    /// Changes with every store.
    version: u64,
    /// Whether its contents are there before the kernel begins, and stay as long as it runs: loads may be anywhere in it.
    stays: bool,
}

struct Emitter<'k> {
    kernel: &'k Kernel,
    target: &'k Processor,
    /// The kernel's facts, and those about variables of loops around.
    facts: Facts,
    b: Builder,
    syms: HashMap<Sym, Bound>,
    vals: Vec<Option<Value>>,
    mems: Table<Mem, MemState>,
    lanes: Option<Lanes>,
    clock: u64,
    /// Bytes of zeros that loads read where their guards fail.
    zeros: i64,
    /// Values of half types, by name, and how they are kept in memory where that is at hand.
    rounded: HashMap<Rc<str>, (Dtype, Option<Value>)>,
    /// Types and bits of whole numbers that are small and not negative, by name.
    small: HashMap<Rc<str>, (Dtype, u32)>,
    /// Indices of either sign that are small, by name.
    near: HashSet<Rc<str>>,
    /// How the tile registers are divided, from the first point to the last.
    tiles: Option<matrix::Shape>,
    /// Functions expanded inline so far.
    inlined: u32,
    status: Value,
    /// The thread that runs the code, on a GPU.
    thread: Option<gpu::Thread>,
    /// Products of a warpgroup that go on in the background.
    products: Products,
}

impl<'k> Emitter<'k> {
    fn new(kernel: &'k Kernel, target: &'k Processor, status: Value) -> Emitter<'k> {
        Emitter {
            kernel,
            target,
            facts: kernel.facts.clone(),
            b: Builder::new(),
            syms: HashMap::new(),
            vals: vec![None; kernel.vals.len()],
            mems: Table::new(),
            lanes: None,
            clock: 0,
            zeros: 0,
            rounded: HashMap::new(),
            small: HashMap::new(),
            near: HashSet::new(),
            tiles: None,
            inlined: 0,
            status,
            thread: None,
            products: Products::default(),
        }
    }
}

impl Emitter<'_> {
    fn body(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        stmts.iter().try_for_each(|stmt| self.statement(stmt))
    }

    /// Notes that memory changes: what was loaded before is not what a load would give.
    fn touch(&mut self, mems: &[Mem]) {
        self.clock += 1;
        for &mem in mems {
            self.mems[mem].version = self.clock;
        }
    }

    fn value(&self, val: Val) -> Result<Value, EmitError> {
        let value = self.vals.get(val.0 as usize).cloned().flatten();
        value.ok_or_else(|| EmitError::malformed(format!("{val} is used before it is defined")))
    }

    fn dtype_of(&self, val: Val) -> Dtype {
        self.kernel.vals[val]
    }
}
