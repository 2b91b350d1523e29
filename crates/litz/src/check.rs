//! Compiles one model for many targets with everything verified, and keeps nothing of it.
//!
//! What does not depend on the target is done once, and kernels that several targets with one instruction set have in
//! common are emitted once.

use crate::backends;
use crate::error::Error;
use crate::model::Model;
use crate::options::{Options, Verify};
use crate::pipeline;
use crate::reproducer;
use crate::runner::{Runner, Stage};
use litz_backend::Backend;
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::Target;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How far a model is compiled for each target. What is less far is verified in any case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reach {
    /// Kernels and program.
    Program,
    /// LLVM IR, which LLVM verifies.
    Llvm,
    /// Machine code.
    Object,
}

/// Reads a text with one target a line, each after how far to compile for it: `object cpu(isa=neon, threads=2)`. Empty
/// lines and those that begin with `#` say nothing.
///
/// # Errors
/// `target-syntax`, with the line.
pub fn parse_targets(text: &str) -> Result<Vec<(Target, Reach)>, Diag> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| parse_line(line).map_err(|what| Diag::new("target-syntax", what).at(number, 1)))
        .collect()
}

fn parse_line(line: &str) -> Result<(Target, Reach), String> {
    let (reach, target) = line.split_once(' ').unwrap_or((line, ""));
    let reach = match reach {
        "program" => Reach::Program,
        "llvm" => Reach::Llvm,
        "object" => Reach::Object,
        _ => return Err(format!("expected program, llvm or object, found `{reach}`")),
    };
    Ok((target.parse().map_err(|error: Diag| error.message)?, reach))
}

/// What came of one target.
#[derive(Debug)]
pub struct Checked {
    /// The target.
    pub target: Target,
    /// How many kernels it has, or what is wrong.
    pub result: Result<usize, Error>,
    /// What the target took, without what all share.
    pub time: Duration,
}

/// Compiles for each target as far as it says.
///
/// # Errors
/// What no target supports.
pub fn check(model: &Model, targets: &[(Target, Reach)]) -> Result<Vec<Checked>, Error> {
    let graph = &model.imported.graph;
    let options = |target| Options { verify: Verify::Passes, ..Options::for_target(target) };
    let Some(&(first, _)) = targets.first() else { return Ok(Vec::new()) };
    let mut silent = |_: &str| {};
    let mut run = Runner::new(Verify::Passes, None, &mut silent);
    let shared = options(first);
    model.check_supported()?;
    let loops =
        reproducer::catch(graph, &shared, || pipeline::compile_graph(graph.clone(), &shared, &mut run))?;
    let mut seen = HashSet::new();
    let check_one = |&(target, reach): &(Target, Reach)| {
        let options = options(target);
        let start = Instant::now();
        let mut silent = |_: &str| {};
        let mut run = Runner::new(Verify::Passes, None, &mut silent);
        let result = reproducer::catch(graph, &options, || {
            let backend = backends::backend(&options)?;
            let texts =
                pipeline::compile_loops(loops.clone(), &*backend, &options, Stage::Program, &mut run)?;
            if let Some(unproved) = texts.unproved.first() {
                return Err(Error::bug("schedule", &unproved.why));
            }
            let kernels = texts.realized.map_or(Vec::new(), |realized| realized.kernels);
            check_code(&*backend, &kernels, reach, &mut seen)?;
            Ok(kernels.len())
        });
        Checked { target, result, time: start.elapsed() }
    };
    Ok(targets.iter().map(check_one).collect())
}

/// Takes the kernels that are not yet among those `seen` as far as `reach` says.
fn check_code(
    backend: &dyn Backend,
    kernels: &[Kernel],
    reach: Reach,
    seen: &mut HashSet<(String, String)>,
) -> Result<(), Error> {
    if reach == Reach::Program {
        return Ok(());
    }
    let key = backend.key();
    let unseen: Vec<Kernel> =
        kernels.iter().filter(|kernel| seen.insert((key.clone(), kernel.to_string()))).cloned().collect();
    for kernels in unseen.chunks(backend.kernels_per_text().max(1)) {
        let text = backend.emit(kernels)?;
        backend.verify(&text)?;
        if reach == Reach::Object {
            backend.assemble(&text)?;
        }
    }
    Ok(())
}
