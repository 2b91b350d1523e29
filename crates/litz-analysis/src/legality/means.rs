//! Checks that the target has the instructions and boxes which leaves ask for, and that these reach their operands.
//!
//! A box is what one thread has copied between global and shared memory: the `for` loops right around a leaf `by box`, which count along
//! dimensions of the buffer in global memory. Loops that are written out make a box an iteration. (PTX ISA, `cp.async.bulk.tensor`; CUDA
//! driver API, `cuTensorMapEncodeTiled`.)

use std::collections::{HashMap, HashSet};

use super::levels::{instruction_loops, level_of};
use super::{Around, Occurrence, Verifier};
use crate::inside::enter;
use crate::parts::parts_of;
use crate::windows::Windows;
use litz_ir::dtype::Dtype;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Nest, Stmt, Val};
use litz_ir::scalar::ReduceOp;
use litz_ir::schedule::{Layout, Leaf, LocalSpace, LoopKind, Means, Part};
use litz_ir::target::{Gpu, Instruction, Level, Target};
use litz_sym::{Expr, Rel, Sym};

/// What rows and pitches of boxes are multiples of, in bytes.
const ALIGNMENT: i64 = 16;

impl Verifier<'_> {
    /// Checks that the `mma` loops around a leaf are an instruction of a GPU, which the threads of a warp run together.
    pub(super) fn instruction(&mut self, nest: &Nest, leaf: &Leaf) {
        let asked = match leaf.by {
            Some(Means::Instruction(asked)) => Some(asked),
            Some(Means::Box) | None => None,
        };
        let found: Vec<Axis> = instruction_loops(&self.path).iter().map(|around| around.axis).collect();
        let gpu = match self.schedule.target {
            Target::Gpu(gpu) if asked.is_some() || !found.is_empty() => gpu,
            Target::Gpu(_) => return,
            Target::Cpu(_) => {
                let message =
                    format_args!("`{}`: instructions of a CPU are chosen by its backend", nest.name);
                return self.report.check(asked.is_none(), "no-instruction", message);
            }
        };
        let own = self.visible.iter().rev().map(|declared| self.locals[declared.number].0);
        let sums =
            own.into_iter().find(|local| local.accumulates() == Some(&nest.name)).map(|local| local.space);
        let message = format_args!("`{}`: the sums of an instruction are in registers", nest.name);
        let is_register = sums.is_none_or(|space| space == LocalSpace::Register);
        self.report.check(is_register, "no-instruction", message);
        let shape: Vec<Option<i64>> = found.iter().map(|axis| axis.extent.as_int()).collect();
        let types: Vec<Dtype> = operands(nest).iter().map(|&(_, buf)| self.loops.bufs[buf].dtype).collect();
        let level = self.path.iter().rev().find_map(level_of).map_or(Level::Grid, |level| level.0.level);
        let by = match (&shape[..], &types[..]) {
            ([Some(rows), Some(columns), Some(depth)], [dtype, others @ ..]) => {
                let by = gpu.instruction(level, *dtype, [*rows, *columns, *depth]);
                by.filter(|_| others.iter().all(|other| other == dtype))
            }
            _ => None,
        };
        let is_sum = nest.body.iter().any(|inst| matches!(inst.op, InstOp::Reduce(ReduceOp::Sum, _)));
        let is_it = |by: &&Instruction| match asked {
            Some(asked) => asked == *by,
            None => !by.rounds,
        };
        let by = by.filter(|by| leaf.part == Part::Update && is_sum && accumulator_types(nest) == [by.sums]);
        let is_found = by.is_some_and(|by| is_it(&by));
        let message = format_args!(
            "`{}`: no instruction of a {} sums products of {types:?} in mma loops of {shape:?}{}",
            nest.name,
            level.name(),
            asked.map_or(String::new(), |asked| format!(" by {}", asked.name))
        );
        self.report.check(is_found, "no-instruction", message);
    }

    /// Checks that instructions find their operands: in registers the left one, of 16 bits, which lies there as sums do; and those of a
    /// warpgroup in shared memory, in rows in which units of 16 bytes change places. Without that eight rows of 16 bytes each have to follow
    /// each other, which no rows of an operand do. (PTX ISA, `wgmma`: strides of shared memory.)
    pub(super) fn operands(&mut self) {
        let mut problems = Vec::new();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            let Stmt::Nest(nest) = stmt else { continue };
            for place in places {
                let found = instruction_loops(&place.path);
                let &[rows, columns, _] = &found[..] else { continue };
                for (load, buf) in operands(nest) {
                    if let Some(why) = self.no_operand((nest, place), [rows, columns], (load, buf)) {
                        let name = &self.loops.bufs[buf].name;
                        problems.push((format!("`{}`: operand `{name}` {why}", nest.name), place.site()));
                    }
                }
            }
        }
        if matches!(self.schedule.target, Target::Gpu(_)) {
            self.fail_all("no-instruction", problems);
        }
    }

    /// Why an instruction with these loops of rows and columns does not find what it loads.
    fn no_operand(
        &self,
        (nest, place): (&Nest, &Occurrence),
        sides: [&Around; 2],
        (load, buf): (usize, Buf),
    ) -> Option<&'static str> {
        let mut varying = HashSet::new();
        each_sym(nest, load, &mut |sym| {
            varying.insert(sym);
        });
        let [is_left, is_right] = sides.map(|side| {
            let mut along = place.bind.iter().filter(|bind| bind.1.has_sym(side.axis.var));
            along.any(|bind| varying.contains(&bind.0))
        });
        if is_left == is_right {
            return Some("has neither rows nor columns alone");
        }
        let local = self.held(nest, place, (load, buf)).1.map(|declared| self.locals[declared.number].0);
        let (space, layout) =
            local.map_or((LocalSpace::Global, Layout::Dense), |local| (local.space, local.layout));
        if space == LocalSpace::Register {
            let fits = is_left && self.loops.bufs[buf].dtype.size() == 2;
            return (!fits).then_some("is in registers, as only left operands of 16 bits are");
        }
        if !is_of_warpgroup(sides[0]) {
            return None;
        }
        if space != LocalSpace::Shared {
            return Some("of a warpgroup is not in shared memory");
        }
        let changes =
            matches!(layout, Layout::Swizzled { unit: 16, pairs: false } | Layout::Panels { unit: 16, .. });
        (!changes).then_some("of a warpgroup has rows in which no units of 16 bytes change places")
    }

    /// The memories that instructions of warpgroups read.
    pub(super) fn read_by_warpgroups(&self) -> HashSet<usize> {
        let mut found = HashSet::new();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            let Stmt::Nest(nest) = stmt else { continue };
            let is_one = |place: &&Occurrence| {
                instruction_loops(&place.path).first().is_some_and(|rows| is_of_warpgroup(rows))
            };
            for place in places.iter().filter(is_one) {
                let declared =
                    operands(nest).into_iter().filter_map(|operand| self.held(nest, place, operand).1);
                found.extend(declared.map(|declared| declared.number));
            }
        }
        found
    }

    /// Checks all leaves that ask for a box. Of each memory that one is copied to or from, its rows.
    pub(super) fn boxes(&mut self) -> HashMap<usize, i64> {
        let (mut rows, mut problems) = (HashMap::new(), Vec::new());
        let ranges = self.leaves_of_loops();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            for place in places.iter().filter(|place| place.by == Some(Means::Box)) {
                let found = match stmt {
                    Stmt::Nest(nest) => self.one_box(nest, place, ranges),
                    Stmt::Extern(_) | Stmt::Recurrence(_) => Err("it is no nest".to_owned()),
                };
                match found {
                    Ok((number, row)) => drop(rows.insert(number, row)),
                    Err(why) => problems.push((format!("`{}`: no box: {why}", stmt.name()), place.site())),
                }
            }
        }
        self.fail_all("no-box", problems);
        rows
    }

    /// The number of the shared memory that a box is in, and the elements of a row of the box; or why it is none.
    fn one_box(
        &self,
        nest: &Nest,
        place: &Occurrence,
        ranges: &HashMap<usize, (usize, usize)>,
    ) -> Result<(usize, i64), String> {
        if !matches!(self.schedule.target, Target::Gpu(gpu) if gpu.isa.has_box()) {
            return Err("the target copies none".to_owned());
        }
        let levels = place.path.iter().filter_map(level_of);
        if levels.into_iter().any(|(team, _)| matches!(team.level, Level::Thread | Level::Lane)) {
            return Err("one thread has it copied, and this is a loop over threads".to_owned());
        }
        let own = |around: &&Around| {
            around.kind == Some(LoopKind::For)
                && ranges.get(&around.number).is_some_and(|range| range.0 == range.1)
        };
        let loops: Vec<Axis> = place.path.iter().rev().take_while(own).map(|around| around.axis).collect();
        if let Some(windows) = Windows::of(self.loops, nest) {
            return self.box_of_windows(&windows, nest, place, &loops);
        }
        let Some(Copied { number, outside, index, chosen }) = self.copied_box(nest, place) else {
            return Err("it copies no elements as they are between global and shared memory".to_owned());
        };
        let is_of_box = |value: Expr| loops.iter().any(|axis| value.has_sym(axis.var));
        if chosen.iter().any(|at| is_of_box(at.subst(&|axis| place.value(axis)))) {
            return Err("data chooses its elements one by one".to_owned());
        }
        let data = &self.loops.bufs[outside];
        let size = data.dtype.size() as i64;
        if data.sizes.len() > Gpu::BOX_DIMS {
            return Err(format!("`{}` has more than {} dimensions", data.name, Gpu::BOX_DIMS));
        }
        // A dimension of one element may have any stride, also that of a row.
        let is_row = |&dim: &usize| data.strides[dim].is_one();
        let rows = || (0..data.sizes.len()).filter(is_row);
        let row_dim = rows().find(|&dim| !data.sizes[dim].is_one()).or(rows().next());
        let mut row = None;
        let mut counted = 0;
        for (dim, at) in index.iter().enumerate() {
            let value = at.subst(&|axis| place.value(axis));
            let along: Vec<Axis> = loops.iter().copied().filter(|axis| value.has_sym(axis.var)).collect();
            counted += along.len();
            let is_whole = |axis: &Axis| Expr::sym(axis.var) == *at && axis.extent == data.sizes[dim];
            if !along.is_empty() && !nest.all_axes().any(is_whole) {
                return Err(format!("dimension {dim} of `{}` is no axis", data.name));
            }
            let count = count_along(value, &along).ok_or_else(|| {
                format!("along dimension {dim} its loops do not count a number of elements one after another")
            })?;
            let most = i64::from(Gpu::BOX_ELEMENTS);
            if count > most {
                return Err(format!("along dimension {dim} it has {count} elements, of at most {most}"));
            }
            let stride = data.strides[dim];
            if row_dim == Some(dim) {
                row = Some(count);
            } else if !data.sizes[dim].is_one() && !self.is_aligned(stride * size) {
                return Err(format!(
                    "the pitch of dimension {dim}, {} bytes, is no multiple of {ALIGNMENT}",
                    stride * size
                ));
            }
        }
        if counted != loops.len() {
            return Err("a loop counts along no dimension, or along two".to_owned());
        }
        let row = row.ok_or("no dimension has neighbouring elements")?;
        self.rows_of_box(number, row, size)
    }

    /// As [`Verifier::one_box`], for rows of windows: two loops, over points and over neighbours of a row.
    fn box_of_windows(
        &self,
        windows: &Windows,
        nest: &Nest,
        place: &Occurrence,
        loops: &[Axis],
    ) -> Result<(usize, i64), String> {
        let &[run, points] = loops else {
            return Err("rows of windows are copied by two loops".to_owned());
        };
        let is_ahead = |around: &&Around| matches!(around.kind, Some(LoopKind::Pipeline { .. }));
        let Some(ahead) = place.path.iter().rfind(is_ahead) else {
            return Err("rows of windows are copied ahead, in a loop that is pipelined".to_owned());
        };
        if !self.is_copied_by_others(ahead.number) {
            return Err("rows of windows are copied by warps that do nothing else in their loop".to_owned());
        }
        let data = &self.loops.bufs[windows.buf];
        let stored = self.declared_around(place, nest.writes()[0]).map(|declared| declared.number);
        let is_shared = |number: &usize| self.locals[*number].0.space == LocalSpace::Shared;
        let is_global = self.held(nest, place, (0, windows.buf)).1.is_none();
        let Some(number) = stored.filter(|number| is_global && is_shared(number)) else {
            return Err("rows of windows are copied from global to shared memory".to_owned());
        };
        let mut facts = self.loops.facts.clone();
        place.path.iter().for_each(|around| enter(&mut facts, around.axis));
        let (origin, _) = windows.boxed(&facts, &|axis| place.value(axis), [points, run])?;
        let size = data.dtype.size() as i64;
        let starts = windows.steps().chain([origin]);
        let is_aligned = |elements: Expr| facts.simplify((elements * size).modulo(ALIGNMENT)).is_zero();
        if let Some(start) = starts.into_iter().find(|&start| !is_aligned(start)) {
            return Err(format!("{start} elements are no multiple of {ALIGNMENT} bytes"));
        }
        let row = run.extent.as_int().ok_or("its rows are of no constant length")?;
        self.rows_of_box(number, row, size)
    }

    /// Whether the warps that have boxes copied in a loop, with those between them, are others than those that run its other leaves, and there are any.
    fn is_copied_by_others(&self, number: usize) -> bool {
        let places = self.placed.iter().flatten();
        let inside = places.filter(|place| place.path.iter().any(|around| around.number == number));
        let (copying, others): (Vec<_>, Vec<_>) = inside.partition(|place| place.by == Some(Means::Box));
        let warps = |places: Vec<&Occurrence>| {
            let all: Option<Vec<(i64, i64)>> = places.into_iter().map(warps_of).collect();
            let all = all?;
            Some((all.iter().map(|own| own.0).min()?, all.iter().map(|own| own.1).max()?))
        };
        match (warps(copying), warps(others)) {
            (Some((first, end)), Some((other, last))) => end <= other || last <= first,
            _ => false,
        }
    }

    /// The number of a shared memory and the elements of a box's row there; or why it cannot be put there so.
    fn rows_of_box(&self, number: usize, row: i64, size: i64) -> Result<(usize, i64), String> {
        let bytes = row * size;
        if bytes % ALIGNMENT != 0 {
            return Err(format!("its rows are of {bytes} bytes, no multiple of {ALIGNMENT}"));
        }
        match self.locals[number].0.layout {
            Layout::Dense => {}
            Layout::Swizzled { unit: 16, pairs: false } | Layout::Panels { unit: 16, .. }
                if bytes <= Gpu::BOX_ROW_BYTES => {}
            Layout::Swizzled { unit: 16, pairs: false } | Layout::Panels { unit: 16, .. } => {
                return Err(format!(
                    "its swizzled rows are of {bytes} bytes, of at most {}",
                    Gpu::BOX_ROW_BYTES
                ));
            }
            Layout::Swizzled { .. } | Layout::Panels { .. } | Layout::Padded(_) => {
                return Err("units change places in it otherwise than boxes put them".to_owned());
            }
        }
        Ok((number, row))
    }

    /// Whether a number of bytes is a multiple of those that boxes are aligned to, whatever the sizes.
    fn is_aligned(&self, bytes: Expr) -> bool {
        let facts = &self.loops.facts;
        facts.simplify(bytes.modulo(ALIGNMENT)).is_zero()
            || facts.proves(&Rel::le(bytes.modulo(ALIGNMENT), 0))
    }

    /// What a leaf copies, if that is elements as they are between shared memory and global memory, at indices that data may choose.
    fn copied_box(&self, nest: &Nest, place: &Occurrence) -> Option<Copied> {
        let [before @ .., load, store] = &nest.body[..] else { return None };
        let InstOp::Load { buf, index, guard, .. } = &load.op else { return None };
        let InstOp::Store { buf: target, index: stored, value, combine: None, .. } = &store.op else {
            return None;
        };
        let types = [buf, target].map(|&buf| self.loops.bufs[buf].dtype);
        let is_plain = guard.is_empty() && types[0] == types[1];
        let is_choice = |inst: &Inst| matches!(inst.op, InstOp::Load { .. } | InstOp::Bind { .. });
        let is_stored = value.index() + 2 == nest.body.len() && before.iter().all(is_choice);
        if place.part != Part::Whole || place.block.is_some() || !is_plain || !is_stored {
            return None;
        }
        let chosen: Vec<Expr> = before.iter().flat_map(|inst| inst.op.exprs()).collect();
        let space = |number: usize| self.locals[number].0.space;
        let (source, from) = self.held(nest, place, (0, *buf));
        let to = self.declared_around(place, *target);
        let [from, to] = [from, to].map(|declared| declared.map(|declared| declared.number));
        let is_outside =
            |number: Option<usize>| number.is_none_or(|number| space(number) == LocalSpace::Global);
        match (from, to) {
            (from, Some(to)) if is_outside(from) && space(to) == LocalSpace::Shared => {
                Some(Copied { number: to, outside: source, index: index.clone(), chosen })
            }
            (Some(from), to) if is_outside(to) && space(from) == LocalSpace::Shared => {
                Some(Copied { number: from, outside: *target, index: stored.clone(), chosen })
            }
            _ => None,
        }
    }
}

/// Whether a loop of rows is that of an instruction of a warpgroup.
fn is_of_warpgroup(rows: &Around) -> bool {
    rows.axis.extent == Expr::int(Gpu::WARPGROUP_ROWS.into())
}

/// The warps of a block that run a leaf: the first, and the one behind the last. None where it is all threads, or nobody knows.
fn warps_of(place: &Occurrence) -> Option<(i64, i64)> {
    let mut levels = place.path.iter().filter_map(level_of);
    let (team, axis) = levels.find(|(team, _)| team.level.has_threads())?;
    let warps = match team.level {
        Level::Warpgroup => i64::from(Gpu::WARPGROUP / Gpu::LANES),
        Level::Warp => 1,
        Level::Grid | Level::Block | Level::Thread | Level::Lane => return None,
    };
    let first = i64::from(team.from) * warps;
    Some((first, first + axis.extent.as_int()? * warps))
}

/// What a box is copied between.
struct Copied {
    /// The shared memory.
    number: usize,
    /// The buffer in global memory.
    outside: Buf,
    /// The element there, in terms of the nest's axes and of what data chooses.
    index: Vec<Expr>,
    /// What such choices are made by.
    chosen: Vec<Expr>,
}

/// What the update of a nest loads: the numbers of the instructions, and the buffers.
fn operands(nest: &Nest) -> Vec<(usize, Buf)> {
    let parts = parts_of(nest);
    let insts = nest.body.iter().zip(&parts).enumerate();
    let loads = insts.filter(|(_, (_, parts))| parts[..] == [Part::Update]).filter_map(|(at, (inst, _))| {
        if let InstOp::Load { buf, .. } = inst.op { Some((at, buf)) } else { None }
    });
    loads.collect()
}

/// Calls `f` with the variables on which it depends what an instruction of a nest gives: those of its indices and guards, of the values that
/// it takes, and of indices that are values.
fn each_sym(nest: &Nest, at: usize, f: &mut dyn FnMut(Sym)) {
    let op = &nest.body[at].op;
    op.operands().into_iter().for_each(|value| each_sym(nest, value.index(), f));
    for sym in op.exprs().into_iter().flat_map(Expr::syms) {
        let bound = nest.body[..at]
            .iter()
            .position(|inst| matches!(inst.op, InstOp::Bind { sym: own, .. } if own == sym));
        match bound {
            Some(bound) => each_sym(nest, bound, f),
            None => f(sym),
        }
    }
}

/// How many elements these loops count along a coordinate, one after another. None where they do not.
fn count_along(value: Expr, along: &[Axis]) -> Option<i64> {
    let mut steps = Vec::new();
    for axis in along {
        let (step, rest) = value.linear(axis.var)?;
        (!rest.has_sym(axis.var)).then_some(())?;
        steps.push((step.as_int()?, axis.extent.as_int()?));
    }
    steps.sort_unstable();
    steps.into_iter().try_fold(1_i64, |count, (step, extent)| {
        (step == count && extent > 0).then(|| count.checked_mul(extent)).flatten()
    })
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
