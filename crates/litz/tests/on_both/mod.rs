//! Runs a graph on the reference device, by the kernels of a GPU, and on the CPU.

use litz::target::{Gpu, GpuIsa};
use litz::{Model, Options, Target, Tensor, Value, Verify};
use std::collections::HashMap;

/// What a graph gives.
pub struct Found {
    /// The elements of its first result by a GPU's kernels.
    pub of_gpu: Vec<f64>,
    /// The same by the CPU's.
    pub of_cpu: Vec<f64>,
    /// The schedule for the GPU.
    pub schedule: String,
}

/// Runs the graph of a text for a GPU of so many units and for the CPU, all of whose kernels are proved.
pub fn run(name: &str, text: &str, units: u32, given: &[Tensor]) -> Found {
    let (of_gpu, schedule) = run_by(name, text, &for_gpu(units), given);
    let (of_cpu, _) = run_by(name, text, &Options::default(), given);
    Found { of_gpu, of_cpu, schedule }
}

/// Options for a GPU of so many units, whose kernels run on the reference device.
pub fn for_gpu(units: u32) -> Options {
    let target = Target::Gpu(Gpu::new(GpuIsa::Sm90, units));
    Options { verify: Verify::Passes, reference: true, ..Options::for_target(target) }
}

/// Runs the graph of a text by kernels that are all proved: the elements of its first result, and the schedule.
pub fn run_by(name: &str, text: &str, options: &Options, given: &[Tensor]) -> (Vec<f64>, String) {
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|diags| panic!("{name}: {}", diags[0]));
    let model = Model::from_graph(graph, HashMap::new()).expect("it is a graph");
    let compiled = model.compile(options).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(compiled.texts.unproved.is_empty(), "{name}: {:?}", compiled.texts.unproved);
    let found = compiled.run(given).unwrap_or_else(|error| panic!("{name}: {error}"));
    let Value::Tensor(found) = &found[0] else { panic!("{name}: no tensor") };
    (found.to_f64(), compiled.texts.schedule.as_ref().expect("it has a schedule").to_string())
}
