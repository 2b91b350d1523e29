//! Buffers that never leave the kernel: how much of them one iteration of their scope touches, and where.

use super::leaf::Run;
use super::{Builder, MAX_REGISTER_ELEMENTS, bound, collect_leaves};
use crate::access::Region;
use litz_ir::Diag;
use litz_ir::kernel::{Mem, Space};
use litz_ir::loops::{Axis, Buf, InstOp};
use litz_ir::schedule::{Leaf, LocalSpace};
use litz_sym::{Expr, Facts, Sym};

/// A buffer local to this kernel: the elements of a region of it, row by row.
pub(super) struct LocalMem {
    mem: Mem,
    region: Region,
}

impl<'a> Builder<'a> {
    /// Sizes every local buffer: it keeps what the stores of one iteration of its scope touch.
    pub(super) fn declare_locals(&mut self, facts: &Facts) -> Result<(), Diag> {
        let leaves = collect_leaves(&self.plan.body);
        for plan in &self.plan.locals {
            let Some(&buf) = self.names.bufs.get(plan.buf.as_str()) else {
                return Err(self.error(format!("no buffer {}", plan.buf)));
            };
            let data = &self.loops.bufs[buf];
            // A buffer that no leaf stores to holds nothing to read.
            let Some(region) = self.stored_region(buf, plan.scope, &leaves, facts)? else { continue };
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

    /// What all stores to `buf` touch in one iteration of the loop `scope`: all of it where that has no regular shape.
    fn stored_region(
        &self,
        buf: Buf,
        scope: Option<Sym>,
        leaves: &[(&'a Leaf, Vec<Axis>)],
        facts: &Facts,
    ) -> Result<Option<Region>, Diag> {
        let mut region: Option<Region> = None;
        let whole = || Region::whole(self.loops.bufs[buf].span());
        for (leaf, path) in leaves {
            for inst in &self.nest(leaf)?.body {
                let InstOp::Store { buf: stored, index, .. } = inst.op else { continue };
                if stored != buf {
                    continue;
                }
                let mut facts = facts.clone();
                path.iter().for_each(|a| facts.declare_index(a.var, a.extent));
                let outside = match scope {
                    Some(s) if self.plan.grid.iter().all(|a| a.var != s) => {
                        path.iter().position(|a| a.var == s).map_or(path.len(), |at| at + 1)
                    }
                    Some(_) | None => 0,
                };
                let flat = facts.simplify(index.subst(&|s| bound(leaf, s)));
                let here = Region::of(flat, &path[outside..], &facts).unwrap_or_else(whole);
                region = Some(match region {
                    None => here,
                    Some(region) => region.union(&here, &facts).unwrap_or_else(whole),
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
