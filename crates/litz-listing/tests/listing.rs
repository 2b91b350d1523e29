//! Compares modules with those in `tests/text`: `LITZ_BLESS=1` writes them; read the diff.

use std::fs;
use std::path::PathBuf;

use litz_ir::target::Target;
use litz_ir::text::{kernel, program};
use litz_listing::{Form, listing};

fn target(text: &str) -> Target {
    text.parse().expect("a target")
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/text").join(name)
}

/// The module of a file with a program and its kernels.
fn module(form: Form, name: &str) -> String {
    let source = fs::read_to_string(path(&format!("{name}.litz"))).expect("readable");
    let (source, kernels) = source.split_once("//---\n").expect("a program, then its kernels");
    let program = program::parse(source).unwrap_or_else(|diags| panic!("{name}: {}", diags[0]));
    let starts: Vec<usize> =
        kernels.match_indices("kernel @").map(|(at, _)| at).chain([kernels.len()]).collect();
    let texts = starts.windows(2).map(|part| &kernels[part[0]..part[1]]);
    let kernels: Vec<_> = texts
        .map(|text| kernel::parse(text).unwrap_or_else(|diags| panic!("{name}: {}", diags[0])))
        .collect();
    listing(form, &program, &kernels, &target("cpu(isa=avx2, threads=2)"))
        .unwrap_or_else(|diags| panic!("{name}: {}", diags[0]))
}

fn expect(form: Form, name: &str) {
    let (found, path) = (module(form, name), path(&format!("{name}.{}.py", form.name())));
    if std::env::var_os("LITZ_BLESS").is_some_and(|value| !value.is_empty()) {
        fs::write(&path, &found).expect("writable");
    }
    let expected = fs::read_to_string(&path).expect("readable");
    let line = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    assert_eq!(found, expected, "{name}: line {:?} differs", line.map(|line| line + 1));
}

#[test]
fn steps_of_every_kind_are_lines() {
    for form in [Form::Fx, Form::Python] {
        expect(form, "mlp");
        expect(form, "control");
    }
}

#[test]
fn programs_of_other_devices_are_refused() {
    let text = "program @p on cuda:0 {\n  param x: f32[2]\n  return x: f32[2]\n}\n";
    let program = program::parse(text).expect("it is a program");
    let gpu = target("gpu(isa=sm90, units=132)");
    let diags = listing(Form::Python, &program, &[], &gpu).expect_err("it is on a GPU");
    assert_eq!(diags.iter().map(|diag| diag.slug).collect::<Vec<_>>(), ["unsupported-device"]);
    assert!(diags[0].to_string().contains("--device cpu"), "{}", diags[0]);
    // Kernels for a GPU are interpreted, and have no code that a graph could launch.
    let program = program::parse(&text.replace("cuda:0", "cpu")).expect("it is a program");
    assert!(listing(Form::Python, &program, &[], &gpu).is_ok());
    let diags = listing(Form::Fx, &program, &[], &gpu).expect_err("it is for a GPU");
    assert_eq!(diags.iter().map(|diag| diag.slug).collect::<Vec<_>>(), ["unsupported-device"]);
}

#[test]
fn names_are_pythons_and_each_its_own() {
    let text = module(Form::Python, "mlp");
    // A keyword, a name with blanks, and the machine's own.
    for name in ["lambda_1 = m.input(\"lambda\"", "total_of_all = m.input(\"total of all\""] {
        assert!(text.contains(name), "{name} in\n{text}");
    }
}
