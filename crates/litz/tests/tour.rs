//! Checks every block of `docs/tour.md`, `docs/kernel.md` and `docs/gpu-kernel.md` against what the compiler gives for one small model.
//!
//! A block begins with ` ```litz NAME `. `LITZ_BLESS=1 cargo test -p litz --test tour` rewrites the blocks and leaves
//! the prose around them alone.

use litz::pipeline;
use litz::{Options, Runner, Stage, Text, Verify};
use litz_ir::text;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tour.md");

/// Two linear layers with an activation between them and a softmax after them, for any number of rows. The first
/// layer's sums are long enough to be added up in parts.
const MODEL: &str = r#"graph @tour on cpu {
  sym s0 in [1, 1024] hint 32
  %x: f32[s0, 1024] = input
  %w1: f32[128, 1024] = const "fc1.weight"
  %b1: f32[128] = const "fc1.bias"
  %w2: f32[10, 128] = const "fc2.weight"
  %b2: f32[10] = const "fc2.bias"
  %h: f32[s0, 128] = aten.linear.default(%x, %w1, %b1) at "model.py:9"
  %g: f32[s0, 128] = aten.gelu.default(%h, "none") at "model.py:9"
  %l: f32[s0, 10] = aten.linear.default(%g, %w2, %b2) at "model.py:10"
  %y: f32[s0, 10] = aten.softmax.int(%l, -1, none) at "model.py:10"
  return %y
}
"#;

#[test]
fn the_page_shows_what_the_compiler_gives() {
    let page = fs::read_to_string(PAGE).expect("docs/tour.md can be read");
    let filled = fill(&page, &texts());
    if std::env::var_os("LITZ_BLESS").is_some() {
        fs::write(PAGE, filled).expect("docs/tour.md can be written");
        return;
    }
    assert!(page == filled, "docs/tour.md is out of date: run this test with LITZ_BLESS=1\n\n{filled}");
}

#[test]
fn every_text_reads_back_as_itself() {
    for (name, text) in texts() {
        let read = Text::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.to_string(), text, "{name}");
    }
}

/// What the blocks hold, by name.
fn texts() -> BTreeMap<String, String> {
    // One target, whatever machine the test runs on.
    let target = "cpu(isa=avx2, threads=4)".parse().expect("a target");
    let options = Options { verify: Verify::Passes, ..Options::for_target(target) };
    let backend = litz::backend(&options).expect("there is a backend");
    let graph = text::graph::parse(MODEL).expect("the model is a graph");
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(options.verify, None, &mut quiet);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut run);
    let texts = texts.unwrap_or_else(|error| panic!("{error}"));
    let graph = texts.graph.expect("the pipeline went past graphs");
    let realized = texts.realized.expect("the pipeline went to the end");
    let mut named = BTreeMap::from([
        ("lowered".to_owned(), litz_ops::lower(&graph).expect("every operator is supported").to_string()),
        ("graph".to_owned(), graph.to_string()),
        ("loops".to_owned(), texts.loops.expect("the pipeline went past loops").to_string()),
        ("schedule".to_owned(), texts.schedule.expect("the pipeline went past schedules").to_string()),
        ("program".to_owned(), realized.program.to_string()),
    ]);
    named.extend(
        realized.kernels.iter().map(|kernel| (format!("kernel {}", kernel.name), kernel.to_string())),
    );
    named
}

/// The page with the contents of its blocks replaced. Kernels may be left out, other texts may not.
fn fill(page: &str, texts: &BTreeMap<String, String>) -> String {
    let mut filled = String::new();
    let mut shown = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        filled += line;
        filled.push('\n');
        if let Some(name) = line.strip_prefix("```litz ") {
            filled += texts.get(name).unwrap_or_else(|| panic!("no text is called `{name}`"));
            filled += "```\n";
            shown.push(name);
            lines.by_ref().find(|line| *line == "```").expect("every block has an end");
        }
    }
    for name in texts.keys().filter(|name| !name.starts_with("kernel")) {
        assert!(shown.contains(&name.as_str()), "docs/tour.md does not show the {name} text");
    }
    filled
}

/// Blocks of the pages about one kernel leave lines out, which `..` stands for, and the indentation of what is around them.
#[test]
fn the_page_about_one_kernel_quotes_what_the_compiler_gives() {
    let quoted = quoted("kernel.md", MODEL, "cpu(isa=avx2, threads=4)");
    assert_eq!(quoted, ["loops", "schedule", "kernel", "llvm", "asm"]);
}

#[test]
fn the_page_about_a_kernel_of_a_gpu_quotes_what_the_compiler_gives() {
    let page = page("gpu-kernel.md");
    let (_, model) = page.split_once("```litz graph\n").expect("a model");
    let (model, _) = model.split_once("```").expect("the block has an end");
    let quoted = quoted("gpu-kernel.md", model, "gpu(isa=sm80, units=108)");
    assert_eq!(quoted, ["schedule", "kernel", "kernel"]);
}

fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(path).expect("the page can be read")
}

/// The stages whose texts a page quotes, each of which is there.
fn quoted(name: &str, model: &str, target: &str) -> Vec<String> {
    let page = page(name);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tour.litz");
    fs::write(&path, model).expect("it is written");
    let mut lines = page.lines();
    let mut quoted = Vec::new();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if kind == "text" {
            continue;
        }
        let stage = kind.trim_start_matches("litz ");
        // That is the model.
        if stage == "graph" {
            continue;
        }
        let mut litz = Command::new(env!("CARGO_BIN_EXE_litz"));
        litz.arg("compile").arg(&path).args(["--target", target, "--to", stage]);
        let ran = litz.output().expect("it runs");
        assert!(ran.status.success(), "{stage}: {}", String::from_utf8_lossy(&ran.stderr));
        let text = String::from_utf8(ran.stdout).expect("text");
        let passages: Vec<&[&str]> = block.split(|line| line.trim_start().starts_with("..")).collect();
        let mut rest: Vec<&str> = text.lines().map(str::trim).collect();
        for passage in passages {
            let wanted: Vec<&str> = passage.iter().map(|line| line.trim()).collect();
            let at = rest.windows(wanted.len().max(1)).position(|lines| lines.starts_with(&wanted));
            let at = at.unwrap_or_else(|| panic!("{stage}: not there:\n{}\n\n{text}", wanted.join("\n")));
            rest.drain(..at + wanted.len());
        }
        quoted.push(stage.to_owned());
    }
    quoted
}
