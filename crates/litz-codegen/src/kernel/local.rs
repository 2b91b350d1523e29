impl<'a> Builder<'a> {
    /// Memory and element for element `index` of `buf`.
    fn place(&mut self, buf: Buf, index: Expr, run: &Run<'a, '_>) -> Result<(Mem, Expr), Diag> {
        if let Some(&mem) = self.mem_of.get(&buf) {
            return Ok((mem, run.expr(index)));
        }
        let flat = run.expr(index);
        let Some(local) = self.locals.get(&buf) else {
            let name = &self.loops.bufs[buf].name;
            return Err(self.error(format!("{name} is neither a parameter nor local")));
        };
        let mut rest = run.facts.simplify(flat - local.base);
        let mut index = Expr::zero();
        for (i, &(step, extent)) in local.steps.iter().enumerate() {
            index = index * extent + run.facts.simplify(rest.floordiv(step));
            if i + 1 < local.steps.len() {
                rest = run.facts.simplify(rest.modulo(step));
            }
        }
        Ok((local.mem, index))
    }

    /// Sizes every local buffer: it keeps what the stores of one iteration of its scope touch.
    fn declare_locals(&mut self, leaves: &[&'a Leaf], facts: &Facts) -> Result<(), Diag> {
        let mut inside = facts.clone();
        let mut loops = Vec::new();
        scope_axes(&self.plan.body, None, true, &mut loops);
        loops.iter().for_each(|a| inside.declare_index(a.var, a.extent));
        for plan in &self.plan.locals {
            let Some((buf, data)) = self.loops.bufs.iter().find(|(_, d)| d.name == plan.buf) else {
                return Err(self.error(format!("no buffer {}", plan.buf)));
            };
            // Loops inside the scope, with the extents that the tree states.
            let mut inner = Vec::new();
            let in_grid = plan.scope.is_none_or(|s| self.plan.grid.iter().any(|a| a.var == s));
            scope_axes(&self.plan.body, plan.scope, in_grid, &mut inner);
            let mut region: Option<Region> = None;
            for leaf in leaves {
                for inst in &self.nest(leaf)?.body {
                    let InstOp::Store { buf: stored, index, .. } = inst.op else { continue };
                    if stored != buf {
                        continue;
                    }
                    let flat = index.subst(&|s| leaf.bind.iter().find(|b| b.0 == s).map(|b| b.1));
                    let here = Region::of(inside.simplify(flat), &inner, &inside);
                    region = Some(match (region, here) {
                        (None, Some(here)) => here,
                        (Some(region), Some(here)) => {
                            region.union(&here, &inside).unwrap_or_else(|| Region::whole(data.span()))
                        }
                        (_, None) => Region::whole(data.span()),
                    });
                }
            }
            // A buffer that no leaf stores to holds nothing to read.
            let Some(Region { base, steps }) = region else { continue };
            let extent = steps.iter().fold(Expr::one(), |n, s| n * s.1);
            let space = match plan.space {
                LocalSpace::Register if extent.as_int().is_some_and(|n| n <= MAX_REGISTER_ELEMENTS) => {
                    Space::Register
                }
                // A single element is best kept in a register whatever was asked.
                LocalSpace::Register | LocalSpace::Scratch if extent.is_one() => Space::Register,
                LocalSpace::Register | LocalSpace::Scratch => Space::Scratch,
                LocalSpace::Shared => {
                    return Err(self.error(format!("{}: this target has no shared memory", data.name)));
                }
            };
            let mem = self.local(&data.name, data.dtype, extent, space);
            self.locals.insert(buf, LocalMem { mem, base, steps });
        }
        Ok(())
    }
}
