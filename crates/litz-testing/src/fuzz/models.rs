//! Generates a model from bytes and compares the reference device with the interpreter of loops.

use crate::choices::Choices;
use crate::fuzz::check;
use crate::models;

/// The model that the bytes describe, under every target.
pub fn any_model(bytes: &[u8]) {
    let model = models::generate(&mut Choices::new(bytes));
    check::graph(&model.graph, |_| (0..model.bindings.len()).map(|at| model.call(at)).collect());
}
