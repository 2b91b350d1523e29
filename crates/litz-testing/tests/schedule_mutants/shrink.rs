//! Makes a mutant that fails smaller, as long as it fails: fewer decisions, then plainer loops and less memory.

use litz_ir::schedule::{LoopKind, Schedule, ScheduleStep, Tree};

/// The fewest decisions for which `fails` holds, found by leaving parts of them to their first options.
pub fn bytes(bytes: &[u8], fails: &dyn Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut best = bytes.to_vec();
    let mut width = 32;
    while width > 0 {
        for start in (0..best.len()).step_by(width) {
            let mut smaller = best.clone();
            let end = (start + width).min(smaller.len());
            smaller[start..end].fill(0);
            if smaller != best && fails(&smaller) {
                best = smaller;
            }
        }
        width /= 4;
    }
    best
}

/// The plainest schedule for which `fails` holds.
pub fn schedule(schedule: &Schedule, fails: &dyn Fn(&Schedule) -> bool) -> Schedule {
    let mut best = schedule.clone();
    while let Some(plainer) = candidates(&best).into_iter().find(|candidate| fails(candidate)) {
        best = plainer;
    }
    best
}

/// Schedules in which one thing is plainer.
fn candidates(schedule: &Schedule) -> Vec<Schedule> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Schedule)| {
        let mut changed = schedule.clone();
        change(&mut changed);
        if changed != *schedule {
            found.push(changed);
        }
    };
    (0..schedule.pools.len()).for_each(|at| with(&|s| drop(s.pools.remove(at))));
    (0..schedule.reuses.len()).for_each(|at| with(&|s| drop(s.reuses.remove(at))));
    for (step, data) in schedule.steps.iter().enumerate() {
        let ScheduleStep::Kernel(plan) = data else { continue };
        let with_plan = |s: &mut Schedule, change: &dyn Fn(&mut litz_ir::schedule::KernelPlan)| {
            if let ScheduleStep::Kernel(plan) = &mut s.steps[step] {
                change(plan);
            }
        };
        with(&|s| with_plan(s, &|plan| plan.grain = 1));
        if !plan.grid.is_empty() {
            with(&|s| {
                with_plan(s, &|plan| {
                    let Some(axis) = plan.grid.pop() else { return };
                    let body = std::mem::take(&mut plan.body);
                    plan.body = vec![Tree::Loop { kind: LoopKind::For, axis, body }];
                });
            });
        }
        for at in 0..bodies(&plan.body) {
            with(&|s| with_plan(s, &|plan| one_body(&mut plan.body, &mut at.clone())));
        }
        for at in 0..loops(&plan.body) {
            with(&|s| with_plan(s, &|plan| plain(&mut plan.body, &mut at.clone())));
        }
    }
    found
}

fn loops(trees: &[Tree]) -> usize {
    count(trees, &|tree| matches!(tree, Tree::Loop { .. }))
}

fn bodies(trees: &[Tree]) -> usize {
    2 * count(trees, &|tree| matches!(tree, Tree::If { .. }))
}

fn count(trees: &[Tree], is_wanted: &dyn Fn(&Tree) -> bool) -> usize {
    let below = |tree: &Tree| tree.blocks().into_iter().map(|block| count(block, is_wanted)).sum::<usize>();
    trees.iter().map(|tree| usize::from(is_wanted(tree)) + below(tree)).sum()
}

/// Puts one of its bodies for an `if`: that number counts all bodies.
fn one_body(trees: &mut Vec<Tree>, number: &mut usize) {
    let mut at = 0;
    while at < trees.len() {
        if let Tree::If { then, other, .. } = &mut trees[at] {
            if *number < 2 {
                let body = std::mem::take(if *number == 0 { then } else { other });
                *number = usize::MAX;
                trees.splice(at..=at, body);
                return;
            }
            *number = number.wrapping_sub(2);
        }
        trees[at].blocks_mut().into_iter().for_each(|block| one_body(block, number));
        at += 1;
    }
}

/// Makes the loop of that number one that runs in order.
fn plain(trees: &mut [Tree], number: &mut usize) {
    for tree in trees {
        if let Tree::Loop { kind, .. } = tree {
            if *number == 0 {
                *kind = LoopKind::For;
            }
            *number = number.wrapping_sub(1);
        }
        tree.blocks_mut().into_iter().for_each(|block| plain(block, number));
    }
}
