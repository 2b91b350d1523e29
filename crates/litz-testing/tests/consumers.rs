//! PR-1: runs the graphs of `consumers/graphs.txt` with the runtime, from a saved file, as programs of C and through the library for C: the same bits, and
//! in C the same steps. `test_consumers.py` does it with the modules of Python.

#![allow(missing_docs, reason = "a test")]
#![cfg(target_arch = "x86_64")]

#[path = "consumers/host.rs"]
mod host;
#[path = "consumers/library.rs"]
mod library;
#[path = "consumers/steps.rs"]
mod steps;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use litz::ahead::Names;
use litz::{Compiled, Error, Fallback, HostOption, Model, Options, Tensor, Value};
use litz_ir::text::graph::parse;
use litz_runtime::weights::Weights;
use litz_schedule::{Heuristics, MemoryPool};
use litz_testing::ahead::{Machine, call, write};
use litz_testing::filetest::file::TestFile;
use litz_testing::filetest::{Call, data, same};
use litz_testing::repository;

use host::Eager;
use library::Library;

/// A graph of the list, compiled for this machine.
struct Example {
    name: String,
    compiled: Compiled,
    weights: HashMap<String, Tensor>,
    calls: Vec<Call>,
}

fn options() -> Options {
    options_for(MemoryPool::Combined)
}

fn options_for(memory_pool: MemoryPool) -> Options {
    let heuristics = Heuristics { memory_pool, ..Heuristics::default() };
    let host = Some(HostOption(Arc::new(Eager)));
    let fallback = Fallback::Quiet;
    Options { cache: None, threads: 2, bind: false, host, fallback, heuristics, ..Options::default() }
}

fn example(path: &Path, options: &Options) -> Example {
    let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
    let file = TestFile::read(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (weights, calls) = data(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let graph = parse(&file.texts[0]).unwrap_or_else(|diags| panic!("{name}: {diags:?}"));
    let compiled = Model::from_graph(graph, weights.clone()).and_then(|model| model.compile(options));
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    Example { name, compiled, weights, calls }
}

fn examples() -> Vec<Example> {
    examples_with(&options())
}

fn examples_with(options: &Options) -> Vec<Example> {
    let list = repository().join("crates/litz-testing/consumers/graphs.txt");
    let list = fs::read_to_string(&list).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
    let paths = list.lines().map(|line| line.split_once(' ').expect("a kind and a path").1);
    let examples: Vec<Example> = paths.map(|path| example(&repository().join(path), options)).collect();
    assert_eq!(examples.len(), 30);
    examples
}

impl Example {
    /// What its calls give, one after another, by the compiled program.
    fn expected(&self) -> Vec<Vec<Value>> {
        let all = self.all(|inputs| self.compiled.run(inputs).map_err(|error| error.to_string()));
        for (found, call) in all.iter().zip(&self.calls) {
            same(found, &call.outputs).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
        all
    }

    fn all(&self, mut run: impl FnMut(&[Tensor]) -> Result<Vec<Value>, String>) -> Vec<Vec<Value>> {
        let one = |call: &Call| run(&call.inputs).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        self.calls.iter().map(one).collect()
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder can be made");
    folder
}

#[test]
fn a_saved_file_and_the_library_of_c_give_the_bits_of_the_runtime() {
    let folder = folder("consumers-saved");
    for example in examples() {
        // Saved before it is called: calls write to state.
        let path = folder.join(format!("{}.litzc", example.name));
        example.compiled.save(&path).unwrap_or_else(|error| panic!("{}: {error}", example.name));
        let saved = Compiled::load(&path, &options()).unwrap_or_else(|error| panic!("{error}"));
        let library = Library::open(&path, "threads=2\nbind=false", Arc::new(Eager));
        let expected = example.expected();
        let found = example.all(|inputs| saved.run(inputs).map_err(|error| error.to_string()));
        assert_eq!(found, expected, "{}, saved", example.name);
        assert_eq!(example.all(|inputs| library.run(inputs)), expected, "{}, by litz.h", example.name);
    }
}

#[test]
fn programs_of_c_give_the_bits_of_the_runtime_by_the_same_steps() {
    let folder = folder("consumers-c");
    let (mut subjects, mut written, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let backend = litz::backend(&options()).expect("this machine has a backend");
    for (at, example) in examples().into_iter().enumerate() {
        let realized = example.compiled.texts.realized.as_ref().expect("there is a program");
        let calls = example.calls.iter().map(|call| call.inputs.clone()).collect();
        let parts = (realized, &Names::default(), &example.weights as &dyn Weights);
        match write(&folder, &format!("g{at}"), parts, &*backend, &options(), calls) {
            Ok(subject) => {
                let source = folder.join(format!("{}.c", subject.id));
                let source = fs::read_to_string(&source).expect("it was written");
                steps::same(&realized.program, &source)
                    .unwrap_or_else(|error| panic!("{}: {error}", example.name));
                subjects.push(subject);
                written.push(example);
            }
            Err(Error::Unsupported(diags)) => refused.push((example.name, diags[0].message.clone())),
            Err(error) => panic!("{}: {error}", example.name),
        }
    }
    let of_a_host = |name: &str, op: &str| {
        (name.to_owned(), format!("{op} is an operator of a host, of which C has none"))
    };
    let expected =
        [of_a_host("foreign", "aten.hypot.default"), of_a_host("foreign_writes", "aten.index_put_.default")];
    assert_eq!(refused, expected);
    assert_eq!(written.len(), 28);
    let outcomes = call(&folder, Machine::X86, &subjects, 2).expect("the programs run");
    let mut differ = Vec::new();
    for (example, outcome) in written.iter().zip(outcomes) {
        let found = outcome.unwrap_or_else(|error| panic!("{}: {error}", example.name));
        let found = found.into_iter().collect::<Result<Vec<_>, _>>();
        let found = found.unwrap_or_else(|failed| panic!("{}: {failed:?}", example.name));
        for (found, call) in found.iter().zip(&example.calls) {
            same(found, &call.outputs).unwrap_or_else(|error| panic!("{}: {error}", example.name));
        }
        if found != example.expected() {
            differ.push(example.name.as_str());
        }
    }
    // Fourier transforms of C are in double precision.
    assert_eq!(differ, ["transforms"]);
}

/// Most bytes that calls have taken.
fn peaks(examples: &[Example]) -> Vec<usize> {
    examples.iter().map(|example| example.compiled.statistics().peak_bytes).collect()
}

/// ML-5: by the most that calls have taken.
#[test]
fn more_sharing_takes_no_more_memory_and_gives_the_same_bits() {
    let modes = [MemoryPool::Combined, MemoryPool::Intermediates, MemoryPool::None];
    let [combined, intermediates, none] = modes.map(|mode| examples_with(&options_for(mode)));
    for ((combined, intermediates), none) in combined.iter().zip(&intermediates).zip(&none) {
        let expected = combined.expected();
        assert_eq!(intermediates.expected(), expected, "{}", combined.name);
        assert_eq!(none.expected(), expected, "{}", combined.name);
    }
    let [combined_peaks, intermediates_peaks, none_peaks] =
        [&combined, &intermediates, &none].map(|all| peaks(all));
    for (at, example) in combined.iter().enumerate() {
        let peaks = [combined_peaks[at], intermediates_peaks[at], none_peaks[at]];
        assert!(peaks.is_sorted(), "{}: {peaks:?}", example.name);
    }
    let fewer =
        |less: &[usize], more: &[usize]| less.iter().zip(more).filter(|(less, more)| less < more).count();
    let counts = [fewer(&combined_peaks, &intermediates_peaks), fewer(&intermediates_peaks, &none_peaks)];
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    let sums = [combined_peaks, intermediates_peaks, none_peaks].map(|peaks| peaks.iter().sum::<usize>());
    println!("bytes of all graphs: {sums:?}; smaller than the next: {counts:?}");
}

/// ML-5: no mode lends a result memory that a later call takes.
#[test]
fn results_stay_as_they_are_when_later_calls_run_and_the_model_is_gone() {
    for mode in [MemoryPool::Combined, MemoryPool::Intermediates, MemoryPool::None] {
        for example in examples_with(&options_for(mode)) {
            let values = example.expected();
            let before: Vec<Vec<Value>> =
                values.iter().map(|values| values.iter().map(copied).collect()).collect();
            let _ = example.all(|inputs| example.compiled.run(inputs).map_err(|error| error.to_string()));
            let name = example.name.clone();
            drop(example);
            assert_eq!(values, before, "{name}");
        }
    }
}

fn copied(value: &Value) -> Value {
    value.tensor().map_or_else(
        || value.clone(),
        |tensor| Value::Tensor(tensor.view().to_tensor().expect("there is memory")),
    )
}
