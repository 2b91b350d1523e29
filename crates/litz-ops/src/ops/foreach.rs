//! Lowers operators on lists of tensors as the operator on each of them. `_foreach_` operators are how optimizers are written.
//!
//! All nests of a list are named after its first result: the scheduler launches what has one name together.

use crate::args::Args;
use crate::def::{OpDef, inplace, lower};
use crate::error::OpError;
use crate::infer::{InferCx, infer};
use crate::lower::Lower;
use litz_ir::graph::{Arg, Form, Node, OpName, Type};

/// Makes the table of operators on lists: the operator, the one that writes to its first list if there is one, and the
/// operator on an element of each list.
macro_rules! lists {
    ($($name:literal $(, $written:literal)? => $twin:literal;)*) => {
        /// Entries.
        pub const OPS: &[OpDef] = &[$(lower($name, types, lowered), $(inplace($written, $name),)?)*];

        /// The operator that each tensor of the lists goes through.
        fn twin(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some($twin),)*
                _ => None,
            }
        }
    };
}

lists! {
    "aten._foreach_abs.default", "aten._foreach_abs_.default" => "aten.abs.default";
    "aten._foreach_acos.default", "aten._foreach_acos_.default" => "aten.acos.default";
    "aten._foreach_add.List", "aten._foreach_add_.List" => "aten.add.Tensor";
    "aten._foreach_add.Scalar", "aten._foreach_add_.Scalar" => "aten.add.Scalar";
    "aten._foreach_add.ScalarList", "aten._foreach_add_.ScalarList" => "aten.add.Scalar";
    "aten._foreach_add.Tensor", "aten._foreach_add_.Tensor" => "aten.add.Tensor";
    "aten._foreach_addcdiv.Scalar", "aten._foreach_addcdiv_.Scalar" => "aten.addcdiv.default";
    "aten._foreach_addcdiv.ScalarList", "aten._foreach_addcdiv_.ScalarList" => "aten.addcdiv.default";
    "aten._foreach_addcmul.Scalar", "aten._foreach_addcmul_.Scalar" => "aten.addcmul.default";
    "aten._foreach_addcmul.ScalarList", "aten._foreach_addcmul_.ScalarList" => "aten.addcmul.default";
    "aten._foreach_asin.default", "aten._foreach_asin_.default" => "aten.asin.default";
    "aten._foreach_atan.default", "aten._foreach_atan_.default" => "aten.atan.default";
    "aten._foreach_ceil.default", "aten._foreach_ceil_.default" => "aten.ceil.default";
    "aten._foreach_clamp_max.List", "aten._foreach_clamp_max_.List" => "aten.clamp_max.Tensor";
    "aten._foreach_clamp_max.Scalar", "aten._foreach_clamp_max_.Scalar" => "aten.clamp_max.default";
    "aten._foreach_clamp_max.ScalarList", "aten._foreach_clamp_max_.ScalarList" => "aten.clamp_max.default";
    "aten._foreach_clamp_min.List", "aten._foreach_clamp_min_.List" => "aten.clamp_min.Tensor";
    "aten._foreach_clamp_min.Scalar", "aten._foreach_clamp_min_.Scalar" => "aten.clamp_min.default";
    "aten._foreach_clamp_min.ScalarList", "aten._foreach_clamp_min_.ScalarList" => "aten.clamp_min.default";
    "aten._foreach_clone.default" => "aten.clone.default";
    "aten._foreach_copy.default", "aten._foreach_copy_.default" => "aten.copy.default";
    "aten._foreach_cos.default", "aten._foreach_cos_.default" => "aten.cos.default";
    "aten._foreach_cosh.default", "aten._foreach_cosh_.default" => "aten.cosh.default";
    "aten._foreach_div.List", "aten._foreach_div_.List" => "aten.div.Tensor";
    "aten._foreach_div.Scalar", "aten._foreach_div_.Scalar" => "aten.div.Scalar";
    "aten._foreach_div.ScalarList", "aten._foreach_div_.ScalarList" => "aten.div.Scalar";
    "aten._foreach_div.Tensor", "aten._foreach_div_.Tensor" => "aten.div.Tensor";
    "aten._foreach_erf.default", "aten._foreach_erf_.default" => "aten.erf.default";
    "aten._foreach_erfc.default", "aten._foreach_erfc_.default" => "aten.erfc.default";
    "aten._foreach_exp.default", "aten._foreach_exp_.default" => "aten.exp.default";
    "aten._foreach_expm1.default", "aten._foreach_expm1_.default" => "aten.expm1.default";
    "aten._foreach_floor.default", "aten._foreach_floor_.default" => "aten.floor.default";
    "aten._foreach_frac.default", "aten._foreach_frac_.default" => "aten.frac.default";
    "aten._foreach_lerp.List", "aten._foreach_lerp_.List" => "aten.lerp.Tensor";
    "aten._foreach_lerp.Scalar", "aten._foreach_lerp_.Scalar" => "aten.lerp.Scalar";
    "aten._foreach_lerp.ScalarList", "aten._foreach_lerp_.ScalarList" => "aten.lerp.Scalar";
    "aten._foreach_lgamma.default", "aten._foreach_lgamma_.default" => "aten.lgamma.default";
    "aten._foreach_log.default", "aten._foreach_log_.default" => "aten.log.default";
    "aten._foreach_log10.default", "aten._foreach_log10_.default" => "aten.log10.default";
    "aten._foreach_log1p.default", "aten._foreach_log1p_.default" => "aten.log1p.default";
    "aten._foreach_log2.default", "aten._foreach_log2_.default" => "aten.log2.default";
    "aten._foreach_max.default" => "aten.max.default";
    "aten._foreach_maximum.List", "aten._foreach_maximum_.List" => "aten.maximum.default";
    "aten._foreach_maximum.Scalar", "aten._foreach_maximum_.Scalar" => "aten.clamp_min.default";
    "aten._foreach_maximum.ScalarList", "aten._foreach_maximum_.ScalarList" => "aten.clamp_min.default";
    "aten._foreach_minimum.List", "aten._foreach_minimum_.List" => "aten.minimum.default";
    "aten._foreach_minimum.Scalar", "aten._foreach_minimum_.Scalar" => "aten.clamp_max.default";
    "aten._foreach_minimum.ScalarList", "aten._foreach_minimum_.ScalarList" => "aten.clamp_max.default";
    "aten._foreach_mul.List", "aten._foreach_mul_.List" => "aten.mul.Tensor";
    "aten._foreach_mul.Scalar", "aten._foreach_mul_.Scalar" => "aten.mul.Scalar";
    "aten._foreach_mul.ScalarList", "aten._foreach_mul_.ScalarList" => "aten.mul.Scalar";
    "aten._foreach_mul.Tensor", "aten._foreach_mul_.Tensor" => "aten.mul.Tensor";
    "aten._foreach_neg.default", "aten._foreach_neg_.default" => "aten.neg.default";
    "aten._foreach_pow.List", "aten._foreach_pow_.List" => "aten.pow.Tensor_Tensor";
    "aten._foreach_pow.Scalar", "aten._foreach_pow_.Scalar" => "aten.pow.Tensor_Scalar";
    "aten._foreach_pow.ScalarAndTensor" => "aten.pow.Scalar";
    "aten._foreach_pow.ScalarList", "aten._foreach_pow_.ScalarList" => "aten.pow.Tensor_Scalar";
    "aten._foreach_reciprocal.default", "aten._foreach_reciprocal_.default" => "aten.reciprocal.default";
    "aten._foreach_round.default", "aten._foreach_round_.default" => "aten.round.default";
    "aten._foreach_rsqrt.default", "aten._foreach_rsqrt_.default" => "aten.rsqrt.default";
    "aten._foreach_sigmoid.default", "aten._foreach_sigmoid_.default" => "aten.sigmoid.default";
    "aten._foreach_sign.default", "aten._foreach_sign_.default" => "aten.sign.default";
    "aten._foreach_sin.default", "aten._foreach_sin_.default" => "aten.sin.default";
    "aten._foreach_sinh.default", "aten._foreach_sinh_.default" => "aten.sinh.default";
    "aten._foreach_sqrt.default", "aten._foreach_sqrt_.default" => "aten.sqrt.default";
    "aten._foreach_sub.List", "aten._foreach_sub_.List" => "aten.sub.Tensor";
    "aten._foreach_sub.Scalar", "aten._foreach_sub_.Scalar" => "aten.sub.Scalar";
    "aten._foreach_sub.ScalarList", "aten._foreach_sub_.ScalarList" => "aten.sub.Scalar";
    "aten._foreach_tan.default", "aten._foreach_tan_.default" => "aten.tan.default";
    "aten._foreach_tanh.default", "aten._foreach_tanh_.default" => "aten.tanh.default";
    "aten._foreach_trunc.default", "aten._foreach_trunc_.default" => "aten.trunc.default";
    "aten._foreach_zero.default", "aten._foreach_zero_.default" => "aten.zero.default";
}

/// The operator on the first elements of all lists, on the second ones, and so on. What is no list goes with each.
fn nodes(args: &Args<'_>) -> Result<Vec<Node>, OpError> {
    let twin = twin(args.op()).ok_or_else(|| OpError::missing(args.op()))?;
    let given = &args.node.args;
    let lengths: Vec<usize> = given.iter().filter_map(Arg::as_list).map(<[Arg]>::len).collect();
    let count = lengths.first().copied().unwrap_or(0);
    if lengths.iter().any(|&length| length != count) {
        return Err(args.invalid(format!("expected lists of one length, found {lengths:?}")));
    }
    let of = |at: usize| given.iter().map(move |arg| arg.as_list().map_or(arg, |list| &list[at]).clone());
    let node = |at: usize| Node {
        form: Form::Plain,
        op: OpName::new(twin),
        args: of(at).collect(),
        outputs: vec![args.node.outputs.get(at).copied().flatten()],
        origin: args.node.origin.clone(),
    };
    Ok((0..count).map(node).collect())
}

fn types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let mut types = Vec::new();
    for node in nodes(args)? {
        types.extend(infer(cx, &node)?.into_iter().flatten());
    }
    Ok(types)
}

fn lowered(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    lw.name_after_first();
    nodes(args)?.iter().try_for_each(|node| lw.apply(node))
}
