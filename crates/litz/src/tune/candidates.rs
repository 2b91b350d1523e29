//! Makes other schedules of a program by other settings of the scheduler, and says which of their kernels can stand in for
//! which of a schedule's. Kernels of several statements are also cut in two: what is fused may be slower.

use litz_codegen::Realized;
use litz_ir::loops::{Loops, Stmt};
use litz_ir::schedule::{KernelPlan, Schedule, ScheduleStep};
use litz_ir::target::{Cpu, Isa, Target};
use litz_schedule::cost::Estimator;
use litz_schedule::{Heuristics, Request};
use std::collections::BTreeSet;

/// Steps that run one kernel at every call: those of equal layers.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// The statements that each step runs, in an order that does not depend on its loops. Steps have positions only as long as
    /// none is cut.
    pub steps: Vec<Vec<String>>,
    /// Instructions of all of them together, by hints of sizes: what is tried first.
    work: f64,
}

impl Class {
    /// Whether one of its steps runs that nest.
    pub fn runs(&self, nest: &str) -> bool {
        self.steps.iter().flatten().any(|name| name == nest)
    }
}

/// Another way to run the steps of a class.
pub struct Candidate {
    /// The setting that made it, or where the kernels are cut.
    pub variant: String,
    /// The first step that it runs.
    pub kernel: String,
    /// What is different.
    pub change: Change,
}

/// What a candidate changes.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// The kernels of a class, one for each step.
    Kernels(Vec<KernelPlan>),
    /// The whole schedule, in which the statements of each step have two kernels or more. What they pass on has memory of its
    /// own, so that no part of it can be taken alone.
    Apart(Box<Schedule>),
}

/// What variants are called that cut a kernel: fusing was slow.
const SLOW_FUSION: &str = "slow fusion";
/// Cuts of a kernel that are tried.
const MOST_CUTS: usize = 4;

/// All candidates for a schedule's steps at a call, those for the most work first. The same input always gives the same
/// candidates in the same order.
pub fn all(
    loops: &Loops,
    schedule: &Schedule,
    realized: &Realized,
    target: &Target,
    heuristics: &Heuristics,
) -> Vec<(Class, Candidate)> {
    let variants = variants(loops, target, heuristics);
    let of_class = |class: Class| {
        let mut found = candidates(schedule, &class, &variants);
        found.extend(cuts(loops, schedule, &class, target, heuristics));
        found.into_iter().map(move |candidate| (class.clone(), candidate))
    };
    classes(loops, schedule, realized).into_iter().flat_map(of_class).collect()
}

/// The classes of a schedule's steps at a call, those with the most work first.
fn classes(loops: &Loops, schedule: &Schedule, realized: &Realized) -> Vec<Class> {
    let at_call = schedule.steps.iter().enumerate().filter_map(|(at, step)| match step {
        ScheduleStep::Kernel(plan) if !plan.at_load => Some((at, plan)),
        ScheduleStep::Kernel(_) | ScheduleStep::Extern { .. } => None,
    });
    let mut classes: Vec<(&str, Class)> = Vec::new();
    for ((_, plan), kernel) in at_call.zip(realized.launched()) {
        let class = match classes.iter_mut().find(|(name, _)| *name == kernel) {
            Some((_, class)) => class,
            None => {
                classes.push((kernel, Class { steps: Vec::new(), work: 0.0 }));
                &mut classes.last_mut().expect("invariant: a class was just put there").1
            }
        };
        class.steps.push(covered(plan));
        class.work += work(loops, plan);
    }
    let mut classes: Vec<Class> = classes.into_iter().map(|(_, class)| class).collect();
    // The sort is stable: of equal work the first in the schedule comes first.
    classes.sort_by(|a, b| b.work.total_cmp(&a.work));
    classes
}

fn work(loops: &Loops, plan: &KernelPlan) -> f64 {
    let nests = covered(plan);
    let all = loops.stmts.iter().flat_map(Stmt::nests).filter(|nest| nests.contains(&nest.name));
    all.map(|nest| Estimator::new(loops).work(nest) as f64).sum()
}

/// The statements that a kernel runs, in an order that does not depend on its loops.
pub fn covered(plan: &KernelPlan) -> Vec<String> {
    let mut covered: Vec<String> = plan.nests().into_iter().map(str::to_owned).collect();
    covered.sort_unstable();
    covered
}

/// The kernel of a schedule that runs these statements at a call.
fn covering<'a>(schedule: &'a Schedule, nests: &[String]) -> Option<&'a KernelPlan> {
    schedule.steps.iter().filter_map(kernel).find(|plan| !plan.at_load && covered(plan) == nests)
}

/// The steps of a class in two kernels or more: cut before each of their statements but the first, in the order of the program.
fn cuts(
    loops: &Loops,
    schedule: &Schedule,
    class: &Class,
    target: &Target,
    heuristics: &Heuristics,
) -> Vec<Candidate> {
    let in_order = |nests: &Vec<String>| -> Vec<String> {
        let all = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| &nest.name);
        all.filter(|name| nests.contains(name)).cloned().collect()
    };
    let steps: Vec<Vec<String>> = class.steps.iter().map(in_order).collect();
    let Some(own) = covering(schedule, &class.steps[0]) else { return Vec::new() };
    let cut = |at: usize| {
        let apart: BTreeSet<String> = steps.iter().filter_map(|nests| nests.get(at).cloned()).collect();
        let request = Request { apart: &apart, ..Request::new(target, heuristics) };
        let other = litz_schedule::schedule_as(loops, &request).schedule;
        let is_cut = class.steps.iter().all(|nests| covering(&other, nests).is_none());
        is_cut.then(|| Candidate {
            variant: format!("{SLOW_FUSION}: {} apart", steps[0][at]),
            kernel: own.name.clone(),
            change: Change::Apart(Box::new(other)),
        })
    };
    (1..steps[0].len()).take(MOST_CUTS).filter_map(cut).collect()
}

/// What each variant has for the steps of a class: kernels that cover the same nests by other loops. None twice.
fn candidates(schedule: &Schedule, class: &Class, variants: &[(String, Schedule)]) -> Vec<Candidate> {
    let own: Option<Vec<&KernelPlan>> = class.steps.iter().map(|nests| covering(schedule, nests)).collect();
    let Some(own) = own else { return Vec::new() };
    let mut found: Vec<Candidate> = Vec::new();
    for (variant, other) in variants {
        let stand_in = |own: &&KernelPlan| {
            let plan = covering(other, &covered(own))?;
            // What the name says is nothing that a kernel depends on.
            Some(KernelPlan { name: own.name.clone(), ..plan.clone() })
        };
        let Some(plans) = own.iter().map(stand_in).collect::<Option<Vec<KernelPlan>>>() else { continue };
        let is_own = plans.iter().zip(&own).all(|(plan, own)| plan == *own);
        let change = Change::Kernels(plans);
        if !is_own && found.iter().all(|candidate| candidate.change != change) {
            found.push(Candidate { variant: variant.clone(), kernel: own[0].name.clone(), change });
        }
    }
    found
}

fn kernel(step: &ScheduleStep) -> Option<&KernelPlan> {
    match step {
        ScheduleStep::Kernel(plan) => Some(plan),
        ScheduleStep::Extern { .. } => None,
    }
}

/// The schedule with the steps of a class run by a candidate, all others as they are; none where they have been cut already.
pub fn swapped(schedule: &Schedule, class: &Class, candidate: &Candidate) -> Option<Schedule> {
    if class.steps.iter().any(|nests| covering(schedule, nests).is_none()) {
        return None;
    }
    let stand_in = |own: &KernelPlan| -> Option<KernelPlan> {
        let nests = covered(own);
        match &candidate.change {
            Change::Kernels(plans) => plans.iter().find(|plan| covered(plan) == nests).cloned(),
            Change::Apart(_) => covering(schedule, &nests).cloned(),
        }
    };
    let mut swapped = match &candidate.change {
        Change::Kernels(_) => schedule.clone(),
        Change::Apart(other) => Schedule::clone(other),
    };
    for step in &mut swapped.steps {
        if let ScheduleStep::Kernel(own) = step
            && !own.at_load
            && let Some(plan) = stand_in(own)
        {
            *own = KernelPlan { name: own.name.clone(), ..plan };
        }
    }
    Some(swapped)
}

/// What the scheduler makes of the loops by other settings, for the same target. The lengths of partial sums are not among
/// these settings: rounding errors depend on them.
fn variants(loops: &Loops, target: &Target, own: &Heuristics) -> Vec<(String, Schedule)> {
    // The scheduler's own is one, where another schedule is to be tuned.
    let mut settings = vec![("the scheduler's own".to_owned(), *target, own.clone())];
    settings.extend(match target {
        Target::Cpu(cpu) => for_cpu(target, cpu, own),
        Target::Gpu(_) => for_gpu(target, own),
    });
    let others = [1, 8].into_iter().filter(|&most| most != own.most_together(target));
    settings.extend(others.map(|launch_together| {
        let heuristics = Heuristics { launch_together, ..own.clone() };
        (format!("launch_together {launch_together}"), *target, heuristics)
    }));
    let make = |(name, told, heuristics): Setting| {
        let schedule = litz_schedule::schedule(loops, &told, &heuristics).schedule;
        (name, Schedule { target: *target, ..schedule })
    };
    settings.into_iter().map(make).collect()
}

/// A setting of the scheduler: its name, the target that it is told, and the thresholds.
type Setting = (String, Target, Heuristics);

/// Plans that families of kernels for GPUs have for their statements, at most.
const CHOICES: usize = 13;

/// The plans that kernels for a GPU may have besides the one that is held to be fastest.
fn for_gpu(target: &Target, own: &Heuristics) -> Vec<Setting> {
    let others = (0..CHOICES).filter(|&choice| choice != own.choice);
    others.map(|choice| (format!("choice {choice}"), *target, Heuristics { choice, ..own.clone() })).collect()
}

/// Other thresholds for a CPU, and other CPUs.
fn for_cpu(target: &Target, cpu: &Cpu, own: &Heuristics) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut heuristics = |name: String, heuristics: Heuristics| settings.push((name, *target, heuristics));
    for factor in [0.25, 4.0, 16.0] {
        let chunk_ops = scaled(own.chunk_ops, factor);
        heuristics(format!("chunk_ops {chunk_ops}"), Heuristics { chunk_ops, ..own.clone() });
    }
    for factor in [0.25, 4.0] {
        let block = scaled(own.block, factor);
        heuristics(format!("block {block}"), Heuristics { block, ..own.clone() });
    }
    for copies in [1, 2, 8] {
        heuristics(
            format!("reduction_copies {copies}"),
            Heuristics { reduction_copies: copies, ..own.clone() },
        );
        heuristics(
            format!("function_copies {copies}"),
            Heuristics { function_copies: copies, ..own.clone() },
        );
        heuristics(format!("column_vectors {copies}"), Heuristics { column_vectors: copies, ..own.clone() });
    }
    for inline_epilogue in [0, 32] {
        heuristics(
            format!("inline_epilogue {inline_epilogue}"),
            Heuristics { inline_epilogue, ..own.clone() },
        );
    }
    for local_fraction in [1, 4] {
        heuristics(format!("local_fraction {local_fraction}"), Heuristics { local_fraction, ..own.clone() });
    }
    settings.extend(others(*cpu).into_iter().map(|(name, told)| (name, told, own.clone())));
    settings
}

/// A setting, so many times as large.
fn scaled(value: i64, factor: f64) -> i64 {
    ((value as f64 * factor) as i64).max(1)
}

/// Targets that the scheduler is told instead of a CPU: caches that are shared or larger than they say, threads that are not
/// equally fast and so need smaller shares, shorter vectors.
fn others(cpu: Cpu) -> Vec<(String, Target)> {
    let mut told: Vec<(String, Cpu)> = Vec::new();
    for factor in [0.5, 2.0] {
        let (l1_bytes, l2_bytes) = (scaled(cpu.l1_bytes, factor), scaled(cpu.l2_bytes, factor));
        told.push((format!("l1 {l1_bytes}"), Cpu { l1_bytes, ..cpu }));
        told.push((format!("l2 {l2_bytes}"), Cpu { l2_bytes, ..cpu }));
    }
    for threads in [1, 2 * cpu.threads, 4 * cpu.threads] {
        told.push((format!("threads {threads}"), Cpu { threads, ..cpu }));
    }
    if cpu.isa.vector_bytes() > Isa::Avx2.vector_bytes() {
        told.push(("isa avx2".to_owned(), Cpu { isa: Isa::Avx2, ..cpu }));
    }
    told.into_iter().map(|(name, cpu)| (name, Target::Cpu(cpu))).collect()
}
