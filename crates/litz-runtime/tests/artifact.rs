//! Checks artifacts on the reference device: programs saved and loaded; damaged, foreign and changed files.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use litz_ir::kernel::Kernel;
use litz_ir::program::Program;
use litz_runtime::Tensor;
use litz_runtime::artifact::{self, Artifact, ArtifactError, Bytes, Machine, Parts};
use litz_runtime::program::{ConstantSource, Executable, RunOptions};
use litz_runtime::reference::{DistantDevice, ReferenceDevice};
use litz_runtime::weights::Weights;

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

const DOUBLE: &str = "kernel @double from n {
  read x: f32[4]
  write y: f32[4]
  grid i in 4
  %0: f32 = load x[i]
  %1: f32 = add %0, %0
  y[i] = %1
}";

/// Keeps a view of a pool; `raw` is of no use after loading, `bias` is.
const PACKED: &str = "program @packed on cpu {
  sym s0 in [0, 100]
  param x: f32[s0, 4]
  const raw: f32[2, 2]{1, 2} = \"raw\"
  const w: f32[4] = \"bias\"
  load {
    alloc t: f32[4]
    launch @double(raw, t)
    alloc pool: u8[128]
    view p: f32[4] = pool + 64
    view unused: f32[4] = pool + 0
    launch @double(t, p)
    free t
  }
  alloc y: f32[4*s0]
  launch @add_row(x, p, y) sizes(s0)
  return y: f32[s0, 4], w: f32[2]{2} + 1
}";

/// Adds to a state at every call.
const COUNTER: &str = "program @counter on cpu {
  param x: f32[1, 4]
  const total: f32[4] = \"total\"
  alloc next: f32[4]
  launch @add_row(x, total, next) sizes(1)
  update total = next
  return next: f32[4]
}";

struct Case {
    program: Program,
    kernels: Vec<Kernel>,
    weights: HashMap<String, Tensor>,
    /// What is saved.
    constants: ConstantSource,
}

impl Case {
    fn new(program: &str) -> Case {
        let program = litz_ir::text::program::parse(program).expect("parses");
        let kernels = [ADD_ROW, DOUBLE].map(|text| litz_ir::text::kernel::parse(text).expect("parses"));
        let raw = tensor(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let bias = tensor(&[4], &[10.0, 20.0, 30.0, 40.0]);
        let weights = [("raw", raw), ("bias", bias.clone()), ("total", bias)];
        let weights = weights.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect();
        Case { program, kernels: kernels.into(), weights, constants: ConstantSource::Folded }
    }

    fn executable(&self) -> Executable {
        executable(&self.program, &self.kernels, &self.weights)
    }

    fn with_parts<R>(&self, machine: &Machine, use_parts: impl FnOnce(&Parts<'_>) -> R) -> R {
        let constants = self.constants;
        use_parts(&Parts {
            compiler: "0.0.7",
            machine,
            program: &self.program,
            kernels: &self.kernels,
            objects: &[],
            inputs: &["x".to_owned()],
            outputs: &["a\nb".to_owned(), String::new()],
            constants,
        })
    }

    /// The bytes of the artifact with the weights that `executable` has.
    fn save(&self, test: &str, executable: &Executable) -> Vec<u8> {
        let path = file(test);
        self.with_parts(&here(), |parts| artifact::write(&path, parts, executable)).expect("writes");
        let bytes = fs::read(&path).expect("it is there");
        fs::remove_file(&path).expect("it is there");
        bytes
    }
}

fn executable(program: &Program, kernels: &[Kernel], weights: &dyn Weights) -> Executable {
    let device = Arc::new(ReferenceDevice::new(kernels).expect("kernels are sound"));
    Executable::new(program, kernels, device, weights).expect("the program is sound")
}

fn reopened(bytes: Vec<u8>) -> Executable {
    let artifact = open(bytes).expect("it is sound");
    executable(artifact.program(), artifact.kernels(), &artifact)
}

fn open(bytes: Vec<u8>) -> Result<Artifact, ArtifactError> {
    Artifact::from_bytes(Arc::new(bytes) as Bytes)
}

fn here() -> Machine {
    Machine::new(&format!("{}-unknown-{}-gnu", std::env::consts::ARCH, std::env::consts::OS), "")
}

fn file(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("litz-artifact-{test}-{}.litzc", std::process::id()))
}

fn tensor(sizes: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(sizes, values).expect("lengths match")
}

fn run(executable: &Executable, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    let outputs = executable.run(inputs).expect("the call is right");
    outputs.iter().map(|output| output.tensor().expect("a tensor").to_vec().expect("of f32")).collect()
}

#[test]
fn with_the_models_constants_they_can_be_given_new_contents() {
    let case = Case { constants: ConstantSource::Model, ..Case::new(PACKED) };
    let direct = case.executable();
    let artifact = open(case.save("updatable", &direct)).expect("it is sound");
    assert_eq!(artifact.constants(), ConstantSource::Model);
    assert_eq!(artifact.program().to_string(), case.program.to_string());
    assert_eq!(artifact.check().map_err(|error| error.to_string()), Ok(()));
    let load = |artifact: &Artifact| {
        let device = Arc::new(ReferenceDevice::new(artifact.kernels()).expect("kernels are sound"));
        let options = RunOptions { constants: artifact.constants(), ..RunOptions::default() };
        Executable::with_options(artifact.program(), artifact.kernels(), device, artifact, &options)
            .expect("the program is sound")
    };
    let (loaded, x) = (load(&artifact), [tensor(&[1, 4], &[0.0; 4])]);
    assert_eq!(run(&loaded, &x), run(&direct, &x));
    loaded.update(&[("raw", &tensor(&[2, 2], &[0.0; 4]))]).expect("it is a constant");
    assert_eq!(run(&loaded, &x)[0], [0.0; 4]);
    // What was updated is what is saved next; packed, it is final.
    let frozen = Case::new(PACKED);
    let frozen = open(frozen.save("frozen", &loaded)).expect("it is sound");
    assert_eq!((frozen.constants(), run(&load(&frozen), &x)), (ConstantSource::Folded, run(&loaded, &x)));
    let path = file("refused");
    let error = case.with_parts(&here(), |parts| artifact::write(&path, parts, &load(&frozen)));
    let error = error.expect_err("its constants are gone").to_string();
    assert!(error.contains("saved without its original constants"), "{error}");
    assert!(!path.exists());
}

#[test]
fn what_was_loaded_is_there_without_load_steps() {
    let case = Case::new(PACKED);
    let direct = case.executable();
    let bytes = case.save("packed", &direct);
    let artifact = open(bytes.clone()).expect("it is sound");
    let text = artifact.program().to_string();
    assert!(!text.contains("launch @double") && !text.contains("raw") && !text.contains("unused"), "{text}");
    assert_eq!(artifact.kernels().iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>(), ["add_row"]);
    assert_eq!(artifact.check().map_err(|error| error.to_string()), Ok(()));
    assert!(litz_ir::verify::program::verify(artifact.program()).is_empty());
    let loaded = reopened(bytes);
    for rows in [0, 1, 3] {
        let x = tensor(&[rows, 4], &vec![0.5; 4 * rows]);
        assert_eq!(run(&loaded, std::slice::from_ref(&x)), run(&direct, &[x]), "{rows} rows");
    }
    // Column-major [1, 3; 2, 4], doubled twice.
    assert_eq!(run(&loaded, &[tensor(&[1, 4], &[0.0; 4])]), [vec![4.0, 12.0, 8.0, 16.0], vec![20.0, 40.0]]);
}

#[test]
fn memory_of_a_device_is_saved_like_the_hosts() {
    let case = Case::new(PACKED);
    let device = Arc::new(DistantDevice::new(&case.kernels).expect("kernels are sound"));
    let distant =
        Executable::new(&case.program, &case.kernels, device, &case.weights).expect("the program is sound");
    assert_eq!(case.save("distant", &distant), case.save("near", &case.executable()));
}

#[test]
fn weights_are_used_where_the_file_is_mapped() {
    let case = Case::new(PACKED);
    let path = file("mapped");
    case.with_parts(&here(), |parts| artifact::write(&path, parts, &case.executable())).expect("writes");
    let artifact = Artifact::open(&path).expect("it is sound");
    for constant in &artifact.program().consts {
        let weight = artifact.get(&constant.name).expect("it is there");
        assert!(weight.bytes().as_ptr().addr().is_multiple_of(64), "{}", constant.name);
        let again = artifact.get(&constant.name).expect("it is there");
        assert!(std::ptr::eq(weight.bytes(), again.bytes()), "{} is a copy", constant.name);
    }
    assert!(artifact.get("raw").is_none());
    let folder = path.parent().expect("it has one");
    let name = path.file_name().expect("it has one").to_string_lossy().into_owned();
    let files = fs::read_dir(folder)
        .expect("readable")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(
        files.filter(|found| found.starts_with(&name)).collect::<Vec<_>>(),
        [name],
        "nothing is left beside it"
    );
    fs::remove_file(&path).expect("it is there");
}

#[test]
fn what_is_said_about_it_comes_back() {
    let case = Case::new(PACKED);
    let machine = Machine { features: vec!["avx2".to_owned(), "fma".to_owned()], ..here() };
    let bytes = case.with_parts(&machine, artifact::to_bytes);
    let artifact = open(bytes).expect("it is sound");
    assert_eq!((artifact.compiler(), artifact.machine()), ("0.0.7", &machine));
    assert_eq!(
        (artifact.inputs(), artifact.outputs()),
        (&["x".to_owned()][..], &["a\nb".to_owned(), String::new()][..])
    );
}

#[test]
fn without_weights_the_program_is_the_original() {
    let case = Case::new(PACKED);
    let artifact = open(case.with_parts(&here(), artifact::to_bytes)).expect("it is sound");
    assert_eq!(artifact.program().to_string(), case.program.to_string());
    assert_eq!(artifact.kernels().len(), 2);
    assert!(artifact.get("bias").is_none());
    let loaded = executable(artifact.program(), artifact.kernels(), &case.weights);
    let x = [tensor(&[1, 4], &[0.0; 4])];
    assert_eq!(run(&loaded, &x), run(&case.executable(), &x));
}

#[test]
fn state_is_saved_as_it_is_at_the_moment() {
    let case = Case::new(COUNTER);
    let direct = case.executable();
    let x = [tensor(&[1, 4], &[1.0; 4])];
    assert_eq!(run(&direct, &x), [[11.0, 21.0, 31.0, 41.0]]);
    let bytes = case.save("state", &direct);
    assert_eq!(run(&direct, &x), [[12.0, 22.0, 32.0, 42.0]]);
    for _ in 0..2 {
        let loaded = reopened(bytes.clone());
        assert_eq!(run(&loaded, &x), [[12.0, 22.0, 32.0, 42.0]]);
        assert_eq!(run(&loaded, &x), [[13.0, 23.0, 33.0, 43.0]], "it is written in memory of its own");
    }
}

#[test]
fn files_cut_off_anywhere_are_refused() {
    let case = Case::new(PACKED);
    let whole = case.save("cut", &case.executable());
    for len in 0..whole.len() {
        let error = open(whole[..len].to_vec()).err().expect("it is cut off");
        match error {
            ArtifactError::NotAnArtifact => assert!(len < 8, "{len}"),
            ArtifactError::Damaged { what } => assert!(what.contains("expected"), "{len}: {what}"),
            other => panic!("{len}: {other}"),
        }
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(matches!(open(longer), Err(ArtifactError::Damaged { .. })));
}

#[test]
fn flipped_bits_are_found() {
    let case = Case::new(PACKED);
    let whole = case.save("flipped", &case.executable());
    let mut harmless = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        // Weights are looked at when asked to; bytes between sections mean nothing.
        match open(damaged).and_then(|artifact| artifact.check()) {
            Ok(()) => harmless += 1,
            Err(ArtifactError::NotAnArtifact) => assert!(at < 8, "{at}"),
            Err(ArtifactError::Version { .. }) => assert!((8..12).contains(&at), "{at}"),
            Err(ArtifactError::Damaged { .. }) => {}
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    let sections = 2 + 1 + 2;
    assert!(harmless < 64 * sections, "{harmless} of {} bytes", whole.len());
}

#[test]
fn another_version_is_refused_by_name() {
    let case = Case::new(PACKED);
    let mut bytes = case.with_parts(&here(), artifact::to_bytes);
    bytes[8..12].copy_from_slice(&77u32.to_le_bytes());
    let error = open(bytes).err().expect("it is of another version").to_string();
    assert_eq!(error, "expected version 1 of compiled programs, found version 77: compile the model again");
    let error = open(b"PK\x03\x04 and so on, a zip archive".to_vec()).err().expect("it is no artifact");
    assert_eq!(error.to_string(), "expected a compiled program, found a file of another kind");
}

#[test]
fn code_for_other_machines_is_not_loaded() {
    let case = Case::new(PACKED);
    let error_for = |machine: Machine| {
        let artifact = open(case.with_parts(&machine, artifact::to_bytes)).expect("it is sound");
        artifact.executable(1).err().expect("the code cannot run here").to_string()
    };
    let lacking = Machine { features: vec!["x87-turbo".to_owned()], ..here() };
    assert_eq!(error_for(lacking), "the code needs a CPU with x87-turbo, which this one lacks");
    let foreign = Machine { triple: "riscv64-unknown-linux-gnu".to_owned(), ..here() };
    assert!(error_for(foreign).starts_with("the code is for riscv64-unknown-linux-gnu, found "));
    assert_eq!(error_for(here()), "bug in kernel @add_row: it has no native code");
}

#[test]
fn one_artifact_serves_several_threads() {
    let case = Case::new(PACKED);
    let artifact = open(case.save("threads", &case.executable())).expect("it is sound");
    let shared = executable(artifact.program(), artifact.kernels(), &artifact);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (artifact, shared) = (&artifact, &shared);
            scope.spawn(move || {
                let own = executable(artifact.program(), artifact.kernels(), artifact);
                for rows in 1..20 {
                    let x = [tensor(&[rows, 4], &vec![thread as f32; 4 * rows])];
                    assert_eq!(run(shared, &x), run(&own, &x));
                }
            });
        }
    });
}

#[test]
fn an_unwritable_place_is_an_error_with_its_name() {
    let case = Case::new(PACKED);
    let path = std::env::temp_dir().join("litz-no-such-folder").join("model.litzc");
    let error = case.with_parts(&here(), |parts| artifact::write(&path, parts, &case.executable()));
    let error = error.expect_err("there is no such folder").to_string();
    assert!(error.contains("litz-no-such-folder/model.litzc: "), "{error}");
    assert!(Artifact::open(&path).err().expect("it was not written").to_string().contains("model.litzc: "));
}
