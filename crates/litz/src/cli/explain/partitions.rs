//! Shows what devices may capture of a program, and why not the rest.

use crate::cli::format::Table;
use litz_codegen::Realized;
use litz_ir::graph::Device;
use litz_ir::program::{Partition, Runs, Slot, accesses_of, partitions};
use litz_ir::target::Target;

/// How many partitions there are, and one line for each: its devices, how many steps it has, why it is not captured, what it is given, makes and
/// frees. Nothing for programs of a CPU alone, of which nothing is captured.
pub fn text(realized: &Realized, target: &Target) -> String {
    let program = &realized.program;
    let is_gpu = target.cpu().is_none();
    let captures = |device| is_gpu || device != Device::Cpu;
    if !program.slots.values().any(|slot| captures(slot.device)) {
        return String::new();
    }
    let all = partitions(program, &accesses_of(&realized.kernels), &captures);
    let captured = all.iter().filter(|partition| partition.is_captured()).count();
    let mut table = Table::new(&["partition", ">steps", "device", "captured", "inputs", "outputs", "freed"]);
    let names = |slots: &[Slot]| {
        let names: Vec<&str> = slots.iter().map(|&slot| &*program.slots[slot].name).collect();
        if names.is_empty() { "-".to_owned() } else { names.join(" ") }
    };
    for (at, partition) in all.iter().enumerate() {
        let Partition { steps, devices, reasons, inputs, constants, outputs, freed, sizes: _ } = partition;
        let devices: Vec<String> = devices.iter().map(Device::to_string).collect();
        let reasons: Vec<&str> = reasons.iter().map(|reason| reason.slug()).collect();
        let captured =
            if reasons.is_empty() { "yes".to_owned() } else { format!("no: {}", reasons.join(" ")) };
        let runs =
            program.steps[steps.clone()].iter().filter(|step| program.touches(step).runs != Runs::Nothing);
        let given = [inputs.as_slice(), constants].concat();
        table.row([
            format!("p{at}"),
            runs.count().to_string(),
            devices.join(" "),
            captured,
            names(&given),
            names(outputs),
            names(freed),
        ]);
    }
    format!("\n{} partitions, {captured} that a device can capture\n\n{table}", all.len())
}
