//! Compiles texts of graphs for a host, to run natively, on the reference device and on one with memory of its own.

use litz::{HostOption, Options, Runner, Stage, Tensor, Value, Verify, pipeline};
use litz_ir::graph::Graph;
use litz_ir::loops::{InstOp, Loops, Stmt};
use litz_ir::program::{Program, ProgramStep};
use litz_ir::text::graph::parse;
use litz_runtime::Host;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::reference::{DistantDevice, ReferenceDevice};
use litz_runtime::weights::Weights;
use std::sync::Arc;

/// Graphs of texts have no files.
pub struct NoWeights;

impl Weights for NoWeights {
    fn get(&self, _: &str) -> Option<Tensor> {
        None
    }
}

pub fn graph(body: &str) -> Graph {
    let text = format!("graph @g on cpu {{\n{body}\n}}");
    let graph = parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]));
    let diags = litz_ir::verify::graph::verify(&graph);
    assert!(diags.is_empty(), "{}", diags[0]);
    graph
}

pub fn options<H: Host + 'static>(host: &Arc<H>) -> Options {
    Options { host: Some(HostOption(host.clone())), threads: 2, ..Options::default() }
}

/// What a text became.
pub struct Compiled {
    pub loops: Loops,
    pub program: Program,
    /// Natively, on the reference device, on one with memory of its own.
    pub executables: Vec<Executable>,
}

pub fn compile<H: Host + 'static>(body: &str, given: &Arc<H>) -> Compiled {
    let options = options(given);
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let texts = pipeline::compile(graph(body), &*backend, &options, Stage::Program, &mut runner);
    let texts = texts.unwrap_or_else(|error| panic!("{error}"));
    let realized = texts.realized.expect("a program");
    let objects = litz::compile_kernels(&*backend, &realized.kernels, &options, None).expect("it compiles");
    let pool = || Arc::new(ThreadPool::unbound(2));
    let devices: [litz::Device; 3] = [
        backend.load(&realized.kernels, &objects, &pool).expect("sound code"),
        Arc::new(ReferenceDevice::new(&realized.kernels).expect("kernels")),
        Arc::new(DistantDevice::new(&realized.kernels).expect("kernels")),
    ];
    let host: Arc<dyn Host> = given.clone();
    let run = RunOptions { host: Some(host), ..RunOptions::default() };
    let executable = |device| {
        Executable::with_options(&realized.program, &realized.kernels, device, &NoWeights, &run)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let executables = devices.into_iter().map(executable).collect();
    Compiled { loops: texts.loops.expect("loops"), program: realized.program, executables }
}

pub fn numbers(values: &[Value]) -> Vec<Vec<f64>> {
    let tensor = |value: &Value| match value {
        Value::Tensor(tensor) => Some(tensor.to_f64()),
        Value::Scalar(_) | Value::Text(_) | Value::Nothing => None,
    };
    values.iter().filter_map(tensor).collect()
}

pub fn tensor(sizes: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(sizes, values).expect("as many values as elements")
}

pub fn launches(program: &Program) -> usize {
    program.steps.iter().filter(|step| matches!(step, ProgramStep::Launch { .. })).count()
}

pub fn copies(loops: &Loops) -> usize {
    let is_copy = |stmt: &&Stmt| match stmt {
        Stmt::Nest(nest) => nest.body.len() == 2 && matches!(nest.body[0].op, InstOp::Load { .. }),
        Stmt::Recurrence(_) | Stmt::Extern(_) => false,
    };
    loops.stmts.iter().filter(is_copy).count()
}
