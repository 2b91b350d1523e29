impl<'a> Builder<'a> {
    /// Translates adjacent leaves as one straight-line run, wrapped in the tiles held back.
    fn leaves(&mut self, leaves: &[&'a Leaf], env: &Env, out: &mut Vec<Stmt>) -> Result<(), Diag> {
        let mut stmts = Vec::new();
        let mut forward: HashMap<(Buf, Expr), Val> = HashMap::new();
        for &leaf in leaves {
            self.leaf(leaf, env, &mut forward, &mut stmts)?;
        }
        self.wrap_in_tiles(&mut stmts, env, &|_| true);
        out.extend(stmts);
        Ok(())
    }

    fn leaf(
        &mut self,
        leaf: &'a Leaf,
        env: &Env,
        forward: &mut HashMap<(Buf, Expr), Val>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let nest = self.nest(leaf)?;
        let mut guard = Vec::new();
        for axis in nest.all_axes() {
            let Some(&(_, value)) = leaf.bind.iter().find(|(s, _)| *s == axis.var) else {
                if leaf.part == Part::Tail && nest.reduced.contains(axis) {
                    continue;
                }
                return Err(self.error(format!("{}: axis {} is not bound", nest.name, axis.var)));
            };
            let in_range = env.clipped.contains(&(nest.name.clone(), axis.var))
                || env.facts.known(&Rel::lt(value, axis.extent)) == Known::Yes;
            if in_range {
                continue;
            }
            if nest.reduced.contains(axis) && leaf.part == Part::Body {
                return Err(self.error(format!("{}: reduced axis {} may leave its range", nest.name, axis.var)));
            }
            guard.push(Rel::lt(value, axis.extent));
        }
        let mut run =
            Run { leaf, nest, facts: &env.facts, guard, values: HashMap::new(), renamed: HashMap::new() };
        for (i, wanted) in wanted(nest, leaf.part).into_iter().enumerate() {
            if wanted {
                self.instruction(i, &mut run, forward, out)?;
            }
        }
        Ok(())
    }

    fn instruction(
        &mut self,
        i: usize,
        run: &mut Run<'a, '_>,
        forward: &mut HashMap<(Buf, Expr), Val>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let inst = &run.nest.body[i];
        let ty = inst.ty.compute();
        let define = |b: &mut Self, op: Op, out: &mut Vec<Stmt>| {
            let val = b.value(ty);
            out.push(Stmt::Let { val, op });
            val
        };
        let result = match &inst.op {
            InstOp::Load { buf, index, guard, other } => {
                let at = run.expr(*index);
                if guard.is_empty()
                    && run.guard.is_empty()
                    && let Some(&val) = forward.get(&(*buf, at))
                {
                    run.values.insert(loops::Val(i as u32), val);
                    return Ok(());
                }
                let (mem, index) = self.place(*buf, *index, run)?;
                let mut guard: Vec<Rel> = guard.iter().map(|r| run.rel(r)).collect();
                guard.extend(run.guard.iter().cloned());
                define(self, Op::Load { mem, index, guard, other: *other }, out)
            }
            InstOp::Const(s) => define(self, Op::Const(*s), out),
            InstOp::Index(e) => define(self, Op::Index(run.expr(*e)), out),
            InstOp::Cond(r) => define(self, Op::Cond(run.rel(r)), out),
            InstOp::Op(op, args) => {
                let args = args.iter().map(|a| run.values[a]).collect();
                let val = define(self, Op::Call(*op, args), out);
                let exact = matches!(
                    op,
                    ScalarOp::Max | ScalarOp::Min | ScalarOp::Neg | ScalarOp::Abs | ScalarOp::Select
                );
                if ty != inst.ty && !exact { define(self, Op::Round(inst.ty, val), out) } else { val }
            }
            InstOp::Cast(v) => {
                let from = run.nest.body[v.index()].ty;
                let val = run.values[v];
                let wide = if from.compute() == ty { val } else { define(self, Op::Cast(val), out) };
                let exact = ty == inst.ty || from == inst.ty;
                if exact { wide } else { define(self, Op::Round(inst.ty, wide), out) }
            }
            InstOp::Bitcast(v) => {
                let from = run.nest.body[v.index()].ty;
                if from.compute() != from || ty != inst.ty {
                    return Err(self.error(format!("{}: bit casts of half types have no realisation", run.nest.name)));
                }
                let val = run.values[v];
                define(self, Op::Bitcast(val), out)
            }
            InstOp::Bind { sym, value, extent } => {
                let fresh = Sym::new(&format!("{sym}_{}", self.kernel.checks.len()));
                let check = self.kernel.checks.len() as u32;
                let from = run.nest.from.join(", ");
                self.kernel.checks.push(format!("index of {from} is out of range"));
                run.renamed.insert(*sym, Expr::sym(fresh));
                let extent = run.expr(*extent);
                let value = self.guarded_index(run.values[value], &run.guard, out);
                out.push(Stmt::Bind { sym: fresh, value, extent, check });
                value
            }
            InstOp::Reduce(op, v) => {
                let acc = self.accumulator(run.nest, i)?;
                let index = self.accumulator_index(&acc, run.leaf, run.facts);
                if run.leaf.part == Part::Tail {
                    define(self, load(acc.mem, index), out)
                } else {
                    let value = run.values[v];
                    let combine = Some(*op);
                    out.push(Stmt::Store { mem: acc.mem, index, value, combine, guard: Vec::new(), atomic: false });
                    value
                }
            }
            InstOp::ArgReduce { max, value } => {
                let acc = self.accumulator(run.nest, i)?;
                let at = acc.at.expect("invariant: an arg-reduction has a position");
                let index = self.accumulator_index(&acc, run.leaf, run.facts);
                if run.leaf.part == Part::Tail {
                    define(self, load(at, index), out)
                } else {
                    let coords: Vec<Expr> = run.nest.reduced.iter().map(|a| run.expr(Expr::sym(a.var))).collect();
                    let extents: Vec<Expr> = run.nest.reduced.iter().map(|a| a.extent).collect();
                    let value = run.values[value];
                    let position = run.facts.simplify(flatten(&coords, &extents));
                    out.push(Stmt::ArgStore { max: *max, best: acc.mem, at, index, value, position });
                    value
                }
            }
            InstOp::Scan { op, value, .. } => {
                let acc = self.accumulator(run.nest, i)?;
                let index = self.accumulator_index(&acc, run.leaf, run.facts);
                let value = run.values[value];
                let combine = Some(*op);
                out.push(Stmt::Store { mem: acc.mem, index, value, combine, guard: Vec::new(), atomic: false });
                define(self, load(acc.mem, index), out)
            }
            InstOp::Store { buf, index, value, combine } => {
                let at = run.expr(*index);
                let value = run.values[value];
                if combine.is_none() && run.guard.is_empty() {
                    forward.retain(|(b, _), _| b != buf);
                    forward.insert((*buf, at), value);
                } else {
                    forward.retain(|(b, _), _| b != buf);
                }
                let atomic = combine.is_some() && !self.plan.grid.is_empty();
                let (mem, index) = self.place(*buf, *index, run)?;
                out.push(Stmt::Store { mem, index, value, combine: *combine, guard: run.guard.clone(), atomic });
                value
            }
        };
        run.values.insert(loops::Val(i as u32), result);
        Ok(())
    }

    /// `value` where the guards hold, 0 elsewhere: points outside of the domain have no index to check.
    fn guarded_index(&mut self, value: Val, guard: &[Rel], out: &mut Vec<Stmt>) -> Val {
        let mut define = |b: &mut Self, op: Op, ty: Dtype| {
            let val = b.value(ty);
            out.push(Stmt::Let { val, op });
            val
        };
        let mut value = value;
        for &rel in guard {
            let holds = define(self, Op::Cond(rel), Dtype::Bool);
            let zero = define(self, Op::Const(Scalar::Int(0)), Dtype::I64);
            value = define(self, Op::Call(ScalarOp::Select, vec![holds, value, zero]), Dtype::I64);
        }
        value
    }
}
