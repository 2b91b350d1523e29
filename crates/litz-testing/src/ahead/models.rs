//! Compiles exported models ahead of time, and holds their results to the numeric contract.

use std::path::{Path, PathBuf};

use litz::ahead::Names;
use litz::contract::{self, Expected};
use litz::tensors::Named;
use litz::{Error, Model, Options, Runner, Stage, Tensor, Value, Verify, made_up, tensors};
use litz_ops::seed;

use super::{Machine, Outcome, Subject, write};

/// A model that was compiled: what was written, and what it has to give.
pub struct ModelTest {
    subject: Subject,
    check: ModelCheck,
}

/// What each call of a model gives in PyTorch.
pub struct ModelCheck(Vec<Named>);

impl ModelTest {
    /// What was written, and what it has to give.
    pub fn split(self) -> (Subject, ModelCheck) {
        (self.subject, self.check)
    }
}

/// Compiles a model for a machine of so many threads, to be called with each of these files.
///
/// # Errors
/// What the model needs and C does not do; files that cannot be read.
pub fn model_test(
    folder: &Path,
    machine: Machine,
    path: &Path,
    data: &[PathBuf],
    threads: u32,
) -> Result<ModelTest, Error> {
    let bug = |message: String| Error::bug("a test of a model", message);
    let target = machine.target(threads);
    let options =
        Options { cache: None, target: Some(target), threads: threads as usize, ..Options::default() };
    let model = Model::open_for(path, &options)?;
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Stages, None, &mut silent);
    let backend = litz::backend(&options)?;
    let realized = model.texts(&options, Stage::Program, &mut runner)?.realized;
    let realized = realized.ok_or_else(|| bug("nothing was realized".to_owned()))?;
    let named = data.iter().map(|path| tensors::read(path).map_err(|error| bug(error.to_string())));
    let data = named.collect::<Result<Vec<Named>, Error>>()?;
    let calls = data.iter().map(|named| inputs(&model, named)).collect::<Result<Vec<_>, _>>().map_err(bug)?;
    let parts = (&realized, &Names::of(&model), &model as &dyn litz_runtime::weights::Weights);
    let subject = write(folder, "model", parts, &*backend, &options, calls)?;
    Ok(ModelTest { subject, check: ModelCheck(data) })
}

/// Inputs called `in.0`, `in.1`, ..., or by their names. Integers that are missing are what they were when the model was exported.
fn inputs(model: &Model, named: &Named) -> Result<Vec<Tensor>, String> {
    let facts = &model.imported.graph.facts;
    let find = |wanted: &made_up::Wanted<'_>| {
        if wanted.name == seed::NAME {
            return Tensor::scalar(0i64).map_err(|error| error.to_string());
        }
        let key = format!("in.{}", wanted.position);
        if let Some(tensor) = named.get(&key).or_else(|| named.get(wanted.name)) {
            return Ok(tensor.clone());
        }
        let hint = wanted.number.and_then(|number| facts.hint(number));
        let hint =
            hint.ok_or_else(|| format!("expected a tensor `{key}` or `{}`, found none", wanted.name))?;
        Tensor::scalar(hint).map_err(|error| error.to_string())
    };
    made_up::of_model(model).iter().map(find).collect()
}

impl ModelCheck {
    /// Compares what its calls gave.
    ///
    /// # Errors
    /// The first result that breaks the contract, in words.
    pub fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let found = outcome.as_ref().map_err(Clone::clone)?;
        for (found, data) in found.iter().zip(&self.0) {
            let values = found.as_ref().map_err(|failed| format!("{}: {}", failed.status, failed.text))?;
            let tensors: Vec<&Tensor> = values.iter().filter_map(Value::tensor).collect();
            for at in 0.. {
                let Some(eager) = data.get(&format!("out.{at}")) else { break };
                let tensor =
                    tensors.get(at).ok_or_else(|| format!("out.{at}: expected a tensor, found none"))?;
                let of = |part: &str| data.get(&format!("{part}.{at}"));
                let expected =
                    Expected { eager, reference: of("ref"), terms: of("terms"), indexed: of("from") };
                if let Some(broken) = contract::compare(tensor, expected).broken {
                    return Err(format!("out.{at}: {broken}"));
                }
            }
        }
        Ok(())
    }
}
