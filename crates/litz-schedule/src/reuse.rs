//! Finds buffers that may reuse in place the memory of a buffer whose last reader is the kernel that writes them.
//!
//! A point may overwrite the element that it reads itself, if no other point reads that. So may a point of a nest that
//! runs row by row behind others, if these read nothing of other rows.

use crate::nest;
use litz_analysis::Dependences;
use litz_analysis::access::{Access, accesses};
use litz_analysis::apart::{self, Touch};
use litz_analysis::collisions::colliding_axes;
use litz_analysis::inside::longest;
use litz_ir::loops::{Axis, Buf, BufKind, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, Part, Tree};
use litz_sym::{Rel, Sym};
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};

/// A buffer that ends, and the one that reuses its memory in place.
pub type Pair = (Buf, Buf);

/// A leaf in its tree.
struct Visit<'a> {
    nest: &'a Nest,
    leaf: &'a Leaf,
    accesses: Vec<Access<'a>>,
    /// Loops around, outermost first, those of the grid left out.
    around: Vec<Axis>,
    path: Path,
    /// Position among all leaves, in the order of the text.
    at: usize,
    /// The nest in the loops around, where it runs at all.
    place: OnceCell<Option<apart::Visit<'a>>>,
    /// What accesses touch, by their positions.
    touched: RefCell<HashMap<usize, Option<Touch<'a>>>>,
}

/// The loops and bodies of `if`s around a leaf, outermost first, by their numbers in the order of the text.
#[derive(Clone, Default)]
struct Path {
    loops: Vec<(usize, Axis)>,
    sides: Vec<(usize, Rel)>,
    /// How many loops, conditions and leaves there were so far.
    seen: usize,
}

impl Path {
    /// What holds at the leaf.
    fn conds(&self) -> impl Iterator<Item = Rel> {
        self.sides.iter().map(|side| side.1)
    }

    /// Whether two leaves are in different bodies of an `if`.
    fn excludes(&self, other: &Path) -> bool {
        self.sides.iter().zip(&other.sides).any(|(a, b)| a.0 == b.0 && a.1 != b.1)
    }
}

impl<'a> Visit<'a> {
    /// What an access touches. None where it never happens.
    fn touch(&self, loops: &'a Loops, grid: &[Axis], access: &Access) -> Option<Touch<'a>> {
        let around = grid.iter().chain(&self.around);
        let around = around.map(|axis| Axis { extent: longest(axis.extent), ..*axis });
        let visit = || apart::Visit::new(loops, self.nest, &self.leaf.bind, around, self.path.conds());
        let place = self.place.get_or_init(visit).as_ref();
        let mut touched = self.touched.borrow_mut();
        touched.entry(access.at).or_insert_with(|| place.and_then(|place| place.touch(access.at))).clone()
    }
}

/// Pairs of buffers of which a kernel of the statements `members` may write the second over the first, if the one ends
/// with it and the other begins with it. The first may be a donated input: what is returned may be the second then.
pub fn candidates(loops: &Loops, deps: &Dependences, members: &[usize], plan: &KernelPlan) -> Vec<Pair> {
    let nests: Vec<&Nest> = members.iter().map(|&stmt| nest(loops, stmt)).collect();
    let mut visits = Vec::new();
    walk(&nests, &plan.body, &mut Path::default(), &mut visits);
    let locals: HashSet<&str> = plan.locals().into_iter().filter_map(|local| local.buffer()).collect();
    let is_made_by_call = |buf: Buf| {
        let is_kept = deps.users[buf].iter().any(|&stmt| deps.stmts[stmt].at_load);
        let is_local = locals.contains(&*loops.bufs[buf].name);
        loops.bufs[buf].kind == BufKind::Temp && !is_kept && !is_local
    };
    let is_of_call = |buf: Buf| is_made_by_call(buf) && !deps.escapes[buf];
    let donated: Vec<Buf> = loops.donated.iter().copied().filter(|&buf| loops.is_given_up(buf)).collect();
    let all: Vec<Access> = nests.iter().flat_map(|nest| accesses(nest)).collect();
    let stores_to = |buf: Buf| all.iter().filter(move |access| access.store && access.buf == buf).count();
    let mut read: Vec<Buf> = all.iter().filter(|access| !access.store).map(|access| access.buf).collect();
    read.sort_unstable();
    read.dedup();
    let is_free = |buf: Buf| is_of_call(buf) || donated.contains(&buf);
    // What another stream uses as well may still be in use.
    read.retain(|&buf| is_free(buf) && stores_to(buf) == 0 && !loops.crosses_streams(buf, &deps.users[buf]));
    let mut pairs = Vec::new();
    for nest in &nests {
        let of_nest =
            visits.iter().filter(|visit| visit.leaf.part != Part::Update && visit.nest.name == nest.name);
        let writers: Vec<&Visit> = of_nest.collect();
        let Some(first) = writers.first() else { continue };
        for store in first.accesses.iter().filter(|access| access.store) {
            let to = store.buf;
            if !is_made_by_call(to) || stores_to(to) != 1 || !is_own(loops, first, store) {
                continue;
            }
            let place = |buf: Buf| (loops.bufs[buf].device, loops.bufs[buf].stream);
            let type_of = |buf: Buf| (loops.bufs[buf].dtype, loops.bufs[buf].span(), place(buf));
            let suits = |from: Buf| !deps.escapes[to] || donated.contains(&from);
            for &from in read.iter().filter(|&&from| type_of(from) == type_of(to) && suits(from)) {
                let mut are_done = true;
                for &writer in &writers {
                    let is_done = |other| is_done(loops, &plan.grid, from, other, (writer, store));
                    are_done = are_done && visits.iter().all(is_done);
                }
                if are_done {
                    pairs.push((from, to));
                }
            }
        }
    }
    pairs
}

/// The pairs that lives allow, in order: the candidates of each step whose first buffer it uses last and whose second one it
/// uses first. `steps` are the statements of each step and its candidates.
pub fn choose(deps: &Dependences, steps: &[(Vec<usize>, Vec<Pair>)]) -> Vec<Pair> {
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

fn walk<'a>(nests: &[&'a Nest], trees: &'a [Tree], path: &mut Path, visits: &mut Vec<Visit<'a>>) {
    for tree in trees {
        path.seen += 1;
        let number = path.seen;
        match tree {
            Tree::Leaf(leaf) if !leaf.part.runs_instructions() => {}
            Tree::Leaf(leaf) => visits.extend(nests.iter().find(|nest| nest.name == leaf.nest).map(|nest| {
                let around = path.loops.iter().map(|around| around.1).collect();
                let (path, at) = (path.clone(), number);
                let (place, touched) = (OnceCell::new(), RefCell::default());
                Visit { nest, leaf, accesses: accesses(nest).collect(), around, path, at, place, touched }
            })),
            Tree::Loop { axis, body, .. } => {
                path.loops.push((number, *axis));
                walk(nests, body, path, visits);
                path.loops.pop();
            }
            Tree::If { cond, then, other } => {
                for (cond, body) in [(*cond, then), (cond.negate(), other)] {
                    path.sides.push((number, cond));
                    walk(nests, body, path, visits);
                    path.sides.pop();
                }
            }
            Tree::Local(_) => {}
        }
    }
}

/// Whether each outer point makes the store once, after what it reduces, to an element that its axes tell, and loads nothing
/// of the buffer.
fn is_own(loops: &Loops, visit: &Visit, store: &Access) -> bool {
    let Visit { nest, leaf, .. } = visit;
    let is_axis = |sym: Sym| nest.axes.iter().any(|axis| axis.var == sym);
    let is_told = |sym: Sym| is_axis(sym) || loops.facts.is_symbol_declared(sym);
    let is_once = nest.reduced.is_empty() || leaf.part == Part::Final && nest.after_reduce()[store.at];
    !store.combines
        && is_once
        && !visit.accesses.iter().any(|access| !access.store && access.buf == store.buf)
        && store.index.iter().flat_map(|at| at.syms()).all(is_told)
        && colliding_axes(loops, nest).is_empty()
}

/// Whether the loads of `from` at `visit` are done with an element when the store comes to it, and those of the stored buffer
/// come later.
fn is_done<'a>(
    loops: &'a Loops,
    grid: &[Axis],
    from: Buf,
    visit: &Visit<'a>,
    (last, store): (&Visit<'a>, &Access),
) -> bool {
    let loads = |buf: Buf| visit.accesses.iter().filter(move |access| access.buf == buf && !access.store);
    if visit.nest.name == last.nest.name {
        let place = store.place(loops, last.nest);
        return loads(from).all(|load| load.at < store.at && load.place(loops, visit.nest) == place);
    }
    // In an iteration in which the one runs, the other does not.
    let is_excluded = visit.path.excludes(&last.path);
    let is_before = visit.at < last.at;
    if loads(store.buf).next().is_some() && is_before && !is_excluded {
        return false;
    }
    let both = visit.path.loops.iter().zip(&last.path.loops).take_while(|(a, b)| a.0 == b.0);
    let shared: Vec<Axis> = grid.iter().copied().chain(both.map(|(around, _)| around.1)).collect();
    loads(from).all(|load| {
        let is_apart = || match (last.touch(loops, grid, store), visit.touch(loops, grid, load)) {
            (Some(store), Some(load)) => store.is_apart(&shared, &load),
            // What never happens touches nothing.
            (None, _) | (_, None) => true,
        };
        (is_before || is_excluded) && is_apart()
    })
}
