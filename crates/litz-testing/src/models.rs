//! Makes small models from bytes: graphs of ATen operators with inputs, constants and sizes to call them with.
//!
//! A model has views and writes through them, broadcasting, reductions, products, convolutions and pools, gathers and
//! scatters, sorts and norms, of every element type, with sizes of 0, 1 and odd numbers, some of them symbolic. The same
//! bytes always give the same model; no bytes give the simplest one.

mod operators;
pub mod python;
pub mod shrink;
mod writer;

use std::collections::{BTreeMap, HashMap};

use half::{bf16, f16};
use litz_ir::Dtype;
use litz_ir::graph::{Graph, TensorType, Type, Value};
use litz_runtime::Tensor;
use litz_sym::{Expr, Sym};

use crate::choices::{Choices, Random};
use crate::elements;
use writer::Writer;

/// A graph, and what it can be called with.
#[derive(Clone, Debug)]
pub struct Model {
    /// As it was written: with operators in place, and nothing decomposed.
    pub graph: Graph,
    /// What each input and constant holds.
    pub fills: BTreeMap<u32, Fill>,
    /// Values of the size symbols, for each call.
    pub bindings: Vec<Vec<(Sym, i64)>>,
    /// Where the elements of inputs come from.
    pub seed: u64,
}

/// What a tensor holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fill {
    /// Quarters between -4 and 4, or small integers, or truth values.
    Small,
    /// Quarters between 1/4 and 4, or integers from 1 to 8.
    Positive,
    /// Among others NaN, infinities, zeros of both signs, and the ends of the type's range.
    Special,
    /// Numbers from 0 up to this size.
    Index(Expr),
    /// Different numbers, each once.
    Distinct,
}

/// Tensors of one call, and the sizes that they have.
pub struct Call {
    /// Values of the size symbols.
    pub sizes: HashMap<Sym, i64>,
    /// Inputs in order; some are not contiguous.
    pub inputs: Vec<Tensor>,
    /// Constants by name.
    pub weights: HashMap<String, Tensor>,
}

/// The model that the choices describe.
pub fn generate(choices: &mut Choices<'_>) -> Model {
    let mut writer = Writer::new(choices);
    operators::write(&mut writer);
    writer.finish()
}

/// Adds an input for each size symbol of the graph that is no input's size: callers give sizes by tensors alone.
fn give_sizes(graph: &mut Graph) {
    let sizes = |graph: &Graph, value| graph.tensor(value).map_or(Vec::new(), |ty| ty.sizes.clone());
    let given: Vec<Expr> = graph.inputs.iter().flat_map(|&value| sizes(graph, value)).collect();
    let made = graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten().copied());
    let all: Vec<Expr> =
        made.chain(graph.inputs.iter().copied()).flat_map(|value| sizes(graph, value)).collect();
    let symbols: Vec<Sym> = graph.facts.symbols().collect();
    for sym in symbols {
        if all.iter().any(|size| size.has_sym(sym)) && !given.contains(&Expr::sym(sym)) {
            let ty = TensorType::contiguous(Dtype::Bool, vec![Expr::sym(sym)]);
            let value = graph.value(format!("of_{sym}"), Type::Tensor(ty));
            graph.inputs.push(value);
        }
    }
}

impl Model {
    /// The tensors of call `at` of the model's bindings.
    pub fn call(&self, at: usize) -> Call {
        let sizes: HashMap<Sym, i64> = self.bindings[at].iter().copied().collect();
        let tensor = |value: Value, place: usize| {
            let ty = self.graph.tensor(value).expect("invariant: inputs and constants are tensors");
            let number = |e: &Expr| {
                let found = e.eval(&|sym| sizes.get(&sym).copied());
                usize::try_from(found.expect("invariant: bindings name every symbol")).unwrap_or(0)
            };
            let extents: Vec<usize> = ty.sizes.iter().map(number).collect();
            let strides: Vec<usize> = ty.strides.iter().map(number).collect();
            let fill = self.fills.get(&value.0).copied().unwrap_or(Fill::Small);
            let fill = match fill {
                Fill::Index(limit) => Fill::Index(Expr::int(number(&limit) as i64)),
                Fill::Small | Fill::Positive | Fill::Special | Fill::Distinct => fill,
            };
            let seed = self.seed ^ ((place as u64) << 32) ^ ((at as u64) << 16);
            fill_tensor(ty.dtype, &extents, &strides, fill, seed)
        };
        let inputs =
            self.graph.inputs.iter().enumerate().map(|(place, &value)| tensor(value, place)).collect();
        // Constants are the same in every call.
        let weights = self.graph.consts.iter().enumerate().map(|(place, (value, name))| {
            let ty = self.graph.tensor(*value).expect("invariant: inputs and constants are tensors");
            let number = |e: &Expr| e.as_int().and_then(|n| usize::try_from(n).ok());
            let extents: Vec<usize> = ty.sizes.iter().filter_map(number).collect();
            let strides: Vec<usize> = ty.strides.iter().filter_map(number).collect();
            let fill = self.fills.get(&value.0).copied().unwrap_or(Fill::Small);
            let seed = self.seed ^ 0x5eed ^ ((place as u64) << 32);
            (name.clone(), fill_tensor(ty.dtype, &extents, &strides, fill, seed))
        });
        Call { inputs, weights: weights.collect(), sizes }
    }
}

/// A tensor that holds numbers drawn from a seed.
pub(crate) fn fill_tensor(dtype: Dtype, sizes: &[usize], strides: &[usize], fill: Fill, seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let count: usize = sizes.iter().product();
    let values: Vec<Vec<u8>> = match fill {
        Fill::Distinct => {
            let mut order: Vec<i64> = (0..count as i64).map(|n| n - count as i64 / 2).collect();
            for at in (1..count).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            order.into_iter().map(|n| element(dtype, n as f64)).collect()
        }
        Fill::Small | Fill::Positive | Fill::Special | Fill::Index(_) => {
            (0..count).map(|_| element(dtype, draw(dtype, fill, &mut random))).collect()
        }
    };
    elements::tensor(dtype, sizes, strides, &values).expect("invariant: there is an element for each place")
}

fn draw(dtype: Dtype, fill: Fill, random: &mut Random) -> f64 {
    let is_float = dtype.is_float();
    match fill {
        Fill::Small | Fill::Distinct if is_float => random.below(33) as f64 / 4.0 - 4.0,
        Fill::Small | Fill::Distinct if dtype.is_unsigned() || dtype == Dtype::Bool => random.below(5) as f64,
        Fill::Small | Fill::Distinct => random.below(13) as f64 - 6.0,
        Fill::Positive if is_float => (random.below(16) + 1) as f64 / 4.0,
        Fill::Positive => (random.below(8) + 1) as f64,
        Fill::Index(limit) => {
            let limit = limit.as_int().unwrap_or(0).max(1) as u64;
            random.below(limit) as f64
        }
        Fill::Special => match random.below(12) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            4 => 0.0,
            5 => 65504.0,
            6 => -3e38,
            7 => 1e-40,
            _ => random.below(65) as f64 / 8.0 - 4.0,
        },
    }
}

/// The bytes of the element of a type that is nearest to a number.
fn element(dtype: Dtype, value: f64) -> Vec<u8> {
    match dtype {
        Dtype::Bool => vec![u8::from(value > 2.0)],
        Dtype::U8 => (value as i64 as u8).to_le_bytes().to_vec(),
        Dtype::U16 => (value as i64 as u16).to_le_bytes().to_vec(),
        Dtype::U32 => (value as i64 as u32).to_le_bytes().to_vec(),
        Dtype::U64 => (value as i64 as u64).to_le_bytes().to_vec(),
        Dtype::I8 => (value as i64 as i8).to_le_bytes().to_vec(),
        Dtype::I16 => (value as i64 as i16).to_le_bytes().to_vec(),
        Dtype::I32 => (value as i64 as i32).to_le_bytes().to_vec(),
        Dtype::I64 => (value as i64).to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
        Dtype::F64 | Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::C64 | Dtype::C128 => value.to_le_bytes().to_vec(),
    }
}
