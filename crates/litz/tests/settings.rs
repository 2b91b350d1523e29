//! Checks that every threshold can be set by name, that it has an effect, and that results stay right at its limits.

use half::bf16;
use litz::settings::SETTINGS;
use litz::{Model, Options, Tensor, Text, tensors};
use litz_ir::Dtype;
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn litz(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.args(words).current_dir(ROOT).env("LITZ_CACHE_DIR", "").output().expect("litz starts")
}

/// SW-4: twenty results that nothing shares but their kind.
#[test]
fn twenty_kernels_share_three_launches() {
    let mut text = "graph @relus on cpu {\n".to_owned();
    (0..20).for_each(|at| writeln!(text, "  %x{at}: f32[{}] = input", 5 + at).expect("a string takes text"));
    (0..20).for_each(|at| {
        writeln!(text, "  %y{at}: f32[{}] = aten.relu.default(%x{at})", 5 + at).expect("a string takes text")
    });
    let results: Vec<String> = (0..20).map(|at| format!("%y{at}")).collect();
    writeln!(text, "  return {}\n}}", results.join(", ")).expect("a string takes text");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("relus.litz");
    std::fs::write(&file, text).expect("the file is written");
    let steps = |flags: &[&str]| {
        let output = litz(&[&["explain", file.to_str().expect("utf-8")], flags].concat());
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
        out.lines().next().expect("a line").to_owned()
    };
    assert!(steps(&[]).starts_with("20 statements in 20 kernels"), "{}", steps(&[]));
    let together = steps(&["--set", "launch_together=8"]);
    assert!(together.starts_with("20 statements in 3 kernels"), "{together}");
    // Of two values the last one counts, as it does for other flags.
    let last = steps(&["--set", "launch_together=8", "--set", "launch_together=1"]);
    assert!(last.starts_with("20 statements in 20 kernels"), "{last}");
}

#[test]
fn the_command_line_lists_what_can_be_set() {
    let said = |set: &str| {
        let output = litz(&["explain", "examples/digits.pt2", "--set", set]);
        assert_eq!(output.status.code(), Some(3), "{set}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = said("launches=8");
    assert!(unknown.contains("no such setting: launches"), "{unknown}");
    assert!(SETTINGS.iter().all(|setting| unknown.contains(setting.name)), "{unknown}");
    assert!(said("launch_together=1025").contains("expected a number from 0 to 1024, found `1025`"));
    assert!(said("launch_together").contains("expected NAME=VALUE"));
}

#[test]
fn the_page_lists_every_setting() {
    let page = include_str!("../../../docs/command-line.md");
    let rows: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("| setting |")).skip(2).collect();
    let rows = rows.iter().take_while(|line| line.starts_with('|')).map(|line| (*line).to_owned());
    let defaults = Options::default();
    let expected = SETTINGS.iter().map(|setting| {
        let (name, value) = (setting.name, setting.value(&defaults));
        format!("| `{name}` | {value} | {} | {} |", setting.expected(), setting.meaning)
    });
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// Products with an epilogue, long sums in f32 and a half type, columns, a softmax, and a transposed operand.
const KINDS: &str = "
graph @kinds on cpu {
  %x: f32[70, 300] = input
  %w: f32[300, 50] = input
  %h: bf16[33, 400] = input
  %v: bf16[400, 20] = input
  %p: f32[70, 50] = aten.mm.default(%x, %w)
  %g: f32[70, 50] = aten.gelu.default(%p)
  %q: bf16[33, 20] = aten.mm.default(%h, %v)
  %c: f32[300] = aten.sum.dim_IntList(%x, [0])
  %s: f32[70, 300] = aten._softmax.default(%x, 1, false)
  %t: f32[300, 70] = aten.permute.default(%x, [1, 0])
  %e: f32[300, 70] = aten.exp.default(%t)
  %n: f32[70, 300] = aten.sin.default(%x)
  %a: f32[70] = aten.sum.dim_IntList(%n, [1])
  return %g, %q, %c, %s, %e, %n, %a
}
";

/// What a setting may be at least and at most, as it says itself.
fn limits(expected: &str) -> Vec<String> {
    match expected.strip_prefix("a number from ") {
        Some(numbers) => numbers.split(" to ").map(str::to_owned).collect(),
        None => expected.trim_start_matches("one of ").split(", ").map(str::to_owned).collect(),
    }
}

fn values(tensor: &Tensor) -> Vec<f64> {
    let mut values = Vec::new();
    tensor.each_f64(|value| values.push(value));
    values
}

/// Numbers from -1 to 1 that repeat after 101 elements.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

fn inputs() -> Vec<Tensor> {
    let wide = |sizes: [usize; 2]| Tensor::from_slice(&sizes, &numbers(sizes[0] * sizes[1]));
    let half = |sizes: [usize; 2]| {
        let rounded: Vec<bf16> = numbers(sizes[0] * sizes[1]).into_iter().map(bf16::from_f32).collect();
        Tensor::from_slice(&sizes, &rounded)
    };
    let all = [wide([70, 300]), wide([300, 50]), half([33, 400]), half([400, 20])];
    all.into_iter().collect::<Result<_, _>>().expect("lengths match")
}

#[test]
fn results_are_right_at_every_limit() {
    std::env::set_current_dir(ROOT).expect("the repository is there");
    let Text::Graph(graph) = Text::parse(KINDS).expect("the text parses") else { panic!("expected a graph") };
    let kinds = Model::from_graph(graph, HashMap::new()).expect("a model");
    let digits = Model::open("examples/digits.pt2").expect("the example opens");
    let images =
        tensors::read(Path::new("examples/digits.safetensors")).expect("the data opens")["images"].clone();
    let base = Options { threads: 2, ..Options::default() };
    for (model, inputs) in [(&kinds, inputs()), (&digits, vec![images])] {
        let run = |options: &Options| {
            let compiled = model.compile(options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
            compiled.run(&inputs).unwrap_or_else(|error| panic!("{options:?}: {error}"))
        };
        let expected = run(&base);
        for setting in SETTINGS {
            for value in limits(&setting.expected()) {
                let mut options = base.clone();
                options.set(setting.name, &value).expect("it is in the range");
                for (found, expected) in run(&options).iter().zip(&expected) {
                    let (found, expected) =
                        found.tensor().zip(expected.tensor()).expect("results are tensors");
                    // Other orders of sums round differently: those in bf16 by the last of its eight bits, those in f32 by a few units of the
                    // largest partial sum, which of 300 numbers up to 1 that repeat is about 20.
                    let unit = if expected.dtype() == Dtype::BF16 { 1.0 / 128.0 } else { 8e-6 };
                    let (found, expected) = (values(found), values(expected));
                    let largest = expected.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
                    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= unit * largest;
                    let is_right = found.len() == expected.len() && found.iter().zip(&expected).all(is_near);
                    assert!(is_right, "{} = {value}: {found:?} is not {expected:?}", setting.name);
                }
            }
        }
    }
}
