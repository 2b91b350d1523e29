//! Writes to standard output and standard error. Broken pipes are not errors.
//!
//! Nothing else in the command line prints: `println!` panics when its reader is gone, as in `litz explain M.pt2 | head`.

use super::failure::Failure;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Writes results as they are. A reader that is gone has seen enough: the command goes on without it, since it may
/// have files to write, and ends with the status it would have had.
pub fn print(text: impl Display) -> Result<(), Failure> {
    print_bytes(text.to_string().as_bytes())
}

/// As [`print`], with what need not be text.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::io("write", Path::new("standard output"), &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes what is no result, such as errors. Where that fails, nobody is left to be told.
pub fn note(text: impl Display) {
    let _ = std::io::stderr().lock().write_all(text.to_string().as_bytes());
}
