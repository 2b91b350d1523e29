//! Which statements share a kernel.
//!
//! Statements are taken in order. Each may join the kernel of the last statement it depends on (vertical) or a later
//! one that reads the same data over the same points (horizontal), and stands alone otherwise. Since everything it
//! depends on is in that kernel or before, joining never makes a cycle, and the result depends on nothing but the order
//! of statements. Kernels that depend on nothing may move before others for this.

use crate::cost::{Savings, footprint, parallel_points, work};
use crate::problem::tiled_columns;
use crate::region::{self, RegionStages};
use crate::rows;
use crate::scatter;
use crate::{FusionNote, Heuristics, nest};
use litz_analysis::Dependences;
use litz_analysis::align::{DomainMap, Shared, align_domains};
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, Loops, Span, Stmt};
use litz_ir::target::Cpu;
use litz_sym::{Expr, Facts, Sym};
use std::collections::{BTreeSet, HashSet};
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
    /// Positions of its statements.
    pub fn stmts(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.stmt).collect()
    }

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
    /// A contraction (a matrix product or convolution), the first member.
    Contraction(Columns),
    /// Products and what lies between them, one stage after another for a block of rows that all share.
    Rows(Vec<Group>),
    /// A nest whose stores may meet, alone.
    Scatter,
    /// A region, alone.
    Region(RegionStages),
    /// A nest that was in a kernel which is not proved, alone, or a region with one, whose axis this is.
    InOrder(Option<Axis>),
    /// A routine of the runtime, alone.
    Extern,
}

/// Why two statements do not share a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NoFuse {
    /// One of them is a routine of the runtime.
    Extern,
    /// One of them is a region, which has its kernel to itself.
    Region,
    /// One runs when the model is loaded, the other at every call.
    LoadTime,
    /// The kernel runs before another that the consumer depends on.
    RunsEarly,
    /// The consumer reads, at one point, elements that the producer writes at others.
    OtherPoints,
    /// Together they would have too few points to run on all threads.
    LessParallel,
    /// What they would share does not fit in the cache.
    Footprint,
    /// All rows that a product passes on stay in the cache, so that a kernel for blocks of them would only read the
    /// product's operand more often.
    NothingGained,
    /// A product takes no consumer that is neither elementwise nor row by row.
    NotAnEpilogue,
    /// The consumer is a product, and not one of the rows of a product: it wants its operands in memory.
    ProductConsumer,
    /// Stores that combine, or that may meet, may write anywhere.
    Scatter,
    /// One of them was in a kernel that is not proved.
    Unproved,
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
            NoFuse::Region => "region",
            NoFuse::LoadTime => "load-time",
            NoFuse::RunsEarly => "runs-early",
            NoFuse::OtherPoints => "other-points",
            NoFuse::LessParallel => "less-parallel",
            NoFuse::Footprint => "footprint",
            NoFuse::NothingGained => "nothing-gained",
            NoFuse::NotAnEpilogue => "not-an-epilogue",
            NoFuse::ProductConsumer => "product-consumer",
            NoFuse::Scatter => "scatter",
            NoFuse::Unproved => "unproved",
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
    deps: &Dependences,
    regions: &[Span],
    target: &Cpu,
    heuristics: &Heuristics,
    in_order: &BTreeSet<String>,
) -> (Vec<Group>, Vec<FusionNote>) {
    let contractions = loops.stmts.iter().zip(&deps.stmts).map(|(stmt, info)| match stmt {
        // A tile takes its points in no order of their own.
        Stmt::Nest(n) if info.ordered.is_empty() => tiled_columns(loops, n, target),
        Stmt::Nest(_) | Stmt::Extern(_) | Stmt::Region(_) => None,
    });
    let contractions = contractions.collect();
    let nests = loops.stmts.iter().filter_map(|stmt| match stmt {
        Stmt::Nest(n) => Some(n),
        Stmt::Extern(_) | Stmt::Region(_) => None,
    });
    let axes = nests.flat_map(|n| n.all_axes().map(|a| a.var)).collect();
    let (groups, group_of, notes) = (Vec::new(), Vec::new(), Vec::new());
    let is_early = Vec::new();
    let in_order = loops.stmts.iter().map(|stmt| in_order.contains(stmt.name())).collect();
    let mut cx = Cx {
        loops,
        deps,
        target,
        heuristics,
        contractions,
        in_order,
        axes,
        groups,
        group_of,
        is_early,
        notes,
        savings: Savings::new(loops, deps),
    };
    let mut s = 0;
    while s < loops.stmts.len() {
        match regions.iter().find(|region| region.stmts.start == s && !region.stmts.is_empty()) {
            Some(region) => cx.place_region(region),
            None => cx.place(s),
        }
        s = cx.group_of.len();
    }
    let order = cx.in_order();
    let mut groups: Vec<Option<Group>> = cx.groups.into_iter().map(Some).collect();
    (order.into_iter().filter_map(|g| groups[g].take()).collect(), cx.notes)
}

/// What fusion goes by.
pub struct Cx<'a> {
    pub loops: &'a Loops,
    pub deps: &'a Dependences,
    pub target: &'a Cpu,
    pub heuristics: &'a Heuristics,
    /// For each statement, the contraction it is, if register tiles suit it.
    pub contractions: Vec<Option<Columns>>,
    /// For each statement, whether it gets a kernel of its own that needs no proof.
    in_order: Vec<bool>,
    /// Axes of all nests: the variables of groups have other names.
    axes: HashSet<Sym>,
    groups: Vec<Group>,
    /// For each statement placed, its group.
    group_of: Vec<usize>,
    /// For each group, whether an earlier one depends on it: it takes in only what depends on nothing else.
    is_early: Vec<bool>,
    notes: Vec<FusionNote>,
    savings: Savings<'a>,
}

/// How far ahead of its last producer a statement looks for a kernel to share data with.
const HORIZONTAL_REACH: usize = 16;

impl Cx<'_> {
    fn place(&mut self, s: usize) {
        let after = &self.deps.stmts[s].after;
        let last = self.last_group(s);
        if let Some(g) = last {
            let verdict = plan_vertical(self, g, s);
            let producer = after.iter().copied().rfind(|&p| self.group_of[p] == g).unwrap_or(s);
            if self.record(g, s, producer, verdict) {
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
            if self.record(g, s, first, verdict) {
                return;
            }
        }
        let group = self.alone(s);
        self.group_of.push(self.groups.len());
        self.groups.push(group);
        self.is_early.push(false);
    }

    fn place_region(&mut self, region: &Span) {
        let group = match region.stmts.clone().any(|stmt| self.in_order[stmt]) {
            true => Group {
                members: region.stmts.clone().map(|stmt| Member { stmt, bind: Vec::new() }).collect(),
                outer: Vec::new(),
                kind: GroupKind::InOrder(Some(region.over)),
                at_load: false,
            },
            false => region::form(self, region),
        };
        self.group_of.extend(region.stmts.clone().map(|_| self.groups.len()));
        self.groups.push(group);
        self.is_early.push(false);
    }

    /// Records a verdict and carries it out.
    fn record(&mut self, g: usize, s: usize, producer: usize, verdict: Result<Group, NoFuse>) -> bool {
        self.notes.push(FusionNote {
            producer: self.loops.stmts[producer].name().to_owned(),
            consumer: self.loops.stmts[s].name().to_owned(),
            verdict: verdict.as_ref().map(|_| ()).map_err(|e| *e),
            bytes: self.savings.of(&self.groups[g].stmts(), &[s]),
        });
        let Ok(group) = verdict else { return false };
        self.groups[g] = group;
        self.group_of.push(g);
        for &p in &self.deps.stmts[s].after {
            self.is_early[self.group_of[p]] |= self.group_of[p] > g;
        }
        true
    }

    /// The last group with something that `s` depends on. Groups that depend on nothing can run before any other, and
    /// what runs at load has run: such groups count only where there is no other.
    fn last_group(&self, s: usize) -> Option<usize> {
        let info = &self.deps.stmts[s];
        let last = |is_wanted: &dyn Fn(usize) -> bool| {
            let groups = info.after.iter().filter(|&&p| is_wanted(p)).map(|&p| self.group_of[p]);
            groups.max()
        };
        let is_at_call = |p: usize| info.at_load || !self.deps.stmts[p].at_load;
        last(&|p| is_at_call(p) && !self.is_free(self.group_of[p]))
            .or_else(|| last(&is_at_call))
            .or_else(|| last(&|_| true))
    }

    /// Whether a group can run before any other that runs when it does: a load, or a call.
    fn is_free(&self, g: usize) -> bool {
        let after = self.groups[g].members.iter().flat_map(|m| &self.deps.stmts[m.stmt].after);
        { after }.all(|&p| self.group_of[p] == g || self.has_run(p, self.groups[g].at_load))
    }

    /// Whether a statement has run when a load, or a call, begins.
    fn has_run(&self, s: usize, at_load: bool) -> bool {
        self.deps.stmts[s].at_load && !at_load
    }

    /// The groups in an order in which they can run: those of the load, then those of a call, each as they were formed,
    /// but for those that run early.
    fn in_order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut is_placed = vec![false; self.groups.len()];
        let (load, call): (Vec<usize>, Vec<usize>) =
            (0..self.groups.len()).partition(|&g| self.groups[g].at_load);
        for g in load.into_iter().chain(call) {
            let after = self.groups[g].members.iter().flat_map(|m| &self.deps.stmts[m.stmt].after);
            let mut before: Vec<usize> = after.map(|&p| self.group_of[p]).filter(|&b| b > g).collect();
            before.sort_unstable();
            for g in before.into_iter().chain([g]) {
                if !std::mem::replace(&mut is_placed[g], true) {
                    order.push(g);
                }
            }
        }
        order
    }

    /// Whether points of statement `s` along the axis depend on each other.
    pub fn is_ordered(&self, s: usize, axis: Sym) -> bool {
        self.deps.stmts[s].ordered.contains(&axis)
    }

    fn alone(&self, s: usize) -> Group {
        let at_load = self.deps.stmts[s].at_load;
        let Stmt::Nest(n) = &self.loops.stmts[s] else {
            let members = vec![Member { stmt: s, bind: Vec::new() }];
            return Group { members, outer: Vec::new(), kind: GroupKind::Extern, at_load };
        };
        let info = &self.deps.stmts[s];
        if self.in_order[s] {
            let members = vec![Member { stmt: s, bind: Vec::new() }];
            return Group { members, outer: Vec::new(), kind: GroupKind::InOrder(None), at_load };
        }
        if info.is_scatter && !info.ordered.is_empty() && scatter::is_plain(n) {
            let members = vec![Member { stmt: s, bind: Vec::new() }];
            return Group { members, outer: Vec::new(), kind: GroupKind::Scatter, at_load };
        }
        // Axes whose points must be taken in order are the nest's own.
        let (mut bind, mut outer) = (Vec::new(), Vec::new());
        for axis in n.axes.iter().filter(|a| !self.is_ordered(s, a.var)) {
            bind.push(self.share(axis, &mut outer));
        }
        let kind = self.contractions[s].clone().map_or(GroupKind::Loops, GroupKind::Contraction);
        Group { members: vec![Member { stmt: s, bind }], outer, kind, at_load }
    }

    /// Whether `together` points at once are too few for all threads in the kernel of a group and statement `s`, where one
    /// of them has more on its own and enough to do.
    pub fn is_less_parallel(&self, group: &Group, s: usize, joined: &Group, together: i64) -> bool {
        let wanted = 2 * i64::from(self.target.threads);
        if wanted <= 2 || together >= wanted {
            return false;
        }
        let loses = |part: &Group| parallel_points(self.loops, part) > together;
        let chunks = |part: &Group| work(self.loops, part) / self.heuristics.chunk_ops;
        let alone = self.alone(s);
        loses(group) && chunks(joined) > LONG || loses(&alone) && chunks(&alone) > LONG_END
    }

    /// Adds a variable to those of a group, and binds an axis of a nest to it.
    pub fn share(&self, axis: &Axis, outer: &mut Vec<Axis>) -> (Sym, Expr) {
        let is_taken = |s: Sym| {
            self.axes.contains(&s)
                || self.loops.facts.is_symbol_declared(s)
                || outer.iter().any(|o| o.var == s)
        };
        let names = (0..).map(|i| Sym::new(&format!("o{i}")));
        let var = { names }.find(|&s| !is_taken(s)).expect("invariant: finitely many names are taken");
        outer.push(Axis { var, extent: axis.extent });
        (axis.var, Expr::sym(var))
    }
}

/// Chunks of work from which on a kernel is worth sharing out although its last statement has fewer points.
const LONG: i64 = 4;
/// Chunks of work from which on a statement gets a kernel of its own because those before it have fewer points.
const LONG_END: i64 = 16;

/// What no plan can overcome.
fn common_legality(cx: &Cx<'_>, g: usize, s: usize) -> Result<(), NoFuse> {
    let group = &cx.groups[g];
    if matches!(group.kind, GroupKind::Extern) || matches!(cx.loops.stmts[s], Stmt::Extern(_)) {
        return Err(NoFuse::Extern);
    }
    if matches!(group.kind, GroupKind::Region(_)) {
        return Err(NoFuse::Region);
    }
    if matches!(group.kind, GroupKind::InOrder(_)) || cx.in_order[s] {
        return Err(NoFuse::Unproved);
    }
    if group.at_load != cx.deps.stmts[s].at_load {
        return Err(NoFuse::LoadTime);
    }
    if cx.deps.stmts[s].is_scatter || group.members.iter().any(|m| cx.deps.stmts[m.stmt].is_scatter) {
        return Err(NoFuse::Scatter);
    }
    let depends_on_other = |p: &usize| cx.group_of[*p] != g && !cx.has_run(*p, group.at_load);
    if cx.is_early[g] && cx.deps.stmts[s].after.iter().any(depends_on_other) {
        return Err(NoFuse::RunsEarly);
    }
    Ok(())
}

/// Statement `s` into group `g`, on a member of which it depends.
fn plan_vertical(cx: &Cx<'_>, g: usize, s: usize) -> Result<Group, NoFuse> {
    common_legality(cx, g, s)?;
    let (group, info) = (&cx.groups[g], &cx.deps.stmts[s]);
    // What a member reads must not be overwritten at other points.
    let overwrites = |m: &Member| cx.deps.stmts[m.stmt].reads.iter().any(|b| info.writes.contains(b));
    if group.members.iter().any(overwrites) {
        return Err(NoFuse::OtherPoints);
    }
    if cx.contractions[s].is_some() || matches!(group.kind, GroupKind::Rows(_)) {
        return rows::join(cx, group, s);
    }
    let mut map = DomainMap::default();
    align_members(cx, group, s, &group.outer, &mut map);
    let joined = match join(cx, group, s, map) {
        Err(NoFuse::NotAnEpilogue) => return rows::join(cx, group, s),
        joined => joined?,
    };
    if cx.is_less_parallel(group, s, &joined, parallel_points(cx.loops, &joined)) {
        return Err(NoFuse::LessParallel);
    }
    if footprint(cx.loops, cx.deps, &joined) > cx.target.l2_bytes / cx.heuristics.local_fraction {
        return Err(NoFuse::Footprint);
    }
    Ok(joined)
}

/// Aligns the axes of statement `s` with those along which members of `group` store what it touches, in the loops `outer`.
pub fn align_members(cx: &Cx<'_>, group: &Group, s: usize, outer: &[Axis], map: &mut DomainMap) {
    let (consumer, info) = (nest(cx.loops, s), &cx.deps.stmts[s]);
    let facts = consumer.facts(&group.facts(&cx.loops.facts));
    let shared = Shared { loops: cx.loops, axes: outer, facts: &facts };
    for member in &group.members {
        let writes = &cx.deps.stmts[member.stmt].writes;
        for &buf in writes.iter().filter(|b| info.reads.contains(b) || info.writes.contains(b)) {
            let producer = (nest(cx.loops, member.stmt), &*member.bind);
            align_domains(shared, producer, buf, consumer, map);
        }
    }
}

/// The group with `s` added, its outer axes narrowed to those all members share.
fn join(cx: &Cx<'_>, group: &Group, s: usize, map: DomainMap) -> Result<Group, NoFuse> {
    let consumer = nest(cx.loops, s);
    let DomainMap { bind, dropped } = map.drop_unshared(&group.outer);
    if bind.iter().any(|(a, _)| cx.is_ordered(s, *a)) {
        return Err(NoFuse::OtherPoints);
    }
    let has_own = consumer.all_axes().any(|a| !bind.iter().any(|b| b.0 == a.var));
    if matches!(group.kind, GroupKind::Contraction(_)) && (has_own || !dropped.is_empty()) {
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
    common_legality(cx, g, s)?;
    if cx.contractions[s].is_some() {
        return Err(NoFuse::ProductConsumer);
    }
    if matches!(group.kind, GroupKind::Contraction(_) | GroupKind::Rows(_)) {
        return Err(NoFuse::NotAnEpilogue);
    }
    let n = nest(cx.loops, s);
    let last = group.members.last().expect("invariant: groups have members");
    let other = nest(cx.loops, last.stmt);
    let same =
        |a: &[Axis], b: &[Axis]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.extent == y.extent);
    if !same(&n.axes, &other.axes) || !same(&n.reduced, &other.reduced) {
        return Err(NoFuse::OtherShape);
    }
    let value = |theirs: &Axis| last.bind.iter().find(|b| b.0 == theirs.var).map(|b| b.1);
    let pairs = n.axes.iter().zip(&other.axes);
    let bind: Vec<(Sym, Expr)> =
        pairs.filter_map(|(mine, theirs)| Some((mine.var, value(theirs)?))).collect();
    if bind.iter().any(|(a, _)| cx.is_ordered(s, *a)) {
        return Err(NoFuse::OtherShape);
    }
    let mut joined = group.clone();
    joined.members.push(Member { stmt: s, bind });
    Ok(joined)
}
