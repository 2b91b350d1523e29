//! Runs models of files with operators of a host; `foreign/make.py` writes them, and the numbers that PyTorch gives.

mod toy_host;

use litz::{Error, Fallback, HostOption, Model, Options, Tensor, Value};
use litz_import::ImportError;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use toy_host::Toy;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(name).with_extension("pt2")
}

fn options(toy: &Arc<Toy>) -> Options {
    Options { host: Some(HostOption(toy.clone())), threads: 2, ..Options::default() }
}

fn input() -> Tensor {
    let values: Vec<f32> = (0..12u8).map(|value| f32::from(value) - 5.0).collect();
    Tensor::from_slice(&[3, 4], &values).expect("12 elements")
}

/// What PyTorch gives for a model.
fn expected(name: &str) -> Vec<f64> {
    let results = include_str!("foreign/results.txt");
    let line = results.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a result");
    line.split(' ').map(|value| value.parse().expect("a number")).collect()
}

/// Runs a model of a file with operators decomposed, and of one without, natively and on the reference device; what the host
/// was asked for in each call.
#[track_caller]
fn check(name: &str) -> Vec<Vec<String>> {
    let mut asked = Vec::new();
    for file in [name.to_owned(), format!("{name}_raw")] {
        for reference in [false, true] {
            let toy = Toy::new();
            let options = Options { reference, ..options(&toy) };
            let model =
                Model::open_for(path(&file), &options).unwrap_or_else(|error| panic!("{file}: {error}"));
            let compiled = model.compile(&options).unwrap_or_else(|error| panic!("{file}: {error}"));
            let outputs = compiled.run(&[input()]).unwrap_or_else(|error| panic!("{file}: {error}"));
            let [Value::Tensor(found)] = &outputs[..] else { panic!("{file}: {outputs:?}") };
            assert_eq!(found.to_f64(), expected(name), "{file}");
            asked.push(toy.take().into_iter().map(|call| call.op).collect());
        }
    }
    asked
}

#[test]
fn fo_1_an_operator_of_the_host_is_called() {
    for asked in check("foo") {
        assert_eq!(asked, ["mylib.half.default"]);
    }
}

#[test]
fn fo_2_operators_that_no_host_has_are_listed_with_their_lines() {
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

#[test]
fn fo_6_what_files_order_by_tokens_is_called_in_order() {
    for asked in check("logged") {
        assert_eq!(asked, ["mylib.log.default"; 2]);
    }
}

#[test]
fn fo_8_what_operators_write_is_what_later_nodes_read() {
    check("written");
    check("lists");
}

#[test]
fn fo_8_views_of_one_base_are_written_where_they_are_apart() {
    check("rows");
    check("slices");
}

#[test]
fn fo_11_an_operator_is_warned_of_once() {
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
