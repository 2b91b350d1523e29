//! Loads kernels, and says how each is launched.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute as Attribute, CUmodule};
use litz_ir::kernel::{Kernel, MemorySpace, Shape};
use litz_ir::target::Persistent;
use litz_sym::Expr;

use super::boxes::Boxes;
use super::driver::{CudaError, Gpu, check};
use crate::device::KernelId;
use crate::formula::Formula;
use crate::images;

/// The architecture from which on code waits for the kernel before it, as `litz_llvm` prints it.
const WAITS_FROM: i32 = 90;

/// Blocks that are so few that it does not matter which units run them. On an H200 a chain of products of 64 x 64 and softmax takes 1.4 us a kernel
/// where each starts early, 1.9 where none does; ResNet-50 took 1.23 ms where all did, 1.14 where none did.
const FEW_BLOCKS: u32 = 32;

/// How a kernel is launched: what its code relies on.
#[derive(Clone, Debug)]
pub(super) struct KernelShape {
    name: String,
    pub(super) checks: Vec<String>,
    /// Of each parameter the bytes that it is passed by value, 0 for addresses.
    pub(super) parameters: Vec<usize>,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    /// So many blocks run all points, at most.
    pub(super) persistent: Option<Persistent>,
    /// Blocks of a grid point.
    pub(super) blocks: Formula,
    /// Bytes of global memory that a grid point has of its own.
    pub(super) global_bytes: Formula,
    /// Whether each point has a word in which blocks count.
    pub(super) counts_blocks: bool,
    /// Whether its blocks may start before the kernel in front of it has ended.
    starts_early: bool,
    /// Whether it loads constants before what is in front of it has ended.
    loads_early: bool,
    /// What its boxes are cut out of.
    pub(super) boxes: Vec<Boxes>,
}

impl KernelShape {
    /// That of a kernel.
    ///
    /// # Errors
    /// When it has none, or it depends on other symbols than the sizes that a launch is given.
    pub(super) fn of(kernel: &Kernel) -> Result<KernelShape, CudaError> {
        let shape = Shape::of(kernel)
            .map_err(|diag| CudaError::new(format!("kernel @{}", kernel.name), diag.message))?;
        let formula = |expr: Expr| {
            Formula::new(expr, &|sym| kernel.sizes.iter().position(|size| *size == sym)).map_err(|sym| {
                CudaError::new(
                    format!("kernel @{}", kernel.name),
                    format!("`{sym}` has no value at a launch"),
                )
            })
        };
        let parameters = kernel.mems.values().take(kernel.params).map(|data| match data.space {
            MemorySpace::Number => data.dtype.size(),
            _ => 0,
        });
        Ok(KernelShape {
            name: kernel.name.clone(),
            checks: kernel.checks.clone(),
            parameters: parameters.collect(),
            threads: shape.threads,
            shared_bytes: shape.shared_bytes,
            persistent: kernel.persistent,
            blocks: formula(shape.blocks_of_point)?,
            global_bytes: formula(shape.global_bytes)?,
            counts_blocks: shape.counts_blocks,
            starts_early: shape.starts_early,
            loads_early: shape.loads_early,
            boxes: shape
                .boxes
                .iter()
                .map(|map| Boxes::of(kernel, map, &formula))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What a failed check means.
    pub(super) fn check(&self, status: u32) -> Option<&str> {
        self.checks.get(usize::try_from(status).ok()?.checked_sub(1)?).map(String::as_str)
    }
}

/// The code of a kernel, loaded.
#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) handle: CUfunction,
    /// Whether it waits itself for the kernel before it, which need not have ended when its blocks start.
    waits: bool,
    /// Whether it loads constants before that one has ended, which have to be there when that one begins.
    loads_early: bool,
    /// Blocks that all units run at a time.
    wave: u32,
}

impl Function {
    /// That of a launch of no blocks.
    pub(super) const NONE: Function =
        Function { handle: ptr::null_mut(), waits: false, loads_early: false, wave: 0 };

    /// Whether so many blocks may start while those of a kernel in front of them still run, which is of the same call, and are to. They take the first
    /// places that become free, and would share a few units where they do not nearly fill all of them, while the other units have nothing to do: that is
    /// no loss for a few blocks, which take about as long as a launch, nor where units have room for all blocks of both.
    fn starts_early(&self, blocks: u32, front: &Function, blocks_in_front: u32) -> bool {
        let [own, other] = [self.wave, front.wave].map(u64::from);
        let have_room = u64::from(blocks) * other + u64::from(blocks_in_front) * own <= own * other;
        self.waits && (self.has_few_or_fills_units(blocks) || have_room)
    }

    /// Whether so many blocks may start before a kernel has ended that nothing is known of, and are to: what that makes may be constants of this one.
    pub(super) fn starts_early_behind_any(&self, blocks: u32) -> bool {
        self.waits && !self.loads_early && self.has_few_or_fills_units(blocks)
    }

    fn has_few_or_fills_units(&self, blocks: u32) -> bool {
        blocks <= FEW_BLOCKS || u64::from(blocks) * 8 >= u64::from(self.wave) * 7
    }
}

/// Says of the launches of a call, one after another, which start early.
#[derive(Default)]
pub(super) struct InFront {
    last: Option<(Function, u32)>,
}

impl InFront {
    /// Whether the next launch, of so many blocks, starts before the one in front of it has ended. The first one does not: what is in front of it is
    /// another's, and may make what kernels of this call load early. Those start when the first one's blocks are there, which has to be behind the end
    /// of all that.
    pub(super) fn next(&mut self, function: Function, blocks: u32) -> bool {
        let in_front = self.last.replace((function, blocks));
        in_front.is_some_and(|(front, its_blocks)| function.starts_early(blocks, &front, its_blocks))
    }
}

/// The kernels of a program on a GPU.
pub(super) struct Kernels {
    gpu: Arc<Gpu>,
    modules: Vec<CUmodule>,
    pub(super) all: Vec<(KernelShape, Function)>,
    by_name: HashMap<String, usize>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    pub(super) fn load(gpu: &Arc<Gpu>, kernels: &[Kernel], objects: &[&[u8]]) -> Result<Kernels, CudaError> {
        let _entered = gpu.enter()?;
        let shapes = kernels.iter().map(KernelShape::of).collect::<Result<Vec<_>, _>>()?;
        let by_name = shapes.iter().enumerate().map(|(at, shape)| (shape.name.clone(), at)).collect();
        let mut kernels = Kernels { gpu: Arc::clone(gpu), modules: Vec::new(), all: Vec::new(), by_name };
        for object in objects {
            let image = images::image_for(object, gpu.facts.capability);
            kernels.modules.push(load(image.map_err(|error| CudaError::new(gpu.to_string(), error))?)?);
        }
        for (number, shape) in shapes.into_iter().enumerate() {
            let function = kernels.function(number, &shape)?;
            kernels.all.push((shape, function));
        }
        Ok(kernels)
    }

    pub(super) fn find(&self, name: &str) -> Option<KernelId> {
        self.by_name.get(name).map(|&at| KernelId(at))
    }

    /// The code of a kernel: in the module of its number, where each kernel has one of its own, so that hardly ever a module is asked for what it has not.
    fn function(&self, number: usize, shape: &KernelShape) -> Result<Function, CudaError> {
        let missing = || CudaError::new(format!("kernel @{}", shape.name), "no module has it");
        let name = CString::new(shape.name.as_str()).map_err(|_| missing())?;
        let find = |&module: &CUmodule| {
            let mut function = ptr::null_mut();
            // SAFETY: the module is loaded; name and handle live longer than the call.
            let result = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
            (result == sys::CUresult::CUDA_SUCCESS).then_some(function)
        };
        let (before, from) = self.modules.split_at(number.min(self.modules.len()));
        let function = from.iter().chain(before).find_map(find).ok_or_else(missing)?;
        let bytes = shape.shared_bytes.cast_signed();
        // SAFETY: the function is loaded.
        let result = unsafe {
            sys::cuFuncSetAttribute(
                function,
                Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                bytes,
            )
        };
        check("cuFuncSetAttribute", result)?;
        let mut made_for = 0;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        // SAFETY: the function is loaded; the number lives longer than the call.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut made_for, attribute, function) };
        check("cuFuncGetAttribute", result)?;
        let mut resident = 0;
        let (threads, shared) = (shape.threads.cast_signed(), shape.shared_bytes as usize);
        // SAFETY: the function is loaded; the number lives longer than the call.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut resident, function, threads, shared)
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        let wave = self.gpu.facts.units.saturating_mul(u32::try_from(resident).unwrap_or(0));
        let waits = shape.starts_early && made_for >= WAITS_FROM;
        Ok(Function { handle: function, waits, loads_early: shape.loads_early, wave })
    }
}

fn load(image: &[u8]) -> Result<CUmodule, CudaError> {
    // Of PTX, the text ends with a zero.
    let mut bytes = image.to_vec();
    bytes.push(0);
    let mut module = ptr::null_mut();
    // SAFETY: the image lives longer than the call, and says itself how long it is.
    let result = unsafe { sys::cuModuleLoadData(&raw mut module, bytes.as_ptr().cast::<c_void>()) };
    check("cuModuleLoadData", result)?;
    Ok(module)
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let _entered = self.gpu.enter();
        for &module in &self.modules {
            // SAFETY: streams that launch its kernels keep this, and have ended. What is returned nobody can act on.
            let _ = unsafe { sys::cuModuleUnload(module) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW_BLOCKS, Function, InFront};

    const WAVE: u32 = 264;

    fn function(waits: bool, loads_early: bool) -> Function {
        Function { waits, loads_early, wave: WAVE, ..Function::NONE }
    }

    #[test]
    fn the_first_launch_of_a_call_starts_late() {
        for (waits, loads_early) in [(false, false), (true, false), (true, true)] {
            for blocks in [1, FEW_BLOCKS, FEW_BLOCKS + 1, WAVE, 4 * WAVE] {
                assert!(!InFront::default().next(function(waits, loads_early), blocks));
            }
        }
    }

    #[test]
    fn what_loads_weights_early_starts_early_behind_its_own_call_alone() {
        let (plain, loading) = (function(true, false), function(true, true));
        let mut in_front = InFront::default();
        assert!(!in_front.next(plain, 1));
        assert!(in_front.next(loading, WAVE));
        assert!(in_front.next(plain, 1));
        // Another call, which begins anew.
        assert!(!InFront::default().next(loading, WAVE));
        assert!(!loading.starts_early_behind_any(WAVE));
        assert!(plain.starts_early_behind_any(WAVE));
    }

    #[test]
    fn what_does_not_wait_itself_starts_late() {
        let mut in_front = InFront::default();
        in_front.next(function(true, false), 1);
        assert!(!in_front.next(function(false, false), 1));
        assert!(!function(false, false).starts_early_behind_any(1));
    }

    #[test]
    fn blocks_that_would_share_a_few_units_start_late() {
        let mut in_front = InFront::default();
        in_front.next(function(true, false), WAVE);
        assert!(!in_front.next(function(true, false), FEW_BLOCKS + 1));
        assert!(in_front.next(function(true, false), WAVE - FEW_BLOCKS - 1));
        // Those that nearly fill them do not.
        let most = WAVE / 8 * 7;
        in_front.next(function(true, false), WAVE);
        assert!(in_front.next(function(true, false), most));
        in_front.next(function(true, false), WAVE);
        assert!(!in_front.next(function(true, false), most - 1));
    }
}
