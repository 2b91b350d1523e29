//! Checks what the scheduler weighs beside bytes: memory, and the order of additions.

use std::fmt::Write;
use std::fs;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What the tool prints of a graph with these lines.
fn explain(lines: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("graph.litz");
    fs::write(&file, format!("graph @g on cpu {{\n{lines}}}\n")).expect("the file is written");
    let file = file.to_str().expect("utf-8");
    run(&[&["explain", file, "--target", "cpu(isa=avx2, threads=2)"], flags].concat())
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
    // While the first waits, what the others return is not made yet: a little less than 4 MiB each.
    assert!(text.contains("\nmemory: 28.0 KiB would be saved by 27.9 MiB more in use at once\n"), "{text}");
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
