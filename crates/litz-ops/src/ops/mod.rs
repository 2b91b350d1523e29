//! Lists the operators by family: one file each, every file one table.

use crate::def::OpDef;

pub mod activation;
pub mod affine;
pub mod assert;
pub mod attention;
pub mod chebyshev;
pub mod complex;
pub mod compose;
pub mod control;
pub mod conv;
pub mod copy;
mod curve;
pub mod data;
pub mod deform;
pub mod digits;
pub mod encoder;
pub mod factory;
pub mod foreach;
#[cfg(feature = "fourier")]
pub mod fourier;
mod fractional;
pub mod gradient;
pub mod gradient_attention;
pub mod gradient_conv;
pub mod gradient_distance;
pub mod gradient_index;
pub mod gradient_loss;
pub mod gradient_norm;
pub mod gradient_pad;
pub mod gradient_pool;
pub mod gradient_resize;
pub mod grid;
pub mod group;
pub mod index;
pub mod join;
#[cfg(feature = "linalg")]
pub mod linear;
pub mod loss;
pub mod margin;
pub mod matmul;
#[cfg(feature = "linalg")]
pub mod matrices;
#[cfg(feature = "linalg")]
pub mod matrix_norm;
pub mod norm;
mod number;
pub mod order;
pub mod pad;
pub mod patches;
pub mod pointwise;
pub mod pool;
pub mod quant;
pub mod quantised;
pub mod random;
pub mod rare;
pub mod reduce;
pub mod resize;
mod resize_bytes;
pub mod rnn;
pub mod roi;
pub mod runs;
pub mod scatter;
pub mod seeded;
mod segment;
pub mod shape;
pub mod slope;
pub mod softmax;
pub mod spaces;
pub mod special;
#[cfg(feature = "fourier")]
pub mod spectrum;
pub mod split;
pub mod statistic;
pub(crate) mod terms;
pub mod variants;
pub mod view;
mod window;

/// Every family with its entries.
pub const FAMILIES: &[(&str, &[OpDef])] = &[
    ("pointwise", pointwise::OPS),
    ("activation", activation::OPS),
    ("copy", copy::OPS),
    ("assert", assert::OPS),
    ("view", view::OPS),
    ("split", split::OPS),
    ("complex", complex::OPS),
    ("encoder", encoder::OPS),
    ("factory", factory::OPS),
    ("random", random::OPS),
    ("seeded", seeded::OPS),
    ("reduce", reduce::OPS),
    ("matmul", matmul::OPS),
    ("conv", conv::OPS),
    ("deform", deform::OPS),
    ("pool", pool::OPS),
    ("fractional", fractional::OPS),
    ("norm", norm::OPS),
    ("softmax", softmax::OPS),
    ("attention", attention::OPS),
    ("index", index::OPS),
    ("control", control::OPS),
    ("data", data::OPS),
    ("number", number::OPS),
    ("compose", compose::OPS),
    ("runs", runs::OPS),
    ("shape", shape::OPS),
    ("foreach", foreach::OPS),
    ("resize", resize::OPS),
    ("grid", grid::OPS),
    ("pad", pad::OPS),
    ("patches", patches::OPS),
    ("rnn", rnn::OPS),
    ("roi", roi::OPS),
    ("scatter", scatter::OPS),
    ("order", order::OPS),
    ("group", group::OPS),
    ("segment", segment::OPS),
    ("join", join::OPS),
    ("special", special::OPS),
    ("rare", rare::OPS),
    ("chebyshev", chebyshev::OPS),
    ("loss", loss::OPS),
    ("margin", margin::OPS),
    ("statistic", statistic::OPS),
    ("slope", slope::OPS),
    ("spaces", spaces::OPS),
    ("digits", digits::OPS),
    ("variants", variants::OPS),
    #[cfg(feature = "fourier")]
    ("fourier", fourier::OPS),
    #[cfg(feature = "fourier")]
    ("spectrum", spectrum::OPS),
    #[cfg(feature = "linalg")]
    ("linear", linear::OPS),
    #[cfg(feature = "linalg")]
    ("matrices", matrices::OPS),
    #[cfg(feature = "linalg")]
    ("matrix_norm", matrix_norm::OPS),
    ("quant", quant::OPS),
    ("affine", affine::OPS),
    ("quantised", quantised::OPS),
    ("gradient", gradient::OPS),
    ("gradient_conv", gradient_conv::OPS),
    ("gradient_attention", gradient_attention::OPS),
    ("gradient_norm", gradient_norm::OPS),
    ("gradient_pool", gradient_pool::OPS),
    ("gradient_resize", gradient_resize::OPS),
    ("gradient_pad", gradient_pad::OPS),
    ("gradient_loss", gradient_loss::OPS),
    ("gradient_index", gradient_index::OPS),
    ("gradient_distance", gradient_distance::OPS),
];
