//! Buffers that never leave the kernel: how much of them one iteration of their scope touches, and where.

use super::leaf::Run;
use super::{Builder, MAX_REGISTER_ELEMENTS, leaves_in_loops};
use crate::access::Region;
use litz_ir::Diag;
use litz_ir::kernel::{Mem, Space};
use litz_ir::loops::{Axis, Buf, InstOp, Nest};
use litz_ir::schedule::{Leaf, LocalSpace, LoopKind};
use litz_sym::{Expr, Facts, Sym};

/// A buffer local to this kernel: the elements of a region of it, row by row.
pub(super) struct LocalMem {
    mem: Mem,
    region: Region,
    /// Extents of the array that holds the region: its counts, rows of scratch memory padded.
    extents: Vec<Expr>,
}

/// Elements of a row are padded to whole runs of this many: a cache line of 32-bit elements.
const LINE: i64 = 16;

impl<'a> Builder<'a> {
    /// Sizes every local buffer: it keeps what the stores of one iteration of its scope touch.
    pub(super) fn declare_locals(&mut self, facts: &Facts) -> Result<(), Diag> {
        let leaves = leaves_in_loops(&self.plan.body);
        for plan in &self.plan.locals {
            let Some(&buf) = self.names.bufs.get(plan.buf.as_str()) else {
                return Err(self.error(format!("no buffer {}", plan.buf)));
            };
            let data = &self.loops.bufs[buf];
            // A buffer that no leaf stores to holds nothing to read.
            let Some(region) = self.stored_region(buf, plan.scope, &leaves, facts)? else { continue };
            let counts: Vec<Expr> = region.steps.iter().map(|s| s.1).collect();
            let extent = counts.iter().fold(Expr::one(), |n, &count| n * count);
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
            let extents = if space == Space::Scratch { padded(counts) } else { counts };
            let extent = extents.iter().fold(Expr::one(), |n, &count| n * count);
            let mem = self.local(&data.name, data.dtype, extent, space);
            self.locals.insert(buf, LocalMem { mem, region, extents });
        }
        Ok(())
    }

    /// What all stores to `buf` touch in one iteration of the loop `scope`: all of it where that has no regular shape.
    fn stored_region(
        &self,
        buf: Buf,
        scope: Option<Sym>,
        leaves: &[(&'a Leaf, Vec<(LoopKind, Axis)>)],
        facts: &Facts,
    ) -> Result<Option<Region>, Diag> {
        let mut region: Option<Region> = None;
        let whole = || Region::whole(self.loops.bufs[buf].span());
        for (leaf, path) in leaves {
            for inst in &self.nest(leaf)?.body {
                let InstOp::Store { buf: stored, index, .. } = &inst.op else { continue };
                if *stored != buf {
                    continue;
                }
                let mut facts = facts.clone();
                path.iter().for_each(|(_, a)| facts.declare_index(a.var, a.extent));
                let outside = match scope {
                    Some(s) if self.plan.grid.iter().all(|a| a.var != s) => {
                        path.iter().position(|(_, a)| a.var == s).map_or(path.len(), |at| at + 1)
                    }
                    Some(_) | None => 0,
                };
                // Points of a tile are in flight together, wherever its loop stands.
                let is_inside = |at: usize, kind: LoopKind| at >= outside || is_tile(kind);
                let inside = path.iter().enumerate().filter(|(at, (kind, _))| is_inside(*at, *kind));
                let inside: Vec<Axis> = inside.map(|(_, (_, axis))| *axis).collect();
                let nest = self.nest(leaf)?;
                let (bind, inner) = inner_axes(leaf, nest, &inside, &facts);
                inner.iter().for_each(|a| facts.declare_index(a.var, a.extent));
                let place = self.loops.place(nest, buf, index);
                let place = place.subst(&|s| bind.iter().find(|b| b.0 == s).map(|b| b.1));
                let loops = path.iter().map(|(_, axis)| axis).chain(&self.plan.grid).map(|axis| axis.var);
                let loops: Vec<Sym> = loops.collect();
                // Of axes without points nothing is touched, and there is no largest index.
                let has_points = inner.iter().all(|axis| !axis.extent.is_zero());
                let here = has_points.then(|| Region::of(facts.simplify(place), &inner, &facts)).flatten();
                let here = here.and_then(|region| largest(region, &loops, &facts)).unwrap_or_else(whole);
                region = Some(match region {
                    None => here,
                    Some(region) => region.union(&here, &facts).unwrap_or_else(whole),
                });
            }
        }
        Ok(region)
    }

    /// Memory and element for the element of `buf` at a place.
    pub(super) fn element(&self, buf: Buf, place: Expr, run: &Run<'a, '_>) -> Result<(Mem, Expr), Diag> {
        if let Some(&mem) = self.mem_of.get(&buf) {
            return Ok((mem, run.expr(place)));
        }
        let Some(local) = self.locals.get(&buf) else {
            let name = &self.loops.bufs[buf].name;
            return Err(self.error(format!("{name} is neither a parameter nor local")));
        };
        // Axes that only run inside keep their names at first: their extents are known better than those of the loops
        // around them, which may run past the end.
        let base = local.region.base.syms();
        let mut facts = run.facts.clone();
        let (mut kept, mut flat) = (Vec::new(), place);
        for axis in run.nest.all_axes().filter(|a| place.has_sym(a.var)) {
            let value = run.expr(Expr::sym(axis.var));
            if !base.iter().any(|&s| value.has_sym(s)) && value.as_int().is_none() {
                let name = inner_name(axis.var);
                facts.declare_index(name, axis.extent);
                flat = flat.replace(axis.var, Expr::sym(name));
                kept.push((name, value));
            }
        }
        let mut rest = facts.simplify(run.expr(flat) - local.region.base);
        let mut element = Expr::zero();
        for (i, (&(step, _), &extent)) in local.region.steps.iter().zip(&local.extents).enumerate() {
            element = element * extent + facts.simplify(rest.floordiv(step));
            if i + 1 < local.region.steps.len() {
                rest = facts.simplify(rest.modulo(step));
            }
        }
        let value = |s: Sym| kept.iter().find(|k| k.0 == s).map(|k| k.1);
        let element = if kept.is_empty() { element } else { run.facts.simplify(element.subst(&value)) };
        Ok((local.mem, element))
    }
}

/// The region with counts that do not depend on where the loops are: the last block of a loop may be shorter than others.
fn largest(region: Region, loops: &[Sym], facts: &Facts) -> Option<Region> {
    let count =
        |count: Expr| Some(facts.largest(count, loops)).filter(|e| !loops.iter().any(|&s| e.has_sym(s)));
    let steps = region.steps.into_iter().map(|(step, n)| Some((step, count(n)?))).collect::<Option<_>>()?;
    Some(Region { steps, ..region })
}

/// Whether a loop is held back for the leaves below it.
pub(super) fn is_tile(kind: LoopKind) -> bool {
    match kind {
        LoopKind::Tile | LoopKind::TileVector { .. } | LoopKind::Mma => true,
        LoopKind::For
        | LoopKind::Partial
        | LoopKind::Unroll
        | LoopKind::Vector { .. }
        | LoopKind::Thread
        | LoopKind::Warp => false,
    }
}

/// Extents of an array in scratch memory: its rows take an odd number of cache lines, so that elements below each other
/// are in different sets of the cache.
fn padded(mut counts: Vec<Expr>) -> Vec<Expr> {
    if let [.., row] = counts.as_mut_slice()
        && row.as_int().is_none_or(|n| n >= LINE)
        && counts.len() > 1
    {
        let last = counts.len() - 1;
        counts[last] = (counts[last].ceildiv(LINE).floordiv(2) * 2 + 1) * LINE;
    }
    counts
}

/// The name of an axis while loops that count it are looked through: one that no loop has.
fn inner_name(axis: Sym) -> Sym {
    Sym::new(&format!("{axis} inside"))
}

/// Values of a leaf's axes, and the axes that these run over in the loops `inner`: an axis that only they count takes
/// each of its values, however far the loops run; one that they count on from a first value is an axis of its own.
fn inner_axes(leaf: &Leaf, nest: &Nest, inner: &[Axis], facts: &Facts) -> (Vec<(Sym, Expr)>, Vec<Axis>) {
    let is_inner = |s: Sym| inner.iter().any(|a| a.var == s);
    let (mut bind, mut axes) = (Vec::new(), Vec::new());
    for &(axis, value) in &leaf.bind {
        let is_alone = |s: Sym| leaf.bind.iter().all(|b| b.0 == axis || !b.1.has_sym(s));
        let syms = value.syms();
        let counted = syms.iter().copied().any(is_inner) && syms.iter().all(|&s| !is_inner(s) || is_alone(s));
        let region = counted.then(|| Region::of(value, inner, facts)).flatten().map(Region::merged);
        let extent = nest.all_axes().find(|a| a.var == axis).map(|a| a.extent);
        match (region, extent) {
            (Some(Region { base, steps }), Some(extent)) if matches!(steps[..], [(step, _)] if step.is_one()) =>
            {
                let var = inner_name(axis);
                let extent = if base.is_zero() { extent } else { steps[0].1 };
                axes.push(Axis { var, extent });
                bind.push((axis, base + Expr::sym(var)));
            }
            _ => bind.push((axis, value)),
        }
    }
    let rest = inner.iter().filter(|a| bind.iter().any(|b| b.1.has_sym(a.var)));
    axes.extend(rest);
    (bind, axes)
}
