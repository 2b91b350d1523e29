//! Rewrites a chain of reductions as a region over blocks of their columns.

mod slabs;

use super::super::{Names, cse};
use super::blocks::{Blocks, Body, Missing, missing};
use super::idle;
use litz_analysis::Uses;
use litz_analysis::access::{Access, accesses};
use litz_analysis::online::chain::nest;
use litz_analysis::online::{Chain, Correction, Pointwise, Reduction, Reference, Role, Shift, point_of};
use litz_ir::graph::TensorType;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Recurrence, Val};
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Sym};
use std::collections::BTreeMap;

/// The region that does what a chain does, and what merges its slabs behind it, if there are several.
pub fn region(
    loops: &mut Loops,
    uses: &Uses,
    chain: &Chain,
    blocks: &Blocks,
    names: &mut Names,
) -> (Recurrence, Vec<Nest>) {
    let nests = chain
        .members
        .keys()
        .map(|&at| (at, nest(loops, at).expect("invariant: members of a chain are nests").clone()));
    let mut rewrite = Rewrite {
        nests: nests.collect(),
        chain,
        blocks,
        rows: BTreeMap::new(),
        sums: BTreeMap::new(),
        references: BTreeMap::new(),
        pointwise: BTreeMap::new(),
        missing: BTreeMap::new(),
    };
    rewrite.add_bufs(loops, names);
    let mut all = rewrite.first(names);
    for (&at, member) in &chain.members {
        match &member.role {
            Role::Pointwise(pointwise) => {
                all.extend(rewrite.pointwise(loops, names, at, member.column, *pointwise))
            }
            Role::Reduction(reduction) => {
                all.push(rewrite.reduction(loops, at, member.column, reduction));
                all.extend(rewrite.changes(names, at, reduction));
            }
        }
    }
    let carry = rewrite.carried();
    let mut behind = Vec::new();
    if let Some(slab) = blocks.slabs {
        all.iter_mut().for_each(|nest| rewrite.put_in(slab, nest));
        behind = rewrite.merge(loops, names, slab, &mut all);
        behind.extend(rewrite.last(loops, uses, names));
    } else {
        all.extend(rewrite.last(loops, uses, names));
    }
    idle::mark(&mut all, loops, blocks, &|buf| rewrite.is_near(buf));
    let last = rewrite.nests.values().next_back().expect("invariant: a chain has members");
    let (name, from) = (names.statement(&format!("{}_online", last.name)), last.from.clone());
    (Recurrence { name, from, over: blocks.over, carry, nests: all }, behind)
}

/// Buffers of a reference that others are corrected by, all with the elements of its nest's sums.
struct Changing {
    kind: Reference,
    /// The nest's result with the block that comes.
    next: Buf,
    /// What distances are measured from.
    now: Buf,
    /// By how much, or by which factors, others are corrected.
    changes: Vec<(Change, Buf)>,
}

/// A function of how a reference changes.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    /// `exp(times * (old - new))`, or `exp2`.
    Ratio(ScalarOp, f64),
    /// `old - new`.
    Difference,
}

struct Rewrite<'a> {
    nests: BTreeMap<usize, Nest>,
    chain: &'a Chain,
    blocks: &'a Blocks,
    /// Which reduction stores a buffer, and where.
    rows: BTreeMap<Buf, (usize, Vec<Expr>)>,
    /// What each reduction has come to.
    sums: BTreeMap<usize, Buf>,
    references: BTreeMap<usize, Changing>,
    /// The buffer of one block, for each buffer that a pointwise nest stores to.
    pointwise: BTreeMap<Buf, Buf>,
    /// What blocks hold for columns that are not there.
    missing: BTreeMap<Buf, Missing>,
}

impl Rewrite<'_> {
    fn reductions(&self) -> impl Iterator<Item = (usize, &Reduction)> {
        self.chain.members.iter().filter_map(|(&at, member)| match &member.role {
            Role::Reduction(reduction) => Some((at, reduction)),
            Role::Pointwise(_) => None,
        })
    }

    fn add_bufs(&mut self, loops: &mut Loops, names: &mut Names) {
        for (&at, member) in &self.chain.members {
            let nest = &self.nests[&at];
            match &member.role {
                Role::Pointwise(pointwise) => {
                    let data = &loops.bufs[pointwise.buf];
                    let (name, mut sizes) = (format!("{}_block", data.name), data.sizes.clone());
                    sizes[pointwise.dim] = Expr::int(self.blocks.width);
                    sizes.splice(0..0, self.blocks.slabs.map(|slabs| slabs.extent));
                    let ty = TensorType::contiguous(data.dtype, sizes).on(data.device);
                    self.pointwise.insert(pointwise.buf, names.add_buf(loops, &name, ty));
                }
                Role::Reduction(reduction) => {
                    let ty = nest.body[reduction.at].ty;
                    let stores: Vec<Access> = accesses(nest).filter(|access| access.store).collect();
                    let base =
                        stores.first().map_or(&*nest.name, |store| &*loops.bufs[store.buf].name).to_owned();
                    self.rows.extend(stores.iter().map(|store| (store.buf, (at, store.index.to_vec()))));
                    let sizes = self.blocks.slabs.iter().chain(&nest.axes).map(|axis| axis.extent).collect();
                    let ty = TensorType::contiguous(ty, sizes).on(loops.device_of(&nest.body));
                    let mut add =
                        |suffix: &str| names.add_buf(loops, &format!("{base}_{suffix}"), ty.clone());
                    self.sums.insert(at, add("so_far"));
                    let changes = changes_of(self.chain, at);
                    if let (Some(kind), false) = (reduction.reference, changes.is_empty()) {
                        let [next, now] = ["next", "near"].map(&mut add);
                        let changes = changes.into_iter().map(|change| {
                            let suffix = match change {
                                Change::Ratio(..) => "ratio",
                                Change::Difference => "change",
                            };
                            (change, add(suffix))
                        });
                        let changes = changes.collect();
                        self.references.insert(at, Changing { kind, next, now, changes });
                    }
                }
            }
        }
    }

    /// Buffers that one block passes on to the next.
    fn carried(&self) -> Vec<Buf> {
        let buf = |(&at, &sum): (&usize, &Buf)| {
            let mean = self.references.get(&at).filter(|reference| reference.kind == Reference::Mean);
            [Some(sum), mean.map(|reference| reference.now)]
        };
        self.sums.iter().flat_map(buf).flatten().collect()
    }

    /// What sums are of no columns.
    fn first(&self, names: &mut Names) -> Vec<Nest> {
        let first = |(at, reduction): (usize, &Reduction)| {
            let like = &self.nests[&at];
            let (ty, mut body) = (like.body[reduction.at].ty, Body::default());
            let identity = body.push(ty, InstOp::Const(reduction.op.identity(ty)));
            body.store(ty, self.sums[&at], &element(&like.axes), identity);
            if let Some(Changing { kind: Reference::Mean, now, .. }) = self.references.get(&at) {
                body.store(ty, *now, &element(&like.axes), identity);
            }
            made(like, names.statement(&format!("{}_first", like.name)), like.axes.clone(), Vec::new(), body)
        };
        self.reductions().map(first).collect()
    }

    /// A nest's instructions before position `end` at the columns of a block, with rows as they are for the columns so far, and
    /// without what sums are multiplied by in the end. Also where each value has gone.
    fn cut(&self, loops: &Loops, at: usize, column: Sym, end: usize, other: f64) -> (Body, Vec<Val>) {
        let nest = &self.nests[&at];
        let axes = self.blocks.axes(&nest.axes, column);
        let reduced = self.blocks.axes(&nest.reduced, column);
        let slabs: Vec<Axis> = self.blocks.slabs.into_iter().collect();
        let own = [&slabs[..], &[self.blocks.over], &axes[..], &reduced[..]].concat();
        let facts = Nest { axes: own, reduced: Vec::new(), ..nest.clone() }.facts(&loops.facts);
        let is_row = |val: Val| self.is_row(nest, val);
        let (mut body, mut map) = (Body::default(), Vec::with_capacity(end));
        for inst in &nest.body[..end] {
            if let InstOp::Op(op @ (ScalarOp::Mul | ScalarOp::Div), args) = &inst.op
                && let &[left, right] = &args[..]
                && (*op == ScalarOp::Mul && is_row(left) || is_row(right))
            {
                let kept = if *op == ScalarOp::Mul && is_row(left) { right } else { left };
                map.push(map[kept.index()]);
                continue;
            }
            let mut inst = inst.clone();
            inst.op.operands_mut().into_iter().for_each(|val| *val = map[val.index()]);
            let read =
                if let InstOp::Load { buf, index, .. } = &mut inst.op { Some((buf, index)) } else { None };
            match read {
                Some((buf, _)) if self.pointwise.contains_key(buf) => *buf = self.pointwise[buf],
                Some((buf, index)) if self.rows.contains_key(buf) => {
                    let (row, store) = &self.rows[buf];
                    if let Some(reference) = self.references.get(row) {
                        let like = &self.nests[row];
                        let point = point_of(like, store, index);
                        *index = element_at(like, &point.unwrap_or_default());
                        *buf = reference.now;
                    }
                }
                Some(_) | None => self.blocks.cut(&mut inst, column, loops, &facts, other),
            }
            map.push(body.push(inst.ty, inst.op));
        }
        (body, map)
    }

    /// Whether a value is a row's, as a factor is.
    fn is_row(&self, nest: &Nest, val: Val) -> bool {
        let op = &nest.body[val.index()].op;
        matches!(op, InstOp::Load { buf, .. } if self.rows.contains_key(buf))
            || matches!(op, InstOp::Cast(val) if self.is_row(nest, *val))
    }

    /// Whether a buffer holds what distances are measured from, which is finite where elements are.
    fn is_near(&self, buf: Buf) -> bool {
        self.references.values().any(|reference| reference.now == buf)
    }

    fn missing_of(&self, body: &Body, column: Sym) -> Vec<Missing> {
        missing(&body.0, &self.missing, &|buf| self.is_near(buf), Some(self.blocks.exists(column)))
    }

    /// A pointwise nest for the columns of a block, unless it only copies another.
    fn pointwise(
        &mut self,
        loops: &Loops,
        names: &mut Names,
        at: usize,
        column: Sym,
        pointwise: Pointwise,
    ) -> Option<Nest> {
        let like = &self.nests[&at];
        let InstOp::Store { value, index, .. } = &like.body[pointwise.store].op else { return None };
        let ty = like.body[pointwise.store].ty;
        let (mut body, map) = self.cut(loops, at, column, pointwise.store, 0.0);
        let mut value = map[value.index()];
        let mut gone = Missing::Unknown;
        if !self.blocks.is_whole {
            gone = self.missing_of(&body, column)[value.index()];
            if !matches!(gone, Missing::Number(_)) {
                let neutral = self.neutral(pointwise.buf);
                value = body.masked(ty, value, self.blocks.exists(column), Scalar::Float(neutral));
                gone = Missing::Number(neutral);
            }
        }
        let block = self.pointwise[&pointwise.buf];
        if let InstOp::Load { buf: source, index: at, guard, .. } = &body.0[value.index()].op
            && at == index
            && guard.is_empty()
            && self.pointwise.values().any(|block| block == source)
        {
            self.pointwise.insert(pointwise.buf, *source);
            return None;
        }
        self.missing.insert(block, gone);
        body.store(ty, block, index, value);
        let name = match self.chain.kept.contains(&at) {
            true => names.statement(&format!("{}_block", like.name)),
            false => like.name.clone(),
        };
        let axes = self.in_block(&like.axes, column);
        let mut nest = made(like, name, axes, like.reduced.clone(), body);
        cse::clean(&mut nest);
        Some(nest)
    }

    /// What a buffer of a pointwise nest holds for missing columns: what an extreme of it does not see, or else 0.
    fn neutral(&self, stored: Buf) -> f64 {
        let is_operand = |at: usize, value: Val| matches!(self.nests[&at].body[value.index()].op, InstOp::Load { buf, .. } if buf == stored);
        let reader = self.reductions().find(|(at, reduction)| is_operand(*at, reduction.value));
        reader.map_or(0.0, |(_, reduction)| reduction.op.identity(Dtype::F64).as_f64())
    }

    fn in_block(&self, axes: &[Axis], column: Sym) -> Vec<Axis> {
        [vec![self.blocks.over], self.blocks.axes(axes, column)].concat()
    }

    /// The nest that goes on with a reduction for the columns of a block. Where others are corrected by its result, the
    /// result is left beside that of before.
    fn reduction(&self, loops: &Loops, at: usize, column: Sym, reduction: &Reduction) -> Nest {
        let like = &self.nests[&at];
        let ty = like.body[reduction.at].ty;
        let identity = reduction.op.identity(ty);
        let cut = |other: f64| {
            let (body, map) = self.cut(loops, at, column, reduction.at, other);
            let value = map[reduction.value.index()];
            let is_neutral = self.blocks.is_whole
                || self.missing_of(&body, column)[value.index()] == Missing::Number(identity.as_f64());
            (body, value, is_neutral)
        };
        let tried = [0.0, f64::NEG_INFINITY, f64::INFINITY].map(cut);
        let (body, value, is_neutral) = tried
            .into_iter()
            .reduce(|best, other| if best.2 || !other.2 { best } else { other })
            .expect("invariant: there are three");
        let mut body = body;
        let value = match is_neutral {
            true => value,
            false => body.masked(ty, value, self.blocks.exists(column), identity),
        };
        let block = body.push(ty, InstOp::Reduce(reduction.op, value));
        let index = element(&like.axes);
        let before = body.load(ty, self.sums[&at], &index);
        if let Some(reference) = self.references.get(&at) {
            let next = body.op(ty, reduction.op.combine(), &[block, before]);
            body.store(ty, reference.next, &index, next);
        } else {
            let corrections = reduction.corrections.iter();
            let before = corrections.fold(before, |sum, by| self.corrected(loops, &mut body, ty, sum, by));
            let sum = body.op(ty, reduction.op.combine(), &[before, block]);
            body.store(ty, self.sums[&at], &index, sum);
        }
        let axes = self.in_block(&like.axes, column);
        let reduced = self.blocks.axes(&like.reduced, column);
        let mut nest = made(like, like.name.clone(), axes, reduced, body);
        cse::clean(&mut nest);
        nest
    }

    /// A sum of the columns so far, as it would be from the references that there are now.
    fn corrected(&self, loops: &Loops, body: &mut Body, ty: Dtype, sum: Val, by: &Correction) -> Val {
        let change = |body: &mut Body, shift: &Shift, wanted: Change| {
            let changes = &self.references[&shift.of].changes;
            let found = changes.iter().find(|change| change.0 == wanted);
            let buf = found.expect("invariant: changes that others are corrected by are kept").1;
            let own = loops.bufs[buf].dtype;
            let change = body.load(own, buf, &element_at(&self.nests[&shift.of], &shift.point));
            if own == ty { change } else { body.push(ty, InstOp::Cast(change)) }
        };
        match by {
            Correction::Exp(op, shift) => {
                let ratio = change(body, shift, Change::Ratio(*op, shift.times));
                body.op(ty, ScalarOp::Mul, &[sum, ratio])
            }
            Correction::Product([one, other]) => {
                let [a, b] = [one, other].map(|shift| change(body, shift, Change::Difference));
                let product = body.op(ty, ScalarOp::Mul, &[a, b]);
                let product = body.times(ty, product, one.times * other.times);
                let count = body.number(ty, Expr::sym(self.blocks.over.var) * self.blocks.width);
                let term = body.op(ty, ScalarOp::Mul, &[product, count]);
                body.op(ty, ScalarOp::Add, &[sum, term])
            }
        }
    }

    /// The nest that moves a reference, and keeps by how much.
    fn changes(&self, names: &mut Names, at: usize, reduction: &Reduction) -> Option<Nest> {
        let reference = self.references.get(&at)?;
        let like = &self.nests[&at];
        let (ty, index, mut body) = (like.body[reduction.at].ty, element(&like.axes), Body::default());
        let old = match reference.kind {
            Reference::Extreme { .. } => self.sums[&at],
            Reference::Mean => reference.now,
        };
        let [before, after] = [old, reference.next].map(|buf| body.load(ty, buf, &index));
        let near = self.near(&mut body, at, reduction, after);
        let difference = body.op(ty, ScalarOp::Sub, &[before, near]);
        let mut stores = vec![(reference.now, near)];
        for &(change, buf) in &reference.changes {
            let value = match change {
                Change::Difference => difference,
                Change::Ratio(op, times) => {
                    let exponent = body.times(ty, difference, times);
                    body.op(ty, op, &[exponent])
                }
            };
            stores.push((buf, value));
        }
        stores.push((self.sums[&at], after));
        stores.into_iter().for_each(|(buf, value)| body.store(ty, buf, &index, value));
        let name = names.statement(&format!("{}_ratio", like.name));
        Some(made(like, name, [&[self.blocks.over], &like.axes[..]].concat(), Vec::new(), body))
    }

    /// What distances are measured from where a reduction's result is `result`.
    fn near(&self, body: &mut Body, at: usize, reduction: &Reduction, result: Val) -> Val {
        let like = &self.nests[&at];
        let ty = like.body[reduction.at].ty;
        match self.references[&at].kind {
            // While all columns were removed the maximum is -inf; anything finite will do instead.
            Reference::Extreme { is_guarded: false } => {
                let lowest = body.push(ty, InstOp::Const(reduction.op.identity(ty)));
                let zero = body.literal(ty, 0.0);
                let is_lowest = body.op(Dtype::Bool, ScalarOp::Eq, &[result, lowest]);
                body.op(ty, ScalarOp::Select, &[is_lowest, zero, result])
            }
            Reference::Extreme { is_guarded: true } => self.guarded(body, like, reduction, result),
            Reference::Mean => {
                let Blocks { over, width, columns, is_whole, .. } = self.blocks;
                let end = (Expr::sym(over.var) + 1) * *width;
                let count = body.number(ty, if *is_whole { end } else { end.min(*columns) });
                body.op(ty, ScalarOp::Div, &[result, count])
            }
        }
    }

    /// What a nest stores as its reference where its reduction's result is `result`.
    fn guarded(&self, body: &mut Body, like: &Nest, reduction: &Reduction, result: Val) -> Val {
        let after = like.after_reduce();
        let stored = like.body.iter().find_map(|inst| {
            let InstOp::Store { value, .. } = inst.op else { return None };
            after[value.index()].then_some(value)
        });
        let stored = stored.expect("invariant: a nest stores what it is a reference by");
        copied(body, like, stored, (Val::new(reduction.at), result))
    }

    /// What follows reductions, where something still reads it.
    fn last(&self, loops: &Loops, uses: &Uses, names: &mut Names) -> Vec<Nest> {
        let mut all: Vec<Nest> = Vec::new();
        for (at, reduction) in self.reductions().collect::<Vec<_>>().into_iter().rev() {
            let like = &self.nests[&at];
            let stays =
                |reader: &usize| !self.chain.members.contains_key(reader) || self.chain.kept.contains(reader);
            let is_read = |buf: Buf| {
                !loops.is_internal(buf)
                    || uses.readers(buf).iter().any(stays)
                    || all.iter().any(|nest| nest.reads().contains(&buf))
            };
            if !like.writes().into_iter().any(is_read) {
                continue;
            }
            let (mut body, mut map) = (Body::default(), Vec::with_capacity(like.body.len()));
            for (position, inst) in like.body.iter().enumerate() {
                let mut inst = inst.clone();
                if position == reduction.at {
                    map.push(self.total(loops, &mut body, at, reduction, inst.ty));
                    continue;
                }
                inst.op.operands_mut().into_iter().for_each(|val: &mut Val| *val = map[val.index()]);
                map.push(body.push(inst.ty, inst.op));
            }
            let name = names.statement(&format!("{}_last", like.name));
            let mut nest = made(like, name, like.axes.clone(), Vec::new(), body);
            cse::clean(&mut nest);
            all.push(nest);
        }
        all.reverse();
        all
    }

    /// The result of a reduction when all columns are known.
    fn total(&self, loops: &Loops, body: &mut Body, at: usize, reduction: &Reduction, ty: Dtype) -> Val {
        let mut total = body.load(ty, self.sums[&at], &element(&self.nests[&at].axes));
        for (op, buf, index) in &reduction.deferred {
            let own = loops.bufs[*buf].dtype;
            let mut factor = body.load(own, *buf, index);
            if own != ty {
                factor = body.push(ty, InstOp::Cast(factor));
            }
            total = body.op(ty, *op, &[total, factor]);
        }
        for correction in &reduction.corrections {
            if let Correction::Exp(_, shift) = correction {
                total = self.unless_removed(body, ty, shift, total);
            }
        }
        total
    }
}

impl Rewrite<'_> {
    /// A sum of exponentials of distances from an extreme that there was none of: where all columns are removed, and the nest's
    /// own result is infinite, so are they, and their distance from it is NaN.
    fn unless_removed(&self, body: &mut Body, ty: Dtype, shift: &Shift, total: Val) -> Val {
        let guards = self.references.get(&shift.of).map(|reference| reference.kind);
        if guards != Some(Reference::Extreme { is_guarded: false }) {
            return total;
        }
        let like = &self.nests[&shift.of];
        let extreme = self.reductions().find(|(at, _)| *at == shift.of).map(|(_, reduction)| reduction);
        let extreme = extreme.expect("invariant: references are reductions");
        let own = like.body[extreme.at].ty;
        let furthest = body.load(own, self.sums[&shift.of], &element_at(like, &shift.point));
        let lowest = body.push(own, InstOp::Const(extreme.op.identity(own)));
        let is_lowest = body.op(Dtype::Bool, ScalarOp::Eq, &[furthest, lowest]);
        let nan = body.literal(ty, f64::NAN);
        body.op(ty, ScalarOp::Select, &[is_lowest, nan, total])
    }
}

/// What others are corrected by when the reference of the nest at a position changes.
fn changes_of(chain: &Chain, at: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    let corrections = chain.members.values().flat_map(|member| match &member.role {
        Role::Reduction(reduction) => &reduction.corrections[..],
        Role::Pointwise(_) => &[],
    });
    for correction in corrections {
        let wanted: Vec<Change> = match correction {
            Correction::Exp(op, shift) if shift.of == at => vec![Change::Ratio(*op, shift.times)],
            Correction::Exp(..) => Vec::new(),
            Correction::Product(shifts) => {
                shifts.iter().filter(|shift| shift.of == at).map(|_| Change::Difference).collect()
            }
        };
        wanted.into_iter().for_each(|change| {
            if !changes.contains(&change) {
                changes.push(change);
            }
        });
    }
    changes
}

/// Adds the instructions that a value of a nest comes from, with another value for one of them.
fn copied(body: &mut Body, nest: &Nest, value: Val, (from, to): (Val, Val)) -> Val {
    if value == from {
        return to;
    }
    let mut inst = nest.body[value.index()].clone();
    inst.op.operands_mut().into_iter().for_each(|val| *val = copied(body, nest, *val, (from, to)));
    body.push(inst.ty, inst.op)
}

fn made(like: &Nest, name: String, axes: Vec<Axis>, reduced: Vec<Axis>, body: Body) -> Nest {
    Nest { reduced, ..Nest::new(name, like.from.clone(), axes, body.0) }
}

/// The element of a buffer with one for each point of the axes.
fn element(axes: &[Axis]) -> Vec<Expr> {
    axes.iter().map(|axis| Expr::sym(axis.var)).collect()
}

/// The same at a point.
fn element_at(nest: &Nest, point: &[(Sym, Expr)]) -> Vec<Expr> {
    let value = |axis: &Axis| point.iter().find(|value| value.0 == axis.var).map(|value| value.1);
    nest.axes.iter().map(|axis| value(axis).unwrap_or(Expr::zero())).collect()
}
