//! Puts inputs where the device that runs a model has them, so that calls that are timed copy none.

use crate::compiled::Compiled;
use crate::error::Error;
use crate::model::Model;
use litz_runtime::Tensor;
use litz_runtime::device::{AddressSpace, Buffer, Copy, Device};
use litz_runtime::tensor::{Argument, TensorView};

/// Inputs, and a copy of each that lies row by row, where a device has memory of its own.
pub(super) struct Resident<'a> {
    inputs: &'a [Tensor],
    copies: Vec<Option<Buffer>>,
}

/// Whether the device that runs a model has memory of its own.
pub(super) fn has_own_memory(compiled: &Compiled) -> bool {
    compiled.executable.device().memory().is_some()
}

impl<'a> Resident<'a> {
    /// Copies inputs to where `compiled` reads them.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn new(model: &Model, compiled: &Compiled, inputs: &'a [Tensor]) -> Result<Resident<'a>, Error> {
        let device = &**compiled.executable.device();
        let types = model.inputs().into_iter().map(|(_, ty)| ty.is_contiguous());
        let types = types.chain(std::iter::repeat(false));
        let copied = |(tensor, is_contiguous): (&Tensor, bool)| {
            let is_wanted = has_own_memory(compiled) && is_contiguous && tensor.is_contiguous();
            (is_wanted && !tensor.bytes().is_empty()).then(|| copy(device, tensor.bytes())).transpose()
        };
        let copies = inputs.iter().zip(types).map(copied).collect::<Result<_, Error>>()?;
        Ok(Resident { inputs, copies })
    }

    /// What calls are given.
    ///
    /// # Errors
    /// None for tensors that there are.
    pub fn arguments(&self) -> Result<Vec<Argument<'_>>, Error> {
        let argument = |(tensor, copy): (&'a Tensor, &Option<Buffer>)| {
            let view = match copy {
                None => tensor.view(),
                Some(buffer) => {
                    let (sizes, strides) = (tensor.sizes(), tensor.strides());
                    // SAFETY: the copy has as many bytes as the tensor, row by row like it, and lives as long as `self`.
                    let view =
                        unsafe { TensorView::from_raw(tensor.dtype(), sizes, strides, buffer.as_ptr()) };
                    view.map_err(|error| Error::bug("tune", error))?.on_device()
                }
            };
            Ok(Argument::View(view))
        };
        self.inputs.iter().zip(&self.copies).map(argument).collect()
    }
}

/// The bytes in memory of a device.
fn copy(device: &dyn Device, bytes: &[u8]) -> Result<Buffer, Error> {
    let buffer = Buffer::new(device, bytes.len())?;
    let mut stream = device.stream()?;
    let (from, to) = ((AddressSpace::Host, bytes.as_ptr()), (AddressSpace::Device, buffer.as_ptr()));
    // SAFETY: both are as large as this and live until the stream is done.
    unsafe { stream.copy(Copy { from, to, bytes: bytes.len() }) };
    stream.wait()?;
    Ok(buffer)
}
