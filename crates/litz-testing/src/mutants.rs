//! Makes calls that may contradict themselves of recorded ones: each changes a size, a rank, an element type or an
//! integer in one place.

use std::fmt;

use litz_ir::Dtype;
use litz_ir::graph::{Arg, TensorType};
use litz_runtime::Tensor;
use litz_sym::Expr;

use crate::cases::{Case, Recorded};
use crate::elements;

/// A recorded call with one change.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The call as it is after the change. Its results are those of the call before.
    pub case: Case,
    /// What was changed.
    pub change: Change,
}

/// What a mutant has that the call it is made of has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A size of a tensor.
    Size {
        /// Which of the call's tensors.
        tensor: usize,
        /// Which dimension.
        dim: usize,
        /// The size after the change.
        to: usize,
    },
    /// A dimension of size 2 more at the front of a tensor, or one less there.
    Rank {
        /// Which of the call's tensors.
        tensor: usize,
        /// Whether it has one more.
        grows: bool,
    },
    /// The element type of a tensor.
    Dtype {
        /// Which of the call's tensors.
        tensor: usize,
        /// The type after the change.
        to: Dtype,
    },
    /// An integer among the arguments, those in lists included.
    Int {
        /// Which of all integers, in order.
        at: usize,
        /// The integer after the change.
        to: i64,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Size { tensor, dim, to } => write!(f, "size {dim} of tensor {tensor} becomes {to}"),
            Change::Rank { tensor, grows: true } => write!(f, "tensor {tensor} gets one dimension more"),
            Change::Rank { tensor, grows: false } => write!(f, "tensor {tensor} loses a dimension"),
            Change::Dtype { tensor, to } => write!(f, "tensor {tensor} becomes {to}"),
            Change::Int { at, to } => write!(f, "integer {at} becomes {to}"),
        }
    }
}

/// Every change of the call: of each operand and dimension the sizes s - 1, s + 1, 2s, 1 and 0, then ranks, element
/// types and integers.
pub fn of(case: &Case) -> Vec<Mutant> {
    let tensors = case.tensors.iter().enumerate();
    let mut changes: Vec<Change> =
        tensors.flat_map(|(tensor, recorded)| of_tensor(tensor, &recorded.tensor)).collect();
    let mut integers = Vec::new();
    for_integers(&mut case.args.clone(), &mut |i| integers.push(*i));
    for (at, &own) in integers.iter().enumerate() {
        let others = [
            own.saturating_add(1),
            own.saturating_sub(1),
            own.saturating_neg().saturating_sub(1),
            0,
            1000,
            -1000,
            1 << 40,
        ];
        changes.extend(distinct(own, &others).into_iter().map(|to| Change::Int { at, to }));
    }
    changes.into_iter().map(|change| Mutant { case: changed(case, change), change }).collect()
}

fn of_tensor(tensor: usize, own: &Tensor) -> Vec<Change> {
    let mut changes = Vec::new();
    for (dim, &size) in own.sizes().iter().enumerate() {
        let others = [size.saturating_sub(1), size + 1, 2 * size, 1, 0];
        changes.extend(distinct(size, &others).into_iter().map(|to| Change::Size { tensor, dim, to }));
    }
    changes.push(Change::Rank { tensor, grows: true });
    if !own.sizes().is_empty() {
        changes.push(Change::Rank { tensor, grows: false });
    }
    let others = match own.dtype() {
        Dtype::F32 => [Dtype::F64, Dtype::I64],
        Dtype::F16 | Dtype::BF16 | Dtype::F64 => [Dtype::F32, Dtype::Bool],
        Dtype::Bool => [Dtype::I64, Dtype::F32],
        Dtype::I64 => [Dtype::I32, Dtype::F32],
        _ => [Dtype::I64, Dtype::F32],
    };
    changes.extend(others.into_iter().map(|to| Change::Dtype { tensor, to }));
    changes
}

/// Those of `others` that are neither `own` nor there before.
fn distinct<T: Copy + PartialEq>(own: T, others: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for &other in others {
        if other != own && !kept.contains(&other) {
            kept.push(other);
        }
    }
    kept
}

fn changed(case: &Case, change: Change) -> Case {
    let mut case = case.clone();
    match change {
        Change::Size { tensor, dim, to } => {
            let own = &case.tensors[tensor].tensor;
            let mut sizes = own.sizes().to_vec();
            sizes[dim] = to;
            let strides = strides_in_order(&sizes, own.strides());
            case.tensors[tensor] = resized(own, own.dtype(), &sizes, &strides);
        }
        Change::Rank { tensor, grows } => {
            let own = &case.tensors[tensor].tensor;
            let sizes = if grows { [&[2], own.sizes()].concat() } else { own.sizes()[1..].to_vec() };
            let strides = dense(&sizes);
            case.tensors[tensor] = resized(own, own.dtype(), &sizes, &strides);
        }
        Change::Dtype { tensor, to } => {
            let own = &case.tensors[tensor].tensor;
            case.tensors[tensor] = resized(own, to, own.sizes(), own.strides());
        }
        Change::Int { at, to } => {
            let mut count = 0;
            for_integers(&mut case.args, &mut |i| {
                if count == at {
                    *i = to;
                }
                count += 1;
            });
        }
    }
    case
}

/// Calls `f` with each literal integer among the arguments, in order; what it makes of it stays.
fn for_integers(args: &mut [Arg], f: &mut impl FnMut(&mut i64)) {
    for arg in args {
        match arg {
            Arg::Int(e) => {
                if let Some(mut i) = e.as_int() {
                    f(&mut i);
                    *e = Expr::int(i);
                }
            }
            Arg::List(items) => for_integers(items, f),
            Arg::None
            | Arg::Value(_)
            | Arg::Float(_)
            | Arg::Complex(..)
            | Arg::Bool(_)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_)
            | Arg::Part(_) => {}
        }
    }
}

/// Strides without gaps, of dimensions in the order in which `like` has them.
fn strides_in_order(sizes: &[usize], like: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    order.sort_by_key(|&d| like[d]);
    let (mut strides, mut next) = (vec![1; sizes.len()], 1);
    for d in order {
        strides[d] = next;
        next *= sizes[d].max(1);
    }
    strides
}

fn dense(sizes: &[usize]) -> Vec<usize> {
    strides_in_order(sizes, &(0..sizes.len()).rev().map(|d| d + 1).collect::<Vec<_>>())
}

/// A tensor that repeats the elements of `own` row by row: positions stay positions.
fn resized(own: &Tensor, dtype: Dtype, sizes: &[usize], strides: &[usize]) -> Recorded {
    let given = own.to_f64();
    let word = |i: usize| match (given.get(i % given.len().max(1)).copied().unwrap_or(0.0), dtype) {
        (value, Dtype::Bool) => (value != 0.0).to_string(),
        (value, _) if dtype.is_float() => value.to_string(),
        (value, _) if dtype.is_unsigned() => (value.clamp(0.0, 100.0) as i64).to_string(),
        (value, _) => (value.clamp(-100.0, 100.0) as i64).to_string(),
    };
    let elements = (0..sizes.iter().product()).map(|i| elements::parse(dtype, &word(i)));
    let elements: Vec<Vec<u8>> =
        elements.collect::<Option<_>>().expect("invariant: a word is written for the type it is read as");
    let tensor = elements::tensor(dtype, sizes, strides, &elements)
        .expect("invariant: as many elements as the sizes say, strides without gaps");
    let exprs = |numbers: &[usize]| numbers.iter().map(|&n| Expr::int(n as i64)).collect();
    Recorded { ty: TensorType::strided(dtype, exprs(sizes), exprs(strides)), tensor }
}
