//! A backend is its own code and one line: a toy that is not in the table of backends compiles, caches, saves and runs
//! models through the public interface, and gives what the reference device gives.

#[path = "toy/backend.rs"]
mod backend;
#[path = "toy/device.rs"]
mod device;

use backend::TOY;
use litz::tensors;
use litz::{Compiled, Error, Model, Options, Runner, Stage, Tensor, Text, Value, Verify, contract, pipeline};
use litz_ir::Dtype;
use litz_ir::graph::{Graph, TensorType, Type};
use litz_runtime::artifact::{Artifact, ArtifactError};
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn options() -> Options {
    Options { threads: 2, backend: &TOY, ..Options::default() }
}

fn digits() -> Model {
    Model::open(root().join("examples/digits.pt2")).expect("it is a model")
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

/// A tensor of a type, with the hints as sizes; `None` where one has no hint.
fn input(ty: &TensorType, hint: impl Fn(litz_sym::Sym) -> Option<i64>) -> Option<Tensor> {
    let sizes = ty.sizes.iter().map(|size| usize::try_from(size.eval(&hint)?).ok());
    let sizes = sizes.collect::<Option<Vec<usize>>>()?;
    let count = sizes.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|at| (at % 17) as f32 / 16.0).collect();
    match ty.dtype {
        Dtype::F32 => Tensor::from_slice(&sizes, &values).ok(),
        dtype => Tensor::from_bytes(dtype, &sizes, &vec![0; count * dtype.size()]).ok(),
    }
}

fn tensors_of(values: &[Value]) -> Vec<Option<Vec<u8>>> {
    values.iter().map(|value| value.tensor().map(|tensor| tensor.bytes().to_vec())).collect()
}

#[test]
fn the_toy_reads_digits_as_pytorch_does() {
    let data = tensors::read(&root().join("examples/digits.safetensors")).expect("the file is there");
    let compiled = digits().compile(&Options { profile: true, ..options() }).expect("it compiles");
    assert!(compiled.timings.iter().any(|timing| timing.name == "single_points"));
    for _ in 0..2 {
        let outputs = compiled.run(std::slice::from_ref(&data["images"])).expect("the images fit");
        let verdict = contract::compare(outputs[0].tensor().expect("a tensor"), (&data["logits"]).into());
        assert_eq!(verdict.broken, None, "{verdict:?}");
    }
    // By the events of its streams, each launch takes as long as its thread sleeps, at least.
    let launches = compiled.profile.expect("it was asked for").take();
    assert!(!launches.kernels.is_empty());
    assert!(launches.kernels.values().all(|found| found.count >= 1 && found.shortest >= device::DELAY));
}

#[test]
fn exported_models_give_what_the_reference_device_gives() {
    let mut compared = 0;
    for path in files("crates/litz-import/tests/golden/2.15", "pt2") {
        let Ok(model) = Model::open(&path) else { continue };
        let facts = &model.imported.graph.facts;
        let inputs = model.inputs().into_iter().map(|(_, ty)| input(&ty, |sym| facts.hint_of(sym)));
        let Some(inputs) = inputs.collect::<Option<Vec<Tensor>>>() else { continue };
        let run = |compiled: Compiled| compiled.run(&inputs).map(|values| tensors_of(&values));
        let found = match model.compile(&options()) {
            Err(Error::Unsupported(_)) => continue,
            compiled => run(compiled.unwrap_or_else(|error| panic!("{}: {error}", path.display()))),
        };
        let reference = model.compile(&Options { reference: true, ..options() }).expect("it compiles");
        match (found, run(reference)) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{}", path.display()),
            (Err(found), Err(expected)) => assert_eq!(found.to_string(), expected.to_string()),
            (found, expected) => panic!("{}: {found:?}, expected {expected:?}", path.display()),
        }
        compared += 1;
    }
    assert!(compared >= 8, "only {compared} models were compared");
}

#[test]
fn file_tests_give_what_the_reference_device_gives() {
    let mut compared = 0;
    for folder in ["pointwise", "reduce", "product", "attention", "index", "join"] {
        for path in files(&format!("filetests/run/{folder}"), "litz") {
            let text = std::fs::read_to_string(&path).expect("it can be read");
            let Ok(Text::Graph(graph)) = Text::parse(&text) else { continue };
            let Some(inputs) = inputs_of(&graph) else { continue };
            compare(&path, graph, &inputs);
            compared += 1;
        }
    }
    assert!(compared >= 15, "only {compared} graphs were compared");
}

/// Inputs of a graph that has no constants.
fn inputs_of(graph: &Graph) -> Option<Vec<Tensor>> {
    let tensor = |value: &litz_ir::graph::Value| match &graph.values[*value].ty {
        Type::Tensor(ty) => input(ty, |sym| graph.facts.hint_of(sym)),
        Type::Int(_) | Type::Float | Type::Bool => None,
    };
    graph.inputs.iter().map(tensor).collect::<Option<Vec<_>>>().filter(|_| graph.consts.is_empty())
}

fn compare(path: &Path, graph: Graph, inputs: &[Tensor]) {
    let options = options();
    let backend = litz::backend(&options).expect("there is a backend");
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(Verify::Passes, None, &mut quiet);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut run);
    let texts = texts.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let realized = texts.realized.expect("it went to the end");
    let objects = litz::compile_kernels(&*backend, &realized.kernels, &options, None).expect("it assembles");
    let toy = backend.load(&realized.kernels, &objects, &|| unreachable!("it has a thread of its own"));
    let reference = Arc::new(ReferenceDevice::new(&realized.kernels).expect("sound kernels"));
    let [found, expected] = [toy.expect("it loads"), reference].map(|device| {
        let executable = Executable::new(&realized.program, &realized.kernels, device, &HashMap::new());
        let executable = executable.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // The second call finds the memory that the first one left.
        let calls = [executable.run(inputs), executable.run(inputs)];
        calls.map(|call| call.map(|values| tensors_of(&values)).map_err(|error| error.to_string()))
    });
    assert_eq!(found, expected, "{}", path.display());
}

#[test]
fn code_of_the_toy_is_cached_and_saved_as_its_own() {
    let folder = std::env::temp_dir().join(format!("litz-toy-{}", std::process::id()));
    let cached = Options { cache: Some(folder.join("cache")), verify: Verify::Nothing, ..options() };
    let was_scheduled = |compiled: &Compiled| compiled.timings.iter().any(|timing| timing.name == "schedule");
    let first = digits().compile(&cached).expect("it compiles");
    let second = digits().compile(&cached).expect("it compiles");
    assert!(was_scheduled(&first) && !was_scheduled(&second));
    // The target that it has anyway may be named. Another backend with the same target finds nothing of it.
    let target = "cpu(isa=sse2, threads=1)".parse().expect("a target");
    let toy = Options { target: Some(target), ..cached.clone() };
    let cpu = Options { backend: litz::BACKENDS[0], ..toy.clone() };
    let compiled = digits().compile(&toy).expect("it compiles");
    assert!(!was_scheduled(&compiled));
    if cfg!(target_arch = "x86_64") {
        assert!(was_scheduled(&digits().compile(&cpu).expect("it compiles")));
    }
    let path = folder.join("digits.litzc");
    second.save(&path).expect("writes");
    let artifact = Artifact::open(&path).expect("it is sound");
    let refused = artifact.executable(1).err();
    assert!(matches!(refused, Some(ArtifactError::WrongMachine { .. })), "{refused:?}");
    let objects: Vec<Vec<u8>> = artifact.objects().expect("sound").into_iter().map(<[u8]>::to_vec).collect();
    let backend = litz::backend(&options()).expect("there is a backend");
    let device = backend.load(artifact.kernels(), &objects, &|| unreachable!()).expect("it loads");
    let executable = Executable::new(artifact.program(), artifact.kernels(), device, &artifact);
    let images = tensors::read(&root().join("examples/digits.safetensors")).expect("the file is there");
    let images = std::slice::from_ref(&images["images"]);
    let loaded = executable.expect("it is sound").run(images).expect("the images fit");
    assert_eq!(tensors_of(&loaded), tensors_of(&first.run(images).expect("the images fit")));
    std::fs::remove_dir_all(&folder).expect("removable");
}
