//! Runs models by edited schedules: one that is proved gives the same numbers, any other is refused by name.

#![allow(missing_docs, reason = "a test")]

use litz::tensors;
use litz::{Compiled, Error, GivenSchedule, Model, Options, Runner, Stage, Tensor};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A target whose code every x86-64 machine runs, so that the texts below are the same everywhere.
const TARGET: &str = "cpu(isa=sse2, threads=2)";

fn digits() -> Model {
    Model::open(Path::new(ROOT).join("examples/digits.pt2")).expect("it is a model")
}

fn options() -> Options {
    Options {
        reference: !cfg!(target_arch = "x86_64"),
        ..Options::for_target(TARGET.parse().expect("a target"))
    }
}

/// The scheduler's own text.
fn own(model: &Model, options: &Options) -> String {
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(options.verify, None, &mut quiet);
    let texts = model.texts(options, Stage::Schedule, &mut run).expect("it is supported");
    texts.schedule.expect("it was made").to_string()
}

fn given(text: impl Into<String>) -> Options {
    let given = GivenSchedule { name: "edited.litz".to_owned(), text: text.into() };
    Options { schedule: Some(given), ..options() }
}

/// A text with one part replaced, which is there.
#[track_caller]
fn edit(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the schedule has no `{from}`:\n{text}");
    text.replacen(from, to, 1)
}

fn logits(compiled: &Compiled) -> Tensor {
    let images =
        &tensors::read(&Path::new(ROOT).join("examples/digits.safetensors")).expect("readable")["images"];
    let outputs = compiled.run(std::slice::from_ref(images)).expect("the images fit");
    outputs[0].tensor().expect("one tensor").clone()
}

#[track_caller]
fn refused(model: &Model, options: &Options) -> String {
    match model.compile(options) {
        Err(error @ Error::Invalid(_)) => error.to_string(),
        Err(error) => panic!("expected an invalid schedule, found {error}"),
        Ok(_) => panic!("it was accepted"),
    }
}

const FILL: &str = "    parallel g0 in s31, g1 in 10 grain 20 {
      vector g2 in 10 by 4 { input_pad [p0 = g0, p2 = g1, p3 = g2] }
    }
";
const POOL: &str = "      for r0_0 in 2, r1_0 in 2 {
        vector v in 16 by 4 { n10.update [i = g0, j = 16*b + v, k = g1, l = g2, r0 = r0_0, r1 = r1_0] }
      }";

#[test]
fn proved_schedules_give_the_same_numbers() {
    let model = digits();
    let own = own(&model, &options());
    let edits = [
        own.clone(),
        edit(&own, "grain 20", "grain 1"),
        // Another order of loops, another split and no vectors.
        edit(
            &own,
            FILL,
            "    parallel a in 10, b in s31 grain 3 {
      for c in 5 {
        unroll d in 2 { input_pad [p0 = b, p2 = a, p3 = 2*c + d] }
      }
    }
",
        ),
        // Two loops of the window as one.
        edit(
            &own,
            POOL,
            "      for w in 4 {
        vector v in 16 by 4 { n10.update [i = g0, j = 16*b + v, k = g1, l = g2, r0 = floordiv(w, 2), r1 = mod(w, 2)] }
      }",
        ),
    ];
    for reference in [options().reference, true] {
        let expected = logits(&model.compile(&Options { reference, ..options() }).expect("compiles"));
        for text in &edits {
            let compiled = model.compile(&Options { reference, ..given(text.clone()) });
            let compiled = compiled.unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(logits(&compiled), expected, "{text}");
        }
    }
}

#[test]
fn what_cannot_be_proved_is_refused_by_name() {
    let model = digits();
    let own = own(&model, &options());
    let without_fill = edit(&edit(&own, FILL, ""), "  kernel k3 {\n  }\n", "");
    let late = {
        let (before, from) = own.split_once("  kernel k3 {").expect("there is one");
        let (kernel, after) = from.split_once("\n  }\n").expect("it ends");
        let at = after.find("  kernel k5 {").expect("there is one");
        format!("{before}{}  kernel k3 {{{kernel}\n  }}\n{}", &after[..at], &after[at..])
    };
    let cases = [
        (without_fill, "missing-nest"),
        (late, "statement-order"),
        (edit(&own, "p3 = g2]", "p3 = 0]"), "axis-coverage"),
        (edit(&own, "p3 = g2]", "p3 = g2 + 1]"), "axis-coverage"),
        (edit(&own, "vector g2 in 10 by 4", "vector g2 in 9 by 4"), "axis-coverage"),
        (edit(&own, "vector g2 in 10 by 4", "vector g2 in 10 by 3"), "wrong-lanes"),
        (edit(&own, "vector g2 in 10 by 4", "vector g2 in 10 by 1073741824"), "wrong-lanes"),
        (edit(&own, "vector g2 in 10 by 4", "warp g2 in 10"), "wrong-level"),
        (edit(&own, "input_pad at 0", "input_pad at 64"), "shared-memory"),
        (edit(&own, "for r0_0 in 6", "fro r0_0 in 6"), "syntax"),
        (edit(&own, "threads=2", "threads=3"), "wrong-target"),
        (String::new(), "syntax"),
    ];
    for (text, slug) in cases {
        let error = refused(&model, &given(text.clone()));
        assert!(error.contains(&format!("error[{slug}]: edited.litz: ")), "{slug}: {error}\n{text}");
    }
}

#[test]
fn schedules_of_other_models_and_other_options_are_refused() {
    let model = digits();
    let other = Path::new(ROOT).join("crates/litz-import/tests/golden/2.15/mlp.pt2");
    let other = own(&Model::open(other).expect("it is a model"), &options());
    let thawed = own(&model, &Options { freeze: false, ..options() });
    for text in [other, thawed] {
        let error = refused(&model, &given(text));
        assert!(error.contains("a schedule belongs to one model, compiled with the same options"), "{error}");
        assert!(error.lines().count() <= 4, "{error}");
    }
    let error = refused(
        &model,
        &given(own(&model, &Options::for_target("cpu(isa=avx2, threads=2)".parse().expect("a target")))),
    );
    assert!(
        error.contains(
            "expected a schedule for cpu(isa=sse2, threads=2), found one for cpu(isa=avx2, threads=2)"
        ),
        "{error}"
    );
    assert!(error.contains("--target 'cpu(isa=avx2, threads=2)'"), "{error}");
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("litz-schedules-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("writable");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn each_schedule_has_its_own_entry_in_the_cache() {
    let (folder, model) = (Folder::new("cache"), digits());
    let cached =
        |options: Options| Options { cache: Some(folder.0.clone()), verify: litz::Verify::Stages, ..options };
    let own = own(&model, &options());
    let edited = edit(&own, "grain 20", "grain 7");
    let was_compiled = |options: Options| {
        let compiled = model.compile(&cached(options)).expect("compiles");
        compiled.timings.iter().any(|timing| timing.name == "realize")
    };
    assert!(was_compiled(options()));
    assert!(was_compiled(given(own.clone())));
    assert!(was_compiled(given(edited.clone())));
    assert!(!was_compiled(options()) && !was_compiled(given(own)) && !was_compiled(given(edited.clone())));
    // The name of the file is nothing that the code depends on.
    let renamed = GivenSchedule { name: "renamed.litz".to_owned(), text: edited };
    assert!(!was_compiled(Options { schedule: Some(renamed), ..options() }));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_command_line_writes_edits_and_runs() {
    let folder = Folder::new("cli");
    let file = folder.0.join("digits.litz");
    let path = file.to_str().expect("plain");
    let litz = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.current_dir(ROOT).env("LITZ_CACHE_DIR", "").args(words);
        let output = command.output().expect("litz starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let model = ["examples/digits.pt2", "--target", TARGET];
    let with = |first: &str, rest: &[&str]| litz(&[&[first], &model[..], rest].concat());
    assert_eq!(with("compile", &["--to", "schedule", "-o", path]).0, Some(0));
    let own = fs::read_to_string(&file).expect("written");
    let (status, plain, _) = with("run", &[]);
    assert_eq!(status, Some(0));

    fs::write(&file, edit(&own, "grain 20", "grain 17")).expect("writable");
    assert_eq!(with("run", &["--schedule", path]), (Some(0), plain, String::new()));
    let (status, kernels, _) = with("compile", &["--to", "kernel", "--schedule", path]);
    assert_eq!(status, Some(0));
    assert!(kernels.contains("grain 17"), "{kernels}");
    assert_eq!(with("bench", &["--runs", "1", "--json", "--schedule", path]).0, Some(0));

    let tuned = folder.0.join("tuned.litz");
    let tuned = tuned.to_str().expect("plain");
    assert_eq!(with("tune", &["--budget", "1s", "-o", tuned]).0, Some(0));
    assert_eq!(with("run", &["--schedule", tuned]).0, Some(0));
    assert_eq!(with("tune", &["--device", "reference"]).0, Some(3));

    fs::write(&file, edit(&own, "p3 = g2]", "p3 = 0]")).expect("writable");
    let (status, _, error) = with("run", &["--schedule", path]);
    assert_eq!(status, Some(3));
    assert!(error.contains("error[axis-coverage]") && error.contains(path), "{error}");
    let (status, _, error) = with("run", &["--schedule", "no-such-file.litz"]);
    assert_eq!(status, Some(3), "{error}");
    let (status, _, error) = with("compile", &["--to", "loops", "--schedule", path]);
    assert_eq!((status, error.contains("loops comes before it")), (Some(3), true), "{error}");
}
