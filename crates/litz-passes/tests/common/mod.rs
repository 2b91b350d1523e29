//! Turns texts into programs and back, and programs into what they compute on small integers.
#![allow(dead_code)]

use half::{bf16, f16};
use litz_ir::Dtype;
use litz_ir::loops::{BufData, BufKind, Loops};
use litz_ir::target::{Cpu, Isa, Target};
use litz_passes::loops::{Cx, Inlining};
use litz_runtime::Tensor;
use litz_runtime::program::Value;
use litz_runtime::reference::loops::run;
use litz_sym::Sym;
use std::collections::HashMap;

/// The program that `text` spells, verified.
pub fn parse(text: &str) -> Loops {
    let loops = litz_ir::text::loops::parse(text).unwrap_or_else(|d| panic!("{}\nin\n{text}", join(&d)));
    verify(&loops);
    loops
}

/// What a pass does to a program for a CPU with vectors of 512 bits and `near` bytes of cache a core.
pub fn run_as(
    pass: impl Fn(&mut Loops, &Cx<'_>) -> usize,
    loops: &mut Loops,
    near: i64,
    inlining: &Inlining,
) -> usize {
    let target = Target::Cpu(Cpu { l2_bytes: near, ..Cpu::new(Isa::Avx512, 2) });
    pass(loops, &Cx { target: &target, inlining, tf32: false })
}

/// The same with the usual cache and thresholds.
pub fn run_pass(pass: impl Fn(&mut Loops, &Cx<'_>) -> usize, loops: &mut Loops) -> usize {
    run_as(pass, loops, Cpu::USUAL_L2_BYTES, &Inlining::default())
}

/// Panics unless the verifier accepts the program.
pub fn verify(loops: &Loops) {
    let diags = litz_ir::verify::loops::verify(loops);
    assert!(diags.is_empty(), "{}\nin\n{loops}", join(&diags));
}

/// Diagnostics, one a line.
pub fn join(diags: &[litz_ir::Diag]) -> String {
    diags.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Compares texts line by line without indentation.
pub fn assert_text(found: &str, expected: &str) {
    let lines = |t: &str| t.trim().lines().map(|l| l.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(found), lines(expected), "found\n{found}");
}

/// Values of all outputs, then of all updates, when every input and constant holds small integers, so that sums are
/// exact in any order.
pub fn outputs(loops: &Loops, sizes: &[(&str, i64)]) -> Vec<Vec<f64>> {
    let sizes: HashMap<Sym, i64> = sizes.iter().map(|(name, n)| (Sym::new(name), *n)).collect();
    let mut weights = HashMap::new();
    let mut inputs = Vec::new();
    for data in loops.bufs.values() {
        match &data.kind {
            BufKind::Temp => {}
            BufKind::Input => inputs.push(tensor(&data.name, data, &sizes)),
            BufKind::Const(name) => {
                weights.insert(name.clone(), tensor(name, data, &sizes));
            }
        }
    }
    let results =
        run(loops, &sizes, &inputs, &weights).unwrap_or_else(|error| panic!("{error}\nin\n{loops}"));
    let outputs = results.outputs.iter().map(|output| match output {
        Value::Tensor(tensor) => tensor.to_f64(),
        Value::Scalar(scalar) => vec![scalar.as_f64()],
        Value::Text(_) | Value::Nothing => Vec::new(),
    });
    outputs.chain(results.updates.iter().map(Tensor::to_f64)).collect()
}

/// Small integers in the buffer's type.
fn tensor(name: &str, data: &BufData, sizes: &HashMap<Sym, i64>) -> Tensor {
    let size =
        |e: &litz_sym::Expr| e.eval(&|sym| sizes.get(&sym).copied()).expect("every symbol has a value");
    let sizes: Vec<usize> = data.sizes.iter().map(|e| size(e) as usize).collect();
    let values = random(name, sizes.iter().product());
    macro_rules! tensor {
        ($convert:expr) => {
            Tensor::from_slice(&sizes, &values.into_iter().map($convert).collect::<Vec<_>>())
        };
    }
    let tensor = match data.dtype {
        Dtype::Bool => tensor!(|value| value != 0.0),
        Dtype::U8 => tensor!(|value| value as u8),
        Dtype::I32 => tensor!(|value| value as i32),
        Dtype::I64 => tensor!(|value| value as i64),
        Dtype::F16 => tensor!(f16::from_f64),
        Dtype::BF16 => tensor!(bf16::from_f64),
        Dtype::F32 => tensor!(|value| value as f32),
        Dtype::F64 => tensor!(|value| value),
        other => panic!("no test has inputs of type {other}"),
    };
    tensor.expect("lengths match")
}

/// Integers from -8 to 8, the same for the same name; from 1 to 9 for names that say so.
fn random(name: &str, n: usize) -> Vec<f64> {
    let mut state =
        name.bytes().fold(0x9e37_79b9_7f4a_7c15u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = ((state >> 33) % 17) as f64 - 8.0;
        if name.starts_with("positive") { value.abs() + 1.0 } else { value }
    };
    (0..n).map(|_| next()).collect()
}

/// The buffer of that name.
pub fn buf<'a>(loops: &'a Loops, name: &str) -> &'a BufData {
    loops.bufs.values().find(|b| b.name == name).unwrap_or_else(|| panic!("no buffer {name}"))
}
