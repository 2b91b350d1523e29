//! Puts all tensors where kernels run, whatever device a program was traced on.
//!
//! ```text
//! %i: i64[8] = aten.arange.start_step(0, 8, 1, i64, none, cpu, none)        =>  all of it on cpu, which stands for the target's device
//! %j: i64[8] on cuda:0 = aten._to_copy.default(%i, none, none, cuda:0, none, false, none)
//! ```
//!
//! A target has one device, with memory of one kind. Models come from a CPU, from a GPU, or have a few tensors on the CPU among those of a
//! GPU: positions, masks, indices. Operators give the same numbers on both, so that these are computed beside the others, and copies between
//! devices are copies. It has to run behind functionalisation: a tensor that was brought to a device had memory of its own, and what is
//! stored there is not seen in the tensor that it came from.
//!
//! Reference devices stay, as they are several by intention.

use litz_ir::Diags;
use litz_ir::graph::{Device, Graph, Type};

/// Replaces devices in types and arguments; returns how many values are now elsewhere.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let place = |device: Device| match device {
        Device::Cpu | Device::Cuda(_) => Device::Cpu,
        Device::Ref(_) => device,
    };
    let mut moved = 0;
    graph.device = place(graph.device);
    for value in graph.values.values_mut() {
        if let Type::Tensor(ty) = &mut value.ty {
            let to = place(ty.device);
            moved += usize::from(ty.device != to);
            ty.device = to;
        }
    }
    let args = graph.nodes.iter_mut().flat_map(|node| &mut node.args).chain(&mut graph.outputs);
    args.for_each(|arg| arg.map_devices(&mut |device| place(device)));
    for inner in &mut graph.subgraphs {
        moved += run(inner)?;
    }
    Ok(moved)
}
