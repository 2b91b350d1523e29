impl<'a> Builder<'a> {
    /// Sets up the accumulators of reductions whose loops begin here: those of leaves below `trees` that bind a
    /// reduced axis by a loop directly in `trees`, or by none at all.
    fn start_accumulators(
        &mut self,
        trees: &'a [Tree],
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        for tree in trees {
            let mut leaves = Vec::new();
            collect_leaves(std::slice::from_ref(tree), &mut Vec::new(), &mut leaves);
            for (leaf, below) in leaves {
                let nest = self.nest(leaf)?;
                let running = running_axes(nest);
                if running.is_empty() || leaf.part == Part::Tail {
                    continue;
                }
                let bound_by = |a: &Axis| leaf.bind.iter().any(|(s, e)| running.contains(s) && e.has_sym(a.var));
                let around = env.path.iter().rev().take_while(|v| !v.partial);
                let started = around.into_iter().any(|v| bound_by(&Axis { var: v.var, extent: v.extent }));
                // Partial sums are added up in memory: registers are for what runs inside.
                let (starts, space) = match tree {
                    Tree::Leaf(_) => (true, Space::Register),
                    Tree::Loop { kind: schedule::LoopKind::Partial, axis, .. } => (bound_by(axis), Space::Scratch),
                    // A tile is no loop of its own: its accumulators start where the loop below it does.
                    Tree::Loop { axis, .. } => (bound_by(axis), Space::Register),
                };
                if starts && !started {
                    self.start_nest(nest, leaf, &below, space, env, out)?;
                }
            }
        }
        Ok(())
    }

    fn start_nest(
        &mut self,
        nest: &'a Nest,
        leaf: &'a Leaf,
        below: &[Axis],
        space: Space,
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let running = running_axes(nest);
        let mut outer = Vec::new();
        for axis in nest.axes.iter().filter(|a| !running.contains(&a.var)) {
            let Some(&(_, value)) = leaf.bind.iter().find(|(s, _)| *s == axis.var) else {
                return Err(self.error(format!("{}: axis {} is not bound", nest.name, axis.var)));
            };
            outer.push((axis.var, value));
        }
        let varies = |a: &Axis| outer.iter().any(|(_, value)| value.has_sym(a.var));
        let tiles: Vec<Axis> = env.tiles.iter().filter(|t| varies(&t.axis)).map(TileLoop::in_whole_vectors).collect();
        let mut dims = Vec::new();
        for &(axis, value) in &outer {
            let used: Vec<Axis> = below.iter().filter(|a| value.has_sym(a.var)).copied().collect();
            if used.is_empty() {
                continue;
            }
            let base = value.subst(&|s| used.iter().any(|a| a.var == s).then(Expr::zero));
            let last = value.subst(&|s| used.iter().find(|a| a.var == s).map(|a| a.extent - 1));
            dims.push((axis, base, env.facts.simplify(last - base + 1)));
        }
        let mut accumulator = Accumulator { mem: Mem(0), at: None, tiles, dims };
        let extent = accumulator.extent();
        let space = match extent.as_int() {
            Some(n) if accumulator.dims.is_empty() && n <= MAX_REGISTER_ELEMENTS => space,
            _ => Space::Scratch,
        };
        for (i, inst) in nest.body.iter().enumerate() {
            let (first, value_type, is_arg) = match &inst.op {
                InstOp::Reduce(op, v) => {
                    let ty = nest.body[v.index()].ty.compute();
                    (op.identity(ty), ty, false)
                }
                InstOp::Scan { op, value, .. } => {
                    let ty = nest.body[value.index()].ty.compute();
                    (op.identity(ty), ty, false)
                }
                InstOp::ArgReduce { max, value } => {
                    let ty = nest.body[value.index()].ty.compute();
                    let op = if *max { litz_ir::ReduceOp::Max } else { litz_ir::ReduceOp::Min };
                    (op.identity(ty), ty, true)
                }
                _ => continue,
            };
            accumulator.mem = self.local(&format!("{}_acc{i}", nest.name), value_type, extent, space);
            accumulator.at =
                is_arg.then(|| self.local(&format!("{}_at{i}", nest.name), Dtype::I64, extent, space));
            self.fill(&accumulator, first, value_type, env, below, leaf, out);
            self.accumulators.insert((nest.name.as_str(), i), accumulator.clone());
        }
        Ok(())
    }

    /// Stores the first value into every element of an accumulator.
    fn fill(
        &mut self,
        acc: &Accumulator,
        first: Scalar,
        ty: Dtype,
        env: &Env,
        below: &[Axis],
        leaf: &Leaf,
        out: &mut Vec<Stmt>,
    ) {
        let val = self.value(ty);
        let mut stmts = vec![Stmt::Let { val, op: Op::Const(first) }];
        // Loops around the fill: those below that span several outer points, and the tiles.
        let spans = |var: Sym| leaf.bind.iter().any(|(axis, e)| e.has_sym(var) && acc.dims.iter().any(|d| d.0 == *axis));
        let index = self.accumulator_index(acc, leaf, &env.facts);
        let store = |mem: Mem, value: Val| Stmt::Store {
            mem,
            index,
            value,
            combine: None,
            guard: Vec::new(),
            atomic: false,
        };
        stmts.push(store(acc.mem, val));
        if let Some(at) = acc.at {
            let zero = self.value(Dtype::I64);
            stmts.push(Stmt::Let { val: zero, op: Op::Const(Scalar::Int(0)) });
            stmts.push(store(at, zero));
        }
        for axis in below.iter().rev().filter(|a| spans(a.var)) {
            stmts = vec![Stmt::Loop(Loop { kind: LoopKind::For, var: axis.var, extent: axis.extent, body: stmts })];
        }
        self.wrap_in_tiles(&mut stmts, env, &|tile| acc.tiles.iter().any(|t| t.var == tile.var));
        out.extend(stmts);
    }

    fn accumulator_index(&self, acc: &Accumulator, leaf: &Leaf, facts: &Facts) -> Expr {
        let along = acc.dims.iter().map(|(axis, base, _)| {
            let value = leaf.bind.iter().find(|(s, _)| s == axis).map_or(Expr::zero(), |b| b.1);
            facts.simplify(value - *base)
        });
        let coords: Vec<Expr> = acc.tiles.iter().map(|t| Expr::sym(t.var)).chain(along).collect();
        let extents: Vec<Expr> = acc.tiles.iter().map(|t| t.extent).chain(acc.dims.iter().map(|d| d.2)).collect();
        flatten(&coords, &extents)
    }

    fn accumulator(&self, nest: &'a Nest, i: usize) -> Result<Accumulator, Diag> {
        self.accumulators
            .get(&(nest.name.as_str(), i))
            .cloned()
            .ok_or_else(|| self.error(format!("{}: its tail comes before its body", nest.name)))
    }
}
