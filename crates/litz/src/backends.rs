//! Devices by name: what the scheduler is told about each, and how its kernels become code.

use crate::error::Error;
use crate::machine::Caches;
use crate::options::{IsaChoice, Options};
use litz_cpu::llvm::CpuTarget;
use litz_ir::Dtype;
use litz_ir::kernel::Kernel;
use litz_runtime::cache::{CacheKey, ObjectCache};
use litz_runtime::device::NativeDevice;
use litz_runtime::object::LoadedObject;
use litz_runtime::pool::ThreadPool;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::{routines, symbols};
use litz_schedule::{Mma, TargetInfo};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Something that runs kernels.
pub type Device = Arc<dyn litz_runtime::device::Device>;

/// Code generation for this machine's CPU.
pub struct CpuBackend {
    target: CpuTarget,
    info: TargetInfo,
}

/// Kernels that one LLVM module holds at most. Starting a module costs about 0.7 ms, and modules compile in parallel.
const KERNELS_PER_MODULE: usize = 4;

impl CpuBackend {
    /// The backend that `options` ask for.
    pub fn new(options: &Options) -> CpuBackend {
        let target = match options.isa {
            IsaChoice::Host => CpuTarget::host(),
            IsaChoice::Avx2 => CpuTarget::avx2(),
            IsaChoice::Baseline => CpuTarget::baseline(),
        };
        let caches = match options.isa {
            IsaChoice::Host => Caches::of_machine(),
            // Code for no machine in particular.
            IsaChoice::Avx2 | IsaChoice::Baseline => Caches::USUAL,
        };
        let registers = if target.vector_bits >= 512 { 32 } else { 16 };
        let info = TargetInfo {
            name: format!("cpu(isa={}, threads={})", target.isa.name(), options.threads),
            vector_bytes: target.vector_bits / 8,
            vector_registers: registers,
            threads: u32::try_from(options.threads).unwrap_or(u32::MAX),
            l1_bytes: caches.l1_bytes,
            l2_bytes: caches.l2_bytes,
            mma: matrix_instructions(&target),
        };
        CpuBackend { target, info }
    }

    /// The CPU that code is for.
    pub fn cpu(&self) -> &CpuTarget {
        &self.target
    }

    /// What the scheduler goes by.
    pub fn info(&self) -> &TargetInfo {
        &self.info
    }

    /// The LLVM IR of some kernels.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel is beyond the emitter.
    pub fn emit(&self, kernels: &[Kernel]) -> Result<String, Error> {
        litz_cpu::emit::emit_module(kernels, &self.target).map_err(|e| Error::bug("emit", e))
    }

    /// The kernels' machine code as text.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel cannot be emitted or compiled.
    pub fn assembly(&self, kernels: &[Kernel]) -> Result<String, Error> {
        litz_cpu::llvm::assembly(&self.emit(kernels)?, &self.target).map_err(|e| Error::bug("llvm", e))
    }

    /// The kernels' machine code in one object file.
    ///
    /// # Errors
    /// [`Error::Bug`] when a kernel cannot be emitted or compiled.
    pub fn object(&self, kernels: &[Kernel]) -> Result<Vec<u8>, Error> {
        litz_cpu::llvm::compile(&self.emit(kernels)?, &self.target).map_err(|e| Error::bug("llvm", e))
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
            self.target.cpu.as_bytes(),
            self.target.features.as_bytes(),
            env!("CARGO_PKG_VERSION").as_bytes(),
        ]);
        if let Some(object) = cache.and_then(|c| c.get(&key)) {
            return Ok(object);
        }
        let object = litz_cpu::llvm::compile(text, &self.target).map_err(|e| Error::bug("llvm", e))?;
        // A full or read-only disk costs the next start its cached code, nothing else.
        if let Some(cache) = cache {
            let _ = cache.put(&key, &object);
        }
        Ok(object)
    }
}

/// What a CPU multiplies matrices with.
fn matrix_instructions(target: &CpuTarget) -> Vec<Mma> {
    let mut all = Vec::new();
    if target.has("amx-bf16") {
        all.push(Mma { dtype: Dtype::BF16, rows: 16, columns: 16, depth: 32, group: 2 });
    }
    if target.has("avx512bf16") {
        all.push(Mma { dtype: Dtype::BF16, rows: 1, columns: target.vector_bits / 32, depth: 2, group: 2 });
    }
    all
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
