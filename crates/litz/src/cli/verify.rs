//! `litz verify` checks whether a model's results keep the numeric contract with PyTorch's.

use super::failure::{Exit, Failure};
use super::format::{self, Table};
use super::options::Compiling;
use super::run::{Output, named};
use super::{inputs, load, output, repeat};
use litz::attempt::{self, Check, Outcome};
use litz::case::Case;
use litz::contract::{self, Expected, Verdict};
use litz::made_up;
use litz::progress::Progress;
use litz::tensors::{self, Named};
use litz::{Model, Options};
use serde_json::json;
use std::path::{Path, PathBuf};

/// What to compare.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Inputs `in.I`, PyTorch's results `out.I` and, computed in f64, `ref.I`; once for each set of sizes. Where there
    /// are `terms.I` as well, each element is held to the size of its terms; where there is `from.I`, positions of equal
    /// values in it are equal
    #[arg(long, value_name = "FILE", required_unless_present = "reference")]
    data: Vec<PathBuf>,
    /// Compare with the interpreter that defines what is right instead, which needs no results of PyTorch's and is slow; without `--data`
    /// inputs are made up
    #[arg(long, conflicts_with = "calls")]
    reference: bool,
    /// Repeat each call as often; all must give equal bits
    #[arg(long, value_name = "N", default_value_t = 0)]
    calls: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Compiling,
}

/// One compared output.
struct Compared {
    key: String,
    name: String,
    ty: String,
    verdict: Verdict,
}

/// Runs the model and compares every output.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let model = load::open(&args.model, &args.which)?;
    let options = args.common.options();
    if args.reference {
        return against_the_interpreter(args, &model, &options);
    }
    let compiled = load::compile(&model, &options)?;
    args.common.print_timings(&compiled.timings);
    let mut other_bits = None;
    let mut compared = Vec::new();
    for path in &args.data {
        let data = tensors::read(path).map_err(|error| Failure::file(path, &error))?;
        let inputs = inputs::from_file(&made_up::of_model(&model), &model.imported.graph.facts, &data, path)?;
        let names = model.imported.outputs.iter().map(|output| output.name.as_str());
        let these = compare(&named(names, compiled.run(&inputs)?), &data);
        if these.is_empty() {
            let message = format_args!("{}: expected results `out.I`, found none", path.display());
            return Err(Failure::invalid(message));
        }
        compared.extend(these);
        if other_bits.is_none() {
            other_bits = repeat::differing(&model, &compiled, &options, &inputs, args.calls)?;
        }
    }
    if args.json {
        let rows = serde_json::Value::Array(compared.iter().map(to_json).collect());
        output::print(format_args!("{rows}\n"))?;
    } else {
        output::print(table(&compared))?;
        for broken in compared.iter().filter(|one| one.verdict.broken.is_some()) {
            let why = broken.verdict.broken.as_deref().unwrap_or("");
            output::print(format_args!("error: {}: {why}\n", broken.key))?;
        }
        if args.data.len() > 1 {
            let (compilations, plans) = (model.compilations(), compiled.statistics().plans);
            let (compilations, plans) =
                (format::counted(compilations, "compilation"), format::counted(plans, "plan"));
            output::print(format_args!("{} calls: {compilations}, {plans}\n", args.data.len()))?;
        }
    }
    if let Some(other_bits) = &other_bits {
        output::note(format_args!("error: {other_bits}\n"));
    }
    let is_kept = other_bits.is_none() && compared.iter().all(|one| one.verdict.broken.is_none());
    Ok(if is_kept { Exit::Ok } else { Exit::Broken })
}

/// Compares with what the interpreter of loops gives: within what rounding may make of it.
fn against_the_interpreter(args: &Args, model: &Model, options: &Options) -> Result<Exit, Failure> {
    let files = args.data.iter().map(|path| Some(path.as_path()));
    let files: Vec<Option<&Path>> = if args.data.is_empty() { vec![None] } else { files.collect() };
    let mut exit = Exit::Ok;
    for file in files {
        let progress = Progress::start();
        let case = Case::of_model(model, inputs::inputs(model, file)?)?;
        let outcome = attempt::attempt(&case, options, Check::Verify, &mut |step| progress.say(step));
        drop(progress);
        if let Outcome::Refused(why) = &outcome {
            return Err(Failure::invalid(why));
        }
        let name = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
        if args.json {
            output::print(format_args!(
                "{}\n",
                json!({ "broken": outcome.is_failure().then(|| outcome.to_string()) })
            ))?;
        } else {
            let kept = if outcome.is_failure() { "error: " } else { "" };
            output::print(format_args!("{kept}{name}{outcome}\n"))?;
        }
        if outcome.is_failure() {
            exit = Exit::Broken;
        }
    }
    Ok(exit)
}

/// Every result of PyTorch's with ours; one that is missing breaks the contract.
fn compare(outputs: &[Output], data: &Named) -> Vec<Compared> {
    let positions = (0..).map_while(|at| data.get(&format!("out.{at}")).map(|eager| (at, eager)));
    let one = |(at, eager): (usize, &litz::Tensor)| {
        let key = format!("out.{at}");
        let ours = outputs.iter().find(|output| output.key.as_deref() == Some(&*key));
        let Some((output, tensor)) = ours.and_then(|output| Some((output, output.value.tensor()?))) else {
            let broken = Some("expected a tensor, found none".to_owned());
            let verdict = Verdict { error: f64::NAN, eager_error: f64::NAN, largest: f64::NAN, broken };
            return Compared { key, name: String::new(), ty: format::tensor_type(eager), verdict };
        };
        let of = |part: &str| data.get(&format!("{part}.{at}"));
        let expected = Expected { eager, reference: of("ref"), terms: of("terms"), indexed: of("from") };
        let verdict = contract::compare(tensor, expected);
        Compared { key, name: output.name.clone(), ty: format::tensor_type(tensor), verdict }
    };
    positions.map(one).collect()
}

fn table(compared: &[Compared]) -> Table {
    let mut table = Table::new(&["output", "name", "type", ">error", ">eager's", ">largest", "contract"]);
    for Compared { key, name, ty, verdict } in compared {
        let kept = if verdict.broken.is_some() { "BROKEN" } else { "ok" };
        let numbers =
            [verdict.error, verdict.eager_error, verdict.largest].map(|number| format!("{number:.2e}"));
        table
            .row([key.clone(), name.clone(), ty.clone()].into_iter().chain(numbers).chain([kept.to_owned()]));
    }
    table
}

fn to_json(compared: &Compared) -> serde_json::Value {
    let Compared { key, name, ty, verdict } = compared;
    json!({
        "key": key, "name": name, "type": ty, "error": verdict.error, "eager_error": verdict.eager_error,
        "largest": verdict.largest, "broken": verdict.broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz::{Tensor, Value};

    fn output(value: f32) -> Output {
        let tensor = Tensor::from_slice(&[1], &[value]).expect("lengths match");
        Output { key: Some("out.0".to_owned()), name: "y".to_owned(), value: Value::Tensor(tensor) }
    }

    #[test]
    fn every_result_of_the_file_must_be_met() {
        let tensor = |value: f32| Tensor::from_slice(&[1], &[value]).expect("lengths match");
        let mut data = Named::from([("out.0".to_owned(), tensor(2.0))]);
        let broken = |data: &Named, value| {
            compare(&[output(value)], data).iter().map(|c| c.verdict.broken.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(broken(&data, 2.0), [false]);
        assert_eq!(broken(&data, 2.5), [true]);
        data.insert("out.1".to_owned(), tensor(1.0));
        assert_eq!(broken(&data, 2.0), [false, true]);
    }
}
