//! Buffers that are written over others to what could be read too late.
//!
//! All that reads the buffer that ends, in the kernel where the other begins, has to be done with an element before that is
//! written. The nest that writes sees to it where its points read the elements that they write and no others. Of another
//! nest, parts that come before in the iterations of the loops around both do, if two iterations never touch the same
//! element: if the coordinates that both have in common tell the iteration.

use std::collections::{HashMap, HashSet};

use litz_sym::{Expr, Facts, Known, Rel, Sym};

use crate::loops::{Axis, Buf, BufKind, InstOp, Loops, Nest, Span, Stmt};
use crate::schedule::{KernelPlan, Leaf, Part, Reuse, Schedule, Step, Tree};
use crate::verify::Report;
use crate::verify::schedule::{reduces, results};

/// A slug and what is wrong.
type Problem = (&'static str, String);

/// Reports every reuse that may change results. `loops` has the nests of regions as statements, which stand at `spans`.
pub(super) fn verify(schedule: &Schedule, loops: &Loops, spans: &[Span], report: &mut Report) {
    let nests = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| (&*nest.name, nest)).collect();
    let in_region = |span: &Span| loops.stmts[span.stmts.clone()].iter().map(Stmt::name);
    let repeated = spans.iter().flat_map(in_region).collect();
    let verifier = Verifier { schedule, loops, nests, repeated };
    let bufs: HashMap<&str, Buf> = loops.bufs.iter().map(|(buf, data)| (&*data.name, buf)).collect();
    let pooled = schedule.pools.iter().flat_map(|pool| &pool.places).map(|place| &*place.0);
    let mut placed: HashSet<&str> = pooled.collect();
    let mut ended = HashSet::new();
    for Reuse { from, to } in &schedule.reuses {
        let is_first = placed.insert(to);
        report.check(is_first, "placed-twice", format_args!("`{to}` has two places"));
        let is_first = ended.insert(from);
        report.check(is_first, "placed-twice", format_args!("two buffers take the memory of `{from}`"));
        let problem = match (bufs.get(&**from), bufs.get(&**to)) {
            (Some(&from), Some(&to)) => verifier.pair(from, to).err(),
            (None, _) => Some(("unknown-buffer", format!("there is no buffer `{from}`"))),
            (_, None) => Some(("unknown-buffer", format!("there is no buffer `{to}`"))),
        };
        if let Some((slug, problem)) = problem {
            report.fail(slug, format_args!("reuse of `{from}` as `{to}`: {problem}"));
        }
    }
}

struct Verifier<'a> {
    schedule: &'a Schedule,
    loops: &'a Loops,
    nests: HashMap<&'a str, &'a Nest>,
    /// Nests of regions.
    repeated: HashSet<&'a str>,
}

/// A leaf, and the loops around it, outermost first, each with a number of its own.
struct Spot<'a> {
    leaf: &'a Leaf,
    nest: &'a Nest,
    path: Vec<(usize, Axis)>,
}

impl<'a> Verifier<'a> {
    fn pair(&self, from: Buf, to: Buf) -> Result<(), Problem> {
        let (old, new) = (&self.loops.bufs[from], &self.loops.bufs[to]);
        for (buf, data) in [(from, old), (to, new)] {
            let is_seen = data.kind != BufKind::Temp || results(self.loops).any(|result| result == buf);
            let is_local = |step: &Step| match step {
                Step::Kernel(plan) => plan.locals.iter().any(|local| local.buf == data.name),
                Step::Extern { .. } => false,
            };
            if is_seen || self.schedule.steps.iter().any(is_local) {
                let problem = format!("`{}` has no memory among those of a call", data.name);
                return Err(("reuse-escapes", problem));
            }
        }
        if (old.dtype, old.span()) != (new.dtype, new.span()) {
            let (old_span, new_span) = (old.span(), new.span());
            let problem = format!("{}[{old_span}] is not {}[{new_span}]", old.dtype, new.dtype);
            return Err(("reuse-type", problem));
        }
        self.points(self.step(from, to)?, from, to)
    }

    /// The kernel that uses `from` last and `to` first.
    fn step(&self, from: Buf, to: Buf) -> Result<&'a KernelPlan, Problem> {
        let mut uses_of: [Vec<&'a Step>; 2] = Default::default();
        for step in &self.schedule.steps {
            for (buf, uses) in [from, to].into_iter().zip(&mut uses_of) {
                if self.uses(step, buf) {
                    uses.push(step);
                }
            }
        }
        let at_load = |step: &&Step| match step {
            Step::Kernel(plan) => plan.at_load,
            Step::Extern { at_load, .. } => *at_load,
        };
        if uses_of.iter().flatten().any(at_load) {
            return Err(("reuse-life", "one of them outlives the call".to_owned()));
        }
        match (uses_of[0].last(), uses_of[1].first()) {
            (Some(Step::Kernel(last)), Some(Step::Kernel(first))) if std::ptr::eq(last, first) => Ok(last),
            _ => Err(("reuse-life", "no kernel uses the one last and the other first".to_owned())),
        }
    }

    fn uses(&self, step: &Step, buf: Buf) -> bool {
        let touches = |stmt: &Stmt| stmt.reads().contains(&buf) || stmt.writes().contains(&buf);
        match step {
            Step::Extern { name, .. } => {
                self.loops.stmts.iter().any(|stmt| stmt.name() == name && touches(stmt))
            }
            Step::Kernel(plan) => self
                .spots(plan)
                .iter()
                .any(|spot| spot.nest.reads().contains(&buf) || spot.nest.writes().contains(&buf)),
        }
    }

    /// The leaves of a kernel, in order.
    fn spots(&self, plan: &'a KernelPlan) -> Vec<Spot<'a>> {
        let (mut spots, mut path, mut count) = (Vec::new(), Vec::new(), 0);
        for &axis in &plan.grid {
            path.push((count, axis));
            count += 1;
        }
        plan.body.iter().for_each(|tree| self.walk(tree, &mut path, &mut count, &mut spots));
        spots
    }

    fn walk(
        &self,
        tree: &'a Tree,
        path: &mut Vec<(usize, Axis)>,
        count: &mut usize,
        spots: &mut Vec<Spot<'a>>,
    ) {
        match tree {
            Tree::Leaf(leaf) => {
                if let Some(nest) = self.nests.get(&*leaf.nest) {
                    spots.push(Spot { leaf, nest, path: path.clone() });
                }
            }
            Tree::Loop { axis, body, .. } => {
                path.push((*count, *axis));
                *count += 1;
                body.iter().for_each(|tree| self.walk(tree, path, count, spots));
                path.pop();
            }
        }
    }

    /// Whether all of the kernel that loads an element of `from` is done with it when that of `to` is stored.
    fn points(&self, plan: &'a KernelPlan, from: Buf, to: Buf) -> Result<(), Problem> {
        let problem = |text: String| Err(("reuse-points", text));
        let spots = self.spots(plan);
        let mut writers = spots.iter().enumerate().filter(|(_, spot)| {
            // The part of a nest that stores: the last one.
            spot.leaf.part != Part::Body && spot.nest.writes().contains(&to)
        });
        let (Some((written, writer)), None) = (writers.next(), writers.next()) else {
            return problem("the kernel does not write all of it in one place".to_owned());
        };
        let (at, index) = self.store(writer.nest, to)?;
        for (position, spot) in spots.iter().enumerate() {
            let name = &spot.nest.name;
            if spot.nest.writes().contains(&from) {
                return problem(format!("`{name}` writes what should end"));
            }
            if spot.nest.name == writer.nest.name {
                continue;
            }
            if spot.nest.reads().contains(&to) && position < written {
                return problem(format!("`{name}` reads what is not written yet"));
            }
            for load in loads(spot.nest, from) {
                let is_before = position < written && !self.repeated.contains(&**name);
                if !is_before || !self.are_apart(from, (spot, load.1), (writer, index)) {
                    return problem(format!("`{name}` may read elements that are written over"));
                }
            }
        }
        let mut own = loads(writer.nest, from);
        match own.find(|&load| load.0 > at || load.1 != index) {
            Some(_) => problem(format!("`{}` reads other elements than it writes", writer.nest.name)),
            None => Ok(()),
        }
    }

    /// Position and index of the only store to `to`, which each outer point of the nest makes once, to an element of its
    /// own, after all that it reduces.
    fn store(&self, nest: &Nest, to: Buf) -> Result<(usize, Expr), Problem> {
        let problem = |text: &str| Err(("reuse-points", format!("`{}` {text}", nest.name)));
        if self.repeated.contains(&*nest.name) {
            return problem("is repeated by a region");
        }
        let mut stores = nest.body.iter().enumerate().filter_map(|(at, inst)| match inst.op {
            InstOp::Store { buf, index, combine, .. } if buf == to => Some((at, index, combine)),
            _ => None,
        });
        let (Some((at, index, None)), None) = (stores.next(), stores.next()) else {
            return problem("combines elements or stores several");
        };
        if loads(nest, to).next().is_some() {
            return problem("reads what it writes");
        }
        let is_once = nest.reduced.is_empty() || reduces(nest) && nest.after_reduce()[at];
        if !is_once {
            return problem("stores while it reduces");
        }
        let is_axis = |sym: Sym| nest.axes.iter().any(|axis| axis.var == sym);
        let is_known = |sym: &Sym| is_axis(*sym) || self.loops.facts.is_symbol_declared(*sym);
        let is_own = nest.axes.iter().all(|axis| axis.extent.is_one() || index.has_sym(axis.var));
        if !is_own || !index.syms().iter().all(is_known) {
            return problem("stores to elements that are not told by its axes");
        }
        Ok((at, index))
    }

    /// Whether different iterations of the loops around both leaves never touch the same element of `buf`.
    fn are_apart(&self, buf: Buf, one: (&Spot, Expr), other: (&Spot, Expr)) -> bool {
        let shared = one.0.path.iter().zip(&other.0.path).take_while(|(a, b)| a.0 == b.0);
        let shared: Vec<Axis> = shared.map(|pair| pair.0.1).collect();
        let mut facts = self.loops.facts.clone();
        shared.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        let [ones, others] = [one, other].map(|(spot, index)| self.coordinates(buf, spot, index, &facts));
        let told: HashSet<Sym> = ones
            .iter()
            .zip(&others)
            .filter(|(a, b)| a == b)
            .flat_map(|(&coordinate, _)| digits(coordinate, &shared, &self.loops.facts))
            .collect();
        // Of a loop that runs once no coordinate needs to tell anything, and simplified ones do not.
        let is_once = |axis: &Axis| self.loops.facts.known(&Rel::le(axis.extent, Expr::one())) == Known::Yes;
        shared.iter().all(|axis| is_once(axis) || told.contains(&axis.var))
    }

    /// Coordinates of the element at `index`, in terms of the loops around the leaf and of names that no loop has.
    fn coordinates(&self, buf: Buf, spot: &Spot, index: Expr, facts: &Facts) -> Vec<Expr> {
        let coordinates = self.loops.bufs[buf].coordinates(index, &spot.nest.facts(&self.loops.facts));
        let value = |sym: Sym| {
            let bound = spot.leaf.bind.iter().find(|bind| bind.0 == sym).map(|bind| bind.1);
            let is_size = self.loops.facts.is_symbol_declared(sym);
            bound.or_else(|| (!is_size).then(|| Expr::named(&format!("{sym} of {}", spot.nest.name))))
        };
        coordinates.into_iter().map(|coordinate| facts.simplify(coordinate.subst(&value))).collect()
    }
}

/// Positions and indices of the loads of `buf`.
fn loads(nest: &Nest, buf: Buf) -> impl Iterator<Item = (usize, Expr)> {
    nest.body.iter().enumerate().filter_map(move |(at, inst)| match inst.op {
        InstOp::Load { buf: loaded, index, .. } if loaded == buf => Some((at, index)),
        _ => None,
    })
}

/// The variables of `loops` that `value` tells: all it mentions, if it counts them as digits of mixed radix, and nothing but
/// sizes beside them.
fn digits(value: Expr, loops: &[Axis], facts: &Facts) -> Vec<Sym> {
    let is_size = |e: Expr| e.syms().into_iter().all(|sym| facts.is_symbol_declared(sym));
    let (mut rest, mut open) = (value, Vec::new());
    for axis in loops.iter().filter(|axis| value.has_sym(axis.var)) {
        let Some((factor, without)) = rest.linear(axis.var) else { return Vec::new() };
        rest = without;
        open.push((factor, axis));
    }
    let (mut radix, mut told) = (Expr::one(), Vec::new());
    while let Some(at) = open.iter().position(|(factor, _)| *factor == radix) {
        let (_, axis) = open.swap_remove(at);
        told.push(axis.var);
        radix = radix * axis.extent;
    }
    // The last radix is no factor of anything; the extents before it are.
    let extents = loops.iter().filter(|axis| told.contains(&axis.var)).all(|axis| is_size(axis.extent));
    if open.is_empty() && extents && is_size(rest) { told } else { Vec::new() }
}
