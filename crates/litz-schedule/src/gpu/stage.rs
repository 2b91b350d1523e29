//! Copies what a block reads of a buffer to shared memory, so that it is read along another axis, or several times.
//!
//! Copies have the dimensions of the buffer: two of them go along two axes of the kernel, step by step.

use super::looped;
use crate::axes::fresh;
use crate::context::Cx;
use crate::group::{Group, Member};
use litz_analysis::access::substitute;
use litz_ir::Scalar;
use litz_ir::kernel::Swizzle;
use litz_ir::loops::{Axis, Buf, BufKind, InstOp, Loops, Nest, Stmt};
use litz_ir::schedule::{Holds, Layout, Leaf, LoadOf, Local, LocalSpace, LoopKind, Means, Part, Tree};
use litz_ir::target::{Gpu, Level, Team};
use litz_sym::{Cmp, Expr, Facts, Rel, Sym};

/// Bytes that a thread copies in the background at once, at least.
pub const LEAST_COPIED: i64 = 4;

/// A buffer of which a block reads its part from shared memory.
pub struct Staged {
    /// The buffer.
    pub buf: Buf,
    /// Name of the copy, or of the nest that copies.
    name: String,
    /// The axes of that nest, where the buffer itself is what a block has its part of.
    made: Option<Vec<Sym>>,
    /// The load that alone reads it.
    reader: Option<LoadOf>,
    /// The element, in terms of the kernel's axes.
    pub index: Vec<Expr>,
    /// The axes that dimensions go along.
    axes: [Axis; 2],
    /// Which dimension goes along each.
    pub along: [usize; 2],
    /// Whether the axes go past the buffer's end, where the copy has zeros.
    pub is_cut: bool,
}

/// How a block copies its part of a buffer.
#[derive(Clone, Copy)]
pub struct Copying {
    /// Threads of the block.
    pub threads: i64,
    /// Where the block's part begins along the two axes.
    pub starts: [Expr; 2],
    /// Points of the block along these.
    pub points: [i64; 2],
}

/// Whether a load is of zeros where it is guarded, and that is past the end of its buffer alone: a copy of the buffer, which has zeros there,
/// is loaded without the guard.
pub fn is_guarded_at_end(loops: &Loops, op: &InstOp) -> bool {
    let InstOp::Load { buf, index, guard, other } = op else { return false };
    let is_end = |rel: &Rel| {
        let mut ends = index.iter().zip(&loops.bufs[*buf].sizes);
        rel.cmp == Cmp::Lt && ends.any(|end| (rel.lhs, rel.rhs) == (*end.0, *end.1))
    };
    *other == Scalar::zero(loops.bufs[*buf].dtype) && guard.iter().all(is_end)
}

impl Staged {
    /// A buffer that a member of a kernel reads at `index`, in terms of the kernel's axes. None where no dimension goes along one of these two axes
    /// alone, where the buffer gets other contents in the kernel or behind it, or where data says which element it is.
    pub fn of(
        cx: &Cx<'_>,
        (group, reader): (&Group, &Member),
        buf: Buf,
        index: Vec<Expr>,
        axes: [Axis; 2],
    ) -> Option<Staged> {
        let (loops, deps) = (cx.loops, cx.deps);
        let writers = || deps.users[buf].iter().filter(|&&user| deps.stmts[user].writes.contains(&buf));
        let is_one = writers().count() + usize::from(loops.bufs[buf].kind != BufKind::Temp) == 1;
        let is_there = |writer: &usize| {
            *writer < reader.stmt && group.members.iter().all(|member| member.stmt != *writer)
        };
        if !is_one && !writers().all(is_there) {
            return None;
        }
        let binds = loops
            .stmts
            .iter()
            .flat_map(Stmt::nests)
            .flat_map(|nest| &nest.body)
            .filter_map(|inst| if let InstOp::Bind { sym, .. } = inst.op { Some(sym) } else { None });
        if binds.into_iter().any(|sym| index.iter().any(|at| at.has_sym(sym))) {
            return None;
        }
        let along = |axis: Axis| {
            let mut found = index.iter().enumerate().filter(|(_, at)| at.has_sym(axis.var));
            let (dim, at) = found.next().filter(|_| found.next().is_none())?;
            at.linear(axis.var).filter(|(step, _)| step.is_one()).map(|_| dim)
        };
        let along = [along(axes[0])?, along(axes[1])?];
        if along[0] == along[1] {
            return None;
        }
        let name = name_beside(loops, &format!("{}_tile", loops.bufs[buf].name));
        Some(Staged { buf, name, made: None, reader: None, index, axes, along, is_cut: false })
    }

    /// The part of a buffer that a block has instead of all of it, as a nest copies it there from elsewhere. None where the dimensions of the
    /// buffer are not the nest's axes.
    pub fn made_by(self, nest: &Nest) -> Option<Staged> {
        let mut stores = nest.body.iter().filter_map(|inst| {
            if let InstOp::Store { buf, index, .. } = &inst.op { Some((*buf, index)) } else { None }
        });
        let (_, index) = stores.find(|store| store.0 == self.buf)?;
        let axes: Option<Vec<Sym>> = index.iter().map(|at| at.as_sym()).collect();
        Some(Staged { name: nest.name.clone(), made: Some(axes?), ..self })
    }

    /// What an axis of the nest that makes it is, in terms of the kernel's axes.
    pub fn value(&self, axis: Sym) -> Option<Expr> {
        let dim = self.made.as_ref()?.iter().position(|&own| own == axis)?;
        Some(self.index[dim])
    }

    /// The axis of the nest that makes it along which its elements are neighbours in memory.
    pub fn unit(&self, cx: &Cx<'_>) -> Option<Sym> {
        let dim = self.along.into_iter().find(|&dim| cx.loops.bufs[self.buf].strides[dim].is_one())?;
        self.made.as_ref().map(|axes| axes[dim])
    }

    /// Whether both are of the same elements.
    pub fn is_same(&self, other: &Staged) -> bool {
        (self.buf, &self.index, self.axes) == (other.buf, &other.index, other.axes)
    }

    /// The part of a buffer that one of several loads reads, which is of another part than those of others: the one of that number.
    pub fn for_load(self, cx: &Cx<'_>, nest: &Nest, at: usize, number: usize) -> Staged {
        let name = name_beside(cx.loops, &format!("{}_tile{number}", cx.loops.bufs[self.buf].name));
        Staged { name, reader: Some(LoadOf { nest: nest.name.clone(), at: at as u32 }), ..self }
    }

    /// What is stored to the buffer, under a name that no copy of it in another kernel has.
    pub fn for_result(self, cx: &Cx<'_>) -> Staged {
        let name = name_beside(cx.loops, &format!("{}_out", cx.loops.bufs[self.buf].name));
        Staged { name, ..self }
    }

    /// Whether the axis of that number counts the elements of its dimension from the first one on.
    pub fn begins_at_zero(&self, axis: usize) -> bool {
        self.index[self.along[axis]].replace(self.axes[axis].var, Expr::zero()).is_zero()
    }

    /// The memory, for blocks of so many points along the axes. In rows of whole units of so many bytes these change places, so that those
    /// below each other are in different banks, with `pairs` those of every other pair of rows, too.
    pub fn local(&self, cx: &Cx<'_>, unit: u32, pairs: bool, points: [i64; 2]) -> Tree {
        self.memory(cx, self.holds(cx), (unit, pairs), points)
    }

    /// The memory, laid out in another way.
    pub fn copy(&self, cx: &Cx<'_>, space: LocalSpace, layout: Layout) -> Tree {
        Tree::Local(Local { holds: self.holds(cx), space, layout })
    }

    /// What the block's part is: a copy, or the buffer itself where a nest makes it.
    fn holds(&self, cx: &Cx<'_>) -> Holds {
        let of = cx.loops.bufs[self.buf].name.clone();
        match self.made {
            Some(_) => Holds::Buffer(of),
            None => Holds::Copy { name: self.name.clone(), of, reader: self.reader.clone() },
        }
    }

    /// The memory for what is stored to the buffer on its way there, as for copies.
    pub fn result(&self, cx: &Cx<'_>, unit: u32, points: [i64; 2]) -> Tree {
        let holds = Holds::Result { name: self.name.clone(), of: cx.loops.bufs[self.buf].name.clone() };
        self.memory(cx, holds, (unit, false), points)
    }

    fn memory(&self, cx: &Cx<'_>, holds: Holds, (unit, pairs): (u32, bool), points: [i64; 2]) -> Tree {
        let data = &cx.loops.bufs[self.buf];
        // Rows are of neighbours in memory, and no longer than those of the buffer.
        let is_row = |at: &usize| data.strides[self.along[*at]].is_one();
        let row = [0, 1].into_iter().find(is_row).map_or(1, |at| {
            let size = data.sizes[self.along[at]].as_int();
            size.map_or(points[at], |size| points[at].min(size))
        });
        let size = data.dtype.size();
        let swizzle = Swizzle { unit: unit / size as u32, row: row as u32, pairs };
        let is_regular = swizzle.units(size).is_some();
        let layout = if is_regular { Layout::Swizzled { unit, pairs } } else { Layout::Dense };
        Tree::Local(Local { holds, space: LocalSpace::Shared, layout })
    }

    /// The copy of an element, or what takes it to the buffer: at these places along the axes, of blocks of so many points.
    pub fn leaf(&self, cx: &Cx<'_>, places: [Expr; 2], points: [i64; 2]) -> Tree {
        let values: Vec<(Sym, Expr)> = self.axes.iter().map(|axis| axis.var).zip(places).collect();
        let axis = |dim: usize| match &self.made {
            Some(axes) => axes[dim],
            None => Sym::new(&format!("d{dim}")),
        };
        let dims = self.index.iter().enumerate();
        let bind = dims.map(|(dim, &at)| (axis(dim), substitute(at, &values))).collect();
        let masked = self.is_masked(cx, points);
        Tree::Leaf(Leaf { nest: self.name.clone(), part: Part::Whole, bind, masked, block: None, by: None })
    }

    /// Whether blocks of so many points along the axes go past the end of one.
    pub fn is_masked(&self, cx: &Cx<'_>, points: [i64; 2]) -> bool {
        let is_whole = |at: usize| {
            let rest = self.axes[at].extent.modulo(points[at]);
            cx.loops.facts.simplify(rest).is_zero()
        };
        self.is_cut || !(is_whole(0) && is_whole(1))
    }

    /// Elements that a thread copies at once: as many as begin where so many bytes do, in every row. None where no element beside is a
    /// neighbour in memory.
    pub fn vector(&self, cx: &Cx<'_>, facts: &Facts) -> Option<i64> {
        let data = &cx.loops.bufs[self.buf];
        let unit = self.along.into_iter().find(|&dim| data.strides[dim].is_one())?;
        let start = self.axes.iter().fold(self.index[unit], |at, axis| at.replace(axis.var, Expr::zero()));
        let others = (0..data.sizes.len()).filter(|&dim| dim != unit && !data.sizes[dim].is_one());
        let steps = others.map(|dim| data.strides[dim]);
        let starts: Vec<Expr> = steps.chain([start]).collect();
        let fits = |vector: &i64| starts.iter().all(|&at| facts.simplify(at.modulo(*vector)).is_zero());
        let most = i64::from(Gpu::VECTOR_BYTES) / data.dtype.size() as i64;
        Some(std::iter::successors(Some(most), |n| Some(n / 2)).find(|n| *n <= 1 || fits(n))?.max(1))
    }

    /// The copies, of `vector` elements at once: neighbouring threads take what is side by side in memory.
    pub fn copies(&self, cx: &Cx<'_>, name: &dyn Fn(&str) -> Sym, vector: i64, by: Copying) -> Tree {
        let Copying { threads, starts, points } = by;
        let data = &cx.loops.bufs[self.buf];
        let [t, e, v] = ["t", "e", "v"].map(name);
        let inner = usize::from(data.strides[self.along[1]].is_one());
        let groups = points[inner] / vector;
        let all = points[1 - inner] * groups;
        // Each thread copies as much as the others, of whole rows at once or a part of one: how others take the elements nobody proves.
        let suits = |&count: &i64| all % count == 0 && (count % groups == 0 || groups % count == 0);
        let threads = (1..=threads.min(all)).rev().find(suits).unwrap_or(1);
        let turns = all / threads;
        let turn = if turns == 1 { Expr::zero() } else { Expr::sym(e) };
        let number = Expr::sym(t) + turn * threads;
        let element = if vector == 1 { Expr::zero() } else { Expr::sym(v) };
        // Threads that are as many as a row has groups all take one row: floordiv(32*e + t, 32) is e.
        let mut facts = Facts::new();
        facts.declare_index(t, Expr::int(threads));
        facts.declare_index(e, Expr::int(turns));
        let [row, group] = [number.floordiv(groups), number.modulo(groups)].map(|at| facts.simplify(at));
        let mut places = [Expr::zero(); 2];
        places[inner] = starts[inner] + group * vector + element;
        places[1 - inner] = starts[1 - inner] + row;
        let mut body = vec![self.leaf(cx, places, points)];
        let mut around = |kind, var, extent: i64| {
            let axis = Axis { var, extent: Expr::int(extent) };
            body = vec![Tree::Loop { kind, axis, body: std::mem::take(&mut body) }];
        };
        if vector > 1 {
            around(LoopKind::Vector { lanes: vector as u32, copies: 1 }, v, vector);
        }
        if turns > 1 {
            around(LoopKind::Unroll, e, turns);
        }
        around(LoopKind::Level(Level::Thread.into()), t, threads);
        body.remove(0)
    }

    /// Boxes of it, which one thread of the warp of that number has copied: one for each part of so many `columns` of its rows.
    pub fn boxes(
        &self,
        cx: &Cx<'_>,
        name: &dyn Fn(&str) -> Sym,
        (warp, columns): (u32, i64),
        by: Copying,
    ) -> Tree {
        let [p, c] = ["p", "c"].map(name);
        // Loops go along the two axes, the one along rows inside.
        let vars = ["x", "k"].map(name);
        let inner = usize::from(self.is_along(cx, 1));
        let all = by.points[inner];
        let first = if columns == all { Expr::zero() } else { Expr::sym(c) * columns };
        let mut places = [0, 1].map(|at| by.starts[at] + Expr::sym(vars[at]));
        places[inner] = by.starts[inner] + first + Expr::sym(vars[inner]);
        let mut tree = self.leaf(cx, places, by.points);
        if let Tree::Leaf(leaf) = &mut tree {
            leaf.by = Some(Means::Box);
        }
        let team = Team { from: warp, ..Level::Warp.into() };
        let mut loops = vec![(LoopKind::Level(team), p, 1)];
        if columns != all {
            loops.push((LoopKind::Unroll, c, all / columns));
        }
        loops.push((LoopKind::For, vars[1 - inner], by.points[1 - inner]));
        loops.push((LoopKind::For, vars[inner], columns));
        loops.into_iter().rev().fold(tree, |tree, (kind, var, extent)| looped(kind, var, extent, vec![tree]))
    }

    /// Whether its neighbours in memory are along the axis of that number.
    pub fn is_along(&self, cx: &Cx<'_>, axis: usize) -> bool {
        cx.loops.bufs[self.buf].strides[self.along[axis]].is_one()
    }

    /// Whether boxes of it may be copied in panels of its rows, so many elements at once where threads copy.
    pub fn has_panels(&self, cx: &Cx<'_>, vector: i64) -> bool {
        let data = &cx.loops.bufs[self.buf];
        let is_last =
            self.along.into_iter().any(|dim| data.strides[dim].is_one() && dim + 1 == data.sizes.len());
        is_last
            && vector * data.dtype.size() as i64 == i64::from(Gpu::VECTOR_BYTES)
            && data.sizes.len() <= Gpu::BOX_DIMS
    }
}

/// `name`, or where a buffer or a statement has it, one like it that none has.
pub fn name_beside(loops: &Loops, name: &str) -> String {
    let is_taken = |name: Sym| {
        loops.bufs.iter().any(|(_, data)| data.name == name.name())
            || loops.stmts.iter().any(|stmt| stmt.name() == name.name())
    };
    fresh(name, is_taken).name().to_owned()
}
