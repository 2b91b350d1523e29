//! Defines the act by which one thread has a box of elements copied to shared memory.

use litz_sym::{Expr, Rel, Sym};

use super::Mem;
use crate::loops::Axis;
use crate::target::Gpu;

/// Copies a box of elements from global to shared memory, in the background, by one thread that fills a buffer of a ring.
///
/// ```text
/// copy box x[64*k] to x_tile[8192*b] of 128 step 4096 from 128*g below n, 64 step 1
///   =   for i in 128 { for j in 64 {
///         x_tile[8192*b + 64*i + j] = x[64*k + 4096*(128*g + i) + j] if 0 <= 128*g + i < n else 0
///       } }
/// ```
///
/// It has up to [`BoxCopy::DIMS`] dimensions; the hardware's fifth is for what the place in global memory depends on besides. Its elements
/// lie side by side in shared memory, or as its swizzle puts them. (PTX ISA, `cp.async.bulk.tensor`.)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxCopy {
    /// Global memory.
    pub from: Mem,
    /// Where its element is whose coordinates are all zero.
    pub origin: Expr,
    /// Shared memory.
    pub to: Mem,
    /// Where the box begins there.
    pub first: Expr,
    /// Dimensions of the box, outermost first; the elements along the last one are side by side in global memory, too.
    pub dims: Vec<BoxDim>,
}

/// A dimension of a box.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxDim {
    /// Elements along it.
    pub count: u32,
    /// Elements of global memory from one coordinate to the next.
    pub step: Expr,
    /// The first coordinate, and how many there are from zero on: zeros stand for elements of others. None where the box begins at coordinate
    /// zero and all of its elements are there.
    pub range: Option<[Expr; 2]>,
}

impl BoxCopy {
    /// Dimensions at most.
    pub const DIMS: usize = Gpu::BOX_DIMS - 1;

    /// Loops over the elements of the box, outermost first.
    pub fn axes(&self) -> Vec<Axis> {
        let axis = |(number, dim): (usize, &BoxDim)| Axis {
            var: Sym::new(&format!("box.{number}")),
            extent: Expr::int(i64::from(dim.count)),
        };
        self.dims.iter().enumerate().map(axis).collect()
    }

    /// Where the element at these coordinates of the box is in global memory, and what holds where it is there.
    pub fn outside(&self, axes: &[Axis]) -> (Expr, Vec<Rel>) {
        let (mut place, mut guard) = (self.origin, Vec::new());
        for (dim, axis) in self.dims.iter().zip(axes) {
            let mut at = Expr::sym(axis.var);
            if let Some([first, end]) = dim.range {
                at = first + at;
                guard.extend([Rel::le(0, at), Rel::lt(at, end)]);
            }
            place = place + dim.step * at;
        }
        (place, guard)
    }

    /// Where the element at these coordinates of the box is in shared memory.
    pub fn inside(&self, axes: &[Axis]) -> Expr {
        let place = axes.iter().fold(Expr::zero(), |place, axis| place * axis.extent + Expr::sym(axis.var));
        self.first + place
    }
}
