//! Large packed operands into the second-level cache before they are used.
//!
//! A panel of a packed operand is read front to back by one tile of rows after another. The first of them would wait for
//! memory, the others find it in the second-level cache. So while tiles take turns with one panel, each fetches its share
//! of the next: with `R` tiles, a tile that is at position `p` of its panel fetches position `p / R` of its share.
//! Memory is read at an even pace then, slower by `R` than tiles read the cache.

use litz_ir::kernel::{Mem, Space};
use litz_ir::loops::Axis;
use litz_sym::{Expr, Sym};

use super::block::Value;
use super::ty::{Prim, Ty};
use super::{EmitError, Emitter};

/// Operands of products from this size on are fetched ahead: the second-level caches of smaller cores hold as much.
const FETCHED_FROM: i64 = 1 << 20;

/// Most bytes of a panel that is fetched while another of its size is in use: two of them fit most second-level caches.
const PANEL: i64 = 640 << 10;

/// How far ahead, in bytes, where a panel is read once, or is larger: 800 cycles of a register tile of 13 rows. The
/// processor's own streams follow packed panels, but not far enough: with this BERT-base took 165 ms instead of 179 and
/// ResNet-50 55 instead of 60; 2 KiB and 96 KiB help less (Granite Rapids, one thread, CPU time).
const AHEAD: i64 = 8 << 10;

/// Bytes of a cache line.
const LINE: i64 = 64;

impl Emitter<'_> {
    /// Fetches what a load of whole vectors at `index`, whose address is `address`, will be followed by.
    pub(super) fn fetch(&mut self, mem: Mem, index: Expr, address: &Value) -> Result<(), EmitError> {
        if !self.is_streamed(mem, index) {
            return Ok(());
        }
        let address = match self.next_panel(mem, index) {
            Some(Next { index, is_whole_line: true }) => self.address(mem, index)?,
            // Another load of this step fetches the line.
            Some(Next { is_whole_line: false, .. }) => return Ok(()),
            None => {
                let ahead = self.b.int(Prim::I64, AHEAD);
                self.advance(Ty::scalar(Prim::I8), address, &ahead)
            }
        };
        // It may lie past the end: nothing is read.
        self.b.effect(&format!("call void @llvm.prefetch.p0(ptr {}, i32 0, i32 2, i32 1)", address.text));
        Ok(())
    }

    /// Whether the innermost loop walks through a large operand of a product, a cache line or more at every step.
    fn is_streamed(&self, mem: Mem, index: Expr) -> bool {
        let data = &self.kernel.mems[mem];
        let size = data.dtype.size() as i64;
        let is_large = data.span().as_int().is_some_and(|n| n.saturating_mul(size) >= FETCHED_FROM);
        let step = |var| index.linear(var).and_then(|(step, _)| step.as_int());
        let is_far = self.innermost().and_then(step).is_some_and(|step| step * size >= LINE);
        is_large && is_far && data.space == Space::Read && self.operands.contains(&mem)
    }

    /// Where the share of the next panel lies that belongs to this place of this one; None where panels are not used
    /// several times, or are too large.
    fn next_panel(&self, mem: Mem, index: Expr) -> Option<Next> {
        let mentions = |around: &&Axis| index.has_sym(around.var);
        let inside = self.around.iter().rev().take_while(mentions).count();
        let outside = &self.around[..self.around.len() - inside];
        let turns = outside.iter().rev().take_while(|around| !mentions(around)).count();
        let (outer, turns) = outside.split_at(outside.len() - turns);
        let (panel, _) = index.linear(outer.last()?.var)?;
        let panel = panel.as_int().filter(|&n| n > 0)?;
        let size = self.kernel.mems[mem].dtype.size() as i64;
        let count = self.facts.hint(turns.iter().fold(Expr::one(), |n, around| n * around.extent))?;
        if count < 2 || panel.saturating_mul(size) > PANEL {
            return None;
        }
        let mut position = index;
        for around in outside {
            position = position.linear(around.var)?.1;
        }
        let start = index - position;
        let turn = turns.iter().fold(Expr::zero(), |n, around| n * around.extent + Expr::sym(around.var));
        // Of the position the largest power of two that all its steps are multiples of: shares may overlap, and lines are
        // fetched again.
        let mut divisor = 1 << count.ilog2();
        while position.terms().any(|(step, _)| step % divisor != 0) {
            divisor /= 2;
        }
        let innermost = index.linear(self.innermost()?)?.0.as_int()?;
        if innermost * size / divisor > LINE {
            return None;
        }
        let constant = position.constant();
        let is_whole_line = constant % divisor == 0 && constant / divisor * size % LINE == 0;
        let scaled = position.terms().map(|(step, term)| term * (step / divisor));
        let scaled = scaled.fold(Expr::int(constant / divisor), |sum, term| sum + term);
        let index = start + panel + turn * ((panel + count - 1) / count) + scaled;
        Some(Next { index, is_whole_line })
    }

    /// Variable of the innermost loop that counts.
    fn innermost(&self) -> Option<Sym> {
        self.around.get(self.kernel.grid.len()..)?.last().map(|around| around.var)
    }
}

/// A place in the next panel.
struct Next {
    index: Expr,
    /// Whether no other load of the same step stands for the line it is in.
    is_whole_line: bool,
}
