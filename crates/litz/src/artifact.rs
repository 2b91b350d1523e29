//! A compilation kept: in the cache, for the next process that compiles the same, or in a file that runs without Litz.

use crate::backends::CpuBackend;
use crate::error::Error;
use crate::model::{Compiled, Model};
use crate::options::Options;
use litz_codegen::Realized;
use litz_import::ImportError;
use litz_ir::kernel::Kernel;
use litz_ir::program::{Program, Step};
use litz_ir::Diag;
use litz_runtime::artifact::{self, Artifact, Parts, Target};
use litz_runtime::cache::{CacheKey, ObjectCache};
use std::path::Path;
use std::sync::Arc;

/// What a compilation for a CPU gave, beside texts.
pub(crate) struct Code {
    /// Machine code of the kernels.
    pub objects: Vec<Vec<u8>>,
    target: Target,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Code {
    /// What `backend` made of a model.
    pub fn new(model: &Model, backend: &CpuBackend, objects: Vec<Vec<u8>>) -> Code {
        let target = Target::new(&backend.cpu().triple, &backend.cpu().features);
        let inputs = model.inputs().into_iter().map(|(name, _)| name.to_owned()).collect();
        let outputs = model.imported.outputs.iter().map(|output| output.name.clone()).collect();
        Code { objects, target, inputs, outputs }
    }

    fn parts<'a>(&'a self, realized: &'a Realized) -> Parts<'a> {
        Parts {
            compiler: env!("CARGO_PKG_VERSION"),
            target: &self.target,
            program: &realized.program,
            kernels: &realized.kernels,
            objects: &self.objects,
            inputs: &self.inputs,
            outputs: &self.outputs,
        }
    }
}

impl Compiled {
    /// Writes the program, its machine code and its constants, as they are at this moment, to one file, which
    /// [`litz_runtime::artifact::Artifact`] runs without a compiler. The file is for machines with this one's kind of
    /// CPU, or that of [`Options::isa`].
    ///
    /// # Errors
    /// When the file cannot be written, or the model was compiled for the reference device, which has no code.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (Some(code), Some(realized)) = (&self.code, &self.texts.realized) else {
            let message = "the reference device has no machine code to save";
            return Err(Error::Unsupported(vec![Diag::new("unsupported-device", message)]));
        };
        Ok(artifact::write(path.as_ref(), &code.parts(realized), &self.executable)?)
    }
}

/// The place in the cache of one model compiled with one set of options.
pub(crate) struct Kept {
    cache: ObjectCache,
    key: CacheKey,
}

impl Kept {
    /// `None` where nothing is to be kept, or every stage is to run: to be verified or written down.
    pub fn new(model: &Model, backend: &CpuBackend, options: &Options) -> Option<Kept> {
        if options.verify || options.dump.is_some() {
            return None;
        }
        let cache = ObjectCache::open(options.cache.clone()?, options.cache_bytes).ok()?;
        let key = key(model, backend, options).ok()?;
        Some(Kept { cache, key })
    }

    /// What an earlier compilation gave. Entries that cannot be read are none.
    pub fn find(&self) -> Option<(Realized, Code)> {
        let artifact = Artifact::from_bytes(Arc::new(self.cache.get(&self.key)?)).ok()?;
        let objects = artifact.objects().ok()?.into_iter().map(<[u8]>::to_vec).collect();
        let (program, kernels) = (artifact.program().clone(), artifact.kernels().to_vec());
        let shared = kernels.iter().map(|kernel| launches(&program, kernel)).collect();
        let code = Code {
            objects,
            target: artifact.target().clone(),
            inputs: artifact.inputs().to_vec(),
            outputs: artifact.outputs().to_vec(),
        };
        Some((Realized { kernels, program, shared }, code))
    }

    /// Keeps what a compilation gave. A full or read-only disk costs the next start its time, nothing else.
    pub fn put(&self, realized: &Realized, code: &Code) {
        let _ = self.cache.put(&self.key, &artifact::to_bytes(&code.parts(realized)));
    }
}

/// Everything that the result of a compilation depends on. The bytes of weights are not among it.
fn key(model: &Model, backend: &CpuBackend, options: &Options) -> Result<CacheKey, ImportError> {
    let archive = model.archive();
    let name = archive.only_model()?;
    let described = [
        format!("models/{name}.json"),
        format!("data/weights/{name}_weights_config.json"),
        format!("data/constants/{name}_constants_config.json"),
    ];
    let text = |path: &String| archive.range(path).map_or(Ok(""), |_| archive.text(path));
    let texts = described.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    // Every option counts but those that say what happens around the compilation.
    let neutral = Options { cache: None, cache_bytes: 0, dump: None, profile: false, ..options.clone() };
    let (target, options) = (format!("{:?}", backend.cpu()), format!("{neutral:?}"));
    let compiler = [env!("CARGO_PKG_VERSION"), env!("LITZ_SOURCES")];
    let parts = texts.into_iter().chain([&*target, &*options]).chain(compiler).chain(["program"]);
    Ok(CacheKey::new(&parts.map(str::as_bytes).collect::<Vec<_>>()))
}

fn launches(program: &Program, kernel: &Kernel) -> usize {
    let is_launch = |step: &&Step| matches!(step, Step::Launch { kernel: name, .. } if *name == kernel.name);
    program.load.iter().chain(&program.steps).filter(is_launch).count()
}
