//! Raises Litz's errors as Python's exceptions.

use litz::Error;
use litz_import::ImportError;
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

create_exception!(litz, LitzError, PyRuntimeError, "Anything that Litz raises.");
create_exception!(
    litz,
    UnsupportedError,
    LitzError,
    "The model uses what Litz does not have; all of it is listed."
);
create_exception!(litz, InvalidError, LitzError, "The model, the text or an option is invalid.");
create_exception!(
    litz,
    CacheError,
    InvalidError,
    "The folder that compilations are kept in is one that others may write to."
);
create_exception!(
    litz,
    RunError,
    LitzError,
    "A call failed: its arguments do not fit, or an index is out of range."
);
create_exception!(
    litz,
    CheckError,
    RunError,
    "Sizes or values are none that the program is for; nothing has been written."
);
create_exception!(litz, InternalError, LitzError, "A mistake of Litz, with a file that shows it.");

/// An exception that an operator of the host has raised, with a note that says which operator it was, and where the user's program
/// calls it.
pub fn noted(py: Python<'_>, raised: PyErr, error: &Error) -> PyErr {
    if let Error::Run(litz_runtime::RunError::Host { op, source_line, .. }) = error {
        let at = source_line.as_deref().map_or_else(String::new, |line| format!(" at {line}"));
        // Python 3.10 has no notes.
        let _ = raised.value(py).call_method1("add_note", (format!("litz: in {op}{at}"),));
    }
    raised
}

/// The exception for an error.
pub fn raise(error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Unsupported(_)
        | Error::Limit(_)
        | Error::Import(
            ImportError::UnknownOps { .. }
            | ImportError::UnsupportedType { .. }
            | ImportError::UnsupportedExpression { .. },
        ) => UnsupportedError::new_err(message),
        Error::Invalid(_) | Error::Import(_) | Error::Io { .. } | Error::Artifact(_) => {
            InvalidError::new_err(message)
        }
        Error::Cache(_) => CacheError::new_err(message),
        Error::Stopped => LitzError::new_err(message),
        Error::Run(
            litz_runtime::RunError::CheckFailed { .. }
            | litz_runtime::RunError::SizeOutOfRange { .. }
            | litz_runtime::RunError::WrongSize { .. }
            | litz_runtime::RunError::WrongRank { .. }
            | litz_runtime::RunError::WrongDtype { .. },
        ) => CheckError::new_err(message),
        Error::Run(_) => RunError::new_err(message),
        Error::Bug { .. } => InternalError::new_err(message),
    }
}
