//! `litz run` calls a model with inputs and prints its outputs.

use super::failure::{Exit, Failure};
use super::options::Compiling;
use super::{counts, format, inputs, load, output};
use litz::made_up;
use litz::tensors::{self, Named};
use litz::{Compiled, Error, Options, Value};
use litz_ir::Dtype;
use litz_runtime::reference::Counts;
use serde_json::json;
use std::path::PathBuf;

/// What to run on what.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote, or a program that `litz compile -o` saved: `.litzc`
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Inputs `in.0`, `in.1`, ... in a .safetensors or .npz file [default: made up]
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Which random numbers a model makes that makes some: the same seed makes the same ones [default: the system draws one]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<i64>,
    /// Write outputs `out.0`, `out.1`, ... to this .safetensors file
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Print what each kernel of a GPU would be slow by, too: sectors of global memory, rounds of shared memory, executed acts,
    /// bytes of memory. For `--device reference --target 'gpu(..)'`
    #[arg(long)]
    counts: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Compiling,
}

/// Runs the model and prints what it returns.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let (outputs, counts) =
        if args.model.extension().is_some_and(|e| e == load::SAVED) { run_saved(args) } else { run(args) }?;
    if args.json {
        let mut rows = serde_json::Value::Array(outputs.iter().map(to_json).collect());
        if args.counts {
            rows = json!({ "outputs": rows, "counts": counts::to_json(&counts) });
        }
        output::print(format_args!("{rows}\n"))?;
    } else {
        let lines: String = outputs.iter().map(|output| line(output) + "\n").collect();
        output::print(lines)?;
        if args.counts {
            output::print(format_args!("\n{}", counts::table(&counts)))?;
        }
    }
    if let Some(path) = &args.outputs {
        let tensors =
            outputs.iter().filter_map(|output| Some((output.key.clone()?, output.value.tensor()?.clone())));
        tensors::write(path, &tensors.collect::<Named>()).map_err(|error| Failure::file(path, &error))?;
    }
    Ok(Exit::Ok)
}

/// What a model returned, and what its kernels took.
type Ran = (Vec<Output>, Vec<(String, Counts)>);

/// The options of a call.
fn options(args: &Args) -> Result<Options, Failure> {
    let mut options = args.common.options();
    let is_gpu = options.target.is_some_and(|target| target.cpu().is_none());
    if args.counts && !(options.reference && is_gpu) {
        return Err(Failure::invalid(
            "counts are of kernels of a GPU on the reference device: --device reference --target 'gpu(isa=sm90, units=132)'",
        ));
    }
    options.reference_options.counts = args.counts;
    Ok(options)
}

fn run(args: &Args) -> Result<Ran, Failure> {
    let model = load::open(&args.model, &args.which)?;
    let mut inputs = inputs::inputs(&model, args.inputs.as_deref())?;
    inputs::give_seed(&made_up::of_model(&model), &mut inputs, args.seed)?;
    let compiled = load::compile(&model, &options(args)?)?;
    args.common.print_timings(&compiled.timings);
    let names = model.imported.outputs.iter().map(|output| output.name.as_str());
    Ok((named(names, compiled.run(&inputs)?), compiled.counts()))
}

fn run_saved(args: &Args) -> Result<Ran, Failure> {
    let options = options(args)?;
    if options.schedule.is_some() {
        return Err(Failure::invalid("a saved program has a schedule: compile the model with another one"));
    }
    let compiled = Compiled::load(&args.model, &options)?;
    let (Some(realized), Some((names, results))) = (&compiled.texts.realized, compiled.names()) else {
        return Err(Error::bug("load", "it gave nothing").into());
    };
    let program = &realized.program;
    let wanted = made_up::of_program(program, names);
    let mut inputs = inputs::make(&wanted, &program.facts, args.inputs.as_deref())?;
    inputs::give_seed(&wanted, &mut inputs, args.seed)?;
    Ok((named(results.iter().map(String::as_str), compiled.run(&inputs)?), compiled.counts()))
}

/// A returned value.
pub struct Output {
    /// `out.0`: its position among tensors; none for other values.
    pub key: Option<String>,
    /// What the model calls it.
    pub name: String,
    /// What it is.
    pub value: Value,
}

/// Gives the results of a call their names. New contents of inputs come last.
pub fn named<'a>(names: impl Iterator<Item = &'a str>, values: Vec<Value>) -> Vec<Output> {
    let names = names.chain(std::iter::repeat("new contents"));
    let mut tensors = 0..;
    let name = |(value, name): (Value, &str)| {
        let key = value.tensor().and_then(|_| tensors.next()).map(|at: usize| format!("out.{at}"));
        Output { key, name: name.to_owned(), value }
    };
    values.into_iter().zip(names).map(name).collect()
}

fn line(output: &Output) -> String {
    let Output { key, name, value } = output;
    let head = format!("{} {name}: {}", key.as_deref().unwrap_or("value"), format::scalar(value));
    let Some((tensor, summary)) = value.tensor().and_then(|t| Some((t, format::summary(t)?))) else {
        return head;
    };
    let element = |value: f64| format::element(tensor.dtype(), value);
    let first: Vec<String> = summary.first.iter().map(|&value| element(value)).collect();
    let more = if tensor.numel() > first.len() { ", ..." } else { "" };
    let first = format!("[{}{more}]", first.join(", "));
    if tensor.dtype() == Dtype::Bool {
        return format!("{head}  {first}");
    }
    let (min, max, mean) = (element(summary.min), element(summary.max), format::number(summary.mean));
    format!("{head}  min {min}  max {max}  mean {mean}  {first}")
}

fn to_json(output: &Output) -> serde_json::Value {
    let Output { key, name, value } = output;
    match value {
        Value::Tensor(tensor) => {
            let summary = format::summary(tensor);
            let number = |get: fn(&format::Summary) -> f64| summary.as_ref().map(get);
            json!({
                "key": key, "name": name, "dtype": tensor.dtype().name(), "sizes": tensor.sizes(),
                "min": number(|s| s.min), "max": number(|s| s.max), "mean": number(|s| s.mean),
                "first": summary.as_ref().map(|s| s.first.clone()),
            })
        }
        Value::Scalar(_) | Value::Text(_) | Value::Nothing => {
            json!({ "name": name, "value": format::scalar(value) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz::Tensor;

    fn output(value: Value) -> Output {
        Output { key: Some("out.0".to_owned()), name: "y".to_owned(), value }
    }

    #[test]
    fn a_line_says_type_range_and_first_elements() {
        let tensor =
            Tensor::from_slice(&[2, 4], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5]).expect("lengths match");
        assert_eq!(
            line(&output(Value::Tensor(tensor))),
            "out.0 y: f32[2, 4]  min 1  max 8.5000  mean 4.5625  [1, 2, 3, 4, 5, 6, ...]"
        );
        let empty = Tensor::from_slice::<i64>(&[0], &[]).expect("lengths match");
        assert_eq!(line(&output(Value::Tensor(empty))), "out.0 y: i64[0]");
        let truth = Tensor::from_slice(&[2], &[true, false]).expect("lengths match");
        assert_eq!(line(&output(Value::Tensor(truth))), "out.0 y: bool[2]  [true, false]");
    }

    #[test]
    fn numbers_that_json_lacks_are_null() {
        let tensor = Tensor::from_slice(&[1], &[f32::NAN]).expect("lengths match");
        let json = to_json(&output(Value::Tensor(tensor)));
        assert_eq!((&json["dtype"], &json["mean"]), (&json!("f32"), &serde_json::Value::Null));
    }
}
