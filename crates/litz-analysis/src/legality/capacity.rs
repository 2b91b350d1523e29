//! Checks that the memory which kernels declare fits: arrays in registers, buffers in shared memory, rows in a swizzled layout; and that
//! blocks which take turns run at once.

use std::collections::{BTreeMap, HashMap, HashSet};

use litz_sym::Expr;

use super::levels::{Use, level_of};
use super::means::accumulator_types;
use super::{Around, Site, Verifier, Within};
use crate::footprint::{Elements, Footprints, Program, simplest};
use crate::inside::longest;
use crate::threads::{threads_of, threads_within};
use litz_ir::dtype::Dtype;
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, InstOp, Nest, Stmt, Val};
use litz_ir::schedule::{Holds, KernelPlan, Local, LocalSpace, LoopKind, Means, Part, ScheduleStep, Tree};
use litz_ir::target::{BlockNeeds, Gpu, Level, Persistent, Target};
use litz_ir::{ReduceOp, ScalarOp};

/// Bytes of a row of an operand of a warpgroup's instruction, in each of which units change places in a way of their own, and the last of which
/// longer rows are made of. (PTX ISA, `wgmma`: swizzling modes.)
const ROWS: [i64; 3] = [32, 64, 128];

/// Memory of a kernel, and its number among all of the schedule.
#[derive(Clone, Copy)]
struct Numbered<'l> {
    local: &'l Local,
    number: usize,
}

/// What the rows of shared memories are held against.
struct Rows {
    /// Of memories that boxes are copied to or from, the elements of a row of the box.
    boxes: HashMap<usize, i64>,
    /// Memories that instructions of warpgroups read.
    of_warpgroups: HashSet<usize>,
}

/// An array in registers, and how many a thread has of it.
struct Kept {
    number: usize,
    registers: i64,
}

/// What threads keep in registers at a place.
struct Live {
    /// The last of the arrays that is declared.
    last: usize,
    /// Registers of one thread.
    registers: i64,
    /// How many threads come there.
    threads: i64,
}

/// Whether a sum takes the registers of what it is added to: its nest adds it to elements that the plan keeps in registers, and stores the
/// result there.
fn is_resumed(program: Program<'_>, plan: &KernelPlan, local: &Local) -> bool {
    let Some(nest) = local.accumulates().and_then(|name| program.nests.get(name)) else { return false };
    let is_sum = |val: &Val| matches!(nest.body[val.index()].op, InstOp::Reduce(ReduceOp::Sum, _));
    let is_added = |val: &Val| matches!(&nest.body[val.index()].op, InstOp::Op(ScalarOp::Add, of) if of.iter().any(is_sum));
    let is_kept = |buf: Buf| {
        let name = &*program.loops.bufs[buf].name;
        let mut locals = plan.locals().into_iter();
        locals.any(|local| local.space == LocalSpace::Register && local.buffer() == Some(name))
    };
    nest.body.iter().any(|inst| {
        let InstOp::Store { buf, index, value, combine: None } = &inst.op else { return false };
        let is_same = |op: &InstOp| {
            let InstOp::Load { buf: of, index: at, .. } = op else { return false };
            (of, at) == (buf, index)
        };
        is_added(value) && nest.body.iter().any(|inst| is_same(&inst.op)) && is_kept(*buf)
    })
}

/// Whether a leaf reads elements of a memory, or sums, where it stores others, element by element, so that these take the registers of those.
fn is_in_place(used: &Use<'_>, is_sum: bool) -> bool {
    let mut stores = used.nest().body.iter().filter_map(|inst| {
        let InstOp::Store { index, combine: None, .. } = &inst.op else { return None };
        Some(&**index)
    });
    match used.part() {
        Part::Whole | Part::Final => {
            !used.is_store() && (is_sum || stores.any(|index| index == used.element()))
        }
        Part::Init | Part::Update | Part::Merge => false,
    }
}

/// Of how many warps or warpgroups, which `around` counts outside of these trees, what each has summed of a nest is merged: it passes through memory beside
/// the sums themselves.
fn merging(trees: &[Tree], nest: &str, around: i64) -> i64 {
    let of_tree = |tree: &Tree| match tree {
        Tree::Leaf(leaf) if leaf.part == Part::Merge && leaf.nest == nest => around,
        Tree::Loop { kind, axis, body } => {
            let are_units = matches!(kind.level(), Some(Level::Warp | Level::Warpgroup));
            let units = if are_units { longest(axis.extent).as_int().unwrap_or(1) } else { 1 };
            merging(body, nest, around.saturating_mul(units))
        }
        Tree::If { .. } | Tree::Local(_) | Tree::Leaf(_) => {
            tree.blocks().into_iter().map(|block| merging(block, nest, around)).max().unwrap_or(0)
        }
    };
    trees.iter().map(of_tree).max().unwrap_or(0)
}

/// Whether warps behind so many warpgroups have boxes copied, so that registers are moved from these to those ([`litz_ir::kernel::Roles`]).
fn has_copies_behind(plan: &KernelPlan, groups: i64) -> bool {
    let first = groups * i64::from(Gpu::WARPGROUP / Gpu::LANES);
    let mut found = false;
    let mut look = |tree: &Tree| {
        let team = if let Tree::Loop { kind, .. } = tree { kind.team() } else { None };
        if team.is_some_and(|team| team.level == Level::Warp && i64::from(team.from) == first) {
            tree.each_leaf(&mut |leaf| found |= leaf.by == Some(Means::Box));
        }
    };
    plan.body.iter().for_each(|tree| tree.visit(&mut look));
    found
}

impl Verifier<'_> {
    /// Checks all memories of a schedule whose points are those of its nests.
    pub(super) fn capacities(&mut self) {
        let (schedule, loops) = (self.schedule, self.loops);
        let nests: HashMap<&str, &Nest> =
            loops.stmts.iter().flat_map(Stmt::nests).map(|nest| (&*nest.name, nest)).collect();
        let bufs = self.bufs.clone();
        let program = Program { loops, nests: &nests, bufs: &bufs };
        let rows = Rows { boxes: self.boxes(), of_warpgroups: self.read_by_warpgroups() };
        let mut first = 0;
        for (step, of_step) in schedule.steps.iter().enumerate() {
            let ScheduleStep::Kernel(plan) = of_step else { continue };
            let locals = plan.locals();
            let is_said = plan.persistent.is_some() || plan.registers.is_some();
            if is_said || locals.iter().any(|local| is_limited(local, &schedule.target)) {
                self.capacities_of((program, &rows), plan, (step, first));
            }
            first += locals.len();
        }
    }

    /// Checks the memories of a kernel; `first` is the number of the first of them.
    fn capacities_of(
        &mut self,
        (program, rows): (Program<'_>, &Rows),
        plan: &KernelPlan,
        (step, first): (usize, usize),
    ) {
        let simple = simplest(plan, &program.loops.facts);
        let footprints = Footprints::new(program, &simple);
        let (mut shared, mut kept) = (Expr::zero(), Vec::new());
        for (at, local) in plan
            .locals()
            .into_iter()
            .enumerate()
            .filter(|(_, local)| is_limited(local, &self.schedule.target))
        {
            let number = first + at;
            let site = Some(Site { step, within: Some(Within::Local(number)) });
            match footprints.elements(at) {
                Ok(None) => {}
                Ok(Some(elements)) => {
                    let registers = self.registers(Numbered { local, number }, &elements);
                    let registers = registers.filter(|_| !is_resumed(program, plan, local));
                    kept.extend(registers.map(|registers| Kept { number, registers }));
                    self.rows(Numbered { local, number }, &elements, rows);
                    shared = self.capacity(plan, Numbered { local, number }, &elements, shared);
                }
                Err(why) => self.report.fail("wrong-space", why),
            }
            self.note(site);
        }
        if let Target::Gpu(gpu) = self.schedule.target {
            self.room_for_block(&gpu, (plan, step), shared, &kept);
        }
    }

    /// Checks that rows of shared memory are those of boxes that are copied to or from it, and those that an instruction can read.
    fn rows(&mut self, Numbered { local, number }: Numbered<'_>, elements: &Elements, rows: &Rows) {
        let Some(row) = elements.sizes(local).last().copied() else { return };
        let name = self.name_of(number).to_owned();
        if let Some(&expected) = rows.boxes.get(&number) {
            let message = format_args!(
                "`{name}`: no box: its rows are of {row} elements, those of the box of {expected}"
            );
            self.report.check(row == Expr::int(expected), "no-box", message);
        }
        if rows.of_warpgroups.contains(&number) && local.space == LocalSpace::Shared {
            let bytes: Expr = self.types_of(local).iter().map(|dtype| row * dtype.size() as i64).sum();
            let is_row = bytes.as_int().is_some_and(|bytes| ROWS.contains(&bytes) || bytes % ROWS[2] == 0);
            let message =
                format_args!("`{name}`: a warpgroup reads rows of {ROWS:?} bytes, these have {bytes}");
            self.report.check(is_row, "no-instruction", message);
        }
    }

    /// Checks that a unit has room for a block, and that all blocks run at once which a kernel says that take turns.
    fn room_for_block(&mut self, gpu: &Gpu, (plan, step): (&KernelPlan, usize), shared: Expr, kept: &[Kept]) {
        let fits = self.report.diags.is_empty();
        let threads = plan.body.iter().map(threads_within).max().unwrap_or(1).max(1);
        let (mut most, mut worst) = (0, None);
        for live in self.live(kept) {
            if live.registers > most {
                (most, worst) = (live.registers, Some(live));
            }
        }
        if let Some(Live { last, registers, threads }) = worst.filter(|_| fits) {
            let name = self.name_of(last).to_owned();
            let limit = i64::from(plan.registers.unwrap_or(Gpu::REGISTERS));
            let message = format_args!(
                "`{name}`: a thread keeps {registers} registers of 32 bits by here, of which it has {limit}"
            );
            self.report.check(registers <= limit, "wrong-space", message);
            let all = registers.saturating_mul(threads);
            let limit = i64::from(gpu.unit.registers);
            let message = format_args!(
                "`{name}`: {threads} threads keep {all} registers of 32 bits by here, of which a unit has {limit}"
            );
            self.report.check(all <= limit, "wrong-space", message);
            self.note(Some(Site { step, within: Some(Within::Local(last)) }));
        }
        // How many registers a thread has in the end nobody knows before there is code, but where the kernel says how many at most.
        let teams = plan.persistent.map_or(1, |stays| stays.teams);
        let (threads, registers, is_fed) = match (plan.registers, threads / i64::from(Gpu::WARPGROUP)) {
            (Some(registers), groups @ 1..) if has_copies_behind(plan, groups) => {
                let computing = groups as u32 * Gpu::WARPGROUP * teams;
                let at_launch = Gpu::registers_at_launch(computing, registers);
                (i64::from(computing + Gpu::WARPGROUP), at_launch.into(), true)
            }
            (registers, _) => (threads, registers.map_or(most, i64::from), false),
        };
        let message = format_args!(
            "`{}`: {teams} teams of a block, for which no warp behind them has boxes copied, and leaves registers",
            plan.name
        );
        self.report.check(is_fed || teams == 1, "level-width", message);
        self.note(Some(Site { step, within: None }));
        let shared_bytes = self.loops.facts.bounds(shared).hi.max(0);
        let resident = gpu.resident(BlockNeeds { threads, registers, shared_bytes });
        let message = format_args!(
            "`{}`: a unit has no room for {threads} threads with {registers} registers each",
            plan.name
        );
        let is_said = plan.registers.is_some() && fits;
        self.report.check(!is_said || resident > 0, "wrong-space", message);
        self.note(Some(Site { step, within: None }));
        let Some(Persistent { blocks, .. }) = plan.persistent else { return };
        let message = format_args!(
            "`{}`: expected at most {resident} blocks that take turns, which run at once, found {blocks}",
            plan.name
        );
        self.report.check(i64::from(blocks) <= resident, "level-width", message);
        self.note(Some(Site { step, within: None }));
    }

    fn name_of(&self, number: usize) -> &str {
        self.locals[number].0.name()
    }

    /// Registers of 32 bits that a thread has of an array, if it is in registers and so many are known.
    fn registers(&self, Numbered { local, number }: Numbered<'_>, elements: &Elements) -> Option<i64> {
        let is_register = local.space == LocalSpace::Register;
        let extent: Expr = elements.sizes(local).into_iter().product();
        let extent = extent.as_int().filter(|_| is_register)?;
        let of_thread = self.of_thread(number, extent);
        let bytes =
            self.types_of(local).into_iter().map(|dtype| of_thread.saturating_mul(dtype.size() as i64));
        Some(bytes.map(|bytes| (bytes + 3) / 4).sum())
    }

    /// Of each loop around leaves, the first of them and the last.
    pub(super) fn leaves_of_loops(&self) -> &HashMap<usize, (usize, usize)> {
        self.leaves.get_or_init(|| {
            let mut loops: HashMap<usize, (usize, usize)> = HashMap::new();
            for place in self.placed.iter().chain(&self.accumulating).flatten() {
                let Some(leaf) = place.leaf else { continue };
                for around in &place.path {
                    let range = loops.entry(around.number).or_insert((leaf, leaf));
                    *range = (range.0.min(leaf), range.1.max(leaf));
                }
            }
            loops
        })
    }

    /// What threads keep in registers at each leaf that touches some: what was stored before it, or may have been in an earlier iteration of a
    /// loop, and is read later.
    fn live(&self, kept: &[Kept]) -> Vec<Live> {
        let loops = self.leaves_of_loops();
        let (mut lives, mut at) = (Vec::new(), BTreeMap::new());
        for Kept { number, registers } in kept {
            let uses = self.uses_of(*number);
            let mut range: Option<(usize, usize)> = None;
            for (used, leaf) in uses.iter().filter_map(|used| Some((used, used.leaf()?))) {
                let repeats = |around: &&Around| level_of(around).is_none();
                let outermost = used.path_within(*number).iter().find(repeats);
                let (first, last) =
                    outermost.and_then(|around| loops.get(&around.number)).copied().unwrap_or((leaf, leaf));
                range = Some(range.map_or((first, last), |range| (range.0.min(first), range.1.max(last))));
                at.insert(leaf, threads_of_path(used.path()));
            }
            let Some(range) = range else { continue };
            let last: Vec<&Use<'_>> = uses.iter().filter(|used| used.leaf() == Some(range.1)).collect();
            let is_sum = self.locals[*number].0.accumulates().is_some();
            let gives_way = !last.is_empty() && last.iter().all(|used| is_in_place(used, is_sum));
            lives.push((range, *number, *registers, gives_way));
        }
        let live_at = |(leaf, threads): (usize, i64)| {
            let here = lives.iter().filter(|live| (live.0.0..=live.0.1).contains(&leaf));
            let last = here.clone().map(|live| live.1).max()?;
            let all: i64 = here.clone().map(|live| live.2).sum();
            let stored: i64 =
                here.clone().filter(|live| live.0.0 == leaf && live.0.1 > leaf).map(|live| live.2).sum();
            let read: i64 =
                here.filter(|live| live.0.1 == leaf && live.0.0 < leaf && live.3).map(|live| live.2).sum();
            Some(Live { last, registers: all - stored.min(read), threads })
        };
        at.into_iter().filter_map(live_at).collect()
    }

    /// Checks one of them; the bytes that threads share are `shared` in all before it, and in it the result.
    fn capacity(
        &mut self,
        plan: &KernelPlan,
        Numbered { local, number }: Numbered<'_>,
        elements: &Elements,
        shared: Expr,
    ) -> Expr {
        let name = local.name();
        let types = self.types_of(local);
        let extent: Expr = elements.sizes(local).into_iter().product();
        match local.space {
            LocalSpace::Register => {
                let threads = self.threads_of(number);
                let target = self.schedule.target;
                let most = types.iter().map(|dtype| target.register_elements(dtype.size())).min();
                let most = most.unwrap_or(0).saturating_mul(threads);
                let message = format_args!(
                    "`{name}`: expected at most {most} elements, which registers hold, found {extent}"
                );
                self.report.check(extent.as_int().is_some_and(|n| n <= most), "wrong-space", message);
                shared
            }
            LocalSpace::Shared | LocalSpace::Cluster => {
                if let &[dtype] = &*types
                    && let Err(why) = elements.swizzle(local.layout, dtype.size())
                {
                    self.report.fail("wrong-layout", format!("`{name}`: {why}"));
                }
                let element: usize = types.iter().map(|dtype| dtype.size()).sum();
                let merged = local.accumulates().map_or(0, |nest| merging(&plan.body, nest, 1));
                let bytes = extent * element as i64 * (self.buffers_of(plan, local) + merged);
                // Of what a cluster shares, one block might hold all.
                let all = self.loops.facts.simplify(shared + bytes);
                let memories = self.schedule.target.memories();
                let most = memories.iter().find(|memory| memory.name == "shared");
                let most = most.map_or(0, |memory| memory.bytes);
                let message = format_args!(
                    "`{name}`: threads of a block share {all} bytes by here, of which the target has {most}"
                );
                self.report.check(self.loops.facts.bounds(all).hi <= most, "wrong-space", message);
                all
            }
            LocalSpace::Scratch if self.schedule.target.cpu().is_none() => {
                let threads = self.threads_of(number);
                let element: usize = types.iter().map(|dtype| dtype.size()).sum();
                let of_thread = extent.as_int().map(|n| self.of_thread(number, n));
                let bytes = of_thread.map(|n| n.saturating_mul(element as i64));
                let most = Gpu::SCRATCH_BYTES;
                let message = format_args!(
                    "`{name}`: expected {most} bytes for each of {threads} threads at most, found {extent} elements of {element}"
                );
                self.report.check(bytes.is_some_and(|bytes| bytes <= most), "wrong-space", message);
                shared
            }
            LocalSpace::Scratch | LocalSpace::Global => shared,
        }
    }

    /// The type of each array that a declaration makes.
    fn types_of(&self, local: &Local) -> Vec<Dtype> {
        match &local.holds {
            Holds::Buffer(name) | Holds::Copy { name, .. } | Holds::Result { name, .. } => {
                self.bufs.get(&**name).map(|&buf| self.loops.bufs[buf].dtype).into_iter().collect()
            }
            Holds::Accumulator(name) => {
                let stmt = self.stmts.get(&**name).map(|&stmt| &self.loops.stmts[stmt]);
                stmt.into_iter().flat_map(Stmt::nests).flat_map(accumulator_types).collect()
            }
        }
    }

    /// Elements that a thread has of private memory of so many.
    fn of_thread(&self, number: usize, elements: i64) -> i64 {
        let threads = self.threads_of(number);
        elements.saturating_add(threads - 1) / threads
    }

    /// How many threads the elements of private memory are spread over: what the first that stores to it runs in.
    fn threads_of(&self, number: usize) -> i64 {
        if self.schedule.target.cpu().is_some() {
            return 1;
        }
        let levels = self.levels_of_owner(number);
        let counts = levels.into_iter().map(|axis| longest(axis.extent).as_int().unwrap_or(1));
        // In a loop of none nothing is stored.
        counts.fold(1, i64::saturating_mul).max(1)
    }

    /// How many buffers shared memory has: as many as a pipelined loop says that begins with copies to it.
    fn buffers_of(&self, plan: &KernelPlan, local: &Local) -> i64 {
        let mut most = plan.persistent.map_or(1, |stays| i64::from(stays.teams));
        let Some(name) = local.buffer() else { return most };
        plan.body.iter().for_each(|tree| {
            tree.visit(&mut |tree| {
                if let Tree::Loop { kind: LoopKind::Pipeline { buffers }, body, .. } = tree {
                    let ahead = body.iter().take_while(|tree| self.copies_alone(tree));
                    let mut is_ahead = false;
                    ahead.for_each(|tree| {
                        tree.each_leaf(&mut |leaf| is_ahead |= self.stores_to(&leaf.nest, name))
                    });
                    if is_ahead {
                        most = most.max(i64::from(*buffers));
                    }
                }
            });
        });
        most
    }

    /// Whether a tree of a pipelined loop is started ahead: it declares memory, or all of its leaves copy.
    fn copies_alone(&self, tree: &Tree) -> bool {
        let mut copies = true;
        tree.each_leaf(&mut |leaf| {
            let nest = self.nest_named(&leaf.nest);
            copies &= leaf.part == Part::Whole
                && nest.is_some_and(|nest| {
                    let is_access = |op: &InstOp| op.element().is_some();
                    nest.body.iter().all(|inst| is_access(&inst.op))
                });
        });
        copies
    }

    fn stores_to(&self, nest: &str, buf: &str) -> bool {
        let written = self.nest_named(nest).map(Nest::writes).unwrap_or_default();
        written.iter().any(|&written| self.loops.bufs[written].name == buf)
    }

    fn nest_named(&self, name: &str) -> Option<&Nest> {
        let stmt = self.stmts.get(name).map(|&stmt| &self.loops.stmts[stmt])?;
        match stmt {
            Stmt::Nest(nest) => Some(nest),
            Stmt::Extern(_) | Stmt::Recurrence(_) => None,
        }
    }
}

/// Threads that come to a place in these loops: all of the level that is innermost around.
fn threads_of_path(path: &[Around]) -> i64 {
    let levels = path.iter().filter_map(level_of).filter(|(team, _)| team.level != Level::Block);
    let counts = levels.map(|(team, axis)| (longest(axis.extent).as_int().unwrap_or(1), threads_of(team)));
    let (all, innermost) =
        counts.fold((1_i64, 1), |(all, _), (count, threads)| (all.saturating_mul(count), threads));
    all.saturating_mul(innermost)
}

/// Whether there is less of such memory than a kernel may ask for.
fn is_limited(local: &Local, target: &Target) -> bool {
    match local.space {
        LocalSpace::Register | LocalSpace::Shared | LocalSpace::Cluster => true,
        LocalSpace::Scratch => target.cpu().is_none(),
        LocalSpace::Global => false,
    }
}
