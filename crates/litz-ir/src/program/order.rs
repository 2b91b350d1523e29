//! Says what the steps of several queues have to wait for: uses of the same memory of which nothing tells which comes first.
//!
//! A queue does its steps in order. That a step of another queue is over is known behind a wait for an event that was recorded behind
//! it, and behind each step that the host runs, since that waits for everything.

use std::collections::{HashMap, HashSet};

use litz_sym::{Expr, Facts, Rel};

use super::{KernelAccesses, Program, ProgramStep, Queue, Runs, Slot};

/// A step that was enqueued: its queue, and how many it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Position of the queue in [`Order::queues`].
    queue: usize,
    count: usize,
    /// Position of the step among those that [`Order::missing`] was asked about.
    pub step: usize,
}

/// A use of a part of a memory.
struct Access {
    slot: Slot,
    from: Expr,
    to: Expr,
    is_written: bool,
    point: Point,
}

/// Of each queue, how many of its steps are over.
type Clock = Vec<usize>;

/// The order of a program's steps, as far as it is known, while these are gone through.
pub struct Order<'a> {
    program: &'a Program,
    kernels: &'a KernelAccesses<'a>,
    queues: Vec<Queue>,
    enqueued: Clock,
    /// What is over when the next step of each queue begins.
    known: Vec<Clock>,
    /// What was over, or would be, behind each step that was enqueued.
    behind: HashMap<(usize, usize), Clock>,
    events: HashMap<u32, Clock>,
    /// For each slot that has memory, whose memory that is, and which bytes of it.
    held: HashMap<Slot, (Slot, Expr, Expr)>,
    accesses: HashMap<Slot, Vec<Access>>,
    /// Slots that steps write.
    made: HashSet<Slot>,
    steps: usize,
}

impl<'a> Order<'a> {
    /// Before the first step of a call. Load steps are over.
    pub fn new(program: &'a Program, kernels: &'a KernelAccesses<'a>) -> Order<'a> {
        let queues = program.queues();
        let count = queues.len();
        let mut order = Order {
            program,
            kernels,
            queues,
            enqueued: vec![0; count],
            known: vec![vec![0; count]; count],
            behind: HashMap::new(),
            events: HashMap::new(),
            held: HashMap::new(),
            accesses: HashMap::new(),
            made: HashSet::new(),
            steps: 0,
        };
        let given = program.params.iter().map(|param| param.slot);
        given.chain(program.consts.iter().map(|constant| constant.slot)).for_each(|slot| order.hold(slot));
        program.load.iter().for_each(|step| order.place(step));
        order.made = program.made(kernels);
        order
    }

    /// The queues, in order.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Goes on to the next step: what it has to wait for and nothing makes it wait for, one step of each queue at most, the last.
    /// Whoever asks sees to it that it does, by an event on the queue of [`Order::queue_of`].
    ///
    /// # Errors
    /// The number of an event that is waited for and was not recorded.
    pub fn missing(&mut self, step: &ProgramStep) -> Result<Vec<Point>, u32> {
        self.place(step);
        self.steps += 1;
        let effects = self.program.effects(step, self.kernels);
        if effects.runs == Runs::Host || self.takes_made_number(step) {
            self.known = vec![self.enqueued.clone(); self.queues.len()];
            self.accesses.clear();
        }
        let Runs::On(queue) = effects.runs else { return Ok(Vec::new()) };
        let Ok(queue) = self.queues.binary_search(&queue) else { return Ok(Vec::new()) };
        if let ProgramStep::Record { event, .. } = step {
            self.events.insert(*event, self.known[queue].clone());
            return Ok(Vec::new());
        }
        if let ProgramStep::Wait { event, .. } = step {
            let clock = self.events.get(event).ok_or(*event)?;
            join(&mut self.known[queue], clock);
            return Ok(Vec::new());
        }
        self.enqueued[queue] += 1;
        let point = Point { queue, count: self.enqueued[queue], step: self.steps - 1 };
        let mut missing: Vec<Point> = Vec::new();
        for used in effects.uses {
            let Some(&(root, from, to)) = self.held.get(&used.slot) else { continue };
            let access = Access { slot: used.slot, from, to, is_written: used.access.is_written(), point };
            let earlier = self.accesses.entry(root).or_default();
            for other in earlier.iter().filter(|other| other.is_written || access.is_written) {
                let is_over = other.point.count <= self.known[queue][other.point.queue];
                if !is_over && other.point != point && other.may_meet(&access, &self.program.facts) {
                    missing.push(other.point);
                }
            }
            earlier.push(access);
        }
        missing.sort_by_key(|point| (point.queue, point.count));
        missing.dedup_by(|next, last| {
            let is_same = next.queue == last.queue;
            if is_same {
                *last = *next;
            }
            is_same
        });
        // Who waits for one that has waited for another need not wait for that.
        let clock = |point: &Point| &self.behind[&(point.queue, point.count)];
        let is_behind =
            |point: &Point, other: &Point| other != point && clock(other)[point.queue] >= point.count;
        let is_needed = |point: &&Point| !missing.iter().any(|other| is_behind(point, other));
        let missing: Vec<Point> = missing.iter().filter(is_needed).copied().collect();
        for point in &missing {
            join(&mut self.known[queue], &self.behind[&(point.queue, point.count)]);
        }
        self.known[queue][queue] = self.enqueued[queue];
        self.behind.insert((queue, point.count), self.known[queue].clone());
        Ok(missing)
    }

    /// Where an event has to be recorded for a point: its queue.
    pub fn queue_of(&self, point: Point) -> Queue {
        self.queues[point.queue]
    }

    /// Whether the host has to read, for a launch, what earlier steps compute.
    fn takes_made_number(&self, step: &ProgramStep) -> bool {
        takes_made_number(self.program, step, &|slot| self.made.contains(&slot))
    }

    fn hold(&mut self, slot: Slot) {
        let Some(data) = self.program.slots.get(slot) else { return };
        self.held.insert(slot, (slot, Expr::zero(), data.extent * data.dtype.size() as i64));
    }

    /// Notes which memory a step gives a slot.
    fn place(&mut self, step: &ProgramStep) {
        if let ProgramStep::Alloc { slot } = step {
            self.accesses.remove(slot);
            self.hold(*slot);
        }
        if let ProgramStep::View { slot, base, offset } = step {
            let Some(&(root, from, _)) = self.held.get(base) else { return };
            let Some(data) = self.program.slots.get(*slot) else { return };
            let from = from + *offset;
            self.held.insert(*slot, (root, from, from + data.extent * data.dtype.size() as i64));
        }
    }
}

/// Whether a launch is given a number by value that steps of the call make: the host reads it when they are done.
pub fn takes_made_number(program: &Program, step: &ProgramStep, is_made: &dyn Fn(Slot) -> bool) -> bool {
    let ProgramStep::Launch { args, .. } = step else { return false };
    let device = program.launched_on(args);
    args.iter().any(|&slot| program.is_number(slot, device) && is_made(slot))
}

impl Access {
    /// Whether they may have a byte in common. Parts of one slot do, whatever is known of its extent.
    fn may_meet(&self, other: &Access, facts: &Facts) -> bool {
        let is_le = |a: Expr, b: Expr| facts.proves(&Rel::le(a, b));
        self.slot == other.slot || !is_le(self.to, other.from) && !is_le(other.to, self.from)
    }
}

fn join(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(own, &other)| *own = (*own).max(other));
}
