//! Refuses programs whose memory or kernels are not a CPU's: neither machine has streams, events, or memory of a device.

use litz_ir::Diag;
use litz_ir::diag::Diags;
use litz_ir::graph::Device;
use litz_ir::program::{Program, ProgramStep};
use litz_ir::target::Target;

use crate::Form;

/// One problem for each memory that is elsewhere, and for steps of queues where there is none.
pub(crate) fn devices(program: &Program) -> Diags {
    let mut problems = Diags::new();
    let mut refuse = |what: String, device: Device| {
        let message = format!("{what} is on {device}, and listings are of programs on a CPU");
        problems.push(Diag::new("unsupported-device", message).help("compile with --device cpu"));
    };
    for program in program.all() {
        let elsewhere = program.slots.values().filter(|data| data.device != Device::Cpu);
        elsewhere.for_each(|data| refuse(format!("`{}`", data.name), data.device));
        for step in program.load.iter().chain(&program.steps) {
            if let ProgramStep::Record { queue, .. } | ProgramStep::Wait { queue, .. } = step
                && queue.device != Device::Cpu
            {
                refuse(program.place(step), queue.device);
            }
        }
    }
    problems
}

/// A graph launches machine code; the kernels of a listing are interpreted, whatever they were made for.
pub(crate) fn target(form: Form, target: &Target) -> Option<Diag> {
    match (form, target) {
        (Form::Fx, Target::Gpu(_)) => {
            let message = format!("kernels are for {target}, and graphs launch those of a CPU");
            Some(Diag::new("unsupported-device", message).help("compile with --device cpu"))
        }
        (Form::Fx, Target::Cpu(_)) | (Form::Python, Target::Cpu(_) | Target::Gpu(_)) => None,
    }
}
