//! Saves a compiled program to a file, and makes the file something that runs without a compiler.
//!
//! An artifact holds the texts of the program and of its kernels, their object code, and the contents of constants as
//! they are after the load steps: packed and folded, at places that kernels can use where the file is mapped. What
//! load steps kept is a constant of the program written, which itself has nothing left to load but views. Or it holds the
//! model's constants and the load steps, which run at each start, so that constants can be given new contents.
//! How all this lies in the file is said in `container.rs`.
//!
//! # Trust
//! An artifact holds machine code, and running it is as safe as running any program from the same source. Unlike model
//! files, artifacts are trusted input: checksums find damage, not intent. Opening one executes nothing; making a
//! device of it does, at the first launch. As with any mapped file, nobody may change it while it is in use.

mod freeze;
mod machine;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use litz_ir::Diags;
use litz_ir::kernel::Kernel;
use litz_ir::program::{Const, Program};
use litz_sym::Expr;

use crate::container::{self, ContainerError, Kind, Reader, Sections, put_string};
use crate::device::Device;
use crate::error::{ConstantError, RunError};
use crate::images::{self, Architecture, ImageError};
use crate::native::NativeDevice;
use crate::object::{LoadedObject, ObjectError};
use crate::pool::ThreadPool;
use crate::program::{ConstantSource, Executable, RunOptions};
use crate::tensor::Tensor;
use crate::weights::{self, ConstMemory, Weights};
use crate::{routines, symbols};
use freeze::Frozen;
pub use machine::Machine;

/// What an artifact is made of, weights aside.
pub struct Parts<'a> {
    /// The version of Litz that compiled it.
    pub compiler: &'a str,
    /// The machine that the objects are for.
    pub machine: &'a Machine,
    /// The wrapper.
    pub program: &'a Program,
    /// What it launches.
    pub kernels: &'a [Kernel],
    /// Machine code of the kernels.
    pub objects: &'a [Vec<u8>],
    /// Names of the program's parameters, as the caller knows them.
    pub inputs: &'a [String],
    /// Names of the program's outputs.
    pub outputs: &'a [String],
    /// What constants the artifact holds.
    pub constants: ConstantSource,
}

/// Writes the artifact of a program to `path`, with the contents that the constants of `executable`, which was made of
/// the same program and kernels, have at this moment. The file appears under its name when it is complete.
///
/// # Errors
/// When the file cannot be written, and where it is to hold the model's constants and the executable has them no more.
pub fn write(path: &Path, parts: &Parts<'_>, executable: &Executable) -> Result<(), ArtifactError> {
    if parts.constants == ConstantSource::Model && !executable.has_constants_of_model() {
        return Err(RunError::from(ConstantError::Folded).into());
    }
    executable.with_memory(|constants, kept| {
        let frozen = match parts.constants {
            ConstantSource::Model => Frozen { program: parts.program.clone(), weights: constants.to_vec() },
            ConstantSource::Folded => freeze::freeze(parts.program, constants, kept),
        };
        write_file(path, parts, &frozen)
    })?
}

/// As [`write()`], of a program that need not be loaded, nor run here: with the model's constants, which `weights` has, and load steps that
/// run at each start.
///
/// # Errors
/// When the file cannot be written, and when `weights` lacks a constant or has another one.
pub fn write_unloaded(path: &Path, parts: &Parts<'_>, weights: &dyn Weights) -> Result<(), ArtifactError> {
    let constants = weights::of_program(parts.program, weights)?;
    let weights = constants.iter().map(ConstMemory::as_slice).collect();
    let parts = Parts { constants: ConstantSource::Model, ..*parts };
    write_file(path, &parts, &Frozen { program: parts.program.clone(), weights })
}

fn write_file(path: &Path, parts: &Parts<'_>, frozen: &Frozen<'_>) -> Result<(), ArtifactError> {
    let Frozen { program, weights } = frozen;
    let launched = freeze::launched(program);
    let kernels: Vec<&Kernel> = parts.kernels.iter().filter(|k| launched.contains(k.name.as_str())).collect();
    let written =
        container::write_file(path, 0o666, |out| write_sections(out, parts, program, &kernels, weights));
    written.map_err(|source| ArtifactError::Io { path: path.to_owned(), source })
}

/// The bytes of an artifact without weights, which then come from elsewhere: see [`Artifact::program`].
pub fn to_bytes(parts: &Parts<'_>) -> Vec<u8> {
    let kernels: Vec<&Kernel> = parts.kernels.iter().collect();
    let mut bytes = Vec::new();
    write_sections(&mut bytes, parts, parts.program, &kernels, &[])
        .expect("invariant: memory takes all bytes");
    bytes
}

fn write_sections(
    out: &mut dyn Write,
    parts: &Parts<'_>,
    program: &Program,
    kernels: &[&Kernel],
    weights: &[&[u8]],
) -> io::Result<()> {
    let (about, program) = (about_bytes(parts), program.to_string());
    let kernels: Vec<String> = kernels.iter().map(|kernel| kernel.to_string()).collect();
    let mut sections = vec![(ABOUT.to_owned(), &about[..]), (PROGRAM.to_owned(), program.as_bytes())];
    let kernels =
        kernels.iter().map(String::as_bytes).enumerate().map(|(at, bytes)| (kernel_section(at), bytes));
    sections.extend(kernels);
    let objects = parts.objects.iter().map(Vec::as_slice).enumerate();
    sections.extend(objects.map(|(at, bytes)| (object_section(at), bytes)));
    if parts.constants == ConstantSource::Model {
        sections.push((OF_MODEL.to_owned(), &[]));
    }
    sections.extend(weights.iter().enumerate().map(|(at, &bytes)| (weight_section(at), bytes)));
    container::write(out, &KIND, &sections)
}

/// Its version counts those of the texts inside, too, and of what kernels and runtime expect of each other.
const KIND: Kind = Kind { magic: b"\x89litzc\r\n", version: 1 };

const ABOUT: &str = "about";
const PROGRAM: &str = "program";
/// Without bytes: where it is there, constants are those of the model.
const OF_MODEL: &str = "constants-of-model";

fn kernel_section(at: usize) -> String {
    format!("kernel/{at}")
}

fn object_section(at: usize) -> String {
    format!("object/{at}")
}

/// The contents of the program's constant at that position.
fn weight_section(at: usize) -> String {
    format!("weight/{at}")
}

/// Bytes that artifacts are read from, such as a mapped file.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An artifact, its texts read and verified against their checksums, its code not yet loaded.
///
/// As [`Weights`], it gives the contents of its program's constants, in place.
pub struct Artifact {
    file: Bytes,
    sections: Sections,
    about: About,
    program: Program,
    kernels: Vec<Kernel>,
}

impl Artifact {
    /// Maps and reads the artifact at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, is no artifact or of another version, or is damaged. Weights are not looked at:
    /// see [`Artifact::check`].
    pub fn open(path: impl AsRef<Path>) -> Result<Artifact, ArtifactError> {
        let failed = |source| ArtifactError::Io { path: path.as_ref().to_owned(), source };
        let file = File::open(&path).map_err(failed)?;
        // SAFETY: the mapping is only read, and that nobody changes the file meanwhile is the caller's promise, as
        // the module says.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
        Artifact::from_bytes(Arc::new(map))
    }

    /// As [`Artifact::open`], from bytes.
    ///
    /// # Errors
    /// As [`Artifact::open`].
    pub fn from_bytes(file: Bytes) -> Result<Artifact, ArtifactError> {
        let bytes = (*file).as_ref();
        let sections = Sections::read(bytes, &KIND)?;
        let about = About::read(sections.checked(bytes, ABOUT)?)
            .ok_or_else(|| damaged_text(ABOUT, "it is cut off"))?;
        let program = parse(&sections, bytes, PROGRAM, litz_ir::text::program::parse)?;
        let kernel = |at: usize| parse(&sections, bytes, &kernel_section(at), litz_ir::text::kernel::parse);
        let kernels = (0..sections.count(kernel_section)).map(kernel).collect::<Result<_, _>>()?;
        Ok(Artifact { sections, about, program, kernels, file })
    }

    /// Loads the code and gets ready to run on `threads` threads, the caller's included.
    ///
    /// # Errors
    /// When this machine cannot run the code, the code is damaged, or weights are missing.
    pub fn executable(&self, threads: usize) -> Result<Executable, ArtifactError> {
        self.executable_with(threads, &RunOptions::default())
    }

    /// As [`Artifact::executable`], to run in the way that `options` say.
    ///
    /// # Errors
    /// As [`Artifact::executable`], and where constants take more than the limits allow.
    pub fn executable_with(
        &self,
        threads: usize,
        options: &RunOptions<'_>,
    ) -> Result<Executable, ArtifactError> {
        let device = self.device(Arc::new(ThreadPool::new(threads)), 0)?;
        let options = RunOptions { constants: self.constants(), ..options.clone() };
        Ok(Executable::with_options(&self.program, &self.kernels, device, self, &options)?)
    }

    /// Machine code of the kernels, verified against its checksums.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn objects(&self) -> Result<Vec<&[u8]>, ArtifactError> {
        let objects = 0..self.sections.count(object_section);
        objects.map(|at| Ok(self.sections.checked((*self.file).as_ref(), &object_section(at))?)).collect()
    }

    /// What kernels have code for, where they are for GPUs: what all of them have.
    ///
    /// # Errors
    /// When the code is damaged.
    pub fn architectures(&self) -> Result<Vec<Architecture>, ArtifactError> {
        if !self.about.machine.is_gpu() {
            return Ok(Vec::new());
        }
        let mut common: Option<Vec<Architecture>> = None;
        for object in self.objects()? {
            let found: Vec<Architecture> = images::unpack(object)?.iter().map(|(own, _)| *own).collect();
            common = Some(match common {
                Some(common) => common.into_iter().filter(|own| found.contains(own)).collect(),
                None => found,
            });
        }
        Ok(common.unwrap_or_default())
    }

    #[cfg(feature = "cuda")]
    fn gpu(&self, number: u32) -> Result<Arc<dyn Device>, ArtifactError> {
        use crate::cuda::{CudaDevice, Gpu};
        let objects = self.objects()?;
        let device = Gpu::numbered(number).and_then(|gpu| CudaDevice::new(gpu, &self.kernels, &objects));
        let device = device.map_err(|error| ArtifactError::Gpu { message: error.to_string() })?;
        Ok(Arc::new(device))
    }

    #[cfg(not(feature = "cuda"))]
    fn gpu(&self, _: u32) -> Result<Arc<dyn Device>, ArtifactError> {
        let message = "this build of the runtime has no GPUs: build it with the feature `cuda`".to_owned();
        Err(ArtifactError::Gpu { message })
    }

    /// The kernels, loaded; those for GPUs on the one of this machine that has the number, from 0 on.
    ///
    /// # Errors
    /// When this machine cannot run the code, or the code is damaged.
    pub fn device(&self, pool: Arc<ThreadPool>, number: u32) -> Result<Arc<dyn Device>, ArtifactError> {
        if self.about.machine.is_gpu() {
            return self.gpu(number);
        }
        self.about.machine.check()?;
        let resolve = |name: &str| routines::symbol(name).or_else(|| symbols::c_library_symbol(name));
        let load = |bytes| LoadedObject::load(bytes, &resolve).map(Arc::new);
        let objects = self.objects()?.into_iter().map(load).collect::<Result<_, _>>()?;
        // SAFETY: whoever wrote the artifact compiled the objects from these kernels; that this is so is what trusting
        // an artifact means.
        Ok(Arc::new(unsafe { NativeDevice::new(&self.kernels, objects, pool) }?))
    }

    /// Reads the whole file and compares every section with its checksum, weights included.
    ///
    /// # Errors
    /// Where one differs.
    pub fn check(&self) -> Result<(), ArtifactError> {
        Ok(self.sections.check((*self.file).as_ref())?)
    }

    /// The wrapper.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What the program launches.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The version of Litz that compiled it.
    pub fn compiler(&self) -> &str {
        &self.about.compiler
    }

    /// What its constants are: those of the model can be given new contents.
    pub fn constants(&self) -> ConstantSource {
        match self.sections.range(OF_MODEL) {
            Some(_) => ConstantSource::Model,
            None => ConstantSource::Folded,
        }
    }

    /// The machine that the code is for.
    pub fn machine(&self) -> &Machine {
        &self.about.machine
    }

    /// Names of the program's parameters, as the caller knows them.
    pub fn inputs(&self) -> &[String] {
        &self.about.inputs
    }

    /// Names of the program's outputs.
    pub fn outputs(&self) -> &[String] {
        &self.about.outputs
    }
}

impl Weights for Artifact {
    fn get(&self, name: &str) -> Option<Tensor> {
        let at = self.program.consts.iter().position(|constant| constant.name == name)?;
        let Const { ty, .. } = &self.program.consts[at];
        let numbers = |exprs: &[Expr]| {
            exprs.iter().map(|e| usize::try_from(e.as_int()?).ok()).collect::<Option<Vec<_>>>()
        };
        let (sizes, strides) = (numbers(&ty.sizes)?, numbers(&ty.strides)?);
        let range = self.sections.range(&weight_section(at))?;
        let tensor = Tensor::from_shared(ty.dtype, &sizes, &strides, self.file.clone(), range.start).ok()?;
        (tensor.bytes().len() <= range.len()).then_some(tensor)
    }
}

fn parse<T>(
    sections: &Sections,
    file: &[u8],
    name: &str,
    parse: fn(&str) -> Result<T, Diags>,
) -> Result<T, ArtifactError> {
    let text = std::str::from_utf8(sections.checked(file, name)?).map_err(|e| damaged_text(name, e))?;
    parse(text)
        .map_err(|diags| damaged_text(name, diags.first().map_or(String::new(), |diag| diag.to_string())))
}

fn damaged_text(name: &str, why: impl std::fmt::Display) -> ArtifactError {
    ArtifactError::damaged(format!("section `{name}`: {why}"))
}

/// The section that is neither text nor code.
struct About {
    compiler: String,
    machine: Machine,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

fn about_bytes(parts: &Parts<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_string(&mut bytes, parts.compiler);
    put_string(&mut bytes, &parts.machine.triple);
    for list in [&parts.machine.features, parts.inputs, parts.outputs] {
        bytes.extend((list.len() as u32).to_le_bytes());
        list.iter().for_each(|text| put_string(&mut bytes, text));
    }
    bytes
}

impl About {
    fn read(bytes: &[u8]) -> Option<About> {
        let mut from = Reader(bytes);
        let (compiler, triple) = (from.string()?, from.string()?);
        let mut list = || (0..from.u32()?).map(|_| from.string()).collect::<Option<Vec<_>>>();
        let (features, inputs, outputs) = (list()?, list()?, list()?);
        Some(About { compiler, machine: Machine { triple, features }, inputs, outputs })
    }
}

/// Why an artifact cannot be written, read or run.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The system's words.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of another kind.
    #[error("expected a compiled program, found a file of another kind")]
    NotAnArtifact,
    /// Written by another version of Litz.
    #[error(
        "expected version {expected} of compiled programs, found version {found}: compile the model again"
    )]
    Version {
        /// The version that this runtime reads.
        expected: u32,
        /// The version of the file.
        found: u32,
    },
    /// Cut off, or changed since it was written.
    #[error("the compiled program is damaged: {what}")]
    Damaged {
        /// What does not fit.
        what: String,
    },
    /// Code for another kind of machine.
    #[error("the code is for {expected}, found {found}")]
    WrongMachine {
        /// The triple that it was compiled for.
        expected: String,
        /// This machine.
        found: String,
    },
    /// Code that uses instructions this machine lacks.
    #[error("the code needs a CPU with {}, which this one lacks", features.join(", "))]
    MissingFeatures {
        /// Their LLVM names.
        features: Vec<String>,
    },
    /// Code for GPUs that is damaged.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A GPU that is not there, or does not take the code.
    #[error("{message}")]
    Gpu {
        /// What its driver says, or what the code is for.
        message: String,
    },
    /// Code that cannot be loaded.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A program that cannot be made ready to run.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<ContainerError> for ArtifactError {
    fn from(error: ContainerError) -> ArtifactError {
        match error {
            ContainerError::OtherKind => ArtifactError::NotAnArtifact,
            ContainerError::Version { found } => ArtifactError::Version { expected: KIND.version, found },
            ContainerError::Damaged { what } => ArtifactError::Damaged { what },
        }
    }
}

impl ArtifactError {
    fn damaged(what: impl Into<String>) -> ArtifactError {
        ArtifactError::Damaged { what: what.into() }
    }
}
