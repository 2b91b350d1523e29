//! Holds what a backend gave for a model, in the form that artifacts have.

use crate::model::Model;
use litz_backend::Backend;
use litz_codegen::Realized;
use litz_ir::kernel::Kernel;
use litz_ir::program::{Program, ProgramStep};
use litz_runtime::artifact::{Artifact, ArtifactError, Machine, Parts};
use litz_runtime::program::ConstantSource;

/// What a backend gave, beside texts.
pub(crate) struct Code {
    /// Code of the kernels.
    pub objects: Vec<Vec<u8>>,
    machine: Machine,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Code {
    /// What `backend` made of a model.
    pub fn new(model: &Model, backend: &dyn Backend, objects: Vec<Vec<u8>>) -> Code {
        let machine = backend.machine();
        let inputs = model.inputs().into_iter().map(|(name, _)| name.to_owned()).collect();
        let outputs = model.imported.outputs.iter().map(|output| output.name.clone()).collect();
        Code { objects, machine, inputs, outputs }
    }

    /// Names of what the program takes, and of what it returns.
    pub fn names(&self) -> (&[String], &[String]) {
        (&self.inputs, &self.outputs)
    }

    /// What an artifact of it is written from that holds such constants.
    pub fn parts<'a>(&'a self, realized: &'a Realized, constants: ConstantSource) -> Parts<'a> {
        Parts {
            compiler: env!("CARGO_PKG_VERSION"),
            machine: &self.machine,
            program: &realized.program,
            kernels: &realized.kernels,
            objects: &self.objects,
            inputs: &self.inputs,
            outputs: &self.outputs,
            constants,
        }
    }
}

/// What an artifact was made of.
pub(crate) fn contents(artifact: &Artifact) -> Result<(Realized, Code), ArtifactError> {
    let objects = artifact.objects()?.into_iter().map(<[u8]>::to_vec).collect();
    let (program, kernels) = (artifact.program().clone(), artifact.kernels().to_vec());
    let shared = kernels.iter().map(|kernel| launches(&program, kernel)).collect();
    let code = Code {
        objects,
        machine: artifact.machine().clone(),
        inputs: artifact.inputs().to_vec(),
        outputs: artifact.outputs().to_vec(),
    };
    Ok((Realized { kernels, program, shared }, code))
}

fn launches(program: &Program, kernel: &Kernel) -> usize {
    let is_launch = |step: &&ProgramStep| matches!(step, ProgramStep::Launch { kernel: name, .. } if *name == kernel.name);
    program.load.iter().chain(&program.steps).filter(is_launch).count()
}
