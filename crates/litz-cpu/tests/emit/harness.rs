//! Builds kernels statement by statement and runs them.

use litz_backend::Backend;
use litz_codegen::passes;
use litz_cpu::CpuBackend;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Stmt, Val};
use litz_ir::loops::Axis;
use litz_ir::{Diag, Dtype, ReduceOp, Scalar, ScalarOp};
use litz_llvm::emit::emit_module;
use litz_llvm::llvm::compile;
use litz_llvm::{Isa, Processor};
use litz_runtime::object::LoadedObject;
use litz_runtime::symbols::c_library_symbol;
use litz_sym::{Expr, Range, Rel, Sym};

/// A kernel under construction; statements go to the innermost open block.
pub struct Build {
    pub kernel: Kernel,
    blocks: Vec<Vec<Stmt>>,
}

pub fn e(text: &str) -> Expr {
    litz_sym::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

pub fn rel(text: &str) -> Rel {
    litz_sym::parse_rel(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

impl Build {
    pub fn new() -> Build {
        Build { kernel: Kernel::new("k0"), blocks: vec![Vec::new()] }
    }

    pub fn size(&mut self, name: &str, lo: i64, hi: i64) {
        let sym = Sym::new(name);
        self.kernel.facts.declare(sym, Range::new(lo, hi), None);
        self.kernel.sizes.push(sym);
    }

    fn mem(&mut self, name: &str, dtype: Dtype, extent: &str, space: MemorySpace) -> Mem {
        self.kernel.mems.push(MemData::flat(name, dtype, e(extent), space))
    }

    pub fn read(&mut self, name: &str, dtype: Dtype, extent: &str) -> Mem {
        self.kernel.params += 1;
        self.mem(name, dtype, extent, MemorySpace::Read)
    }

    pub fn write(&mut self, name: &str, dtype: Dtype, extent: &str) -> Mem {
        self.kernel.params += 1;
        self.mem(name, dtype, extent, MemorySpace::Write)
    }

    pub fn register(&mut self, name: &str, dtype: Dtype, extent: &str) -> Mem {
        self.mem(name, dtype, extent, MemorySpace::Register)
    }

    pub fn scratch(&mut self, name: &str, dtype: Dtype, extent: &str) -> Mem {
        self.mem(name, dtype, extent, MemorySpace::Scratch)
    }

    pub fn grid(&mut self, name: &str, extent: &str) {
        self.kernel.grid.push(Axis { var: Sym::new(name), extent: e(extent) });
    }

    pub fn push(&mut self, stmt: Stmt) {
        self.blocks.last_mut().expect("a block is open").push(stmt);
    }

    fn inside(&mut self, body: impl FnOnce(&mut Build)) -> Vec<Stmt> {
        self.blocks.push(Vec::new());
        body(self);
        self.blocks.pop().expect("a block is open")
    }

    fn run_loop(&mut self, kind: KernelLoopKind, var: &str, extent: &str, body: impl FnOnce(&mut Build)) {
        let body = self.inside(body);
        self.push(Stmt::Loop(Loop { kind, var: Sym::new(var), extent: e(extent), body }));
    }

    pub fn each(&mut self, var: &str, extent: &str, body: impl FnOnce(&mut Build)) {
        self.run_loop(KernelLoopKind::For, var, extent, body);
    }

    pub fn mma(&mut self, var: &str, extent: &str, body: impl FnOnce(&mut Build)) {
        self.run_loop(KernelLoopKind::Mma { rounds: false }, var, extent, body);
    }

    pub fn unroll(&mut self, var: &str, extent: &str, body: impl FnOnce(&mut Build)) {
        self.run_loop(KernelLoopKind::Unroll, var, extent, body);
    }

    pub fn vector(
        &mut self,
        var: &str,
        extent: &str,
        [lanes, copies]: [u32; 2],
        body: impl FnOnce(&mut Build),
    ) {
        self.run_loop(KernelLoopKind::vector(lanes, copies), var, extent, body);
    }

    pub fn branch(&mut self, cond: &str, then: impl FnOnce(&mut Build), other: impl FnOnce(&mut Build)) {
        let (then, other) = (self.inside(then), self.inside(other));
        self.push(Stmt::If { cond: vec![rel(cond)], then, other });
    }

    pub fn define(&mut self, dtype: Dtype, op: Op) -> Val {
        let val = self.kernel.vals.push(dtype);
        self.push(Stmt::Act(Act::Let { val, op }));
        val
    }

    pub fn load(&mut self, mem: Mem, index: &str) -> Val {
        self.load_if(mem, index, &[], Scalar::Int(0))
    }

    pub fn load_if(&mut self, mem: Mem, index: &str, guard: &[&str], other: Scalar) -> Val {
        let dtype = self.kernel.mems[mem].dtype.compute();
        let guard = guard.iter().map(|text| rel(text)).collect();
        self.define(dtype, Op::Load { mem, index: vec![e(index)], guard, other: other.to(dtype) })
    }

    pub fn float(&mut self, value: f64) -> Val {
        self.define(Dtype::F32, Op::Const(Scalar::Float(value)))
    }

    /// The operation, with the result type that its operands imply.
    pub fn call(&mut self, op: ScalarOp, args: &[Val]) -> Val {
        let dtype = match op.signature() {
            litz_ir::scalar::Signature::Compare => Dtype::Bool,
            _ => self.kernel.vals[args[args.len() - 1]],
        };
        self.define(dtype, Op::Call(op, args.to_vec()))
    }

    pub fn store(&mut self, mem: Mem, index: &str, value: Val) {
        self.store_if(mem, index, value, &[]);
    }

    pub fn store_if(&mut self, mem: Mem, index: &str, value: Val, guard: &[&str]) {
        let guard = guard.iter().map(|text| rel(text)).collect();
        self.push(Stmt::Act(Act::Store {
            mem,
            index: vec![e(index)],
            value,
            combine: None,
            guard,
            atomic: false,
        }));
    }

    pub fn combine(&mut self, mem: Mem, index: &str, op: ReduceOp, value: Val) {
        let combine = Some(op);
        self.push(Stmt::Act(Act::Store {
            mem,
            index: vec![e(index)],
            value,
            combine,
            guard: Vec::new(),
            atomic: false,
        }));
    }

    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.blocks.pop().expect("the outermost block");
        self.kernel
    }
}

/// A kernel after the backend's passes, or why it has no form for the target.
pub fn passed(kernel: &Kernel, cpu: &Processor) -> Result<Kernel, Diag> {
    let mut kernel = kernel.clone();
    let backend = CpuBackend::of(cpu.clone());
    passes::run(&mut kernel, backend.passes(), backend.target()).map(|()| kernel)
}

/// The text of kernels after the backend's passes.
pub fn printed(kernels: &[Kernel], cpu: &Processor) -> String {
    let passed = |kernel| passed(kernel, cpu).unwrap_or_else(|diag| panic!("{diag}"));
    let kernels: Vec<Kernel> = kernels.iter().map(passed).collect();
    emit_module(&kernels, cpu).unwrap_or_else(|error| panic!("{error}"))
}

/// A parameter's elements.
pub struct Param(*mut u8);

/// Elements read or written by a kernel.
pub fn param<T>(elements: &mut [T]) -> Param {
    Param(elements.as_mut_ptr().cast())
}

/// An entry point of compiled code.
pub type Entry = unsafe extern "C" fn(*const *mut u8, *const i64, i64, i64, *mut u8, *mut i64);

/// A compiled kernel.
pub struct Compiled {
    kernel: Kernel,
    object: LoadedObject,
}

unsafe extern "C" {
    fn nextafterf(a: f32, b: f32) -> f32;
}

fn resolve(name: &str) -> Option<usize> {
    if name == "nextafterf" {
        return Some(nextafterf as *const () as usize);
    }
    c_library_symbol(name)
}

impl Compiled {
    pub fn new(kernel: Kernel) -> Compiled {
        Compiled::on(kernel, &Processor::host())
    }

    pub fn on(kernel: Kernel, target: &Processor) -> Compiled {
        let ir = printed(std::slice::from_ref(&kernel), target);
        let bytes = compile(&ir, target).unwrap_or_else(|error| panic!("{error}\n{ir}"));
        let object = LoadedObject::load(&bytes, &resolve).unwrap_or_else(|error| panic!("{error}\n{ir}"));
        Compiled { kernel, object }
    }

    /// Runs the whole grid in chunks of `chunk` points and returns the status.
    pub fn run_chunks(&self, sizes: &[i64], params: &[Param], chunk: i64) -> i64 {
        assert_eq!((sizes.len(), params.len()), (self.kernel.sizes.len(), self.kernel.params));
        let value = |sym: Sym| self.kernel.sizes.iter().position(|&size| size == sym).map(|at| sizes[at]);
        let points = self.kernel.points().eval(&value).expect("sizes are given");
        let bytes = self.kernel.scratch_bytes().eval(&value).expect("sizes are given") as usize;
        let mut scratch = vec![0xa5u8; bytes + 64];
        let start = scratch.as_ptr().align_offset(64);
        let args: Vec<*mut u8> = params.iter().map(|param| param.0).collect();
        let entry = self.object.get(&self.kernel.name).expect("the kernel is defined");
        // SAFETY: emitted functions have this signature.
        let entry: Entry = unsafe { std::mem::transmute(entry) };
        let mut status = 0;
        let mut begin = 0;
        while begin < points {
            let end = (begin + chunk).min(points);
            // SAFETY: the tests give each kernel the parameters it declares.
            unsafe {
                entry(
                    args.as_ptr(),
                    sizes.as_ptr(),
                    begin,
                    end,
                    scratch.as_mut_ptr().add(start),
                    &mut status,
                );
            }
            begin = end;
        }
        status
    }

    /// What the kernel compiles to on every x86 this CPU can run, the oldest last.
    pub fn on_all(kernel: &Kernel) -> Vec<Compiled> {
        let targets = [Processor::host(), Processor::avx2(), Processor::baseline()];
        let runs = |target: &Processor| target.isa <= targets[0].isa && targets[0].isa != Isa::Neon;
        let chosen = targets.iter().enumerate().filter(|(at, target)| *at == 0 || runs(target));
        chosen.map(|(_, target)| Compiled::on(kernel.clone(), target)).collect()
    }

    /// What the kernel compiles to with all instructions of this CPU, if `feature` is among them.
    pub fn with(kernel: &Kernel, feature: &str) -> Option<Compiled> {
        let host = Processor::host();
        host.has(feature).then(|| Compiled::on(kernel.clone(), &host))
    }

    /// Runs the whole grid, which must not fail.
    pub fn run(&self, sizes: &[i64], params: &[Param]) {
        assert_eq!(self.run_chunks(sizes, params, i64::MAX), 0, "a bind failed");
    }
}

/// `z = op(inputs...)`, element by element.
pub fn pointwise(
    inputs: &[Dtype],
    result: Dtype,
    lanes: u32,
    op: &dyn Fn(&mut Build, &[Val]) -> Val,
) -> Kernel {
    let mut k = Build::new();
    k.size("s0", 0, 1_000_000);
    let mems: Vec<Mem> =
        inputs.iter().enumerate().map(|(at, &dtype)| k.read(&format!("x{at}"), dtype, "s0")).collect();
    let z = k.write("z", result, "s0");
    k.vector("j", "s0", [lanes, 1], |k| {
        let args: Vec<Val> = mems.iter().map(|&mem| k.load(mem, "j")).collect();
        let value = op(k, &args);
        k.store(z, "j", value);
    });
    k.finish()
}

/// Numbers from -4 to 4 that look random and are the same every time.
pub fn numbers(count: usize) -> Vec<f32> {
    let mut state = 0x1234_5678_u64;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 21) as f32 - 4.0
        })
        .collect()
}

/// Asserts that numbers are close, relative to their size.
pub fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (at, (&a, &b)) in found.iter().zip(expected).enumerate() {
        let is_close = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(is_close, "element {at}: found {a}, expected {b}");
    }
}
