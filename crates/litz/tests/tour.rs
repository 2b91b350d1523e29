//! Checks every block of `docs/tour.md` against what the compiler gives for one small model.
//!
//! A block begins with ` ```litz NAME `. `LITZ_BLESS=1 cargo test -p litz --test tour` rewrites the blocks and leaves
//! the prose around them alone.

use litz::pipeline;
use litz::{Options, Runner, Stage, Text, Verify};
use litz_ir::text;
use std::collections::BTreeMap;
use std::fs;

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
