//! Makes memory for buffers that never leave the kernel: for what the block that declares one touches when it runs once.

use super::leaf::Run;
use super::{Builder, Path, visit_in_loops};
use crate::access::Region;
use litz_analysis::inside::{first_and_count, longest, loops_where};
use litz_analysis::legality::parts_of;
use litz_ir::Diag;
use litz_ir::kernel::{Mem, Space, Swizzle};
use litz_ir::loops::{Axis, Buf, InstOp, Nest};
use litz_ir::schedule::{Layout, Leaf, Local, LocalSpace, Tree};
use litz_sym::{Expr, Facts, Sym};
use std::cmp::Reverse;
use std::rc::Rc;

/// A buffer local to this kernel: the elements that one iteration of its scope stores to.
pub(super) struct LocalMem {
    mem: Mem,
    /// Which elements, outermost dimensions first. Their counts are the dimensions of the memory.
    footprint: Vec<Extent>,
}

/// The elements of a footprint along neighbouring dimensions of a buffer.
struct Extent {
    dims: Dims,
    region: Region,
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

impl<'a> Builder<'a> {
    /// Sizes every local buffer: it keeps what the stores of its block touch.
    pub(super) fn declare_locals(
        &mut self,
        places: &[(&'a Leaf, Path<'a>)],
        facts: &Facts,
    ) -> Result<(), Diag> {
        let mut declared: Vec<(&'a Local, usize)> = Vec::new();
        let mut loops: Vec<Sym> = self.plan.grid.iter().map(|axis| axis.var).collect();
        visit_in_loops(&self.plan.body, &mut Path::default(), &mut |tree, path| match tree {
            Tree::Local(local) => declared.push((local, path.loops.len())),
            Tree::Loop { axis, .. } => loops.push(axis.var),
            Tree::If { .. } | Tree::Leaf(_) => {}
        });
        for (local, outside) in declared {
            let Some(name) = local.buffer() else { continue };
            let Some(&buf) = self.names.bufs.get(name) else {
                return Err(self.error(format!("no buffer {name}")));
            };
            let data = &self.loops.bufs[buf];
            let stores = self.stores_to(buf, (local, outside), places, facts)?;
            // A buffer that no leaf stores to holds nothing to read.
            if stores.is_empty() {
                continue;
            }
            let footprint = self.footprint(buf, &stores, &loops, facts);
            let counts = footprint.iter().flat_map(|extent| extent.region.steps.iter().map(|step| step.1));
            let counts: Vec<Expr> = counts.collect();
            let extent: Expr = counts.iter().copied().product();
            // A single element is best kept in a register whatever was asked.
            let is_kept = local.space == LocalSpace::Scratch && extent.is_one();
            let space = if is_kept { Space::Register } else { self.space_of(local.space, extent) };
            let (row, bytes) = (counts.last().and_then(|row| row.as_int()), data.dtype.size());
            let sizes = match local.layout {
                Layout::Padded(line) if space != Space::Register => padded(counts, i64::from(line.max(1))),
                Layout::Dense | Layout::Padded(_) | Layout::Swizzled(_) => counts,
            };
            let mem = self.local(&data.name, data.dtype, sizes, space);
            if let (Layout::Swizzled(unit), Space::Shared | Space::Cluster) = (local.layout, space) {
                let row = row.and_then(|row| u32::try_from(row).ok());
                let swizzle = row.map(|row| Swizzle { unit: unit / bytes as u32, row });
                let swizzle = swizzle.filter(|swizzle| swizzle.units(bytes).is_some());
                let Some(swizzle) = swizzle else {
                    let length = row.map_or_else(|| "unknown length".to_owned(), |row| format!("{row}"));
                    return Err(self.error(format!(
                        "`{}`: units of {unit} bytes do not change places in rows of {length} elements",
                        data.name
                    )));
                };
                self.kernel.mems[mem].swizzle = Some(swizzle);
            }
            self.locals.insert(local, Rc::new(LocalMem { mem, footprint }));
        }
        Ok(())
    }

    /// The stores to `buf` where it is declared by `local`, with the loops around them that are inside of the outermost `outside`
    /// ones.
    fn stores_to(
        &self,
        buf: Buf,
        (local, outside): (&Local, usize),
        places: &[(&'a Leaf, Path<'a>)],
        facts: &Facts,
    ) -> Result<Vec<Stored>, Diag> {
        let mut stores = Vec::new();
        for (leaf, path) in places {
            let mut declared = path.locals.iter().rev().filter(|other| other.buffer() == local.buffer());
            if !declared.next().is_some_and(|innermost| std::ptr::eq(*innermost, local)) {
                continue;
            }
            let nest = self.nest(leaf)?;
            for (at, inst) in nest.body.iter().enumerate() {
                let InstOp::Store { buf: stored, index, .. } = &inst.op else { continue };
                // Other parts of the nest may run outside of the block.
                if *stored != buf || !parts_of(nest)[at].contains(&leaf.part) {
                    continue;
                }
                let conds = path.conds.iter().copied();
                let Some(mut around) = loops_where(path.loops.clone(), conds, facts) else { continue };
                // Room for a loop that ends early is room for all of it: its size is a number.
                around.iter_mut().for_each(|axis| axis.extent = longest(axis.extent));
                let mut facts = facts.clone();
                around.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
                let inside = around.get(outside..).unwrap_or_default();
                let (bind, inner) = inner_axes(leaf, nest, inside, &facts);
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
    fn footprint(&self, buf: Buf, stores: &[Stored], loops: &[Sym], facts: &Facts) -> Vec<Extent> {
        let data = &self.loops.bufs[buf];
        // In the order of memory, so that what is adjacent stays so.
        let mut dims: Vec<(usize, Expr)> = data.sizes.iter().copied().enumerate().collect();
        dims.sort_by_key(|dim| Reverse(facts.hint(data.strides[dim.0]).unwrap_or(i64::MAX)));
        let mut footprint = Vec::new();
        while let Some(last) = dims.len().checked_sub(1) {
            let groups = (0..=last).rev().map(|first| Dims(dims[first..].to_vec()));
            let regular = groups.into_iter().find_map(|dims| Some((regular(&dims, stores, loops)?, dims)));
            let last = || Dims(vec![dims[last]]);
            let boxed = || Some((within_box(&last(), stores, loops)?, last()));
            let (region, group) = regular.or_else(boxed).unwrap_or_else(|| {
                let group = Dims(dims[joined(&dims, stores)..].to_vec());
                (Region::whole(group.size()), group)
            });
            dims.truncate(dims.len() - group.0.len());
            footprint.push(Extent { dims: group, region });
        }
        footprint.reverse();
        footprint
    }

    /// Memory and coordinates for the element of `buf` at `index`.
    pub(super) fn element(
        &self,
        buf: Buf,
        index: &[Expr],
        run: &Run<'a, '_>,
    ) -> Result<(Mem, Vec<Expr>), Diag> {
        let data = &self.loops.bufs[buf];
        let local = run.locals.iter().rev().find(|held| held.buf == buf);
        if let Some(local) = local.and_then(|held| held.declared.as_ref()) {
            let coordinates = local.footprint.iter().flat_map(|extent| extent.coordinates(index, run));
            return Ok((local.mem, coordinates.collect()));
        }
        if let Some(&mem) = self.mem_of.get(&buf) {
            let there = &self.kernel.mems[mem];
            if (&there.sizes, &there.strides) == (&data.sizes, &data.strides) {
                return Ok((mem, run.exprs(index)));
            }
            return Ok((mem, vec![run.expr(self.loops.place(run.nest, buf, index))]));
        }
        Err(self.error(format!("{} is neither a parameter nor local", data.name)))
    }
}

impl Extent {
    /// Coordinates in the local memory of what has the coordinates `index` in the buffer.
    fn coordinates(&self, index: &[Expr], run: &Run<'_, '_>) -> Vec<Expr> {
        let Region { base, steps } = &self.region;
        let Some((_, inner)) = steps.split_last() else { return Vec::new() };
        let at = self.dims.coordinate(index);
        // Axes that only run inside keep their names at first: their extents are known better than those of the loops
        // around them, which may run past the end.
        let base_syms = base.syms();
        let mut facts = run.facts.clone();
        let (mut kept, mut flat) = (Vec::new(), at);
        for axis in run.nest.all_axes().filter(|a| at.has_sym(a.var)) {
            let value = run.expr(Expr::sym(axis.var));
            if !base_syms.iter().any(|&s| value.has_sym(s)) && value.as_int().is_none() {
                let name = inner_name(axis.var);
                facts.declare_index(name, axis.extent);
                flat = flat.replace(axis.var, Expr::sym(name));
                kept.push((name, value));
            }
        }
        let value = |s: Sym| kept.iter().find(|k| k.0 == s).map(|k| k.1);
        let in_loops = |e: Expr| if kept.is_empty() { e } else { run.facts.simplify(e.subst(&value)) };
        let mut rest = facts.simplify(run.expr(flat) - *base);
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
fn regular(dims: &Dims, stores: &[Stored], loops: &[Sym]) -> Option<Region> {
    let mut region: Option<Region> = None;
    for Stored { index, inner, facts } in stores {
        // Of axes without points nothing is touched, and there is no largest index.
        if inner.iter().any(|axis| axis.extent.is_zero()) {
            return None;
        }
        let coordinate = facts.simplify(dims.coordinate(index));
        let here = largest(Region::of(coordinate, inner, facts)?, loops, facts)?;
        region = Some(match region {
            None => here,
            Some(region) => region.union(&here, facts)?,
        });
    }
    region
}

/// The least range of coordinates that `stores` touch along dimensions, if they all have the same first one.
fn within_box(dims: &Dims, stores: &[Stored], loops: &[Sym]) -> Option<Region> {
    let mut found: Option<(Expr, Expr)> = None;
    for Stored { index, inner, facts } in stores {
        let vars: Vec<Sym> = inner.iter().map(|axis| axis.var).collect();
        let (first, count) = first_and_count(dims.coordinate(index), &vars, facts)?;
        let count = Some(facts.largest(count, loops)).filter(|e| !loops.iter().any(|&s| e.has_sym(s)))?;
        found = Some(match found {
            None => (first, count),
            Some((other, most)) if other == first => (first, facts.simplify(most.max(count))),
            Some(_) => return None,
        });
    }
    found.map(|(base, count)| Region { base, steps: vec![(Expr::one(), count)] })
}

/// The region with counts that do not depend on where the loops are: the last block of a loop may be shorter than others.
fn largest(region: Region, loops: &[Sym], facts: &Facts) -> Option<Region> {
    let count =
        |count: Expr| Some(facts.largest(count, loops)).filter(|e| !loops.iter().any(|&s| e.has_sym(s)));
    let steps = region.steps.into_iter().map(|(step, n)| Some((step, count(n)?))).collect::<Option<_>>()?;
    Some(Region { steps, ..region })
}

/// Extents of an array whose rows take an odd number of lines, if they are no shorter than one.
fn padded(mut counts: Vec<Expr>, line: i64) -> Vec<Expr> {
    if let [_, .., row] = counts.as_mut_slice()
        && row.as_int().is_none_or(|n| n >= line)
    {
        *row = (row.ceildiv(line).floordiv(2) * 2 + 1) * line;
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
