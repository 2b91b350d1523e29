//! Times calls of a compiled model, and says what part of them each kernel takes and how far it is from the machine's peaks.

use crate::compiled::Compiled;
use crate::error::Error;
use crate::options::Options;
use crate::peaks::{self, Meters, Peaks};
use crate::profile::{Launches, Recorded, Span};
use litz_ir::kernel::{self, Kernel};
use litz_ir::loops::{Loops, Stmt};
use litz_runtime::Tensor;
use litz_runtime::program::Value;
use litz_schedule::cost::{Cost, Estimator};
use std::collections::BTreeMap;
use std::time::Instant;

/// Calls before the first that counts.
const WARM_UP: usize = 3;

/// Turns that the calls are spread over, with the machine's peaks measured between them.
const TURNS: usize = 10;

/// What was recorded in one turn.
struct Turn {
    /// Milliseconds of each call.
    calls: Vec<f64>,
    recorded: Recorded,
}

/// Times of calls and launches, beside what the machine could do meanwhile.
pub struct Measured {
    turns: Vec<(Turn, Peaks)>,
}

/// A kernel's share of a call.
pub struct KernelTime {
    /// Its position among the kernels of the compilation.
    pub kernel: usize,
    /// In one call.
    pub launches: f64,
    /// Milliseconds in one call: the median of the turns.
    pub ms: f64,
    /// Bytes moved in one call.
    pub bytes: f64,
    /// Operations in one call.
    pub flops: f64,
    /// Operations a second of the shortest launch of a turn, since what else the machine does only ever adds time, as a share
    /// of the peak of f32. `None` where that could not be measured, and for matrix instructions, which have another peak.
    pub of_peak: Option<f64>,
    /// Bytes a second as a share of what a copy moves; more than 1 where the caches have them.
    pub of_copy: Option<f64>,
}

/// Makes so many calls, at least one, of a model that was compiled with [`Options::profile`], and some before that do not count. Calls of
/// `plain`, the same without it, are those that are timed as a whole: launches that are timed one by one are not replayed as a graph.
///
/// # Errors
/// When a call fails, or the options' target is none that this machine can run the code of.
pub fn measure(
    compiled: &Compiled,
    plain: Option<&Compiled>,
    inputs: &[Tensor],
    options: &Options,
    calls: usize,
) -> Result<Measured, Error> {
    let mut results = Vec::new();
    times(compiled, inputs, &mut results, WARM_UP)?;
    plain.map(|plain| times(plain, inputs, &mut results, WARM_UP)).transpose()?;
    let mut meters = Meters::new(options)?;
    let calls = calls.max(1);
    let per_turn = calls.div_ceil(TURNS);
    let turn = |at: usize| -> Result<Turn, Error> {
        let count = per_turn.min(calls - at * per_turn);
        // The peaks' own data is in the caches.
        times(compiled, inputs, &mut results, 1)?;
        compiled.profile.iter().for_each(|profile| drop(profile.take()));
        let watched = times(compiled, inputs, &mut results, count)?;
        let calls = plain.map_or(Ok(watched), |plain| times(plain, inputs, &mut results, count))?;
        let recorded = compiled.profile.as_ref().map_or_else(Recorded::default, |profile| profile.take());
        Ok(Turn { calls, recorded })
    };
    Ok(Measured { turns: peaks::in_turns(calls.div_ceil(per_turn), || meters.measure(), turn)? })
}

/// Milliseconds of each of `runs` calls, which write to the memory of `results` where it fits.
///
/// # Errors
/// When a call fails.
pub fn times(
    compiled: &Compiled,
    inputs: &[Tensor],
    results: &mut Vec<Value>,
    runs: usize,
) -> Result<Vec<f64>, Error> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        compiled.executable.run_into(inputs, results)?;
        times.push(1e3 * start.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// Smallest, median, and those that 90 and 99 of 100 do not exceed.
pub fn percentiles(times: &[f64]) -> [f64; 4] {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |percent: usize| sorted.get((last * percent).div_ceil(100)).copied().unwrap_or(f64::NAN);
    [0, 50, 90, 99].map(at)
}

impl Measured {
    /// Milliseconds of each call.
    pub fn calls(&self) -> Vec<f64> {
        self.turns.iter().flat_map(|(turn, _)| &turn.calls).copied().collect()
    }

    /// What the machine could do in most of the turns.
    pub fn peaks(&self) -> Peaks {
        let over = |of: fn(&Peaks) -> Option<f64>| {
            peaks::most(&self.turns.iter().map(|(_, peaks)| of(peaks)).collect::<Vec<_>>())
        };
        Peaks { flops: over(|peaks| peaks.flops), bandwidth: over(|peaks| peaks.bandwidth) }
    }

    /// Milliseconds of each launch in one call, by its number in the program: the median of the turns.
    pub fn launches(&self) -> BTreeMap<usize, f64> {
        let mut turns: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (turn, _) in &self.turns {
            for (&launch, total) in &turn.recorded.launches {
                let ms = 1e3 * total.time.as_secs_f64() / turn.calls.len() as f64;
                turns.entry(launch).or_default().push(ms);
            }
        }
        turns.into_iter().map(|(launch, ms)| (launch, percentiles(&ms)[1])).collect()
    }

    /// Milliseconds between the end of a launch and the beginning of the next one in a call of the last turn, by the device's clock: the
    /// median. None where there are no two launches.
    pub fn gap(&self) -> Option<f64> {
        let gap =
            |pair: &[Span]| 1e3 * pair[1].start.saturating_sub(pair[0].start + pair[0].time).as_secs_f64();
        // A launch whose number is no larger is one of the next call.
        let pairs = self.spans().windows(2).filter(|pair| pair[1].launch > pair[0].launch);
        let gaps: Vec<f64> = pairs.map(gap).collect();
        (!gaps.is_empty()).then(|| percentiles(&gaps)[1])
    }

    /// Launches of the last turn, one by one.
    pub fn spans(&self) -> &[Span] {
        self.turns.last().map_or(&[], |(turn, _)| &turn.recorded.spans)
    }

    /// Kernels by time in one call, the longest first. One that was launched with several sets of sizes has an entry for each.
    pub fn kernels(&self, compiled: &Compiled, loops: &Loops) -> Vec<KernelTime> {
        let Some(realized) = &compiled.texts.realized else { return Vec::new() };
        let turns = &self.turns;
        let mut keys: Vec<&(usize, Vec<i64>)> =
            turns.iter().flat_map(|(turn, _)| turn.recorded.kernels.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut rows = Vec::new();
        for key in keys {
            let (Some(kernel), sizes) = (realized.kernels.get(key.0), &key.1) else { continue };
            let one = cost(loops, kernel, sizes);
            let (bytes, flops) = (one.traffic.bytes() as f64, one.all_flops() as f64);
            let recorded: Vec<(f64, Launches, Peaks)> = turns
                .iter()
                .filter_map(|(turn, peaks)| {
                    Some((turn.calls.len() as f64, *turn.recorded.kernels.get(key)?, *peaks))
                })
                .collect();
            let launches = recorded.first().map_or(0.0, |(calls, total, _)| total.count as f64 / calls);
            let ms: Vec<f64> =
                recorded.iter().map(|(calls, total, _)| 1e3 * total.time.as_secs_f64() / calls).collect();
            let of_peak = peaks::share(
                recorded.iter().map(|(_, total, peaks)| (flops / total.shortest.as_secs_f64(), peaks.flops)),
            );
            let of_copy: Vec<Option<f64>> = recorded
                .iter()
                .map(|(_, total, peaks)| {
                    Some(bytes * total.count as f64 / total.time.as_secs_f64() / peaks.bandwidth?)
                })
                .collect();
            rows.push(KernelTime {
                kernel: key.0,
                launches,
                ms: percentiles(&ms)[1],
                bytes: bytes * launches,
                flops: flops * launches,
                of_peak: of_peak.filter(|_| !has_matrix(kernel)),
                of_copy: peaks::most(&of_copy),
            });
        }
        rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        rows
    }
}

/// What a launch of a kernel costs with these values of its size symbols.
fn cost(loops: &Loops, kernel: &Kernel, sizes: &[i64]) -> Cost {
    let loops = containing(loops, &kernel.from).unwrap_or(loops);
    let mut facts = loops.facts.clone();
    for (&sym, &size) in kernel.sizes.iter().zip(sizes) {
        facts.declare(sym, facts.range_of(sym), Some(size));
    }
    Estimator { loops, facts: &facts }.kernel(&kernel.from)
}

/// The program, or the function of it, whose nests these are.
fn containing<'a>(loops: &'a Loops, nests: &[String]) -> Option<&'a Loops> {
    let own: Vec<&str> = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| nest.name.as_str()).collect();
    if nests.iter().all(|nest| own.contains(&nest.as_str())) {
        return Some(loops);
    }
    loops.functions.iter().find_map(|function| containing(function, nests))
}

/// Whether instructions for products of matrices, or dot products, do part of the work.
fn has_matrix(kernel: &Kernel) -> bool {
    let mut has_matrix = false;
    kernel::visit(&kernel.body, &mut |stmt| {
        use kernel::{Act, Stmt};
        has_matrix |=
            matches!(stmt, Stmt::Act(Act::Dot(_) | Act::MatrixProduct(_) | Act::FragmentProduct(_)));
    });
    has_matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert_eq!(percentiles(&times), [1.0, 51.0, 91.0, 100.0]);
        assert_eq!(percentiles(&[2.0]), [2.0; 4]);
    }
}
