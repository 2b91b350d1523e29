//! Compiles programs as C ahead of time, builds one executable of many for a machine, calls them there and reads what they give.

mod calls;
mod exchange;
mod files;
mod instructions;
mod models;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use litz::ahead::{self, Names, Program};
use litz::{Backend, Options, Tensor, Value};
use litz_codegen::Realized;
use litz_ir::target::{Cpu, Isa, Target};
use litz_runtime::weights::Weights;

pub use calls::{CallCheck, CallTest, Prepared, case_tests, random_tests};
pub use files::{FileCheck, FileTest, file_tests};
pub use instructions::{Counted, count};
pub use models::{ModelCheck, ModelTest, model_test};

/// A machine to compile for, and how its programs are run on this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// Any x86-64.
    X86,
    /// Any AArch64, emulated by QEMU where this machine is another.
    Aarch64,
}

impl Machine {
    /// The instruction set that every machine of the kind has.
    pub fn isa(self) -> Isa {
        match self {
            Machine::X86 => Isa::Sse2,
            Machine::Aarch64 => Isa::Neon,
        }
    }

    /// The target of so many threads.
    pub fn target(self, threads: u32) -> Target {
        Target::Cpu(Cpu::new(self.isa(), threads))
    }

    fn is_this(self) -> bool {
        match self {
            Machine::X86 => cfg!(target_arch = "x86_64"),
            Machine::Aarch64 => cfg!(target_arch = "aarch64"),
        }
    }

    fn compiler(self) -> &'static str {
        match self {
            _ if self.is_this() => "cc",
            Machine::X86 => "x86_64-linux-gnu-gcc",
            Machine::Aarch64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// The disassembler of its objects.
    fn disassembler(self) -> &'static str {
        match self {
            _ if self.is_this() => "objdump",
            Machine::X86 => "x86_64-linux-gnu-objdump",
            Machine::Aarch64 => "aarch64-linux-gnu-objdump",
        }
    }

    fn run(self, executable: &Path) -> Command {
        if self.is_this() {
            return Command::new(executable);
        }
        let (emulator, libraries) = match self {
            Machine::X86 => ("qemu-x86_64", "/usr/x86_64-linux-gnu"),
            Machine::Aarch64 => ("qemu-aarch64", "/usr/aarch64-linux-gnu"),
        };
        let mut command = Command::new(emulator);
        command.args(["-L", libraries]).arg(executable);
        command
    }
}

/// What the status of a call is called, by its number in C.
const STATUSES: [&str; 14] = [
    "ok",
    "wrong-count",
    "wrong-dtype",
    "wrong-rank",
    "wrong-size",
    "size-out-of-range",
    "check-failed",
    "assertion-failed",
    "bad-index",
    "out-of-memory",
    "bad-weights",
    "state-lost",
    "small-output",
    "bug",
];

/// A call that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Its status, such as `bad-index`.
    pub status: &'static str,
    /// The message.
    pub text: String,
}

/// What the calls of one program gave: all of them, or how the process ended in the midst of it.
pub type Outcome = Result<Vec<Result<Vec<Value>, Failed>>, String>;

/// A program that was written to a folder, and calls of it.
pub struct Subject {
    /// What it is called in C.
    pub id: String,
    /// Its objects.
    pub objects: Vec<String>,
    has_weights: bool,
    calls: Vec<Vec<Tensor>>,
}

/// Writes a program as C, under the name `id`.
///
/// # Errors
/// As [`ahead::write_model`].
pub fn write(
    folder: &Path,
    id: &str,
    (realized, names, weights): (&Realized, &Names, &dyn Weights),
    backend: &dyn Backend,
    options: &Options,
    calls: Vec<Vec<Tensor>>,
) -> Result<Subject, litz::Error> {
    let program = Program { name: id, realized, names, weights };
    let objects = ahead::write_model(folder, &program, backend, options)?;
    let has_weights = !realized.program.consts.is_empty();
    Ok(Subject { id: id.to_owned(), objects, has_weights, calls })
}

/// Calls all programs of a folder, on so many threads: one executable, one process but where one crashes.
///
/// # Errors
/// What the compiler of C says, or the driver.
pub fn call(
    folder: &Path,
    machine: Machine,
    subjects: &[Subject],
    threads: usize,
) -> Result<Vec<Outcome>, String> {
    let executable = build(folder, machine, subjects)?;
    let (calls, results) = (folder.join("calls"), folder.join("results"));
    fs::write(&calls, exchange::calls(folder, subjects)).map_err(|error| failed(&calls, &error))?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    while outcomes.len() < subjects.len() {
        let first = outcomes.len();
        let output = machine
            .run(&executable)
            .args([&calls, &results])
            .args([first.to_string(), threads.to_string()])
            .output()
            .map_err(|error| format!("cannot run {}: {error}", executable.display()))?;
        let bytes = fs::read(&results).map_err(|error| failed(&results, &error))?;
        let counts = subjects.iter().map(|subject| subject.calls.len());
        outcomes.extend(exchange::results(&bytes, first, &counts.collect::<Vec<_>>()));
        if outcomes.len() < subjects.len() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            outcomes.push(Err(format!("the process ended: {} {said}", output.status)));
        }
    }
    Ok(outcomes)
}

/// Compiles and links everything with one call of the compiler, as strictly as it can.
fn build(folder: &Path, machine: Machine, subjects: &[Subject]) -> Result<PathBuf, String> {
    ahead::write_support(folder).map_err(|error| error.to_string())?;
    let includes: String =
        subjects.iter().map(|subject| format!("#include \"{}.h\"\n", subject.id)).collect();
    let models: String = subjects.iter().map(|subject| format!("&{}, ", subject.id)).collect();
    let table = format!(
        "{includes}\nextern const litz_interface *const models[];\nextern const int model_count;\n\
         const litz_interface *const models[] = {{{models}NULL}};\nconst int model_count = {};\n",
        subjects.len()
    );
    let files = [
        ("driver.c", include_str!("ahead/driver.c").to_owned()),
        ("models.c", format!("#include <stddef.h>\n{table}")),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    }
    let own = subjects.iter().map(|subject| format!("{}.c", subject.id));
    let support = litz_c_sources();
    let objects = subjects.iter().flat_map(|subject| subject.objects.iter().cloned());
    let arguments: Vec<String> = own.chain(support).chain(["models.c".to_owned()]).chain(objects).collect();
    // Many files, which a command line may not hold.
    let listed = folder.join("files");
    fs::write(&listed, arguments.join("\n")).map_err(|error| failed(&listed, &error))?;
    let compile = |more: &[&str]| {
        let output = Command::new(machine.compiler()).current_dir(folder).args(more).output();
        let output = output.map_err(|error| format!("cannot start {}: {error}", machine.compiler()))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    compile(&["-std=c11", "-O1", "-c", "driver.c", "-o", "driver.o"])?;
    let strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    compile(&[&strict[..], &["@files", "driver.o", "-o", "driver", "-lm", "-pthread"]].concat())?;
    Ok(folder.join("driver"))
}

/// The sources that models have in common.
fn litz_c_sources() -> impl Iterator<Item = String> {
    ahead::support_files().filter(|name| name.ends_with(".c")).map(str::to_owned)
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
