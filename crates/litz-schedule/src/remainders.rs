//! Decides how a loop whose extent does not divide its axis handles the remainder: the loop ends early, a second body runs the
//! remainder, or leaves are masked.

use std::collections::HashMap;

use crate::nests::Nests;
use litz_analysis::apart::{is_inside_by_digits, may_be_below};
use litz_analysis::inside::{enter, is_inside, longest, undivided};
use litz_ir::loops::{Axis, BufData, Loops};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_sym::{Expr, Facts, Rel, Sym};

/// Ends the loops of a plan where all of their leaves do. Loops in order and vectors end early; what is written out has a
/// version for the rest. Vectors around leaves that are masked already end nowhere.
pub fn end_loops(plan: &mut KernelPlan, nests: &Nests<'_>, facts: &Facts) {
    let mut facts = facts.clone();
    plan.grid.iter().for_each(|axis| enter(&mut facts, *axis));
    end_in(&mut plan.body, &mut Vec::new(), nests, &facts);
}

/// `split_up` are the variables of the loops around that have versions already.
fn end_in(trees: &mut Vec<Tree>, split_up: &mut Vec<Sym>, nests: &Nests<'_>, facts: &Facts) {
    for mut tree in std::mem::take(trees) {
        let limit = match &tree {
            Tree::Loop { axis, .. } if !split_up.contains(&axis.var) => {
                limit(std::slice::from_ref(&tree), *axis, nests, facts)
            }
            Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_) => None,
        };
        match (&mut tree, limit) {
            (Tree::Loop { kind: LoopKind::Unroll, axis, .. }, Some(limit)) => {
                let axis = *axis;
                let mut versions = versions(vec![tree], axis, limit, nests, facts);
                split_up.push(axis.var);
                versions.iter_mut().for_each(|version| end_below(version, split_up, nests, facts));
                split_up.pop();
                trees.extend(versions);
                continue;
            }
            (Tree::Loop { kind, axis, .. }, Some(limit)) => {
                let end = ended(axis.extent, limit, facts);
                // A launch has a number of threads that is known ahead: where they may be more than there are points, leaves are masked.
                if kind.level().is_none() || longest(end).as_int().is_some() {
                    axis.extent = end;
                }
            }
            (Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_), _) => {}
        }
        end_below(&mut tree, split_up, nests, facts);
        trees.push(tree);
    }
}

/// How many iterations a loop has that ends at a limit, if not before.
pub fn ended(extent: Expr, limit: Expr, facts: &Facts) -> Expr {
    let end = facts.simplify(extent.min(limit));
    let may_be_less = !facts.holds(&Rel::le(0, end));
    if may_be_less { end.max(0) } else { end }
}

/// Ends the loops in a tree.
fn end_below(tree: &mut Tree, split_up: &mut Vec<Sym>, nests: &Nests<'_>, facts: &Facts) {
    match tree {
        Tree::Loop { axis, body, .. } => {
            let mut facts = facts.clone();
            enter(&mut facts, *axis);
            // A loop that never runs ends nowhere.
            if !axis.extent.is_zero() {
                end_in(body, split_up, nests, &facts);
            }
        }
        Tree::If { cond, then, other } => {
            for (body, cond) in [(then, *cond), (other, cond.negate())] {
                let mut facts = facts.clone();
                if facts.assume(cond) {
                    end_in(body, split_up, nests, &facts);
                }
            }
        }
        Tree::Local(_) | Tree::Leaf(_) => {}
    }
}

/// Gives trees that contain loops along the axis of a tile, which are written out or vectors, versions for full tiles and
/// for the last one, if its points may be past the end.
/// It ends at `end`, or where all leaves do.
pub fn peel(
    trees: Vec<Tree>,
    (axis, end): (Axis, Option<Expr>),
    nests: &Nests<'_>,
    facts: &Facts,
) -> Vec<Tree> {
    let is_short = |end: &Expr| !facts.holds(&Rel::le(axis.extent, *end));
    let limit = match end {
        Some(end) => Some(end).filter(is_short),
        None => limit(&trees, axis, nests, facts),
    };
    match limit {
        Some(limit) => versions(trees, axis, limit, nests, facts),
        None => trees,
    }
}

/// Versions of trees for full tiles along an axis, and for those of which only the points below `limit` exist.
fn versions(trees: Vec<Tree>, axis: Axis, limit: Expr, nests: &Nests<'_>, facts: &Facts) -> Vec<Tree> {
    let Some(extent) = axis.extent.as_int() else { return trees };
    let remaining = facts.simplify(limit);
    let full = Rel::le(extent, remaining);
    let is_vector = trees.iter().any(|tree| has_vector(tree, axis.var));
    let mut other = trees.clone();
    match constant_rest(remaining, extent, facts) {
        Some(0) => other.clear(),
        Some(rest) => {
            let shorter = Axis { extent: Expr::int(rest), ..axis };
            other.iter_mut().for_each(|tree| with_axis(tree, shorter));
            // Loops around may go on past the last tile.
            let is_last = Rel::le(rest, remaining);
            let mut here = facts.clone();
            if here.assume(full.negate()) && !here.holds(&is_last) {
                other = vec![Tree::If { cond: is_last, then: other, other: Vec::new() }];
            }
        }
        // A vector has a mask; loops of a number of vectors that is not known could name no registers.
        None if is_vector => other.iter_mut().for_each(|tree| mask_along(tree, axis.var, nests)),
        None => {
            let is_known = facts.holds(&Rel::le(0, remaining));
            let extent = if is_known { remaining } else { remaining.max(0) };
            let axis = Axis { extent, ..axis };
            other = vec![Tree::Loop { kind: LoopKind::For, axis, body: without(other, axis.var) }];
        }
    }
    vec![Tree::If { cond: full, then: trees, other }]
}

/// Whether a variable counts the points of a vector.
fn has_vector(tree: &Tree, var: Sym) -> bool {
    let is_vector = match tree {
        Tree::Loop { kind: LoopKind::Vector { .. }, axis, .. } => axis.var == var,
        Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_) => false,
    };
    is_vector || tree.blocks().into_iter().flatten().any(|tree| has_vector(tree, var))
}

/// The number of points the last tile has, when that is the same constant wherever the tile is not full.
fn constant_rest(remaining: Expr, extent: i64, facts: &Facts) -> Option<i64> {
    // remaining = n - extent*tile: equal to n modulo the extent.
    facts.simplify(remaining.modulo(extent)).as_int()
}

/// Gives all loops of a variable another extent.
fn with_axis(tree: &mut Tree, axis: Axis) {
    tree.visit_mut(&mut |tree| match tree {
        Tree::Loop { axis: own, .. } if own.var == axis.var => *own = axis,
        Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_) => {}
    });
}

/// Masks the leaves that a variable counts points for.
fn mask_along(tree: &mut Tree, var: Sym, nests: &Nests<'_>) {
    tree.visit_mut(&mut |tree| match tree {
        Tree::Leaf(leaf) => {
            let is_along = leaf.bind.iter().any(|bind| bind.1.has_sym(var));
            leaf.masked |= is_along && nests.get(leaf).is_some();
        }
        Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) => {}
    });
}

/// Trees without the loops of a variable: what is in them stays.
fn without(trees: Vec<Tree>, var: Sym) -> Vec<Tree> {
    let mut kept = Vec::new();
    for mut tree in trees {
        tree.blocks_mut().into_iter().for_each(|block| *block = without(std::mem::take(block), var));
        match tree {
            Tree::Loop { axis, body, .. } if axis.var == var => kept.extend(body),
            Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_) => kept.push(tree),
        }
    }
    kept
}

/// Where all leaves in the loops along an axis have to stop; `None` where they stay in range anyway, or would have to stop at
/// different points: they are masked then.
fn limit(trees: &[Tree], axis: Axis, nests: &Nests<'_>, facts: &Facts) -> Option<Expr> {
    let mut leaves = Vec::new();
    trees.iter().for_each(|tree| leaves_along(tree, axis.var, None, &mut leaves));
    let is_vector = trees.iter().any(|tree| has_vector(tree, axis.var));
    let mut facts = facts.clone();
    facts.declare_index(axis.var, axis.extent);
    let mut common: Option<Expr> = None;
    for (leaf, below) in leaves {
        // A copy ends where the nests around it do, or is masked.
        let Some(nest) = nests.get(leaf) else { continue };
        // So is what begins before the first point.
        let begins_before = || leaf.bind.iter().any(|bind| may_be_below(bind.1, &facts));
        if leaf.masked && (is_vector || begins_before()) {
            return None;
        }
        // What is merged past the end is nothing.
        let mut stops = leaf.part == Part::Merge && !leaf.bind.iter().any(|bind| bind.1.has_sym(axis.var));
        for &(own, value) in &leaf.bind {
            if !value.has_sym(axis.var) {
                continue;
            }
            let extent = nest.all_axes().find(|axis| axis.var == own)?.extent;
            let has_inner = |value: Expr| below.iter().any(|(_, inner)| value.has_sym(inner.var));
            let (value, extent) = in_units((value, extent), &below, &|kind| kind == LoopKind::Mma, &facts);
            // What runs of points are taken of one by one ends between two runs, if a merged axis is of whole ones:
            // floordiv(2*x + v, n) < m where 2*x + v < m*n, and so where x < m*n / 2.
            let (value, extent) = match has_inner(value) && !value.is_polynomial() {
                true => {
                    let number = undivided(value, extent, &facts);
                    in_units(number, &below, &|kind| kind == LoopKind::Unroll, &facts)
                }
                false => (value, extent),
            };
            // Only the innermost variable of a value ends early.
            if has_inner(value) {
                continue;
            }
            if is_inside(value, extent, &facts) {
                continue;
            }
            let (value, extent) = undivided(value, extent, &facts);
            let Some((coefficient, rest)) = value.linear(axis.var) else { continue };
            if coefficient.is_one() {
                stops |= *common.get_or_insert(extent - rest) == extent - rest;
            }
        }
        if !stops {
            return None;
        }
    }
    common
}

/// What is smaller than what exactly where `value < extent`, counted in the points that inner loops of a kind take, such as an instruction's: an axis
/// of whole units ends between two of them.
/// u*x + k < u*n, 0 <= k < u => x < n
fn in_units(
    (value, extent): (Expr, Expr),
    below: &[(LoopKind, Axis)],
    is_unit: &dyn Fn(LoopKind) -> bool,
    facts: &Facts,
) -> (Expr, Expr) {
    let of_unit = below.iter().filter(|(kind, inner)| is_unit(*kind) && value.has_sym(inner.var));
    of_unit.fold((value, extent), |(value, extent), (_, inner)| {
        let Some(unit) = inner.extent.as_int().filter(|&unit| unit > 0) else { return (value, extent) };
        let mut facts = facts.clone();
        facts.declare_index(inner.var, inner.extent);
        let whole = facts.simplify(value.floordiv(unit));
        let is_whole = facts.simplify(extent.modulo(unit)).is_zero() && !whole.has_sym(inner.var);
        if is_whole { (whole, facts.simplify(extent.floordiv(unit))) } else { (value, extent) }
    })
}

/// The leaves in loops of a variable, with the loops between.
fn leaves_along<'t>(
    tree: &'t Tree,
    var: Sym,
    below: Option<&[(LoopKind, Axis)]>,
    leaves: &mut Vec<(&'t Leaf, Vec<(LoopKind, Axis)>)>,
) {
    match tree {
        Tree::Leaf(leaf) => leaves.extend(below.map(|below| (leaf, below.to_vec()))),
        Tree::Loop { kind, axis, body } => {
            let inside = match below {
                Some(below) => Some([below, &[(*kind, *axis)]].concat()),
                None => (axis.var == var).then(Vec::new),
            };
            body.iter().for_each(|tree| leaves_along(tree, var, inside.as_deref(), leaves));
        }
        Tree::If { .. } | Tree::Local(_) => {
            tree.blocks().into_iter().flatten().for_each(|tree| leaves_along(tree, var, below, leaves));
        }
    }
}

/// Masks the leaves of a finished plan that may come to points past the end of an axis, or before its first.
pub fn mask(plan: &mut KernelPlan, nests: &Nests<'_>, loops: &Loops) {
    let mut facts = loops.facts.clone();
    plan.grid.iter().for_each(|axis| enter(&mut facts, *axis));
    let mut around = plan.grid.clone();
    let copied = copied_buffers(plan, loops);
    plan.body.iter_mut().for_each(|tree| mask_in(tree, (nests, &copied), &mut around, &facts));
}

/// The buffers that the copies of a kernel are made of, by the names of the copies.
fn copied_buffers<'a>(plan: &KernelPlan, loops: &'a Loops) -> HashMap<String, &'a BufData> {
    let locals = plan.locals();
    let copies: HashMap<&str, &str> =
        locals.iter().filter_map(|local| Some((local.copied()?, local.name()))).collect();
    if copies.is_empty() {
        return HashMap::new();
    }
    let named =
        loops.bufs.iter().filter_map(|(_, data)| Some(((*copies.get(&*data.name)?).to_owned(), data)));
    named.collect()
}

fn mask_in(
    tree: &mut Tree,
    known: (&Nests<'_>, &HashMap<String, &BufData>),
    loops: &mut Vec<Axis>,
    facts: &Facts,
) {
    let (nests, copied) = known;
    match tree {
        Tree::Local(_) => {}
        Tree::Leaf(leaf) => {
            let is_loop = |value: Expr, extent: Expr| {
                loops.iter().any(|around| value == Expr::sym(around.var) && around.extent == extent)
            };
            let is_inside = match (nests.get(leaf), copied.get(&leaf.nest)) {
                (Some(nest), _) => leaf.bind.iter().all(|&(own, value)| {
                    let axis = nest.all_axes().find(|axis| axis.var == own);
                    axis.is_none_or(|&Axis { extent, .. }| {
                        is_loop(value, extent) || is_inside(value, extent, facts)
                    })
                }),
                // The digits of a row may be spread over the dimensions of what it is copied from.
                (None, Some(original)) => {
                    leaf.bind.iter().zip(&original.sizes).all(|(&(_, value), &size)| {
                        is_loop(value, size) || is_inside_by_digits(value, size, facts)
                    })
                }
                (None, None) => return,
            };
            leaf.masked |= !is_inside || leaf.bind.iter().any(|bind| may_be_below(bind.1, facts));
        }
        Tree::Loop { axis, body, .. } => {
            let mut facts = facts.clone();
            enter(&mut facts, *axis);
            loops.push(*axis);
            body.iter_mut().for_each(|tree| mask_in(tree, known, loops, &facts));
            loops.pop();
        }
        Tree::If { cond, then, other } => {
            for (body, cond) in [(then, *cond), (other, cond.negate())] {
                let mut facts = facts.clone();
                if facts.assume(cond) {
                    body.iter_mut().for_each(|tree| mask_in(tree, known, loops, &facts));
                }
            }
        }
    }
}
