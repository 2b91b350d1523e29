//! Calls models whose data decides what runs and how large it is: launches, memory, time, state, and what is saved.

use litz::profile::Profile;
use litz::{Model, Options, Runner, Stage, Tensor, Value, Verify, pipeline};
use litz_ir::text::graph::parse;
use litz_runtime::RunError;
use litz_runtime::artifact::Artifact;
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

fn golden(name: &str) -> Model {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../litz-import/tests/golden/2.15").join(name);
    Model::open(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A program of a graph on the reference device, whose launches are counted.
fn program(text: &str) -> (Executable, Arc<Profile>) {
    let graph = parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let target = Some("cpu(isa=avx2, threads=2)".parse().expect("a target"));
    let options = Options { target, ..Options::default() };
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut runner)
        .unwrap_or_else(|error| panic!("{error}"));
    let realized = texts.realized.expect("a program");
    let reference = Arc::new(ReferenceDevice::new(&realized.kernels).expect("kernels"));
    let device = Arc::new(Profile::new(reference));
    let weights = HashMap::<String, Tensor>::new();
    let executable = Executable::new(&realized.program, &realized.kernels, device.clone(), &weights);
    (executable.unwrap_or_else(|error| panic!("{error}")), device)
}

fn launches(profile: &Profile) -> u64 {
    profile.take().kernels.values().map(|launches| launches.count).sum()
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).expect("lengths match")
}

/// What `branch.pt2` takes, with one value.
fn rows(value: f32) -> Tensor {
    Tensor::from_slice(&[4, 4], &[value; 16]).expect("lengths match")
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).expect("lengths match")
}

fn number(value: i64) -> Tensor {
    Tensor::scalar(value).expect("there is memory")
}

fn to_floats(value: &Value) -> Vec<f32> {
    value.tensor().and_then(Tensor::to_vec).unwrap_or_else(|| panic!("expected floats, found {value:?}"))
}

fn to_ints(value: &Value) -> Vec<i64> {
    value.tensor().and_then(Tensor::to_vec).unwrap_or_else(|| panic!("expected integers, found {value:?}"))
}

/// DD-2 to DD-4, DD-11 and CF-6 as `torch.export` writes them.
#[test]
fn exported_models_have_sizes_that_data_decides() {
    let model = golden("unbacked.pt2").compile(&Options::default()).expect("it compiles");
    let outputs = model.run(&[ints(&[2, 0, 5])]).expect("it runs");
    assert_eq!(to_ints(&outputs[0]), [0, 2]);
    assert_eq!(outputs[0].tensor().expect("a tensor").sizes(), [2, 1]);
    assert_eq!(to_floats(&outputs[1]), [1.0; 5]);
    let outputs = model.run(&[ints(&[0, 0, 0])]).expect("it runs");
    assert_eq!(outputs[0].tensor().expect("a tensor").sizes(), [0, 1]);
    assert_eq!(outputs[1].tensor().expect("a tensor").sizes(), [0]);
    let error = model.run(&[ints(&[2, 0, 11])]).expect_err("11 is more than 10").to_string();
    for part in ["u0 <= 10", "11", "make.py:130"] {
        assert!(error.contains(part), "{error}: expected {part}");
    }

    let model = golden("dynamic.pt2").compile(&Options::default()).expect("it compiles");
    let zeros =
        |sizes: [usize; 2]| Tensor::zeros(litz_ir::Dtype::F32, &sizes, &[sizes[1], 1]).expect("memory");
    let outputs = model.run(&[zeros([4, 3]), zeros([8, 3]), number(7)]).expect("it runs");
    assert_eq!(to_ints(&outputs[1]), (0..19).collect::<Vec<i64>>());

    let model = golden("loop.pt2").compile(&Options::default()).expect("it compiles");
    for (n, expected, x) in [(0, 3, [8.0, 16.0]), (2, 3, [2.0, 4.0]), (3, 3, [1.0, 2.0]), (9, 9, [1.0, 2.0])]
    {
        let outputs = model.run(&[number(n), floats(&[1.0, 2.0])]).expect("it runs");
        assert_eq!((to_ints(&outputs[0]), to_floats(&outputs[1])), (vec![expected], x.to_vec()), "{n}");
    }
}

/// CF-1: `branch.pt2` has a branch inside of a branch.
#[test]
fn only_the_chosen_graph_is_launched() {
    let model = golden("branch.pt2");
    let options = Options { profile: true, reference: true, ..Options::default() };
    let compiled = model.compile(&options).expect("it compiles");
    let profile = compiled.profile.as_ref().expect("it was asked for");
    let mut counts = Vec::new();
    for (x, expected) in [(1.5f32, 2.5f32), (-2.0, -4.0), (-0.5, -1.5)] {
        let outputs = compiled.run(&[rows(x)]).expect("it runs");
        assert_eq!(to_floats(&outputs[0]), [expected; 16]);
        counts.push(launches(profile));
    }
    // The branch inside costs what decides it, and the chosen graph; the other is not launched.
    assert_eq!(counts[1], counts[2]);
    assert!(counts[0] < counts[1], "{counts:?}");
}

/// CF-2: what both graphs of a branch use is one constant of the program.
#[test]
fn graphs_of_a_branch_share_constants() {
    let compiled = golden("shared_constant.pt2").compile(&Options::default()).expect("it compiles");
    let realized = compiled.texts.realized.as_ref().expect("a program");
    let is_const = |line: &&str| line.trim_start().starts_with("const ");
    assert_eq!(realized.program.to_string().lines().filter(is_const).count(), 3, "{}", realized.program);
    for (x, expected) in
        [(1.0f32, [1.0, 3.0, 5.0, 4.0, 6.0, 8.0]), (-1.0, [-3.0, -5.0, -7.0, -6.0, -8.0, -10.0])]
    {
        let x = Tensor::from_slice(&[2, 3], &[x; 6]).expect("lengths match");
        assert_eq!(to_floats(&compiled.run(&[x]).expect("it runs")[0]), expected);
    }
}

/// CF-9: of twelve equal layers, for which the file has one graph, the kernels of one are compiled: those of three layers: the
/// first, one between others, and the last. Expected values: PyTorch.
#[test]
fn equal_layers_share_kernels() {
    let x: Vec<f32> = (0..128u8).map(|i| f32::from(i) / 100.0).collect();
    let x = Tensor::from_slice(&[8, 16], &x).expect("lengths match");
    let cases = [
        ("three_layers.pt2", [0.326_642, -0.456_273, 0.100_164, -0.222_12]),
        ("twelve_layers.pt2", [-1.262_874, -0.363_673, 0.601_052, 0.234_181]),
    ];
    let mut sizes = Vec::new();
    for (name, expected) in cases {
        let compiled = golden(name).compile(&Options::default()).expect("it compiles");
        let realized = compiled.texts.realized.as_ref().expect("a program");
        sizes.push((realized.kernels.len(), realized.shared.iter().sum::<usize>()));
        let found = to_floats(&compiled.run(std::slice::from_ref(&x)).expect("it runs")[0]);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{name}: {found} where {expected} is expected");
        }
    }
    let [three, twelve] = sizes.as_slice() else { panic!("two models") };
    assert_eq!(three.0, twelve.0, "{sizes:?}");
    assert!(twelve.1 >= three.1 + 9, "{sizes:?}");
}

/// CF-5: the graphs of a branch have their temporaries in one memory.
#[test]
fn branches_share_memory() {
    let arm = |name: &str, op: &str| {
        format!(
            "graph @{name} on cpu {{
               %x: f32[1024, 2048] = input
               %s: f32[1024, 2048] = aten.{op}.default(%x, 1)
               %c: f32[1024, 2048] = aten.{op}.default(%s, 0)
               %t: f32[1024] = aten.sum.dim_IntList(%c, [1], false)
               return %t
             }}"
        )
    };
    let text = format!(
        "graph @g on cpu {{
           {} {}
           %p: bool[] = input
           %x: f32[1024, 2048] = input
           %y: f32[1024] = higher_order.cond.default(%p, @yes, @no, [%x])
           return %y
         }}",
        arm("yes", "cumsum"),
        arm("no", "cumprod")
    );
    let (executable, _) = program(&text);
    let x = Tensor::zeros(litz_ir::Dtype::F32, &[1024, 2048], &[2048, 1]).expect("memory");
    let mut peaks = Vec::new();
    for p in [true, false] {
        executable.run(&[Tensor::scalar(p).expect("memory"), x.clone()]).expect("it runs");
        peaks.push(executable.statistics().peak_bytes);
    }
    let (one, both) = (peaks[0], peaks[1]);
    assert!(one >= 8 << 20, "{one} bytes");
    assert!(both < one + (1 << 20), "{one} bytes, then {both}");
}

/// CF-7: a loop that writes a row of what it carries each time does not copy the rest.
#[test]
fn a_loop_stores_rows_of_its_state() {
    let text = |rows: usize| {
        format!(
            "graph @g on cpu {{
               graph @more on cpu {{
                 %i: i64[] = input
                 %c: f32[{rows}, 4] = input
                 %x: f32[4] = input
                 %p: bool[] = aten.lt.Scalar(%i, 100)
                 return %p
               }}
               graph @body on cpu {{
                 %i: i64[] = input
                 %c: f32[{rows}, 4] = input
                 %x: f32[4] = input
                 %v: f32[4] = aten.add.Tensor(%x, %i, 1)
                 %d: f32[{rows}, 4] = aten.index_put.default(%c, [%i], %v, false)
                 %j: i64[] = aten.add.Tensor(%i, 1, 1)
                 return %j, %d
               }}
               %x: f32[4] = input
               %i: i64[] = aten.zeros.default([], i64, none, cpu, false)
               %c: f32[{rows}, 4] = aten.zeros.default([{rows}, 4], f32, none, cpu, false)
               %j: i64[], %d: f32[{rows}, 4] = higher_order.while_loop.default(@more, @body, [%i, %c], [%x])
               %r: f32[100, 4] = aten.slice.Tensor(%d, 0, 0, 100, 1)
               return %r
             }}"
        )
    };
    let (executable, _) = program(&text(128));
    let outputs = executable.run(&[floats(&[1.0, 2.0, 3.0, 4.0])]).expect("it runs");
    let expected: Vec<f32> = (0..400).map(|at| (at % 4 + 1 + at / 4) as f32).collect();
    assert_eq!(to_floats(&outputs[0]), expected);
    // Temporaries of the body are a row and numbers: whatever the state has, a hundred times that is not copied.
    let graph = parse(&text(1 << 16)).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let options = Options::default();
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Stages, None, &mut silent);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut runner);
    let program = texts.unwrap_or_else(|error| panic!("{error}")).realized.expect("a program").program;
    let body = program.function("body").expect("the body is a function");
    let large =
        |slot: &litz_ir::program::SlotData| slot.extent.as_int().is_none_or(|extent| extent > 1 << 10);
    let given: Vec<_> = body.params.iter().map(|param| param.slot).collect();
    let own = body.slots.iter().filter(|(slot, data)| !given.contains(slot) && large(data));
    assert_eq!(own.map(|(_, data)| &*data.name).collect::<Vec<_>>(), [""; 0]);
    let copied = body.updates.iter().filter(|(target, source)| target != source);
    assert!(copied.into_iter().all(|(target, _)| !large(&body.slots[*target])), "{program}");
}

/// DD-8: a size outside of its range ends a call before anything that outlives it changes.
#[test]
fn a_wrong_size_leaves_state_as_it_was() {
    let text = "graph @g on cpu {
      sym u0 in [0, 9]
      %s: f32[4] = const \"s\"
      %x: f32[4] = input
      %k: i64[] = input
      %u: int(u0) = aten.item.default(%k) at \"model.py:7\"
      %n: f32[4] = aten.add.Tensor(%s, %x, 1)
      %y: f32[4] = aten.mul.Tensor(%n, %u)
      update %s = %n
      return %y
    }";
    let graph = parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let options = Options::default();
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut runner);
    let realized = texts.unwrap_or_else(|error| panic!("{error}")).realized.expect("a program");
    let device = Arc::new(ReferenceDevice::new(&realized.kernels).expect("kernels"));
    let weights = HashMap::from([("s".to_owned(), floats(&[0.0; 4]))]);
    let executable = Executable::new(&realized.program, &realized.kernels, device, &weights).expect("sound");
    let x = floats(&[1.0, 2.0, 3.0, 4.0]);
    let outputs = executable.run(&[x.clone(), number(2)]).expect("it runs");
    assert_eq!(to_floats(&outputs[0]), [2.0, 4.0, 6.0, 8.0]);
    let error = executable.run(&[x.clone(), number(12)]).expect_err("12 is more than 9");
    assert!(matches!(error, RunError::CheckFailed { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("u0 <= 9") && error.contains("model.py:7"), "{error}");
    let outputs = executable.run(&[x, number(1)]).expect("it runs");
    assert_eq!(to_floats(&outputs[0]), [2.0, 4.0, 6.0, 8.0]);
}

/// DD-10: plans are kept for the sizes seen lately, and memory stays what the largest needed.
#[test]
fn calls_with_sizes_seen_before_plan_nothing() {
    let text = "graph @g on cpu {
      sym u0 in [0, 1000]
      %x: i64[1000] = input
      %p: i64[u0, 1]{1, u0} = aten.nonzero.default(%x)
      %v: i64[u0] = aten.view.default(%p, [u0])
      %c: i64[u0] = aten.cumsum.default(%v, 0)
      %s: i64[] = aten.sum.default(%c, none)
      return %s
    }";
    let (executable, _) = program(text);
    let call = |count: i64| {
        let x: Vec<i64> = (0..1000).map(|at| i64::from(at < count)).collect();
        let outputs = executable.run(&[ints(&x)]).expect("it runs");
        let expected: i64 = (0..count).map(|at| at * (at + 1) / 2).sum();
        assert_eq!(to_ints(&outputs[0]), [expected], "{count}");
    };
    (0..60).for_each(|at| call(1000 - at));
    let before = executable.statistics();
    assert_eq!(before.plans, 61, "one before the size is known, and one for each");
    (0..600).for_each(|at| call(1000 - at % 60));
    let after = executable.statistics();
    assert_eq!((after.plans, after.peak_bytes), (before.plans, before.peak_bytes));
}

/// What is saved has the functions of the program.
#[test]
fn saved_programs_branch_and_repeat() {
    let folder = tempfile::tempdir().expect("writable");
    for (name, inputs) in
        [("branch.pt2", vec![rows(-2.0)]), ("loop.pt2", vec![number(0), floats(&[1.0, 2.0])])]
    {
        let compiled = golden(name).compile(&Options::default()).expect("it compiles");
        let expected = compiled.run(&inputs).expect("it runs");
        let path = folder.path().join(name);
        compiled.save(&path).expect("it is saved");
        let artifact = Artifact::open(&path).expect("it is read");
        let loaded = artifact.executable(2).expect("this machine");
        assert_eq!(loaded.run(&inputs).expect("it runs"), expected, "{name}");
    }
}
