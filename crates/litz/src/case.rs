//! Holds a graph together with the tensors of one call, in memory and as the two files that show a failure.
//!
//! `small.litz` has the graph, `small.safetensors` beside it the inputs as `in.0`, `in.1`, .. in the graph's order, and each constant `NAME` as
//! `const.NAME`.

use crate::compare::Expected;
use crate::error::Error;
use crate::model::Model;
use crate::tensors::{self, Named};
use litz_ir::graph::{Graph, Type};
use litz_ir::{Diag, Dtype, text};
use litz_runtime::Tensor;
use litz_runtime::program::Value;
use litz_runtime::weights::Weights;
use litz_sym::{Expr, Sym};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A graph, and the tensors of one call of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is called.
    pub graph: Graph,
    /// A tensor for each of the graph's inputs, in order; numbers are tensors without dimensions.
    pub inputs: Vec<Tensor>,
    /// Constants by name.
    pub weights: HashMap<String, Tensor>,
    /// What the call has to return, where that is known. Else the interpreter of loops finds it out.
    pub expected: Option<Vec<Expected>>,
}

impl Case {
    /// A call of a model, with its constants.
    ///
    /// # Errors
    /// [`Error::Run`] where the model lacks a constant.
    pub fn of_model(model: &Model, inputs: Vec<Tensor>) -> Result<Case, Error> {
        let graph = model.imported.graph.clone();
        let constant = |(_, name): &(_, String)| {
            let missing = || litz_runtime::RunError::MissingWeight { name: name.clone() };
            Ok((name.clone(), model.get(name).ok_or_else(missing)?))
        };
        let weights = graph.consts.iter().map(constant).collect::<Result<_, Error>>()?;
        Ok(Case { graph, inputs, weights, expected: None })
    }

    /// Reads the text of a graph, and the file of tensors beside it.
    ///
    /// # Errors
    /// When a file cannot be read, or lacks an input or a constant of the graph.
    pub fn read(path: &Path) -> Result<Case, Error> {
        let Case { graph, .. } = Case::read_graph(path)?;
        let beside = beside(path);
        let named = tensors::read(&beside).map_err(|error| invalid(&beside, error))?;
        let tensor = |name: &str| find(&named, name, &beside);
        let inputs =
            (0..graph.inputs.len()).map(|at| tensor(&format!("in.{at}"))).collect::<Result<_, _>>()?;
        let weights = constants(path, &graph)?;
        let expected = (0..graph.outputs.len()).map(|at| {
            let (value, doubts) = (named.get(&format!("out.{at}"))?, named.get(&format!("doubt.{at}"))?);
            Some(Expected { value: Value::Tensor(value.clone()), doubts: doubts.to_f64() })
        });
        let expected = expected.collect::<Option<Vec<_>>>().filter(|expected| !expected.is_empty());
        Ok(Case { graph, inputs, weights, expected })
    }

    /// Reads the text of a graph alone: what comes of it can be compiled, and not called.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_graph(path: &Path) -> Result<Case, Error> {
        let source = std::fs::read_to_string(path);
        let source = source.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let graph = text::graph::parse(&source).map_err(Error::Invalid)?;
        Ok(Case { graph, inputs: Vec::new(), weights: HashMap::new(), expected: None })
    }

    /// Writes the text of the graph alone.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_graph(&self, path: &Path) -> Result<(), Error> {
        let written = std::fs::write(path, self.graph.to_string());
        written.map_err(|source| Error::Io { path: path.to_owned(), source })
    }

    /// Writes the text of the graph, and the file of tensors beside it.
    ///
    /// # Errors
    /// When a file cannot be written, or a tensor's type has no place in it.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        self.write_graph(path)?;
        let inputs = self.inputs.iter().enumerate().map(|(at, tensor)| (format!("in.{at}"), tensor.clone()));
        let constant = |(_, name): &(_, String)| {
            let tensor = self.weights.get(name).expect("invariant: a case has its graph's constants");
            (constant_key(name), tensor.clone())
        };
        let mut named: Named = inputs.chain(self.graph.consts.iter().map(constant)).collect();
        for (at, expected) in self.expected.iter().flatten().enumerate() {
            let Some(value) = expected.value.tensor() else { continue };
            let doubts = Tensor::from_slice(&[expected.doubts.len()], &expected.doubts);
            let doubts = doubts.map_err(|error| invalid(path, error))?;
            named.insert(format!("out.{at}"), value.clone());
            named.insert(format!("doubt.{at}"), doubts);
        }
        let path = beside(path);
        tensors::write(&path, &named).map_err(|error| invalid(&path, error))
    }

    /// The values that the call gives size symbols: those that an input has as a size, or as one of a size in which nothing else is unknown.
    pub fn sizes(&self) -> HashMap<Sym, i64> {
        let mut known = HashMap::new();
        let mut pairs: Vec<(Expr, i64)> = Vec::new();
        for (&value, tensor) in self.graph.inputs.iter().zip(&self.inputs) {
            match &self.graph.values[value].ty {
                Type::Tensor(ty) => {
                    pairs
                        .extend(ty.sizes.iter().copied().zip(tensor.sizes().iter().map(|&size| size as i64)));
                }
                Type::Int(number) => {
                    pairs.extend(integer(tensor).map(|found| (*number, found)));
                }
                Type::Float | Type::Bool => {}
            }
        }
        // Each round that finds something finds a symbol at least.
        loop {
            let before = known.len();
            for &(expr, found) in &pairs {
                if let Some((sym, value)) = solve(expr, found, &known) {
                    known.insert(sym, value);
                }
            }
            if known.len() == before {
                return known;
            }
        }
    }
}

/// The only symbol of an expression that has no value, and its value where the expression is linear in it and has this one.
fn solve(expr: Expr, found: i64, known: &HashMap<Sym, i64>) -> Option<(Sym, i64)> {
    let mut unknown: Vec<Sym> = expr.syms().into_iter().filter(|sym| !known.contains_key(sym)).collect();
    unknown.dedup();
    let [sym] = unknown[..] else { return None };
    let at =
        |value: i64| expr.eval(&|other| if other == sym { Some(value) } else { known.get(&other).copied() });
    let (base, next) = (at(0)?, at(1)?);
    let slope = next.checked_sub(base).filter(|slope| *slope != 0)?;
    let value = found.checked_sub(base)?.checked_div(slope)?;
    (at(value) == Some(found)).then_some((sym, value))
}

fn integer(tensor: &Tensor) -> Option<i64> {
    (tensor.dtype() == Dtype::I64).then(|| tensor.to_vec::<i64>()?.first().copied())?
}

/// The file of tensors beside the text of a graph.
pub fn beside(path: &Path) -> PathBuf {
    path.with_extension("safetensors")
}

/// The constants of a graph, from the file of tensors beside its text.
///
/// # Errors
/// When the file cannot be read, or lacks one.
pub fn constants(path: &Path, graph: &Graph) -> Result<HashMap<String, Tensor>, Error> {
    let beside = beside(path);
    let named = tensors::read(&beside).map_err(|error| invalid(&beside, error))?;
    let constant = |(_, name): &(_, String)| Ok((name.clone(), find(&named, &constant_key(name), &beside)?));
    graph.consts.iter().map(constant).collect()
}

fn find(named: &Named, name: &str, path: &Path) -> Result<Tensor, Error> {
    let found = named.get(name).cloned();
    found.ok_or_else(|| invalid(path, format_args!("expected a tensor `{name}`, found none")))
}

fn constant_key(name: &str) -> String {
    format!("const.{name}")
}

fn invalid(path: &Path, message: impl std::fmt::Display) -> Error {
    Error::Invalid(vec![Diag::new("case", format!("{}: {message}", path.display()))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let graph = text::graph::parse(
            "graph @g on cpu {\n  sym s0 in [1, 100]\n  sym s1 in [1, 100]\n  %x: f32[2*s0 + 1, s1] = input\n  %n: int(s0 + s1) = input\n  %w: f32[2] = const \"in.0\"\n  return %w\n}\n",
        );
        let inputs = vec![
            Tensor::zeros(Dtype::F32, &[7, 4], &[4, 1]).expect("it has room"),
            Tensor::scalar(7i64).expect("it has room"),
        ];
        let weight = Tensor::from_slice(&[2], &[1f32, 2.0]).expect("lengths match");
        let weights = HashMap::from([("in.0".to_owned(), weight)]);
        Case { graph: graph.expect("it parses"), inputs, weights, expected: None }
    }

    #[test]
    fn files_have_all_of_a_case() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("small.litz");
        let mut case = case();
        let value = Value::Tensor(Tensor::from_slice(&[2], &[1f32, 2.0]).expect("lengths match"));
        case.expected = Some(vec![Expected { value, doubts: vec![0.0, f64::INFINITY] }]);
        case.write(&path).expect("it writes");
        let read = Case::read(&path).expect("it reads");
        assert_eq!(
            (read.graph.to_string(), &read.inputs, &read.weights),
            (case.graph.to_string(), &case.inputs, &case.weights)
        );
        let (read, written) =
            (read.expected.expect("they are there"), case.expected.expect("they are there"));
        assert_eq!((&read[0].value, &read[0].doubts), (&written[0].value, &written[0].doubts));
    }

    #[test]
    fn a_file_that_lacks_a_tensor_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("small.litz");
        case().write(&path).expect("it writes");
        tensors::write(&beside(&path), &Named::new()).expect("it writes");
        let error = Case::read(&path).expect_err("it has no input").to_string();
        assert!(error.contains("small.safetensors: expected a tensor `in.0`"), "{error}");
    }

    #[test]
    fn sizes_are_solved_for() {
        let sizes = case().sizes();
        assert_eq!([Sym::new("s0"), Sym::new("s1")].map(|sym| sizes.get(&sym).copied()), [Some(3), Some(4)]);
    }
}
