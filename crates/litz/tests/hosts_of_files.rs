//! Runs models of files with operators of a host; `foreign/make.py` and `make_kernels.py` write them, and the numbers that PyTorch gives.

mod toy_host;

use litz::{Error, Fallback, Model, Options, Runner, Stage, Tensor, Value, Verify};
use litz_import::ImportError;
use litz_ir::loops::Loops;
use std::path::{Path, PathBuf};
use std::process::Command;
use toy_host::Toy;
use toy_host::compiled::{copies, options};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(name).with_extension("pt2")
}

fn input() -> Tensor {
    let values: Vec<f32> = (0..12u8).map(|value| f32::from(value) - 5.0).collect();
    Tensor::from_slice(&[3, 4], &values).expect("12 elements")
}

/// What PyTorch gives for a model.
fn expected(name: &str) -> Vec<f64> {
    let results = [include_str!("foreign/results.txt"), include_str!("foreign/kernels.txt")].concat();
    let line = results.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a result");
    line.split(' ').map(|value| value.parse().expect("a number")).collect()
}

/// Runs a model of a file with operators decomposed, and of one without, natively and on the reference device; what the host
/// was asked for in each call.
#[track_caller]
fn check(name: &str) -> Vec<Vec<String>> {
    check_files(name, &[name.to_owned(), format!("{name}_raw")])
}

#[track_caller]
fn check_files(name: &str, files: &[String]) -> Vec<Vec<String>> {
    let mut asked = Vec::new();
    for file in files {
        for reference in [false, true] {
            let toy = Toy::new();
            let options = Options { reference, ..options(&toy) };
            let model =
                Model::open_for(path(file), &options).unwrap_or_else(|error| panic!("{file}: {error}"));
            let compiled = model.compile(&options).unwrap_or_else(|error| panic!("{file}: {error}"));
            let outputs = compiled.run(&[input()]).unwrap_or_else(|error| panic!("{file}: {error}"));
            let [Value::Tensor(found)] = &outputs[..] else { panic!("{file}: {outputs:?}") };
            assert_eq!(found.to_f64(), expected(name), "{file}");
            asked.push(toy.take().into_iter().map(|call| call.op).collect());
        }
    }
    asked
}

/// FO-1: of files.
#[test]
fn an_operator_of_the_host_is_called() {
    for asked in check("foo") {
        assert_eq!(asked, ["mylib.half.default"]);
    }
}

/// FO-2: of files, by the library and by the command.
#[test]
fn operators_that_no_host_has_are_listed_with_their_lines() {
    let unknown = |error: Option<Error>| match error {
        Some(Error::Import(ImportError::UnknownOps { ops })) => ops,
        other => panic!("expected a list of operators, found {other:?}"),
    };
    // Of the two operators the host has one.
    let ops = unknown(Model::open_for(path("unknown"), &options(&Toy::new())).err());
    assert_eq!(ops.len(), 1);
    assert_eq!((&*ops[0].name, ops[0].count), ("mylib.missing.default", 2));
    assert!(ops[0].sources.iter().all(|source| source.starts_with("make.py:")), "{:?}", ops[0].sources);
    let forbidden = Options { fallback: Fallback::Error, ..options(&Toy::new()) };
    for error in [Model::open(path("unknown")).err(), Model::open_for(path("unknown"), &forbidden).err()] {
        let mut names: Vec<String> = unknown(error).into_iter().map(|op| op.name).collect();
        names.sort();
        assert_eq!(names, ["mylib.half.default", "mylib.missing.default"]);
    }
    // Those inside of what wraps them are named, too.
    let ops = unknown(Model::open(path("written")).err());
    assert_eq!((ops.len(), &*ops[0].name), (1, "mylib.two.default"));
    let run =
        Command::new(env!("CARGO_BIN_EXE_litz")).arg("run").arg(path("unknown")).output().expect("it runs");
    let message = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{message}");
    assert!(message.contains("mylib.missing.default") && message.contains("make.py:"), "{message}");
}

/// FO-6, FO-7: of files.
#[test]
fn what_files_order_by_tokens_is_called_in_order() {
    for asked in check("logged") {
        assert_eq!(asked, ["mylib.log.default"; 2]);
    }
}

/// FO-8: of files.
#[test]
fn what_operators_write_is_what_later_nodes_read() {
    check("written");
    check("lists");
}

/// FO-8, IP-38: of files: parts of one base are written.
#[test]
fn views_of_one_base_are_written_where_they_are_apart() {
    check("rows");
    check("slices");
    // The memory of columns lies between that of others, which the host is told.
    for name in ["rows", "rows_raw", "slices", "slices_raw"] {
        assert_eq!(copies(&loops(name)), 0, "{name}: {}", loops(name));
    }
}

/// What `make_kernels.py` writes comes from `torch.export`, as far as no GPU is needed.
#[track_caller]
fn check_kernel(name: &str) -> Vec<Vec<String>> {
    check_files(name, &[name.to_owned()])
}

/// The loops of a file.
fn loops(name: &str) -> Loops {
    let options = options(&Toy::new());
    let model = Model::open_for(path(name), &options).unwrap_or_else(|error| panic!("{error}"));
    let mut silent = |_: &str| {};
    let texts = model.texts(&options, Stage::Loops, &mut Runner::new(Verify::Passes, None, &mut silent));
    texts.unwrap_or_else(|error| panic!("{error}")).loops.expect("loops")
}

/// IP-39: fresh memory that a kernel of Triton writes is given to it, and what is read later is copied.
#[test]
fn kernels_of_triton_write_where_nobody_reads_later() {
    for (name, copied) in [("kernel_fresh", 0), ("kernel_kept", 1)] {
        for asked in check_kernel(name) {
            assert_eq!(asked, ["triton.add_kernel.default"]);
        }
        assert_eq!(copies(&loops(name)), copied, "{}", loops(name));
    }
}

/// FO-2: kernels of Triton that no host has are named.
#[test]
fn kernels_of_triton_are_refused_without_a_host() {
    let Some(Error::Import(ImportError::UnknownOps { ops })) = Model::open(path("kernel_configured")).err()
    else {
        panic!("expected a list of operators");
    };
    assert_eq!((ops.len(), &*ops[0].name, ops[0].count), (1, "triton.add_kernel.default", 2));
    assert!(
        ops[0].sources.iter().all(|source| source.starts_with("make_kernels.py:")),
        "{:?}",
        ops[0].sources
    );
}

/// FO-14: configurations that differ in options of AMD's compiler alone are one kernel.
#[test]
fn options_of_amd_select_no_kernel() {
    for asked in check_kernel("kernel_configured") {
        assert_eq!(asked, ["triton.add_kernel.default"; 2]);
    }
}

/// FO-11: ten uses of one operator that Litz does not know are one warning, which counts them.
#[test]
fn an_operator_is_warned_of_once() {
    let toy = Toy::new();
    let model = Model::open_for(path("many"), &options(&toy)).expect("the host has all operators");
    let compiled = model.compile(&options(&toy)).expect("it compiles");
    let messages: Vec<String> = compiled.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let expected =
        "warning[host-operator]: operator mylib.half.default is run by the host (10 times, first at make.py:";
    assert!(messages[0].starts_with(expected), "{messages:?}");
    compiled.run(&[input()]).expect("it runs");
    assert_eq!(compiled.statistics().host_calls[0].calls, 10);
    let quiet = Options { fallback: Fallback::Quiet, ..options(&toy) };
    assert!(model.compile(&quiet).expect("it compiles").warnings.is_empty());
    check("many");
}

/// The runtime has it: no host is given, none is missing, and nobody is warned.
#[test]
fn what_a_model_prints_is_printed_in_order() {
    for file in ["printed", "printed_raw"] {
        for device in ["cpu", "reference"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
            let run = command.arg("run").arg(path(file)).args(["--device", device]).env("LITZ_CACHE_DIR", "");
            let run = run.output().expect("litz starts");
            let (told, warned) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
            assert!(run.status.success() && !warned.contains("_print"), "{file}: {warned}");
            assert!(told.starts_with("first\nthen\n"), "{file}: {told}");
        }
        let options = Options { fallback: Fallback::Error, ..Options::default() };
        let compiled = Model::open(path(file)).and_then(|model| model.compile(&options));
        let outputs = compiled
            .and_then(|compiled| compiled.run(&[input()]))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let [Value::Tensor(found)] = &outputs[..] else { panic!("{file}: {outputs:?}") };
        assert_eq!(found.to_f64(), expected("printed"), "{file}");
    }
}
