//! Emits kernels as lines of text, which a made-up machine with one processor runs as they are.

use super::device::ToyDevice;
use litz::{Backend, BackendError, Factory, KernelPass, Target};
use litz_ir::kernel::Kernel;
use litz_ir::text::kernel;
use litz_ir::{Diag, Diags};
use litz_runtime::artifact::Machine;
use litz_runtime::device::Device;
use litz_runtime::pool::ThreadPool;
use std::sync::Arc;

/// The line of the toy in a table of backends.
pub static TOY: Factory = Factory {
    name: "toy",
    kind: "cpu",
    is_numbered: false,
    make: |request| {
        let usual = || "cpu(isa=sse2, threads=1)".parse();
        let target = request.target.map_or_else(usual, Ok)?;
        Ok(Arc::new(ToyBackend {
            target,
            passes: [KernelPass { name: "single_points", run: single_points }],
        }))
    },
};

struct ToyBackend {
    target: Target,
    passes: [KernelPass; 1],
}

/// What code of the toy begins with.
const MAGIC: &str = "toy 1\n";

/// Grid points are taken one by one: there is one processor, so that nothing is won by handing out several.
fn single_points(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    kernel.grain = 1;
    Ok(())
}

impl Backend for ToyBackend {
    fn target(&self) -> &Target {
        &self.target
    }

    fn passes(&self) -> &[KernelPass] {
        &self.passes
    }

    fn kernels_per_text(&self) -> usize {
        2
    }

    fn emit(&self, kernels: &[Kernel]) -> Result<String, BackendError> {
        if let Some(kernel) = kernels.iter().find(|kernel| kernel.grain != 1) {
            return Err(BackendError::new(
                "emit",
                format!("kernel @{} hands out several points", kernel.name),
            ));
        }
        Ok(kernels.iter().map(|kernel| format!("{kernel}{END}")).collect())
    }

    fn verify(&self, text: &str) -> Result<(), BackendError> {
        parse(text).map(drop)
    }

    fn assemble(&self, text: &str) -> Result<Vec<u8>, BackendError> {
        self.verify(text)?;
        Ok(format!("{MAGIC}{text}").into_bytes())
    }

    /// The text is as readable as code of the toy gets.
    fn listing(&self, _: &str) -> Result<Option<String>, BackendError> {
        Ok(None)
    }

    fn key(&self) -> String {
        "processor 1".to_owned()
    }

    fn machine(&self) -> Machine {
        Machine::new("toy-unknown-none", "")
    }

    fn check_machine(&self) -> Result<(), Diag> {
        Ok(())
    }

    fn load(
        &self,
        kernels: &[Kernel],
        objects: &[Vec<u8>],
        _: &dyn Fn() -> Arc<ThreadPool>,
    ) -> Result<Arc<dyn Device>, BackendError> {
        let failed = |what: String| BackendError::new("load", what);
        let mut loaded = Vec::new();
        for object in objects {
            let text = std::str::from_utf8(object).map_err(|e| failed(e.to_string()))?;
            let text = text.strip_prefix(MAGIC).ok_or_else(|| failed("it is no code of the toy".into()))?;
            loaded.extend(parse(text)?);
        }
        if let Some(lacking) = kernels.iter().find(|k| loaded.iter().all(|found| found.name != k.name)) {
            return Err(failed(format!("there is no code of kernel @{}", lacking.name)));
        }
        Ok(Arc::new(ToyDevice::new(&loaded).map_err(|e| failed(e.to_string()))?))
    }
}

/// What stands behind each kernel of a text.
const END: &str = "end\n";

fn parse(text: &str) -> Result<Vec<Kernel>, BackendError> {
    let kernels = text.split_terminator(END);
    let problem = |diags: Diags| diags.first().map_or(String::new(), Diag::to_string);
    kernels
        .map(|text| kernel::parse(text).map_err(|diags| BackendError::new("toy", problem(diags))))
        .collect()
}
