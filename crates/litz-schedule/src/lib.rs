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
mod context;
pub mod cost;
mod cpu;
mod cut;
mod draft;
mod fuse;
mod gpu;
mod group;
mod heuristics;
mod in_order;
mod join;
mod launches;
mod memory;
mod nests;
mod no_fuse;
mod order;
mod pressure;
mod region;
mod remainders;
mod reuse;
mod routine;
mod scatter;
mod spaces;

use alike::Alike;
use context::Cx;
use draft::{Draft, Machine, Planned};
use litz_analysis::Dependences;
use litz_ir::loops::{Buf, Loops, Nest, Stmt};
use litz_ir::parallel::parallel;
use litz_ir::schedule::{
    Holds, KernelPlan, Layout, Local, LocalSpace, Part, Reuse, Schedule, ScheduleStep, Tree,
};
use litz_ir::target::Target;
use litz_sym::Sym;
use nests::Nests;
use reuse::Pair;
use spaces::Names;
use std::collections::BTreeSet;

pub use heuristics::{Heuristics, MemoryPool, ReorderAxes};
pub use no_fuse::NoFuse;

/// Elements of a cache line of 32-bit numbers: rows of scratch memory take an odd number of them.
const LINE: u32 = 16;

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
    /// Where memory is why they do not share one, bytes by which that in use at once would grow; else 0. There is one such note for each
    /// consumer, however many kernels it could have shared.
    pub growth: i64,
}

/// A schedule and how it came about.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The decision.
    pub schedule: Schedule,
    /// Every fusion considered.
    pub notes: Vec<FusionNote>,
    /// The names of the statements of each kernel or call, as they were put together, before they got their order and some shared
    /// launches.
    pub groups: Vec<Vec<String>>,
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
    /// Nests whose kernels share no launch with others.
    pub alone: &'a BTreeSet<String>,
    /// Nests that join no kernel of what comes before them: each begins one.
    pub apart: &'a BTreeSet<String>,
    /// Threads that plan kernels: what they decide does not depend on their number.
    pub threads: usize,
}

impl<'a> Request<'a> {
    /// A request to do as the scheduler decides, on one thread.
    pub fn new(target: &'a Target, heuristics: &'a Heuristics) -> Request<'a> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        Request { target, heuristics, in_order: &NONE, alone: &NONE, apart: &NONE, threads: 1 }
    }
}

/// Schedules `loops`, a program that verifies, for `target`. The same input always gives the same schedule.
pub fn schedule(loops: &Loops, target: &Target, heuristics: &Heuristics) -> Outcome {
    schedule_as(loops, &Request::new(target, heuristics))
}

/// As [`schedule`], for a request. Functions of the program are left to be scheduled one by one.
pub fn schedule_as(loops: &Loops, request: &Request<'_>) -> Outcome {
    let Request { target, heuristics, in_order, alone, apart, threads } = *request;
    let machine: &dyn Machine = match target {
        Target::Cpu(_) => &cpu::Cpus,
        Target::Gpu(_) => &gpu::Gpus,
    };
    let (flat, mut regions) = loops.flat();
    let flat = axes::simplified(flat);
    regions.iter_mut().for_each(|region| axes::simplify(&mut region.over, &loops.facts));
    let loops = &*flat;
    let deps = Dependences::of(loops, &regions);
    let mut cx = Cx::new(loops, &deps, target, heuristics, [in_order, alone]);
    cx.find_contractions(|cx, nest| machine.contraction(cx, nest));
    let (drafts, notes) = fuse::fuse(&cx, machine, &regions, apart);
    let name = |stmt: usize| loops.stmts[stmt].name().to_owned();
    let groups = drafts.iter().map(|draft| draft.stmts().into_iter().map(name).collect()).collect();
    let names = Names::of(loops);
    let alike = Alike::of(loops, &deps, &drafts);
    let first = parallel(threads, alike.first.len(), |at| plan(&cx, &drafts[alike.first[at]], &names));
    let item = |at: usize| alike.item(loops, &drafts, at, &first[alike.place[at]]);
    let items = (0..drafts.len()).map(item).collect();
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
    let mode = heuristics.memory_pool;
    let reuses = match mode {
        MemoryPool::None => Vec::new(),
        MemoryPool::Intermediates | MemoryPool::Combined => reuse::choose(&deps, &planned),
    };
    let pools = memory::pools(loops, &deps, &steps, &reuses, mode);
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
    Outcome { schedule, notes, groups }
}

/// Adds to a plan what its loops and leaves imply: loops end where their leaves do, accumulators are declared and
/// initialized, and leaves that may come to points past the end of an axis are masked.
pub fn finish(plan: &mut KernelPlan, loops: &Loops) {
    finish_with(plan, &Nests::of(loops, 0..loops.stmts.len()), loops);
}

/// Moves what registers of the target do not hold to scratch memory, and what is a single element to registers.
pub fn choose_spaces(plan: &mut KernelPlan, loops: &Loops, target: &Target) {
    spaces::choose(plan, &Names::of(loops), target);
}

fn finish_with(plan: &mut KernelPlan, nests: &Nests<'_>, loops: &Loops) {
    remainders::end_loops(plan, nests, &loops.facts);
    accumulators::place(plan, nests);
    remainders::mask(plan, nests, loops);
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

/// Plans a draft, without a name.
fn plan(cx: &Cx<'_>, draft: &Draft, names: &Names<'_>) -> Item {
    let &Cx { loops, deps, target, .. } = cx;
    let (stmts, at_load, traits) = (draft.stmts(), draft.at_load, draft.family.traits());
    // What combines with what is stored would not know that the other kernels of a launch store elsewhere.
    let may_share_launch = traits.shares_launch && !stmts.iter().any(|&stmt| deps.stmts[stmt].is_scatter);
    let Some(Planned { mut kernel, scope, is_whole }) = draft.family.plan(cx, &draft.group) else {
        return Item { stmts, at_load, may_share_launch, kernel: None, overwrites: Vec::new() };
    };
    kernel.at_load = at_load;
    if traits.passes_on && !is_whole {
        declare_locals(&mut kernel, loops, deps, draft, scope);
    }
    let nests = Nests::of(loops, draft.stmts());
    match is_whole {
        true => remainders::mask(&mut kernel, &nests, loops),
        false => {
            finish_with(&mut kernel, &nests, loops);
            spaces::choose(&mut kernel, names, target);
        }
    }
    let overwrites = match at_load || !traits.overwrites {
        true => Vec::new(),
        false => reuse::candidates(loops, deps, &stmts, &kernel),
    };
    Item { stmts, at_load, may_share_launch, kernel: Some(kernel), overwrites }
}

/// Declares the buffers that only this draft's members touch, which live for a point of the grid or for an iteration of the
/// loop `scope`.
fn declare_locals(
    plan: &mut KernelPlan,
    loops: &Loops,
    deps: &Dependences,
    draft: &Draft,
    scope: Option<Sym>,
) {
    let members = &draft.group.members;
    let is_inside = |s: &usize| members.iter().any(|m| m.stmt == *s);
    let mut declared: Vec<&str> = Vec::new();
    for member in members {
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
