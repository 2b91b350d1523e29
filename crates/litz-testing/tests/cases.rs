//! Every recorded call of an operator: result types and strides against eager PyTorch's, lowered loops against its numbers.

#![allow(missing_docs, reason = "a test")]

use litz_ir::Dtype;
use litz_ir::graph::TensorType;
use litz_ir::loops::Output;
use litz_ops::{decompose, lower};
use litz_runtime::{Tensor, reference};
use litz_testing::cases::{self, Case};
use std::collections::HashMap;

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

fn check_case(case: &Case) -> Result<(), String> {
    let mut graph = case.graph()?;
    for (output, expected) in graph.outputs.iter().zip(&case.results) {
        let value = output.as_value().expect("a value");
        check_type(graph.tensor(value).ok_or("not a tensor")?, &expected.ty)?;
    }
    let text = |diags: litz_ir::Diags| diags.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let verified = |diags: litz_ir::Diags| if diags.is_empty() { Ok(()) } else { Err(text(diags)) };
    decompose(&mut graph).map_err(text)?;
    verified(litz_ir::verify::graph::verify(&graph))?;
    let loops = lower(&graph).map_err(text)?;
    verified(litz_ir::verify::loops::verify(&loops))?;
    let results = reference::loops::run(&loops, &HashMap::new(), &case.inputs(), &HashMap::new());
    let results = results.map_err(|error| format!("{error}\n{loops}"))?;
    for (i, (found, expected)) in results.outputs.iter().zip(&case.results).enumerate() {
        let found = found.tensor().ok_or_else(|| format!("result {i}: {found:?}"))?;
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
            && !shares_memory(&expected.ty)
        {
            check_type(&TensorType { strides: strides.clone(), ..expected.ty.clone() }, &expected.ty)?;
        }
    }
    Ok(())
}

fn check_family(family: &str) {
    let mut failures = Vec::new();
    for case in cases::read(family).expect("the file is as it was written") {
        if let Err(why) = check_case(&case) {
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
    attention conv factory grid group index join layout loss matmul norm order pad patches pointwise pool quant reduce
    resize rnn roi scatter shape special view
}
