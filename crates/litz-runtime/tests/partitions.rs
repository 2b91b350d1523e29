//! Checks how programs are cut into what devices capture, what each part is given and gives, and what devices are asked for at calls.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use litz_ir::graph;
use litz_ir::kernel::Kernel;
use litz_ir::program::{Partition, Program, Slot, accesses_of, partitions, regions};
use litz_runtime::device::{Copy, Device, DeviceMemory, Event, KernelId, Launch, Recording, Stream};
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::reference::{DistantDevice, ReferenceDevice};
use litz_runtime::{RunError, Tensor};

const DOUBLE: &str = "kernel @double {
  read x: f32[4]
  write y: f32[4]
  grid i in 4
  %0: f32 = load x[i]
  %1: f32 = add %0, %0
  y[i] = %1
}";

/// In place.
const SQUARE: &str = "kernel @square {
  update x: f32[4]
  grid i in 4
  %0: f32 = load x[i]
  %1: f32 = mul %0, %0
  x[i] = %1
}";

const SUM: &str = "kernel @sum {
  read a: f32[4]
  read b: f32[4]
  write y: f32[4]
  grid i in 4
  %0: f32 = load a[i]
  %1: f32 = load b[i]
  %2: f32 = add %0, %1
  y[i] = %2
}";

fn kernels() -> Vec<Kernel> {
    let parse = |text| litz_ir::text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"));
    [DOUBLE, SQUARE, SUM].map(parse).into()
}

fn program(text: &str) -> Program {
    let program = litz_ir::text::program::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"));
    let diags = litz_ir::verify::program::verify_with(&program, &kernels());
    assert!(diags.is_empty(), "{diags:?}");
    program
}

fn captures(device: graph::Device) -> bool {
    device != graph::Device::Cpu
}

fn cut(program: &Program) -> Vec<Partition> {
    partitions(program, &accesses_of(&kernels()), &captures)
}

fn names(program: &Program, slots: &[Slot]) -> Vec<String> {
    slots.iter().map(|&slot| program.slots[slot].name.clone()).collect()
}

/// Two blocks on a device, with an operator of the CPU between.
const BLOCKS: &str = "program @p on ref:0 {
  param x: f32[4]
  const w: f32[4] = \"w\"
  alloc unused: f32[4]
  alloc a: f32[4]
  alloc kept: f32[4]
  alloc h: f32[4] on cpu
  alloc g: f32[4] on cpu
  alloc b: f32[4]
  alloc y: f32[4]
  launch @double(x, a)
  launch @square(a)
  launch @sum(x, w, kept)
  copy a -> h
  record event 0
  wait event 0 on cpu
  launch @double(h, g)
  record event 1 on cpu
  wait event 1
  copy g -> b
  launch @sum(b, kept, y)
  return y: f32[4]
}";

/// PT-1: two partitions that can be captured, and one that cannot, with the reasons.
#[test]
fn blocks_around_an_operator_of_the_host_are_captured() {
    let program = program(BLOCKS);
    let found = cut(&program);
    let reasons: Vec<Vec<&str>> = found
        .iter()
        .map(|partition| partition.reasons.iter().map(|reason| reason.slug()).collect())
        .collect();
    assert_eq!(reasons, [vec![], vec!["copy", "event", "device"], vec![]]);
    assert_eq!(found[1].devices, [graph::Device::Ref(0), graph::Device::Cpu]);
    // All steps are in one of them, in order.
    let ends: Vec<usize> =
        found.iter().flat_map(|partition| [partition.steps.start, partition.steps.end]).collect();
    assert!(ends.is_sorted() && ends[0] == 0 && ends[1] == ends[2] && ends[3] == ends[4]);
    assert_eq!(ends[5], program.steps.len());
}

/// PT-2: of each partition exactly what it is given, gives and frees.
#[test]
fn what_a_partition_is_given_gives_and_frees() {
    let program = program(BLOCKS);
    let [first, between, second] = &cut(&program)[..] else { panic!("expected three") };
    let names = |slots: &[Slot]| names(&program, slots);
    // A buffer that a kernel changes in place is an output of the partition that makes it, though not of the program.
    assert_eq!(names(&first.outputs), ["a", "kept"]);
    assert_eq!((names(&first.inputs), names(&first.constants)), (vec!["x".into()], vec!["w".into()]));
    assert!(first.freed.is_empty());
    assert_eq!((names(&between.inputs), names(&between.outputs)), (vec!["a".into()], vec!["b".into()]));
    assert_eq!(names(&between.freed), ["a"]);
    assert_eq!(names(&second.inputs), ["b", "kept"]);
    assert_eq!(
        (names(&second.outputs), names(&second.freed)),
        (vec!["y".into()], vec!["b".into(), "kept".into()])
    );
    assert!(second.constants.is_empty());
}

/// Runs partitions as functions that see what they are given alone: the name of what is not there, if anything is not.
fn undefined(program: &Program, partitions: &[Partition]) -> Option<String> {
    let kernels = kernels();
    let accesses = accesses_of(&kernels);
    let mut there: HashSet<Slot> = program.params.iter().map(|param| param.slot).collect();
    for partition in partitions {
        let mut inside: HashSet<Slot> = partition.constants.iter().copied().collect();
        for &input in &partition.inputs {
            if !there.contains(&input) {
                return Some(program.slots[input].name.clone());
            }
            inside.insert(input);
        }
        for used in program.steps[partition.steps.clone()]
            .iter()
            .flat_map(|step| program.effects(step, &accesses).uses)
        {
            if !used.access.is_written() && !inside.contains(&used.slot) {
                return Some(program.slots[used.slot].name.clone());
            }
            inside.insert(used.slot);
        }
        there.retain(|slot| !partition.freed.contains(slot));
        there.extend(partition.outputs.iter().filter(|slot| inside.contains(slot)));
    }
    let returned = program.outputs.iter().filter_map(|output| match output {
        litz_ir::program::Output::View { slot, .. } => Some(*slot),
        _ => None,
    });
    returned.into_iter().find(|slot| !there.contains(slot)).map(|slot| program.slots[slot].name.clone())
}

/// PT-2: partitions that returned what the program returns would leave others without it.
#[test]
fn signatures_are_of_partitions_not_of_the_whole_program() {
    let program = program(BLOCKS);
    let mut found = cut(&program);
    assert_eq!(undefined(&program, &found), None);
    // As if each partition returned what the program returns.
    let whole: Vec<Slot> = found.last().expect("there is one").outputs.clone();
    found.iter_mut().for_each(|partition| partition.outputs.retain(|slot| whole.contains(slot)));
    assert_eq!(undefined(&program, &found).as_deref(), Some("a"));
}

#[test]
fn late_sizes_numbers_and_functions_are_not_captured() {
    let program = program(
        "program @p on ref:0 {
  sym u0 in [0, 4]
  param x: f32[4]
  param n: i64[1]
  alloc a: f32[4]
  alloc y: f32[4]
  launch @double(x, a)
  size u0 = n
  launch @double(a, y)
  extern assert(n) -> ()
  launch @square(y)
  launch @square(y) stream 0
  return y: f32[4]
}",
    );
    let found = cut(&program);
    let reasons: Vec<Vec<&str>> = found
        .iter()
        .map(|partition| partition.reasons.iter().map(|reason| reason.slug()).collect())
        .collect();
    assert_eq!(reasons, [vec![], vec!["size"], vec![], vec!["host"], vec![]]);
    assert!(found.iter().all(|partition| partition.devices == [graph::Device::Ref(0)]));
}

/// What a device was asked for.
#[derive(Default, Debug)]
struct Counts {
    entered: AtomicUsize,
    left: AtomicUsize,
    launches: AtomicUsize,
    recorded: AtomicUsize,
    replayed: AtomicUsize,
}

impl Counts {
    /// Enters, leaves, launches, recordings and replays since the last time.
    fn take(&self) -> [usize; 5] {
        let Counts { entered, left, launches, recorded, replayed } = self;
        [entered, left, launches, recorded, replayed].map(|count| count.swap(0, Ordering::Relaxed))
    }
}

/// A reference device that counts.
struct Counting {
    device: DistantDevice,
    counts: Arc<Counts>,
    captures: bool,
}

impl Device for Counting {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.device.find(name)
    }
    fn concurrency(&self) -> usize {
        self.device.concurrency()
    }
    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        self.device.memory()
    }
    fn captures(&self) -> bool {
        self.captures
    }
    fn enter(&self) {
        self.counts.entered.fetch_add(1, Ordering::Relaxed);
    }
    fn leave(&self) {
        self.counts.left.fetch_add(1, Ordering::Relaxed);
    }
    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        Ok(Box::new(CountingStream { stream: self.device.stream()?, counts: Arc::clone(&self.counts) }))
    }
}

struct CountingStream {
    stream: Box<dyn Stream>,
    counts: Arc<Counts>,
}

impl Stream for CountingStream {
    unsafe fn launch(&mut self, launch: &Launch<'_>) {
        self.counts.launches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the contract.
        unsafe { self.stream.launch(launch) }
    }
    unsafe fn copy(&mut self, copy: Copy) {
        // SAFETY: by the contract.
        unsafe { self.stream.copy(copy) }
    }
    fn begin(&mut self) {
        self.counts.recorded.fetch_add(1, Ordering::Relaxed);
        self.stream.begin();
    }
    fn end(&mut self) -> Result<Option<Box<dyn Recording>>, RunError> {
        self.stream.end()
    }
    unsafe fn replay(&mut self, recording: &mut dyn Recording, args: &[*mut u8]) {
        self.counts.replayed.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the contract.
        unsafe { self.stream.replay(recording, args) }
    }
    fn record(&mut self) -> Result<Arc<dyn Event>, RunError> {
        self.stream.record()
    }
    fn wait_for(&mut self, event: &Arc<dyn Event>) {
        self.stream.wait_for(event);
    }
    fn wait(&mut self) -> Result<(), RunError> {
        self.stream.wait()
    }
}

/// A program on two counting devices and the host.
fn executable(text: &str, captures: bool) -> (Executable, [Arc<Counts>; 2]) {
    let (program, kernels) = (program(text), kernels());
    let counts: [Arc<Counts>; 2] = Default::default();
    let devices = DistantDevice::several(&kernels, 2).expect("the kernels are sound");
    let mut devices = devices.into_iter().zip(&counts).map(|(device, counts)| {
        Arc::new(Counting { device, counts: Arc::clone(counts), captures }) as Arc<dyn Device>
    });
    let (first, second) = (devices.next().expect("two"), devices.next().expect("two"));
    let host: Arc<dyn Device> = Arc::new(ReferenceDevice::new(&kernels).expect("the kernels are sound"));
    let others = vec![(graph::Device::Ref(1), second), (graph::Device::Cpu, host)];
    let options = RunOptions { devices: others, ..RunOptions::default() };
    let weights = HashMap::from([("w".to_owned(), tensor(&[1.0; 4]))]);
    let executable = Executable::with_options(&program, &kernels, first, &weights, &options);
    (executable.unwrap_or_else(|error| panic!("{error}")), counts)
}

fn tensor(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).expect("as many values as elements")
}

fn call(executable: &Executable, x: &[f32]) -> Vec<f32> {
    let values = executable.run(&[tensor(x)]).unwrap_or_else(|error| panic!("{error}"));
    values[0].tensor().expect("a tensor").to_vec::<f32>().expect("floats")
}

/// (2x)^2 * 2 + x + 1.
fn expected(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| 8.0 * x * x + x + 1.0).collect()
}

/// PT-1: the numbers are those of one device.
#[test]
fn blocks_around_an_operator_of_the_host_have_the_numbers_of_one_device() {
    for captures in [true, false] {
        let (executable, _) = executable(BLOCKS, captures);
        for x in [[1.0, 2.0, -3.0, 0.5], [0.0, -0.0, 4.0, f32::INFINITY]] {
            assert_eq!(call(&executable, &x), expected(&x));
        }
    }
}

/// Two blocks with an assertion between, on one device; then a copy of what comes out of it to another one.
const ASSERTED: &str = "program @p on ref:0 {
  param x: f32[4]
  alloc a: f32[4]
  alloc y: f32[4]
  launch @double(x, a)
  size u0 = n
  launch @double(a, y)
  return y: f32[4]
}";

fn with_late_size(between: &str) -> String {
    let text = ASSERTED.replace("  param x", "  sym u0 in [0, 4]\n  const n: f32[4] = \"w\"\n  alloc b: f32[4] on ref:1\n  alloc i: i64[1]\n  param x");
    text.replace("  size u0 = n\n", between).replace("  sym u0 in [0, 4]\n", "")
}

/// PT-4: one enter and one exit for each call.
#[test]
fn one_device_is_entered_once_for_all_that_is_on_it() {
    // What is between is on the same device, and not captured: a copy within it.
    let (executable, counts) = executable(&with_late_size("  alloc c: f32[4]\n  copy a -> c\n"), true);
    call(&executable, &[1.0; 4]);
    let [entered, left, _, recorded, replayed] = counts[0].take();
    assert_eq!((entered, left, recorded, replayed), (1, 1, 2, 2));
    call(&executable, &[1.0; 4]);
    // Nothing is launched or captured again.
    assert_eq!(counts[0].take(), [1, 1, 0, 0, 2]);
    assert_eq!(counts[1].take(), [0; 5]);
}

/// PT-4: two regions on one device.
#[test]
fn a_step_on_another_device_ends_the_sharing() {
    let between = "  record event 0\n  wait event 0 on ref:1\n  copy a -> b on ref:1\n";
    let (executable, counts) = executable(&with_late_size(between), true);
    call(&executable, &[1.0; 4]);
    assert_eq!(counts.each_ref().map(|counts| counts.take()), [[2, 2, 2, 2, 2], [1, 1, 0, 0, 0]]);
    call(&executable, &[1.0; 4]);
    // The first launch with the record behind it, the wait and the copy, the last launch.
    assert_eq!(counts[0].take(), [2, 2, 0, 0, 2]);
    assert_eq!(counts[1].take(), [1, 1, 0, 0, 0]);
}

/// PT-4: none is captured, and one is.
#[test]
fn what_is_not_captured_shares_nothing_and_what_is_alone_is_entered_to_be_captured() {
    // The device captures nothing: programs see no difference, and nobody asks it to be entered.
    let (plain, counts) = executable(&with_late_size("  alloc c: f32[4]\n  copy a -> c\n"), false);
    call(&plain, &[1.0; 4]);
    assert_eq!(counts[0].take(), [0, 0, 2, 0, 0]);
    let (alone, counts) = executable(&with_late_size(""), true);
    call(&alone, &[1.0; 4]);
    assert_eq!(counts[0].take(), [1, 1, 2, 1, 1]);
    call(&alone, &[1.0; 4]);
    assert_eq!(counts[0].take(), [0, 0, 0, 0, 1]);
    // Of a program none of whose partitions is captured each run of steps of a device enters it.
    let program = program(&with_late_size("  alloc c: f32[4]\n  copy a -> c\n"));
    let none = |_: graph::Device| false;
    let uncaptured = partitions(&program, &accesses_of(&kernels()), &none);
    assert!(uncaptured.iter().all(|partition| !partition.is_captured()));
    let found = regions(&program, &uncaptured, &captures);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].device, graph::Device::Ref(0));
}

/// Twenty launches in a row.
fn chain() -> String {
    let steps = "  launch @double(x, a)\n".to_owned()
        + &"  launch @square(a)\n".repeat(18)
        + "  launch @double(a, y)\n";
    ASSERTED.replace("  launch @double(x, a)\n  size u0 = n\n  launch @double(a, y)\n", &steps)
}

/// PT-5: recorded once for a thousand calls.
#[test]
fn a_capture_is_replayed_with_the_addresses_of_each_call() {
    let (executable, counts) = executable(&chain(), true);
    // Each call has its own memory for inputs and results: those of earlier calls are kept, and stay as they are.
    let kept = Mutex::new(Vec::new());
    for call in 0..1000 {
        let x = [1.0, 0.5, 0.0, if call % 2 == 0 { -0.5 } else { 0.25 }];
        let values = executable.run(&[tensor(&x)]).unwrap_or_else(|error| panic!("{error}"));
        let found = values[0].tensor().expect("a tensor").to_vec::<f32>().expect("floats");
        let power = |x: f32| (0..18).fold(2.0 * x, |x, _| x * x) * 2.0;
        assert_eq!(found, x.map(power), "call {call}");
        kept.lock().expect("no panic").push(values);
    }
    let [_, _, launches, recorded, replayed] = counts[0].take();
    assert_eq!((recorded, replayed), (1, 1000));
    // A call asks for one thing instead of twenty.
    assert_eq!(launches, 20);
}
