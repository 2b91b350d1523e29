//! Changes which kernel things run in, when kernels run, and in which order.

use litz_ir::loops::{Axis, Buf, BufKind, Loops, Nest, Stmt};
use litz_ir::schedule::{KernelPlan, LoopKind, Schedule, ScheduleStep, Tree};
use litz_sym::{Expr, Rel};

use super::tree::{each_axis_mut, fresh, is_leaf, kernel_mut, kernels, list_mut, pick, substitute, trees};
use crate::choices::Choices;

pub(super) fn swap_steps(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let count = schedule.steps.len();
    let at = choices.below(count.checked_sub(1).filter(|&pairs| pairs > 0)?);
    schedule.steps.swap(at, at + 1);
    Some(())
}

/// Two kernels that follow each other become one, point by point where their grids are alike, else one after the other.
pub(super) fn merge(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let found = kernels(schedule);
    let next = found.windows(2).filter(|pair| pair[0].0 + 1 == pair[1].0).map(|pair| pair[0].0);
    let at = pick(choices, &next.collect::<Vec<_>>())?;
    let ScheduleStep::Kernel(mut second) = schedule.steps.remove(at + 1) else { return None };
    let first = kernel_mut(schedule, at)?;
    let extents = |plan: &KernelPlan| plan.grid.iter().map(|axis| axis.extent).collect::<Vec<_>>();
    if extents(first) == extents(&second) && !choices.once_in(4) {
        let vars: Vec<_> = second.grid.iter().zip(&first.grid).map(|(a, b)| (a.var, b.var)).collect();
        let to = |sym| vars.iter().find(|pair| pair.0 == sym).map(|pair| pair.1);
        substitute(&mut second.body, &|sym| to(sym).map(Expr::sym));
    } else {
        for plan in [&mut *first, &mut second] {
            while let Some(axis) = plan.grid.pop() {
                let body = std::mem::take(&mut plan.body);
                plan.body = vec![Tree::Loop { kind: LoopKind::For, axis, body }];
            }
        }
    }
    first.body.extend(second.body);
    Some(())
}

/// Two kernels that follow each other become parts of one, each with iterations of a common grid; once in a while the second
/// begins at another one than behind the first's last.
pub(super) fn share_grid(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let found = kernels(schedule);
    let next = found.windows(2).filter(|pair| pair[0].0 + 1 == pair[1].0).map(|pair| pair[0].0);
    let at = pick(choices, &next.collect::<Vec<_>>())?;
    let (var, wrong) = (fresh(schedule), choices.below(8));
    let ScheduleStep::Kernel(mut second) = schedule.steps.remove(at + 1) else { return None };
    let first = kernel_mut(schedule, at)?;
    let count = |plan: &KernelPlan| plan.grid.first().map_or(Expr::one(), |axis| axis.extent);
    let counts = [count(first), count(&second)];
    let begin = match wrong {
        6 => counts[0] - 1,
        7 => counts[0] + 1,
        _ => counts[0],
    };
    for (plan, begin) in [(&mut *first, Expr::zero()), (&mut second, begin)] {
        for axis in plan.grid.drain(1.min(plan.grid.len())..).rev() {
            let body = std::mem::take(&mut plan.body);
            plan.body = vec![Tree::Loop { kind: LoopKind::For, axis, body }];
        }
        if let Some(axis) = plan.grid.pop() {
            let number = Expr::sym(var) - begin;
            substitute(&mut plan.body, &|sym| (sym == axis.var).then_some(number));
        }
    }
    let extent = counts[0] + counts[1];
    let cond = Rel::lt(Expr::sym(var), if wrong == 5 { counts[0] - 1 } else { begin });
    first.grid = vec![Axis { var, extent }];
    first.body = vec![Tree::If { cond, then: std::mem::take(&mut first.body), other: second.body }];
    Some(())
}

/// The last trees of a kernel run in one of their own, whose grid is the same.
pub(super) fn split(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let several = kernels(schedule).into_iter().filter(|k| k.1.body.len() > 1);
    let step = pick(choices, &several.map(|k| k.0).collect::<Vec<_>>())?;
    let keeps_locals = choices.once_in(2);
    let plan = kernel_mut(schedule, step)?;
    let rest = plan.body.split_off(1 + choices.below(plan.body.len() - 1));
    let mut second = KernelPlan { name: format!("{}_2", plan.name), body: rest, ..plan.clone() };
    if !keeps_locals {
        plan.body.retain(|tree| !matches!(tree, Tree::Local(_)));
    }
    // Loops of two kernels have other variables.
    for at in 0..second.grid.len() {
        let (var, name) = (second.grid[at].var, fresh(schedule));
        second.grid[at].var = name;
        substitute(&mut second.body, &|sym| (sym == var).then(|| Expr::sym(name)));
        schedule.steps.insert(step + 1, ScheduleStep::Kernel(second.clone()));
        let ScheduleStep::Kernel(back) = schedule.steps.remove(step + 1) else { return None };
        second = back;
    }
    schedule.steps.insert(step + 1, ScheduleStep::Kernel(second));
    Some(())
}

/// A tree goes to the kernel after or before its own.
pub(super) fn move_leaf(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let steps: Vec<usize> = kernels(schedule).iter().map(|k| k.0).collect();
    let is_top = !choices.once_in(4);
    let mut found = trees(schedule, |tree| is_top || is_leaf(tree));
    found.retain(|(place, _)| !is_top || place.1.is_empty());
    let (place, at) = pick(choices, &found)?;
    let own = steps.iter().position(|&step| step == place.0)?;
    let is_later = !choices.once_in(2);
    let to = if is_later { steps.get(own + 1) } else { own.checked_sub(1).and_then(|own| steps.get(own)) };
    let to = *to?;
    let grid = kernel_mut(schedule, place.0)?.grid.clone();
    let mut moved = list_mut(schedule, &place)?.remove(at);
    let target = kernel_mut(schedule, to)?;
    // Points of its grid become those of the other, or loops.
    if grid.len() == target.grid.len() && grid.iter().zip(&target.grid).all(|(a, b)| a.extent == b.extent) {
        let vars: Vec<_> = grid.iter().zip(&target.grid).map(|(a, b)| (a.var, b.var)).collect();
        let to = |sym| vars.iter().find(|pair| pair.0 == sym).map(|pair| Expr::sym(pair.1));
        substitute(std::slice::from_mut(&mut moved), &to);
    } else {
        let mut taken = Vec::new();
        target.grid.iter().for_each(|axis| taken.push(axis.var));
        each_axis_mut(&mut target.body, &mut |axis| taken.push(axis.var));
        for axis in grid.into_iter().rev() {
            moved = Tree::Loop { kind: LoopKind::For, axis, body: vec![moved] };
        }
    }
    let end = if is_later { 0 } else { target.body.len() };
    target.body.insert(end, moved);
    schedule.steps.retain(|step| !matches!(step, ScheduleStep::Kernel(plan) if plan.body.is_empty()));
    Some(())
}

/// A step runs when the model is loaded, or no longer does: most of the time one that reads constants alone, or what is made then.
pub(super) fn at_load(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (flat, _) = loops.flat();
    let nest = |name: &str| flat.stmts.iter().flat_map(Stmt::nests).find(|nest| nest.name == name);
    let (mut made, mut able): (Vec<Buf>, Vec<usize>) = Default::default();
    for (at, step) in schedule.steps.iter().enumerate() {
        let ScheduleStep::Kernel(plan) = step else { continue };
        let nests: Vec<&Nest> = plan.nests().into_iter().filter_map(nest).collect();
        let written: Vec<Buf> = nests.iter().flat_map(|nest| nest.writes()).collect();
        let is_known = |buf: &Buf| {
            matches!(flat.bufs[*buf].kind, BufKind::Const(_)) || made.contains(buf) || written.contains(buf)
        };
        if nests.iter().flat_map(|nest| nest.reads()).all(|buf| is_known(&buf)) {
            able.push(at);
            made.extend(written);
        }
    }
    let all: Vec<usize> = (0..schedule.steps.len()).collect();
    let at = match pick(choices, &able) {
        Some(at) if !choices.once_in(4) => at,
        None if !choices.once_in(8) => return None,
        _ => pick(choices, &all)?,
    };
    match &mut schedule.steps[at] {
        ScheduleStep::Kernel(plan) => plan.at_load = !plan.at_load,
        ScheduleStep::Extern { at_load, .. } => *at_load = !*at_load,
    }
    Some(())
}
