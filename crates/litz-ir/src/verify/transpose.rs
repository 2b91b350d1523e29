//! Finds the loads of a vector loop that can be done by transpose blocks: rows are loaded whole and transposed in registers.

use crate::kernel::{KernelLoopKind, Loop};
use litz_sym::{Expr, Sym};

/// The loops around a statement, as far as they decide which elements iterations load together.
#[derive(Clone, Default)]
pub struct TransposeLoops {
    /// Unrolled loops with their extents, every iteration of which runs the statement.
    written_out: Vec<(Sym, i64)>,
    /// Variable and lanes of the vector loop.
    vector: Option<(Sym, u32)>,
    /// Symbols whose values may differ from lane to lane.
    varying: Vec<Sym>,
}

impl TransposeLoops {
    /// The loops around the statements of the loop `inner`.
    pub fn inside(&self, inner: &Loop) -> TransposeLoops {
        let mut inside = self.clone();
        inside.written_out.retain(|(var, _)| !inner.extent.has_sym(*var));
        match inner.kind {
            KernelLoopKind::Unroll => {
                inside.written_out.extend(inner.extent.as_int().map(|extent| (inner.var, extent)));
            }
            KernelLoopKind::Vector { lanes: lanes @ 2.., lane, .. } if self.vector.is_none() => {
                inside.vector = Some((inner.var, lanes));
                inside.varying.extend(lane);
            }
            KernelLoopKind::For
            | KernelLoopKind::Vector { .. }
            | KernelLoopKind::Level(_)
            | KernelLoopKind::Chain
            | KernelLoopKind::Pipeline { .. }
            | KernelLoopKind::Search
            | KernelLoopKind::Mma { .. } => {}
        }
        inside
    }

    /// The loops around statements under a condition, which not every iteration runs.
    pub fn in_branch(&self) -> TransposeLoops {
        TransposeLoops { written_out: Vec::new(), ..self.clone() }
    }

    /// Notes a symbol that a statement binds.
    pub fn bind(&mut self, sym: Sym) {
        if self.vector.is_some() {
            self.varying.push(sym);
        }
    }

    /// Whether elements are side by side along a written-out loop of as many iterations as there are lanes, and a distance
    /// apart from lane to lane that is the same for all. Then the rows along the loop, one for each lane, are a transpose block,
    /// and all iterations together load every element of it.
    pub fn is_transpose_block(&self, place: Expr, along: Sym) -> bool {
        let Some((var, lanes)) = self.vector else { return false };
        let Some((step, rest)) = place.linear(along) else { return false };
        let Some((stride, rest)) = rest.linear(var) else { return false };
        let is_apart = stride.as_int().is_none_or(|stride| !(-1..=1).contains(&stride));
        let varies = |e: Expr| self.varying.iter().any(|&sym| e.has_sym(sym));
        let is_whole = self.written_out.contains(&(along, i64::from(lanes)));
        is_whole && step.is_one() && is_apart && !varies(stride) && !varies(rest)
    }

    /// The innermost loop along which the element at `place` is in a transpose block.
    pub fn along(&self, place: Expr) -> Option<Sym> {
        self.written_out.iter().rev().map(|&(var, _)| var).find(|&var| self.is_transpose_block(place, var))
    }
}
