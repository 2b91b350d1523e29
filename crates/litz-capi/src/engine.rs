//! Opens files, and holds what runs them: the runtime alone, or the compiler's.

use std::path::Path;
use std::sync::Arc;

use litz_ir::program::Program;
use litz_runtime::Executable;
use litz_runtime::arena::AlignedBuf;
use litz_runtime::artifact::{Artifact, ArtifactError, Bytes};
use litz_runtime::program::RunOptions;

use crate::error::{Failure, Status};
use crate::options::Options;

/// A program that runs.
pub(crate) enum Engine {
    /// A saved program.
    Saved { artifact: Arc<Artifact>, executable: Box<Executable> },
    /// A model that was compiled here.
    #[cfg(feature = "compiler")]
    Compiled(Box<litz::Compiled>),
}

/// Where a file is.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Path(&'a Path),
    Bytes(&'a [u8]),
}

impl Engine {
    /// Opens a saved program, or compiles a model.
    ///
    /// # Errors
    /// Where the file cannot be read, is of another kind, or cannot be run by these options.
    pub(crate) fn open(source: Source<'_>, options: &Options) -> Result<Engine, Failure> {
        let (artifact, bytes) = match source {
            Source::Path(path) => (Artifact::open(path), None),
            Source::Bytes(bytes) => {
                let bytes: Bytes = Arc::new(Owned::copy(bytes)?);
                (Artifact::from_bytes(Arc::clone(&bytes)), Some(bytes))
            }
        };
        match artifact {
            Ok(artifact) => {
                let artifact = Arc::new(artifact);
                let device = artifact.device(options.pool(options.threads), options.device_number())?;
                let run = run_options(&artifact, options);
                let (program, kernels) = (artifact.program(), artifact.kernels());
                let executable = Executable::with_options(program, kernels, device, &*artifact, &run)?;
                Ok(Engine::Saved { artifact, executable: Box::new(executable) })
            }
            Err(ArtifactError::NotAnArtifact) => compile(source, bytes, options),
            Err(error) => Err(error.into()),
        }
    }

    /// The same with the same constants, on threads of its own.
    ///
    /// # Errors
    /// Where the program is on a device with memory of its own.
    pub(crate) fn share(&self, options: &Options, threads: usize) -> Result<Engine, Failure> {
        match self {
            Engine::Saved { artifact, executable } => {
                let device = artifact.device(options.pool(threads), options.device_number())?;
                let run = run_options(artifact, options);
                let executable = executable.sharing(artifact.program(), artifact.kernels(), device, &run)?;
                Ok(Engine::Saved { artifact: Arc::clone(artifact), executable: Box::new(executable) })
            }
            #[cfg(feature = "compiler")]
            Engine::Compiled(compiled) => {
                Ok(Engine::Compiled(Box::new(compiled.share(&compiling(options, threads))?)))
            }
        }
    }

    pub(crate) fn executable(&self) -> &Executable {
        match self {
            Engine::Saved { executable, .. } => executable,
            #[cfg(feature = "compiler")]
            Engine::Compiled(compiled) => compiled.executable(),
        }
    }

    pub(crate) fn program(&self) -> &Program {
        match self {
            Engine::Saved { artifact, .. } => artifact.program(),
            #[cfg(feature = "compiler")]
            Engine::Compiled(compiled) => compiled.program(),
        }
    }

    /// Names of inputs and of outputs, where they are known.
    pub(crate) fn names(&self) -> (&[String], &[String]) {
        match self {
            Engine::Saved { artifact, .. } => (artifact.inputs(), artifact.outputs()),
            #[cfg(feature = "compiler")]
            Engine::Compiled(compiled) => compiled.names().unwrap_or_default(),
        }
    }
}

/// How the runtime runs a saved program.
fn run_options(artifact: &Artifact, options: &Options) -> RunOptions<'static> {
    let (limits, host) = (options.limits.clone(), options.host.clone());
    RunOptions { limits, host, constants: artifact.constants(), ..RunOptions::default() }
}

#[cfg(feature = "compiler")]
fn compiling(options: &Options, threads: usize) -> litz::Options {
    litz::Options {
        threads,
        bind: options.bind,
        limits: options.limits.clone(),
        host: options.host.clone().map(litz::HostOption),
        ..options.compiler.clone()
    }
}

#[cfg(feature = "compiler")]
fn compile(source: Source<'_>, bytes: Option<Bytes>, options: &Options) -> Result<Engine, Failure> {
    let options = compiling(options, options.threads);
    let model = match (source, bytes) {
        (Source::Path(path), _) => litz::Model::open_for(path, &options)?,
        (Source::Bytes(_), Some(bytes)) => litz::Model::from_bytes_for(bytes, &options)?,
        (Source::Bytes(bytes), None) => litz::Model::from_bytes_for(Arc::new(Owned::copy(bytes)?), &options)?,
    };
    Ok(Engine::Compiled(Box::new(model.compile(&options)?)))
}

#[cfg(not(feature = "compiler"))]
fn compile(_: Source<'_>, _: Option<Bytes>, _: &Options) -> Result<Engine, Failure> {
    let message = "expected a compiled program, found a file of another kind: this library runs those that \
                   `litz compile MODEL.pt2 -o MODEL.litzc` writes, and was built without the compiler";
    Err(Failure::new(Status::Unsupported, message))
}

/// Bytes at an address at which constants can be used where they are.
struct Owned(AlignedBuf);

impl Owned {
    fn copy(bytes: &[u8]) -> Result<Owned, Failure> {
        let buffer = AlignedBuf::new(bytes.len());
        let mut buffer = buffer.map_err(|error| Failure::new(Status::Limit, error.to_string()))?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Ok(Owned(buffer))
    }
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}
