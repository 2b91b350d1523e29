//! Verifies a schedule: reports where it would run something else than its loops program says, or cannot be proved not to.

mod accumulators;
mod blocks;
mod branches;
mod capacity;
mod collisions;
mod coverage;
mod dependences;
mod divisors;
mod example;
mod groups;
mod intervals;
mod levels;
mod means;
mod memory;
mod order;
mod pipelines;
mod points;
mod problem;
mod proofs;
mod recomputed;
mod reuse;
mod shifted;

pub use problem::{Problem, Site, Within};

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use litz_sym::{Expr, Rel, Sym};

use crate::copies::with_copies;
use crate::inside::longest;
use crate::results::with_results;
use coverage::Bound;
use litz_ir::diag::{Diag, Diags};
use litz_ir::graph::Queue;
use litz_ir::loops::{Axis, Buf, Loops, Span, Stmt};
use litz_ir::schedule::{
    Block, KernelPlan, Leaf, Local, LocalSpace, LoopKind, Means, Part, Schedule, ScheduleStep, Tree,
};
use litz_ir::target::{Gpu, Level, Persistent, Target};
use litz_ir::text::schedule::Positions;
use litz_ir::verify::Report;
use problem::Sites;
use proofs::Proofs;
use shifted::unshifted;

/// What is wrong with a schedule of `loops`, a program that verifies.
///
/// Loops are proved to take each point of a nest once, see `coverage.rs`, and those of the two bodies of an `if` together, see
/// `branches.rs`. The last part of a statement that writes a buffer comes before the first part of a later one that uses it in the text, and
/// in the iterations of loops that both share it is proved to come first as well, see `dependences.rs`.
///
/// A nest that stores to local buffers alone may compute elements several times, or not at all: then each load of them is proved
/// to find its element written, see `recomputed.rs`. So are loads of copies. What memory of a kernel holds fits where it is, see
/// `capacity.rs`.
///
/// Slugs: `wrong-program`, `duplicate-name`, `duplicate-symbol`, `undeclared-symbol`, `negative-size`, `zero-divisor`, `zero-grain`,
/// `zero-lanes`, `wrong-lanes`, `no-instruction`, `wrong-level`, `level-order`, `level-width`, `no-pipeline`, `no-box`, `foreign-memory`, `symbolic-unroll`, `unknown-nest`, `unknown-statement`, `wrong-part`, `duplicate-leaf`,
/// `missing-nest`, `missing-part`, `split-nest`, `unknown-axis`, `unbound-axis`, `axis-coverage`, `unmasked-point`, `repeated-leaf`,
/// `statement-order`, `dependence`, `missing-accumulator`, `accumulator-scope`, `accumulator-point`, `merge-kind`, `merge-level`,
/// `shared-reduction`, `region-order`, `load-order`,
/// `unwritten-element`, `copied-buffer`, `unknown-load`, `unknown-buffer`, `local-escapes`, `local-scope`, `wrong-space`, `wrong-layout`, `placed-twice`, `pool-memory`, `pool-overflow`,
/// `shared-memory`, `reuse-escapes`, `reuse-type`, `reuse-life`, `reuse-points`, `stream`, `unordered-store`, `unordered-scan`,
/// `block-store`, `block-coverage`, `pool-life`, `device`.
pub fn verify(schedule: &Schedule, loops: &Loops) -> Diags {
    let mut diags: Diags = problems(schedule, loops).into_iter().map(|problem| problem.diag).collect();
    diags.extend(missing_functions(schedule, loops));
    diags.extend(functions(schedule, loops).flat_map(|(schedule, loops)| verify(schedule, loops)));
    diags
}

/// Schedules of functions, with these.
fn functions<'a>(
    schedule: &'a Schedule,
    loops: &'a Loops,
) -> impl Iterator<Item = (&'a Schedule, &'a Loops)> {
    schedule.functions.iter().zip(&loops.functions)
}

/// Each function has a schedule, in order.
fn missing_functions(schedule: &Schedule, loops: &Loops) -> Diags {
    let (expected, found) = (loops.functions.len(), schedule.functions.len());
    let message = format!("expected schedules of {expected} functions, found {found}");
    if expected == found { Diags::new() } else { vec![Diag::new("wrong-program", message)] }
}

/// As [`verify`], with lines and columns of the text that the schedule was read from.
pub fn verify_text(schedule: &Schedule, positions: &Positions, loops: &Loops) -> Diags {
    let own = problems(schedule, loops).into_iter().map(|problem| problem.at(positions));
    let mut diags: Diags = own.collect();
    diags.extend(missing_functions(schedule, loops));
    for ((schedule, loops), positions) in functions(schedule, loops).zip(&positions.functions) {
        diags.extend(verify_text(schedule, positions, loops));
    }
    diags
}

/// Whether a statement runs once for each point of a region's axis.
fn has_axis(loops: &Loops, at: usize, region: &Span) -> bool {
    let mut axes = loops.stmts[at].nests().iter().flat_map(|nest| nest.all_axes());
    axes.any(|axis| axis.var == region.over.var)
}

/// As [`verify`], with the places of problems, without those of functions.
pub fn problems(schedule: &Schedule, loops: &Loops) -> Vec<Problem> {
    let loops = with_results(loops, schedule);
    let (flat, spans) = loops.flat();
    let first_copy = flat.stmts.len();
    let flat = with_copies(flat, schedule);
    let loops = &*flat;
    let stmts = loops.stmts.iter().enumerate().map(|(at, stmt)| (stmt.name(), at)).collect();
    let bufs = loops.bufs.iter().map(|(buf, data)| (&*data.name, buf)).collect();
    let placed = vec![Vec::new(); loops.stmts.len()];
    let (mut users, mut writers): (HashMap<Buf, Vec<usize>>, HashMap<Buf, Vec<usize>>) = Default::default();
    for (at, stmt) in loops.stmts.iter().enumerate() {
        let written = stmt.writes();
        for &buf in stmt.reads().iter().chain(&written) {
            users.entry(buf).or_default().push(at);
        }
        for buf in written {
            writers.entry(buf).or_default().push(at);
        }
    }
    let mut verifier = Verifier {
        report: Report::new(&loops.facts),
        sites: Sites::default(),
        schedule,
        loops,
        stmts,
        bufs,
        users,
        writers,
        path: Vec::new(),
        sides: Vec::new(),
        visible: Vec::new(),
        locals: Vec::new(),
        loops_seen: 0,
        leaves_ahead: 0,
        has_clusters: false,
        leaves_seen: 0,
        bound: Vec::new(),
        branches_seen: 0,
        has_wrong_loops: false,
        accumulating: placed.clone(),
        placed,
        count: 0,
        repeated: spans.iter().flat_map(|span| span.stmts.clone()).collect(),
        iterated: spans
            .iter()
            .flat_map(|span| span.stmts.clone().filter(|&at| has_axis(loops, at, span)))
            .collect(),
        first_copy,
        recomputed: (first_copy..loops.stmts.len()).collect(),
        proofs: RefCell::default(),
        accesses: OnceCell::new(),
        leaves: OnceCell::new(),
    };
    verifier.run();
    spans.iter().for_each(|span| verifier.region(span));
    verifier.collisions(&spans);
    verifier.reuses(&spans);
    // Of points that are not those of the nests nothing can be proved.
    if verifier.report.diags.is_empty() {
        verifier.dependences(&spans);
        verifier.unwritten_elements();
        verifier.private_memories();
        verifier.pipelines();
        verifier.operands();
        verifier.capacities();
    }
    verifier.sites.of(verifier.report.diags)
}

/// One occurrence of a statement, or of a part of one, in the schedule: the same statement may run in several places.
#[derive(Clone)]
struct Occurrence {
    /// Position among all occurrences, in the order of the text.
    at: usize,
    /// Position of the step.
    step: usize,
    /// Number of the leaf among all of the schedule, if it is one.
    leaf: Option<usize>,
    part: Part,
    /// The loops around, outermost first.
    path: Vec<Around>,
    /// The bodies of `if`s around, outermost first.
    sides: Vec<Side>,
    /// Loops around that run it in an interval of their iterations alone: as short as that is, with the first one.
    intervals: Vec<(Axis, Expr)>,
    /// The value of each axis.
    bind: Vec<(Sym, Expr)>,
    /// The same without what moves axes as a whole, by the loops of others: what loops count of each.
    counted: Vec<(Sym, Expr)>,
    /// Whether points past the ends of axes are left out.
    masked: bool,
    /// The block of its buffer that it stores to at a time, if it does.
    block: Option<Block>,
    /// By what its points are done, if the schedule says so.
    by: Option<Means>,
    /// The memories that are declared around, outermost first.
    visible: Rc<[Declared]>,
}

/// One of the two bodies of an `if`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Side {
    /// Position of the `if` among all, in the order of the text.
    number: usize,
    /// How many of the loops around the place are around the `if`.
    loops: usize,
    /// What holds in the body.
    cond: Rel,
    /// It is the body for where the condition of the `if` does not hold.
    is_other: bool,
}

/// Memory of a kernel that is declared around a place.
#[derive(Clone, Copy)]
struct Declared {
    /// Position among all, in the order of the text.
    number: usize,
    /// How many of the loops around the place are around the declaration.
    loops: usize,
}

/// A loop around a place.
#[derive(Clone, Copy)]
struct Around {
    /// Position among all loops, in the order of the text.
    number: usize,
    /// `None`: of the grid.
    kind: Option<LoopKind>,
    axis: Axis,
}

impl Occurrence {
    fn site(&self) -> Option<Site> {
        Some(Site { step: self.step, within: self.leaf.map(Within::Leaf) })
    }

    fn value(&self, axis: Sym) -> Option<Expr> {
        self.bind.iter().find(|bind| bind.0 == axis).map(|bind| bind.1)
    }

    /// Which iterations of a loop around it run: the first one, and how many.
    fn iterations(&self, axis: Axis) -> (Expr, Expr) {
        let own = self.intervals.iter().find(|interval| interval.0.var == axis.var);
        own.map_or((Expr::zero(), axis.extent), |(narrowed, first)| (*first, narrowed.extent))
    }

    /// The loops around both this place and another, outermost first.
    fn shared_loops(&self, other: &Occurrence) -> &[Around] {
        let both = self.path.iter().zip(&other.path).take_while(|(a, b)| a.number == b.number);
        &self.path[..both.count()]
    }

    /// Whether another place is in the other body of an `if` around this one: in one iteration of the loops around that, only
    /// one of them runs.
    fn excludes(&self, other: &Occurrence) -> bool {
        self.excludes_within(self.path.len(), other)
    }

    /// As [`Occurrence::excludes`], by an `if` that at most so many loops are around: whatever iteration of further ones it is.
    fn excludes_within(&self, loops: usize, other: &Occurrence) -> bool {
        let pairs = self.sides.iter().zip(&other.sides).take_while(|(a, b)| a.number == b.number);
        pairs.into_iter().any(|(a, b)| a.is_other != b.is_other && a.loops <= loops)
    }
}

struct Verifier<'a> {
    report: Report,
    sites: Sites,
    schedule: &'a Schedule,
    loops: &'a Loops,
    stmts: HashMap<&'a str, usize>,
    bufs: HashMap<&'a str, Buf>,
    /// Statements that read or write each buffer; one that does both is there twice.
    users: HashMap<Buf, Vec<usize>>,
    /// Statements that write each buffer, in order.
    writers: HashMap<Buf, Vec<usize>>,
    /// The loops around, outermost first.
    path: Vec<Around>,
    /// The bodies of `if`s around, outermost first.
    sides: Vec<Side>,
    /// The memories that are declared around, outermost first.
    visible: Vec<Declared>,
    /// All memories of kernels that were declared so far, with the position of the step.
    locals: Vec<(&'a Local, usize)>,
    /// How many loops there were so far.
    loops_seen: usize,
    /// How many leaves there were ahead of the kernel.
    leaves_ahead: usize,
    /// Blocks of clusters run the kernel.
    has_clusters: bool,
    /// How many leaves there were so far.
    leaves_seen: usize,
    /// For each of them, whether it gives each axis of its nest a value.
    bound: Vec<bool>,
    /// How many `if`s there were so far.
    branches_seen: usize,
    /// A loop of the kernel was reported: what its iterations are, nobody knows.
    has_wrong_loops: bool,
    /// Where instructions of each statement of the program run.
    placed: Vec<Vec<Occurrence>>,
    /// Where the accumulators of each are initialized and merged.
    accumulating: Vec<Vec<Occurrence>>,
    count: usize,
    /// The statements of regions.
    repeated: HashSet<usize>,
    /// Those of them that run once for each point of the region's axis.
    iterated: HashSet<usize>,
    /// Position of the first statement that makes a copy: these are the last ones.
    first_copy: usize,
    /// Statements that may compute an element several times, or not at all.
    recomputed: HashSet<usize>,
    proofs: RefCell<Proofs<'a>>,
    /// Of each memory that holds a buffer its accesses, once all leaves are placed: statement, place and instruction.
    accesses: OnceCell<HashMap<usize, Vec<[usize; 3]>>>,
    /// Of each loop around leaves, the first of them and the last, once all leaves are placed.
    leaves: OnceCell<HashMap<usize, (usize, usize)>>,
}

impl<'a> Verifier<'a> {
    /// The statements that write a buffer, in order.
    fn writers_of(&self, buf: Buf) -> &[usize] {
        self.writers.get(&buf).map_or(&[], Vec::as_slice)
    }

    fn run(&mut self) {
        let (schedule, loops) = (self.schedule, self.loops);
        let message = format_args!("expected a schedule of @{}, found one of @{}", loops.name, schedule.of);
        self.report.check(schedule.of == loops.name, "wrong-program", message);
        let names = schedule.steps.iter().filter_map(|step| match step {
            ScheduleStep::Kernel(plan) => Some(&*plan.name),
            ScheduleStep::Extern { .. } => None,
        });
        self.report.unique(names, "kernels");
        self.report.unique(schedule.pools.iter().map(|pool| &*pool.name), "pools");
        let mut is_loading = true;
        for (at, step) in schedule.steps.iter().enumerate() {
            let message = format_args!("`{}` runs at load, but an earlier step does not", step.name());
            self.report.check(is_loading || !step.at_load(), "load-order", message);
            is_loading &= step.at_load();
            match step {
                ScheduleStep::Kernel(plan) => self.kernel(plan, at),
                ScheduleStep::Extern { name, .. } => self.call(name, at),
            }
            self.note(Some(Site { step: at, within: None }));
        }
        self.locals();
        self.divided_points();
        self.completeness();
        self.reductions();
        self.accumulators();
        self.order();
        self.load_inputs();
        self.note(None);
        let found = self.report.diags.len();
        self.placements();
        if self.report.diags.len() == found {
            self.shared_memory();
        }
    }

    fn call(&mut self, name: &str, step: usize) {
        let stmt = self.stmts.get(name).copied();
        let Some(stmt) = stmt.filter(|&stmt| matches!(self.loops.stmts[stmt], Stmt::Extern(_))) else {
            let message = format_args!("`{name}` is no extern statement of @{}", self.loops.name);
            return self.report.fail("unknown-statement", message);
        };
        let whole = Leaf {
            nest: name.to_owned(),
            part: Part::Whole,
            bind: Vec::new(),
            masked: false,
            block: None,
            by: None,
        };
        self.place(stmt, (step, None), &whole);
    }

    /// Notes where all problems are that were reported since the last note.
    fn note(&mut self, site: Option<Site>) {
        self.sites.note(&self.report.diags, site);
    }

    /// Reports problems of one kind, each with its place.
    fn fail_all(&mut self, slug: &'static str, problems: Vec<(String, Option<Site>)>) {
        for (problem, site) in problems {
            self.report.fail(slug, problem);
            self.note(site);
        }
    }

    /// What loops count of the axes of a leaf. Where points before the first are left out, loops of other axes may move one.
    fn counted(&self, leaf: &Leaf) -> Vec<(Sym, Expr)> {
        if !leaf.masked {
            return leaf.bind.clone();
        }
        let bound = |&(axis, value): &(Sym, Expr)| Bound { axis, extent: Expr::one(), value };
        let bound: Vec<Bound> = leaf.bind.iter().map(bound).collect();
        let loops: Vec<Axis> = self.path.iter().map(|around| around.axis).collect();
        unshifted(&bound, &loops, &self.loops.facts).iter().map(|bound| (bound.axis, bound.value)).collect()
    }

    /// `number` is that of the leaf among all of the schedule.
    fn place(&mut self, stmt: usize, (step, number): (usize, Option<usize>), leaf: &Leaf) {
        let Leaf { part, masked, block, by, .. } = *leaf;
        let place = Occurrence {
            at: self.count,
            step,
            leaf: number,
            part,
            path: self.path.clone(),
            sides: self.sides.clone(),
            intervals: Vec::new(),
            bind: leaf.bind.clone(),
            counted: self.counted(leaf),
            masked,
            block,
            by,
            visible: self.visible.as_slice().into(),
        };
        let depth = |place: &Occurrence| self.scopes(stmt, place).len();
        let places = if part.runs_instructions() { &self.placed[stmt] } else { &self.accumulating[stmt] };
        // Accumulators are initialized and merged once in each of their scopes.
        let is_again = |other: &Occurrence| {
            other.part == part
                && (part.runs_instructions() || depth(other) == depth(&place))
                && !other.excludes(&place)
        };
        let is_first = !places.iter().any(is_again);
        let is_again = !is_first && self.may_recompute(stmt, &place.visible);
        self.recomputed.extend(is_again.then_some(stmt));
        let places =
            if part.runs_instructions() { &mut self.placed[stmt] } else { &mut self.accumulating[stmt] };
        places.push(place);
        let message = format_args!("`{}` runs twice", self.loops.stmts[stmt].name());
        self.report.check(is_first || is_again, "duplicate-leaf", message);
        self.count += 1;
    }

    fn kernel(&mut self, plan: &'a KernelPlan, step: usize) {
        let message = format_args!("`{}`: a thread takes at least one grid point at a time", plan.name);
        self.report.check(plan.grain > 0, "zero-grain", message);
        let message = format_args!("`{}`: expected at least one of a GPU's blocks for all points", plan.name);
        let has_blocks = matches!(self.schedule.target, Target::Gpu(_));
        let is_form = plan.persistent.is_none_or(|stays| stays.blocks > 0 && has_blocks);
        self.report.check(is_form, "zero-grain", message);
        let most = Persistent::MOST_TEAMS;
        let message = format_args!("`{}`: expected 1 to {most} teams of a block", plan.name);
        let is_form = plan.persistent.is_none_or(|stays| (1..=most).contains(&stays.teams));
        self.report.check(is_form, "zero-grain", message);
        if let Some(registers) = plan.registers {
            let most = Gpu::REGISTERS;
            let message = format_args!(
                "`{}`: expected 1 to {most} registers of a GPU's thread, found {registers}",
                plan.name
            );
            self.report.check(has_blocks && (1..=most).contains(&registers), "wrong-space", message);
        }
        let before = self.report.diags.len();
        for axis in &plan.grid {
            self.report.extent(axis.extent, format_args!("`{}`, grid axis {}", plan.name, axis.var));
            self.divisors(axis.extent, format_args!("`{}`, grid axis {}", plan.name, axis.var));
        }
        let mark = self.report.enter();
        for &axis in &plan.grid {
            self.report.declare(axis.var);
            self.step_into(None, axis);
        }
        self.has_wrong_loops = self.report.diags.len() > before;
        self.note(Some(Site { step, within: None }));
        self.leaves_ahead = self.leaves_seen;
        self.has_clusters = plan.locals().iter().any(|local| local.space == LocalSpace::Cluster);
        self.block_of(&plan.body, step);
        self.path.clear();
        self.report.leave(mark);
        let loops = self.loops;
        let stmts = plan.nests().into_iter().filter_map(|name| self.stmts.get(name));
        let nests = stmts.flat_map(|&stmt| loops.stmts[stmt].nests());
        let queues: Vec<(&str, Queue)> =
            nests.map(|nest| (&*nest.name, loops.queue_of(&nest.body))).collect();
        let devices = queues.iter().map(|&(name, queue)| (name, queue.device));
        self.report.one_device(devices, format_args!("`{}`", plan.name));
        let is_one = queues.windows(2).all(|pair| pair[0].1.stream == pair[1].1.stream);
        let message = format_args!("`{}`: its nests are on several streams", plan.name);
        self.report.check(is_one, "stream", message);
    }

    /// Trees that run in order.
    fn block_of(&mut self, trees: &'a [Tree], step: usize) {
        let visible = self.visible.len();
        trees.iter().for_each(|tree| self.tree(tree, step));
        self.visible.truncate(visible);
    }

    fn step_into(&mut self, kind: Option<LoopKind>, axis: Axis) {
        self.path.push(Around { number: self.loops_seen, kind, axis });
        self.loops_seen += 1;
    }

    fn tree(&mut self, tree: &'a Tree, step: usize) {
        let (kind, axis, body) = match tree {
            Tree::Leaf(leaf) => {
                let number = self.leaves_seen;
                self.leaves_seen += 1;
                self.bound.push(false);
                self.leaf(leaf, (step, number));
                return self.note(Some(Site { step, within: Some(Within::Leaf(number)) }));
            }
            Tree::Local(local) => {
                self.declare(local);
                self.note(Some(Site { step, within: Some(Within::Local(self.locals.len())) }));
                self.visible.push(Declared { number: self.locals.len(), loops: self.path.len() });
                return self.locals.push((local, step));
            }
            Tree::If { cond, then, other } => return self.either(*cond, [then, other], step),
            Tree::Loop { kind, axis, body } => (kind, axis, body),
        };
        let before = self.report.diags.len();
        self.report.extent(axis.extent, format_args!("loop {}", axis.var));
        self.divisors(axis.extent, format_args!("loop {}", axis.var));
        let is_constant = axis.extent.as_int().is_some();
        let (fits, is_wide) = match kind {
            LoopKind::For | LoopKind::Pipeline { .. } | LoopKind::Level(_) | LoopKind::Chain => (true, true),
            LoopKind::Unroll => (is_constant, true),
            // Of what an instruction takes together, the last may be fewer.
            LoopKind::Mma => (longest(axis.extent).as_int().is_some(), true),
            LoopKind::Vector { lanes, copies } => (true, *lanes > 0 && *copies > 0),
        };
        let message = format_args!("loop {}: expected a constant extent, found {}", axis.var, axis.extent);
        self.report.check(fits, "symbolic-unroll", message);
        let message = format_args!("loop {}: expected at least one lane and one copy", axis.var);
        self.report.check(is_wide, "zero-lanes", message);
        match kind {
            LoopKind::Level(team) => self.level(*team, *axis),
            LoopKind::Chain => self.level(Level::Block.into(), *axis),
            LoopKind::Vector { lanes, .. } => self.lanes(*lanes, axis.var),
            LoopKind::Pipeline { buffers } => self.pipeline(*axis, *buffers),
            LoopKind::For | LoopKind::Unroll | LoopKind::Mma => {}
        }
        let mark = self.report.enter();
        self.report.declare(axis.var);
        self.has_wrong_loops |= self.report.diags.len() > before;
        self.note(Some(Site { step, within: Some(Within::Loop(self.loops_seen)) }));
        self.step_into(Some(*kind), *axis);
        self.block_of(body, step);
        self.path.pop();
        self.report.leave(mark);
    }

    /// The bodies of an `if`.
    fn either(&mut self, cond: Rel, bodies: [&'a [Tree]; 2], step: usize) {
        for side in [cond.lhs, cond.rhs] {
            self.report.expr(side, format_args!("condition {cond}"));
            self.divisors(side, format_args!("condition {cond}"));
        }
        self.note(Some(Site { step, within: None }));
        let number = self.branches_seen;
        self.branches_seen += 1;
        for (body, is_other) in bodies.into_iter().zip([false, true]) {
            let cond = if is_other { cond.negate() } else { cond };
            self.sides.push(Side { number, loops: self.path.len(), cond, is_other });
            self.block_of(body, step);
            self.sides.pop();
        }
    }

    /// Vectors are of a power of two of elements, and at most as long as the target's would be of bytes.
    fn lanes(&mut self, lanes: u32, var: Sym) {
        let most = match self.schedule.target {
            Target::Cpu(cpu) => cpu.isa.vector_bytes(),
            Target::Gpu(_) => Gpu::VECTOR_BYTES,
        };
        // No lanes at all are reported already.
        let fits = lanes == 0 || lanes <= most && lanes.is_power_of_two();
        let message =
            format_args!("loop {var}: expected a power of two of at most {most} lanes, found {lanes}");
        self.report.check(fits, "wrong-lanes", message);
    }

    fn leaf(&mut self, leaf: &Leaf, (step, number): (usize, usize)) {
        let name = &leaf.nest;
        let stmt = self.stmts.get(&**name).copied();
        let Some((stmt, Stmt::Nest(nest))) = stmt.map(|stmt| (stmt, &self.loops.stmts[stmt])) else {
            let message = format_args!("`{name}` is no nest of @{}", self.loops.name);
            return self.report.fail("unknown-nest", message);
        };
        let message = match leaf.part {
            Part::Whole => format!("`{name}` reduces: expected {name}.init, {name}.update and {name}.final"),
            Part::Update | Part::Final => format!("`{name}` reduces nothing: expected it whole"),
            Part::Init | Part::Merge => format!("`{name}` has no accumulators: it neither reduces nor scans"),
        };
        let fits = match leaf.part {
            Part::Whole => !nest.reduces(),
            Part::Update | Part::Final => nest.reduces(),
            Part::Init | Part::Merge => nest.accumulates(),
        };
        self.report.check(fits, "wrong-part", message);
        self.instruction(nest, leaf);
        self.place(stmt, (step, Some(number)), leaf);
        self.bound[number] = self.bindings(leaf, nest, stmt);
        for (axis, value) in &leaf.bind {
            self.divisors(*value, format_args!("`{name}`, axis {axis}"));
        }
        if let Some(block) = leaf.block {
            self.block(block, leaf, nest, step);
        }
    }

    /// For each statement, whether a result depends on it, or something that runs.
    fn needed_statements(&self) -> Vec<bool> {
        let mut needed = self.loops.live_statements();
        let mut wanted: HashSet<Buf> = HashSet::new();
        for ((stmt, places), needed) in self.loops.stmts.iter().zip(&self.placed).zip(&mut needed).rev() {
            *needed |= stmt.writes().iter().any(|buf| wanted.contains(buf));
            if *needed || !places.is_empty() {
                wanted.extend(stmt.reads());
            }
        }
        needed
    }

    /// Every statement that something depends on runs, and wholly, within one step.
    fn completeness(&mut self) {
        let needed = self.needed_statements();
        for (at, (stmt, is_needed)) in self.loops.stmts.iter().zip(needed).enumerate() {
            let places = &self.placed[at];
            self.sites.note(&self.report.diags, None);
            let name = stmt.name();
            let reduces = matches!(stmt, Stmt::Nest(nest) if nest.reduces());
            let has = |part: Part| places.iter().any(|place| place.part == part);
            if places.is_empty() {
                self.report.check(!is_needed, "missing-nest", format_args!("`{name}` runs nowhere"));
            } else if reduces && has(Part::Update) != has(Part::Final) {
                let missing = if has(Part::Update) { "final" } else { "update" };
                self.report.fail("missing-part", format_args!("`{name}.{missing}` runs nowhere"));
            }
            // A reduction that runs again runs as a whole.
            if self.recomputed.contains(&at) && !reduces {
                continue;
            }
            let is_together = places.windows(2).all(|pair| pair[0].step == pair[1].step);
            self.report.check(
                is_together,
                "split-nest",
                format_args!("the parts of `{name}` are in two kernels"),
            );
            let in_order = places.iter().enumerate().all(|(at, place)| {
                places[at + 1..].iter().all(|later| place.part <= later.part || place.excludes(later))
            });
            self.report.check(
                in_order,
                "statement-order",
                format_args!("`{name}.final` runs before its update"),
            );
            self.sites.note(&self.report.diags, places.last().and_then(Occurrence::site));
        }
    }
}
