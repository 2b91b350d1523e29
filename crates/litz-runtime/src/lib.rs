//! Runs compiled programs: buffers, threads, checks, object loader, reference device.

pub mod arena;
#[cfg(feature = "ndarray")]
mod array;
pub mod artifact;
pub mod cache;
mod container;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
pub mod dlpack;
pub mod error;
mod formula;
pub mod host;
pub mod images;
pub mod limits;
pub mod mapping;
pub mod mixed;
pub mod native;
mod number;
pub mod object;
pub mod pool;
pub mod program;
pub mod reference;
pub mod routines;
mod spare;
pub mod symbols;
pub mod tensor;
pub mod tiles;
pub mod weights;

pub use arena::GuardPages;
pub use error::RunError;
pub use host::Host;
pub use limits::Limits;
pub use program::Executable;

pub use tensor::{Tensor, TensorView, TensorViewMut};
