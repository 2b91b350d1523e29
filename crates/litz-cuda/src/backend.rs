//! Makes code for NVIDIA GPUs: LLVM IR, PTX of it by LLVM, machine code of that by what the machine has to assemble it.

use std::sync::Arc;

use litz_backend::{Backend, BackendError, Factory, Request};
use litz_codegen::passes::{Pass, contract, edges, fragments, overlap, resume, teams, under_way, whole};
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::{self, GpuIsa, Target, Unit};
use litz_llvm::emit;
use litz_llvm::{Processor, llvm};
use litz_runtime::artifact::Machine;
use litz_runtime::cuda::{CudaDevice, Facts, Gpu};
use litz_runtime::device::Device;
use litz_runtime::images::{self, Architecture};
use litz_runtime::pool::ThreadPool;

use crate::assembler::Assembler;

/// The passes that give kernels the form which the emitter prints.
const PASSES: &[Pass] = &[
    fragments::PASS,
    resume::PASS,
    overlap::PASS,
    under_way::PASS,
    edges::PASS,
    whole::PASS,
    contract::PASS,
    teams::PASS,
];

/// The backend for NVIDIA GPUs. Without a target it is for the one of this machine that the request names.
pub static CUDA: Factory = Factory {
    name: "cuda",
    kind: "gpu",
    is_numbered: true,
    make: |request| {
        Ok(Arc::new(match request.target {
            Some(Target::Gpu(gpu)) => CudaBackend::new(gpu, request)?,
            Some(target @ Target::Cpu(_)) => {
                return Err(Diag::new("unsupported-target", format!("no code of a GPU is for {target}")));
            }
            None => CudaBackend::of_machine(request)?,
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
    /// What machine code is made for, where somebody asks.
    architectures: Vec<Architecture>,
}

impl CudaBackend {
    /// Code for a GPU, to run on the one of this machine that the request names.
    ///
    /// # Errors
    /// `unsupported-target`, when machine code is asked for that GPUs of the target do not run.
    pub fn new(gpu: target::Gpu, request: &Request<'_>) -> Result<CudaBackend, Diag> {
        let own = own_architecture(gpu.isa);
        if let Some(other) = request.architectures.iter().find(|other| !own.ptx().runs_on(other.capability()))
        {
            let message = format!("code for {} cannot be made for {other}", Target::Gpu(gpu));
            return Err(Diag::new("unsupported-target", message)
                .help(format!("name {own}, a later architecture, or another target")));
        }
        Ok(CudaBackend {
            number: request.device_number,
            processor: Processor::gpu(gpu.isa),
            target: Target::Gpu(gpu),
            isa: gpu.isa,
            architectures: request.architectures.to_vec(),
        })
    }

    fn of_machine(request: &Request<'_>) -> Result<CudaBackend, Diag> {
        let gpu = open(request.device_number)?;
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
        CudaBackend::new(gpu, request)
    }

    /// The architectures that machine code is for: those that are asked for, else that of this machine's GPU, where it runs what was
    /// compiled for an earlier one, else the target's.
    fn architectures(&self) -> Vec<Architecture> {
        if !self.architectures.is_empty() {
            return self.architectures.clone();
        }
        let own = own_architecture(self.isa);
        let of_machine = open(self.number).ok().map(|gpu| gpu.facts.capability);
        let later =
            of_machine.filter(|&capability| capability != own.capability() && own.ptx().runs_on(capability));
        vec![later.map_or(own, |capability| Architecture::machine_code(capability, false))]
    }
}

fn open(number: u32) -> Result<Arc<Gpu>, Diag> {
    Gpu::numbered(number).map_err(|error| {
        Diag::new("unsupported-target", error.to_string()).help(
            "`litz compile --target 'gpu(isa=sm80, units=108)' -o FILE.litzc` saves code for any GPU, and `--device reference` interprets it",
        )
    })
}

/// The instruction set that code for a GPU is made of: products of warpgroups are those of compute capability 9.0 alone, and GPUs after it take what 8.9
/// has.
fn isa_of(facts: &Facts) -> Option<GpuIsa> {
    match facts.capability {
        80..=88 => Some(GpuIsa::Sm80),
        90 => Some(GpuIsa::Sm90),
        89.. => Some(GpuIsa::Sm89),
        _ => None,
    }
}

/// What machine code of an instruction set is for at least.
fn own_architecture(isa: GpuIsa) -> Architecture {
    match isa {
        GpuIsa::Sm80 => Architecture::machine_code(80, false),
        GpuIsa::Sm89 => Architecture::machine_code(89, false),
        GpuIsa::Sm90 => Architecture::machine_code(90, true),
        GpuIsa::Sm100 => Architecture::machine_code(100, true),
    }
}

impl Backend for CudaBackend {
    fn target(&self) -> &Target {
        &self.target
    }

    fn passes(&self) -> &[Pass] {
        PASSES
    }

    /// Texts are assembled side by side.
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
        let mut images = Vec::new();
        let assembler = Assembler::of_machine();
        for architecture in self.architectures() {
            let code = assembler.assemble(&ptx, &architecture.to_string());
            let code = code.map_err(|e| BackendError::new("nvJitLink", e))?;
            images.extend(code.map(|code| (architecture, code.cubin)));
        }
        // For later ones, and where nothing has assembled it, the driver does.
        images.push((own_architecture(self.isa).ptx(), ptx.into_bytes()));
        Ok(images::pack(&images))
    }

    fn listing(&self, text: &str) -> Result<Option<String>, BackendError> {
        llvm::assembly(text, &self.processor).map(Some).map_err(|e| BackendError::new("llvm", e))
    }

    fn key(&self) -> String {
        let assembler = Assembler::of_machine().version();
        format!("{:?} {:?} {assembler}", self.processor, self.architectures())
    }

    fn machine(&self) -> Machine {
        Machine::new(&self.processor.triple, &self.processor.features)
    }

    fn check_machine(&self) -> Result<(), Diag> {
        let gpu = open(self.number)?;
        if own_architecture(self.isa).ptx().runs_on(gpu.facts.capability) {
            return Ok(());
        }
        Err(Diag::new("unsupported-target", format!("{gpu} cannot run code for {}", self.target)))
    }

    fn load(
        &self,
        kernels: &[Kernel],
        objects: &[Vec<u8>],
        _: &dyn Fn() -> Arc<ThreadPool>,
    ) -> Result<Arc<dyn Device>, BackendError> {
        let gpu = open(self.number).map_err(|e| BackendError::new("load", e))?;
        let objects: Vec<&[u8]> = objects.iter().map(Vec::as_slice).collect();
        let device = CudaDevice::new(gpu, kernels, &objects).map_err(|e| BackendError::new("load", e))?;
        Ok(Arc::new(device))
    }
}
