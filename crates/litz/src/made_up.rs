//! Makes up the tensors that a model is called with, from what it says of its inputs.

use crate::error::Error;
use crate::model::Model;
use half::{bf16, f16};
use litz_import::InputKind;
use litz_ir::dtype::Kind;
use litz_ir::graph::{TensorType, Type};
use litz_ir::program::{Program, ProgramStep};
use litz_ir::{Diag, Dtype};
use litz_runtime::Tensor;
use litz_runtime::tensor::TensorError;
use litz_sym::{Expr, Facts, Sym};
use std::borrow::Cow;

/// A tensor that a call takes.
pub struct Wanted<'a> {
    /// Position among all of the caller's arguments, flattened.
    pub position: usize,
    /// What the model calls it.
    pub name: &'a str,
    /// Its type.
    pub ty: Cow<'a, TensorType>,
    /// Of an integer, its value in terms of sizes.
    pub number: Option<Expr>,
}

/// What a call of a model takes.
pub fn of_model(model: &Model) -> Vec<Wanted<'_>> {
    let inputs = model.imported.inputs.iter().enumerate();
    inputs
        .filter_map(|(position, input)| match input.kind {
            InputKind::Value(value) => {
                let ty = &model.imported.graph.values[value].ty;
                let number = if let Type::Int(number) = ty { Some(*number) } else { None };
                Some(Wanted { position, name: &input.name, ty: ty.stored(), number })
            }
            InputKind::Fixed(_) => None,
        })
        .collect()
}

/// What a call of a program takes whose parameters have these names.
pub fn of_program<'a>(program: &'a Program, names: &'a [String]) -> Vec<Wanted<'a>> {
    let params = program.params.iter().zip(names).enumerate();
    params
        .map(|(position, (param, name))| {
            let number = program.steps.iter().find_map(|step| match step {
                ProgramStep::Size { sym, slot, .. } if *slot == param.slot => Some(Expr::sym(*sym)),
                _ => None,
            });
            Wanted { position, name, ty: Cow::Borrowed(&param.ty), number }
        })
        .collect()
}

/// Made-up inputs of the sizes that the model was exported with: the same at every call. Floats are about normally
/// distributed; integers are 0 or 1, so that they are valid indices; truth values are true.
///
/// # Errors
/// When no size is known for one of them, or it is too large for this machine.
pub fn inputs(wanted: &[Wanted<'_>], facts: &Facts) -> Result<Vec<Tensor>, Error> {
    let mut random = Random(0);
    let make = |Wanted { name, ty, number, .. }: &Wanted<'_>| {
        if let Some(value) = number.and_then(|number| number.eval(&|sym| Some(value(facts, sym)))) {
            return Tensor::scalar(value).map_err(|error| invalid(name, error));
        }
        let numbers =
            |exprs: &[Expr]| exprs.iter().map(|&expr| size(facts, expr)).collect::<Option<Vec<usize>>>();
        let sizes = numbers(&ty.sizes)
            .ok_or_else(|| invalid(name, "no size is known for it: give inputs in a file"))?;
        tensor(ty.dtype, &sizes, &mut random).map_err(|error| invalid(name, error))
    };
    wanted.iter().map(make).collect()
}

fn invalid(input: &str, message: impl std::fmt::Display) -> Error {
    Error::Invalid(vec![Diag::new("made-up-input", format!("input `{input}`: {message}"))])
}

/// A size that no hint is known of.
const UNKNOWN: i64 = 8;

fn size(facts: &Facts, expr: Expr) -> Option<usize> {
    expr.eval(&|sym| Some(value(facts, sym))).and_then(|size| usize::try_from(size).ok())
}

/// The value that a symbol had at export, else a small one of its range.
fn value(facts: &Facts, sym: Sym) -> i64 {
    let range = facts.range_of(sym);
    if let Some(hint) = facts.hint_of(sym).filter(|&hint| range.contains(hint)) {
        return hint;
    }
    let divisor = facts.divisor_of(sym).max(1);
    let value = UNKNOWN.max(range.lo).min(range.hi);
    // Up to the next multiple, or else down to the last one.
    let up = value.saturating_add(divisor - 1) / divisor * divisor;
    if range.contains(up) { up } else { value / divisor * divisor }
}

fn tensor(dtype: Dtype, sizes: &[usize], random: &mut Random) -> Result<Tensor, TensorError> {
    let count: usize = sizes.iter().product();
    let mut bytes = Vec::with_capacity(count.saturating_mul(dtype.size()));
    match dtype.kind() {
        Kind::Bool => bytes.resize(count, 1),
        Kind::Int => (0..count)
            .for_each(|_| bytes.extend_from_slice(&(random.bits() & 1).to_le_bytes()[..dtype.size()])),
        Kind::Float => (0..count).for_each(|_| push(&mut bytes, random.normal(), dtype)),
        Kind::Complex => {
            let part = if dtype == Dtype::C64 { Dtype::F32 } else { Dtype::F64 };
            (0..2 * count).for_each(|_| push(&mut bytes, random.normal(), part));
        }
    }
    Tensor::from_bytes(dtype, sizes, &bytes)
}

/// Appends a number of a type.
fn push(bytes: &mut Vec<u8>, value: f64, dtype: Dtype) {
    match dtype {
        Dtype::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
        Dtype::F16 => bytes.extend_from_slice(&f16::from_f64(value).to_le_bytes()),
        Dtype::BF16 => bytes.extend_from_slice(&bf16::from_f64(value).to_le_bytes()),
        // The bits of 0.5 or 1 and of their negatives, in one type or the other.
        Dtype::F8E4M3 | Dtype::F8E5M2 => bytes.push(if value < 0.0 { 0xb8 } else { 0x38 }),
        _ => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The sum of four numbers of 16 bits each, scaled to mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        let bits = self.bits();
        let sum: f64 = (0..4).map(|part| (bits >> (16 * part) & 0xffff) as f64 / 65536.0 - 0.5).sum();
        sum * 3f64.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_sym::Range;

    #[test]
    fn numbers_are_about_normal_and_always_the_same() {
        let mut random = Random(0);
        let values: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert_eq!(Random(0).normal(), values[0]);
    }

    #[test]
    fn every_type_can_be_made() {
        for dtype in Dtype::ALL {
            let made = tensor(dtype, &[2, 3], &mut Random(1)).expect("lengths match");
            assert_eq!((made.dtype(), made.sizes()), (dtype, &[2, 3][..]));
            let values = made.to_f64();
            match dtype.kind() {
                Kind::Bool => assert!(values.iter().all(|&v| v == 1.0)),
                Kind::Int => assert!(values.iter().all(|&v| v == 0.0 || v == 1.0)),
                Kind::Float | Kind::Complex => {
                    assert!(values.iter().all(|v| v.abs() < 4.0) && values[0] != 0.0)
                }
            }
            assert_eq!(tensor(dtype, &[0], &mut Random(1)).expect("lengths match").numel(), 0);
        }
    }

    #[test]
    fn sizes_are_in_range_and_divisible() {
        let mut facts = Facts::new();
        let (hinted, small, large, even) = (Sym::new("a"), Sym::new("b"), Sym::new("c"), Sym::new("d"));
        facts.declare(hinted, Range::new(2, 100), Some(33));
        facts.declare(small, Range::new(1, 4), None);
        facts.declare(large, Range::at_least(20), None);
        facts.declare(even, Range::new(1, 100), None);
        facts.declare_divisor(even, 6);
        assert_eq!([hinted, small, large, even].map(|sym| value(&facts, sym)), [33, 4, 20, 12]);
        assert_eq!(size(&facts, Expr::sym(hinted) * 2 + 1), Some(67));
    }
}
