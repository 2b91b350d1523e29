//! Equal calls give equal bits, whichever and however many threads run them, while other threads take the cores away.

#![allow(missing_docs, reason = "a test")]

use litz::pipeline::compile;
use litz::{Options, Runner, Stage, Tensor, Text};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::Executable;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const THREADS: [usize; 3] = [1, 2, 7];
const CALLS: usize = 25;

/// Numbers that are always the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next() as f32 / (1u64 << 30) as f32 - 1.0).collect()
    }

    fn indices(&mut self, count: usize, below: u64) -> Vec<i64> {
        (0..count).map(|_| (self.next() % below) as i64).collect()
    }
}

fn tensor<T: litz_runtime::tensor::Element>(sizes: &[usize], values: &[T]) -> Tensor {
    Tensor::from_slice(sizes, values).expect("lengths match")
}

/// A graph's program for `threads` threads, on as many.
fn executable(graph: &str, threads: usize) -> Executable {
    let Text::Graph(graph) = Text::parse(graph).expect("it parses") else { panic!("expected a graph") };
    let options = Options { threads, ..Options::default() };
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(litz::Verify::Passes, None, &mut silent);
    let texts = compile(graph, &*backend, &options, Stage::Program, &mut runner).expect("it compiles");
    let realized = texts.realized.expect("it was asked for");
    let objects = litz::compile_kernels(&*backend, &realized.kernels, &options, None).expect("it compiles");
    let pool = Arc::new(ThreadPool::unbound(threads));
    let device = backend.load(&realized.kernels, &objects, &|| pool.clone()).expect("it loads");
    Executable::new(&realized.program, &realized.kernels, device, &HashMap::new()).expect("it is complete")
}

/// The bytes of the results of every call, all equal, for each number of threads.
fn bits(graph: &str, inputs: &[Tensor]) -> Vec<Vec<Vec<u8>>> {
    let bytes = |executable: &Executable| -> Vec<Vec<u8>> {
        let outputs = executable.run(inputs).expect("the inputs suit");
        outputs.iter().map(|output| output.tensor().expect("a tensor").bytes().to_vec()).collect()
    };
    let executables: Vec<Executable> = THREADS.iter().map(|&threads| executable(graph, threads)).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_done = &is_done;
        for seed in 1..=2 {
            scope.spawn(move || disturb(seed, is_done));
        }
        let results = executables.iter().zip(THREADS).map(|(executable, threads)| {
            let first = bytes(executable);
            let differs = (1..CALLS).find(|_| bytes(executable) != first);
            (threads, differs, first)
        });
        let results: Vec<_> = results.collect();
        is_done.store(true, Ordering::Relaxed);
        results
            .into_iter()
            .map(|(threads, differs, first)| {
                assert_eq!(differs, None, "{threads} threads: that call gives other bits\n{graph}");
                first
            })
            .collect()
    })
}

/// Keeps a core busy and leaves it again, each for up to half a millisecond.
fn disturb(seed: u64, is_done: &AtomicBool) {
    let mut random = Random(seed);
    while !is_done.load(Ordering::Relaxed) {
        let end = Instant::now() + Duration::from_micros(random.next() % 512);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(random.next() % 512));
    }
}

/// As [`bits`], where results do not depend on the number of threads.
fn equal_bits(graph: &str, inputs: &[Tensor]) -> Vec<Vec<u8>> {
    let mut all = bits(graph, inputs);
    for (at, threads) in THREADS.into_iter().enumerate() {
        assert!(all[at] == all[0], "{threads} threads give other bits than one\n{graph}");
    }
    all.swap_remove(0)
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn scatters_are_those_of_one_thread() {
    const COUNT: usize = 20_000;
    for (rows, width) in [(50, 1), (4096, 2), (300, 3), (7, 700)] {
        let count = COUNT / (1 + width / 100);
        let graph = format!(
            "graph @g on cpu {{
  %x: f32[{rows}, {width}] = input
  %i: i64[{count}] = input
  %v: f32[{count}, {width}] = input
  %put: f32[{rows}, {width}] = aten.index_put.default(%x, [%i], %v, false)
  %sum: f32[{rows}, {width}] = aten.index_put.default(%x, [%i], %v, true)
  %copy: f32[{rows}, {width}] = aten.index_copy.default(%x, 0, %i, %v)
  %add: f32[{rows}, {width}] = aten.index_add.default(%x, 0, %i, %v, 1)
  return %put, %sum, %copy, %add
}}"
        );
        let mut random = Random(rows as u64);
        let x = random.numbers(rows * width);
        let indices = random.indices(count, rows as u64);
        let v = random.numbers(count * width);
        let (mut put, mut sum) = (x.clone(), x.clone());
        for (row, values) in indices.iter().zip(v.chunks(width)) {
            let at = *row as usize * width;
            put[at..at + width].copy_from_slice(values);
            sum[at..at + width].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        let inputs = [tensor(&[rows, width], &x), tensor(&[count], &indices), tensor(&[count, width], &v)];
        let found = equal_bits(&graph, &inputs);
        for (name, found, expected) in [
            ("index_put", &found[0], &put),
            ("index_put that adds", &found[1], &sum),
            ("index_copy", &found[2], &put),
            ("index_add", &found[3], &sum),
        ] {
            assert!(*found == bytes_of(expected), "{name} of {count} rows of {width} to {rows}");
        }
    }
}

#[test]
fn scatters_of_several_indices_are_those_of_one_thread() {
    let graph = "graph @g on cpu {
  %x: f32[3, 40, 50] = input
  %i: i64[90, 1] = input
  %j: i64[70] = input
  %v: f32[3, 90, 70] = input
  %y: f32[3, 40, 50] = aten.index_put.default(%x, [none, %i, %j], %v, false)
  %k: i64[3, 2000, 50] = input
  %w: f32[3, 2000, 50] = input
  %z: f32[3, 40, 50] = aten.scatter.src(%x, 1, %k, %w)
  return %y, %z
}";
    let mut random = Random(3);
    let (x, v, w) = (random.numbers(6000), random.numbers(3 * 90 * 70), random.numbers(300_000));
    // Negative ones count from the end.
    let i: Vec<i64> = random.indices(90, 80).into_iter().map(|i| i - 40).collect();
    let (j, k) = (random.indices(70, 50), random.indices(300_000, 40));
    let (mut put, mut scattered) = (x.clone(), x.clone());
    for (at, &value) in v.iter().enumerate() {
        let (plane, row, column) = (at / 6300, i[at / 70 % 90], j[at % 70]);
        put[plane * 2000 + row.rem_euclid(40) as usize * 50 + column as usize] = value;
    }
    for (at, &value) in w.iter().enumerate() {
        scattered[at / 100_000 * 2000 + k[at] as usize * 50 + at % 50] = value;
    }
    let inputs = [
        tensor(&[3, 40, 50], &x),
        tensor(&[90, 1], &i),
        tensor(&[70], &j),
        tensor(&[3, 90, 70], &v),
        tensor(&[3, 2000, 50], &k),
        tensor(&[3, 2000, 50], &w),
    ];
    let found = equal_bits(graph, &inputs);
    assert!(found[0] == bytes_of(&put), "index_put of two indices");
    assert!(found[1] == bytes_of(&scattered), "scatter");
}

/// What a race shows soonest: a million elements to eight places.
#[test]
fn a_million_repeated_indices_repeat() {
    const COUNT: usize = 1_000_000;
    let graph = format!(
        "graph @g on cpu {{
  %x: f32[4, 2] = input
  %i: i64[{COUNT}] = input
  %v: f32[{COUNT}, 2] = input
  %y: f32[4, 2] = aten.index_put.default(%x, [%i], %v, false)
  return %y
}}"
    );
    let mut random = Random(6);
    let (x, v) = (vec![0.0; 8], random.numbers(2 * COUNT));
    let indices = random.indices(COUNT, 4);
    let mut put = x.clone();
    for (row, values) in indices.iter().zip(v.chunks(2)) {
        put[2 * *row as usize..][..2].copy_from_slice(values);
    }
    let inputs = [tensor(&[4, 2], &x), tensor(&[COUNT], &indices), tensor(&[COUNT, 2], &v)];
    assert!(equal_bits(&graph, &inputs)[0] == bytes_of(&put));
}

#[test]
fn sorting_keeps_the_order_of_equal_elements() {
    let graph = "graph @g on cpu {
  %x: f32[3, 5000] = input
  %v: f32[3, 5000], %i: i64[3, 5000] = aten.sort.default(%x, 1, true)
  %w: f32[3, 40], %j: i64[3, 40] = aten.topk.default(%x, 40, 1, true, true)
  return %v, %i, %w, %j
}";
    let mut random = Random(4);
    let x: Vec<f32> = random.indices(15_000, 9).into_iter().map(|x| x as f32).collect();
    let found = equal_bits(graph, &[tensor(&[3, 5000], &x)]);
    let order = |row: usize| {
        let mut order: Vec<usize> = (0..5000).collect();
        order.sort_by(|&a, &b| x[5000 * row + b].total_cmp(&x[5000 * row + a]));
        order
    };
    let positions = |count: usize| -> Vec<u8> {
        let rows = (0..3).flat_map(|row| order(row).into_iter().take(count));
        rows.flat_map(|at| (at as i64).to_le_bytes()).collect()
    };
    assert!(found[1] == positions(5000), "sort");
    assert!(found[3] == positions(40), "topk");
}

/// Sums that threads share: the parts are the same at every call.
#[test]
fn sums_repeat() {
    let graph = "graph @g on cpu {
  %x: f32[700, 900] = input
  %all: f32[] = aten.sum.default(%x)
  %rows: f32[700] = aten.mean.dim(%x, [1], false, none)
  %columns: f32[900] = aten.sum.dim_IntList(%x, [0], false, none)
  %soft: f32[700, 900] = aten.softmax.int(%x, 1, none)
  %run: f32[700, 900] = aten.cumsum.default(%x, 0)
  %most: i64[] = aten.argmax.default(%x)
  %w: f32[900, 300] = input
  %mm: f32[700, 300] = aten.mm.default(%x, %w)
  %bins: f32[10] = aten.histc.default(%x, 10, -1, 1)
  return %all, %rows, %columns, %soft, %run, %most, %mm, %bins
}";
    let mut random = Random(5);
    let inputs =
        [tensor(&[700, 900], &random.numbers(630_000)), tensor(&[900, 300], &random.numbers(270_000))];
    bits(graph, &inputs);
}
