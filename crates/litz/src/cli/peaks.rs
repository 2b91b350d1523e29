//! What this machine can do at most, measured with kernels made like any others.

use super::failure::Failure;
use litz::{CpuBackend, Error, Options};
use litz_ir::kernel::Kernel;
use litz_runtime::arena::AlignedBuf;
use litz_runtime::device::{Device, Launch};
use litz_runtime::pool::ThreadPool;
use std::sync::Arc;
use std::time::Instant;

/// Peaks on the threads that the options ask for.
#[derive(Clone, Copy, Debug)]
pub struct Peaks {
    /// Fused multiply-adds of f32, in operations a second, two each.
    pub flops: f64,
    /// Bytes a second that a copy larger than the caches reads and writes.
    pub bandwidth: f64,
}

/// Times that each is measured; the best counts.
const TRIES: usize = 15;

/// Measures both.
pub fn measure(options: &Options) -> Result<Peaks, Failure> {
    Ok(Peaks {
        flops: Meter::flops(options)?.best(TRIES)?,
        bandwidth: Meter::bandwidth(options)?.best(TRIES)?,
    })
}

/// A compiled kernel that does nothing but reach a peak.
pub struct Meter {
    kernel: Kernel,
    device: litz::Device,
    memory: Vec<AlignedBuf>,
    /// Operations or bytes of one launch.
    amount: f64,
}

impl Meter {
    /// Fused multiply-adds of f32 on operands from the first-level cache.
    pub fn flops(options: &Options) -> Result<Meter, Failure> {
        let backend = CpuBackend::new(options);
        let lanes = backend.info().lanes();
        let (rows, columns, terms, points) = (6, 2 * lanes, 256, 256 * options.threads);
        let product = format!(
            "kernel @product {{\n  read x: f32[{}]\n  read w: f32[{}]\n  write y: f32[{points}]\n  grid p in {points} grain 64\n  \
             register out: f32[1]\n  register acc: f32[{}]\n  unroll i in {rows} {{\n    vector j in {columns} by {lanes} {{\n      \
             %0: f32 = const 0.0\n      acc[{columns}*i + j] = %0\n    }}\n  }}\n  for k in {terms} {{\n    unroll i in {rows} {{\n      \
             vector j in {columns} by {lanes} {{\n        %1: f32 = load x[{terms}*i + k]\n        %2: f32 = load w[{columns}*k + j]\n        \
             %3: f32 = mul %1, %2\n        acc[{columns}*i + j] sum= %3\n      }}\n    }}\n  }}\n  %4: f32 = const 0.0\n  \
             out[0] = %4\n  unroll i in {rows} {{\n    vector j in {columns} by {lanes} {{\n      \
             %5: f32 = load acc[{columns}*i + j]\n      out[0] sum= %5\n    }}\n  }}\n  %6: f32 = load out[0]\n  y[p] = %6\n}}\n",
            rows * terms,
            columns as usize * terms,
            rows * columns as usize,
        );
        let operations = 2.0 * (rows * terms * points) as f64 * f64::from(columns);
        Meter::new(&backend, options, &product, operations)
    }

    /// A copy of more than the caches hold.
    pub fn bandwidth(options: &Options) -> Result<Meter, Failure> {
        const BLOCK: usize = 1 << 12;
        let backend = CpuBackend::new(options);
        let lanes = backend.info().lanes();
        let blocks = 1 << 12;
        let elements = BLOCK * blocks;
        let copy = format!(
            "kernel @copy {{\n  read x: f32[{elements}]\n  write y: f32[{elements}]\n  grid p in {blocks} grain 16\n  \
             vector i in {BLOCK} by {lanes} {{\n    %0: f32 = load x[{BLOCK}*p + i]\n    y[{BLOCK}*p + i] = %0\n  }}\n}}\n"
        );
        Meter::new(&backend, options, &copy, (8 * elements) as f64)
    }

    fn new(backend: &CpuBackend, options: &Options, text: &str, amount: f64) -> Result<Meter, Failure> {
        let kernels = [litz_ir::text::kernel::parse(text).map_err(Error::Invalid)?];
        let objects = [backend.object(&kernels)?];
        let device = litz::load(&kernels, &objects, Arc::new(ThreadPool::new(options.threads)))?;
        let [kernel] = kernels;
        let mut memory = Vec::new();
        for mem in kernel.mems.values().take(kernel.params) {
            let elements = mem.extent.as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            memory.push(
                AlignedBuf::new(elements * mem.dtype.size())
                    .map_err(litz_runtime::RunError::from)
                    .map_err(Error::Run)?,
            );
        }
        Ok(Meter { kernel, device, memory, amount })
    }

    /// The highest rate of some launches, a second.
    pub fn best(&mut self, tries: usize) -> Result<f64, Failure> {
        let mut shortest = f64::INFINITY;
        for _ in 0..tries {
            let start = Instant::now();
            run(&*self.device, &self.kernel, &mut self.memory)?;
            shortest = shortest.min(start.elapsed().as_secs_f64());
        }
        Ok(self.amount / shortest)
    }
}

fn run(device: &dyn Device, kernel: &Kernel, memory: &mut [AlignedBuf]) -> Result<(), Failure> {
    let args: Vec<*mut u8> = memory.iter_mut().map(AlignedBuf::as_mut_ptr).collect();
    let Some(id) = device.find(&kernel.name) else {
        return Err(Error::bug("load", "the kernel is not there").into());
    };
    let points = kernel.points().as_int().unwrap_or(0);
    let launch = Launch {
        kernel: id,
        args: &args,
        sizes: &[],
        points,
        scratch: std::ptr::null_mut(),
        scratch_bytes: 0,
    };
    // SAFETY: one memory for each parameter, of its extent, that nothing else touches; the kernel needs no scratch.
    unsafe { device.launch(&launch) }.map_err(Error::Run)?;
    Ok(())
}
