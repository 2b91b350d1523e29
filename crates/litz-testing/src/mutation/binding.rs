//! Changes what leaves take the axes of their nests for, and which block they store to.

use litz_ir::loops::{InstOp, Loops, Stmt};
use litz_ir::schedule::{Block, Leaf, Schedule, ScheduleStep, Tree};
use litz_sym::{Expr, Sym};

use super::tree::{TreePath, each_axis_mut, is_leaf, kernel_mut, list_mut, pick, trees};
use crate::choices::Choices;

/// A leaf that binds something.
fn bound(schedule: &mut Schedule, choices: &mut Choices<'_>) -> Option<(TreePath, usize)> {
    let binds = |tree: &Tree| matches!(tree, Tree::Leaf(leaf) if !leaf.bind.is_empty());
    pick(choices, &trees(schedule, binds))
}

fn leaf_mut<'s>(schedule: &'s mut Schedule, (place, at): &(TreePath, usize)) -> Option<&'s mut Leaf> {
    match list_mut(schedule, place)?.get_mut(*at)? {
        Tree::Leaf(leaf) => Some(leaf),
        Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) => None,
    }
}

/// Variables of the loops around a leaf and of the grid, with their extents.
pub(super) fn around(schedule: &mut Schedule, (step, path): &TreePath) -> Vec<(Sym, Expr)> {
    let Some(plan) = kernel_mut(schedule, *step) else { return Vec::new() };
    let mut vars: Vec<(Sym, Expr)> = plan.grid.iter().map(|axis| (axis.var, axis.extent)).collect();
    let mut list = &mut plan.body;
    for &(at, number) in path {
        if let Tree::Loop { axis, .. } = &list[at] {
            vars.push((axis.var, axis.extent));
        }
        list = match list[at].blocks_mut().into_iter().nth(number) {
            Some(block) => block,
            None => break,
        };
    }
    vars
}

/// Changes one value of a leaf, or that value in all leaves of the kernel that have it.
fn change(
    schedule: &mut Schedule,
    leaf: &(TreePath, usize),
    from: Expr,
    to: Expr,
    everywhere: bool,
) -> Option<()> {
    let replace = |leaf: &mut Leaf| {
        leaf.bind.iter_mut().filter(|bind| bind.1 == from).for_each(|bind| bind.1 = to);
    };
    if everywhere {
        super::tree::each_leaf_mut(&mut kernel_mut(schedule, leaf.0.0)?.body, &mut |leaf| replace(leaf));
    } else {
        replace(leaf_mut(schedule, leaf)?);
    }
    Some(())
}

/// A loop of one iteration around a leaf counts otherwise: nobody sees it.
fn single(vars: &[(Sym, Expr)]) -> Vec<Sym> {
    vars.iter().filter(|var| var.1.is_one()).map(|var| var.0).collect()
}

/// Gives some loop around a leaf one iteration more that counts nothing, for changes that are seen otherwise.
fn with_single(
    schedule: &mut Schedule,
    leaf: &mut (TreePath, usize),
    choices: &mut Choices<'_>,
) -> Option<Sym> {
    let vars = around(schedule, &leaf.0);
    if let Some(var) = pick(choices, &single(&vars)) {
        return Some(var);
    }
    let (var, kind) = (super::tree::fresh(schedule), litz_ir::schedule::LoopKind::For);
    let list = list_mut(schedule, &leaf.0)?;
    let body = vec![list[leaf.1].clone()];
    list[leaf.1] = Tree::Loop { kind, axis: litz_ir::loops::Axis { var, extent: Expr::one() }, body };
    leaf.0.1.push((leaf.1, 0));
    leaf.1 = 0;
    Some(var)
}

pub(super) fn other_coefficient(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let mut leaf = bound(schedule, choices)?;
    let is_single = choices.once_in(8);
    let var = if is_single { Some(with_single(schedule, &mut leaf, choices)?) } else { None };
    let bind = leaf_mut(schedule, &leaf)?.bind.clone();
    let (_, value) = pick(choices, &bind)?;
    let var = match var {
        Some(var) => var,
        None => pick(choices, &value.syms())?,
    };
    let (factor, rest) = value.linear(var)?;
    let factor = match choices.below(4) {
        0 => factor + 1,
        1 => factor - 1,
        2 => factor * 2,
        _ => Expr::zero(),
    };
    let everywhere = choices.once_in(2);
    change(schedule, &leaf, value, factor * Expr::sym(var) + rest, everywhere)
}

pub(super) fn other_offset(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let mut leaf = bound(schedule, choices)?;
    let var = if choices.once_in(4) { Some(with_single(schedule, &mut leaf, choices)?) } else { None };
    let bind = leaf_mut(schedule, &leaf)?.bind.clone();
    let (_, value) = pick(choices, &bind)?;
    let offset = choices.pick(&[1, -1, 2, 4, -4]);
    let to = value + var.map_or(Expr::int(offset), |var| Expr::sym(var) * offset);
    let everywhere = choices.once_in(2);
    change(schedule, &leaf, value, to, everywhere)
}

/// A variable is taken for another one, in one leaf or in all of the kernel.
pub(super) fn other_variable(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let leaf = bound(schedule, choices)?;
    let vars = around(schedule, &leaf.0);
    let (one, other) = (pick(choices, &vars)?, pick(choices, &vars)?);
    let (is_swapped, everywhere) = (!choices.once_in(2), choices.once_in(2));
    let replace = |leaf: &mut Leaf| {
        for (_, value) in &mut leaf.bind {
            *value = value.subst(&|sym| match sym {
                _ if sym == one.0 => Some(Expr::sym(other.0)),
                _ if sym == other.0 && is_swapped => Some(Expr::sym(one.0)),
                _ => None,
            });
        }
    };
    if everywhere {
        super::tree::each_leaf_mut(&mut kernel_mut(schedule, leaf.0.0)?.body, &mut |leaf| replace(leaf));
    } else {
        replace(leaf_mut(schedule, &leaf)?);
    }
    Some(())
}

/// Two axes take the values of each other.
pub(super) fn swap_bindings(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let several = |tree: &Tree| matches!(tree, Tree::Leaf(leaf) if leaf.bind.len() > 1);
    let found = pick(choices, &trees(schedule, several))?;
    let leaf = leaf_mut(schedule, &found)?;
    let (flat, _) = loops.flat();
    let nest = flat.stmts.iter().flat_map(Stmt::nests).find(|nest| nest.name == leaf.nest)?;
    let extent = |axis: Sym| nest.all_axes().find(|own| own.var == axis).map(|own| own.extent);
    let pairs = (0..leaf.bind.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
    let mut pairs: Vec<(usize, usize)> = pairs.collect();
    let is_any = choices.once_in(2);
    let alike: Vec<(usize, usize)> =
        pairs.iter().copied().filter(|&(a, b)| extent(leaf.bind[a].0) == extent(leaf.bind[b].0)).collect();
    if !is_any && !alike.is_empty() {
        pairs = alike;
    }
    let (one, other) = pick(choices, &pairs)?;
    let value = leaf.bind[one].1;
    leaf.bind[one].1 = leaf.bind[other].1;
    leaf.bind[other].1 = value;
    Some(())
}

/// A loop counts down.
pub(super) fn reverse(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let mut leaf = bound(schedule, choices)?;
    let var = if choices.once_in(4) { Some(with_single(schedule, &mut leaf, choices)?) } else { None };
    let vars = around(schedule, &leaf.0);
    let (var, extent) = match var {
        Some(var) => *vars.iter().find(|own| own.0 == var)?,
        None => pick(choices, &vars)?,
    };
    let everywhere = choices.once_in(2);
    let reversed = |sym: Sym| (sym == var).then(|| extent - 1 - Expr::sym(var));
    let turn = |leaf: &mut Leaf| {
        for (at, (_, value)) in leaf.bind.iter_mut().enumerate() {
            // Of a variable that no axis has, one has it afterwards.
            if extent.is_one() && at == 0 && !value.has_sym(var) {
                *value = *value + Expr::sym(var);
            }
            *value = value.subst(&reversed);
        }
    };
    if everywhere {
        super::tree::each_leaf_mut(&mut kernel_mut(schedule, leaf.0.0)?.body, &mut |leaf| {
            if leaf.bind.iter().any(|bind| bind.1.has_sym(var)) {
                turn(leaf);
            }
        });
    } else {
        turn(leaf_mut(schedule, &leaf)?);
    }
    Some(())
}

/// A leaf's block gets another width or number; one without stores to blocks.
pub(super) fn change_block(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let found = pick(choices, &trees(schedule, is_leaf))?;
    let with_block = |tree: &Tree| matches!(tree, Tree::Leaf(leaf) if leaf.block.is_some());
    let found = pick(choices, &trees(schedule, with_block)).unwrap_or(found);
    let how = choices.below(6);
    let leaf = leaf_mut(schedule, &found)?;
    match &mut leaf.block {
        Some(_) if how == 5 => drop_block(schedule, &found, choices)?,
        Some(block) => match how {
            0 => block.width = block.width + 1,
            1 => block.width = block.width * 2,
            2 => block.width = block.width - 1,
            3 => block.number = block.number + 1,
            _ => block.width = block.width.floordiv(2),
        },
        None => {
            let (flat, _) = loops.flat();
            let nest = flat.stmts.iter().flat_map(Stmt::nests).find(|nest| nest.name == leaf.nest)?;
            let stored = nest.body.iter().find_map(|inst| match inst.op {
                InstOp::Store { buf, .. } => Some(flat.bufs.get(buf)?.span()),
                _ => None,
            });
            let (blocks, missing) = (choices.pick(&[3, 2, 4]), i64::from(how == 3));
            let width = stored?.ceildiv(blocks) - missing;
            let number = super::tree::fresh(schedule);
            leaf_mut(schedule, &found)?.block = Some(Block { number: Expr::sym(number), width });
            let axis = litz_ir::loops::Axis { var: number, extent: Expr::int(blocks) };
            if how == 4 {
                kernel_mut(schedule, found.0.0)?.grid.insert(0, axis);
            } else {
                let list = list_mut(schedule, &(found.0.0, Vec::new()))?;
                let top = found.0.1.first().map_or(found.1, |first| first.0);
                let body = vec![list[top].clone()];
                list[top] = Tree::Loop { kind: litz_ir::schedule::LoopKind::For, axis, body };
            }
        }
    }
    Some(())
}

/// A leaf stores to all of its buffer, or the loop that counts its blocks has one iteration.
fn drop_block(schedule: &mut Schedule, found: &(TreePath, usize), choices: &mut Choices<'_>) -> Option<()> {
    let block = leaf_mut(schedule, found)?.block.take()?;
    let Some(number) = block.number.as_sym().filter(|_| !choices.once_in(3)) else { return Some(()) };
    if let ScheduleStep::Kernel(plan) = &mut schedule.steps[found.0.0] {
        plan.grid.iter_mut().filter(|axis| axis.var == number).for_each(|axis| axis.extent = Expr::one());
        each_axis_mut(&mut plan.body, &mut |axis| {
            if axis.var == number {
                axis.extent = Expr::one();
            }
        });
    }
    Some(())
}
