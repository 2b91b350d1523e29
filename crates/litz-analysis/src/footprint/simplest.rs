//! Simplifies a plan: extents of loops become numbers where facts allow, and the variables of loops of one point become 0.

use litz_ir::loops::Axis;
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_sym::{Expr, Facts, Rel};

/// The plan with the extents of its loops in their simplest form, since what is asked of them is whether they are 1, or a
/// number; and with 0 for the variables of loops of one point, but where values run along them. The parts of a nest may have
/// other such loops, so that nothing that they share, such as an accumulator, can be told by their variables.
pub fn simplest(plan: &KernelPlan, facts: &Facts) -> KernelPlan {
    let mut plan = plan.clone();
    plan.grid.iter_mut().for_each(|axis| simplify_extent(axis, facts));
    plan.body.iter_mut().for_each(|tree| {
        tree.visit_mut(&mut |tree| {
            if let Tree::Loop { axis, .. } = tree {
                simplify_extent(axis, facts);
            }
        });
    });
    plan.body = without_ones(plan.body);
    plan
}

/// Trees without the variables of loops of one point. Those that are written out go, but where trees that follow would come into the
/// scope of what they declare.
fn without_ones(trees: Vec<Tree>) -> Vec<Tree> {
    let mut kept = Vec::new();
    let mut trees = trees.into_iter().peekable();
    while let Some(mut tree) = trees.next() {
        if let Tree::Loop { kind, axis, body } = &mut tree
            && axis.extent.is_one()
        {
            body.iter_mut().for_each(|tree| tree.replace(axis.var, Expr::zero()));
            let is_scope = body.iter().any(|tree| matches!(tree, Tree::Local(_)));
            if matches!(kind, LoopKind::Unroll | LoopKind::Mma) && (!is_scope || trees.peek().is_none()) {
                kept.extend(without_ones(std::mem::take(body)));
                continue;
            }
        }
        tree.blocks_mut().into_iter().for_each(|block| *block = without_ones(std::mem::take(block)));
        kept.push(tree);
    }
    kept
}

fn simplify_extent(axis: &mut Axis, facts: &Facts) {
    if axis.extent.as_int().is_some() {
        return;
    }
    axis.extent = facts.simplify(axis.extent);
    let is_known = |rel: Rel| facts.holds(&rel);
    if axis.extent.as_int().is_none()
        && is_known(Rel::le(axis.extent, 1))
        && is_known(Rel::le(1, axis.extent))
    {
        axis.extent = Expr::one();
    }
}
