//! Random graphs of views, writes through views, scatters, sizes that data decides, branches, loops and calls of a host against
//! tensors that share real memory.
//!
//! `LITZ_TEST_SAMPLE=10000` tries so many, and `LITZ_TEST_SEED` repeats a run. The text of the first graph that is wrong is printed with as
//! few of its lines as show it.

#![allow(missing_docs, reason = "a test")]

use lines::{Line, line};
use litz_ir::target::Isa;
use litz_ir::text::graph::parse;
use litz_runtime::Tensor;
use litz_runtime::host::{Host, HostArg, HostError, HostResult};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions, Value};
use litz_testing::choices::Random;
use litz_testing::devices;
use machine::Machine;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

#[path = "storages/lines.rs"]
mod lines;
#[path = "storages/machine.rs"]
mod machine;

/// Graphs of a run; `LITZ_TEST_SAMPLE` says another number.
const SAMPLE: u64 = 10_000;

/// The host: doubles a tensor, and adds 1 to one where it is.
struct Library;

impl Host for Library {
    fn declaration(&self, _: &str) -> Option<String> {
        // Graphs declare what they use.
        Some(String::new())
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        let [HostArg::Tensor(x)] = args else { return Err("expected one tensor".into()) };
        let old = x.to_tensor()?;
        let change = |f: fn(f64) -> f64| {
            let elements: Vec<f32> = old.to_f64().into_iter().map(|value| f(value) as f32).collect();
            Tensor::from_slice(old.sizes(), &elements)
        };
        match op {
            "mylib.twice.default" => results[0].set(&change(|value| 2.0 * value)?),
            _ => x.write(&change(|value| value + 1.0)?),
        }
    }
}

/// Inputs, lines and which tensors are returned.
#[derive(Clone)]
struct Trial {
    inputs: Vec<(Vec<usize>, Vec<f32>)>,
    positions: [i64; 2],
    lines: Vec<Line>,
    returned: u64,
}

impl Trial {
    fn new(random: &mut Random) -> Trial {
        let sizes = |random: &mut Random| -> Vec<usize> {
            let rank = 1 + random.below(3) as usize;
            let size = |random: &mut Random| match random.below(12) {
                0 => 1,
                1 => 2,
                _ => 2 + random.below(4) as usize,
            };
            (0..rank).map(|_| size(random)).collect()
        };
        let inputs: Vec<(Vec<usize>, Vec<f32>)> = (0..1 + random.below(3))
            .map(|_| {
                let sizes = sizes(random);
                let count = sizes.iter().product::<usize>();
                (sizes, (0..count).map(|_| random.below(64) as f32 - 32.0).collect())
            })
            .collect();
        let positions = [random.below(3) as i64, random.below(3) as i64];
        let mut machine = Machine::new(&inputs, positions);
        let (mut lines, wanted) = (Vec::new(), 2 + random.below(24) as usize);
        for _ in 0..20 * wanted {
            let line = line(random, machine.views.len(), 0);
            if lines.len() < wanted && machine.run(&line).is_some() {
                lines.push(line);
            }
        }
        Trial { inputs, positions, lines, returned: random.next() }
    }

    /// What is wrong, with the text; nothing if all is as it should be.
    fn wrong(&self, pools: &mut HashMap<usize, Arc<ThreadPool>>) -> Option<String> {
        let mut machine = Machine::new(&self.inputs, self.positions);
        for line in &self.lines {
            machine.run(line)?;
        }
        let is_returned = |at: &usize| self.returned >> (at % 64) & 3 == 0;
        let returned: Vec<usize> = (0..machine.views.len()).filter(is_returned).take(4).collect();
        let names: Vec<String> = returned.iter().map(|at| format!("%v{at}")).collect();
        let text = machine.graph_of(&names.join(", "));
        let mut expected: Vec<Vec<f32>> =
            returned.iter().map(|&at| machine.read(&machine.views[at])).collect();
        let updated = (0..self.inputs.len()).filter(|&input| machine.written[input]);
        expected.extend(updated.map(|input| machine.memories[input].clone()));
        let found = |what: String| Some(format!("{what}\n{text}"));
        let graph = match parse(&text) {
            Ok(graph) => graph,
            Err(diags) => return found(diags[0].to_string()),
        };
        let threads = 1 + (self.returned % 2) as usize * 2;
        let options = devices::options(Isa::Avx2, threads as u32);
        let backend = litz::backend(&options).expect("there is a backend");
        let realized = match devices::realize_any(graph, &*backend, &options) {
            Ok((realized, _)) => realized,
            Err(error) => return found(error.to_string()),
        };
        let inputs: Vec<Tensor> = self.tensors();
        let before: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
        let pool = pools.entry(threads).or_insert_with(|| Arc::new(ThreadPool::new(threads)));
        let native = devices::on_native(&realized, &*backend, &options, &Arc::clone(pool));
        for device in [devices::on_reference(&realized).expect("kernels"), native.expect("machine code")] {
            let none: HashMap<String, Tensor> = HashMap::new();
            let run = RunOptions { host: Some(Arc::new(Library)), ..RunOptions::default() };
            let executable =
                Executable::with_options(&realized.program, &realized.kernels, device, &none, &run);
            let results = executable.and_then(|executable| executable.run(&inputs));
            let results: Vec<Vec<f64>> = match results {
                Ok(results) => results.iter().filter_map(Value::tensor).map(Tensor::to_f64).collect(),
                Err(error) => return found(error.to_string()),
            };
            let wanted: Vec<Vec<f64>> =
                expected.iter().map(|list| list.iter().copied().map(f64::from).collect()).collect();
            if results != wanted {
                return found(format!("expected {wanted:?}\nfound    {results:?}"));
            }
            if inputs.iter().map(Tensor::to_f64).ne(before.iter().cloned()) {
                return found("an input was changed".to_owned());
            }
        }
        None
    }

    fn tensors(&self) -> Vec<Tensor> {
        let tensors = self.inputs.iter().map(|(sizes, elements)| Tensor::from_slice(sizes, elements));
        let positions = Tensor::from_slice(&[2], &self.positions);
        tensors.chain([positions]).map(|tensor| tensor.expect("lengths match")).collect()
    }

    /// The graph with lines left out while it stays wrong; lines that others take cannot go before these.
    fn shrunk(mut self, pools: &mut HashMap<usize, Arc<ThreadPool>>) -> Trial {
        for at in (0..self.lines.len()).rev() {
            let mut fewer = self.clone();
            fewer.lines.truncate(at);
            if fewer.wrong(pools).is_some() {
                self = fewer;
            }
        }
        self
    }
}

/// What a run's graphs were made of.
#[derive(Default)]
struct Made {
    lines: usize,
    writes: usize,
    /// Lines with sizes that data decides, branches, loops, calls of the host.
    others: [usize; 4],
}

impl Made {
    fn add(&mut self, trial: &Trial) {
        self.lines += trial.lines.len();
        for line in &trial.lines {
            match line {
                Line::Copy { .. } | Line::Zero(_) | Line::Put { .. } => self.writes += 1,
                Line::SliceAt { .. } | Line::SliceScatterAt { .. } | Line::SumChosen(_) => {
                    self.others[0] += 1
                }
                Line::Branch { .. } => self.others[1] += 1,
                Line::Repeat { .. } => self.others[2] += 1,
                Line::Twice(_) | Line::Increment(_) => self.others[3] += 1,
                _ => {}
            }
        }
    }
}

/// Every `of`th graph of a run, from `first` on.
fn tried(seed: u64, sample: u64, first: u64, of: u64) -> Made {
    let (mut pools, mut made) = (HashMap::new(), Made::default());
    for number in (first..sample).step_by(of as usize) {
        let trial = Trial::new(&mut Random::new(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9))));
        if trial.wrong(&mut pools).is_some() {
            let wrong = trial.shrunk(&mut pools).wrong(&mut pools).unwrap_or_default();
            panic!("graph {number} of LITZ_TEST_SEED={seed}: {wrong}");
        }
        made.add(&trial);
    }
    made
}

/// IP-48: values, inputs that are not updated, and results that share no memory are as with real storages.
#[test]
fn writes_through_views_are_as_in_shared_memory() {
    let given = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = given("LITZ_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let sample = given("LITZ_TEST_SAMPLE").unwrap_or(SAMPLE);
    println!("LITZ_TEST_SEED={seed} LITZ_TEST_SAMPLE={sample}");
    let of = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let made: Vec<Made> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..of).map(|first| scope.spawn(move || tried(seed, sample, first, of))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|made| made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let sum = |count: fn(&Made) -> usize| made.iter().map(count).sum::<usize>();
    let (lines, writes) = (sum(|made| made.lines), sum(|made| made.writes));
    let others = [sum(|m| m.others[0]), sum(|m| m.others[1]), sum(|m| m.others[2]), sum(|m| m.others[3])];
    println!(
        "{sample} graphs of {lines} lines: {writes} writes; late sizes, branches, loops, calls: {others:?}"
    );
    assert!(writes * 20 > lines, "{writes} writes of {lines} lines: the generator has dried up");
    let is_rare = |count: &usize| count * 100 < lines;
    assert!(!others.iter().any(is_rare), "{others:?} of {lines} lines: the generator has dried up");
}
