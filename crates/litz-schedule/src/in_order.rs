//! Plans a kernel that runs nests one after another on one thread, point by point, in the order of the loops program.
//!
//! Nothing about it has to be proved but that loops take each point once, which loops that are the axes themselves do: it
//! is what is left where no other plan is proved.

use crate::axes::variable;
use crate::context::Cx;
use crate::cut::nested;
use crate::draft::{Draft, Family, Planned, Traits};
use crate::group::{Group, Member};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_ir::loops::{Axis, Loops, Nest, Span};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_sym::{Expr, Sym};

/// A nest alone, or the nests of a region, which this is the axis of.
#[derive(Debug)]
pub struct InOrder(Option<Axis>);

impl InOrder {
    /// The kernel of a nest.
    pub fn nest(cx: &Cx<'_>, s: usize) -> Draft {
        Draft::new(Group::of(s), cx.deps.stmts[s].at_load, InOrder(None))
    }

    /// The kernel of a region.
    pub fn region(region: &Span) -> Draft {
        let members = region.stmts.clone().map(|stmt| Member { stmt, bind: Vec::new() }).collect();
        Draft::new(Group { members, outer: Vec::new() }, false, InOrder(Some(region.over)))
    }
}

impl Family for InOrder {
    fn traits(&self) -> Traits {
        // Memory for all that a region passes on is not that of a thread.
        Traits { passes_on: false, shares_launch: false, overwrites: false }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Unproved)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan(cx.loops, &group.stmts(), self.0).into())
    }
}

/// Plans the kernel of a nest, or of those of a region, which `over` is the axis of.
fn plan(loops: &Loops, stmts: &[usize], over: Option<Axis>) -> KernelPlan {
    let is_repeated = |stmt: &usize| {
        over.is_some_and(|over| nest(loops, *stmt).axes.iter().any(|axis| axis.var == over.var))
    };
    let counter = over.map(|over| Axis { var: variable(loops, "over"), extent: over.extent });
    let counted = over.zip(counter).map(|(over, counter)| (over.var, Expr::sym(counter.var)));
    let first = stmts.iter().min().copied().unwrap_or(0);
    let trees = |stmts: &mut dyn Iterator<Item = &usize>| -> Vec<Tree> {
        let given = |stmt: &usize| counted.filter(|_| is_repeated(stmt));
        stmts
            .flat_map(|stmt| trees_of(loops, nest(loops, *stmt), stmt - first, given(stmt).as_slice()))
            .collect()
    };
    let start = stmts.iter().position(is_repeated).unwrap_or(stmts.len());
    let end = stmts.iter().rposition(is_repeated).map_or(start, |last| last + 1);
    let mut body = trees(&mut stmts[..start].iter());
    let repeated = trees(&mut stmts[start..end].iter());
    body.extend(counter.map(|axis| Tree::Loop { kind: LoopKind::For, axis, body: repeated }));
    body.extend(trees(&mut stmts[end..].iter()));
    KernelPlan::new(Vec::new(), 1, body)
}

/// A nest in loops that are its axes, those along which a scan runs innermost. Their names have the nest's number in the kernel: kernels of equal layers
/// are equal by that. `given` are the values of axes that loops around have.
pub fn trees_of(loops: &Loops, nest: &Nest, number: usize, given: &[(Sym, Expr)]) -> Vec<Tree> {
    let is_scanned = |axis: &Axis| nest.scanned().any(|scanned| scanned == axis.var);
    let is_own = |axis: &&Axis| given.iter().all(|bound| bound.0 != axis.var);
    let mut own: Vec<Axis> = nest.axes.iter().filter(is_own).copied().collect();
    own.sort_by_key(is_scanned);
    let loop_of = |(at, axis): (usize, &Axis)| {
        (axis.var, Axis { var: variable(loops, &format!("p{number}_{at}")), extent: axis.extent })
    };
    let outer: Vec<(Sym, Axis)> = own.iter().enumerate().map(loop_of).collect();
    let reduced: Vec<(Sym, Axis)> = (own.len()..).zip(&nest.reduced).map(loop_of).collect();
    let leaf = |part: Part, looped: &mut dyn Iterator<Item = &(Sym, Axis)>| {
        let looped = looped.map(|(axis, by)| (*axis, Expr::sym(by.var)));
        let bind = given.iter().copied().chain(looped).collect();
        Tree::Leaf(Leaf { nest: nest.name.clone(), part, bind, masked: false, block: None, by: None })
    };
    let axes = |looped: &[(Sym, Axis)]| looped.iter().map(|looped| looped.1).collect::<Vec<Axis>>();
    let mut all = outer.iter().chain(&reduced);
    let points = match nest.reduces() {
        false => nested(vec![leaf(Part::Whole, &mut all)], &axes(&reduced)),
        true => {
            let mut body = nested(vec![leaf(Part::Update, &mut all)], &axes(&reduced));
            body.push(leaf(Part::Final, &mut outer.iter()));
            body
        }
    };
    nested(points, &axes(&outer))
}
