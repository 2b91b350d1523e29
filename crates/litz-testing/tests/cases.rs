//! Every recorded call of an operator: types, strides and numbers of the interpreter of loops against eager PyTorch's, then
//! the reference device and machine code against the interpreter, and the reference device with the kernels of GPUs.

#![allow(missing_docs, reason = "a test")]

use litz::{Device, Options, Tensor, Text};
use litz_ir::Dtype;
use litz_ir::graph::{Graph, TensorType};
use litz_ir::loops::Output;
use litz_ir::target::Isa;
use litz_ops::{Layout, Table};
use litz_runtime::pool::ThreadPool;
use litz_sym::Expr;
use litz_testing::cases::{self, Case, Recorded};
use litz_testing::compare::{self, Expected};
use litz_testing::devices;
use litz_testing::models::Call;
use litz_testing::plans::TARGETS;
use std::collections::HashMap;
use std::sync::Arc;

/// Sizes and strides equal, strides of dimensions with at most one element aside.
fn check_type(found: &TensorType, expected: &TensorType) -> Result<(), String> {
    let show = |t: &TensorType| format!("{}{:?}{{{:?}}}", t.dtype, t.sizes, t.strides);
    let empty = expected.sizes.iter().any(|s| s.is_zero());
    let strides = (0..expected.rank().min(found.rank()))
        .all(|d| empty || expected.sizes[d].is_one() || found.strides[d] == expected.strides[d]);
    if found.dtype != expected.dtype || found.sizes != expected.sizes || !strides {
        return Err(format!("type {}, expected {}", show(found), show(expected)));
    }
    Ok(())
}

/// Whether two elements of the tensor are one in memory.
fn shares_memory(ty: &TensorType) -> bool {
    let mut places = vec![0];
    for (size, stride) in ty.sizes.iter().zip(&ty.strides) {
        let (size, stride) = (size.as_int().expect("a number"), stride.as_int().expect("a number"));
        places = places.iter().flat_map(|place| (0..size).map(move |at| place + at * stride)).collect();
    }
    places.sort_unstable();
    places.windows(2).any(|pair| pair[0] == pair[1])
}

fn is_close(found: f64, expected: f64, dtype: Dtype) -> bool {
    let tolerance = match dtype {
        Dtype::BF16 => 1.0 / 128.0,
        Dtype::F16 => 1.0 / 1024.0,
        Dtype::F64 => 1e-12,
        Dtype::F32 => 3e-6,
        _ => 0.0,
    };
    found == expected
        || (found.is_nan() && expected.is_nan())
        || (found - expected).abs() <= tolerance * expected.abs().max(0.5)
}

/// What runs cases: instruction sets of this machine, pools of one thread and of three.
struct Machines {
    isas: Vec<Isa>,
    pools: [Arc<ThreadPool>; 2],
}

const THREADS: [u32; 2] = [1, 3];

impl Machines {
    fn new() -> Machines {
        Machines {
            isas: devices::isas(),
            pools: THREADS.map(|threads| Arc::new(ThreadPool::unbound(threads as usize))),
        }
    }

    /// Compiles the graph for each instruction set, for one thread and for three, and runs each compilation on both pools
    /// and on the reference device.
    fn check(&self, graph: &Graph, call: &Call, expected: &[Expected]) -> Result<(), String> {
        for &isa in &self.isas {
            let mut before = String::new();
            for threads in THREADS {
                let options = devices::options(isa, threads);
                let backend = litz::backend(&options).map_err(|error| error.to_string())?;
                let place = |what: &str| format!("{} for {threads} threads, {what}", isa.name());
                let realized = devices::realize(graph.clone(), &*backend, &options);
                let realized = realized.map_err(|error| format!("{}: {error}", place("compiled")))?;
                // Most small programs are the same for any number of threads.
                let text =
                    Text::Kernels(realized.kernels.clone()).to_string() + &realized.program.to_string();
                if before == text {
                    continue;
                }
                let check = |what: &str, device: Result<Device, litz::Error>| -> Result<(), String> {
                    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", place(what));
                    let device = device.map_err(|error| failed(&error))?;
                    let rounds = devices::run(&realized, device, &call.inputs, &call.weights);
                    for found in rounds.map_err(|error| failed(&error))? {
                        compare::results(&found, expected).map_err(|why| failed(&why))?;
                    }
                    Ok(())
                };
                check("reference device", devices::on_reference(&realized).map_err(Into::into))?;
                let objects = litz::compile_kernels(&*backend, &realized.kernels, &options, None);
                let objects = objects.map_err(|error| format!("{}: {error}", place("compiled")))?;
                for pool in &self.pools {
                    let device = backend.load(&realized.kernels, &objects, &|| Arc::clone(pool));
                    check(&format!("run by {}", pool.threads()), device.map_err(Into::into))?;
                }
                before = text;
            }
        }
        Ok(())
    }

    /// Compiles the graph for each GPU, and runs it on the reference device.
    fn check_gpus(&self, graph: &Graph, call: &Call, expected: &[Expected]) -> Result<(), String> {
        for target in TARGETS {
            let failed = |error: &dyn std::fmt::Display| format!("{target}: {error}");
            let options = Options { threads: 1, ..Options::for_target(target.parse().expect("a target")) };
            let backend = litz::backend(&options).map_err(|error| failed(&error))?;
            let realized =
                devices::realize(graph.clone(), &*backend, &options).map_err(|error| failed(&error))?;
            let device = devices::on_reference(&realized).map_err(|error| failed(&error))?;
            let rounds = devices::run(&realized, device, &call.inputs, &call.weights);
            for found in rounds.map_err(|error| failed(&error))? {
                compare::results(&found, expected).map_err(|why| failed(&why))?;
            }
            let objects = litz::compile_kernels(&*backend, &realized.kernels, &options, None);
            let objects = objects.map_err(|error| failed(&error))?;
            if backend.check_machine().is_err() {
                continue;
            }
            let device = backend.load(&realized.kernels, &objects, &|| Arc::clone(&self.pools[0]));
            let device = device.map_err(|error| failed(&error))?;
            let rounds = devices::run(&realized, device, &call.inputs, &call.weights);
            for found in rounds.map_err(|error| format!("{target}, machine code: {error}"))? {
                compare::results(&found, expected).map_err(|why| format!("{target}, machine code: {why}"))?;
            }
        }
        Ok(())
    }
}

/// The tensor with its dimensions in memory the other way round.
fn turned(recorded: &Recorded) -> Recorded {
    let tensor = recorded.tensor.to_contiguous().expect("it is small");
    let (sizes, element) = (tensor.sizes(), recorded.ty.dtype.size());
    let strides: Vec<usize> = (0..sizes.len()).map(|d| sizes[..d].iter().product()).collect();
    let mut bytes = vec![0; tensor.bytes().len()];
    for (from, value) in tensor.bytes().chunks_exact(element).enumerate() {
        let (mut left, mut to) = (from, 0);
        for (size, stride) in sizes.iter().zip(&strides).rev() {
            to += left % size * stride;
            left /= size;
        }
        bytes[to * element..(to + 1) * element].copy_from_slice(value);
    }
    let tensor = Tensor::from_shared(recorded.ty.dtype, sizes, &strides, Arc::new(bytes), 0);
    let strides = strides.iter().map(|&stride| Expr::int(stride as i64)).collect();
    let ty = TensorType { strides, ..recorded.ty.clone() };
    Recorded { ty, tensor: tensor.expect("there is a place for each element") }
}

/// The call with its operands in memory the other way round, when its operator need not see that.
fn with_other_strides(case: &Case) -> Option<Case> {
    let reads = Table::new().op(&case.op)?.layout() == Layout::Reads;
    let moved = Case { tensors: case.tensors.iter().map(turned).collect(), ..case.clone() };
    let differs = moved.tensors.iter().zip(&case.tensors).any(|(new, old)| new.ty != old.ty);
    // Some views exist in some layouts only.
    (differs && !reads && moved.graph().is_ok()).then_some(moved)
}

/// Types and numbers are those that eager PyTorch gave; numbers also where operands lie otherwise.
fn check_case(case: &Case, machines: &Machines) -> Result<(), String> {
    check(case, Types::Recorded, machines)?;
    match with_other_strides(case) {
        Some(moved) => {
            check(&moved, Types::Other, machines).map_err(|why| format!("with other strides: {why}"))
        }
        None => Ok(()),
    }
}

/// Which types results have.
#[derive(Clone, Copy, PartialEq)]
enum Types {
    Recorded,
    Other,
}

fn check(case: &Case, types: Types, machines: &Machines) -> Result<(), String> {
    let graph = case.graph()?;
    for (output, expected) in graph.outputs.iter().zip(&case.results) {
        let value = output.as_value().expect("a value");
        let found = graph.tensor(value).ok_or("not a tensor")?;
        if types == Types::Recorded {
            check_type(found, &expected.ty)?;
        }
    }
    let text = |diags: litz_ir::Diags| diags.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let loops = devices::definition(&graph).map_err(|error| error.to_string())?;
    let diags = litz_ir::verify::loops::verify(&loops);
    if !diags.is_empty() {
        return Err(text(diags));
    }
    let call = Call { sizes: HashMap::new(), inputs: case.inputs(), weights: HashMap::new() };
    let results = devices::interpret(&loops, &call).map_err(|error| format!("{error}\n{loops}"))?;
    for (i, (found, expected)) in results.iter().zip(&case.results).enumerate() {
        let found = found.value.tensor().ok_or_else(|| format!("result {i}: {found:?}"))?;
        if found.sizes() != expected.tensor.sizes() {
            return Err(format!("result {i}: {:?}, expected {:?}", found.sizes(), expected.tensor.sizes()));
        }
        let (values, wanted) = (found.to_f64(), Tensor::to_f64(&expected.tensor));
        let pairs = values.iter().zip(&wanted).enumerate();
        let wrong = pairs.into_iter().find(|(_, (a, b))| !is_close(**a, **b, expected.ty.dtype));
        if let Some((at, (a, b))) = wrong {
            return Err(format!("result {i}, element {at}: {a:?}, expected {b:?}\n{loops}"));
        }
        if let Output::View { strides, .. } = &loops.outputs[i]
            && types == Types::Recorded
            && !shares_memory(&expected.ty)
        {
            check_type(&TensorType { strides: strides.clone(), ..expected.ty.clone() }, &expected.ty)?;
        }
    }
    match types {
        Types::Recorded => {
            machines.check(&graph, &call, &results)?;
            machines.check_gpus(&graph, &call, &results)
        }
        Types::Other => Ok(()),
    }
}

fn check_family(family: &str) {
    let machines = Machines::new();
    let mut failures = Vec::new();
    for case in cases::read(family).expect("the file is as it was written") {
        if let Err(why) = check_case(&case, &machines) {
            let why: String = why.chars().take(420).collect();
            failures.push(format!("{family}.txt:{}: {}: {why}", case.line, case.op));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

macro_rules! families {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check_family(stringify!($name)); })*

        #[test]
        fn every_family_is_tested() {
            assert_eq!([$(stringify!($name)),*], cases::FAMILIES);
        }
    };
}

families! {
    affine attention compose conv deform factory foreach gradient gradient_attention gradient_conv gradient_norm gradient_pool grid group index join layout linear loss matmul norm order pad patches pointwise pool quant
    quantised reduce resize rnn roi scatter shape special statistic view
}
