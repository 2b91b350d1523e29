//! Kernels that run nests one by one and in order give what a plain walk of the loops gives: those of regions and scans, too.

#![allow(missing_docs, reason = "a test")]

use litz_analysis::legality;
use litz_ir::loops::Stmt;
use litz_ir::schedule::ScheduleStep;
use litz_ir::verify;
use litz_runtime::program::Executable;
use litz_runtime::reference::DistantDevice;
use litz_schedule::{Heuristics, Request};
use litz_sym::Sym;
use litz_testing::choices::Random;
use litz_testing::compare;
use litz_testing::subject::Subject;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The largest and the sum of rows, block by block of three columns: what is carried is scaled to each new largest. One nest
/// runs before all blocks, one after, and a symbol says how many blocks there are.
const REGION: &str = "loops @l on cpu {
  sym t in [1, 64]
  buf x: f32[4, t] = input
  buf max: f32[4]
  buf top: f32[4]
  buf ratio: f32[4]
  buf sum: f32[4]
  buf y: f32[4]
  region online over b in ceildiv(t, 3) carry max, sum {
    nest first [i in 4] {
      %0: f32 = const -inf
      store max[i] = %0
      %2: f32 = const 0.0
      store sum[i] = %2
    }
    nest largest [b in ceildiv(t, 3), i in 4 | j in 3] {
      %0: f32 = load x[i, 3*b + j] if 3*b + j < t else -inf
      %1: f32 = reduce.max %0
      %2: f32 = load max[i]
      %3: f32 = max %1, %2
      store top[i] = %3
    }
    nest scale [b in ceildiv(t, 3), i in 4] {
      %0: f32 = load max[i]
      %1: f32 = load top[i]
      %2: f32 = sub %0, %1
      %3: f32 = exp %2
      store ratio[i] = %3
      store max[i] = %1
    }
    nest add [b in ceildiv(t, 3), i in 4 | j in 3] {
      %0: f32 = load x[i, 3*b + j] if 3*b + j < t else -inf
      %1: f32 = load max[i]
      %2: f32 = sub %0, %1
      %3: f32 = exp %2
      %4: f32 = reduce.sum %3
      %5: f32 = load sum[i]
      %6: f32 = load ratio[i]
      %7: f32 = mul %5, %6
      %8: f32 = add %4, %7
      store sum[i] = %8
    }
    nest last [i in 4] {
      %0: f32 = load sum[i]
      %1: f32 = log %0
      %2: f32 = load max[i]
      %3: f32 = add %1, %2
      store y[i] = %3
    }
  }
  return y, sum
}
";

/// Scans along the outer and the inner axis, of what the other one gave, and one beside a reduction.
const SCANS: &str = "loops @l on cpu {
  sym t in [0, 64]
  buf x: f32[t, 5] = input
  buf u: f32[t, 5]
  buf v: f32[t, 5]
  buf m: f32[5]
  buf y: f32[t, 5]
  nest down [i in t, j in 5] {
    %0: f32 = load x[i, j]
    %1: f32 = scan.sum %0 over i
    store u[i, j] = %1
  }
  nest across [i in t, j in 5] {
    %0: f32 = load u[i, j]
    %1: f32 = scan.max %0 over j
    store v[i, j] = %1
  }
  nest columns [j in 5 | i in t] {
    %0: f32 = load v[i, j]
    %1: f32 = reduce.sum %0
    store m[j] = %1
  }
  nest both [i in t, j in 5] {
    %0: f32 = load v[i, j]
    %1: f32 = load m[j]
    %2: f32 = sub %0, %1
    %3: f32 = scan.sum %2 over i
    store y[i, j] = %3
  }
  return y, m
}
";

/// Runs a program whose nests are all in order, or those of that name alone.
fn check(text: &str, size: i64, nest: Option<&str>) {
    let sizes: HashMap<Sym, i64> = HashMap::from([(Sym::new("t"), size)]);
    let element = |_, random: &mut Random| random.below(33) as f64 / 8.0 - 2.0;
    let subject =
        Subject::new("in order", text, &sizes, &element, false).unwrap_or_else(|why| panic!("{why}"));
    let loops = &subject.loops;
    let names = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| nest.name.clone());
    let in_order: BTreeSet<String> = names.filter(|name| nest.is_none_or(|nest| name == nest)).collect();
    let target = "cpu(isa=avx2, threads=2)".parse().unwrap_or_else(|error| panic!("{error}"));
    let heuristics = Heuristics::default();
    let request = Request { in_order: &in_order, ..Request::new(&target, &heuristics) };
    let schedule = litz_schedule::schedule_as(loops, &request).schedule;
    let diags = legality::verify(&schedule, loops);
    assert!(diags.is_empty(), "{}\n{schedule}", diags[0]);
    let has_grid = |step: &ScheduleStep| matches!(step, ScheduleStep::Kernel(plan) if !plan.grid.is_empty());
    assert!(nest.is_some() || !schedule.steps.iter().any(has_grid), "{schedule}");
    let realized = litz_codegen::realize(loops, &schedule).unwrap_or_else(|diags| panic!("{}", diags[0]));
    for kernel in &realized.kernels {
        let diags = verify::kernel::verify(kernel);
        assert!(diags.is_empty(), "{}\n{kernel}", diags[0]);
    }
    let device = Arc::new(DistantDevice::new(&realized.kernels).unwrap_or_else(|error| panic!("{error}")));
    let executable = Executable::new(&realized.program, &realized.kernels, device, &subject.weights)
        .unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..2 {
        let found = executable.run(&subject.inputs).unwrap_or_else(|error| panic!("{error}\n{schedule}"));
        let compared = compare::results(&found, &subject.expected);
        compared.unwrap_or_else(|why| panic!("{why}\n{schedule}"));
    }
}

#[test]
fn regions() {
    for size in [1, 3, 7, 12] {
        check(REGION, size, None);
        check(REGION, size, Some("scale"));
    }
}

#[test]
fn scans() {
    for size in [0, 1, 2, 9] {
        check(SCANS, size, None);
        for nest in ["down", "across", "columns", "both"] {
            check(SCANS, size, Some(nest));
        }
    }
}
