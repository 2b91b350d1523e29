//! Lists the loads and stores of a nest, and their strides in memory along a variable.

use litz_ir::loops::{Buf, InstOp, Loops, Nest};
use litz_sym::{Expr, Facts, Sym};

/// One load or store.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Instruction position.
    pub at: usize,
    /// Buffer.
    pub buf: Buf,
    /// Coordinates, in the nest's axes.
    pub index: &'a [Expr],
    /// A store.
    pub store: bool,
    /// A store that combines with what is there.
    pub combines: bool,
}

impl Access<'_> {
    /// Where in memory it is, counted in elements. The nest is that of the access.
    pub fn place(&self, loops: &Loops, nest: &Nest) -> Expr {
        loops.place(nest, self.buf, self.index)
    }
}

/// Loads and stores in order.
pub fn accesses(nest: &Nest) -> impl Iterator<Item = Access<'_>> {
    nest.body.iter().enumerate().filter_map(|(at, inst)| {
        let (buf, index) = inst.op.element()?;
        let store = matches!(inst.op, InstOp::Store { .. });
        let combines = matches!(inst.op, InstOp::Store { combine: Some(_), .. });
        Some(Access { at, buf, index, store, combines })
    })
}

/// How far apart in memory the elements of two neighbouring points along an axis are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stride {
    /// Both points access the same element.
    Zero,
    /// They access neighbouring elements.
    Unit,
    /// The elements are that many elements apart.
    Elements(Expr),
    /// The distance is not the same for all points.
    Irregular,
}

/// The stride of the position `place`, counted in elements, along `var`.
pub fn stride(place: Expr, var: Sym) -> Stride {
    if !place.has_sym(var) {
        return Stride::Zero;
    }
    match place.linear(var) {
        Some((c, _)) if c.is_one() => Stride::Unit,
        Some((c, _)) => Stride::Elements(c),
        None => Stride::Irregular,
    }
}

/// `e` with every axis that `bind` gives a value replaced by it.
pub fn substitute(e: Expr, bind: &[(Sym, Expr)]) -> Expr {
    e.subst(&|s| bind.iter().find(|b| b.0 == s).map(|b| b.1))
}

/// The accesses with their places under a binding of the nest's axes.
pub fn bound_places<'a>(
    loops: &Loops,
    nest: &'a Nest,
    bind: &[(Sym, Expr)],
    facts: &Facts,
) -> Vec<(Access<'a>, Expr)> {
    let bound = |access: Access<'a>| {
        let own = access.place(loops, nest);
        let place = substitute(own, bind);
        (access, if place == own { place } else { facts.simplify(place) })
    };
    accesses(nest).map(bound).collect()
}

/// Expressions of a nest other than indices: guards, conditions, index values, bounds.
pub fn side_exprs(nest: &Nest) -> Vec<Expr> {
    let mut all = Vec::new();
    for inst in &nest.body {
        match &inst.op {
            InstOp::Load { guard, .. } => all.extend(guard.iter().flat_map(|r| [r.lhs, r.rhs])),
            InstOp::Index(e) => all.push(*e),
            InstOp::Cond(r) => all.extend([r.lhs, r.rhs]),
            InstOp::Bind { extent, .. } => all.push(*extent),
            InstOp::Const(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => {}
        }
    }
    all
}

/// What a nest copies that does nothing else: the element at `read` of `from`, for each of its points, to `written` of `to`.
pub struct Copied<'a> {
    /// The buffer that is read.
    pub from: Buf,
    /// Coordinates in it.
    pub read: &'a [Expr],
    /// The buffer that is stored to, of the same type; it may be the same one.
    pub to: Buf,
    /// Coordinates in it.
    pub written: &'a [Expr],
}

/// What a nest copies, if it does nothing else.
pub fn copied<'a>(loops: &Loops, nest: &'a Nest) -> Option<Copied<'a>> {
    let [load, store] = &nest.body[..] else { return None };
    let InstOp::Load { buf: from, index: read, guard, .. } = &load.op else { return None };
    let InstOp::Store { buf: to, index: written, combine: None, .. } = &store.op else { return None };
    let is_plain = guard.is_empty() && nest.reduced.is_empty();
    let is_same = load.ty == loops.bufs[*from].dtype && load.ty == loops.bufs[*to].dtype;
    (is_plain && is_same).then_some(Copied { from: *from, read, to: *to, written })
}
