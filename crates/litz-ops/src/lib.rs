//! Says what each ATen operator means: its schema, its result types and its lowering to loops, by name.
//!
//! # How to add an operator
//!
//! 1. Find its family among the files of `ops/`, or add a file and list it in `ops::FAMILIES`.
//! 2. Add one entry to that file's `OPS`. Use the first form that fits:
//!    - one scalar operation on all operands: `op("aten.exp.default", Promote::Float, ScalarOp::Exp)`;
//!    - elementwise: `pointwise(name, promote, |p, v| ...)`. `v` holds the operands (tensors, and numbers that count
//!      as operands) in the compute type; `p` builds instructions and gives other arguments by name:
//!      `p.args.float("negative_slope")?`;
//!    - a view: `view(name, views)`. The function returns, for each result, its sizes and where each coordinate of
//!      the operand comes from;
//!    - written with other operators: `decompose(name, rewrite)`, when nothing is lost by it;
//!    - all else: `lower(name, types, lower)`: a function for the result types, and one that appends nests;
//!    - an in-place twin: `inplace("aten.add_.Tensor", "aten.add.Tensor")`.
//! 3. State what passes should know and the schema does not say: `lower(..).layout(Layout::Reads)`; see `traits.rs`.
//!    Types say nothing of devices: results are where the operands are, or where an argument `device` says.
//! 4. Run `crates/litz-ops/schemas.py` with a Python that has PyTorch: it writes `schemas.txt` for the names in the
//!    tables.
//! 5. Add cases to `litz-testing/cases/FAMILY.py` and run `bless.py FAMILY` there with a Python that has PyTorch: it
//!    writes `FAMILY.txt` with the types, strides and numbers that eager PyTorch gives; `cargo test -p litz-testing`
//!    compares inference and lowering with them. A family is listed in `FAMILIES` of `litz-testing/src/cases.rs`.
//!
//! In a lowering, `lw.access(tensor)` says where a tensor's elements are (views cost nothing), `lw.result(args, 0)`
//! makes the result's buffer, `lw.temp("max", dtype, sizes)` an intermediate one, and `lw.nest(sizes, |b, at| ...)`
//! appends a nest over `sizes` in which `at` are the coordinates. `b.read` loads in the compute type, half types
//! widened to f32; `b.store` converts back. Keep each nest to one computation: joining nests is for later passes.

#![forbid(unsafe_code)]

pub mod args;
mod autocast;
pub mod body;
pub mod build;
mod complex;
pub mod decompose;
pub mod def;
mod device;
pub mod error;
pub mod hosted;
pub mod infer;
pub mod layout;
pub mod lower;
mod ops;
pub mod promote;
pub mod seed;
mod sizes;
pub mod table;
pub mod traits;
pub mod view;

pub use build::Builder;
pub use decompose::{Rewriter, decompose};
pub use def::{OpDef, ResultRule, Rule};
pub use device::check_devices;
pub use error::OpError;
pub use hosted::Hosted;
pub use infer::{InferCx, infer};
pub use lower::{Provides, check, lower, lower_with};
pub use table::{Table, coverage};
pub use traits::{Devices, Layout, Op, Role, defines_sizes};
