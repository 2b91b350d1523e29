//! Lets Python's operators, those of PyTorch's dispatcher, compute what Litz does not have.

use std::cell::RefCell;
use std::ops::Range;

use litz::{Host, HostArg, HostError, HostResult};
use litz_ir::Dtype;
use litz_runtime::dlpack::{CPU, CUDA, Device};
use litz_runtime::host::{HostDevice, HostTensor, ScalarType};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList, PyString, PyTuple};

use crate::tensors::show;

/// A Python object with the methods `declaration(op) -> str | None` and `call(op, args, results) -> list`, which gives the tensors whose sizes
/// the operator decides.
pub struct PythonHost(pub Py<PyAny>);

thread_local! {
    /// The exception that ended this thread's call of an operator, which ends the call of the program that is running.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Takes the exception that an operator has raised in this thread, if any.
pub fn raised() -> Option<PyErr> {
    RAISED.take()
}

impl Host for PythonHost {
    fn declaration(&self, op: &str) -> Option<String> {
        Python::attach(|py| self.0.bind(py).call_method1("declaration", (op,)).ok()?.extract().ok()?)
    }

    /// PyTorch works on a GPU on the stream that programs of its tensors run on.
    fn takes_device_memory(&self) -> bool {
        true
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        Python::attach(|py| {
            let shared = Shared::of(py, args)?;
            let items = args.iter().map(|arg| object(py, arg, &shared)).collect::<PyResult<Vec<_>>>()?;
            let wanted = results.iter_mut().map(|result| {
                if !result.is_wanted() {
                    return Ok(py.None().into_bound(py));
                }
                if let Some(dtype) = result.decides() {
                    return tagged(py, "sizes", ScalarType::of(dtype).0);
                }
                let tensor = result.tensor();
                shown(py, tensor)
            });
            let wanted = PyList::new(py, wanted.collect::<PyResult<Vec<_>>>()?)?;
            let given = self.0.bind(py).call_method1("call", (op, PyList::new(py, items)?, wanted))?;
            let mut given = given.try_iter()?;
            for result in results.iter_mut().filter(|result| result.is_wanted()) {
                match result.decides() {
                    Some(_) => {
                        let value =
                            given.next().ok_or_else(|| PyRuntimeError::new_err("a result is missing"))??;
                        keep(py, &value, result)?;
                    }
                    None => {
                        let elements = result.tensor().sizes().iter().product();
                        result.note_written(elements);
                    }
                }
            }
            Ok(())
        })
        .map_err(|error: PyErr| {
            let message = error.to_string();
            RAISED.set(Some(error));
            message.into()
        })
    }
}

/// Where a tensor is, as Python knows it.
fn place(tensor: &HostTensor<'_>) -> Device {
    match tensor.device() {
        HostDevice::CPU => CPU,
        HostDevice { index, .. } => Device { kind: CUDA, index: index.cast_signed() },
    }
}

/// A tensor as one of PyTorch's, where it is.
fn shown<'py>(py: Python<'py>, tensor: &HostTensor<'_>) -> PyResult<Bound<'py, PyAny>> {
    show(py, (place(tensor), tensor.data()), tensor.dtype(), tensor.sizes(), tensor.strides())
}

/// Copies a tensor whose sizes an operator has decided.
fn keep(py: Python<'_>, value: &Bound<'_, PyAny>, result: &mut HostResult<'_>) -> PyResult<()> {
    let sizes: Vec<usize> = value.getattr("shape")?.extract()?;
    let failed = |error: HostError| PyRuntimeError::new_err(error.to_string());
    let target = result.allocate(&sizes).map_err(failed)?;
    let (dtype, strides) = (target.dtype(), target.strides().to_vec());
    let data = target.bytes_mut().map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr);
    show(py, (CPU, data), dtype, &sizes, &strides)?.call_method1("copy_", (value,))?;
    Ok(())
}

/// Memory that several arguments of a call have elements of, each piece as one tensor: PyTorch knows tensors that overlap by their storages.
struct Shared<'py>(Vec<(Range<usize>, Bound<'py, PyAny>)>);

impl<'py> Shared<'py> {
    fn of(py: Python<'py>, args: &[HostArg<'_>]) -> PyResult<Shared<'py>> {
        let mut found = Vec::new();
        collect_shared(args, &mut found);
        found.sort_by_key(|(range, _)| range.start);
        // All tensors of a call are on one device.
        let mut pieces: Vec<(Range<usize>, Dtype, Device)> = Vec::new();
        for (range, tensor) in found {
            match pieces.last_mut().filter(|(last, ..)| range.start < last.end) {
                Some((last, ..)) => last.end = last.end.max(range.end),
                None => pieces.push((range, tensor.dtype(), place(tensor))),
            }
        }
        let whole = |(range, dtype, device): (Range<usize>, Dtype, Device)| {
            let elements = range.len() / dtype.size();
            let start = std::ptr::with_exposed_provenance_mut(range.start);
            Ok((range, show(py, (device, start), dtype, &[elements], &[1])?))
        };
        pieces.into_iter().map(whole).collect::<PyResult<_>>().map(Shared)
    }

    /// A tensor as a view of the piece that it is in.
    fn part(&self, py: Python<'py>, tensor: &HostTensor<'_>) -> PyResult<Bound<'py, PyAny>> {
        let (sizes, strides) = (tensor.sizes(), tensor.strides());
        let address = tensor.data().expose_provenance();
        let Some((range, whole)) = self.0.iter().find(|(range, _)| range.contains(&address)) else {
            return shown(py, tensor);
        };
        let offset = (address - range.start) / tensor.dtype().size();
        whole.call_method1("as_strided", (PyTuple::new(py, sizes)?, PyTuple::new(py, strides)?, offset))
    }
}

/// From where to where shared tensors with elements lie.
fn collect_shared<'a>(args: &'a [HostArg<'_>], found: &mut Vec<(Range<usize>, &'a HostTensor<'a>)>) {
    for arg in args {
        match arg {
            HostArg::Tensor(tensor) if tensor.is_shared() && !tensor.sizes().contains(&0) => {
                let dims = tensor.sizes().iter().zip(tensor.strides());
                let last: usize = dims.map(|(&size, &stride)| (size - 1) * stride).sum();
                let start = tensor.data().expose_provenance();
                found.push((start..start + (last + 1) * tensor.dtype().size(), tensor));
            }
            HostArg::List(list) => collect_shared(list.items(), found),
            HostArg::Tensor(_)
            | HostArg::None
            | HostArg::Int(_)
            | HostArg::Float(_)
            | HostArg::Bool(_)
            | HostArg::Complex(_)
            | HostArg::Str(_)
            | HostArg::Dtype(_)
            | HostArg::Device(_)
            | HostArg::Strided
            | HostArg::MemoryFormat(_) => {}
        }
    }
}

/// An argument as Python gets it: element types, layouts and memory formats by PyTorch's numbers for them.
fn object<'py>(py: Python<'py>, arg: &HostArg<'_>, shared: &Shared<'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match arg {
        HostArg::None => py.None().into_bound(py),
        HostArg::Tensor(tensor) if tensor.is_shared() => shared.part(py, tensor)?,
        HostArg::Tensor(tensor) => shown(py, tensor)?,
        HostArg::List(list) => {
            let items =
                list.items().iter().map(|item| object(py, item, shared)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        HostArg::Int(value) => value.into_pyobject(py)?.into_any(),
        HostArg::Float(value) => value.into_pyobject(py)?.into_any(),
        HostArg::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        HostArg::Complex([re, im]) => PyComplex::from_doubles(py, *re, *im).into_any(),
        HostArg::Str(text) => PyString::new(py, text.as_str()).into_any(),
        HostArg::Dtype(dtype) => tagged(py, "dtype", dtype.0)?,
        HostArg::Device(_) => tagged(py, "device", 0)?,
        HostArg::Strided => tagged(py, "layout", 0)?,
        HostArg::MemoryFormat(format) => tagged(py, "memory_format", *format)?,
    })
}

/// What Python has an object of its own for: `("dtype", 6)`.
fn tagged<'py>(py: Python<'py>, what: &str, number: u32) -> PyResult<Bound<'py, PyAny>> {
    Ok((what, number).into_pyobject(py)?.into_any())
}
