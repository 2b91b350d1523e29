//! Prints vector loops: whole groups of lanes, several at a time where there are accumulators, and one masked group for
//! the remainder.

use litz_ir::kernel::{KernelLoopKind, Loop, visit};
use litz_sym::{Expr, Range, Sym};

use super::block::Value;
use super::ty::{Prim, Ty};
use super::{Bound, EmitError, Emitter, Lanes};

impl Emitter<'_> {
    pub(super) fn vector_loop(
        &mut self,
        inner: &Loop,
        extent: Expr,
        [count, copies]: [u32; 2],
        interleaved: bool,
    ) -> Result<(), EmitError> {
        let range = self.facts.bounds(extent);
        if range.hi <= 0 {
            return Ok(());
        }
        // Remainders of a negative number would be iterations.
        let extent = if range.lo < 0 { self.facts.simplify(extent.max(0)) } else { extent };
        let step = i64::from(count);
        let [base, number, lane] =
            ["base", "group", "lane"].map(|part| Sym::new(&format!("{}.{part}", inner.var.name())));
        self.facts.declare_index(inner.var, extent);
        self.facts.declare_index(base, extent);
        self.facts.declare_index(number, extent.ceildiv(step));
        self.facts.declare(lane, Range::new(0, step - 1), None);
        let mut loaded = Vec::new();
        // The only iteration of a loop has nobody to wait for.
        if range.hi > 1 {
            visit(&inner.body, &mut |stmt| loaded.extend(stmt.loaded().map(|(mem, _)| mem)));
        }
        let group = Lanes {
            var: inner.var,
            first: Expr::zero(),
            group: number,
            lane,
            count,
            copy: 0,
            mask: None,
            may_be_empty: false,
            private: self.private_registers(inner)?,
            loaded,
        };
        if self.indexes_registers(inner) {
            self.write_out(inner, &group, extent, copies)?;
        } else {
            self.run_groups(inner, &group, base, extent, copies, interleaved)?;
        }
        self.syms.remove(&inner.var);
        Ok(())
    }

    /// Every group on its own, with constant indices.
    fn write_out(&mut self, inner: &Loop, group: &Lanes, extent: Expr, copies: u32) -> Result<(), EmitError> {
        let Some(extent) = extent.as_int() else {
            return Err(EmitError::malformed(format!(
                "registers indexed by `{}` of no constant extent",
                inner.var.name()
            )));
        };
        let step = i64::from(group.count);
        let whole = extent - extent % (step * i64::from(copies));
        for (number, first) in (0..extent).step_by(group.count as usize).enumerate() {
            let left = extent - first;
            let mask = (left < step).then(|| self.first_lanes(group.count, left));
            // What is left after the last whole round of all copies belongs to the first copy, as in a loop over groups.
            let copy = if first < whole { number as u32 % copies } else { 0 };
            self.group(inner, Lanes { first: Expr::int(first), copy, mask, ..group.clone() })?;
        }
        Ok(())
    }

    fn run_groups(
        &mut self,
        inner: &Loop,
        group: &Lanes,
        base: Sym,
        extent: Expr,
        copies: u32,
        interleaved: bool,
    ) -> Result<(), EmitError> {
        let written = self.changed(&inner.body);
        let step = i64::from(group.count);
        let stride = step * i64::from(copies);
        let mut done = Expr::zero();
        if copies > 1 {
            done = self.facts.simplify(extent.floordiv(stride) * stride);
            self.count(base, done, stride, &written, &mut |cx| {
                let mut run = |cx: &mut Self, copy| {
                    let first = Expr::sym(base) + i64::from(copy) * step;
                    cx.group(inner, Lanes { first, copy, ..group.clone() })
                };
                if interleaved {
                    return cx.interleaved(inner, copies, &mut run);
                }
                (0..copies).try_for_each(|copy| run(cx, copy))
            })?;
        }
        // Whole groups that are no round of all copies run one by one, without a mask.
        let rest = if copies > 1 { extent.modulo(stride) } else { extent };
        let rest = self.facts.simplify(rest.floordiv(step) * step);
        self.count(base, rest, step, &written, &mut |cx| {
            cx.group(inner, Lanes { first: done + Expr::sym(base), ..group.clone() })
        })?;

        let left = self.facts.simplify(extent.modulo(step));
        if left.is_zero() {
            return Ok(());
        }
        let first = self.facts.simplify(extent.floordiv(step) * step);
        if let Some(left) = left.as_int() {
            let mask = Some(self.first_lanes(group.count, left));
            return self.group(inner, Lanes { first, mask, ..group.clone() });
        }
        let left = self.scalar(left)?;
        let zero = self.b.int(Prim::I64, 0);
        let some = self.b.compare("icmp ne", &left, &zero);
        let left = self.b.convert("trunc", &left, Prim::I32);
        let left = self.b.splat(&left, group.count);
        let lanes = self.b.iota(Prim::I32, group.count, 1);
        let mask = self.b.compare("icmp ult", &lanes, &left);
        self.when(Some(some), &mut |cx| {
            cx.group(inner, Lanes { first, mask: Some(mask.clone()), ..group.clone() })
        })
    }

    /// True in the first lanes.
    fn first_lanes(&self, count: u32, left: i64) -> Value {
        let lanes: Vec<String> = (0..i64::from(count)).map(|lane| format!("i1 {}", lane < left)).collect();
        let ty = Ty { prim: Prim::I1, lanes: count };
        Value { text: format!("<{}>", lanes.join(", ")).into(), ty, depth: 0 }
    }

    /// One group of iterations.
    fn group(&mut self, inner: &Loop, mut lanes: Lanes) -> Result<(), EmitError> {
        lanes.first = self.resolve(lanes.first);
        let private = lanes.private.clone();
        let lane = if let KernelLoopKind::Vector { lane, .. } = inner.kind { lane } else { None };
        if let Some(lane) = lane {
            let first = i64::from(lanes.copy) * i64::from(lanes.count);
            self.syms.insert(lane, Bound::Shifted(Expr::sym(inner.var) - lanes.first + first));
        }
        self.lanes = Some(lanes);
        self.syms.insert(inner.var, Bound::Lane);
        self.body(&inner.body)?;
        self.lanes = None;
        lane.map(|lane| self.syms.remove(&lane));
        // What the lanes kept for themselves ends with them.
        self.b.drop_slots(&private);
        Ok(())
    }
}
