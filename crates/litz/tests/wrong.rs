//! `litz minify`, `litz bisect`, `litz verify --reference` and `--check-nan`, as commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use litz::Tensor;
use litz::case::Case;
use litz::tensors::{self, Named};

/// A chain of forty nodes with a logarithm in the middle, by a constant.
fn graph() -> String {
    let mut text = String::from("graph @g on cpu {\n  %v0: f32[8] = input\n  %w: f32[8] = const \"w\"\n");
    for at in 1..=40 {
        let (before, op) = (at - 1, ["aten.tanh.default", "aten.sin.default"][at % 2]);
        text += &match at {
            17 => format!("  %v{at}: f32[8] = aten.log.default(%v{before}) at \"model.py:17\"\n"),
            18 => format!("  %v{at}: f32[8] = aten.mul.Tensor(%v{before}, %w)\n"),
            _ => format!("  %v{at}: f32[8] = {op}(%v{before})\n"),
        };
    }
    text + "  return %v40\n}\n"
}

struct Files(tempfile::TempDir);

impl Files {
    /// A graph with its constant and inputs.
    fn new(inputs: [f32; 8]) -> Files {
        let files = Files(tempfile::tempdir().expect("there is room"));
        std::fs::write(files.path("g.litz"), graph()).expect("it writes");
        let tensor = |values: &[f32; 8]| Tensor::from_slice(&[8], values).expect("lengths match");
        let named = [("in.0", tensor(&inputs)), ("const.w", tensor(&[0.5; 8]))];
        let named: Named = named.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect();
        tensors::write(&files.path("g.safetensors"), &named).expect("it writes");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.current_dir(self.0.path()).env("LITZ_CACHE_DIR", "").env_remove("LITZ_CHECK_NAN");
        command.args(words).output().expect("the program is there")
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const GOOD: [f32; 8] = [1.0, 0.5, 0.25, 2.0, 1.0, 0.5, 0.25, 2.0];
const BAD: [f32; 8] = [1.0, 0.5, 0.25, 2.0, 1.0, -0.5, 0.25, 2.0];

#[test]
fn a_nan_is_cut_down_to_the_node_that_makes_it() {
    let files = Files::new(BAD);
    let whole = files.run(&["run", "g.litz", "--inputs", "g.safetensors", "--check-nan"]);
    assert_eq!(whole.status.code(), Some(1), "{}", said(&whole));
    assert!(said(&whole).contains("%v17 = aten.log.default at model.py:17"), "{}", said(&whole));
    assert!(said(&whole).contains("[5] is NaN"), "{}", said(&whole));

    let output = files.run(&["minify", "g.litz", "--check", "nan", "-o", "small.litz"]);
    assert!(output.status.success(), "{}", said(&output));
    let small = Case::read(&files.path("small.litz")).expect("it is written");
    let ops: Vec<String> = small.graph.nodes.iter().map(|node| node.op.to_string()).collect();
    assert_eq!(ops, ["aten.log.default"]);
    assert_eq!(small.inputs[0].sizes(), [8], "the element with the NaN is not the first one");
    let command = said(&output);
    let command = command.lines().find_map(|line| line.split_once("to see it: litz ")).expect("it is said").1;
    // The target is quoted for a shell.
    let again = Command::new("sh")
        .args(["-c", &format!("{} {command}", env!("CARGO_BIN_EXE_litz"))])
        .current_dir(files.0.path())
        .output()
        .expect("it starts");
    assert!(said(&again).contains("is NaN"), "{command}: {}", said(&again));
}

#[test]
fn what_is_right_has_nothing_to_find() {
    let files = Files::new(GOOD);
    let right = files.run(&["verify", "g.litz", "--reference", "--data", "g.safetensors"]);
    assert!(right.status.success() && said(&right).contains("nothing is wrong"), "{}", said(&right));
    for words in [["minify", "g.litz"], ["bisect", "g.litz"]] {
        let output = files.run(&words);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains("nothing is wrong"), "{}", said(&output));
    }
    assert!(!Path::new("small.litz").exists() && !files.path("small.litz").exists());
    let output = files.run(&["minify", "g.litz", "--check", "everything"]);
    assert!(said(&output).contains("expected one of compile, crash, nan, verify"), "{}", said(&output));
}

#[test]
fn a_text_without_its_constants_names_the_file_that_lacks_them() {
    let files = Files::new(GOOD);
    tensors::write(&files.path("g.safetensors"), &Named::new()).expect("it writes");
    let output = files.run(&["minify", "g.litz"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("g.safetensors: expected a tensor `const.w`"), "{}", said(&output));
}
