//! Makes code for CPUs through LLVM, and devices that run it on threads of the host.

use crate::caches::Caches;
use litz_backend::{Backend, BackendError, Factory, Request};
use litz_codegen::passes::{
    Pass, contract, copies, flatten, interleave, prefetch, reduce_lanes, tabulate, tensorize, transpose_loads,
};
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::{Cpu, Isa, Target};
use litz_llvm::{Processor, emit, llvm};
use litz_runtime::artifact::Machine;
use litz_runtime::device::Device;
use litz_runtime::native::NativeDevice;
use litz_runtime::object::LoadedObject;
use litz_runtime::pool::ThreadPool;
use litz_runtime::{routines, symbols};
use std::sync::Arc;

/// The passes that give kernels the form which [`litz_llvm::emit`] prints.
const PASSES: &[Pass] = &[
    flatten::PASS,
    contract::PASS,
    tabulate::PASS,
    tensorize::PASS,
    copies::PASS,
    prefetch::PASS,
    transpose_loads::PASS,
    reduce_lanes::PASS,
    interleave::PASS,
];

/// The backend for CPUs. Without a target it is for this machine, with all instructions that it has.
pub static CPU: Factory = Factory {
    name: "cpu",
    kind: "cpu",
    is_numbered: false,
    make: |request| {
        Ok(Arc::new(match request.target {
            Some(target @ Target::Cpu(cpu)) => CpuBackend::new(cpu_target(cpu.isa), target),
            Some(target @ Target::Gpu(_)) => {
                return Err(Diag::new("unsupported-target", format!("no code of a CPU is for {target}")));
            }
            None => CpuBackend::host(request),
        }))
    },
};

/// Code generation for a CPU.
pub struct CpuBackend {
    cpu: Processor,
    target: Target,
}

impl CpuBackend {
    /// Code for a CPU, of which the stages before know what `target` says.
    pub fn new(cpu: Processor, target: Target) -> CpuBackend {
        CpuBackend { cpu, target }
    }

    /// Code for one thread of a CPU of which nothing more is known.
    pub fn of(cpu: Processor) -> CpuBackend {
        let target = Target::Cpu(Cpu::new(isa_of(&cpu), 1));
        CpuBackend { cpu, target }
    }

    fn host(request: &Request) -> CpuBackend {
        let cpu = Processor::host();
        let Caches { l1_bytes, l2_bytes } = Caches::of_machine();
        let threads = u32::try_from(request.threads).unwrap_or(u32::MAX);
        let target = Target::Cpu(Cpu { l1_bytes, l2_bytes, ..Cpu::new(isa_of(&cpu), threads) });
        CpuBackend { cpu, target }
    }
}

impl Backend for CpuBackend {
    fn target(&self) -> &Target {
        &self.target
    }

    fn passes(&self) -> &[Pass] {
        PASSES
    }

    /// Starting a module of LLVM's costs about 0.7 ms.
    fn kernels_per_text(&self) -> usize {
        4
    }

    fn emit(&self, kernels: &[Kernel]) -> Result<String, BackendError> {
        emit::emit_module(kernels, &self.cpu).map_err(|e| BackendError::new("emit", e))
    }

    fn verify(&self, text: &str) -> Result<(), BackendError> {
        llvm::verify(text, &self.cpu).map_err(|e| BackendError::new("llvm", e))
    }

    fn assemble(&self, text: &str) -> Result<Vec<u8>, BackendError> {
        llvm::compile(text, &self.cpu).map_err(|e| BackendError::new("llvm", e))
    }

    fn listing(&self, text: &str) -> Result<Option<String>, BackendError> {
        llvm::assembly(text, &self.cpu).map(Some).map_err(|e| BackendError::new("llvm", e))
    }

    fn key(&self) -> String {
        format!("{:?}", self.cpu)
    }

    fn machine(&self) -> Machine {
        Machine::new(&self.cpu.triple, &self.cpu.features)
    }

    fn check_machine(&self) -> Result<(), Diag> {
        self.machine().check().map_err(|error| {
            let help = "`litz compile --to object` compiles for any target";
            let message = format!("this machine cannot run code for {}: {error}", self.target);
            Diag::new("unsupported-target", message).help(help)
        })
    }

    fn load(
        &self,
        kernels: &[Kernel],
        objects: &[Vec<u8>],
        threads: &dyn Fn() -> Arc<ThreadPool>,
    ) -> Result<Arc<dyn Device>, BackendError> {
        let resolve = |name: &str| routines::symbol(name).or_else(|| symbols::c_library_symbol(name));
        let objects = objects
            .iter()
            .map(|bytes| LoadedObject::load(bytes, &resolve).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| BackendError::new("load", e))?;
        // SAFETY: the objects were compiled from these very kernels by the emitter, whose functions have that type.
        let device = unsafe { NativeDevice::new(kernels, objects, threads()) };
        Ok(Arc::new(device.map_err(|e| BackendError::new("load", e))?))
    }
}

/// A CPU that has an instruction set and nothing more.
fn cpu_target(isa: Isa) -> Processor {
    match isa {
        Isa::Sse2 => Processor::baseline(),
        Isa::Avx2 => Processor::avx2(),
        Isa::Avx512 => Processor::avx512(),
        Isa::Avx512Vnni => Processor::avx512_vnni(),
        Isa::Avx512Bf16 => Processor::avx512_bf16(),
        Isa::Avx512Amx => Processor::amx(),
        Isa::Neon => Processor::aarch64(),
    }
}

/// The largest instruction set that a CPU has all of.
fn isa_of(cpu: &Processor) -> Isa {
    match cpu.isa {
        litz_llvm::Isa::Baseline => Isa::Sse2,
        litz_llvm::Isa::Avx2 => Isa::Avx2,
        litz_llvm::Isa::Neon => Isa::Neon,
        litz_llvm::Isa::Avx512 if !cpu.has("avx512vnni") => Isa::Avx512,
        litz_llvm::Isa::Avx512 if !cpu.has("avx512bf16") => Isa::Avx512Vnni,
        litz_llvm::Isa::Avx512 if !cpu.has("amx-bf16") => Isa::Avx512Bf16,
        litz_llvm::Isa::Avx512 => Isa::Avx512Amx,
        litz_llvm::Isa::Ptx => unreachable!("invariant: processors of this crate are CPUs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(target: Option<Target>) -> Arc<dyn Backend> {
        let request = Request { target, threads: 2, device_number: 0, architectures: &[] };
        (CPU.make)(&request).expect("every target of a CPU is one")
    }

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
        let error = backend(Some(target)).check_machine().expect_err("it is another machine");
        assert_eq!(error.slug, "unsupported-target");
        assert!(backend(None).check_machine().is_ok());
    }
}
