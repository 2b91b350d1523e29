//! Calls operators of a host from programs: what it gets, what it may write, and what is left of a call that it fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use litz_ir::text;
use litz_runtime::host::{Host, HostArg, HostError, HostResult, HostTensor, ScalarType};
use litz_runtime::program::{Executable, RunOptions, Value};
use litz_runtime::reference::{DistantDevice, ReferenceDevice};
use litz_runtime::{RunError, Tensor};

type Act = dyn Fn(&mut [HostArg<'_>], &mut [HostResult<'_>]) -> Result<(), HostError> + Send + Sync;

/// A host of one operator.
struct One(Box<Act>);

impl Host for One {
    fn declaration(&self, op: &str) -> Option<String> {
        (op == "f").then(|| "the program has all that it needs".to_owned())
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        assert_eq!(op, "f");
        (self.0)(args, results)
    }
}

fn host(
    act: impl Fn(&mut [HostArg<'_>], &mut [HostResult<'_>]) -> Result<(), HostError> + Send + Sync + 'static,
) -> Arc<dyn Host> {
    Arc::new(One(Box::new(act)))
}

/// A program without kernels, on a device in the host's memory and on one with its own.
fn executables(text: &str, host: Option<Arc<dyn Host>>) -> Vec<Result<Executable, RunError>> {
    let program = text::program::parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let diags = litz_ir::verify::program::verify(&program);
    assert!(diags.is_empty(), "{}", diags[0]);
    let devices: [Arc<dyn litz_runtime::device::Device>; 2] = [
        Arc::new(ReferenceDevice::new(&[]).expect("no kernels")),
        Arc::new(DistantDevice::new(&[]).expect("no kernels")),
    ];
    let state = Tensor::from_slice(&[4], &[1.0f32, 2.0, 3.0, 4.0]).expect("4 elements");
    let weights = HashMap::from([("state".to_owned(), state)]);
    let options = RunOptions { host, ..RunOptions::default() };
    devices.map(|device| Executable::with_options(&program, &[], device, &weights, &options)).into()
}

fn input() -> Tensor {
    Tensor::from_slice(&[2, 3], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("6 elements")
}

fn only(values: &[Value]) -> Vec<f64> {
    let [Value::Tensor(tensor)] = values else { panic!("expected one tensor, found {values:?}") };
    tensor.to_f64()
}

#[test]
fn a_host_gets_what_the_program_says() {
    let text = "program @f on cpu {
      sym s0 in [1, 8]
      param x: f32[s0, 3]
      alloc y: f32[3*s0]
      call f(x as f32[3, s0]{1, 3}, [x as f32[2]{1} + 1, none], s0 + 5, [1, [s0]], -0.5, true, complex(1.0, -2.0), \"text\", bf16, cuda:3, strided, channels_last) -> (y as f32[3, s0], _)
      return y: f32[3, s0]
    }";
    let act = |args: &mut [HostArg<'_>], results: &mut [HostResult<'_>]| {
        let x = args[0].tensor().expect("a tensor");
        assert_eq!((x.sizes(), x.strides(), x.is_writable()), (&[3, 2][..], &[1, 3][..], false));
        let items = args[1].list().expect("a list");
        let part = items[0].tensor().expect("a tensor").to_tensor()?;
        assert_eq!((part.to_vec::<f32>(), items.len()), (Some(vec![1.0, 2.0]), 2));
        assert!(matches!(items[1], HostArg::None));
        assert_eq!(args[2].int(), Some(7));
        let nested = args[3].list().and_then(|list| list[1].list()?[0].int());
        assert_eq!(nested, Some(2));
        assert!(matches!(args[4], HostArg::Float(-0.5)) && matches!(args[5], HostArg::Bool(true)));
        assert!(matches!(args[6], HostArg::Complex([1.0, -2.0])));
        assert_eq!(args[7].text(), Some("text"));
        assert!(matches!(args[8], HostArg::Dtype(ScalarType(15))));
        assert!(matches!(&args[9], HostArg::Device(device) if (device.kind, device.index) == (1, 3)));
        assert!(matches!(args[10], HostArg::Strided) && matches!(args[11], HostArg::MemoryFormat(2)));
        assert!(results[0].is_wanted() && !results[1].is_wanted());
        results[1].set(&x.to_tensor()?)?;
        results[0].set(&x.to_tensor()?)
    };
    for executable in executables(text, Some(host(act))) {
        let executable = executable.expect("the host has it");
        let values = executable.run(&[input()]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(only(&values), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let statistics = executable.statistics();
        assert_eq!((&*statistics.host_calls[0].op, statistics.host_calls[0].calls), ("f", 1));
    }
}

#[test]
fn results_may_be_written_where_they_are() {
    let text = "program @f on cpu {
      param x: f32[2, 3]
      alloc y: f32[6]
      call f(x as f32[2, 3]) -> (y as f32[2, 3]{1, 2})
      return y: f32[2, 3]{1, 2}
    }";
    let act = |_: &mut [HostArg<'_>], results: &mut [HostResult<'_>]| {
        let tensor = results[0].tensor();
        assert_eq!(tensor.strides(), [1, 2]);
        let data = tensor.data().cast::<f32>();
        // SAFETY: the result has 6 elements of f32, and 4 of them are written.
        (0..4u8).for_each(|at| unsafe { data.add(at.into()).write(f32::from(at)) });
        results[0].note_written(4);
        Ok(())
    };
    for executable in executables(text, Some(host(act))) {
        let error =
            executable.expect("the host has it").run(&[input()]).expect_err("6 are needed").to_string();
        assert_eq!(error, "operator f: result 0: expected f32[2, 3], 4 elements were written");
    }
}

#[test]
fn an_argument_is_written_where_the_program_says_so_alone() {
    let text = "program @f on cpu {
      param x: f32[2, 3]
      alloc y: f32[6]
      call f(x as f32[2, 3]) -> (y as f32[2, 3])
      call f(update y as f32[2]{2} + 1) -> ()
      return y: f32[2, 3]
    }";
    let act = |args: &mut [HostArg<'_>], results: &mut [HostResult<'_>]| {
        let tensor = args[0].tensor_mut().ok_or("expected a tensor")?;
        let contents = tensor.to_tensor()?;
        match results {
            [result] => {
                assert!(tensor.write(&contents).is_err());
                result.set(&contents)
            }
            _ => tensor.write(&Tensor::from_slice(&[2], &[10.0f32, 30.0])?),
        }
    };
    for executable in executables(text, Some(host(act))) {
        let values = executable.expect("the host has it").run(&[input()]);
        assert_eq!(only(&values.unwrap_or_else(|error| panic!("{error}"))), [0.0, 10.0, 2.0, 30.0, 4.0, 5.0]);
    }
}

#[test]
fn operators_that_the_host_does_not_have_are_named_before_anything_runs() {
    let text = "program @f on cpu {
      call g() -> ()
      call f() -> ()
      call g() -> ()
      return
    }";
    for (host, expected) in [(None, "no host has f, g"), (Some(host(|_, _| Ok(()))), "no host has g")] {
        for executable in executables(text, host) {
            assert_eq!(executable.err().expect("there is no g").to_string(), expected);
        }
    }
}

/// A host that fails and panics in turns, and then does what it should.
fn unsteady() -> Arc<dyn Host> {
    let calls = Mutex::new(0);
    host(move |args, results| {
        let call = {
            let mut calls = calls.lock().expect("it panics later");
            *calls += 1;
            *calls
        };
        match call {
            1 => Err("not yet".into()),
            2 => panic!("not at all"),
            _ => {
                let tensor = args[0].tensor_mut().ok_or("expected a tensor")?;
                let ones = Tensor::from_slice(&[4], &[1.0f32; 4])?;
                if tensor.is_writable() { tensor.write(&ones) } else { results[0].set(&ones) }
            }
        }
    })
}

#[test]
fn a_call_after_one_that_the_host_fails_runs() {
    let text = "program @f on cpu {
      const state: f32[4] = \"state\"
      alloc y: f32[4]
      call f(state as f32[4]) -> (y as f32[4]) for \"model.py:3\"
      update state = y
      return y: f32[4]
    }";
    for executable in executables(text, None) {
        assert!(executable.is_err());
    }
    for at in 0..2 {
        let executable = executables(text, Some(unsteady())).remove(at).expect("the host has it");
        for why in ["not yet", "it panicked: not at all"] {
            let error = executable.run::<Tensor>(&[]).expect_err("the host fails");
            assert_eq!(error.to_string(), format!("operator f at model.py:3: {why}"));
        }
        assert_eq!(only(&executable.run::<Tensor>(&[]).expect("it runs")), [1.0; 4]);
    }
}

#[test]
fn state_that_a_failing_host_may_have_written_is_lost() {
    let text = "program @f on cpu {
      const state: f32[4] = \"state\"
      call f(update state as f32[4]) -> ()
      update state = state
      return
    }";
    for at in 0..2 {
        let executable = executables(text, Some(unsteady())).remove(at).expect("the host has it");
        assert!(matches!(executable.run::<Tensor>(&[]), Err(RunError::Host { .. })));
        assert!(matches!(executable.run::<Tensor>(&[]), Err(RunError::StateLost)));
    }
}

#[test]
fn what_a_host_gets_has_the_layout_of_c() {
    // A pointer and four numbers of its size, then three small ones, and the two of a device.
    assert_eq!(size_of::<HostTensor<'_>>(), 7 * size_of::<usize>());
    // A number that says which, and the largest of what there may be.
    let word = size_of::<usize>();
    assert_eq!(size_of::<HostArg<'_>>(), 8 * word);
    for dtype in litz_ir::Dtype::ALL {
        assert_eq!(ScalarType::of(dtype).dtype(), Some(dtype));
    }
    assert_eq!(ScalarType(8).dtype(), None);
}
