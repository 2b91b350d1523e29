impl<'a> Builder<'a> {
    /// Translates trees in order, appending to `out`. Adjacent leaves share one run of loops.
    fn block(&mut self, trees: &'a [Tree], env: &Env, out: &mut Vec<Stmt>) -> Result<(), Diag> {
        let mut rest = trees;
        while let Some(first) = rest.first() {
            match first {
                Tree::Leaf(_) => {
                    let n = rest.iter().take_while(|t| matches!(t, Tree::Leaf(_))).count();
                    let leaves: Vec<&'a Leaf> = rest[..n]
                        .iter()
                        .filter_map(|t| match t {
                            Tree::Leaf(leaf) => Some(leaf),
                            Tree::Loop { .. } => None,
                        })
                        .collect();
                    self.leaves(&leaves, env, out)?;
                    rest = &rest[n..];
                }
                Tree::Loop { kind, axis, body } => {
                    self.tree_loop(*kind, *axis, body, env, out)?;
                    rest = &rest[1..];
                }
            }
        }
        Ok(())
    }

    fn tree_loop(
        &mut self,
        kind: schedule::LoopKind,
        axis: Axis,
        body: &'a [Tree],
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        use schedule::LoopKind as K;
        let clip = self.clip(axis, body, env)?;
        let mut inner = env.clone();
        if let Some((_, pairs)) = &clip {
            inner.clipped.extend(pairs.iter().cloned());
        }
        let written_out = match kind {
            K::Partial => return self.partial_loop(axis, clip.map(|c| c.0), body, inner, out),
            K::For => return self.plain_loop(LoopKind::For, axis, clip.map(|c| c.0), body, inner, out),
            K::Vector { lanes, copies } => {
                let kind = LoopKind::Vector { lanes, copies };
                return self.plain_loop(kind, axis, clip.map(|c| c.0), body, inner, out);
            }
            K::Unroll => None,
            K::Tile => Some(LoopKind::Unroll),
            K::TileVector { lanes } => Some(LoopKind::Vector { lanes, copies: 1 }),
            K::Thread | K::Warp | K::Mma => {
                return Err(self.error(format!("loop {}: this kind has no realisation on this target", axis.var)));
            }
        };
        let Some(extent) = axis.extent.as_int() else {
            return Err(self.error(format!("loop {}: a written-out loop needs a constant extent", axis.var)));
        };
        let Some((remaining, _)) = clip else {
            return self.written_out(written_out, axis, body, inner, out);
        };
        // Full version, then the last one with what remains.
        let remaining = env.facts.simplify(remaining);
        let mut then = Vec::new();
        self.written_out(written_out, axis, body, inner.clone(), &mut then)?;
        let mut other = Vec::new();
        match self.constant_rest(remaining, extent, &env.facts) {
            Some(0) => {}
            Some(rest) => {
                let axis = Axis { var: axis.var, extent: Expr::int(rest) };
                self.written_out(written_out, axis, body, inner, &mut other)?;
            }
            None if matches!(written_out, Some(LoopKind::Vector { .. })) => {
                // Masked by guards: the axis is not in range by the loop's extent.
                self.written_out(written_out, axis, body, env.clone(), &mut other)?;
            }
            None => self.row_by_row(axis, remaining, body, &inner, &mut other)?,
        }
        out.push(Stmt::If { cond: vec![Rel::le(Expr::int(extent), remaining)], then, other });
        Ok(())
    }

    /// The number of points the last tile has when that is the same constant wherever the tile is not full.
    fn constant_rest(&self, remaining: Expr, extent: i64, facts: &Facts) -> Option<i64> {
        let rest = facts.simplify(remaining.modulo(extent));
        // remaining = n - extent*tile: equal to n modulo the extent.
        rest.as_int()
    }

    /// The last points of a tile whose number is known only at run time, one at a time.
    fn row_by_row(
        &mut self,
        axis: Axis,
        remaining: Expr,
        body: &'a [Tree],
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let mut inner = env.clone();
        inner.facts.declare_index(axis.var, remaining.max(Expr::zero()));
        inner.path.push(LoopVar { var: axis.var, extent: remaining, partial: false });
        let mut stmts = Vec::new();
        // Tiles held back from outside stay outside of their leaves; this loop runs around them.
        self.start_accumulators(body, &inner, &mut stmts)?;
        self.block(body, &inner, &mut stmts)?;
        out.push(Stmt::Loop(Loop { kind: LoopKind::For, var: axis.var, extent: remaining, body: stmts }));
        Ok(())
    }

    fn plain_loop(
        &mut self,
        kind: LoopKind,
        axis: Axis,
        clip: Option<Expr>,
        body: &'a [Tree],
        mut inner: Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let extent = match clip {
            Some(limit) => inner.facts.simplify(axis.extent.min(limit)),
            None => axis.extent,
        };
        inner.facts.declare_index(axis.var, extent);
        inner.path.push(LoopVar { var: axis.var, extent: axis.extent, partial: false });
        let mut stmts = Vec::new();
        self.start_accumulators(body, &inner, &mut stmts)?;
        self.block(body, &inner, &mut stmts)?;
        out.push(Stmt::Loop(Loop { kind, var: axis.var, extent, body: stmts }));
        Ok(())
    }

    /// A loop whose iterations reduce into accumulators of their own.
    fn partial_loop(
        &mut self,
        axis: Axis,
        clip: Option<Expr>,
        body: &'a [Tree],
        mut inner: Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let extent = match clip {
            Some(limit) => inner.facts.simplify(axis.extent.min(limit)),
            None => axis.extent,
        };
        inner.facts.declare_index(axis.var, extent);
        inner.path.push(LoopVar { var: axis.var, extent: axis.extent, partial: true });
        let totals = self.accumulators.clone();
        let mut stmts = Vec::new();
        self.start_accumulators(body, &inner, &mut stmts)?;
        self.block(body, &inner, &mut stmts)?;
        let mut leaves = Vec::new();
        collect_leaves(body, &mut Vec::new(), &mut leaves);
        for (leaf, _) in leaves.iter().filter(|(leaf, _)| leaf.part == Part::Body) {
            let nest = self.nest(leaf)?;
            for (i, inst) in nest.body.iter().enumerate() {
                let op = match inst.op {
                    InstOp::Reduce(op, _) => op,
                    InstOp::ArgReduce { .. } => {
                        return Err(self.error(format!("{}: positions have no partial form", nest.name)));
                    }
                    _ => continue,
                };
                let (part, total) = match (self.accumulator(nest, i), totals.get(&(nest.name.as_str(), i))) {
                    (Ok(part), Some(total)) if part.mem != total.mem => (part, total.clone()),
                    _ => return Err(self.error(format!("{}: no reduced loop inside {}", nest.name, axis.var))),
                };
                let value = self.value(self.kernel.mems[part.mem].dtype);
                let index = self.accumulator_index(&part, leaf, &inner.facts);
                let mut add = vec![Stmt::Let { val: value, op: load(part.mem, index) }];
                let index = self.accumulator_index(&total, leaf, &inner.facts);
                let combine = Some(op);
                add.push(Stmt::Store { mem: total.mem, index, value, combine, guard: Vec::new(), atomic: false });
                self.wrap_in_tiles(&mut add, &inner, &|tile| part.tiles.iter().any(|t| t.var == tile.var));
                stmts.extend(add);
            }
        }
        self.accumulators = totals;
        out.push(Stmt::Loop(Loop { kind: LoopKind::For, var: axis.var, extent, body: stmts }));
        Ok(())
    }

    /// Wraps statements in those of the tiles held back that `which` picks.
    fn wrap_in_tiles(&self, stmts: &mut Vec<Stmt>, env: &Env, which: &dyn Fn(&Axis) -> bool) {
        for tile in env.tiles.iter().rev().filter(|t| which(&t.axis)) {
            let body = std::mem::take(stmts);
            let Axis { var, extent } = tile.axis;
            stmts.push(Stmt::Loop(Loop { kind: tile.kind, var, extent, body }));
        }
    }

    /// An unrolled loop in place, or a tile held back for the leaves below.
    fn written_out(
        &mut self,
        tile: Option<LoopKind>,
        axis: Axis,
        body: &'a [Tree],
        mut inner: Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let Some(kind) = tile else {
            return self.plain_loop(LoopKind::Unroll, axis, None, body, inner, out);
        };
        inner.facts.declare_index(axis.var, axis.extent);
        inner.path.push(LoopVar { var: axis.var, extent: axis.extent, partial: false });
        inner.tiles.push(TileLoop { kind, axis });
        self.start_accumulators(body, &inner, out)?;
        self.block(body, &inner, out)
    }

    /// How far `axis` may run before a leaf below leaves its nest's domain: the limit, and the (nest, axis) pairs it
    /// keeps in range. `None` when every leaf stays in range anyway.
    fn clip(&self, axis: Axis, body: &'a [Tree], env: &Env) -> Result<Option<(Expr, Vec<(String, Sym)>)>, Diag> {
        let mut limit: Option<Expr> = None;
        let mut pairs = Vec::new();
        let mut leaves: Vec<(&Leaf, Vec<Axis>)> = Vec::new();
        collect_leaves(body, &mut Vec::new(), &mut leaves);
        for (leaf, below) in leaves {
            let nest = self.nest(leaf)?;
            for &(nest_axis, value) in &leaf.bind {
                let Some(extent) = nest.all_axes().find(|a| a.var == nest_axis).map(|a| a.extent) else {
                    return Err(self.error(format!("{} has no axis {nest_axis}", nest.name)));
                };
                // Only the innermost variable of a binding is clipped.
                if !value.has_sym(axis.var) || below.iter().any(|a| value.has_sym(a.var)) {
                    continue;
                }
                if env.clipped.contains(&(nest.name.clone(), nest_axis)) {
                    continue;
                }
                let mut facts = env.facts.clone();
                facts.declare_index(axis.var, axis.extent);
                if facts.known(&Rel::lt(value, extent)) == Known::Yes {
                    continue;
                }
                let Some((coefficient, rest)) = value.linear(axis.var) else { continue };
                if !coefficient.is_one() {
                    continue;
                }
                let here = extent - rest;
                match limit {
                    None => limit = Some(here),
                    Some(other) if other == here => {}
                    Some(_) => continue,
                }
                pairs.push((nest.name.clone(), nest_axis));
            }
        }
        Ok(limit.map(|l| (l, pairs)))
    }
}
