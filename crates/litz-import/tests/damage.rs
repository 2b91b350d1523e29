//! Checks that damaged and hostile archives give a clear error, quickly and with little memory, and never a panic.

mod common;

use common::{Parts, VERSIONS, Zip, bytes, import_bytes};
use litz_import::{Archive, ImportError};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: [&str; 6] = ["branch", "cache_core", "dynamic", "no_grad", "tree", "views"];

/// Deterministic pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn slug_of(parts: &Parts) -> &'static str {
    let error = parts.import().expect_err("damaged");
    assert!(!error.to_string().is_empty() && error.to_string().len() < 2000);
    error.slug()
}

/// Largest memory this process ever used, in MiB.
fn peak_memory() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? / 1024)
}

#[test]
fn truncated_archives_are_refused() {
    for name in NAMES {
        let whole = bytes("2.15", name);
        for part in 0..50 {
            let cut = whole[..whole.len() * part / 50].to_vec();
            assert_eq!(import_bytes(cut).expect_err("cut").slug(), "bad-archive", "{name} {part}/50");
        }
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let start = Instant::now();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for version in VERSIONS {
        for name in NAMES {
            let whole = bytes(version, name);
            for _ in 0..150 {
                let mut damaged = whole.clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(damaged.len());
                    damaged[at] ^= 1 << random.below(8);
                }
                let _ = import_bytes(damaged);
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

/// Checksums stop most flips; here they are made right again, so that the damage reaches the readers of each entry.
#[test]
fn damaged_programs_never_panic() {
    let start = Instant::now();
    let mut random = Random(0x1234_5678_9abc_def1);
    for name in NAMES {
        for entry in ["models/model.json", "data/weights/model_weights_config.json"] {
            for _ in 0..400 {
                let mut parts = Parts::of("2.15", name);
                let text = parts.get(entry);
                // Structure survives better when a byte takes the place of one of its kind.
                let at = random.below(text.len());
                text[at] = match text[at] {
                    b'0'..=b'9' => b"0123456789"[random.below(10)],
                    b'a'..=b'z' => b"abcdefnstu_"[random.below(11)],
                    _ => text[random.below(text.len())],
                };
                let _ = parts.import();
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(peak_memory().is_none_or(|mebibytes| mebibytes < 300), "{:?} MiB", peak_memory());
}

const MODEL: &str = "models/model.json";
const WEIGHTS: &str = "data/weights/model_weights_config.json";
const SYMBOL: &str = "Symbol('s77', positive=True, integer=True)";
const MATRIX: &str = r#"{"as_int": 4}, {"as_int": 8}"#;
const OFFSET: &str = r#""storage_offset": {"as_int": 0}"#;
const CPU: &str = r#"{"type": "cpu", "index": null}"#;
const USER_X: &str = r#"{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}"#;
const FIXED_TWICE: &str = r#"{"constant_input": {"name": "x", "value": {"as_int": 1}}},
                             {"constant_input": {"name": "y", "value": {"as_int": 1}}}"#;

/// Archive, entry, text in it, what takes its place, and the error.
#[rustfmt::skip]
const CONTRADICTIONS: &[(&str, &str, &str, &str, &str)] = &[
    // Counts.
    ("mlp", MODEL, r#"{"user_output": {"arg": {"as_tensor": {"name": "linear_1"}}}}"#, "", "bad-program"),
    ("mlp", MODEL, USER_X, r#"{"token": {"arg": {"name": "x"}}}"#, "bad-pytree"),
    ("mlp", MODEL, USER_X, FIXED_TWICE, "bad-program"),
    ("mlp", MODEL, r#"\"children_spec\": []}]}, {"#, r#"\"children_spec\": []}]}, 7, {"#, "bad-pytree"),
    ("tree", MODEL, r#"{\"type\": null, \"context\": null, \"children_spec\": []}, "#, "", "bad-pytree"),
    ("mlp", MODEL, r#""strides": [{"as_int": 8}, {"as_int": 1}]"#, r#""strides": [{"as_int": 8}]"#, "bad-program"),
    // Names.
    ("mlp", MODEL, r#"{"as_tensor": {"name": "linear"}}, "kind""#, r#"{"as_tensor": {"name": "nobody"}}, "kind""#, "bad-program"),
    ("mlp", MODEL, r#""outputs": [{"as_tensor": {"name": "gelu"}}]"#, r#""outputs": [{"as_tensor": {"name": "linear"}}]"#, "bad-program"),
    ("mlp", MODEL, r#"{"name": "weight", "arg""#, r#"{"name": "weights", "arg""#, "bad-program"),
    ("mlp", MODEL, r#"{"name": "input", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, "#, "", "bad-program"),
    ("mlp", MODEL, r#""parameter_name": "fc1.bias""#, r#""parameter_name": "fc1.weight""#, "bad-weight"),
    ("mlp", MODEL, r#""parameter_name": "fc1.bias""#, r#""parameter_name": "fc3.bias""#, "bad-weight"),
    ("cache_core", MODEL, r#""user_input_name": "x""#, r#""user_input_name": "y""#, "bad-program"),
    ("cache_core", MODEL, r#"{"name": "index_put"}, "buffer_name": "k""#, r#"{"name": "index_put"}, "buffer_name": "q""#, "bad-program"),
    // Tags, types and versions.
    ("mlp", MODEL, r#"{"as_tensor": {"name": "x"}}"#, r#"{"as_quaternion": 1}"#, "bad-json"),
    ("mlp", MODEL, r#""dtype": 7"#, r#""dtype": 99"#, "unsupported-type"),
    ("mlp", MODEL, r#""dtype": 7"#, r#""dtype": "f32""#, "bad-json"),
    ("mlp", MODEL, r#""layout": 7"#, r#""layout": 2"#, "unsupported-type"),
    ("mlp", MODEL, CPU, r#"{"type": "tpu", "index": null}"#, "unsupported-type"),
    ("mlp", MODEL, r#""major": 8"#, r#""major": 7"#, "schema-version"),
    ("mlp", MODEL, r#"{"as_int": 3}"#, r#"{"as_int": -3}"#, "bad-program"),
    // Weights.
    ("mlp", WEIGHTS, "weight_0", "weight_9", "missing-entry"),
    ("mlp", WEIGHTS, r#""use_pickle": false"#, r#""use_pickle": true"#, "pickled-weight"),
    ("mlp", WEIGHTS, MATRIX, r#"{"as_int": 4}, {"as_int": 9}"#, "bad-weight"),
    ("mlp", WEIGHTS, MATRIX, r#"{"as_int": 4}, {"as_int": -8}"#, "bad-weight"),
    ("mlp", WEIGHTS, MATRIX, r#"{"as_int": 8}, {"as_int": 4}"#, "bad-weight"),
    ("mlp", WEIGHTS, MATRIX, r#"{"as_int": 4}, {"as_int": 7}"#, "bad-weight"),
    ("mlp", WEIGHTS, MATRIX, r#"{"as_int": 9223372036854775807}, {"as_int": 9223372036854775807}"#, "bad-weight"),
    ("mlp", WEIGHTS, OFFSET, r#""storage_offset": {"as_int": 1}"#, "bad-weight"),
    ("mlp", WEIGHTS, OFFSET, r#""storage_offset": {"as_int": 9223372036854775807}"#, "bad-weight"),
    ("mlp", WEIGHTS, r#""dtype": 7"#, r#""dtype": 8"#, "bad-weight"),
    ("mlp", WEIGHTS, r#""dtype": 7"#, r#""dtype": 13"#, "bad-weight"),
    // Expressions and ranges.
    ("dynamic", MODEL, SYMBOL, "Symbol('s77'", "bad-expression"),
    ("dynamic", MODEL, SYMBOL, "sin(Symbol('s77'))", "unsupported-expression"),
    ("dynamic", MODEL, r#""max_val": 64"#, r#""max_val": 1"#, "bad-program"),
];

#[test]
fn contradictions_in_a_program_are_named() {
    for (name, entry, from, to, slug) in CONTRADICTIONS {
        let parts = Parts::of("2.15", name).replace(entry, from, to);
        assert_eq!(slug_of(&parts), *slug, "{name}: {from} => {to}");
    }
    let mlp = || Parts::of("2.15", "mlp");
    assert_eq!(slug_of(&mlp().remove("data/weights/weight_0")), "missing-entry");
    assert_eq!(slug_of(&mlp().remove(WEIGHTS)), "bad-weight");
}

#[test]
fn other_formats_are_told_apart() {
    let mlp = || Parts::of("2.15", "mlp");
    let renamed = |from: &str, to: &str| {
        let mut parts = mlp();
        let entry = parts.0.iter_mut().find(|(name, _)| name == from).expect("an entry");
        entry.0 = to.to_owned();
        parts
    };
    assert_eq!(slug_of(&renamed("models/model.json", "models/model.txt")), "no-model");
    assert_eq!(slug_of(&renamed("data/weights/weight_0", "models/other.json")), "several-models");
    assert_eq!(slug_of(&renamed("data/weights/weight_0", "data/weights/model.pt")), "old-format");
    assert_eq!(slug_of(&renamed("models/model.json", "serialized_exported_program.json")), "old-format");
    assert_eq!(slug_of(&mlp().replace("archive_version", "0", "1")), "bad-format");
    assert_eq!(slug_of(&mlp().replace("archive_format", "pt2", "pt3")), "bad-format");
    assert_eq!(slug_of(&mlp().replace("byteorder", "little", "big")), "bad-format");
    assert_eq!(slug_of(&mlp().remove("archive_format")), "missing-entry");
    let mut pickle = Zip::default();
    pickle.add(b"model/data.pkl", b"\x80\x02.");
    assert_eq!(import_bytes(pickle.finish()).expect_err("a pickle").slug(), "old-format");
    for text in ["", "PK", "not a zip", &"PK\x05\x06".repeat(100)] {
        assert_eq!(import_bytes(text.as_bytes().to_vec()).expect_err("no zip").slug(), "bad-archive");
    }
    let mut latin = mlp();
    latin.get("models/model.json")[100] = 0xe9;
    assert_eq!(slug_of(&latin), "not-utf8");
}

#[test]
fn containers_that_lie_are_refused() {
    let open = |bytes: Vec<u8>| Archive::open(Arc::new(bytes)).map(|_| ()).map_err(|error| error.slug());
    let mut twice = Zip::default();
    twice.add(b"root/archive_format", b"pt2");
    twice.add(b"root/archive_format", b"pt2");
    assert_eq!(open(twice.finish()), Err("duplicate-entry"));
    let mut roots = Zip::default();
    roots.add(b"one/archive_format", b"pt2");
    roots.add(b"two/archive_version", b"0");
    assert_eq!(open(roots.finish()), Err("bad-archive"));
    let mut name = Zip::default();
    name.add(b"root/\xff", b"");
    assert_eq!(open(name.finish()), Err("bad-archive"));
    assert_eq!(open(Zip::default().finish()), Err("bad-archive"));

    let good = Parts::of("2.15", "mlp").zip();
    let central = find(&good, b"PK\x01\x02");
    let end = good.len() - 22;
    // Offset in the file, new bytes.
    let lies: [(usize, &[u8], &str); 9] = [
        (central + 8, &[1], "bad-archive"),                       // encrypted
        (central + 10, &[8], "compressed-entry"),                 // deflated
        (central + 20, &[0xff, 0xff, 0, 0], "bad-archive"),       // packed size
        (central + 20, &[0xff; 8], "bad-archive"),                // sizes in a field that is not there
        (central + 28, &[0xff, 0xff], "bad-archive"),             // name length
        (central + 42, &[0xff, 0xff, 0xff, 0x7f], "bad-archive"), // offset
        (central + 42, &[1], "bad-archive"),                      // offset of no header
        (end + 10, &[0xff, 0xff], "bad-archive"),                 // count
        (end + 16, &[0, 0, 0, 0], "bad-archive"),                 // directory offset
    ];
    for (at, lie, slug) in lies {
        let mut damaged = good.clone();
        damaged[at..at + lie.len()].copy_from_slice(lie);
        assert_eq!(open(damaged), Err(slug), "at {at}");
    }
}

/// Bytes belong to one entry, and what local headers and the directory say is the same.
#[test]
fn entries_that_overlap_or_hide_are_refused() {
    let open = |bytes: Vec<u8>| Archive::open(Arc::new(bytes)).map(|_| ()).map_err(|error| error.slug());
    let good = Parts::of("2.15", "mlp").zip();
    assert_eq!(open(good.clone()), Ok(()));
    let (central, second) = (find(&good, b"PK\x01\x02"), 4 + find(&good[4..], b"PK\x03\x04"));
    let with = |lies: &[(usize, &[u8])]| {
        let mut damaged = good.clone();
        lies.iter().for_each(|(at, lie)| damaged[*at..at + lie.len()].copy_from_slice(lie));
        damaged
    };
    // The first entry reaches into the second, by both of its headers.
    let size = (second as u32).to_le_bytes();
    assert_eq!(
        open(with(&[(18, &size), (22, &size), (central + 20, &size), (central + 24, &size)])),
        Err("bad-archive")
    );
    assert_eq!(open(with(&[(18, &size), (22, &size)])), Err("bad-archive"), "by its own header");
    assert_eq!(open(with(&[(14, &[0; 4])])), Err("bad-archive"), "another checksum");
    // The directory leaves out an entry.
    let end = good.len() - 22;
    let count = u16::from_le_bytes([good[end + 10], good[end + 11]]) - 1;
    let fewer = count.to_le_bytes();
    assert_eq!(open(with(&[(end + 8, &fewer), (end + 10, &fewer)])), Err("bad-archive"));
    // Bytes before the archive, which move everything in it.
    assert_eq!(open([b"#!/bin/sh\n", &good[..]].concat()), Err("bad-archive"));
}

/// What a directory claims is no reason to ask for memory.
#[test]
fn directories_that_claim_billions_of_entries_are_refused() {
    let start = Instant::now();
    for count in [1 << 20, 1 << 32, u64::MAX / 64, u64::MAX] {
        for size in [0, 1 << 30, 1 << 62, u64::MAX] {
            let mut zip = Zip::default();
            zip.add(b"root/archive_format", b"pt2");
            let bytes = zip.finish_wide(count, size);
            assert_eq!(import_bytes(bytes).expect_err("a lie").slug(), "bad-archive", "{count} {size}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(peak_memory().is_none_or(|mebibytes| mebibytes < 300), "{:?} MiB", peak_memory());
}

#[test]
fn sizes_of_64_bits_are_read() {
    let parts = Parts::of("2.15", "mlp");
    let mut zip = Zip::default();
    for (name, contents) in &parts.0 {
        zip.add_wide(format!("root/{name}").as_bytes(), contents);
    }
    let wide = import_bytes(zip.finish()).expect("imports");
    assert_eq!(wide.graph.to_string(), parts.import().expect("imports").graph.to_string());
}

#[test]
fn a_flipped_byte_of_text_is_found_by_its_checksum() {
    let whole = bytes("2.15", "mlp");
    let mut damaged = whole.clone();
    let at = find(&whole, b"aten.gelu");
    damaged[at] ^= 2;
    let error = import_bytes(damaged).expect_err("damaged");
    assert_eq!(error, ImportError::Checksum { path: "models/model.json".to_owned() });
    let mut damaged = whole;
    let archive = Archive::open(Arc::new(damaged.clone())).expect("opens");
    let range = archive.range("data/weights/weight_0").expect("a weight");
    assert_eq!(archive.check("data/weights/weight_0"), Ok(()));
    damaged[range.start] ^= 1;
    let archive = Archive::open(Arc::new(damaged)).expect("weights are not read");
    assert_eq!(archive.check("data/weights/weight_0").map_err(|error| error.slug()), Err("bad-checksum"));
}

#[test]
fn deep_and_repetitive_programs_stay_cheap() {
    let start = Instant::now();
    let node = r#"{"target": "torch.ops.aten.gelu.default", "#;
    let nested = |depth: usize| {
        let graph = r#"{"target": "torch.ops.higher_order.cond", "outputs": [], "inputs": [{"name": "", "arg": {"as_graph": {"name": "g", "graph": {"inputs": [], "outputs": [], "tensor_values": {}, "sym_int_values": {}, "sym_bool_values": {}, "nodes": ["#;
        let close = "]}}}}]}, ";
        graph.repeat(depth) + &close.repeat(depth).replace(", ]", "]") + node
    };
    let shallow = Parts::of("2.15", "mlp").replace_in_model(node, &nested(4).replace("}, ]", "}]"));
    assert_eq!(shallow.import().expect("nests").graph.subgraphs[0].subgraphs[0].subgraphs.len(), 1);
    let deep = Parts::of("2.15", "mlp").replace_in_model(node, &nested(20_000).replace("}, ]", "}]"));
    assert_eq!(slug_of(&deep), "bad-json");
    let arrays =
        Parts::of("2.15", "mlp").replace_in_model(r#"{"as_tensor": {"name": "x"}}"#, &"[".repeat(1 << 20));
    assert_eq!(slug_of(&arrays), "bad-json");

    let guard = r#""L['n'] % 1000003 != 3", "#;
    let guards = |count: usize| {
        let guards: String = (0..count).map(|k| guard.replace(" 3\"", &format!(" {k}\""))).collect();
        Parts::of("2.15", "dynamic")
            .replace_in_model(r#""guards_code": ["#, &format!(r#""guards_code": [{guards}"#))
    };
    assert!(guards(100).import().is_ok());
    assert_eq!(slug_of(&guards(20_000)), "bad-program");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(peak_memory().is_none_or(|mebibytes| mebibytes < 300), "{:?} MiB", peak_memory());
}

fn find(haystack: &[u8], needle: &[u8]) -> usize {
    haystack.windows(needle.len()).position(|window| window == needle).expect("present")
}
