//! Makes programs for tests in C, builds these with the system's compiler, and runs them against the library.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::{include, library, manifest, run};
use litz::{Compiled, Fallback, Host, HostArg, HostError, HostOption, HostResult, Model, Options, Tensor};
use litz_ir::text::graph::parse;

/// Products by two constants, and their difference.
const PAIR: &str = "graph @pair on cpu {
  sym s0 in [0, 64]
  %x: f32[s0, 32] = input
  %a: f32[32, 32] = const \"a\"
  %b: f32[32, 32] = const \"b\"
  %p: f32[s0, 32] = aten.mm.default(%x, %a)
  %q: f32[s0, 32] = aten.mm.default(%x, %b)
  %d: f32[s0, 32] = aten.sub.Tensor(%p, %q, 1)
  return %p, %d
}";

/// A result of each kind, one of a size that data decides.
const KINDS: &str = "graph @kinds on cpu {
  sym u0 in [0, 4]
  sym u1 in [0, 100]
  %x: i64[4] = input
  %p: i64[u0, 1]{1, u0} = aten.nonzero.default(%x)
  %m: i64[] = aten.max.default(%x)
  %n: int(u1) = aten.item.default(%m)
  return %p, %n, \"a text\", 2.5, true, none
}";

/// Adds to a state, and updates its input.
const COUNTER: &str = "graph @counter on cpu {
  %x: f32[4] = input
  %w: f32[4] = const \"w\"
  %total: f32[4] = const \"total\"
  %twice: f32[4] = aten.mul.Scalar(%w, 2)
  %y: f32[4] = aten.add.Tensor(%x, %twice, 1)
  %next: f32[4] = aten.add.Tensor(%total, %twice, 1)
  update %x = %y
  update %total = %next
  return %next
}";

/// Calls two operators of a host.
const HOST: &str = "graph @host on cpu {
  sym u0 in [0, 4]
  op mylib.foo.default(Tensor x, int n, str mode) -> Tensor contiguous
  op mylib.keep.default(Tensor x) -> Tensor contiguous
  %x: f32[4] = input
  %a: f32[4] = aten.add.Scalar(%x, 1, 1)
  %f: f32[4] = mylib.foo.default(%a, 3, \"mode\")
  %k: f32[u0] = mylib.keep.default(%f)
  return %f, %k
}";

/// A folder with saved programs and with the library, under the name that programs ask for.
pub struct Folder {
    folder: tempfile::TempDir,
}

/// Has the operators, and never runs them.
struct Declares;

impl Host for Declares {
    fn declaration(&self, op: &str) -> Option<String> {
        HOST.lines()
            .find_map(|line| line.trim().strip_prefix("op ").filter(|text| text.starts_with(op)))
            .map(str::to_owned)
    }

    fn call(&self, _: &str, _: &mut [HostArg<'_>], _: &mut [HostResult<'_>]) -> Result<(), HostError> {
        Err("nobody runs it".into())
    }
}

fn compile(graph: &str, weights: &[(&str, Tensor)]) -> Compiled {
    let graph = parse(graph).unwrap_or_else(|diags| panic!("{diags:?}"));
    let weights: HashMap<String, Tensor> =
        weights.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
    let host = Some(HostOption(Arc::new(Declares)));
    // Valgrind knows AVX2 and nothing beyond.
    let target = "cpu(isa=avx2, threads=2)".parse().ok();
    let options = Options { host, fallback: Fallback::Quiet, target, threads: 2, ..Options::default() };
    let model = Model::from_graph(graph, weights).unwrap_or_else(|error| panic!("{error}"));
    model.compile(&options).unwrap_or_else(|error| panic!("{error}"))
}

fn filled(sizes: &[usize], value: f32) -> Tensor {
    Tensor::from_slice(sizes, &vec![value; sizes.iter().product()]).expect("lengths match")
}

impl Folder {
    /// Programs under the names `pair.litzc`, whose constants can be updated, `folded.litzc`, `kinds.litzc`, `counter.litzc` and `host.litzc`.
    pub fn new() -> Folder {
        let folder = Folder { folder: tempfile::tempdir().expect("writable") };
        let pair = compile(PAIR, &[("a", filled(&[32, 32], 2.0)), ("b", filled(&[32, 32], 2.0))]);
        pair.save_updatable(folder.path("pair.litzc")).expect("writable");
        pair.save(folder.path("folded.litzc")).expect("writable");
        compile(KINDS, &[]).save(folder.path("kinds.litzc")).expect("writable");
        let counter = compile(COUNTER, &[("w", filled(&[4], 1.0)), ("total", filled(&[4], 0.0))]);
        counter.save_updatable(folder.path("counter.litzc")).expect("writable");
        compile(HOST, &[]).save(folder.path("host.litzc")).expect("writable");
        for name in [
            "liblitz.so",
            concat!("liblitz.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")),
        ] {
            std::os::unix::fs::symlink(library(), folder.path(name)).expect("writable");
        }
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a program of `tests/c`, with further flags; its path.
    pub fn build(&self, source: &str, flags: &[&str]) -> PathBuf {
        let program = self.path(&format!("{source}{}", flags.concat().replace(['/', '='], "-")));
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1"]).args(flags);
        cc.arg("-I").arg(include()).arg(manifest("tests/c").join(format!("{source}.c")));
        cc.arg("-L").arg(self.folder.path()).args(["-llitz", "-lpthread", "-o"]).arg(&program);
        run(&mut cc);
        program
    }

    /// Runs a program that was built here; what it prints.
    pub fn execute(&self, program: &Path, args: &[&OsStr]) -> String {
        run(Command::new(program).args(args).env("LD_LIBRARY_PATH", self.folder.path()))
    }
}
