//! Verifies a schedule: reports where it would run something else than its loops program says, or cannot be proved not to.

mod accumulators;
mod blocks;
mod collisions;
mod coverage;
mod dependences;
mod example;
mod memory;
mod points;
mod problem;
mod proofs;
mod reuse;

pub use problem::{Problem, Site, Within};

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use litz_sym::{Expr, Sym};

use accumulators::Scope;
use litz_ir::diag::Diags;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, BufKind, Loops, Span, Stmt};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Schedule, Step, Tree};
use litz_ir::target::Target;
use litz_ir::text::schedule::Positions;
use litz_ir::verify::Report;
use problem::Sites;
use proofs::Proofs;

/// What is wrong with a schedule of `loops`, a program that verifies.
///
/// Loops are proved to take each point of a nest once, see `coverage.rs`. The last part of a statement that writes a buffer comes before the first part of a later one that uses it in the text, and
/// in the iterations of loops that both share it is proved to come first as well, see `dependences.rs`.
///
/// Slugs: `wrong-program`, `duplicate-name`, `duplicate-symbol`, `undeclared-symbol`, `negative-size`, `zero-grain`,
/// `zero-lanes`, `wrong-lanes`, `symbolic-unroll`, `unknown-nest`, `unknown-statement`, `wrong-part`, `duplicate-leaf`,
/// `missing-nest`, `missing-part`, `split-nest`, `unknown-axis`, `unbound-axis`, `axis-coverage`, `repeated-leaf`,
/// `statement-order`, `dependence`, `missing-accumulator`, `accumulator-scope`, `accumulator-point`, `merge-kind`,
/// `shared-reduction`, `tile-remainder`, `region-order`, `load-order`,
/// `unknown-buffer`, `local-escapes`, `unknown-scope`, `local-scope`, `wrong-space`, `placed-twice`, `pool-memory`, `pool-overflow`,
/// `shared-memory`, `reuse-escapes`, `reuse-type`, `reuse-life`, `reuse-points`, `unordered-store`, `unordered-scan`,
/// `block-store`, `block-coverage`, `pool-life`.
pub fn verify(schedule: &Schedule, loops: &Loops) -> Diags {
    problems(schedule, loops).into_iter().map(|problem| problem.diag).collect()
}

/// As [`verify`], with lines and columns of the text that the schedule was read from.
pub fn verify_text(schedule: &Schedule, positions: &Positions, loops: &Loops) -> Diags {
    problems(schedule, loops).into_iter().map(|problem| problem.at(positions)).collect()
}

/// As [`verify`], with the places of problems.
pub fn problems(schedule: &Schedule, loops: &Loops) -> Vec<Problem> {
    let (flat, spans) = loops.flat();
    let loops = &*flat;
    let stmts = loops.stmts.iter().enumerate().map(|(at, stmt)| (stmt.name(), at)).collect();
    let bufs = loops.bufs.iter().map(|(buf, data)| (&*data.name, buf)).collect();
    let placed = vec![Vec::new(); loops.stmts.len()];
    let mut users: HashMap<Buf, Vec<usize>> = HashMap::new();
    for (at, stmt) in loops.stmts.iter().enumerate() {
        for buf in stmt.reads().into_iter().chain(stmt.writes()) {
            users.entry(buf).or_default().push(at);
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
        path: Vec::new(),
        loops_seen: 0,
        leaves_seen: 0,
        has_wrong_loops: false,
        accumulating: placed.clone(),
        placed,
        plan: None,
        count: 0,
        proofs: RefCell::default(),
    };
    verifier.run();
    spans.iter().for_each(|span| verifier.region(span));
    verifier.collisions(&spans);
    verifier.reuses(&spans);
    // Of points that are not those of the nests nothing can be proved.
    if verifier.report.diags.is_empty() {
        verifier.dependences(&spans);
    }
    verifier.sites.of(verifier.report.diags)
}

/// One place where (a part of) a statement runs.
#[derive(Clone)]
struct Place {
    /// Position among all places, in the order of the text.
    at: usize,
    /// Position of the step.
    step: usize,
    /// Number of the leaf among all of the schedule, if it is one.
    leaf: Option<usize>,
    part: Part,
    /// The loops around, outermost first.
    path: Vec<Around>,
    /// The value of each axis.
    bind: Vec<(Sym, Expr)>,
    /// It stores to one block of its buffer at a time.
    is_block: bool,
    /// That of the accumulators that it touches, if any are declared around it.
    scope: Option<Scope>,
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

impl Place {
    fn site(&self) -> Option<Site> {
        Some(Site { step: self.step, within: self.leaf.map(Within::Leaf) })
    }

    fn value(&self, axis: Sym) -> Option<Expr> {
        self.bind.iter().find(|bind| bind.0 == axis).map(|bind| bind.1)
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
    /// The loops around, outermost first.
    path: Vec<Around>,
    /// How many loops there were so far.
    loops_seen: usize,
    /// How many leaves there were so far.
    leaves_seen: usize,
    /// A loop of the kernel was reported: what its iterations are, nobody knows.
    has_wrong_loops: bool,
    /// Where instructions of each statement of the program run.
    placed: Vec<Vec<Place>>,
    /// Where the accumulators of each are initialized and merged.
    accumulating: Vec<Vec<Place>>,
    /// The kernel that is looked at.
    plan: Option<&'a KernelPlan>,
    count: usize,
    proofs: RefCell<Proofs<'a>>,
}

impl<'a> Verifier<'a> {
    fn run(&mut self) {
        let (schedule, loops) = (self.schedule, self.loops);
        let message = format_args!("expected a schedule of @{}, found one of @{}", loops.name, schedule.of);
        self.report.check(schedule.of == loops.name, "wrong-program", message);
        let names = schedule.steps.iter().filter_map(|step| match step {
            Step::Kernel(plan) => Some(&*plan.name),
            Step::Extern { .. } => None,
        });
        self.report.unique(names, "kernels");
        self.report.unique(schedule.pools.iter().map(|pool| &*pool.name), "pools");
        let mut is_loading = true;
        let mut kernels = Vec::new();
        for (at, step) in schedule.steps.iter().enumerate() {
            let message = format_args!("`{}` runs at load, but an earlier step does not", step.name());
            self.report.check(is_loading || !step.at_load(), "load-order", message);
            is_loading &= step.at_load();
            match step {
                Step::Kernel(plan) => {
                    let loops = self.kernel(plan, at);
                    kernels.push((plan, at, loops));
                }
                Step::Extern { name, .. } => self.call(name, at),
            }
            self.note(Some(Site { step: at, within: None }));
        }
        for (plan, step, loops) in kernels {
            self.locals(plan, step, &loops);
            self.note(Some(Site { step, within: None }));
        }
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
        let whole = Leaf { nest: name.to_owned(), part: Part::Whole, bind: Vec::new(), block: None };
        self.place(stmt, (step, None), &whole);
    }

    /// Notes where all problems are that were reported since the last note.
    fn note(&mut self, site: Option<Site>) {
        self.sites.note(&self.report.diags, site);
    }

    /// `number` is that of the leaf among all of the schedule.
    fn place(&mut self, stmt: usize, (step, number): (usize, Option<usize>), leaf: &Leaf) {
        let Leaf { part, block, .. } = *leaf;
        let name = self.loops.stmts[stmt].name();
        let scope = self.scope_of(name);
        let places = match part.runs_instructions() {
            true => &mut self.placed[stmt],
            false => &mut self.accumulating[stmt],
        };
        // Accumulators are initialized and merged once in each of their scopes.
        let is_again =
            |place: &Place| place.part == part && (part.runs_instructions() || place.scope == scope);
        let is_first = !places.iter().any(is_again);
        let (path, bind) = (self.path.clone(), leaf.bind.clone());
        let is_block = block.is_some();
        places.push(Place { at: self.count, step, leaf: number, part, path, bind, is_block, scope });
        self.report.check(is_first, "duplicate-leaf", format_args!("`{name}` runs twice"));
        self.count += 1;
    }

    /// The innermost scope around of accumulators of the nest of that name.
    fn scope_of(&self, nest: &str) -> Option<Scope> {
        self.plan.and_then(|plan| accumulators::scopes(plan, nest, &self.path).pop())
    }

    /// Returns the variables of all loops.
    fn kernel(&mut self, plan: &'a KernelPlan, step: usize) -> HashSet<Sym> {
        self.plan = Some(plan);
        let message = format_args!("`{}`: a thread takes at least one grid point at a time", plan.name);
        self.report.check(plan.grain > 0, "zero-grain", message);
        let before = self.report.diags.len();
        for axis in &plan.grid {
            self.report.extent(axis.extent, format_args!("`{}`, grid axis {}", plan.name, axis.var));
        }
        let mark = self.report.enter();
        for &axis in &plan.grid {
            self.report.declare(axis.var);
            self.step_into(None, axis);
        }
        self.has_wrong_loops = self.report.diags.len() > before;
        self.note(Some(Site { step, within: None }));
        let mut loops: HashSet<Sym> = plan.grid.iter().map(|axis| axis.var).collect();
        for tree in &plan.body {
            self.tree(tree, step, &mut loops);
        }
        self.path.clear();
        self.plan = None;
        self.report.leave(mark);
        loops
    }

    fn step_into(&mut self, kind: Option<LoopKind>, axis: Axis) {
        self.path.push(Around { number: self.loops_seen, kind, axis });
        self.loops_seen += 1;
    }

    /// `loops` gathers the variables of all loops.
    fn tree(&mut self, tree: &Tree, step: usize, loops: &mut HashSet<Sym>) {
        let (kind, axis, body) = match tree {
            Tree::Leaf(leaf) => {
                let number = self.leaves_seen;
                self.leaves_seen += 1;
                self.leaf(leaf, (step, number));
                return self.note(Some(Site { step, within: Some(Within::Leaf(number)) }));
            }
            Tree::Loop { kind, axis, body } => (kind, axis, body),
        };
        let before = self.report.diags.len();
        self.report.extent(axis.extent, format_args!("loop {}", axis.var));
        let is_constant = axis.extent.as_int().is_some();
        let (fits, is_wide) = match kind {
            LoopKind::For | LoopKind::Thread | LoopKind::Warp => (true, true),
            LoopKind::Unroll | LoopKind::Tile | LoopKind::Mma => (is_constant, true),
            LoopKind::Vector { lanes, copies } => (true, *lanes > 0 && *copies > 0),
            LoopKind::TileVector { lanes } => (is_constant, *lanes > 0),
        };
        let message = format_args!("loop {}: expected a constant extent, found {}", axis.var, axis.extent);
        self.report.check(fits, "symbolic-unroll", message);
        let message = format_args!("loop {}: expected at least one lane and one copy", axis.var);
        self.report.check(is_wide, "zero-lanes", message);
        self.lanes(*kind, axis.var);
        let mark = self.report.enter();
        self.report.declare(axis.var);
        self.has_wrong_loops |= self.report.diags.len() > before;
        loops.insert(axis.var);
        self.note(Some(Site { step, within: Some(Within::Loop(self.loops_seen)) }));
        self.step_into(Some(*kind), *axis);
        for tree in body {
            self.tree(tree, step, loops);
        }
        self.path.pop();
        self.report.leave(mark);
    }

    /// Vectors are of a power of two of elements, and at most as long as the target's would be of bytes.
    fn lanes(&mut self, kind: LoopKind, var: Sym) {
        let lanes = match kind {
            LoopKind::Vector { lanes, .. } | LoopKind::TileVector { lanes } => lanes,
            LoopKind::For
            | LoopKind::Unroll
            | LoopKind::Tile
            | LoopKind::Thread
            | LoopKind::Warp
            | LoopKind::Mma => return,
        };
        let Target::Cpu(cpu) = self.schedule.target;
        let most = cpu.isa.vector_bytes();
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
        self.place(stmt, (step, Some(number)), leaf);
        self.bindings(leaf, nest);
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
        for ((stmt, places), is_needed) in self.loops.stmts.iter().zip(&self.placed).zip(needed) {
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
            let is_together = places.windows(2).all(|pair| pair[0].step == pair[1].step);
            self.report.check(
                is_together,
                "split-nest",
                format_args!("the parts of `{name}` are in two kernels"),
            );
            let in_order = places.windows(2).all(|pair| pair[0].part <= pair[1].part);
            self.report.check(
                in_order,
                "statement-order",
                format_args!("`{name}.final` runs before its update"),
            );
            self.sites.note(&self.report.diags, places.last().and_then(Place::site));
        }
    }

    /// Statements that touch one buffer, of which at least one writes, run in the order of the program.
    fn order(&mut self) {
        let mut writers: Vec<Option<usize>> = vec![None; self.loops.bufs.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.loops.bufs.len()];
        for (at, stmt) in self.loops.stmts.iter().enumerate() {
            for buf in stmt.reads() {
                if let Some(writer) = writers.get(buf.index()).copied().flatten() {
                    self.ordered(writer, at, buf);
                }
                if let Some(readers) = readers.get_mut(buf.index()) {
                    readers.push(at);
                }
            }
            for buf in stmt.writes() {
                let (Some(writer), Some(readers)) =
                    (writers.get_mut(buf.index()), readers.get_mut(buf.index()))
                else {
                    continue;
                };
                let earlier = writer.replace(at).into_iter().chain(std::mem::take(readers));
                for other in earlier.filter(|&other| other != at).collect::<Vec<_>>() {
                    self.ordered(other, at, buf);
                }
            }
        }
    }

    fn ordered(&mut self, first: usize, second: usize, buf: Buf) {
        let last = self.placed[first].iter().map(|place| place.at).max();
        let next = self.placed[second].iter().map(|place| place.at).min();
        if let (Some(last), Some(next)) = (last, next)
            && last > next
        {
            let (first_name, second_name) = (self.loops.stmts[first].name(), self.loops.stmts[second].name());
            let buf = &self.loops.bufs[buf].name;
            let message = format_args!(
                "`{second_name}` runs before `{first_name}`, which comes first for buffer `{buf}`"
            );
            self.report.fail("statement-order", message);
            let early = self.placed[second].iter().min_by_key(|place| place.at);
            self.sites.note(&self.report.diags, early.and_then(Place::site));
        }
    }

    /// The nests that a region repeats run in one loop, in order, that counts its axis.
    fn region(&mut self, span: &Span) {
        let over = span.over.var;
        let mut counting = Vec::new();
        for (stmt, places) in
            self.loops.stmts[span.stmts.clone()].iter().zip(&self.placed[span.stmts.clone()])
        {
            if !stmt.nests().iter().any(|nest| nest.axes.iter().any(|axis| axis.var == over)) {
                continue;
            }
            for place in places {
                let value = place.value(over).and_then(|value| value.as_sym());
                let counts = |around: &&Around| {
                    let is_ordered = matches!(around.kind, Some(LoopKind::For | LoopKind::Unroll));
                    is_ordered && Some(around.axis.var) == value
                };
                counting.push(place.path.iter().find(counts).map(|around| around.number));
            }
        }
        let is_one = counting.windows(2).all(|pair| pair[0] == pair[1]) && !counting.contains(&None);
        let message = format_args!("the nests of `{}` do not share a loop in order along {over}", span.name);
        self.report.check(is_one, "region-order", message);
        let first = self.placed[span.stmts.clone()].iter().flatten().next();
        self.sites.note(&self.report.diags, first.and_then(Place::site));
    }

    /// What runs at load reads constants and what ran at load before.
    fn load_inputs(&mut self) {
        let at_load = |places: &[Place]| places.iter().any(|place| self.schedule.steps[place.step].at_load());
        let mut late: HashSet<Buf> = self
            .loops
            .bufs
            .iter()
            .filter(|(_, data)| data.kind == BufKind::Input)
            .map(|(buf, _)| buf)
            .collect();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            if !at_load(places) {
                late.extend(stmt.writes());
                continue;
            }
            for buf in stmt.reads().into_iter().filter(|buf| late.contains(buf)) {
                let buf = self.loops.bufs.get(buf).map_or("?", |data| &data.name);
                let message =
                    format_args!("`{}` runs at load, but `{buf}` has no contents then", stmt.name());
                self.report.fail("load-order", message);
            }
        }
    }
}
