//! Finds GPUs, and calls the driver.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute as Attribute, CUresult};

use crate::arena::OutOfMemory;
use crate::error::RunError;

/// What the driver could not do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call}: {message}")]
pub struct CudaError {
    /// What was called or looked for.
    pub call: String,
    /// The driver's words.
    pub message: String,
    /// The bytes that were asked for, where there is not enough memory; 0 where the driver wants some for itself.
    pub out_of_memory: Option<usize>,
}

impl CudaError {
    pub(crate) fn new(call: impl Into<String>, message: impl fmt::Display) -> CudaError {
        CudaError { call: call.into(), message: message.to_string(), out_of_memory: None }
    }
}

impl From<CudaError> for RunError {
    fn from(error: CudaError) -> RunError {
        match error.out_of_memory {
            Some(bytes) => OutOfMemory::of(bytes).into(),
            None => RunError::bug(format!("the GPU's driver: {}", error.call), error.message),
        }
    }
}

/// An error where a call of the driver failed.
pub(super) fn check(call: &str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = ptr::null();
    // SAFETY: the driver writes the address of a text of its own.
    let message = unsafe {
        match sys::cuGetErrorString(result, &raw mut text) {
            CUresult::CUDA_SUCCESS if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
            _ => format!("{result:?}"),
        }
    };
    let out_of_memory = (result == CUresult::CUDA_ERROR_OUT_OF_MEMORY).then_some(0);
    Err(CudaError { call: call.to_owned(), message, out_of_memory })
}

/// A GPU, and its primary context.
pub struct Gpu {
    number: u32,
    device: CUdevice,
    context: CUcontext,
    /// What it has.
    pub facts: Facts,
}

// SAFETY: the driver's functions may be called from any thread; contexts are made current where they are used.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// What a GPU has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Compute capability: 90 for 9.0.
    pub capability: u32,
    /// The version of CUDA that its driver is for: 12030 for 12.3.
    pub driver: c_int,
    /// Units that run blocks.
    pub units: u32,
    /// Bytes that the threads of a block may share, at most.
    pub shared_bytes: i64,
    /// Bytes that the blocks of a unit share.
    pub unit_shared_bytes: i64,
    /// Registers of a unit.
    pub unit_registers: u32,
    /// Threads of a unit.
    pub unit_threads: u32,
    /// Blocks of a unit.
    pub unit_blocks: u32,
    /// Bytes of the cache that all units share.
    pub l2_bytes: i64,
    /// Bytes of memory.
    pub bytes: usize,
}

impl Gpu {
    /// The GPU of that number, which a process opens once.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn numbered(number: u32) -> Result<Arc<Gpu>, CudaError> {
        static OPENED: Mutex<BTreeMap<u32, Result<Arc<Gpu>, CudaError>>> = Mutex::new(BTreeMap::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.entry(number).or_insert_with(|| Gpu::open(number)).clone()
    }

    /// The GPU of that number.
    ///
    /// # Errors
    /// When there is no driver, or no such GPU.
    pub fn open(number: u32) -> Result<Arc<Gpu>, CudaError> {
        // SAFETY: it only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::new("libcuda.so", "there is no driver of NVIDIA GPUs on this machine"));
        }
        let mut device = 0;
        let mut count = 0;
        let mut context = ptr::null_mut();
        // SAFETY: all pointers are to variables that live longer than the calls.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDeviceGetCount", sys::cuDeviceGetCount(&raw mut count))?;
            check("cuDeviceGet", sys::cuDeviceGet(&raw mut device, checked(number, count)?))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        }
        let facts = Facts::of(device)?;
        Ok(Arc::new(Gpu { number, device, context, facts }))
    }

    /// Which of the machine's GPUs it is.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Makes its context that of the calling thread, until what is returned is dropped.
    pub(super) fn enter(&self) -> Result<Entered, CudaError> {
        let mut before = ptr::null_mut();
        // SAFETY: the context is retained, and the address of the other one lives longer than the call.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&raw mut before))?;
            if before != self.context {
                check("cuCtxSetCurrent", sys::cuCtxSetCurrent(self.context))?;
            }
        }
        Ok(Entered { before: (before != self.context).then_some(before) })
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{}, {}", self.number, self.facts.name)
    }
}

/// A context that is the calling thread's. The one before is put back in the end, as it says which device is PyTorch's current one.
#[must_use]
pub(super) struct Entered {
    before: Option<CUcontext>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: it was this thread's, or none was. What is returned nobody can act on.
            let _ = unsafe { sys::cuCtxSetCurrent(before) };
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once by `open`; nothing of it is used any more. What it returns nobody can act on.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// The number of a GPU, where there are so many.
fn checked(number: u32, count: c_int) -> Result<c_int, CudaError> {
    let found = c_int::try_from(number).ok().filter(|&number| number < count);
    found.ok_or_else(|| {
        let has = match count {
            0 => "this machine has none".to_owned(),
            1 => "this machine has one GPU, cuda:0".to_owned(),
            _ => format!("this machine has {count} GPUs, cuda:0 to cuda:{}", count - 1),
        };
        CudaError::new(format!("cuda:{number}"), has)
    })
}

impl Facts {
    fn of(device: CUdevice) -> Result<Facts, CudaError> {
        let attribute = |which: Attribute| {
            let mut value: c_int = 0;
            // SAFETY: the value lives longer than the call.
            let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) };
            check("cuDeviceGetAttribute", result).map(|()| value)
        };
        let count = |which| attribute(which).map(|value| u32::try_from(value).unwrap_or(0));
        let mut name = [0; 128];
        let (mut bytes, mut driver) = (0, 0);
        // SAFETY: the name has room for as many bytes as are asked for.
        unsafe {
            check(
                "cuDeviceGetName",
                sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device),
            )?;
            check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&raw mut bytes, device))?;
            check("cuDriverGetVersion", sys::cuDriverGetVersion(&raw mut driver))?;
        }
        // SAFETY: the last byte is still zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let major = count(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = count(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(Facts {
            name,
            capability: 10 * major + minor,
            driver,
            units: count(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.into(),
            unit_shared_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?
            .into(),
            unit_registers: count(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            unit_threads: count(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            unit_blocks: count(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
        let message = |number, count| checked(number, count).map_err(|error| error.to_string());
        assert_eq!(message(1, 2), Ok(1));
        assert_eq!(message(0, 0), Err("cuda:0: this machine has none".to_owned()));
        assert_eq!(message(1, 1), Err("cuda:1: this machine has one GPU, cuda:0".to_owned()));
        assert_eq!(
            message(u32::MAX, 2),
            Err(format!("cuda:{}: this machine has 2 GPUs, cuda:0 to cuda:1", u32::MAX))
        );
    }
}
