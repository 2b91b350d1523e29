//! Assertions of a model hold, or end the call with the user's message and source line before any state is updated: on the
//! reference device, natively with any number of threads, and in saved programs.

use litz::{Error, Options, Runner, Stage, Tensor, Value, Verify, pipeline};
use litz_codegen::Realized;
use litz_ir::text::graph::parse;
use litz_runtime::RunError;
use litz_runtime::artifact::{Artifact, Parts, write};
use litz_runtime::device::Device;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{ConstantSource, Executable};
use litz_runtime::reference::ReferenceDevice;
use std::collections::HashMap;
use std::sync::Arc;

/// Adds to a state, if all that is added is small and none of it is negative.
const GUARDED: &str = "graph @guarded on cpu {
  %x: f32[4] = input
  %state: f32[4] = const \"state\"
  %small: bool[4] = aten.lt.Scalar(%x, 10)
  %all: bool[] = aten.all.default(%small)
  aten._assert_async.msg(%all, \"x must be small\") at \"model.py:12\"
  %least: f32[] = aten.amin.default(%x, [], false)
  %positive: bool[] = aten.ge.Scalar(%least, 0)
  aten._assert_async.msg(%positive, \"x must not be negative\") at \"model.py:13\"
  %next: f32[4] = aten.add.Tensor(%state, %x, 1)
  update %state = %next
  return %next
}";

fn realized(graph: &str, options: &Options) -> Result<Realized, Error> {
    let graph = parse(graph).unwrap_or_else(|diags| panic!("{diags:?}"));
    let backend = litz::backend(options)?;
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(Verify::Passes, None, &mut quiet);
    let texts = pipeline::compile(graph, &*backend, options, Stage::Program, &mut run)?;
    Ok(texts.realized.expect("it went to the end"))
}

fn weights() -> HashMap<String, Tensor> {
    HashMap::from([("state".to_owned(), f32s(&[0.0; 4]))])
}

fn f32s(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).expect("lengths match")
}

fn objects(realized: &Realized, options: &Options) -> Vec<Vec<u8>> {
    let backend = litz::backend(options).expect("there is a backend");
    litz::compile_kernels(&*backend, &realized.kernels, options, None).expect("it compiles")
}

/// On the reference device, and natively with 1, 2 and 7 threads.
fn each_device(graph: &str, mut test: impl FnMut(&Executable)) {
    for threads in [0, 1, 2, 7] {
        let options = Options { threads: threads.max(1), bind: false, ..Options::default() };
        let realized = realized(graph, &options).expect("it compiles");
        let device: Arc<dyn Device> = if threads == 0 {
            Arc::new(ReferenceDevice::new(&realized.kernels).expect("sound kernels"))
        } else {
            let pool = Arc::new(ThreadPool::unbound(threads));
            let backend = litz::backend(&options).expect("there is a backend");
            let objects = objects(&realized, &options);
            backend.load(&realized.kernels, &objects, &|| pool.clone()).expect("it loads")
        };
        let (program, kernels) = (&realized.program, &realized.kernels);
        test(&Executable::new(program, kernels, device, &weights()).expect("sound"));
    }
}

fn call(executable: &Executable, x: &[f32]) -> Result<Vec<f32>, RunError> {
    let outputs = executable.run(&[f32s(x)])?;
    let [Value::Tensor(tensor)] = &outputs[..] else { panic!("expected a tensor, found {outputs:?}") };
    Ok(tensor.to_vec().expect("of f32"))
}

#[track_caller]
fn fails(executable: &Executable, x: &[f32], expected: &str) {
    match call(executable, x) {
        Err(error @ RunError::AssertionFailed { .. }) => {
            assert_eq!(error.to_string(), format!("assertion failed: {expected}"));
        }
        other => panic!("expected a failed assertion, found {other:?}"),
    }
}

/// What a guarded counter has to do, whoever runs it.
fn counts(executable: &Executable) {
    assert_eq!(call(executable, &[1.0, 2.0, 3.0, 4.0]).expect("all are small"), [1.0, 2.0, 3.0, 4.0]);
    fails(executable, &[1.0, 20.0, 3.0, 4.0], "x must be small (model.py:12)");
    fails(executable, &[1.0, 2.0, -3.0, 4.0], "x must not be negative (model.py:13)");
    fails(executable, &[f32::NAN; 4], "x must be small (model.py:12)");
    // What failed has left the state as it was.
    assert_eq!(call(executable, &[1.0; 4]).expect("all are small"), [2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_failed_assertion_ends_the_call_before_state_is_updated() {
    each_device(GUARDED, counts);
}

#[test]
fn saved_programs_check_too() {
    let options = Options { threads: 2, bind: false, ..Options::default() };
    let realized = realized(GUARDED, &options).expect("it compiles");
    let (objects, backend) =
        (objects(&realized, &options), litz::backend(&options).expect("there is a backend"));
    let pool = Arc::new(ThreadPool::unbound(2));
    let device = backend.load(&realized.kernels, &objects, &|| pool.clone()).expect("it loads");
    let executable =
        Executable::new(&realized.program, &realized.kernels, device, &weights()).expect("sound");
    let parts = Parts {
        compiler: "test",
        machine: &backend.machine(),
        program: &realized.program,
        kernels: &realized.kernels,
        objects: &objects,
        inputs: &["x".to_owned()],
        outputs: &["next".to_owned()],
        constants: ConstantSource::Folded,
    };
    let folder = tempfile::tempdir().expect("writable");
    let path = folder.path().join("guarded.litzc");
    write(&path, &parts, &executable).expect("writable");
    counts(&Artifact::open(&path).expect("it was just written").executable(2).expect("this machine"));
}

#[test]
fn an_assertion_about_nothing_holds() {
    let graph = "graph @empty on cpu {
      sym s0 in [0, 100]
      %x: f32[s0] = input
      %small: bool[s0] = aten.lt.Scalar(%x, 10)
      %all: bool[] = aten.all.default(%small)
      aten._assert_async.msg(%all, \"x must be small\")
      return %x
    }";
    each_device(graph, |executable| {
        assert!(call(executable, &[]).expect("no element is large").is_empty());
        assert_eq!(call(executable, &[9.0]).expect("it is small"), [9.0]);
        fails(executable, &[9.0; 50].map(|x| 2.0 * x), "x must be small");
    });
}

/// The truth of a tensor of any type is that its only element is not zero.
#[test]
fn conditions_are_of_any_type() {
    let graph = "graph @truth on cpu {
      %x: f32[1] = input
      %c: i32[1, 1] = aten.view.default(%i, [1, 1])
      aten._assert_async.default(%c)
      aten._assert_async.msg(%x, \"not zero\") at \"m.py:1\"
      return %x
    }";
    let graph = graph.replace("%c: i32[1, 1]", "%i: i32[1] = aten._to_copy.default(%x, i32)\n %c: i32[1, 1]");
    each_device(&graph, |executable| {
        assert_eq!(call(executable, &[-2.0]).expect("true"), [-2.0]);
        // What the cast makes zero.
        fails(executable, &[0.5], "aten._assert_async.default");
        fails(executable, &[-0.0], "aten._assert_async.default");
    });
    let float = graph.replace("aten._assert_async.default(%c)", "");
    each_device(&float, |executable| {
        assert!(call(executable, &[f32::NAN]).expect("NaN is not zero")[0].is_nan());
        fails(executable, &[-0.0], "not zero (m.py:1)");
    });
}

/// A position that is out of range fails by itself where it is used; the assertion says what that means.
#[test]
fn an_assertion_comes_before_kernels_that_may_fail() {
    let graph = "graph @gather on cpu {
      %x: f32[4] = input
      %i: i64[4] = aten._to_copy.default(%x, i64)
      %in: bool[4] = aten.lt.Scalar(%i, 4)
      %all: bool[] = aten.all.default(%in)
      %y: f32[4] = aten.index.Tensor(%x, [%i])
      aten._assert_async.msg(%all, \"positions must be in x\")
      return %y
    }";
    each_device(graph, |executable| {
        assert_eq!(call(executable, &[3.0, 2.0, 1.0, 0.0]).expect("in x"), [0.0, 1.0, 2.0, 3.0]);
        fails(executable, &[0.0, 1.0, 2.0, 7.0], "positions must be in x");
    });
}

#[track_caller]
fn refused(nodes: &str, slug: &str, expected: &[&str]) {
    let graph = format!(
        "graph @g on cpu {{
           sym s0 in [2, 100]
           %x: f32[s0, 3] = input
           {nodes}
           return %x
         }}"
    );
    let Err(Error::Invalid(diags)) = realized(&graph, &Options::default()) else {
        panic!("{nodes}: expected an invalid graph")
    };
    assert_eq!(diags[0].slug, slug, "{}", diags[0]);
    for expected in expected {
        assert!(diags[0].to_string().contains(expected), "expected `{expected}` in `{}`", diags[0]);
    }
}

#[test]
fn what_never_holds_is_refused_when_compiled() {
    let invalid = "invalid-operator";
    refused("aten._assert_scalar.default(false, \"no\") at \"m.py:7\"", invalid, &["no (m.py:7)"]);
    refused("aten._assert_scalar.default(0, \"zero\")", invalid, &["zero"]);
    refused("aten._assert_async.msg(%x, \"many\")", invalid, &["aten._assert_async.msg", "3*s0"]);
    refused("aten.sym_constrain_range.default(s0, none, 1)", invalid, &["sym_constrain_range", "s0 <= 1"]);
    let metadata = |args: &str| format!("aten._assert_tensor_metadata.default(%x, {args})");
    refused(&metadata("none, none, f64"), invalid, &["f64", "f32"]);
    refused(&metadata("[s0]"), invalid, &["1 dimensions", "found 2"]);
    refused(&metadata("[s0, 4]"), invalid, &["3 == 4"]);
}

#[test]
fn what_depends_on_sizes_is_a_guard() {
    let graph = "graph @sizes on cpu {
      sym s0 in [0, 100]
      sym s1 in [0, 100]
      %x: f32[s0] = input
      %y: f32[s1] = input
      aten.sym_constrain_range.default(s0, 2, 50)
      aten._assert_scalar.default(s0, \"empty\")
      aten._assert_tensor_metadata.default(%y, [s0], none, f32)
      return %x
    }";
    each_device(graph, |executable| {
        let call = |x: usize, y: usize| executable.run(&[f32s(&vec![0.0; x]), f32s(&vec![0.0; y])]);
        assert!(call(2, 2).is_ok() && call(50, 50).is_ok());
        for (x, y) in [(1, 1), (51, 51), (2, 3)] {
            let error = call(x, y).expect_err("sizes do not fit");
            let is_named = matches!(
                error,
                RunError::CheckFailed { .. } | RunError::SizeOutOfRange { .. } | RunError::WrongSize { .. }
            );
            assert!(is_named, "{error}");
        }
    });
}

/// A check survives where nothing else uses what it looks at, and what it looks at is shared.
#[test]
fn passes_keep_checks() {
    let options = Options::default();
    let realized = realized(GUARDED, &options).expect("it compiles");
    let text = realized.program.to_string();
    let checks: Vec<&str> = text.lines().filter(|line| line.contains("extern assert(")).collect();
    assert_eq!(checks.len(), 2, "{text}");
    for (check, message) in checks.iter().zip(["x must be small", "x must not be negative"]) {
        assert!(check.contains(&format!("for \"{message} (model.py:")), "{check}");
    }
    let read = litz_ir::text::program::parse(&text).expect("it reads back");
    assert_eq!(read.to_string(), text);
}
