//! Decides, for each family of kernels, whether a statement can be fused into a kernel, and aligns its axes with the kernel's.
//!
//! The families are loops (pointwise nests, reductions and scans), contractions, which take what runs at the points of their
//! tiles, and chains of these for blocks of rows (`rows.rs`). Routines, regions, scatters and nests in order take nothing. Which
//! kernel a statement joins, of those that take it, is decided in `fuse.rs`.

use crate::cost::{LINE_BYTES, footprint, parallel_points, points, shares_lines, work};
use crate::group::{Group, GroupKind, Member};
use crate::problem::tiled_columns;
use crate::{Heuristics, ReorderAxes, nest, rows, scatter};
use litz_analysis::Dependences;
use litz_analysis::access::{Stride, accesses, stride, substitute};
use litz_analysis::align::{By, DomainMap, Shared, align_domains};
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, Loops, Nest, Stmt};
use litz_ir::target::Cpu;
use litz_sym::{Expr, Sym};
use std::collections::{BTreeSet, HashSet};
use std::fmt;

/// The context in which strategies decide.
pub struct Cx<'a> {
    /// The program, its regions written out.
    pub loops: &'a Loops,
    /// The dependences of its statements.
    pub deps: &'a Dependences,
    /// The target.
    pub target: &'a Cpu,
    /// Thresholds.
    pub heuristics: &'a Heuristics,
    /// For each statement, the contraction it is, if register tiles suit it.
    pub contractions: Vec<Option<Columns>>,
    /// For each statement, whether it gets a kernel of its own that needs no proof.
    pub in_order: Vec<bool>,
    /// Axes of all nests: the variables of groups have other names.
    axes: HashSet<Sym>,
}

/// How a statement is related to a kernel that may take it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Relation {
    /// It depends on a member.
    Behind,
    /// It depends on none, and reads what a member reads at the same points.
    Beside,
    /// The same in another order of axes, or with one axis for several.
    Aligned,
}

/// Fuses statement `s` into the group, or says why that is not possible.
pub fn take(cx: &Cx<'_>, group: &Group, s: usize, relation: Relation) -> Result<Group, NoFuse> {
    is_allowed(cx, group, s)?;
    match relation {
        Relation::Behind => take_behind(cx, group, s),
        Relation::Beside => take_beside(cx, group, s),
        Relation::Aligned => match take_beside(cx, group, s) {
            Err(why) if why.is_of_shape() => take_aligned(cx, group, s),
            verdict => verdict,
        },
    }
}

/// Why two statements do not share a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NoFuse {
    /// One of them is a routine of the runtime.
    Extern,
    /// One of them is a region, which has its kernel to itself.
    Recurrence,
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
    /// They would share points that each have elements of many lines of the cache, and lines that each have elements of many points.
    SplitLines,
    /// The whole intermediate fits in the cache: fusing by blocks of rows would only reread the right operand.
    NothingGained,
    /// A product takes no consumer that is neither elementwise nor row by row.
    NotAnEpilogue,
    /// The consumer is a product, and not one of the rows of a product: it wants its operands in memory.
    ProductConsumer,
    /// Stores that combine, or that may meet, may write anywhere.
    Scatter,
    /// One of them was in a kernel that is not proved.
    Unproved,
    /// They read the same data over the same points, with their axes in another order.
    OrderOfAxes,
    /// They read the same data, one of them more of it along some axis.
    OtherSize,
    /// They read the same data, one of them several times over along an axis of its own.
    Broadcast,
    /// They read the same data, one of them with several axes for one of the other's.
    SplitAxis,
    /// They read the same data over points that differ in another way.
    OtherShape,
    /// They share next to nothing, or another kernel that takes the statement shares more with it.
    Score,
    /// The kernel has as many statements as one may have.
    Members,
}

impl NoFuse {
    /// Stable name, for tests and reports.
    pub fn slug(self) -> &'static str {
        match self {
            NoFuse::Extern => "extern",
            NoFuse::Recurrence => "region",
            NoFuse::LoadTime => "load-time",
            NoFuse::RunsEarly => "runs-early",
            NoFuse::OtherPoints => "other-points",
            NoFuse::LessParallel => "less-parallel",
            NoFuse::Footprint => "footprint",
            NoFuse::SplitLines => "split-lines",
            NoFuse::NothingGained => "nothing-gained",
            NoFuse::NotAnEpilogue => "not-an-epilogue",
            NoFuse::ProductConsumer => "product-consumer",
            NoFuse::Scatter => "scatter",
            NoFuse::Unproved => "unproved",
            NoFuse::OrderOfAxes => "order-of-axes",
            NoFuse::OtherSize => "other-size",
            NoFuse::Broadcast => "broadcast",
            NoFuse::SplitAxis => "split-axis",
            NoFuse::OtherShape => "other-shape",
            NoFuse::Score => "score",
            NoFuse::Members => "members",
        }
    }

    /// The reason in a sentence, for reports.
    pub fn sentence(self) -> &'static str {
        match self {
            NoFuse::Extern => "One of them is a routine of the runtime or an operator of the host.",
            NoFuse::Recurrence => "One of them is a region, which has its kernel to itself.",
            NoFuse::LoadTime => "One runs when the model is loaded, the other at every call.",
            NoFuse::RunsEarly => "The kernel runs before another that the consumer depends on.",
            NoFuse::OtherPoints => {
                "The consumer reads, at one point, elements that the producer writes at others."
            }
            NoFuse::LessParallel => "Together they would have too few points to run on all threads.",
            NoFuse::Footprint => "What they would share does not fit in the cache.",
            NoFuse::SplitLines => {
                "At each point one of them would write parts of many lines of the cache, which other points write other parts of."
            }
            NoFuse::NothingGained => {
                "The whole intermediate fits in the cache: fusing by blocks of rows would only read the right operand again."
            }
            NoFuse::NotAnEpilogue => {
                "A product takes no consumer that is neither elementwise nor row by row."
            }
            NoFuse::ProductConsumer => {
                "The consumer is a product, and not one of the rows of a product: it wants its operands in memory."
            }
            NoFuse::Scatter => "Stores that combine, or that may meet, may write anywhere.",
            NoFuse::Unproved => "One of them was in a kernel that is not proved.",
            NoFuse::OrderOfAxes => {
                "They read the same data over the same points, with their axes in another order."
            }
            NoFuse::OtherSize => "They read the same data, one of them more of it along some axis.",
            NoFuse::Broadcast => {
                "They read the same data, one of them several times over along an axis of its own."
            }
            NoFuse::SplitAxis => {
                "They read the same data, one of them with several axes for one of the other's."
            }
            NoFuse::OtherShape => "They read the same data over points that differ in another way.",
            NoFuse::Score => {
                "They share next to nothing, or another kernel that takes the statement shares more with it."
            }
            NoFuse::Members => "The kernel has as many statements as one may have.",
        }
    }
}

impl NoFuse {
    /// Whether they differ in points over which they read the same data.
    pub fn is_of_shape(self) -> bool {
        match self {
            NoFuse::OrderOfAxes
            | NoFuse::OtherSize
            | NoFuse::Broadcast
            | NoFuse::SplitAxis
            | NoFuse::OtherShape => true,
            NoFuse::Extern
            | NoFuse::Recurrence
            | NoFuse::LoadTime
            | NoFuse::RunsEarly
            | NoFuse::OtherPoints
            | NoFuse::LessParallel
            | NoFuse::Footprint
            | NoFuse::SplitLines
            | NoFuse::NothingGained
            | NoFuse::NotAnEpilogue
            | NoFuse::ProductConsumer
            | NoFuse::Scatter
            | NoFuse::Unproved
            | NoFuse::Score
            | NoFuse::Members => false,
        }
    }
}

impl fmt::Display for NoFuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}

impl<'a> Cx<'a> {
    /// That of a program; the nests `in_order` are to run one by one.
    pub fn new(
        loops: &'a Loops,
        deps: &'a Dependences,
        target: &'a Cpu,
        heuristics: &'a Heuristics,
        in_order: &BTreeSet<String>,
    ) -> Cx<'a> {
        let contractions = loops.stmts.iter().zip(&deps.stmts).map(|(stmt, info)| match stmt {
            // A tile takes its points in no order of their own.
            Stmt::Nest(n) if info.ordered.is_empty() => tiled_columns(loops, n, target),
            Stmt::Nest(_) | Stmt::Extern(_) | Stmt::Recurrence(_) => None,
        });
        let contractions = contractions.collect();
        let nests = loops.stmts.iter().filter_map(|stmt| match stmt {
            Stmt::Nest(n) => Some(n),
            Stmt::Extern(_) | Stmt::Recurrence(_) => None,
        });
        let axes = nests.flat_map(|n| n.all_axes().map(|a| a.var)).collect();
        let in_order = loops.stmts.iter().map(|stmt| in_order.contains(stmt.name())).collect();
        Cx { loops, deps, target, heuristics, contractions, in_order, axes }
    }

    /// Whether points of statement `s` along the axis depend on each other.
    pub fn is_ordered(&self, s: usize, axis: Sym) -> bool {
        self.deps.stmts[s].ordered.contains(&axis)
    }

    /// The group of a statement alone.
    pub fn alone(&self, s: usize) -> Group {
        let at_load = self.deps.stmts[s].at_load;
        let Stmt::Nest(n) = &self.loops.stmts[s] else {
            let members = vec![Member { stmt: s, bind: Vec::new() }];
            return Group { members, outer: Vec::new(), kind: GroupKind::Extern, at_load, packed: None };
        };
        let info = &self.deps.stmts[s];
        if self.in_order[s] {
            let members = vec![Member { stmt: s, bind: Vec::new() }];
            return Group {
                members,
                outer: Vec::new(),
                kind: GroupKind::InOrder(None),
                at_load,
                packed: None,
            };
        }
        if info.is_scatter && !info.ordered.is_empty() && scatter::is_plain(n) {
            let members = vec![Member { stmt: s, bind: Vec::new() }];
            return Group { members, outer: Vec::new(), kind: GroupKind::Scatter, at_load, packed: None };
        }
        // Axes whose points must be taken in order are the nest's own.
        let (mut bind, mut outer) = (Vec::new(), Vec::new());
        for axis in n.axes.iter().filter(|a| !self.is_ordered(s, a.var)) {
            bind.push(self.share(axis, &mut outer));
        }
        let kind = self.contractions[s].clone().map_or(GroupKind::Loops, GroupKind::Contraction);
        Group { members: vec![Member { stmt: s, bind }], outer, kind, at_load, packed: None }
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
fn is_allowed(cx: &Cx<'_>, group: &Group, s: usize) -> Result<(), NoFuse> {
    if matches!(group.kind, GroupKind::Extern) || matches!(cx.loops.stmts[s], Stmt::Extern(_)) {
        return Err(NoFuse::Extern);
    }
    if matches!(group.kind, GroupKind::Recurrence(_)) {
        return Err(NoFuse::Recurrence);
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
    // Sums over blocks of rows are not there before all rows are.
    if matches!(group.kind, GroupKind::Sweep(_)) {
        return Err(NoFuse::OtherPoints);
    }
    if group.members.len() >= MOST_MEMBERS {
        return Err(NoFuse::Members);
    }
    Ok(())
}

/// Members of a kernel at most: the time that planning, proving and compiling one takes grows faster than their number.
pub const MOST_MEMBERS: usize = 64;

/// The group with statement `s` behind the members that it depends on.
fn take_behind(cx: &Cx<'_>, group: &Group, s: usize) -> Result<Group, NoFuse> {
    // Phases of rows and tiles of products read what members read at points of other tiles, too.
    let is_of_loops = matches!(group.kind, GroupKind::Loops) && cx.contractions[s].is_none();
    if !is_of_loops && overwrites(cx, group, s) {
        return Err(NoFuse::OtherPoints);
    }
    match (&group.kind, &cx.contractions[s]) {
        (GroupKind::Rows(_), _) | (_, Some(_)) => rows::join(cx, group, s),
        (GroupKind::Contraction(_), None) => match join_points(cx, group, s) {
            Err(NoFuse::NotAnEpilogue) => rows::join(cx, group, s),
            joined => joined,
        },
        (_, None) => join_points(cx, group, s),
    }
}

/// Whether statement `s` stores to what a member reads.
fn overwrites(cx: &Cx<'_>, group: &Group, s: usize) -> bool {
    let writes = &cx.deps.stmts[s].writes;
    group.members.iter().any(|m| cx.deps.stmts[m.stmt].reads.iter().any(|buf| writes.contains(buf)))
}

/// The group with statement `s` at the points that all share, if they are enough and what they pass on fits in the cache.
fn join_points(cx: &Cx<'_>, group: &Group, s: usize) -> Result<Group, NoFuse> {
    let mut map = DomainMap::default();
    align_members(cx, group, s, &group.outer, &mut map);
    let joined = join(cx, group, s, map)?;
    // Where both share no points, all that one reads is read before any of it is overwritten: nothing is gained.
    let is_many = |axis: &Axis| !axis.extent.is_one();
    let has_points = nest(cx.loops, s).all_axes().any(is_many);
    if overwrites(cx, group, s) && has_points && !joined.outer.iter().any(is_many) {
        return Err(NoFuse::OtherPoints);
    }
    if cx.is_less_parallel(group, s, &joined, parallel_points(cx.loops, &joined)) {
        return Err(NoFuse::LessParallel);
    }
    if footprint(cx.loops, cx.deps, &joined) > cx.target.l2_bytes / cx.heuristics.local_fraction {
        return Err(NoFuse::Footprint);
    }
    if splits_lines(cx, &joined) {
        return Err(NoFuse::SplitLines);
    }
    Ok(joined)
}

/// Whether a member of loops writes lines of the cache piece by piece, since its own loops step from line to line and the elements of
/// one belong to different points of the group, while those of another member lie side by side along its own loops, which are
/// vectors. A line is then read and written for every element, and threads that run different points take it from each other. The
/// outputs of a batch normalisation's 64 channels of 112x112 points, copied with channels innermost, took 6.7 ms on two threads of an
/// Intel Xeon (AVX-512), 0.3 ms and 0.2 ms with a kernel for the copy.
fn splits_lines(cx: &Cx<'_>, group: &Group) -> bool {
    if !matches!(group.kind, GroupKind::Loops) {
        return false;
    }
    let is_along = |member: &Member| {
        let own = nest(cx.loops, member.stmt);
        accesses(own).any(|access| {
            let place = access.place(cx.loops, own);
            own.all_axes().any(|axis| member.is_own(axis) && stride(place, axis.var) == Stride::Unit)
        })
    };
    let is_split = |member: &Member| {
        let own = nest(cx.loops, member.stmt);
        let lines = points(&cx.loops.facts, rows::own_axes(own, member));
        lines.saturating_mul(LINE_BYTES) > cx.target.l1_bytes
            && accesses(own).filter(|access| access.store).any(|access| {
                let size = cx.loops.bufs[access.buf].dtype.size() as i64;
                let place = substitute(access.place(cx.loops, own), &member.bind);
                let shares = |axis: &Axis| shares_lines(stride(place, axis.var), size);
                group.outer.iter().any(shares) && !rows::own_axes(own, member).any(shares)
            })
    };
    group.members.iter().any(is_split) && group.members.iter().any(is_along)
}

/// Aligns the axes of statement `s` with those along which members of `group` store what it touches, and read what it stores, in the
/// loops `outer`.
pub fn align_members(cx: &Cx<'_>, group: &Group, s: usize, outer: &[Axis], map: &mut DomainMap) {
    let (consumer, info) = (nest(cx.loops, s), &cx.deps.stmts[s]);
    let facts = consumer.facts(&group.facts(&cx.loops.facts));
    let shared = Shared { loops: cx.loops, axes: outer, facts: &facts };
    for member in &group.members {
        let own = &cx.deps.stmts[member.stmt];
        let producer = (nest(cx.loops, member.stmt), &*member.bind);
        for &buf in own.writes.iter().filter(|b| info.reads.contains(b) || info.writes.contains(b)) {
            align_domains(shared, producer, (buf, By::Stores), consumer, map);
        }
        for &buf in own.reads.iter().filter(|b| info.writes.contains(b)) {
            align_domains(shared, producer, (buf, By::Overwritten), consumer, map);
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
    let member = Member { stmt: s, bind };
    let has_own = consumer.all_axes().any(|axis| member.is_own(axis));
    if matches!(group.kind, GroupKind::Contraction(_)) && (has_own || !dropped.is_empty()) {
        return Err(NoFuse::NotAnEpilogue);
    }
    let mut joined = group.clone();
    joined.outer.retain(|a| !dropped.contains(&a.var));
    for member in &mut joined.members {
        member.bind.retain(|(_, e)| !dropped.iter().any(|d| e.has_sym(*d)));
    }
    joined.members.push(member);
    Ok(joined)
}

/// The group with statement `s` beside its members, behind the last one that has the same points: no dependence.
fn take_beside(cx: &Cx<'_>, group: &Group, s: usize) -> Result<Group, NoFuse> {
    if cx.contractions[s].is_some() {
        return Err(NoFuse::ProductConsumer);
    }
    if matches!(group.kind, GroupKind::Contraction(_) | GroupKind::Rows(_)) {
        return Err(NoFuse::NotAnEpilogue);
    }
    let n = nest(cx.loops, s);
    let same =
        |a: &[Axis], b: &[Axis]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.extent == y.extent);
    let is_alike = |m: &Member| {
        let other = nest(cx.loops, m.stmt);
        same(&n.axes, &other.axes) && same(&n.reduced, &other.reduced)
    };
    let last = group.members.len() - 1;
    let Some(at) = group.members.iter().rposition(is_alike) else {
        return Err(difference(nest(cx.loops, group.members[last].stmt), n));
    };
    let mate = &group.members[at];
    let other = nest(cx.loops, mate.stmt);
    let value = |theirs: &Axis| mate.bind.iter().find(|b| b.0 == theirs.var).map(|b| b.1);
    let pairs = n.axes.iter().zip(&other.axes);
    let bind: Vec<(Sym, Expr)> =
        pairs.filter_map(|(mine, theirs)| Some((mine.var, value(theirs)?))).collect();
    if bind.iter().any(|(a, _)| cx.is_ordered(s, *a)) {
        return Err(NoFuse::OtherShape);
    }
    let mut joined = group.clone();
    joined.members.insert(at + 1, Member { stmt: s, bind });
    // Those behind the other one may have taken points from both.
    if at < last && cx.is_less_parallel(group, s, &joined, parallel_points(cx.loops, &joined)) {
        return Err(NoFuse::LessParallel);
    }
    Ok(joined)
}

/// The group with statement `s` beside its members, at the points where these read the same elements. The points that members
/// share stay as they are, and only a kernel whose members have loops of their own takes one that has.
fn take_aligned(cx: &Cx<'_>, group: &Group, s: usize) -> Result<Group, NoFuse> {
    let n = nest(cx.loops, s);
    let mut map = DomainMap::default();
    let facts = n.facts(&group.facts(&cx.loops.facts));
    let shared = Shared { loops: cx.loops, axes: &group.outer, facts: &facts };
    for member in &group.members {
        let reads = cx.deps.stmts[member.stmt].reads.iter();
        for &buf in reads.filter(|buf| cx.deps.stmts[s].reads.contains(buf)) {
            let other = nest(cx.loops, member.stmt);
            align_domains(shared, (other, &member.bind), (buf, By::Loads), n, &mut map);
        }
    }
    let differs = || difference(nest(cx.loops, group.members[group.members.len() - 1].stmt), n);
    let has_own = |member: &Member| nest(cx.loops, member.stmt).all_axes().any(|axis| member.is_own(axis));
    let is_row = group.members.iter().any(has_own);
    let joined = join(cx, group, s, map)?;
    let member = &joined.members[joined.members.len() - 1];
    let is_same = joined.outer.len() == group.outer.len() && !group.outer.is_empty();
    let along = |member: &Member| neighbours_along(cx, &joined, member);
    let keeps_neighbours = joined.members.iter().all(|other| along(other) == along(member));
    let is_wanted = keeps_neighbours || cx.heuristics.reorder_axes == ReorderAxes::Always;
    match is_same && is_wanted && (is_row || !has_own(member)) {
        true => Ok(joined),
        false => Err(differs()),
    }
}

/// The loop of a group along which a member stores neighbouring elements, if there is one.
fn neighbours_along(cx: &Cx<'_>, group: &Group, member: &Member) -> Option<Sym> {
    let own = nest(cx.loops, member.stmt);
    let stores = accesses(own).filter(|access| access.store);
    let places: Vec<Expr> =
        stores.map(|access| substitute(access.place(cx.loops, own), &member.bind)).collect();
    let is_unit = |axis: &&Axis| places.iter().all(|&place| stride(place, axis.var) == Stride::Unit);
    group.outer.iter().find(is_unit).map(|axis| axis.var)
}

/// How the points of nests differ that read the same buffer: by the first coordinate in which they do.
fn difference(one: &Nest, other: &Nest) -> NoFuse {
    let mut pairs = accesses(one).flat_map(|a| accesses(other).map(move |b| (a, b)));
    let Some((a, b)) = pairs.find(|(a, b)| a.buf == b.buf && !a.store && !b.store) else {
        return NoFuse::OtherShape;
    };
    let axes_in = |nest: &Nest, at: Expr| -> Vec<Axis> {
        nest.all_axes().filter(|axis| at.has_sym(axis.var)).copied().collect()
    };
    for (&at, &there) in a.index.iter().zip(b.index) {
        match (&*axes_in(one, at), &*axes_in(other, there)) {
            ([a], [b]) if a.extent != b.extent => return NoFuse::OtherSize,
            ([_], [_]) | ([], []) => {}
            ([_], [_, ..]) | ([_, ..], [_]) => return NoFuse::SplitAxis,
            _ => return NoFuse::OtherShape,
        }
    }
    match one.all_axes().count() == other.all_axes().count() {
        true => NoFuse::OrderOfAxes,
        false => NoFuse::Broadcast,
    }
}
