//! Loads far apart from lane to lane, but side by side from one iteration of a written-out loop to the next, to rows
//! that are loaded whole and transposed in registers.
//!
//! Of `unroll u in 8 { vector v in n by 8 { load x[u + 100*v] } }` the first iteration loads eight rows of eight
//! elements; each iteration asks for a column of the square. Three rounds of shuffles give all columns, and as equal
//! instructions are written once, the others find theirs.

use litz_ir::kernel::{Mem, Space};
use litz_sym::Expr;

use super::block::Value;
use super::{Bound, EmitError, Emitter, Form};

/// A square of elements: rows are contiguous, one for each lane.
struct Square {
    mem: Mem,
    /// Index of the first element of the first row.
    first: Expr,
    /// Distance between rows.
    stride: Expr,
    /// Rows, and columns.
    size: u32,
}

impl Emitter<'_> {
    /// What lanes load at an index, by way of a square, if there is one. None of its elements is loaded in vain: the
    /// iterations of the written-out loop load them all.
    pub(super) fn load_transposed(&mut self, mem: Mem, index: Expr) -> Result<Option<Value>, EmitError> {
        let Some((square, column)) = self.square(mem, index) else { return Ok(None) };
        let value = self.column(&square, square.size / 2, column)?;
        Ok(Some(self.widen(&value, self.mems[mem].dtype)))
    }

    /// The square that an index is in, and its column.
    fn square(&self, mem: Mem, index: Expr) -> Option<(Square, u32)> {
        let lanes = self.lanes.as_ref().filter(|lanes| lanes.mask.is_none())?;
        // What the kernel writes may change from one iteration to the next.
        if self.mems[mem].form != Form::Memory || self.kernel.mems[mem].space != Space::Read {
            return None;
        }
        self.unrolled.iter().rev().filter(|unrolled| unrolled.1 == i64::from(lanes.count)).find_map(
            |&(var, _)| {
                let Some(Bound::Constant(column)) = self.syms.get(&var) else { return None };
                let (step, rest) = index.linear(var)?;
                let (stride, rest) = self.resolve(rest).linear(lanes.var)?;
                let is_apart = stride.as_int().is_none_or(|stride| !(-1..=1).contains(&stride));
                if !step.is_one() || !is_apart || self.varies(stride) || self.varies(rest) {
                    return None;
                }
                let first = rest + lanes.first * stride;
                Some((Square { mem, first, stride, size: lanes.count }, u32::try_from(*column).ok()?))
            },
        )
    }

    /// A column of a square of which blocks of `2*half` rows and columns are transposed; a row where `half` is 0.
    fn column(&mut self, square: &Square, half: u32, at: u32) -> Result<Value, EmitError> {
        if half == 0 {
            let address = self.address(square.mem, square.first + square.stride * i64::from(at))?;
            return Ok(self.load_vector(square.mem, &address, None));
        }
        // Blocks off the diagonal change places: of two lines a block apart, one gets the left blocks of both, the
        // other the right ones.
        let (upper, lower) = (at & !half, at | half);
        let (a, b) = (self.column(square, half / 2, upper)?, self.column(square, half / 2, lower)?);
        let shift = at & half;
        let lane = |lane: u32| (lane & !half) + shift + if lane & half == 0 { 0 } else { square.size };
        Ok(self.b.shuffle(&a, &b, (0..square.size).map(lane)))
    }
}
