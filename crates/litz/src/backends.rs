//! Finds devices by name: what the scheduler is told about each, and how its kernels become code.

use crate::error::Error;
use crate::machine::Caches;
use crate::options::Options;
use litz_cpu::llvm::CpuTarget;
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::{Cpu, Isa, Target};
use litz_runtime::artifact::Target as Machine;
use litz_runtime::cache::{CacheKey, ObjectCache};
use litz_runtime::device::NativeDevice;
use litz_runtime::object::LoadedObject;
use litz_runtime::pool::ThreadPool;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::{routines, symbols};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Something that runs kernels.
pub type Device = Arc<dyn litz_runtime::device::Device>;

/// Code generation for this machine's CPU.
pub struct CpuBackend {
    cpu: CpuTarget,
    target: Target,
}

/// Kernels that one LLVM module holds at most. Starting a module costs about 0.7 ms, and modules compile in parallel.
pub(crate) const KERNELS_PER_MODULE: usize = 4;

impl CpuBackend {
    /// The backend that `options` ask for.
    pub fn new(options: &Options) -> CpuBackend {
        let (cpu, target) = match options.target {
            Some(Target::Cpu(target)) => (cpu_target(target.isa), target),
            None => {
                let cpu = CpuTarget::host();
                let Caches { l1_bytes, l2_bytes } = Caches::of_machine();
                let threads = u32::try_from(options.threads).unwrap_or(u32::MAX);
                let isa = isa_of(&cpu);
                (cpu, Cpu { isa, threads, l1_bytes, l2_bytes })
            }
        };
        CpuBackend { cpu, target: Target::Cpu(target) }
    }

    /// The CPU that code is for.
    pub fn cpu(&self) -> &CpuTarget {
        &self.cpu
    }

    /// # Errors
    /// [`Error::Unsupported`] when this machine cannot run the code.
    pub fn check_machine(&self) -> Result<(), Error> {
        let needed = Machine::new(&self.cpu.triple, &self.cpu.features);
        needed.check().map_err(|error| {
            let help = "`litz compile --to object` compiles for any target";
            let message = format!("this machine cannot run code for {}: {error}", self.target);
            Error::Unsupported(vec![Diag::new("unsupported-target", message).help(help)])
        })
    }

    /// What the stages before it go by.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The LLVM IR of some kernels.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel is beyond the emitter.
    pub fn emit(&self, kernels: &[Kernel]) -> Result<String, Error> {
        litz_cpu::emit::emit_module(kernels, &self.cpu).map_err(|e| Error::bug("emit", e))
    }

    /// Emits some kernels and lets LLVM verify the text.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel is beyond the emitter, or LLVM rejects it.
    pub fn verify(&self, kernels: &[Kernel]) -> Result<(), Error> {
        litz_cpu::llvm::verify(&self.emit(kernels)?, &self.cpu).map_err(|e| Error::bug("llvm", e))
    }

    /// The kernels' machine code as text.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel cannot be emitted or compiled.
    pub fn assembly(&self, kernels: &[Kernel]) -> Result<String, Error> {
        litz_cpu::llvm::assembly(&self.emit(kernels)?, &self.cpu).map_err(|e| Error::bug("llvm", e))
    }

    /// The kernels' machine code in one object file.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel cannot be emitted or compiled.
    pub fn object(&self, kernels: &[Kernel]) -> Result<Vec<u8>, Error> {
        litz_cpu::llvm::compile(&self.emit(kernels)?, &self.cpu).map_err(|e| Error::bug("llvm", e))
    }

    /// Machine code of the kernels, from the cache where it has them.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel cannot be emitted or compiled.
    pub fn compile(
        &self,
        kernels: &[Kernel],
        options: &Options,
        cache: Option<&ObjectCache>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let modules: Vec<&[Kernel]> = kernels.chunks(KERNELS_PER_MODULE).collect();
        let texts = parallel(options.threads, modules.len(), |at| self.emit(modules[at]));
        let texts = texts.into_iter().collect::<Result<Vec<_>, _>>()?;
        // The longest first: none of them is begun when the other threads are done.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&at| Reverse(texts[at].len()));
        let objects = parallel(options.threads, order.len(), |at| self.module(&texts[order[at]], cache));
        let mut objects: Vec<_> = order.iter().zip(objects).collect();
        objects.sort_by_key(|&(&at, _)| at);
        objects.into_iter().map(|(_, object)| object).collect()
    }

    fn module(&self, text: &str, cache: Option<&ObjectCache>) -> Result<Vec<u8>, Error> {
        let key = CacheKey::new(&[
            text.as_bytes(),
            self.cpu.cpu.as_bytes(),
            self.cpu.features.as_bytes(),
            env!("CARGO_PKG_VERSION").as_bytes(),
        ]);
        if let Some(object) = cache.and_then(|c| c.get(&key)) {
            return Ok(object);
        }
        let object = litz_cpu::llvm::compile(text, &self.cpu).map_err(|e| Error::bug("llvm", e))?;
        // A full or read-only disk costs the next start its cached code, nothing else.
        if let Some(cache) = cache {
            let _ = cache.put(&key, &object);
        }
        Ok(object)
    }
}

/// A CPU that has an instruction set and nothing more.
fn cpu_target(isa: Isa) -> CpuTarget {
    match isa {
        Isa::Sse2 => CpuTarget::baseline(),
        Isa::Avx2 => CpuTarget::avx2(),
        Isa::Avx512 => CpuTarget::avx512(),
        Isa::Avx512Bf16 => CpuTarget::avx512_bf16(),
        Isa::Avx512Amx => CpuTarget::amx(),
        Isa::Neon => CpuTarget::aarch64(),
    }
}

/// The largest instruction set that a CPU has all of.
fn isa_of(cpu: &CpuTarget) -> Isa {
    match cpu.isa {
        litz_cpu::llvm::Isa::Baseline => Isa::Sse2,
        litz_cpu::llvm::Isa::Avx2 => Isa::Avx2,
        litz_cpu::llvm::Isa::Neon => Isa::Neon,
        litz_cpu::llvm::Isa::Avx512 if !cpu.has("avx512bf16") => Isa::Avx512,
        litz_cpu::llvm::Isa::Avx512 if !cpu.has("amx-bf16") => Isa::Avx512Bf16,
        litz_cpu::llvm::Isa::Avx512 => Isa::Avx512Amx,
    }
}

/// What `work` gives for each of `0..count`, which threads take one after another.
fn parallel<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(result) = results.get(at) else { return };
            *result.lock().expect("invariant: no compiling thread panics") = Some(work(at));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(take);
        }
        take();
    });
    let result = |result: Mutex<Option<T>>| result.into_inner().ok().flatten();
    results.into_iter().map(|r| result(r).expect("invariant: every number was taken")).collect()
}

/// A device with the kernels' machine code loaded.
///
/// # Errors
/// When an object cannot be loaded or lacks a kernel.
pub fn load(kernels: &[Kernel], objects: &[Vec<u8>], pool: Arc<ThreadPool>) -> Result<Device, Error> {
    let resolve = |name: &str| routines::symbol(name).or_else(|| symbols::c_library_symbol(name));
    let objects = objects
        .iter()
        .map(|bytes| LoadedObject::load(bytes, &resolve).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Error::bug("load", e))?;
    // SAFETY: the objects were compiled from these very kernels by the emitter, whose functions have that type.
    let device = unsafe { NativeDevice::new(kernels, objects, pool) }?;
    Ok(Arc::new(device))
}

/// The reference device with the kernels loaded.
///
/// # Errors
/// When a kernel is malformed.
pub fn reference(kernels: &[Kernel]) -> Result<Device, Error> {
    Ok(Arc::new(ReferenceDevice::new(kernels)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_the_instructions_it_was_made_for() {
        for isa in Isa::ALL {
            let cpu = cpu_target(isa);
            assert_eq!(isa_of(&cpu), isa);
            assert_eq!(cpu.vector_bits / 8, isa.vector_bytes());
        }
    }

    #[test]
    fn code_for_another_kind_of_machine_is_not_run() {
        let foreign = if cfg!(target_arch = "aarch64") { Isa::Sse2 } else { Isa::Neon };
        let target = format!("cpu(isa={}, threads=2)", foreign.name()).parse().expect("a target");
        let error = CpuBackend::new(&Options::for_target(target)).check_machine();
        assert!(matches!(error, Err(Error::Unsupported(_))), "{error:?}");
        assert!(CpuBackend::new(&Options::default()).check_machine().is_ok());
    }
}
