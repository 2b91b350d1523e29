//! Defines what a backend is: it turns kernels into code for a target, and code into a device that runs it.
//!
//! The driver knows backends through [`Backend`] alone and finds them in a table of [`Factory`]s, one line for each. Text,
//! code and device are apart, so that text can be compared and cached, code kept in files, and both made on machines that
//! cannot run them. `docs/add-a-backend.md` walks through one.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use litz_codegen::passes::Pass;
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::Target;
use litz_runtime::artifact::Machine;
use litz_runtime::device::Device;
use litz_runtime::images::Architecture;
use litz_runtime::pool::ThreadPool;

/// Makes code for one target. Everything here may be called from several threads at once.
pub trait Backend: Send + Sync {
    /// What the stages before it go by.
    fn target(&self) -> &Target;

    /// Rewrites that kernels go through before they are emitted, in order.
    fn passes(&self) -> &[Pass] {
        &[]
    }

    /// Kernels that are emitted as one text, at most. Texts are assembled in parallel.
    fn kernels_per_text(&self) -> usize;

    /// The text of some kernels: a pure function of them, the target and [`Backend::key`].
    ///
    /// # Errors
    /// When a kernel is beyond the backend.
    fn emit(&self, kernels: &[Kernel]) -> Result<String, BackendError>;

    /// Checks an emitted text by the rules of its language, without making code of it.
    ///
    /// # Errors
    /// What breaks them.
    fn verify(&self, text: &str) -> Result<(), BackendError>;

    /// Code of an emitted text, as [`Backend::load`] and artifacts take it.
    ///
    /// # Errors
    /// What the toolchain says.
    fn assemble(&self, text: &str) -> Result<Vec<u8>, BackendError>;

    /// Code of an emitted text for people to read; `None` where there is no such form.
    ///
    /// # Errors
    /// What the toolchain says.
    fn listing(&self, text: &str) -> Result<Option<String>, BackendError>;

    /// What texts and code depend on besides kernels, target and version of the compiler, such as the exact CPU: part of the
    /// keys of caches.
    fn key(&self) -> String;

    /// What a machine must have to run the code: artifacts say so.
    fn machine(&self) -> Machine;

    /// # Errors
    /// `unsupported-target`, when this machine cannot run the code.
    fn check_machine(&self) -> Result<(), Diag>;

    /// A device with the code of some kernels loaded: `objects` together have all of them, as this backend assembled them.
    /// `threads` gives the threads of the host, for a device that runs on them.
    ///
    /// # Errors
    /// When an object cannot be loaded or lacks a kernel.
    fn load(
        &self,
        kernels: &[Kernel],
        objects: &[Vec<u8>],
        threads: &dyn Fn() -> Arc<ThreadPool>,
    ) -> Result<Arc<dyn Device>, BackendError>;
}

/// How a backend is made: the line of a backend in the driver's table.
pub struct Factory {
    /// What `--device` calls it.
    pub name: &'static str,
    /// The kind of its targets' texts.
    pub kind: &'static str,
    /// Whether a machine may have several such devices, which `--device` tells apart by numbers, as in `cuda:1`.
    pub is_numbered: bool,
    /// Makes the backend for a request.
    ///
    /// # Errors
    /// `unsupported-target`, when the request is not one for this backend, or there is no target at hand.
    pub make: fn(&Request<'_>) -> Result<Arc<dyn Backend>, Diag>,
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a backend is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to make code for; `None`: this machine, with all that it has.
    pub target: Option<Target>,
    /// Threads of the host that run kernels; those of a target that is given count instead.
    pub threads: usize,
    /// Which of this machine's devices runs the code, from 0 on, where the backend's are numbered. Code is the same for devices that are alike.
    pub device_number: u32,
    /// GPUs that machine code is made for, beside the PTX that later ones take; none: that of this machine, else the target's.
    pub architectures: &'a [Architecture],
}

/// What a backend could not do with kernels that verify, or with its own text or code: an internal compiler error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{stage}: {message}")]
pub struct BackendError {
    /// What was being done: `emit`, the name of a tool, or `load`.
    pub stage: &'static str,
    /// Why it failed.
    pub message: String,
}

impl BackendError {
    /// An error of a stage.
    pub fn new(stage: &'static str, message: impl fmt::Display) -> BackendError {
        BackendError { stage, message: message.to_string() }
    }
}
