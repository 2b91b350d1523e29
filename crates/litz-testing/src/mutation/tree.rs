//! Changes the trees of kernels: what runs where, and in which order; and finds things in trees for all other changes.

use litz_ir::loops::{Axis, Loops, Stmt};
use litz_ir::schedule::{Holds, KernelPlan, Leaf, Local, LoopKind, Schedule, ScheduleStep, Tree};
use litz_sym::{Expr, Sym};

use crate::choices::Choices;

/// A list of neighbours: the kernel's step, and the positions of the trees around, outermost first, with which of their blocks
/// it is.
pub(super) type TreePath = (usize, Vec<(usize, usize)>);

/// One of the options, if there are any.
pub(super) fn pick<T: Clone>(choices: &mut Choices<'_>, options: &[T]) -> Option<T> {
    // A byte decides among 256 at most: two for longer lists.
    let at = choices.below(256) * if options.len() > 256 { 256 } else { 0 } + choices.below(256);
    options.get(at.checked_rem(options.len())?).cloned()
}

/// All kernels with the positions of their steps.
pub(super) fn kernels(schedule: &Schedule) -> Vec<(usize, &KernelPlan)> {
    let steps = schedule.steps.iter().enumerate();
    steps
        .filter_map(|(at, step)| match step {
            ScheduleStep::Kernel(plan) => Some((at, plan)),
            ScheduleStep::Extern { .. } => None,
        })
        .collect()
}

/// The kernel of a step.
pub(super) fn kernel_mut(schedule: &mut Schedule, step: usize) -> Option<&mut KernelPlan> {
    match schedule.steps.get_mut(step)? {
        ScheduleStep::Kernel(plan) => Some(plan),
        ScheduleStep::Extern { .. } => None,
    }
}

/// All lists of neighbours that have at least `least` trees.
pub(super) fn lists(schedule: &Schedule, least: usize) -> Vec<(TreePath, usize)> {
    fn walk(list: &[Tree], place: &TreePath, found: &mut Vec<(TreePath, usize)>) {
        found.push((place.clone(), list.len()));
        for (at, tree) in list.iter().enumerate() {
            for (number, block) in blocks(tree).enumerate() {
                walk(block, &(place.0, [&place.1[..], &[(at, number)]].concat()), found);
            }
        }
    }
    let mut found = Vec::new();
    kernels(schedule).into_iter().for_each(|(step, plan)| walk(&plan.body, &(step, Vec::new()), &mut found));
    found.retain(|list| list.1 >= least);
    found
}

/// The list at a place.
pub(super) fn list_mut<'s>(schedule: &'s mut Schedule, (step, path): &TreePath) -> Option<&'s mut Vec<Tree>> {
    let mut list = &mut kernel_mut(schedule, *step)?.body;
    for &(at, number) in path {
        list = list.get_mut(at)?.blocks_mut().into_iter().nth(number)?;
    }
    Some(list)
}

/// The blocks in a tree.
fn blocks(tree: &Tree) -> impl Iterator<Item = &[Tree]> {
    let count = match tree {
        Tree::Loop { .. } => 1,
        Tree::If { .. } => 2,
        Tree::Local(_) | Tree::Leaf(_) => 0,
    };
    tree.blocks().into_iter().take(count)
}

/// All trees, as the lists that they are in and their positions there.
pub(super) fn trees(schedule: &Schedule, wanted: impl Fn(&Tree) -> bool) -> Vec<(TreePath, usize)> {
    fn walk(
        list: &[Tree],
        place: &TreePath,
        wanted: &dyn Fn(&Tree) -> bool,
        found: &mut Vec<(TreePath, usize)>,
    ) {
        for (at, tree) in list.iter().enumerate() {
            if wanted(tree) {
                found.push((place.clone(), at));
            }
            for (number, block) in blocks(tree).enumerate() {
                walk(block, &(place.0, [&place.1[..], &[(at, number)]].concat()), wanted, found);
            }
        }
    }
    let mut found = Vec::new();
    for (step, plan) in kernels(schedule) {
        walk(&plan.body, &(step, Vec::new()), &wanted, &mut found);
    }
    found
}

pub(super) fn is_loop(tree: &Tree) -> bool {
    matches!(tree, Tree::Loop { .. })
}

pub(super) fn is_leaf(tree: &Tree) -> bool {
    matches!(tree, Tree::Leaf(_))
}

/// Calls `f` with every leaf of trees, to be changed.
pub(super) fn each_leaf_mut(trees: &mut [Tree], f: &mut dyn FnMut(&mut Leaf)) {
    for tree in trees {
        tree.visit_mut(&mut |tree| {
            if let Tree::Leaf(leaf) = tree {
                f(leaf);
            }
        });
    }
}

/// Calls `f` with every axis of loops in trees, to be changed.
pub(super) fn each_axis_mut(trees: &mut [Tree], f: &mut dyn FnMut(&mut Axis)) {
    for tree in trees {
        tree.visit_mut(&mut |tree| {
            if let Tree::Loop { axis, .. } = tree {
                f(axis);
            }
        });
    }
}

/// Puts expressions for variables in all that trees say.
pub(super) fn substitute(trees: &mut [Tree], value: &dyn Fn(Sym) -> Option<Expr>) {
    each_axis_mut(trees, &mut |axis| axis.extent = axis.extent.subst(value));
    for tree in &mut *trees {
        tree.visit_mut(&mut |tree| {
            if let Tree::If { cond, .. } = tree {
                *cond = cond.subst(value);
            }
        });
    }
    each_leaf_mut(trees, &mut |leaf| {
        leaf.bind.iter_mut().for_each(|bind| bind.1 = bind.1.subst(value));
        if let Some(block) = &mut leaf.block {
            (block.number, block.width) = (block.number.subst(value), block.width.subst(value));
        }
    });
}

/// A variable that no loop of the schedule has.
pub(super) fn fresh(schedule: &mut Schedule) -> Sym {
    let mut taken: Vec<Sym> = kernels(schedule).iter().flat_map(|k| &k.1.grid).map(|axis| axis.var).collect();
    for step in &mut schedule.steps {
        if let ScheduleStep::Kernel(plan) = step {
            each_axis_mut(&mut plan.body, &mut |axis| taken.push(axis.var));
        }
    }
    let names = (0..).map(|number| Sym::new(&format!("z{number}")));
    names.into_iter().find(|name| !taken.contains(name)).expect("invariant: some number is not taken")
}

/// Gives all loops in trees variables of their own.
fn rename(schedule: &mut Schedule, place: &TreePath, at: usize) -> Option<()> {
    let mut vars = Vec::new();
    each_axis_mut(&mut list_mut(schedule, place)?[at..=at], &mut |axis| vars.push(axis.var));
    for var in vars {
        let name = fresh(schedule);
        let trees = &mut list_mut(schedule, place)?[at..=at];
        each_axis_mut(trees, &mut |axis| {
            if axis.var == var {
                axis.var = name;
            }
        });
        substitute(trees, &|sym| (sym == var).then(|| Expr::sym(name)));
    }
    Some(())
}

pub(super) fn swap_neighbours(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, count) = pick(choices, &lists(schedule, 2))?;
    let at = choices.below(count - 1);
    list_mut(schedule, &place)?.swap(at, at + 1);
    Some(())
}

/// A neighbour of a loop becomes part of it.
pub(super) fn move_in(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, count) = pick(choices, &lists(schedule, 2))?;
    let at = choices.below(count - 1);
    let list = list_mut(schedule, &place)?;
    let is_after = is_loop(&list[at]);
    let moved = list.remove(if is_after { at + 1 } else { at });
    let Tree::Loop { body, .. } = &mut list[at] else { return None };
    if is_after {
        body.push(moved);
    } else {
        body.insert(0, moved);
    }
    Some(())
}

/// Of several trees in a loop the first or last leaves it, with or without a loop of its own.
pub(super) fn move_out(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let has_several = |tree: &Tree| matches!(tree, Tree::Loop { body, .. } if body.len() > 1);
    let (place, at) = pick(choices, &trees(schedule, has_several))?;
    let (is_last, has_loop) = (!choices.once_in(2), choices.once_in(3));
    let list = list_mut(schedule, &place)?;
    let Tree::Loop { kind, axis, body } = &mut list[at] else { return None };
    let (kind, axis) = (*kind, *axis);
    let mut moved = if is_last { body.pop()? } else { body.remove(0) };
    if has_loop {
        moved = Tree::Loop { kind, axis, body: vec![moved] };
    }
    let to = if is_last { at + 1 } else { at };
    list.insert(to, moved);
    if has_loop { rename(schedule, &place, to) } else { Some(()) }
}

/// Two loops that follow each other become one, of the first one's kind and extent.
pub(super) fn fuse(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let mut pairs: Vec<(TreePath, usize)> = trees(schedule, is_loop);
    let extent = |tree: Option<&Tree>| match tree {
        Some(Tree::Loop { axis, .. }) => Some(axis.extent),
        _ => None,
    };
    let is_any = choices.once_in(4);
    pairs.retain(|(place, at)| {
        let list = list_mut(schedule, place).map(|list| &**list).unwrap_or_default();
        let (one, other) = (extent(list.get(*at)), extent(list.get(at + 1)));
        other.is_some() && (is_any || one == other)
    });
    let (place, at) = pick(choices, &pairs)?;
    let list = list_mut(schedule, &place)?;
    let Tree::Loop { axis: second, body: mut moved, .. } = list.remove(at + 1) else { return None };
    let Tree::Loop { axis: first, body, .. } = &mut list[at] else { return None };
    let var = first.var;
    substitute(&mut moved, &|sym| (sym == second.var).then(|| Expr::sym(var)));
    body.extend(moved);
    Some(())
}

/// A loop around several trees becomes two of the same kind.
pub(super) fn cut(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let has_several = |tree: &Tree| matches!(tree, Tree::Loop { body, .. } if body.len() > 1);
    let (place, at) = pick(choices, &trees(schedule, has_several))?;
    let list = list_mut(schedule, &place)?;
    let Tree::Loop { kind, axis, body } = &mut list[at] else { return None };
    let rest = body.split_off(1 + choices.below(body.len() - 1));
    let second = Tree::Loop { kind: *kind, axis: *axis, body: rest };
    list.insert(at + 1, second);
    rename(schedule, &place, at + 1)
}

/// A loop and one right inside of it change places.
pub(super) fn permute(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let has_loop = |tree: &Tree| matches!(tree, Tree::Loop { body, .. } if body.iter().any(is_loop));
    let (place, at) = pick(choices, &trees(schedule, has_loop))?;
    let Tree::Loop { kind, axis, body } = &mut list_mut(schedule, &place)?[at] else { return None };
    let inner = body.iter_mut().find(|tree| is_loop(tree))?;
    let Tree::Loop { kind: inner_kind, axis: inner_axis, .. } = inner else { return None };
    std::mem::swap(kind, inner_kind);
    std::mem::swap(axis, inner_axis);
    Some(())
}

/// A leaf is left out, or all leaves of its nest; of a copy the declaration as well, so that what read it reads the buffer, and loops that
/// copied nothing else ahead do so no longer.
pub(super) fn drop_leaf(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (flat, _) = loops.flat();
    let live = flat.live_statements();
    let dead = flat.stmts.iter().zip(live).filter(|(_, is_live)| !is_live).map(|(stmt, _)| stmt.name());
    let dead: Vec<&str> = dead.collect();
    let mut leaves = Vec::new();
    for (_, plan) in kernels(schedule) {
        plan.body.iter().for_each(|tree| tree.each_leaf(&mut |leaf| leaves.push(leaf.nest.clone())));
    }
    let unused: Vec<String> = leaves.iter().filter(|leaf| dead.contains(&&***leaf)).cloned().collect();
    let copies: Vec<String> =
        leaves.iter().filter(|leaf| flat.stmts.iter().all(|stmt| !names(stmt, leaf))).cloned().collect();
    // Few programs have any, and hardly another leaf can be left out but those that copy.
    let nest = match (pick(choices, &unused), pick(choices, &copies)) {
        (Some(nest), _) | (None, Some(nest)) if !choices.once_in(4) => nest,
        _ => pick(choices, &leaves)?,
    };
    let is_copy = |tree: &Tree| match tree {
        Tree::Local(Local { holds: Holds::Copy { name, .. } | Holds::Result { name, .. }, .. }) => {
            *name == nest
        }
        Tree::Local(_) | Tree::Loop { .. } | Tree::If { .. } | Tree::Leaf(_) => false,
    };
    if !choices.once_in(4) {
        for (place, _) in lists(schedule, 1) {
            list_mut(schedule, &place)?.retain(|tree| !is_copy(tree));
        }
    }
    let mut which = if choices.once_in(4) { 1 + choices.below(2) } else { 0 };
    let mut keeps = |leaf: &Leaf| {
        let is_kept = leaf.nest != nest || which > 1;
        which = if leaf.nest == nest && which > 0 { 3 - which } else { which };
        is_kept
    };
    for step in &mut schedule.steps {
        if let ScheduleStep::Kernel(plan) = step {
            keep(&mut plan.body, &mut keeps);
            plan.body.iter_mut().for_each(|tree| {
                tree.visit_mut(&mut |tree| {
                    let Tree::Loop { kind: kind @ LoopKind::Pipeline { .. }, body, .. } = tree else {
                        return;
                    };
                    if !body.iter().any(|tree| matches!(tree, Tree::Local(local) if is_of_copy(local))) {
                        *kind = LoopKind::For;
                    }
                });
            });
        }
    }
    Some(())
}

/// Whether a nest of a statement has that name.
fn names(stmt: &Stmt, name: &str) -> bool {
    stmt.nests().iter().any(|nest| nest.name == name)
}

fn is_of_copy(local: &Local) -> bool {
    matches!(local.holds, Holds::Copy { .. })
}

/// Keeps some leaves, and the loops that have any.
fn keep(list: &mut Vec<Tree>, keeps: &mut dyn FnMut(&Leaf) -> bool) {
    list.retain_mut(|tree| match tree {
        Tree::Leaf(leaf) => keeps(leaf),
        Tree::Local(_) => true,
        Tree::Loop { .. } | Tree::If { .. } => {
            tree.blocks_mut().into_iter().for_each(|block| keep(block, keeps));
            tree.blocks().iter().any(|block| !block.is_empty())
        }
    });
}

/// A tree stands twice.
pub(super) fn duplicate_leaf(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (place, at) = pick(choices, &trees(schedule, |_| true))?;
    let list = list_mut(schedule, &place)?;
    let copy = list[at].clone();
    list.insert(at + 1, copy);
    rename(schedule, &place, at + 1)
}
