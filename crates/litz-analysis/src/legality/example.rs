//! Looks for iterations of the loops of a kernel in which two accesses touch one element, as an example of what a schedule
//! does wrong.

use std::collections::HashMap;

use litz_ir::loops::{Axis, Loops};
use litz_sym::{Expr, Sym};

/// Iterations of each access that are looked at: enough for a few rows of a few tiles.
const MOST_ITERATIONS: usize = 4096;

/// An access in the loops of a kernel.
pub(super) struct Access {
    /// The loops around, outermost first.
    pub(super) loops: Vec<Axis>,
    /// The element that is touched, in terms of these.
    pub(super) element: Vec<Expr>,
    /// Values of axes of the nest, each with its extent: iterations past an end touch nothing.
    pub(super) axes: Vec<(Expr, Expr)>,
}

/// Iterations of the `shared` loops, first those of `one`, in which both accesses touch an element, as `i = 0 and i = 7`.
/// Sizes are what the program's hints say.
pub(super) fn meeting(program: &Loops, shared: &[Axis], one: &Access, other: &Access) -> Option<String> {
    let size = |sym: Sym| program.facts.hint_of(sym).or_else(|| program.facts.hint(Expr::sym(sym)));
    let mut seen: HashMap<Vec<i64>, Vec<Vec<i64>>> = HashMap::new();
    for (iteration, element) in touched(shared, one, &size) {
        let iterations = seen.entry(element).or_default();
        // Two of them: one may be that of the other access.
        if iterations.len() < 2 && !iterations.contains(&iteration) {
            iterations.push(iteration);
        }
    }
    touched(shared, other, &size).into_iter().find_map(|(theirs, element)| {
        let ours = seen.get(&element)?.iter().find(|ours| **ours != theirs)?;
        let say = |values: &[i64]| {
            let values = shared.iter().zip(values).map(|(axis, value)| format!("{} = {value}", axis.var));
            values.collect::<Vec<_>>().join(", ")
        };
        Some(format!("{} and {}", say(ours), say(&theirs)))
    })
}

/// Iterations of the shared loops and the elements that an access touches in them.
fn touched(shared: &[Axis], access: &Access, size: &dyn Fn(Sym) -> Option<i64>) -> Vec<(Vec<i64>, Vec<i64>)> {
    let mut found = Vec::new();
    let mut point: Vec<i64> = vec![0; access.loops.len()];
    for _ in 0..MOST_ITERATIONS {
        let at = |sym: Sym| access.loops.iter().position(|axis| axis.var == sym).map(|at| point[at]);
        let value = |e: Expr| e.eval(&|sym| at(sym).or_else(|| size(sym)));
        let extents: Option<Vec<i64>> = access.loops.iter().map(|axis| value(axis.extent)).collect();
        let Some(extents) = extents else { return found };
        let is_inside = |&(axis, extent): &(Expr, Expr)| {
            value(axis).zip(value(extent)).is_some_and(|(axis, extent)| (0..extent).contains(&axis))
        };
        let runs = point.iter().zip(&extents).all(|(at, extent)| at < extent);
        if runs && access.axes.iter().all(is_inside) {
            let iteration: Option<Vec<i64>> = shared.iter().map(|axis| at(axis.var)).collect();
            let element: Option<Vec<i64>> = access.element.iter().map(|&e| value(e)).collect();
            found.extend(iteration.zip(element));
        }
        let Some(next) = (0..point.len()).rev().find(|&at| point[at] + 1 < extents[at]) else { break };
        point[next] += 1;
        point[next + 1..].fill(0);
    }
    found
}
