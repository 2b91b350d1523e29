//! Gives programs of loops elements to run on, and what they give by the interpreter: what schedules of them are held against.

use std::collections::HashMap;

use litz_ir::Dtype;
use litz_ir::loops::{BufData, BufKind, Loops, Stmt};
use litz_ir::{text, verify};
use litz_runtime::Tensor;
use litz_runtime::reference;
use litz_runtime::tensor::contiguous_strides;
use litz_sym::{Expr, Sym};

use crate::choices::Random;
use crate::compare::{Expected, expected};
use crate::elements;

/// Points of all nests of a program, at most: the interpreter takes some 100 ns each where tests are optimised.
pub const MOST_POINTS: i64 = 60_000;

/// A program, what it is run on, and what it gives.
#[derive(Clone)]
pub struct Subject {
    /// What messages call it.
    pub name: String,
    /// The program.
    pub loops: Loops,
    /// In order.
    pub inputs: Vec<Tensor>,
    /// By the names of constants.
    pub weights: HashMap<String, Tensor>,
    /// What it returns.
    pub expected: Vec<Expected>,
    /// Results do not depend on the order of additions: they are equal to the last bit.
    pub is_exact: bool,
}

/// Points of all nests. None where a size has no value.
pub fn points(loops: &Loops, sizes: &HashMap<Sym, i64>) -> Option<i64> {
    let value = |e: Expr| e.eval(&|sym| sizes.get(&sym).copied());
    let nests = loops.stmts.iter().flat_map(Stmt::nests);
    let of = |nest: &litz_ir::loops::Nest| {
        nest.all_axes().try_fold(1i64, |points, axis| Some(points.saturating_mul(value(axis.extent)?)))
    };
    nests.map(of).try_fold(0i64, |all, points| Some(all.saturating_add(points?)))
}

impl Subject {
    /// A program with these values of its symbols, on elements that `element` draws.
    ///
    /// # Errors
    /// Where the text is no program that verifies and runs.
    pub fn new(
        name: &str,
        program: &str,
        sizes: &HashMap<Sym, i64>,
        element: &dyn Fn(Dtype, &mut Random) -> f64,
        is_exact: bool,
    ) -> Result<Subject, String> {
        let problem = |diags: litz_ir::Diags| match diags.first() {
            Some(diag) => Err(format!("{name}: {diag}\n{program}")),
            None => Ok(()),
        };
        let loops = text::loops::parse(program).map_err(|diags| format!("{name}: {}", diags[0]))?;
        problem(verify::loops::verify(&loops))?;
        let mut random = Random::new(7);
        let mut tensor = |data: &BufData| {
            let dims = data.sizes.iter().map(|size| size.eval(&|sym| sizes.get(&sym).copied()));
            let dims: Option<Vec<usize>> = dims.map(|size| usize::try_from(size?).ok()).collect();
            let dims = dims.ok_or_else(|| format!("{name}: {} has no size", data.name))?;
            let word = |value: f64| match data.dtype {
                Dtype::Bool => (value != 0.0).to_string(),
                dtype if dtype.is_float() => value.to_string(),
                _ => (value as i64).to_string(),
            };
            let values = (0..dims.iter().product()).map(|_| element(data.dtype, &mut random));
            let values: Option<Vec<Vec<u8>>> =
                values.map(|value| elements::parse(data.dtype, &word(value))).collect();
            let strides = contiguous_strides(&dims);
            let tensor = values.and_then(|values| elements::tensor(data.dtype, &dims, &strides, &values));
            tensor.ok_or_else(|| format!("{name}: {} cannot be made", data.name))
        };
        let (mut inputs, mut weights) = (Vec::new(), HashMap::new());
        for data in loops.bufs.values() {
            match &data.kind {
                BufKind::Input => inputs.push(tensor(data)?),
                BufKind::Const(key) => drop(weights.insert(key.clone(), tensor(data)?)),
                BufKind::Temp => {}
            }
        }
        let results = reference::loops::run(&loops, sizes, &inputs, &weights);
        let results = results.map_err(|error| format!("{name}: {error}"))?;
        let expected = expected(&loops, results);
        Ok(Subject { name: name.to_owned(), loops, inputs, weights, expected, is_exact })
    }

    /// A program whose text begins with the values of its symbols: `//! size s0 = 5`. Floats are eighths, integers 0 or 1.
    ///
    /// # Errors
    /// As [`Subject::new`].
    pub fn read(name: &str, text: &str) -> Result<Subject, String> {
        let sizes = text.lines().filter_map(|line| {
            let (sym, value) = line.strip_prefix("//! size ")?.split_once(" = ")?;
            Some((Sym::new(sym), value.parse().ok()?))
        });
        let sizes = sizes.collect();
        let lines = text.lines().filter(|line| !line.starts_with("//"));
        let program: String = lines.map(|line| format!("{line}\n")).collect();
        let element = |dtype: Dtype, random: &mut Random| match dtype {
            dtype if dtype.is_float() => random.below(33) as f64 / 8.0 - 2.0,
            _ => random.below(2) as f64,
        };
        Subject::new(name, &program, &sizes, &element, false)
    }
}
