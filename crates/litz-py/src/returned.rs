//! What a call returns, in terms of the results of its program.

use std::collections::BTreeSet;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A value that a call returns.
pub enum Returned {
    /// A result of the program.
    Result(usize),
    /// An argument, as it is.
    Argument(usize),
    /// Nothing, or a number that is known.
    Constant(Py<PyAny>),
    /// A tuple of such values.
    Tuple(Vec<Returned>),
    /// A copy of a result in the host's memory, which all that is to be there has in common.
    Host(usize),
    /// A tensor that shares the memory of another, and what the library is told of it: sizes, strides and the offset from there, and where
    /// it has another type that type.
    View { of: Box<Returned>, layout: Vec<Returned> },
}

impl Returned {
    /// What is said so in Python: see [`crate::compiled::CompiledModel::new`].
    ///
    /// # Errors
    /// `TypeError`, where it says something else.
    pub fn of(what: &Bound<'_, PyTuple>) -> PyResult<Returned> {
        let kind: String = what.get_item(0)?.extract()?;
        let value = what.get_item(1)?;
        Ok(match &*kind {
            "result" => Returned::Result(value.extract()?),
            "argument" => Returned::Argument(value.extract()?),
            "constant" => Returned::Constant(value.unbind()),
            "tuple" => Returned::Tuple(Returned::each(value.cast::<PyTuple>()?)?),
            "host" => Returned::Host(value.extract()?),
            "view" => Returned::View {
                of: Box::new(Returned::of(value.cast::<PyTuple>()?)?),
                layout: Returned::each(&what.get_slice(2, what.len()))?,
            },
            _ => return Err(PyTypeError::new_err(format!("no such result: {kind}"))),
        })
    }

    /// Notes the results of which copies are to be in the host's memory.
    pub fn note_hosted(&self, hosted: &mut BTreeSet<usize>) {
        match self {
            Returned::Host(at) => drop(hosted.insert(*at)),
            Returned::Tuple(those) => those.iter().for_each(|what| what.note_hosted(hosted)),
            Returned::View { of, .. } => of.note_hosted(hosted),
            Returned::Result(_) | Returned::Argument(_) | Returned::Constant(_) => {}
        }
    }

    fn each(those: &Bound<'_, PyTuple>) -> PyResult<Vec<Returned>> {
        those.iter().map(|what| Returned::of(what.cast::<PyTuple>()?)).collect()
    }
}
