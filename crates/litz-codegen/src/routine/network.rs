//! Sorts pairs in the memory of a block by a network, or those that come first.
//!
//! The network is bitonic, with the first step of each merge mirrored, so that all its steps put the earlier pair in front. Runs of as many
//! pairs as are wanted are sorted; then of two runs the pairs that come first are kept and merged, until one run is left.
//! (Shanbhag, Pirk, Madden: Efficient Top-K Query Processing on GPUs, 2018.)
//!
//! Each warp has 64 neighbouring slots in steps that reach no further, and waits for no other one between these.

use litz_ir::ScalarOp;
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Rel};

use super::pairs::Pairs;
use super::writer::Writer;

/// A step of the network: each of its comparisons puts the earlier one of two pairs in front.
#[derive(Clone, Copy)]
enum Step {
    /// Of blocks of `size` slots, the first with the last, and so on: two sorted halves become halves of which each is to be merged.
    Mirror { size: i64 },
    /// Of runs of `run` slots that begin `pitch` apart, slots that are `stride` apart.
    Stride { stride: i64, run: i64, pitch: i64 },
    /// Of two runs of `run` slots that begin `step` apart, the first of one with the last of the other: the earlier ones stay in the first.
    Halve { run: i64, step: i64 },
}

impl Step {
    /// Comparisons in which one of `count` slots takes part.
    fn comparisons(self, count: i64) -> i64 {
        let blocks = |size: i64| (count + size - 1) / size;
        match self {
            Step::Mirror { size } => blocks(size) * (size / 2),
            Step::Stride { run, pitch, .. } => blocks(pitch) * (run / 2),
            Step::Halve { run, step } => blocks(2 * step) * run,
        }
    }

    /// The slots of a comparison, the one that is to have the earlier pair first.
    fn slots(self, number: Expr) -> [Expr; 2] {
        match self {
            Step::Mirror { size } => {
                let (first, at) = (number.floordiv(size / 2) * size, number.modulo(size / 2));
                [first + at, first - at + size - 1]
            }
            Step::Stride { stride, run, pitch } => {
                let (first, within) = (number.floordiv(run / 2) * pitch, number.modulo(run / 2));
                let low = first + within.floordiv(stride) * (2 * stride) + within.modulo(stride);
                [low, low + stride]
            }
            Step::Halve { run, step } => {
                let (first, at) = (number.floordiv(run) * (2 * step), number.modulo(run));
                [first + at, first - at + step + run - 1]
            }
        }
    }

    /// The slots of a comparison in the order in which they are accessed, and whether that is the other way around, 0 or 1. Of a warp whose lanes
    /// have both halves of blocks below 64 slots, half the lanes access the other half first: at the same time, all are in different banks.
    fn accessed(self, number: Expr) -> ([Expr; 2], Expr) {
        let half = match self {
            Step::Mirror { size } => size / 2,
            Step::Stride { stride, .. } => stride,
            Step::Halve { .. } => return (self.slots(number), Expr::zero()),
        };
        let lanes = i64::from(Gpu::LANES);
        let is_other = if half < lanes { number.floordiv(lanes / 2).modulo(2) } else { Expr::zero() };
        let [front, back] = self.slots(number);
        ([front + is_other * half, back - is_other * half], is_other)
    }

    /// Whether the comparisons of a warp are among slots that no other warp's are in steps like this.
    fn is_of_warps(self) -> bool {
        let lanes = i64::from(Gpu::LANES);
        match self {
            Step::Mirror { size } => size <= 2 * lanes,
            Step::Stride { stride, .. } => stride <= lanes,
            Step::Halve { .. } => false,
        }
    }

    /// Whether the later pair is kept as well.
    fn keeps_both(self) -> bool {
        match self {
            Step::Mirror { .. } | Step::Stride { .. } => true,
            Step::Halve { .. } => false,
        }
    }
}

/// The steps after which the first `wanted` of `count` slots are those that come first, in order; `wanted` is a power of two, and `count` a
/// multiple of it.
fn steps(wanted: i64, count: i64) -> Vec<Step> {
    let halves =
        |from: i64| std::iter::successors(Some(from), |stride| Some(stride / 2)).take_while(|&s| s > 0);
    let mut steps = Vec::new();
    for size in std::iter::successors(Some(2), |size| Some(2 * size)).take_while(|&size| size <= wanted) {
        steps.push(Step::Mirror { size });
        steps.extend(halves(size / 4).map(|stride| Step::Stride { stride, run: size, pitch: size }));
    }
    for step in std::iter::successors(Some(wanted), |step| Some(2 * step)).take_while(|&step| step < count) {
        steps.push(Step::Halve { run: wanted, step });
        steps.extend(halves(wanted / 2).map(|stride| Step::Stride { stride, run: wanted, pitch: 2 * step }));
    }
    steps
}

/// Who makes which comparisons: threads and lanes take turns. Steps in which each has another number have no addresses in common, which code
/// would keep in registers from one to the other.
#[derive(Default)]
pub(super) struct Turns(i64);

impl Turns {
    /// The number of a unit, of so many.
    fn number(&self, unit: Expr, units: i64) -> Expr {
        (unit + self.0).modulo(units)
    }
}

/// Puts the first `wanted` of `count` pairs in front, in order; `wanted` is a power of two, and `count` a multiple of it. `threads` are whole warps.
pub(super) fn sort_first(
    w: &mut Writer,
    pairs: Pairs,
    (wanted, count): (i64, i64),
    threads: i64,
    turns: &mut Turns,
) {
    let lanes = i64::from(Gpu::LANES);
    for steps in steps(wanted, count).chunk_by(|one, next| one.is_of_warps() && next.is_of_warps()) {
        turns.0 += 1;
        if !steps[0].is_of_warps() {
            let comparisons = steps[0].comparisons(count);
            let threads = threads.min(comparisons);
            w.each(Level::Thread, threads, |w, thread| {
                let thread = turns.number(thread, threads);
                w.rounds(comparisons, (thread, threads), |w, number| {
                    compare(w, pairs, steps[0], number, count);
                });
            });
            continue;
        }
        let units = |step: Step| (step.comparisons(count) + lanes - 1) / lanes;
        let warps = steps.iter().map(|&step| units(step)).max().unwrap_or_default().min(threads / lanes);
        w.each(Level::Warp, warps, |w, warp| {
            for &step in steps {
                let comparisons = step.comparisons(count);
                let lanes_of_step = lanes.min(comparisons);
                w.each(Level::Lane, lanes_of_step, |w, lane| {
                    let lane = turns.number(lane, lanes_of_step);
                    w.rounds(units(step), (warp, warps), |w, unit| {
                        let number = unit * lanes + lane;
                        let is_one = comparisons % lanes == 0 || comparisons < lanes;
                        let inside = if is_one { Vec::new() } else { vec![Rel::lt(number, comparisons)] };
                        w.when(inside, |w| compare(w, pairs, step, number, count));
                    });
                });
            }
        });
    }
}

/// One comparison. Runs are whole, but of two runs there may be one.
fn compare(w: &mut Writer, pairs: Pairs, step: Step, number: Expr, count: i64) {
    let (slots, is_other) = step.accessed(number);
    let is_there = match step {
        Step::Mirror { .. } | Step::Stride { .. } => Vec::new(),
        Step::Halve { step, .. } if count % (2 * step) == 0 => Vec::new(),
        Step::Halve { .. } => vec![Rel::lt(slots[1], count)],
    };
    w.when(is_there, |w| {
        let [one, other] = slots.map(|slot| pairs.load(w, slot));
        let is_after = one.is_after(w, other);
        let is_swapped = match is_other.is_zero() {
            true => is_after,
            false => {
                let is_other = w.holds(Rel::eq(is_other, 1));
                w.op(ScalarOp::Xor, [is_after, is_other])
            }
        };
        let now = other.or(w, is_swapped, one);
        pairs.store(w, slots[0], now);
        if step.keeps_both() {
            let now = one.or(w, is_swapped, other);
            pairs.store(w, slots[1], now);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the steps make of some slots.
    fn run(values: &mut [u32], wanted: i64) {
        let count = values.len() as i64;
        for step in steps(wanted, count) {
            let mut touched = vec![false; values.len()];
            for number in 0..step.comparisons(count) {
                let (slots, is_other) = step.accessed(Expr::int(number));
                let [front, back] = slots.map(|slot| slot.as_int().expect("a number") as usize);
                let [front, back] = if is_other.is_zero() { [front, back] } else { [back, front] };
                assert!(front < back, "{front} {back}");
                if back < values.len() || !matches!(step, Step::Halve { .. }) {
                    assert!(!std::mem::replace(&mut touched[front], true));
                    assert!(!std::mem::replace(&mut touched[back], true));
                    let (one, other) = (values[front], values[back]);
                    (values[front], values[back]) = (one.min(other), one.max(other));
                }
            }
        }
    }

    /// Zeros and ones are all that a network has to be tried with.
    #[test]
    fn the_first_come_first() {
        for wanted in [1, 2, 4, 8, 16] {
            for count in (1..=12).map(|runs| runs * wanted as u32).filter(|&count| count <= 16) {
                for bits in 0..1u32 << count {
                    let mut values: Vec<u32> = (0..count).map(|at| bits >> at & 1).collect();
                    let mut sorted = values.clone();
                    sorted.sort_unstable();
                    run(&mut values, wanted);
                    let kept = values.len().min(wanted as usize);
                    assert_eq!(values[..kept], sorted[..kept], "{count} {bits:b} {wanted}");
                }
            }
        }
    }

    #[test]
    fn many_slots_are_sorted() {
        let mut state = 1u32;
        for (count, wanted) in [(2048, 2048), (2560, 64), (1024, 1024), (4224, 128), (800, 32), (3000, 1)] {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 20
            };
            let mut values: Vec<u32> = (0..count).map(|_| next()).collect();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            run(&mut values, wanted);
            let kept = count.min(wanted as usize);
            assert_eq!(values[..kept], sorted[..kept], "{count} {wanted}");
        }
    }
}
