//! Copies what a block reads of a buffer to shared memory, so that it is read along another axis, or several times.
//!
//! Copies have the dimensions of the buffer: two of them go along two axes of the kernel, step by step.

use crate::axes::fresh;
use crate::context::Cx;
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf, BufKind, InstOp, Stmt};
use litz_ir::schedule::{Holds, Layout, Leaf, Local, LocalSpace, Part, Tree};
use litz_sym::{Expr, Sym};

/// A buffer of which a block reads its part from shared memory.
pub struct Staged {
    /// The buffer.
    pub buf: Buf,
    /// Name of the copy.
    name: String,
    /// The element, in terms of the kernel's axes.
    pub index: Vec<Expr>,
    /// The axes that dimensions go along.
    axes: [Axis; 2],
    /// Which dimension goes along each.
    pub along: [usize; 2],
}

impl Staged {
    /// A buffer that is read at `index`, in terms of a kernel's axes. None where no dimension goes along one of these two axes alone, where
    /// nobody knew what is copied, as the buffer has several contents, or where data says which element it is.
    pub fn of(cx: &Cx<'_>, buf: Buf, index: Vec<Expr>, axes: [Axis; 2]) -> Option<Staged> {
        let (loops, deps) = (cx.loops, cx.deps);
        let writers = deps.users[buf].iter().filter(|&&user| deps.stmts[user].writes.contains(&buf)).count();
        if writers + usize::from(loops.bufs[buf].kind != BufKind::Temp) != 1 {
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
        let is_taken = |name: Sym| {
            loops.bufs.iter().any(|(_, data)| data.name == name.name())
                || loops.stmts.iter().any(|stmt| stmt.name() == name.name())
        };
        let name = fresh(&format!("{}_tile", loops.bufs[buf].name), is_taken).name().to_owned();
        Some(Staged { buf, name, index, axes, along })
    }

    /// Whether both axes count the elements of their dimensions from the first one on.
    pub fn begins_at_zero(&self) -> bool {
        let start = |at: usize| self.index[self.along[at]].replace(self.axes[at].var, Expr::zero());
        start(0).is_zero() && start(1).is_zero()
    }

    /// The memory, for blocks of so many points along the axes. In rows of whole units of so many bytes these change places, so that those
    /// below each other are in different banks.
    pub fn local(&self, cx: &Cx<'_>, unit: u32, points: [i64; 2]) -> Tree {
        let data = &cx.loops.bufs[self.buf];
        let holds = Holds::Copy { name: self.name.clone(), of: data.name.clone() };
        // Rows are those of the last dimension.
        let last = data.sizes.len().saturating_sub(1);
        let row = self.along.iter().position(|&dim| dim == last).map_or(1, |at| points[at]);
        let is_regular = row * data.dtype.size() as i64 % i64::from(unit) == 0;
        let layout = if is_regular { Layout::Swizzled(unit) } else { Layout::Dense };
        Tree::Local(Local { holds, space: LocalSpace::Shared, layout })
    }

    /// The copy of an element: at these places along the axes, of blocks of so many points.
    pub fn leaf(&self, cx: &Cx<'_>, places: [Expr; 2], points: [i64; 2]) -> Tree {
        let is_whole = |at: usize| {
            let rest = self.axes[at].extent.modulo(points[at]);
            cx.loops.facts.simplify(rest).is_zero()
        };
        let values: Vec<(Sym, Expr)> = self.axes.iter().map(|axis| axis.var).zip(places).collect();
        let dims = self.index.iter().enumerate();
        let bind = dims.map(|(dim, &at)| (Sym::new(&format!("d{dim}")), substitute(at, &values))).collect();
        let masked = !(is_whole(0) && is_whole(1));
        Tree::Leaf(Leaf { nest: self.name.clone(), part: Part::Whole, bind, masked, block: None, by: None })
    }
}
