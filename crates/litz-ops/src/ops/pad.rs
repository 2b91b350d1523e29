//! Decomposes the padding operators for one mode and number of dimensions into the general one.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use litz_ir::graph::{Arg, Value};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.reflection_pad3d.default", |r| pad(r, "padding", "reflect")),
    decompose("aten.replication_pad3d.default", |r| pad(r, "padding", "replicate")),
    decompose("aten._pad_circular.default", |r| pad(r, "pad", "circular")),
];

fn pad(r: &mut Rewriter<'_>, amounts: &str, mode: &str) -> Result<Vec<Value>, OpError> {
    let (x, amounts) = (r.args().tensor("self")?.value, r.args().ints(amounts)?);
    Ok(vec![r.call("aten.pad.default", [Arg::Value(x), Arg::ints(amounts), Arg::Str(mode.to_owned())])?])
}
