//! Holds the trace that `litz bench --trace` writes to the rules of the trace event format: what breaks one of them is not shown.

#![allow(missing_docs, reason = "a test")]

use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// One thread of one process.
type Track = (u64, u64);

/// An event that says how long something took, in microseconds.
struct Complete {
    start: f64,
    time: f64,
    launch: String,
}

fn traced(model: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let name = Path::new(model).file_stem().expect("it has a name").to_string_lossy();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.trace.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.current_dir(root).args(["bench", model, "--threads", "2", "--runs", "4"]);
    let done = command.arg("--trace").arg(&path).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(&path).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    let text = event[key].as_str().unwrap_or_else(|| panic!("{key} is no text: {event}"));
    assert!(!text.is_empty(), "{key} is empty: {event}");
    text
}

fn number(event: &Value, key: &str) -> f64 {
    let number = event[key].as_f64().unwrap_or_else(|| panic!("{key} is no number: {event}"));
    assert!(number.is_finite() && number >= 0.0, "{key}: {event}");
    number
}

/// The events of each thread. All that the format asks for is there: a phase, numbers of process and thread, names of both, times.
fn tracks(trace: &Value) -> HashMap<Track, Vec<Complete>> {
    assert!(["ms", "ns"].contains(&text(trace, "displayTimeUnit")));
    let (mut processes, mut threads) = (HashMap::new(), HashMap::new());
    let mut tracks: HashMap<Track, Vec<Complete>> = HashMap::new();
    for event in trace["traceEvents"].as_array().expect("a list of events") {
        let [pid, tid] = ["pid", "tid"]
            .map(|key| event[key].as_u64().unwrap_or_else(|| panic!("{key} is no number: {event}")));
        match text(event, "ph") {
            "M" => {
                let name = text(&event["args"], "name").to_owned();
                let earlier = match text(event, "name") {
                    "process_name" => processes.insert(pid, name),
                    "thread_name" => threads.insert((pid, tid), name),
                    other => panic!("no such kind of metadata: {other}"),
                };
                assert_eq!(earlier, None, "{event}");
            }
            "X" => {
                assert!(!text(event, "name").is_empty() && !text(event, "cat").is_empty());
                let launch = text(&event["args"], "launch").to_owned();
                let (start, time) = (number(event, "ts"), number(event, "dur"));
                tracks.entry((pid, tid)).or_default().push(Complete { start, time, launch });
            }
            other => panic!("no such phase: {other}"),
        }
    }
    for track in tracks.keys() {
        assert!(threads.contains_key(track) && processes.contains_key(&track.0), "{track:?}");
    }
    tracks
}

/// Launches of the one thread, which come one after another, from the first on.
fn launches(model: &str) -> Vec<String> {
    let trace = traced(model);
    let mut tracks: Vec<Vec<Complete>> = tracks(&trace).into_values().collect();
    assert_eq!(tracks.len(), 1);
    let track = tracks.remove(0);
    assert!(track[0].start == 0.0, "{}", track[0].start);
    for pair in track.windows(2) {
        // Nanoseconds are not exact as fractions of a microsecond.
        let end = pair[0].start + pair[0].time;
        assert!(
            end <= pair[1].start + 1e-4,
            "{} ends at {end}, behind {} at {}",
            pair[0].launch,
            pair[1].launch,
            pair[1].start
        );
    }
    track.into_iter().map(|event| event.launch).collect()
}

/// One call of the trace, which all others are like.
fn one_call(launches: &[String]) -> &[String] {
    let next = launches[1..].iter().position(|launch| *launch == launches[0]);
    let call = &launches[..next.map_or(launches.len(), |at| at + 1)];
    assert!(launches.chunks(call.len()).all(|other| other == call), "{launches:?}");
    call
}

#[test]
fn launches_of_a_model_come_in_order_call_by_call() {
    let launches = launches("examples/digits.pt2");
    assert!(one_call(&launches).len() > 2, "{launches:?}");
}

#[test]
fn launches_of_a_branch_come_between_those_around_it() {
    let launches = launches("filetests/run/control/branch.litz");
    let call = one_call(&launches);
    let of_branch = call.iter().position(|launch| launch.starts_with("yes_") || launch.starts_with("no_"));
    let of_branch = of_branch.expect("an arm has a kernel");
    assert!(0 < of_branch && of_branch + 1 < call.len(), "{call:?}");
}
