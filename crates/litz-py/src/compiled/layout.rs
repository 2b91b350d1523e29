//! Gives results the strides that the graph says, where the program lays them out otherwise.

use litz_ir::graph::{Arg, Graph, Type};
use litz_ir::program::{Output, Program};
use litz_sym::{Expr, Rel};
use pyo3::prelude::*;

use super::Library;
use crate::errors::UnsupportedError;

/// How a result is to lie that the program gives in another layout.
pub(super) enum Layout {
    /// Sizes and strides that are known.
    Known(Vec<usize>, Vec<usize>),
    /// Without gaps, by these dimensions from the innermost outwards; sizes are those of the call.
    Dense(Vec<usize>),
}

/// How the graph says that a result lies, where the program gives it in another layout.
///
/// # Errors
/// Where sizes that calls decide are in it, and it has gaps.
pub(super) fn restrided(graph: &Graph, program: Option<&Program>, at: usize) -> PyResult<Option<Layout>> {
    let (Arg::Value(value), Some(Output::View { ty, .. })) =
        (&graph.outputs[at], program.and_then(|program| program.outputs.get(at)))
    else {
        return Ok(None);
    };
    let Type::Tensor(stated) = &graph.values[*value].ty else { return Ok(None) };
    let is_same = |a: Expr, b: Expr| a == b || graph.facts.holds(&Rel::eq(a, b));
    let is_one = |size: Expr| is_same(size, Expr::one());
    let is_alike = |dim: usize| is_one(ty.sizes[dim]) || is_same(stated.strides[dim], ty.strides[dim]);
    if ty.sizes.iter().any(|size| size.is_zero()) || (0..ty.rank()).all(is_alike) {
        return Ok(None);
    }
    let numbers = |exprs: &[Expr]| {
        let number = |expr: &Expr| expr.as_int().and_then(|number| usize::try_from(number).ok());
        exprs.iter().map(number).collect::<Option<Vec<_>>>()
    };
    let known = numbers(&stated.sizes).zip(numbers(&stated.strides));
    let is_expanded = |dim: usize| stated.strides[dim].is_zero() && !is_one(stated.sizes[dim]);
    if (0..ty.rank()).any(is_expanded) {
        // Elements that share memory where the graph was traced have memory of their own here.
        return Ok(None);
    }
    let known = known.map(|(sizes, strides)| Layout::Known(sizes, strides));
    match known.or_else(|| dense(&stated.sizes, &stated.strides, is_same).map(Layout::Dense)) {
        Some(layout) => Ok(Some(layout)),
        None => {
            let name = &graph.values[*value].name;
            Err(UnsupportedError::new_err(format!("%{name}: expected {stated}, found {ty}")))
        }
    }
}

/// The dimensions of a tensor without gaps from the innermost outwards, those of one element last; None where it is not known to be such.
fn dense(sizes: &[Expr], strides: &[Expr], is_same: impl Fn(Expr, Expr) -> bool) -> Option<Vec<usize>> {
    let (ones, mut left): (Vec<usize>, Vec<usize>) =
        (0..sizes.len()).partition(|&dim| is_same(sizes[dim], Expr::one()));
    let (mut order, mut expected) = (Vec::new(), Expr::one());
    while !left.is_empty() {
        let inner = left.iter().position(|&dim| is_same(strides[dim], expected))?;
        order.push(left.remove(inner));
        expected = order.last().map_or(expected, |&dim| expected * sizes[dim]);
    }
    order.extend(ones);
    Some(order)
}

impl Layout {
    /// A copy of a tensor that lies so; the tensor itself where elements that would share memory differ.
    pub(super) fn copy<'py>(
        &self,
        library: &Library,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        match self {
            Layout::Known(sizes, strides) => library.laid(py, value, sizes, strides),
            Layout::Dense(order) => {
                let sizes: Vec<usize> = value.getattr("shape")?.extract()?;
                let (mut strides, mut next) = (vec![1; sizes.len()], 1);
                for &dim in order {
                    strides[dim] = next;
                    next *= sizes[dim].max(1);
                }
                library.laid(py, value, &sizes, &strides)
            }
        }
    }
}
