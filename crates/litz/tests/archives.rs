//! Reads archives with several models, and those whose tensors share memory; `make.py` of the golden archives writes them.

#![allow(missing_docs, reason = "a test")]

use litz::{Error, Model, Options, Tensor, Value};
use litz_import::ImportError;
use litz_ir::Dtype;
use std::path::{Path, PathBuf};
use std::process::Command;

fn golden(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../litz-import/tests/golden/2.15").join(name).with_extension("pt2")
}

fn named(model: &str) -> Options {
    Options { model: Some(model.to_owned()), threads: 1, ..Options::default() }
}

/// What the model makes of ones.
fn of_ones(model: &Model, options: &Options) -> Vec<f64> {
    let compiled = model.compile(options).unwrap_or_else(|error| panic!("{error}"));
    let ones = Tensor::from_slice(&[4], &[1f32; 4]).expect("4 elements");
    let outputs = compiled.run(&[ones]).unwrap_or_else(|error| panic!("{error}"));
    let [Value::Tensor(found)] = &outputs[..] else { panic!("{outputs:?}") };
    found.to_f64()
}

/// Operators of each of autocast's lists, and a part that it is off for. Expected values: PyTorch's, for x = 0, 0.1, .. 1.5.
#[test]
fn autocast_converts_operands() {
    let model = Model::open(golden("autocast")).unwrap_or_else(|error| panic!("{error}"));
    let compiled = model.compile(&Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let x: Vec<f32> = (0..16u8).map(|at| f32::from(at) / 10.0).collect();
    let outputs = compiled.run(&[Tensor::from_slice(&[4, 4], &x).expect("16 elements")]).expect("it runs");
    let narrow = [0.200_195_312_5, 0.542_968_75, 0.886_718_75, 1.226_562_5, 0.542_968_75, 1.796_875];
    let expected: [(Dtype, &[f64]); 5] = [
        (Dtype::BF16, &narrow),
        (Dtype::F32, &narrow),
        (Dtype::F32, &[0.8, 0.885_714_3, 0.971_428_6, 1.057_142_9, 2.171_428_7, 2.485_714_2]),
        (
            Dtype::BF16,
            &[0.138_671_875, 0.196_289_062_5, 0.277_343_75, 0.388_671_875, 0.016_601_562_5, 0.058_105_468_75],
        ),
        (Dtype::F32, &[82_883_160.0]),
    ];
    for (at, (found, (dtype, expected))) in outputs.iter().zip(expected).enumerate() {
        let found = found.tensor().unwrap_or_else(|| panic!("out.{at} is a tensor"));
        assert_eq!(found.dtype(), dtype, "out.{at}");
        for (found, expected) in found.to_f64().iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-6 * expected, "out.{at}: {found}, expected {expected}");
        }
    }
    assert_eq!(outputs[5], Value::Text("bf16".into()));
}

/// Both have the same graph and tables of weights of the same types, so that a cache could take the one for the other.
#[test]
fn each_of_several_models_has_its_weights() {
    let folder = std::env::temp_dir().join(format!("litz-archives-{}", std::process::id()));
    for reads in ["first", "again"] {
        for (name, scale) in [("encode", 1.0), ("decode", 10.0)] {
            let asked = named(name);
            let model = Model::open_for(golden("several"), &asked).expect("it is one of them");
            assert_eq!(model.name(), name);
            // The model is chosen where the archive is read: compilations need not name it.
            let cached =
                Options { cache: Some(folder.clone()), cache_bytes: 1 << 24, model: None, ..asked.clone() };
            let expected = [0.0, 1.0, 2.0, 3.0].map(|weight| weight * scale);
            assert_eq!(of_ones(&model, &cached), expected, "{name} {reads}");
            assert_eq!(of_ones(&model, &Options { reference: true, ..asked }), expected, "{name} {reads}");
        }
    }
    std::fs::remove_dir_all(folder).expect("the cache is there");
}

#[test]
fn one_of_several_models_has_to_be_named() {
    let several = Model::open(golden("several")).map(|_| ()).expect_err("there are two");
    assert!(
        matches!(&several, Error::Import(ImportError::SeveralModels { names }) if *names == ["decode", "encode"])
    );
    for file in ["several", "mlp"] {
        let unknown =
            Model::open_for(golden(file), &named("other")).map(|_| ()).expect_err("there is no such model");
        assert!(matches!(&unknown, Error::Import(ImportError::UnknownModel { name, .. }) if name == "other"));
    }
    assert!(Model::open_for(golden("mlp"), &named("model")).is_ok());
}

#[test]
fn the_command_line_names_one_of_several_models() {
    let run = |rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.args(["inspect", "--json"]).arg(golden("several")).args(rest).env("LITZ_CACHE_DIR", "");
        let output = command.output().expect("litz starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&["--model", "encode"]), (Some(0), String::new()));
    let (code, said) = run(&[]);
    assert!(code == Some(3) && said.contains("decode, encode") && said.contains("--model NAME"), "{said}");
}

#[test]
fn the_command_line_checks_all_models_of_an_archive() {
    let targets = std::env::temp_dir().join(format!("litz-targets-{}", std::process::id()));
    std::fs::write(&targets, "program cpu(isa=avx2, threads=2)\nprogram cpu(isa=sse2, threads=1)\n")
        .expect("writable");
    let checked = |rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.args(["check", "--json"]).arg(golden("several")).arg("--targets").arg(&targets).args(rest);
        let output = command.env("LITZ_CACHE_DIR", "").output().expect("litz starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).matches("\"target\"").count()
    };
    assert_eq!((checked(&[]), checked(&["--model", "encode"])), (4, 2));
    std::fs::remove_file(&targets).expect("it was there");
}

#[test]
fn state_that_shares_memory_with_another_constant_is_refused() {
    let model = Model::open(golden("shared_state")).expect("it is a model");
    let options = Options { threads: 1, ..Options::default() };
    let Err(Error::Unsupported(diags)) = model.compile(&options).map(|_| ()) else {
        panic!("the second buffer would show the old contents of the first")
    };
    assert_eq!(diags[0].slug, "shared-state");
    assert!(
        diags[0].message.contains("`count`") && diags[0].message.contains("`table`"),
        "{}",
        diags[0].message
    );
}
