//! Finds chains of dependent reductions along one axis that can be computed together, in one pass along it.

use std::collections::BTreeMap;

use super::forms::{Distance, Factor, Form, form};
use super::terms::{Producer, Sources, Terms};
use crate::Uses;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::{ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};

/// Statements that can go through the columns of an axis together, block by block.
#[derive(Debug)]
pub struct Chain {
    /// How many columns there are.
    pub columns: Expr,
    /// By position.
    pub members: BTreeMap<usize, Member>,
    /// Members whose results for all columns are wanted by others: they run once more when all rows are known.
    pub kept: Vec<usize>,
    /// Statements between members that read what members write: they can run behind all of them.
    pub delayed: Vec<usize>,
}

/// A statement of a chain.
#[derive(Debug)]
pub struct Member {
    /// Its axis that counts columns.
    pub column: Sym,
    /// What it does with them.
    pub role: Role,
}

/// What a statement does with columns.
#[derive(Debug)]
pub enum Role {
    /// It stores an element for each of them.
    Pointwise(Pointwise),
    /// It reduces them.
    Reduction(Reduction),
}

/// A pointwise nest: it stores an element for each column, at dimension `dim` of `buf`, by instruction `store`.
#[derive(Clone, Copy, Debug)]
pub struct Pointwise {
    /// Where the elements are.
    pub buf: Buf,
    /// The dimension of columns.
    pub dim: usize,
    /// The instruction that stores them.
    pub store: usize,
}

/// A nest that reduces columns.
#[derive(Debug)]
pub struct Reduction {
    /// The instruction that reduces.
    pub at: usize,
    /// How.
    pub op: ReduceOp,
    /// What.
    pub value: Val,
    /// What distances from its result are measured from before all columns are known.
    pub reference: Option<Reference>,
    /// How to correct what has been added up when references change.
    pub corrections: Vec<Correction>,
    /// What all terms are multiplied by (or divided, `Div`), once all columns are known: element of a buffer.
    pub deferred: Vec<(ScalarOp, Buf, Vec<Expr>)>,
}

/// A number near which the elements of a row are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reference {
    /// The largest, or smallest, so far.
    Extreme {
        /// The nest's own result is finite where there is none, or only infinite ones.
        is_guarded: bool,
    },
    /// The mean so far.
    Mean,
}

/// How a sum changes with references.
#[derive(Clone, PartialEq, Debug)]
pub enum Correction {
    /// Times `exp(times * (new - old))`, or `exp2`.
    Exp(ScalarOp, Shift),
    /// Plus `count * times_0 * (new_0 - old_0) * times_1 * (new_1 - old_1)`, where `count` terms have been added up.
    Product([Shift; 2]),
}

/// A multiple of how much a reference changes.
#[derive(Clone, PartialEq, Debug)]
pub struct Shift {
    /// The position of the nest whose reference it is.
    pub of: usize,
    /// Values of that nest's axes.
    pub point: Vec<(Sym, Expr)>,
    /// The multiple of `old - new`.
    pub times: f64,
}

/// A reduction's result that others may be computed with.
struct Row {
    stmt: usize,
    store: Vec<Expr>,
    reference: Option<Reference>,
}

struct Finder<'a> {
    loops: &'a Loops,
    uses: &'a Uses,
    columns: Expr,
    members: BTreeMap<usize, Member>,
    /// Pointwise nests that depend on reductions, by the buffer that they store to.
    pointwise: BTreeMap<Buf, usize>,
    rows: BTreeMap<Buf, Row>,
}

impl Sources for Finder<'_> {
    fn producer(&self, buf: Buf, index: &[Expr]) -> Option<Producer<'_>> {
        let nest = nest(self.loops, *self.pointwise.get(&buf)?)?;
        let (value, store) = nest.body.iter().find_map(|inst| {
            if let InstOp::Store { value, index, .. } = &inst.op { Some((*value, index)) } else { None }
        })?;
        Some(Producer { nest, value, point: point_of(nest, store, index)? })
    }
}

/// The nest at a position.
pub fn nest(loops: &Loops, at: usize) -> Option<&Nest> {
    match &loops.stmts[at] {
        Stmt::Nest(nest) => Some(nest),
        Stmt::Extern(_) | Stmt::Recurrence(_) => None,
    }
}

/// The chain that begins with the reduction at position `at`.
pub fn find(loops: &Loops, uses: &Uses, at: usize) -> Option<Chain> {
    let seed = nest(loops, at)?;
    let &[column] = seed.reduced.as_slice() else { return None };
    let (members, pointwise, rows) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut finder = Finder { loops, uses, columns: column.extent, members, pointwise, rows };
    let reduction = finder.reduction_of(seed)?;
    reduction.reference?;
    finder.add(at, Member { column: column.var, role: Role::Reduction(reduction) });
    finder.grow(at);
    finder.prune();
    finder.add_sources();
    finder.finish()
}

impl Finder<'_> {
    /// Adds the statements behind `seed` that go on with what members compute.
    fn grow(&mut self, seed: usize) {
        let mut at = seed + 1;
        while at <= self.last_reader() {
            let reads = self.uses.reads_of(at);
            if reads.iter().any(|buf| self.rows.contains_key(buf) || self.pointwise.contains_key(buf)) {
                self.add_references(at, seed);
                if let Some(member) = self.dependent(at) {
                    self.add(at, member);
                }
            }
            at += 1;
        }
    }

    /// Adds what else a statement's distances may be measured from, such as the mean of a second row.
    fn add_references(&mut self, at: usize, seed: usize) {
        for &buf in self.uses.reads_of(at) {
            let &[writer] = self.uses.writers(buf) else { continue };
            let is_other = (seed..at).contains(&writer) && !self.members.contains_key(&writer);
            let Some(nest) = nest(self.loops, writer).filter(|_| is_other) else { continue };
            let Some(reduction) = self.reduction_of(nest) else { continue };
            let column = nest.reduced[0];
            if reduction.reference.is_some() && self.are_columns(column.extent) {
                self.add(writer, Member { column: column.var, role: Role::Reduction(reduction) });
            }
        }
    }

    fn add(&mut self, at: usize, member: Member) {
        match &member.role {
            Role::Pointwise(pointwise) => {
                self.pointwise.insert(pointwise.buf, at);
            }
            Role::Reduction(reduction) => {
                let Some(nest) = nest(self.loops, at) else { return };
                for inst in &nest.body {
                    let InstOp::Store { buf, index, value, .. } = &inst.op else { continue };
                    let is_result = is_reference(nest, reduction, *value, self.columns, &self.loops.facts);
                    let reference = reduction.reference.filter(|_| is_result.is_some());
                    self.rows.insert(*buf, Row { stmt: at, store: index.clone(), reference });
                }
            }
        }
        self.members.insert(at, member);
    }

    fn last_reader(&self) -> usize {
        let bufs = self.rows.keys().chain(self.pointwise.keys());
        bufs.filter_map(|&buf| self.uses.readers(buf).last()).copied().max().unwrap_or(0)
    }

    /// A nest whose only reduction is over one axis, without what it depends on.
    fn reduction_of(&self, nest: &Nest) -> Option<Reduction> {
        let [_] = nest.reduced.as_slice() else { return None };
        let mut reduces = (0..nest.body.len()).filter(|&at| nest.body[at].op.is_reduction());
        let (Some(at), None) = (reduces.next(), reduces.next()) else { return None };
        let InstOp::Reduce(op, value) = nest.body[at].op else { return None };
        let after = nest.after_reduce();
        let is_plain = |at: usize| match &nest.body[at].op {
            InstOp::Store { buf, combine, .. } => {
                after[at] && combine.is_none() && self.uses.writers(*buf).len() == 1
            }
            InstOp::Scan { .. } | InstOp::Bind { .. } => false,
            InstOp::Load { .. }
            | InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. } => true,
        };
        if !nest.body[at].ty.is_float() || !(0..nest.body.len()).all(is_plain) {
            return None;
        }
        let mut reduction =
            Reduction { at, op, value, reference: None, corrections: Vec::new(), deferred: Vec::new() };
        reduction.reference = nest.body.iter().find_map(|inst| {
            let InstOp::Store { value, .. } = inst.op else { return None };
            is_reference(nest, &reduction, value, nest.reduced[0].extent, &self.loops.facts)
        });
        Some(reduction)
    }

    /// A statement that computes with what members did, as a member.
    fn dependent(&self, at: usize) -> Option<Member> {
        let nest = nest(self.loops, at)?;
        if let Some(mut reduction) = self.reduction_of(nest) {
            let column = nest.reduced[0];
            if !self.are_columns(column.extent) || reduction.op != ReduceOp::Sum {
                return None;
            }
            let mut terms = Terms::default();
            let value = terms.expand(nest, reduction.value, &identity(nest), self)?;
            let form = self.form(&terms, value, column.var)?;
            self.resolve(&terms, &form, column.var, &mut reduction)?;
            // What is corrected is no reference: it is not what it would be for the columns so far.
            reduction.reference = None;
            let is_corrected = !reduction.corrections.is_empty();
            return is_corrected.then_some(Member { column: column.var, role: Role::Reduction(reduction) });
        }
        let (buf, store, value) = only_store(nest)?;
        let InstOp::Store { index, .. } = &nest.body[store].op else { return None };
        if !self.loops.is_internal(buf)
            || self.uses.writers(buf).len() != 1
            || !stores_distinct_elements(nest, index)
        {
            return None;
        }
        let mut columns = nest.axes.iter().filter(|axis| self.are_columns(axis.extent));
        columns.find_map(|column| {
            let dim = index.iter().position(|&at| at == Expr::sym(column.var))?;
            let mut terms = Terms::default();
            let value = terms.expand(nest, value, &identity(nest), self)?;
            let form = self.form(&terms, value, column.var)?;
            let mut reduction = Reduction {
                at: 0,
                op: ReduceOp::Sum,
                value,
                reference: None,
                corrections: Vec::new(),
                deferred: Vec::new(),
            };
            match form {
                Form::Scaled(_) => self.resolve(&terms, &form, column.var, &mut reduction)?,
                Form::Distance(distance) => drop(self.shift(&terms, &distance, column.var)?),
                Form::Fixed | Form::Row(_) | Form::Product(_) => return None,
            }
            let is_near = matches!(form, Form::Distance(_)) || !reduction.corrections.is_empty();
            is_near.then_some(Member {
                column: column.var,
                role: Role::Pointwise(Pointwise { buf, dim, store }),
            })
        })
    }

    fn are_columns(&self, extent: Expr) -> bool {
        extent == self.columns || self.loops.facts.holds(&Rel::eq(extent, self.columns))
    }

    /// The form of a term of a nest with that column. Numbers of rows are the same for all columns.
    fn form(&self, terms: &Terms, term: Val, column: Sym) -> Option<Form> {
        let row = |term: Val| {
            let InstOp::Load { buf, index, guard, .. } = &terms.inst(term).op else { return None };
            let is_fixed = guard.is_empty() && index.iter().all(|at| !at.has_sym(column));
            self.rows.contains_key(buf).then_some(is_fixed)
        };
        let found = form(terms, term, &|term| row(term).is_some())?;
        let rows = match &found {
            Form::Fixed | Form::Row(_) => Vec::new(),
            Form::Distance(distance) => vec![distance.row],
            Form::Product(distances) => distances.iter().map(|distance| distance.row).collect(),
            Form::Scaled(factors) => factors
                .iter()
                .map(|factor| match factor {
                    Factor::Exp(_, distance) => distance.row,
                    Factor::Times(row) | Factor::Over(row) => *row,
                })
                .collect(),
        };
        rows.iter().all(|&load| row(load) == Some(true)).then_some(found)
    }

    /// What a sum of terms of that form has to be corrected by.
    fn resolve(&self, terms: &Terms, form: &Form, column: Sym, sum: &mut Reduction) -> Option<()> {
        match form {
            Form::Scaled(factors) => {
                for factor in factors {
                    match factor {
                        Factor::Exp(op, distance) => {
                            let (shift, reference) = self.shift(terms, distance, column)?;
                            // Exponentials of distances to the other side would not be bounded.
                            let is_bounded = match reference {
                                (ReduceOp::Max, Reference::Extreme { .. }) => shift.times > 0.0,
                                (ReduceOp::Min, Reference::Extreme { .. }) => shift.times < 0.0,
                                _ => false,
                            };
                            sum.corrections.push(is_bounded.then_some(Correction::Exp(*op, shift))?);
                        }
                        Factor::Times(row) | Factor::Over(row) => {
                            // A sum over no columns is 0, which divided by what these add up to would be NaN.
                            if !self.loops.facts.holds(&Rel::le(1, self.columns)) {
                                return None;
                            }
                            let is_times = matches!(factor, Factor::Times(_));
                            let op = if is_times { ScalarOp::Mul } else { ScalarOp::Div };
                            let (buf, index) = terms.inst(*row).op.element()?;
                            sum.deferred.push((op, buf, index.to_vec()));
                        }
                    }
                }
                Some(())
            }
            Form::Product([one, other]) => {
                let shifts = [self.shift(terms, one, column)?, self.shift(terms, other, column)?];
                let are_means = shifts.iter().all(|shift| shift.1.1 == Reference::Mean);
                let shifts = shifts.map(|shift| shift.0);
                are_means.then(|| sum.corrections.push(Correction::Product(shifts)))
            }
            Form::Fixed | Form::Row(_) | Form::Distance(_) => None,
        }
    }

    /// The reference that a distance is measured from, if it is one of what the distance is of: what was reduced to it.
    fn shift(
        &self,
        terms: &Terms,
        distance: &Distance,
        column: Sym,
    ) -> Option<(Shift, (ReduceOp, Reference))> {
        let (buf, index) = terms.inst(distance.row).op.element()?;
        let row = self.rows.get(&buf)?;
        let reference = row.reference?;
        let (nest, member) = (nest(self.loops, row.stmt)?, self.members.get(&row.stmt)?);
        let Role::Reduction(reduction) = &member.role else { return None };
        let mut point = point_of(nest, &row.store, index)?;
        let shift = Shift { of: row.stmt, point: point.clone(), times: distance.times };
        point.push((member.column, Expr::sym(column)));
        // Terms are numbered as they are met: what is there already is the same.
        let mut terms = terms.clone();
        let base = terms.expand(nest, reduction.value, &point, self)?;
        (base == distance.base).then_some((shift, (reduction.op, reference)))
    }

    /// Drops pointwise nests that no member reads, and references that no member is corrected by.
    fn prune(&mut self) {
        loop {
            let is_read = |pointwise: &Pointwise| {
                self.uses.readers(pointwise.buf).iter().any(|reader| self.members.contains_key(reader))
            };
            let is_used = |at: usize| {
                let corrections = self.members.values().flat_map(|member| match &member.role {
                    Role::Reduction(reduction) => &reduction.corrections[..],
                    Role::Pointwise(_) => &[],
                });
                let mut shifts = corrections.flat_map(|correction| match correction {
                    Correction::Exp(_, shift) => std::slice::from_ref(shift),
                    Correction::Product(shifts) => shifts,
                });
                shifts.any(|shift| shift.of == at)
            };
            let unused = self.members.iter().find_map(|(&at, member)| match &member.role {
                Role::Pointwise(pointwise) => (!is_read(pointwise)).then_some(at),
                Role::Reduction(reduction) => {
                    (reduction.corrections.is_empty() && !is_used(at)).then_some(at)
                }
            });
            let Some(at) = unused else { return };
            self.members.remove(&at);
            self.pointwise.retain(|_, nest| *nest != at);
            self.rows.retain(|_, row| row.stmt != at);
        }
    }

    /// Adds what computes the elements of columns for members alone, such as the scores of attention.
    fn add_sources(&mut self) {
        loop {
            let kept = self.kept();
            let readers = self.members.iter().filter(|(at, _)| !kept.contains(at));
            let loads = readers.flat_map(|(&at, member)| self.columns_read(at, member));
            let found = loads.collect::<Vec<_>>().into_iter().find_map(|(buf, dim)| {
                let &[at] = self.uses.writers(buf) else { return None };
                let is_apart = |reader: &usize| {
                    let member = self.members.get(reader).filter(|_| !kept.contains(reader));
                    member.is_some_and(|member| self.reads_own_column(*reader, member, (buf, dim)))
                };
                let is_ours = self.loops.is_internal(buf) && self.uses.readers(buf).iter().all(is_apart);
                let nest = nest(self.loops, at).filter(|_| is_ours && !self.members.contains_key(&at))?;
                let (_, store, _) = only_store(nest)?;
                let InstOp::Store { index, .. } = &nest.body[store].op else { return None };
                let column = index[dim].as_sym().filter(|_| stores_distinct_elements(nest, index))?;
                let is_axis = |axis: &Axis| axis.var == column && self.are_columns(axis.extent);
                nest.axes
                    .iter()
                    .any(is_axis)
                    .then_some((at, Member { column, role: Role::Pointwise(Pointwise { buf, dim, store }) }))
            });
            let Some((at, member)) = found else { return };
            self.members.insert(at, member);
        }
    }

    /// Buffers of which a member reads the element of its column at each of its points, with the dimension of columns.
    fn columns_read(&self, at: usize, member: &Member) -> Vec<(Buf, usize)> {
        let Some(nest) = nest(self.loops, at) else { return Vec::new() };
        let column = |(buf, index): (Buf, &[Expr])| {
            let dim = index.iter().position(|&at| at == Expr::sym(member.column))?;
            let has = |axis: &Axis| index.contains(&Expr::sym(axis.var)) || axis.extent.is_one();
            let is_plain = index.iter().all(|at| at.as_sym().is_some() || at.as_int().is_some());
            (is_plain && nest.all_axes().all(has)).then_some((buf, dim))
        };
        let is_load =
            |inst: &&litz_ir::loops::Inst| matches!(&inst.op, InstOp::Load { guard, .. } if guard.is_empty());
        nest.body.iter().filter(is_load).filter_map(|inst| inst.op.element()).filter_map(column).collect()
    }

    /// Whether a member reads no other columns of a buffer than its own.
    fn reads_own_column(&self, at: usize, member: &Member, (wanted, dim): (Buf, usize)) -> bool {
        let is_own = |inst: &Inst| {
            let InstOp::Load { buf, index, guard, .. } = &inst.op else { return true };
            *buf != wanted || guard.is_empty() && index[dim] == Expr::sym(member.column)
        };
        nest(self.loops, at).is_some_and(|nest| nest.body.iter().all(is_own))
    }

    /// Pointwise nests that statements outside of the chain read, and what these are computed from.
    fn kept(&self) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::new();
        loop {
            let is_wanted = |pointwise: &Pointwise| {
                let is_other = |reader: &usize| !self.members.contains_key(reader) || kept.contains(reader);
                self.uses.readers(pointwise.buf).iter().any(is_other)
            };
            let next = self.members.iter().find_map(|(&at, member)| match &member.role {
                Role::Pointwise(pointwise) if !kept.contains(&at) && is_wanted(pointwise) => Some(at),
                Role::Pointwise(_) | Role::Reduction(_) => None,
            });
            match next {
                Some(at) => kept.push(at),
                None => return kept,
            }
        }
    }

    /// The chain, if all of it may run where its last member stands.
    fn finish(self) -> Option<Chain> {
        let mut kept = self.kept();
        kept.sort_unstable();
        let is_corrected = |member: &Member| match &member.role {
            Role::Reduction(reduction) => !reduction.corrections.is_empty(),
            Role::Pointwise(_) => false,
        };
        if !self.members.values().any(is_corrected) {
            return None;
        }
        let (first, last) = (*self.members.keys().next()?, *self.members.keys().next_back()?);
        let uses = self.uses;
        let (mut late, mut delayed) = (Vec::new(), Vec::new());
        let between = || (first..=last).filter(|at| !self.members.contains_key(at));
        late.extend(self.members.keys().flat_map(|&at| uses.writes_of(at)));
        for at in between() {
            if uses.reads_of(at).iter().any(|buf| late.contains(&buf)) {
                late.extend(uses.writes_of(at));
                delayed.push(at);
            }
        }
        // What moves reads what it would have read before, and nobody reads or writes earlier what it writes.
        let stays = |at: &usize| !self.members.contains_key(at) && !delayed.contains(at);
        let is_overwritten = |at: usize, buf: &Buf| {
            uses.writers(*buf).iter().any(|writer| (at..=last).contains(writer) && stays(writer))
        };
        let mut moved = self.members.keys().chain(&delayed);
        if moved.clone().any(|&at| uses.reads_of(at).iter().any(|buf| is_overwritten(at, buf))) {
            return None;
        }
        let meets = |at: usize, buf: &Buf| {
            let others = uses.readers(*buf).iter().chain(uses.writers(*buf));
            let is_member = self.members.contains_key(&at);
            others
                .filter(|&&other| other != at && (first..=last).contains(&other))
                .any(|other| stays(other) || !is_member && self.members.contains_key(other))
        };
        if moved.any(|&at| uses.writes_of(at).iter().any(|buf| meets(at, buf))) {
            return None;
        }
        Some(Chain { columns: self.columns, members: self.members, kept, delayed })
    }
}

/// The only store of a nest, with its buffer and value, if it combines with nothing.
fn only_store(nest: &Nest) -> Option<(Buf, usize, Val)> {
    let mut found = None;
    for (at, inst) in nest.body.iter().enumerate() {
        match &inst.op {
            InstOp::Store { buf, value, combine: None, .. } if found.is_none() => {
                found = Some((*buf, at, *value));
            }
            InstOp::Store { .. } | InstOp::Scan { .. } | InstOp::Bind { .. } => return None,
            InstOp::Load { .. }
            | InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. } => {}
        }
    }
    found
}

/// Whether each axis is a coordinate, and each coordinate an axis or constant: points store to different elements.
fn stores_distinct_elements(nest: &Nest, index: &[Expr]) -> bool {
    let is_axis =
        |at: &Expr| at.as_int().is_some() || nest.axes.iter().any(|axis| Some(axis.var) == at.as_sym());
    let is_once = |axis: &Axis| {
        index.iter().filter(|&&at| at == Expr::sym(axis.var)).count() == 1 || axis.extent.is_one()
    };
    index.iter().all(is_axis) && nest.axes.iter().all(is_once)
}

/// Values of a nest's axes where it stores, at `store`, what is read at `index`.
pub fn point_of(nest: &Nest, store: &[Expr], index: &[Expr]) -> Option<Vec<(Sym, Expr)>> {
    let value = |axis: &Axis| match store.iter().position(|&at| at == Expr::sym(axis.var)) {
        Some(dim) => Some((axis.var, index[dim])),
        None => axis.extent.is_one().then(|| (axis.var, Expr::zero())),
    };
    nest.axes.iter().map(value).collect()
}

fn identity(nest: &Nest) -> Vec<(Sym, Expr)> {
    nest.all_axes().map(|axis| (axis.var, Expr::sym(axis.var))).collect()
}

/// The reference that a nest stores: its reduction's result as it is, for the columns so far.
///
/// ```text
/// max(x)    select(max(x) == -inf, 0, max(x))    select(abs(max(x)) == inf, 0, max(x))    sum(x) / n
/// ```
fn is_reference(
    nest: &Nest,
    reduction: &Reduction,
    stored: Val,
    columns: Expr,
    facts: &Facts,
) -> Option<Reference> {
    let result = Val::new(reduction.at);
    let op = |val: Val| {
        let InstOp::Op(op, args) = &nest.body[val.index()].op else { return None };
        Some((*op, args.as_slice()))
    };
    let literal = |val: Val| {
        let InstOp::Const(scalar) = nest.body[val.index()].op else { return None };
        Some(scalar)
    };
    match reduction.op {
        ReduceOp::Max | ReduceOp::Min if stored == result => Some(Reference::Extreme { is_guarded: false }),
        ReduceOp::Max | ReduceOp::Min => {
            let (ScalarOp::Select, &[condition, other, kept]) = op(stored)? else { return None };
            let (ScalarOp::Eq, &[tested, limit]) = op(condition)? else { return None };
            let is_tested = match op(tested) {
                Some((ScalarOp::Abs, &[tested])) => {
                    tested == result && literal(limit)? == Scalar::Float(f64::INFINITY)
                }
                _ => tested == result && literal(limit)? == reduction.op.identity(nest.body[reduction.at].ty),
            };
            let is_finite = literal(other)?.as_f64().is_finite();
            (is_tested && is_finite && kept == result).then_some(Reference::Extreme { is_guarded: true })
        }
        ReduceOp::Sum => {
            let (ScalarOp::Div, &[sum, count]) = op(stored)? else { return None };
            let is_count = match (&nest.body[count.index()].op, columns.as_int()) {
                (InstOp::Const(scalar), Some(columns)) => scalar.as_f64() == columns as f64,
                (InstOp::Cast(index), _) => {
                    let is_count = |e: Expr| e == columns || facts.holds(&Rel::eq(e, columns));
                    matches!(nest.body[index.index()].op, InstOp::Index(e) if is_count(e))
                }
                _ => false,
            };
            (sum == result && is_count).then_some(Reference::Mean)
        }
        ReduceOp::Prod | ReduceOp::Any | ReduceOp::All | ReduceOp::Xor => None,
    }
}
