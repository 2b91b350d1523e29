//! Which statements share a kernel.
//!
//! Statements are taken in order. Each may join the kernel of the last statement it depends on (vertical) or a later
//! one that reads the same data over the same points (horizontal), and stands alone otherwise. Since everything it
//! depends on is in that kernel or before, joining never makes a cycle, and the result depends on nothing but the order
//! of statements.

use crate::access::{Step, accesses, step};
use crate::deps::StmtInfo;
use crate::product::{self, Product};
use crate::{FusionNote, Heuristics, TargetInfo, nest};
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Stmt};
use litz_sym::{Expr, Facts, Kind, Known, Rel, Sym};
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
    /// They depend on different kernels in between.
    Order,
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
            NoFuse::Order => "order",
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
    stmts: &[StmtInfo],
    target: &TargetInfo,
    heuristics: &Heuristics,
) -> (Vec<Group>, Vec<FusionNote>) {
    let mut cx = Cx { loops, stmts, target, heuristics, groups: Vec::new(), group_of: Vec::new(), notes: Vec::new() };
    for s in 0..stmts.len() {
        cx.place(s);
    }
    (cx.groups, cx.notes)
}

struct Cx<'a> {
    loops: &'a Loops,
    stmts: &'a [StmtInfo],
    target: &'a TargetInfo,
    heuristics: &'a Heuristics,
    groups: Vec<Group>,
    group_of: Vec<usize>,
    notes: Vec<FusionNote>,
}

/// How far ahead of its last producer a statement looks for a kernel to share data with.
const HORIZONTAL_REACH: usize = 16;

impl Cx<'_> {
    fn place(&mut self, s: usize) {
        let info = &self.stmts[s];
        let last = info.after.iter().map(|&p| self.group_of[p]).max();
        if let Some(g) = last {
            let verdict = plan_vertical(self, g, s);
            let producer = info.after.iter().rev().find(|&&p| self.group_of[p] == g).map_or(s, |&p| p);
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
        match verdict {
            Ok(group) => {
                self.groups[g] = group;
                self.group_of.push(g);
                true
            }
            Err(_) => false,
        }
    }

    fn alone(&self, s: usize) -> Group {
        let at_load = self.stmts[s].at_load;
        match &self.loops.stmts[s] {
            Stmt::Extern(_) => Group {
                members: vec![Member { stmt: s, bind: Vec::new() }],
                outer: Vec::new(),
                kind: GroupKind::Extern,
                at_load,
            },
            Stmt::Nest(n) => {
                let outer: Vec<Axis> = n
                    .axes
                    .iter()
                    .filter(|a| !is_scanned(n, a.var))
                    .enumerate()
                    .map(|(i, a)| Axis { var: outer_var(i), extent: a.extent })
                    .collect();
                let bind = n
                    .axes
                    .iter()
                    .filter(|a| !is_scanned(n, a.var))
                    .zip(&outer)
                    .map(|(a, o)| (a.var, Expr::sym(o.var)))
                    .collect();
                let kind = match product::recognise(self.loops, n, self.target) {
                    Some(p) => GroupKind::Product(p),
                    None => GroupKind::Loops,
                };
                Group { members: vec![Member { stmt: s, bind }], outer, kind, at_load }
            }
        }
    }
}

/// The `i`-th variable of a group.
fn outer_var(i: usize) -> Sym {
    Sym::new(&format!("o{i}"))
}

/// Axes along which a scan runs are the nest's own.
fn is_scanned(nest: &Nest, var: Sym) -> bool {
    nest.body.iter().any(|i| matches!(i.op, InstOp::Scan { axis, .. } if axis == var))
}

fn basics(cx: &Cx<'_>, g: usize, s: usize) -> Result<(), NoFuse> {
    let group = &cx.groups[g];
    if matches!(group.kind, GroupKind::Extern) || matches!(cx.loops.stmts[s], Stmt::Extern(_)) {
        return Err(NoFuse::Extern);
    }
    if group.at_load != cx.stmts[s].at_load {
        return Err(NoFuse::LoadTime);
    }
    if product::recognise(cx.loops, nest(cx.loops, s), cx.target).is_some() {
        return Err(NoFuse::ProductConsumer);
    }
    Ok(())
}

/// Statement `s` into group `g`, whose members write something it reads.
fn plan_vertical(cx: &Cx<'_>, g: usize, s: usize) -> Result<Group, NoFuse> {
    basics(cx, g, s)?;
    let group = &cx.groups[g];
    let consumer = nest(cx.loops, s);
    let scatters = |n: &Nest| accesses(n).iter().any(|a| a.combines);
    if scatters(consumer) || group.members.iter().any(|m| scatters(nest(cx.loops, m.stmt))) {
        return Err(NoFuse::Scatter);
    }
    let facts = consumer.facts(&group.facts(&cx.loops.facts));
    let mut mapping = Mapping { bind: Vec::new(), dropped: Vec::new() };
    for member in &group.members {
        let writes = cx.loops.stmts[member.stmt].writes();
        for buf in &writes {
            if cx.stmts[s].reads.contains(buf) || cx.stmts[s].writes.contains(buf) {
                relate(cx, &group.outer, member, *buf, consumer, &facts, &mut mapping)?;
            }
        }
        // What a member reads must not be overwritten at other points.
        if cx.stmts[member.stmt].reads.iter().any(|b| cx.stmts[s].writes.contains(b)) {
            return Err(NoFuse::OtherPoints);
        }
    }
    complete(cx, group, s, mapping)
}

/// Values of the consumer's axes in terms of the group's variables, and variables given up.
struct Mapping {
    bind: Vec<(Sym, Expr)>,
    dropped: Vec<Sym>,
}

/// Equates coordinates of `buf` as `member` stores them with those of every load and store of it in `consumer`.
fn relate(
    cx: &Cx<'_>,
    outer: &[Axis],
    member: &Member,
    buf: Buf,
    consumer: &Nest,
    facts: &Facts,
    mapping: &mut Mapping,
) -> Result<(), NoFuse> {
    let data = &cx.loops.bufs[buf];
    let producer = nest(cx.loops, member.stmt);
    let producer_facts = producer.facts(&cx.loops.facts);
    for store in accesses(producer).iter().filter(|a| a.store && a.buf == buf) {
        let stored: Vec<Expr> = data
            .coordinates(store.index, &producer_facts)
            .into_iter()
            .map(|c| c.subst(&|v| member.bind.iter().find(|b| b.0 == v).map(|b| b.1)))
            .collect();
        for access in accesses(consumer).iter().filter(|a| a.buf == buf) {
            let loaded = data.coordinates(access.index, facts);
            for axis in outer {
                let dims: Vec<usize> = (0..stored.len()).filter(|&d| stored[d].has_sym(axis.var)).collect();
                let related = match dims.as_slice() {
                    [d] => equate(stored[*d], loaded[*d], consumer, outer, facts),
                    _ => None,
                };
                match related {
                    Some(pairs) if pairs.iter().all(|p| agrees(mapping, p)) => {
                        for p in pairs {
                            if !mapping.bind.contains(&p) {
                                mapping.bind.push(p);
                            }
                        }
                    }
                    _ if axis.extent.is_one() => {}
                    _ => {
                        if !mapping.dropped.contains(&axis.var) {
                            mapping.dropped.push(axis.var);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn agrees(mapping: &Mapping, pair: &(Sym, Expr)) -> bool {
    mapping.bind.iter().all(|(axis, value)| *axis != pair.0 || *value == pair.1)
}

/// Axes of `consumer` that make its coordinate `loaded` equal the producer's `stored`, over all points.
fn equate(
    stored: Expr,
    loaded: Expr,
    consumer: &Nest,
    outer: &[Axis],
    facts: &Facts,
) -> Option<Vec<(Sym, Expr)>> {
    // The producer's own axes are not shared.
    if stored.syms().iter().any(|s| !outer.iter().any(|o| o.var == *s) && !facts_know(facts, *s)) {
        return None;
    }
    // The axes below count from 0: so must what they are equal to.
    if !stored.subst(&|s| outer.iter().any(|o| o.var == s).then(Expr::zero)).is_zero() {
        return None;
    }
    let extent = facts.simplify(
        stored.subst(&|s| outer.iter().find(|o| o.var == s).map(|o| o.extent - 1)) + 1,
    );
    digits(loaded, &consumer.axes, stored, extent, facts)
}

fn facts_know(facts: &Facts, sym: Sym) -> bool {
    facts.extent_of(sym).is_none() && facts.is_symbol_declared(sym)
}

/// Solves `loaded == value`, where 0 <= value < `extent`, for axes that count `loaded` as digits: `x`, or `n*x + y` with
/// y < n.
fn digits(loaded: Expr, axes: &[Axis], value: Expr, extent: Expr, facts: &Facts) -> Option<Vec<(Sym, Expr)>> {
    let axis = |s: Sym| axes.iter().find(|a| a.var == s).copied();
    if let Some(a) = loaded.as_sym().and_then(axis) {
        return (facts.known(&Rel::eq(a.extent, extent)) == Known::Yes).then(|| vec![(a.var, value)]);
    }
    let mentioned: Vec<Axis> = loaded.syms().into_iter().map(axis).collect::<Option<_>>()?;
    let mut terms = Vec::new();
    let mut rest = loaded;
    for a in &mentioned {
        let (coefficient, r) = rest.linear(a.var)?;
        terms.push((coefficient, *a));
        rest = r;
    }
    if !rest.is_zero() {
        return None;
    }
    let mut pairs = Vec::new();
    let mut unit = Expr::one();
    while !terms.is_empty() {
        let at = terms.iter().position(|t| t.0 == unit)?;
        let (_, a) = terms.swap_remove(at);
        let digit = value.floordiv(unit);
        let next = unit * a.extent;
        pairs.push((a.var, if terms.is_empty() { digit } else { digit.modulo(a.extent) }));
        unit = next;
    }
    (facts.known(&Rel::eq(unit, extent)) == Known::Yes).then_some(pairs)
}

/// The group with `s` added, its outer axes narrowed to those all members share.
fn complete(cx: &Cx<'_>, group: &Group, s: usize, mapping: Mapping) -> Result<Group, NoFuse> {
    let consumer = nest(cx.loops, s);
    let mut dropped = mapping.dropped;
    let mut bind = mapping.bind;
    loop {
        // A shared point that does not determine an axis of the consumer would run it several times over.
        let before = dropped.len();
        bind.retain(|(_, e)| !dropped.iter().any(|d| e.has_sym(*d)));
        for axis in &group.outer {
            let used = bind.iter().any(|(_, e)| e.has_sym(axis.var));
            if !used && !axis.extent.is_one() && !dropped.contains(&axis.var) {
                dropped.push(axis.var);
            }
        }
        if dropped.len() == before {
            break;
        }
    }
    if bind.iter().any(|(a, _)| is_scanned(consumer, *a)) {
        return Err(NoFuse::OtherPoints);
    }
    let own = consumer.axes.iter().filter(|a| !bind.iter().any(|b| b.0 == a.var)).count();
    if let GroupKind::Product(_) = group.kind {
        let elementwise = dropped.is_empty() && own == 0 && consumer.reduced.is_empty();
        if !elementwise {
            return Err(NoFuse::NotAnEpilogue);
        }
    }
    let mut joined = group.clone();
    joined.outer.retain(|a| !dropped.contains(&a.var));
    for member in &mut joined.members {
        member.bind.retain(|(_, e)| !dropped.iter().any(|d| e.has_sym(*d)));
    }
    joined.members.push(Member { stmt: s, bind });
    let hint = |axes: &[Axis]| -> i64 {
        axes.iter().map(|a| cx.loops.facts.hint(a.extent).unwrap_or(64).max(1)).fold(1, i64::saturating_mul)
    };
    let has = hint(&joined.outer);
    let (before, after) = (parallel_points(cx.loops, group), parallel_points(cx.loops, &joined));
    let wanted = 2 * i64::from(cx.target.threads);
    if wanted > 2 && after < before && after < wanted && work(cx.loops, &joined) > 4 * cx.heuristics.chunk_ops {
        return Err(NoFuse::LessParallel);
    }
    if footprint(cx, &joined, has) > cx.target.l2_bytes / cx.heuristics.local_fraction {
        return Err(NoFuse::Footprint);
    }
    Ok(joined)
}

/// Shared points that can run at once, by hints. An axis that vectors run along counts in strips: where members have
/// loops of their own, a shared axis along which all of them store neighbouring elements.
fn parallel_points(loops: &Loops, group: &Group) -> i64 {
    let own_loops = group.members.iter().any(|m| {
        let n = nest(loops, m.stmt);
        n.all_axes().any(|a| !m.bind.iter().any(|b| b.0 == a.var))
    });
    let contiguous = |axis: &Axis| {
        group.members.iter().all(|m| {
            let stored = |a: &crate::access::Access| a.index.subst(&|s| m.bind.iter().find(|b| b.0 == s).map(|b| b.1));
            let mut stores = accesses(nest(loops, m.stmt)).into_iter().filter(|a| a.store);
            stores.all(|a| step(stored(&a), axis.var) == Step::Unit)
        })
    };
    let points = |axis: &Axis| {
        let n = loops.facts.hint(axis.extent).unwrap_or(64).max(1);
        if own_loops && contiguous(axis) { n.div_euclid(COLUMN_STRIP).max(1) } else { n }
    };
    group.outer.iter().map(points).fold(1, i64::saturating_mul)
}

/// Elements of a strip of columns that one kernel point takes.
const COLUMN_STRIP: i64 = 64;

/// Instructions executed by all members together, by hints.
pub fn work(loops: &Loops, group: &Group) -> i64 {
    group
        .members
        .iter()
        .map(|m| {
            let n = nest(loops, m.stmt);
            let points: i64 = n
                .all_axes()
                .map(|a| loops.facts.hint(a.extent).unwrap_or(64).max(1))
                .fold(1, i64::saturating_mul);
            points.saturating_mul(n.body.len() as i64)
        })
        .fold(0, i64::saturating_add)
}

/// Bytes that members pass to each other at one shared point.
fn footprint(cx: &Cx<'_>, group: &Group, points: i64) -> i64 {
    let stmts: Vec<usize> = group.members.iter().map(|m| m.stmt).collect();
    let mut bytes = 0i64;
    for &s in &stmts {
        for buf in &cx.stmts[s].writes {
            if stmts.iter().any(|&r| r != s && cx.stmts[r].reads.contains(buf)) {
                let data = &cx.loops.bufs[*buf];
                let numel = cx.loops.facts.hint(data.span()).unwrap_or(1 << 20);
                bytes = bytes.saturating_add(numel.saturating_mul(data.dtype.size() as i64));
            }
        }
    }
    bytes / points.max(1)
}

/// Statement `s` beside the members of `g`: same points, shared data, no dependence.
fn plan_horizontal(cx: &Cx<'_>, g: usize, s: usize) -> Result<Group, NoFuse> {
    let group = &cx.groups[g];
    let shares = group
        .members
        .iter()
        .any(|m| cx.stmts[m.stmt].reads.iter().any(|b| cx.stmts[s].reads.contains(b)));
    if !shares {
        return Err(NoFuse::NothingShared);
    }
    basics(cx, g, s)?;
    if matches!(group.kind, GroupKind::Product(_)) {
        return Err(NoFuse::NotAnEpilogue);
    }
    let n = nest(cx.loops, s);
    let last = group.members.last().expect("invariant: groups have members");
    let other = nest(cx.loops, last.stmt);
    let same = |a: &[Axis], b: &[Axis]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.extent == y.extent);
    if !same(&n.axes, &other.axes) || !same(&n.reduced, &other.reduced) || accesses(n).iter().any(|a| a.combines) {
        return Err(NoFuse::OtherShape);
    }
    let bind: Vec<(Sym, Expr)> = n
        .axes
        .iter()
        .zip(&other.axes)
        .filter_map(|(mine, theirs)| {
            last.bind.iter().find(|b| b.0 == theirs.var).map(|b| (mine.var, b.1))
        })
        .collect();
    if bind.iter().any(|(a, _)| is_scanned(n, *a)) {
        return Err(NoFuse::OtherShape);
    }
    let mut joined = group.clone();
    joined.members.push(Member { stmt: s, bind });
    Ok(joined)
}

/// Whether an expression is a plain sum of products, with no division in it.
pub fn is_plain(e: Expr) -> bool {
    match e.kind() {
        Kind::Int(_) | Kind::Sym(_) => true,
        Kind::Add(items) | Kind::Mul(items) => items.iter().all(|&i| is_plain(i)),
        Kind::FloorDiv(..) | Kind::Mod(..) | Kind::Min(..) | Kind::Max(..) => false,
    }
}
