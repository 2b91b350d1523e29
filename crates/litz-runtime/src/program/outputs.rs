//! Places the results of a call: in fresh tensors, in tensors of an earlier call, or in the caller's memory.

use std::ptr::NonNull;
use std::sync::Arc;

use litz_ir::Dtype;
use litz_ir::scalar::Scalar;

use crate::arena::AlignedBuf;
use crate::device::RawStream;
use crate::error::RunError;
use crate::spare::{Lent, Spare};
use crate::tensor::Tensor;

/// One result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor.
    Tensor(Tensor),
    /// A number that is no tensor.
    Scalar(Scalar),
    /// A string that the model holds.
    Text(Arc<str>),
    /// None.
    Nothing,
}

impl Value {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            Value::Scalar(_) | Value::Text(_) | Value::Nothing => None,
        }
    }
}

/// Type and layout of a tensor that a call returns.
#[derive(Clone, Copy, Debug)]
pub struct OutputLayout<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each dimension.
    pub sizes: &'a [usize],
    /// Elements between neighbours along each dimension.
    pub strides: &'a [usize],
    /// Bytes from the first element to the last.
    pub bytes: usize,
}

/// Takes the results of a call. Each is announced once, though not in order.
///
/// Memory for a program's own outputs may be asked for before anything ran. Memory for the new contents of updated
/// inputs, at indices from the number of outputs on, is asked for when all inputs and all outputs have been read and
/// written, or, where the program works in it, before anything ran: it may be the input's own. Of inputs that are lent there are no
/// new contents elsewhere.
///
/// # Safety
/// Memory that [`Outputs::tensor`] gives begins at a multiple of [`ALIGNMENT`](crate::arena::ALIGNMENT), can be written until the call returns,
/// and but for that of an updated input overlaps nothing that the call reads or writes. Calls keep intermediate results
/// there, too, until they write the output.
pub unsafe trait Outputs {
    /// Memory for the tensor at `index`: `layout.bytes` bytes, any address where that is 0.
    fn tensor(&mut self, index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError>;

    /// The stream on which the caller has its inputs made and uses its results. Memory of both is the device's then, and a call is over when all is
    /// enqueued there: what goes wrong later the next call says, or whoever waits. None: memory is the host's, and calls wait.
    fn stream(&self) -> Option<RawStream> {
        None
    }

    /// Takes the tensor at `index` where it is: in the memory of the donated input number `param`, which was lent, from byte `offset` on.
    /// Where it does not (`false`), the tensor is copied to the memory that [`Outputs::tensor`] gives.
    fn in_input(&mut self, index: usize, param: usize, offset: usize, layout: &OutputLayout<'_>) -> bool {
        let _ = (index, param, offset, layout);
        false
    }

    /// Takes the number at `index`, or the absence of one.
    fn scalar(&mut self, index: usize, scalar: Option<Scalar>);

    /// Takes the string at `index`.
    fn text(&mut self, index: usize, text: &Arc<str>);
}

/// Puts results into new tensors, in memory that earlier ones are done with where there is any.
pub(super) struct Fresh<'a> {
    pub(super) values: Vec<Value>,
    spare: &'a Arc<Spare>,
}

impl<'a> Fresh<'a> {
    pub(super) fn new(spare: &'a Arc<Spare>) -> Fresh<'a> {
        Fresh { values: Vec::new(), spare }
    }

    fn put(&mut self, index: usize, value: Value) {
        if self.values.len() <= index {
            self.values.resize(index + 1, Value::Nothing);
        }
        self.values[index] = value;
    }
}

/// A new tensor and its memory.
fn fresh(layout: &OutputLayout<'_>, mut buffer: Lent) -> Result<(Tensor, NonNull<u8>), RunError> {
    let memory = NonNull::new(buffer.as_mut_ptr()).expect("invariant: buffers have an address");
    Ok((Tensor::from_lent(layout.dtype, layout.sizes, layout.strides, buffer), memory))
}

fn value(scalar: Option<Scalar>) -> Value {
    scalar.map_or(Value::Nothing, Value::Scalar)
}

// SAFETY: each result has a buffer of its own, which stays where it is when the tensor moves.
unsafe impl Outputs for Fresh<'_> {
    fn tensor(&mut self, index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        let (tensor, memory) = fresh(layout, self.spare.lend(layout.bytes)?)?;
        self.put(index, Value::Tensor(tensor));
        Ok(memory)
    }

    fn scalar(&mut self, index: usize, scalar: Option<Scalar>) {
        self.put(index, value(scalar));
    }

    fn text(&mut self, index: usize, text: &Arc<str>) {
        self.put(index, Value::Text(Arc::clone(text)));
    }
}

/// Puts results into tensors that are there, where they fit.
pub(super) struct Reused<'a> {
    values: &'a mut Vec<Value>,
    count: usize,
}

impl<'a> Reused<'a> {
    pub(super) fn new(values: &'a mut Vec<Value>) -> Reused<'a> {
        Reused { values, count: 0 }
    }

    /// Number of results.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn at(&mut self, index: usize) -> &mut Value {
        self.count = self.count.max(index + 1);
        if self.values.len() <= index {
            self.values.resize(index + 1, Value::Nothing);
        }
        &mut self.values[index]
    }
}

// SAFETY: each result has a buffer that nothing else shares, inputs included, since it is reused only when it is
// the tensor's alone.
unsafe impl Outputs for Reused<'_> {
    fn tensor(&mut self, index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        let value = self.at(index);
        if let Value::Tensor(tensor) = value
            && (tensor.dtype(), tensor.sizes(), tensor.strides())
                == (layout.dtype, layout.sizes, layout.strides)
            && let Some(bytes) = tensor.bytes_mut()
        {
            return Ok(NonNull::from(bytes).cast());
        }
        let (tensor, memory) = fresh(layout, AlignedBuf::new(layout.bytes)?.into())?;
        *value = Value::Tensor(tensor);
        Ok(memory)
    }

    fn scalar(&mut self, index: usize, scalar: Option<Scalar>) {
        *self.at(index) = value(scalar);
    }

    fn text(&mut self, index: usize, text: &Arc<str>) {
        *self.at(index) = Value::Text(Arc::clone(text));
    }
}
