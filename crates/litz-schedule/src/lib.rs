//! Decides how a loops program runs: what shares a kernel, in which loops, where buffers live, in what order.
//!
//! Everything here decides and nothing does: the result is a [`Schedule`], which cannot change what is computed.
//! A target is known by its [`Target`] alone.

#![forbid(unsafe_code)]
// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

mod accumulators;
mod alike;
mod axes;
mod blocks;
pub mod cost;
mod fuse;
mod group;
mod in_order;
mod k_blocks;
mod launches;
mod m_tile;
mod memory;
mod nests;
mod order;
mod panel;
mod problem;
mod product;
mod region;
mod remainders;
mod reuse;
mod rows;
mod scatter;
mod spaces;
mod strategies;
mod sweep;
mod tiles;
mod tiling;
mod tree;

use alike::Alike;
use group::{Group, GroupKind};
use litz_analysis::Dependences;
use litz_ir::loops::{Buf, Loops, Nest, Stmt};
use litz_ir::parallel::parallel;
use litz_ir::schedule::{
    Holds, KernelPlan, Layout, Local, LocalSpace, Part, Reuse, Schedule, ScheduleStep, Tree,
};
use litz_ir::target::{Cpu, Isa, Target};
use litz_sym::{Facts, Sym};
use nests::Nests;
use problem::Problem;
use reuse::Pair;
use spaces::Names;
use std::collections::BTreeSet;

pub use strategies::NoFuse;

/// Elements of a cache line of 32-bit numbers: rows of scratch memory take an odd number of them.
const LINE: u32 = 16;

/// Thresholds, with where they come from.
#[derive(Clone, PartialEq, Debug)]
pub struct Heuristics {
    /// Scalar operations a chunk of a parallel loop has at least. Waking a thread costs about 0.3 us, in which one core
    /// of an AVX-512 machine does this many operations.
    pub chunk_ops: i64,
    /// Elements a pointwise kernel without outer loops takes at a time: 16 KiB of f32, half an L1 cache.
    pub block: i64,
    /// Vectors in flight in a reduction: hides the four-cycle latency of an addition.
    pub reduction_copies: u32,
    /// Vectors in flight in a loop that computes mathematical functions: chains of some 30 dependent instructions, of
    /// which an Intel core overlaps three. gelu of 128x1024 took 60 us with one and 46 us
    /// with four (Granite Rapids, one thread).
    pub function_copies: u32,
    /// Vectors in flight when columns are reduced row by row.
    pub column_vectors: u32,
    /// Instructions of an epilogue that are written out for every vector of a register tile; longer ones run as a loop
    /// over the tile, kept in scratch memory. A 28-fold gelu took 18 ms to compile where a loop takes 4.
    pub inline_epilogue: usize,
    /// Terms that a product adds up one after another before it adds the result to the others. Rounding errors of n terms
    /// in K blocks of b grow as sqrt(n*b + n*n/b). On an Intel Xeon a product of 128x768x768 takes 1 % longer with 96 than
    /// with 128, 2 to 3 % with 64, and errs 0.88 and 0.76 times as much. Tiles of few rows have shorter blocks.
    pub partial_sum: i64,
    /// The same for products that are rounded to a half type: one after another, so many terms err by less than half of
    /// the unit in which a bf16 result is rounded.
    pub partial_half: i64,
    /// The same for sums of columns, which have no lanes to share the terms.
    pub partial_column: i64,
    /// Whether kernels are merged that read the same data with their axes in another order, or with one axis for several.
    pub reorder_axes: ReorderAxes,
    /// Bytes that local buffers of one grid point may take, as a fraction of the second-level cache.
    pub local_fraction: i64,
    /// Small kernels that do not depend on each other and share a launch, at most; with 1 each has its own.
    pub launch_together: usize,
}

/// Which kernels are merged that read the same data with their axes in another order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReorderAxes {
    /// None.
    Never,
    /// Those whose statements store neighbouring elements along the same loop.
    KeepingNeighbours,
    /// All. The data is read once, and some of the statements store elements that are far apart: `exp(x.t())` and `sin(x)` of
    /// 4096 x 2048 f32 took 31 ms in one kernel and 11 ms in two (two threads of an Intel Xeon, AVX-512).
    Always,
}

impl Default for Heuristics {
    fn default() -> Self {
        Heuristics {
            chunk_ops: 16 * 1024,
            block: 4096,
            reduction_copies: 4,
            function_copies: 4,
            column_vectors: 4,
            inline_epilogue: 8,
            partial_sum: 96,
            partial_half: 16384,
            partial_column: 32,
            reorder_axes: ReorderAxes::KeepingNeighbours,
            local_fraction: 2,
            launch_together: 1,
        }
    }
}

/// Whether a consumer joined the kernel of a producer, or why not.
#[derive(Clone, PartialEq, Debug)]
pub struct FusionNote {
    /// Statement that came first.
    pub producer: String,
    /// Statement that could have joined it.
    pub consumer: String,
    /// What was decided.
    pub verdict: Result<(), NoFuse>,
    /// Bytes that a call neither stores nor loads where the consumer shares the kernel that the producer is in, by hints of
    /// sizes; see [`cost::Savings::of`].
    pub bytes: i64,
}

/// A schedule and how it came about.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The decision.
    pub schedule: Schedule,
    /// Every fusion considered.
    pub notes: Vec<FusionNote>,
}

/// What a schedule is made for, and by which thresholds.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What it runs on.
    pub target: &'a Target,
    /// Thresholds.
    pub heuristics: &'a Heuristics,
    /// Nests that get a kernel each, which runs their points in order on one thread, and so is proved whatever they do. A
    /// region with such a nest is one kernel.
    pub in_order: &'a BTreeSet<String>,
    /// Nests that join no kernel of what comes before them: each begins one.
    pub apart: &'a BTreeSet<String>,
    /// Threads that plan kernels: what they decide does not depend on their number.
    pub threads: usize,
}

impl<'a> Request<'a> {
    /// A request to do as the scheduler decides, on one thread.
    pub fn new(target: &'a Target, heuristics: &'a Heuristics) -> Request<'a> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        Request { target, heuristics, in_order: &NONE, apart: &NONE, threads: 1 }
    }
}

/// Schedules `loops`, a program that verifies, for `target`. The same input always gives the same schedule.
pub fn schedule(loops: &Loops, target: &Target, heuristics: &Heuristics) -> Outcome {
    schedule_as(loops, &Request::new(target, heuristics))
}

/// As [`schedule`], for a request. Functions of the program are left to be scheduled one by one.
pub fn schedule_as(loops: &Loops, request: &Request<'_>) -> Outcome {
    // There are no strategies for GPUs yet: every nest runs in order, and what asks for a CPU's numbers decides nothing.
    let least = Cpu::new(Isa::Sse2, 1);
    let cpu = request.target.cpu().unwrap_or(&least);
    let all: BTreeSet<String> = match request.target {
        Target::Cpu(_) => request.in_order.clone(),
        Target::Gpu(_) => loops.stmts.iter().flat_map(Stmt::nests).map(|nest| nest.name.clone()).collect(),
    };
    let request = &Request { in_order: &all, ..*request };
    let (target, heuristics) = (request.target, request.heuristics);
    let (flat, mut regions) = loops.flat();
    let flat = axes::simplified(flat);
    regions.iter_mut().for_each(|region| axes::simplify(&mut region.over, &loops.facts));
    let loops = &*flat;
    let deps = Dependences::of(loops, &regions);
    let (groups, notes) = fuse::fuse(loops, &deps, &regions, cpu, request);
    let names = Names::of(loops);
    let alike = Alike::of(loops, &deps, &groups);
    let first = parallel(request.threads, alike.first.len(), |at| {
        let mut item = plan(loops, &deps, &groups[alike.first[at]], cpu, heuristics);
        item.kernel.iter_mut().for_each(|plan| spaces::choose(plan, &names, target));
        item
    });
    let item = |at: usize| alike.item(loops, &groups, at, &first[alike.place[at]]);
    let items = (0..groups.len()).map(item).collect();
    let cx = launches::Cx { loops, deps: &deps, target: cpu, heuristics };
    let items = launches::together(&cx, order::ordered(&cx, items));
    let (mut steps, mut planned, mut kernels) = (Vec::new(), Vec::new(), 0);
    for Item { stmts, at_load, kernel, overwrites, .. } in items {
        steps.push(match kernel {
            None => ScheduleStep::Extern { name: loops.stmts[stmts[0]].name().to_owned(), at_load },
            Some(plan) => {
                kernels += 1;
                ScheduleStep::Kernel(KernelPlan { name: format!("k{}", kernels - 1), ..plan })
            }
        });
        planned.push((stmts, overwrites));
    }
    let reuses = reuse::choose(&deps, &planned);
    let pools = memory::pools(loops, &deps, &steps, &reuses);
    let name = |buf: Buf| loops.bufs[buf].name.clone();
    let schedule = Schedule {
        name: loops.name.clone(),
        of: loops.name.clone(),
        target: *target,
        functions: Vec::new(),
        steps,
        reuses: reuses.into_iter().map(|(from, to)| Reuse { from: name(from), to: name(to) }).collect(),
        pools,
    };
    Outcome { schedule, notes }
}

/// Adds to a plan what its loops and leaves imply: loops end where their leaves do, accumulators are declared and
/// initialized, and leaves that may come to points past the end of an axis are masked.
pub fn finish(plan: &mut KernelPlan, loops: &Loops) {
    finish_with(plan, &Nests::of(loops, 0..loops.stmts.len()), &loops.facts);
}

/// Moves what registers of the target do not hold to scratch memory, and what is a single element to registers.
pub fn choose_spaces(plan: &mut KernelPlan, loops: &Loops, target: &Target) {
    spaces::choose(plan, &Names::of(loops), target);
}

fn finish_with(plan: &mut KernelPlan, nests: &Nests<'_>, facts: &Facts) {
    remainders::end_loops(plan, nests, facts);
    accumulators::place(plan, nests);
    remainders::mask(plan, nests, facts);
}

/// What runs in one step, and how.
#[derive(Clone)]
struct Item {
    /// Positions of its statements.
    stmts: Vec<usize>,
    /// Runs once, when the model is loaded.
    at_load: bool,
    /// It may be a part of a launch.
    may_share_launch: bool,
    /// None: a routine of the runtime.
    kernel: Option<KernelPlan>,
    /// What the kernel may write over what.
    overwrites: Vec<Pair>,
}

/// Plans the loops of a group, without a name.
fn plan(loops: &Loops, deps: &Dependences, group: &Group, target: &Cpu, heuristics: &Heuristics) -> Item {
    let (stmts, at_load) = (group.stmts(), group.at_load);
    let (mut plan, scope) = match &group.kind {
        GroupKind::Extern => {
            return Item { stmts, at_load, may_share_launch: false, kernel: None, overwrites: Vec::new() };
        }
        GroupKind::Contraction(columns) => {
            product::plan(&Problem::new(loops, group, columns, target, heuristics))
        }
        GroupKind::Rows(phases) => (rows::plan(loops, group, phases, target, heuristics), None),
        GroupKind::Recurrence(phases) => (region::plan(loops, group, phases, target, heuristics), None),
        GroupKind::Sweep(of) => (sweep::plan(loops, group, of, target, heuristics), of.row()),
        GroupKind::Scatter => {
            let stmt = group.members[0].stmt;
            let ordered = &deps.stmts[stmt].ordered;
            (scatter::plan(loops, nest(loops, stmt), ordered, target, heuristics), None)
        }
        GroupKind::InOrder(over) => (in_order::plan(loops, &group.stmts(), *over), None),
        GroupKind::Loops => (tree::plan(loops, group, target, heuristics), None),
    };
    plan.at_load = at_load;
    match group.kind {
        // Alone in its kernel, it passes nothing on there. Memory for all that a region passes on is not that of a thread.
        GroupKind::Scatter | GroupKind::InOrder(_) => {}
        GroupKind::Extern
        | GroupKind::Contraction(_)
        | GroupKind::Rows(_)
        | GroupKind::Sweep(_)
        | GroupKind::Recurrence(_)
        | GroupKind::Loops => declare_locals(&mut plan, loops, deps, group, scope),
    }
    finish_with(&mut plan, &Nests::of(loops, group.stmts()), &loops.facts);
    let may_share_launch = match group.kind {
        GroupKind::Loops | GroupKind::Contraction(_) | GroupKind::Rows(_) => true,
        // What stores to blocks counts these by its grid, what was not proved is given up, and regions are long.
        GroupKind::Scatter
        | GroupKind::Sweep(_)
        | GroupKind::InOrder(_)
        | GroupKind::Recurrence(_)
        | GroupKind::Extern => false,
    };
    // A region may read in its next iteration what it writes in this one, and a sum of rows what is written at a row.
    let is_in_order =
        matches!(group.kind, GroupKind::Recurrence(_) | GroupKind::InOrder(_) | GroupKind::Sweep(_));
    let overwrites = match at_load || is_in_order {
        true => Vec::new(),
        false => reuse::candidates(loops, deps, &stmts, &plan),
    };
    Item { stmts, at_load, may_share_launch, kernel: Some(plan), overwrites }
}

/// Declares the buffers that only this group's members touch, which live for a point of the grid or for an iteration of the
/// loop `scope`.
fn declare_locals(
    plan: &mut KernelPlan,
    loops: &Loops,
    deps: &Dependences,
    group: &Group,
    scope: Option<Sym>,
) {
    let is_inside = |s: &usize| group.members.iter().any(|m| m.stmt == *s);
    let mut declared: Vec<&str> = Vec::new();
    for member in &group.members {
        for &buf in &deps.stmts[member.stmt].writes {
            let name = loops.bufs[buf].name.as_str();
            let is_local = !deps.escapes[buf] && deps.users[buf].iter().all(is_inside);
            if !is_local || declared.contains(&name) {
                continue;
            }
            let nest = nest(loops, member.stmt);
            let holds = Holds::Buffer(name.to_owned());
            let local = Local { holds, space: LocalSpace::Scratch, layout: Layout::Padded(LINE) };
            let inner = scope.and_then(|var| block_of(&mut plan.body, var, &nest.name));
            let block = match inner {
                Some(block) => block,
                None => &mut plan.body,
            };
            block.insert(declared_in(block), Tree::Local(local));
            declared.push(name);
        }
    }
}

/// How many memories a block declares in its beginning.
fn declared_in(block: &[Tree]) -> usize {
    block.iter().take_while(|tree| matches!(tree, Tree::Local(_))).count()
}

/// The body of the loop of a variable that has the last leaf of a nest.
fn block_of<'t>(trees: &'t mut [Tree], var: Sym, nest: &str) -> Option<&'t mut Vec<Tree>> {
    let stores = |part: Part| matches!(part, Part::Whole | Part::Final);
    let has_leaf = |tree: &Tree| {
        let mut has_leaf = false;
        tree.each_leaf(&mut |leaf| has_leaf |= leaf.nest == nest && stores(leaf.part));
        has_leaf
    };
    let tree = trees.iter_mut().find(|tree| has_leaf(tree))?;
    let is_there = matches!(tree, Tree::Loop { axis, .. } if axis.var == var);
    let mut blocks = tree.blocks_mut().into_iter();
    if is_there { blocks.next() } else { blocks.find_map(|block| block_of(block, var, nest)) }
}

/// The nest at that position; groups of nests hold nothing else.
fn nest(loops: &Loops, stmt: usize) -> &Nest {
    match &loops.stmts[stmt] {
        Stmt::Nest(n) => n,
        other @ (Stmt::Extern(_) | Stmt::Recurrence(_)) => {
            unreachable!("invariant: {} is no nest", other.name())
        }
    }
}
