//! Opens models and compiles them.

use crate::artifact::{Code, Kept};
use crate::backends::{self, Device};
use crate::error::Error;
use crate::host::{self, HostSchemas, HostWarning};
use crate::identity::FileIdentity;
use crate::options::Options;
use crate::pipeline::{self, Texts};
use crate::profile::Profile;
use crate::reproducer;
use crate::runner::{Runner, Stage, Timing};
use crate::state;
use litz_backend::Backend;
use litz_import::{Archive, Imported, Input, InputKind, Weight};
use litz_ir::graph::{self, Graph, TensorType, Type, ValueData};
use litz_ir::target::Target;
use litz_ir::{Diag, Diags, verify};
use litz_ops::{Table, seed};
use litz_runtime::Tensor;
use litz_runtime::cache::ObjectCache;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, Outputs, RunOptions, Statistics, Value};
use litz_runtime::reference::{Counts, ReferenceDevice};
use litz_runtime::tensor::Input as Given;
use litz_runtime::weights::Weights;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// A graph and its weights: read from a file, where the weights stay, or given.
pub struct Model {
    source: Source,
    compilations: AtomicU64,
    /// The program as imported.
    pub imported: Imported,
}

/// A file in memory, and its identity if it can be told from others.
struct MappedFile {
    map: Arc<memmap2::Mmap>,
    identity: Option<FileIdentity>,
}

/// Where the weights of a model are.
enum Source {
    /// In an archive, under the name that the archive gives the model; with the file that it is mapped from.
    Archive { archive: Archive, name: String, file: Option<MappedFile> },
    /// In memory, by name.
    Memory(HashMap<String, Tensor>),
}

impl Model {
    /// Reads the only model of a `.pt2` archive; [`Options::model`] names one of several. Weights are mapped, not copied.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or uses operators that are not supported; all of these are listed.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::open_for(path, &Options::default())
    }

    /// As [`Model::open`]: the model that [`Options::model`] names, with the operators that [`Options::host`] has as well.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_for(path: impl AsRef<Path>, options: &Options) -> Result<Model, Error> {
        let path = path.as_ref();
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        // Before any of it is read: what changes from here on changes the identity, too.
        let identity = FileIdentity::of(&file);
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: the mapping is only read. That nobody truncates or rewrites a model's file while it is in use is
        // documented as the caller's business, as for any mapped weights.
        let map = Arc::new(unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?);
        Model::of_archive(map.clone(), Some(MappedFile { map, identity }), options)
    }

    /// Reads the only model of an archive in memory.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes(bytes: litz_import::Bytes) -> Result<Model, Error> {
        Model::from_bytes_for(bytes, &Options::default())
    }

    /// As [`Model::from_bytes`]: the model that [`Options::model`] names, with the operators that [`Options::host`] has as well.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes_for(bytes: litz_import::Bytes, options: &Options) -> Result<Model, Error> {
        Model::of_archive(bytes, None, options)
    }

    fn of_archive(
        bytes: litz_import::Bytes,
        file: Option<MappedFile>,
        options: &Options,
    ) -> Result<Model, Error> {
        let archive = Archive::open(bytes)?;
        let name = archive.model(options.model.as_deref())?.to_owned();
        let mut imported =
            litz_import::import(&archive, &name, &HostSchemas { table: Table::new(), options })?;
        if let Some(value) = seed::seeded(&mut imported.graph).map_err(Error::of_diags)? {
            imported.inputs.push(Input { name: seed::NAME.to_owned(), kind: InputKind::Value(value) });
        }
        let source = Source::Archive { archive, name, file };
        Ok(Model { source, compilations: AtomicU64::new(0), imported })
    }

    /// A model of a graph, and of the tensors that its constants name.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the graph does not verify.
    pub fn from_graph(graph: Graph, weights: HashMap<String, Tensor>) -> Result<Model, Error> {
        let mut diags = verify::graph::verify(&graph);
        diags.extend(litz_ops::check_devices(&graph));
        if !diags.is_empty() {
            return Err(Error::Invalid(diags));
        }
        let imported = Imported::of_graph(graph);
        Ok(Model { source: Source::Memory(weights), compilations: AtomicU64::new(0), imported })
    }

    /// Types of the tensors a call takes, with their names, in order. A number is a tensor without dimensions: of i64, f64 or
    /// bool.
    pub fn inputs(&self) -> Vec<(&str, Cow<'_, TensorType>)> {
        let graph = &self.imported.graph;
        let inputs = self.imported.inputs.iter();
        inputs
            .filter_map(|input| match input.kind {
                InputKind::Value(v) => Some((input.name.as_str(), graph.values[v].ty.stored())),
                InputKind::Fixed(_) => None,
            })
            .collect()
    }

    /// A text that was saved beside the model: `extra_files={name: text}` of `torch.export.save`.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn extra(&self, name: &str) -> Result<Option<&str>, Error> {
        let Some(archive) = self.archive() else { return Ok(None) };
        let path = format!("extra/{name}");
        let text = archive.range(&path).map(|_| archive.text(&path)).transpose();
        Ok(text?)
    }

    /// Goes through the stages up to `to`, and returns their texts.
    ///
    /// # Errors
    /// When the model uses something unsupported.
    pub fn texts(&self, options: &Options, to: Stage, run: &mut Runner<'_>) -> Result<Texts, Error> {
        let graph = &self.imported.graph;
        let backend = backends::backend(options)?;
        self.check_supported(backend.target())?;
        let texts = reproducer::catch(graph, options, || {
            pipeline::compile(graph.clone(), &*backend, options, to, run)
        })?;
        let shared = texts.graph.as_ref().map(|graph| state::check_shared(graph, &self.imported.weights));
        if let Some(shared) = shared.filter(|shared| !shared.is_empty()) {
            return Err(Error::Unsupported(shared));
        }
        Ok(texts)
    }

    /// # Errors
    /// When the model has tensors on several devices that are no reference devices, or on one that is not the target's, or guards that are not supported.
    pub(crate) fn check_supported(&self, target: &Target) -> Result<(), Error> {
        let graph = &self.imported.graph;
        if let Some((name, device)) = elsewhere(graph, graph.device, target) {
            let message =
                format!("expected all tensors on one {}, found `{name}` on {device}", target.kind());
            let diag = Diag::new("unsupported-device", message).help("export it on the CPU");
            return Err(Error::Unsupported(vec![diag]));
        }
        let unknown: Diags = self.imported.unknown_guards.iter().flat_map(|guard| guard.diags()).collect();
        if unknown.is_empty() { Ok(()) } else { Err(Error::Unsupported(unknown)) }
    }

    /// Compiles for this machine, or another target that this machine can run the code of.
    ///
    /// # Errors
    /// When the model uses something unsupported, its weights are missing, or this machine cannot run the target's code.
    pub fn compile(&self, options: &Options) -> Result<Compiled, Error> {
        self.compile_with(options, &mut |_| {})
    }

    /// As [`Model::compile`]; tells `progress` what it is about to do.
    ///
    /// # Errors
    /// As [`Model::compile`].
    pub fn compile_with(&self, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Compiled, Error> {
        let mut run = Runner::new(options.verify, options.dump.clone(), progress);
        let cache = options.cache()?;
        let backend = backends::backend(options)?;
        if !options.reference {
            backend.check_machine().map_err(Error::unsupported)?;
        }
        let kept = cache.as_ref().filter(|_| !options.reference);
        let kept = run.step("key", || Kept::new(self, &*backend, options, kept?));
        let (texts, code) = if options.reference {
            (self.program(options, &mut run)?, None)
        } else {
            let (texts, code) = self.code(&*backend, options, &mut run, cache.as_ref(), kept.as_ref())?;
            (texts, Some(code))
        };
        let realized = texts.realized.as_ref().ok_or_else(|| Error::bug("realize", "it gave nothing"))?;
        let reference = options.reference.then(|| {
            let new = || ReferenceDevice::with(&realized.kernels, &options.reference_options);
            run.step("load", || new().map(Arc::new))
        });
        let reference = reference.transpose()?;
        let device: Device = match &code {
            None => reference.clone().expect("invariant: what has no code is for the reference device"),
            Some(code) => {
                let pool = if options.bind { ThreadPool::new } else { ThreadPool::unbound };
                let threads = || match &options.pool {
                    Some(shared) => Arc::clone(&shared.0),
                    None => Arc::new(pool(options.threads)),
                };
                run.step("load", || backend.load(&realized.kernels, &code.objects, &threads))?
            }
        };
        let profile = options.profile.then(|| Arc::new(Profile::new(device.clone())));
        let device: Device = match &profile {
            Some(profile) => profile.clone(),
            None => device,
        };
        let (program, kernels) = (&realized.program, &realized.kernels);
        let (device, devices) = backends::devices(program, kernels, device)?;
        let run_options = RunOptions {
            limits: options.limits.clone(),
            guard_pages: options.guard_pages,
            kept_as: kept.as_ref().and_then(Kept::memory),
            devices,
            host: options.host.clone().map(|host| host.0),
        };
        let executable =
            run.step("weights", || Executable::with_options(program, kernels, device, self, &run_options))?;
        let warnings = host::warnings(program, options);
        Ok(Compiled { executable, timings: run.timings, warnings, texts, profile, reference, code })
    }

    /// Texts and machine code: those that an earlier process left in the cache, else made.
    fn code(
        &self,
        backend: &dyn Backend,
        options: &Options,
        run: &mut Runner<'_>,
        cache: Option<&ObjectCache>,
        kept: Option<&Kept<'_>>,
    ) -> Result<(Texts, Code), Error> {
        if let Some((realized, code)) = run.step("look up", || kept?.find()) {
            return Ok((Texts { realized: Some(realized), ..Texts::default() }, code));
        }
        let texts = self.program(options, run)?;
        let realized = texts.realized.as_ref().ok_or_else(|| Error::bug("realize", "it gave nothing"))?;
        run.may_go_on(options)?;
        let objects = reproducer::catch(&self.imported.graph, options, || {
            run.step("kernels", || backends::compile_kernels(backend, &realized.kernels, options, cache))
        })?;
        let code = Code::new(self, backend, objects);
        if let Some(kept) = kept {
            run.step("keep", || kept.put(realized, &code));
        }
        Ok((texts, code))
    }

    /// How often the stages have run to make something that runs; not where the cache had it. No call of a [`Compiled`]
    /// adds to it, whatever sizes it comes with.
    pub fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    /// The texts of a program to run.
    fn program(&self, options: &Options, run: &mut Runner<'_>) -> Result<Texts, Error> {
        self.compilations.fetch_add(1, Ordering::Relaxed);
        self.texts(options, Stage::Program, run)
    }

    /// What the archive calls it, else its graph.
    pub fn name(&self) -> &str {
        match &self.source {
            Source::Archive { name, .. } => name,
            Source::Memory(_) => &self.imported.graph.name,
        }
    }

    /// The archive that it was read from.
    pub(crate) fn archive(&self) -> Option<&Archive> {
        match &self.source {
            Source::Archive { archive, .. } => Some(archive),
            Source::Memory(_) => None,
        }
    }

    /// What tells the file from others and from itself after a change; `None` where nothing does.
    pub(crate) fn file(&self) -> Option<&FileIdentity> {
        match &self.source {
            Source::Archive { file, .. } => file.as_ref().and_then(|file| file.identity.as_ref()),
            Source::Memory(_) => None,
        }
    }
}

/// Whether Litz has an operator, such as `aten.add.Tensor`, for graphs without a seed.
pub fn has_operator(name: &str) -> bool {
    static TABLE: LazyLock<Table> = LazyLock::new(Table::new);
    TABLE.op(name).is_some() && !TABLE.needs_seed(name)
}

/// A tensor of a graph or its subgraphs that is on another device than `device`, but for reference devices, or on one that is not of the
/// target, and where.
fn elsewhere<'a>(
    graph: &'a Graph,
    device: graph::Device,
    target: &Target,
) -> Option<(&'a str, graph::Device)> {
    let is_kin = |other: graph::Device| {
        let is_reference = |device| matches!(device, graph::Device::Ref(_));
        other == device || is_reference(other) || is_reference(device)
    };
    let is_elsewhere = |value: &'a ValueData| match &value.ty {
        Type::Tensor(ty) if !is_kin(ty.device) || !target.holds(ty.device) => Some((&*value.name, ty.device)),
        Type::Tensor(_) | Type::Int(_) | Type::Float | Type::Bool => None,
    };
    let own = graph.values.values().find_map(is_elsewhere);
    own.or_else(|| graph.subgraphs.iter().find_map(|graph| elsewhere(graph, device, target)))
}

impl Weights for Model {
    fn get(&self, name: &str) -> Option<Tensor> {
        let archive = match &self.source {
            Source::Archive { archive, .. } => archive,
            Source::Memory(weights) => return weights.get(name).cloned(),
        };
        let w = self.imported.weights.get(name)?;
        if w.is_missing {
            return Tensor::zeros(w.dtype, &w.sizes, &w.strides).ok();
        }
        let offset = w.storage.start + w.offset * w.dtype.size();
        Tensor::from_shared(w.dtype, &w.sizes, &w.strides, archive.bytes().clone(), offset).ok()
    }

    fn release(&self, name: &str) {
        let Source::Archive { file: Some(file), .. } = &self.source else { return };
        // Only the weight's own elements: others of its storage may be in use, or still to be read.
        let Some(bytes) = self.imported.weights.get(name).and_then(Weight::bytes) else { return };
        // SAFETY: the mapping shows a file that this process does not write: pages that leave it are read from there again,
        // with the same bytes. Where the system refuses, nothing changes.
        let _ = unsafe {
            file.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, bytes.start, bytes.len())
        };
    }
}

/// A compiled model. One serves any number of threads.
pub struct Compiled {
    pub(crate) executable: Executable,
    /// The reference device, where it runs there.
    pub(crate) reference: Option<Arc<ReferenceDevice>>,
    /// None on the reference device.
    pub(crate) code: Option<Code>,
    /// Operators that the host runs, one entry for each, unless [`Options::fallback`] is quiet.
    pub warnings: Vec<HostWarning>,
    /// What each stage of the compilation took.
    pub timings: Vec<Timing>,
    /// What the compilation went through; only kernels and program where the cache had them.
    pub texts: Texts,
    /// How long launches took, where [`Options::profile`] asked for it.
    pub profile: Option<Arc<Profile>>,
}

impl Compiled {
    /// The names of its kernels and what their launches have taken, where [`Options::reference_options`] asked for it.
    pub fn counts(&self) -> Vec<(String, Counts)> {
        self.reference.as_ref().map(|device| device.counts()).unwrap_or_default()
    }

    /// Whether the cache had its program and machine code.
    pub fn is_from_cache(&self) -> bool {
        self.texts.graph.is_none() && self.texts.realized.is_some()
    }

    /// Runs the model on the caller's tensors, in order: [`Tensor`]s, or [`litz_runtime::TensorView`]s of slices and
    /// `ndarray` arrays, which are read where they are.
    ///
    /// # Errors
    /// When an input does not fit, naming it; when memory runs out; when an index computed by the model is out of range.
    pub fn run<T: Given>(&self, inputs: &[T]) -> Result<Vec<Value>, Error> {
        Ok(self.executable.run(inputs)?)
    }

    /// As [`Compiled::run`], into memory that `outputs` provides.
    ///
    /// # Errors
    /// As [`Compiled::run`].
    pub fn call<T: Given>(&self, inputs: &[T], outputs: &mut dyn Outputs) -> Result<(), Error> {
        Ok(self.executable.call(inputs, outputs)?)
    }

    /// Names of what a call takes, and of what it returns; none on the reference device.
    pub fn names(&self) -> Option<(&[String], &[String])> {
        self.code.as_ref().map(Code::names)
    }

    /// What calls have done so far: how many there were, for how many sets of sizes, and what memory they took.
    pub fn statistics(&self) -> Statistics {
        self.executable.statistics()
    }
}
