//! Checks streams, events and memories of devices, and that programs wait for what they need and for nothing else.

use std::any::Any;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use litz_ir::kernel::Kernel;
use litz_ir::{Dtype, Scalar};
use litz_runtime::device::{
    AddressSpace, Buffer, Copy, Device, DeviceMemory, KernelId, Launch, RawStream, Stream,
};
use litz_runtime::host::{Host, HostArg, HostDevice, HostError, HostResult};
use litz_runtime::program::{Executable, OutputLayout, Outputs, RunOptions, Value};
use litz_runtime::reference::{DistantDevice, ReferenceDevice};
use litz_runtime::{RunError, Tensor, TensorView};

const DOUBLE: &str = "kernel @double from n {
  read x: f32[4]
  write y: f32[4]
  grid i in 4
  %0: f32 = load x[i]
  %1: f32 = add %0, %0
  y[i] = %1
}";

const GATHER: &str = "kernel @gather from n {
  read i: i64[4]
  read x: f32[4]
  write y: f32[4]
  grid j in 4
  check 0 = \"index out of range\"
  %0: i64 = load i[j]
  bind g = %0 in 4, check 0
  %1: f32 = load x[g]
  y[j] = %1
}";

fn kernels(texts: &[&str]) -> Vec<Kernel> {
    let parse = |text: &&str| litz_ir::text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"));
    texts.iter().map(parse).collect()
}

fn distant(texts: &[&str]) -> Arc<DistantDevice> {
    Arc::new(DistantDevice::new(&kernels(texts)).expect("the kernels are sound"))
}

fn reference(texts: &[&str]) -> Arc<ReferenceDevice> {
    Arc::new(ReferenceDevice::new(&kernels(texts)).expect("the kernels are sound"))
}

fn upload(stream: &mut dyn Stream, from: &[f32], to: &Buffer, space: AddressSpace) {
    let (from, to) = ((AddressSpace::Host, from.as_ptr().cast()), (space, to.as_ptr()));
    // SAFETY: tests keep both until they have waited.
    unsafe { stream.copy(Copy { from, to, bytes: 16 }) };
}

fn download(stream: &mut dyn Stream, from: &Buffer, to: &mut [f32], space: AddressSpace) {
    let (from, to) = ((space, from.as_ptr().cast_const()), (AddressSpace::Host, to.as_mut_ptr().cast()));
    // SAFETY: as above.
    unsafe { stream.copy(Copy { from, to, bytes: 16 }) };
}

fn launch(device: &dyn Device, stream: &mut dyn Stream, name: &str, args: &[*mut u8]) {
    let kernel = device.find(name).expect("it is loaded");
    let (scratch, scratch_bytes, scratch_stride) = (std::ptr::null_mut(), 0, 0);
    let launch =
        Launch { kernel, number: 0, args, sizes: &[], points: 4, scratch, scratch_bytes, scratch_stride };
    // SAFETY: as above; memories are as large as the kernels say.
    unsafe { stream.launch(&launch) };
}

#[test]
fn nothing_has_to_happen_before_somebody_waits() {
    let device = distant(&[DOUBLE]);
    let mut stream = device.stream().expect("there is one");
    let [x, y] = [(); 2].map(|()| Buffer::new(&*device, 16).expect("there is room"));
    let (given, mut found) = ([1.0f32, 2.0, 3.0, 4.0], [0.0f32; 4]);
    upload(&mut *stream, &given, &x, AddressSpace::Device);
    launch(&*device, &mut *stream, "double", &[x.as_ptr(), y.as_ptr()]);
    let before = stream.record().expect("an event");
    download(&mut *stream, &y, &mut found, AddressSpace::Device);
    before.wait();
    assert_eq!(found, [0.0; 4], "the copy is behind the event");
    stream.wait().expect("nothing failed");
    assert_eq!(found, [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn one_stream_waits_for_an_event_of_another() {
    let device = distant(&[DOUBLE]);
    let [mut first, mut second] = [(); 2].map(|()| device.stream().expect("there is one"));
    let [x, y] = [(); 2].map(|()| Buffer::new(&*device, 16).expect("there is room"));
    let (given, mut found) = ([1.0f32; 4], [0.0f32; 4]);
    let begun = first.record().expect("an event");
    upload(&mut *first, &given, &x, AddressSpace::Device);
    launch(&*device, &mut *first, "double", &[x.as_ptr(), y.as_ptr()]);
    let ended = first.record().expect("an event");
    second.wait_for(&ended);
    download(&mut *second, &y, &mut found, AddressSpace::Device);
    assert_eq!(ended.since(&*begun), None, "neither has happened");
    second.wait().expect("nothing failed");
    assert_eq!(found, [2.0; 4]);
    assert!(ended.since(&*begun).is_some());
}

#[test]
fn devices_of_the_host_do_everything_at_once() {
    let device = reference(&[DOUBLE]);
    let mut stream = device.stream().expect("there is one");
    let [x, y] = [(); 2].map(|()| Buffer::new(&*device, 16).expect("there is room"));
    let mut found = [0.0f32; 4];
    let begun = stream.record().expect("an event");
    upload(&mut *stream, &[3.0; 4], &x, AddressSpace::Host);
    launch(&*device, &mut *stream, "double", &[x.as_ptr(), y.as_ptr()]);
    download(&mut *stream, &y, &mut found, AddressSpace::Host);
    assert_eq!(found, [6.0; 4]);
    let ended = stream.record().expect("an event");
    assert!(ended.since(&*begun).is_some_and(|time| time > Duration::ZERO));
    let elsewhere = distant(&[DOUBLE]).stream().expect("there is one").record().expect("an event");
    assert_eq!(ended.since(&*elsewhere), None, "clocks of different devices");
}

#[test]
fn errors_are_where_somebody_waits_and_only_once() {
    for device in [distant(&[DOUBLE, GATHER]) as Arc<dyn Device>, reference(&[DOUBLE, GATHER])] {
        let space = if device.memory().is_some() { AddressSpace::Device } else { AddressSpace::Host };
        let mut stream = device.stream().expect("there is one");
        let [i, x, y] = [32, 16, 16].map(|bytes| Buffer::new(&*device, bytes).expect("there is room"));
        let indices = [0i64, 1, 7, 3];
        let (from, to) = ((AddressSpace::Host, indices.as_ptr().cast()), (space, i.as_ptr()));
        // SAFETY: both have 32 bytes until this test has waited.
        unsafe { stream.copy(Copy { from, to, bytes: 32 }) };
        upload(&mut *stream, &[1.0; 4], &x, space);
        launch(&*device, &mut *stream, "gather", &[i.as_ptr(), x.as_ptr(), y.as_ptr()]);
        launch(&*device, &mut *stream, "double", &[x.as_ptr(), y.as_ptr()]);
        let error = stream.wait().expect_err("there is no element 7");
        assert!(matches!(error, RunError::BadIndex { .. }), "{error}");
        stream.wait().expect("the error was returned");
        let mut found = [0.0; 4];
        launch(&*device, &mut *stream, "double", &[x.as_ptr(), y.as_ptr()]);
        download(&mut *stream, &y, &mut found, space);
        stream.wait().expect("nothing failed since");
        assert_eq!(found, [2.0; 4]);
    }
}

#[test]
fn addresses_of_another_space_are_refused() {
    let device = distant(&[DOUBLE]);
    let mut stream = device.stream().expect("there is one");
    let [x, y] = [(); 2].map(|()| Buffer::new(&*device, 16).expect("there is room"));
    let mut host = [0.0f32; 4];
    launch(&*device, &mut *stream, "double", &[x.as_ptr(), host.as_mut_ptr().cast()]);
    assert!(matches!(stream.wait(), Err(RunError::Bug { .. })));
    download(&mut *stream, &y, &mut host, AddressSpace::Host);
    assert!(matches!(stream.wait(), Err(RunError::Bug { .. })));
    // Half of it lies behind the buffer.
    launch(&*device, &mut *stream, "double", &[x.as_ptr(), y.as_ptr().wrapping_add(8)]);
    assert!(matches!(stream.wait(), Err(RunError::Bug { .. })));
}

/// Packs a constant when it is loaded, gathers, sorts on the host, and updates state behind an index that may be wrong.
const PROGRAM: &str = "program @p on cpu {
  param i: i64[4]
  param x: f32[4]
  const w: f32[4] = \"w\"
  const state: f32[4] = \"state\"
  load {
    alloc packed: f32[4]
    launch @double(w, packed)
  }
  alloc t: f32[4]
  launch @double(x, t)
  alloc v: f32[4]
  alloc p: i64[4]
  extern sort(t) -> (v, p) ints(1, 4, 1, 0)
  free t
  alloc y: f32[4]
  launch @gather(i, v, y)
  update state = y
  update x = packed
  return y: f32[4], v: f32[4], p: i64[4], packed: f32[4], state: f32[4]
}";

fn executable(device: Arc<dyn Device>) -> Executable {
    let program = litz_ir::text::program::parse(PROGRAM).unwrap_or_else(|diags| panic!("{diags:?}"));
    let constant = |values: [f32; 4]| Tensor::from_slice(&[4], &values).expect("lengths match");
    let weights = HashMap::from([
        ("w".to_owned(), constant([1.0, 2.0, 3.0, 4.0])),
        ("state".to_owned(), constant([9.0; 4])),
    ]);
    Executable::new(&program, &kernels(&[DOUBLE, GATHER]), device, &weights).expect("the program is sound")
}

fn call(executable: &Executable, indices: [i64; 4], x: [f32; 4]) -> Result<Vec<Tensor>, RunError> {
    let indices = Tensor::from_slice(&[4], &indices).expect("lengths match");
    let x = Tensor::from_slice(&[4], &x).expect("lengths match");
    let outputs = executable.run(&[indices, x])?;
    Ok(outputs.iter().map(|value: &Value| value.tensor().expect("a tensor").clone()).collect())
}

#[test]
fn programs_give_the_same_late_and_in_memory_of_the_device() {
    let far = distant(&[DOUBLE, GATHER]);
    let (near, distant) = (executable(reference(&[DOUBLE, GATHER])), executable(far.clone()));
    for (indices, x) in [([3, 2, 1, 0], [4.0, 3.0, 2.0, 1.0]), ([0; 4], [-1.0, 5.0, 0.5, 2.0])] {
        let expected = call(&near, indices, x).expect("the call is right");
        let mut sorted = x.map(|value| 2.0 * value);
        sorted.sort_by(f32::total_cmp);
        assert_eq!(expected[1].to_vec::<f32>(), Some(sorted.to_vec()));
        assert_eq!(call(&distant, indices, x).expect("the call is right"), expected);
    }
    // A call that fails leaves state as it was, and later calls are right.
    for _ in 0..2 {
        for executable in [&near, &distant] {
            let error = call(executable, [0, 4, 0, 0], [1.0; 4]).expect_err("there is no element 4");
            assert!(matches!(error, RunError::BadIndex { .. }), "{error}");
        }
        let expected = call(&near, [1, 1, 2, 2], [7.0, 8.0, 9.0, 6.0]).expect("the call is right");
        assert_eq!(call(&distant, [1, 1, 2, 2], [7.0, 8.0, 9.0, 6.0]).expect("the call is right"), expected);
    }
    assert!(far.bytes_in_use() > 0);
    drop(distant);
    assert_eq!(far.bytes_in_use(), 0, "memory that is still taken");
}

#[test]
fn several_threads_call_a_program_on_a_device_with_memory_of_its_own() {
    let (near, distant) = (executable(reference(&[DOUBLE, GATHER])), executable(distant(&[DOUBLE, GATHER])));
    let expected = call(&near, [3, 2, 1, 0], [4.0, 3.0, 2.0, 1.0]).expect("the call is right");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let found = call(&distant, [3, 2, 1, 0], [4.0, 3.0, 2.0, 1.0]).expect("it is right");
                    assert_eq!(found[0], expected[0]);
                }
            });
        }
    });
}

/// A distant device, on whose streams somebody captures, or nobody does.
struct Captured {
    far: Arc<DistantDevice>,
    by: Mutex<Option<u64>>,
    shares: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Device for Captured {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.far.find(name)
    }

    fn concurrency(&self) -> usize {
        self.far.concurrency()
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        self.far.memory()
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        self.far.stream()
    }

    fn captured_by(&self, _: RawStream) -> Result<Option<u64>, RunError> {
        Ok(*self.by.lock().expect("no panic"))
    }

    fn keep(&self, _: RawStream, share: Box<dyn Any + Send>) -> Result<(), RunError> {
        self.shares.lock().expect("no panic").push(share);
        Ok(())
    }
}

/// Results in memory of the device, on a stream of the caller's.
struct OnDevice(Buffer);

// SAFETY: the buffer is as large as the only result of the program, and nobody else's.
unsafe impl Outputs for OnDevice {
    fn tensor(&mut self, _: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        assert_eq!(layout.bytes, 16);
        Ok(NonNull::new(self.0.as_ptr()).expect("it is no address of nothing"))
    }

    fn scalar(&mut self, _: usize, _: Option<Scalar>) {
        unreachable!("the program returns a tensor")
    }

    fn text(&mut self, _: usize, _: &Arc<str>) {
        unreachable!("the program returns a tensor")
    }

    fn stream(&self) -> Option<RawStream> {
        Some(RawStream(std::ptr::null_mut()))
    }
}

/// Four times a tensor, by way of memory of its own.
const FOURFOLD: &str = "program @p on cpu {
  param x: f32[4]
  alloc t: f32[4]
  launch @double(x, t)
  alloc y: f32[4]
  launch @double(t, y)
  free t
  return y: f32[4]
}";

#[test]
fn what_is_captured_keeps_the_memory_of_its_calls() {
    let far = distant(&[DOUBLE]);
    let device = Arc::new(Captured { far: Arc::clone(&far), by: Mutex::default(), shares: Mutex::default() });
    let program = litz_ir::text::program::parse(FOURFOLD).unwrap_or_else(|diags| panic!("{diags:?}"));
    let weights: HashMap<String, Tensor> = HashMap::new();
    let executable =
        Executable::new(&program, &kernels(&[DOUBLE]), device.clone(), &weights).expect("it is sound");
    let x = Buffer::new(&*far, 16).expect("there is room");
    let mut results = OnDevice(Buffer::new(&*far, 16).expect("there is room"));
    // SAFETY: the buffer has four floats and lives longer than the view.
    let view = unsafe { TensorView::from_raw(Dtype::F32, &[4], &[1], x.as_ptr()) };
    let view = view.expect("it is a tensor").on_device();
    let mut call = |by: Option<u64>| {
        *device.by.lock().expect("no panic") = by;
        executable.call(&[view], &mut results).expect("the call is right");
        far.bytes_in_use()
    };
    let count = || device.shares.lock().expect("no panic").len();
    let once = call(None);
    assert_eq!((call(None), count()), (once, 0), "calls one after another have the same memory");
    assert_eq!(
        (call(Some(1)), call(Some(1)), count()),
        (once, once, 1),
        "so have those of one capture, whose it is now"
    );
    let twice = call(None);
    assert!(twice > once, "and nobody else's");
    assert_eq!((call(Some(2)), count()), (twice, 2));
    drop(executable);
    let own = far.bytes_in_use();
    assert_eq!(own, twice, "the program is gone, and what it was captured with is there");
    let mut shares = std::mem::take(&mut *device.shares.lock().expect("no panic"));
    drop(shares.pop());
    assert!(far.bytes_in_use() < own);
    drop(shares);
    assert_eq!(far.bytes_in_use(), 32, "the argument and the result");
}

/// A host of an operator that notes where its operands are, and writes nothing.
struct Places {
    takes: bool,
    found: Mutex<Vec<HostDevice>>,
}

impl Host for Places {
    fn declaration(&self, op: &str) -> Option<String> {
        (op == "f").then(|| "the program has all that it needs".to_owned())
    }

    fn call(
        &self,
        _: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        let x = args[0].tensor().expect("a tensor");
        let is_of_host = x.device() == HostDevice::CPU;
        assert_eq!((x.view().is_some(), x.to_tensor().is_ok()), (is_of_host, is_of_host));
        assert_eq!(results[0].tensor().device(), x.device());
        self.found.lock().expect("no panic").push(x.device());
        let contents = Tensor::from_slice(&[4], &[1.0f32; 4])?;
        match is_of_host {
            true => results[0].set(&contents),
            false => {
                assert!(results[0].set(&contents).is_err(), "nobody can write there from here");
                results[0].note_written(4);
                Ok(())
            }
        }
    }

    fn takes_device_memory(&self) -> bool {
        self.takes
    }
}

#[test]
fn a_host_works_where_the_device_has_its_operands_if_it_can() {
    let text = "program @p on cpu {
      param x: f32[4]
      alloc y: f32[4]
      call f(x as f32[4]) -> (y as f32[4])
      return y: f32[4]
    }";
    let program = litz_ir::text::program::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"));
    let weights: HashMap<String, Tensor> = HashMap::new();
    for takes in [false, true] {
        let far = distant(&[]);
        let host = Arc::new(Places { takes, found: Mutex::default() });
        let options = RunOptions { host: Some(host.clone()), ..RunOptions::default() };
        let executable =
            Executable::with_options(&program, &[], far.clone(), &weights, &options).expect("it is sound");
        let x = Buffer::new(&*far, 16).expect("there is room");
        let mut results = OnDevice(Buffer::new(&*far, 16).expect("there is room"));
        // SAFETY: the buffer has four floats and lives longer than the view.
        let view = unsafe { TensorView::from_raw(Dtype::F32, &[4], &[1], x.as_ptr()) };
        executable.call(&[view.expect("it is a tensor").on_device()], &mut results).expect("it is right");
        let input = Tensor::from_slice(&[4], &[1.0f32; 4]).expect("4 elements");
        executable.run(&[input]).expect("nobody gave a stream, and it is right");
        let there = if takes { HostDevice { kind: 20, index: 0 } } else { HostDevice::CPU };
        assert_eq!(*host.found.lock().expect("no panic"), [there, HostDevice::CPU]);
    }
}
