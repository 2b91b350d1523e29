//! Says which memory a program's results are in: their own, or some that others have as well.

use std::collections::HashMap;

use litz_ir::program::{Output, Program, ProgramStep, Slot};

/// For each output of a program whether it is a tensor in memory that nobody else has: that a step allocated, of which no output before it has
/// any, and that no constant or input is in.
pub(crate) fn own_results(program: &Program) -> Vec<bool> {
    // The last step that gives a slot memory is the one that holds at the end.
    let bases: HashMap<Slot, Option<Slot>> = program.steps.iter().filter_map(ProgramStep::placed).collect();
    let root = |mut slot: Slot| {
        while let Some(&base) = bases.get(&slot) {
            let Some(base) = base else { return Some(slot) };
            slot = base;
        }
        None
    };
    let mut taken: Vec<Slot> = Vec::new();
    let mut is_own = |output: &Output| {
        let Output::View { slot, .. } = output else { return false };
        let Some(root) = root(*slot).filter(|root| !taken.contains(root)) else { return false };
        taken.push(root);
        true
    };
    program.outputs.iter().map(&mut is_own).collect()
}

/// The inputs that steps store to, or that get new contents at the end.
pub(crate) fn written_inputs(program: &Program, is_written: &dyn Fn(Slot) -> bool) -> Vec<Slot> {
    let bases: Vec<Slot> = program.steps.iter().filter_map(|step| step.placed()?.1).collect();
    let is_base = |slot: Slot| bases.contains(&slot);
    let params = program.params.iter().map(|param| param.slot);
    params.filter(|&slot| is_written(slot) || is_base(slot) || is_updated(program, slot)).collect()
}

/// Whether the program leaves new contents in a slot when it is done.
pub(crate) fn is_updated(program: &Program, slot: Slot) -> bool {
    program.updates.iter().any(|(target, _)| *target == slot)
}
