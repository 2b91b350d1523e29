//! Merges small kernels of one device that do not depend on each other into one launch: each runs in an interval of a common grid.
//!
//! Kernels of a list of tensors are put together however large they are and whatever the option says: nests that a list made all
//! have its name.
//!
//! Steps are taken in the order in which they are to run. A launch that is open takes in each small kernel that depends on
//! nothing in it, and runs before the first step that does; of others a few may go ahead of it. So nothing is in memory
//! much longer than without, and no launches wait for each other in a circle.

use crate::Item;
use crate::axes::fresh;
use crate::context::Cx;
use crate::cost::{Estimator, points};
use crate::cut::grain;
use crate::reuse::Pair;
use litz_ir::graph::Queue;
use litz_ir::loops::{Axis, Loops, Stmt};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_ir::target::Target;
use litz_sym::{Expr, Rel, Sym};
use std::collections::{BTreeSet, HashMap};

/// Steps that go ahead of the first kernel of a launch, at most, though it could run before: what it reads is in memory until then.
const REACH: usize = 4;

/// Chunks of work that a kernel has to be small, at most; see [`Heuristics::chunk_ops`].
const MOST_CHUNKS: i64 = 64;

/// Kernels of a list that share a launch, at most: each takes a few parameters of it, and all are compiled together.
const MOST_OF_LIST: usize = 32;

/// Kernels with one name that are a list, at least. Fewer may be what one operator is lowered to, and save few launches.
const LEAST_OF_LIST: usize = 8;

/// Puts items together that are in the order in which they run.
pub fn together(cx: &Cx<'_>, items: Vec<Item>) -> Vec<Item> {
    if !cx.launches_cost() {
        return items;
    }
    let most = cx.heuristics.launch_together.max(1);
    let lists = lists(cx, &items);
    let (mut order, mut open): (Vec<Item>, Vec<Item>) = (Vec::new(), Vec::new());
    let (mut ahead, mut open_list) = (0, None);
    for (item, list) in items.into_iter().zip(lists) {
        let after = |stmt: &usize| &cx.deps.stmts[*stmt].after;
        let depends = |other: &Item| {
            let mut before = item.stmts.iter().flat_map(after);
            before.any(|stmt| other.stmts.contains(stmt))
        };
        let is_part = list.is_some() || cx.may_share(&item) && most > 1 && cx.is_small(&item);
        let is_mate = list.is_some() && !open.is_empty() && open_list == list;
        let is_elsewhere = open.first().is_some_and(|first| cx.queue(first) != cx.queue(&item));
        let is_full = is_elsewhere || open.len() >= if is_mate { MOST_OF_LIST } else { most };
        if open.iter().any(depends) || is_part && is_full || ahead == REACH {
            order.extend(join(cx, std::mem::take(&mut open)));
        }
        match is_part {
            true => {
                ahead = 0;
                open_list = if open.is_empty() { list } else { open_list };
                open.push(item);
            }
            false => {
                ahead = if open.is_empty() { 0 } else { ahead + 1 };
                order.push(item);
            }
        }
    }
    order.extend(join(cx, open));
    order
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

    /// Whether an item may be a part of a launch. On a GPU its blocks are along one axis: of the digits of several too little can be proved.
    fn may_share(&self, item: &Item) -> bool {
        let is_on_one_axis = match self.target {
            Target::Cpu(_) => true,
            Target::Gpu(_) => item.kernel.as_ref().is_some_and(|kernel| kernel.grid.len() <= 1),
        };
        !item.at_load && item.may_share_launch && is_on_one_axis
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
        self.work(&item.stmts) <= self.heuristics.chunk_ops.saturating_mul(MOST_CHUNKS)
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
    KernelPlan::new(grid, grain, body)
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

/// How many blocks a plan of a GPU has in the grid of a launch, and what happens in the one of that number.
fn blocks(plan: &KernelPlan, number: Expr) -> (Expr, Vec<Tree>) {
    let mut body = plan.body.clone();
    let Some(axis) = plan.grid.first() else { return (Expr::one(), body) };
    body.iter_mut().for_each(|tree| tree.replace(axis.var, number));
    (axis.extent, body)
}
