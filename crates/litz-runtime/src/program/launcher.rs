//! Launches kernels one by one, for those who do a program's other steps themselves.

use std::sync::Arc;

use litz_ir::graph;
use litz_ir::kernel::Kernel;

use super::function::facts_of;
use super::prepare::Named;
use super::prepared::KernelFacts;
use crate::arena::AlignedBuf;
use crate::device::{Device, Launch, MemView};
use crate::error::RunError;

/// Kernels on a device that works in the host's memory.
pub struct Launcher {
    kernels: Arc<[KernelFacts]>,
    device: Arc<dyn Device>,
}

impl Launcher {
    /// Kernels that are loaded on a device.
    ///
    /// # Errors
    /// When a kernel breaks the rules of kernels, and when the device has memory of its own.
    pub fn new(kernels: &[Kernel], device: Arc<dyn Device>) -> Result<Launcher, RunError> {
        if device.memory().is_some() {
            return Err(RunError::bug("launcher", "the device has memory of its own"));
        }
        let named = Named { all: vec![(graph::Device::Cpu, &*device)] };
        let kernels = facts_of(kernels, &named)?;
        Ok(Launcher { kernels, device })
    }

    /// For each parameter of a kernel whether it is written; none where there is no such kernel.
    pub fn writes(&self, kernel: &str) -> Option<Vec<bool>> {
        let accesses = &self.find(kernel)?.accesses;
        Some(accesses.iter().map(|access| access.is_written()).collect())
    }

    /// Runs a kernel: `args` has one memory for each parameter, `sizes` one value for each size symbol. It is done when this returns.
    ///
    /// # Errors
    /// Where it has no kernel of that name, or one that takes others; where a value that the kernel computes is no valid index.
    pub fn launch(&self, kernel: &str, args: &mut [MemView<'_>], sizes: &[i64]) -> Result<(), RunError> {
        let place = || format!("launch of @{kernel}");
        let facts = self.find(kernel).ok_or_else(|| RunError::bug(place(), "there is no such kernel"))?;
        if (args.len(), sizes.len()) != (facts.params.len(), facts.sizes.len()) {
            let (params, expected) = (facts.params.len(), facts.sizes.len());
            let found = format!("{} memories and {} sizes", args.len(), sizes.len());
            let what = format!("expected {params} memories and {expected} sizes, found {found}");
            return Err(RunError::bug(place(), what));
        }
        facts.check(sizes).map_err(|error| error.unwrap_or_else(|what| RunError::bug(place(), what)))?;
        let count =
            |formula: &crate::formula::Formula| formula.eval(sizes).map(|n| n.max(0).unsigned_abs() as usize);
        let mut addresses = Vec::with_capacity(args.len());
        for (at, (arg, (size, extent))) in args.iter_mut().zip(&facts.params).enumerate() {
            let (address, bytes) = match arg {
                MemView::Read(_) if facts.accesses[at].is_written() => {
                    let what = format!("memory {at} is written, but given only to be read");
                    return Err(RunError::bug(place(), what));
                }
                MemView::Read(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                MemView::Write(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            };
            let needed = count(extent).and_then(|count| count.checked_mul(*size));
            if needed.is_none_or(|needed| needed > bytes) {
                let needed = needed.map_or("too many".to_owned(), |needed| needed.to_string());
                let what = format!("expected {needed} bytes for memory {at}, found {bytes}");
                return Err(RunError::bug(place(), what));
            }
            addresses.push(address);
        }
        let points = count(&facts.points).and_then(|points| i64::try_from(points).ok());
        let (Some(points), Some(scratch_bytes)) = (points, count(&facts.scratch)) else {
            return Err(RunError::bug(place(), "its grid has no valid size"));
        };
        let id = facts.ids[0].ok_or_else(|| RunError::bug(place(), "it is not loaded on the device"))?;
        let mut scratch = AlignedBuf::new(scratch_bytes.saturating_mul(self.device.concurrency()))?;
        let launch = Launch {
            number: 0,
            kernel: id,
            args: &addresses,
            sizes,
            points,
            scratch: scratch.as_mut_ptr(),
            scratch_bytes,
            scratch_stride: scratch_bytes,
        };
        let mut stream = self.device.stream()?;
        // SAFETY: each memory is as large as the kernel's extent, is borrowed until the stream is done, and overlaps none that is
        // written. Scratch memory has a piece for each that works at a time.
        unsafe { stream.launch(&launch) };
        stream.wait()
    }

    fn find(&self, kernel: &str) -> Option<&KernelFacts> {
        self.kernels.iter().find(|facts| facts.name == kernel)
    }
}
