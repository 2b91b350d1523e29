//! Makes the program of a schedule's steps: what is allocated, launched and returned.

use crate::Names;
use crate::kernel::Built;
use crate::queues::wait_for_each_other;
use crate::routine::{Arg, Launches, Routines};
use litz_ir::call::CallArg;
use litz_ir::graph::{Device, TensorType};
use litz_ir::loops::{self, Buf, BufKind, Callee, ControlCall, Extern, HostCall, Loops, Routine, Stmt};
use litz_ir::program::{
    Const, Output, Param, Program, ProgramStep, Queue, Slot, SlotData, View, accesses, outward,
};
use litz_ir::schedule::{self, Schedule};
use litz_ir::{Diag, Diags, Dtype};
use litz_sym::{Expr, Sym};
use std::collections::{HashMap, HashSet};

/// Builds the program. `built` holds the schedule's kernels in order, `serving` which kernel serves each; as `routines` and `of_routines` do
/// for those of routines.
pub fn build(
    loops: &Loops,
    names: &Names<'_>,
    schedule: &Schedule,
    (built, serving): (&[Built], &[String]),
    (routines, of_routines): (&Routines, &[String]),
) -> Result<Program, Diags> {
    let program = Program::new(&loops.name, loops.device);
    let late = loops.late_sizes().into_iter().map(|(sym, _)| sym).collect();
    let mut b = Builder { loops, names, program, slots: HashMap::new(), late, waiting: Vec::new() };
    b.program.facts = loops.facts.clone();
    for (buf, data) in loops.bufs.iter() {
        if data.kind == BufKind::Input {
            let slot = b.slot(buf);
            b.program.params.push(Param { slot, ty: data.ty(), is_donated: loops.is_given_up(buf) });
        }
    }
    for guard in loops.facts.guards() {
        let check = ProgramStep::Check { clause: guard.clause.clone(), who: guard.who.to_string() };
        b.when_known(vec![check]);
    }
    let mut pools = b.allocate(schedule, built);
    let mut kernels = built.iter().zip(serving);
    let (all_of_routines, mut of_routines) = (of_routines, of_routines.iter());
    for step in &schedule.steps {
        let at_load = step.at_load();
        let step = match step {
            schedule::ScheduleStep::Kernel(_) => {
                let (built, name) = kernels.next().expect("invariant: one kernel for each plan");
                let args = built.params.iter().map(|&p| b.slot(p)).collect();
                let sizes = built.kernel.sizes.iter().map(|&s| Expr::sym(s)).collect();
                let written =
                    built.params.iter().zip(accesses(&built.kernel)).find(|(_, access)| access.is_written());
                let stream = written.map_or(0, |(&buf, _)| loops.bufs[buf].stream);
                ProgramStep::Launch { kernel: name.clone(), args, sizes, stream, from: Vec::new() }
            }
            schedule::ScheduleStep::Extern { name, .. } => {
                if let Some(launches) = routines.of_call(name) {
                    pools.extend(b.launch_routine(name, launches, &mut of_routines));
                    continue;
                }
                b.call(name)?
            }
        };
        let known = if let ProgramStep::Size { sym, .. } = step { Some(sym) } else { None };
        b.steps(at_load).push(step);
        if let Some(sym) = known {
            b.is_known(sym);
        }
    }
    for &(dst, src) in &loops.updates {
        let pair = (b.slot(dst), b.slot(src));
        b.program.updates.push(pair);
    }
    for output in &loops.outputs {
        let output = match output {
            loops::Output::View { buf, sizes, strides, offset } => {
                let (sizes, strides) = (sizes.clone(), strides.clone());
                let ty = TensorType { sizes, strides, ..loops.bufs[*buf].ty() };
                Output::View { slot: b.slot(*buf), ty, offset: *offset }
            }
            loops::Output::Number(buf) => Output::Number(b.slot(*buf)),
            loops::Output::Int(e) => Output::Int(*e),
            loops::Output::Literal(s) => Output::Literal(*s),
            loops::Output::Text(text) => Output::Text(text.clone()),
            loops::Output::Nothing => Output::Nothing,
        };
        b.program.outputs.push(output);
    }
    let mut program = b.program;
    free_behind_last_use(&mut program, &pools);
    let all =
        built.iter().map(|built| &built.kernel).zip(serving).chain(routines.kernels().zip(all_of_routines));
    let accesses = all.map(|(kernel, name)| (name.as_str(), accesses(kernel)));
    wait_for_each_other(&mut program, &accesses.collect());
    Ok(program)
}

/// Frees pools behind the last step that uses something in them. Where a program has several queues, whose steps end in no order, that is
/// the last step.
fn free_behind_last_use(program: &mut Program, pools: &[Slot]) {
    let bases = program.bases();
    let outermost = |slot: Slot| outward(&bases, slot).last().unwrap_or(slot);
    let end = program.steps.len().saturating_sub(1);
    let mut last: HashMap<Slot, usize> = HashMap::new();
    if program.queues().len() < 2 {
        for (at, step) in program.steps.iter().enumerate() {
            let effects = program.touches(step);
            let touched = effects.uses.iter().map(|used| used.slot).chain(effects.memory);
            last.extend(touched.map(|slot| (outermost(slot), at)));
        }
        last.extend(program.read_at_end().map(|slot| (outermost(slot), end)));
    }
    let mut freed: Vec<Vec<Slot>> = vec![Vec::new(); program.steps.len()];
    for &pool in pools {
        // Whoever declares a pool gives it memory in a step.
        freed[last.get(&pool).copied().unwrap_or(end)].push(pool);
    }
    let steps = std::mem::take(&mut program.steps);
    for (step, freed) in steps.into_iter().zip(freed) {
        program.steps.push(step);
        program.steps.extend(freed.into_iter().map(|slot| ProgramStep::Free { slot }));
    }
}

struct Builder<'a> {
    loops: &'a Loops,
    names: &'a Names<'a>,
    program: Program,
    slots: HashMap<Buf, Slot>,
    /// Size symbols without a value so far.
    late: Vec<Sym>,
    /// Steps of a call that wait for such, in order.
    waiting: Vec<Vec<ProgramStep>>,
}

impl Builder<'_> {
    /// The slot of a buffer, or of the one whose memory it reuses in place; a constant is declared when it is first asked for.
    fn slot(&mut self, buf: Buf) -> Slot {
        let buf = self.names.owner(buf);
        if let Some(&slot) = self.slots.get(&buf) {
            return slot;
        }
        let data = &self.loops.bufs[buf];
        let slot = self.program.slots.push(SlotData {
            name: data.name.clone(),
            dtype: data.dtype,
            extent: data.span(),
            device: data.device,
        });
        self.slots.insert(buf, slot);
        if let BufKind::Const(name) = &data.kind {
            self.program.consts.push(Const { slot, name: name.clone(), ty: data.ty() });
        }
        slot
    }

    /// Adds steps to those of a call, or lets them wait for the sizes that they use.
    fn when_known(&mut self, steps: Vec<ProgramStep>) {
        let mut used = steps.iter().flat_map(|step| self.program.exprs(step));
        if used.any(|e| self.late.iter().any(|&sym| e.has_sym(sym))) {
            self.waiting.push(steps);
        } else {
            self.program.steps.extend(steps);
        }
    }

    /// Adds the steps that waited for a symbol.
    fn is_known(&mut self, sym: Sym) {
        self.late.retain(|&late| late != sym);
        std::mem::take(&mut self.waiting).into_iter().for_each(|steps| self.when_known(steps));
    }

    /// Memory for every temporary: inside its pool, or of its own. Returns the pools that end with the call.
    fn allocate(&mut self, schedule: &Schedule, built: &[Built]) -> Vec<Slot> {
        let mut pools = Vec::new();
        let mut placed = HashSet::new();
        for pool in &schedule.pools {
            let base = match (pool.bytes, self.names.bufs.get(&*pool.name)) {
                (Some(extent), _) => {
                    let name = pool.name.clone();
                    let mut places = pool.places.iter().filter_map(|(name, _)| self.names.bufs.get(&**name));
                    let device = places.next().map_or(self.loops.device, |&buf| self.loops.bufs[buf].device);
                    self.program.slots.push(SlotData { name, dtype: Dtype::U8, extent, device })
                }
                (None, Some(&buf)) => {
                    placed.insert(buf);
                    self.slot(buf)
                }
                (None, None) => continue,
            };
            let is_given = self.program.params.iter().any(|param| param.slot == base);
            let alloc = (!is_given).then_some(ProgramStep::Alloc { slot: base });
            let mut steps: Vec<ProgramStep> = alloc.into_iter().collect();
            for (name, offset) in &pool.places {
                if let Some(&buf) = self.names.bufs.get(name.as_str()) {
                    placed.insert(buf);
                    steps.push(ProgramStep::View { slot: self.slot(buf), base, offset: *offset });
                }
            }
            match pool.at_load {
                true => self.program.load.extend(steps),
                false => self.when_known(steps),
            }
            if !pool.at_load && pool.bytes.is_some() {
                pools.push(base);
            }
        }
        let mut kernels = built.iter();
        for step in &schedule.steps {
            let bufs = match step {
                schedule::ScheduleStep::Kernel(_) => {
                    kernels.next().map(|k| k.params.clone()).unwrap_or_default()
                }
                schedule::ScheduleStep::Extern { name, .. } => {
                    self.names.stmts.get(name.as_str()).map(|s| s.writes()).unwrap_or_default()
                }
            };
            for buf in bufs.into_iter().map(|buf| self.names.owner(buf)) {
                if self.loops.bufs[buf].kind == BufKind::Temp && placed.insert(buf) {
                    let slot = self.slot(buf);
                    match step.at_load() {
                        true => self.program.load.push(ProgramStep::Alloc { slot }),
                        false => self.when_known(vec![ProgramStep::Alloc { slot }]),
                    }
                }
            }
        }
        pools
    }

    fn steps(&mut self, at_load: bool) -> &mut Vec<ProgramStep> {
        if at_load { &mut self.program.load } else { &mut self.program.steps }
    }

    fn call(&mut self, name: &str) -> Result<ProgramStep, Diags> {
        let Some(Stmt::Extern(call)) = self.names.stmts.get(name) else {
            return Err(vec![Diag::new("schedule-misfit", format!("no extern statement {name}"))]);
        };
        let message = call.message.clone();
        Ok(match &call.callee {
            Callee::Routine(Routine { name, reads, writes, ints }) => {
                let (routine, ints) = (name.clone(), ints.clone());
                let reads = reads.iter().map(|&b| self.slot(b)).collect();
                let writes = writes.iter().map(|&b| self.slot(b)).collect();
                ProgramStep::Extern { routine, reads, writes, ints, message }
            }
            Callee::Host(HostCall { op, args, results, sharing, effect: _ }) => {
                let arg = |arg: &CallArg<loops::View>| arg.try_map(&mut |view| Ok(self.view(view)));
                let args = args.iter().map(arg).collect::<Result<_, Diags>>()?;
                let mut result = |&buf: &Buf| {
                    let ty = self.loops.bufs[buf].ty();
                    Ok(View { slot: self.slot(buf), ty, offset: Expr::zero() })
                };
                let results =
                    results.iter().map(|to| to.try_map(&mut result)).collect::<Result<_, Diags>>()?;
                let sharing = sharing.iter().map(|&buf| self.slot(buf)).collect();
                ProgramStep::Call { op: op.clone(), args, results, sharing, message }
            }
            Callee::Size { sym, number } => {
                ProgramStep::Size { sym: *sym, slot: self.slot(*number), message }
            }
            Callee::Copy { from, to } => {
                let stream = self.loops.bufs[*to].stream;
                let (from, to) = (self.slot(*from), self.slot(*to));
                let devices = [to, from].map(|slot| self.program.slots[slot].device);
                let there = devices.into_iter().find(|&device| device != Device::Cpu);
                let queue = Queue { device: there.unwrap_or(Device::Cpu), stream };
                ProgramStep::Copy { from, to, queue }
            }
            Callee::Control(ControlCall { control, reads, writes }) => {
                let reads = reads.iter().map(|&b| self.slot(b)).collect();
                let writes = writes.iter().map(|&b| self.slot(b)).collect();
                ProgramStep::Control { control: control.clone(), reads, writes }
            }
        })
    }

    /// Launches the kernels of a routine, with memory for what they pass on. Returns that.
    fn launch_routine<'n>(
        &mut self,
        name: &str,
        launches: &Launches,
        serving: &mut impl Iterator<Item = &'n String>,
    ) -> Vec<Slot> {
        let Some(Stmt::Extern(Extern { from, callee: Callee::Routine(routine), .. })) =
            self.names.stmts.get(name)
        else {
            unreachable!("invariant: launches are those of a routine");
        };
        let [elements, values, positions] =
            [routine.reads[0], routine.writes[0], routine.writes[1]].map(|buf| self.slot(buf));
        let device = self.program.slots[elements].device;
        let stream = self.loops.bufs[routine.writes[0]].stream;
        let mut kept = Vec::new();
        for (number, &extent) in launches.lists.iter().enumerate() {
            let list = [("keys", launches.key), ("places", launches.position)].map(|(part, dtype)| {
                let name = self.free_name(&format!("{name}_{part}{number}"));
                self.program.slots.push(SlotData { name, dtype, extent, device })
            });
            kept.extend(list);
        }
        self.program.steps.extend(kept.iter().map(|&slot| ProgramStep::Alloc { slot }));
        for (kernel, args) in &launches.kernels {
            let slot = |arg: &Arg| match *arg {
                Arg::Elements => elements,
                Arg::Values => values,
                Arg::Positions => positions,
                Arg::Keys(list) => kept[2 * list],
                Arg::Places(list) => kept[2 * list + 1],
            };
            let args = args.iter().map(slot).collect();
            let sizes = kernel.sizes.iter().map(|&size| Expr::sym(size)).collect();
            let kernel = serving.next().expect("invariant: one kernel for each launch").clone();
            self.program.steps.push(ProgramStep::Launch { kernel, args, sizes, stream, from: from.clone() });
        }
        kept
    }

    /// `name`, or with what makes it one that no slot and no buffer has.
    fn free_name(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.names.bufs.contains_key(name.as_str())
            || self.program.slots.values().any(|slot| slot.name == name)
        {
            name.push('_');
        }
        name
    }

    fn view(&mut self, view: &loops::View) -> View {
        let (sizes, strides) = (view.sizes.clone(), view.strides.clone());
        let ty = TensorType { sizes, strides, ..self.loops.bufs[view.buf].ty() };
        View { slot: self.slot(view.buf), ty, offset: view.offset }
    }
}
