//! Lets a leaf read a copy of a buffer, or store to memory on the way to one: for all of it, or for what the leaf accesses in the loops
//! below.

use litz_ir::loops::{Axis, InstOp, Loops, Nest, Stmt};
use litz_ir::schedule::{Holds, Layout, Leaf, LoadOf, Local, LocalSpace, LoopKind, Part, Schedule, Tree};
use litz_sym::{Expr, Sym};

use super::tree::{TreePath, is_leaf, list_mut, pick, trees};
use crate::choices::Choices;

pub(super) fn copy_buffer(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (flat, _) = loops.flat();
    let ((step, path), at) = pick(choices, &trees(schedule, is_leaf))?;
    let Tree::Leaf(leaf) = list_mut(schedule, &(step, path.clone()))?.get(at)?.clone() else { return None };
    let nest = flat.stmts.iter().flat_map(Stmt::nests).find(|nest| nest.name == leaf.nest)?;
    let loads = nest.body.iter().enumerate().filter_map(|(load, inst)| match inst.op.element() {
        Some((buf, index)) if !nest.writes().contains(&buf) => Some((load, buf, index.to_vec())),
        _ => None,
    });
    let (load, buf, index) = pick(choices, &loads.collect::<Vec<_>>())?;
    let data = &flat.bufs[buf];
    let (place, depth) = block_around((step, &path), choices);
    let name = format!("{}_copy", data.name);
    let accessed = Accessed { nest, leaf: &leaf, index: &index, sizes: &data.sizes };
    let copy = accessed.by_elements(schedule, (&place, &path[depth..]), &name, choices)?;
    let list = list_mut(schedule, &place)?;
    let load = LoadOf { nest: nest.name.clone(), at: load as u32 };
    let holds = Holds::Copy { name, of: data.name.clone(), reader: choices.once_in(3).then_some(load) };
    let local = Local { holds, space: LocalSpace::Scratch, layout: Layout::Dense };
    // Most of the time right before it is read, and made where it is declared.
    let before = path.get(depth).map_or(at, |step| step.0).min(list.len());
    let declared = if choices.once_in(4) { 0 } else { before };
    list.insert(before, copy);
    list.insert(declared, Tree::Local(local));
    Some(())
}

pub(super) fn pass_result(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (flat, _) = loops.flat();
    let ((step, path), at) = pick(choices, &trees(schedule, is_leaf))?;
    let Tree::Leaf(leaf) = list_mut(schedule, &(step, path.clone()))?.get(at)?.clone() else { return None };
    let nest = flat.stmts.iter().flat_map(Stmt::nests).find(|nest| nest.name == leaf.nest)?;
    let stores = nest.body.iter().filter_map(|inst| match &inst.op {
        InstOp::Store { buf, index, .. } => Some((*buf, index.clone())),
        _ => None,
    });
    let (buf, index) = pick(choices, &stores.collect::<Vec<_>>())?;
    let data = &flat.bufs[buf];
    let (place, depth) = block_around((step, &path), choices);
    let name = format!("{}_held", data.name);
    let accessed = Accessed { nest, leaf: &leaf, index: &index, sizes: &data.sizes };
    let back = accessed.by_elements(schedule, (&place, &path[depth..]), &name, choices)?;
    let list = list_mut(schedule, &place)?;
    let space = choices.pick(&[LocalSpace::Scratch, LocalSpace::Shared, LocalSpace::Register]);
    let holds = Holds::Result { name, of: data.name.clone() };
    let local = Local { holds, space, layout: Layout::Dense };
    let behind = path.get(depth).map_or(at, |step| step.0).min(list.len());
    let declared = if choices.once_in(4) { 0 } else { behind };
    let early = choices.once_in(8);
    list.insert((behind + usize::from(!early)).min(list.len()), back);
    list.insert(declared, Tree::Local(local));
    Some(())
}

/// The path of a block around a leaf, and its depth: the innermost one that is the likeliest to be large enough comes first.
fn block_around((step, path): (usize, &[(usize, usize)]), choices: &mut Choices<'_>) -> (TreePath, usize) {
    let depth = path.len().saturating_sub(choices.below(path.len() + 1));
    ((step, path[..depth].to_vec()), depth)
}

/// What a leaf accesses of a buffer.
struct Accessed<'a> {
    nest: &'a Nest,
    leaf: &'a Leaf,
    index: &'a [Expr],
    sizes: &'a [Expr],
}

impl Accessed<'_> {
    /// A leaf of that name in loops over the elements that are accessed below a list, or a few less.
    fn by_elements(
        &self,
        schedule: &mut Schedule,
        (place, below): (&TreePath, &[(usize, usize)]),
        name: &str,
        choices: &mut Choices<'_>,
    ) -> Option<Tree> {
        let inner = loops_below(list_mut(schedule, place)?, below);
        let number = trees(schedule, |tree| matches!(tree, Tree::Loop { .. })).len();
        let (mut axes, mut bind) = (Vec::new(), Vec::new());
        for (dim, (&coordinate, &size)) in self.index.iter().zip(self.sizes).enumerate() {
            let var = Sym::new(&format!("c{number}_{dim}"));
            let (first, count) = match choices.once_in(3) {
                true => (Expr::zero(), size),
                false => footprint(self.nest, self.leaf, coordinate, &inner),
            };
            let short = if choices.once_in(8) { 1 } else { 0 };
            axes.push(Axis { var, extent: count - short });
            bind.push((Sym::new(&format!("d{dim}")), first + Expr::sym(var)));
        }
        let masked = !choices.once_in(4);
        let leaf = Leaf { nest: name.to_owned(), part: Part::Whole, bind, masked, block: None, by: None };
        let around = |body, axis| Tree::Loop { kind: LoopKind::For, axis, body: vec![body] };
        Some(axes.into_iter().rev().fold(Tree::Leaf(leaf), around))
    }
}

/// The loops on the way from a list down the rest of a path.
fn loops_below(list: &[Tree], path: &[(usize, usize)]) -> Vec<Axis> {
    let (mut list, mut found) = (list, Vec::new());
    for &(at, number) in path {
        let Some(tree) = list.get(at) else { break };
        if let Tree::Loop { axis, .. } = tree {
            found.push(*axis);
        }
        list = tree.blocks()[number];
    }
    found
}

/// The first coordinate that a leaf reads in the loops `inner`, and how many there are if it grows with all of them.
fn footprint(nest: &Nest, leaf: &Leaf, coordinate: Expr, inner: &[Axis]) -> (Expr, Expr) {
    let bound = |sym: Sym| leaf.bind.iter().find(|bind| bind.0 == sym).map(|bind| bind.1);
    let open = |sym: Sym| nest.indices().any(|axis| axis.var == sym).then(Expr::zero);
    let here = coordinate.subst(&|sym| bound(sym).or_else(|| open(sym)));
    let axis = |sym: Sym| inner.iter().find(|axis| axis.var == sym);
    let first = here.subst(&|sym| axis(sym).map(|_| Expr::zero()));
    let last = here.subst(&|sym| axis(sym).map(|axis| axis.extent - 1));
    (first, last - first + 1)
}
