//! Plans kernels that reduce along rows and along columns in one pass over a tensor, as the gradients of a normalisation and of its
//! weights need.
//!
//! The columns of a block of rows are added up where the rows are: a sum has an accumulator for each column, and each row, which
//! is in the first-level cache then, is added to them behind what else happens at it. Blocks are points of the grid. What
//! makes one sum of those of the blocks is another statement, which `split_reduce` has made; since how many blocks there are depends on sizes
//! alone, results are the same for any number of threads.

use crate::axes::{Merged, fresh, merge_axes, order_axes};
use crate::context::Cx;
use crate::cost::{footprint, points, work};
use crate::cpu::{cpu, loops};
use crate::cut::grain;
use crate::draft::{Draft, Family, MOST_MEMBERS, Planned, Traits};
use crate::group::{Group, Member};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{Access, Stride, accesses, bound_places, side_exprs, stride, substitute};
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Stmt};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_ir::target::Cpu;
use litz_sym::{Expr, Facts, Rel, Sym};
use std::cmp::Reverse;

/// Rows, and sums over the rows of a block.
#[derive(Debug)]
struct Sweep {
    /// The rows of a block, outermost first.
    over: Vec<Axis>,
    /// What happens at each row, in terms of the shared axes and of those rows. It shares no other points.
    rows: Group,
    /// What adds up rows: nests of alike axes.
    sums: Vec<Member>,
    /// What holds for rows that exist, where the last block has fewer.
    exists: Vec<Rel>,
}

impl Family for Sweep {
    fn traits(&self) -> Traits {
        // What stores to blocks counts these by its grid, and a sum of rows may read what is written at a row.
        Traits { passes_on: true, shares_launch: false, overwrites: false }
    }

    fn closed(&self) -> Option<NoFuse> {
        // Sums over blocks of rows are not there before all rows are.
        Some(NoFuse::OtherPoints)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let scope = self.over.last().map(|axis| axis.var);
        Some(Planned { scope, ..Planned::from(plan(cx, group, self)) })
    }
}

/// Forms the kernel that adds up `sums` while it goes over `rows`, both of which are groups of loops. It saves `bytes` bytes of traffic.
pub fn form(cx: &Cx<'_>, rows: &Draft, sums: &Draft, bytes: i64) -> Result<Draft, NoFuse> {
    let (loops, at_load) = (cx.loops, rows.at_load);
    if rows.group.members.len() + sums.group.members.len() > MOST_MEMBERS {
        return Err(NoFuse::Members);
    }
    // What stays in the cache may be read twice.
    if bytes <= cpu(cx).l2_bytes {
        return Err(NoFuse::NothingGained);
    }
    let is_plain = |draft: &Draft| draft.family::<loops::Loops>().is_some() && !draft.is_empty();
    if !is_plain(rows) || !is_plain(sums) || rows.at_load != sums.at_load {
        return Err(NoFuse::OtherShape);
    }
    let (rows, sums) = (&rows.group, &sums.group);
    let first = nest(loops, sums.members[0].stmt);
    let columns = columns(loops, first).ok_or(NoFuse::OtherShape)?;
    let is_sum = |m: &Member| {
        let other = nest(loops, m.stmt);
        let alike = |a: &[Axis], b: &[Axis]| a.iter().map(|x| x.extent).eq(b.iter().map(|x| x.extent));
        let is_alike = alike(&other.axes, &first.axes) && alike(&other.reduced, &first.reduced);
        is_alike && adds_up(cx, m.stmt)
    };
    if !sums.members.iter().all(is_sum) {
        return Err(NoFuse::OtherShape);
    }
    let values = rows_in_blocks(cx, rows, sums, &columns)?;
    // Kept axes that rows depend on count blocks; all others are columns.
    let is_in_row = |axis: &&Axis| values.iter().any(|(_, value)| value.has_sym(axis.var));
    let (mut outer, mut bind) = (Vec::new(), Vec::new());
    for axis in first.axes.iter().filter(is_in_row) {
        bind.push(cx.share(axis, &mut outer));
    }
    let blocks = outer.len();
    let mut all = outer;
    for axis in &first.reduced {
        bind.push(cx.share(axis, &mut all));
    }
    let over = all.split_off(blocks);
    let outer = all;
    let mut facts = loops.facts.clone();
    outer.iter().chain(&over).for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let mut exists = Vec::new();
    let mut of_rows = Vec::new();
    for (row, value) in &values {
        let end = digits_end(*value, first).ok_or(NoFuse::OtherPoints)?;
        let value = substitute(*value, &bind);
        if !facts.holds(&Rel::eq(end, row.extent)) {
            exists.push(Rel::lt(value, row.extent));
        }
        of_rows.push((row.var, value));
    }
    let is_dropped = |var: Sym| values.iter().all(|(row, _)| row.var != var);
    let dropped: Vec<Sym> = rows.outer.iter().map(|axis| axis.var).filter(|&var| is_dropped(var)).collect();
    let mut at_row = Group { outer: Vec::new(), ..rows.clone() };
    for member in &mut at_row.members {
        member.bind.retain(|(_, value)| !dropped.iter().any(|&var| value.has_sym(var)));
        member.bind.iter_mut().for_each(|(_, value)| *value = substitute(*value, &of_rows));
    }
    let positions: Vec<(usize, Expr)> = first
        .all_axes()
        .enumerate()
        .filter_map(|(at, axis)| Some((at, bind.iter().find(|b| b.0 == axis.var)?.1)))
        .collect();
    let bound = |member: &Member| {
        let axes: Vec<Sym> = nest(loops, member.stmt).all_axes().map(|axis| axis.var).collect();
        Member { stmt: member.stmt, bind: positions.iter().map(|&(at, value)| (axes[at], value)).collect() }
    };
    let adding: Vec<Member> = sums.members.iter().map(bound).collect();
    let members: Vec<Member> = at_row.members.iter().chain(&adding).cloned().collect();
    let by_row = Group { members: members.clone(), outer: outer.iter().chain(&over).copied().collect() };
    is_profitable(cx, &outer, &by_row, &adding)?;
    let sweep = Sweep { over, rows: at_row, sums: adding, exists };
    Ok(Draft::new(Group { members, outer }, at_load, sweep))
}

/// Blocks of a kernel, at least: enough for the threads that the bandwidth of a memory feeds. The number of threads has no say, since sums
/// are added up in another order where there are no blocks.
const LEAST_BLOCKS: i64 = 8;

/// Whether there are blocks enough to share out, and what a row and the accumulators of a block hold fits in the cache.
fn is_profitable(cx: &Cx<'_>, outer: &[Axis], by_row: &Group, sums: &[Member]) -> Result<(), NoFuse> {
    let facts = &cx.loops.facts;
    if points(facts, outer) < LEAST_BLOCKS {
        return Err(NoFuse::LessParallel);
    }
    let is_free = |member: &&Member, axis: &&Axis| member.bind.iter().all(|bind| bind.0 != axis.var);
    let accumulators = sums.iter().map(|member| {
        let own = nest(cx.loops, member.stmt);
        points(facts, own.axes.iter().filter(|axis| is_free(&member, axis))).saturating_mul(8)
    });
    let held = accumulators.fold(0, i64::saturating_add).saturating_add(footprint(cx.loops, cx.deps, by_row));
    match held > cpu(cx).l2_bytes / cx.heuristics.local_fraction {
        true => Err(NoFuse::Footprint),
        false => Ok(()),
    }
}

/// Whether a statement only reduces, so that it may add up rows.
pub fn adds_up(cx: &Cx<'_>, stmt: usize) -> bool {
    let is_free = !cx.in_order[stmt] && !cx.deps.stmts[stmt].is_scatter && cx.contractions[stmt].is_none();
    is_free && matches!(&cx.loops.stmts[stmt], Stmt::Nest(own) if reduces_alone(own))
}

/// Whether a nest only reduces, point by point in any order, and stores what comes of it.
fn reduces_alone(own: &Nest) -> bool {
    let after = own.after_reduce();
    let is_result = |at: usize| match own.body[at].op {
        InstOp::Store { combine, .. } => after[at] && combine.is_none(),
        InstOp::ArgReduce { .. } | InstOp::Scan { .. } | InstOp::Bind { .. } => false,
        InstOp::Load { .. }
        | InstOp::Const(_)
        | InstOp::Index(_)
        | InstOp::Cond(_)
        | InstOp::Op(..)
        | InstOp::Cast(_)
        | InstOp::Bitcast(_)
        | InstOp::Reduce(..) => true,
    };
    own.reduces() && !own.reduced.is_empty() && (0..own.body.len()).all(is_result)
}

/// The kept axes of a nest along which it loads neighbouring elements. None where there are none.
fn columns(loops: &Loops, own: &Nest) -> Option<Vec<Sym>> {
    let is_column = |axis: &&Axis| {
        let mut loads = accesses(own).filter(|access| !access.store);
        loads.any(|load| stride(load.place(loops, own), axis.var) == Stride::Unit)
    };
    let columns: Vec<Sym> = own.axes.iter().filter(is_column).map(|axis| axis.var).collect();
    (!columns.is_empty()).then_some(columns)
}

/// The shared axes of `rows` that are rows of what `sums` add up, each in terms of the axes of the first sum: those whose variable is
/// a coordinate where that is one along which sums run. Whatever a sum reads of what happens at rows, it reads of the same row.
fn rows_in_blocks(
    cx: &Cx<'_>,
    rows: &Group,
    sums: &Group,
    columns: &[Sym],
) -> Result<Vec<(Axis, Expr)>, NoFuse> {
    let first = nest(cx.loops, sums.members[0].stmt);
    let mut values: Vec<(Axis, Expr)> = Vec::new();
    let mut pairs = Vec::new();
    for (row, sum) in rows.members.iter().flat_map(|row| sums.members.iter().map(move |sum| (row, sum))) {
        let (at_row, adding) = (nest(cx.loops, row.stmt), nest(cx.loops, sum.stmt));
        // Both in terms of the axes of the first sum.
        let renamed: Vec<(Sym, Expr)> =
            adding.all_axes().zip(first.all_axes()).map(|(own, of)| (own.var, Expr::sym(of.var))).collect();
        for one in accesses(at_row) {
            for other in accesses(adding).filter(|other| other.buf == one.buf) {
                let there: Vec<Expr> = one.index.iter().map(|&at| substitute(at, &row.bind)).collect();
                let here: Vec<Expr> = other.index.iter().map(|&at| substitute(at, &renamed)).collect();
                pairs.push((one, there, here));
            }
        }
    }
    for (_, there, here) in &pairs {
        for (&there, &here) in there.iter().zip(here) {
            let Some(axis) = rows.outer.iter().find(|axis| there == Expr::sym(axis.var)) else { continue };
            let is_along = here.syms().into_iter().any(|sym| first.all_axes().any(|axis| axis.var == sym));
            let is_column = here.syms().into_iter().any(|sym| columns.contains(&sym));
            if is_along && !is_column && values.iter().all(|(other, _)| other.var != axis.var) {
                values.push((*axis, here));
            }
        }
    }
    let is_counted = |axis: &Axis| values.iter().filter(|(_, value)| value.has_sym(axis.var)).count() == 1;
    if values.is_empty() || !first.reduced.iter().all(is_counted) {
        return Err(NoFuse::OtherShape);
    }
    // Of what is stored at rows, and of what is written to, only elements of the same row are meant.
    let is_same_row = |(one, there, here): &(Access<'_>, Vec<Expr>, Vec<Expr>)| {
        !one.store
            || values.iter().all(|(row, value)| {
                let mut coordinates = there.iter().zip(here);
                coordinates.any(|(there, here)| *there == Expr::sym(row.var) && here == value)
            })
    };
    // A sum takes a row when all else has happened there: what has to come behind the sum, such as a store over what it reads, does not.
    let is_behind =
        |m: &Member| sums.members.iter().any(|sum| cx.deps.stmts[m.stmt].after.contains(&sum.stmt));
    if !pairs.iter().all(is_same_row) || rows.members.iter().any(is_behind) {
        return Err(NoFuse::OtherPoints);
    }
    Ok(values)
}

/// What a value is below whose terms are the axes of a nest as digits: `n*x + y` with y < n.
fn digits_end(value: Expr, own: &Nest) -> Option<Expr> {
    let (mut rest, mut terms) = (value, Vec::new());
    for sym in value.syms() {
        let Some(axis) = own.all_axes().find(|axis| axis.var == sym) else { continue };
        let (coefficient, others) = rest.linear(sym)?;
        terms.push((coefficient, axis.extent));
        rest = others;
    }
    let mut unit = Expr::one();
    while !terms.is_empty() {
        let at = terms.iter().position(|term| term.0 == unit)?;
        unit = unit * terms.swap_remove(at).1;
    }
    rest.is_zero().then_some(unit)
}

/// Plans the kernel.
fn plan(cx: &Cx<'_>, group: &Group, sweep: &Sweep) -> KernelPlan {
    let (&Cx { loops: program, heuristics, .. }, target) = (cx, cpu(cx));
    let around = [&*group.outer, &*sweep.over].concat();
    let mut rows = loops::phase(program, &sweep.rows, &around, target, heuristics);
    let columns = columns_of(program, &sweep.sums, &around);
    // Rows that do not exist have no program to share, but points of sums.
    let shared =
        if sweep.exists.is_empty() { columns.shared_loop(program, &sweep.sums, &rows) } else { None };
    let mut body = match shared {
        Some(at) => {
            if let Tree::Loop { axis, body, .. } = &mut rows[at] {
                let leaves = columns.leaves(program, &sweep.sums, Part::Update);
                body.extend(leaves.into_iter().map(|leaf| columns.along(leaf, axis.var)));
            }
            rows
        }
        None => {
            let exists = sweep.exists.iter();
            let mut body = exists.fold(rows, |then, &cond| vec![Tree::If { cond, then, other: Vec::new() }]);
            let copies = heuristics.reduction_copies;
            body.push(columns.of(program, &sweep.sums, Part::Update, copies, target));
            body
        }
    };
    let in_loop = |body, axis: &Axis| vec![Tree::Loop { kind: LoopKind::For, axis: *axis, body }];
    body = sweep.over.iter().rev().fold(body, in_loop);
    body.push(columns.of(program, &sweep.sums, Part::Final, 1, target));
    let count = points(&program.facts, &group.outer);
    let grain = grain(count, work(program, group) / count.max(1), target.threads, heuristics);
    let grid = group.outer.clone();
    KernelPlan::new(grid, grain, body)
}

/// The loops over the columns of sums, and the values that they give the axes of the first sum, by position.
struct Columns {
    axes: Vec<Merged>,
    positions: Vec<(usize, Expr)>,
}

/// The columns of sums in loops `around`, in the order of memory.
fn columns_of(loops: &Loops, sums: &[Member], around: &[Axis]) -> Columns {
    let first = nest(loops, sums[0].stmt);
    let is_free = |axis: &&Axis| sums[0].bind.iter().all(|bind| bind.0 != axis.var);
    let mut axes: Vec<Axis> = first.axes.iter().filter(is_free).copied().collect();
    let mut known: Facts = loops.facts.clone();
    around.iter().for_each(|axis| known.declare_index(axis.var, axis.extent));
    let (mut indices, mut others) = (Vec::new(), Vec::new());
    for member in sums {
        let own = nest(loops, member.stmt);
        let renamed: Vec<(Sym, Expr)> =
            own.all_axes().zip(first.all_axes()).map(|(own, of)| (own.var, Expr::sym(of.var))).collect();
        let places = bound_places(loops, own, &member.bind, &own.facts(&known));
        indices.extend(places.into_iter().map(|(_, place)| substitute(place, &renamed)));
        others.extend(side_exprs(own).into_iter().map(|e| substitute(e, &renamed)));
    }
    order_axes(&mut axes, &indices, &known);
    let is_taken = |sym: Sym| {
        let mut nests = sums.iter().map(|member| nest(loops, member.stmt));
        loops.facts.is_symbol_declared(sym) || nests.any(|own| own.all_axes().any(|axis| axis.var == sym))
    };
    let axes = merge_axes(&axes, &indices, &others, &|i| fresh(&format!("c{i}"), is_taken));
    let position = |&(sym, value): &(Sym, Expr)| {
        let at = first.all_axes().position(|axis| axis.var == sym);
        (at.expect("invariant: columns are axes of the nest"), value)
    };
    let positions = axes.iter().flat_map(|merged| merged.parts.iter().map(position)).collect();
    Columns { axes, positions }
}

impl Columns {
    /// The position of the loop among those of a row whose iterations are the columns and load most of what sums do, if there is one behind
    /// all that sums read and rows store.
    fn shared_loop(&self, loops: &Loops, sums: &[Member], rows: &[Tree]) -> Option<usize> {
        let [Merged { axis: columns, .. }] = &*self.axes else { return None };
        let adding = self.leaves(loops, sums, Part::Update);
        let reads: Vec<Buf> = sums.iter().flat_map(|member| nest(loops, member.stmt).reads()).collect();
        let stores = |tree: &Tree| leaves_in(tree).iter().any(|leaf| writes_any(loops, leaf, &reads));
        let first = rows.iter().rposition(stores).unwrap_or(0);
        let loads = |at: usize| {
            let Tree::Loop { kind: LoopKind::Vector { .. }, axis, body } = &rows[at] else { return None };
            if axis.extent != columns.extent || !body.iter().all(|tree| matches!(tree, Tree::Leaf(_))) {
                return None;
            }
            let there = elements(loops, &leaves_in(&rows[at]));
            let here: Vec<Tree> = adding.iter().cloned().map(|leaf| self.along(leaf, axis.var)).collect();
            let here: Vec<&Leaf> = here.iter().flat_map(leaves_in).collect();
            let here = elements(loops, &here);
            // What is stored in the loop is there at the column that it is stored at.
            let is_there = |(buf, place, _): &(Buf, Expr, bool)| {
                there.iter().all(|other| other.0 != *buf || !other.2 || other.1 == *place)
            };
            let is_shared = |(buf, place, _): &&(Buf, Expr, bool)| {
                there.iter().any(|other| (other.0, other.1) == (*buf, *place))
            };
            here.iter().all(is_there).then(|| here.iter().filter(is_shared).count())
        };
        let counted = (first..rows.len()).filter_map(|at| Some((loads(at)?, at)));
        counted
            .filter(|(count, _)| *count > 0)
            .max_by_key(|&(count, at)| (count, Reverse(at)))
            .map(|(_, at)| at)
    }

    /// A leaf whose columns the loop of that variable counts.
    fn along(&self, mut leaf: Tree, var: Sym) -> Tree {
        if let [only] = &*self.axes {
            leaf.replace(only.axis.var, Expr::sym(var));
        }
        leaf
    }

    /// A part of all sums, at the columns that the loops count.
    fn leaves(&self, loops: &Loops, sums: &[Member], part: Part) -> Vec<Tree> {
        let leaf = |member: &Member| {
            let own = nest(loops, member.stmt);
            let axes: Vec<Sym> = own.all_axes().map(|axis| axis.var).collect();
            let columns = self.positions.iter().map(|&(at, value)| (axes[at], value));
            let bind = member.bind.iter().copied().chain(columns);
            let bind = bind.filter(|bind| part == Part::Update || !own.is_running(bind.0)).collect();
            Tree::Leaf(Leaf { nest: own.name.clone(), part, bind, masked: false, block: None, by: None })
        };
        sums.iter().map(leaf).collect()
    }

    /// The loops over the columns around a part of all sums, with so many vectors in flight.
    fn of(&self, loops: &Loops, sums: &[Member], part: Part, copies: u32, target: &Cpu) -> Tree {
        let mut body = self.leaves(loops, sums, part);
        let mut kind = LoopKind::Vector { lanes: target.lanes(), copies };
        for merged in self.axes.iter().rev() {
            body = vec![Tree::Loop { kind, axis: merged.axis, body }];
            kind = LoopKind::For;
        }
        body.pop().expect("invariant: sums have columns")
    }
}

fn leaves_in(tree: &Tree) -> Vec<&Leaf> {
    let mut leaves = Vec::new();
    tree.each_leaf(&mut |leaf| leaves.push(leaf));
    leaves
}

fn named<'a>(loops: &'a Loops, leaf: &Leaf) -> Option<&'a Nest> {
    loops.stmts.iter().flat_map(Stmt::nests).find(|own| own.name == leaf.nest)
}

/// Whether the nest of a leaf writes to one of these buffers.
fn writes_any(loops: &Loops, leaf: &Leaf, bufs: &[Buf]) -> bool {
    named(loops, leaf).is_some_and(|own| own.writes().iter().any(|buf| bufs.contains(buf)))
}

/// The elements that the instructions of leaves before any reduction access: buffers, places in them, and whether they are stored.
fn elements(loops: &Loops, leaves: &[&Leaf]) -> Vec<(Buf, Expr, bool)> {
    let mut elements = Vec::new();
    for leaf in leaves {
        let Some(own) = named(loops, leaf) else { continue };
        let after = own.after_reduce();
        let places = bound_places(loops, own, &leaf.bind, &loops.facts);
        let places = places.into_iter().filter(|(access, _)| !after[access.at]);
        elements.extend(places.map(|(access, place)| (access.buf, place, access.store)));
    }
    elements
}
