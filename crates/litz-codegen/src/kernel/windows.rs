//! Makes boxes of rows of windows: of the loops over points and over neighbours of a row around a leaf `by box`.
//!
//! Other boxes are made of loops by the pass [`boxes`](crate::passes), once they copy in the background. Those of windows are made here, where the digits
//! of a point's number still are what the nest says: in the place of an element they are simplified with what else counts there.

use super::{Builder, Env, local};
use litz_analysis::copies::read_of;
use litz_analysis::windows::Windows;
use litz_ir::Diag;
use litz_ir::kernel::{Act, BoxCopy, BoxDim, Stmt};
use litz_ir::loops::Axis;
use litz_ir::schedule::{Leaf, LoopKind, Means, Tree};
use litz_sym::Expr;

impl<'a> Builder<'a> {
    /// The box that a loop over points copies, if it is such a loop.
    pub(super) fn windows(
        &mut self,
        (kind, points, body): (LoopKind, Axis, &'a [Tree]),
        env: &Env<'a>,
    ) -> Result<Option<Stmt>, Diag> {
        let Some((leaf, run)) = of_points(kind, body) else { return Ok(None) };
        let nest = self.nest(leaf)?;
        let Some(windows) = Windows::of(self.loops, nest).filter(|windows| !windows.is_matrix) else {
            return Ok(None);
        };
        let mut inner = env.clone();
        inner.enter(points);
        inner.enter(run);
        let refused = |why: &str| self.error(format!("{}: no box of windows: {why}", nest.name));
        let value = |axis| super::bound(leaf, axis).map(|value| inner.facts.simplify(value));
        let (origin, box_points) = windows.boxed(&inner.facts, &value, [points, run]).map_err(refused)?;
        let neighbours = run.extent.as_int().and_then(|count| u32::try_from(count).ok());
        let neighbours = neighbours.ok_or_else(|| refused("its rows are of no constant length"))?;
        let (source, held) = read_of(nest, (0, windows.buf), inner.locals.iter().cloned());
        let from = self.mem_of.get(&source).filter(|_| held.is_none());
        let Some((to, place)) = local::stored(nest, leaf, &inner) else {
            return Err(refused("it is not stored to memory of the block"));
        };
        let place = inner.facts.simplify(self.kernel.mems[to].place(&place));
        let steps = [(run, 1), (points, i64::from(neighbours))];
        let first = steps.into_iter().try_fold(place, |place, (axis, expected)| {
            let (step, rest) = place.linear(axis.var)?;
            (step == Expr::int(expected)).then_some(rest)
        });
        let (Some(&from), Some(first)) = (from, first) else {
            return Err(refused("its elements are not side by side in shared memory"));
        };
        let dims = vec![BoxDim { count: neighbours, step: Expr::one(), range: None }];
        let copy = BoxCopy { from, origin, to, first, points: Some(box_points), dims, rounds: false };
        Ok(Some(Stmt::Act(Act::BoxCopy(copy))))
    }
}

/// The leaf `by box` in a loop over points, and the loop over neighbours of a row that is around it.
fn of_points(kind: LoopKind, body: &[Tree]) -> Option<(&Leaf, Axis)> {
    let (LoopKind::For, [Tree::Loop { kind: LoopKind::For, axis, body }]) = (kind, body) else { return None };
    let [Tree::Leaf(leaf)] = &body[..] else { return None };
    (leaf.by == Some(Means::Box)).then_some((leaf, *axis))
}
