//! Turns what load steps have computed into constants of the program.

use std::collections::HashSet;

use litz_ir::graph::TensorType;
use litz_ir::ids::Id;
use litz_ir::program::{Const, Program, ProgramStep, Slot};
use litz_sym::Expr;

/// A program as it is saved, and the contents of its constants in order.
pub struct Frozen<'a> {
    pub program: Program,
    pub weights: Vec<&'a [u8]>,
}

/// Turns what load steps keep into constants, and drops constants and load steps that no call uses. `constants` are
/// the contents of the program's constants, `kept` those of what its load steps keep.
pub fn freeze<'a>(program: &Program, constants: &[&'a [u8]], kept: &[(Slot, &'a [u8])]) -> Frozen<'a> {
    let mut used = used_slots(program);
    let views = views(program, kept, &mut used);
    let mut frozen = Frozen { program: program.clone(), weights: Vec::new() };
    frozen.program.consts.clear();
    frozen.program.load = views;
    let mut names = HashSet::new();
    let given = program.consts.iter().zip(constants).map(|(constant, &bytes)| (constant.clone(), bytes));
    let kept = kept.iter().map(|&(slot, bytes)| (kept_constant(program, slot, bytes), bytes));
    for (constant, bytes) in given.chain(kept).filter(|(constant, _)| used[constant.slot.index()]) {
        // Two layouts of one weight, or a weight called like a slot, are told apart.
        let mut name = constant.name.clone();
        while !names.insert(name.clone()) {
            name.push('\'');
        }
        frozen.program.consts.push(Const { name, ..constant });
        frozen.weights.push(bytes);
    }
    frozen
}

/// Names of the kernels that a program launches.
pub fn launched(program: &Program) -> HashSet<&str> {
    let mut names = HashSet::new();
    for step in program.all().into_iter().flat_map(|program| program.load.iter().chain(&program.steps)) {
        if let ProgramStep::Launch { kernel, .. } = step {
            names.insert(kernel.as_str());
        }
    }
    names
}

fn kept_constant(program: &Program, slot: Slot, bytes: &[u8]) -> Const {
    let data = &program.slots[slot];
    let elements = i64::try_from(bytes.len() / data.dtype.size()).unwrap_or(i64::MAX);
    let ty = TensorType::contiguous(data.dtype, vec![Expr::int(elements)]).on(data.device);
    Const { slot, name: data.name.clone(), ty }
}

/// Which slots a call uses, by index.
fn used_slots(program: &Program) -> Vec<bool> {
    let mut used = vec![false; program.slots.len()];
    let mut mark = |slot: Slot| used[slot.index()] = true;
    for step in &program.steps {
        program.touches(step).uses.iter().for_each(|used| mark(used.slot));
        if let ProgramStep::View { base, .. } = step {
            mark(*base);
        }
    }
    program.read_at_end().for_each(&mut mark);
    program.updates.iter().for_each(|&(target, _)| mark(target));
    used
}

/// The views that load steps make of constants and of what they keep, as far as calls use them; marks what these lie
/// in as used.
fn views(program: &Program, kept: &[(Slot, &[u8])], used: &mut [bool]) -> Vec<ProgramStep> {
    let given = program.consts.iter().map(|constant| constant.slot);
    let mut has_memory: HashSet<Slot> = given.chain(kept.iter().map(|&(slot, _)| slot)).collect();
    let mut views = Vec::new();
    for step in &program.load {
        if let ProgramStep::View { slot, base, .. } = step
            && has_memory.contains(base)
            && !has_memory.contains(slot)
        {
            has_memory.insert(*slot);
            views.push((*slot, *base, step.clone()));
        }
    }
    // A view comes after what it lies in.
    for (slot, base, _) in views.iter().rev() {
        used[base.index()] |= used[slot.index()];
    }
    views.retain(|(slot, ..)| used[slot.index()]);
    views.into_iter().map(|(.., step)| step).collect()
}
