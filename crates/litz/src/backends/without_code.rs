//! Stands for the backend of a target that nothing makes code for: kernels have their final form, for the reference device and for people.

use std::sync::Arc;

use litz_backend::{Backend, BackendError};
use litz_codegen::passes::{Pass, fragments};
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::Target;
use litz_runtime::artifact::Machine;
use litz_runtime::device::Device;
use litz_runtime::pool::ThreadPool;

/// A target without code.
pub struct WithoutCode(pub Target);

impl WithoutCode {
    fn refused(&self) -> BackendError {
        BackendError::new("emit", format!("there is no code for {} yet", self.0))
    }
}

impl Backend for WithoutCode {
    fn target(&self) -> &Target {
        &self.0
    }

    fn passes(&self) -> &[Pass] {
        match self.0 {
            Target::Cpu(_) => &[],
            Target::Gpu(_) => &[fragments::PASS],
        }
    }

    fn kernels_per_text(&self) -> usize {
        1
    }

    fn emit(&self, _: &[Kernel]) -> Result<String, BackendError> {
        Err(self.refused())
    }

    fn verify(&self, _: &str) -> Result<(), BackendError> {
        Err(self.refused())
    }

    fn assemble(&self, _: &str) -> Result<Vec<u8>, BackendError> {
        Err(self.refused())
    }

    fn listing(&self, _: &str) -> Result<Option<String>, BackendError> {
        Err(self.refused())
    }

    fn key(&self) -> String {
        self.0.to_string()
    }

    fn machine(&self) -> Machine {
        Machine::new(self.0.kind(), "")
    }

    fn check_machine(&self) -> Result<(), Diag> {
        self.check_code()
    }

    fn check_code(&self) -> Result<(), Diag> {
        let message = format!("there is no code for {} yet", self.0);
        let help = "`--device reference` interprets its kernels, and `litz compile --to kernel` prints them";
        Err(Diag::new("unsupported-target", message).help(help))
    }

    fn load(
        &self,
        _: &[Kernel],
        _: &[Vec<u8>],
        _: &dyn Fn() -> Arc<ThreadPool>,
    ) -> Result<Arc<dyn Device>, BackendError> {
        Err(self.refused())
    }
}
