//! Reads the files of `filetests`, and compares what programs give with the numbers that a file expects.

pub mod file;
pub mod numbers;
pub mod settings;

use std::collections::HashMap;

use litz::{Tensor, Value};
use litz_ir::Scalar;
use litz_runtime::RunError;

use file::TestFile;

/// What a program is called with, and what it gives.
#[derive(Clone, Default, Debug)]
pub struct Call {
    /// Inputs, in order.
    pub inputs: Vec<Tensor>,
    /// Outputs, in order.
    pub outputs: Vec<Tensor>,
}

/// Constants by name, and calls. The input `in.0` begins a call.
///
/// # Errors
/// Lines of data that are none.
pub fn data(file: &TestFile) -> Result<(HashMap<String, Tensor>, Vec<Call>), String> {
    let (mut weights, mut calls) = (HashMap::new(), Vec::<Call>::new());
    for (mark, line) in &file.data {
        let malformed =
            || format!("expected `const \"name\"`, `in.0` or `out.0` and a tensor, found `{line}`");
        if let Some(line) = line.strip_prefix("const \"") {
            let (name, tensor) = line.split_once("\" ").ok_or_else(malformed)?;
            weights.insert(name.to_owned(), numbers::parse(tensor)?);
            continue;
        }
        if calls.is_empty() || line.starts_with("in.0 ") {
            calls.push(Call::default());
        }
        let Some(call) = calls.last_mut() else { continue };
        let (name, tensor) = line.split_once(' ').ok_or_else(malformed)?;
        let (prefix, list) = if *mark == '<' { ("in", &mut call.inputs) } else { ("out", &mut call.outputs) };
        if name != format!("{prefix}.{}", list.len()) {
            return Err(malformed());
        }
        list.push(numbers::parse(tensor)?);
    }
    Ok((weights, calls))
}

/// Compares the results of a call with those expected.
///
/// # Errors
/// The first difference, in words.
pub fn same(found: &[Value], expected: &[Tensor]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("expected {} outputs, found {}", expected.len(), found.len()));
    }
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        // A number is as good as a tensor without dimensions.
        let number = match found {
            Value::Scalar(Scalar::Int(value)) => Tensor::scalar(*value).ok(),
            Value::Scalar(Scalar::Float(value)) => Tensor::scalar(*value).ok(),
            Value::Scalar(Scalar::Bool(value)) => Tensor::scalar(*value).ok(),
            Value::Tensor(_) | Value::Text(_) | Value::Nothing => None,
        };
        let found = found.tensor().or(number.as_ref());
        let found = found.ok_or_else(|| format!("out.{i}: expected a tensor, found none"))?;
        numbers::compare(found, expected).map_err(|e| format!("out.{i}: {e}"))?;
    }
    Ok(())
}

/// What the setting `fails` calls a failure.
pub fn slug(error: &RunError) -> &'static str {
    match error {
        RunError::StateLost => "state-lost",
        RunError::WrongCount { .. } => "wrong-count",
        RunError::WrongDtype { .. } => "wrong-dtype",
        RunError::WrongRank { .. } => "wrong-rank",
        RunError::WrongSize { .. } => "wrong-size",
        RunError::SizeOutOfRange { .. } => "size-out-of-range",
        RunError::CheckFailed { .. } => "check-failed",
        RunError::AssertionFailed { .. } => "assertion-failed",
        RunError::BadIndex { .. } => "bad-index",
        RunError::MissingWeight { .. } => "missing-weight",
        RunError::WrongWeight { .. } => "wrong-weight",
        RunError::UnknownRoutine { .. } => "unknown-routine",
        RunError::MissingDevice { .. } => "missing-device",
        RunError::MissingHost { .. } => "missing-host",
        RunError::Host { .. } => "host",
        RunError::Limit(_) => "limit",
        RunError::OutOfMemory(_) => "out-of-memory",
        RunError::Bug { .. } | RunError::NoRoom { .. } => "bug",
        RunError::Memory { .. } => "memory",
        RunError::NotFinite { .. } => "not-finite",
        RunError::Constants(_) => "constants",
    }
}
