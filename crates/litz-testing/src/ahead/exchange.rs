//! Writes calls for the driver, and reads what it has written of their results.

use std::path::Path;
use std::sync::Arc;

use litz::{Tensor, Value};
use litz_ir::{Dtype, Scalar};

use super::{Failed, Outcome, STATUSES, Subject};

/// The calls of all programs, as the driver reads them.
pub(super) fn calls(folder: &Path, subjects: &[Subject]) -> Vec<u8> {
    let mut out = Vec::new();
    number(&mut out, subjects.len());
    for (at, subject) in subjects.iter().enumerate() {
        number(&mut out, at);
        let weights = folder.join(format!("{}.weights", subject.id)).to_string_lossy().into_owned();
        bytes(&mut out, if subject.has_weights { weights.as_bytes() } else { &[] });
        number(&mut out, subject.calls.len());
        for call in &subject.calls {
            number(&mut out, call.len());
            call.iter().for_each(|input| operand(&mut out, input));
        }
    }
    out
}

fn number(out: &mut Vec<u8>, value: usize) {
    out.extend((value as i64).to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len());
    out.extend(bytes);
}

fn operand(out: &mut Vec<u8>, tensor: &Tensor) {
    number(out, Dtype::ALL.iter().position(|dtype| *dtype == tensor.dtype()).unwrap_or(usize::MAX));
    number(out, tensor.sizes().len());
    tensor.sizes().iter().chain(tensor.strides()).for_each(|&size| number(out, size));
    bytes(out, tensor.bytes());
}

/// What the driver has written of programs from `first` on: as many as it came to the end of.
pub(super) fn results(bytes: &[u8], first: usize, counts: &[usize]) -> Vec<Outcome> {
    let mut reader = Reader(bytes);
    let mut outcomes = Vec::new();
    for (at, &count) in counts.iter().enumerate().skip(first) {
        if reader.number() != Some(at) {
            break;
        }
        let Some(calls) = (0..count).map(|_| reader.call()).collect::<Option<Vec<_>>>() else { break };
        outcomes.push(Ok(calls));
    }
    outcomes
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn integer(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn number(&mut self) -> Option<usize> {
        usize::try_from(self.integer()?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(count)
    }

    fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn call(&mut self) -> Option<Result<Vec<Value>, Failed>> {
        let (status, text, outputs) = (self.number()?, self.text()?, self.number()?);
        let values = (0..outputs).map(|_| self.value()).collect::<Option<Vec<Value>>>()?;
        let status = *STATUSES.get(status)?;
        Some(if status == "ok" { Ok(values) } else { Err(Failed { status, text }) })
    }

    fn value(&mut self) -> Option<Value> {
        Some(match self.number()? {
            0 => Value::Nothing,
            1 => Value::Tensor(self.tensor()?),
            2 => Value::Scalar(Scalar::Int(self.integer()?)),
            3 => Value::Scalar(Scalar::Float(f64::from_le_bytes(self.bytes()?.try_into().ok()?))),
            4 => Value::Scalar(Scalar::Bool(self.integer()? != 0)),
            5 => Value::Text(Arc::from(self.text()?)),
            _ => return None,
        })
    }

    fn tensor(&mut self) -> Option<Tensor> {
        let dtype = *Dtype::ALL.get(self.number()?)?;
        let rank = self.number()?;
        let sizes = (0..rank).map(|_| self.number()).collect::<Option<Vec<_>>>()?;
        let strides = (0..rank).map(|_| self.number()).collect::<Option<Vec<_>>>()?;
        let mut tensor = Tensor::zeros(dtype, &sizes, &strides).ok()?;
        let (found, to) = (self.bytes()?, tensor.bytes_mut()?);
        (found.len() == to.len()).then(|| to.copy_from_slice(found))?;
        Some(tensor)
    }
}
