//! Writes a graph call by call: names, defaults, result types, sizes that stay small.

use std::collections::BTreeMap;

use litz_ir::Dtype;
use litz_ir::graph::{Arg, Device, Float, Form, Graph, Node, OpName, TensorType, Type, Value};
use litz_ir::schema::Schemas;
use litz_ops::{InferCx, Table, infer};
use litz_sym::{Expr, Range, Sym};

use super::{Fill, Model, give_sizes};
use crate::choices::Choices;

/// Elements that a tensor of a model has at most.
const MAX_ELEMENTS: i64 = 2048;

/// A graph in the making.
pub(super) struct Writer<'a, 'b> {
    /// What decides.
    pub choices: &'a mut Choices<'b>,
    graph: Graph,
    table: Table,
    fills: BTreeMap<u32, Fill>,
    bindings: Vec<Vec<(Sym, i64)>>,
    /// Tensors that calls may use.
    pool: Vec<Value>,
    /// Tensors that are returned, whatever reads them.
    wanted: Vec<Value>,
    /// Element types of this model's inputs, most likely first.
    dtypes: Vec<Dtype>,
    /// Sizes that this model's tensors are made of, so that they fit one another.
    extents: Vec<Expr>,
    seed: u64,
}

/// Sizes: 1, odd ones, powers of two and their neighbours; none only now and then.
const EXTENTS: [i64; 16] = [3, 4, 1, 2, 5, 8, 7, 6, 16, 9, 12, 17, 1, 33, 13, 20];

const DTYPES: [Dtype; 12] = [
    Dtype::F32,
    Dtype::F32,
    Dtype::F64,
    Dtype::BF16,
    Dtype::F16,
    Dtype::I64,
    Dtype::I32,
    Dtype::Bool,
    Dtype::U8,
    Dtype::I8,
    Dtype::I16,
    Dtype::F32,
];

impl<'a, 'b> Writer<'a, 'b> {
    pub fn new(choices: &'a mut Choices<'b>) -> Writer<'a, 'b> {
        let mut graph = Graph::new("model", Device::Cpu);
        let mut bindings = vec![Vec::new()];
        let mut extents: Vec<Expr> = (0..4).map(|_| Expr::int(choices.pick(&EXTENTS))).collect();
        if choices.once_in(3) {
            bindings = vec![Vec::new(); 3];
            for name in ["s0", "s1"].iter().take(1 + choices.below(2)) {
                let sym = Sym::new(name);
                let lo = choices.pick(&[2, 1, 0, 3]);
                graph.facts.declare(sym, Range { lo, hi: 64 }, Some(choices.pick(&[6, 16, 33])));
                for (at, binding) in bindings.iter_mut().enumerate() {
                    let value = if at == 0 { lo } else { choices.pick(&[4, 7, 8, 13, 16, 17, 31, 5]) };
                    binding.push((sym, value.max(lo)));
                }
                let at = choices.below(extents.len());
                extents[at] = Expr::sym(sym);
            }
        } else if choices.once_in(10) {
            extents[0] = Expr::zero();
        }
        let dtypes = (0..2).map(|_| choices.pick(&DTYPES)).collect();
        let seed = choices.below(256) as u64 * 257 + choices.below(256) as u64;
        Writer {
            choices,
            graph,
            table: Table::new(),
            fills: BTreeMap::new(),
            bindings,
            pool: Vec::new(),
            wanted: Vec::new(),
            dtypes,
            extents,
            seed,
        }
    }

    /// The model; what nothing reads is returned.
    pub fn finish(mut self) -> Model {
        let mut is_read = vec![false; self.graph.values.len()];
        let mut writes = Vec::new();
        for node in &self.graph.nodes {
            node.args.iter().for_each(|arg| arg.each_value(&mut |value| is_read[value.0 as usize] = true));
            if is_in_place(&node.op) {
                writes.extend(node.outputs.iter().flatten().copied());
            }
        }
        let made = self.graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten().copied());
        let mut outputs: Vec<Value> =
            made.filter(|value| !is_read[value.0 as usize] && !writes.contains(value)).collect();
        outputs.extend(self.wanted.iter().filter(|value| !outputs.contains(value)).collect::<Vec<_>>());
        if outputs.is_empty() || self.choices.once_in(4) {
            let at = self.choices.below(self.pool.len());
            outputs.push(self.pool[at]);
        }
        self.graph.outputs = outputs.into_iter().map(Arg::Value).collect();
        give_sizes(&mut self.graph);
        Model { graph: self.graph, fills: self.fills, bindings: self.bindings, seed: self.seed }
    }

    /// A type of this model's inputs.
    pub fn dtype(&mut self) -> Dtype {
        let at = self.choices.below(self.dtypes.len());
        self.dtypes[at]
    }

    /// A float type, this model's if it has one.
    pub fn float(&self) -> Dtype {
        self.dtypes.iter().copied().find(|dtype| dtype.is_float()).unwrap_or(Dtype::F32)
    }

    /// One of this model's sizes.
    pub fn extent(&mut self) -> Expr {
        let at = self.choices.below(self.extents.len());
        self.extents[at]
    }

    /// Sizes of a tensor with that many dimensions.
    pub fn sizes(&mut self, rank: usize) -> Vec<Expr> {
        (0..rank).map(|_| self.extent()).collect()
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> TensorType {
        self.graph.tensor(value).expect("invariant: the pool holds tensors").clone()
    }

    /// An input (or a constant, where its sizes are numbers and choices say so).
    pub fn input(&mut self, dtype: Dtype, sizes: Vec<Expr>, fill: Fill) -> Option<Value> {
        let mut ty = TensorType::contiguous(dtype, sizes);
        if !self.is_small(&ty) {
            return None;
        }
        let is_fixed = ty.sizes.iter().all(|size| size.as_int().is_some());
        let is_const = is_fixed && self.choices.once_in(4);
        if !is_const && ty.rank() >= 2 && self.choices.once_in(4) {
            ty = transposed(&ty, self.choices.below(ty.rank() - 1));
        }
        let count = self.graph.inputs.len() + self.graph.consts.len();
        let name = format!("{}{count}", if is_const { "w" } else { "x" });
        let value = self.graph.value(&*name, Type::Tensor(ty));
        if is_const {
            self.graph.consts.push((value, name));
        } else {
            self.graph.inputs.push(value);
            if self.choices.once_in(4) {
                self.graph.donated.push(value);
            }
        }
        self.fills.insert(value.0, fill);
        self.pool.push(value);
        Some(value)
    }

    /// Whether the value may be part of a constant.
    pub fn is_const(&self, value: Value) -> bool {
        let mut roots = vec![value];
        // Views come after what they are views of.
        for node in self.graph.nodes.iter().rev() {
            if node.outputs.iter().flatten().any(|output| roots.contains(output)) {
                node.args.iter().for_each(|arg| arg.each_value(&mut |value| roots.push(value)));
            }
        }
        self.graph.consts.iter().any(|(constant, _)| roots.contains(constant))
    }

    /// A tensor that `wanted` accepts: a recent one, or another.
    pub fn find(&mut self, wanted: impl Fn(&TensorType) -> bool) -> Option<Value> {
        let fits: Vec<Value> =
            self.pool.iter().rev().copied().filter(|&value| wanted(&self.ty(value))).collect();
        if fits.is_empty() {
            return None;
        }
        let near = self.choices.below(fits.len().min(4));
        Some(if self.choices.once_in(4) { fits[self.choices.below(fits.len())] } else { fits[near] })
    }

    /// A float tensor of at least that many dimensions.
    pub fn find_float(&mut self, rank: usize) -> Option<Value> {
        self.find(|ty| ty.dtype.is_float() && ty.rank() >= rank)
    }

    /// Whether a model may hold a tensor of that type.
    fn is_small(&self, ty: &TensorType) -> bool {
        let count = |binding: &Vec<(Sym, i64)>| {
            let value =
                |e: Expr| e.eval(&|sym| binding.iter().find(|known| known.0 == sym).map(|known| known.1));
            let numel = value(ty.numel());
            let reach = ty.sizes.iter().zip(&ty.strides).try_fold(1i64, |reach, (&size, &stride)| {
                reach.checked_add((value(size)?.checked_sub(1)?).max(0).checked_mul(value(stride)?)?)
            });
            let is_counted = ty.sizes.iter().all(|&size| value(size).is_some_and(|size| size >= 0));
            is_counted
                && numel.is_some_and(|numel| numel <= MAX_ELEMENTS)
                && reach.is_some_and(|reach| (0..=8 * MAX_ELEMENTS).contains(&reach))
        };
        ty.rank() <= 6 && self.bindings.iter().all(count)
    }

    /// Whether all bindings keep to the guards.
    fn keeps_guards(&self) -> bool {
        self.bindings.iter().all(|binding| {
            self.graph.facts.guards().iter().all(|guard| {
                let value = |sym| binding.iter().find(|known| known.0 == sym).map(|known| known.1);
                guard.clause.eval(&value) == Some(true)
            })
        })
    }

    /// Applies an operator: arguments by position, then by name, the others at their defaults. `None` where it does not
    /// take these arguments, gives a tensor that is too large, or asks for sizes that the bindings do not have.
    pub fn call(&mut self, op: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Option<Vec<Value>> {
        let node = {
            let schema = self.table.lookup(op)?;
            let mut all = args;
            all.extend(
                schema.args.iter().skip(all.len()).map(|arg| arg.default.clone().unwrap_or(Arg::None)),
            );
            for (name, arg) in named {
                *all.get_mut(schema.position(name)?)? = arg.clone();
            }
            Node { op: OpName::new(op), form: Form::Plain, args: all, outputs: Vec::new(), origin: None }
        };
        let before = self.graph.facts.clone();
        let mut cx = InferCx {
            table: &self.table,
            values: &self.graph.values,
            facts: &mut self.graph.facts,
            device: self.graph.device,
        };
        let types = infer(&mut cx, &node).ok();
        let fits = |types: &Vec<Option<Type>>| {
            types.iter().flatten().all(|ty| matches!(ty, Type::Tensor(ty) if self.is_small(ty)))
        };
        let Some(types) = types.filter(|types| fits(types) && self.keeps_guards()) else {
            self.graph.facts = before;
            return None;
        };
        let mut node = node;
        let mut values = Vec::new();
        for ty in types {
            let name = format!("v{}", self.graph.values.len());
            node.outputs.push(ty.map(|ty| self.graph.value(name, ty)));
        }
        values.extend(node.outputs.iter().flatten().copied());
        if !is_in_place(&node.op) {
            self.pool.extend(&values);
        }
        self.graph.nodes.push(node);
        Some(values)
    }

    /// As [`Writer::call`], of an operator with one result.
    pub fn one(&mut self, op: &str, args: Vec<Arg>) -> Option<Value> {
        self.call(op, args, &[]).and_then(|values| values.first().copied())
    }

    /// Has the model return a tensor.
    pub fn want(&mut self, value: Value) {
        if !self.wanted.contains(&value) {
            self.wanted.push(value);
        }
    }

    /// A dimension of a tensor, counted from either end.
    pub fn dim(&mut self, ty: &TensorType) -> Arg {
        let rank = ty.rank().max(1);
        let dim = self.choices.below(rank) as i64;
        int(if self.choices.once_in(3) { dim - rank as i64 } else { dim })
    }
}

/// Whether the operator writes to its first argument.
pub(super) fn is_in_place(op: &OpName) -> bool {
    let base = op.as_str().split('.').nth(1).unwrap_or("");
    base.ends_with('_') && !base.starts_with("__")
}

/// The type with two neighbouring dimensions swapped in memory.
fn transposed(ty: &TensorType, dim: usize) -> TensorType {
    let mut sizes = ty.sizes.clone();
    sizes.swap(dim, dim + 1);
    let mut strides = TensorType::contiguous(ty.dtype, sizes).strides;
    strides.swap(dim, dim + 1);
    TensorType { strides, ..ty.clone() }
}

/// An argument that is a tensor.
pub(super) fn tensor(value: Value) -> Arg {
    Arg::Value(value)
}

/// An argument that is an integer.
pub(super) fn int(value: i64) -> Arg {
    Arg::Int(Expr::int(value))
}

/// An argument that is a list of integers.
pub(super) fn ints(values: &[i64]) -> Arg {
    Arg::ints(values.iter().map(|&value| Expr::int(value)))
}

/// An argument that is a float.
pub(super) fn number(value: f64) -> Arg {
    Arg::Float(Float(value))
}
