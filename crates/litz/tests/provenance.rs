//! PV-1 to PV-3: each launch says which nodes of the user's model it computes and in which modules, in text, as maps, in measurements, and
//! when the compilation comes from the cache.

use std::collections::HashMap;
use std::fmt::Write;

use litz::provenance::{self, Provenance};
use litz::{Compiled, Model, Options, made_up, measure};
use litz_ir::text;
use serde_json::json;

fn options() -> Options {
    Options { cache: None, threads: 1, ..Options::default() }
}

fn model(text: &str) -> Model {
    let graph = text::graph::parse(text).unwrap_or_else(|diags| panic!("{text}\n{diags:?}"));
    Model::from_graph(graph, HashMap::new()).unwrap_or_else(|error| panic!("{error}"))
}

fn compile(model: &Model, options: &Options) -> Compiled {
    model.compile(options).unwrap_or_else(|error| panic!("{error}"))
}

fn program(compiled: &Compiled) -> &litz_ir::program::Program {
    &compiled.texts.realized.as_ref().expect("it was realized").program
}

/// Two sums of rows, and a product of what comes of them.
const THREE: &str = r#"graph @three on cpu {
  %x: f32[64, 4096] = input
  %y: f32[4096, 16] = input
  %h: f32[64, 16] = aten.mm.default(%x, %y) at "model.py:3" in "head.up" was "linear" stack ["train.py:9", "model.py:3"]
  %s: f32[64] = aten.sum.dim_IntList(%h, [1], false, none) at "model.py:4" in "head" stack ["train.py:9", "model.py:4"]
  %c: f32[64] = aten.cumsum.default(%s, 0, none) at "model.py:5" stack ["train.py:9", "model.py:5"]
  return %c
}
"#;

/// Kernels of a routine of a GPU are several launches between those of nests.
#[test]
fn launches_of_routines_name_their_nodes() {
    let text = "graph @g on cpu {
  %x: f32[1, 9000] = input
  %h: f32[1, 9000] = aten.relu.default(%x)
  %v: f32[1, 9000], %i: i64[1, 9000] = aten.sort.default(%h, 1, true)
  %s: f32[1, 9000] = aten.cumsum.default(%v, 1, none)
  return %s, %i
}";
    let target = "gpu(isa=sm80, units=108)".parse().expect("a target");
    let options = Options { reference: true, ..Options::for_target(target) };
    let compiled = compile(&model(text), &options);
    let launches = provenance::launches(program(&compiled));
    let names: Vec<Vec<&str>> =
        launches.iter().map(|launch| launch.nodes.iter().map(|node| &*node.name).collect()).collect();
    // A row is sorted as runs of 2048, which are merged to two, to one; then it is summed.
    assert_eq!(names[..5], [vec!["h"], vec!["v", "i"], vec!["v", "i"], vec!["v", "i"], vec!["v", "i"]]);
    assert!(names[5..].iter().all(|names| *names == ["s"]), "{names:?}");
    assert!(launches[1].kernel.starts_with("sort_"), "{}", launches[1].kernel);
}

/// PV-1: nodes, names before and after passes, modules and stacks.
#[test]
fn maps_have_the_nodes_of_each_kernel() {
    let compiled = compile(&model(THREE), &Options { provenance: Provenance::Full, ..options() });
    let maps = provenance::maps(program(&compiled));
    let mut nodes: Vec<serde_json::Value> = Vec::new();
    for launches in maps["kernels"].as_object().expect("an object").values() {
        for launch in launches.as_array().expect("a list") {
            nodes.extend(launch["nodes"].as_array().expect("a list").iter().cloned());
        }
    }
    nodes.sort_by_key(|node| node["line"].as_str().map(str::to_owned));
    let node = |name: &str, was: &str, op: &str, module: Option<&str>, line: &str| json!({ "name": name, "was": was, "op": op, "module": module, "line": line, "stack": ["train.py:9", line] });
    assert_eq!(
        nodes,
        [
            node("h", "linear", "aten.mm.default", Some("head.up"), "model.py:3"),
            node("s", "s", "aten.sum.dim_IntList", Some("head"), "model.py:4"),
            node("c", "c", "aten.cumsum.default", None, "model.py:5"),
        ]
    );
    assert_eq!(maps["before_to_after"], json!({ "linear": ["h"], "s": ["s"], "c": ["c"] }));
    assert_eq!(maps["after_to_before"], json!({ "h": ["linear"], "s": ["s"], "c": ["c"] }));
    // The two other maps say the same of kernels, in both directions.
    for (kernel, names) in maps["kernels_to_after"].as_object().expect("an object") {
        for name in names.as_array().expect("a list") {
            let back = &maps["after_to_kernels"][name.as_str().expect("a name")];
            assert!(back.as_array().expect("a list").contains(&json!(kernel)), "{kernel} {name}");
        }
    }
    let first = &provenance::launches(program(&compiled))[0];
    assert!(first.title().contains(" head.up") && first.title().contains(": mm"), "{}", first.title());
}

/// Layers of which each is `sin` of the one before, times a row of its own: a kernel each, all of them alike.
fn layers(count: usize) -> String {
    let mut text = "graph @layers on cpu {\n  %x0: f32[512, 512] = input\n".to_owned();
    for at in 0..count {
        let _ = writeln!(text, "  %w{at}: f32[512, 512] = input");
    }
    for at in 0..count {
        let (next, module) = (at + 1, format!("layers.{at}.up"));
        let _ = writeln!(
            text,
            "  %x{next}: f32[512, 512] = aten.mm.default(%x{at}, %w{at}) at \"model.py:7\" in \"{module}\""
        );
    }
    let _ = writeln!(text, "  return %x{count}\n}}");
    text
}

/// The modules and times of the launches of a model's one kernel.
fn measured(compiled: &Compiled, model: &Model, options: &Options) -> Vec<(Vec<String>, f64)> {
    let inputs = made_up::inputs(&made_up::of_model(model), &model.imported.graph.facts).expect("known");
    let measured = measure::measure(compiled, None, &inputs, options, 4).expect("calls work");
    let launches = provenance::launches(program(compiled));
    let times = measured.launches();
    let of = |(&number, &ms): (&usize, &f64)| {
        (launches[number].modules().iter().map(|module| module.to_string()).collect(), ms)
    };
    times.iter().map(of).collect()
}

/// PV-2: the first time and from the cache.
#[test]
fn equal_layers_have_a_launch_each() {
    let cache = tempfile::tempdir().expect("a folder");
    let options =
        Options { profile: true, cache: Some(cache.path().to_owned()), threads: 1, ..Options::default() };
    let model = model(&layers(12));
    for is_cached in [false, true] {
        let compiled = compile(&model, &options);
        let launches = provenance::launches(program(&compiled));
        let products: Vec<_> = launches.iter().filter(|launch| !launch.nodes.is_empty()).collect();
        let mut kernels: Vec<&str> = products.iter().map(|launch| launch.kernel).collect();
        kernels.dedup();
        assert!(kernels.len() <= 2, "{kernels:?}");
        let found = measured(&compiled, &model, &options);
        for at in 0..12 {
            let module = format!("layers.{at}.up");
            let own: Vec<f64> = found
                .iter()
                .filter(|(modules, _)| *modules == [module.as_str()])
                .map(|(_, ms)| *ms)
                .collect();
            assert!(!own.is_empty() && own.iter().all(|&ms| ms > 0.0), "{is_cached} {module}: {found:?}");
        }
    }
}

/// PV-3: machine code is made of kernels, and these are the same.
#[test]
fn levels_change_no_code() {
    let model = model(THREE);
    let at = |level: Provenance| {
        let compiled = compile(&model, &Options { provenance: level, ..options() });
        let realized = compiled.texts.realized.as_ref().expect("it was realized");
        let kernels: String = realized.kernels.iter().map(ToString::to_string).collect();
        (kernels, realized.program.to_string())
    };
    let levels = [Provenance::Lines, Provenance::Basic, Provenance::Full].map(at);
    // Without what is said of nodes, all programs are the same.
    let bare = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("  node "));
        lines.map(|line| line.split(" from %").next().unwrap_or(line).to_owned() + "\n").collect::<String>()
    };
    for (kernels, program) in &levels {
        assert_eq!(kernels, &levels[0].0);
        assert_eq!(bare(program), levels[0].1);
        let again = text::program::parse(program).expect("it reads back");
        assert_eq!(&again.to_string(), program);
    }
    assert!(
        !levels[1].1.contains("stack [") && levels[2].1.contains("stack [\"train.py:9\", \"model.py:3\"]")
    );
}

#[test]
fn nodes_that_passes_make_come_from_the_users() {
    // Layer normalisation becomes several nodes.
    let text = r#"graph @norm on cpu {
      %x: f32[8, 32] = input
      %y: f32[8, 32] = aten.layer_norm.default(%x, [32], none, none, 1e-05, true) at "model.py:2" in "norm" was "layer_norm"
      %z: f32[8, 32] = aten.relu.default(%y) at "model.py:3" in "act"
      return %z
    }"#;
    let compiled = compile(&model(text), &options());
    let launches = provenance::launches(program(&compiled));
    let modules: Vec<_> = launches.iter().flat_map(|launch| launch.modules()).collect();
    assert!(modules.iter().any(|module| &**module == "norm"), "{modules:?}");
    let names: Vec<_> = launches.iter().flat_map(|launch| launch.before_passes()).collect();
    assert!(names.iter().any(|name| &**name == "layer_norm"), "{names:?}");
}
