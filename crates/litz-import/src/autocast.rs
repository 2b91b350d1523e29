//! Converts operands as PyTorch's autocast for CPUs does: a graph that was traced under it has the operators as the user called
//! them, and only the types of results tell of the conversions.
//!
//! The lists are those of `aten/src/ATen/autocast_mode.cpp`. Operators that are on none of them run in the types of their operands.

use crate::body::Body;
use crate::error::ImportError;
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, Form, Node, OpName, TensorType, Type, Value};
use std::sync::Arc;

/// What autocast does to the floating operands of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// They become the narrow type that the user chose.
    Narrow,
    /// They become f32.
    Full,
    /// They become the widest type among them.
    Widest,
    /// Nothing.
    Leave,
    /// It calls operators of its own, to which autocast does something that no type tells of.
    Hidden,
}

const NARROW: &[&str] = &[
    "conv1d",
    "conv2d",
    "conv3d",
    "bmm",
    "mm",
    "linalg_vecdot",
    "baddbmm",
    "addmm",
    "addbmm",
    "linear",
    "_convolution",
    "matmul",
    "conv_tbc",
    "mkldnn_rnn_layer",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "prelu",
    "scaled_dot_product_attention",
    "_native_multi_head_attention",
];
const FULL: &[&str] = &[
    "avg_pool3d",
    "binary_cross_entropy",
    "grid_sampler",
    "polar",
    "prod",
    "quantile",
    "nanquantile",
    "stft",
    "cdist",
    "trace",
    "view_as_complex",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "inverse",
    "lu_solve",
    "orgqr",
    "ormqr",
    "pinverse",
    "max_pool3d",
    "max_unpool2d",
    "max_unpool3d",
    "adaptive_avg_pool3d",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "mse_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "cross_entropy_loss",
    "l1_loss",
    "huber_loss",
    "margin_ranking_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "ctc_loss",
    "kl_div",
    "multilabel_margin_loss",
    "binary_cross_entropy_with_logits",
    "fake_quantize_per_tensor_affine",
    "geqrf",
    "_lu_with_info",
    "qr",
    "svd",
    "triangular_solve",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "adaptive_max_pool3d",
    "multilabel_margin_loss_forward",
    "linalg_cond",
    "linalg_matrix_rank",
    "linalg_solve",
    "linalg_cholesky",
    "linalg_svdvals",
    "linalg_eigvals",
    "linalg_eigvalsh",
    "linalg_inv",
    "linalg_householder_product",
    "linalg_tensorinv",
    "linalg_tensorsolve",
    "linalg_qr",
    "linalg_cholesky_ex",
    "linalg_svd",
    "linalg_eig",
    "linalg_eigh",
    "linalg_lstsq",
    "linalg_inv_ex",
];
const WIDEST: &[&str] = &["stack", "cat", "index_copy"];
/// Operators with products inside whose results have the types of their operands again.
const HIDDEN: &[&str] =
    &["gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"];

impl Rule {
    /// That of an operator `aten.mm.default`.
    pub fn of(op: &str) -> Rule {
        let Some(name) = op.strip_prefix("aten.").and_then(|rest| rest.split('.').next()) else {
            return Rule::Leave;
        };
        let is_on = |list: &[&str]| list.contains(&name);
        // Other overloads of these are composite.
        let is_composite = matches!(op, "aten._convolution.default");
        match () {
            () if is_on(NARROW) && !is_composite => Rule::Narrow,
            () if is_on(FULL) || name.starts_with("fft_") => Rule::Full,
            () if is_on(WIDEST) => Rule::Widest,
            () if is_on(HIDDEN) => Rule::Hidden,
            () => Rule::Leave,
        }
    }

    /// What the operands of these types become, where it is one type; those of f64 and what is no float stay.
    pub fn target(self, narrow: Dtype, operands: impl IntoIterator<Item = Dtype>) -> Option<Dtype> {
        match self {
            Rule::Narrow => Some(narrow),
            Rule::Full => Some(Dtype::F32),
            // Among narrow types of which neither holds the other, f32 holds both.
            Rule::Widest => {
                let mut types = operands.into_iter().filter(|&dtype| is_converted(dtype));
                let first = types.next()?;
                Some(types.fold(first, |a, b| if a == b { a } else { Dtype::F32 }))
            }
            Rule::Leave | Rule::Hidden => None,
        }
    }
}

/// Whether autocast converts tensors of a type at all.
pub(crate) fn is_converted(dtype: Dtype) -> bool {
    dtype.kind() == Kind::Float && dtype != Dtype::F64
}

impl Body {
    /// Converts operands as autocast does.
    ///
    /// # Errors
    /// Where the conversions are inside of the operator.
    pub fn cast(
        &mut self,
        op: &str,
        narrow: Dtype,
        args: &mut [Arg],
        source: Option<Arc<str>>,
    ) -> Result<(), ImportError> {
        let rule = Rule::of(op);
        if rule == Rule::Hidden {
            return Err(ImportError::UnsupportedType { name: op.to_owned(), feature: "autocast".to_owned() });
        }
        let mut types = Vec::new();
        let mut add = |value: Value| types.extend(self.graph.tensor(value).map(|ty| ty.dtype));
        args.iter().for_each(|arg| arg.each_value(&mut add));
        if let Some(target) = rule.target(narrow, types) {
            args.iter_mut().for_each(|arg| self.cast_one(arg, target, &source));
        }
        Ok(())
    }

    /// Replaces each tensor that autocast converts by one of the type. Strides are what inference makes of them.
    fn cast_one(&mut self, arg: &mut Arg, target: Dtype, source: &Option<Arc<str>>) {
        match arg {
            Arg::List(items) => items.iter_mut().for_each(|item| self.cast_one(item, target, source)),
            Arg::Value(value) => {
                let Some(ty) = self.graph.tensor(*value) else { return };
                if ty.dtype == target || !is_converted(ty.dtype) {
                    return;
                }
                let ty = TensorType { dtype: target, ..ty.clone() };
                let name = self.graph.values[*value].name.clone();
                let cast = self.fresh(&format!("{name}_cast"), Type::Tensor(ty));
                let args = vec![
                    Arg::Value(*value),
                    Arg::Dtype(target),
                    Arg::Bool(false),
                    Arg::Bool(false),
                    Arg::None,
                ];
                self.graph.nodes.push(Node {
                    op: OpName::new("aten.to.dtype"),
                    form: Form::Plain,
                    args,
                    outputs: vec![Some(cast)],
                    source: source.clone(),
                });
                *value = cast;
            }
            Arg::None
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_on_the_lists_of_pytorch() {
        let cases = [
            ("aten.linear.default", Rule::Narrow),
            ("aten.conv2d.padding", Rule::Narrow),
            ("aten._convolution.default", Rule::Leave),
            ("aten._convolution.deprecated", Rule::Narrow),
            ("aten.mse_loss.default", Rule::Full),
            ("aten.linalg_inv.default", Rule::Full),
            ("aten.linalg_vector_norm.default", Rule::Leave),
            ("aten.linalg_vecdot.default", Rule::Narrow),
            ("aten.cat.default", Rule::Widest),
            ("aten.mv.default", Rule::Leave),
            ("aten.softmax.int", Rule::Leave),
            ("aten.gru.input", Rule::Hidden),
            ("mylib.mm.default", Rule::Leave),
        ];
        for (op, rule) in cases {
            assert_eq!(Rule::of(op), rule, "{op}");
        }
        let widest = |types: &[Dtype]| Rule::Widest.target(Dtype::BF16, types.iter().copied());
        assert_eq!(widest(&[Dtype::BF16, Dtype::BF16, Dtype::I64]), Some(Dtype::BF16));
        assert_eq!(widest(&[Dtype::BF16, Dtype::F32]), Some(Dtype::F32));
        assert_eq!(widest(&[Dtype::I64]), None);
    }
}
