//! No schedule can change a result: random loops programs give, under random and automatic schedules, exactly what a
//! plain walk over their nests gives.

#![allow(missing_docs, reason = "a test")]

#[path = "schedules/programs.rs"]
mod programs;
#[path = "schedules/random.rs"]
mod random;

use litz::{Device, Options, Tensor, Value};
use litz_analysis::legality;
use litz_codegen::{Realized, passes};
use litz_ir::loops::Loops;
use litz_ir::schedule::Schedule;
use litz_ir::target::Target;
use litz_ir::{text, verify};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::Executable;
use litz_runtime::reference::{self, ReferenceDevice};
use litz_schedule::Heuristics;
use litz_sym::Sym;
use litz_testing::choices::Choices;
use programs::Case;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// A program, what it is run on, and what it gives.
struct Given {
    case: Case,
    loops: Loops,
    inputs: Vec<Tensor>,
    expected: Vec<Vec<f64>>,
}

impl Given {
    fn new(case: Case) -> Given {
        let loops =
            text::loops::parse(&case.text).unwrap_or_else(|diags| panic!("{}\n{}", diags[0], case.text));
        let diags = verify::loops::verify(&loops);
        assert!(diags.is_empty(), "{}\n{}", diags[0], case.text);
        let mut state = 7u64;
        let mut small = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f32 % 7.0 - 3.0
        };
        let values = |sizes: &Vec<usize>| (0..sizes.iter().product()).map(|_| small().trunc()).collect();
        let values: Vec<Vec<f32>> = case.inputs.iter().map(values).collect();
        let tensor =
            |(sizes, values): (&Vec<usize>, &Vec<f32>)| Tensor::from_slice(sizes, values).expect("they fit");
        let inputs: Vec<Tensor> = case.inputs.iter().zip(&values).map(tensor).collect();
        let sizes = case.symbols.iter().map(|(name, value)| (Sym::new(name), *value)).collect();
        let results = reference::loops::run(&loops, &sizes, &inputs, &HashMap::new());
        let results = results.unwrap_or_else(|error| panic!("{error}\n{}", case.text));
        let expected = results.outputs.iter().filter_map(Value::tensor).map(Tensor::to_f64).collect();
        Given { case, loops, inputs, expected }
    }

    /// Applies a schedule, everything verified.
    fn realize(&self, schedule: &Schedule) -> Result<Realized, TestCaseError> {
        let fail = |what: &dyn std::fmt::Display| {
            TestCaseError::fail(format!("{what}\n{}{schedule}", self.case.text))
        };
        let sound = |diags: litz_ir::Diags| diags.first().map_or(Ok(()), |diag| Err(fail(diag)));
        sound(legality::verify(schedule, &self.loops))?;
        let realized = litz_codegen::realize(&self.loops, schedule).map_err(|diags| fail(&diags[0]))?;
        for kernel in &realized.kernels {
            sound(verify::kernel::verify(kernel))?;
        }
        sound(verify::program::verify(&realized.program))?;
        Ok(realized)
    }

    /// Runs what a schedule became, and compares.
    fn check(&self, schedule: &Schedule, realized: &Realized, device: Device) -> Result<(), TestCaseError> {
        let weights: HashMap<String, Tensor> = HashMap::new();
        let context = || {
            let kernels: String = realized.kernels.iter().map(ToString::to_string).collect();
            format!("{:?}\n{}{schedule}{kernels}", self.case.symbols, self.case.text)
        };
        let fail = |error: litz_runtime::RunError| TestCaseError::fail(format!("{error}\n{}", context()));
        let executable =
            Executable::new(&realized.program, &realized.kernels, device, &weights).map_err(fail)?;
        // Twice: the second call finds the memory that the first one left.
        for _ in 0..2 {
            let outputs = executable.run(&self.inputs).map_err(fail)?;
            let found: Vec<Vec<f64>> = outputs.iter().filter_map(Value::tensor).map(Tensor::to_f64).collect();
            prop_assert!(
                found == self.expected,
                "expected {:?}\nfound {:?}\n{}",
                self.expected,
                found,
                context()
            );
        }
        Ok(())
    }
}

fn on_reference(realized: &Realized) -> Device {
    Arc::new(ReferenceDevice::new(&realized.kernels).expect("verified kernels"))
}

/// This machine's code for the kernels, or that of a target whose code it can run.
fn on_native(realized: &Realized, threads: usize, target: Option<Target>) -> Result<Device, TestCaseError> {
    let fail = |e: &dyn std::fmt::Display| {
        let kernels: String = realized.kernels.iter().map(ToString::to_string).collect();
        TestCaseError::fail(format!("{e}\n{kernels}"))
    };
    let options = Options { threads: 1, target, ..Options::default() };
    let backend = litz::backend(&options).map_err(|e| fail(&e))?;
    let mut kernels = realized.kernels.clone();
    let lower = |kernel| passes::run(kernel, backend.passes(), backend.target());
    kernels.iter_mut().try_for_each(lower).map_err(|e| fail(&e))?;
    let objects = litz::compile_kernels(&*backend, &kernels, &options, None).map_err(|e| fail(&e))?;
    let threads = || Arc::new(ThreadPool::new(threads));
    backend.load(&realized.kernels, &objects, &threads).map_err(|e| fail(&e))
}

const SSE2: &str = "cpu(isa=sse2, threads=1)";
const AVX2: &str = "cpu(isa=avx2, threads=2)";
const AVX512: &str = "cpu(isa=avx512, threads=2)";

fn target(text: &str) -> Target {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Thresholds under which small programs are split as large ones are.
fn small_pieces() -> Heuristics {
    Heuristics { chunk_ops: 64, block: 32, partial_sum: 5, ..Heuristics::default() }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() }
}

/// What choices are drawn from. Failures show the texts that came of it, so its own is of no use.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

fn bytes(len: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), len).prop_map(Bytes)
}

/// Both operands of the product are the rows of `t0`, of which a kernel point of the chain has but one.
const ROWS_WITH_ROWS: &str = "loops @case on cpu {
  sym s0 in [0, 64]
  buf x: f32[s0, 3] = input
  buf t0: f32[s0, 3]
  buf t1: f32[s0, s0]
  nest n0 [i in s0, j in 3] {
    %0: f32 = load x[i, j]
    %1: f32 = add %0, %0
    store t0[i, j] = %1
  }
  nest n1 [i in s0, j in s0 | k in 3] {
    %0: f32 = load t0[i, k]
    %1: f32 = load t0[j, k]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store t1[i, j] = %3
  }
  return t1
}
";

/// Loops of one shape, of which one nest reduces along the outer and another along the inner.
const ROWS_AND_COLUMNS: &str = "loops @case on cpu {
  buf x: f32[3, 3] = input
  buf t0: f32[3, 3]
  buf t1: f32[3]
  buf t2: f32[3]
  nest n0 [i in 3, j in 3] {
    %0: f32 = load x[i, j]
    %1: f32 = add %0, %0
    store t0[i, j] = %1
  }
  nest n1 [j in 3 | r in 3] {
    %0: f32 = load t0[r, j]
    %1: f32 = reduce.sum %0
    store t1[j] = %1
  }
  nest n2 [i in 3 | r in 3] {
    %0: f32 = load t0[i, r]
    %1: f32 = reduce.sum %0
    store t2[i] = %1
  }
  return t1, t2
}
";

/// Two reduced axes that one index walks, of which one has no points.
const EMPTY_AND_SYMBOLIC: &str = "loops @case on cpu {
  sym s0 in [0, 64]
  buf x: f32[0, s0] = input
  buf t0: f32[]
  nest n0 [ | q in 0, r in s0] {
    %0: f32 = load x[q, r]
    %1: f32 = reduce.sum %0
    store t0[] = %1
  }
  return t0
}
";

#[test]
fn programs_that_schedules_once_broke() -> Result<(), TestCaseError> {
    for (text, sizes, s0) in
        [(ROWS_WITH_ROWS, [7, 3], 7), (ROWS_AND_COLUMNS, [3, 3], 0), (EMPTY_AND_SYMBOLIC, [0, 5], 5)]
    {
        let symbols = vec![("s0".to_owned(), s0)];
        let given = Given::new(Case { text: text.to_owned(), inputs: vec![sizes.to_vec()], symbols });
        for text in [SSE2, AVX2, AVX512] {
            let schedule = litz_schedule::schedule(&given.loops, &target(text), &small_pieces()).schedule;
            let realized = given.realize(&schedule)?;
            given.check(&schedule, &realized, on_reference(&realized))?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn random_schedules_give_equal_results(program in bytes(80), schedules in prop::collection::vec(bytes(160), 4)) {
        let given = Given::new(programs::program(&mut Choices::new(&program.0)));
        for decisions in &schedules {
            let schedule = random::schedule(&given.loops, &mut Choices::new(&decisions.0));
            let realized = given.realize(&schedule)?;
            given.check(&schedule, &realized, on_reference(&realized))?;
        }
    }

    #[test]
    fn automatic_schedules_give_equal_results(program in bytes(80)) {
        let given = Given::new(programs::program(&mut Choices::new(&program.0)));
        for text in [SSE2, AVX2, "cpu(isa=avx512, threads=1)", AVX512] {
            for heuristics in [Heuristics::default(), small_pieces()] {
                let schedule = litz_schedule::schedule(&given.loops, &target(text), &heuristics).schedule;
                let realized = given.realize(&schedule)?;
                given.check(&schedule, &realized, on_reference(&realized))?;
            }
        }
    }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn native_code_gives_equal_results(program in bytes(80), decisions in bytes(160)) {
        let given = Given::new(programs::program(&mut Choices::new(&program.0)));
        for (text, native) in [(SSE2, Some(target(SSE2))), (AVX2, Some(target(AVX2))), (AVX512, None)] {
            let info = target(text);
            let schedule = litz_schedule::schedule(&given.loops, &info, &small_pieces()).schedule;
            let realized = given.realize(&schedule)?;
            given.check(&schedule, &realized, on_native(&realized, info.threads() as usize, native)?)?;
        }
        let schedule = random::schedule(&given.loops, &mut Choices::new(&decisions.0));
        let realized = given.realize(&schedule)?;
        let device = on_native(&realized, 2, None);
        // The emitter may say that it cannot do what the scheduler never asks for.
        let is_unsupported = |e: &TestCaseError| e.to_string().contains("kernel @") && e.to_string().contains(": unsupported: ");
        if device.as_ref().is_err_and(is_unsupported) {
            return Ok(());
        }
        given.check(&schedule, &realized, device?)?;
    }
}
