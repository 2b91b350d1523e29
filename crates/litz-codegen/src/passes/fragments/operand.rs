//! Loads the operands of instructions into fragments.

use super::{Around, PLACES, Products, Sum, nested, places};
use litz_ir::Scalar;
use litz_ir::kernel::{
    Act, Fragment, FragmentLoad, KernelLoopKind, Loop, Mem, MemorySpace, Op, Panels, Part, PartMut, Rows,
    Stmt, Val, position,
};
use litz_ir::loops::Axis;
use litz_ir::target::{Gpu, Instruction, Level, Side};
use litz_ir::{Diag, Dtype, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::HashMap;

/// Bytes of the rows that a warp loads together.
const ROW_BYTES: i64 = 16;

/// An operand of an instruction, before it is loaded.
pub(super) struct Source {
    side: Side,
    /// Its rows or columns, and the reduced points.
    axes: [Axis; 2],
    /// The variable of the sides of the other operand.
    other: Sym,
    /// The value, and what has to hold where it is not zero.
    val: Val,
    guard: Vec<Rel>,
    /// Everything that its elements depend on.
    syms: Vec<Sym>,
}

impl Source {
    /// Whether its elements depend on a variable.
    pub(super) fn varies(&self, var: Sym) -> bool {
        self.syms.contains(&var)
    }

    /// Whether a guard is one of the sides of the other operand: where it fails, nobody reads the sum.
    fn is_of_other(&self, rel: &Rel) -> bool {
        rel.lhs.has_sym(self.other) || rel.rhs.has_sym(self.other)
    }
}

impl Products<'_> {
    /// The operand that a factor is.
    ///
    /// # Errors
    /// `no-instruction`, where it has no elements of the instruction's type, or a guard is one of rows and of reduced points at once.
    pub(super) fn operand(
        &self,
        by: &Instruction,
        side: Side,
        points: &[Axis; 3],
        (sum, factor): (&Sum, Val),
    ) -> Result<Source, Diag> {
        let [row, column, point] = points;
        let across = if side == Side::Left { row } else { column };
        let other = if side == Side::Left { column } else { row };
        // Conversions to the type of the sums are the instruction's.
        let mut val = factor;
        while let Some(Op::Cast(from)) = sum.lets.get(&val)
            && self.kernel.vals[val] != by.dtype.compute()
        {
            val = *from;
        }
        let is_exact = match sum.lets.get(&val) {
            Some(Op::Load { mem, .. }) => self.kernel.mems[*mem].dtype == by.dtype,
            Some(Op::Round(dtype, _)) => *dtype == by.dtype,
            _ => self.kernel.vals[val] == by.dtype,
        };
        let misfit = |why: &str| self.refused("no-instruction", format_args!("loop {}: {why}", row.var));
        if !is_exact {
            return Err(misfit("a factor has more bits than the instruction takes"));
        }
        let mut guard = Vec::new();
        for rel in &sum.guard {
            let has = |axis: &Axis| rel.lhs.has_sym(axis.var) || rel.rhs.has_sym(axis.var);
            match (has(across) || has(other), has(point)) {
                // Sums past the ends of rows and columns are nobody's.
                (true, false) => {}
                (false, _) => guard.push(*rel),
                (true, true) => return Err(misfit("what guards it is one of rows and of reduced points")),
            }
        }
        let mut syms = Vec::new();
        sum.each_sym(val, true, &mut |sym| syms.push(sym));
        guard.iter().for_each(|rel| syms.extend([rel.lhs, rel.rhs].into_iter().flat_map(Expr::syms)));
        Ok(Source { side, axes: [*across, *point], other: other.var, val, guard, syms })
    }

    /// Loads an operand in the loops that it depends on: the fragment of one iteration of these.
    pub(super) fn loaded(
        &mut self,
        by: &'static Instruction,
        operand: Source,
        (sum, loops): (&Sum, &[Axis]),
        around: &Around,
        out: &mut Vec<Stmt>,
    ) -> Fragment {
        let Source { side, .. } = operand;
        if let Some(held) = self.held(by, &operand, sum, around) {
            return held;
        }
        let [_, down, inner] = side.pieces(by, by.columns.into()).map(Expr::int);
        let elements = Expr::int(side.elements(by, by.columns.into()));
        let (mut number, mut count) = (Expr::zero(), Expr::one());
        for axis in loops {
            number = number * axis.extent + Expr::sym(axis.var);
            count = count * axis.extent;
        }
        let mem = self.memory(sum.mem, side, by, elements * count);
        let lane = Expr::sym(Sym::new(PLACES[0]));
        // One lane's elements behind another's.
        let first = lane * (elements * count) + number * elements;
        let steps = [down * inner, inner, Expr::one()];
        let with_places = Fragment { mem, first, steps };
        let [along, rows, beside] = [1, 2, 3].map(|at| Expr::sym(Sym::new(PLACES[at])));
        let place = with_places.place([along, rows, beside]);
        let own = Fragment { mem, first: place, steps: [Expr::zero(); 3] };
        let body = match self.rows_of(&operand, sum, around) {
            Some(rows) if !by.is_of_warpgroup() => {
                vec![Stmt::Act(Act::FragmentLoad(FragmentLoad { by, side, into: own.clone(), rows }))]
            }
            _ => self.computed(by, &operand, (sum, place, mem), around),
        };
        out.extend(nested(loops, body));
        own
    }

    /// An operand that threads hold already, each what an instruction takes of it, as sums of one are a left operand of the next: past the ends
    /// of its sides are elements that nobody reads the sums of.
    fn held(
        &self,
        by: &'static Instruction,
        operand: &Source,
        sum: &Sum,
        around: &Around,
    ) -> Option<Fragment> {
        let Some(Op::Load { mem, index, guard, .. }) = sum.lets.get(&operand.val) else { return None };
        let [across, point] = operand.axes;
        let is_of_point = |rel: &Rel| rel.lhs.has_sym(point.var) || rel.rhs.has_sym(point.var);
        if self.kernel.mems[*mem].space != MemorySpace::Register
            || !operand.guard.is_empty()
            || guard.iter().any(is_of_point)
        {
            return None;
        }
        let [lane, along, down, beside] = PLACES.map(|name| Expr::sym(Sym::new(name)));
        let at = operand.side.of_thread(by, lane, [along, down, beside]);
        let value =
            |sym: Sym| if sym == across.var { Some(at[0]) } else { (sym == point.var).then_some(at[1]) };
        let facts = places(&around.facts, operand.side, (by, by.columns));
        let first = facts.simplify(position(index).subst(&value));
        Some(Fragment { mem: *mem, first, steps: [Expr::zero(); 3] })
    }

    /// The rows of 16 bytes that an operand lies in, in shared memory, if it does.
    pub(super) fn rows_of(&self, operand: &Source, sum: &Sum, around: &Around) -> Option<Rows> {
        let Some(Op::Load { mem, index, guard, .. }) = sum.lets.get(&operand.val) else { return None };
        let data = &self.kernel.mems[*mem];
        let bytes = data.dtype.size() as i64;
        let is_guarded = !guard.iter().all(|rel| operand.is_of_other(rel)) || !operand.guard.is_empty();
        let has_rows = data.swizzle.is_none_or(|swizzle| i64::from(swizzle.unit) * bytes >= ROW_BYTES);
        if data.space != MemorySpace::Shared || is_guarded || !has_rows || bytes > 4 {
            return None;
        }
        let [across, point] = operand.axes;
        let beside = ROW_BYTES / bytes;
        let row = self.names.row;
        let rows = |along: Axis, of: Axis| {
            let (step, rest) = around.facts.simplify(position(index)).linear(along.var)?;
            let is_whole = step.is_one()
                && !rest.has_sym(along.var)
                && around.facts.simplify(rest.modulo(beside)).is_zero()
                && around.facts.simplify(along.extent.modulo(beside)).is_zero();
            let mut facts = around.facts.clone();
            facts.declare_index(row, of.extent);
            is_whole.then(|| facts.simplify(rest.replace(of.var, Expr::sym(row))))
        };
        if let Some(first) = rows(point, across) {
            return Some(Rows { mem: *mem, row, first, is_transposed: false, panels: None });
        }
        // Pairs of bytes are what is transposed.
        if bytes != 2 {
            return None;
        }
        if let Some(first) = rows(across, point) {
            return Some(Rows { mem: *mem, row, first, is_transposed: true, panels: None });
        }
        let columns = i64::from(data.swizzle?.row);
        let (first, panels) = self.panels(position(index), columns, operand.axes, &around.facts)?;
        let is_aligned = |at: Expr| around.facts.simplify(at.modulo(beside)).is_zero();
        let is_whole = is_aligned(first.replace(row, Expr::zero())) && is_aligned(panels.step);
        is_whole.then_some(Rows { mem: *mem, row, first, is_transposed: true, panels: Some(panels) })
    }

    /// Where rows of reduced points begin whose elements at `place` lie in panels of so many columns, at one distance from each other.
    fn panels(
        &self,
        place: Expr,
        columns: i64,
        [across, point]: [Axis; 2],
        facts: &Facts,
    ) -> Option<(Expr, Panels)> {
        let [panel, column] = ["rows.panel", "rows.column"].map(Sym::new);
        if !facts.simplify(across.extent.modulo(columns)).is_zero() {
            return None;
        }
        let mut facts = facts.clone();
        facts.declare_index(panel, across.extent.floordiv(columns));
        facts.declare_index(column, Expr::int(columns));
        facts.declare_index(self.names.row, point.extent);
        let at = Expr::sym(panel) * columns + Expr::sym(column);
        let place = place.replace(across.var, at).replace(point.var, Expr::sym(self.names.row));
        let (one, rest) = facts.simplify(place).linear(column)?;
        let (step, first) = rest.linear(panel)?;
        let columns = u32::try_from(columns).ok()?;
        (one.is_one() && !first.has_sym(column)).then_some((first, Panels { columns, step }))
    }

    /// Each lane computes its own elements.
    fn computed(
        &mut self,
        by: &Instruction,
        operand: &Source,
        (sum, place, mem): (&Sum, Expr, Mem),
        around: &Around,
    ) -> Vec<Stmt> {
        let [l, q, h, i] = self.names.places;
        let pieces = operand.side.pieces(by, by.columns.into());
        let (warp, lanes) = (self.names.warp, i64::from(Gpu::LANES));
        let warps = i64::from(by.threads()) / lanes;
        let thread = if warps > 1 { Expr::sym(warp) * lanes + Expr::sym(l) } else { Expr::sym(l) };
        let here = [thread, Expr::sym(q), Expr::sym(h), Expr::sym(i)];
        let own: HashMap<Sym, Expr> = PLACES.iter().map(|name| Sym::new(name)).zip(here).collect();
        let mut facts = places(&around.facts, operand.side, (by, by.columns));
        facts.declare_index(warp, Expr::int(warps));
        for (var, extent) in
            [l, q, h, i].into_iter().zip([i64::from(Gpu::LANES), pieces[0], pieces[1], pieces[2]])
        {
            facts.declare_index(var, Expr::int(extent));
        }
        let at = operand.side.of_thread(by, thread, [q, h, i].map(Expr::sym));
        let [across, point] = operand.axes;
        let value = |sym: Sym| {
            if sym == across.var { Some(at[0]) } else { (sym == point.var).then_some(at[1]) }
        };
        let here = |e: Expr| facts.simplify(e.subst(&value));
        let mut lets = Vec::new();
        let mut made = HashMap::new();
        let mut stored = self.copy_of(operand, (sum, operand.val), &here, &mut made, &mut lets);
        let is_alone = zero_if_guarded(sum.lets.get(&operand.val));
        for rel in operand.guard.iter().filter(|_| !is_alone) {
            let ty = by.dtype.compute();
            let mut define = |ty: Dtype, op: Op| {
                let val = self.kernel.vals.push(ty);
                lets.push(Stmt::Act(Act::Let { val, op }));
                val
            };
            let rel = Rel { cmp: rel.cmp, lhs: here(rel.lhs), rhs: here(rel.rhs) };
            let holds = define(Dtype::Bool, Op::Cond(rel));
            let zero = define(ty, Op::Const(Scalar::zero(ty)));
            stored = define(ty, Op::Call(ScalarOp::Select, vec![holds, stored, zero]));
        }
        let index = vec![facts.simplify(place.subst(&|sym| own.get(&sym).copied()))];
        let store = Act::Store { mem, index, value: stored, combine: None, guard: Vec::new(), atomic: false };
        lets.push(Stmt::Act(store));
        let around = |kind: KernelLoopKind, var: Sym, extent: i64, body: Vec<Stmt>| {
            vec![Stmt::Loop(Loop { kind, var, extent: Expr::int(extent), body })]
        };
        let vector = KernelLoopKind::vector(pieces[2] as u32, 1);
        let kind = if pieces[2] == 1 { KernelLoopKind::Unroll } else { vector };
        let body = around(kind, i, pieces[2], lets);
        let body = around(KernelLoopKind::Unroll, h, pieces[1], body);
        let body = around(KernelLoopKind::Unroll, q, pieces[0], body);
        let body = around(KernelLoopKind::Level(Level::Lane.into()), l, lanes, body);
        if warps > 1 { around(KernelLoopKind::Level(Level::Warp.into()), warp, warps, body) } else { body }
    }

    /// As [`Products::copy_of`], of an index that is checked: not under conditions of the other operand's sides, where it does not matter.
    fn index_of(
        &mut self,
        operand: &Source,
        (sum, val): (&Sum, Val),
        here: &dyn Fn(Expr) -> Expr,
        made: &mut HashMap<Val, Val>,
        out: &mut Vec<Stmt>,
    ) -> Val {
        let Some((rel, taken)) = sum.choice(val) else {
            return self.copy_of(operand, (sum, val), here, made, out);
        };
        let own = self.index_of(operand, (sum, taken), here, made, out);
        if !operand.is_of_other(&rel) {
            made.insert(taken, own);
            return self.copy_of(operand, (sum, val), here, made, out);
        }
        own
    }

    /// What a value is computed from, once more, in terms of a lane's own place.
    fn copy_of(
        &mut self,
        operand: &Source,
        (sum, val): (&Sum, Val),
        here: &dyn Fn(Expr) -> Expr,
        made: &mut HashMap<Val, Val>,
        out: &mut Vec<Stmt>,
    ) -> Val {
        if let Some(&copy) = made.get(&val) {
            return copy;
        }
        let Some(op) = sum.lets.get(&val) else { return val };
        let is_alone = val == operand.val && zero_if_guarded(Some(op));
        let mut op = op.clone();
        let mut used = Vec::new();
        op.each_part(&mut |part| {
            if let Part::Val(from) = part {
                used.push(*from);
            }
        });
        for from in used {
            self.copy_of(operand, (sum, from), here, made, out);
        }
        if let Op::Load { guard, other, .. } = &mut op {
            guard.retain(|rel| !operand.is_of_other(rel));
            if is_alone {
                let more: Vec<Rel> =
                    operand.guard.iter().filter(|rel| !guard.contains(rel)).copied().collect();
                guard.extend(more);
                *other = Scalar::zero(self.kernel.vals[val]);
            }
        }
        let mut syms = Vec::new();
        op.each_part(&mut |part| match part {
            Part::Access { index, guard, .. } => {
                syms.extend(index.iter().flat_map(|at| at.syms()));
                syms.extend(guard.iter().flat_map(|rel| [rel.lhs.syms(), rel.rhs.syms()].concat()));
            }
            Part::Expr(e) => syms.extend(e.syms()),
            Part::Rel(rel) => syms.extend([rel.lhs.syms(), rel.rhs.syms()].concat()),
            Part::Val(_) => {}
        });
        // Indices that are checked are checked once more, under names of their own.
        let mut checked: HashMap<Sym, Expr> = HashMap::new();
        for sym in syms {
            let Some(&(value, extent, check)) = sum.binds.get(&sym).filter(|_| !checked.contains_key(&sym))
            else {
                continue;
            };
            let value = self.index_of(operand, (sum, value), here, made, out);
            let own = Sym::new(&format!("{sym}_{}", operand.side.name()));
            out.push(Stmt::Act(Act::Bind { sym: own, value, extent: here(extent), check }));
            checked.insert(sym, Expr::sym(own));
        }
        let here = |e: Expr| here(e.subst(&|sym| checked.get(&sym).copied()));
        op.each_part_mut(&mut |part| match part {
            PartMut::Access { index, guard, .. } => {
                index.iter_mut().for_each(|at| *at = here(*at));
                guard.iter_mut().for_each(|rel| (rel.lhs, rel.rhs) = (here(rel.lhs), here(rel.rhs)));
            }
            PartMut::Val(from) => *from = made.get(from).copied().unwrap_or(*from),
            PartMut::Expr(e) => *e = here(*e),
            PartMut::Rel(rel) => (rel.lhs, rel.rhs) = (here(rel.lhs), here(rel.rhs)),
        });
        let copy = self.kernel.vals.push(self.kernel.vals[val]);
        out.push(Stmt::Act(Act::Let { val: copy, op }));
        made.insert(val, copy);
        copy
    }
}

/// Whether a value is a load that gives zero where a guard of it fails, so that it may have more of them.
fn zero_if_guarded(op: Option<&Op>) -> bool {
    match op {
        Some(Op::Load { guard, other, .. }) => {
            guard.is_empty() || matches!(other, Scalar::Int(0)) || *other == Scalar::Float(0.0)
        }
        _ => false,
    }
}
