//! Buffers that never leave the kernel: how much of them one iteration of their scope touches, and where.

use super::leaf::Run;
use super::{Builder, MAX_REGISTER_ELEMENTS};
use crate::access::Region;
use litz_ir::Diag;
use litz_ir::kernel::{Mem, Space};
use litz_ir::loops::{Axis, Buf, InstOp};
use litz_ir::schedule::{Leaf, LocalSpace, Tree};
use litz_sym::{Expr, Facts, Sym};

/// A buffer local to this kernel: the elements of a region of it, row by row.
pub(super) struct LocalMem {
    mem: Mem,
    region: Region,
}

impl<'a> Builder<'a> {
    /// Sizes every local buffer: it keeps what the stores of one iteration of its scope touch.
    pub(super) fn declare_locals(&mut self, leaves: &[&'a Leaf], facts: &Facts) -> Result<(), Diag> {
        if self.plan.locals.is_empty() {
            return Ok(());
        }
        let mut inside = facts.clone();
        let mut loops = Vec::new();
        scope_axes(&self.plan.body, None, true, &mut loops);
        loops.iter().for_each(|a| inside.declare_index(a.var, a.extent));
        for plan in &self.plan.locals {
            let Some(&buf) = self.names.bufs.get(plan.buf.as_str()) else {
                return Err(self.error(format!("no buffer {}", plan.buf)));
            };
            let data = &self.loops.bufs[buf];
            // Loops inside the scope, with the extents that the tree states.
            let mut inner = Vec::new();
            let in_grid = plan.scope.is_none_or(|s| self.plan.grid.iter().any(|a| a.var == s));
            scope_axes(&self.plan.body, plan.scope, in_grid, &mut inner);
            // A buffer that no leaf stores to holds nothing to read.
            let Some(region) = self.stored_region(buf, leaves, &inner, &inside)? else { continue };
            let extent = region.steps.iter().fold(Expr::one(), |n, s| n * s.1);
            let space = match plan.space {
                LocalSpace::Register if extent.as_int().is_some_and(|n| n <= MAX_REGISTER_ELEMENTS) => {
                    Space::Register
                }
                // A single element is best kept in a register whatever was asked.
                LocalSpace::Register | LocalSpace::Scratch if extent.is_one() => Space::Register,
                LocalSpace::Register | LocalSpace::Scratch => Space::Scratch,
                LocalSpace::Shared => {
                    return Err(self.error(format!("{}: this target has no shared memory", data.name)));
                }
            };
            let mem = self.local(&data.name, data.dtype, extent, space);
            self.locals.insert(buf, LocalMem { mem, region });
        }
        Ok(())
    }

    /// What all stores to `buf` touch over the points of `inner`: all of it where that has no regular shape.
    fn stored_region(
        &self,
        buf: Buf,
        leaves: &[&'a Leaf],
        inner: &[Axis],
        facts: &Facts,
    ) -> Result<Option<Region>, Diag> {
        let mut region: Option<Region> = None;
        let whole = || Region::whole(self.loops.bufs[buf].span());
        for leaf in leaves {
            for inst in &self.nest(leaf)?.body {
                let InstOp::Store { buf: stored, index, .. } = inst.op else { continue };
                if stored != buf {
                    continue;
                }
                let flat = index.subst(&|s| super::bound(leaf, s));
                let here = Region::of(facts.simplify(flat), inner, facts).unwrap_or_else(whole);
                region = Some(match region {
                    None => here,
                    Some(region) => region.union(&here, facts).unwrap_or_else(whole),
                });
            }
        }
        Ok(region)
    }

    /// Memory and element for element `index` of `buf`.
    pub(super) fn place(&self, buf: Buf, index: Expr, run: &Run<'a, '_>) -> Result<(Mem, Expr), Diag> {
        let flat = run.expr(index);
        if let Some(&mem) = self.mem_of.get(&buf) {
            return Ok((mem, flat));
        }
        let Some(LocalMem { mem, region }) = self.locals.get(&buf) else {
            let name = &self.loops.bufs[buf].name;
            return Err(self.error(format!("{name} is neither a parameter nor local")));
        };
        let mut rest = run.facts.simplify(flat - region.base);
        let mut index = Expr::zero();
        for (i, &(step, extent)) in region.steps.iter().enumerate() {
            index = index * extent + run.facts.simplify(rest.floordiv(step));
            if i + 1 < region.steps.len() {
                rest = run.facts.simplify(rest.modulo(step));
            }
        }
        Ok((*mem, index))
    }
}

/// Axes of the loops inside the loop `scope` (of every loop, once `inside`).
fn scope_axes(trees: &[Tree], scope: Option<Sym>, inside: bool, out: &mut Vec<Axis>) {
    for tree in trees {
        if let Tree::Loop { axis, body, .. } = tree {
            if inside {
                out.push(*axis);
            }
            scope_axes(body, scope, inside || scope == Some(axis.var), out);
        }
    }
}
