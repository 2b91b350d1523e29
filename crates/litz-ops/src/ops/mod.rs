//! Operators by family: one file each, every file one table.

use crate::def::OpDef;

pub mod attention;
pub mod conv;
pub mod factory;
pub mod index;
pub mod matmul;
pub mod norm;
pub mod pointwise;
pub mod pool;
pub mod reduce;
pub mod resize;
pub mod shape;
pub mod softmax;
pub mod view;

/// Every family with its entries.
pub const FAMILIES: &[(&str, &[OpDef])] = &[
    ("pointwise", pointwise::OPS),
    ("view", view::OPS),
    ("factory", factory::OPS),
    ("reduce", reduce::OPS),
    ("matmul", matmul::OPS),
    ("conv", conv::OPS),
    ("pool", pool::OPS),
    ("norm", norm::OPS),
    ("softmax", softmax::OPS),
    ("attention", attention::OPS),
    ("index", index::OPS),
    ("shape", shape::OPS),
    ("resize", resize::OPS),
];
