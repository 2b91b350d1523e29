//! Runs file tests as programs of C, on this machine: the same numbers, by the same rules. `LITZ_TEST_SAMPLE=100000` runs all of them, and not a
//! sample.

#![allow(missing_docs, reason = "a test")]
#![cfg(target_arch = "x86_64")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use litz::ahead::{self, Names, Program};
use litz::{Error, Model, Options, Runner, Stage, Tensor, Verify};
use litz_ir::text::graph::parse;
use litz_testing::ahead::{Failed, Machine, call, file_tests, write};
use litz_testing::filetest::slug;

/// File tests that are run, at least.
const SAMPLE: usize = 24;
/// File tests that there are, about: those of other devices left out.
const ALL: usize = 180;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn file_tests_give_the_same_numbers_as_programs_of_c() {
    let sample = std::env::var("LITZ_TEST_SAMPLE").ok().and_then(|text| text.parse().ok()).unwrap_or(SAMPLE);
    let folder = folder("ahead");
    let (tests, refused) = file_tests(&folder, Machine::X86, ALL / sample).expect("file tests compile");
    let (subjects, checks): (Vec<_>, Vec<_>) = tests.into_iter().map(|test| test.split()).unzip();
    assert_eq!(refused, [], "routines of linear algebra and of regions alone are refused");
    let outcomes = call(&folder, Machine::X86, &subjects, 3).expect("the programs run");
    let mut wrong = Vec::new();
    for (check, outcome) in checks.iter().zip(&outcomes) {
        wrong.extend(check.check(outcome).err().map(|why| format!("{}: {why}", check.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What another file expects is something else, but for a few that are alike.
    let others = checks.iter().zip(outcomes.iter().cycle().skip(1));
    let differ = others.filter(|(check, outcome)| check.check(outcome).is_err()).count();
    assert!(10 * differ >= 9 * checks.len(), "{differ} of {}", checks.len());
    assert!(checks.len() >= sample.min(100), "{} file tests", checks.len());
}

#[test]
fn functions_that_kernels_call_are_there() {
    let folder = folder("ahead-support");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    ahead::write_support(&folder).expect("it can be written to");
    let text = std::fs::read_to_string(folder.join("litz_special.c")).expect("it was written");
    // The others are those of the C library.
    let mut own = litz_llvm::emit::externals().filter(|name| name.starts_with("lz_")).peekable();
    assert!(own.peek().is_some());
    own.for_each(|name| assert!(text.contains(&format!(" {name}(")), "{name}"));
}

const RELATED: &str = "graph @g on cpu {
  sym s0 in [2, 8]
  sym s1 in [0, 64]
  guard s1 <= 3*s0 for \"the model\"
  %x: f32[s0, 3] = input
  %y: f32[2*s0, s1] = input
  %i: i64[1] = input
  %a: f32[s0, 3] = aten.neg.default(%x)
  %b: f32[2*s0, s1] = aten.neg.default(%y)
  %c: f32[1, 3] = aten.index_select.default(%x, 0, %i)
  return %a, %b, %c
}
";

#[test]
fn calls_that_do_not_fit_fail_in_the_words_of_the_runtime() {
    let graph = parse(RELATED).expect("the text parses");
    let model = Model::from_graph(graph, HashMap::new()).expect("the graph verifies");
    let options = Options { cache: None, target: Some(Machine::X86.target(2)), ..Options::default() };
    let floats =
        |sizes: &[usize]| Tensor::from_slice(sizes, &vec![1f32; sizes.iter().product()]).expect("they fit");
    let index = |at: i64| Tensor::from_slice(&[1], &[at]).expect("it fits");
    let calls = vec![
        vec![floats(&[4, 3]), floats(&[8, 12]), index(3)],
        vec![floats(&[4, 3]), floats(&[8, 12])],
        vec![index(0), floats(&[8, 12]), index(3)],
        vec![floats(&[4, 3, 1]), floats(&[8, 12]), index(3)],
        vec![floats(&[4, 2]), floats(&[8, 12]), index(3)],
        vec![floats(&[4, 3]), floats(&[10, 12]), index(3)],
        vec![floats(&[9, 3]), floats(&[18, 12]), index(3)],
        vec![floats(&[4, 3]), floats(&[8, 13]), index(3)],
        vec![floats(&[4, 3]), floats(&[8, 0]), index(4)],
        vec![floats(&[4, 3]), floats(&[8, 0]), index(-5)],
        vec![floats(&[4, 3]), floats(&[8, 0]), index(0)],
    ];
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let realized = model.texts(&options, Stage::Program, &mut runner).expect("it compiles").realized;
    let realized = realized.expect("there is a program");
    let backend = litz::backend(&options).expect("there is a backend");
    let folder = folder("ahead-errors");
    let program = (&realized, &Names::of(&model), &model as &dyn litz_runtime::weights::Weights);
    let subject =
        write(&folder, "related", program, &*backend, &options, calls.clone()).expect("it is written");
    let outcomes = call(&folder, Machine::X86, &[subject], 2).expect("the program runs");
    let found = outcomes[0].as_ref().expect("the process ends well");
    let compiled = model.compile(&options).expect("it compiles");
    let mut statuses = Vec::new();
    for (call, found) in calls.iter().zip(found) {
        let expected = compiled.run(call);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(*found, expected),
            (Err(Failed { status, text }), Err(Error::Run(error))) => {
                assert_eq!((*status, text.as_str()), (slug(&error), error.to_string().as_str()));
                statuses.push(*status);
            }
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }
    let all = ["wrong-count", "wrong-dtype", "wrong-rank", "wrong-size", "wrong-size"];
    let more = ["size-out-of-range", "check-failed", "bad-index", "bad-index"];
    assert_eq!(statuses, [&all[..], &more].concat());
}

#[test]
fn the_program_of_the_documentation_prints_what_the_runtime_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/ahead-of-time.md")).expect("the page is there");
    let (_, code) = page.split_once("```c\n").expect("the page has a program");
    let (code, _) = code.split_once("```").expect("the program ends");
    let model = Model::open(root.join("examples/digits.pt2")).expect("the model is there");
    let options = Options { cache: None, target: Some(Machine::X86.target(4)), ..Options::default() };
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Stages, None, &mut silent);
    let realized = model.texts(&options, Stage::Program, &mut runner).expect("it compiles").realized;
    let realized = realized.expect("there is a program");
    let folder = folder("ahead-page");
    let names = Names::of(&model);
    let program = Program { name: "digits", realized: &realized, names: &names, weights: &model };
    ahead::write(&folder, &program, &options).expect("it is written");
    std::fs::write(folder.join("main.c"), code).expect("the folder is there");
    // As the makefile builds the library.
    let makefile = std::fs::read_to_string(folder.join("Makefile")).expect("there is a makefile");
    let listed = |what: &str| {
        let line =
            makefile.lines().find_map(|line| line.strip_prefix(what)).expect("the makefile has the list");
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let sources = listed("SOURCES = ").into_iter().map(|object| object.replace(".o", ".c"));
    let built = Command::new("cc")
        .current_dir(&folder)
        .args(["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.c", "-o", "main"])
        .args(sources.chain(listed("KERNELS = ")))
        .args(["-lm", "-pthread"])
        .output()
        .expect("there is a compiler of C");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let printed = Command::new(folder.join("main")).current_dir(&folder).output().expect("it starts");
    let images = Tensor::from_slice(&[2, 1, 8, 8], &[0f32; 128]).expect("lengths match");
    let outputs = model.compile(&options).expect("it compiles").run(&[images]).expect("the images fit");
    let scores: Vec<f32> = outputs[0].tensor().and_then(Tensor::to_vec).expect("it gives scores");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), format!("{:.6}\n", scores[0]));
}
