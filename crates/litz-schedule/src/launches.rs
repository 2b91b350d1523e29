//! Merges small kernels of one device that do not depend on each other into one launch: each runs in an interval of a common grid.
//!
//! Kernels of a list of tensors are put together however large they are and whatever the option says: nests that a list made all
//! have its name.
//!
//! Steps are taken in the order in which they are to run. A small kernel goes into the first launch of the last few that it depends on nothing
//! in or behind: so the products of one row by several matrices are one launch, though each is followed by kernels of its own, and these
//! are the next. What such a kernel makes is in memory a few steps longer than without.

use crate::Item;
use crate::axes::fresh;
use crate::context::Cx;
use crate::cost::{Estimator, points};
use crate::cut::grain;
use crate::reuse::Pair;
use litz_ir::graph::Queue;
use litz_ir::loops::{Axis, Loops, Nest, Stmt};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_ir::target::Target;
use litz_sym::{Expr, Rel, Sym};
use std::collections::{BTreeSet, HashMap};

/// Steps that a kernel goes ahead of, at most, to run with others: what it makes is in memory from there on.
const REACH: usize = 8;

/// Chunks of work that a kernel of a CPU has to be small, at most; see [`Heuristics::chunk_ops`].
const MOST_CHUNKS: i64 = 64;

/// Bytes that each unit of a GPU moves in a small kernel, and instructions of its threads, at most: what it does in five microseconds, some launches.
const SMALL_BYTES: i64 = 128 << 10;
const SMALL_WORK: i64 = 1 << 20;

/// Kernels of a list that share a launch, at most: each takes a few parameters of it, and all are compiled together.
const MOST_OF_LIST: usize = 32;

/// Kernels with one name that are a list, at least. Fewer may be what one operator is lowered to, and save few launches.
const LEAST_OF_LIST: usize = 8;

/// Puts items together that are in the order in which they run.
pub fn together(cx: &Cx<'_>, items: Vec<Item>) -> Vec<Item> {
    if !cx.launches_cost() {
        return items;
    }
    let most = cx.heuristics.most_together(cx.target);
    let lists = lists(cx, &items);
    let mut launches: Vec<Launch> = Vec::new();
    let mut place_of: HashMap<usize, usize> = HashMap::new();
    for (item, list) in items.into_iter().zip(lists) {
        let before = item.stmts.iter().flat_map(|&stmt| &cx.deps.stmts[stmt].after);
        let behind = before.filter_map(|stmt| place_of.get(stmt)).max().map_or(0, |&last| last + 1);
        let is_part = list.is_some() || most > 1 && cx.may_share(&item) && cx.is_small(&item);
        let takes = |launch: &Launch| {
            let is_mate = list.is_some() && launch.list == list;
            let room = if is_mate { MOST_OF_LIST } else { most };
            let first = launch.items.first().map(|first| cx.queue(first));
            launch.is_shared && launch.items.len() < room && first == Some(cx.queue(&item))
        };
        let from = behind.max(launches.len().saturating_sub(REACH));
        // Large ones of a list were put in an order by what memory they need, and go ahead of none that share a launch.
        let from = match launches.iter().rposition(|launch| launch.is_shared) {
            Some(last) if list.is_some() => from.max(last),
            Some(_) | None => from,
        };
        let mut last_few = from..launches.len();
        let place = last_few.find(|&at| is_part && takes(&launches[at])).unwrap_or(launches.len());
        place_of.extend(item.stmts.iter().map(|&stmt| (stmt, place)));
        match launches.get_mut(place) {
            Some(launch) => launch.items.push(item),
            None => launches.push(Launch { items: vec![item], is_shared: is_part, list }),
        }
    }
    launches.into_iter().flat_map(|launch| join(cx, launch.items)).collect()
}

/// Items that run at once.
struct Launch {
    items: Vec<Item>,
    /// Whether others may join them.
    is_shared: bool,
    /// The list that the first one belongs to.
    list: Option<usize>,
}

/// For each item the list that it belongs to, if it does: kernels of which each has the same names, so that they share launches
/// wherever they are in a row. Only names count that as many kernels have as a list has at least: others are those of values that operators of
/// single tensors made, such as the learning rates of an optimizer.
pub fn lists(cx: &Cx<'_>, items: &[Item]) -> Vec<Option<usize>> {
    let may_share = |item: &&Item| cx.launches_cost() && cx.may_share(item);
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for name in items.iter().filter(may_share).flat_map(|item| cx.names(item)) {
        *uses.entry(name).or_default() += 1;
    }
    let mut known: HashMap<BTreeSet<&str>, (usize, usize)> = HashMap::new();
    let mut of = |item: &Item| {
        let mut names = if may_share(&item) { cx.names(item) } else { BTreeSet::new() };
        names.retain(|name| uses[name] >= LEAST_OF_LIST);
        if names.is_empty() {
            return None;
        }
        let next = known.len();
        let (list, count) = known.entry(names).or_insert((next, 0));
        *count += 1;
        Some(*list)
    };
    let lists: Vec<Option<usize>> = items.iter().map(&mut of).collect();
    let counts: HashMap<usize, usize> = known.into_values().collect();
    lists.into_iter().map(|list| list.filter(|list| counts[list] >= LEAST_OF_LIST)).collect()
}

/// Launches that items in this order take which belong to lists: the lengths of rows of mates, in launches.
pub fn launches_of_lists(lists: impl Iterator<Item = Option<usize>>) -> usize {
    let (mut launches, mut row, mut last) = (0, 0, None);
    for list in lists {
        row = if list.is_some() && list == last && row < MOST_OF_LIST { row + 1 } else { 1 };
        launches += usize::from(row == 1);
        last = list;
    }
    launches
}

impl<'a> Cx<'a> {
    /// Whether fewer launches take less time: one thread of a CPU runs one kernel after the other, however they are launched.
    fn launches_cost(&self) -> bool {
        match self.target {
            Target::Cpu(cpu) => cpu.threads > 1,
            Target::Gpu(_) => true,
        }
    }

    /// Whether an item may be a part of a launch. On a GPU its blocks are along one axis, or whole ones along several: of other digits too little can be
    /// proved.
    fn may_share(&self, item: &Item) -> bool {
        let is_on_one_axis = match self.target {
            Target::Cpu(_) => true,
            Target::Gpu(_) => {
                item.kernel.as_ref().is_some_and(|kernel| kernel.grid.len() <= 1 || has_whole_blocks(kernel))
            }
        };
        // What has no points has no part.
        let is_empty = |nest: &Nest| nest.all_axes().any(|axis| axis.extent.is_zero());
        let is_apart = item
            .stmts
            .iter()
            .any(|&stmt| self.alone[stmt] || self.loops.stmts[stmt].nests().iter().any(is_empty));
        !item.at_load && item.may_share_launch && is_on_one_axis && !is_apart
    }

    /// Instructions that all points of statements execute.
    fn work(&self, stmts: &[usize]) -> i64 {
        let nests = stmts.iter().flat_map(|&stmt| self.loops.stmts[stmt].nests());
        nests.map(|nest| Estimator::new(self.loops).work(nest)).fold(0, i64::saturating_add)
    }

    /// Names of the values that statements compute.
    fn names(&self, item: &Item) -> BTreeSet<&'a str> {
        let nests = item.stmts.iter().flat_map(|&stmt| self.loops.stmts[stmt].nests());
        nests.flat_map(|nest| &nest.from).map(String::as_str).collect()
    }

    /// Where a kernel runs.
    fn queue(&self, item: &Item) -> Option<Queue> {
        let mut nests = item.stmts.iter().flat_map(|&stmt| self.loops.stmts[stmt].nests());
        nests.next().map(|nest| self.loops.queue_of(&nest.body))
    }

    /// Whether a launch takes a good part of the time of a kernel.
    fn is_small(&self, item: &Item) -> bool {
        match self.target {
            Target::Cpu(_) => self.work(&item.stmts) <= self.heuristics.chunk_ops.saturating_mul(MOST_CHUNKS),
            Target::Gpu(gpu) => {
                let nests = item.stmts.iter().flat_map(|&stmt| self.loops.stmts[stmt].nests());
                let names: Vec<String> = nests.map(|nest| nest.name.clone()).collect();
                let bytes = Estimator::new(self.loops).kernel(&names).traffic.bytes();
                let units = i64::from(gpu.units);
                bytes <= SMALL_BYTES * units && self.work(&item.stmts) <= SMALL_WORK * units
            }
        }
    }
}

/// Several kernels as one, or the only one as it is.
fn join(cx: &Cx<'_>, items: Vec<Item>) -> Vec<Item> {
    if items.len() < 2 {
        return items;
    }
    let stmts: Vec<usize> = items.iter().flat_map(|item| item.stmts.iter().copied()).collect();
    let mut overwrites = Vec::new();
    for item in &items {
        // Others would read what this one writes over.
        let is_own = |&stmt: &usize| item.stmts.contains(&stmt) || !stmts.contains(&stmt);
        let is_used_there = |&&(from, _): &&Pair| cx.deps.users[from].iter().all(is_own);
        overwrites.extend(item.overwrites.iter().filter(is_used_there));
    }
    let plans: Vec<KernelPlan> = items.into_iter().filter_map(|item| item.kernel).collect();
    let kernel = Some(in_parts(cx, &plans, cx.work(&stmts)));
    vec![Item { stmts, at_load: false, may_share_launch: false, kernel, overwrites }]
}

/// A kernel that runs each plan in iterations of its own, of which all do so much work.
fn in_parts(cx: &Cx<'_>, plans: &[KernelPlan], work: i64) -> KernelPlan {
    let loops = cx.loops;
    let var = part_variable(loops, plans);
    let p = Expr::sym(var);
    let (mut parts, mut end) = (Vec::new(), Expr::zero());
    for plan in plans {
        let (count, body) = match cx.target {
            Target::Cpu(_) => part(loops, plan, p - end),
            Target::Gpu(_) => blocks(plan, p - end),
        };
        end = end + count;
        parts.push((end, body));
    }
    let last = parts.pop().map(|(_, body)| body).unwrap_or_default();
    let either = |other, (end, then)| vec![Tree::If { cond: Rel::lt(p, end), then, other }];
    let body = parts.into_iter().rev().fold(last, either);
    let grid = vec![Axis { var, extent: end }];
    let count = points(&loops.facts, &grid);
    let grain = match cx.target {
        Target::Cpu(cpu) => grain(count, work / count, cpu.threads, cx.heuristics),
        // A block takes one point.
        Target::Gpu(_) => 1,
    };
    // Where each has so few that more blocks are there at once, all have.
    let registers = plans.iter().try_fold(0, |most, plan| plan.registers.map(|own| own.max(most)));
    KernelPlan { registers, ..KernelPlan::new(grid, grain, body) }
}

/// A variable that no plan has.
fn part_variable(loops: &Loops, plans: &[KernelPlan]) -> Sym {
    let mut taken: Vec<Sym> = plans.iter().flat_map(|plan| &plan.grid).map(|axis| axis.var).collect();
    for tree in plans.iter().flat_map(|plan| &plan.body) {
        tree.visit(&mut |tree| match tree {
            Tree::Loop { axis, .. } => taken.push(axis.var),
            Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_) => {}
        });
    }
    let axes = loops.stmts.iter().flat_map(Stmt::nests).flat_map(|nest| nest.all_axes());
    taken.extend(axes.map(|axis| axis.var));
    fresh("p", |sym| taken.contains(&sym) || loops.facts.is_symbol_declared(sym))
}

/// How many iterations a plan has in the grid of a launch, and what happens in the one of that number: all of it where one
/// thread would take all at once.
fn part(loops: &Loops, plan: &KernelPlan, number: Expr) -> (Expr, Vec<Tree>) {
    let within = |axes: &[Axis]| {
        let around = |body, axis: &Axis| vec![Tree::Loop { kind: LoopKind::For, axis: *axis, body }];
        axes.iter().rev().fold(plan.body.clone(), around)
    };
    let is_fixed = plan.grid.iter().all(|axis| axis.extent.as_int().is_some());
    let is_at_once = is_fixed && points(&loops.facts, &plan.grid).unsigned_abs() <= plan.grain;
    match plan.grid.split_first() {
        Some((first, others)) if !is_at_once => {
            let mut body = within(others);
            body.iter_mut().for_each(|tree| tree.replace(first.var, number));
            (first.extent, body)
        }
        Some(_) | None => (Expr::one(), within(&plan.grid)),
    }
}

/// Whether all blocks of a plan take as many points, which begin at multiples of their numbers.
fn has_whole_blocks(plan: &KernelPlan) -> bool {
    let is_fixed = |axis: &Axis| axis.extent.as_int().is_some();
    let mut are_whole = plan.grid.iter().all(is_fixed);
    for tree in &plan.body {
        tree.visit(&mut |tree| {
            are_whole &= match tree {
                Tree::Loop { axis, .. } => is_fixed(axis),
                Tree::Leaf(leaf) => {
                    let is_linear =
                        |value: Expr| plan.grid.iter().all(|axis| value.linear(axis.var).is_some());
                    !leaf.masked && leaf.bind.iter().all(|bind| is_linear(bind.1))
                }
                Tree::If { .. } => false,
                Tree::Local(_) => true,
            };
        });
    }
    are_whole
}

/// How many blocks a plan of a GPU has in the grid of a launch, and what happens in the one of that number.
fn blocks(plan: &KernelPlan, number: Expr) -> (Expr, Vec<Tree>) {
    let (mut body, mut count) = (plan.body.clone(), Expr::one());
    for (at, axis) in plan.grid.iter().enumerate().rev() {
        // The blocks of an axis within those of the axes outside of it.
        let number = number.floordiv(count);
        let number = if at == 0 { number } else { number.modulo(axis.extent) };
        body.iter_mut().for_each(|tree| tree.replace(axis.var, number));
        count = count * axis.extent;
    }
    (count, body)
}
