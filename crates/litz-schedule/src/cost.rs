//! Estimates what statements cost: bytes moved between a kernel and memory, operations, and the time that both take on a target.
//!
//! Everything here counts by examples of sizes, for decisions and reports. Each element that a kernel reads counts once,
//! however often it is read, and what never leaves the kernel does not count.

use crate::group::Group;
use crate::nest;
use litz_analysis::Dependences;
use litz_analysis::access::{Stride, accesses, stride, substitute};
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Stmt};
use litz_ir::target::Target;
use litz_ir::{Dtype, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::cell::OnceCell;

/// Elements of a strip of columns that one kernel point takes.
const COLUMN_STRIP: i64 = 64;

/// Bytes of a line of the cache.
pub const LINE_BYTES: i64 = 64;

/// A size for heuristics: at least 1.
pub fn size(facts: &Facts, e: Expr) -> i64 {
    facts.size_hint(e).max(1)
}

/// Parts of `part` that `n` needs, both positive.
pub fn ceil_div(n: i64, part: i64) -> i64 {
    (n + part - 1) / part
}

/// Points of several axes together.
pub fn points<'a>(facts: &Facts, axes: impl IntoIterator<Item = &'a Axis>) -> i64 {
    axes.into_iter().map(|a| size(facts, a.extent)).fold(1, i64::saturating_mul)
}

/// Whether neighbours at that distance, of elements of `size` bytes, are in one line of the cache as a rule.
pub fn shares_lines(distance: Stride, size: i64) -> bool {
    match distance {
        Stride::Unit => true,
        Stride::Elements(elements) => {
            elements.as_int().is_some_and(|n| n.saturating_mul(size).abs() < LINE_BYTES)
        }
        Stride::Zero | Stride::Irregular => false,
    }
}

/// The estimated cost of statements that run in one kernel.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Cost {
    /// Bytes moved from and to memory.
    pub traffic: Traffic,
    /// Operations on each type; a multiplication and an addition are two.
    pub flops: Vec<(Dtype, i64)>,
}

/// Bytes that a kernel moves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// From memory.
    pub reads: i64,
    /// To memory.
    pub writes: i64,
}

impl Traffic {
    /// In both directions.
    pub fn bytes(self) -> i64 {
        self.reads.saturating_add(self.writes)
    }
}

impl Cost {
    /// Operations on all types.
    pub fn all_flops(&self) -> i64 {
        self.flops.iter().map(|of| of.1).fold(0, i64::saturating_add)
    }

    /// Adds what else runs in the kernel, which moves bytes of its own.
    pub fn add(&mut self, other: &Cost) {
        self.traffic.reads = self.traffic.reads.saturating_add(other.traffic.reads);
        self.traffic.writes = self.traffic.writes.saturating_add(other.traffic.writes);
        other.flops.iter().for_each(|&of| self.add_flops(of));
    }

    fn add_flops(&mut self, (dtype, count): (Dtype, i64)) {
        match self.flops.iter_mut().find(|of| of.0 == dtype) {
            Some(of) => of.1 = of.1.saturating_add(count),
            None => self.flops.push((dtype, count)),
        }
    }

    /// Seconds that the target needs at least: for the operations or for the bytes, whichever takes longer, as both happen at
    /// the same time. 0 where the target's rates are not known.
    pub fn time(&self, target: &Target) -> f64 {
        let rates = target.rates();
        let mut compute = 0.0;
        for &(dtype, count) in self.flops.iter().filter(|of| of.1 > 0) {
            // Types without a rate of their own are integers and truth values: a lane takes one as it takes a float.
            let rate = if rates.flops(dtype) > 0 { rates.flops(dtype) } else { rates.flops(Dtype::F32) };
            if rate == 0 {
                return 0.0;
            }
            compute += count as f64 / rate as f64;
        }
        match rates.bandwidth {
            0 => 0.0,
            bandwidth => f64::max(compute, self.traffic.bytes() as f64 / bandwidth as f64),
        }
    }
}

/// Counts for statements of a program, by examples of sizes.
#[derive(Clone, Copy)]
pub struct Estimator<'a> {
    /// The program; regions may be written out or not.
    pub loops: &'a Loops,
    /// Where examples of sizes are from.
    pub facts: &'a Facts,
}

impl<'a> Estimator<'a> {
    /// One that goes by the examples that the program was exported with.
    pub fn new(loops: &'a Loops) -> Estimator<'a> {
        Estimator { loops, facts: &loops.facts }
    }

    /// What one kernel costs that runs these nests, in the order of the program. Buffers that only they touch never leave it.
    pub fn kernel(&self, nests: &[String]) -> Cost {
        let is_in = |nest: &Nest| nests.contains(&nest.name);
        let members: Vec<&Nest> =
            self.loops.stmts.iter().flat_map(Stmt::nests).filter(|n| is_in(n)).collect();
        let mut bufs: Vec<Buf> =
            members.iter().flat_map(|nest| [nest.reads(), nest.writes()].concat()).collect();
        bufs.sort_unstable();
        bufs.dedup();
        let touches = |stmt: &Stmt, buf: Buf| stmt.reads().contains(&buf) || stmt.writes().contains(&buf);
        let is_used_outside = |stmt: &Stmt, buf: Buf| match stmt {
            Stmt::Nest(nest) if is_in(nest) => false,
            Stmt::Recurrence(region) if region.nests.iter().all(is_in) => false,
            Stmt::Nest(_) | Stmt::Recurrence(_) | Stmt::Extern(_) => touches(stmt, buf),
        };
        let mut cost = Cost::default();
        for buf in bufs {
            let escapes = !self.loops.is_internal(buf);
            if escapes || self.loops.stmts.iter().any(|stmt| is_used_outside(stmt, buf)) {
                let uses: Vec<Use<'_>> = members.iter().map(|nest| Use::of_nest(self, nest, buf)).collect();
                let traffic = self.traffic(buf, &uses);
                cost.traffic.reads = cost.traffic.reads.saturating_add(traffic.reads);
                cost.traffic.writes = cost.traffic.writes.saturating_add(traffic.writes);
            }
        }
        members.iter().for_each(|nest| cost.add_flops(self.flops(nest)));
        cost
    }

    /// Operations of a nest, all counted as operations on one type: that of the operands of its reduction, if they have one in
    /// common, which instructions for products go by.
    pub fn flops(&self, nest: &Nest) -> (Dtype, i64) {
        let outer = points(self.facts, &nest.axes);
        let all = outer.saturating_mul(points(self.facts, &nest.reduced));
        let (varies, after) = (nest.varying(), nest.after_reduce());
        let (mut flops, mut dtypes, mut computed) = (0i64, Vec::new(), None);
        for (at, inst) in nest.body.iter().enumerate() {
            let is_inner = varies[at] || inst.op.is_reduction() && !nest.reduced.is_empty();
            let times = if is_inner { all } else { outer };
            let count = match &inst.op {
                InstOp::Op(ScalarOp::Fma, _) => 2,
                InstOp::Op(..) | InstOp::Reduce(..) | InstOp::ArgReduce { .. } | InstOp::Scan { .. } => 1,
                InstOp::Store { combine, .. } => i64::from(combine.is_some()),
                InstOp::Load { buf, .. } => {
                    if !after[at] && (varies[at] || nest.reduced.is_empty()) {
                        dtypes.push(self.loops.bufs[*buf].dtype);
                    }
                    0
                }
                InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. } => 0,
            };
            if count > 0 && inst.ty.is_float() {
                computed = Some(inst.ty);
            }
            flops = flops.saturating_add(times.saturating_mul(count));
        }
        let common = dtypes.first().copied().filter(|first| dtypes.iter().all(|dtype| dtype == first));
        let dtype = common.filter(|dtype| nest.reduces() && dtype.is_float()).or(computed);
        (dtype.unwrap_or(Dtype::F32), self.busy(nest, flops))
    }

    /// Instructions that all points of a nest execute.
    pub fn work(&self, nest: &Nest) -> i64 {
        points(self.facts, nest.all_axes()).saturating_mul(nest.body.len() as i64)
    }

    /// The part of `count` that falls on points which are not idle.
    fn busy(&self, nest: &Nest, count: i64) -> i64 {
        let Some(idle) = &nest.idle else { return count };
        let axes: Vec<&Axis> =
            nest.all_axes().filter(|a| idle.lhs.has_sym(a.var) || idle.rhs.has_sym(a.var)).collect();
        let all = points(self.facts, axes.iter().copied());
        let step = (all / SAMPLES).max(1);
        let (mut busy, mut looked_at) = (0i64, 0i64);
        let mut point = 0;
        while point < all {
            let is_idle = holds(idle, self.facts, &axes, point).unwrap_or(false);
            busy += i64::from(!is_idle);
            looked_at += 1;
            point += step;
        }
        (count as f64 * busy as f64 / looked_at.max(1) as f64) as i64
    }

    /// Bytes of a buffer that one kernel moves whose statements use it so, in order.
    fn traffic<'u>(&self, buf: Buf, uses: impl IntoIterator<Item = &'u Use<'u>>) -> Traffic {
        let data = &self.loops.bufs[buf];
        let all = size(self.facts, data.elements());
        let (mut loads, mut stores) = (Union::default(), Union::default());
        let mut read = 0i64;
        for used in uses {
            // What an earlier statement of the kernel stored comes from there.
            match stores.accesses.is_empty() {
                true => used.loads.iter().for_each(|access| loads.add(access)),
                false => {
                    let loaded = used.loads.iter().map(|access| access.elements).fold(0, i64::saturating_add);
                    read = read.saturating_add((loaded.min(all) - stores.elements().min(all)).max(0));
                }
            }
            used.stores.iter().for_each(|access| stores.add(access));
        }
        let bytes = |elements: i64| elements.min(all).saturating_mul(data.dtype.size() as i64);
        Traffic { reads: bytes(loads.elements().saturating_add(read)), writes: bytes(stores.elements()) }
    }
}

/// What statements save that share a kernel; how each uses its buffers is found once.
pub struct Savings<'a> {
    estimator: Estimator<'a>,
    deps: &'a Dependences,
    uses: Vec<OnceCell<Vec<(Buf, Use<'a>)>>>,
}

impl<'a> Savings<'a> {
    /// Prepares to estimate savings in a program whose regions are written out.
    pub fn new(loops: &'a Loops, deps: &'a Dependences) -> Savings<'a> {
        let uses = loops.stmts.iter().map(|_| OnceCell::new()).collect();
        Savings { estimator: Estimator::new(loops), deps, uses }
    }

    /// Bytes that would neither be stored nor loaded if the statements `added` shared a kernel with `members`, which come
    /// before them: those of both kernels less those of the one that runs them all.
    pub fn of(&self, members: &[usize], added: &[usize]) -> i64 {
        let mut bufs: Vec<Buf> = added.iter().flat_map(|&at| self.uses(at)).map(|used| used.0).collect();
        bufs.sort_unstable();
        bufs.dedup();
        bufs.into_iter().map(|buf| self.of_buffer(buf, members, added)).fold(0, i64::saturating_add)
    }

    fn of_buffer(&self, buf: Buf, members: &[usize], added: &[usize]) -> i64 {
        let of = |stmts: &[usize]| -> Vec<&Use<'a>> {
            let used = |at: &usize| self.uses(*at).iter().find(|used| used.0 == buf);
            stmts.iter().filter_map(used).map(|used| &used.1).collect()
        };
        let (before, behind) = (of(members), of(added));
        if before.is_empty() || behind.is_empty() {
            return 0;
        }
        let bytes = |uses: &[&Use<'a>]| self.estimator.traffic(buf, uses.iter().copied()).bytes();
        let is_here = |user: &usize| added.contains(user) || members.contains(user);
        let is_local = !self.deps.escapes[buf] && self.deps.users[buf].iter().all(is_here);
        let together = if is_local { 0 } else { bytes(&[&*before, &*behind].concat()) };
        bytes(&before).saturating_add(bytes(&behind)).saturating_sub(together)
    }

    /// Bytes that statement `s` and `members` load of the same buffers, whether of the same elements or not.
    pub fn overlap(&self, members: &[usize], s: usize) -> i64 {
        let loaded = |used: &Use<'a>, buf: Buf| {
            let loads = Use { loads: used.loads.clone(), stores: Vec::new() };
            self.estimator.traffic(buf, [&loads]).reads
        };
        let shared = |(buf, used): &(Buf, Use<'a>)| {
            let others = members.iter().flat_map(|&m| self.uses(m)).filter(|other| other.0 == *buf);
            let most = others.map(|other| loaded(&other.1, *buf)).max();
            most.map_or(0, |most| most.min(loaded(used, *buf)))
        };
        self.uses(s).iter().map(shared).fold(0, i64::saturating_add)
    }

    fn uses(&self, at: usize) -> &[(Buf, Use<'a>)] {
        self.uses[at].get_or_init(|| {
            let info = &self.deps.stmts[at];
            let written = info.writes.iter().filter(|buf| !info.reads.contains(buf));
            let of = |&buf| (buf, Use::of(&self.estimator, &self.estimator.loops.stmts[at], buf));
            info.reads.iter().chain(written).map(of).collect()
        })
    }
}

/// Points of a condition's axes looked at: of more every n-th.
const SAMPLES: i64 = 4096;

/// Whether a relation holds at a point of axes, counted row by row.
fn holds(rel: &Rel, facts: &Facts, axes: &[&Axis], mut point: i64) -> Option<bool> {
    let mut scope: Vec<(Sym, Expr)> = Vec::with_capacity(axes.len());
    for axis in axes.iter().rev() {
        let extent = size(facts, axis.extent);
        scope.push((axis.var, Expr::int(point % extent)));
        point /= extent;
    }
    let value = |e: Expr| facts.hint(substitute(e, &scope));
    Rel { lhs: Expr::int(value(rel.lhs)?), rhs: Expr::int(value(rel.rhs)?), ..*rel }.eval(&|_| None)
}

/// How a statement uses a buffer.
#[derive(Clone, Default)]
struct Use<'a> {
    loads: Vec<Touched<'a>>,
    stores: Vec<Touched<'a>>,
}

/// The elements that an access touches.
#[derive(Clone)]
struct Touched<'a> {
    index: &'a [Expr],
    /// As many as the axes in its coordinates have points: of all axes, where data chooses.
    elements: i64,
    /// Along each dimension; none where data chooses.
    runs: Vec<Run>,
}

/// Coordinates along a dimension: how many, and the ends of the interval that they are in.
#[derive(Clone, Copy, PartialEq)]
struct Run {
    first: i64,
    last: i64,
    points: i64,
}

impl<'a> Use<'a> {
    fn of(cx: &Estimator<'a>, stmt: &'a Stmt, buf: Buf) -> Use<'a> {
        match stmt {
            Stmt::Nest(nest) => Use::of_nest(cx, nest, buf),
            Stmt::Recurrence(region) => region.nests.iter().fold(Use::default(), |mut all, nest| {
                let of_nest = Use::of_nest(cx, nest, buf);
                all.loads.extend(of_nest.loads);
                all.stores.extend(of_nest.stores);
                all
            }),
            Stmt::Extern(call) => {
                let data = &cx.loops.bufs[buf];
                let whole = |extent: &Expr| {
                    let points = size(cx.facts, *extent);
                    Run { first: 0, last: points - 1, points }
                };
                let elements = size(cx.facts, data.elements());
                let all = Touched { index: &[], elements, runs: data.sizes.iter().map(whole).collect() };
                let if_in = |bufs: &[Buf]| bufs.iter().filter(|b| **b == buf).map(|_| all.clone()).collect();
                Use { loads: if_in(&call.reads()), stores: if_in(&call.writes()) }
            }
        }
    }

    fn of_nest(cx: &Estimator<'a>, nest: &'a Nest, buf: Buf) -> Use<'a> {
        let mut used = Use::default();
        for access in accesses(nest).filter(|access| access.buf == buf) {
            let touched = Touched::new(cx.facts, nest, access.index);
            if !access.store || access.combines {
                used.loads.push(touched.clone());
            }
            if access.store {
                used.stores.push(touched);
            }
        }
        used
    }
}

impl<'a> Touched<'a> {
    fn new(facts: &Facts, nest: &Nest, index: &'a [Expr]) -> Touched<'a> {
        let is_chosen = nest
            .indices()
            .filter(|bound| nest.all_axes().all(|axis| axis.var != bound.var))
            .any(|bound| index.iter().any(|at| at.has_sym(bound.var)));
        let axes = nest.all_axes().filter(|axis| is_chosen || index.iter().any(|at| at.has_sym(axis.var)));
        let elements = points(facts, axes);
        let runs = if is_chosen { None } else { index.iter().map(|&at| run(facts, nest, at)).collect() };
        Touched { index, elements, runs: runs.unwrap_or_default() }
    }

    /// Whether all elements of `other` are among these. It is meant to be right for boxes, and says no to most else.
    fn contains(&self, other: &Touched<'_>) -> bool {
        let is_same = std::ptr::eq(self.index, other.index);
        let is_known = !self.runs.is_empty() && self.runs.len() == other.runs.len();
        let contains = |(a, b): (&Run, &Run)| {
            let is_dense = a.points == a.last - a.first + 1;
            a == b || is_dense && a.first <= b.first && b.last <= a.last
        };
        is_same || is_known && self.runs.iter().zip(&other.runs).all(contains)
    }
}

/// The coordinates that an expression of a nest's axes takes, if it has its least and its greatest value where the axes have.
fn run(facts: &Facts, nest: &Nest, at: Expr) -> Option<Run> {
    if let Some(at) = at.as_int() {
        return Some(Run { first: at, last: at, points: 1 });
    }
    let axes = || nest.all_axes().filter(|axis| at.has_sym(axis.var));
    let value = |of: &dyn Fn(&Axis) -> i64| {
        let pairs: Vec<(Sym, Expr)> = axes().map(|axis| (axis.var, Expr::int(of(axis)))).collect();
        facts.hint(substitute(at, &pairs))
    };
    let (low, high) = (value(&|_| 0)?, value(&|axis| size(facts, axis.extent) - 1)?);
    Some(Run { first: low.min(high), last: low.max(high), points: points(facts, axes()) })
}

/// Accesses none of which is known to touch only elements that another one touches.
#[derive(Default)]
struct Union<'a> {
    accesses: Vec<&'a Touched<'a>>,
}

impl<'a> Union<'a> {
    fn add(&mut self, access: &'a Touched<'a>) {
        if self.accesses.iter().any(|other| other.contains(access)) {
            return;
        }
        self.accesses.retain(|other| !access.contains(other));
        self.accesses.push(access);
    }

    fn elements(&self) -> i64 {
        self.accesses.iter().map(|access| access.elements).fold(0, i64::saturating_add)
    }
}

/// Shared points that can run at once. An axis that vectors run along counts in strips: where members have loops of
/// their own, a shared axis along which all of them store neighbouring elements.
pub fn parallel_points(loops: &Loops, group: &Group) -> i64 {
    let has_own_loops = group.members.iter().any(|m| nest(loops, m.stmt).all_axes().any(|a| m.is_own(a)));
    let mut stored: Vec<Expr> = Vec::new();
    for member in group.members.iter().filter(|_| has_own_loops) {
        let own = nest(loops, member.stmt);
        let stores = accesses(own).filter(|access| access.store);
        stored.extend(stores.map(|store| substitute(store.place(loops, own), &member.bind)));
    }
    let points = |axis: &Axis| {
        let n = size(&loops.facts, axis.extent);
        let is_contiguous = || stored.iter().all(|&place| stride(place, axis.var) == Stride::Unit);
        if has_own_loops && is_contiguous() { (n / COLUMN_STRIP).max(1) } else { n }
    };
    group.outer.iter().map(points).fold(1, i64::saturating_mul)
}

/// Instructions executed by all members together.
pub fn work(loops: &Loops, group: &Group) -> i64 {
    let estimator = Estimator::new(loops);
    group.members.iter().map(|m| estimator.work(nest(loops, m.stmt))).fold(0, i64::saturating_add)
}

/// Points of the grid that every thread gets at least, where some are made one.
pub const POINTS_PER_THREAD: i64 = 2;

/// Bytes that members pass to each other at one shared point.
pub fn footprint(loops: &Loops, deps: &Dependences, group: &Group) -> i64 {
    let mut bytes = 0i64;
    for member in &group.members {
        for &buf in &deps.stmts[member.stmt].writes {
            let is_passed = |s: usize| s != member.stmt && deps.stmts[s].reads.contains(&buf);
            if group.members.iter().any(|m| is_passed(m.stmt)) {
                let data = &loops.bufs[buf];
                let by_sizes =
                    || data.sizes.iter().map(|&n| size(&loops.facts, n)).fold(1, i64::saturating_mul);
                let elements = loops.facts.hint(data.span()).unwrap_or_else(by_sizes);
                bytes = bytes.saturating_add(elements.saturating_mul(data.dtype.size() as i64));
            }
        }
    }
    bytes / points(&loops.facts, &group.outer)
}
