//! Any bytes as a `.pt2` file: the reader gives a verified graph or an error with a message, and never panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use litz_import::{Archive, ImportError, Imported, import};
use litz_ir::verify;
use std::sync::Arc;

fn read(bytes: Vec<u8>) -> Result<Imported, ImportError> {
    let archive = Archive::open(Arc::new(bytes))?;
    import(&archive, archive.only_model()?, &litz_ops::Table::new())
}

fuzz_target!(|bytes: &[u8]| {
    match read(bytes.to_vec()) {
        Ok(imported) => {
            let diags = verify::graph::verify(&imported.graph);
            assert!(diags.is_empty(), "{}", diags[0]);
        }
        Err(error) => assert!(!error.to_string().is_empty() && !error.diags().is_empty()),
    }
});
