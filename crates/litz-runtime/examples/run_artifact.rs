//! Runs a compiled program on inputs of zeros and prints its outputs: `run_artifact model.litzc [threads] [GPU]`.
//!
//! Symbolic sizes get the values that they had when the model was exported, or the smallest that they may have. A program for GPUs
//! runs on the one of that number, from 0 on, where the runtime is built with the feature `cuda`.

use litz_ir::graph::TensorType;
use litz_runtime::Tensor;
use litz_runtime::artifact::Artifact;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions, Value};
use litz_runtime::tensor::contiguous_strides;
use litz_sym::{Expr, Facts};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: run_artifact model.litzc [threads] [GPU]")?;
    let threads = args.next().map_or(Ok(1), |threads| threads.parse())?;
    let number = args.next().map_or(Ok(0), |number| number.parse())?;
    let start = Instant::now();
    let artifact = Artifact::open(&path)?;
    let executable = {
        let device = artifact.device(Arc::new(ThreadPool::new(threads)), number)?;
        let options = RunOptions { constants: artifact.constants(), ..RunOptions::default() };
        Executable::with_options(artifact.program(), artifact.kernels(), device, &artifact, &options)?
    };
    println!("loaded in {:.1?}", start.elapsed());
    let program = artifact.program();
    let inputs: Vec<Tensor> =
        program.params.iter().map(|param| zeros(&program.facts, &param.ty)).collect::<Result<_, _>>()?;
    for (name, input) in artifact.inputs().iter().zip(&inputs) {
        println!("{name}: {}{:?}", input.dtype(), input.sizes());
    }
    for _ in 0..2 {
        let start = Instant::now();
        let outputs = executable.run(&inputs)?;
        println!("ran in {:.1?}", start.elapsed());
        for (name, output) in artifact.outputs().iter().zip(&outputs) {
            match output {
                Value::Tensor(tensor) => println!("{name}: {tensor:?}"),
                Value::Scalar(scalar) => println!("{name}: {scalar:?}"),
                Value::Text(text) => println!("{name}: {text:?}"),
                Value::Nothing => println!("{name}: none"),
            }
        }
    }
    Ok(())
}

fn zeros(facts: &Facts, ty: &TensorType) -> Result<Tensor, Box<dyn Error>> {
    let value = |sym| Some(facts.hint_of(sym).unwrap_or(facts.range_of(sym).lo));
    let size = |expr: &Expr| expr.eval(&value).and_then(|size| usize::try_from(size).ok());
    let sizes: Vec<usize> = ty.sizes.iter().map(size).collect::<Option<_>>().ok_or("a size has no value")?;
    Ok(Tensor::zeros(ty.dtype, &sizes, &contiguous_strides(&sizes))?)
}
