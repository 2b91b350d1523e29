//! Says when each launch ran and what it computes, as the trace events that Perfetto reads, and how long each takes.

use std::collections::BTreeMap;

use litz::Compiled;
use litz::profile::Span;
use litz::provenance::{self, LaunchOf};
use serde_json::{Value, json};

/// Complete events (`"ph": "X"`) with times in microseconds, of one thread.
pub(super) fn trace(compiled: &Compiled, spans: &[Span]) -> Value {
    let launches = of(compiled);
    let event = |span: &Span| {
        let launch = launches.get(span.launch)?;
        Some(json!({
            "name": launch.title(), "cat": "kernel", "ph": "X", "pid": 1, "tid": 1,
            "ts": 1e6 * span.start.as_secs_f64(), "dur": 1e6 * span.time.as_secs_f64(),
            "args": about(span.launch, launch),
        }))
    };
    let named = |what: &str, name: &str| json!({ "name": what, "ph": "M", "pid": 1, "tid": 1, "args": { "name": name } });
    let names = [named("process_name", "litz"), named("thread_name", "launches")];
    let events: Vec<Value> = names.into_iter().chain(spans.iter().filter_map(event)).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

/// Each launch with its milliseconds in one call.
pub(super) fn launches(compiled: &Compiled, ms: &BTreeMap<usize, f64>) -> Vec<Value> {
    let launches = of(compiled);
    let row = |(&number, &ms): (&usize, &f64)| {
        let mut row = about(number, launches.get(number)?);
        row["ms"] = json!(ms);
        Some(row)
    };
    ms.iter().filter_map(row).collect()
}

fn of(compiled: &Compiled) -> Vec<LaunchOf<'_>> {
    let program = compiled.texts.realized.as_ref().map(|realized| &realized.program);
    program.map(provenance::launches).unwrap_or_default()
}

fn about(number: usize, launch: &LaunchOf<'_>) -> Value {
    let texts =
        |texts: Vec<std::sync::Arc<str>>| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    let nodes: Vec<&str> = launch.nodes.iter().map(|node| node.name.as_str()).collect();
    json!({
        "launch": format!("{}#{number}", launch.kernel), "kernel": launch.kernel, "nodes": nodes, "ops": launch.ops(),
        "modules": texts(launch.modules()), "lines": texts(launch.lines()), "was": texts(launch.before_passes()),
    })
}
