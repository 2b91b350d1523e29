//! Programs whose schedules are changed, random ones and kernels of models, and their legal schedules.

use crate::{programs, random};
use litz_ir::Dtype;
use litz_ir::schedule::Schedule;
use litz_schedule::Heuristics;
use litz_sym::Sym;
use litz_testing::choices::{Choices, Random};
use litz_testing::subject::Subject;
use std::path::{Path, PathBuf};

/// Targets whose schedules are changed.
const TARGETS: [&str; 3] =
    ["cpu(isa=avx2, threads=2)", "cpu(isa=sse2, threads=1)", "cpu(isa=avx512, threads=2)"];

/// GPUs whose schedules are changed, with few units, so that there are blocks for more than one of them.
const GPUS: [&str; 3] = ["gpu(isa=sm90, units=4)", "gpu(isa=sm80, units=2)", "gpu(isa=sm100, units=1)"];

/// A random program, whose values are small whole numbers.
pub fn random(choices: &mut Choices<'_>) -> Subject {
    let case = programs::program(choices);
    let sizes = case.symbols.iter().map(|(name, value)| (Sym::new(name), *value)).collect();
    let whole = |_: Dtype, random: &mut Random| random.below(7) as f64 - 3.0;
    let subject =
        Subject::new("random", &case.text, &sizes, &whole, true).unwrap_or_else(|why| panic!("{why}"));
    let inputs = subject.inputs.iter().map(|input| input.sizes().to_vec());
    assert_eq!(inputs.collect::<Vec<_>>(), case.inputs);
    subject
}

/// A legal schedule: a random one, or one that the scheduler makes.
pub fn schedule(
    subject: &Subject,
    is_random: bool,
    head: &mut Choices<'_>,
    decisions: &mut Choices<'_>,
) -> Schedule {
    let target = head.pick(&TARGETS).parse().unwrap_or_else(|error| panic!("{error}"));
    let small = Heuristics { chunk_ops: 64, block: 32, partial_sum: 5, ..Heuristics::default() };
    let heuristics = if head.once_in(3) { Heuristics::default() } else { small };
    let heuristics = Heuristics { launch_together: head.pick(&[8, 3, 1]), ..heuristics };
    if is_random {
        return Schedule { target, ..random::schedule(&subject.loops, decisions) };
    }
    litz_schedule::schedule(&subject.loops, &target, &heuristics).schedule
}

/// The schedule that the scheduler makes for a GPU.
pub fn of_threads(subject: &Subject, head: &mut Choices<'_>) -> Schedule {
    let target = head.pick(&GPUS).parse().unwrap_or_else(|error| panic!("{error}"));
    litz_schedule::schedule(&subject.loops, &target, &Heuristics::default()).schedule
}

/// Small sizes of symbols, of which none divides another: with these most tiles are not full and most loops over tiles run once, and with
/// larger ones these run a few times.
pub const SIZES: [[i64; 3]; 2] = [[9, 5, 7], [33, 17, 40]];

/// The programs of file tests that have schedules for a GPU.
pub fn threaded() -> Vec<(Subject, Schedule)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/run/gpu");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    let has_schedule =
        |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.contains("\n//---\n"));
    paths.retain(has_schedule);
    paths.sort();
    paths.iter().flat_map(|path| SIZES.map(|sizes| given(path, &sizes))).collect()
}

/// The program of a file and its schedule, with such sizes.
pub fn given(path: &Path, sizes: &[i64]) -> (Subject, Schedule) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| *line == "//---" || !line.starts_with("//"));
    let texts = lines.collect::<Vec<_>>().join("\n");
    let (program, schedule) = texts.split_once("//---").expect("a program and its schedule");
    let symbols = program.lines().filter_map(|line| line.trim().strip_prefix("sym ")?.split(' ').next());
    let sizes = symbols.zip(sizes).map(|(name, &size)| (Sym::new(name), size)).collect();
    // Indices are 0 or 1.
    let whole = |dtype: Dtype, random: &mut Random| match dtype.is_float() {
        true => random.below(7) as f64 - 3.0,
        false => random.below(2) as f64,
    };
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let subject = Subject::new(&name, program, &sizes, &whole, false);
    let schedule = litz_ir::text::schedule::parse(schedule);
    let schedule = schedule.unwrap_or_else(|diags| panic!("{}: {}", path.display(), diags[0]));
    (subject.unwrap_or_else(|why| panic!("{}: {why}", path.display())), schedule)
}

/// Kernels of models, and a few by hand of what models at hand have no small ones of.
pub fn kernels() -> Vec<Subject> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let files = |folder: &Path| {
        let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        files.filter_map(|file| Some(file.ok()?.path())).collect::<Vec<_>>()
    };
    let mut paths = [files(&folder), files(&folder.join("hand"))].concat();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "litz"));
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        text.and_then(|text| Subject::read(&name, &text)).unwrap_or_else(|why| panic!("{why}"))
    };
    paths.iter().map(read).collect()
}
