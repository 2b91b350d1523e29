//! Gives Python what modules that `litz compile --to fx` and `--to python` write need: launches of kernels, routines, and the modules.

use std::ops::Range;

use litz::{Form, Target, Tensor, Text, load_kernels};
use litz_ir::Dtype;
use litz_ir::kernel::Kernel;
use litz_ir::program::{Program, ProgramStep, accesses_of};
use litz_runtime::device::MemView;
use litz_runtime::program::Launcher;
use litz_runtime::routines::{self, Read, Write};
use litz_runtime::weights::Weights;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::compiled::CompiledModel;
use crate::errors::{self, InvalidError, UnsupportedError};
use crate::options::Chosen;
use crate::tensors::{Exchanges, Held};

/// Kernels of a text, ready to be launched.
#[pyclass(module = "litz", frozen)]
pub struct Kernels {
    launcher: Launcher,
    exchanges: Exchanges,
}

#[pymethods]
impl Kernels {
    /// Makes code of the kernels, or with the option `reference` has them interpreted.
    #[new]
    #[pyo3(signature = (text, *, options=None))]
    fn new(py: Python<'_>, text: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Kernels> {
        let Chosen { options, .. } = Chosen::of(options)?;
        let launcher = py.detach(|| load_kernels(text, &options)).map_err(|error| errors::raise(&error))?;
        Ok(Kernels { launcher, exchanges: Exchanges::default() })
    }

    /// Runs a kernel on vectors: those that it reads, and those that it writes, each in the order of its parameters.
    fn launch(
        &self,
        py: Python<'_>,
        kernel: &str,
        reads: &Bound<'_, PyList>,
        writes: &Bound<'_, PyList>,
        sizes: Vec<i64>,
    ) -> PyResult<()> {
        let is_written = self.launcher.writes(kernel).unwrap_or_default();
        let memories = Memories::new(reads, writes, &self.exchanges)?;
        let (mut reads, mut writes) = (memories.reads.iter(), memories.writes.iter());
        let views = is_written.iter().map(|is_written| {
            let next = if *is_written { writes.next() } else { reads.next() };
            // SAFETY: Python holds the objects, whose memory is there for as long, and `Memories` found what is written apart.
            next.map(|memory| unsafe { memory.view(*is_written) })
        });
        let views: Option<Vec<_>> = views.collect();
        let mut views =
            views.filter(|_| reads.next().is_none() && writes.next().is_none()).ok_or_else(|| {
                let expected = is_written.iter().filter(|is_written| **is_written).count();
                let (of, read) = (is_written.len(), is_written.len() - expected);
                InvalidError::new_err(match of {
                    0 => format!("there is no kernel @{kernel}, or it takes nothing"),
                    _ => {
                        format!("kernel @{kernel}: expected {read} memories to read and {expected} to write")
                    }
                })
            })?;
        let outcome = py.detach(|| self.launcher.launch(kernel, &mut views, &sizes));
        outcome.map_err(|error| errors::raise(&error.into()))
    }
}

/// Runs a routine of the runtime on vectors. `dtypes` names the types of their elements where the library has others with the same bits.
#[pyfunction]
#[pyo3(signature = (name, reads, writes, ints, *, dtypes=None, message=None))]
pub fn routine(
    py: Python<'_>,
    name: &str,
    reads: &Bound<'_, PyList>,
    writes: &Bound<'_, PyList>,
    ints: Vec<i64>,
    dtypes: Option<Vec<String>>,
    message: Option<String>,
) -> PyResult<()> {
    let Some(routine) = routines::routine(name) else {
        return Err(InvalidError::new_err(format!("there is no routine {name}")));
    };
    let mut memories = Memories::new(reads, writes, &Exchanges::default())?;
    for (memory, name) in memories.reads.iter_mut().chain(&mut memories.writes).zip(dtypes.iter().flatten()) {
        memory.dtype = dtype(name).filter(|dtype| dtype.size() == memory.dtype.size()).ok_or_else(|| {
            InvalidError::new_err(format!("elements of {} are none of {name}", memory.dtype))
        })?;
    }
    let read = |memory: &Memory| {
        // SAFETY: as for launches.
        let bytes = unsafe { memory.bytes() };
        Read { bytes, dtype: memory.dtype }
    };
    let write = |memory: &Memory| {
        // SAFETY: as for launches.
        let bytes = unsafe { memory.bytes_mut() };
        Write { bytes, dtype: memory.dtype }
    };
    let given: Vec<_> = memories.reads.iter().map(read).collect();
    let mut made: Vec<_> = memories.writes.iter().map(write).collect();
    let outcome = py.detach(|| routine(&given, &mut made, &ints));
    outcome.map_err(|error| errors::raise(&error.with_message(message.as_deref().unwrap_or_default()).into()))
}

/// The number that the bytes of an element are.
#[pyfunction]
pub fn number(name: &str, bytes: &[u8]) -> PyResult<f64> {
    let dtype = dtype(name).ok_or_else(|| InvalidError::new_err(format!("there is no type {name}")))?;
    let element =
        Tensor::from_bytes(dtype, &[], bytes).map_err(|error| InvalidError::new_err(error.to_string()))?;
    Ok(element.to_f64()[0])
}

fn dtype(name: &str) -> Option<Dtype> {
    Dtype::from_name(name)
}

/// The module of a compiled model, `form` being `fx` or `python`, and the constants that it needs by their names.
#[pyfunction]
pub fn module_of<'py>(
    py: Python<'py>,
    model: PyRef<'_, CompiledModel>,
    form: &str,
) -> PyResult<(String, Bound<'py, PyDict>)> {
    let (Some((source, options)), Some((program, kernels))) = (model.made_of(), model.program()) else {
        let message = "a saved program does not say which target its kernels are for: compile the model";
        return Err(UnsupportedError::new_err(message));
    };
    let backend = litz::backend(options).map_err(|error| errors::raise(&error))?;
    let text = litz::listing(self::form(form)?, program, kernels, backend.target());
    let text = text.map_err(|diags| errors::raise(&litz::Error::Unsupported(diags)))?;
    let constants = PyDict::new(py);
    for constant in &program.consts {
        let found = source.get(&constant.name);
        let found =
            found.ok_or_else(|| InvalidError::new_err(format!("there is no constant {}", constant.name)))?;
        constants.set_item(&constant.name, model.library().copied(py, &found)?)?;
    }
    Ok((text, constants))
}

/// The module of a program, `form` being `fx` or `python`, of the texts of the program and of its kernels, which were made for `target`.
#[pyfunction]
pub fn listing(form: &str, program: &str, kernels: &str, target: &str) -> PyResult<String> {
    let form = self::form(form)?;
    let (program, kernels) = texts(program, kernels)?;
    let target: Target = target.parse().map_err(|error| InvalidError::new_err(format!("{error}")))?;
    let text = litz::listing(form, &program, &kernels, &target);
    text.map_err(|diags| errors::raise(&litz::Error::Unsupported(diags)))
}

fn form(name: &str) -> PyResult<Form> {
    Form::from_name(name)
        .ok_or_else(|| InvalidError::new_err(format!("no such form: {name}; there are fx and python")))
}

/// What the steps of a program do at each call: the kind of each, and the slots that it reads and writes.
#[pyfunction]
pub fn steps(program: &str, kernels: &str) -> PyResult<Vec<(String, Vec<String>, Vec<String>)>> {
    let (program, kernels) = texts(program, kernels)?;
    let accesses = accesses_of(&kernels);
    let step = |step: &ProgramStep| {
        let uses = program.effects(step, &accesses).uses;
        let side = |is_written: bool| {
            let slots = uses.iter().filter(|one| one.access.is_written() == is_written);
            slots.map(|one| program.slots[one.slot].name.clone()).collect()
        };
        (step.kind().to_owned(), side(false), side(true))
    };
    Ok(program.steps.iter().map(step).collect())
}

fn texts(program: &str, kernels: &str) -> PyResult<(Program, Vec<Kernel>)> {
    let parse = |text: &str| Text::parse(text).map_err(|error| errors::raise(&error));
    let kernels = match kernels.trim().is_empty() {
        true => Vec::new(),
        false => match parse(kernels)? {
            Text::Kernels(kernels) => kernels,
            Text::Graph(_) | Text::Loops(_) | Text::Schedule(..) | Text::Program(_) => {
                return Err(InvalidError::new_err("expected the text of kernels"));
            }
        },
    };
    match parse(program)? {
        Text::Program(program) => Ok((program, kernels)),
        Text::Graph(_) | Text::Loops(_) | Text::Schedule(..) | Text::Kernels(_) => {
            Err(InvalidError::new_err("expected the text of a program"))
        }
    }
}

/// Vectors that a launch or a routine is given.
struct Memories {
    reads: Vec<Memory>,
    writes: Vec<Memory>,
}

/// The elements of one, adjacent in the host's memory, for as long as the object is held.
struct Memory {
    start: *mut u8,
    bytes: usize,
    dtype: Dtype,
    _held: Held,
}

impl Memories {
    /// # Errors
    /// Where an object is no vector in the host's memory, one that is written is read-only, or it has bytes of another one.
    fn new(reads: &Bound<'_, PyList>, writes: &Bound<'_, PyList>, known: &Exchanges) -> PyResult<Memories> {
        let all = |list: &Bound<'_, PyList>, is_written: bool| {
            list.iter().map(|object| Memory::new(&object, known, is_written)).collect::<PyResult<Vec<_>>>()
        };
        let (reads, writes) = (all(reads, false)?, all(writes, true)?);
        for (at, one) in writes.iter().enumerate() {
            let mut others = reads.iter().chain(&writes[at + 1..]);
            if others.any(|other| one.meets(other)) {
                return Err(InvalidError::new_err(
                    "memory that is written overlaps other memory of the call",
                ));
            }
        }
        Ok(Memories { reads, writes })
    }
}

impl Memory {
    fn new(object: &Bound<'_, PyAny>, known: &Exchanges, is_written: bool) -> PyResult<Memory> {
        let held = Held::new(object, known)?;
        let is_vector =
            matches!((held.sizes(), held.strides()), ([size], [stride]) if *size <= 1 || *stride == 1);
        if !is_vector || held.gpu().is_some() {
            return Err(InvalidError::new_err("expected a vector of adjacent elements in the host's memory"));
        }
        if is_written && held.is_read_only() {
            return Err(InvalidError::new_err("memory that is written is read-only: pass a copy"));
        }
        let (start, bytes, dtype) = (held.data(), held.sizes()[0] * held.dtype().size(), held.dtype());
        Ok(Memory { start, bytes, dtype, _held: held })
    }

    fn range(&self) -> Range<usize> {
        let start = self.start.addr();
        start..start + self.bytes
    }

    fn meets(&self, other: &Memory) -> bool {
        let (one, other) = (self.range(), other.range());
        !one.is_empty() && !other.is_empty() && one.start < other.end && other.start < one.end
    }

    /// # Safety
    /// The object is held for `'a`, and nobody writes it meanwhile.
    unsafe fn bytes<'a>(&self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the vector has so many bytes there.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// # Safety
    /// As for `bytes`, and nobody reads it meanwhile.
    unsafe fn bytes_mut<'a>(&self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// # Safety
    /// As for `bytes`, or `bytes_mut` where it is written.
    unsafe fn view<'a>(&self, is_written: bool) -> MemView<'a> {
        // SAFETY: the caller's promise.
        unsafe {
            match is_written {
                true => MemView::Write(self.bytes_mut()),
                false => MemView::Read(self.bytes()),
            }
        }
    }
}
