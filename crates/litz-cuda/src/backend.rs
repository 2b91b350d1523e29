//! Makes code for NVIDIA GPUs: LLVM IR, PTX of it by LLVM, machine code of that by nvJitLink or the driver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use litz_backend::{Backend, BackendError, Factory};
use litz_codegen::passes::{Pass, contract, fragments};
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::{self, GpuIsa, Target, Unit};
use litz_llvm::emit::{self, Shape};
use litz_llvm::{Processor, llvm};
use litz_runtime::artifact::Machine;
use litz_runtime::cuda::{CudaDevice, Facts, Gpu, KernelShape};
use litz_runtime::device::Device;
use litz_runtime::pool::ThreadPool;

use crate::assembler::Assembler;

/// The passes that give kernels the form which the emitter prints.
const PASSES: &[Pass] = &[fragments::PASS, contract::PASS];

/// The backend for NVIDIA GPUs. Without a target it is for the one of this machine that the request names.
pub static CUDA: Factory = Factory {
    name: "cuda",
    kind: "gpu",
    is_numbered: true,
    make: |request| {
        Ok(Arc::new(match request.target {
            Some(Target::Gpu(gpu)) => CudaBackend::new(gpu, request.device_number),
            Some(target @ Target::Cpu(_)) => {
                return Err(Diag::new("unsupported-target", format!("no code of a GPU is for {target}")));
            }
            None => CudaBackend::of_machine(request.device_number)?,
        }))
    },
};

/// Code generation for a GPU, and one of this machine that runs the code.
pub struct CudaBackend {
    /// Which one.
    number: u32,
    processor: Processor,
    target: Target,
    isa: GpuIsa,
}

impl CudaBackend {
    /// Code for a GPU, to run on the one of this machine that has the number.
    pub fn new(gpu: target::Gpu, number: u32) -> CudaBackend {
        CudaBackend { number, processor: Processor::gpu(gpu.isa), target: Target::Gpu(gpu), isa: gpu.isa }
    }

    fn of_machine(number: u32) -> Result<CudaBackend, Diag> {
        let gpu = open(number)?;
        let isa = isa_of(&gpu.facts).ok_or_else(|| {
            let Facts { name, capability, .. } = &gpu.facts;
            Diag::new(
                "unsupported-target",
                format!("{name}, of compute capability {}.{}", capability / 10, capability % 10),
            )
            .help("GPUs from compute capability 8.0 on are supported")
        })?;
        let Facts { units, shared_bytes, l2_bytes, .. } = gpu.facts;
        let unit = Unit {
            shared_bytes: gpu.facts.unit_shared_bytes,
            registers: gpu.facts.unit_registers,
            threads: gpu.facts.unit_threads,
            blocks: gpu.facts.unit_blocks,
        };
        let gpu = target::Gpu { shared_bytes, l2_bytes, unit, ..target::Gpu::new(isa, units) };
        Ok(CudaBackend::new(gpu, number))
    }

    /// The architecture that machine code is for: that of this machine's GPU, where it runs what was compiled for an earlier one.
    fn architecture(&self) -> String {
        let of_machine = open(self.number).ok().map(|gpu| gpu.facts.capability);
        let is_alone = matches!(self.isa, GpuIsa::Sm90 | GpuIsa::Sm100);
        match of_machine {
            Some(capability) if !is_alone && capability >= capability_of(self.isa) => {
                format!("sm_{capability}")
            }
            Some(_) | None => self.processor.cpu.clone(),
        }
    }
}

/// The GPU of that number, which is opened once.
fn open(number: u32) -> Result<Arc<Gpu>, Diag> {
    static OPENED: Mutex<BTreeMap<u32, Result<Arc<Gpu>, String>>> = Mutex::new(BTreeMap::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = opened.entry(number).or_insert_with(|| Gpu::open(number).map_err(|error| error.to_string()));
    found.clone().map_err(|message| {
        Diag::new("unsupported-target", message).help(
            "`litz compile --to asm` makes code for any GPU, and `--device reference` interprets its kernels",
        )
    })
}

/// The instruction set that code for a GPU is made of. Products of warpgroups, boxes and clusters have no code yet, so that later ones take
/// what compute capability 8.9 has.
fn isa_of(facts: &Facts) -> Option<GpuIsa> {
    match facts.capability {
        80..=88 => Some(GpuIsa::Sm80),
        89.. => Some(GpuIsa::Sm89),
        _ => None,
    }
}

fn capability_of(isa: GpuIsa) -> u32 {
    match isa {
        GpuIsa::Sm80 => 80,
        GpuIsa::Sm89 => 89,
        GpuIsa::Sm90 => 90,
        GpuIsa::Sm100 => 100,
    }
}

impl Backend for CudaBackend {
    fn target(&self) -> &Target {
        &self.target
    }

    fn passes(&self) -> &[Pass] {
        PASSES
    }

    /// nvJitLink assembles texts side by side.
    fn kernels_per_text(&self) -> usize {
        1
    }

    fn emit(&self, kernels: &[Kernel]) -> Result<String, BackendError> {
        emit::emit_module(kernels, &self.processor).map_err(|e| BackendError::new("emit", e))
    }

    fn verify(&self, text: &str) -> Result<(), BackendError> {
        llvm::verify(text, &self.processor).map_err(|e| BackendError::new("llvm", e))
    }

    fn assemble(&self, text: &str) -> Result<Vec<u8>, BackendError> {
        let ptx = llvm::assembly(text, &self.processor).map_err(|e| BackendError::new("llvm", e))?;
        match Assembler::of_machine() {
            Some(assembler) => {
                let code = assembler.assemble(&ptx, &self.architecture());
                Ok(code.map_err(|e| BackendError::new("nvJitLink", e))?.cubin)
            }
            None => Ok(ptx.into_bytes()),
        }
    }

    fn listing(&self, text: &str) -> Result<Option<String>, BackendError> {
        llvm::assembly(text, &self.processor).map(Some).map_err(|e| BackendError::new("llvm", e))
    }

    fn key(&self) -> String {
        let assembler = Assembler::of_machine().map_or(0, |assembler| assembler.version);
        format!("{:?} {} {assembler}", self.processor, self.architecture())
    }

    fn machine(&self) -> Machine {
        Machine::new(&self.processor.triple, &self.processor.features)
    }

    fn check_machine(&self) -> Result<(), Diag> {
        let gpu = open(self.number)?;
        let own = capability_of(self.isa);
        let found = gpu.facts.capability;
        let runs = match self.isa {
            GpuIsa::Sm80 | GpuIsa::Sm89 => found >= own,
            GpuIsa::Sm90 | GpuIsa::Sm100 => found == own,
        };
        if runs {
            return Ok(());
        }
        let Facts { name, .. } = &gpu.facts;
        Err(Diag::new("unsupported-target", format!("{name} cannot run code for {}", self.target)))
    }

    fn load(
        &self,
        kernels: &[Kernel],
        objects: &[Vec<u8>],
        _: &dyn Fn() -> Arc<ThreadPool>,
    ) -> Result<Arc<dyn Device>, BackendError> {
        let gpu = open(self.number).map_err(|e| BackendError::new("load", e))?;
        let shape = |kernel: &Kernel| {
            let shape = Shape::of(kernel).map_err(|e| BackendError::new("load", e))?;
            let sizes = [shape.blocks_of_point, shape.global_bytes];
            KernelShape::new(kernel, shape.threads, shape.shared_bytes, sizes, shape.counts_blocks)
                .map_err(|e| BackendError::new("load", e))
        };
        let shapes = kernels.iter().map(shape).collect::<Result<_, _>>()?;
        let device = CudaDevice::new(gpu, shapes, objects).map_err(|e| BackendError::new("load", e))?;
        Ok(Arc::new(device))
    }
}
