//! Prints kernels as LLVM IR text for CPUs.
//!
//! The text is final: no LLVM pass improves it, so vectors, masks, hoisting and register tiles are spelled out here.
//! Emission is one walk over the kernel; `block.rs` has the idea that makes one walk enough.
//!
//! Every kernel becomes one function, which runs a range of grid points:
//!
//! ```text
//! define void @k0(ptr %args, ptr %sizes, i64 %begin, i64 %end, ptr %scratch, ptr %status)
//! ```
//!
//! - `args`: pointers to the parameters' elements, in order.
//! - `sizes`: `i64` values of [`Kernel::sizes`], in order.
//! - `begin`, `end`: the points, numbered row-major over [`Kernel::grid`].
//! - `scratch`: [`Kernel::scratch_bytes`] bytes, aligned to 64, of no one else.
//! - `status`: an `i64` that becomes the index of the check plus 1 where a `bind` fails; the function then returns
//!   at once. Otherwise it is left alone.

mod block;
mod body;
mod cast;
mod copy;
mod dot;
mod index;
mod interleave;
mod math;
mod matrix;
mod memory;
mod reduce;
mod register;
mod scalar;
mod small;
mod transpose;
mod ty;
mod vector;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fmt::Write as _;
use std::rc::Rc;

use litz_ir::Dtype;
use litz_ir::ids::Table;
use litz_ir::kernel::{Kernel, Mem, MemorySpace, Part, Stmt, Val, visit};
use litz_sym::{Expr, Facts, Sym};

use crate::llvm::CpuTarget;
use block::{Builder, ScopeKind, Value};
use ty::{Prim, Ty};

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
pub fn emit(kernel: &Kernel, target: &CpuTarget) -> Result<Function, EmitError> {
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
pub fn emit_module(kernels: &[Kernel], target: &CpuTarget) -> Result<String, EmitError> {
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
pub fn attributes(target: &CpuTarget) -> String {
    let CpuTarget { cpu, features, vector_bits, .. } = target;
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
}

struct Emitter<'k> {
    kernel: &'k Kernel,
    target: &'k CpuTarget,
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
    /// How the tile registers are divided, from the first point to the last.
    tiles: Option<matrix::Shape>,
    /// Functions expanded inline so far.
    inlined: u32,
    status: Value,
}

fn function(kernel: &Kernel, target: &CpuTarget) -> Result<Function, EmitError> {
    let argument = |name: &str, ty: Ty| Value { text: name.into(), ty, depth: 0 };
    let mut cx = Emitter {
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
        tiles: None,
        inlined: 0,
        status: argument("%status", Ty::PTR),
    };
    let sizes = argument("%sizes", Ty::PTR);
    for (index, &sym) in kernel.sizes.iter().enumerate() {
        let value = cx.load_argument(Ty::I64, &sizes, index);
        cx.syms.insert(sym, Bound::Scalar(value));
    }
    cx.place_memory(&argument("%args", Ty::PTR), &argument("%scratch", Ty::PTR))?;
    cx.grid(&argument("%begin", Ty::I64), &argument("%end", Ty::I64))?;

    let mut text = String::new();
    if cx.zeros > 0 {
        text = format!(
            "@{}.zeros = private global [{} x i8] zeroinitializer, align 64\n",
            kernel.name, cx.zeros
        );
    }
    if let Some(shape) = cx.tiles {
        text.push_str(&format!("@{}.tiles = private constant {}, align 64\n", kernel.name, shape.literal()));
    }
    let declarations = std::mem::take(&mut cx.b.declarations);
    write!(
        text,
        "define void @{}(ptr %args, ptr %sizes, i64 %begin, i64 %end, ptr %scratch, ptr %status) #0 {{\n{}}}\n",
        kernel.name,
        cx.b.finish()
    )
    .expect("invariant: writing to a string succeeds");
    Ok(Function { text, declarations })
}

impl Emitter<'_> {
    /// Element `index` of an array of arguments.
    fn load_argument(&mut self, ty: Ty, array: &Value, index: usize) -> Value {
        let offset = self.b.int(Prim::I64, index as i64);
        let address = self.advance(Ty::I64, array, &offset);
        let text = format!("load {ty}, ptr {}, align 8", address.text);
        self.b.read(ty, 0, 0, &[&address], text)
    }

    /// Finds the first element of every piece of memory.
    fn place_memory(&mut self, args: &Value, scratch: &Value) -> Result<(), EmitError> {
        let forms = register::forms(self.kernel);
        let offsets: HashMap<Mem, Expr> =
            self.kernel.scratch().map(|(mem, offset, _)| (mem, offset)).collect();
        for (mem, data) in self.kernel.mems.iter() {
            let prim = ty::memory_type(data.dtype)?;
            let base = match (data.space, forms[&mem]) {
                (MemorySpace::Read | MemorySpace::Number | MemorySpace::Write | MemorySpace::Update, _) => {
                    self.load_argument(Ty::PTR, args, mem.0 as usize)
                }
                (MemorySpace::Register, Form::Slots { .. }) => self.b.poison(Ty::PTR),
                (MemorySpace::Register, Form::Memory) => {
                    let Some(extent) = data.span().as_int() else {
                        return Err(EmitError::malformed(format!(
                            "register `{}` has no constant extent",
                            data.name
                        )));
                    };
                    self.b.alloca(&format!("[{extent} x {}], align 64", Ty::scalar(prim)))
                }
                (MemorySpace::Own | MemorySpace::Shared | MemorySpace::Cluster | MemorySpace::Global, _) => {
                    return Err(EmitError::unsupported(format!(
                        "`{}` is memory of a GPU's threads",
                        data.name
                    )));
                }
                (MemorySpace::Scratch, _) => {
                    let offset = self.scalar(offsets[&mem])?;
                    self.advance(Ty::scalar(Prim::I8), scratch, &offset)
                }
            };
            self.mems.push(MemState { dtype: data.dtype, prim, form: forms[&mem], base, version: 0 });
        }
        Ok(())
    }

    /// The loop over grid points: coordinates are divided out once and then counted up like an odometer.
    fn grid(&mut self, begin: &Value, end: &Value) -> Result<(), EmitError> {
        let axes = &self.kernel.grid;
        let extents = axes.iter().map(|axis| self.scalar(axis.extent)).collect::<Result<Vec<_>, _>>()?;
        let (preheader, exit) = (self.b.new_block(), self.b.new_block());
        let some = self.b.compare("icmp slt", begin, end);
        self.b.branch(&some, preheader, exit);

        self.b.open(ScopeKind::Arm, preheader, Vec::new());
        let mut rest = begin.clone();
        let mut first = Vec::new();
        for extent in extents.iter().rev() {
            // Not shared or hoisted: the divisor is only sure to be positive where there are points.
            first.push(self.b.impure(
                Ty::I64,
                &[&rest, extent],
                &format!("urem i64 {}, {}", rest.text, extent.text),
            ));
            rest =
                self.b.impure(Ty::I64, &[&rest, extent], &format!("udiv i64 {}, {}", rest.text, extent.text));
        }
        first.reverse();
        let header = self.b.new_block();
        self.b.jump(header);

        let mut written = body::written(&self.kernel.body);
        written.retain(|&mem| self.mems[mem].form == Form::Memory);
        self.touch(&written);
        self.b.open(ScopeKind::Loop { preheader, header }, header, written);
        let point = self.b.later_phi(Ty::I64);
        let coordinates: Vec<Value> = axes.iter().map(|_| self.b.later_phi(Ty::I64)).collect();
        for (axis, coordinate) in axes.iter().zip(&coordinates) {
            self.facts.declare_index(axis.var, axis.extent);
            self.syms.insert(axis.var, Bound::Scalar(coordinate.clone()));
        }
        self.body(&self.kernel.body)?;

        let one = self.b.int(Prim::I64, 1);
        let zero = self.b.int(Prim::I64, 0);
        let next_point = self.b.binary("add", &point, &one);
        let mut carry = self.b.int(Prim::I1, 1);
        let mut next = Vec::new();
        for (index, coordinate) in coordinates.iter().enumerate().rev() {
            let step = self.b.convert("zext", &carry, Prim::I64);
            let sum = self.b.binary("add", coordinate, &step);
            let wraps = self.b.compare("icmp eq", &sum, &extents[index]);
            next.push(self.b.select(&wraps, &zero, &sum));
            carry = wraps;
        }
        next.reverse();
        let more = self.b.compare("icmp slt", &next_point, end);
        let latch = self.b.block();
        self.b.write_phi(header, &point, &[(begin, preheader), (&next_point, latch)]);
        for ((coordinate, first), next) in coordinates.iter().zip(&first).zip(&next) {
            self.b.write_phi(header, coordinate, &[(first, preheader), (next, latch)]);
        }
        self.b.branch(&more, header, exit);
        self.b.close_loop(exit);
        self.b.close_arm();
        self.b.continue_in(exit);
        self.release_tiles();
        self.b.end("ret void");
        Ok(())
    }

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
