//! Changes loops: their extents, kinds and blocks, and whether they are of the grid.

use litz_ir::loops::{Axis, Loops};
use litz_ir::schedule::{LoopKind, Schedule, ScheduleStep, Tree};
use litz_ir::target::{Level, Team};
use litz_sym::{Expr, Sym};

use super::tree::{
    each_axis_mut, each_leaf_mut, fresh, is_loop, kernel_mut, kernels, list_mut, pick, substitute, trees,
};
use crate::choices::Choices;

/// Widths of blocks; few divide the extents of programs.
const WIDTHS: [i64; 7] = [4, 2, 3, 5, 8, 16, 7];

/// Kinds that loops become: on a machine with levels, loops over these as well.
fn kind(schedule: &Schedule, choices: &mut Choices<'_>) -> LoopKind {
    let lanes = choices.pick(&[4, 8, 16]);
    if schedule.target.cpu().is_none() && choices.once_in(2) {
        return match choices.below(8) {
            0 => LoopKind::Pipeline { buffers: 2 + choices.below(2) as u32 },
            1 => LoopKind::Chain,
            _ => {
                let (level, from) = (choices.pick(&Level::LOOPS), choices.pick(&[0, 0, 1, 4]));
                LoopKind::Level(Team { level, from, each: choices.pick(&[1, 1, 1, 4]) })
            }
        };
    }
    match choices.below(8) {
        0 | 1 => LoopKind::For,
        2 | 3 => LoopKind::Unroll,
        4..7 => LoopKind::Vector { lanes, copies: 1 + choices.below(3) as u32 },
        _ => LoopKind::Mma,
    }
}

/// The loops of trees, and axes of grids: a step, and the variable.
fn variables(schedule: &Schedule) -> Vec<(usize, Sym)> {
    fn walk(list: &[Tree], step: usize, found: &mut Vec<(usize, Sym)>) {
        for tree in list {
            if let Tree::Loop { axis, .. } = tree {
                found.push((step, axis.var));
            }
            tree.blocks().into_iter().for_each(|block| walk(block, step, found));
        }
    }
    let mut found = Vec::new();
    for (step, plan) in kernels(schedule) {
        found.extend(plan.grid.iter().map(|axis| (step, axis.var)));
        walk(&plan.body, step, &mut found);
    }
    found
}

/// Calls `f` with the axis of a loop or of the grid.
fn with_axis(schedule: &mut Schedule, (step, var): (usize, Sym), f: &mut dyn FnMut(&mut Axis)) -> Option<()> {
    let plan = kernel_mut(schedule, step)?;
    plan.grid.iter_mut().filter(|axis| axis.var == var).for_each(&mut *f);
    each_axis_mut(&mut plan.body, &mut |axis| {
        if axis.var == var {
            f(axis);
        }
    });
    Some(())
}

/// A loop becomes two; once in a while they count less, or more, than it did.
pub(super) fn split(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, is_loop))?;
    let (inner, width) = (fresh(schedule), choices.pick(&WIDTHS));
    let wrong = choices.below(6);
    let kind = if choices.once_in(2) { kind(schedule, choices) } else { LoopKind::For };
    let Tree::Loop { kind: outer_kind, axis, body } = &mut list_mut(schedule, &place)?[at] else {
        return None;
    };
    let counts = if wrong == 4 { axis.extent.floordiv(width) } else { axis.extent.ceildiv(width) };
    let outer = axis.var;
    substitute(body, &|sym| (sym == outer).then(|| Expr::sym(outer) * width + Expr::sym(inner)));
    axis.extent = counts;
    let inner = Axis { var: inner, extent: Expr::int(if wrong == 5 { width + 1 } else { width }) };
    let inner = Tree::Loop { kind, axis: inner, body: std::mem::take(body) };
    if matches!(inner, Tree::Loop { kind: LoopKind::Vector { .. }, .. }) {
        *outer_kind = LoopKind::For;
    }
    body.push(inner);
    mask(schedule, place.0, choices)
}

/// Where loops count an axis in blocks, `width*outer + inner`, the blocks get another width.
pub(super) fn other_width(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let mut found: Vec<(usize, Sym, Sym, i64)> = Vec::new();
    let mut extents: Vec<(usize, Sym, Expr)> = Vec::new();
    for (step, var) in variables(schedule) {
        with_axis(schedule, (step, var), &mut |axis| extents.push((step, axis.var, axis.extent)));
    }
    for &(step, inner, extent) in &extents {
        let Some(width) = extent.as_int().filter(|&width| width > 1) else { continue };
        for &(_, outer, _) in extents.iter().filter(|e| e.0 == step && e.1 != inner) {
            let is_counted = |value: Expr| {
                value.linear(outer).is_some_and(|(step, _)| step == Expr::int(width)) && value.has_sym(inner)
            };
            let mut counts = false;
            let body = &mut kernel_mut(schedule, step)?.body;
            each_leaf_mut(body, &mut |leaf| counts |= leaf.bind.iter().any(|bind| is_counted(bind.1)));
            if counts {
                found.push((step, outer, inner, width));
            }
        }
    }
    let (step, outer, inner, width) = pick(choices, &found)?;
    let to = choices.pick(&WIDTHS);
    let wrong = choices.below(5);
    let total = extents.iter().find(|e| (e.0, e.1) == (step, outer))?.2 * width;
    each_leaf_mut(&mut kernel_mut(schedule, step)?.body, &mut |leaf| {
        for (_, value) in &mut leaf.bind {
            if let Some((factor, rest)) = value.linear(outer)
                && factor == Expr::int(width)
            {
                *value = rest + Expr::sym(outer) * to;
            }
        }
    });
    if wrong != 3 {
        with_axis(schedule, (step, inner), &mut |axis| axis.extent = Expr::int(to))?;
    }
    if wrong != 4 {
        with_axis(schedule, (step, outer), &mut |axis| axis.extent = total.ceildiv(to))?;
    }
    mask(schedule, step, choices)
}

/// Masks all leaves of a kernel most of the time: loops may go on past the ends of axes now.
fn mask(schedule: &mut Schedule, step: usize, choices: &mut Choices<'_>) -> Option<()> {
    if !choices.once_in(4) {
        each_leaf_mut(&mut kernel_mut(schedule, step)?.body, &mut |leaf| leaf.masked = true);
    }
    Some(())
}

pub(super) fn other_extent(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let variable = pick(choices, &variables(schedule))?;
    let how = choices.below(6);
    with_axis(schedule, variable, &mut |axis| {
        let extent = axis.extent;
        axis.extent = match how {
            0 => extent + 1,
            1 => extent - 1,
            2 => extent * 2,
            3 => extent.floordiv(2),
            4 => extent.min(7),
            _ => Expr::one(),
        };
    })?;
    mask(schedule, variable.0, choices)
}

pub(super) fn other_kind(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, is_loop))?;
    let to = kind(schedule, choices);
    let Tree::Loop { kind, .. } = &mut list_mut(schedule, &place)?[at] else { return None };
    *kind = to;
    Some(())
}

/// An axis of the grid becomes a loop around all of the kernel.
pub(super) fn from_grid(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let with_grid = kernels(schedule).into_iter().filter(|k| !k.1.grid.is_empty());
    let step = pick(choices, &with_grid.map(|k| k.0).collect::<Vec<_>>())?;
    let kind = if choices.once_in(3) { kind(schedule, choices) } else { LoopKind::For };
    let plan = kernel_mut(schedule, step)?;
    let axis = plan.grid.remove(plan.grid.len() - 1 - choices.below(plan.grid.len()));
    plan.body = vec![Tree::Loop { kind, axis, body: std::mem::take(&mut plan.body) }];
    Some(())
}

/// The loop around all of a kernel, or another one, becomes an axis of the grid.
pub(super) fn to_grid(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let is_any = choices.once_in(4);
    let mut found = trees(schedule, is_loop);
    let is_whole = |(place, at): &(super::tree::TreePath, usize)| {
        let ScheduleStep::Kernel(plan) = &schedule.steps[place.0] else { return false };
        plan.body.len() == 1 && place.1.is_empty() && *at == 0
    };
    found.retain(|tree| is_any || is_whole(tree));
    let (place, at) = pick(choices, &found)?;
    let list = list_mut(schedule, &place)?;
    let Tree::Loop { axis, body, .. } = list.remove(at) else { return None };
    list.splice(at..at, body);
    kernel_mut(schedule, place.0)?.grid.push(axis);
    Some(())
}

pub(super) fn permute_grid(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let with_grid = kernels(schedule).into_iter().filter(|k| k.1.grid.len() > 1);
    let step = pick(choices, &with_grid.map(|k| k.0).collect::<Vec<_>>())?;
    let plan = kernel_mut(schedule, step)?;
    let at = choices.below(plan.grid.len() - 1);
    plan.grid.swap(at, at + 1);
    plan.grain = 1 + choices.below(4) as u64;
    // Blocks that a loop counts keep their order among the points that share them, whatever the grid.
    if choices.once_in(3) {
        plan.grid.swap_remove(at);
    }
    Some(())
}
