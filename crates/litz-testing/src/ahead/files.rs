//! Compiles file tests ahead of time, and compares what they give with the numbers that they expect.

use std::path::{Path, PathBuf};

use litz::ahead::Names;
use litz::pipeline::{compile, compile_loops};
use litz::{Error, Options, Runner, Stage, Tensor, Text, Verify};
use litz_codegen::Realized;
use litz_ir::parallel::parallel;
use litz_ir::target::{Cpu, Target};
use litz_runtime::tensor::TensorError;
use litz_runtime::weights::in_layout;

use super::{Machine, Outcome, Subject, write};
use crate::filetest::file::TestFile;
use crate::filetest::settings::Settings;
use crate::filetest::{Call, data, same};

/// A file test that was compiled: what was written, and what it has to give.
pub struct FileTest {
    subject: Subject,
    check: FileCheck,
}

/// What a file test has to give.
pub struct FileCheck {
    /// Its path below `filetests/run`, without the extension.
    pub name: String,
    calls: Vec<Call>,
    fails: Option<String>,
}

impl FileTest {
    /// What was written, and what it has to give.
    pub fn split(self) -> (Subject, FileCheck) {
        (self.subject, self.check)
    }
}

/// Families whose files say what is on other devices than the CPU.
const OTHER_DEVICES: [&str; 2] = ["devices", "gpu"];

/// Compiles file tests for a machine, several at a time: one of each so many, from the first on. What is refused is there with the reason.
///
/// # Errors
/// Files that are no tests, and programs that do not compile.
pub fn file_tests(
    folder: &Path,
    machine: Machine,
    one_of: usize,
) -> Result<(Vec<FileTest>, Vec<(String, String)>), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/run");
    let mut paths = Vec::new();
    collect(&root, &mut paths)?;
    paths.sort();
    let paths: Vec<PathBuf> = paths.into_iter().step_by(one_of.max(1)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let all = parallel(threads, paths.len(), |at| {
        let name = paths[at].strip_prefix(&root).unwrap_or(&paths[at]).with_extension("");
        let name = name.to_string_lossy().into_owned();
        match prepare(folder, &paths[at], &name, &format!("f{at}"), machine) {
            Ok(test) => Ok(Ok(test)),
            Err(Error::Unsupported(diags)) => {
                let reasons: Vec<String> = diags.iter().map(|diag| diag.message.clone()).collect();
                Ok(Err((name, reasons.join(", "))))
            }
            Err(error) => Err(format!("{name}: {error}")),
        }
    });
    let (mut tests, mut refused) = (Vec::new(), Vec::new());
    for one in all {
        match one? {
            Ok(test) => tests.push(test),
            Err(reason) => refused.push(reason),
        }
    }
    Ok((tests, refused))
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let is_other = path.file_name().is_some_and(|name| OTHER_DEVICES.iter().any(|other| name == *other));
        if path.is_dir() && !is_other {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "litz") {
            paths.push(path);
        }
    }
    Ok(())
}

fn prepare(folder: &Path, path: &Path, name: &str, id: &str, machine: Machine) -> Result<FileTest, Error> {
    let bug = |message: String| Error::bug("a file test", message);
    let file = TestFile::read(path).map_err(bug)?;
    let settings = Settings::of(&file).map_err(bug)?;
    let (weights, calls) = data(&file).map_err(bug)?;
    let cpu = settings.info.cpu().ok_or_else(|| bug("its target is no CPU".to_owned()))?;
    let target = Target::Cpu(Cpu { isa: machine.isa(), ..*cpu });
    let options = Options { target: Some(target), ..settings.options.clone() };
    let backend = litz::backend(&options)?;
    let realized = compiled(&file.texts[0], &options)?;
    // Twice: the second round finds the memory that the first one left. State would be another then.
    let program = &realized.program;
    let is_state = |slot| program.consts.iter().any(|constant| constant.slot == slot);
    let rounds = if program.updates.iter().any(|update| is_state(update.0)) { 1 } else { 2 };
    let mut inputs: Vec<Vec<Tensor>> = calls.iter().map(|call| call.inputs.clone()).collect();
    if rounds > 1 {
        // The second round has its inputs in a layout that no kernel expects.
        let spread = calls.iter().map(|call| call.inputs.iter().map(spread).collect());
        inputs.extend(spread.collect::<Result<Vec<_>, _>>().map_err(|error| bug(error.to_string()))?);
    }
    let subject = write(folder, id, (&realized, &Names::default(), &weights), &*backend, &options, inputs)?;
    Ok(FileTest { subject, check: FileCheck { name: name.to_owned(), calls, fails: settings.fails } })
}

/// The tensor column after column, with room between all elements.
fn spread(tensor: &Tensor) -> Result<Tensor, TensorError> {
    let mut stride = 2;
    let stride = |size: &usize| {
        let own = stride;
        stride *= size.max(&1);
        own
    };
    let strides: Vec<usize> = tensor.sizes().iter().map(stride).collect();
    in_layout(tensor, &strides)
}

fn compiled(text: &str, options: &Options) -> Result<Realized, Error> {
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let backend = litz::backend(options)?;
    let texts = match Text::parse(text)? {
        Text::Graph(graph) => compile(graph, &*backend, options, Stage::Program, &mut runner)?,
        Text::Loops(loops) => compile_loops(loops, &*backend, options, Stage::Program, &mut runner)?,
        Text::Schedule(..) | Text::Kernels(_) | Text::Program(_) => {
            return Err(Error::bug("a file test", "expected a graph or loops"));
        }
    };
    texts.realized.ok_or_else(|| Error::bug("realize", "it gave nothing"))
}

impl FileCheck {
    /// Compares what its calls gave.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let found = outcome.as_ref().map_err(Clone::clone)?;
        if found.is_empty() || found.len() % self.calls.len() != 0 {
            return Err(format!("{} calls, expected rounds of {}", found.len(), self.calls.len()));
        }
        for (found, call) in found.iter().zip(self.calls.iter().cycle()) {
            match (found, &self.fails) {
                (Err(failed), Some(expected)) if failed.status == expected => {}
                (Err(failed), _) => return Err(format!("{}: {}", failed.status, failed.text)),
                (Ok(_), Some(expected)) => return Err(format!("expected failure `{expected}`, found none")),
                (Ok(values), None) => same(values, &call.outputs)?,
            }
        }
        Ok(())
    }
}
