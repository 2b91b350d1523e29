//! Makes compiled models callable from Python.

mod layout;

use std::collections::{BTreeSet, HashMap};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use litz::explain;
use litz::pipeline::Texts;
use litz::report::Report;
use litz::tune::Tuned;
use litz::{Compiled, Model, Options, RawStream, Stage, Tensor, TensorView};
use litz_ir::graph::{Type, Value};
use litz_ir::kernel::Kernel;
use litz_ir::program::{Program, ProgramStep};
use litz_ir::{Dtype, Scalar};
use litz_runtime::RunError;
use litz_runtime::mapping::{advise_huge_pages, return_freed_pages};
use litz_runtime::program::{OutputLayout, Outputs};
use litz_runtime::tensor::Argument;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

use crate::errors::{self, UnsupportedError};
use crate::host::raised;
use crate::options::Chosen;
use crate::returned::Returned;
use crate::tensors::{Exchanges, Held, tuple};
use crate::tuning;
use layout::{Layout, restrided};

/// Whether something was compiled since the heap's free pages were last given back.
static HAS_COMPILED: AtomicBool = AtomicBool::new(false);

/// What the program takes at one place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Param {
    Tensor(Use),
    Int,
    Float,
    Bool,
    /// A tensor without dimensions, or a number of its type: programs that were saved do not say which.
    Either(Dtype),
}

/// What the program does with the memory of a tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    /// It leaves new contents there.
    Updated,
    /// It leaves anything there: the caller gives it up.
    Donated,
}

impl Use {
    fn of(program: &Program, param: &litz_ir::program::Param) -> Use {
        match program.updates.iter().any(|(target, _)| *target == param.slot) {
            true => Use::Updated,
            false if param.is_donated => Use::Donated,
            false => Use::Read,
        }
    }
}

/// What a call took at one place: a tensor, or a number as the bytes of one element.
enum Taken {
    Tensor(Held),
    Number(Dtype, [u8; 8]),
}

/// A compiled model: called with a list of tensors and numbers, it returns a list.
#[pyclass(module = "litz", frozen, weakref, name = "Compiled")]
pub struct CompiledModel {
    compiled: Compiled,
    /// What it was compiled of and how; none of a program that was saved.
    made_of: Option<(Model, Options)>,
    /// What looking for a faster schedule gave, or why it could not be done.
    tuned: Option<Result<Tuned, String>>,
    params: Vec<Param>,
    /// Which of the caller's arguments they are.
    taken: Vec<usize>,
    names: Vec<String>,
    output_names: Vec<String>,
    returned: Vec<Returned>,
    /// The results of which copies are returned that are in the host's memory.
    hosted: BTreeSet<usize>,
    /// Sizes and strides of the results that lie otherwise than the graph says; the others lie as it says.
    restrided: Vec<Option<Layout>>,
    /// How many results the program has, new contents of inputs not among them.
    results: usize,
    /// `empty(sizes, strides, dtype)`, `laid(tensor, sizes, strides)`, `view(tensor, sizes, strides, offset)` and `on_host(tensor)` of the library whose tensors are returned.
    library: Library,
    /// The GPU that runs it, in whose memory arguments and results are; none where that is the host's.
    gpu: Option<u32>,
    exchanges: Exchanges,
    /// Whether there was a call since something was compiled.
    is_called: AtomicBool,
}

/// Makes tensors of one library.
pub struct Library {
    empty: Py<PyAny>,
    laid: Py<PyAny>,
    view: Py<PyAny>,
    on_host: Py<PyAny>,
    dtypes: HashMap<&'static str, Py<PyAny>>,
    /// The type of its tensors, where these may be in a GPU's memory.
    tensor: Option<Py<PyType>>,
}

impl Library {
    /// By an object with `empty`, `laid`, `view`, `on_host` and `dtypes`, a dictionary by the names that Litz has for element types.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Library> {
        let dtypes = object.getattr("dtypes")?;
        let known = Dtype::ALL.into_iter().map(Dtype::name);
        let known = known.filter_map(|name| Some((name, dtypes.get_item(name).ok()?.unbind()))).collect();
        let method = |name: &str| object.getattr(name).map(Bound::unbind);
        let tensor = object.getattr("tensor").ok().and_then(|of| of.cast_into::<PyType>().ok());
        Ok(Library {
            empty: method("empty")?,
            laid: method("laid")?,
            view: method("view")?,
            on_host: method("on_host")?,
            dtypes: known,
            tensor: tensor.map(Bound::unbind),
        })
    }

    fn empty<'py>(
        &self,
        py: Python<'py>,
        dtype: Dtype,
        sizes: &[usize],
        strides: &[usize],
    ) -> PyResult<Bound<'py, PyAny>> {
        let of = self.dtypes.get(dtype.name());
        let of = of.ok_or_else(|| PyTypeError::new_err(format!("the library has no {dtype}")))?;
        self.empty.bind(py).call1((tuple(py, sizes)?, tuple(py, strides)?, of.bind(py)))
    }

    /// A tensor of Litz's as one of the library's, with memory of its own.
    pub fn copied<'py>(&self, py: Python<'py>, from: &Tensor) -> PyResult<Bound<'py, PyAny>> {
        let tensor = self.empty(py, from.dtype(), from.sizes(), from.strides())?;
        let held = Held::new(&tensor, &Exchanges::default())?;
        let bytes = from.bytes();
        // SAFETY: the library made the tensor with these sizes and strides, and nobody else has it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), held.data(), bytes.len()) };
        Ok(tensor)
    }

    /// A copy of a tensor that lies so; the tensor itself where elements that differ would share memory.
    fn laid<'py>(
        &self,
        py: Python<'py>,
        tensor: &Bound<'py, PyAny>,
        sizes: &[usize],
        strides: &[usize],
    ) -> PyResult<Bound<'py, PyAny>> {
        self.laid.bind(py).call1((tensor, tuple(py, sizes)?, tuple(py, strides)?))
    }
}

impl CompiledModel {
    /// Compiles a model. `taken` says which of the caller's arguments the program takes; none: all. `returned` says what each returned value is: `("result", k)`, `("argument", k)`, `("constant", x)`,
    /// `("host", k)`, a copy of the result in the host's memory, `("tuple", (those))` or `("view", that, sizes, strides, offset)`, each of these again such a value, with one more for a view of another type;
    /// none: the program's results in order.
    ///
    /// # Errors
    /// As of [`Model::compile`]; where a signal's handler raises meanwhile.
    pub fn new(
        py: Python<'_>,
        model: Model,
        chosen: Chosen,
        taken: Option<Vec<usize>>,
        returned: Option<Vec<Bound<'_, PyTuple>>>,
        library: Library,
    ) -> PyResult<CompiledModel> {
        let gpu = chosen.gpu;
        let (compiled, options, tuned) = tuning::compile(py, &model, chosen)?;
        HAS_COMPILED.store(true, Ordering::Relaxed);
        let graph = &model.imported.graph;
        let program = compiled.texts.realized.as_ref().map(|realized| &realized.program);
        let use_of = |at: usize| {
            let found = program.and_then(|program| Some(Use::of(program, program.params.get(at)?)));
            found.unwrap_or(Use::Read)
        };
        let param = |(at, &value): (usize, &Value)| match graph.values[value].ty {
            Type::Tensor(_) => Param::Tensor(use_of(at)),
            Type::Int(_) => Param::Int,
            Type::Float => Param::Float,
            Type::Bool => Param::Bool,
        };
        let returned = match returned {
            Some(returned) => returned.iter().map(|what| Returned::of(what)).collect::<PyResult<Vec<_>>>()?,
            None => (0..graph.outputs.len()).map(Returned::Result).collect(),
        };
        let mut hosted = BTreeSet::new();
        returned.iter().for_each(|what| what.note_hosted(&mut hosted));
        let restrided =
            (0..graph.outputs.len()).map(|at| restrided(graph, program, at)).collect::<PyResult<_>>()?;
        let taken = taken.unwrap_or_else(|| (0..graph.inputs.len()).collect());
        if taken.len() != graph.inputs.len() {
            let message =
                format!("expected {} arguments to be taken, found {}", graph.inputs.len(), taken.len());
            return Err(PyTypeError::new_err(message));
        }
        Ok(CompiledModel {
            taken,
            params: graph.inputs.iter().enumerate().map(param).collect(),
            names: model.inputs().into_iter().map(|(name, _)| name.to_owned()).collect(),
            output_names: model.imported.outputs.iter().map(|output| output.name.clone()).collect(),
            returned,
            hosted,
            restrided,
            results: graph.outputs.len(),
            library,
            gpu,
            exchanges: Exchanges::default(),
            is_called: AtomicBool::new(false),
            compiled,
            made_of: Some((model, options)),
            tuned,
        })
    }

    /// Of a program that was saved.
    pub fn loaded(compiled: Compiled, library: Library) -> CompiledModel {
        let program = compiled.texts.realized.as_ref().map(|realized| &realized.program);
        let params = program.map_or_else(Vec::new, |program| {
            let param = |param: &litz_ir::program::Param| match (param.ty.rank(), Use::of(program, param)) {
                (0, Use::Read) => Param::Either(param.ty.dtype),
                (_, used) => Param::Tensor(used),
            };
            program.params.iter().map(param).collect()
        });
        let results = program.map_or(0, |program| program.outputs.len());
        let (names, output_names) =
            compiled.names().map_or_else(Default::default, |(takes, gives)| (takes.to_vec(), gives.to_vec()));
        CompiledModel {
            taken: (0..params.len()).collect(),
            params,
            names,
            output_names,
            returned: (0..results).map(Returned::Result).collect(),
            hosted: BTreeSet::new(),
            // They lie as the program says: there is no graph to say otherwise.
            restrided: Vec::new(),
            results,
            library,
            gpu: None,
            exchanges: Exchanges::default(),
            is_called: AtomicBool::new(false),
            compiled,
            made_of: None,
            tuned: None,
        }
    }

    /// Gives back what compiling took of the heap, tens of MiB and more, with a model's second call: what traced the model and asked for
    /// its graphs to be compiled has let go of them by then, and the pages would be part of every later call's peak.
    fn settle(&self) {
        if HAS_COMPILED.load(Ordering::Relaxed)
            && self.is_called.swap(true, Ordering::Relaxed)
            && HAS_COMPILED.swap(false, Ordering::Relaxed)
        {
            return_freed_pages();
        }
    }

    /// What the caller's arguments are to the program, each held until the call is over.
    fn take(&self, args: &Bound<'_, PyList>) -> PyResult<Vec<Taken>> {
        let mut taken = Vec::with_capacity(self.params.len());
        for (&at, &param) in self.taken.iter().zip(&self.params) {
            let missing = |_| {
                let (expected, found) = (self.params.len(), args.len());
                PyTypeError::new_err(format!("expected {expected} arguments, found {found}"))
            };
            let arg = args.get_item(at).map_err(missing)?;
            taken.push(match number(param, &arg)? {
                Some((dtype, bytes)) => Taken::Number(dtype, bytes),
                None => Taken::Tensor(Held::for_gpu(&arg, &self.exchanges, self.gpu)?),
            });
        }
        Ok(taken)
    }

    /// The stream on which the library works that has the arguments in a GPU's memory; none where they are in the host's.
    fn stream(&self, py: Python<'_>) -> PyResult<Option<RawStream>> {
        let (Some(gpu), Some(of)) = (self.gpu, &self.library.tensor) else { return Ok(None) };
        self.exchanges.stream(of.bind(py), gpu).map(Some)
    }

    /// The page's part about this model. `args`, where there are some, are what the calls that are timed take.
    ///
    /// # Errors
    /// Where it is a saved program, where arguments do not fit, and where it cannot be compiled once more.
    pub fn report(&self, py: Python<'_>, args: Option<&Bound<'_, PyList>>, calls: usize) -> PyResult<Report> {
        let Some((model, options)) = &self.made_of else {
            let message = "a saved program has no graph and no lines to report on: compile the model";
            return Err(UnsupportedError::new_err(message));
        };
        let inputs = args.map(|args| self.inputs_of(args)).transpose()?;
        let report = py.detach(|| Report::new(model, options, inputs.as_deref(), calls, &mut |_| {}));
        // What an operator of the host raised is in the error's message.
        drop(raised());
        report.map_err(|error| errors::raise(&error))
    }

    /// The caller's arguments as tensors, which hold the objects.
    fn inputs_of(&self, args: &Bound<'_, PyList>) -> PyResult<Vec<Tensor>> {
        let one = |(&at, &param): (&usize, &Param)| {
            let arg = args.get_item(at)?;
            let Some((dtype, bytes)) = number(param, &arg)? else { return crate::held(&arg) };
            let tensor = Tensor::from_bytes(dtype, &[], &bytes[..dtype.size()]);
            tensor.map_err(|error| errors::InvalidError::new_err(error.to_string()))
        };
        self.taken.iter().zip(&self.params).map(one).collect()
    }

    /// What it was compiled of and how; none of a program that was saved.
    pub fn made_of(&self) -> Option<(&Model, &Options)> {
        self.made_of.as_ref().map(|(model, options)| (model, options))
    }

    /// Program and kernels.
    pub fn program(&self) -> Option<(&Program, &[Kernel])> {
        self.compiled.texts.realized.as_ref().map(|realized| (&realized.program, &*realized.kernels))
    }

    /// Who makes results.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// What the model's file, or its graph, calls it.
    pub fn name(&self) -> &str {
        match &self.made_of {
            Some((model, _)) => model.name(),
            None => self.compiled.texts.realized.as_ref().map_or("", |realized| &realized.program.name),
        }
    }
}

impl Taken {
    fn argument(&self, param: Param) -> PyResult<Argument<'_>> {
        match self {
            Taken::Tensor(held) => match param {
                Param::Tensor(Use::Updated) => Ok(Argument::Lent(held.view_mut()?)),
                Param::Tensor(Use::Donated) if !held.is_read_only() => Ok(Argument::Lent(held.view_mut()?)),
                Param::Tensor(Use::Donated | Use::Read)
                | Param::Int
                | Param::Float
                | Param::Bool
                | Param::Either(_) => Ok(Argument::View(held.view()?)),
            },
            Taken::Number(dtype, bytes) => {
                // SAFETY: the bytes are those of one element, and borrowed for as long as the view is there.
                let view = unsafe { TensorView::from_raw(*dtype, &[], &[], bytes.as_ptr()) };
                Ok(Argument::View(view.expect("invariant: one element has no strides")))
            }
        }
    }
}

/// Collects the results of one call in new tensors of a library.
struct Collected<'a> {
    library: &'a Library,
    exchanges: &'a Exchanges,
    /// The caller's arguments, and which of them the program takes.
    args: Py<PyList>,
    taken: &'a [usize],
    values: Vec<Option<Py<PyAny>>>,
    error: Option<PyErr>,
    /// The stream of the GPU in whose memory arguments and results are.
    stream: Option<RawStream>,
}

impl Collected<'_> {
    fn put(&mut self, index: usize, value: Py<PyAny>) {
        if self.values.len() <= index {
            self.values.resize_with(index + 1, || None);
        }
        self.values[index] = Some(value);
    }

    fn place(&mut self, index: usize, layout: &OutputLayout<'_>) -> PyResult<NonNull<u8>> {
        Python::attach(|py| {
            let tensor = self.library.empty(py, layout.dtype, layout.sizes, layout.strides)?;
            let data = Held::new(&tensor, self.exchanges)?.data();
            self.put(index, tensor.unbind());
            let Some(data) = NonNull::new(data) else { return Ok(NonNull::<Aligned>::dangling().cast()) };
            if self.stream.is_none() {
                // SAFETY: the library allocated these bytes for the tensor, which is held.
                unsafe { advise_huge_pages(data, layout.bytes) };
            }
            Ok(data)
        })
    }

    /// Returns a tensor in the memory of an argument that the caller gave up: the argument itself, or a view of it.
    fn place_in(
        &mut self,
        index: usize,
        param: usize,
        offset: usize,
        layout: &OutputLayout<'_>,
    ) -> PyResult<()> {
        Python::attach(|py| {
            let arg = self.args.bind(py).get_item(self.taken[param])?;
            let (sizes, strides) = (tuple(py, layout.sizes)?, tuple(py, layout.strides)?);
            let offset = offset / layout.dtype.size();
            let view = self.library.view.bind(py).call1((arg, sizes, strides, offset))?;
            self.put(index, view.unbind());
            Ok(())
        })
    }
}

/// An address for tensors without elements.
#[repr(align(64))]
struct Aligned;

// SAFETY: each result is a tensor of its own, which the library aligns to 64 bytes, and which is held until the call returns.
unsafe impl Outputs for Collected<'_> {
    fn tensor(&mut self, index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        self.place(index, layout).map_err(|error| {
            let why = error.to_string();
            self.error = Some(error);
            RunError::Host { op: "the memory of a result".to_owned(), source_line: None, why }
        })
    }

    fn stream(&self) -> Option<RawStream> {
        self.stream
    }

    fn in_input(&mut self, index: usize, param: usize, offset: usize, layout: &OutputLayout<'_>) -> bool {
        let placed = self.place_in(index, param, offset, layout);
        placed.map_err(|error| self.error = Some(error)).is_ok()
    }

    fn scalar(&mut self, index: usize, scalar: Option<Scalar>) {
        let value = Python::attach(|py| self::scalar(py, scalar));
        match value {
            Ok(value) => self.put(index, value),
            Err(error) => self.error = Some(error),
        }
    }

    fn text(&mut self, index: usize, text: &Arc<str>) {
        let value = Python::attach(|py| PyString::new(py, text).into_any().unbind());
        self.put(index, value);
    }
}

/// Launches of kernels at every call.
fn launches(program: &Program) -> usize {
    let is_launch = |step: &&ProgramStep| matches!(step, ProgramStep::Launch { .. });
    program.all().into_iter().map(|program| program.steps.iter().filter(is_launch).count()).sum()
}

fn scalar(py: Python<'_>, scalar: Option<Scalar>) -> PyResult<Py<PyAny>> {
    Ok(match scalar {
        None => py.None(),
        Some(Scalar::Bool(value)) => PyBool::new(py, value).to_owned().into_any().unbind(),
        Some(Scalar::Int(value)) => PyInt::new(py, value).into_any().unbind(),
        Some(Scalar::Float(value)) => PyFloat::new(py, value).into_any().unbind(),
    })
}

/// An argument that is a number, as one element; none where it is a tensor.
fn number(param: Param, object: &Bound<'_, PyAny>) -> PyResult<Option<(Dtype, [u8; 8])>> {
    let dtype = match param {
        Param::Tensor(_) => return Ok(None),
        Param::Int => Dtype::I64,
        Param::Float => Dtype::F64,
        Param::Bool => Dtype::Bool,
        // A truth value is an integer of Python's.
        Param::Either(_) if !(object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>()) => {
            return Ok(None);
        }
        Param::Either(dtype) => dtype,
    };
    let bytes = match dtype {
        Dtype::I64 => object.extract::<i64>()?.to_ne_bytes(),
        Dtype::F64 => object.extract::<f64>()?.to_ne_bytes(),
        Dtype::Bool => u64::from(object.extract::<bool>()?).to_le_bytes(),
        _ => return Err(PyTypeError::new_err(format!("expected a tensor of {dtype}"))),
    };
    Ok(Some((dtype, bytes)))
}

#[pymethods]
impl CompiledModel {
    /// Runs the model on a list of tensors and numbers.
    fn __call__<'py>(&self, py: Python<'py>, args: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
        let held = self.take(args)?;
        let arguments = held.iter().zip(&self.params).map(|(held, &param)| held.argument(param));
        let inputs = arguments.collect::<PyResult<Vec<_>>>()?;
        let mut collected = Collected {
            library: &self.library,
            exchanges: &self.exchanges,
            args: args.clone().unbind(),
            taken: &self.taken,
            values: Vec::with_capacity(self.results),
            error: None,
            stream: self.stream(py)?,
        };
        let outcome = py.detach(|| {
            self.settle();
            self.compiled.call(&inputs, &mut collected)
        });
        if let Some(error) = collected.error {
            return Err(error);
        }
        // Of a program that did not fail, nobody is interested in what an earlier one left.
        let raised = raised();
        outcome.map_err(|error| match raised {
            Some(raised) => errors::noted(py, raised, &error),
            None => errors::raise(&error),
        })?;
        // Once for each result: what is returned twice, or beside a view of it, is one memory.
        for (value, layout) in collected.values.iter_mut().zip(&self.restrided) {
            if let (Some(value), Some(layout)) = (value, layout) {
                *value = layout.copy(&self.library, value.bind(py))?.unbind();
            }
        }
        let mut values = Values { args, results: collected.values, hosted: HashMap::new() };
        for &at in &self.hosted {
            let result = self.value(py, &Returned::Result(at), &values)?;
            let copy = self.library.on_host.bind(py).call1((result,))?.unbind();
            values.hosted.insert(at, copy);
        }
        let returned = self.returned.iter().map(|what| self.value(py, what, &values));
        PyList::new(py, returned.collect::<PyResult<Vec<_>>>()?)
    }

    /// Names of what a call takes.
    #[getter]
    fn inputs(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Names of what a call returns.
    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.output_names.clone()
    }

    /// Seconds that each stage of the compilation took, in order.
    #[getter]
    fn timings(&self) -> Vec<(String, f64)> {
        let timings = self.compiled.timings.iter();
        timings.map(|timing| (timing.name.clone(), timing.time.as_secs_f64())).collect()
    }

    /// Operators that the host runs: name, calls in one call of the model, the user's line.
    #[getter]
    fn host_operators(&self) -> Vec<(String, usize, Option<String>)> {
        let warnings = self.compiled.warnings.iter();
        warnings.map(|warning| (warning.op.clone(), warning.count, warning.source.clone())).collect()
    }

    /// The same, whatever there are warnings of: name, calls in one call of the model, the user's lines.
    #[getter]
    fn fallbacks(&self) -> Vec<(String, usize, Vec<String>)> {
        let program = self.compiled.texts.realized.as_ref().map(|realized| &realized.program);
        let operators = program.map_or_else(Vec::new, litz::host_operators);
        operators.into_iter().map(|operator| (operator.op, operator.count, operator.sources)).collect()
    }

    /// What looking for a faster schedule gave: how many times as fast a call is, candidates that were timed, and kept; or why it could
    /// not be done.
    #[getter]
    fn tuned(&self) -> Option<(f64, usize, usize, Option<String>)> {
        self.tuned.as_ref().map(|tuned| match tuned {
            Ok(tuned) => (tuned.gain, tuned.tried, tuned.kept, None),
            Err(why) => (1.0, 0, 0, Some(why.clone())),
        })
    }

    /// What the model's file, or its graph, calls it.
    #[getter(name)]
    fn get_name(&self) -> String {
        self.name().to_owned()
    }

    /// A stage's text: `graph`, `loops`, `schedule`, `kernel` or `program`. Where the cache had the compilation, only the last two are
    /// there.
    fn text(&self, stage: &str) -> PyResult<Option<String>> {
        let stage = Stage::from_name(stage).ok_or_else(|| PyTypeError::new_err("no such stage"))?;
        let texts = &self.compiled.texts;
        Ok(match stage {
            Stage::Graph => texts.graph.as_ref().map(ToString::to_string),
            Stage::Loops => texts.loops.as_ref().map(ToString::to_string),
            Stage::Schedule => texts.schedule.as_ref().map(ToString::to_string),
            Stage::Kernel => texts
                .realized
                .as_ref()
                .map(|realized| realized.kernels.iter().map(ToString::to_string).collect::<String>()),
            Stage::Program => texts.realized.as_ref().map(|realized| realized.program.to_string()),
        })
    }

    /// What calls have done so far.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = self.compiled.statistics();
        let dict = PyDict::new(py);
        dict.set_item("calls", statistics.calls)?;
        dict.set_item("plans", statistics.plans)?;
        dict.set_item("peak_bytes", statistics.peak_bytes)?;
        dict.set_item("kept_bytes", statistics.kept_bytes)?;
        let is_from_cache = self.made_of.is_some() && self.compiled.is_from_cache();
        dict.set_item("cache_hits", u64::from(is_from_cache))?;
        let kernels = self.compiled.texts.realized.as_ref();
        dict.set_item("kernels", kernels.map_or(0, |realized| realized.kernels.len()))?;
        dict.set_item("launches", kernels.map_or(0, |realized| launches(&realized.program)))?;
        let calls = PyDict::new(py);
        for host in statistics.host_calls {
            calls.set_item(host.op, (host.calls, host.time.as_secs_f64(), host.bytes))?;
        }
        dict.set_item("host_calls", calls)?;
        Ok(dict)
    }

    /// Bytes that a call moves, by the sizes that the graph was traced with; none of a program from a cache or a file.
    fn bytes_moved(&self) -> Option<i64> {
        let Texts { loops, schedule, .. } = &self.compiled.texts;
        Some(explain::call_bytes(loops.as_ref()?, schedule.as_ref()?))
    }

    /// Writes the program with its machine code to a file, which `litz_runtime::artifact::Artifact` runs.
    fn save(&self, path: std::path::PathBuf) -> PyResult<()> {
        self.compiled.save(path).map_err(|error| errors::raise(&error))
    }
}

/// What the values of a call are made of.
struct Values<'a, 'py> {
    args: &'a Bound<'py, PyList>,
    results: Vec<Option<Py<PyAny>>>,
    /// Copies of results in the host's memory.
    hosted: HashMap<usize, Py<PyAny>>,
}

impl CompiledModel {
    fn value<'py>(
        &self,
        py: Python<'py>,
        what: &Returned,
        values: &Values<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = |value: Option<&Py<PyAny>>| {
            value.map_or_else(|| py.None().into_bound(py), |value| value.bind(py).clone())
        };
        Ok(match what {
            Returned::Result(at) => given(values.results.get(*at).and_then(Option::as_ref)),
            Returned::Host(at) => given(values.hosted.get(at)),
            Returned::Argument(at) => values.args.get_item(*at)?,
            Returned::Constant(value) => value.bind(py).clone(),
            Returned::Tuple(those) => {
                let those = those.iter().map(|what| self.value(py, what, values));
                PyTuple::new(py, those.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Returned::View { of, layout } => {
                let given = [&**of].into_iter().chain(layout);
                let given = given.map(|what| self.value(py, what, values));
                self.library.view.bind(py).call1(PyTuple::new(py, given.collect::<PyResult<Vec<_>>>()?)?)?
            }
        })
    }
}
