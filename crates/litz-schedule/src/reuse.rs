//! Buffers that a kernel writes over others which it reads last, so that both take the memory of one.
//!
//! A point may write over the element that it reads itself, if no other point reads that. So may a point of a nest that
//! runs row by row behind others, if these read nothing of other rows.

use crate::access::{Access, accesses};
use crate::deps::Deps;
use crate::nest;
use litz_ir::loops::{Axis, Buf, BufKind, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, Part, Tree};
use litz_sym::{Expr, Sym};
use std::collections::{HashMap, HashSet};

/// A buffer that ends, and the one that is written over it.
pub type Pair = (Buf, Buf);

/// A leaf in its tree.
struct Visit<'a> {
    nest: &'a Nest,
    leaf: &'a Leaf,
    accesses: Vec<Access>,
    /// Loops around, outermost first, those of the grid left out.
    around: Vec<Axis>,
    /// Which child of its parent each of them is, and the leaf.
    turns: Vec<usize>,
}

/// Pairs of buffers of which a kernel of the statements `members` may write the second over the first, if the one ends
/// with it and the other begins with it.
pub fn candidates(loops: &Loops, deps: &Deps, members: &[usize], plan: &KernelPlan) -> Vec<Pair> {
    let nests: Vec<&Nest> = members.iter().map(|&stmt| nest(loops, stmt)).collect();
    let mut visits = Vec::new();
    walk(&nests, &plan.body, &mut Vec::new(), &mut Vec::new(), &mut visits);
    let is_of_call = |buf: Buf| {
        let is_kept = deps.escapes[buf] || deps.users[buf].iter().any(|&stmt| deps.stmts[stmt].at_load);
        let is_local = plan.locals.iter().any(|local| local.buf == loops.bufs[buf].name);
        loops.bufs[buf].kind == BufKind::Temp && !is_kept && !is_local
    };
    let all: Vec<Access> = nests.iter().flat_map(|nest| accesses(nest)).collect();
    let stores_to = |buf: Buf| all.iter().filter(move |access| access.store && access.buf == buf).count();
    let mut read: Vec<Buf> = all.iter().filter(|access| !access.store).map(|access| access.buf).collect();
    read.sort_unstable();
    read.dedup();
    read.retain(|&buf| is_of_call(buf) && stores_to(buf) == 0);
    let mut pairs = Vec::new();
    for visit in visits.iter().filter(|visit| visit.leaf.part != Part::Body) {
        for store in visit.accesses.iter().filter(|access| access.store) {
            let to = store.buf;
            if !is_of_call(to) || stores_to(to) != 1 || !is_own(loops, visit, store) {
                continue;
            }
            let type_of = |buf: Buf| (loops.bufs[buf].dtype, loops.bufs[buf].span());
            for &from in read.iter().filter(|&&from| type_of(from) == type_of(to)) {
                let is_done = |other: &Visit| is_done(loops, &plan.grid, from, other, (visit, store));
                if visits.iter().all(is_done) {
                    pairs.push((from, to));
                }
            }
        }
    }
    pairs
}

/// The pairs that lives allow, in order: the candidates of each step whose first buffer it uses last and whose second one it
/// uses first. `steps` are the statements of each step and its candidates.
pub fn choose(deps: &Deps, steps: &[(Vec<usize>, Vec<Pair>)]) -> Vec<Pair> {
    let step_of: HashMap<usize, usize> =
        steps.iter().enumerate().flat_map(|(at, step)| step.0.iter().map(move |&stmt| (stmt, at))).collect();
    let uses = |buf: Buf| deps.users[buf].iter().filter_map(|stmt| step_of.get(stmt));
    let (mut chosen, mut taken) = (Vec::new(), HashSet::new());
    for (at, (_, candidates)) in steps.iter().enumerate() {
        for &(from, to) in candidates {
            let is_handed_on = uses(from).max() == Some(&at) && uses(to).min() == Some(&at);
            // A buffer ends once and begins once; both may be in two pairs.
            if is_handed_on && !taken.contains(&(from, true)) && !taken.contains(&(to, false)) {
                taken.extend([(from, true), (to, false)]);
                chosen.push((from, to));
            }
        }
    }
    chosen
}

fn walk<'a>(
    nests: &[&'a Nest],
    trees: &'a [Tree],
    around: &mut Vec<Axis>,
    turns: &mut Vec<usize>,
    visits: &mut Vec<Visit<'a>>,
) {
    for (turn, tree) in trees.iter().enumerate() {
        turns.push(turn);
        match tree {
            Tree::Leaf(leaf) => visits.extend(nests.iter().find(|nest| nest.name == leaf.nest).map(|nest| {
                let (around, turns) = (around.clone(), turns.clone());
                Visit { nest, leaf, accesses: accesses(nest), around, turns }
            })),
            Tree::Loop { axis, body, .. } => {
                around.push(*axis);
                walk(nests, body, around, turns, visits);
                around.pop();
            }
        }
        turns.pop();
    }
}

/// Whether each outer point makes the store once, after what it reduces, to an element that its axes tell, and loads nothing
/// of the buffer.
fn is_own(loops: &Loops, visit: &Visit, store: &Access) -> bool {
    let Visit { nest, leaf, .. } = visit;
    let is_axis = |sym: Sym| nest.axes.iter().any(|axis| axis.var == sym);
    let is_told = |sym: Sym| is_axis(sym) || loops.facts.is_symbol_declared(sym);
    let is_once = nest.reduced.is_empty() || leaf.part == Part::Tail && nest.after_reduce()[store.at];
    !store.combines
        && is_once
        && !visit.accesses.iter().any(|access| !access.store && access.buf == store.buf)
        && store.index.syms().into_iter().all(is_told)
        && nest.colliding_axes(&loops.facts).is_empty()
}

/// Whether the loads of `from` at `visit` are done with an element when the store comes to it, and those of the stored buffer
/// come later.
fn is_done(loops: &Loops, grid: &[Axis], from: Buf, visit: &Visit, (last, store): (&Visit, &Access)) -> bool {
    let loads = |buf: Buf| visit.accesses.iter().filter(move |access| access.buf == buf && !access.store);
    if visit.nest.name == last.nest.name {
        return loads(from).all(|load| load.at < store.at && load.index == store.index);
    }
    let is_before = visit.turns < last.turns;
    if loads(store.buf).next().is_some() && is_before {
        return false;
    }
    let shared_turns = visit.turns.iter().zip(&last.turns).take_while(|(a, b)| a == b).count();
    let shared: Vec<Axis> = grid.iter().chain(&visit.around[..shared_turns]).copied().collect();
    loads(from).all(|load| {
        is_before && {
            let stored = coordinates(loops, from, last, store, &shared);
            let loaded = coordinates(loops, from, visit, load, &shared);
            let same = stored.into_iter().zip(loaded).filter(|(a, b)| a == b).filter_map(|(a, _)| a);
            let told: Vec<Sym> = same.flat_map(|coordinate| counted(coordinate, &shared)).collect();
            shared.iter().all(|axis| axis.extent.is_one() || told.contains(&axis.var))
        }
    })
}

/// Coordinates of an accessed element, of those that loops in `shared` and sizes tell; none where they are not known.
fn coordinates(
    loops: &Loops,
    buf: Buf,
    visit: &Visit,
    access: &Access,
    shared: &[Axis],
) -> Vec<Option<Expr>> {
    let is_axis = |sym: &Sym| visit.leaf.bind.iter().any(|bind| bind.0 == *sym);
    let is_size = |sym: &Sym| loops.facts.is_symbol_declared(*sym);
    let value = |sym: Sym| visit.leaf.bind.iter().find(|bind| bind.0 == sym).map(|bind| bind.1);
    let in_loops = |coordinate: Expr| {
        let is_bound = coordinate.syms().iter().all(|sym| is_axis(sym) || is_size(sym));
        let coordinate = coordinate.subst(&value);
        let is_shared = |sym: &Sym| shared.iter().any(|axis| axis.var == *sym) || is_size(sym);
        (is_bound && coordinate.syms().iter().all(is_shared)).then_some(coordinate)
    };
    let facts = visit.nest.facts(&loops.facts);
    loops.bufs[buf].coordinates(access.index, &facts).into_iter().flatten().map(in_loops).collect()
}

/// The loops that a coordinate counts: all it mentions, if it is a digit of one, or of several the innermost plus its extent
/// times a coordinate of the others.
fn counted(coordinate: Expr, loops: &[Axis]) -> Vec<Sym> {
    let mut unit = Expr::one();
    let mut rest = coordinate;
    let mut counted = Vec::new();
    let mut open: Vec<&Axis> = loops.iter().filter(|axis| coordinate.has_sym(axis.var)).collect();
    while !open.is_empty() {
        let is_next = |axis: &&Axis| rest.linear(axis.var).is_some_and(|(step, _)| step == unit);
        let Some(next) = open.iter().position(is_next) else { return Vec::new() };
        let axis = open.remove(next);
        let Some((_, others)) = rest.linear(axis.var) else { return Vec::new() };
        if loops.iter().any(|other| axis.extent.has_sym(other.var)) {
            return Vec::new();
        }
        (rest, unit) = (others, unit * axis.extent);
        counted.push(axis.var);
    }
    counted
}
