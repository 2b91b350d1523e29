//! Computes the footprint of a local buffer: the elements that one run of its block stores to, and their coordinates in memory
//! of that size.

use super::strided::StridedSet;
use super::{Around, Declared, Footprints, Path};
use crate::defined::is_defined;
use crate::inside::{first_and_count, longest, loops_where};
use crate::parts::parts_of;
use litz_ir::Scalar;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, InstOp, Nest};
use litz_ir::schedule::{Leaf, LocalSpace, Means};
use litz_sym::{Expr, Facts, Sym};
use std::cmp::Reverse;

/// The elements of a buffer that one iteration of a scope stores to.
pub struct Footprint {
    /// Which elements, outermost dimensions first. Their counts are the dimensions of the memory.
    extents: Vec<Extent>,
}

impl Footprint {
    /// Elements along each dimension of the memory.
    pub(super) fn counts(&self) -> Vec<Expr> {
        self.extents.iter().flat_map(|extent| extent.set.steps.iter().map(|step| step.1)).collect()
    }

    /// Whether a coordinate of the buffer is the outermost of those that are counted together: past its end there is no element of another row.
    pub fn is_outermost(&self, dim: usize) -> bool {
        self.extents.iter().any(|extent| extent.dims.0.first().is_some_and(|first| first.0 == dim))
    }

    /// Coordinates in the memory of what a leaf of `nest` accesses at `index`, in terms of the nest's axes. `value` puts the values of
    /// axes in, which loops give that `facts` know.
    pub fn place(
        &self,
        index: &[Expr],
        nest: &Nest,
        value: &dyn Fn(Expr) -> Expr,
        facts: &Facts,
    ) -> Vec<Expr> {
        self.extents.iter().flat_map(|extent| extent.place(index, nest, value, facts)).collect()
    }
}

impl Footprints<'_> {
    /// What the stores to a buffer touch where it is declared. None where there are none.
    pub(super) fn footprint(&self, buf: Buf, declared: &Declared<'_>) -> Result<Option<Footprint>, String> {
        let stores = self.stores_to(buf, declared)?;
        // A buffer that no leaf stores to holds nothing to read.
        Ok((!stores.is_empty()).then(|| Footprint { extents: self.extents(buf, &stores) }))
    }

    /// Whether one leaf stores to all elements of a copy where it is declared, to each once, those for points past the ends of its axes
    /// among them: of a copy of a buffer, or in shared memory of what a nest copies elsewhere from.
    pub(super) fn is_filled_copy(&self, declared: &Declared<'_>, footprint: &Footprint) -> bool {
        let Some(name) = declared.local.buffer() else { return false };
        let is_copy = declared.local.copied().is_some();
        // Of what nests pass on in registers, nobody reads an element that is not there.
        if !is_copy && declared.local.space != LocalSpace::Shared {
            return false;
        }
        let is_stored = |leaf: &Leaf| match is_copy {
            true => leaf.nest == name,
            false => self.nest(&leaf.nest).is_ok_and(|nest| self.copies_to(nest, name)),
        };
        let is_own = |path: &Path<'_>| path.locals.iter().any(|local| std::ptr::eq(*local, declared.local));
        let mut stores = self.leaves.iter().filter(|(leaf, path)| is_stored(leaf) && is_own(path));
        let (Some((leaf, path)), None) = (stores.next(), stores.next()) else { return false };
        let inside = path.around.get(declared.path.around.len()..).unwrap_or_default();
        let mut inner = Vec::new();
        for around in inside {
            let Around::Loop(axis) = around else { return false };
            inner.push(*axis);
        }
        let Ok(nest) = self.nest(&leaf.nest) else { return false };
        let mut facts = self.facts.clone();
        path.loops().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        let axes: Vec<Expr> = nest.axes.iter().map(|axis| Expr::sym(axis.var)).collect();
        let stored = nest.body.last().and_then(|inst| inst.op.element()).map(|(_, index)| index);
        let index = if is_copy { &axes[..] } else { stored.unwrap_or_default() };
        let value = |e: Expr| facts.simplify(e.subst(&|s| super::bound(leaf, s)));
        let place = footprint.place(index, nest, &value, &facts);
        let counts = footprint.counts();
        let flat = place.iter().zip(&counts).fold(Expr::zero(), |flat, (&at, &count)| flat * count + at);
        let Some(set) = StridedSet::of(facts.simplify(flat), &inner, &facts) else { return false };
        let StridedSet { base, steps } = set.merged();
        let all = facts.simplify(counts.into_iter().product());
        base.is_zero()
            && match &steps[..] {
                [] => all.is_one(),
                [(step, count)] => step.is_one() && facts.simplify(*count) == all,
                _ => false,
            }
    }

    /// Whether a nest copies elements as they are to the buffer of that name, and zeros where there are none.
    fn copies_to(&self, nest: &Nest, name: &str) -> bool {
        let [load, store] = &nest.body[..] else { return false };
        let InstOp::Load { other, guard, .. } = &load.op else { return false };
        let InstOp::Store { buf, value, combine: None, .. } = store.op else { return false };
        self.program.bufs.get(name) == Some(&buf)
            && value.index() == 0
            && load.ty == store.ty
            && (guard.is_empty() || *other == Scalar::zero(load.ty))
    }

    /// The stores to `buf` where it is declared, with the loops around them that are inside of those around the declaration.
    fn stores_to(&self, buf: Buf, declared: &Declared<'_>) -> Result<Vec<Stored>, String> {
        let outside = declared.path.loops().count();
        let mut stores = Vec::new();
        for (leaf, path) in &self.leaves {
            let mut own = path.locals.iter().rev().filter(|other| other.buffer() == declared.local.buffer());
            if !own.next().is_some_and(|innermost| std::ptr::eq(*innermost, declared.local)) {
                continue;
            }
            let nest = self.nest(&leaf.nest)?;
            for (at, inst) in nest.body.iter().enumerate() {
                let InstOp::Store { buf: stored, index, .. } = &inst.op else { continue };
                // Other parts of the nest may run outside of the block.
                if *stored != buf || !parts_of(nest)[at].contains(&leaf.part) {
                    continue;
                }
                let Some(mut around) = loops_where(path.loops().collect(), path.conds(), &self.facts) else {
                    continue;
                };
                // Room for a loop that ends early is room for all of it: its size is a number.
                around.iter_mut().for_each(|axis| axis.extent = longest(axis.extent));
                let mut facts = self.facts.clone();
                around.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
                let inside = around.get(outside..).unwrap_or_default();
                let is_copy = declared.local.copied().is_some() || leaf.by == Some(Means::Box);
                let (bind, inner) = inner_axes(leaf, nest, inside, &facts, is_copy);
                inner.iter().for_each(|a| facts.declare_index(a.var, a.extent));
                let value = |s: Sym| bind.iter().find(|b| b.0 == s).map(|b| b.1);
                let index = index.iter().map(|at| at.subst(&value)).collect();
                stores.push(Stored { index, inner, facts });
            }
        }
        Ok(stores)
    }

    /// The elements that all of `stores` touch. Dimensions along which these have no regular shape are counted together
    /// with those around them, where that has one; else all of them is kept.
    fn extents(&self, buf: Buf, stores: &[Stored]) -> Vec<Extent> {
        let (data, facts) = (&self.program.loops.bufs[buf], &self.facts);
        let counts = Counts { loops: &self.vars, sizes: &self.program.loops.facts };
        // In the order of memory, so that what is adjacent stays so.
        let mut dims: Vec<(usize, Expr)> = data.sizes.iter().copied().enumerate().collect();
        dims.sort_by_key(|dim| Reverse(facts.hint(data.strides[dim.0]).unwrap_or(i64::MAX)));
        let mut footprint = Vec::new();
        while let Some(last) = dims.len().checked_sub(1) {
            let groups = (0..=last).rev().map(|first| Dims(dims[first..].to_vec()));
            let regular = groups.into_iter().find_map(|dims| Some((regular(&dims, stores, &counts)?, dims)));
            let last = || Dims(vec![dims[last]]);
            let boxed = || Some((within_box(&last(), stores, &counts)?, last()));
            let (set, group) = regular.or_else(boxed).unwrap_or_else(|| {
                let group = Dims(dims[joined(&dims, stores)..].to_vec());
                (StridedSet::whole(group.size()), group)
            });
            dims.truncate(dims.len() - group.0.len());
            footprint.push(Extent { dims: group, set });
        }
        footprint.reverse();
        footprint
    }
}

/// The elements of a footprint along neighbouring dimensions of a buffer.
struct Extent {
    dims: Dims,
    set: StridedSet,
}

/// Dimensions of a buffer that are counted as one, outermost first, with their sizes.
#[derive(Clone)]
struct Dims(Vec<(usize, Expr)>);

impl Dims {
    /// The coordinate along all of them.
    fn coordinate(&self, index: &[Expr]) -> Expr {
        self.0.iter().fold(Expr::zero(), |at, &(dim, size)| at * size + index[dim])
    }

    fn size(&self) -> Expr {
        self.0.iter().map(|dim| dim.1).product()
    }
}

/// A store to a local buffer.
struct Stored {
    /// Coordinates, in terms of loops.
    index: Vec<Expr>,
    /// Loops that are inside of the scope.
    inner: Vec<Axis>,
    /// What is known of all loops.
    facts: Facts,
}

impl Extent {
    /// Coordinates along its dimensions; see [`Footprint::place`].
    fn place(&self, index: &[Expr], nest: &Nest, value: &dyn Fn(Expr) -> Expr, known: &Facts) -> Vec<Expr> {
        let StridedSet { base, steps } = &self.set;
        let Some((_, inner)) = steps.split_last() else { return Vec::new() };
        let at = self.dims.coordinate(index);
        // Axes that only run inside keep their names at first: their extents are known better than those of the loops
        // around them, which may run past the end.
        let base_syms = base.syms();
        let mut facts = known.clone();
        let (mut kept, mut flat) = (Vec::new(), at);
        for axis in nest.all_axes().filter(|a| at.has_sym(a.var)) {
            let value = value(Expr::sym(axis.var));
            if !base_syms.iter().any(|&s| value.has_sym(s)) && value.as_int().is_none() {
                let name = inner_name(axis.var);
                facts.declare_index(name, axis.extent);
                flat = flat.replace(axis.var, Expr::sym(name));
                kept.push((name, value));
            }
        }
        let of_kept = |s: Sym| kept.iter().find(|k| k.0 == s).map(|k| k.1);
        let in_loops = |e: Expr| if kept.is_empty() { e } else { known.simplify(e.subst(&of_kept)) };
        let mut rest = facts.simplify(value(flat) - *base);
        let mut coordinates = Vec::with_capacity(steps.len());
        for (at, &(step, _)) in steps.iter().enumerate() {
            coordinates.push(in_loops(facts.simplify(rest.floordiv(step))));
            if at < inner.len() {
                rest = facts.simplify(rest.modulo(step));
            }
        }
        coordinates
    }
}

/// The outermost of `dims` whose coordinates are digits of the same numbers as those of the innermost one.
fn joined(dims: &[(usize, Expr)], stores: &[Stored]) -> usize {
    let last = dims.len() - 1;
    let is_joined = |dim: usize| {
        stores.iter().any(|Stored { index, .. }| {
            let (inner, outer) = (index[dims[last].0], index[dims[dim].0]);
            !inner.is_polynomial() && inner.syms().into_iter().any(|sym| outer.has_sym(sym))
        })
    };
    (0..last).find(|&dim| is_joined(dim)).unwrap_or(last)
}

/// What `stores` touch along dimensions, if that is regular.
fn regular(dims: &Dims, stores: &[Stored], counts: &Counts<'_>) -> Option<StridedSet> {
    let mut set: Option<StridedSet> = None;
    for Stored { index, inner, facts } in stores {
        // Of axes without points nothing is touched, and there is no largest index.
        if inner.iter().any(|axis| axis.extent.is_zero()) {
            return None;
        }
        let coordinate = facts.simplify(dims.coordinate(index));
        let here = counts.largest(StridedSet::of(coordinate, inner, facts)?, facts)?;
        set = Some(match set {
            None => here,
            Some(set) => set.union(&here, facts)?,
        });
    }
    set
}

/// The least range of coordinates that `stores` touch along dimensions, if they all have the same first one.
fn within_box(dims: &Dims, stores: &[Stored], counts: &Counts<'_>) -> Option<StridedSet> {
    let mut found: Option<(Expr, Expr)> = None;
    for Stored { index, inner, facts } in stores {
        let vars: Vec<Sym> = inner.iter().map(|axis| axis.var).collect();
        let (first, count) = first_and_count(dims.coordinate(index), &vars, facts)?;
        let count = counts.most(count, facts)?;
        found = Some(match found {
            None => (first, count),
            Some((other, most)) if other == first => (first, facts.simplify(most.max(count))),
            Some(_) => return None,
        });
    }
    found.map(|(base, count)| StridedSet { base, steps: vec![(Expr::one(), count)] })
}

/// What counts of elements are to be: numbers that a call knows before the kernel runs.
struct Counts<'a> {
    /// Variables of all loops.
    loops: &'a [Sym],
    /// What is known of sizes.
    sizes: &'a Facts,
}

impl Counts<'_> {
    /// A count that no loop has an influence on: the last block of a loop may be shorter than others. None where it is no number for
    /// some sizes, those of empty buffers, whose loops do not run.
    fn most(&self, count: Expr, facts: &Facts) -> Option<Expr> {
        let most = facts.largest(count, self.loops);
        let is_of_sizes = !self.loops.iter().any(|&var| most.has_sym(var));
        (is_of_sizes && is_defined(most, self.sizes)).then_some(most)
    }

    /// The set with such counts.
    fn largest(&self, set: StridedSet, facts: &Facts) -> Option<StridedSet> {
        let steps = set.steps.into_iter().map(|(step, count)| Some((step, self.most(count, facts)?)));
        let steps = steps.collect::<Option<_>>()?;
        Some(StridedSet { steps, ..set })
    }
}

/// The name of an axis while loops that count it are looked through: one that no loop has.
fn inner_name(axis: Sym) -> Sym {
    Sym::new(&format!("{axis} inside"))
}

/// Values of a leaf's axes, and the axes that these run over in the loops `inner`: an axis that only they count takes
/// each of its values, however far the loops run; one that they count on from a first value is an axis of its own. A copy, and a box, has room
/// for all that its loops take, so that its rows lie at distances that are numbers, whatever the sizes, and what is copied at once may be whole.
fn inner_axes(
    leaf: &Leaf,
    nest: &Nest,
    inner: &[Axis],
    facts: &Facts,
    is_copy: bool,
) -> (Vec<(Sym, Expr)>, Vec<Axis>) {
    let is_inner = |s: Sym| inner.iter().any(|a| a.var == s);
    let (mut bind, mut axes) = (Vec::new(), Vec::new());
    for &(axis, value) in &leaf.bind {
        let is_alone = |s: Sym| leaf.bind.iter().all(|b| b.0 == axis || !b.1.has_sym(s));
        let syms = value.syms();
        let counted = syms.iter().copied().any(is_inner) && syms.iter().all(|&s| !is_inner(s) || is_alone(s));
        let set = counted.then(|| StridedSet::of(value, inner, facts)).flatten().map(StridedSet::merged);
        let extent = nest.all_axes().find(|a| a.var == axis).map(|a| a.extent);
        match (set, extent) {
            (Some(StridedSet { base, steps }), Some(extent)) if matches!(steps[..], [(step, _)] if step.is_one()) =>
            {
                let var = inner_name(axis);
                let extent = if base.is_zero() && !is_copy { extent } else { steps[0].1 };
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
