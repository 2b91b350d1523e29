//! Checks what becomes of inputs that are lent, and of state that calls store to.

use std::ptr::NonNull;

use litz_runtime::program::Value;
use litz_runtime::tensor::Input;
use litz_runtime::{RunError, Tensor, TensorView, TensorViewMut};

use super::{build, floats, tensor};

const STORE: &str = "kernel @store from n0 {
  read i: i64[2]
  read v: f32[2]
  write x: f32[4]
  grid n in 2
  check 0 = \"positions\"
  %0: i64 = load i[n]
  bind t = %0 in 4, check 0
  %2: f32 = load v[n]
  x[t] = %2
}";

/// Stores two elements of a state of four in place, and returns nothing.
fn storing(state: &str) -> String {
    format!(
        "program @store on cpu {{
  param i: i64[2]
  param v: f32[2]
  {state}
  launch @store(i, v, x)
  update x = x
  return
}}"
    )
}

fn positions(values: [i64; 2]) -> Tensor {
    Tensor::from_slice(&[2], &values).expect("lengths match")
}

/// A tensor as an input, lent or not.
enum Given<'a> {
    Read(&'a Tensor),
    Lent(TensorViewMut<'a>),
}

impl Input for Given<'_> {
    fn view(&self) -> TensorView<'_> {
        match self {
            Given::Read(tensor) => tensor.view(),
            Given::Lent(lent) => lent.view(),
        }
    }

    fn lent(&self) -> Option<&TensorViewMut<'_>> {
        match self {
            Given::Read(_) => None,
            Given::Lent(lent) => Some(lent),
        }
    }
}

/// IP-3: what is lent is written where it is, and what is not lent is left alone.
#[test]
fn inputs_that_are_lent_are_written_in_place() {
    let executable = build(&storing("param x: f32[4]"), &[STORE], &[]);
    let (i, v) = (positions([3, 1]), tensor(&[2], &[7.0, 8.0]));
    let mut x = tensor(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let results = executable.run(&[&i, &v, &x]).expect("a call");
    assert_eq!(floats(&results[0]), [1.0, 8.0, 3.0, 7.0]);
    assert_eq!(x.to_vec::<f32>().expect("of f32"), [1.0, 2.0, 3.0, 4.0]);

    let lent = x.view_mut().expect("memory");
    let results = executable.run(&[Given::Read(&i), Given::Read(&v), Given::Lent(lent)]).expect("a call");
    assert_eq!(results, [Value::Nothing]);
    assert_eq!(x.to_vec::<f32>().expect("of f32"), [1.0, 8.0, 3.0, 7.0]);
}

#[test]
fn what_is_lent_in_another_layout_is_written_in_that() {
    let executable = build(&storing("param x: f32[4]"), &[STORE], &[]);
    let (i, v) = (positions([0, 2]), tensor(&[2], &[7.0, 8.0]));
    let mut memory = [1.0f32, -1.0, 2.0, -1.0, 3.0, -1.0, 4.0];
    let lent = TensorViewMut::from_slice(&[4], &[2], &mut memory).expect("it fits");
    executable.run(&[Given::Read(&i), Given::Read(&v), Given::Lent(lent)]).expect("a call");
    assert_eq!(memory, [7.0, -1.0, 2.0, -1.0, 8.0, -1.0, 4.0]);
    assert!(TensorViewMut::from_slice(&[4], &[2], &mut memory[..6]).is_err());
}

/// Kernels take it for granted that what they store to is nobody else's.
#[test]
fn what_is_lent_and_read_elsewhere_is_copied_first() {
    let kernel = "kernel @k from n0 {
  read y: f32[4]
  update x: f32[4]
  for n in 4 {
    %0: f32 = load y[-n + 3]
    x[n] = %0
  }
}";
    let program = "program @p on cpu {
  param y: f32[4]
  param x: f32[4]
  launch @k(y, x)
  update x = x
  return
}";
    let executable = build(program, &[kernel], &[]);
    let mut memory = [1.0f32, 2.0, 3.0, 4.0];
    let data: NonNull<u8> = NonNull::from(&mut memory).cast();
    // SAFETY: both views are of memory that nobody else has while they live; the call says that it copies what is in both.
    let (y, x) = unsafe {
        let y = TensorView::from_raw(litz_ir::Dtype::F32, &[4], &[1], data.as_ptr().cast_const());
        (
            y.expect("a tensor"),
            TensorViewMut::from_raw(litz_ir::Dtype::F32, &[4], &[1], data).expect("a tensor"),
        )
    };
    let inputs: [&dyn Input; 2] = [&y, &x];
    executable.run(&inputs).expect("a call");
    assert_eq!(memory, [4.0, 3.0, 2.0, 1.0]);
}

/// IP-46: after a call that fails, state is what it was, or the executable says that it is lost.
#[test]
fn state_that_a_failed_call_has_changed_is_lost() {
    let state = tensor(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let program = storing("const x: f32[4] = \"x\"").replace("return", "return x: f32[4]");
    let executable = build(&program, &[STORE], &[("x", state)]);
    let v = tensor(&[2], &[7.0, 8.0]);
    let results = executable.run(&[positions([3, 1]), v.clone()]).expect("a call");
    assert_eq!(floats(&results[0]), [1.0, 8.0, 3.0, 7.0]);
    // A call that does not begin changes nothing.
    assert!(matches!(executable.run(&[positions([3, 1])]), Err(RunError::WrongCount { .. })));
    let results = executable.run(&[positions([0, 1]), v.clone()]).expect("a call");
    assert_eq!(floats(&results[0]), [7.0, 8.0, 3.0, 7.0]);
    assert!(matches!(executable.run(&[positions([2, 4]), v.clone()]), Err(RunError::BadIndex { .. })));
    assert!(matches!(executable.run(&[positions([3, 1]), v]), Err(RunError::StateLost)));
}

/// What fails before the first store to state leaves it alone.
#[test]
fn state_that_a_failed_call_has_not_reached_stays() {
    let check = "kernel @check from n1 {
  read j: i64[1]
  read v: f32[2]
  write w: f32[2]
  check 0 = \"positions\"
  for n in 2 {
    %0: i64 = load j[0]
    bind t = %0 in 4, check 0
    %2: f32 = load v[n]
    w[n] = %2
  }
}";
    let program = "program @store on cpu {
  param i: i64[2]
  param v: f32[2]
  param j: i64[1]
  const x: f32[4] = \"x\"
  alloc w: f32[2]
  launch @check(j, v, w)
  launch @store(i, w, x)
  update x = x
  return x: f32[4]
}";
    let state = tensor(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let executable = build(program, &[STORE, check], &[("x", state)]);
    let v = tensor(&[2], &[7.0, 8.0]);
    let at = |j: i64| Tensor::from_slice(&[1], &[j]).expect("lengths match");
    let inputs = |j: i64| [positions([0, 1]), v.clone(), at(j)];
    assert!(matches!(executable.run(&inputs(4)), Err(RunError::BadIndex { .. })));
    assert_eq!(floats(&executable.run(&inputs(3)).expect("a call")[0]), [7.0, 8.0, 3.0, 4.0]);
}
