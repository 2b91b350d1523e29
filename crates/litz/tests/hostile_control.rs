//! Files with branches, loops, sizes that data decides and operators of a host, each changed in every place that a hostile
//! writer could: they are refused by name, or run inside of their buffers and give what the reference device gives.

#![allow(missing_docs, reason = "a test")]

#[path = "../../litz-import/tests/common/mod.rs"]
mod common;
mod toy_host;

use common::Parts;
use litz::{Compiled, Error, GuardPages, HostOption, Limits, Model, Options, Tensor, Value, Verify};
use litz_import::Archive;
use litz_runtime::RunError;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toy_host::Toy;

const MODEL: &str = "models/model.json";
/// One of so many changes is tried, from another one on in each file; `LITZ_TEST_SAMPLE=1` tries all.
const ONE_OF: usize = 5;

/// The archives, with what they are called with.
fn archives() -> Vec<(String, Parts, Vec<Tensor>)> {
    let golden = |name: &str| (name.to_owned(), Parts::of("2.15", name));
    let foreign = |name: &str| {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(name).with_extension("pt2");
        let bytes = std::fs::read(path).expect("an archive");
        let archive = Archive::open(Arc::new(bytes.clone())).expect("opens");
        let part = |path: &str| (path.to_owned(), bytes[archive.range(path).expect("listed")].to_vec());
        (name.to_owned(), Parts(archive.paths().map(part).collect()))
    };
    let square: Vec<f32> = (0..16u8).map(|value| f32::from(value) - 7.0).collect();
    let square = Tensor::from_slice(&[4, 4], &square).expect("16 elements");
    let oblong: Vec<f32> = (0..12u8).map(|value| f32::from(value) - 5.0).collect();
    let oblong = Tensor::from_slice(&[3, 4], &oblong).expect("12 elements");
    let count = Tensor::scalar(1i64).expect("a number");
    let pair = Tensor::from_slice(&[2], &[1.0f32, 2.0]).expect("2 elements");
    let places = Tensor::from_slice(&[3], &[2i64, 0, 5]).expect("3 elements");
    let with = |(name, parts): (String, Parts), inputs: Vec<Tensor>| (name, parts, inputs);
    vec![
        with(golden("branch"), vec![square]),
        with(golden("loop"), vec![count, pair]),
        with(golden("unbacked"), vec![places]),
        with(foreign("foo"), vec![oblong.clone()]),
        with(foreign("written"), vec![oblong.clone()]),
        with(foreign("written_raw"), vec![oblong.clone()]),
        with(foreign("lists"), vec![oblong.clone()]),
        with(foreign("rows_raw"), vec![oblong]),
    ]
}

/// Every name of a value, graph or symbol, and every operator.
fn words(json: &Json, names: &mut BTreeSet<String>, targets: &mut BTreeSet<String>) {
    match json {
        Json::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value.as_str()) {
                    ("name" | "as_name", Some(name)) if !name.is_empty() => {
                        names.insert(name.to_owned());
                    }
                    ("target", Some(target)) => {
                        targets.insert(target.to_owned());
                    }
                    _ => words(value, names, targets),
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| words(item, names, targets)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// What may stand in the place of a part of the file.
fn others(key: &str, json: &Json, names: &[String], targets: &[String]) -> Vec<Json> {
    let texts = |list: &[String]| list.iter().map(|text| json!(text)).collect();
    match json {
        Json::Number(number) => {
            let number = number.as_i64().unwrap_or(0);
            [0, 1, -1, number.wrapping_add(1), number.wrapping_neg(), 1 << 40, i64::MAX]
                .map(|n| json!(n))
                .to_vec()
        }
        Json::Bool(truth) => vec![json!(!truth)],
        Json::String(_) => match key {
            "name" | "as_name" => texts(names),
            "target" => texts(targets),
            "expr_str" => ["0", "-1", "Symbol('u0')", "Symbol('nobody')", "Max(0, Symbol('u0'))"]
                .map(|e| json!(e))
                .to_vec(),
            _ => Vec::new(),
        },
        Json::Array(items) => {
            let mut lists = vec![Vec::new(), items.iter().rev().cloned().collect()];
            for at in 0..items.len() {
                lists.push([&items[..at], &items[at + 1..]].concat());
                lists.push([&items[..=at], &items[at..]].concat());
            }
            lists.into_iter().map(Json::Array).collect()
        }
        Json::Object(fields) if fields.keys().any(|key| key.starts_with("as_")) => {
            vec![json!({"as_none": true}), json!({"as_int": 3}), json!({"as_tensor": {"name": names[0]}})]
        }
        Json::Object(_) | Json::Null => Vec::new(),
    }
}

/// Every change of one place, as the whole text.
fn changes(model: &Json) -> Vec<(String, Vec<u8>)> {
    let (mut names, mut targets) = (BTreeSet::new(), BTreeSet::new());
    words(&model["graph_module"], &mut names, &mut targets);
    let (names, targets) = (Vec::from_iter(names), Vec::from_iter(targets));
    let mut found = Vec::new();
    for top in ["/graph_module", "/range_constraints"] {
        let mut open = vec![(top.to_owned(), top.to_owned())];
        while let Some((path, key)) = open.pop() {
            let Some(part) = model.pointer(&path) else { continue };
            for other in others(&key, part, &names, &targets) {
                let mut changed = model.clone();
                if &other != part {
                    *changed.pointer_mut(&path).expect("it is there") = other.clone();
                    let shown: String = other.to_string().chars().take(60).collect();
                    found.push((format!("{path} = {shown}"), changed.to_string().into_bytes()));
                }
            }
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            match part {
                Json::Object(fields) => {
                    let wanted = fields.keys().filter(|key| *key != "metadata");
                    open.extend(wanted.map(|key| (format!("{path}/{}", escaped(key)), key.clone())));
                }
                Json::Array(items) => {
                    open.extend((0..items.len()).map(|at| (format!("{path}/{at}"), String::new())));
                }
                Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
            }
        }
    }
    found
}

fn options(reference: bool) -> Options {
    let limits = Limits {
        call_bytes: 1 << 24,
        iterations: 1 << 20,
        time: Some(Duration::from_secs(2)),
        ..Limits::default()
    };
    let guard_pages = if reference { GuardPages::Off } else { GuardPages::AtEnds };
    let host = Some(HostOption(Toy::new()));
    let verify = Verify::Passes;
    Options { host, limits, guard_pages, verify, reference, threads: 1, cache: None, ..Options::default() }
}

/// Whether an error says that the file, or what it asks for, is at fault.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Import(_) | Error::Unsupported(_) | Error::Invalid(_) | Error::Limit(_) => true,
        Error::Run(error) => !matches!(error, RunError::Bug { .. } | RunError::MissingDevice { .. }),
        Error::Io { .. } | Error::Cache(_) | Error::Artifact(_) | Error::Stopped | Error::Bug { .. } => false,
    }
}

/// What a call gives, as bits.
fn called(compiled: &Compiled, inputs: &[Tensor]) -> Result<Vec<String>, Error> {
    let shown = |value: &Value| match value {
        Value::Tensor(tensor) => {
            let bits: Vec<u64> = tensor.to_f64().into_iter().map(f64::to_bits).collect();
            format!("{:?} {:?} {bits:?}", tensor.dtype(), tensor.sizes())
        }
        Value::Scalar(_) | Value::Text(_) | Value::Nothing => format!("{value:?}"),
    };
    Ok(compiled.run(inputs)?.iter().map(shown).collect())
}

/// How a changed file ends; what must not be is an error.
fn outcome(parts: &Parts, inputs: &[Tensor]) -> Result<&'static str, String> {
    let mut results = Vec::new();
    for reference in [false, true] {
        let options = options(reference);
        let model = match Model::from_bytes_for(Arc::new(parts.zip()), &options) {
            Ok(model) => model,
            Err(error) if is_refusal(&error) => return Ok("refused by the reader"),
            Err(error) => return Err(error.to_string()),
        };
        let compiled = match model.compile(&options) {
            Ok(compiled) => compiled,
            Err(error) if is_refusal(&error) => return Ok("refused by the compiler"),
            Err(error) => return Err(error.to_string()),
        };
        results.push(called(&compiled, inputs));
    }
    match &results[..] {
        [Ok(native), Ok(expected)] if native == expected => Ok("ran"),
        [Err(native), Err(expected)] if is_refusal(native) && is_refusal(expected) => Ok("failed"),
        _ => Err(format!("natively {:?}, on the reference device {:?}", results[0], results[1])),
    }
}

#[test]
fn changed_files_are_refused_or_run() {
    let one_of = std::env::var("LITZ_TEST_SAMPLE").ok().and_then(|text| text.parse().ok()).unwrap_or(ONE_OF);
    let mut findings = Vec::new();
    for (number, (name, mut parts, inputs)) in archives().into_iter().enumerate() {
        assert_eq!(outcome(&parts, &inputs), Ok("ran"), "{name}");
        let model: Json = serde_json::from_slice(parts.get(MODEL)).expect("JSON");
        let all = changes(&model);
        let mut counts = std::collections::BTreeMap::<&str, usize>::new();
        for (what, text) in all.iter().skip(number % one_of).step_by(one_of) {
            parts.get(MODEL).clone_from(text);
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| outcome(&parts, &inputs)));
            match ended.unwrap_or_else(|_| Err("a panic".to_owned())) {
                Ok(how) => *counts.entry(how).or_default() += 1,
                Err(finding) => findings.push(format!("{name}: {what}: {finding}")),
            }
        }
        println!("{name}: {} changes, of which {counts:?}", all.len());
        assert!(counts.len() > 1, "{name}: the changes have dried up: {counts:?}");
    }
    let shown = findings[..findings.len().min(if one_of == 1 { 99 } else { 5 })].join("\n");
    assert!(findings.is_empty(), "{} findings, such as {shown}", findings.len());
}
