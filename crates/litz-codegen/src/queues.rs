//! Lets the queues of a program wait for each other where they use the same memory, by an event behind the step that is waited for.

use std::collections::BTreeMap;

use litz_ir::program::{KernelAccesses, Order, Program, ProgramStep};

/// Adds what is missing for the steps to be in order. Programs of one queue stay as they are.
pub fn wait_for_each_other(program: &mut Program, kernels: &KernelAccesses<'_>) {
    let mut order = Order::new(program, kernels);
    if order.queues().len() < 2 {
        return;
    }
    // By the step behind which they are recorded.
    let mut events: BTreeMap<usize, (u32, ProgramStep)> = BTreeMap::new();
    let mut waits: Vec<Vec<ProgramStep>> = Vec::new();
    for step in &program.steps {
        let missing = order.missing(step).expect("invariant: nothing waits for an event so far");
        let queue = program.queue(step);
        let mut wait = Vec::new();
        for (point, queue) in missing.into_iter().zip(queue.into_iter().cycle()) {
            let next = events.len() as u32;
            let record = ProgramStep::Record { event: next, queue: order.queue_of(point) };
            let (event, _) = events.entry(point.step).or_insert((next, record));
            wait.push(ProgramStep::Wait { event: *event, queue });
        }
        waits.push(wait);
    }
    let steps = std::mem::take(&mut program.steps);
    for (at, (step, wait)) in steps.into_iter().zip(waits).enumerate() {
        program.steps.extend(wait);
        program.steps.push(step);
        program.steps.extend(events.remove(&at).map(|(_, record)| record));
    }
}
