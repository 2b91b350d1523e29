//! Lets Python's operators, those of PyTorch's dispatcher, compute what Litz does not have.

use std::cell::RefCell;

use litz::{Host, HostArg, HostError, HostResult};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList, PyString};

use crate::tensors::show;

/// A Python object with the methods `declaration(op) -> str | None` and `call(op, args, results, is_wanted)`.
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

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        Python::attach(|py| {
            let items = args.iter().map(|arg| object(py, arg)).collect::<PyResult<Vec<_>>>()?;
            let wanted = results.iter_mut().map(|result| {
                if !result.is_wanted() {
                    return Ok(py.None().into_bound(py));
                }
                let tensor = result.tensor();
                show(py, tensor.data(), tensor.dtype(), tensor.sizes(), tensor.strides())
            });
            let wanted = PyList::new(py, wanted.collect::<PyResult<Vec<_>>>()?)?;
            self.0.bind(py).call_method1("call", (op, PyList::new(py, items)?, wanted))?;
            for result in results.iter_mut().filter(|result| result.is_wanted()) {
                let elements = result.tensor().sizes().iter().product();
                result.note_written(elements);
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

/// An argument as Python gets it: element types, layouts and memory formats by PyTorch's numbers for them.
fn object<'py>(py: Python<'py>, arg: &HostArg<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match arg {
        HostArg::None => py.None().into_bound(py),
        HostArg::Tensor(tensor) => show(py, tensor.data(), tensor.dtype(), tensor.sizes(), tensor.strides())?,
        HostArg::List(list) => {
            let items = list.items().iter().map(|item| object(py, item)).collect::<PyResult<Vec<_>>>()?;
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
