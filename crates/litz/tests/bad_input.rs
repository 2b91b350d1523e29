//! Checks that damaged models and wrong calls give an error that names the thing, soon and in little memory.

#![allow(missing_docs, reason = "a test")]

#[path = "../../litz-import/tests/common/mod.rs"]
mod common;

use common::{Parts, Zip, bytes, path};
use litz::{Compiled, Error, Model, Options, Runner, Stage, Tensor, Text, Verify, pipeline};
use litz_ir::Dtype;
use litz_runtime::RunError;
use litz_runtime::program::{Executable, Value};
use litz_runtime::reference::ReferenceDevice;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MODEL: &str = "models/model.json";
const WEIGHTS: &str = "data/weights/model_weights_config.json";

/// Most memory that this process, all tests of this file together, may ever use, in KiB.
const MAX_MEMORY: usize = 200 << 10;

/// Most time that one damaged model may take.
const MAX_TIME: Duration = Duration::from_secs(1);

fn options() -> Options {
    Options { reference: true, threads: 1, ..Options::default() }
}

/// Largest memory this process ever used, in KiB, where the system says so.
fn peak_memory() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// The stable name of an error, whoever found it.
fn slug(error: &Error) -> &'static str {
    match error {
        Error::Import(error) => error.slug(),
        Error::Unsupported(diags) | Error::Invalid(diags) => diags[0].slug,
        Error::Run(RunError::MissingWeight { .. }) => "missing-weight",
        Error::Run(RunError::WrongWeight { .. }) => "wrong-weight",
        Error::Run(RunError::OutOfMemory(_)) => "out-of-memory",
        Error::Io { .. } => "io",
        Error::Limit(_) => "limit",
        Error::Run(_) | Error::Cache(_) | Error::Artifact(_) | Error::Stopped | Error::Bug { .. } => "other",
    }
}

/// Opens and compiles; expects the error `expected`, whose message has `named` in it.
fn refuses(what: &str, archive: Vec<u8>, expected: &str, named: &str) {
    let start = Instant::now();
    let outcome =
        Model::from_bytes(Arc::new(archive)).and_then(|model| model.compile(&options()).map(|_| ()));
    let took = start.elapsed();
    let Err(error) = outcome else { panic!("{what}: nothing was wrong") };
    let message = error.to_string();
    assert_eq!(slug(&error), expected, "{what}: {message}");
    assert!(message.contains(named), "{what}: expected {named} in: {message}");
    assert!(message.len() < 1000, "{what}: {} bytes of message", message.len());
    assert!(took < MAX_TIME, "{what}: {took:?}");
    assert!(peak_memory().is_none_or(|kib| kib < MAX_MEMORY), "{what}: {:?} KiB", peak_memory());
}

/// Archive, entry, text in it, what takes its place, the error, and what its message names.
#[rustfmt::skip]
const EDITS: &[(&str, &str, &str, &str, &str, &str)] = &[
    // Versions and formats.
    ("mlp", "archive_format", "pt2", "pt1", "bad-format", "archive_format"),
    ("mlp", "archive_version", "0", "7", "bad-format", "found `7`"),
    ("mlp", "byteorder", "little", "big", "bad-format", "byteorder"),
    ("mlp", MODEL, r#""major": 8"#, r#""major": 9"#, "schema-version", "9.20"),
    // Text that is no JSON, or not of the schema.
    ("mlp", MODEL, r#"{"graph_module""#, r#"["graph_module""#, "bad-json", "line 1, column 15"),
    ("mlp", MODEL, r#""nodes": ["#, r#""nodes": [7, "#, "bad-json", MODEL),
    ("mlp", MODEL, r#""torch_version": "2.15.0+cu132""#, r#""torch_version": "2.15.0+cu132, "guards"#, "bad-json", MODEL),
    ("mlp", WEIGHTS, r#""is_param": true"#, r#""is_param": 17"#, "bad-json", WEIGHTS),
    // Operators.
    ("mlp", MODEL, "torch.ops.aten.gelu.default", "torch.ops.mine.secret.default", "unknown-op", "mine.secret.default"),
    ("mlp", MODEL, "torch.ops.aten.gelu.default", "torch.ops.aten.gelu.out", "unknown-op", "aten.gelu.out"),
    ("mlp", MODEL, r#"{"name": "self", "arg""#, r#"{"name": "other", "arg""#, "bad-program", "`other`"),
    // Names.
    ("mlp", MODEL, r#""outputs": [{"as_tensor": {"name": "linear_1"}}], "nodes""#, r#""outputs": [{"as_tensor": {"name": "nobody"}}], "nodes""#, "bad-program", "nobody"),
    ("mlp", MODEL, r#""tensor_values": {"p_fc1_weight""#, r#""tensor_values": {"p_fc9_weight""#, "bad-program", "p_fc1_weight"),
    ("mlp", MODEL, r#""parameter_name": "fc2.bias""#, r#""parameter_name": "fc7.bias""#, "bad-weight", "fc7.bias"),
    ("mlp", WEIGHTS, r#""fc2.bias": {"path_name""#, r#""fc2.gone": {"path_name""#, "bad-weight", "fc2.bias"),
    ("mlp", WEIGHTS, r#""path_name": "weight_3""#, r#""path_name": "../../etc/passwd""#, "missing-entry", "etc/passwd"),
    ("mlp", WEIGHTS, r#""use_pickle": false"#, r#""use_pickle": true"#, "pickled-weight", "fc1.weight"),
    // Types.
    ("mlp", MODEL, r#""x": {"dtype": 7"#, r#""x": {"dtype": 77"#, "unsupported-type", "`x`"),
    ("mlp", MODEL, r#""p_fc2_bias": {"dtype": 7"#, r#""p_fc2_bias": {"dtype": 8"#, "bad-weight", "fc2.bias"),
    ("mlp", WEIGHTS, r#""fc1.bias": {"path_name": "weight_1", "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 7"#,
        r#""fc1.bias": {"path_name": "weight_1", "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 5"#, "bad-weight", "fc1.bias"),
    // Devices.
    ("mlp", MODEL, r#""x": {"dtype": 7, "sizes": [{"as_int": 3}, {"as_int": 8}], "requires_grad": false, "device": {"type": "cpu", "index": null}"#,
        r#""x": {"dtype": 7, "sizes": [{"as_int": 3}, {"as_int": 8}], "requires_grad": false, "device": {"type": "cuda", "index": 1}"#, "device", "cuda:1 and cpu"),
    ("mlp", MODEL, r#""device": {"type": "cpu", "index": null}"#, r#""device": {"type": "xpu", "index": null}"#, "unsupported-type", "device xpu"),
    // Sizes.
    ("mlp", MODEL, r#""gelu": {"dtype": 7, "sizes": [{"as_int": 3}"#, r#""gelu": {"dtype": 7, "sizes": [{"as_int": -3}"#, "bad-program", "gelu"),
    ("mlp", WEIGHTS, r#"{"as_int": 4}, {"as_int": 8}"#, r#"{"as_int": 4294967296}, {"as_int": 4294967296}"#, "bad-weight", "fc1.weight"),
    ("mlp", WEIGHTS, r#""storage_offset": {"as_int": 0}"#, r#""storage_offset": {"as_int": 999999999999}"#, "bad-weight", "fc1.weight"),
    // Assertions about what the file itself says.
    ("dtypes", MODEL, r#""as_scalar_type": 7}, "kind": 2}"#, r#""as_scalar_type": 8}, "kind": 2}"#, "invalid-operator", "_assert_tensor_metadata"),
    ("dtypes", MODEL, r#""as_device": {"type": "cpu", "index": null}"#, r#""as_device": {"type": "cuda", "index": 0}"#, "invalid-operator", "cuda:0"),
    ("dtypes", MODEL, r#""name": "dtype", "arg": {"as_scalar_type": 7}"#, r#""name": "stride", "arg": {"as_ints": [77]}"#, "bad-program", "strides"),
    // Symbols.
    ("dynamic", MODEL, r#""max_val": 64"#, r#""max_val": 1"#, "bad-program", "s77"),
];

#[test]
fn damaged_entries_are_named() {
    for (name, entry, from, to, expected, named) in EDITS {
        let archive = Parts::of("2.15", name).replace(entry, from, to).zip();
        refuses(&format!("{name}: {from} => {to}"), archive, expected, named);
    }
}

#[test]
fn operands_that_contradict_each_other_are_refused_by_every_command() {
    let nodes = [
        (
            r#""torch.ops.aten.index_put.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "b_k"}}, "kind": 1}, {"name": "indices", "arg": {"as_tensors": [{"name": "pos"}]}, "kind": 1}, {"name": "values", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}]"#,
            r#""torch.ops.aten.select_scatter.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "b_k"}}, "kind": 1}, {"name": "src", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, {"name": "dim", "arg": {"as_int": 0}, "kind": 1}, {"name": "index", "arg": {"as_int": 1}, "kind": 1}]"#,
        ),
        (
            r#""x": {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 2}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 2}, {"as_int": 1}]"#,
            r#""x": {"dtype": 7, "sizes": [{"as_int": 40}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}]"#,
        ),
        (
            r#""mul": {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 2}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 2}, {"as_int": 1}]"#,
            r#""mul": {"dtype": 7, "sizes": [{"as_int": 40}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}]"#,
        ),
    ];
    let parts = Parts::of("2.15", "cache_core");
    let archive = nodes.iter().fold(parts, |parts, (from, to)| parts.replace(MODEL, from, to)).zip();
    refuses("a slice larger than its place", archive.clone(), "invalid-operator", "select_scatter");
    let path = std::env::temp_dir().join(format!("litz-contradiction-{}.pt2", std::process::id()));
    std::fs::write(&path, archive).expect("written");
    for command in ["inspect", "run", "compile"] {
        let mut litz = std::process::Command::new(env!("CARGO_BIN_EXE_litz"));
        let output = litz.arg(command).arg(&path).env("LITZ_CACHE_DIR", "").output().expect("litz starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{command}: {said}");
        for named in ["aten.select_scatter.default", "[40]", "[2]"] {
            assert!(said.contains(named), "{command}: expected {named} in: {said}");
        }
    }
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn containers_that_are_cut_or_changed_are_refused() {
    let whole = bytes("2.15", "mlp");
    for at in [0, 1, 4, 30, 100, 1000, whole.len() / 2, whole.len() - 23, whole.len() - 1] {
        refuses(&format!("the first {at} bytes"), whole[..at].to_vec(), "bad-archive", "bad archive");
    }
    let mlp = || Parts::of("2.15", "mlp");
    refuses("no archive", b"PyTorch".repeat(100), "bad-archive", "expected a zip");
    refuses("a program that is missing", mlp().remove(MODEL).zip(), "no-model", "expected a program");
    refuses(
        "a weight that is missing",
        mlp().remove("data/weights/weight_2").zip(),
        "missing-entry",
        "fc2.weight",
    );
    refuses(
        "a format that is missing",
        mlp().remove("archive_format").zip(),
        "missing-entry",
        "archive_format",
    );
    let mut parts = mlp();
    parts.get(MODEL)[2] = 0xff;
    refuses("text of other bytes", parts.zip(), "not-utf8", MODEL);
    let mut parts = mlp();
    parts.get(MODEL).truncate(2000);
    refuses("half a program", parts.zip(), "bad-json", MODEL);
    let mut parts = mlp();
    parts.get("data/weights/weight_0").pop();
    refuses("a weight cut short", parts.zip(), "bad-weight", "fc1.weight");
    let mut parts = mlp();
    parts.0.push(("models/other.json".to_owned(), Vec::new()));
    refuses("two programs", parts.zip(), "several-models", "model, other");
    let mut parts = mlp();
    parts.0.push((MODEL.to_owned(), b"{}".to_vec()));
    refuses("a program twice", parts.zip(), "duplicate-entry", "two of one name");
    let mut parts = mlp();
    *parts.get(MODEL) = b"[".repeat(4 << 20);
    refuses("brackets inside of brackets", parts.zip(), "bad-json", MODEL);
    let mut damaged = whole.clone();
    let at = whole.windows(9).position(|window| window == b"aten.gelu").expect("the operator");
    damaged[at] ^= 1;
    refuses("one other bit", damaged, "bad-checksum", MODEL);
    let mut zip = Zip::default();
    zip.add(b"model/data.pkl", b"\x80\x02.");
    refuses("a pickle", zip.finish(), "old-format", "torch.save");
}

#[test]
fn compressed_archives_are_refused() {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for (name, contents) in &Parts::of("2.15", "mlp").0 {
        zip.start_file(format!("mlp/{name}"), stored).expect("starts");
        zip.write_all(contents).expect("writes");
    }
    let archive = zip.finish().expect("finishes").into_inner();
    refuses("deflated entries", archive, "compressed-entry", "compression method Deflated");
}

/// A weight of which the file says that it is huge, and of which it has no bytes: zeros stand for those of a file
/// without weights.
#[test]
fn huge_weights_without_bytes_are_refused() {
    let huge = r#""sizes": [{"as_int": 4294967296}, {"as_int": 8}]"#;
    let small = r#""sizes": [{"as_int": 4}, {"as_int": 8}]"#;
    let mut parts = Parts::of("2.15", "mlp").replace(WEIGHTS, small, huge).replace(MODEL, small, huge);
    parts.get("data/weights/weight_0").clear();
    refuses("a huge weight", parts.zip(), "invalid-operator", "aten.linear.default");
}

/// Indices come from types: an input that its operator cannot take must not get as far as a kernel.
#[test]
fn inputs_that_operators_cannot_take_are_refused() {
    let fits = r#""sizes": [{"as_int": 3}, {"as_int": 8}]"#;
    let longer = r#""sizes": [{"as_int": 3}, {"as_int": 9}]"#;
    let parts = Parts::of("2.15", "mlp").replace(MODEL, fits, longer);
    refuses("an input of nine columns", parts.zip(), "invalid-operator", "aten.linear.default");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = Model::open("no/such/file.pt2").map(|_| ()).expect_err("no file");
    assert!(matches!(&missing, Error::Io { path, .. } if path.ends_with("file.pt2")), "{missing}");
    assert!(missing.to_string().contains("no/such/file.pt2"), "{missing}");
    let folder = Model::open(env!("CARGO_MANIFEST_DIR")).map(|_| ()).expect_err("a folder");
    assert!(folder.to_string().contains("is a directory"), "{folder}");
}

fn digits() -> Compiled {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.pt2");
    Model::open(file).and_then(|model| model.compile(&options())).expect("a good model")
}

fn golden(name: &str) -> Compiled {
    Model::open(path("2.15", name)).and_then(|model| model.compile(&options())).expect("a good model")
}

fn zeros(dtype: Dtype, sizes: &[usize]) -> Tensor {
    let mut strides = vec![1; sizes.len()];
    for d in (1..sizes.len()).rev() {
        strides[d - 1] = strides[d] * sizes[d].max(1);
    }
    Tensor::zeros(dtype, sizes, &strides).expect("small")
}

fn f32s(sizes: &[usize]) -> Tensor {
    zeros(Dtype::F32, sizes)
}

/// Expects this message of a call.
fn says(result: Result<Vec<Value>, Error>, expected: &str) {
    match result {
        Err(Error::Run(error)) => assert_eq!(error.to_string(), expected),
        Err(error) => panic!("expected {expected}, found {error}"),
        Ok(_) => panic!("expected {expected}, found results"),
    }
}

#[test]
fn calls_that_do_not_fit_are_told_what_does() {
    let model = digits();
    let wrong: [(&[Tensor], &str); 12] = [
        (&[], "number of inputs: expected 1, found 0"),
        (&[f32s(&[1, 1, 8, 8]), f32s(&[1])], "number of inputs: expected 1, found 2"),
        (&[zeros(Dtype::F64, &[1, 1, 8, 8])], "input `input`: expected f32, found f64"),
        (&[zeros(Dtype::I32, &[1, 1, 8, 8])], "input `input`: expected f32, found i32"),
        (&[zeros(Dtype::Bool, &[2])], "input `input`: expected f32, found bool"),
        (&[f32s(&[1, 8, 8])], "input `input`: expected 4 dimensions, found 3"),
        (&[f32s(&[])], "input `input`: expected 4 dimensions, found 0"),
        (&[f32s(&[1, 3, 8, 8])], "input `input`, dimension 1: expected size 1, found 3"),
        (&[f32s(&[1, 1, 8, 9])], "input `input`, dimension 3: expected size 8, found 9"),
        (&[f32s(&[1, 1, 0, 8])], "input `input`, dimension 2: expected size 8, found 0"),
        (&[f32s(&[65, 1, 8, 8])], "input `input`, dimension 0: expected s31 in [1, 64], found 65"),
        (&[f32s(&[0, 1, 8, 8])], "input `input`, dimension 0: expected s31 in [1, 64], found 0"),
    ];
    for (inputs, expected) in wrong {
        says(model.run(inputs), expected);
    }
    // Neighbours that are one element say how large a tensor is, not how much memory it has.
    let endless = Tensor::zeros(Dtype::F32, &[1 << 40, 1, 8, 8], &[0, 0, 0, 0]).expect("one element");
    says(model.run(&[endless]), "input `input`, dimension 0: expected s31 in [1, 64], found 1099511627776");
    // No wrong call harms those that follow.
    assert_eq!(model.run(&[f32s(&[2, 1, 8, 8])]).expect("fits").len(), 1);
}

#[test]
fn layouts_of_inputs_are_free() {
    let model = digits();
    let values: Vec<f32> = (0..128).map(|at| (at * 37 % 128) as f32 / 128.0).collect();
    let turned: Vec<f32> = (0..128).map(|at| values[at / 64 * 64 + at % 8 * 8 + at % 64 / 8]).collect();
    let plain = Tensor::from_slice(&[2, 1, 8, 8], &values).expect("fits");
    let bytes: Vec<u8> = turned.iter().flat_map(|value| value.to_le_bytes()).collect();
    let turned =
        Tensor::from_shared(Dtype::F32, &[2, 1, 8, 8], &[64, 64, 1, 8], Arc::new(bytes), 0).expect("fits");
    assert!(!turned.is_contiguous());
    let results =
        [plain, turned].map(|input| model.run(&[input]).expect("fits")[0].tensor().map(Tensor::to_f64));
    assert_eq!(results[0], results[1]);
    assert!(results[0].as_ref().is_some_and(|logits| logits.len() == 20));
}

#[test]
fn models_with_fixed_sizes_and_other_types_say_so() {
    let mlp = golden("mlp");
    says(mlp.run(&[f32s(&[4, 8])]), "input `x`, dimension 0: expected size 3, found 4");
    says(mlp.run(&[f32s(&[8, 3])]), "input `x`, dimension 0: expected size 3, found 8");
    says(mlp.run(&[zeros(Dtype::BF16, &[3, 8])]), "input `x`: expected f32, found bf16");
    let half = golden("mlp_bf16");
    says(half.run(&[zeros(Dtype::F16, &[3, 8])]), "input `x`: expected bf16, found f16");
    // Exported with a size that its own arithmetic fixed.
    let fixed = golden("specialised");
    assert_eq!(fixed.run(&[f32s(&[6])]).expect("fits").len(), 1);
    let Err(Error::Run(RunError::CheckFailed { sides, .. })) = fixed.run(&[f32s(&[5])]) else {
        panic!("expected a failed check")
    };
    assert_eq!(sides, [[7, 9]]);
}

#[test]
fn positions_that_a_model_writes_to_are_checked() {
    let cache = golden("cache");
    let at = |positions: [i64; 2]| [Tensor::from_slice(&[2], &positions).expect("fits"), f32s(&[2, 2])];
    assert!(cache.run(&at([0, 3])).is_ok());
    for positions in [[0, 4], [-5, 1], [i64::MAX, 0], [0, i64::MIN]] {
        let outcome = cache.run(&at(positions));
        assert!(
            matches!(outcome, Err(Error::Run(RunError::BadIndex { .. }))),
            "{positions:?}: {:?}",
            outcome.err()
        );
    }
    assert!(cache.run(&at([1, 2])).is_ok());
}

/// A graph, compiled for the reference device.
fn graph(source: &str) -> Executable {
    let graph = match Text::parse(source) {
        Ok(Text::Graph(graph)) => graph,
        Ok(_) => panic!("expected a graph"),
        Err(error) => panic!("{error}"),
    };
    let options = options();
    let backend = litz::backend(&options).expect("there is a backend");
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(Verify::Passes, None, &mut quiet);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut run).expect("compiles");
    let realized = texts.realized.expect("went to the end");
    let device = Arc::new(ReferenceDevice::new(&realized.kernels).expect("sound kernels"));
    let weights: HashMap<String, Tensor> = HashMap::new();
    Executable::new(&realized.program, &realized.kernels, device, &weights).expect("no weights")
}

#[test]
fn sizes_that_belong_together_are_compared() {
    let model = graph(
        "graph @pair on cpu {
  sym s0 in [0, 64] multiple 2
  %x: f32[s0, 3] = input
  %y: f32[s0, 3] = input
  %z: f32[2*s0] = input
  %v: f32[s0, 3] = aten.add.Tensor(%x, %y, 1)
  return %v, %z
}
",
    );
    let call = |x: usize, y: usize, z: usize| {
        model.run(&[f32s(&[x, 3]), f32s(&[y, 3]), f32s(&[z])]).map_err(Error::from)
    };
    assert_eq!(call(4, 4, 8).expect("fits").len(), 2);
    let empty = call(0, 0, 0).expect("no rows are rows");
    assert_eq!(empty[0].tensor().map(Tensor::sizes), Some([0, 3].as_slice()));
    says(call(4, 6, 8), "input `y`, dimension 0: expected size s0, which is 4, found 6");
    says(call(4, 4, 6), "input `z`, dimension 0: expected size 2*s0, which is 8, found 6");
    says(call(66, 66, 132), "input `x`, dimension 0: expected s0 in [0, 64], found 66");
    let Err(Error::Run(RunError::CheckFailed { condition, sides, .. })) = call(3, 3, 6) else {
        panic!("expected a failed check")
    };
    assert_eq!((&*condition, &*sides), ("mod(s0, 2) == 0", &[[1, 0]][..]));
}

#[test]
fn guards_with_alternatives_ask_for_one() {
    let model = graph(
        "graph @either on cpu {
  sym s0 in [2, 64]
  sym s1 in [0, 64]
  guard s1 == 1 or s1 == s0 for \"model.py:7\"
  %x: f32[s0] = input
  %y: f32[s1] = input
  %z: f32[s0] = aten.neg.default(%x)
  %w: f32[s1] = aten.neg.default(%y)
  return %z, %w
}
",
    );
    let call = |x: usize, y: usize| model.run(&[f32s(&[x]), f32s(&[y])]).map_err(Error::from);
    for (x, y) in [(3, 1), (3, 3), (2, 2)] {
        assert_eq!(call(x, y).expect("one side holds").len(), 2);
    }
    let failed = "expected s1 == 1 or s1 == s0 (asked for by model.py:7), found 2 and 1, 2 and 3";
    says(call(3, 2), failed);
    assert!(call(3, 0).is_err());
}

#[test]
fn indices_out_of_range_are_errors_of_the_call() {
    let model = graph(
        "graph @look on cpu {
  sym s0 in [0, 64]
  %w: f32[10, 4] = input
  %i: i64[s0] = input
  %v: f32[s0, 4] = aten.embedding.default(%w, %i, -1, false, false)
  return %v
}
",
    );
    let call = |indices: &[i64]| {
        model.run(&[f32s(&[10, 4]), Tensor::from_slice(&[indices.len()], indices).expect("fits")])
    };
    assert!(call(&[0, 9, 5]).is_ok());
    assert!(call(&[]).is_ok());
    for indices in [&[10_i64][..], &[3, -1], &[i64::MIN], &[0, 1, 2, i64::MAX]] {
        let outcome = call(indices);
        let Err(RunError::BadIndex { check, .. }) = &outcome else {
            panic!("{indices:?}: {:?}", outcome.err())
        };
        assert!(check.contains("index of v is out of range"), "{check}");
    }
    assert!(call(&[9]).is_ok());
}
