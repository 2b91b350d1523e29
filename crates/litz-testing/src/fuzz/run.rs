//! Compiles and calls damaged programs: each is refused with a message, or computes what its loops say.

use crate::fuzz::{archive, check};

/// The bytes are a program, as [`archive::around`] takes it.
pub fn any_program(bytes: &[u8]) {
    let Some(imported) = archive::read(archive::around(bytes)) else { return };
    check::graph(&imported.graph, |loops| Vec::from_iter(check::made_up(loops, bytes)));
}
