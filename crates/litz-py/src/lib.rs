//! Gives Python the compiler: the module `litz._litz`, which the package `litz` wraps.

mod compiled;
mod errors;
mod host;
mod kernels;
mod openmp;
mod options;
mod returned;
mod tensors;
mod tuning;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

use litz::report::page;
use litz::{Compiled, Model, Tensor, Text};
use litz_import::srepr;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use compiled::{CompiledModel, Library};
use errors::{CacheError, CheckError, InternalError, InvalidError, LitzError, RunError, UnsupportedError};
use options::Chosen;
use tensors::{Exchanges, Held};

/// Compiles the text of a graph. `constants` are tensors by the names that the text has for them: they are held, and must not change. Without
/// `donates`, calls leave the memory of all arguments as it is, those among it that the text says are donated.
#[pyfunction]
#[pyo3(signature = (text, library, *, constants=None, taken=None, returned=None, options=None, donates=true))]
#[expect(clippy::too_many_arguments, reason = "they have names where it is called")]
fn compile_graph(
    py: Python<'_>,
    text: &str,
    library: &Bound<'_, PyAny>,
    constants: Option<&Bound<'_, PyDict>>,
    taken: Option<Vec<usize>>,
    returned: Option<Vec<Bound<'_, PyTuple>>>,
    options: Option<&Bound<'_, PyDict>>,
    donates: bool,
) -> PyResult<CompiledModel> {
    let chosen = Chosen::of(options)?;
    let library = Library::of(library)?;
    let mut graph = match Text::parse(text).map_err(|error| errors::raise(&error))? {
        Text::Graph(graph) => graph,
        Text::Loops(_) | Text::Schedule(..) | Text::Kernels(_) | Text::Program(_) => {
            return Err(InvalidError::new_err("expected the text of a graph"));
        }
    };
    if !donates {
        graph.donated.clear();
    }
    let mut weights = HashMap::new();
    for (name, object) in constants.into_iter().flatten() {
        weights.insert(name.extract()?, held(&object)?);
    }
    let model = Model::from_graph(graph, weights).map_err(|error| errors::raise(&error))?;
    CompiledModel::new(py, model, chosen, taken, returned, library)
}

/// Compiles an archive that `torch.export.save` wrote.
#[pyfunction]
#[pyo3(signature = (path, library, *, options=None))]
fn compile_file(
    py: Python<'_>,
    path: PathBuf,
    library: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<CompiledModel> {
    let chosen = Chosen::of(options)?;
    let library = Library::of(library)?;
    let model =
        py.detach(|| Model::open_for(path, &chosen.options)).map_err(|error| errors::raise(&error))?;
    CompiledModel::new(py, model, chosen, None, None, library)
}

/// Writes the text of a graph to a file, and tensors by name beside it: what `litz minify` takes.
#[pyfunction]
fn write_case(path: PathBuf, text: &str, tensors: &Bound<'_, PyDict>) -> PyResult<()> {
    let io = |error: &dyn std::fmt::Display| {
        LitzError::new_err(format!("cannot write {}: {error}", path.display()))
    };
    std::fs::write(&path, text).map_err(|error| io(&error))?;
    let mut named = litz::tensors::Named::new();
    for (name, object) in tensors {
        named.insert(name.extract()?, held(&object)?);
    }
    litz::tensors::write(&litz::case::beside(&path), &named).map_err(|error| io(&error))
}

/// Reads a program that `Compiled.save` wrote.
#[pyfunction]
#[pyo3(signature = (path, library, *, options=None))]
fn load(
    py: Python<'_>,
    path: PathBuf,
    library: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<CompiledModel> {
    let Chosen { options, .. } = Chosen::of(options)?;
    let library = Library::of(library)?;
    let compiled = py.detach(|| Compiled::load(path, &options)).map_err(|error| errors::raise(&error))?;
    Ok(CompiledModel::loaded(compiled, library))
}

/// Writes the page about compiled models, each with a title of its own. Calls take `args`, where there is one model and some are given,
/// else made-up inputs.
#[pyfunction]
#[pyo3(signature = (path, title, models, *, notes=Vec::new(), args=None, calls=20))]
fn write_report(
    py: Python<'_>,
    path: PathBuf,
    title: &str,
    models: Vec<(String, PyRef<'_, CompiledModel>)>,
    notes: Vec<String>,
    args: Option<&Bound<'_, PyList>>,
    calls: usize,
) -> PyResult<()> {
    let args = args.filter(|_| models.len() == 1);
    let one = |(title, model): &(String, PyRef<'_, CompiledModel>)| {
        model.report(py, args, calls).map(|report| report.titled(title))
    };
    let reports = models.iter().map(one).collect::<PyResult<Vec<_>>>()?;
    Ok(std::fs::write(path, page(title, &reports, &notes))?)
}

/// Whether Litz has an operator, such as `aten.add.Tensor`.
#[pyfunction]
fn has_operator(name: &str) -> bool {
    litz::has_operator(name)
}

/// The text of an integer expression of sympy's, which is given as `srepr` prints it; none where it has no exact integer meaning.
#[pyfunction]
fn expression(text: &str) -> Option<String> {
    Some(srepr::parse_expr(text, &[]).ok()?.to_string())
}

/// As `expression`, of a condition: texts of clauses that hold together.
#[pyfunction]
fn condition(text: &str) -> Option<Vec<String>> {
    Some(srepr::parse_condition(text, &[]).ok()?.iter().map(ToString::to_string).collect())
}

/// The folder that compilations are kept in; none where none is kept.
#[pyfunction]
#[pyo3(signature = (*, options=None))]
fn cache_folder(options: Option<&Bound<'_, PyDict>>) -> PyResult<Option<PathBuf>> {
    Ok(Chosen::of(options)?.options.cache)
}

/// The folder that compilations are kept in, how many files of them there are, and their bytes; none where none is kept.
#[pyfunction]
#[pyo3(signature = (*, options=None))]
fn cache_info(options: Option<&Bound<'_, PyDict>>) -> PyResult<Option<(PathBuf, usize, u64, u64)>> {
    let Chosen { options, .. } = Chosen::of(options)?;
    let found = options.cache_info().map_err(|error| errors::raise(&error.into()))?;
    Ok(options.cache.zip(found).map(|(folder, info)| (folder, info.entries, info.bytes, options.cache_bytes)))
}

/// Bytes that a Python object owns.
struct Foreign {
    bytes: *const u8,
    len: usize,
    /// Dropped when the interpreter is free to; never touched otherwise.
    _owner: Mutex<Py<PyAny>>,
}

// SAFETY: the bytes are only read, and the object is only dropped, which takes the interpreter's lock.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the owner keeps so many bytes there.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len) }
    }
}

/// A tensor of Python's as a constant, which holds the object.
fn held(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let held = Held::new(object, &Exchanges::default())?;
    if let Some(gpu) = held.gpu() {
        return Err(InvalidError::new_err(format!(
            "expected a tensor in the host's memory, found one on GPU {gpu}"
        )));
    }
    let (sizes, strides) = (held.sizes().to_vec(), held.strides().to_vec());
    let elements = if sizes.contains(&0) {
        0
    } else {
        1 + sizes.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>()
    };
    let (bytes, len) = (held.data().cast_const(), elements * held.dtype().size());
    let owner = Foreign { bytes, len, _owner: Mutex::new(object.clone().unbind()) };
    Tensor::from_shared(held.dtype(), &sizes, &strides, std::sync::Arc::new(owner), 0)
        .map_err(|error| InvalidError::new_err(error.to_string()))
}

#[pymodule]
fn _litz(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<CompiledModel>()?;
    module.add_function(wrap_pyfunction!(compile_graph, module)?)?;
    module.add_function(wrap_pyfunction!(compile_file, module)?)?;
    module.add_function(wrap_pyfunction!(load, module)?)?;
    module.add_function(wrap_pyfunction!(write_case, module)?)?;
    module.add_function(wrap_pyfunction!(write_report, module)?)?;
    module.add_function(wrap_pyfunction!(has_operator, module)?)?;
    module.add_function(wrap_pyfunction!(expression, module)?)?;
    module.add_function(wrap_pyfunction!(condition, module)?)?;
    module.add_function(wrap_pyfunction!(cache_folder, module)?)?;
    module.add_function(wrap_pyfunction!(cache_info, module)?)?;
    module.add_class::<kernels::Kernels>()?;
    module.add_function(wrap_pyfunction!(kernels::routine, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::number, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::module_of, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::listing, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::steps, module)?)?;
    module.add_function(wrap_pyfunction!(options::settings, module)?)?;
    module.add_function(wrap_pyfunction!(options::check_setting, module)?)?;
    module.add("LitzError", py.get_type::<LitzError>())?;
    module.add("UnsupportedError", py.get_type::<UnsupportedError>())?;
    module.add("InvalidError", py.get_type::<InvalidError>())?;
    module.add("CacheError", py.get_type::<CacheError>())?;
    module.add("RunError", py.get_type::<RunError>())?;
    module.add("CheckError", py.get_type::<CheckError>())?;
    module.add("InternalError", py.get_type::<InternalError>())?;
    module.add("COMPILER", litz::cache::COMPILER)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
