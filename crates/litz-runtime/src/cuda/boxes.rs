//! Describes to the driver what boxes are cut out of.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use litz_ir::ids::Id;
use litz_ir::kernel::{BoxMap, Kernel, Windows};
use litz_ir::target::Gpu;
use litz_sym::Expr;

use super::driver::{CudaError, check};
use crate::formula::Formula;

/// What boxes are cut out of, for any sizes.
#[derive(Clone, Debug)]
pub(super) struct Boxes {
    /// The argument.
    pub(super) from: usize,
    /// Bytes of an element.
    size: usize,
    swizzle: CUtensorMapSwizzle,
    dims: Vec<Dim>,
    windows: Option<Windows>,
    rounds: bool,
}

/// A dimension, innermost first.
#[derive(Clone, Debug)]
struct Dim {
    count: u32,
    step: Formula,
    end: Formula,
}

impl Boxes {
    /// Those of a kernel by a description.
    ///
    /// # Errors
    /// When it depends on something that has no value at a launch.
    pub(super) fn of(
        kernel: &Kernel,
        map: &BoxMap,
        formula: &dyn Fn(Expr) -> Result<Formula, CudaError>,
    ) -> Result<Boxes, CudaError> {
        let dims = map
            .dims
            .iter()
            .map(|dim| Ok(Dim { count: dim.count, step: formula(dim.step)?, end: formula(dim.end)? }));
        let swizzle = match map.swizzle {
            None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Some(32) => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Some(64) => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Some(128) => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            Some(bytes) => {
                let message = format!("rows of {bytes} bytes whose units change places");
                return Err(CudaError::new(format!("kernel @{}", kernel.name), message));
            }
        };
        Ok(Boxes {
            from: map.from.index(),
            size: kernel.mems[map.from].dtype.size(),
            swizzle,
            dims: dims.collect::<Result<_, CudaError>>()?,
            windows: map.windows.clone(),
            rounds: map.rounds,
        })
    }

    /// The description for memory that begins at an address, and these sizes.
    ///
    /// # Errors
    /// When sizes overflow, and when the driver takes them for none of a tensor.
    pub(super) fn describe(&self, start: u64, sizes: &[i64]) -> Result<CUtensorMap, CudaError> {
        let wrong = || CudaError::new("a description of boxes", "its sizes overflow");
        let value = |formula: &Formula| {
            formula.eval(sizes).and_then(|value| u64::try_from(value).ok()).ok_or_else(wrong)
        };
        let (mut ends, mut strides, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for (number, dim) in self.dims.iter().enumerate() {
            // Of memory without elements nothing is copied, but the driver wants some.
            ends.push(value(&dim.end)?.max(1));
            counts.push(dim.count);
            if number > 0 {
                let bytes = value(&dim.step)?.checked_mul(self.size as u64).ok_or_else(wrong)?;
                strides.push(bytes.max(u64::from(Gpu::VECTOR_BYTES)));
            }
        }
        let kind = match self.size {
            1 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            2 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            4 if self.rounds => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            4 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        };
        let mut steps = vec![1u32; counts.len()];
        let mut map = CUtensorMap { opaque: [0; 16] };
        let interleave = CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
        let promotion = CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
        let fill = CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
        let start = start as *mut c_void;
        let rank = counts.len() as u32;
        if let Some(windows) = &self.windows {
            let corner = |end: usize| windows.dims.iter().map(|(ends, _)| ends[end]).collect::<Vec<c_int>>();
            let (lower, upper) = (corner(0), corner(1));
            steps.iter_mut().skip(1).zip(&windows.dims).for_each(|(step, (_, by))| *step = *by);
            // SAFETY: the lists have as many elements as there are dimensions, strides one less, corners two less, and live longer than the
            // call. The address is only written down.
            let result = unsafe {
                sys::cuTensorMapEncodeIm2col(
                    &raw mut map,
                    kind,
                    rank,
                    start,
                    ends.as_ptr(),
                    strides.as_ptr(),
                    lower.as_ptr(),
                    upper.as_ptr(),
                    counts[0],
                    windows.count,
                    steps.as_ptr(),
                    interleave,
                    self.swizzle,
                    promotion,
                    fill,
                )
            };
            check("cuTensorMapEncodeIm2col", result)?;
            return Ok(map);
        }
        // SAFETY: the lists have as many elements as there are dimensions, strides one less, and live longer than the call. The address is
        // only written down.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                kind,
                rank,
                start,
                ends.as_ptr(),
                strides.as_ptr(),
                counts.as_ptr(),
                steps.as_ptr(),
                interleave,
                self.swizzle,
                promotion,
                fill,
            )
        };
        check("cuTensorMapEncodeTiled", result)?;
        Ok(map)
    }
}
