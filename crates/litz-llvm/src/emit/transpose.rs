//! Prints loads that are transposed: rows are loaded whole, and columns put together in registers.
//!
//! Of `unroll u in 8 { vector v in n by 8 { load x[u + 100*v] transposed along u } }` the first iteration loads eight rows of
//! eight elements; each iteration asks for a column of the block. Three rounds of shuffles give all columns, and as equal
//! instructions are written once, the others find theirs.

use litz_ir::kernel::Mem;
use litz_sym::{Expr, Sym};

use super::block::Value;
use super::{Bound, EmitError, Emitter};

/// A transpose block: as many rows of contiguous elements as there are lanes, one for each.
struct TransposeBlock {
    mem: Mem,
    /// Index of the first element of the first row.
    first: Expr,
    /// Distance between rows.
    stride: Expr,
    /// Rows, and columns.
    size: u32,
}

impl Emitter<'_> {
    /// What lanes load at an index, by way of the transpose block whose rows are along a loop; where some lanes do not run, each by
    /// itself.
    pub(super) fn load_transposed(&mut self, mem: Mem, index: Expr, along: Sym) -> Result<Value, EmitError> {
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.mask.is_none()) else {
            let index = self.resolve(index);
            return self.load_if(mem, index, None);
        };
        let block = || {
            let Some(Bound::Constant(column)) = self.syms.get(&along) else { return None };
            let (_, rest) = index.linear(along)?;
            let (stride, rest) = self.resolve(rest).linear(lanes.var)?;
            let first = rest + lanes.first * stride;
            Some((TransposeBlock { mem, first, stride, size: lanes.count }, u32::try_from(*column).ok()?))
        };
        let Some((block, column)) = block() else {
            return Err(EmitError::malformed(format!("rows along {along} that are no transpose block")));
        };
        let value = self.column(&block, block.size / 2, column)?;
        Ok(self.widen(&value, self.mems[mem].dtype))
    }

    /// A column of a block of which sub-blocks of `2*half` rows and columns are transposed; a row where `half` is 0.
    fn column(&mut self, block: &TransposeBlock, half: u32, at: u32) -> Result<Value, EmitError> {
        if half == 0 {
            let address = self.address(block.mem, block.first + block.stride * i64::from(at))?;
            return Ok(self.load_vector(block.mem, &address, None));
        }
        // Sub-blocks off the diagonal change places: of two rows that are `half` apart, one gets the left halves of both, the
        // other the right ones.
        let (upper, lower) = (at & !half, at | half);
        let (a, b) = (self.column(block, half / 2, upper)?, self.column(block, half / 2, lower)?);
        let shift = at & half;
        let lane = |lane: u32| (lane & !half) + shift + if lane & half == 0 { 0 } else { block.size };
        Ok(self.b.shuffle(&a, &b, (0..block.size).map(lane)))
    }
}
