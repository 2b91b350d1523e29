//! What PyTorch's autocast for CPUs does to the operands of each operator.
//!
//! The lists are those of `aten/src/ATen/autocast_mode.cpp`. Operators that are on none of them run in the types of their operands.

use litz_ir::schema::Autocast;

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

/// That of an operator `aten.mm.default`.
pub fn of(op: &str) -> Autocast {
    let Some(name) = op.strip_prefix("aten.").and_then(|rest| rest.split('.').next()) else {
        return Autocast::Leave;
    };
    let is_on = |list: &[&str]| list.contains(&name);
    // Other overloads of these are composite.
    let is_composite = matches!(op, "aten._convolution.default");
    match () {
        () if is_on(NARROW) && !is_composite => Autocast::Narrow,
        () if is_on(FULL) || name.starts_with("fft_") => Autocast::Full,
        () if is_on(WIDEST) => Autocast::Widest,
        () if is_on(HIDDEN) => Autocast::Hidden,
        () => Autocast::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_on_the_lists_of_pytorch() {
        let cases = [
            ("aten.linear.default", Autocast::Narrow),
            ("aten.conv2d.padding", Autocast::Narrow),
            ("aten._convolution.default", Autocast::Leave),
            ("aten._convolution.deprecated", Autocast::Narrow),
            ("aten.mse_loss.default", Autocast::Full),
            ("aten.linalg_inv.default", Autocast::Full),
            ("aten.linalg_vector_norm.default", Autocast::Leave),
            ("aten.linalg_vecdot.default", Autocast::Narrow),
            ("aten.cat.default", Autocast::Widest),
            ("aten.mv.default", Autocast::Leave),
            ("aten.softmax.int", Autocast::Leave),
            ("aten.gru.input", Autocast::Hidden),
            ("mylib.mm.default", Autocast::Leave),
        ];
        for (op, rule) in cases {
            assert_eq!(of(op), rule, "{op}");
        }
    }
}
