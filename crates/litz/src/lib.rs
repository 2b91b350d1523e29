//! Drives the compiler: a model file becomes something that runs.
//!
//! ```no_run
//! use litz::{Model, Options, Tensor};
//!
//! let model = Model::open("bert.pt2")?;
//! let compiled = model.compile(&Options::default())?;
//! let ids = Tensor::from_slice(&[1, 4], &[101i64, 7592, 2088, 102])?;
//! let outputs = compiled.run(&[ids])?;
//! println!("{} outputs", outputs.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod ahead;
mod artifact;
pub mod attempt;
mod backends;
pub mod bisect;
pub mod cache;
pub mod case;
pub mod check;
mod code;
pub mod compare;
mod compiled;
pub mod contract;
mod decisions;
pub mod definition;
mod error;
pub mod explain;
mod factories;
pub mod generate;
mod given;
mod host;
mod identity;
mod kept;
mod kernels;
pub mod made_up;
pub mod measure;
pub mod minify;
mod model;
mod options;
pub mod peaks;
mod perf;
pub mod pipeline;
pub mod profile;
pub mod progress;
mod proved;
pub mod provenance;
pub mod report;
mod reproducer;
mod runner;
pub mod settings;
mod size;
mod state;
pub mod tensors;
mod text;
pub mod tune;
mod tuned;

pub use backends::{Device, backend, compile_kernels, devices};
pub use compiled::Compiled;
pub use error::{Error, Reproducer, Whose, whose};
pub use factories::BACKENDS;
pub use given::GivenSchedule;
pub use host::{HostOperator, HostWarning, host_operators};
pub use kernels::load_kernels;
pub use litz_backend::{Backend, BackendError, Factory, Request};
pub use litz_codegen::passes::Pass as KernelPass;
pub use litz_ir::target::{self, Target};
pub use litz_listing::{Form, listing};
pub use litz_runtime::device::RawStream;
pub use litz_runtime::host::{Host, HostArg, HostError, HostResult};
pub use litz_runtime::program::{ConstantInfo, Generation, Statistics, Value};
pub use litz_runtime::tensor::Input;
pub use litz_runtime::{GuardPages, Limits, Tensor, TensorView, TensorViewMut};
pub use model::{Model, has_operator};
pub use options::{Fallback, HostOption, Options, Passes, PoolOption, Verify};
pub use proved::Unproved;
pub use provenance::Provenance;
pub use runner::{Runner, Stage, Timing};
pub use text::Text;
