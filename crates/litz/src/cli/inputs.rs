//! Makes the tensors that a model is called with: read from a file, or made up from its description of inputs.

use super::failure::Failure;
use super::output;
use litz::made_up::{self, Wanted};
use litz::tensors::{self, Named};
use litz::{Model, Tensor};
use litz_ops::seed;
use litz_sym::Facts;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

/// Inputs of a model, from a file where one is given, else made up.
pub fn inputs(model: &Model, file: Option<&Path>) -> Result<Vec<Tensor>, Failure> {
    make(&made_up::of_model(model), &model.imported.graph.facts, file)
}

/// Inputs from a file where one is given, else made up.
pub fn make(wanted: &[Wanted<'_>], facts: &Facts, file: Option<&Path>) -> Result<Vec<Tensor>, Failure> {
    match file {
        Some(path) => {
            let named = tensors::read(path).map_err(|error| Failure::file(path, &error))?;
            from_file(wanted, facts, &named, path)
        }
        None => Ok(made_up::inputs(wanted, facts)?),
    }
}

/// Lets a model that makes random numbers make those of a seed: of one that the system draws, and a note says, where none is given.
pub fn give_seed(wanted: &[Wanted<'_>], inputs: &mut [Tensor], seed: Option<i64>) -> Result<(), Failure> {
    let place = wanted.iter().position(|wanted| wanted.name == seed::NAME);
    let Some(input) = place.and_then(|at| inputs.get_mut(at)) else {
        return match seed {
            Some(_) => Err(Failure::invalid("the model makes no random numbers, so it takes no --seed")),
            None => Ok(()),
        };
    };
    let seed = seed.unwrap_or_else(|| {
        // Keys of the standard library's hashers are the system's random numbers.
        let drawn = RandomState::new().build_hasher().finish() >> 32;
        output::note(format_args!("random numbers of the seed {drawn}: `--seed {drawn}` makes them again\n"));
        drawn as i64
    });
    *input = Tensor::scalar(seed).map_err(Failure::invalid)?;
    Ok(())
}

/// Inputs called `in.0`, `in.1`, ... by position, or by their names in the model. Files of tensors often lack integers: these
/// are what they were when the model was exported, which a note says.
pub fn from_file(
    wanted: &[Wanted<'_>],
    facts: &Facts,
    named: &Named,
    path: &Path,
) -> Result<Vec<Tensor>, Failure> {
    let find = |&Wanted { position, name, number, .. }: &Wanted<'_>| {
        if name == seed::NAME {
            return Tensor::scalar(0i64).map_err(Failure::invalid);
        }
        let tensor = named.get(&format!("in.{position}")).or_else(|| named.get(name)).cloned();
        let path = path.display();
        if tensor.is_none()
            && let Some(value) = number.and_then(|number| facts.hint(number))
        {
            output::note(format_args!("{path} has no `in.{position}`: `{name}` is {value}, as at export\n"));
            return Tensor::scalar(value).map_err(Failure::invalid);
        }
        tensor.ok_or_else(|| {
            Failure::invalid(format_args!(
                "{path}: expected a tensor `in.{position}` or `{name}`, found none"
            ))
        })
    };
    wanted.iter().map(find).collect()
}
