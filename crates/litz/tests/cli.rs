//! Checks the `litz` command and what it does when a reader of its output leaves early.

use std::process::{Command, Output, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// One command line for each command that prints.
const COMMANDS: [&str; 10] = [
    "inspect examples/digits.pt2",
    "inspect examples/digits.pt2 --json",
    "explain examples/digits.pt2 --all",
    "compile examples/digits.pt2 --to kernel",
    "compile examples/digits.pt2 --to python",
    "run examples/digits.pt2 --device reference",
    "run examples/digits.pt2 --device reference --json",
    "opt filetests/graph/cse/signs.litz --pass cse",
    "bench examples/digits.pt2 --runs 1 --json",
    "bench examples/digits.pt2 --runs 1",
];

/// Runs a command line, `out` and `err` being what it prints to.
fn litz(line: &str, out: impl Into<Stdio>, err: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.args(line.split_whitespace()).current_dir(ROOT).env("LITZ_CACHE_DIR", "");
    command.stdout(out).stderr(err).spawn().and_then(|child| child.wait_with_output()).expect("litz starts")
}

/// A pipe whose reader is gone.
fn closed() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().expect("pipes can be made");
    drop(reader);
    writer
}

#[test]
fn a_reader_may_leave() {
    for line in COMMANDS {
        let output = litz(line, closed(), Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{line}: {}\n{said}", output.status);
    }
}

#[test]
fn a_reader_of_errors_may_leave() {
    let output = litz("inspect no-such-file.pt2", Stdio::piped(), closed());
    assert_eq!(output.status.code(), Some(3));
    let output = litz("inspect examples/digits.pt2 --time", Stdio::piped(), closed());
    assert_eq!(output.status.code(), Some(0));
}

/// SC-22: each process has its own seed of hashes, and interns expressions as its threads come to them.
#[test]
fn schedules_do_not_depend_on_seeds_and_threads() {
    let schedule = |threads: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        let target = "cpu(isa=avx2, threads=2, l2=256K)";
        command.args(["compile", "examples/digits.pt2", "--to", "schedule", "--target", target]);
        command.current_dir(ROOT).env("LITZ_CACHE_DIR", "").env("LITZ_NUM_THREADS", threads);
        let output = command.output().expect("litz starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("a text")
    };
    let first = schedule("1");
    assert!(first.starts_with("schedule @"), "{first}");
    for threads in ["8", "1", "8", "1"] {
        assert_eq!(schedule(threads), first);
    }
}

#[test]
fn the_text_of_a_graph_can_be_timed() {
    let file = "filetests/run/product/shared_lines.litz";
    let done = litz(&format!("bench {file} --runs 1 --threads 1"), Stdio::piped(), Stdio::piped());
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && out.contains("1 calls on 1 threads"),
        "{out}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let done = litz("bench filetests/README.litz", Stdio::piped(), Stdio::piped());
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && error.contains("cannot read filetests/README.litz"), "{error}");
}

#[test]
fn programs_of_c_are_folders() {
    let run = |rest: &str| {
        let output = litz(&format!("compile {rest}"), Stdio::piped(), Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = run("examples/digits.pt2 --to c");
    assert_eq!((code, said.trim()), (Some(3), "error: a program in C needs a folder to go to: -o DIR"));
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs-of-c");
    let _ = std::fs::remove_dir_all(&folder);
    let to = format!("--to c -o {}", folder.display());
    let (code, said) = run(&format!("examples/digits.pt2 --target cpu(isa=neon,threads=4) {to}"));
    assert_eq!(code, Some(0), "{said}");
    let makefile = std::fs::read_to_string(folder.join("Makefile")).expect("there is a makefile");
    assert!(makefile.contains("CC = aarch64-linux-gnu-gcc") || cfg!(target_arch = "aarch64"), "{makefile}");
    for name in ["digits.c", "digits.h", "digits.weights", "digits_0.o", "litz.h", "litz_threads.c"] {
        assert!(folder.join(name).is_file(), "{name}");
    }
    let (code, said) = run(&format!("examples/digits.pt2 --target gpu(isa=sm90,units=132) {to}"));
    assert!(code == Some(2) && said.contains("C is for programs of a CPU"), "{said}");
    // The text of a graph has no weights.
    let (code, said) = run(&format!("filetests/run/in_place/state.litz {to}"));
    assert!(code == Some(3) && said.contains("compile the model's file"), "{code:?} {said}");
}

#[test]
fn counts_say_what_kernels_of_a_gpu_take() {
    let on = |rest: &str| {
        litz(&format!("run examples/digits.pt2 --counts {rest}"), Stdio::piped(), Stdio::piped())
    };
    let output = on("--device reference --target gpu(isa=sm90,units=132) --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(printed["outputs"].as_array().map(Vec::len), Some(1));
    let kernels = printed["counts"].as_array().expect("a list of kernels");
    assert!(!kernels.is_empty());
    for kernel in kernels {
        let [taken, least] = ["taken", "least"].map(|of| kernel["store_sectors"][of].as_u64());
        assert!(taken >= least && least > Some(0), "{kernel}");
        assert!(kernel["acts"]["store"].as_u64() > Some(0), "{kernel}");
    }
    let output = on("--device reference --target gpu(isa=sm90,units=132) --interleave 3 --json");
    let interleaved: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(interleaved, printed, "whoever comes first");
    let output = on("--device reference --target gpu(isa=sm90,units=132)");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("\nkernel  ") && printed.contains("  x least  "), "{printed}");
    for elsewhere in ["--device reference", "--target cpu(isa=avx2,threads=2)"] {
        let output = on(elsewhere);
        assert_eq!(output.status.code(), Some(3), "{elsewhere}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("kernels of a GPU"), "{elsewhere}");
    }
}

/// A module of Python has each constant of the program in the file beside it, and one that prints has none.
#[test]
fn modules_have_constants_beside_them() {
    let folder = std::env::temp_dir().join(format!("litz-modules-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("writable");
    for form in ["fx", "python"] {
        let module = folder.join(format!("{form}.py"));
        let line = format!("compile examples/digits.pt2 --to {form} -o {}", module.display());
        let done = litz(&line, Stdio::piped(), Stdio::piped());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = std::fs::read_to_string(&module).expect("a module");
        let constants = litz::tensors::read(&module.with_extension("safetensors")).expect("constants");
        let wanted: Vec<&str> = text.lines().filter(|line| line.contains(" = m.constant(")).collect();
        assert!(!wanted.is_empty() && wanted.len() == constants.len(), "{text}");
        for line in wanted {
            let name = line.split('"').nth(1).expect("a name");
            assert!(constants.contains_key(name), "{name}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let line = "compile examples/digits.pt2 --to fx --target gpu(isa=sm80,units=108)";
    let refused = litz(line, Stdio::piped(), Stdio::piped());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("compile with --device cpu"), "{said}");
}

#[test]
fn saved_programs_keep_the_models_constants_where_that_is_asked_for() {
    use litz_runtime::artifact::Artifact;
    use litz_runtime::program::ConstantSource;
    let folder = tempfile::tempdir().expect("writable");
    for (flag, expected) in [("", ConstantSource::Folded), ("--updatable", ConstantSource::Model)] {
        let path = folder.path().join("digits.litzc");
        let line = format!("compile examples/digits.pt2 {flag} -o {}", path.display());
        let output = litz(&line, Stdio::null(), Stdio::piped());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(Artifact::open(&path).expect("it was just written").constants(), expected);
    }
    let output = litz("compile examples/digits.pt2 --updatable", Stdio::null(), Stdio::piped());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--updatable is for programs that are saved: -o FILE.litzc"), "{said}");
    assert_eq!(output.status.code(), Some(3));
}
