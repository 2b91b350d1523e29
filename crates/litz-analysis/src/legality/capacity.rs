//! Checks that the memory which kernels declare fits: arrays in registers, buffers in shared memory, rows in a swizzled layout.

use std::collections::HashMap;

use litz_sym::Expr;

use super::{Site, Verifier, Within};
use crate::footprint::{Elements, Footprints, Program, simplest};
use crate::inside::longest;
use litz_ir::dtype::Dtype;
use litz_ir::ids::Id;
use litz_ir::loops::{InstOp, Nest, Stmt, Val};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Local, LocalSpace, LoopKind, Part, ScheduleStep, Tree};

/// Memory of a kernel, and its number among all of the schedule.
#[derive(Clone, Copy)]
struct Numbered<'l> {
    local: &'l Local,
    number: usize,
}

impl Verifier<'_> {
    /// Checks all memories of a schedule whose points are those of its nests.
    pub(super) fn capacities(&mut self) {
        let (schedule, loops) = (self.schedule, self.loops);
        let nests: HashMap<&str, &Nest> =
            loops.stmts.iter().flat_map(Stmt::nests).map(|nest| (&*nest.name, nest)).collect();
        let bufs = self.bufs.clone();
        let program = Program { loops, nests: &nests, bufs: &bufs };
        let mut first = 0;
        for (step, of_step) in schedule.steps.iter().enumerate() {
            let ScheduleStep::Kernel(plan) = of_step else { continue };
            let locals = plan.locals();
            if locals.iter().any(|local| is_limited(local)) {
                self.capacities_of(program, plan, (step, first));
            }
            first += locals.len();
        }
    }

    /// Checks the memories of a kernel; `first` is the number of the first of them.
    fn capacities_of(&mut self, program: Program<'_>, plan: &KernelPlan, (step, first): (usize, usize)) {
        let simple = simplest(plan, &program.loops.facts);
        let footprints = Footprints::new(program, &simple);
        let mut shared = Expr::zero();
        for (at, local) in plan.locals().into_iter().enumerate().filter(|(_, local)| is_limited(local)) {
            let number = first + at;
            let site = Some(Site { step, within: Some(Within::Local(number)) });
            match footprints.elements(at) {
                Ok(None) => {}
                Ok(Some(elements)) => {
                    shared = self.capacity(plan, Numbered { local, number }, &elements, shared);
                }
                Err(why) => self.report.fail("wrong-space", why),
            }
            self.note(site);
        }
    }

    /// Checks one of them; the bytes that threads share are `shared` in all before it, and in it the result.
    fn capacity(
        &mut self,
        plan: &KernelPlan,
        Numbered { local, number }: Numbered<'_>,
        elements: &Elements,
        shared: Expr,
    ) -> Expr {
        let (Holds::Buffer(name) | Holds::Copy { name, .. } | Holds::Accumulator(name)) = &local.holds;
        let types = self.types_of(local);
        let extent: Expr = elements.sizes(local).into_iter().product();
        match local.space {
            LocalSpace::Register => {
                let threads = self.threads_of(local, number);
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
                if let (Layout::Swizzled(unit), &[dtype]) = (local.layout, &*types) {
                    let message = format_args!(
                        "`{name}`: units of {unit} bytes cannot change places in its rows, of {} elements",
                        elements.sizes(local).last().copied().unwrap_or(Expr::one())
                    );
                    let is_regular = elements.swizzle(unit, dtype.size()).is_some();
                    self.report.check(is_regular, "wrong-layout", message);
                }
                let element: usize = types.iter().map(|dtype| dtype.size()).sum();
                let bytes = extent * element as i64 * self.buffers_of(plan, local);
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
            LocalSpace::Scratch | LocalSpace::Global => shared,
        }
    }

    /// The type of each array that a declaration makes.
    fn types_of(&self, local: &Local) -> Vec<Dtype> {
        match &local.holds {
            Holds::Buffer(name) | Holds::Copy { name, .. } => {
                self.bufs.get(&**name).map(|&buf| self.loops.bufs[buf].dtype).into_iter().collect()
            }
            Holds::Accumulator(name) => {
                let stmt = self.stmts.get(&**name).map(|&stmt| &self.loops.stmts[stmt]);
                stmt.into_iter().flat_map(Stmt::nests).flat_map(accumulator_types).collect()
            }
        }
    }

    /// How many threads the elements of private memory are spread over: what the first that stores to it runs in.
    fn threads_of(&self, local: &Local, number: usize) -> i64 {
        if self.schedule.target.cpu().is_some() {
            return 1;
        }
        let levels = self.levels_of_owner(local, number);
        let counts = levels.into_iter().map(|axis| longest(axis.extent).as_int().unwrap_or(1));
        counts.fold(1, i64::saturating_mul)
    }

    /// How many buffers shared memory has: as many as a pipelined loop says that begins with copies to it.
    fn buffers_of(&self, plan: &KernelPlan, local: &Local) -> i64 {
        let Some(name) = local.buffer() else { return 1 };
        let mut most = 1;
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

/// Whether there is less of such memory than a kernel may ask for.
fn is_limited(local: &Local) -> bool {
    matches!(local.space, LocalSpace::Register | LocalSpace::Shared | LocalSpace::Cluster)
}

/// The types of what a nest keeps of each of its reductions and scans.
pub(super) fn accumulator_types(nest: &Nest) -> Vec<Dtype> {
    let ty = |value: Val| nest.body[value.index()].ty.compute();
    let of_inst = |op: &InstOp| match *op {
        InstOp::Reduce(_, value) | InstOp::Scan { value, .. } => vec![ty(value)],
        InstOp::ArgReduce { value, .. } => vec![ty(value), Dtype::I64],
        InstOp::Load { .. }
        | InstOp::Const(_)
        | InstOp::Index(_)
        | InstOp::Cond(_)
        | InstOp::Op(..)
        | InstOp::Cast(_)
        | InstOp::Bitcast(_)
        | InstOp::Bind { .. }
        | InstOp::Store { .. } => Vec::new(),
    };
    nest.body.iter().flat_map(|inst| of_inst(&inst.op)).collect()
}
