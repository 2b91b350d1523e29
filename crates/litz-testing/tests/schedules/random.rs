//! Loops and decisions to a legal schedule: kernels of one or several nests, loops in any order and of every kind,
//! split or not, tails with loops of their own, buffers in kernels, over others, in pools and memory of their own.

use litz_analysis::legality;
use litz_ir::loops::{Axis, Buf, BufKind, Inst, InstOp, Loops, Nest, Stmt};
use litz_ir::schedule::{
    Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Pool, Reuse, Schedule, ScheduleStep,
    Tree,
};
use litz_sym::{Expr, Sym};
use litz_testing::choices::Choices;

/// A loop to be: kind and axis.
type Loop = (LoopKind, Axis);

/// What each axis of a nest is, in terms of loops.
type Bind = Vec<(Sym, Expr)>;

/// Sizes that loops are split by; few divide the sizes of programs.
const SPLITS: [i64; 6] = [4, 2, 3, 5, 8, 16];

/// Most points of a loop that is written out.
const MAX_WRITTEN_OUT: i64 = 16;

struct Planner<'a, 'c, 'b> {
    loops: &'a Loops,
    choices: &'c mut Choices<'b>,
    /// Loops named so far.
    names: usize,
    /// Whether a loop around is a vector: there is one at most.
    in_vector: bool,
    /// Loops that are no tiles: reduced ones, because points of a tile that an axis does not have are left out by masks.
    no_tiles: Vec<Sym>,
}

/// Makes a schedule.
pub fn schedule(loops: &Loops, choices: &mut Choices<'_>) -> Schedule {
    let nests: Vec<&Nest> = loops
        .stmts
        .iter()
        .map(|stmt| match stmt {
            Stmt::Nest(nest) => nest,
            Stmt::Extern(_) | Stmt::Recurrence(_) => unreachable!("programs are nests: {}", stmt.name()),
        })
        .collect();
    let mut groups: Vec<Vec<&Nest>> = Vec::new();
    for nest in nests {
        match groups.last_mut() {
            Some(group) if shares_rows(group, nest) && !choices.once_in(3) => group.push(nest),
            _ => groups.push(vec![nest]),
        }
    }
    let mut planner = Planner { loops, choices, names: 0, in_vector: false, no_tiles: Vec::new() };
    let mut plans: Vec<KernelPlan> =
        groups.iter().enumerate().map(|(at, group)| planner.kernel(format!("k{at}"), group)).collect();
    let target = "cpu(isa=avx512, threads=2)".parse().expect("a target");
    plans.iter_mut().for_each(|plan| litz_schedule::choose_spaces(plan, loops, &target));
    let steps = plans.iter().cloned().map(ScheduleStep::Kernel).collect();
    let (name, of) = (loops.name.clone(), loops.name.clone());
    let mut schedule =
        Schedule { name, of, target, functions: Vec::new(), steps, reuses: Vec::new(), pools: Vec::new() };
    planner.reuses(&mut schedule);
    schedule.pools = planner.pools(&groups, &plans, &schedule.reuses);
    schedule
}

/// Whether `nest` and the group run row by row together: one extent of the first axis, and what the group stores at a
/// row is read at that row only.
fn shares_rows(group: &[&Nest], nest: &Nest) -> bool {
    let rows = |nest: &Nest| nest.axes.first().filter(|axis| axis.var.name() == "i").copied();
    let (Some(first), Some(row)) = (rows(group[0]), rows(nest)) else { return false };
    let stays = |nest: &Nest, row: Sym, is_store: bool, wanted: &dyn Fn(Buf) -> bool| {
        accesses(nest)
            .filter(|a| a.2 == is_store && wanted(a.0))
            .all(|(_, index, _)| index.first() == Some(&Expr::sym(row)))
    };
    let stored: Vec<Buf> = group.iter().flat_map(|nest| Stmt::Nest((*nest).clone()).writes()).collect();
    let scans_rows = |nest: &Nest| {
        nest.body.iter().any(|inst| matches!(inst.op, InstOp::Scan { axis, .. } if axis.name() == "i"))
    };
    first.extent == row.extent
        && !scans_rows(nest)
        && !group.iter().any(|nest| scans_rows(nest))
        && group.iter().all(|nest| stays(nest, first.var, true, &|_| true))
        && stays(nest, row.var, true, &|_| true)
        && stays(nest, row.var, false, &|buf| stored.contains(&buf))
}

/// Buffer, index, and whether it is a store.
fn accesses(nest: &Nest) -> impl Iterator<Item = (Buf, &[Expr], bool)> {
    let is_store = |inst: &Inst| matches!(inst.op, InstOp::Store { .. });
    nest.body
        .iter()
        .filter_map(move |inst| inst.op.element().map(|(buf, index)| (buf, index, is_store(inst))))
}

impl Planner<'_, '_, '_> {
    fn name(&mut self) -> Sym {
        self.names += 1;
        Sym::new(&format!("v{}", self.names))
    }

    /// A kind for a loop with loops inside, or (`is_innermost`) without; written out only where its extent is small.
    fn kind(&mut self, axis: Axis, is_innermost: bool, is_ordered: bool) -> LoopKind {
        let is_small = axis.extent.as_int().is_some_and(|n| n <= MAX_WRITTEN_OUT);
        let can_tile = is_small && !is_ordered && !self.no_tiles.contains(&axis.var);
        let lanes = self.choices.pick(&[4, 8, 16]);
        let kind = match self.choices.below(8) {
            0..=2 => LoopKind::For,
            3 if is_small => LoopKind::Unroll,
            4 if can_tile => LoopKind::Unroll,
            5 if can_tile && !self.in_vector => LoopKind::Vector { lanes, copies: 1 },
            6 | 7 if is_innermost && !is_ordered && !self.in_vector => {
                LoopKind::Vector { lanes, copies: 1 + self.choices.below(3) as u32 }
            }
            _ => LoopKind::For,
        };
        self.in_vector |= matches!(kind, LoopKind::Vector { .. });
        kind
    }

    /// One or two loops that run along an axis, outermost first, and the axis in terms of them.
    fn loops_of(&mut self, extent: Expr) -> (Vec<Axis>, Expr) {
        let outer = self.name();
        if !self.choices.once_in(3) {
            return (vec![Axis { var: outer, extent }], Expr::sym(outer));
        }
        let (inner, by) = (self.name(), self.choices.pick(&SPLITS));
        let outer = Axis { var: outer, extent: extent.ceildiv(by) };
        let value = Expr::sym(outer.var) * by + Expr::sym(inner);
        (vec![outer, Axis { var: inner, extent: Expr::int(by) }], value)
    }

    fn kernel(&mut self, name: String, group: &[&Nest]) -> KernelPlan {
        self.in_vector = false;
        let (mut around, mut row): (Vec<Axis>, Option<Expr>) = (Vec::new(), None);
        if group.len() > 1 {
            let (axes, value) = self.loops_of(group[0].axes[0].extent);
            (around, row) = (axes, Some(value));
        }
        let kinds: Vec<LoopKind> = around.iter().map(|axis| self.kind(*axis, false, false)).collect();
        let mut shared: Vec<Loop> = kinds.into_iter().zip(around).collect();
        let mut body = Vec::new();
        let mut rest = group;
        while !rest.is_empty() {
            let count = self.run_length(rest);
            let was_in_vector = self.in_vector;
            body.extend(match count {
                1 => self.alone(rest[0], row),
                _ => self.together(&rest[..count], row),
            });
            self.in_vector = was_in_vector;
            rest = &rest[count..];
        }
        // A kernel of one nest may have loops that hold all of it.
        if group.len() == 1 {
            while let [Tree::Loop { kind: LoopKind::For, axis, body: inner }] = body.as_mut_slice() {
                let is_outer =
                    !inner.iter().any(|tree| matches!(tree, Tree::Leaf(leaf) if leaf.part == Part::Update))
                        && self.runs_apart(group[0], axis.var, inner);
                if !is_outer {
                    break;
                }
                shared.push((LoopKind::For, *axis));
                body = std::mem::take(inner);
            }
        }
        let most = shared.iter().take_while(|(kind, _)| *kind == LoopKind::For).count();
        let taken = most - self.choices.below(most + 1);
        let locals = self.locals(group, &shared);
        let grid: Vec<Axis> = shared.drain(..taken).map(|(_, axis)| axis).collect();
        let body = wrap(shared, body);
        let grain = 1 + self.choices.below(3) as u64;
        let mut plan = KernelPlan { name, ..KernelPlan::new(grid, grain, body) };
        locals.into_iter().for_each(|(local, scope)| declare(&mut plan.body, local, scope));
        litz_schedule::finish(&mut plan, self.loops);
        let choices = &mut *self.choices;
        for tree in &mut plan.body {
            tree.visit_mut(&mut |tree| match tree {
                Tree::Local(local) if choices.once_in(4) => {
                    local.space = choices.pick(&[LocalSpace::Scratch, LocalSpace::Register]);
                }
                Tree::Local(_) | Tree::Loop { .. } | Tree::If { .. } | Tree::Leaf(_) => {}
            });
        }
        plan
    }

    /// Whether the points of loop `var` of the nest are independent: it runs along an axis neither reduced nor scanned.
    fn runs_apart(&self, nest: &Nest, var: Sym, trees: &[Tree]) -> bool {
        let scanned = nest.body.iter().find_map(|inst| match inst.op {
            InstOp::Scan { axis, .. } => Some(axis),
            _ => None,
        });
        let mut apart = true;
        let is_ordered = |axis: Sym| nest.reduced.iter().any(|r| r.var == axis) || Some(axis) == scanned;
        let mut check =
            |leaf: &Leaf| apart &= !leaf.bind.iter().any(|(axis, e)| e.has_sym(var) && is_ordered(*axis));
        trees.iter().for_each(|tree| tree.each_leaf(&mut check));
        apart
    }

    /// How many of the first nests share all of their loops: each has one axis beside the row, of one extent, and reads
    /// what the others store where they store it.
    fn run_length(&mut self, nests: &[&Nest]) -> usize {
        let own = |nest: &Nest| -> Option<Axis> {
            let axes: Vec<Axis> = nest.all_axes().skip(1).copied().collect();
            let is_scan = nest.body.iter().any(|inst| matches!(inst.op, InstOp::Scan { .. }));
            (axes.len() == 1 && !is_scan).then(|| axes[0])
        };
        let Some(first) = own(nests[0]) else { return 1 };
        let place = |nest: &Nest, index: &[Expr]| -> Vec<Expr> {
            let axis = own(nest).expect("every nest of a run has one").var;
            index.iter().map(|at| at.replace(axis, Expr::named("own"))).collect()
        };
        let mut count = 1;
        while let Some(next) = nests.get(count) {
            if own(next).is_none_or(|axis| axis.extent != first.extent) {
                break;
            }
            let stores = nests[..count].iter().flat_map(|nest| {
                accesses(nest).filter(|a| a.2).map(|a| (a.0, place(nest, a.1), nest.reduced.is_empty()))
            });
            let stores: Vec<(Buf, Vec<Expr>, bool)> = stores.collect();
            let fits = accesses(next).filter(|a| !a.2).all(|(buf, index, _)| {
                stores.iter().filter(|s| s.0 == buf).all(|s| s.2 && s.1 == place(next, index))
            });
            if !fits || self.choices.once_in(4) {
                break;
            }
            count += 1;
        }
        count
    }

    /// Several nests in one loop nest along their own axis.
    fn together(&mut self, nests: &[&Nest], row: Option<Expr>) -> Vec<Tree> {
        let extent = nests[0].all_axes().nth(1).expect("one axis beside the row").extent;
        let (axes, value) = self.loops_of(extent);
        if nests.iter().any(|nest| !nest.reduced.is_empty()) {
            self.no_tiles.extend(axes.iter().map(|axis| axis.var));
        }
        let (mut leaves, mut tails) = (Vec::new(), Vec::new());
        for nest in nests {
            let rows: Bind = row.iter().map(|&row| (nest.axes[0].var, row)).collect();
            let own = nest.all_axes().nth(1).expect("one axis beside the row").var;
            let bind: Bind = rows.iter().copied().chain([(own, value)]).collect();
            let part = if nest.reduced.is_empty() { Part::Whole } else { Part::Update };
            leaves.push(leaf(nest, part, bind));
            if part == Part::Update {
                tails.push(leaf(nest, Part::Final, rows));
            }
        }
        let loops = self.kinds(&axes);
        let mut trees = wrap(loops, leaves);
        trees.extend(tails);
        trees
    }

    /// One nest with loops of its own.
    fn alone(&mut self, nest: &Nest, row: Option<Expr>) -> Vec<Tree> {
        let scanned = nest.body.iter().find_map(|inst| match inst.op {
            InstOp::Scan { axis, .. } => Some(axis),
            _ => None,
        });
        let mut bind: Bind = row.iter().map(|&row| (nest.axes[0].var, row)).collect();
        let mut outer: Vec<Axis> = Vec::new();
        let skipped = usize::from(row.is_some());
        let mut ordered: Vec<Axis> = Vec::new();
        for axis in &nest.axes[skipped..] {
            let (axes, value) = self.loops_of(axis.extent);
            bind.push((axis.var, value));
            if Some(axis.var) == scanned { ordered.extend(axes) } else { outer.extend(axes) }
        }
        if nest.reduced.is_empty() {
            let mut axes = self.shuffled(outer);
            let at = self.choices.below(axes.len() + 1);
            axes.splice(at..at, ordered.iter().copied());
            let loops: Vec<Loop> = self.kinds_ordered(&axes, &ordered);
            return wrap(loops, vec![leaf(nest, Part::Whole, bind)]);
        }
        // Loops around both parts, then those that the body has between and inside its reduced loops.
        let outer = self.shuffled(outer);
        let cut = if self.choices.once_in(3) { self.choices.below(outer.len() + 1) } else { outer.len() };
        let (around, inside) = outer.split_at(cut);
        let tail_only: Vec<Axis> =
            inside.iter().map(|axis| Axis { var: self.name(), extent: axis.extent }).collect();
        let no_tile = |(axis, copy): (&Axis, &Axis)| self.no_tiles.contains(&axis.var).then_some(copy.var);
        let no_tiles: Vec<Sym> = inside.iter().zip(&tail_only).filter_map(no_tile).collect();
        self.no_tiles.extend(no_tiles);
        let renamed = |e: Expr| {
            let find =
                |sym| inside.iter().position(|axis| axis.var == sym).map(|at| Expr::sym(tail_only[at].var));
            e.subst(&find)
        };
        let tail_bind: Bind = bind.iter().map(|&(axis, e)| (axis, renamed(e))).collect();
        let has_positions = nest.body.iter().any(|inst| matches!(inst.op, InstOp::ArgReduce { .. }));
        let mut reduced: Vec<Axis> = Vec::new();
        for axis in &nest.reduced {
            let (axes, value) = self.loops_of(axis.extent);
            bind.push((axis.var, value));
            self.no_tiles.extend(axes.iter().map(|axis| axis.var));
            reduced.extend(axes);
        }
        let mut blocks = None;
        if inside.is_empty()
            && !has_positions
            && nest.reduced.len() == 1
            && reduced.len() == 2
            && self.choices.once_in(2)
        {
            blocks = Some(reduced.remove(0));
        }
        // They follow the outermost reduced loop, where the running values begin, and keep their order.
        let mut axes = reduced;
        let mut least = 1;
        for &axis in inside {
            let at = axes.len() - self.choices.below(axes.len() + 1 - least);
            axes.insert(at, axis);
            least = at + 1;
        }
        let mut loops: Vec<Loop> =
            around.iter().map(|axis| (self.kind(*axis, false, false), *axis)).collect();
        let was_in_vector = self.in_vector;
        let inner = self.kinds(&axes);
        let kept = bind.iter().filter(|(axis, _)| !nest.is_running(*axis)).copied().collect();
        let merge = leaf(nest, Part::Merge, kept);
        let mut body = wrap(inner, vec![leaf(nest, Part::Update, bind)]);
        if let Some(axis) = blocks {
            body.push(merge);
            body = vec![Tree::Loop { kind: LoopKind::For, axis, body }];
        }
        self.in_vector = was_in_vector;
        let tail_loops = self.kinds(&tail_only);
        let tail = wrap(tail_loops, vec![leaf(nest, Part::Final, tail_bind)]);
        self.in_vector = was_in_vector;
        wrap(std::mem::take(&mut loops), body.into_iter().chain(tail).collect())
    }

    fn kinds(&mut self, axes: &[Axis]) -> Vec<Loop> {
        self.kinds_ordered(axes, &[])
    }

    /// Kinds for loops around one another, those of `ordered` in order.
    fn kinds_ordered(&mut self, axes: &[Axis], ordered: &[Axis]) -> Vec<Loop> {
        let last = axes.len().wrapping_sub(1);
        let one = |(at, axis): (usize, &Axis)| (self.kind(*axis, at == last, ordered.contains(axis)), *axis);
        axes.iter().enumerate().map(one).collect()
    }

    /// The axes in any order, but that a split axis keeps its outer loop outside.
    fn shuffled(&mut self, mut axes: Vec<Axis>) -> Vec<Axis> {
        if axes.len() >= 2 && self.choices.once_in(2) {
            // Loops of one axis follow each other: taking turns from the back keeps their order.
            axes.rotate_left(1);
            let is_split = |a: &Axis, b: &Axis| a.extent.as_int().is_some() && b.var < a.var;
            if axes.windows(2).any(|pair| is_split(&pair[0], &pair[1])) {
                axes.sort_by_key(|axis| axis.var);
            }
        }
        axes
    }

    /// Buffers that stay inside of the kernel, and the loops in which they do.
    fn locals(&mut self, group: &[&Nest], shared: &[Loop]) -> Vec<(Local, Option<Sym>)> {
        let inside = |stmt: &Stmt| group.iter().any(|nest| nest.name == stmt.name());
        let mut locals = Vec::new();
        for nest in group {
            for (buf, _, _) in accesses(nest).filter(|a| a.2) {
                let uses = |stmt: &&Stmt| stmt.reads().contains(&buf) || stmt.writes().contains(&buf);
                let is_kept =
                    !self.loops.is_internal(buf) || !self.loops.stmts.iter().filter(uses).all(inside);
                if is_kept || !self.choices.once_in(2) {
                    continue;
                }
                let scopes: Vec<Sym> = shared
                    .iter()
                    .filter(|(kind, _)| *kind == LoopKind::For)
                    .map(|(_, axis)| axis.var)
                    .collect();
                let scope = match self.choices.below(scopes.len() + 1) {
                    0 => None,
                    at => Some(scopes[at - 1]),
                };
                let space = self.choices.pick(&[LocalSpace::Scratch, LocalSpace::Register]);
                let holds = Holds::Buffer(self.loops.bufs[buf].name.clone());
                let layout = self.choices.pick(&[Layout::Dense, Layout::Padded(16)]);
                locals.push((Local { holds, space, layout }, scope));
            }
        }
        locals
    }

    /// Writes some buffers over others, whatever the verifier lets pass.
    fn reuses(&mut self, schedule: &mut Schedule) {
        if self.choices.once_in(3) {
            return;
        }
        let temps = self.loops.bufs.values().filter(|data| data.kind == BufKind::Temp);
        let names: Vec<&String> = temps.map(|data| &data.name).collect();
        for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (from, to))) {
            schedule.reuses.push(Reuse { from: from.to_string(), to: to.to_string() });
            if !legality::verify(schedule, self.loops).is_empty() {
                schedule.reuses.pop();
            }
        }
    }

    /// A pool for some of the buffers that kernels hand on: places follow one another, but that a buffer takes that of
    /// one of its own sizes that nothing uses any more.
    fn pools(&mut self, groups: &[Vec<&Nest>], plans: &[KernelPlan], reuses: &[Reuse]) -> Vec<Pool> {
        struct PoolBlock {
            offset: Expr,
            bytes: Expr,
            last: usize,
        }
        let mut open: Vec<PoolBlock> = Vec::new();
        let (mut end, mut places) = (Expr::zero(), Vec::new());
        for (buf, data) in self.loops.bufs.iter().filter(|(_, data)| data.kind == BufKind::Temp) {
            let is_local = plans.iter().any(|plan| plan.has_local(&data.name));
            let mut held = vec![&data.name];
            while let Some(next) = reuses.iter().find(|reuse| reuse.from == **held.last().expect("one")) {
                held.push(&next.to);
            }
            let is_held = |buf: Buf| held.contains(&&self.loops.bufs[buf].name);
            let users: Vec<usize> = (0..groups.len())
                .filter(|&at| groups[at].iter().any(|nest| accesses(nest).any(|access| is_held(access.0))))
                .collect();
            let is_over = reuses.iter().any(|reuse| reuse.to == data.name);
            let (Some(&first), Some(&last)) = (users.first(), users.last()) else { continue };
            if is_local || is_over || !self.loops.is_internal(buf) || self.choices.once_in(3) {
                continue;
            }
            let bytes = (data.span() * data.dtype.size() as i64).ceildiv(64) * 64;
            let offset = match open.iter_mut().find(|place| place.bytes == bytes && place.last < first) {
                Some(place) => {
                    place.last = last;
                    place.offset
                }
                None => {
                    open.push(PoolBlock { offset: end, bytes, last });
                    end = end + bytes;
                    end - bytes
                }
            };
            places.push((data.name.clone(), offset));
        }
        let pool = Pool { name: "pool".to_owned(), bytes: Some(end), places, at_load: false };
        if pool.places.is_empty() { Vec::new() } else { vec![pool] }
    }
}

fn leaf(nest: &Nest, part: Part, bind: Bind) -> Tree {
    Tree::Leaf(Leaf { nest: nest.name.clone(), part, bind, masked: false, block: None, by: None })
}

/// Declares memory in the body of the loop `scope`, or in all of the kernel where no loop is that.
fn declare(body: &mut Vec<Tree>, local: Local, scope: Option<Sym>) {
    fn find(body: &mut [Tree], var: Sym) -> Option<&mut Vec<Tree>> {
        body.iter_mut().find_map(|tree| match tree {
            Tree::Loop { axis, body, .. } => {
                if axis.var == var {
                    Some(body)
                } else {
                    find(body, var)
                }
            }
            Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_) => None,
        })
    }
    let is_there = scope.is_some_and(|var| find(body, var).is_some());
    let block = match scope.filter(|_| is_there).and_then(|var| find(body, var)) {
        Some(block) => block,
        None => return body.insert(0, Tree::Local(local)),
    };
    block.insert(0, Tree::Local(local));
}

/// Trees inside of loops, outermost first.
fn wrap(loops: Vec<Loop>, trees: Vec<Tree>) -> Vec<Tree> {
    let around = |body, (kind, axis): Loop| vec![Tree::Loop { kind, axis, body }];
    loops.into_iter().rev().fold(trees, around)
}
