//! Decides on which device a node's results are, and refuses operands that are on several where its operator takes one.

use crate::args::{Args, Tensor};
use crate::def::Rule;
use crate::error::OpError;
use crate::table::Table;
use crate::traits::{Devices, Op};
use litz_ir::Diags;
use litz_ir::graph::{Device, Graph};

/// Nodes of the graph and its subgraphs whose operands are on several devices though their operators want them on one.
///
/// Slug: `device`. Nodes whose operators have no entry are left out.
pub fn check_devices(graph: &Graph) -> Diags {
    check_with(&Table::of(graph), graph)
}

fn check_with(table: &Table, graph: &Graph) -> Diags {
    let own = graph.nodes.iter().filter_map(|node| {
        let op = table.op_of(node)?;
        let error = device_of(table, &op, &op.args(node, &graph.values), graph.device).err()?;
        (error.slug == SLUG).then(|| error.at(node, &graph.values))
    });
    own.chain(graph.subgraphs.iter().flat_map(|graph| check_with(table, graph))).collect()
}

const SLUG: &str = "device";

/// Where a node's results are; those of a node that nothing else places on `default`.
///
/// # Errors
/// When its operands are on several devices, and its operator takes them from one.
pub(crate) fn device_of(
    table: &Table,
    op: &Op<'_>,
    args: &Args<'_>,
    default: Device,
) -> Result<Device, OpError> {
    let devices = match op.def.rule {
        Rule::Inplace(twin) => table.def(twin).map_or(Devices::One, |twin| twin.traits.devices),
        Rule::Op(_) | Rule::Pointwise(_) | Rule::Lower(_) | Rule::Decompose(_) | Rule::View | Rule::Drop => {
            op.def.traits.devices
        }
    };
    let of_operands = match devices {
        Devices::Of(name) => Some(args.tensor(name)?.ty.device),
        Devices::One => common_device(args)?,
    };
    Ok(args.device("device")?.or(of_operands).unwrap_or(default))
}

/// The one device that all operands are on, but for tensors without dimensions on the CPU, which PyTorch lets go anywhere.
fn common_device(args: &Args<'_>) -> Result<Option<Device>, OpError> {
    let tensors = args.all_tensors();
    let is_scalar = |tensor: &&Tensor<'_>| tensor.ty.rank() == 0 && tensor.ty.device == Device::Cpu;
    let mut placed = tensors.iter().filter(|tensor| !is_scalar(tensor)).map(|tensor| tensor.ty.device);
    let device = placed.next();
    match placed.find(|&other| Some(other) != device) {
        Some(other) => {
            let device = device.unwrap_or(other);
            let what = format!("{}: expected operands on one device, found {device} and {other}", args.op());
            Err(OpError::new(SLUG, what))
        }
        None => Ok(device.or_else(|| tensors.first().map(|scalar| scalar.ty.device))),
    }
}
