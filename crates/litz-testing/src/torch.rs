//! Writes random models as Python files, and compares what PyTorch returned with machine code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use litz::tensors::{self, Named};
use litz::{Error, Tensor};
use litz_ir::target::Isa;
use litz_ops::Table;

use crate::devices;
use crate::models::{Model, python};
use crate::trial::{self, Pools, TrialTarget, Verdict};

/// Rounded places of resized images are off by as many units as images have rows: eager computes them in the elements'
/// type, and neighbours are weighed by what is left behind the point. Ours are fractions.
const RESIZED: f64 = 64.0;

/// `PREFIX.py`, `PREFIX.safetensors`, `PREFIX.json`: what `run_models.py` reads.
///
/// # Errors
/// When a file cannot be written.
pub fn export(seed: u64, numbers: std::ops::Range<u64>, prefix: &Path, isas: &[Isa]) -> Result<(), String> {
    let table = Table::new();
    let (mut text, mut inputs, mut sizes) = (python::PREAMBLE.to_owned(), Named::new(), Vec::new());
    for number in numbers {
        let (model, _) = trial::numbered(seed, number, isas);
        let (name, call) = (name(number), model.call(model.bindings.len() - 1));
        text += &format!("{}\n\n", python::function(&model, &name, &table));
        let weights = model.graph.consts.iter().map(|(_, name)| call.weights[name].clone());
        for (at, tensor) in call.inputs.iter().cloned().chain(weights).enumerate() {
            inputs.insert(format!("{name}.in.{at}"), tensor);
        }
        let mut pairs: Vec<String> =
            call.sizes.iter().map(|(sym, n)| format!("\"{}\": {n}", sym.name())).collect();
        pairs.sort();
        sizes.push(format!("\"{name}\": {{{}}}", pairs.join(", ")));
    }
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", prefix.display());
    fs::write(with(prefix, ".py"), text).map_err(|error| failed(&error))?;
    fs::write(with(prefix, ".json"), format!("{{{}}}\n", sizes.join(",\n")))
        .map_err(|error| failed(&error))?;
    tensors::write(&with(prefix, ".safetensors"), &inputs).map_err(|error| failed(&error))
}

fn name(number: u64) -> String {
    format!("m{number}")
}

fn with(prefix: &Path, ending: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// What PyTorch returned.
pub struct Returned {
    tensors: Named,
    errors: String,
}

/// Reads `PREFIX.out.safetensors` and `PREFIX.out.json`.
///
/// # Errors
/// When a file cannot be read.
pub fn returned(prefix: &Path) -> Result<Returned, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", prefix.display());
    let tensors = tensors::read(&with(prefix, ".out.safetensors")).map_err(|error| failed(&error))?;
    let errors = fs::read_to_string(with(prefix, ".out.json")).map_err(|error| failed(&error))?;
    Ok(Returned { tensors, errors })
}

/// Runs a model as machine code and compares with PyTorch's results. What PyTorch refuses is not compared.
pub fn compare(
    number: u64,
    model: &Model,
    target: &TrialTarget,
    pools: &mut Pools,
    returned: &Returned,
) -> Verdict {
    let name = name(number);
    if returned.errors.contains(&format!("\"{name}\":")) {
        return Verdict::Unsupported("PyTorch refuses it".into());
    }
    attempt(&name, model, target, pools, &returned.tensors).unwrap_or_else(trial::judge)
}

fn attempt(
    name: &str,
    model: &Model,
    target: &TrialTarget,
    pools: &mut Pools,
    returned: &BTreeMap<String, Tensor>,
) -> Result<Verdict, Error> {
    let call = model.call(model.bindings.len() - 1);
    let loops = devices::definition(&model.graph)?;
    let expected = devices::interpret(&loops, &call)?;
    let backend = litz::backend(&target.options)?;
    let realized = devices::realize(model.graph.clone(), &*backend, &target.options)?;
    let pool = pools.of(target.options.threads);
    let device = devices::on_native(&realized, &*backend, &target.options, &pool)?;
    let [found, _] = devices::run(&realized, device, &call.inputs, &call.weights)?;
    let mut compared = crate::compare::Compared::default();
    let resizes = model.graph.nodes.iter().any(|node| node.op.as_str().contains("upsample_bilinear"));
    for at in 0..model.graph.outputs.len() {
        let (Some(theirs), Some(ours)) = (returned.get(&format!("{name}.out.{at}")), found[at].tensor())
        else {
            continue;
        };
        // Theirs is another implementation of the same operators: it has the doubts that ours has, and a few roundings
        // of its own where ours has none. In half types it may round each number on the way, accumulators too, which may
        // overflow: it is in doubt by what it differs from itself in f32; f32 where it overflows and f64 does not.
        let ulp = theirs.dtype().epsilon();
        let magnitudes = theirs.to_f64();
        let doubts = expected[at].doubts.iter().zip(&magnitudes);
        let wide =
            returned.get(&format!("{name}.wide.{at}")).map_or_else(|| magnitudes.clone(), Tensor::to_f64);
        let is_half = theirs.dtype().size() < 4;
        let own =
            distances(&magnitudes, &wide).map(|own| if is_half || own.is_infinite() { own } else { 0.0 });
        let places = if resizes { RESIZED * ulp * largest(&magnitudes) } else { 0.0 };
        let doubts: Vec<f64> = doubts
            .zip(own)
            .map(|((doubt, &value), own)| 4.0 * doubt + allowed(value, ulp) + 2.0 * own + places)
            .collect();
        let doubts = match theirs.dtype().is_float() {
            true => doubts,
            // What may be off in the last places compares and rounds to other values.
            false if resizes => vec![f64::INFINITY; doubts.len()],
            false => expected[at].doubts.clone(),
        };
        match crate::compare::tensors(ours, theirs, &doubts) {
            Ok(one) => {
                compared.elements += one.elements;
                compared.open += one.open;
            }
            Err(why) => return Ok(Verdict::Wrong(format!("PyTorch differs: out.{at}: {why}"))),
        }
    }
    Ok(Verdict::Right(compared))
}

fn allowed(value: f64, ulp: f64) -> f64 {
    if value.is_finite() { ulp * value.abs() } else { 0.0 }
}

/// The largest magnitude that is finite.
fn largest(values: &[f64]) -> f64 {
    values.iter().map(|value| value.abs()).filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// For each element the largest distance between two that are finite, infinite where one of the pair alone is.
fn distances<'a>(a: &'a [f64], b: &'a [f64]) -> impl Iterator<Item = f64> {
    let pairs = move || a.iter().zip(b);
    let largest = largest(&pairs().map(|(a, b)| a - b).collect::<Vec<_>>());
    pairs().map(move |(a, b)| if a.is_finite() == b.is_finite() { largest } else { f64::INFINITY })
}
