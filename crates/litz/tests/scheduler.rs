//! Checks what the scheduler weighs beside bytes: memory, and the order of additions; and that it decides the same in each process.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What the tool prints of a graph with these lines.
fn explain(lines: &str, flags: &[&str]) -> String {
    explain_for("cpu(isa=avx2, threads=2)", lines, flags)
}

/// The same for a target.
fn explain_for(target: &str, lines: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("graph.litz");
    fs::write(&file, format!("graph @g on cpu {{\n{lines}}}\n")).expect("the file is written");
    let file = file.to_str().expect("utf-8");
    run(&[&["explain", file, "--target", target], flags].concat())
}

fn run(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    let output = command.args(words).current_dir(ROOT).env("LITZ_CACHE_DIR", "").output();
    let output = output.expect("litz starts");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// Eight sorted matrices, each scaled by one vector and summed by rows: `also` is returned, too.
fn sorted(also: &str) -> String {
    let mut lines = "  %z: f32[1024] = input\n".to_owned();
    let mut results = Vec::new();
    for at in 0..8 {
        writeln!(lines, "  %x{at}: f32[1024, 1024] = input").expect("a string takes text");
    }
    for at in 0..8 {
        writeln!(
            lines,
            "  %s{at}: f32[1024, 1024], %k{at}: i64[1024, 1024] = aten.sort.default(%x{at}, 1, false)
  %y{at}: f32[1024, 1024] = aten.mul.Tensor(%s{at}, %z)
  %r{at}: f32[1024] = aten.sum.dim_IntList(%y{at}, [1], false, none)"
        )
        .expect("a string takes text");
        results.push(format!("%r{at}"));
        results.extend((!also.is_empty()).then(|| format!("%{also}{at}")));
    }
    writeln!(lines, "  return {}", results.join(", ")).expect("a string takes text");
    lines
}

/// SW-1: sums that would save 28 KiB together are not merged, since 28 MiB would wait for each other.
#[test]
fn kernels_that_need_much_more_memory_than_they_save_stay_apart() {
    let text = explain(&sorted(""), &[]);
    assert!(text.starts_with("16 statements in 16 kernels and calls"), "{text}");
    assert!(text.contains("\nmemory pool0: 12.0 MiB for"), "{text}");
    assert!(text.contains("\nmemory       7  28.0 KiB  n2 -> n5 (4.0 KiB against 4.0 MiB), "), "{text}");
    // While the first waits, what the seven others return is not made yet: 28 KiB less than 4 MiB for each.
    assert!(text.contains("\nmemory: 28.0 KiB would be saved by 27.8 MiB more in use at once\n"), "{text}");
}

/// SW-1: where the caller is given what they read, it lives as long anyway, and they are one kernel.
#[test]
fn what_lives_anyway_keeps_no_kernels_apart() {
    let text = explain(&sorted("s"), &[]);
    assert!(text.starts_with("16 statements in 9 kernels and calls"), "{text}");
    assert!(text.contains("\nfused        7  28.0 KiB  "), "{text}");
    assert!(!text.contains("\nmemory   ") && !text.contains("more in use at once"), "{text}");
}

/// SW-6: two that add to one base by one index are one kernel, in blocks of the base, of which each gets all of the first before any of the
/// second. `filetests/run/index/scattered_twice.litz` has what comes of the order.
#[test]
fn additions_to_one_base_share_a_kernel() {
    let sizes = [("1000, 64", "5000, 64"), ("100000", "50000"), ("30", "50"), ("4, 8192", "100, 8192")];
    for (base, index) in sizes {
        let lines = format!(
            "  %x: f32[{base}] = input
  %i: i64[{index}] = input
  %a: f32[{index}] = input
  %b: f32[{index}] = input
  %y: f32[{base}] = aten.scatter_add.default(%x, 0, %i, %a)
  %z: f32[{base}] = aten.scatter_add.default(%y, 0, %i, %b)
  return %z
"
        );
        let text = explain(&lines, &[]);
        assert!(text.starts_with("3 statements in 2 kernels and calls"), "{base}: {text}");
        assert!(text.contains("; 0 kernels not proved"), "{base}: {text}");
        let last = text.lines().find(|line| line.starts_with("k1 ")).expect("a second kernel");
        assert!(last.ends_with(" n1 n3"), "{base}: {last}");
    }
}

/// SW-7: groups, order, reuse and pools are files of their own, the same in five processes: each has a seed of its own for all of its maps.
#[test]
fn decisions_are_dumped_apart_and_are_equal_in_each_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let dump = |name: &str| {
        let to = folder.path().join(name);
        let words = ["explain", "examples/digits.pt2", "--threads", "2", "--set", "launch_together=8"];
        run(&[&words[..], &["--dump", to.to_str().expect("utf-8")]].concat());
        files(&to)
    };
    let first = dump("0");
    for name in ["1", "2", "3", "4"] {
        assert!(dump(name) == first, "process {name} decided otherwise");
    }
    let of = |name: &str| {
        let found = first.iter().find(|(file, _)| file.ends_with(&format!(".{name}")));
        found.map(|(_, text)| text.as_str()).unwrap_or_else(|| panic!("no file {name}"))
    };
    let (groups, order, schedule) = (of("groups.txt"), of("order.txt"), of("schedule.litz"));
    let statements: usize = groups.lines().map(|line| line.split_whitespace().count() - 1).sum();
    assert_eq!(statements, of("dead.litz").matches("\n  nest ").count(), "{groups}");
    // Each group runs in one step, and the steps are those of the schedule, in its order.
    let mut run: Vec<&str> =
        order.lines().flat_map(|line| line.split_once(": ").expect("groups").1.split(' ')).collect();
    run.sort_unstable();
    let mut formed: Vec<&str> = groups.lines().map(|line| line.split_once(':').expect("a group").0).collect();
    formed.sort_unstable();
    assert_eq!(run, formed, "{order}");
    let steps =
        schedule.lines().filter(|line| line.starts_with("  kernel ") || line.starts_with("  extern "));
    let steps: Vec<&str> =
        steps.map(|line| line.trim_end_matches(" {").split_once(' ').expect("a step").1).collect();
    let named: Vec<String> =
        order.lines().map(|line| line.split_once(": ").expect("a step").0.to_owned()).collect();
    assert_eq!(
        steps.iter().map(|step| step.rsplit("kernel ").next().expect("a name")).collect::<Vec<_>>(),
        named
    );
    let lines = |word: &str| -> Vec<&str> {
        schedule.lines().map(str::trim).filter(|line| line.starts_with(word)).collect()
    };
    assert_eq!(of("reuse.txt").lines().collect::<Vec<_>>(), lines("reuse "));
    assert_eq!(of("pools.txt").lines().collect::<Vec<_>>(), lines("pool "));
    assert!(!lines("pool ").is_empty() && steps.len() < formed.len() + 1);
}

/// Names and texts of the files of a folder.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).expect("it is a folder").map(|entry| entry.expect("it is read"));
    let file = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).expect("a text");
        (entry.file_name().into_string().expect("utf-8"), text)
    };
    let mut files: Vec<(String, String)> = entries.map(file).collect();
    files.sort();
    files
}

/// PT-1: what is captured of a program for a GPU, why the rest is not, and what each part is given, makes and frees.
#[test]
fn partitions_are_shown_with_reasons() {
    let lines = "  %x: f32[8, 8] = input
  %a: f32[8, 8] = aten.relu.default(%x)
  %s: f32[8, 8], %i: i32[] = aten.linalg_cholesky_ex.default(%a, false, false)
  %b: f32[8, 8] = aten.mul.Tensor(%s, %s)
  return %b
";
    let text = explain_for("gpu(isa=sm90, units=132)", lines, &[]);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.contains("partitions"))
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| !words.is_empty())
        .collect();
    let expected = [
        "3 partitions, 2 that a device can capture",
        "partition steps device captured inputs outputs freed",
        "p0 1 cpu yes x a -",
        "p1 1 cpu no: host a s_factor a",
        "p2 1 cpu yes s_factor b s_factor",
    ];
    let expected = expected.map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(rows, expected, "{text}");
    // A CPU captures nothing, and there is nothing to say of it.
    assert!(!explain(lines, &[]).contains("partitions"));
}
