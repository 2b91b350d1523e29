//! Writes the constants of a program beside the module of Python that needs them.

use super::failure::Failure;
use litz::Model;
use litz::tensors::{self, Named};
use litz_ir::program::Program;
use litz_runtime::RunError;
use litz_runtime::weights::Weights;
use std::path::Path;

/// Writes them to a file of safetensors with the name of the module. Without constants there is none.
pub fn write(model: &Model, program: &Program, module: &Path) -> Result<(), Failure> {
    let path = module.with_extension("safetensors");
    let mut named = Named::new();
    for constant in &program.consts {
        let name = &constant.name;
        let missing = || litz::Error::from(RunError::MissingWeight { name: name.clone() });
        named.insert(name.clone(), model.get(name).ok_or_else(missing)?);
    }
    if named.is_empty() {
        return Ok(());
    }
    tensors::write(&path, &named).map_err(|error| Failure::file(&path, &error))
}
