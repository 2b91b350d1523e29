//! Counts what schedules for GPUs make of nests: those that one thread runs, and contractions without a matrix instruction.

use std::collections::HashMap;

use litz_analysis::{Contraction, Dependences};
use litz_ir::Dtype;
use litz_ir::loops::{Axis, Loops, Nest, Stmt};
use litz_ir::schedule::{KernelPlan, LoopKind, Part, Schedule, ScheduleStep, Tree};
use litz_ir::target::Gpu;
use litz_sym::{Expr, Facts};

/// GPUs that automatic schedules are looked at for.
pub const TARGETS: [&str; 3] =
    ["gpu(isa=sm80, units=108)", "gpu(isa=sm90, units=132)", "gpu(isa=sm100, units=148)"];

/// Points of each side of a contraction, and of its sum, from which an instruction has to take it.
const LEAST_SIDE: i64 = 16;

/// What is in the schedules of a program and of its functions.
#[derive(Clone, Default, Debug)]
pub struct Plans {
    /// Kernels.
    pub kernels: usize,
    /// Nests of more than one point.
    pub nests: usize,
    /// Those of them that one thread runs, with the reason.
    pub of_one_thread: Vec<(String, Why)>,
    /// Contractions of two operands of 16 bits that are not too small for an instruction.
    pub contractions: usize,
    /// Those of them that no instruction takes.
    pub without_instruction: Vec<String>,
}

/// Why one thread runs a nest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Its points depend on each other along every axis: it is a scan of one row, or a scatter to one element.
    InOrder,
    /// It is part of a region whose nests share no points.
    Region,
    /// Nothing in the nest asks for it.
    Unknown,
}

impl Plans {
    /// Those of a program.
    pub fn of(loops: &Loops, schedule: &Schedule) -> Plans {
        let mut plans = Plans::default();
        plans.add(loops, schedule);
        plans
    }

    fn add(&mut self, loops: &Loops, schedule: &Schedule) {
        let (flat, regions) = loops.flat();
        let deps = Dependences::of(&flat, &regions);
        let facts = &flat.facts;
        let mut found: HashMap<&str, Run> = HashMap::new();
        for step in &schedule.steps {
            let ScheduleStep::Kernel(kernel) = step else { continue };
            self.kernels += 1;
            runs(kernel, facts, &mut found);
        }
        for (at, stmt) in flat.stmts.iter().enumerate() {
            let Stmt::Nest(nest) = stmt else { continue };
            let Some(run) = found.get(&*nest.name) else { continue };
            if points(facts, nest.all_axes()) > 1 {
                self.nests += 1;
                if run.threads <= 1 {
                    let ordered = &deps.stmts[at].ordered;
                    let is_long = |axis: &&Axis| points(facts, [*axis]) > 1;
                    let why = if regions.iter().any(|region| region.stmts.contains(&at)) {
                        Why::Region
                    } else if nest.all_axes().filter(is_long).all(|axis| ordered.contains(&axis.var)) {
                        Why::InOrder
                    } else {
                        Why::Unknown
                    };
                    self.of_one_thread.push((nest.name.clone(), why));
                }
            }
            if is_for_instructions(&flat, nest) {
                self.contractions += 1;
                if !run.by_instruction {
                    self.without_instruction.push(nest.name.clone());
                }
            }
        }
        for (function, own) in loops.functions.iter().zip(&schedule.functions) {
            self.add(function, own);
        }
    }
}

/// Who runs a nest.
#[derive(Default)]
struct Run {
    /// Threads that run a part of it, at most.
    threads: i64,
    /// Whether an instruction takes its products.
    by_instruction: bool,
}

/// Who runs the nests of a kernel.
fn runs<'a>(kernel: &'a KernelPlan, facts: &Facts, found: &mut HashMap<&'a str, Run>) {
    let blocks = points(facts, &kernel.grid);
    kernel.body.iter().for_each(|tree| walk(tree, facts, (blocks, false), found));
}

fn walk<'a>(
    tree: &'a Tree,
    facts: &Facts,
    (threads, by_instruction): (i64, bool),
    found: &mut HashMap<&'a str, Run>,
) {
    match tree {
        Tree::Loop { kind, axis, body } => {
            let more = match kind {
                LoopKind::Level(_) => points(facts, [axis]),
                // Of a warp all threads take part in an instruction.
                LoopKind::Mma if !by_instruction => i64::from(Gpu::LANES),
                LoopKind::Mma
                | LoopKind::For
                | LoopKind::Unroll
                | LoopKind::Vector { .. }
                | LoopKind::Pipeline { .. }
                | LoopKind::Chain => 1,
            };
            let inside = (threads.saturating_mul(more), by_instruction || *kind == LoopKind::Mma);
            body.iter().for_each(|tree| walk(tree, facts, inside, found));
        }
        Tree::If { then, other, .. } => {
            then.iter().chain(other).for_each(|tree| walk(tree, facts, (threads, by_instruction), found));
        }
        Tree::Local(_) => {}
        Tree::Leaf(leaf) => {
            let run = found.entry(&leaf.nest).or_default();
            if matches!(leaf.part, Part::Whole | Part::Update) {
                run.threads = run.threads.max(threads);
                run.by_instruction |= by_instruction;
            }
        }
    }
}

/// Whether a nest is a contraction of two operands of 16 bits whose sides and sum are not too short.
fn is_for_instructions(loops: &Loops, nest: &Nest) -> bool {
    let Some([found, _]) = Contraction::of(loops, nest) else { return false };
    let is_half = |at: usize| {
        let dtype = nest.body[at].op.element().map(|(buf, _)| loops.bufs[buf].dtype);
        matches!(dtype, Some(Dtype::BF16 | Dtype::F16))
    };
    let sides = [&found.m, &found.n, &nest.reduced];
    let is_large = |axes: &&Vec<Axis>| points(&loops.facts, axes.iter()) >= LEAST_SIDE;
    is_half(found.lhs) && is_half(found.rhs) && sides.iter().all(is_large)
}

/// Points of several axes together, by examples of sizes.
fn points<'a>(facts: &Facts, axes: impl IntoIterator<Item = &'a Axis>) -> i64 {
    let size = |e: Expr| facts.size_hint(e).max(1);
    axes.into_iter().map(|axis| size(axis.extent)).fold(1, i64::saturating_mul)
}
