//! Reads torch.export archives: a `.pt2` file becomes a verified graph, or an error with a message.
//!
//! [`archive`] finds the entries of the zip, [`schema`] types the JSON of the program, [`srepr`], [`guards`] and
//! [`pytree`] read the three small languages inside its strings, [`weights`] locates the bytes of each tensor, and
//! [`convert`] turns it all into a [`litz_ir::graph::Graph`]. Nothing in a file is executed, pickles included, and no
//! input makes this crate panic.

#![forbid(unsafe_code)]

pub mod archive;
mod autocast;
mod body;
pub mod convert;
mod cx;
mod declared;
pub mod error;
mod functionalized;
pub mod guards;
mod hops;
mod number;
pub mod pytree;
mod scan;
pub mod schema;
mod source;
pub mod srepr;
pub mod weights;

pub use archive::{Archive, Bytes};
pub use convert::{Imported, Input, InputKind, Output, OutputKind, import};
pub use error::{ImportError, UnknownOp};
pub use weights::Weight;
