//! Finds runs of neighbours that a thread takes at once, and makes it take them.

use crate::context::Cx;
use litz_analysis::access::{Stride, bound_places, stride, substitute};
use litz_ir::loops::{Axis, Nest};
use litz_ir::schedule::{LoopKind, Tree};
use litz_ir::target::Gpu;
use litz_sym::{Expr, Facts, Sym};

/// Runs of neighbours along an axis, in all that nests access.
pub struct Runs {
    axis: Axis,
    /// Where they begin, and how many elements there are: both are multiples of what a thread takes at once.
    starts: Vec<Expr>,
    /// Bytes of the widest element.
    widest: i64,
    /// Places along which neighbours are in some blocks of the axis alone, if these count: of `mod(k, 32) + 32` those of 32 times `k`.
    in_blocks: Option<Vec<Expr>>,
}

impl Runs {
    /// Those of nests that access nothing.
    pub fn along(axis: Axis) -> Runs {
        Runs { axis, starts: vec![axis.extent], widest: 1, in_blocks: None }
    }

    /// The same, where blocks of the axis may have neighbours of their own.
    pub fn by_digits(axis: Axis) -> Runs {
        Runs { in_blocks: Some(Vec::new()), ..Runs::along(axis) }
    }

    /// Notes what a nest accesses, under a binding of its axes, with `values` for what these mention. None where neighbours lie apart.
    pub fn note(
        &mut self,
        cx: &Cx<'_>,
        own: &Nest,
        (bind, values): (&[(Sym, Expr)], &[(Sym, Expr)]),
        facts: &Facts,
    ) -> Option<()> {
        for (access, place) in bound_places(cx.loops, own, bind, facts) {
            let place = facts.simplify(substitute(place, values));
            match stride(place, self.axis.var) {
                Stride::Zero => {}
                Stride::Unit => {
                    if access.store {
                        self.starts.push(place.replace(self.axis.var, Expr::zero()));
                    }
                    self.widest = self.widest.max(cx.loops.bufs[access.buf].dtype.size() as i64);
                }
                Stride::Irregular if !access.store => {
                    self.in_blocks.as_mut()?.push(place);
                    self.widest = self.widest.max(cx.loops.bufs[access.buf].dtype.size() as i64);
                }
                Stride::Elements(_) | Stride::Irregular => return None,
            }
        }
        Some(())
    }

    /// How many elements of the widest type a thread takes at once, at most.
    pub fn longest(&self) -> i64 {
        i64::from(Gpu::VECTOR_BYTES) / self.widest
    }

    /// Whether they are of so many elements.
    pub fn are_of(&self, count: i64, facts: &Facts) -> bool {
        let [run, inside] = ["run", "v"].map(|what| Sym::new(&format!("{}_{what}", self.axis.var)));
        let mut facts = facts.clone();
        facts.declare_index(run, self.axis.extent.floordiv(count));
        facts.declare_index(inside, Expr::int(count));
        let value = Expr::sym(run) * count + Expr::sym(inside);
        let are_beside = |&place: &Expr| {
            let place = facts.simplify(place.replace(self.axis.var, value));
            matches!(stride(place, inside), Stride::Unit | Stride::Zero)
        };
        self.starts.iter().all(|start| facts.simplify(start.modulo(count)).is_zero())
            && self.in_blocks.iter().flatten().all(are_beside)
    }
}

/// Makes a thread take `count` neighbours along an axis: puts such a loop around `body`. Gives the axis of what threads take, and the variable in it.
pub fn by_runs(
    axis: Axis,
    (kind, count): (LoopKind, i64),
    body: &mut Vec<Tree>,
    name: &dyn Fn(&str) -> Sym,
) -> (Axis, Sym) {
    let [run, inside] = ["run", "v"].map(|what| name(&format!("{}_{what}", axis.var)));
    let value = Expr::sym(run) * count + Expr::sym(inside);
    body.iter_mut().for_each(|tree| tree.replace(axis.var, value));
    let neighbours = Axis { var: inside, extent: Expr::int(count) };
    *body = vec![Tree::Loop { kind, axis: neighbours, body: std::mem::take(body) }];
    (Axis { var: run, extent: axis.extent.floordiv(count) }, inside)
}
