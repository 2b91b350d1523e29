//! Checks programs and kernels that are given as text and called with tensors.

#[path = "program/lent.rs"]
mod lent;
#[path = "program/outputs.rs"]
mod outputs;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use litz_ir::Scalar;
use litz_ir::kernel::Kernel;
use litz_runtime::cache::{Access, MemoryKeys, ObjectCache, Record};
use litz_runtime::device::Device;
use litz_runtime::native::{KernelFn, NativeDevice};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions, Value};
use litz_runtime::reference::{DistantDevice, ReferenceDevice};
use litz_runtime::weights::Weights;
use litz_runtime::{RunError, Tensor};

fn kernels(texts: &[&str]) -> Vec<Kernel> {
    texts
        .iter()
        .map(|text| litz_ir::text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}")))
        .collect()
}

fn try_build(program: &str, texts: &[&str], weights: &[(&str, Tensor)]) -> Result<Executable, RunError> {
    let program = litz_ir::text::program::parse(program).unwrap_or_else(|diags| panic!("{diags:?}"));
    let kernels = kernels(texts);
    let device = Arc::new(ReferenceDevice::new(&kernels)?);
    let weights: HashMap<String, Tensor> =
        weights.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect();
    Executable::new(&program, &kernels, device, &weights)
}

#[track_caller]
fn build(program: &str, texts: &[&str], weights: &[(&str, Tensor)]) -> Executable {
    try_build(program, texts, weights).unwrap_or_else(|error| panic!("{error}"))
}

fn tensor(sizes: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(sizes, values).expect("lengths match")
}

/// Zeros of any layout.
fn strided(sizes: &[usize], strides: &[usize]) -> Tensor {
    Tensor::zeros(litz_ir::Dtype::F32, sizes, strides).expect("there is memory")
}

#[track_caller]
fn floats(value: &Value) -> Vec<f32> {
    value.tensor().expect("a tensor").to_vec().expect("of f32")
}

#[track_caller]
fn error_of(executable: &Executable, inputs: &[Tensor]) -> String {
    executable.run(inputs).expect_err("the call is wrong").to_string()
}

const ADD_ROW: &str = "kernel @add_row from n0 {
  read x: f32[4*s0]
  read w: f32[4]
  write y: f32[4*s0]
  size s0 in [0, 100]
  grid i in s0, j in 4
  %0: f32 = load x[4*i + j]
  %1: f32 = load w[j]
  %2: f32 = add %0, %1
  y[4*i + j] = %2
}";

const ROWS: &str = "program @rows on cpu {
  sym s0 in [0, 100]
  param x: f32[s0, 4]
  const w: f32[4] = \"bias\"
  alloc y: f32[4*s0]
  launch @add_row(x, w, y) sizes(s0)
  return y: f32[s0, 4]
}";

fn bias() -> Tensor {
    tensor(&[4], &[10.0, 20.0, 30.0, 40.0])
}

/// The device that a program is given is the one of its first line; there are no copies to others.
#[test]
fn memory_on_a_device_that_the_program_was_not_given_is_refused() {
    for (line, slot) in [
        ("param x: f32[4] on cuda:0 alloc y: f32[4] on cuda:1 launch @none(x, y)", "y"),
        ("param x: f32[4] on cpu", "x"),
        ("const c: f32[4] on cpu = \"c\"", "c"),
    ] {
        let program = |device: &str| format!("program @p on {device} {{ {line} return 1 }}");
        let error = try_build(&program("cuda:0"), &[], &[]).err().expect(line).to_string();
        let device = if slot == "y" { "cuda:1" } else { "cpu" };
        let expected = format!("`{slot}` is on {device}, and the program was given cuda:0 alone");
        assert_eq!(error, expected, "{line}");
    }
    let executable = build("program @p on cuda:0 { param x: f32[2] return x: f32[2] }", &[], &[]);
    let results = executable.run(&[tensor(&[2], &[1.0, 2.0])]).expect("one device");
    assert_eq!(floats(&results[0]), [1.0, 2.0]);
}

#[test]
fn symbols_get_their_values_from_sizes() {
    let executable = build(ROWS, &[ADD_ROW], &[("bias", bias())]);
    // More sizes than plans are kept for, some of them twice.
    for rows in (0..=100).chain([2, 0, 100, 99, 99]) {
        let x: Vec<f32> = (0..4 * rows).map(|at| at as f32).collect();
        let outputs = executable.run(&[tensor(&[rows, 4], &x)]).expect("the call is right");
        let expected: Vec<f32> = x.iter().enumerate().map(|(at, x)| x + 10.0 * (at % 4 + 1) as f32).collect();
        assert_eq!((outputs.len(), floats(&outputs[0])), (1, expected));
        assert_eq!(outputs[0].tensor().expect("a tensor").sizes(), [rows, 4]);
    }
}

#[test]
fn wrong_inputs_are_named() {
    let executable = build(ROWS, &[ADD_ROW], &[("bias", bias())]);
    assert_eq!(error_of(&executable, &[]), "number of inputs: expected 1, found 0");
    let ints = Tensor::from_slice(&[1, 4], &[1i32; 4]).expect("lengths match");
    assert_eq!(error_of(&executable, &[ints]), "input `x`: expected f32, found i32");
    assert_eq!(error_of(&executable, &[bias()]), "input `x`: expected 2 dimensions, found 1");
    let error = error_of(&executable, &[tensor(&[1, 3], &[0.0; 3])]);
    assert_eq!(error, "input `x`, dimension 1: expected size 4, found 3");
    let error = error_of(&executable, &[tensor(&[101, 4], &[0.0; 404])]);
    assert_eq!(error, "input `x`, dimension 0: expected s0 in [0, 100], found 101");
}

#[test]
fn compound_sizes_are_solved_and_compared() {
    let program = "program @compound on cpu {
      sym s0 in [2, 10]
      sym s1 in [0, 10]
      guard s0 <= s1 for \"test.py:3\"
      param x: f32[2*s0 + 1, s1]
      param y: f32[s1*s0]
      check s1 != 7 for \"a step\"
      return int(s0 + s1), int(100*s0)
    }";
    let executable = build(program, &[], &[]);
    let call = |x: [usize; 2], y: usize| executable.run(&[strided(&x, &[x[1], 1]), strided(&[y], &[1])]);
    let outputs = call([7, 4], 12).expect("the call is right");
    assert_eq!(outputs, [Value::Scalar(Scalar::Int(7)), Value::Scalar(Scalar::Int(300))]);
    let error = |x, y| call(x, y).expect_err("the call is wrong").to_string();
    assert_eq!(error([8, 4], 12), "input `x`, dimension 0: expected size 2*s0 + 1, found 8");
    assert_eq!(error([3, 4], 4), "input `x`, dimension 0: expected s0 in [2, 10], found 1");
    assert_eq!(error([7, 4], 11), "input `y`, dimension 0: expected size s0*s1, which is 12, found 11");
    assert_eq!(error([9, 3], 12), "expected s0 <= s1 (asked for by test.py:3), found 4 and 3");
    assert_eq!(error([7, 7], 21), "expected s1 != 7 (asked for by a step), found 7 and 7");
}

#[test]
fn a_symbol_that_no_input_gives_is_an_error() {
    let program = "program @unbound on cpu {
      sym s0 in [0, 10]
      sym s1 in [0, 10]
      param x: f32[s0*s1]
      return int(s0)
    }";
    let error = try_build(program, &[], &[]).err().expect("neither size is known");
    assert_eq!(
        error.to_string(),
        "bug in program @unbound: `s0*s1` uses symbol s0, which no input size gives"
    );
}

#[test]
fn other_layouts_are_gathered() {
    let executable = build(ROWS, &[ADD_ROW], &[("bias", bias())]);
    let columns =
        Tensor::from_slice(&[4, 2], &[0.0f32, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]).expect("lengths match");
    let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(columns.bytes().to_vec());
    let transposed =
        Tensor::from_shared(litz_ir::Dtype::F32, &[2, 4], &[1, 2], owner, 0).expect("long enough");
    let outputs = executable.run(&[transposed]).expect("the call is right");
    assert_eq!(floats(&outputs[0]), [10.0, 21.0, 32.0, 43.0, 14.0, 25.0, 36.0, 47.0]);
    let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(1f32.to_le_bytes());
    let expanded = Tensor::from_shared(litz_ir::Dtype::F32, &[2, 4], &[0, 0], owner, 0).expect("long enough");
    let outputs = executable.run(&[expanded]).expect("the call is right");
    assert_eq!(floats(&outputs[0]), [11.0, 21.0, 31.0, 41.0, 11.0, 21.0, 31.0, 41.0]);
}

#[test]
fn load_steps_know_no_sizes() {
    let program = "program @early on cpu {
      sym s0 in [0, 9]
      param x: f32[s0]
      load {
        alloc t: f32[s0]
      }
      return t: f32[s0]
    }";
    let error = try_build(program, &[], &[]).err().expect("s0 has no value yet");
    assert_eq!(error.to_string(), "bug in program @early: a size overflows or has no value");
}

const DOUBLE: &str = "kernel @double from n {
  read x: f32[4]
  write y: f32[4]
  grid i in 4
  %0: f32 = load x[i]
  %1: f32 = add %0, %0
  y[i] = %1
}";

/// `return y, y, y[1:], x, w`, and PyTorch's `y, y.clone()`, whose copy is no operation of the program.
#[test]
fn results_share_memory_with_nothing() {
    let program = ROWS.replace(
        "return y: f32[s0, 4]",
        "return y: f32[s0, 4], y: f32[s0, 4], y: f32[4] + 4, x: f32[s0, 4], w: f32[4]",
    );
    let executable = build(&program, &[ADD_ROW], &[("bias", bias())]);
    let x = tensor(&[2, 4], &[1.0; 8]);
    let rows = [11.0, 21.0, 31.0, 41.0, 11.0, 21.0, 31.0, 41.0];
    let expected = [&rows[..], &rows, &rows[4..], &[1.0; 8], &[10.0, 20.0, 30.0, 40.0]];
    let check = |outputs: &mut Vec<Value>| {
        for at in 0..outputs.len() {
            let Value::Tensor(tensor) = &mut outputs[at] else { panic!("it is a tensor") };
            tensor.bytes_mut().expect("it is alone").fill(0xff);
            for (other, expected) in outputs.iter().zip(expected).skip(at + 1) {
                assert_eq!(floats(other), expected, "after {at} was overwritten");
            }
        }
        assert_eq!(x.to_f64(), [1.0; 8]);
    };
    let mut outputs = executable.run(std::slice::from_ref(&x)).expect("the call is right");
    check(&mut outputs);
    for _ in 0..2 {
        executable.run_into(std::slice::from_ref(&x), &mut outputs).expect("the call is right");
        check(&mut outputs);
    }
}

#[test]
fn what_load_steps_keep_lives_in_the_cache_unless_calls_write_it() {
    let folder = std::env::temp_dir().join(format!("litz-kept-{}", std::process::id()));
    let cache = ObjectCache::open(folder.clone(), 1 << 20, Access::ReadWrite).expect("opens");
    let load = "param x: f32[1, 4]
      const w: f32[4] = \"bias\"
      load {
        alloc t: f32[4]
        launch @double(w, t)
      }";
    let reads = format!(
        "program @reads on cpu {{ {load}
          alloc y: f32[4]
          launch @add_row(x, t, y) sizes(1)
          return y: f32[1, 4] }}"
    );
    let writes = format!(
        "program @writes on cpu {{ {load}
          launch @double(x, t)
          return t: f32[4] }}"
    );
    for (program, expected) in [(&reads, [21.0, 42.0, 63.0, 84.0]), (&writes, [2.0, 4.0, 6.0, 8.0])] {
        let program = litz_ir::text::program::parse(program).unwrap_or_else(|diags| panic!("{diags:?}"));
        let kernels = kernels(&[ADD_ROW, DOUBLE]);
        let own = Some(Record::new([("program", &*program.name)]));
        let keys = MemoryKeys { own, imported: None };
        let build = |bias: Tensor| {
            let device = Arc::new(ReferenceDevice::new(&kernels).expect("they are sound"));
            let weights = HashMap::from([("bias".to_owned(), bias)]);
            let options = RunOptions { kept_as: Some((&cache, &keys)), ..RunOptions::default() };
            Executable::with_options(&program, &kernels, device, &weights, &options).expect("it is sound")
        };
        let x = tensor(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let first = build(bias());
        assert_eq!(floats(&first.run(std::slice::from_ref(&x)).expect("the call is right")[0]), expected);
        // What was kept shows in a second one with other weights.
        let second = build(tensor(&[4], &[0.0; 4])).run(&[x]).expect("the call is right");
        assert_eq!(floats(&second[0]), expected);
    }
    assert_eq!(cache.info().expect("readable").entries, 1, "only @reads has an entry");
    std::fs::remove_dir_all(folder).expect("there");
}

#[test]
fn load_steps_run_once_and_keep_their_results() {
    let program = "program @packed on cpu {
      param x: f32[1, 4]
      const w: f32[4] = \"bias\"
      load {
        alloc t: f32[4]
        launch @double(w, t)
        alloc pool: u8[128]
        view p: f32[4] = pool + 64
        launch @double(t, p)
        free t
      }
      alloc y: f32[4]
      launch @add_row(x, p, y) sizes(1)
      return y: f32[1, 4], w: f32[2]{2} + 1
    }";
    let executable = build(program, &[ADD_ROW, DOUBLE], &[("bias", bias())]);
    for _ in 0..2 {
        let outputs = executable.run(&[tensor(&[1, 4], &[1.0; 4])]).expect("the call is right");
        assert_eq!(floats(&outputs[0]), [41.0, 81.0, 121.0, 161.0]);
        assert_eq!(floats(&outputs[1]), [20.0, 40.0]);
    }
}

/// Weights that note what is released.
#[derive(Default)]
struct Released(RefCell<Vec<String>>);

impl Weights for Released {
    fn get(&self, _name: &str) -> Option<Tensor> {
        Some(bias())
    }

    fn release(&self, name: &str) {
        self.0.borrow_mut().push(name.to_owned());
    }
}

#[test]
fn constants_that_only_load_steps_read_are_released_in_order() {
    let program = "program @packed on cpu {
      param x: f32[1, 4]
      const both: f32[4] = \"both\"
      const late: f32[4] = \"late\"
      const early: f32[4] = \"early\"
      const shown: f32[4] = \"shown\"
      const seen: f32[4] = \"seen\"
      const copied: f32[4]{2} = \"copied\"
      load {
        view part: f32[4] = late + 0
        alloc t: f32[4]
        launch @double(early, t)
        alloc u: f32[4]
        launch @double(part, u)
        alloc v: f32[4]
        launch @double(both, v)
        alloc w: f32[4]
        launch @double(shown, w)
        view window: f32[4] = seen + 0
        alloc z: f32[4]
        launch @double(window, z)
      }
      alloc y: f32[4]
      launch @add_row(x, t, y) sizes(1)
      launch @add_row(x, both, y) sizes(1)
      launch @add_row(x, window, y) sizes(1)
      return y: f32[1, 4], shown: f32[4]
    }";
    let program = litz_ir::text::program::parse(program).unwrap_or_else(|diags| panic!("{diags:?}"));
    let kernels = kernels(&[ADD_ROW, DOUBLE]);
    let weights = Released::default();
    let device = Arc::new(ReferenceDevice::new(&kernels).expect("they are sound"));
    Executable::new(&program, &kernels, device, &weights).expect("it is sound");
    // The first was copied to another layout; the others were read for the last time in this order.
    assert_eq!(*weights.0.borrow(), ["copied", "early", "late"]);
}

#[test]
fn missing_weights_and_routines_are_errors() {
    let error = try_build(ROWS, &[ADD_ROW], &[]).err().expect("there is no bias");
    assert_eq!(error.to_string(), "missing weight \"bias\"");
    let error =
        try_build(ROWS, &[ADD_ROW], &[("bias", tensor(&[2, 2], &[0.0; 4]))]).err().expect("another shape");
    assert_eq!(error.to_string(), "weight \"bias\": expected f32[4], found f32[2, 2]");
    let program = "program @p on cpu { param x: f32[4] extern shuffle(x) -> () return }";
    let error = try_build(program, &[], &[]).err().expect("there is no such routine");
    assert_eq!(error.to_string(), "unknown routine `shuffle`");
    let error = try_build(ROWS, &[DOUBLE], &[("bias", bias())]).err().expect("there is no such kernel");
    assert_eq!(error.to_string(), "bug in program @rows: launch of unknown kernel @add_row");
}

#[test]
fn memory_that_is_too_small_is_found_before_anything_runs() {
    let program = ROWS.replace("alloc y: f32[4*s0]", "alloc y: f32[4*s0 - 1]");
    let executable = build(&program, &[ADD_ROW], &[("bias", bias())]);
    let error = error_of(&executable, &[tensor(&[2, 4], &[0.0; 8])]);
    assert_eq!(error, "bug in program @rows: launch of @add_row: expected 32 bytes, y has 28");
}

#[test]
fn intermediate_memory_is_reused_after_it_is_freed() {
    let program = "program @chain on cpu {
      param x: f32[4]
      alloc a: f32[4]
      launch @double(x, a)
      alloc b: f32[4]
      launch @double(a, b)
      free a
      alloc c: f32[4]
      launch @double(b, c)
      free b
      alloc d: f32[4]
      launch @double(c, d)
      return d: f32[4], c: f32[4], d: f32[2] + 2, 1.5, none
    }";
    let executable = build(program, &[DOUBLE], &[]);
    let outputs = executable.run(&[tensor(&[4], &[1.0, 2.0, 3.0, -1.0])]).expect("the call is right");
    assert_eq!(floats(&outputs[0]), [16.0, 32.0, 48.0, -16.0]);
    assert_eq!(floats(&outputs[1]), [8.0, 16.0, 24.0, -8.0]);
    assert_eq!(floats(&outputs[2]), [48.0, -16.0]);
    assert_eq!(outputs[3..], [Value::Scalar(Scalar::Float(1.5)), Value::Nothing]);
}

#[test]
fn state_persists_and_calls_do_not_mix() {
    let program = "program @counter on cpu {
      param x: f32[1, 4]
      const total: f32[4] = \"total\"
      alloc next: f32[4]
      launch @add_row(x, total, next) sizes(1)
      update total = next
      return next: f32[1, 4], total: f32[4]
    }";
    let start = tensor(&[4], &[0.0; 4]);
    let executable = build(program, &[ADD_ROW], &[("total", start.clone())]);
    let ones = tensor(&[1, 4], &[1.0; 4]);
    for call in 1..=3u8 {
        let outputs = executable.run(&[&ones]).expect("the call is right");
        assert_eq!(floats(&outputs[0]), [f32::from(call); 4]);
        assert_eq!(floats(&outputs[1]), [f32::from(call - 1); 4], "outputs are read before updates are made");
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| drop(executable.run(&[&ones]).expect("the call is right"))));
        }
    });
    let outputs = executable.run(&[ones]).expect("the call is right");
    assert_eq!(floats(&outputs[0]), [404.0; 4]);
    assert_eq!(start.to_f64(), [0.0; 4], "the caller's weights stay as they are");
}

#[test]
fn updated_inputs_are_extra_outputs() {
    // The two inputs trade places.
    let program = "program @swap on cpu {
      param x: f32[4]
      param y: f32[4]
      alloc z: f32[4]
      launch @double(x, z)
      update x = y
      update y = x
      return z: f32[4]
    }";
    let executable = build(program, &[DOUBLE], &[]);
    let (x, y) = (tensor(&[4], &[1.0; 4]), tensor(&[4], &[2.0; 4]));
    let outputs = executable.run(&[x.clone(), y]).expect("the call is right");
    let found: Vec<_> = outputs.iter().map(floats).collect();
    assert_eq!(found, [vec![2.0; 4], vec![2.0; 4], vec![1.0; 4]]);
    assert_eq!(x.to_f64(), [1.0; 4]);
}

#[test]
fn kernels_that_write_inputs_in_place_get_a_copy() {
    let negate = "kernel @negate from n {
      update x: f32[4]
      grid i in 4
      %0: f32 = load x[i]
      %1: f32 = neg %0
      x[i] = %1
    }";
    let program = "program @in_place on cpu {
      param x: f32[4]
      const w: f32[4] = \"bias\"
      launch @negate(x)
      launch @negate(w)
      return x: f32[4], w: f32[4]
    }";
    let weights = bias();
    let executable = build(program, &[negate], &[("bias", weights.clone())]);
    let x = tensor(&[4], &[1.0, 2.0, 3.0, 4.0]);
    for sign in [-1.0, 1.0] {
        let outputs = executable.run(&[&x]).expect("the call is right");
        assert_eq!(floats(&outputs[0]), [-1.0, -2.0, -3.0, -4.0]);
        assert_eq!(floats(&outputs[1]), [10.0 * sign, 20.0 * sign, 30.0 * sign, 40.0 * sign]);
    }
    assert_eq!((x.to_f64()[0], weights.to_f64()[0]), (1.0, 10.0));
}

#[test]
fn swapped_constants_are_both_read_first() {
    let program = "program @swap on cpu {
      const a: f32[4] = \"a\"
      const b: f32[4] = \"b\"
      update a = b
      update b = a
      return a: f32[4], b: f32[4]
    }";
    let (a, b) = (tensor(&[4], &[1.0; 4]), tensor(&[4], &[2.0; 4]));
    let executable = build(program, &[], &[("a", a), ("b", b)]);
    for expected in [[1.0f32, 2.0], [2.0, 1.0], [1.0, 2.0]] {
        let outputs = executable.run::<Tensor>(&[]).expect("the call is right");
        assert_eq!([floats(&outputs[0])[0], floats(&outputs[1])[0]], expected);
    }
}

#[test]
fn routines_run_as_steps() {
    let program = "program @sorted on cpu {
      sym s0 in [0, 9]
      param x: f32[2, s0]
      alloc v: f32[2*s0]
      alloc p: i64[2*s0]
      extern sort(x) -> (v, p) ints(2, s0, 1, 0)
      return v: f32[2, s0], p: i64[2, s0]
    }";
    let executable = build(program, &[], &[]);
    let outputs =
        executable.run(&[tensor(&[2, 3], &[3.0, 1.0, 2.0, -1.0, -2.0, 0.0])]).expect("the call is right");
    assert_eq!(floats(&outputs[0]), [1.0, 2.0, 3.0, -2.0, -1.0, 0.0]);
    assert_eq!(outputs[1].tensor().expect("a tensor").to_vec::<i64>(), Some(vec![1, 2, 0, 1, 0, 2]));
    let outputs = executable.run(&[strided(&[2, 0], &[1, 1])]).expect("no columns are fine");
    assert!(floats(&outputs[0]).is_empty());
}

const GATHER: &str = "kernel @gather from n {
  read i: i64[4*s0]
  write y: f32[4*s0]
  size s0 in [0, 100]
  grid r in s0, c in 4 grain 3
  check 0 = \"index out of range\"
  %0: i64 = load i[4*r + c]
  bind t = %0 in 10, check 0
  %1: i64 = index t
  %2: f32 = cast %1
  y[4*r + c] = %2
}";

const GATHERED: &str = "program @gathered on cpu {
  sym s0 in [0, 100]
  param i: i64[s0, 4]
  alloc y: f32[4*s0]
  launch @gather(i, y) sizes(s0)
  return y: f32[s0, 4]
}";

/// What compiled code of [`GATHER`] would be.
unsafe extern "C" fn native_gather(
    args: *const *mut u8,
    _sizes: *const i64,
    begin: i64,
    end: i64,
    _scratch: *mut u8,
    status: *mut i64,
) {
    for point in begin as usize..end as usize {
        // SAFETY: the device passes the memories of the kernel's extents, and points of its grid.
        unsafe {
            let index = (*args).cast::<i64>().add(point).read();
            if !(0..10).contains(&index) {
                *status = 1;
                return;
            }
            (*args.add(1)).cast::<f32>().add(point).write(index as f32);
        }
    }
}

fn devices() -> Vec<Arc<dyn Device>> {
    let kernels = kernels(&[GATHER]);
    let function: KernelFn = native_gather;
    let mut devices: Vec<Arc<dyn Device>> =
        vec![Arc::new(ReferenceDevice::new(&kernels).expect("the kernel is sound"))];
    devices.push(Arc::new(DistantDevice::new(&kernels).expect("the kernel is sound")));
    for threads in [1, 4] {
        let pool = Arc::new(ThreadPool::new(threads));
        // SAFETY: the function does what the kernel says.
        devices.push(Arc::new(unsafe { NativeDevice::from_functions(&[(&kernels[0], function)], pool) }));
    }
    devices
}

#[test]
fn devices_agree_and_report_bad_indices() {
    let program = litz_ir::text::program::parse(GATHERED).expect("the program is sound");
    for device in devices() {
        let executable = Executable::new(&program, &kernels(&[GATHER]), device, &HashMap::new())
            .expect("the program is sound");
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let executable = &executable;
                scope.spawn(move || {
                    for rows in 0..50usize {
                        let indices: Vec<i64> = (0..4 * rows).map(|at| ((at + thread) % 10) as i64).collect();
                        let input = Tensor::from_slice(&[rows, 4], &indices).expect("lengths match");
                        let outputs = executable.run(&[input]).expect("the call is right");
                        let expected: Vec<f32> = indices.iter().map(|&index| index as f32).collect();
                        assert_eq!(floats(&outputs[0]), expected);
                    }
                });
            }
        });
        let input = Tensor::from_slice(&[2, 4], &[0i64, 1, 2, 3, 4, 10, 6, 7]).expect("lengths match");
        assert_eq!(error_of(&executable, &[input]), "kernel @gather: index out of range");
        let input = Tensor::from_slice(&[1, 4], &[9i64; 4]).expect("lengths match");
        assert_eq!(floats(&executable.run(&[input]).expect("calls go on after an error")[0]), [9.0; 4]);
    }
}

#[test]
fn scratch_memory_is_each_chunks_own() {
    let text = "kernel @scratch from n {
      write y: i64[1000]
      grid i in 1000 grain 7
      scratch t: i64[100]
    }";
    unsafe extern "C" fn code(
        args: *const *mut u8,
        _sizes: *const i64,
        begin: i64,
        end: i64,
        scratch: *mut u8,
        _status: *mut i64,
    ) {
        for point in begin..end {
            // SAFETY: scratch memory is of the kernel's extent, and so is the argument.
            unsafe {
                let scratch = std::slice::from_raw_parts_mut(scratch.cast::<i64>(), 100);
                for (at, slot) in scratch.iter_mut().enumerate() {
                    *slot = point + at as i64;
                }
                std::thread::yield_now();
                (*args).cast::<i64>().add(point as usize).write(scratch.iter().sum());
            }
        }
    }
    let kernels = kernels(&[text]);
    let function: KernelFn = code;
    // SAFETY: the function writes every element of the kernel's memory.
    let device =
        unsafe { NativeDevice::from_functions(&[(&kernels[0], function)], Arc::new(ThreadPool::new(4))) };
    let program = "program @p on cpu { alloc y: i64[1000] launch @scratch(y) return y: i64[1000] }";
    let program = litz_ir::text::program::parse(program).expect("the program is sound");
    let executable =
        Executable::new(&program, &kernels, Arc::new(device), &HashMap::new()).expect("the program is sound");
    for _ in 0..20 {
        let outputs = executable.run::<Tensor>(&[]).expect("the call is right");
        let expected: Vec<i64> = (0..1000).map(|point| 100 * point + 4950).collect();
        assert_eq!(outputs[0].tensor().expect("a tensor").to_vec::<i64>(), Some(expected));
    }
}

#[test]
fn layouts_without_elements_may_span_anything() {
    // Strides of a transpose: the span comes out positive although there are no rows.
    let program = "program @empty on cpu {
      sym s0 in [0, 9]
      param x: f32[s0, 3]{1, 5}
      alloc y: f32[3*s0]
      launch @columns(x, y) sizes(s0)
      return y: f32[s0, 3]
    }";
    let columns = "kernel @columns from n {
      read x: f32[s0 + 10]
      write y: f32[3*s0]
      size s0 in [0, 9]
      grid i in s0, j in 3
      %0: f32 = load x[i + 5*j]
      y[3*i + j] = %0
    }";
    let executable = build(program, &[columns], &[]);
    let outputs = executable.run(&[strided(&[0, 3], &[3, 1])]).expect("no rows are fine");
    assert!(floats(&outputs[0]).is_empty());
    let x = tensor(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(floats(&executable.run(&[x]).expect("the call is right")[0]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}
