//! Which statements share a kernel.
//!
//! Statements are taken in order. Each may join the kernel of the last statement it depends on (vertical) or a later
//! one that reads the same data over the same points (horizontal), and stands alone otherwise. Since everything it
//! depends on is in that kernel or before, joining never makes a cycle, and the result depends on nothing but the order
//! of statements.

use crate::access::accesses;
use crate::axes::fresh;
use crate::cost::{footprint, parallel_points, work};
use crate::deps::Deps;
use crate::product::{self, Product};
use crate::relate::{Mapping, relate};
use crate::{FusionNote, Heuristics, TargetInfo, nest};
use litz_ir::loops::{Axis, InstOp, Loops, Nest, Stmt};
use litz_sym::{Expr, Facts, Sym};
use std::collections::HashSet;
use std::fmt;

/// Statements that become one kernel.
#[derive(Clone, Debug)]
pub struct Group {
    /// Members in order.
    pub members: Vec<Member>,
    /// Points that all members share, as variables of the group.
    pub outer: Vec<Axis>,
    /// What it is built around.
    pub kind: GroupKind,
    /// Runs once, when the model is loaded.
    pub at_load: bool,
}

impl Group {
    /// `facts` with the shared axes declared as indices.
    pub fn facts(&self, facts: &Facts) -> Facts {
        let mut facts = facts.clone();
        self.outer.iter().for_each(|a| facts.declare_index(a.var, a.extent));
        facts
    }
}

/// A statement of a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// Position among the statements.
    pub stmt: usize,
    /// Axes of its nest that the shared points determine; the others are its own.
    pub bind: Vec<(Sym, Expr)>,
}

/// What a group is built around.
#[derive(Clone, Debug)]
pub enum GroupKind {
    /// Loops.
    Loops,
    /// A matrix product (or convolution), the first member.
    Product(Product),
    /// A routine of the runtime, alone.
    Extern,
}

/// Why two statements do not share a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NoFuse {
    /// One of them is a routine of the runtime.
    Extern,
    /// One runs when the model is loaded, the other at every call.
    LoadTime,
    /// The consumer reads, at one point, elements that the producer writes at others.
    OtherPoints,
    /// Together they would have too few points to run on all threads.
    LessParallel,
    /// What they would share does not fit in the cache.
    Footprint,
    /// A product takes no consumer that is not elementwise.
    NotAnEpilogue,
    /// The consumer is a product: it wants its operands in memory.
    ProductConsumer,
    /// Combining stores may write anywhere.
    Scatter,
    /// They share no data.
    NothingShared,
    /// They read the same data over different points.
    OtherShape,
}

impl NoFuse {
    /// Stable name, for tests and reports.
    pub fn slug(self) -> &'static str {
        match self {
            NoFuse::Extern => "extern",
            NoFuse::LoadTime => "load-time",
            NoFuse::OtherPoints => "other-points",
            NoFuse::LessParallel => "less-parallel",
            NoFuse::Footprint => "footprint",
            NoFuse::NotAnEpilogue => "not-an-epilogue",
            NoFuse::ProductConsumer => "product-consumer",
            NoFuse::Scatter => "scatter",
            NoFuse::NothingShared => "nothing-shared",
            NoFuse::OtherShape => "other-shape",
        }
    }
}

impl fmt::Display for NoFuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}

/// Forms groups; also says what was considered.
pub fn fuse(
    loops: &Loops,
    deps: &Deps,
    target: &TargetInfo,
    heuristics: &Heuristics,
) -> (Vec<Group>, Vec<FusionNote>) {
    let products = loops.stmts.iter().map(|stmt| match stmt {
        Stmt::Nest(n) => product::recognise(loops, n, target),
        Stmt::Extern(_) => None,
    });
    let products = products.collect();
    let nests = loops.stmts.iter().filter_map(|stmt| match stmt {
        Stmt::Nest(n) => Some(n),
        Stmt::Extern(_) => None,
    });
    let axes = nests.flat_map(|n| n.all_axes().map(|a| a.var)).collect();
    let (groups, group_of, notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut cx = Cx { loops, deps, target, heuristics, products, axes, groups, group_of, notes };
    for s in 0..loops.stmts.len() {
        cx.place(s);
    }
    (cx.groups, cx.notes)
}

struct Cx<'a> {
    loops: &'a Loops,
    deps: &'a Deps,
    target: &'a TargetInfo,
    heuristics: &'a Heuristics,
    /// For each statement, the product it is.
    products: Vec<Option<Product>>,
    /// Axes of all nests: the variables of groups have other names.
    axes: HashSet<Sym>,
    groups: Vec<Group>,
    /// For each statement placed, its group.
    group_of: Vec<usize>,
    notes: Vec<FusionNote>,
}

/// How far ahead of its last producer a statement looks for a kernel to share data with.
const HORIZONTAL_REACH: usize = 16;

impl Cx<'_> {
    fn place(&mut self, s: usize) {
        let after = &self.deps.stmts[s].after;
        let last = after.iter().map(|&p| self.group_of[p]).max();
        if let Some(g) = last {
            let verdict = plan_vertical(self, g, s);
            let producer = after.iter().copied().rfind(|&p| self.group_of[p] == g).unwrap_or(s);
            if self.judge(g, s, producer, verdict) {
                return;
            }
        }
        let from = last.map_or(0, |g| g + 1);
        let from = from.max(self.groups.len().saturating_sub(HORIZONTAL_REACH));
        for g in (from..self.groups.len()).rev() {
            let verdict = plan_horizontal(self, g, s);
            if matches!(verdict, Err(NoFuse::NothingShared)) {
                continue;
            }
            let first = self.groups[g].members[0].stmt;
            if self.judge(g, s, first, verdict) {
                return;
            }
        }
        let group = self.alone(s);
        self.group_of.push(self.groups.len());
        self.groups.push(group);
    }

    /// Records a verdict and carries it out.
    fn judge(&mut self, g: usize, s: usize, producer: usize, verdict: Result<Group, NoFuse>) -> bool {
        self.notes.push(FusionNote {
            producer: self.loops.stmts[producer].name().to_owned(),
            consumer: self.loops.stmts[s].name().to_owned(),
            verdict: verdict.as_ref().map(|_| ()).map_err(|e| *e),
        });
        let Ok(group) = verdict else { return false };
        self.groups[g] = group;
        self.group_of.push(g);
        true
    }

    fn alone(&self, s: usize) -> Group {
        let at_load = self.deps.stmts[s].at_load;
        let Stmt::Nest(n) = &self.loops.stmts[s] else {
            let members = vec![Member { stmt: s, bind: Vec::new() }];
            return Group { members, outer: Vec::new(), kind: GroupKind::Extern, at_load };
        };
        // Axes whose points must be taken in order are the nest's own.
        let shared = n.axes.iter().filter(|a| !is_ordered(self.loops, n, a.var)).enumerate();
        let (bind, outer) = shared
            .map(|(i, a)| {
                let var = fresh(&format!("o{i}"), |s| {
                    self.axes.contains(&s) || self.loops.facts.is_symbol_declared(s)
                });
                ((a.var, Expr::sym(var)), Axis { var, extent: a.extent })
            })
            .unzip();
        let kind = self.products[s].clone().map_or(GroupKind::Loops, GroupKind::Product);
        Group { members: vec![Member { stmt: s, bind }], outer, kind, at_load }
    }
}

/// Whether points along the axis depend on each other: a scan runs along it, or they may combine into one element, in an
/// order that must be the same in every run.
fn is_ordered(loops: &Loops, nest: &Nest, var: Sym) -> bool {
    nest.body.iter().any(|i| matches!(i.op, InstOp::Scan { axis, .. } if axis == var))
        || has_combining_store(nest) && !nest.separates(&loops.bufs, &loops.facts, var)
}

fn has_combining_store(nest: &Nest) -> bool {
    accesses(nest).iter().any(|a| a.combines)
}

/// What no plan can overcome.
fn basics(cx: &Cx<'_>, g: usize, s: usize) -> Result<(), NoFuse> {
    let group = &cx.groups[g];
    if matches!(group.kind, GroupKind::Extern) || matches!(cx.loops.stmts[s], Stmt::Extern(_)) {
        return Err(NoFuse::Extern);
    }
    if group.at_load != cx.deps.stmts[s].at_load {
        return Err(NoFuse::LoadTime);
    }
    if cx.products[s].is_some() {
        return Err(NoFuse::ProductConsumer);
    }
    Ok(())
}

/// Statement `s` into group `g`, on a member of which it depends.
fn plan_vertical(cx: &Cx<'_>, g: usize, s: usize) -> Result<Group, NoFuse> {
    basics(cx, g, s)?;
    let (group, info) = (&cx.groups[g], &cx.deps.stmts[s]);
    let consumer = nest(cx.loops, s);
    if has_combining_store(consumer)
        || group.members.iter().any(|m| has_combining_store(nest(cx.loops, m.stmt)))
    {
        return Err(NoFuse::Scatter);
    }
    let facts = consumer.facts(&group.facts(&cx.loops.facts));
    let mut mapping = Mapping::default();
    for member in &group.members {
        let produced = &cx.deps.stmts[member.stmt];
        for &buf in produced.writes.iter().filter(|b| info.reads.contains(b) || info.writes.contains(b)) {
            relate(cx.loops, &group.outer, member, buf, consumer, &facts, &mut mapping);
        }
        // What a member reads must not be overwritten at other points.
        if produced.reads.iter().any(|b| info.writes.contains(b)) {
            return Err(NoFuse::OtherPoints);
        }
    }
    let joined = join(cx, group, s, mapping)?;
    let (before, after) = (parallel_points(cx.loops, group), parallel_points(cx.loops, &joined));
    let wanted = 2 * i64::from(cx.target.threads);
    if wanted > 2 && after < before && after < wanted && work(cx.loops, &joined) > 4 * cx.heuristics.chunk_ops
    {
        return Err(NoFuse::LessParallel);
    }
    if footprint(cx.loops, cx.deps, &joined) > cx.target.l2_bytes / cx.heuristics.local_fraction {
        return Err(NoFuse::Footprint);
    }
    Ok(joined)
}

/// The group with `s` added, its outer axes narrowed to those all members share.
fn join(cx: &Cx<'_>, group: &Group, s: usize, mapping: Mapping) -> Result<Group, NoFuse> {
    let consumer = nest(cx.loops, s);
    let Mapping { mut bind, mut dropped } = mapping;
    loop {
        // A shared point that does not determine an axis of the consumer would run it several times over.
        let before = dropped.len();
        bind.retain(|(_, e)| !dropped.iter().any(|d| e.has_sym(*d)));
        for axis in &group.outer {
            let is_used = bind.iter().any(|(_, e)| e.has_sym(axis.var));
            if !is_used && !axis.extent.is_one() && !dropped.contains(&axis.var) {
                dropped.push(axis.var);
            }
        }
        if dropped.len() == before {
            break;
        }
    }
    if bind.iter().any(|(a, _)| is_ordered(cx.loops, consumer, *a)) {
        return Err(NoFuse::OtherPoints);
    }
    let has_own = consumer.all_axes().any(|a| !bind.iter().any(|b| b.0 == a.var));
    if matches!(group.kind, GroupKind::Product(_)) && (has_own || !dropped.is_empty()) {
        return Err(NoFuse::NotAnEpilogue);
    }
    let mut joined = group.clone();
    joined.outer.retain(|a| !dropped.contains(&a.var));
    for member in &mut joined.members {
        member.bind.retain(|(_, e)| !dropped.iter().any(|d| e.has_sym(*d)));
    }
    joined.members.push(Member { stmt: s, bind });
    Ok(joined)
}

/// Statement `s` beside the members of `g`: same points, shared data, no dependence.
fn plan_horizontal(cx: &Cx<'_>, g: usize, s: usize) -> Result<Group, NoFuse> {
    let (group, info) = (&cx.groups[g], &cx.deps.stmts[s]);
    let shares = |m: &Member| cx.deps.stmts[m.stmt].reads.iter().any(|b| info.reads.contains(b));
    if !group.members.iter().any(shares) {
        return Err(NoFuse::NothingShared);
    }
    basics(cx, g, s)?;
    if matches!(group.kind, GroupKind::Product(_)) {
        return Err(NoFuse::NotAnEpilogue);
    }
    let n = nest(cx.loops, s);
    let last = group.members.last().expect("invariant: groups have members");
    let other = nest(cx.loops, last.stmt);
    let same =
        |a: &[Axis], b: &[Axis]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.extent == y.extent);
    if !same(&n.axes, &other.axes) || !same(&n.reduced, &other.reduced) || has_combining_store(n) {
        return Err(NoFuse::OtherShape);
    }
    let value = |theirs: &Axis| last.bind.iter().find(|b| b.0 == theirs.var).map(|b| b.1);
    let pairs = n.axes.iter().zip(&other.axes);
    let bind: Vec<(Sym, Expr)> =
        pairs.filter_map(|(mine, theirs)| Some((mine.var, value(theirs)?))).collect();
    if bind.iter().any(|(a, _)| is_ordered(cx.loops, n, *a)) {
        return Err(NoFuse::OtherShape);
    }
    let mut joined = group.clone();
    joined.members.push(Member { stmt: s, bind });
    Ok(joined)
}
