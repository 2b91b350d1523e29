//! Allocates memory for the local buffers that a plan declares.

use super::leaf::Run;
use super::{Builder, Env, space_of};
use litz_analysis::apart::may_be_below;
use litz_analysis::footprint::{Elements, Footprint, Footprints, place_in};
use litz_analysis::inside::{enter, is_inside};
use litz_ir::Diag;
use litz_ir::graph::contiguous_strides;
use litz_ir::kernel::{Mem, MemorySpace};
use litz_ir::loops::{Buf, Nest};
use litz_ir::schedule::{Holds, Layout, Leaf, LocalSpace};
use litz_sym::{Cmp, Expr, Rel};
use std::rc::Rc;

/// A buffer local to this kernel.
pub(super) struct LocalMem {
    mem: Mem,
    footprint: Footprint,
    layout: Layout,
    /// Whether it holds zeros where what it is a copy of has no elements.
    is_filled: bool,
    /// Whether it holds what is there before and behind the rows that it is a copy of.
    is_surrounded: bool,
    /// Whether it is registers of what nests pass on.
    is_passed_on: bool,
}

impl LocalMem {
    /// Coordinates of the element that a leaf accesses at `index`.
    fn place(&self, index: &[Expr], run: &Run<'_, '_>) -> Vec<Expr> {
        let place = self.footprint.place(index, run.nest, &|e| run.expr(e), run.facts);
        place_in(self.layout, place, run.facts)
    }
}

impl<'a> Builder<'a> {
    /// Makes memory for every local buffer that something is stored to, and keeps the shapes of accumulators.
    pub(super) fn declare_locals(&mut self, footprints: &Footprints<'a>) -> Result<(), Diag> {
        for (number, local) in footprints.locals().enumerate() {
            let elements = footprints.elements(number).map_err(|why| self.error(why))?;
            let Some(elements) = elements else { continue };
            let sizes = elements.sizes(local);
            let name = local.buffer().unwrap_or_default();
            let has_all = footprints.is_filled(number, &elements);
            let is_surrounded = has_all && self.begins_before(name, footprints);
            let is_filled = has_all && !is_surrounded;
            let data = self.names.bufs.get(name).map(|&buf| &self.loops.bufs[buf]);
            let swizzle = data.map(|data| elements.swizzle(local.layout, data.dtype.size())).transpose();
            let swizzle = swizzle.map_err(|why| self.error(format!("{name}: {why}")))?.flatten();
            match elements {
                Elements::Accumulators(shape) => drop(self.shapes.insert(local, shape)),
                Elements::Buffer(footprint) => {
                    let Some(data) = data else { continue };
                    let mem = self.local(&data.name, data.dtype, sizes, space_of(local.space));
                    self.kernel.mems[mem].swizzle = swizzle;
                    let layout = local.layout;
                    let is_passed_on =
                        local.space == LocalSpace::Register && matches!(local.holds, Holds::Buffer(_));
                    let local_mem =
                        LocalMem { mem, footprint, layout, is_filled, is_surrounded, is_passed_on };
                    self.locals.insert(local, Rc::new(local_mem));
                }
            }
        }
        Ok(())
    }

    /// Whether leaves of a copy may come to points before the first.
    fn begins_before(&self, copy: &str, footprints: &Footprints<'a>) -> bool {
        footprints.leaves().iter().filter(|(leaf, _)| leaf.nest == copy && leaf.masked).any(|(leaf, path)| {
            let mut facts = self.loops.facts.clone();
            self.plan.grid.iter().copied().chain(path.loops()).for_each(|axis| enter(&mut facts, axis));
            leaf.bind.iter().any(|bind| may_be_below(bind.1, &facts))
        })
    }

    /// What the leaf of a copy loads whose rows begin within the runs that threads take at once: an element of any row, where there is one and the run
    /// begins before the end of its own. No one who reads the copy asks for those of others, and the runs are whole so. None where it is no such leaf, or what is copied is stored to
    /// as well, so that those of other rows may be under way.
    pub(super) fn surroundings(
        &self,
        (buf, index): (Buf, &[Expr]),
        run: &Run<'a, '_>,
    ) -> Option<(Mem, Vec<Expr>, Vec<Rel>)> {
        let held = run.locals.iter().rev().find(|held| self.loops.bufs[held.buf].name == run.nest.name)?;
        held.declared.as_deref().filter(|local| local.is_surrounded && held.of == Some(buf))?;
        let mem = *self.mem_of.get(&buf)?;
        let (data, there) = (&self.loops.bufs[buf], &self.kernel.mems[mem]);
        let is_whole = (&there.sizes, &there.strides) == (&data.sizes, &data.strides)
            && there.space == MemorySpace::Read
            && contiguous_strides(&data.sizes) == data.strides;
        is_whole.then(|| {
            let place = run.expr(self.loops.place(run.nest, buf, index));
            let (place, is_there) = self.inside(place, data.elements(), run);
            let (mut rest, mut at) = (place, Vec::new());
            for &size in data.sizes.iter().skip(1).rev() {
                at.push(run.facts.simplify(rest.modulo(size)));
                rest = run.facts.simplify(rest.floordiv(size));
            }
            at.push(rest);
            at.reverse();
            let first = |e: Expr| run.of_vector.map_or(e, |axis| e.replace(axis.var, Expr::zero()));
            let ends = run.guard.iter().filter(|rel| rel.cmp == Cmp::Lt);
            let ends = ends.map(|rel| Rel { lhs: first(rel.lhs), ..*rel });
            (mem, at, ends.chain(is_there).collect())
        })
    }

    /// The place of an element, and what says that it is one of so many. Of a vector whose elements are a whole run that is asked of the last one: there
    /// are all of them or none.
    fn inside(&self, place: Expr, elements: Expr, run: &Run<'_, '_>) -> (Expr, Vec<Rel>) {
        let of_run = || {
            let axis = run.of_vector?;
            let count = axis.extent.as_int().filter(|count| *count > 0)?;
            let (step, first) = place.linear(axis.var)?;
            let is_multiple = |e: Expr| run.facts.simplify(e.modulo(count)).is_zero();
            let number = run.facts.simplify(first.floordiv(count));
            let is_whole = step.is_one() && is_multiple(first) && is_multiple(elements);
            // 5*q - mod(q, 4) is 4*(q + floordiv(q, 4)), of which is known that it is no less than 0.
            let first = number * count;
            (is_whole && run.facts.holds(&Rel::le(0, number)))
                .then(|| (first + Expr::sym(axis.var), vec![Rel::lt(first + (count - 1), elements)]))
        };
        of_run().unwrap_or_else(|| (place, vec![Rel::lt(place, elements), Rel::le(0, place)]))
    }

    /// Memory and coordinates for the element of `buf` at `index`.
    pub(super) fn element(
        &self,
        buf: Buf,
        index: &[Expr],
        run: &Run<'a, '_>,
    ) -> Result<(Mem, Vec<Expr>), Diag> {
        let data = &self.loops.bufs[buf];
        if let Some(local) = local_of(buf, run) {
            return Ok((local.mem, local.place(index, run)));
        }
        if let Some(&mem) = self.mem_of.get(&buf) {
            let there = &self.kernel.mems[mem];
            if (&there.sizes, &there.strides) == (&data.sizes, &data.strides) {
                return Ok((mem, run.exprs(index)));
            }
            // Buffers of different shapes share this parameter, which is flat.
            return Ok((mem, vec![run.expr(self.loops.place(run.nest, buf, index))]));
        }
        Err(self.error(format!("{} is neither a parameter nor local", data.name)))
    }

    /// Those of some guards that a store of a leaf to `buf` does without. A copy that is filled holds zeros where there is nothing to copy. In
    /// registers of what nests pass on, elements past the end of the buffer are nobody's where there is room for them: no point that
    /// exists loads one.
    pub(super) fn unneeded(
        &self,
        (buf, index): (Buf, &[Expr]),
        guards: &[Rel],
        run: &Run<'a, '_>,
    ) -> Vec<Rel> {
        match local_of(buf, run) {
            Some(local) if local.is_filled || local.is_surrounded => guards.to_vec(),
            Some(local) if local.is_passed_on && self.has_room((buf, index), run) => {
                self.ends(buf, index, guards, run, &|dim| local.footprint.is_outermost(dim))
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Whether an element that a leaf accesses as one of `buf` is one of a copy that is filled, or of registers, at points past the ends of
    /// axes as well: loaded without asking for these it is some number.
    pub(super) fn has_room(&self, (buf, index): (Buf, &[Expr]), run: &Run<'a, '_>) -> bool {
        let has_more = |local: &&LocalMem| local.is_filled || local.is_surrounded || local.is_passed_on;
        local_of(buf, run).filter(has_more).is_some_and(|local| {
            let counts = &self.kernel.mems[local.mem].sizes;
            let place = local.place(index, run);
            let is_there = |(&at, &count): (&Expr, &Expr)| {
                is_inside(at, count, run.facts) && !may_be_below(at, run.facts)
            };
            place.iter().zip(counts).all(is_there)
        })
    }

    /// Those of some guards that say whether there is an element of what `buf` is a copy of, where the copy holds zero if there is none,
    /// and its memory has room for what is there instead.
    pub(super) fn zeros(&self, (buf, index): (Buf, &[Expr]), guards: &[Rel], run: &Run<'a, '_>) -> Vec<Rel> {
        let is_filled = local_of(buf, run).is_some_and(|local| local.is_filled);
        match is_filled && self.has_room((buf, index), run) {
            true => self.ends(buf, index, guards, run, &|_| true),
            false => Vec::new(),
        }
    }

    /// Those of some guards that say whether an element of `buf` is before the end, along some of its dimensions.
    fn ends(
        &self,
        buf: Buf,
        index: &[Expr],
        guards: &[Rel],
        run: &Run<'a, '_>,
        is_meant: &dyn Fn(usize) -> bool,
    ) -> Vec<Rel> {
        let simple = |e: Expr| run.facts.simplify(e);
        let ends: Vec<[Expr; 2]> = index
            .iter()
            .zip(&self.loops.bufs[buf].sizes)
            .enumerate()
            .filter(|&(dim, _)| is_meant(dim))
            .map(|(_, (&at, &size))| [simple(run.expr(at)), simple(size)])
            .collect();
        let says_so = |rel: &&Rel| rel.cmp == Cmp::Lt && ends.contains(&[simple(rel.lhs), simple(rel.rhs)]);
        guards.iter().filter(says_so).copied().collect()
    }
}

/// The memory that a leaf of a nest of one store stores to, and the coordinates there, where that is local.
pub(super) fn stored(nest: &Nest, leaf: &Leaf, env: &Env<'_>) -> Option<(Mem, Vec<Expr>)> {
    let (buf, index) = nest.body.last()?.op.element()?;
    let held = env.locals.iter().rev().find(|held| held.buf == buf)?;
    let local = held.declared.as_deref()?;
    let value = |e: Expr| env.facts.simplify(e.subst(&|axis| super::bound(leaf, axis)));
    let place = local.footprint.place(index, nest, &value, &env.facts);
    Some((local.mem, place_in(local.layout, place, &env.facts)))
}

/// The local buffer that a leaf accesses as `buf`, if it is one.
fn local_of<'e>(buf: Buf, run: &Run<'_, 'e>) -> Option<&'e LocalMem> {
    let held = run.locals.iter().rev().find(|held| held.buf == buf);
    held.and_then(|held| held.declared.as_deref())
}
