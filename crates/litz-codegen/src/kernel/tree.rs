//! Translates loops of the plan's tree to loops of the kernel: tiles are held back, and ends clipped.

use super::{Around, Builder, Env, TileLoop, collect_leaves};
use litz_ir::Diag;
use litz_ir::kernel::{Loop, LoopKind, Stmt};
use litz_ir::loops::Axis;
use litz_ir::schedule::{self, Leaf, Part, Tree};
use litz_sym::{Expr, Facts, Known, Rel, Sym};

/// How far a loop may run before a leaf below leaves its nest's domain.
struct Clip<'a> {
    limit: Expr,
    /// The (nest, axis) pairs that the limit keeps in range.
    pairs: Vec<(&'a str, Sym)>,
}

impl<'a> Builder<'a> {
    /// Translates trees in order, appending to `out`. Adjacent leaves that run instructions share one run of loops.
    pub(super) fn block(
        &mut self,
        trees: &'a [Tree],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let mut leaves: Vec<&'a Leaf> = Vec::new();
        for tree in trees {
            match tree {
                Tree::Leaf(leaf) if leaf.part.runs_instructions() => leaves.push(leaf),
                Tree::Leaf(leaf) => {
                    self.leaves(&std::mem::take(&mut leaves), env, out)?;
                    self.accumulators(leaf, env, out)?;
                }
                Tree::Loop { kind, axis, body } => {
                    self.leaves(&std::mem::take(&mut leaves), env, out)?;
                    self.tree_loop(*kind, *axis, body, env, out)?;
                }
            }
        }
        self.leaves(&leaves, env, out)
    }

    fn tree_loop(
        &mut self,
        kind: schedule::LoopKind,
        axis: Axis,
        body: &'a [Tree],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        use schedule::LoopKind as K;
        // As in a grid: nothing runs, and what is known of its variable contradicts itself.
        if axis.extent.is_zero() {
            return Ok(());
        }
        let clip = self.clip(axis, body, env)?;
        let mut inner = env.clone();
        if let Some(clip) = &clip {
            inner.clipped.extend(clip.pairs.iter().copied());
        }
        let limit = clip.map(|c| c.limit);
        let around = Around { axis, planned: axis, is_tile: kind.is_tile(), body };
        let tile = match kind {
            K::For => return self.plain_loop(LoopKind::For, around, limit, inner, out),
            K::Vector { lanes, copies } => {
                return self.plain_loop(LoopKind::Vector { lanes, copies }, around, limit, inner, out);
            }
            K::Unroll => None,
            K::Mma => {
                let clipped = clipped(axis, limit, &inner.facts);
                return self.written_out(Some(LoopKind::Mma), around, clipped.extent, inner, out);
            }
            K::Tile => Some(LoopKind::Unroll),
            K::TileVector { lanes } => Some(LoopKind::Vector { lanes, copies: 1 }),
            K::Thread | K::Warp => {
                return Err(
                    self.error(format!("loop {}: this kind has no realisation on this target", axis.var))
                );
            }
        };
        let Some(extent) = axis.extent.as_int() else {
            return Err(self.error(format!("loop {}: a written-out loop needs a constant extent", axis.var)));
        };
        let Some(remaining) = limit else {
            return self.written_out(tile, around, axis.extent, inner, out);
        };
        // Full version, then the last one with what remains.
        let remaining = env.facts.simplify(remaining);
        let mut then = Vec::new();
        self.written_out(tile, around, axis.extent, inner.clone(), &mut then)?;
        let mut other = Vec::new();
        match constant_rest(remaining, extent, &env.facts) {
            Some(0) => {}
            Some(rest) => {
                let axis = Axis { var: axis.var, extent: Expr::int(rest) };
                self.written_out(tile, Around { axis, ..around }, axis.extent, inner, &mut other)?;
                // Loops around may go on past the last tile.
                let is_last = Rel::le(Expr::int(rest), remaining);
                if env.facts.known(&is_last) != Known::Yes {
                    other = vec![Stmt::If { cond: vec![is_last], then: other, other: Vec::new() }];
                }
            }
            None if matches!(tile, Some(LoopKind::Vector { .. })) => {
                // Masked by guards: the axis is not in range by the loop's extent.
                self.written_out(tile, around, axis.extent, env.clone(), &mut other)?;
            }
            None => {
                // One point at a time. Tiles held back from outside stay outside of their leaves.
                let axis = Axis { var: axis.var, extent: remaining };
                let around = Around { axis, ..around };
                self.repeat(LoopKind::For, around, remaining.max(Expr::zero()), inner, &mut other)?;
            }
        }
        out.push(Stmt::If { cond: vec![Rel::le(Expr::int(extent), remaining)], then, other });
        Ok(())
    }

    fn plain_loop(
        &mut self,
        kind: LoopKind,
        around: Around<'a>,
        limit: Option<Expr>,
        inner: Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let axis = clipped(around.axis, limit, &inner.facts);
        self.repeat(kind, Around { axis, ..around }, axis.extent, inner, out)
    }

    /// A loop whose variable stays below `bound`.
    fn repeat(
        &mut self,
        kind: LoopKind,
        around: Around<'a>,
        bound: Expr,
        mut inner: Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        inner.enter(around, bound);
        let mut stmts = Vec::new();
        self.block(around.body, &inner, &mut stmts)?;
        out.push(repeated(kind, around.axis, stmts));
        Ok(())
    }

    /// Wraps statements in those of the tiles held back that `which` picks.
    pub(super) fn wrap_in_tiles(&self, stmts: &mut Vec<Stmt>, env: &Env<'a>, which: impl Fn(Sym) -> bool) {
        for tile in env.tiles.iter().rev().filter(|t| which(t.axis.var)) {
            let body = std::mem::take(stmts);
            stmts.push(repeated(tile.kind, Axis { extent: tile.extent, ..tile.axis }, body));
        }
    }

    /// An unrolled loop in place, or a tile held back for the leaves below, of which `extent` points run.
    fn written_out(
        &mut self,
        tile: Option<LoopKind>,
        around: Around<'a>,
        extent: Expr,
        mut inner: Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let Some(kind) = tile else {
            return self.repeat(LoopKind::Unroll, around, extent, inner, out);
        };
        inner.enter(around, extent);
        inner.tiles.push(TileLoop { kind, axis: around.axis, extent });
        self.block(around.body, &inner, out)
    }

    /// Where `axis` must stop; `None` when every leaf stays in range anyway, or leaves would have to stop at different points:
    /// they have guards then.
    fn clip(&self, axis: Axis, body: &'a [Tree], env: &Env<'a>) -> Result<Option<Clip<'a>>, Diag> {
        let mut clip: Option<Clip<'a>> = None;
        let mut all_stop = true;
        let mut facts = env.facts.clone();
        facts.declare_index(axis.var, axis.extent);
        for (leaf, below) in collect_leaves(body) {
            // Accumulators have elements for whole vectors and tiles.
            if leaf.part == Part::Init {
                continue;
            }
            let nest = self.nest(leaf)?;
            // What is merged past the end is nothing.
            let mut stops =
                leaf.part == Part::Merge && !leaf.bind.iter().any(|bind| bind.1.has_sym(axis.var));
            for &(nest_axis, value) in &leaf.bind {
                let Some(extent) = nest.all_axes().find(|a| a.var == nest_axis).map(|a| a.extent) else {
                    return Err(self.error(format!("{} has no axis {nest_axis}", nest.name)));
                };
                // Only the innermost variable of a binding is clipped.
                if !value.has_sym(axis.var) || below.iter().any(|a| value.has_sym(a.var)) {
                    continue;
                }
                if env.has_clipped(nest, nest_axis) || facts.known(&Rel::lt(value, extent)) == Known::Yes {
                    continue;
                }
                let (value, extent) = undivided(value, extent, axis.var, &facts);
                let Some((coefficient, rest)) = value.linear(axis.var) else { continue };
                if !coefficient.is_one() {
                    continue;
                }
                let here = extent - rest;
                // Tiles held back are inside of this loop; their points past the end are masked.
                if env.tiles.iter().any(|tile| here.has_sym(tile.axis.var)) {
                    continue;
                }
                let clip = clip.get_or_insert(Clip { limit: here, pairs: Vec::new() });
                if clip.limit == here {
                    clip.pairs.push((nest.name.as_str(), nest_axis));
                    stops = true;
                }
            }
            all_stop &= stops;
        }
        Ok(clip.filter(|_| all_stop))
    }
}

/// What is smaller than what exactly where `value < extent`, without divisions of `var`: rows of a merged axis are found
/// by one.
/// y + floordiv(x, n) < m, n > 0 => x + n*y < m*n
fn undivided(mut value: Expr, mut extent: Expr, var: Sym, facts: &Facts) -> (Expr, Expr) {
    let is_positive = |e: Expr| facts.known(&Rel::le(Expr::one(), e)) == Known::Yes;
    loop {
        let divided = value.terms().into_iter().find_map(|(factor, term)| {
            let (inner, divisor) = term.as_floordiv().filter(|_| factor == 1 && term.has_sym(var))?;
            is_positive(divisor).then(|| (inner + (value - term) * divisor, divisor))
        });
        let Some((inner, divisor)) = divided else { return (value, extent) };
        (value, extent) = (facts.simplify(inner), extent * divisor);
    }
}

/// The axis, ending where `limit` says.
fn clipped(axis: Axis, limit: Option<Expr>, facts: &Facts) -> Axis {
    match limit {
        Some(limit) => Axis { extent: facts.simplify(axis.extent.min(limit)), ..axis },
        None => axis,
    }
}

/// The loop along `axis`. A vector of one point is an ordinary loop: an accumulator that loses the axis for being of one
/// point may be read where it is added to, while lanes add up only after their loop.
fn repeated(kind: LoopKind, axis: Axis, body: Vec<Stmt>) -> Stmt {
    let kind = match kind {
        LoopKind::Vector { .. } if axis.extent.is_one() => LoopKind::For,
        LoopKind::Vector { .. } | LoopKind::For | LoopKind::Unroll | LoopKind::Mma => kind,
    };
    Stmt::Loop(Loop { kind, var: axis.var, extent: axis.extent, body })
}

/// The number of points the last tile has, when that is the same constant wherever the tile is not full.
fn constant_rest(remaining: Expr, extent: i64, facts: &Facts) -> Option<i64> {
    // remaining = n - extent*tile: equal to n modulo the extent.
    facts.simplify(remaining.modulo(extent)).as_int()
}
