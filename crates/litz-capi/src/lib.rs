//! Gives C the means to open models and programs, run them, and give their constants new contents.
//!
//! `include/litz.h` declares the functions and says what they do; `docs/c.md` shows them at work. Here each function is made of three layers:
//! the C function, which checks its arguments and lets no panic out; the Rust function below it; and the crates `litz` and `litz-runtime`.
//!
//! # Safety
//! What C passes is taken on trust as far as nobody can look: that pointers which are not null point to what the header says, for as long as the
//! header says, and that a handle is one that was given out and not yet released.

mod constants;
mod engine;
mod error;
mod host;
mod model;
mod options;
mod outputs;
mod run;
mod tensor;

pub use constants::{
    Update, litz_model_constant, litz_model_constant_count, litz_model_read_constant, litz_update_fold,
    litz_update_free, litz_update_new, litz_update_set, litz_update_swap,
};
pub use error::{Status, litz_last_error};
pub use host::{CHost, litz_host_allocate};
pub use model::{
    Described, Model, litz_model_close, litz_model_input, litz_model_input_count, litz_model_open,
    litz_model_open_bytes, litz_model_output, litz_model_output_count, litz_model_share, litz_version,
};
pub use outputs::{
    Outputs, litz_outputs_count, litz_outputs_dlpack, litz_outputs_dlpack_versioned, litz_outputs_free,
    litz_outputs_get,
};
pub use run::{Memory, litz_model_run, litz_model_run_into};
pub use tensor::{CTensor, CType, CValue, Kind, litz_tensor_of_dlpack, litz_tensor_of_dlpack_versioned};
