//! Runs code on NVIDIA GPUs, through the driver alone.
//!
//! The driver is found when a GPU is first asked for. A device works in its primary context, which PyTorch uses as well, so that both
//! know each other's addresses. Launches on a stream are asynchronous; a stream's errors, those of data among them, are reported where it is waited for.

mod boxes;
mod capture;
mod driver;
mod kernels;
mod launch;
mod memory;
mod recording;
mod stream;

use std::any::Any;
use std::sync::Arc;

use litz_ir::graph;
use litz_ir::kernel::Kernel;

use crate::device::{Device, DeviceMemory, KernelId, RawStream, Stream};
use crate::error::RunError;
pub use driver::{CudaError, Facts, Gpu};
use kernels::Kernels;
use memory::Memory;
use stream::CudaStream;

/// A GPU with the kernels of a program loaded.
pub struct CudaDevice {
    gpu: Arc<Gpu>,
    kernels: Arc<Kernels>,
    memory: Arc<Memory>,
}

impl CudaDevice {
    /// Loads what of each object ([`crate::images`]) the GPU runs, and finds each kernel in one of them.
    ///
    /// # Errors
    /// When an object has no code for the GPU, the driver does not take it, or no object has a kernel.
    pub fn new(gpu: Arc<Gpu>, kernels: &[Kernel], objects: &[&[u8]]) -> Result<CudaDevice, CudaError> {
        let kernels = Arc::new(Kernels::load(&gpu, kernels, objects)?);
        let memory = Arc::new(Memory::new(Arc::clone(&gpu)));
        Ok(CudaDevice { gpu, kernels, memory })
    }
}

impl Device for CudaDevice {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.kernels.find(name)
    }

    fn concurrency(&self) -> usize {
        0
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        Some(Arc::clone(&self.memory) as Arc<dyn DeviceMemory>)
    }

    fn name(&self) -> graph::Device {
        graph::Device::Cuda(self.gpu.number())
    }

    fn captures(&self) -> bool {
        true
    }

    fn captured_by(&self, stream: RawStream) -> Result<Option<u64>, RunError> {
        let _entered = self.gpu.enter()?;
        Ok(capture::of(stream.0.cast())?.map(|capture| capture.number))
    }

    fn keep(&self, stream: RawStream, share: Box<dyn Any + Send>) -> Result<(), RunError> {
        let _entered = self.gpu.enter()?;
        Ok(capture::of(stream.0.cast())?.map_or(Ok(()), |capture| capture.keep(share))?)
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        let stream = CudaStream::new(Arc::clone(&self.gpu), Arc::clone(&self.kernels))?;
        Ok(Box::new(stream))
    }
}

impl DeviceMemory for Memory {
    fn allocate(&self, bytes: usize) -> Result<*mut u8, RunError> {
        Ok(Memory::allocate(self, bytes)?)
    }

    unsafe fn clear(&self, start: *mut u8, bytes: usize) -> Result<(), RunError> {
        // SAFETY: by the contract.
        unsafe { Memory::clear(self, start, bytes)? };
        Ok(())
    }

    unsafe fn free(&self, start: *mut u8) {
        // SAFETY: by the contract.
        unsafe { Memory::free(self, start) }
    }

    /// A part of a millisecond.
    fn is_slow(&self) -> bool {
        true
    }
}
