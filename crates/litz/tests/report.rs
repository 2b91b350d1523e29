//! Checks what a report says of a model against the stages that it is about, and that no name of a model is more than a name on its page.

mod toy_host;

use litz::profile::Launches;
use litz::report::{self, Report};
use litz::{Error, HostOption, Model, Options, Runner, Stage, Tensor, Verify, made_up, measure};
use litz_ir::program::ProgramStep;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use toy_host::Toy;

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.pt2");

fn options() -> Options {
    Options { threads: 2, verify: Verify::Nothing, ..Options::default() }
}

fn digits() -> Model {
    Model::open(DIGITS).expect("it is a model")
}

fn report(model: &Model, calls: usize) -> Report {
    Report::new(model, &options(), None, calls, &mut |_| {}).expect("the model compiles")
}

fn of_text(text: &str) -> Model {
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    Model::from_graph(graph, HashMap::new()).expect("it is a graph")
}

fn list<'a>(data: &'a Value, key: &str) -> &'a [Value] {
    data[key].as_array().expect("a list")
}

fn names(data: &Value, key: &str) -> Vec<String> {
    list(data, key).iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn everything_of_a_model_is_on_its_page() {
    let model = digits();
    let compiled = model.compile(&options()).expect("compiles");
    let realized = compiled.texts.realized.as_ref().expect("it has kernels");
    let report = report(&model, 1);
    let data = report.data();

    let kernels: Vec<&str> = realized.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names(data, "kernels"), kernels);
    let sources: Vec<&str> = list(data, "sources").iter().filter_map(Value::as_str).collect();
    for node in &model.imported.graph.nodes {
        assert!(
            node.source().map(|line| &**line).is_none_or(|line| sources.contains(&line)),
            "{:?}",
            node.source()
        );
    }
    // Every step is there, those of a call as often as the program has them.
    let is_step =
        |step: &&ProgramStep| matches!(step, ProgramStep::Launch { .. } | ProgramStep::Extern { .. });
    let each_call = list(data, "steps").iter().filter(|step| step["at_load"] == json!(false)).count();
    assert_eq!(each_call, realized.program.steps.iter().filter(is_step).count());
    assert_eq!(data["memory"]["steps"], json!(each_call));
    for text in list(data, "texts") {
        let [stage, text] = ["stage", "text"].map(|key| text[key].as_str().expect("a text"));
        let first = if stage == "kernel" { "kernel @" } else { stage };
        assert!(text.starts_with(first), "{stage}");
    }
    for kernel in kernels {
        assert!(
            list(data, "texts")[3]["text"].as_str().is_some_and(|text| text.contains(&format!("@{kernel} ")))
        );
    }
    // Whatever is named by its position is there, and what each operator computes leads to a kernel.
    let counts =
        ["sources", "nodes", "statements", "steps", "kernels"].map(|key| list(data, key).len() as u64);
    let all_below = |value: &Value, most: u64| {
        let positions = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        positions.iter().all(|at| at.is_null() || at.as_u64().is_some_and(|at| at < most))
    };
    assert!(list(data, "nodes").iter().all(|node| all_below(&node["source"], counts[0])));
    assert!(list(data, "statements").iter().all(|statement| all_below(&statement["nodes"], counts[1])));
    assert!(list(data, "steps").iter().all(|step| all_below(&step["statements"], counts[2])));
    assert!(list(data, "steps").iter().all(|step| all_below(&step["kernel"], counts[4])));
    assert!(list(data, "kernels").iter().all(|kernel| all_below(&kernel["steps"], counts[3])));
    let linear = list(data, "nodes").iter().position(|node| node["op"] == json!("aten.linear.default"));
    let reads = |statement: &&Value| {
        list(statement, "nodes").iter().any(|at| at.as_u64() == linear.map(|at| at as u64))
    };
    assert!(list(data, "statements").iter().any(|statement| reads(&statement)));
}

/// Launches, bytes and operations are those that `litz bench` gives, and times add up to what is said of all kernels.
#[test]
fn sums_are_those_of_a_profile() {
    let model = digits();
    let profiled = Options { profile: true, ..options() };
    let compiled = model.compile(&profiled).expect("compiles");
    let inputs =
        made_up::inputs(&made_up::of_model(&model), &model.imported.graph.facts).expect("sizes are known");
    let measured = measure::measure(&compiled, None, &inputs, &profiled, 2).expect("calls work");
    let loops = compiled.texts.loops.as_ref().expect("there was no cache");
    let times = measured.kernels(&compiled, loops);

    let report = report(&model, 3);
    let data = report.data();
    let kernels = list(data, "kernels");
    assert!(!times.is_empty());
    for time in &times {
        let kernel = &kernels[time.kernel];
        assert_eq!(
            [&kernel["launches"], &kernel["bytes"], &kernel["flops"]].map(number),
            [time.launches, time.bytes, time.flops]
        );
    }
    let is_measured = |kernel: &&Value| !kernel["ms"].is_null();
    assert_eq!(kernels.iter().filter(is_measured).count(), times.len());
    let total: f64 = kernels.iter().filter_map(|kernel| kernel["ms"].as_f64()).sum();
    assert!((number(&data["measured"]["kernels_ms"]) - total).abs() < 1e-9 * total);
    assert_eq!((&data["measured"]["calls"], &data["measured"]["inputs"]), (&json!(3), &json!("made up")));

    // The profile itself counts the same launches in one call.
    let profile = compiled.profile.as_ref().expect("it was asked for");
    drop(profile.take());
    compiled.run(&inputs).expect("the call is right");
    let counts: BTreeMap<(usize, Vec<i64>), Launches> = profile.take().kernels;
    let launches: u64 = counts.values().map(|launches| launches.count).sum();
    assert_eq!(
        kernels.iter().filter(is_measured).map(|kernel| number(&kernel["launches"])).sum::<f64>(),
        launches as f64
    );

    // What is allocated is what a call takes.
    let most = |key: &str| list(&data["memory"], key).iter().map(number).fold(0.0, f64::max);
    assert!(most("in_use") <= most("reserved"));
    let taken = number(&data["call_bytes"]);
    assert!(most("reserved") <= taken && taken <= most("reserved") + 4096.0, "{} {taken}", most("reserved"));
}

/// What was fused and what was not has the bytes that `litz explain` says.
#[test]
fn refused_pairs_are_those_of_explain() {
    let model = digits();
    let mut quiet = |_: &str| {};
    let texts = model
        .texts(&options(), Stage::Program, &mut Runner::new(Verify::Nothing, None, &mut quiet))
        .expect("compiles");
    let report = report(&model, 0);
    let fusion = &report.data()["fusion"];
    let verdicts = litz::explain::verdicts(&texts.notes);
    assert!(verdicts.len() > 1);
    for (found, verdict) in list(fusion, "verdicts").iter().zip(&verdicts) {
        assert_eq!(
            (found["name"].as_str(), number(&found["bytes"])),
            (Some(verdict.name()), verdict.bytes())
        );
    }
    assert_eq!(list(fusion, "pairs").len(), texts.notes.len());
}

#[test]
fn without_calls_there_are_estimates() {
    let none = report(&digits(), 0);
    assert_eq!(
        (&none.data()["measured"], &none.data()["unmeasured"]),
        (&Value::Null, &json!("no calls were asked for"))
    );
    let bytes: f64 = list(none.data(), "kernels").iter().map(|kernel| number(&kernel["bytes"])).sum();
    assert!(bytes > 0.0);
    // Nor for a machine that this one is not.
    let neon = Options {
        verify: Verify::Nothing,
        ..Options::for_target("cpu(isa=neon, threads=2)".parse().expect("a target"))
    };
    if cfg!(target_arch = "x86_64") {
        let report = Report::new(&digits(), &neon, None, 5, &mut |_| {}).expect("it compiles");
        assert_eq!(report.data()["unmeasured"], json!("this machine cannot run the code"));
    }
}

#[test]
fn inputs_of_the_caller_have_to_fit() {
    let model = digits();
    let images = |rows: usize| {
        [Tensor::zeros(litz_ir::Dtype::F32, &[rows, 1, 8, 8], &[64, 64, 8, 1]).expect("it is small")]
    };
    let given = Report::new(&model, &options(), Some(&images(5)), 1, &mut |_| {}).expect("five images fit");
    assert_eq!(given.data()["measured"]["inputs"], json!("given"));
    let refused = Report::new(&model, &options(), Some(&images(65)), 1, &mut |_| {});
    assert!(matches!(refused, Err(Error::Run(_))));
}

/// Operators of a host are counted, each with its lines.
#[test]
fn fallbacks_are_counted() {
    let text = "graph @g on cpu {
  op mylib.foo.default(Tensor x) -> Tensor
  %x: f32[3, 4] = input
  %a: f32[3, 4] = aten.add.Scalar(%x, 1, 1) at \"model.py:2\"
  %f: f32[3, 4] = mylib.foo.default(%a) at \"model.py:3\"
  %g: f32[3, 4] = mylib.foo.default(%f) at \"model.py:4\"
  %y: f32[3, 4] = aten.relu.default(%g) at \"model.py:5\"
  return %y
}
";
    let options = Options { host: Some(HostOption(Toy::new())), ..options() };
    let report = Report::new(&of_text(text), &options, None, 2, &mut |_| {}).expect("it compiles");
    let host = &list(report.data(), "hosts")[0];
    assert_eq!((&host["op"], &host["count"]), (&json!("mylib.foo.default"), &json!(2)));
    assert_eq!(host["sources"], json!(["model.py:3", "model.py:4"]));
    // The calls that are timed, and those before them: all of two.
    assert!(
        host["calls"].as_u64().is_some_and(|calls| calls >= 4 && calls % 2 == 0) && number(&host["ms"]) > 0.0
    );
}

/// The JSON of a page, as a browser takes it.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").expect("it has data");
    let (data, _) = rest.split_once("</script>").expect("it ends");
    data.parse().expect("it is JSON")
}

#[test]
fn hostile_names_are_names() {
    const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--";
    let text = format!(
        "graph @g on cpu {{\n  %x: f32[4] = input\n  %y: f32[4] = aten.relu.default(%x) at \"{HOSTILE}:1\"\n  return %y\n}}\n"
    );
    let report = report(&of_text(&text), 0).titled(HOSTILE);
    let page = report::page(HOSTILE, &[report], &[HOSTILE.to_owned()]);
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert!(!page.contains("<img") && !page.contains("<!--"));
    let data = data_of(&page);
    assert_eq!((&data["title"], &data["notes"][0]), (&json!(HOSTILE), &json!(HOSTILE)));
    assert_eq!(data["models"][0]["sources"], json!([format!("{HOSTILE}:1")]));
}

/// A chain of thousands of operators: texts and lists are bounded, and the page is no larger than a few megabytes.
#[test]
fn large_models_have_pages_of_bounded_size() {
    const LENGTH: usize = 1500;
    let mut text = "graph @chain on cpu {\n  %x0: f32[8, 8] = input\n".to_owned();
    for at in 0..LENGTH {
        let name = "n".repeat(1 + at % 300);
        text += &format!(
            "  %{name}{at}: f32[8, 8] = aten.mm.default(%x{at}, %x{at}) at \"model.py:{at}\"\n  %x{}: f32[8, 8] = aten.tanh.default(%{name}{at}) at \"model.py:{at}\"\n",
            at + 1
        );
    }
    text += &format!("  return %x{LENGTH}\n}}\n");
    let report = report(&of_text(&text), 0);
    assert_eq!(
        (list(report.data(), "nodes").len(), list(report.data(), "sources").len()),
        (2 * LENGTH, LENGTH)
    );
    assert!(list(&report.data()["fusion"], "pairs").len() <= 1000);
    let page = report::page("chain", &[report], &[]);
    assert!(page.len() < 12 << 20, "{}", page.len());
    assert_eq!(list(&data_of(&page), "models").len(), 1);
}
