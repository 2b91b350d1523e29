//! Plans a kernel that runs nests one after another on one thread, point by point, in the order of the loops program.
//!
//! Nothing about it has to be proved but that loops take each point once, which loops that are the axes themselves do: it
//! is what is left where no other plan is proved.

use crate::axes::variable;
use crate::context::Cx;
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
    let bind = over.zip(counter).map(|(over, counter)| (over.var, counter.var));
    let trees = |stmts: &mut dyn Iterator<Item = &usize>| -> Vec<Tree> {
        stmts.flat_map(|&stmt| trees_of(loops, nest(loops, stmt), stmt, bind)).collect()
    };
    let start = stmts.iter().position(is_repeated).unwrap_or(stmts.len());
    let end = stmts.iter().rposition(is_repeated).map_or(start, |last| last + 1);
    let mut body = trees(&mut stmts[..start].iter());
    let repeated = trees(&mut stmts[start..end].iter());
    body.extend(counter.map(|axis| Tree::Loop { kind: LoopKind::For, axis, body: repeated }));
    body.extend(trees(&mut stmts[end..].iter()));
    KernelPlan { name: String::new(), at_load: false, grid: Vec::new(), grain: 1, persistent: None, body }
}

/// A nest in loops that are its axes, those along which a scan runs innermost. `over` is an axis that a loop around counts already.
fn trees_of(loops: &Loops, nest: &Nest, stmt: usize, over: Option<(Sym, Sym)>) -> Vec<Tree> {
    let is_scanned = |axis: &Axis| nest.scanned().any(|scanned| scanned == axis.var);
    let mut own: Vec<Axis> =
        nest.axes.iter().filter(|axis| over.is_none_or(|over| over.0 != axis.var)).copied().collect();
    own.sort_by_key(is_scanned);
    let loop_of = |(at, axis): (usize, &Axis)| {
        (axis.var, Axis { var: variable(loops, &format!("p{stmt}_{at}")), extent: axis.extent })
    };
    let outer: Vec<(Sym, Axis)> = own.iter().enumerate().map(loop_of).collect();
    let reduced: Vec<(Sym, Axis)> = (own.len()..).zip(&nest.reduced).map(loop_of).collect();
    let leaf = |part: Part, bound: &mut dyn Iterator<Item = &(Sym, Axis)>| {
        let around = over.filter(|over| nest.axes.iter().any(|axis| axis.var == over.0));
        let mut bind: Vec<(Sym, Expr)> = bound.map(|(axis, by)| (*axis, Expr::sym(by.var))).collect();
        bind.extend(around.map(|(axis, by)| (axis, Expr::sym(by))));
        Tree::Leaf(Leaf { nest: nest.name.clone(), part, bind, masked: false, block: None })
    };
    let wrapped = |around: &[(Sym, Axis)], body: Vec<Tree>| {
        let wrap = |body, &(_, axis): &(Sym, Axis)| vec![Tree::Loop { kind: LoopKind::For, axis, body }];
        around.iter().rev().fold(body, wrap)
    };
    let mut all = outer.iter().chain(&reduced);
    let points = match nest.reduces() {
        false => wrapped(&reduced, vec![leaf(Part::Whole, &mut all)]),
        true => {
            let mut body = wrapped(&reduced, vec![leaf(Part::Update, &mut all)]);
            body.push(leaf(Part::Final, &mut outer.iter()));
            body
        }
    };
    wrapped(&outer, points)
}
