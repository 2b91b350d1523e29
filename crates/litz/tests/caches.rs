//! Moves caches between folders and users, refuses what must not be taken, and asks why something is not found.

#![allow(missing_docs, reason = "a test")]

use litz::cache::{self, Answer, CacheError};
use litz::tune::{self, Budget, Tuned};
use litz::{Compiled, GivenSchedule, Model, Options, Target, Tensor, Verify, tensors};
use litz_runtime::cache::CacheFileError;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A target whose code every x86-64 machine runs.
const TARGET: &str = "cpu(isa=sse2, threads=2)";

/// A user that is nobody's.
const STRANGER: u32 = 54_321;

fn digits() -> PathBuf {
    Path::new(ROOT).join("examples/digits.pt2")
}

fn options(folder: &Path) -> Options {
    let target: Target = TARGET.parse().expect("a target");
    Options {
        cache: Some(folder.to_owned()),
        verify: Verify::Stages,
        reference: !cfg!(target_arch = "x86_64"),
        ..Options::for_target(target)
    }
}

fn logits(compiled: &Compiled) -> Tensor {
    let data = tensors::read(&Path::new(ROOT).join("examples/digits.safetensors")).expect("readable");
    let outputs = compiled.run(std::slice::from_ref(&data["images"])).expect("the images fit");
    outputs[0].tensor().expect("one tensor").clone()
}

/// Compiles a model and calls it.
fn run(model: &Path, options: &Options) -> (Tensor, bool) {
    let compiled = Model::open(model).and_then(|model| model.compile(options)).expect("compiles");
    (logits(&compiled), compiled.is_from_cache())
}

fn why(model: &Path, options: &Options) -> [Answer; 3] {
    let model = Model::open(model).expect("it is a model");
    cache::why(&model, options).expect("there is a cache").map(|(_, answer)| answer)
}

/// Names of the parts that differ.
fn parts(answer: &Answer) -> Vec<&str> {
    match answer {
        Answer::Differs(differences) => differences.iter().map(|it| &*it.part).collect(),
        other => panic!("{other:?}"),
    }
}

/// The files of a folder with an extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).expect("readable").map(|found| found.expect("readable").path());
    paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
}

/// Folders of two machines, and a file that the first one's cache is exported to.
struct Machines {
    _both: tempfile::TempDir,
    first: PathBuf,
    second: PathBuf,
    file: PathBuf,
}

fn machines() -> Machines {
    let both = tempfile::tempdir().expect("a folder");
    let [first, second, file] = ["first", "second", "file"].map(|name| both.path().join(name));
    Machines { _both: both, first, second, file }
}

#[test]
fn what_is_imported_is_used_wherever_the_model_is() {
    let Machines { first, second, file, .. } = &machines();
    let (expected, is_cached) = run(&digits(), &options(first));
    assert!(!is_cached);
    let models = [Model::open(digits()).expect("it is a model")];
    let moved = cache::export(&options(first), &models, file).expect("exports");
    assert_eq!((moved.programs, moved.weights, moved.schedules, moved.left), (1, 1, 0, 0));
    assert_eq!(cache::import(&options(second), file).expect("imports"), moved);

    // The same model in another place, whose file has no identity yet, from a folder where nothing can be kept.
    let copy = file.with_file_name("copy.pt2");
    fs::copy(digits(), &copy).expect("writable");
    fs::set_permissions(second, fs::Permissions::from_mode(0o555)).expect("it is ours");
    assert_eq!(run(&copy, &options(second)), (expected.clone(), true));
    assert_eq!(why(&copy, &options(second))[..2], [Answer::Hit, Answer::Hit]);
    assert_eq!(files(second, "mem").len(), 1);
    fs::set_permissions(second, fs::Permissions::from_mode(0o700)).expect("it is ours");

    // It is these packed weights that are used: others in their place give other numbers.
    let memory = &files(second, "mem")[0];
    let mut bytes = fs::read(memory).expect("readable");
    bytes[..1000].fill(0);
    fs::write(memory, bytes).expect("writable");
    let (wrong, is_cached) = run(&copy, &options(second));
    assert!(is_cached && wrong != expected);

    // Packed weights are another model's where one byte of a weight is another one.
    let other = file.with_file_name("other.pt2");
    let mut bytes = fs::read(digits()).expect("readable");
    let (weight, directory) = places(&bytes);
    bytes[weight.0] ^= 0x10;
    let sum = crc32fast::hash(&bytes[weight.0..weight.0 + weight.1]);
    bytes[directory..directory + 4].copy_from_slice(&sum.to_le_bytes());
    fs::write(&other, bytes).expect("writable");
    let (changed, is_cached) = run(&other, &options(second));
    assert!(is_cached && changed != wrong, "the program is the same, its weights are not");
    assert_eq!(changed, run(&other, &Options { cache: None, ..options(second) }).0);
}

/// Where the bytes of a weight of some size lie in an archive, how many there are, and where the directory has their checksum.
fn places(archive: &[u8]) -> ((usize, usize), usize) {
    let number = |at: usize, len: usize| {
        archive[at..at + len].iter().rev().fold(0usize, |number, &byte| number << 8 | usize::from(byte))
    };
    let entries =
        archive.windows(4).enumerate().filter(|(_, window)| *window == b"PK\x01\x02").map(|(at, _)| at);
    let mut weights = entries.filter(|&at| {
        let name = String::from_utf8_lossy(&archive[at + 46..at + 46 + number(at + 28, 2)]).into_owned();
        name.contains("data/weights/weight_") && number(at + 24, 4) > 256
    });
    let at = weights.next().expect("the model has weights");
    let header = number(at + 42, 4);
    let start = header + 30 + number(header + 26, 2) + number(header + 28, 2);
    ((start, number(at + 24, 4)), at + 16)
}

#[test]
fn packed_weights_of_a_file_whose_checksums_are_wrong_are_not_exported() {
    let Machines { first, file, .. } = &machines();
    let copy = file.with_file_name("copy.pt2");
    let mut bytes = fs::read(digits()).expect("readable");
    let (weight, _) = places(&bytes);
    bytes[weight.0] ^= 0x10;
    fs::write(&copy, bytes).expect("writable");
    // Until the file can be told from others.
    std::thread::sleep(Duration::from_millis(2500));
    run(&copy, &options(first));
    let models = [Model::open(&copy).expect("weights are not looked at")];
    let refused = cache::export(&options(first), &models, file).expect_err("it is damaged").to_string();
    assert!(refused.contains("checksum") && !file.exists(), "{refused}");
}

#[test]
fn files_that_are_not_for_this_machine_or_not_whole_are_refused_and_nothing_is_taken() {
    let Machines { first, second, file, .. } = &machines();
    let none = cache::export(&options(first), &[], file).expect_err("there is no folder");
    assert!(matches!(none, CacheError::Open(_)), "{none}");
    run(&digits(), &options(first));
    let other = [Model::from_graph(graph(), Default::default()).expect("it verifies")];
    let none = cache::export(&options(first), &other, file).expect_err("it was never compiled").to_string();
    assert!(none.contains("and these models") && none.contains("litz run MODEL"), "{none}");
    let models = [Model::open(digits()).expect("it is a model")];
    cache::export(&options(first), &models, file).expect("exports");

    let for_other =
        Options { target: Some("cpu(isa=sse2, threads=3)".parse().expect("one")), ..options(second) };
    let refused = cache::import(&for_other, file).expect_err("it is for another target").to_string();
    let expected = ["is for cpu(isa=sse2, threads=2", "this machine has cpu(isa=sse2, threads=3", "--target"];
    assert!(expected.iter().all(|part| refused.contains(part)), "{refused}");

    let sound = fs::read(file).expect("readable");
    let mut damaged = sound.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(file, damaged).expect("writable");
    let refused = cache::import(&options(second), file).expect_err("it is damaged");
    assert!(matches!(refused, CacheError::File(CacheFileError::Damaged { .. })), "{refused}");
    fs::write(file, &sound[..last]).expect("writable");
    let refused = cache::import(&options(second), file).expect_err("it is cut off");
    assert!(matches!(refused, CacheError::File(CacheFileError::Damaged { .. })), "{refused}");

    litz_runtime::cache::write_file(file, "0.0.1", &[]).expect("writes");
    let refused = cache::import(&options(second), file).expect_err("it is another compiler's");
    assert!(matches!(refused, CacheError::File(CacheFileError::OtherCompiler { .. })), "{refused}");

    fs::write(file, &sound).expect("writable");
    fs::set_permissions(file, fs::Permissions::from_mode(0o666)).expect("it is ours");
    let refused = cache::import(&options(second), file).expect_err("anybody may write to it");
    assert!(matches!(refused, CacheError::File(CacheFileError::Exposed { .. })), "{refused}");
    assert_eq!(fs::read_dir(second).expect("it was made").count(), 0, "nothing was taken");
}

/// The `litz` command with a cache.
fn litz(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.current_dir(ROOT).env("LITZ_CACHE_DIR", folder);
    command
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// One user exports and another one imports, elsewhere, and runs from a folder that is read only. Where this process may not act for other users,
/// the same user does both; which owners are refused is checked by the rule itself, in `litz-runtime`.
#[test]
fn what_one_user_exports_another_imports() {
    let Machines { first, second, file, .. } = &machines();
    let base = file.parent().expect("a folder");
    let flags = ["--verify-ir=stages", "--target", TARGET];
    let done = litz(first).args(["run", "examples/digits.pt2"]).args(flags).output().expect("it starts");
    assert!(done.status.success(), "{}", said(&done));
    let expected = String::from_utf8(done.stdout).expect("a text");
    let export = ["cache", "export", "examples/digits.pt2", "-o"];
    let done = litz(first).args(export).arg(file).output().expect("it starts");
    assert!(done.status.success() && said(&done).contains("1 set of packed weights"), "{}", said(&done));

    let (theirs, model) = (base.join("theirs"), base.join("model.pt2"));
    fs::copy(file, &theirs).and_then(|_| fs::copy(digits(), &model)).expect("writable");
    fs::create_dir(second).expect("writable");
    let command = base.join("litz");
    fs::copy(env!("CARGO_BIN_EXE_litz"), &command).expect("writable");
    fs::set_permissions(base, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let stranger = || {
        let mut stranger = Command::new("setpriv");
        stranger.args([&*format!("--reuid={STRANGER}"), "--clear-groups", "--"]).arg(&command);
        stranger
    };
    // Containers may lack the rights, or folders around be nobody else's.
    let is_started = stranger().arg("--version").output().is_ok_and(|done| done.status.success());
    let may_be_others = is_started && chown(&theirs, Some(STRANGER), None).is_ok();
    let other = || {
        let mut other = if may_be_others { stranger() } else { Command::new(&command) };
        other.current_dir(base).env("LITZ_CACHE_DIR", second).env_remove("LITZ_CACHE_READ_ONLY");
        other
    };
    if may_be_others {
        for path in [second, &model] {
            chown(path, Some(STRANGER), None).expect("this one may");
        }
        // What belongs to neither, nor to the administrator, is refused, and so is a folder of others.
        chown(file, Some(STRANGER + 1), None).expect("this one may");
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let done = other()
            .args(["cache", "import"])
            .arg(file)
            .args(["--target", TARGET])
            .output()
            .expect("it starts");
        assert!(!done.status.success() && said(&done).contains("belongs to user 54322"), "{}", said(&done));
        let done = litz(second).args(["cache", "import"]).arg(&theirs).output().expect("it starts");
        assert!(!done.status.success() && said(&done).contains("belongs to user 54321"), "{}", said(&done));
    }
    let done = other()
        .args(["cache", "import"])
        .arg(&theirs)
        .args(["--target", TARGET])
        .output()
        .expect("it starts");
    assert!(done.status.success() && said(&done).contains("1 set of packed weights"), "{}", said(&done));
    let kept = fs::read_dir(second).expect("readable").count();
    for mode in [0o700, 0o555] {
        fs::set_permissions(second, fs::Permissions::from_mode(mode)).expect("this one may");
        let mut run = other();
        run.env("LITZ_CACHE_READ_ONLY", "1").args(["run", "model.pt2", "--time"]).args(flags);
        let done = run.output().expect("it starts");
        assert!(done.status.success() && !said(&done).contains("schedule"), "{}", said(&done));
        assert_eq!(String::from_utf8(done.stdout).expect("a text"), expected);
        assert_eq!(fs::read_dir(second).expect("readable").count(), kept);
        let done = other().args(["cache", "why", "model.pt2"]).args(flags).output().expect("it starts");
        assert!(said(&done).starts_with("program: is there\nweights: is there\n"), "{}", said(&done));
    }
    let done = other().args(["cache", "info"]).output().expect("it starts");
    assert!(said(&done).contains(", read only") && said(&done).contains("weights"), "{}", said(&done));
    fs::set_permissions(second, fs::Permissions::from_mode(0o700)).expect("this one may");
}

#[test]
fn what_a_shared_folder_has_is_used_and_the_rest_is_kept_in_ones_own() {
    let Machines { first: shared, second: own, file, .. } = &machines();
    let (expected, _) = run(&digits(), &options(shared));
    fs::set_permissions(shared, fs::Permissions::from_mode(0o555)).expect("it is ours");
    let count = |folder: &Path| fs::read_dir(folder).expect("readable").count();
    let there = count(shared);
    let of = |own: &Path| Options { shared_cache: Some(shared.clone()), ..options(own) };
    assert_eq!(run(&digits(), &of(own)), (expected.clone(), true));
    assert_eq!(why(&digits(), &of(own))[..2], [Answer::Hit, Answer::Hit]);
    assert_eq!(count(own), 0);

    // What the shared folder has not is compiled once.
    let other = Options { target: "cpu(isa=sse2, threads=1)".parse().ok(), threads: 1, ..of(own) };
    for is_cached in [false, true] {
        assert_eq!(run(&digits(), &other).1, is_cached);
    }
    assert_eq!((files(own, "mem").len(), count(shared)), (1, there));
    let infos = cache::info(&of(own)).expect("readable");
    assert_eq!(infos.iter().map(|info| info.is_read_only).collect::<Vec<_>>(), [false, true]);
    let models = [Model::open(digits()).expect("it is a model")];
    let moved = cache::export(&of(own), &models, file).expect("exports");
    assert_eq!((moved.programs, moved.weights), (2, 2));

    // Where one's own folder cannot be made the other one is there, and where that is somebody's to write it is refused.
    assert_eq!(run(&digits(), &of("/proc/nowhere".as_ref())), (expected, true));
    fs::set_permissions(shared, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let refused = models[0].compile(&of(own)).err().expect("others may write there");
    assert!(refused.to_string().contains("can be written by others (mode 777)"), "{refused}");
    fs::set_permissions(shared, fs::Permissions::from_mode(0o700)).expect("it is ours");
}

fn graph() -> litz_ir::graph::Graph {
    let text = "graph @double on cpu {\n  %x: f32[4] = input\n  %y: f32[4] = aten.add.Tensor(%x, %x, 1)\n  return %y\n}\n";
    match litz::Text::parse(text).expect("a text") {
        litz::Text::Graph(graph) => graph,
        other => panic!("{other}"),
    }
}

#[test]
fn a_miss_has_a_reason() {
    let Machines { first: folder, file, .. } = &machines();
    let copy = file.with_file_name("copy.pt2");
    fs::copy(digits(), &copy).expect("writable");
    let options = options(folder);
    let missing = cache::why(&Model::open(&copy).expect("it is a model"), &options);
    assert!(matches!(missing, Err(CacheError::Open(_))));
    fs::create_dir(folder).expect("writable");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let [program, weights, schedule] = why(&copy, &options);
    assert_eq!((program, schedule), (Answer::NeverSeen, Answer::NeverSeen));
    assert!(weights.to_string().contains("two seconds"), "{weights}");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(why(&copy, &options)[1], Answer::NeverSeen);
    run(&copy, &options);
    assert_eq!(why(&copy, &options), [Answer::Hit, Answer::Hit, Answer::NeverSeen]);

    // Other options and targets.
    let every = why(&copy, &Options { verify: Verify::Passes, ..options.clone() });
    assert!(every[0].to_string().contains("every stage runs"), "{}", every[0]);
    let mut cheap = options.clone();
    cheap.set("cheap", "7").expect("it may be");
    let [program, weights, _] = why(&copy, &cheap);
    assert_eq!(parts(&program), ["options"]);
    assert_eq!(program.to_string(), "the nearest entry has options `cheap: 4`, not `cheap: 7`");
    assert_eq!(parts(&weights), ["program"]);
    let other = Options { target: Some("cpu(isa=sse2, threads=3)".parse().expect("one")), ..options.clone() };
    assert_eq!(parts(&why(&copy, &other)[0]), ["target"]);
    let given = GivenSchedule { name: String::new(), text: "schedule".to_owned() };
    let scheduled = cache::why(
        &Model::open(&copy).expect("it is a model"),
        &Options { schedule: Some(given), ..options.clone() },
    );
    assert!(scheduled.is_ok_and(|[(_, program), ..]| parts(&program) == ["schedule"]));

    // Another file, and the same one after a change.
    assert_eq!(parts(&why(&digits(), &options)[1]), ["file"]);
    let modified = fs::metadata(&copy).and_then(|it| it.modified()).expect("it has one");
    fs::File::open(&copy)
        .and_then(|file| file.set_modified(modified + Duration::from_secs(1)))
        .expect("settable");
    std::thread::sleep(Duration::from_millis(2500));
    let [program, weights, _] = why(&copy, &options);
    assert_eq!((program, parts(&weights)), (Answer::Hit, vec!["file"]));
    assert_eq!(weights.to_string(), "the nearest entry has another file");
    run(&copy, &options);

    // Another boot, damage and eviction.
    let newest =
        |extension| files(folder, extension).into_iter().max_by_key(|path| modified_at(path)).expect("one");
    let memory = newest("mem");
    let mut bytes = fs::read(&memory).expect("readable");
    let boot = bytes.len() - 36;
    bytes[boot..].copy_from_slice(b"00000000-0000-0000-0000-000000000000");
    fs::write(&memory, &bytes).expect("writable");
    assert_eq!(why(&copy, &options)[1], Answer::OtherBoot);
    fs::write(&memory, &bytes[..100]).expect("writable");
    assert_eq!(why(&copy, &options)[1], Answer::Damaged);
    fs::remove_file(&memory).expect("there");
    assert_eq!(why(&copy, &options)[1], Answer::Evicted);
    let largest =
        files(folder, "obj").into_iter().max_by_key(|path| fs::metadata(path).map_or(0, |it| it.len()));
    fs::remove_file(largest.expect("the whole compilation is larger than its parts")).expect("there");
    assert_eq!(why(&copy, &options)[0], Answer::Evicted);
}

fn modified_at(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).and_then(|it| it.modified()).expect("it has one")
}

#[test]
fn a_graph_of_another_text_is_said_to_be_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let model = |graph| Model::from_graph(graph, Default::default()).expect("it verifies");
    model(graph()).compile(&options).expect("compiles");
    let mut other = graph();
    let sized = other.to_string().replace("f32[4]", "f32[5]");
    if let Ok(litz::Text::Graph(graph)) = litz::Text::parse(&sized) {
        other = graph;
    }
    let [(_, program), (_, weights), _] = cache::why(&model(other), &options).expect("there is a cache");
    assert_eq!(program.to_string(), "the nearest entry has another graph");
    assert!(weights.to_string().contains("packed at each start"), "{weights}");
    other = graph();
    other.name = "other".to_owned();
    let [(_, program), ..] = cache::why(&model(other), &options).expect("there is a cache");
    assert_eq!(program, Answer::NeverSeen);
}

/// What tuning gives that has no time to try anything.
fn untuned(model: &Model, options: &Options) -> Tuned {
    let stop = AtomicBool::new(false);
    let data = tensors::read(&Path::new(ROOT).join("examples/digits.safetensors")).expect("readable");
    let budget = Budget { time: Duration::ZERO, stop: &stop };
    tune::tune(model, options, &[data["images"].clone()], &budget, &mut |_| {}).expect("it runs")
}

#[test]
#[cfg(target_arch = "x86_64")]
fn machines_share_what_tuning_found_and_the_faster_schedule_stays() {
    let Machines { first, second, file, .. } = &machines();
    let model = Model::open(digits()).expect("it is a model");
    let own = untuned(&model, &options(first));
    let text = own.schedule.replace("grain 20", "grain 2");
    assert_ne!(text, own.schedule, "the schedule has another grain");
    let edited = |gain| Tuned { schedule: text.clone(), gain, ..own.clone() };
    let found = |folder: &Path| tune::found(&model, &options(folder)).expect("there is a cache");
    assert_eq!(found(first), None);
    let tuned = |folder: &Path| Options { tuned: true, ..options(folder) };
    assert!(model.compile(&tuned(first)).expect("nothing was found").texts.schedule.is_some());

    // Here.
    for (tuned, expected) in [(own.clone(), own.gain), (edited(1.5), 1.5), (edited(1.2), 1.5)] {
        tune::keep(&model, &tuned, &options(first)).expect("there is a cache");
        assert_eq!(found(first).map(|tuned| tuned.gain), Some(expected));
    }
    // There, where models are run by it without a compilation, and are not where others are asked for.
    let models = [Model::open(digits()).expect("it is a model")];
    let compiled = model.compile(&tuned(first)).expect("it is proved");
    assert_eq!(compiled.texts.schedule.as_ref().map(ToString::to_string), Some(text.clone()));
    let moved = cache::export(&options(first), &models, file).expect("exports");
    assert_eq!((moved.programs, moved.weights, moved.schedules), (2, 2, 1));
    assert_eq!(cache::import(&options(second), file).expect("imports").schedules, 1);
    assert_eq!(found(second), Some(edited(1.5)));
    let compiled = model.compile(&tuned(second)).expect("it is there");
    assert!(compiled.is_from_cache());
    assert_eq!(why(&digits(), &tuned(second)), [Answer::Hit, Answer::Hit, Answer::Hit]);
    // A schedule needs no compilation to be moved, and the faster one stays.
    for (there, expected) in [(edited(1.4), 1.5), (edited(1.6), 1.6)] {
        let folder = file.with_file_name(format!("of {}", there.gain));
        tune::keep(&model, &there, &options(&folder)).expect("there is a cache");
        let moved = cache::export(&options(&folder), &models, file).expect("exports");
        assert_eq!((moved.programs, moved.schedules), (0, 1));
        let moved = cache::import(&options(second), file).expect("imports");
        assert_eq!((moved.schedules, moved.left), if expected == 1.6 { (1, 0) } else { (0, 1) });
        assert_eq!(found(second).map(|tuned| tuned.gain), Some(expected));
    }
    // Gains over different schedules are not compared.
    let over_other = Tuned { before: "another".to_owned(), ..edited(9.0) };
    tune::keep(&model, &over_other, &options(second)).expect("there is a cache");
    assert_eq!(found(second).map(|tuned| tuned.gain), Some(1.6));
}
