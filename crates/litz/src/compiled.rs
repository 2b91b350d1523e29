//! Compiles models, and calls what was compiled.

use crate::backends::{self, Device, Objects};
use crate::code::Code;
use crate::error::Error;
use crate::given::GivenSchedule;
use crate::host::{self, HostWarning};
use crate::kept::Kept;
use crate::model::Model;
use crate::options::Options;
use crate::perf;
use crate::pipeline::{self, Texts};
use crate::profile::Profile;
use crate::reproducer;
use crate::runner::{Runner, Stage, Timing};
use crate::state;
use crate::tuned;
use litz_backend::Backend;
use litz_codegen::Realized;
use litz_ir::graph;
use litz_ir::loops::Loops;
use litz_ir::program::Program;
use litz_runtime::Tensor;
use litz_runtime::cache::ObjectCache;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{
    ConstantInfo, ConstantSource, Executable, Generation, Outputs, RunOptions, Statistics, Value,
};
use litz_runtime::reference::{Counts, ReferenceDevice};
use litz_runtime::tensor::Input;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Model {
    /// Goes through the stages up to `to`, and returns their texts.
    ///
    /// # Errors
    /// When the model uses something unsupported.
    pub fn texts(&self, options: &Options, to: Stage, run: &mut Runner<'_>) -> Result<Texts, Error> {
        let options = &*self.scheduled(options)?;
        let graph = &self.imported.graph;
        let backend = backends::backend(options)?;
        self.check_supported()?;
        let texts = reproducer::catch(graph, options, || {
            pipeline::compile(graph.clone(), &*backend, options, to, run)
        })?;
        let shared = texts.graph.as_ref().map(|graph| state::check_shared(graph, &self.imported.weights));
        if let Some(shared) = shared.filter(|shared| !shared.is_empty()) {
            return Err(Error::Unsupported(shared));
        }
        Ok(texts)
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
        let options = &*self.scheduled(options)?;
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
        let loaded = run.step("load", || Loaded::new(&*backend, realized, code.as_ref(), options))?;
        let Loaded { device, devices, profile, reference } = loaded;
        let run_options = RunOptions {
            kept_as: kept.as_ref().map(Kept::memory),
            ..run_options(options, devices, ConstantSource::Model)
        };
        let (program, kernels) = (&realized.program, &realized.kernels);
        let executable =
            run.step("weights", || Executable::with_options(program, kernels, device, self, &run_options))?;
        let warnings = host::warnings(program, options);
        let (constants, code) = (ConstantSource::Model, code.map(Arc::new));
        Ok(Compiled {
            executable,
            timings: run.timings,
            warnings,
            texts,
            profile,
            reference,
            code,
            constants,
        })
    }

    /// Compiles loops of this model by a schedule that is proved first. Code of kernels that an earlier compilation had is among `objects`, and constants
    /// are those of `like`, where its load steps are the same and the memory can be.
    ///
    /// # Errors
    /// As [`Model::compile`], and where the schedule cannot be proved.
    pub(crate) fn compile_loops(
        &self,
        loops: &Loops,
        schedule: GivenSchedule,
        options: &Options,
        objects: &Objects,
        like: Option<&Compiled>,
    ) -> Result<Compiled, Error> {
        let mut quiet = |_: &str| {};
        let mut run = Runner::new(options.verify, None, &mut quiet);
        let backend = backends::backend(options)?;
        let options = &Options { schedule: Some(schedule.clone()), ..options.clone() };
        let (schedule, realized, code) = reproducer::catch(&self.imported.graph, options, || {
            let schedule = schedule.prove(loops, backend.target())?;
            let realized = pipeline::realize(loops, &schedule, &*backend, &mut run)?;
            let code = objects.compile(&*backend, &realized.kernels, options)?;
            Ok((schedule, realized, code))
        })?;
        let code = Code::new(self, &*backend, code);
        let loaded = Loaded::new(&*backend, &realized, Some(&code), options)?;
        let Loaded { device, devices, profile, reference } = loaded;
        let run_options = run_options(options, devices, ConstantSource::Model);
        let (program, kernels) = (&realized.program, &realized.kernels);
        let shared = like
            .and_then(|like| like.executable.sharing(program, kernels, device.clone(), &run_options).ok());
        let executable = match shared {
            Some(shared) => shared,
            None => Executable::with_options(program, kernels, device, self, &run_options)?,
        };
        Ok(Compiled {
            executable,
            timings: run.timings,
            warnings: Vec::new(),
            texts: Texts { schedule: Some(schedule), realized: Some(realized), ..Texts::default() },
            profile,
            reference,
            code: Some(Arc::new(code)),
            constants: ConstantSource::Model,
        })
    }

    /// Kernels, program and machine code, of which nothing is loaded, and what each stage took.
    pub(crate) fn code_for(
        &self,
        options: &Options,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Vec<Timing>, Realized, Code), Error> {
        let options = &*self.scheduled(options)?;
        let mut run = Runner::new(options.verify, options.dump.clone(), progress);
        let (cache, backend) = (options.cache()?, backends::backend(options)?);
        let kept = cache.as_ref().and_then(|cache| Kept::new(self, &*backend, options, cache));
        let (texts, code) = self.code(&*backend, options, &mut run, cache.as_ref(), kept.as_ref())?;
        let realized = texts.realized.ok_or_else(|| Error::bug("realize", "it gave nothing"))?;
        Ok((run.timings, realized, code))
    }

    /// The options with the schedule that tuning found, where they ask for it and there is one.
    pub(crate) fn scheduled<'a>(&self, options: &'a Options) -> Result<Cow<'a, Options>, Error> {
        if !options.tuned || options.schedule.is_some() {
            return Ok(Cow::Borrowed(options));
        }
        let schedule = tuned::found(self, options)?.map(|tuned| tuned.given());
        Ok(Cow::Owned(Options { schedule, tuned: false, ..options.clone() }))
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
}

/// Code of kernels on its devices.
struct Loaded {
    device: Device,
    /// Those that the program names besides.
    devices: Vec<(graph::Device, Device)>,
    profile: Option<Arc<Profile>>,
    reference: Option<Arc<ReferenceDevice>>,
}

impl Loaded {
    /// Loads code, or where there is none gets the reference device ready.
    fn new(
        backend: &dyn Backend,
        realized: &Realized,
        code: Option<&Code>,
        options: &Options,
    ) -> Result<Loaded, Error> {
        let Realized { program, kernels, .. } = realized;
        let mut reference = None;
        let device: Device = match code {
            None => {
                let new = Arc::new(ReferenceDevice::with(kernels, &options.reference_options)?);
                reference.insert(new).clone()
            }
            Some(code) => {
                let pool = if options.bind { ThreadPool::new } else { ThreadPool::unbound };
                let threads = || match &options.pool {
                    Some(shared) => Arc::clone(&shared.0),
                    None => Arc::new(pool(options.threads)),
                };
                backend.load(kernels, &code.objects, &threads)?
            }
        };
        if options.perf {
            perf::write(program, &*device);
        }
        let profile = options.profile.then(|| Arc::new(Profile::new(device.clone())));
        let device: Device = match &profile {
            Some(profile) => profile.clone(),
            None => device,
        };
        let (device, devices) = backends::devices(program, kernels, device)?;
        Ok(Loaded { device, devices, profile, reference })
    }
}

/// How an executable runs by these options.
pub(crate) fn run_options(
    options: &Options,
    devices: Vec<(graph::Device, Device)>,
    constants: ConstantSource,
) -> RunOptions<'static> {
    let host = options.host.clone().map(|host| host.0);
    let (limits, guard_pages) = (options.limits.clone(), options.guard_pages);
    let (verify_memory, check_nan) = (options.verify_memory, options.check_nan);
    RunOptions { limits, guard_pages, verify_memory, check_nan, kept_as: None, devices, host, constants }
}

/// A compiled model. One serves any number of threads.
pub struct Compiled {
    pub(crate) executable: Executable,
    /// The reference device, where it runs there.
    pub(crate) reference: Option<Arc<ReferenceDevice>>,
    /// None on the reference device.
    pub(crate) code: Option<Arc<Code>>,
    /// What its constants are.
    pub(crate) constants: ConstantSource,
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

    /// Runs the model on the caller's tensors, in order: [`Tensor`](litz_runtime::Tensor)s, or [`litz_runtime::TensorView`]s of slices and
    /// `ndarray` arrays, which are read where they are.
    ///
    /// # Errors
    /// When an input does not fit, naming it; when memory runs out; when an index computed by the model is out of range.
    pub fn run<T: Input>(&self, inputs: &[T]) -> Result<Vec<Value>, Error> {
        Ok(self.executable.run(inputs)?)
    }

    /// As [`Compiled::run`], into memory that `outputs` provides.
    ///
    /// # Errors
    /// As [`Compiled::run`].
    pub fn call<T: Input>(&self, inputs: &[T], outputs: &mut dyn Outputs) -> Result<(), Error> {
        Ok(self.executable.call(inputs, outputs)?)
    }

    /// The same program with the constants and the state of this one, in the same memory, on threads of its own: calls of the two do
    /// not wait for each other's threads. `options` are those that it was compiled or loaded with, but for the threads.
    ///
    /// # Errors
    /// [`litz_runtime::error::ConstantError::Unlike`] where the program is on a reference device, which serves any number of threads as it is.
    pub fn share(&self, options: &Options) -> Result<Compiled, Error> {
        let realized = self.texts.realized.as_ref().expect("invariant: what runs has kernels and a program");
        let (backend, code) = (backends::backend(options)?, self.code.as_deref());
        let loaded = Loaded::new(&*backend, realized, code, options)?;
        let Loaded { device, devices, profile, reference } = loaded;
        let run_options = run_options(options, devices, self.constants);
        let Realized { program, kernels, .. } = realized;
        Ok(Compiled {
            executable: self.executable.sharing(program, kernels, device, &run_options)?,
            reference,
            code: self.code.clone(),
            constants: self.constants,
            warnings: self.warnings.clone(),
            timings: Vec::new(),
            texts: Texts { realized: Some(realized.clone()), ..Texts::default() },
            profile,
        })
    }

    /// The wrapper around its kernels.
    pub fn program(&self) -> &Program {
        let realized = self.texts.realized.as_ref();
        &realized.expect("invariant: what runs has kernels and a program").program
    }

    /// What runs it.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// The constants that calls use, in the program's order.
    pub fn constants(&self) -> Vec<ConstantInfo<'_>> {
        self.executable.constants()
    }

    /// A copy of what a constant holds, row by row.
    ///
    /// # Errors
    /// As [`Executable::constant`].
    pub fn constant(&self, name: &str) -> Result<Tensor, Error> {
        Ok(self.executable.constant(name)?)
    }

    /// Packs and folds new contents of constants, those that are not given as they are at this moment, while calls go on and see nothing
    /// of it.
    ///
    /// # Errors
    /// As [`Executable::fold`].
    pub fn fold(&self, contents: &[(&str, &Tensor)]) -> Result<Generation, Error> {
        Ok(self.executable.fold(contents)?)
    }

    /// Gives calls that begin from here on these constants, all at once, and returns those before.
    ///
    /// # Errors
    /// As [`Executable::swap`].
    pub fn swap(&self, generation: Generation) -> Result<Generation, Error> {
        Ok(self.executable.swap(generation)?)
    }

    /// Folds new contents of constants and swaps them in: each call sees all of them or none.
    ///
    /// ```no_run
    /// # fn update(compiled: &litz::Compiled, weight: &litz::Tensor, bias: &litz::Tensor) -> Result<(), litz::Error> {
    /// compiled.update(&[("fc.weight", weight), ("fc.bias", bias)])
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Executable::update`].
    pub fn update(&self, contents: &[(&str, &Tensor)]) -> Result<(), Error> {
        Ok(self.executable.update(contents)?)
    }

    /// Names of what a call takes, and of what it returns; none on the reference device.
    pub fn names(&self) -> Option<(&[String], &[String])> {
        self.code.as_ref().map(|code| code.names())
    }

    /// What calls have done so far: how many there were, for how many sets of sizes, and what memory they took.
    pub fn statistics(&self) -> Statistics {
        self.executable.statistics()
    }
}
